"""`kernelmate ci`: judges every kernel that a change touches, and fails if one got worse."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import (
    Output,
    compile_options,
    device_option,
    output_of,
    output_options,
    settings_of,
)
from kernelmate.cli.stopping import print_note
from kernelmate.errors import UsageError

if TYPE_CHECKING:
    from kernelmate.records import Gate


@click.command(
    epilog="""\b
Examples:
  kernelmate ci --base origin/main
  kernelmate ci --base HEAD~1 ops/ --allow registers=+2 --allow sectors=+5%
  kernelmate ci --base origin/main --junit kernels.xml --sarif kernels.sarif --markdown comment.md
  kernelmate ci --base v1.2 --json

\b
Compared are the working tree, with what is not committed yet, and the revision. A kernel is judged where its
device code, a header of the project that it includes, its contract, or a file that its contract names differs.
In pyproject.toml:
  [tool.kernelmate.ci]
  base = "origin/main"
  allow = { registers = "+2", sectors = "+5%", time = "any" }
  exclude = ["third_party"]

\b
Exit codes: 0 nothing got worse; 1 a kernel fails; 2 the revision is unknown, or an option needs a change;
3 this machine lacks something; 130 interrupted."""
)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path())
@click.option("--base", metavar="REV", help="The revision to compare with: a branch, a tag, a commit.")
@click.option("--repo", metavar="DIR", default=".", help="A folder in the repository; by default the current one.")
@click.option(
    "--allow", "allowed", metavar="NAME=+N", multiple=True,
    help="Allow this change for the worse (+2, +5%, or any) of registers, spills, shared, sectors, findings or time; repeatable.",
)  # fmt: skip
@click.option("--junit", metavar="FILE", help="Also write JUnit XML, a case for each kernel.")
@click.option("--sarif", metavar="FILE", help="Also write SARIF 2.1.0, for code scanning.")
@click.option("--markdown", metavar="FILE", help="Also write Markdown, for a comment on a pull request.")
@click.option("--backend", type=click.Choice(["auto", "cuda", "emulator"]), help="The backend that runs kernels.")
@device_option
@click.option(
    "--timing-budget", "timing_budget_s", type=float, metavar="SECONDS", help="Seconds for timing one version on a GPU."
)
@click.option("--seed", type=int, metavar="N", help="Seed of the inputs; drawn and reported if not given.")
@compile_options
@output_options()
def ci(
    paths: tuple[str, ...],
    base: str | None,
    repo: str,
    allowed: tuple[str, ...],
    junit: str | None,
    sarif: str | None,
    markdown: str | None,
    **options: Any,
) -> int:
    """Judge every kernel that differs from a revision, and fail if one got worse.

    Worse means more registers, spills, shared memory, sectors of global memory or findings, and, on a GPU, more
    time beyond its interval. PATH limits it to some files or folders. Only kernels and references of the repository
    run, in a process of their own; no hook, filter or command of its git configuration does.
    """
    output = output_of(options)
    settings = settings_of(options)
    files = {"--junit": junit, "--sarif": sarif, "--markdown": markdown}
    for option, path in files.items():
        _check_file(option, path)
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.session.gating import ChangeGate
    from kernelmate.session.revisions import Repository
    from kernelmate.session.thresholds import read_allowances

    allowances = read_allowances(allowed, settings.ci.allow)
    revision = base or settings.ci.base
    if revision is None:
        raise UsageError(
            "No revision to compare with is given.", hint="Give --base REV, or base in [tool.kernelmate.ci]."
        )
    repository = Repository(Path(repo))
    chosen = [_from_root(repository.root, path) for path in paths]
    with TerminalProgress(output.stderr(), quiet=output.quiet) as progress:
        keeper = ChangeGate(
            settings, repository, allowances, chosen, settings.ci.exclude, progress.kernel, progress.stage
        )
        gate = keeper.run(revision)
    _show(gate, output)
    _write(gate, files, output)
    return 0 if gate.passed else 1


def _from_root(root: Path, path: str) -> str:
    """Returns a path of the command line relative to the repository's root.

    Raises:
        UsageError: the path is outside the repository.
    """
    whole = Path(os.path.abspath(path))
    for place in (whole, whole.resolve()):
        with contextlib.suppress(ValueError):
            return place.relative_to(root).as_posix()
    raise UsageError(f"{path} is not in the repository {root}.", hint="Give paths of its working tree.")


def _check_file(option: str, path: str | None) -> None:
    """Checks that a report can be written, before any kernel is judged."""
    if path is None:
        return
    if Path(path).is_dir() or not Path(path).absolute().parent.is_dir():
        raise UsageError(f"{option} {path} cannot be written.", hint="Give the path of a file in a folder that exists.")


def _show(gate: Gate, output: Output) -> None:
    if output.as_json:
        from kernelmate.report.json import gate_json

        output.document(gate_json(gate))
        return
    from kernelmate.report.console import show, show_lines
    from kernelmate.report.excerpt import SourceLines
    from kernelmate.report.gate import gate_line, gate_view

    if output.quiet:
        show_lines(output.stdout(), *(gate_line(one) for one in gate.kernels))
    else:
        show(output.stdout(), *gate_view(gate, SourceLines(folder=Path(gate.root))))


def _write(gate: Gate, files: dict[str, str | None], output: Output) -> None:
    """Write the requested reports.

    Raises:
        UsageError: a report cannot be written.
    """
    from kernelmate.report.gate_files import junit, markdown, sarif

    made = {"--junit": junit, "--sarif": sarif, "--markdown": markdown}
    for option, path in files.items():
        if path is None:
            continue
        try:
            Path(path).write_text(made[option](gate), encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"{option} {path} cannot be written: {error.strerror or error}.", hint="Give another path.") from error  # fmt: skip
        if not output.as_json and not output.quiet:
            print_note(f"{option.removeprefix('--')} written to {path}")
