"""`kernelmate history`: lists judged versions, and restores them."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import Output, output_of, output_options
from kernelmate.cli.stopping import print_note
from kernelmate.errors import UsageError

if TYPE_CHECKING:
    from kernelmate.history import History
    from kernelmate.records import RecordedJudgement

DAY_US = 86_400_000_000
LIST = "list"


class HistoryGroup(click.Group):
    """Command group that lists the versions of its first argument, unless that is a subcommand."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Inserts `list` before anything that is neither subcommand nor help option."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [LIST, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=HistoryGroup,
    epilog="""\b
Examples:
  kernelmate history                          the kernels, last judged first
  kernelmate history softmax.cu               every version of the file's kernels
  kernelmate history show 12 --source
  kernelmate history diff 11 12
  kernelmate history restore 11
  kernelmate history export --jsonl --out versions.jsonl
  kernelmate history forget softmax.cu

\b
KERNEL is FILE, FILE::KERNEL, a kernel's name, or its number. A version is named by its number. The history
is a file on this machine, and nothing of it leaves it; the setting history = false keeps none.""",
)
def history() -> None:
    """Show, compare, restore, export or forget versions that were judged."""


@history.command(LIST, hidden=True)
@click.argument("kernel", required=False, metavar="[KERNEL]")
@output_options()
def list_versions(kernel: str | None, **options: Any) -> int:
    """List kernels, or the versions of one."""
    output = output_of(options)
    with _opened() as kept:
        if kernel is None:
            _show_kernels(kept, output)
            return 0
        recorded = [one for number in _numbers(kept, kernel) for one in kept.judgements(number)]
    from kernelmate.report.history import versions_json, versions_view

    if output.as_json:
        output.document(versions_json(recorded))
    else:
        output.stdout().print(versions_view(recorded))
    return 0


def _show_kernels(kept: History, output: Output) -> None:
    from kernelmate.report.history import kernels_json, kernels_view

    known = kept.kernels()
    if output.as_json:
        output.document(kernels_json(known))
    elif known:
        output.stdout().print(kernels_view(known))
    else:
        output.stdout().print(f"Nothing was judged yet; bench, compare and optimize write into {kept.path}.")


@history.command(short_help="Show one version.")
@click.argument("version", type=click.IntRange(1))
@click.option("--source", is_flag=True, help="Also print the kernel's text.")
@output_options(quiet=False)
def show(version: int, source: bool, **options: Any) -> int:
    """Show one version: author, prompt, verdict, figures."""
    output = output_of(options)
    with _opened() as kept:
        recorded = kept.version(version)
    from kernelmate.report import console
    from kernelmate.report.history import version_view, versions_json

    if output.as_json:
        output.document(versions_json([recorded]))
    else:
        console.show(output.stdout(), *version_view(recorded, source=source).renderables)
    return 0


@history.command(short_help="Show the changes from version A to version B.")
@click.argument("old", type=click.IntRange(1), metavar="A")
@click.argument("new", type=click.IntRange(1), metavar="B")
@click.option("--no-color", is_flag=True, help="No colour; NO_COLOR in the environment does the same.")
def diff(old: int, new: int, no_color: bool) -> int:
    """Show the changes from version A to version B as a unified diff; exits with 1 if there are any."""
    with _opened() as kept:
        before, after = kept.version(old), kept.version(new)
    from kernelmate.report.console import show as print_parts
    from kernelmate.report.diff import Diff

    output = output_of({"no_color": no_color})
    if before.text == after.text:
        print_note(f"versions {old} and {new} have the same text" + _launches(before, after))
        return 0
    print_parts(output.stdout(), Diff(before.text, after.text, Path(after.path).name))
    return 1


def _launches(before: RecordedJudgement, after: RecordedJudgement) -> str:
    return "" if before.judged.launch == after.judged.launch else ", and differ in their launch"


@history.command(short_help="Write a version back into its file.")
@click.argument("version", type=click.IntRange(1))
@click.option("--to", "file", metavar="FILE", help="Into this file, in place of its own.")
@click.option("--dry-run", is_flag=True, help="Show the changes without writing.")
@click.option("--no-color", is_flag=True, help="No colour; NO_COLOR in the environment does the same.")
def restore(version: int, file: str | None, dry_run: bool, no_color: bool) -> int:
    """Write a version back into its file in place of the present kernel; keeps a backup.

    If the rest of the file has changed since, only the kernel and its contract are written.
    """
    from kernelmate.report.console import show as print_parts
    from kernelmate.report.diff import Diff, whole_text
    from kernelmate.report.history import short_path
    from kernelmate.session.recording import restored
    from kernelmate.source import write_back

    with _opened() as kept:
        found = restored(kept.version(version), None if file is None else Path(file))
    before, after = whole_text(found.before), whole_text(found.after)
    if before == after:
        print_note(f"{found.before.unit.path} holds version {version} already")
        return 0
    console = output_of({"no_color": no_color}).stdout()
    print_parts(console, Diff(before, after, short_path(found.before.unit.path)))
    if not found.whole:
        print_note("the rest of the file has changed since; its launches may need another grid or block")
    if not dry_run:
        backup = write_back(found.before, found.after)
        print_note(f"version {version} written to {found.before.unit.path}; the earlier text is kept in {backup}")
    return 0


