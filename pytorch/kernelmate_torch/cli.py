"""`kernelmate port`: a PyTorch module with kernels in place of its parts, verified against float64 eager."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kernelmate.cli.options import (
    Output,
    compile_options,
    device_option,
    output_of,
    output_options,
    print_notices,
    settings_of,
)
from kernelmate.cli.search import remark
from kernelmate.errors import SourceError, UsageError

if TYPE_CHECKING:
    from kernelmate.config import Settings
    from kernelmate_torch.model_text import PortedFile
    from kernelmate_torch.porting import PortedPart
    from kernelmate_torch.program import Agreement, ModelProgram

MODULE_TIMEOUT_S = 300.0
"""Seconds that one request to the module's process may take."""


SCHEDULES_ON_GPU = 3
"""Kernels judged for each part on a GPU, where their times are measured and not predicted."""


@click.command(
    epilog="""\b
Examples:
  kernelmate port model.py                            the class Model, with get_inputs and get_init_inputs
  kernelmate port model.py:Block --to block_new
  kernelmate port layers.py:gelu_linear --inputs "x=float32[64, 128], w=float32[256, 128], b=float32[256]"
  kernelmate port model.py --all --budget 300         also what a library computes as fast; five minutes at most
  kernelmate port model.py --backward                 also kernels for gradients, so that training runs through them

\b
Written are model_new.py with ModelNew, kernels/*.cu with contracts, reference.py with what each computes in NumPy,
a copy of the module's file, and test_model_new.py.
Exit codes: 0 ModelNew agrees with the module and was written; 1 no part got a kernel, or ModelNew disagrees: nothing
was written; 2 the file, the module or an option needs a change; 3 this machine lacks something (PyTorch:
pip install 'kernelmate[torch]')."""
)
@click.argument("module", metavar="FILE.py[:MODULE]")
@click.option("--inputs", default="", metavar="INPUTS", help='Example inputs, as "x=float32[64, 128], ids=int64[8] ~ integers(0, 100)"; by default those of get_inputs.')  # fmt: skip
@click.option("--to", "folder", metavar="DIR", help="The folder for the files; by default MODEL_new beside FILE.py.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--all", "everything", is_flag=True, help="Also write kernels for lone matrix products and convolutions, which libraries compute as fast.")  # fmt: skip
@click.option("--backward", is_flag=True, help="Also write kernels for the gradients of each part, registered with torch.library; gradients are compared with float64.")  # fmt: skip
@click.option("--schedules", type=click.IntRange(1, 8), help="Kernels to judge for each part, the fastest right one of which is taken; 3 by default on a GPU, else 1.")  # fmt: skip
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Begin no further part after this time.")  # fmt: skip
@click.option("--module-timeout", type=click.FloatRange(min=0, min_open=True), default=MODULE_TIMEOUT_S, show_default=True, metavar="SECONDS", help="Seconds for one run of the module.")  # fmt: skip
@click.option("--backend", type=click.Choice(["auto", "cuda", "emulator"]), help="The backend that judges kernels.")
@device_option
@click.option("--seed", type=int, metavar="N", help="Seed of parameters and inputs; 0 by default.")
@compile_options
@output_options()
def port(
    module: str, inputs: str, folder: str | None, force: bool, everything: bool, backward: bool, schedules: int | None,
    budget: float | None, module_timeout: float, **options: Any,
) -> int:  # fmt: skip
    """Port a PyTorch module or function: write ModelNew, whose parts are CUDA kernels.

    torch.export gives the graph in a confined process. It is cut into parts that are worth one kernel; each is written as by
    `kernelmate write`, judged, and left to PyTorch if no kernel is right. ModelNew keeps constructor and state dict, and is
    compared with the module in float64 on several seeds, distributions and sizes, in eval and training mode.

    With --backward, autograd gives the backward graph of each part, which is cut into parts in the same way. Training then runs
    through the kernels; without it, the original forward runs where gradients are needed.
    """
    output = output_of(options)
    settings = settings_of(options)
    path, name = _named(module)
    file, text = _read(path, name)
    target = Path(folder) if folder is not None else path.parent / f"{path.stem}_new"
    _refuse_taken(target, force=force)
    until = None if budget is None else time.monotonic() + budget
    asked = _Asked(file, text, target, inputs, everything, backward, schedules, until, module_timeout)
    ported = _ported(settings, asked, output)
    written: list[Path] = []
    if ported.good:
        from kernelmate.session.exporting import write_all

        written = write_all(target, ported.files, force=force)
    _show(ported, written, output)
    return 0 if ported.good else 1


