"""`kernelmate capture`: records launches of a kernel while a program runs, and writes a contract of them."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.capture.records import LIMIT, SHAPES
from kernelmate.cli.options import Output, output_of, output_options
from kernelmate.cli.search import remark
from kernelmate.cli.stopping import print_note
from kernelmate.errors import KernelmateError, UsageError

if TYPE_CHECKING:
    from kernelmate.capture.contract import CapturedContract
    from kernelmate.capture.records import Capture, CaptureSettings
    from kernelmate.cli.programs import FinishedProgram
    from kernelmate.records import Contract, Kernel

EXAMPLE = "kernelmate capture softmax -- python train.py"
_TELL_EVERY_S = 5.0
_MULTIPLES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Bytes(click.ParamType[int]):
    """Parameter type of a number of bytes: `65536`, `64M`."""

    name = "BYTES"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number of bytes; K, M and G are powers of 1024."""
        match = re.fullmatch(r"(\d+)\s*([KMG]?)(?:i?B)?", str(value).strip(), re.IGNORECASE)
        if match is None:
            self.fail(f"{value!r} is not a number of bytes; write it like 65536 or 64M.", param, ctx)
        return int(match[1]) * _MULTIPLES[match[2].upper()]


@click.command(
    epilog="""\b
Examples:
  kernelmate capture softmax -- python train.py
  kernelmate capture softmax --source kernels.cu --write -- ./app --steps 20
  kernelmate capture attention --every 100 --shapes 8 --limit 1G -- python serve.py
  kernelmate capture add_kernel --backend emulator --to captures/add -- python step.py
  kernelmate capture softmax --from softmax.captured --source kernels.cu    no program: of kept records

\b
The program runs with your rights, and its output, input and exit status are its own. Ctrl-C ends it; what was recorded
until then is kept.
Exit codes: the program's own if that is not 0; else 0 the contract was written; 2 the kernel was never launched, or an
option or the kernel's file needs a change; 3 this machine lacks something.""",
)
@click.argument("kernel", metavar="KERNEL")
@click.option("--to", "to", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="The folder for the capture; KERNEL.captured by default.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an earlier capture in that folder.")
@click.option("--from", "kept", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Make the contract of the records in this folder, and run no program.")  # fmt: skip
@click.option("--source", metavar="FILE[::KERNEL]", help="The kernel's text, above which the contract belongs; needed on a GPU.")  # fmt: skip
@click.option("--write", "writes", is_flag=True, help="Write the contract above the kernel in its file.")
@click.option("--limit", type=Bytes(), default=LIMIT, show_default="64M", help="Record launches whose buffers have at most so many bytes together.")  # fmt: skip
@click.option("--every", type=click.IntRange(min=1), default=1, show_default=True, metavar="N", help="Record every Nth launch.")  # fmt: skip
@click.option("--shapes", type=click.IntRange(min=1), default=SHAPES, show_default=True, metavar="K", help="Record at most K launches of each shape.")  # fmt: skip
@click.option("--backend", type=click.Choice(["auto", "cuda", "emulator"]), default="auto", help="Where launches run: on the GPU, or in the emulator on arrays of the host.")  # fmt: skip
@output_options()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- PROGRAM [ARGUMENTS]...")
def capture(
    kernel: str, to: Path | None, force: bool, kept: Path | None, source: str | None, writes: bool, limit: int, every: int,
    shapes: int, backend: str, command: tuple[str, ...], **options: Any,
) -> int:  # fmt: skip
    """Capture launches of a kernel while a program runs: its contract, inputs and expected outputs.

    On a GPU, launches of any program are recorded. Without one, Python programs run whose kernels are launched by CuPy's RawKernel
    and RawModule, Triton or Numba: on arrays of the host, in the emulator. Sizes, grid, shapes and directions are found from
    several launches; the reference returns the outputs of the captured launches, so that bench judges their sizes alone.
    """
    output = output_of(options)
    if bool(command) == (kept is not None):
        raise UsageError("Either a program or --from is needed.", hint=f"Write it as in a shell: {EXAMPLE}")
    from kernelmate.capture.records import CaptureSettings, base_name, read_capture
    from kernelmate.cli.programs import FinishedProgram
    from kernelmate.source import check_writable, load_kernel

    text = None if source is None else load_kernel(source if "::" in source else f"{source}::{base_name(kernel)}")
    if writes and text is not None:
        check_writable(Path(text.unit.path))
    if kept is not None:
        if not (kept / "launches").is_dir():
            raise UsageError(
                f"{kept} is not a capture.", hint=f"Name a folder that has records: --from {base_name(kernel)}.captured"
            )
        done = FinishedProgram(0, "", False, 0)
        made = _make(kernel, read_capture(kept / "launches", shapes), text, done, kept, command)
        return _finish(made, kept, done, writes, output)
    folder = to if to is not None else Path(f"{base_name(kernel)}.captured")
    _check_folder(folder, force)
    with partial_folder(folder, force) as part:
        settings = CaptureSettings(part / "launches", kernel, limit, every, shapes)
        settings.folder.mkdir()
        ended, recorded = _run(command, _environment(settings, backend, text), settings, output)
        made = _make(kernel, recorded, text, ended, part, command)
    return _finish(made, folder, ended, writes, output)


@dataclass(frozen=True, slots=True)
class _MadeCapture:
    """A capture whose files are written: its contract, the kernel that it belongs to, `capture.json`, and the files' names."""

    captured: CapturedContract
    kernel: Kernel
    document: dict[str, Any]
    files: list[str]


def _make(
    name: str, recorded: Capture, source: Kernel | None, ended: FinishedProgram, folder: Path, command: tuple[str, ...]
) -> _MadeCapture:
    """Make the contract of what was recorded, and write its files beside the records.

    Raises:
        UsageError: no launch of the kernel was recorded, its text is not known, or no contract is captured for its parameters.
    """
    from kernelmate.capture.contract import captured_contract
    from kernelmate.capture.files import captured_kernel, write_files

    _check_recorded(recorded, name, command, ended)
    kernel = source if source is not None else captured_kernel(recorded)
    if kernel is None:
        raise UsageError(
            f"The text of {recorded.launches[0].kernel} in CUDA is not known, so no contract can be written.",
            hint="Name the CUDA kernel that has the same parameters: --source FILE::KERNEL.",
        )
    made = captured_contract(kernel, recorded)
    document = _document(made, recorded, ended, command)
    files = write_files(folder, made, kernel, shlex.join(command) or "kept records", document)
    return _MadeCapture(made, kernel, document, files)


def _finish(made: _MadeCapture, folder: Path, ended: FinishedProgram, writes: bool, output: Output) -> int:
    """Shows a finished capture, writes its contract above the kernel if requested, and returns the exit status."""
    from kernelmate.capture.files import contract_text, finished_contract

    owned = made.kernel.unit.language != "text"
    contract = finished_contract(made.captured, folder, Path(made.kernel.unit.path).parent if owned else folder)
    written = [str(folder / one) for one in made.files]
    written += _write(made.kernel, contract) if writes and owned else []
    _show(contract_text(made.kernel, contract), made.document, written, made.kernel, folder, output)
    return ended.status


def _check_folder(folder: Path, force: bool) -> None:
    """Refuses a folder that is not an earlier capture, or an earlier capture that may not be replaced."""
    if not folder.exists():
        return
    if not (folder / "launches").is_dir():
        raise UsageError(f"{folder} exists and is not a capture.", hint="Give another folder with --to.")
    if not force:
        raise UsageError(
            f"{folder} holds a capture.", hint="Replace it with --force, or give another folder with --to."
        )


@contextlib.contextmanager
def partial_folder(folder: Path, force: bool) -> Iterator[Path]:
    """Creates a folder beside the capture's own for the recording; it replaces the capture if any launch was recorded.

    If no contract is made of the records, because of an error or Ctrl-C, they are kept all the same, and a message says so.
    """
    part = folder.absolute().with_name(f".{folder.name}.{os.getpid()}")
    try:
        part.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{part} cannot be made: {error.strerror}.", hint="Give another folder with --to.") from None
    try:
        yield part
        _put(part, folder, force)
    except BaseException as error:
        if any((part / "launches").glob("[!.]*/launch.json")) and (force or not folder.exists()):
            _put(part, folder, force)
            said = f"The records are kept: continue with --from {folder}."
            if isinstance(error, KernelmateError):
                error.hint = f"{error.hint or ''} {said}".lstrip()
            else:
                print_note(said)
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _put(part: Path, folder: Path, force: bool) -> None:
    """Put a finished capture in its place.

    Raises:
        UsageError: another capture has been written there meanwhile, or the folder cannot be written.
    """
    _check_folder(folder, force)
    old = part.with_name(f"{part.name}.old")
    try:
        if folder.exists():
            folder.rename(old)
        part.rename(folder)
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written: {error.strerror}.",
            hint="Another capture may have written it; give another folder with --to.",
        ) from None
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _environment(settings: CaptureSettings, backend: str, source: Kernel | None) -> dict[str, str]:
    """Returns the environment in which the program's launches are recorded.

    Raises:
        UsageError: on a GPU, the kernel's text is not given, or is a Triton function.
        EnvironmentFailed: the library for a GPU cannot be built.
    """
    from kernelmate.capture.injection import has_gpu, injection_environment
    from kernelmate.capture.library_wrappers import STANDINS

    environment = {**os.environ, **settings.environment()}
    if backend == "cuda" or (backend == "auto" and has_gpu()):
        if source is None:
            raise UsageError(
                "On a GPU only a kernel's machine code is available, not its text.",
                hint="Name the text: --source FILE::KERNEL. Or run a Python program in the emulator: --backend emulator.",
            )
        if source.unit.language == "triton":
            raise UsageError(
                "On a GPU, launches of Triton functions are not captured: their code has other parameters than the function.",
                hint="Run the program in the emulator: --backend emulator.",
            )
        return {**environment, **injection_environment()}
    path = [str(STANDINS), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(path)}


