"""`kernelmate lift`: derives a NumPy reference from a kernel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import (
    KernelSpec,
    Output,
    compile_options,
    device_option,
    output_of,
    output_options,
    print_notices,
    settings_of,
)
from kernelmate.cli.search import remark
from kernelmate.errors import UsageError

if TYPE_CHECKING:
    from kernelmate.records import Kernel
    from kernelmate.session.lifting import LiftOutcome


@click.command(
    epilog="""\b
Examples:
  kernelmate lift softmax.cu
  kernelmate lift kernels.cu::column_max --write
  kernelmate lift softmax.cu --write --to references.py

\b
Exit codes: 0 the function agrees with the kernel in every case; 1 the kernel is not lifted, or disagrees: nothing is
offered; 2 the contract or an option needs a change; 3 this machine lacks something."""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@click.option(
    "--write", "writes", is_flag=True, help="Write the function beside the kernel, and the line into its contract."
)
@click.option("--to", "to", metavar="FILE.py", help="The file for the function; by default reference.py beside the kernel.")  # fmt: skip
@click.option("--backend", type=click.Choice(["auto", "cuda", "emulator"]), help="The backend that judges the kernel.")
@device_option
@click.option("--seed", type=int, metavar="N", help="Seed of the inputs; drawn and reported if not given.")
@compile_options
@output_options()
def lift(file: str, writes: bool, to: str | None, **options: Any) -> int:
    """Read a reference in NumPy from the text of a kernel.

    The function is shown only after the kernel was judged right with it, in every case that bench judges. It describes
    the kernel as it is, not its intended result: read it before you rely on it.
    """
    output = output_of(options)
    settings = settings_of(options)
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.session import Session
    from kernelmate.session.lifting import FILE, lift_and_judge
    from kernelmate.source import load_single_kernel

    kernel = load_single_kernel(file, "lift")
    path = Path(kernel.unit.path).parent / FILE if to is None else Path(to)
    with (
        TerminalProgress(output.stderr(), quiet=output.quiet) as progress,
        Session(settings, progress.stage) as session,
    ):
        found = lift_and_judge(session, kernel)
    print_notices(session)
    line = f'reference = "{_named(path, kernel)}:{found.function.name}"' if found.function else ""
    written = _written(kernel, found, path, line) if writes and found.agrees else []
    _show(kernel, found, line, written, output)
    return 0 if found.agrees else 1


def _named(path: Path, kernel: Kernel) -> str:
    """Returns the file's path as written in a contract: relative to the kernel's folder, if it is below it."""
    folder = Path(kernel.unit.path).resolve().parent
    target = path.resolve()
    return target.relative_to(folder).as_posix() if target.is_relative_to(folder) else str(target)


def _written(kernel: Kernel, found: LiftOutcome, path: Path, line: str) -> list[str]:
    """Write the function's file and then the kernel's; returns the written files.

    Raises:
        InputError: the contract is inferred or already has a reference, or a file cannot be written.
    """
    from dataclasses import replace

    from kernelmate.session.exporting import write_all
    from kernelmate.session.lifting import file_text
    from kernelmate.source import check_writable, write_back, write_contract

    assert found.function is not None
    if found.contract.inferred:
        raise UsageError(f"{kernel.name} has no contract that a reference could be written into.", hint="Write the contract first; kernelmate check shows what it would be.")  # fmt: skip
    if found.contract.reference is not None:
        raise UsageError(f"{kernel.name} has a reference already: {found.contract.reference}.", hint="Leave --write out to see the function.")  # fmt: skip
    if path.suffix != ".py":
        raise UsageError(f"--to {path}: a reference's file ends in .py.", hint=f"Give {path.with_suffix('.py')}.")
    check_writable(Path(kernel.unit.path))
    text = file_text(path.read_text("utf-8") if path.exists() else None, found.function)
    named = json.loads(line.partition(" = ")[2])
    changed = write_contract(kernel, replace(found.contract, reference=named, reference_kind="function"))
    write_all(path.parent, {path.name: text}, force=True)
    write_back(kernel, changed)
    return [str(path), kernel.unit.path]


def _show(kernel: Kernel, found: LiftOutcome, line: str, written: list[str], output: Output) -> None:
    if output.as_json:
        from kernelmate.report.json import lifted_json

        place = None if found.line is None else kernel.unit.locate(found.line, 1)[0]
        output.document(lifted_json(found, line if found.agrees else None, place, written))
        return
    console = output.stdout()
    if not found.agrees or found.function is None:
        place = kernel.unit.locate(found.line or kernel.line, 1)[0]
        console.print(
            f"{kernel.unit.path}:{place}: {kernel.name} is not lifted: {found.reason}", soft_wrap=True, markup=False
        )
        return
    console.print(found.function.text, soft_wrap=True, markup=False, highlight=False)
    console.print(line, soft_wrap=True, markup=False, highlight=False)
    if output.quiet:
        return
    remark(
        f"agrees with {kernel.name} in all {found.cases} cases; it says what the kernel computes, not what was meant",
        output,
    )
    if found.note is not None:
        remark(f"synthesis cannot use it: {found.note}", output)
    for one in written:
        remark(f"written: {one}", output)
    if not written:
        remark("nothing was written; --write writes the function and the contract's line", output)
