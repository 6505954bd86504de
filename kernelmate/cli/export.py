"""`kernelmate export`: writes an accepted kernel as self-contained files, with a test that judges it again."""

from __future__ import annotations

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
    from kernelmate.session.exporting import Export


TO_TORCH = "torch"
"""Value of `--to` that exports a kernel as a torch operator; a folder cannot have this name."""


@click.command(
    epilog="""\b
Examples:
  kernelmate export softmax.cu --to handover                     the file's present version
  kernelmate export softmax.cu --to handover --version 12        a version of the history
  kernelmate export new.cu --to handover --baseline old.cu       against a file of its own
  pytest handover                                                judge it again, with or without a GPU
  kernelmate export softmax.cu --to torch                        a torch operator, in softmax_torch
  kernelmate export softmax.cu --to torch --backward grad.cu     with gradients by another kernel
  pytest softmax_torch                                           test the operator, with or without a GPU

\b
Written are the kernel's file with the headers and reference that it needs, its baseline, KERNEL.diff,
KERNEL.verdict.json (which `kernelmate confirm` takes), and test_KERNEL.py. With --to torch, it is the package
KERNEL_op, which needs torch, and CuPy on a GPU, and test_KERNEL_op.py. A folder of the name torch is ./torch.
Exit codes: 0 it was written; 1 the kernel was rejected, and nothing was written; 2 a file would be
overwritten, or an option needs a change; 3 this machine lacks something."""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@click.option(
    "--to",
    "folder",
    metavar="DIR|torch",
    required=True,
    help="The folder for the files, created if it does not exist; or torch, for a torch operator.",
)
@click.option("--out", metavar="DIR", help="The folder for a torch operator (KERNEL_torch).")
@click.option("--backward", type=KernelSpec(), metavar="FILE[::KERNEL]", help="The kernel that computes a torch operator's gradients.")  # fmt: skip
@click.option("--version", type=click.IntRange(1), metavar="N", help="This version of the history (`kernelmate history FILE`).")  # fmt: skip
@click.option("--baseline", type=KernelSpec(), metavar="FILE[::KERNEL]", help="The version that it was made from, in place of the history's.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--backend", type=click.Choice(["auto", "cuda", "emulator"]), help="The backend that judges it.")
@device_option
@click.option("--seed", type=int, metavar="N", help="Seed of the inputs; drawn and reported if not given.")
@compile_options
@output_options()
def export(
    file: str, folder: str, out: str | None, backward: str | None, version: int | None, baseline: str | None, force: bool,
    **options: Any,
) -> int:  # fmt: skip
    """Judge a kernel again and write it with its diff, its verdict, and a pytest that works without a GPU; or as a torch operator.

    Existing files are overwritten only with --force. A rejected kernel is not written.
    """
    output = output_of(options)
    settings = settings_of(options)
    operator = folder == TO_TORCH
    if not operator and (out is not None or backward is not None):
        raise UsageError(f"--{'out' if out is not None else 'backward'} is for operators.", hint="Write --to torch.")
    for option, place in (("--out", out), ("--to", None if operator else folder)):
        if place is not None and Path(place).exists() and not Path(place).is_dir():
            raise UsageError(f"{option} {place} is a file.", hint="Give a folder.")
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.history import History
    from kernelmate.session import Session
    from kernelmate.session.exporting import choose, write_all
    from kernelmate.session.exporting import export as judge
    from kernelmate.session.operator_export import export_operator, operator_folder
    from kernelmate.source import load_kernel

    with History(settings.history_file) as history:
        chosen = choose(file, version, baseline, history if settings.history else None)
    with (
        TerminalProgress(output.stderr(), quiet=output.quiet) as progress,
        Session(settings, progress.stage) as session,
    ):
        if operator:
            second = None if backward is None else load_kernel(backward)
            made = export_operator(session, settings, chosen, second)
            folder = out or operator_folder(chosen.kernel)
        else:
            made = judge(session, settings, chosen)
    print_notices(session)
    written = write_all(Path(folder), made.files, force=force) if made.accepted else []
    _show(made, written, output)
    return 0 if made.accepted else 1


def _show(made: Export, written: list[Path], output: Output) -> None:
    if output.as_json:
        from kernelmate.report.json import exported_json

        output.document(
            exported_json((*made.verdicts, *made.backward), [str(path) for path in written], made.chosen.notes)
        )
        return
    from kernelmate.report.console import show, show_lines
    from kernelmate.report.excerpt import SourceLines
    from kernelmate.report.tables import verdict_line, verdict_view
    from kernelmate.report.versions import comparison_view

    if output.quiet:
        verdicts = (*made.verdicts, *made.backward)
        show_lines(output.stdout(), *(verdict_line(verdict, candidate=True) for verdict in verdicts))
        return
    sources = SourceLines()
    if made.baseline:
        show(output.stdout(), comparison_view(made.baseline, made.verdicts, sources))
    else:
        show(output.stdout(), *(verdict_view(verdict, sources) for verdict in made.verdicts))
    if made.backward:
        show(output.stdout(), *(verdict_view(verdict, sources) for verdict in made.backward))
    for text in made.chosen.notes:
        remark(f"note: {text}", output)
    if not made.accepted:
        remark("nothing was written: the kernel was rejected", output)
    for path in written:
        remark(f"written: {path}", output)