def _run(command: tuple[str, ...], environment: dict[str, str], settings: CaptureSettings, output: Output) -> tuple[FinishedProgram, Capture]:  # fmt: skip
    from kernelmate.capture.records import read_capture
    from kernelmate.cli.programs import run_program

    over = threading.Event()
    teller = threading.Thread(target=_tell, args=(settings, over), daemon=True)
    if not output.quiet:
        teller.start()
    try:
        to = sys.stderr.fileno() if output.as_json else None
        ended = run_program(command, environment, example=EXAMPLE, output=to)
    finally:
        over.set()
    return ended, read_capture(settings.folder, settings.shapes)


def _tell(settings: CaptureSettings, over: threading.Event) -> None:
    """Prints how many launches have been recorded, each time that there are more."""
    last = 0
    while not over.wait(_TELL_EVERY_S):
        count = sum(1 for _ in settings.folder.glob("[!.]*/launch.json"))
        if count > last:
            print_note(f"{count} launches of {settings.kernel} recorded")
        last = count


def _check_recorded(recorded: Capture, kernel: str, command: tuple[str, ...], ended: FinishedProgram) -> None:
    """Raises UsageError if no launch of the kernel was recorded; the message lists the kernels that were launched."""
    from kernelmate.capture.records import base_name
    from kernelmate.cli.programs import program_name

    if recorded.launches:
        return
    outcomes = recorded.outcomes
    how = f" (it ended with status {ended.status})" if ended.status else ""
    if outcomes:
        why = ", ".join(f"{count} {_REASONS[outcome]}" for outcome, count in outcomes.items())
        raise UsageError(
            f"No launch of {kernel} was recorded: {why}{how}.",
            hint=next((hint for outcome, hint in _REMEDIES.items() if outcomes[outcome]), None),
        )
    others = list(dict.fromkeys(base_name(name) or name for name in recorded.names))
    launched = (
        f"It launched {', '.join(others[:20])}."
        if others
        else "No launch of a kernel was seen at all: without a GPU, those of CuPy's RawKernel and RawModule, Triton and Numba in Python programs are."
    )
    raise UsageError(f"{program_name(command)} never launched {kernel}{how}.", hint=launched)


