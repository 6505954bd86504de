"""`kernelmate targets`: lists the GPUs that kernels can be compiled and judged for."""

from __future__ import annotations

from typing import Any

import click

from kernelmate.cli.options import output_of, output_options


@click.command(
    epilog="""\b
Examples:
  kernelmate targets
  kernelmate targets --json
  kernelmate check softmax.cu --target "RTX 4090"
  kernelmate check softmax.cu --target sm_80"""
)
@output_options(quiet=False)
def targets(**options: Any) -> int:
    """List the GPUs that can be the target of compilation, occupancy and prediction.

    An architecture (sm_90) stands for one listed GPU of it.
    """
    output = output_of(options)
    from kernelmate.compiler.targets import TARGETS

    if output.as_json:
        from kernelmate.report.json import targets_json

        output.document(targets_json(TARGETS))
    else:
        from kernelmate.report.machine import targets_view

        output.stdout().print(targets_view(TARGETS))
    return 0
