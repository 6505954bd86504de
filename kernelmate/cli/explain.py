"""`kernelmate explain`: shows the limiters of a kernel by line, with remedies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from kernelmate.cli.options import (
    KernelSpec,
    compile_options,
    judging_options,
    output_of,
    output_options,
    print_notices,
    settings_of,
)
from kernelmate.cli.stopping import exit_code


@click.command(
    epilog="""\b
Examples:
  kernelmate explain transpose.cu
  kernelmate explain ops.cu::rope --size "tokens=4096,heads=32" --target "RTX 4090"
  kernelmate explain softmax.cu --json"""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@judging_options
@compile_options
@output_options()
def explain(
    file: str, sizes: tuple[Mapping[str, int], ...], reference: str | None, question: str = "", **options: Any
) -> int:
    """Show the limiters of one kernel by line, with their causes and remedies.

    Uses counters, occupancy and roofline at the headline size, and no model. Exits with 1 if the kernel is not
    right.
    """
    output = output_of(options)
    settings = settings_of(options)
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.session import Session
    from kernelmate.source import load_single_kernel
    from kernelmate.suggest.diagnosis import diagnose

    kernel = load_single_kernel(file, "explain")
    with (
        TerminalProgress(output.stderr(), quiet=output.quiet) as progress,
        Session(settings, progress.stage) as session,
    ):
        verdicts = session.bench(kernel, sizes, reference)
    print_notices(session)
    explained = [(verdict, diagnose(verdict, kernel.unit.file_text or kernel.unit.text)) for verdict in verdicts]
    if output.as_json:
        from kernelmate.report.causes import causes_json

        output.document(causes_json(explained, question))
    else:
        from kernelmate.report.answers import answers, causes_for
        from kernelmate.report.causes import causes_view
        from kernelmate.report.console import show
        from kernelmate.report.excerpt import SourceLines
        from kernelmate.report.tables import verdict_view

        sources = SourceLines()
        for index, (verdict, causes) in enumerate(explained):
            said = answers(question, verdict)
            shown = causes_for(question, said, causes)
            wrong = verdict.accepted is False
            view = (
                verdict_view(verdict, sources)
                if wrong
                else causes_view(verdict, shown, kernel.unit.path, sources, said)
            )
            show(output.stdout(), *([""] if index else []), view)
    return exit_code(verdicts)