@dataclass(frozen=True, slots=True)
class _Asked:
    """The command's options."""

    file: PortedFile
    text: str
    target: Path
    inputs: str
    everything: bool
    backward: bool
    schedules: int | None
    until: float | None
    timeout_s: float


class _Ported:
    """A ported module: its parts, the verification, and the files' texts; no files if there is nothing to write."""

    def __init__(self, program: ModelProgram, parts: list[PortedPart], seed: int, *, backward: bool) -> None:
        self.program, self.parts, self.seed, self.backward = program, parts, seed, backward
        self.agreement: Agreement | None = None
        self.files: Mapping[str, str] = {}

    @property
    def good(self) -> bool:
        """Returns True if ModelNew has a kernel and agrees."""
        return self.agreement is not None and not self.agreement.wrong


def _named(module: str) -> tuple[Path, str]:
    path, colon, name = module.rpartition(":")
    if not colon:
        path, name = module, "Model"
    if not path.endswith(".py") or not name.isidentifier():
        raise UsageError(f"{module!r} names no module.", hint="Write model.py:Model, or model.py for its class Model.")
    return Path(path), name


def _read(path: Path, name: str) -> tuple[PortedFile, str]:
    from kernelmate.source.files import read_text
    from kernelmate_torch.model_text import read_file

    text = read_text(path)
    return read_file(path, name, text), text


def _refuse_taken(target: Path, *, force: bool) -> None:
    if target.exists() and not target.is_dir():
        raise UsageError(f"--to {target} is a file.", hint="Give a folder.")
    taken = target / "model_new.py"
    if taken.exists() and not force:
        raise UsageError(f"{taken} is there already; nothing was written.", hint="Give another folder with --to, or --force to overwrite.")  # fmt: skip


def _ported(settings: Settings, asked: _Asked, output: Output) -> _Ported:
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.session import Session
    from kernelmate_torch.module_process import ModuleProcess
    from kernelmate_torch.porting import Porter, PortRequest

    progress = TerminalProgress(output.stderr(), quiet=output.quiet or output.as_json)
    seed = settings.seed if settings.seed is not None else 0
    with contextlib.ExitStack() as stack:
        staging = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernelmate-port-"))).resolve()
        session = stack.enter_context(Session(settings, progress.stage))
        device = settings.place.index if session.backend == "cuda" and settings.place.host is None else None
        process = stack.enter_context(ModuleProcess(asked.file.path.parent, asked.timeout_s, gpu=device is not None))
        stack.enter_context(progress)
        progress.step(f"exporting {asked.file.name}")
        program = process.export(
            asked.file.path, asked.file.name, asked.inputs, seed, real_sizes=session.backend == "cuda",
            backward=asked.backward,
        )  # fmt: skip
        request = PortRequest(
            staging,
            asked.everything,
            asked.schedules or (SCHEDULES_ON_GPU if session.backend == "cuda" else 1),
            asked.until,
            seed,
            session.backend == "cuda",
            device,
            asked.backward,
        )
        porter = Porter(session, process, program, request, progress.schedule)
        parts: list[PortedPart] = []
        for part in porter.parts():
            parts.append(part)
            if part.computes and not output.as_json:
                with progress.paused():
                    _tell_part(part, asked.file, output)
        made = _Ported(program, parts, seed, backward=asked.backward)
        print_notices(session)
        if any(one.kernel is not None for one in parts):
            progress.step("comparing ModelNew with the module")
            _verify(made, asked, staging, process)
    return made


def _verify(made: _Ported, asked: _Asked, staging: Path, process: Any) -> None:
    """Writes the files into the staging folder, and compares the new module with the old one."""
    from kernelmate.session.exporting import write_all
    from kernelmate.source import contract_for, load_kernel
    from kernelmate_torch.compiling import compiled_operator
    from kernelmate_torch.model_text import new_files

    made.files = new_files(asked.file, asked.text, made.program, made.parts, asked.target, backward=asked.backward)
    folder = staging / "new"
    write_all(folder, made.files, force=True)
    for path in made.files:
        if path.endswith(".cu"):
            # The confined process cannot start a compiler; it finds the code in the cache.
            kernel = load_kernel(str(folder / path))
            compiled_operator(kernel, contract_for(kernel))
    try:
        made.agreement = process.verify(folder, made.seed, backward=asked.backward)
    except SourceError as error:
        from kernelmate_torch.program import Agreement

        made.agreement = Agreement(0, 0.0, error.message)


