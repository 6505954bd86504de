"""`kernelmate check`: compiles kernels, and shows resources and occupancy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from kernelmate.cli.options import KernelSpec, Output, compile_options, output_of, output_options, settings_of

if TYPE_CHECKING:
    from kernelmate.records import Contract, Kernel, Target, Verdict
    from kernelmate.report.tables import CheckedKernel


@click.command(
    epilog="""\b
Examples:
  kernelmate check softmax.cu                      every kernel of the file
  kernelmate check softmax.cu::softmax --target "RTX 4090"
  kernelmate check src/attention.cu --build build  with the project's own flags
  kernelmate check ops.py --json                   cupy.RawKernel strings and Triton functions of a Python file"""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@compile_options
@output_options()
def check(file: str, **options: Any) -> int:
    """Compile the kernels of FILE; show resources, occupancy and its limiter.

    Runs nothing of the file and needs no GPU. Without a contract, occupancy is that of an inferred launch, which
    is marked as a guess.
    """
    output = output_of(options)
    settings = settings_of(options)
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.cli.stopping import print_note
    from kernelmate.session import Session
    from kernelmate.source import load_kernel, load_kernels
    from kernelmate.source.files import unread_kernels

    kernels = (load_kernel(file),) if "::" in file else load_kernels(Path(file))
    verdicts: list[tuple[Kernel, Verdict]] = []
    with (
        TerminalProgress(output.stderr(), quiet=output.quiet) as progress,
        Session(settings, progress.stage) as session,
    ):
        for done, kernel in enumerate(kernels):
            progress.stage(f"compiling {kernel.name}", done, len(kernels))
            verdicts += [(kernel, verdict) for verdict in session.check(kernel, keep_going=len(kernels) > 1)]
        target = session.target
    for unread in unread_kernels(Path(file.partition("::")[0])) if "::" not in file else ():
        print_note(unread)
    _show(verdicts, target, output)
    return 1 if any(verdict.accepted is False for _, verdict in verdicts) else 0


def _show(verdicts: list[tuple[Kernel, Verdict]], target: Target, output: Output) -> None:
    if output.as_json:
        from kernelmate.report.json import verdicts_json

        output.document(verdicts_json([verdict for _, verdict in verdicts]))
        return
    from kernelmate.report.console import show, show_lines
    from kernelmate.report.excerpt import SourceLines
    from kernelmate.report.tables import check_line, check_view

    console = output.stdout()
    if output.quiet:
        show_lines(console, *(check_line(verdict) for _, verdict in verdicts))
        return
    show(console, check_view([_checked(kernel, verdict, target) for kernel, verdict in verdicts], SourceLines()))
    if len({kernel.name for kernel, _ in verdicts}) == 1 and verdicts[0][0].unit.language == "triton":
        _offer_skeleton(verdicts[0][0], output)
    elif len({kernel.name for kernel, _ in verdicts}) == 1 and verdicts[0][1].compiled:
        _offer_contract(verdicts[0][0], output)


def _checked(kernel: Kernel, verdict: Verdict, target: Target) -> CheckedKernel:
    """Returns the verdict with changes that would raise its occupancy, and the launch that its occupancy is for."""
    from kernelmate.compiler import what_would_lift
    from kernelmate.report.tables import CheckedKernel
    from kernelmate.source import launch_shape
    from kernelmate.source.instances import at_instance

    contract = _contract(kernel)
    contract = None if contract is None else at_instance(contract, verdict.instance)
    if contract is None or verdict.resources is None or verdict.occupancy is None:
        return CheckedKernel(verdict)
    shape = launch_shape(contract, contract.sizes[0])
    return CheckedKernel(verdict, what_would_lift(target, verdict.resources, shape), shape, contract.inferred)


def _contract(kernel: Kernel) -> Contract | None:
    from kernelmate.errors import ContractError
    from kernelmate.source import contract_for

    try:
        return contract_for(kernel)
    except ContractError:
        return None


def _offer_skeleton(kernel: Kernel, output: Output) -> None:
    """Prints the contract that a Triton kernel without one needs, with placeholders."""
    from kernelmate.report.console import Verbatim, heading, show
    from kernelmate.source.triton_contract import skeleton

    if kernel.contract_span is None:
        title = heading(
            "a contract to complete (dtypes, shapes and sizes are placeholders) and to put above the kernel"
        )
        show(output.stdout(), "", title, Verbatim(skeleton(kernel)))


def _offer_contract(kernel: Kernel, output: Output) -> None:
    """Prints the inferred contract of a kernel without one, as text to put above it, with each line's origin."""
    from kernelmate.report.console import Verbatim, heading, show
    from kernelmate.source import inference, render_contract

    contract = _contract(kernel)
    if contract is None or not contract.inferred:
        return
    language: Literal["cuda", "python"] = "python" if kernel.unit.language == "python" else "cuda"
    title = heading("an inferred contract, to correct and put above the kernel")
    show(output.stdout(), "", title, Verbatim(render_contract(contract, language, origins=inference(kernel).origins)))