_REASONS = {
    "recorded": "recorded",
    "sampled": "left out by --every",
    "enough": "beyond --shapes",
    "large": "with buffers over --limit",
    "graph": "inside CUDA graphs, where nothing can be copied",
    "failed": "failed",
}


_REMEDIES = {
    "recorded": "The records are damaged: run the program again.",
    "large": "Raise --limit, for instance to 1G.",
    "graph": "Run it without CUDA graphs.",
    "failed": "Run it with code that compiles, and with inputs that the kernel accepts.",
}
"""Hints where no launch was recorded, by the outcome of launches; that of the first outcome which occurred is shown."""


def _document(
    made: CapturedContract, capture: Capture, ended: FinishedProgram, command: tuple[str, ...]
) -> dict[str, Any]:
    from kernelmate.capture.records import GRAPH
    from kernelmate.report.json import SCHEMA

    launch = capture.launches[0]
    notes = list(made.notes)
    outcomes = {name: count for name, count in capture.outcomes.items() if count}
    missed = [f"{outcomes[name]} {_REASONS[name]}" for name in ("large", "graph", "failed") if name in outcomes]
    if missed:
        notes.append(f"not all launches could be recorded: {', '.join(missed)}")
    if GRAPH in capture.names:
        notes.append("the program launched CUDA graphs, whose kernels are not captured")
    notes += [f"a record was left out: {text}" for text in capture.damaged]
    if ended.signal:
        notes.append(f"the program was ended by {ended.signal}; what was recorded until then is kept")
    elif ended.status:
        notes.append(f"the program ended with status {ended.status}; what was recorded until then is kept")
    captured = {
        "kernel": made.contract.kernel,
        "launched_as": launch.kernel,
        "emulated": launch.emulated,
        "sizes": [
            {"size": dict(case.size), "launches": case.count, "recorded": len(case.launches)} for case in made.cases
        ],
        "outcomes": outcomes,
        "kernels": list(capture.names),
        "notes": notes,
        "program": {
            "command": list(command),
            "status": ended.status,
            "signal": ended.signal or None,
            "interrupted": ended.interrupted,
        },
    }
    return {"schema": SCHEMA, "captured": captured}