def _tell_part(part: PortedPart, file: PortedFile, output: Output) -> None:
    console = output.stdout()
    line = next((one.line for one in part.nodes if one.line), 0)
    where = f"{file.path.name}:{line}" if line else file.path.name
    for text in _part_lines(part):
        console.print(f"{where}: {text}", soft_wrap=True, markup=False, highlight=False)


def _part_lines(part: PortedPart) -> Iterator[str]:
    """Yields the outcome of a part, then the outcomes of its gradient's parts."""
    if part.kernel is None or part.function is None:
        yield f"{part.nodes[0].target.removeprefix('aten.').split('.')[0]} stays eager: {part.why}"
        return
    if part.again:
        yield f"{part.function.name}: the same kernel again"
        return
    timing = part.kernel.verdict.timing
    time_text = "" if timing is None else f", {timing.median_us:.3g} us {'predicted' if timing.kind == 'predicted' else ''}".rstrip()  # fmt: skip
    faster = ""
    if part.times is not None and part.times.eager_us and part.times.kernel_us:
        faster = f"; {part.times.eager_us / part.times.kernel_us:.3g} times as fast as PyTorch's operations"
    elif part.times is not None:
        faster = f"; not timed beside PyTorch: {part.times.why}"
    yield f"{part.function.name}: kernel {part.kernel.schedule}, judged right{time_text}{faster}"
    if part.gradient is None:
        return
    saved = ", ".join(one.name for one in part.gradient.derived.saved)
    yield f"{part.function.name}: its gradients need {saved or 'nothing saved'}"
    for one in part.gradient.parts:
        if one.computes:
            yield from (f"  {text}" for text in _part_lines(one))


def _show(made: _Ported, written: list[Path], output: Output) -> None:
    kernels = [one for one in made.parts if one.kernel is not None]
    if output.as_json:
        output.document(_document(made, written))
        return
    console = output.stdout()
    if not kernels:
        console.print("nothing was written: no part got a kernel", soft_wrap=True)
        return
    assert made.agreement is not None
    if made.agreement.wrong:
        console.print(f"nothing was written: ModelNew disagrees: {made.agreement.wrong}", soft_wrap=True, markup=False)
        return
    gradients = " and its gradients agree" if made.backward else " agrees"
    console.print(
        f"ModelNew{gradients} with the module in float64: {made.agreement.compared} comparisons, largest deviation "
        f"{made.agreement.deviation:.2g} of the largest value",
        soft_wrap=True, markup=False, highlight=False,
    )  # fmt: skip
    if made.program.smaller:
        sizes = ", ".join(f"{name} = {value}" for name, value in made.program.smaller.items())
        remark(f"note: the file's own inputs are too large here, so it was ported and compared with {sizes}", output)
    if not made.program.same_in_training:
        more = ", its gradients included" if made.backward else ""
        remark(
            f"note: training mode computes something else (statistics, random numbers) and stays eager{more}", output
        )
    for path in written:
        remark(f"written: {path}", output)


def _document(made: _Ported, written: list[Path]) -> dict[str, Any]:
    from kernelmate.report.json import SCHEMA, verdict_json

    def described(one: PortedPart) -> dict[str, Any]:
        gradient = None
        if one.gradient is not None:
            gradient = {
                "saved": [saved.name for saved in one.gradient.derived.saved],
                "parts": [described(part) for part in one.gradient.parts if part.computes],
            }
        return {
            "name": one.nodes[0].name if one.function is None else one.function.name,
            "operations": [node.target for node in one.nodes],
            "line": next((node.line for node in one.nodes if node.line), None),
            "schedule": None if one.kernel is None else one.kernel.schedule,
            "again": one.again,
            "eager": one.why or None,
            "verdict": None if one.kernel is None else verdict_json(one.kernel.verdict),
            "gradient": gradient,
            "times": None if one.times is None else msgspec.to_builtins(one.times),
        }

    parts = [described(one) for one in made.parts if one.computes]
    agreement = made.agreement
    ported = {
        "parts": parts,
        "agrees": None if agreement is None else not agreement.wrong,
        "reason": agreement.wrong or None if agreement is not None else "no part got a kernel",
        "comparisons": 0 if agreement is None else agreement.compared,
        "deviation": None if agreement is None else agreement.deviation,
        "smaller": made.program.smaller,
        "same_in_training": made.program.same_in_training,
        "seed": made.seed,
        "files": [str(path) for path in written],
    }
    return {"schema": SCHEMA, "ported": ported}