@history.command(short_help="Write versions as training examples.")
@click.argument("kernel", required=False, metavar="[KERNEL]")
@click.option("--jsonl", is_flag=True, required=True, help="One JSON object per line: problem, constraints, reasoning, before, after, verdict.")  # fmt: skip
@click.option("--accepted", is_flag=True, help="Only versions that were accepted.")
@click.option("--out", metavar="FILE", help="Write to this file in place of standard output.")
def export(kernel: str | None, jsonl: bool, accepted: bool, out: str | None) -> int:  # noqa: ARG001 -- the only form yet
    """Write each version that was made from another as a training example."""
    from kernelmate.history.export import lines

    with _opened() as kept:
        numbers: list[int | None] = [None] if kernel is None else list(_numbers(kept, kernel))
        made = (line for number in numbers for line in lines(kept, number, accepted_only=accepted))
        if out is None:
            for line in made:
                sys.stdout.write(line + "\n")
            return 0
        count = _write(Path(out), made)
    print_note(f"{count} examples written to {out}" if count != 1 else f"1 example written to {out}")
    return 0


def _write(path: Path, made: Iterator[str]) -> int:
    """Writes the lines to a file atomically, and returns their number."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    count = 0
    try:
        with open(new, "w", encoding="utf-8") as file:
            for line in made:
                file.write(line + "\n")
                count += 1
        os.replace(new, path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}.", hint="Give another --out.") from error
    finally:
        new.unlink(missing_ok=True)
    return count


@history.command(short_help="Delete versions for good.")
@click.argument("kernel", required=False, metavar="[KERNEL]")
@click.option("--all", "everything", is_flag=True, help="Every kernel.")
@click.option(
    "--older-than", type=click.FloatRange(0), metavar="DAYS", help="Only versions that were judged longer ago."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget(kernel: str | None, everything: bool, older_than: float | None, yes: bool) -> int:
    """Delete versions for good: a kernel's, or all older than some days, or with --all everything."""
    if kernel is None and not everything and older_than is None:
        raise UsageError("Nothing is selected to be forgotten.", hint="Give a KERNEL, --older-than DAYS, or --all.")
    if kernel is not None and everything:
        raise UsageError("A KERNEL and --all contradict each other.", hint="Give one of them.")
    before = None if older_than is None else time.time_ns() // 1000 - int(older_than * DAY_US)
    with _opened() as kept:
        numbers: list[int | None] = [None] if kernel is None else list(_numbers(kept, kernel))
        if not yes:
            what = "every kernel" if kernel is None else kernel
            age = "" if older_than is None else f" judged more than {older_than:g} days ago"
            click.confirm(f"Delete the versions of {what}{age} for good?", abort=True, err=True)
        gone = sum(kept.forget(kernel=number, before_us=before) for number in numbers)
    print_note(f"{gone} judgements deleted" if gone != 1 else "1 judgement deleted")
    return 0


@contextlib.contextmanager
def _opened() -> Iterator[History]:
    """Context manager for the history that the settings name; prints its notices at the end."""
    from kernelmate.config import load_settings
    from kernelmate.history import History

    with History(load_settings().history_file) as kept:
        try:
            yield kept
        finally:
            for notice in kept.notices:
                print_note(notice)


def _numbers(kept: History, kernel: str) -> list[int]:
    """Returns the numbers of the kernels that match an argument: FILE, FILE::KERNEL, a kernel's name or number.

    Raises:
        UsageError: no kernel of the history matches.
    """
    from kernelmate.source import load_kernel, load_kernels

    if "::" in kernel and Path(kernel.partition("::")[0]).is_file():
        found = [kept.find(load_kernel(kernel))]
    elif Path(kernel).is_file():
        found = [kept.find(one) for one in load_kernels(Path(kernel))]
    else:
        known = kept.kernels()
        found = [one.number for one in known if kernel in {str(one.number), one.name, one.name.rpartition("::")[2]}]
    numbers = [number for number in found if number is not None]
    if not numbers:
        raise UsageError(
            f"The history has no version of {kernel}.", hint="`kernelmate history` lists the kernels that it knows."
        )
    return list(dict.fromkeys(numbers))
