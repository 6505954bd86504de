"""`kernelmate confirm`: judges promising versions again, on a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import Output, device_option, output_of, output_options, settings_of
from kernelmate.cli.search import remark
from kernelmate.cli.stopping import exit_code
from kernelmate.errors import BackendUnavailable, UsageError

if TYPE_CHECKING:
    from kernelmate.records import ConfirmationReport, PortableJudgement

LARGEST_DOCUMENT = 64 << 20
"""Maximum size in bytes of a document."""

HINT = "Or use the GPU of another machine: --device ssh:HOST."


@click.command(
    epilog="""\b
Examples:
  kernelmate optimize softmax.cu "make it faster" --json > promising.json     on a laptop
  kernelmate confirm promising.json                                           on a machine with a GPU
  kernelmate confirm promising.json --all --json
  kernelmate confirm promising.json --device ssh:gpubox                       from the laptop itself
  kernelmate bench softmax.cu --json | kernelmate confirm -                   is the predicted time right?

\b
The document carries the kernel, its contract, sizes, options, and the reference and headers of its folder.
Exit codes: 0 something was confirmed (or the kernel itself is right); 1 nothing was; 3 there is no GPU here."""
)
@click.argument("document", metavar="DOCUMENT", type=click.Path(allow_dash=True))
@click.option(
    "--all", "everything", is_flag=True, help="Judge every version again, not only promising and undecided ones."
)
@click.option("--accept", is_flag=True, help="Write the best confirmed version into its file; keeps a backup.")
@device_option
@click.option(
    "--timeout",
    "timeout",
    type=float,
    metavar="SECONDS",
    help="Seconds for one compilation, and for judging one version.",
)
@output_options()
def confirm(document: str, everything: bool, accept: bool, **options: Any) -> int:
    """Judge promising versions on a GPU, and report whether the measurements confirm the predictions.

    DOCUMENT is the output of `optimize --json`, `compare --json` or `bench --json` without a GPU; - reads it from
    standard input.
    """
    output = output_of(options)
    settings = settings_of({**options, "backend": "cuda"})
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.session import Session, read_carried
    from kernelmate.source import check_writable

    carried = read_carried(_text(document), "standard input" if document == "-" else document)
    if accept:
        check_writable(_path(carried))
    try:
        session = Session(settings, (progress := TerminalProgress(output.stderr(), quiet=output.quiet)).stage)
    except BackendUnavailable as error:
        install = (error.hint or "").partition(" Or use --backend")[0]
        error.hint = f"{install} {HINT}"
        raise
    with progress, session:
        confirmed = session.confirm(carried, everything=everything)
    _show(confirmed, output)
    if accept:
        _accept(carried, confirmed, output)
    if not carried.promises:
        return exit_code([confirmed.baseline])
    return 0 if any(one.outcome == "confirmed" for one in confirmed.confirmations) else 1


def _text(document: str) -> str:
    if document == "-":
        return sys.stdin.read(LARGEST_DOCUMENT)
    path = Path(document)
    try:
        if path.stat().st_size > LARGEST_DOCUMENT:
            raise UsageError(f"{document} has over {LARGEST_DOCUMENT >> 20} MiB.", hint="Give one command's document.")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{document} is not text.", hint="Give what a command printed with --json.") from None
    except OSError as error:
        raise UsageError(
            f"{document} cannot be read: {error.strerror or error}.", hint="Give what a command printed with --json."
        ) from None


def _show(confirmed: ConfirmationReport, output: Output) -> None:
    if output.as_json:
        from kernelmate.report.json import confirmed_json

        output.document(confirmed_json(confirmed))
        return
    from kernelmate.report.confirming import confirmation_line, confirmed_view
    from kernelmate.report.console import show, show_lines
    from kernelmate.report.tables import verdict_line

    if output.quiet:
        found = [confirmation_line(one) for one in confirmed.confirmations]
        show_lines(output.stdout(), *(found or [verdict_line(confirmed.baseline)]))
    else:
        show(output.stdout(), *confirmed_view(confirmed))


def _path(carried: PortableJudgement) -> Path:
    return Path(carried.given.directory) / Path(carried.given.file).name


def _accept(carried: PortableJudgement, confirmed: ConfirmationReport, output: Output) -> None:
    """Write the best confirmed version into its file if the file still has the original text.

    Raises:
        SourceError: the file no longer exists or cannot be written.
    """
    from kernelmate.source import load_kernel, same_kernel, with_text, write_back
    from kernelmate.source.other_files import following_changes, launching_files

    best = next((one for one in confirmed.confirmations if one.outcome == "confirmed"), None)
    given = carried.given
    if best is None:
        remark("nothing was written: nothing was confirmed", output)
        return
    path = _path(carried)
    before = load_kernel(f"{path}::{given.kernel}")
    if before.unit.text != given.source:
        remark(f"nothing was written: {path} is not what it was when the version was made", output)
        return
    after = same_kernel(before, with_text(before.unit, best.promise.source))
    others, left = following_changes(before, launching_files(before), given.contract, best.promise.contract)
    backup = write_back(before, after, others)
    remark(f"{best.promise.author} written to {path}; the version before is kept in {backup}", output)
    if others:
        remark(
            f"launches changed with it: {', '.join(f'{one.path}:{line}' for one in others for line in one.lines)}",
            output,
        )
    if left:
        remark(f"launches that still have to be changed: {', '.join(left)}", output)
