"""`kernelmate compare`: judges a changed kernel against the one it would replace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import (
    KernelSpec,
    against_option,
    compile_options,
    judging_options,
    output_of,
    output_options,
    print_notices,
    settings_of,
)
from kernelmate.cli.stopping import exit_code

if TYPE_CHECKING:
    from kernelmate.records import Kernel


@click.command(
    epilog="""\b
Examples:
  kernelmate compare softmax.cu softmax_new.cu
  kernelmate compare softmax.cu softmax_new.cu --for "reduce memory usage"
  kernelmate compare softmax.cu softmax_new.cu --sanitize
  kernelmate compare matmul.cu matmul_new.cu --against cublas
  kernelmate compare ops.cu::softmax ops.cu::softmax_v2 --json"""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@click.argument("candidate", type=KernelSpec(), metavar="CANDIDATE[::KERNEL]")
@click.option("--for", "prompt", metavar="PROMPT", help="Also decide whether it meets this prompt, as in `optimize`.")
@against_option
@judging_options
@compile_options
@output_options()
def compare(
    file: str,
    candidate: str,
    prompt: str | None,
    sizes: tuple[Mapping[str, int], ...],
    reference: str | None,
    **options: Any,
) -> int:
    """Judge CANDIDATE, another file with the same kernel, against the kernel of FILE.

    The contract of FILE applies. If CANDIDATE has a contract, its grid, block, shared and require are used, and
    its other keys are ignored.
    """
    output = output_of(options)
    settings = settings_of(options)
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.session import Session
    from kernelmate.source import file_text, load_kernel

    kernel = load_kernel(file)
    changed = _candidate(candidate, kernel)
    with (
        TerminalProgress(output.stderr(), quiet=output.quiet) as progress,
        Session(settings, progress.stage) as session,
    ):
        comparison = session.compare(kernel, changed, prompt, sizes, reference)
        given = session.given(kernel, sizes, reference) if output.as_json else None
    print_notices(session)
    if given is not None:
        from kernelmate.report.json import verdicts_json
        from kernelmate.source import parse_contract

        contract = parse_contract(changed, given.contract) or given.contract
        output.document(verdicts_json(comparison.candidate, given, changed, contract, prompt))
    else:
        from kernelmate.report.console import show, show_lines
        from kernelmate.report.excerpt import SourceLines
        from kernelmate.report.tables import verdict_line
        from kernelmate.report.versions import comparison_view

        sources = SourceLines({changed.unit.path: file_text(changed)})
        if output.quiet:
            show_lines(output.stdout(), *(verdict_line(one, candidate=True) for one in comparison.candidate))
        else:
            show(output.stdout(), comparison_view(comparison.baseline, comparison.candidate, sources))
    return exit_code(comparison.candidate, lambda verdict: verdict.worth_taking)


def _candidate(spec: str, baseline: Kernel) -> Kernel:
    """Returns the candidate's kernel: the named one, else the one with the baseline's name, else the only one.

    Raises:
        SourceError: the file has no such kernel.
    """
    from kernelmate.source import load_kernel, load_kernels

    if "::" not in spec and any(kernel.name == baseline.name for kernel in load_kernels(Path(spec))):
        spec = f"{spec}::{baseline.name}"
    return load_kernel(spec)
