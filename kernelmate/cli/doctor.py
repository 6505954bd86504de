"""`kernelmate doctor`: shows what this machine has, and how to get what it lacks."""

from __future__ import annotations

from typing import Any

import click

from kernelmate.cli.options import output_of, output_options
from kernelmate.cli.stopping import ENVIRONMENT


@click.command(
    epilog="""\b
Examples:
  kernelmate doctor
  kernelmate doctor --json
  kernelmate doctor --device ssh:gpubox"""
)
@click.option(
    "--device",
    metavar="DEVICE",
    help="Examine this GPU: its number, or ssh:HOST or ssh:HOST:N for one of another machine.",
)
@output_options(quiet=False)
def doctor(**options: Any) -> int:
    """Show what this machine has (compiler, GPU, cache, model, key) and lacks, with remedies.

    Exits with 3 if the compiler is missing, which all commands need; everything else is optional.
    """
    output = output_of(options)
    from kernelmate.config import load_settings
    from kernelmate.session.machine import run_checks

    checks = run_checks(load_settings(device=options["device"]))
    if output.as_json:
        from kernelmate.report.json import doctor_json

        output.document(doctor_json(checks))
    else:
        from kernelmate.report.machine import doctor_view

        output.stdout().print(doctor_view(checks))
    return ENVIRONMENT if any(check.status == "broken" for check in checks) else 0
