"""Search options, the search, and the output of its result, for `optimize` and `fix`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import (
    Command,
    Output,
    combined_options,
    compile_options,
    judging_options,
    output_of,
    output_options,
    print_notices,
    settings_of,
)
from kernelmate.cli.stopping import print_note
from kernelmate.errors import EnvironmentFailed, UsageError

if TYPE_CHECKING:
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.records import Judged, JudgingInputs, Kernel, MetricName, Optimization
    from kernelmate.session.authors import OutgoingText

PAGE_SUFFIXES = {".html", ".htm"}


@dataclass(frozen=True, slots=True)
class FinishedSearch:
    """The result of a finished search, already shown."""

    found: Optimization
    kernel: Kernel
    output: Output


def search_options(*, page: str, most: int, first: str) -> Callable[[Command], Command]:
    """Returns a decorator that adds the options of a search, of judging, of compiling and of output.

    Args:
        page: the content of the page that `--html` writes, for its help text.
        most: default of the number of candidates to judge.
        first: the author that is asked first, for the help text.
    """
    return combined_options(
        click.option("--html", "page", metavar="OUT", help=f"Write a stand-alone page with {page}."),
        click.option(
            "--max-candidates",
            type=click.IntRange(1),
            default=most,
            show_default=True,
            help="Judge at most this many candidates.",
        ),
        click.option(
            "--budget",
            type=click.FloatRange(0, min_open=True),
            metavar="SECONDS",
            help="End within this time; work that would not fit is not started.",
        ),
        click.option(
            "--author",
            default="auto",
            show_default=True,
            metavar="auto|synthesis|recipes|local|claude|NAME",
            help=f"The suggester; NAME is one of another package. auto asks {first} first, then the local model in use, then Claude, if the setting claude allows it.",
        ),
        click.option(
            "--samples", type=click.IntRange(1, 64), metavar="N", help="Answers of the local model per round."
        ),
        click.option(
            "--rounds",
            type=click.IntRange(1, 20),
            default=1,
            show_default=True,
            help="Rounds of requests to the local model, each with the results so far.",
        ),
        judging_options,
        compile_options,
        output_options(),
    )


def search(
    file: str, prompt: str, options: dict[str, Any], objective: MetricName | None = None, *, writes: bool = False
) -> FinishedSearch:
    """Search with a command's options, show the result, and write the requested page.

    Args:
        file: FILE or FILE::KERNEL.
        prompt: the user's request.
        options: the values of the options of `search_options`.
        objective: the objective; None reads it from the prompt.
        writes: True if the result is to be written into the file, which must then be writable.

    Raises:
        KernelmateError: an option, the file or its contract needs a change, or this machine lacks something.
    """
    output = output_of(options)
    settings = settings_of(options)
    page, sizes, reference = options["page"], options["sizes"], options["reference"]
    check_page(page)
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.session import Session
    from kernelmate.session.authors import SearchOptions, authors
    from kernelmate.source import check_writable, load_kernel

    kernel = load_kernel(file)
    if writes:
        check_writable(Path(kernel.unit.path))
    with (
        TerminalProgress(output.stderr(), quiet=output.quiet) as progress,
        Session(settings, progress.stage) as session,
    ):
        asked = SearchOptions(
            options["author"],
            options["samples"],
            options["rounds"],
            lambda outgoing: ask_consent(outgoing, progress),
            progress.step,
            progress.text,
        )
        found = session.optimize(
            kernel,
            prompt,
            sizes,
            options["max_candidates"],
            progress.judged,
            budget_s=options["budget"],
            suggesters=authors(settings, kernel, asked),
            reference=reference,
            objective=objective,
            on_trying=progress.trying,
            on_begun=lambda begun: progress.read(begun.objective),
        )
        given = session.given(kernel, sizes, reference) if output.as_json else None
    print_notices(session)
    show_result(found, kernel, given, output)
    if page is not None:
        write_html(Path(page), found, kernel, output)
    return FinishedSearch(found, kernel, output)


def ask_consent(outgoing: OutgoingText, progress: TerminalProgress) -> bool:
    """Show all the text that would be sent to another machine, and ask for consent.

    Without a terminal to answer on, the result is False.
    """
    import sys

    from kernelmate.report.words import printable

    if not sys.stdin.isatty() or not sys.stderr.isatty():
        print_note(
            f"{outgoing.model} was not asked: the first time in a workspace, you must consent on a terminal to the text that is sent"
        )
        return False
    with progress.paused():
        price = "an unknown price" if outgoing.most_usd is None else f"at most {outgoing.most_usd:.2f} USD"
        click.echo(printable(outgoing.text), err=True)
        question = (
            f"Send the text above to {outgoing.model} at {outgoing.host}, for {price}? "
            f"It holds for later texts of this kind from {outgoing.workspace} too"
        )
        return click.confirm(question, default=False, err=True)


def show_result(found: Optimization, kernel: Kernel, given: JudgingInputs | None, output: Output) -> None:
    """Shows the result of a search in the requested form; `given` goes into the JSON document."""
    if output.as_json:
        from kernelmate.report.json import optimization_json

        output.document(optimization_json(found, given))
        for text in found.notes:
            remark(text, output)
        return
    from kernelmate.report.console import show, show_lines
    from kernelmate.report.excerpt import SourceLines
    from kernelmate.report.versions import best_line, optimization_view

    if output.quiet:
        show_lines(output.stdout(), best_line(found))
    else:
        show(output.stdout(), *optimization_view(found, kernel, SourceLines()))


def remark(text: str, output: Output) -> None:
    """Prints a remark on the result; with `--json` on standard error, since standard output is one document."""
    if output.as_json:
        print_note(text)
    elif not output.quiet:
        output.stdout().print(text, soft_wrap=True)


def check_page(page: str | None) -> None:
    """Check that the page can be written, before the search starts.

    Raises:
        UsageError: the path cannot be written, or is not the path of a page.
        EnvironmentFailed: plotly is missing.
    """
    if page is None:
        return
    path = Path(page)
    if path.suffix.lower() not in PAGE_SUFFIXES:
        raise UsageError(f"--html {page}: a page's name ends in .html.", hint=f"Give {path.with_suffix('.html')}.")
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else f"cannot be written: there is no folder {path.parent}"
        raise UsageError(f"--html {page} {what}.", hint="Give the path of a file in a folder that exists.")
    from importlib.util import find_spec

    if find_spec("plotly") is None:
        raise EnvironmentFailed("--html needs plotly, which is not installed.", hint="pip install 'kernelmate[report]'")


def write_html(path: Path, found: Optimization, kernel: Kernel, output: Output) -> None:
    """Write the page with everything that a search found.

    Raises:
        UsageError: it cannot be written.
    """
    from kernelmate.report.page import write_page

    try:
        write_page(path, found, kernel)
    except OSError as error:
        raise UsageError(
            f"The page {path} cannot be written: {error.strerror or error}.", hint="Give another path to --html."
        ) from error
    remark(f"page written to {path}", output)


def write_best(searched: FinishedSearch, *, unproven: bool) -> None:
    """Write the best candidate into the user's file if that is allowed, and print the result or the reason against it.

    Args:
        searched: the finished search.
        unproven: True if the user accepts a gain that is only predicted, or a repair that nothing proves right.

    Raises:
        KernelmateError: the file changed meanwhile, or cannot be written.
    """
    from kernelmate.source import write_back

    found, kernel, output = searched.found, searched.kernel, searched.output
    if found.best is None:
        remark("nothing was written: no candidate is worth taking", output)
        return
    best = found.candidates[found.best]
    why_not = reason_not_to_write(best, unproven)
    if why_not is not None:
        remark(f"nothing was written: {why_not}", output)
        return
    others = best.candidate.other_files
    backup = write_back(kernel, best.candidate.kernel, others)
    remark(f"{best.candidate.author} written to {kernel.unit.path}; the version before is kept in {backup}", output)
    if others:
        places = [f"{one.path}:{line}" for one in others for line in one.lines]
        remark(f"launches changed with it: {', '.join(places)}", output)


def reason_not_to_write(best: Judged, predicted: bool) -> str | None:
    """Returns the reason that a candidate may not be written into the user's file; None if it may.

    Args:
        best: the candidate.
        predicted: True if the user accepts a gain that is only predicted, or a repair without proof.
    """
    from kernelmate.decide.acceptance import not_shown_right

    verdict = best.verdict
    mended = verdict.objective is not None and verdict.objective.name == "correct"
    if best.candidate.contract.inferred and not (mended and predicted):
        return "it was judged with a guessed contract; write the contract into the file first (`kernelmate check` shows it)"
    if verdict.accepted is False or not verdict.compiled:
        return "the candidate was rejected"
    if verdict.accepted:
        return None
    if mended and predicted:
        return None
    if verdict.correct is None:
        return not_shown_right(verdict)
    if verdict.undecided:
        return "its gain is within the prediction's own error; `kernelmate confirm` measures it on a GPU"
    if verdict.objective is None or not verdict.objective.met or verdict.objective.basis != "predicted":
        return "the candidate was not accepted"
    if not predicted:
        return "its gain is predicted, not measured; --accept-predicted takes it all the same"
    return None