def _write(kernel: Kernel, contract: Contract) -> list[str]:
    """Writes the contract above the kernel in its file."""
    from kernelmate.capture.files import with_contract
    from kernelmate.source import write_back

    write_back(kernel, with_contract(kernel, contract))
    return [kernel.unit.path]


def _show(
    block: str, document: dict[str, Any], written: list[str], kernel: Kernel, folder: Path, output: Output
) -> None:
    captured = document["captured"]
    if output.as_json:
        output.document(
            {**document, "captured": {**captured, "folder": str(folder), "contract": block, "written": written}}
        )
        return
    console = output.stdout()
    total, sizes = sum(captured["outcomes"].values()), len(captured["sizes"])
    where = "in the emulator" if captured["emulated"] else "on the GPU"
    console.print(
        f"{captured['kernel']}: {captured['outcomes'].get('recorded', 0)} of {total} launches recorded {where}, {sizes} {'size' if sizes == 1 else 'sizes'}",
        soft_wrap=True, markup=False, highlight=False,
    )  # fmt: skip
    if output.quiet:
        return
    console.print(block, soft_wrap=True, markup=False, highlight=False, end="")
    for text in captured["notes"]:
        console.print(f"note: {text}", soft_wrap=True, markup=False, highlight=False)
    for one in written:
        remark(f"written: {one}", output)
    if kernel.unit.language != "text" and kernel.unit.path not in written:
        remark(f"{kernel.unit.path} is unchanged; --write writes the contract above {kernel.name}", output)
