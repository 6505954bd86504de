"""`kernelmate fix`: a kernel that does not compile or is wrong, made right, and proved to be."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from kernelmate.cli.optimize import agrees, check_page, remark, show_found, write_best, write_html
from kernelmate.cli.options import (
    KernelSpec,
    compile_options,
    judging_options,
    output_of,
    output_options,
    settings_of,
    tell_notices,
)

PROMPT = "fix the kernel"


@click.command(
    epilog="""\b
Examples:
  kernelmate fix softmax.cu                        what is wrong, what was tried, and the diff of what is right
  kernelmate fix softmax.cu --accept               and write it into the file; the version before is kept
  kernelmate fix ops.cu::rope --author local --samples 8
  kernelmate fix softmax.cu --json

\b
Exit codes: 0 it is right now, or was before; 1 nothing that was tried makes it right (each attempt is listed
with why it failed); 2 the file, its contract or an option needs a change; 3 this machine lacks something."""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@click.option("--accept", is_flag=True, help="Write the repair into FILE if it was proved right; keeps a backup.")
@click.option(
    "--accept-unproven",
    is_flag=True,
    help="As --accept, also where it compiles and runs clean but nothing (no reference, a guessed contract) shows that it is right.",
)
@click.option("--html", "page", metavar="OUT", help="Write a stand-alone page with diffs and verdicts.")
@click.option("--max-candidates", type=click.IntRange(1), default=48, show_default=True, help="Judge at most this many.")  # fmt: skip
@click.option(
    "--budget", type=click.FloatRange(0, min_open=True), metavar="SECONDS", help="Begin no candidate after this time."
)
@click.option(
    "--author",
    default="auto",
    show_default=True,
    metavar="auto|recipes|local|claude|NAME",
    help="Who proposes; NAME is a suggester of another package. auto asks the repairs that need no model first, then the local model in use, then, where the setting claude allows it, Claude.",
)
@click.option("--samples", type=click.IntRange(1, 64), metavar="N", help="Attempts of the local model in a round.")
@click.option(
    "--rounds",
    type=click.IntRange(1, 20),
    default=1,
    show_default=True,
    help="How often the local model is asked, each time with what was learnt.",
)
@judging_options
@compile_options
@output_options()
def fix(
    file: str,
    accept: bool,
    accept_unproven: bool,
    page: str | None,
    max_candidates: int,
    budget: float | None,
    author: str,
    samples: int | None,
    rounds: int,
    sizes: tuple[Mapping[str, int], ...],
    reference: str | None,
    **options: Any,
) -> int:
    """Make a kernel right that does not compile, or that the judge finds wrong.

    Repairs follow the compiler's words and the judge's findings (a missing ; or header, a misspelt name, a missing
    guard or barrier, ...), one after another. What is shown as a repair was judged right at every size; FILE is
    changed only with --accept.
    """
    output = output_of(options)
    settings = settings_of(options)
    check_page(page)
    from kernelmate.cli.progress import Progress
    from kernelmate.session import Session
    from kernelmate.session.authors import Wishes, authors
    from kernelmate.source import load_kernel

    kernel = load_kernel(file)
    with Progress(output.stderr(), quiet=output.quiet) as progress, Session(settings, progress.stage) as session:
        wishes = Wishes(
            author, samples, rounds, lambda outgoing: agrees(outgoing, progress), progress.step, progress.text
        )
        found = session.optimize(
            kernel,
            PROMPT,
            sizes,
            max_candidates,
            progress.judged,
            budget_s=budget,
            suggesters=authors(settings, kernel, wishes),
            reference=reference,
            objective="correct",
        )
        given = session.given(kernel, sizes, reference) if output.as_json else None
    tell_notices(session)
    show_found(found, kernel, given, output)
    if page is not None:
        write_html(Path(page), found, kernel, output)
    from kernelmate.report.versions import nothing_wrong

    if nothing_wrong(found):
        return 0
    if accept or accept_unproven:
        write_best(found, kernel, accept_unproven, output)
    elif found.best is not None and not output.as_json:
        remark(f"nothing was written; --accept writes it into {kernel.unit.path}", output)
    return 1 if found.best is None else 0
