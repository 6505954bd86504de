"""`kernelmate optimize`: searches for better versions of a kernel, and writes the best one on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import KernelSpec, against_option
from kernelmate.cli.search import search, search_options, write_best
from kernelmate.errors import UsageError

if TYPE_CHECKING:
    from kernelmate.records import MetricName

METRIC_NAMES = ("time", "shared_bytes", "registers", "local_bytes", "global_bytes", "occupancy", "accuracy", "correct")


@click.command(
    epilog="""\b
Examples:
  kernelmate optimize softmax.cu "reduce memory usage"
  kernelmate optimize softmax.cu "reduce memory usage" --accept --html softmax.html
  kernelmate optimize transpose.cu "make it faster" --accept-predicted
  kernelmate optimize softmax.cu "make it faster" --against compile
  kernelmate optimize softmax.cu "make it faster" --author local --samples 8
  kernelmate optimize ops.cu::rope "fewer registers" --max-candidates 8 --json"""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@click.argument("prompt")
@click.option("--accept", is_flag=True, help="Write the best candidate into FILE if it was accepted; keeps a backup.")
@click.option("--accept-predicted", is_flag=True, help="Like --accept, also if the gain is only predicted.")
@click.option(
    "--objective", type=click.Choice(METRIC_NAMES), help="The metric that the prompt means, if it was misread."
)
@against_option
@search_options(page="charts, diffs and verdicts", most=32, first="kernels written from the reference, then recipes,")
def optimize(
    file: str, prompt: str, accept: bool, accept_predicted: bool, objective: MetricName | None, **options: Any
) -> int:
    """Search for a version of the kernel that meets PROMPT, a request in plain words.

    Every candidate is compiled, compared with the reference and judged before it is shown; FILE is changed
    only with --accept. A question is answered as by `explain`, and changes nothing. Without a GPU a time is predicted, and such a candidate is promising, never accepted.
    """
    from kernelmate.decide.intent import read_intent, refusal

    intent = read_intent(prompt, name=objective)
    if intent.kind == "explain":
        from kernelmate.cli.explain import explain

        return int(click.get_current_context().invoke(explain, file=file, question=prompt, **options))
    if intent.kind in ("accept", "undo"):
        raise UsageError(
            f"{prompt!r} is about an earlier result, and this command begins anew.",
            hint="--accept writes the best candidate; `kernelmate history` shows and restores earlier versions.",
        )
    if intent.kind != "search":
        raise refusal(intent)
    searched = search(file, prompt, options, objective, writes=accept or accept_predicted)
    if accept or accept_predicted:
        write_best(searched, unproven=accept_predicted)
    return 1 if searched.found.best is None else 0
