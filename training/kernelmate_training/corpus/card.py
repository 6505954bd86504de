"""The data card: what a corpus holds, how it came about, what it is good for and what not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelmate_training.corpus.assemble import Manifest

_INTRODUCTION = """# Data card

Pairs of CUDA kernels, one better than the other for a stated metric, and broken kernels with their repairs. Every version was
compiled by NVRTC, run by KernelMate's emulator at three sizes, one of them odd and one of a single element, and held to a NumPy
reference within derived tolerances; reads out of bounds, races and uninitialised memory were looked for at the small sizes.
{timing}
Broken versions are those that a compiler or a judge was seen to refuse; their `broken` is what it said.

What a model is to learn is a choice. `offers` are the built-in recipes that apply to the version before for the metric (repairs,
where it is broken), each with how many variants it has there. Up to twelve versions that they make were tried for each question:
ranked by their compiled code, by their time on the GPU, or by what was counted of them once they were right. The best that was
right and better has `rank` 1, those nearly as good 2 and 3 (at most 12 % worse, with 85 % of the gain); `actions` name the recipes
and variants that make `after` of `before`, byte for byte. A version of two actions is there where the second made it better by 10 %
again. Of mistakes, `actions` name the first repair whose version was right. Rows without `actions` are fixes written by hand, half
of them where a recipe did too. `problem.size` is the size at which time was measured; where it is absent, the contract's headline.

The kernels are generated: problems, deficiencies, launches and ways of writing are drawn by chance from families, and joined.
Nothing was taken from other people's code. Problems of held-out families have the split `held-out`, and are for measuring only.
"""

_COLLECTED = """# Data card

Versions of one user's own kernels, each beside the one that it was made from, with the verdicts of that time: what was accepted or
promising is in `corpus.jsonl`, what was rejected in `rejected.jsonl`. Texts and prompts are the user's; whose they are, and who may
see a model that was trained on them, is for that user to know.
"""

_MEASURED = """Right versions also ran on the GPU, between guard bands, at two of those sizes, and were timed in turns at the contract's headline
or at a size that fills the GPU, each in half of the problems first (seven turns of graphs of up to 64 launches, so that what a
launch costs the host is not measured). An improvement in time is a measured one; metrics that are counted
or compiled (sectors, shared memory, registers, occupancy) are the emulator's and the compiler's."""

_EMULATED = """There was no GPU: an improvement in time is what the model predicts with its whole interval above 1, and is labelled `predicted`."""


def card_text(manifest: Manifest) -> str:
    """The card in Markdown."""
    measured = manifest.about.get("backend") == "cuda"
    generated = _INTRODUCTION.format(timing=_MEASURED if measured else _EMULATED)
    lines = [_COLLECTED if manifest.about.get("backend") == "history" else generated]
    lines += ["| | |", "| --- | --- |"]
    lines += [f"| {key} | {value} |" for key, value in manifest.about.items()]
    lines += [
        f"| date | {manifest.date} |",
        f"| tool | KernelMate {manifest.tool}, generator {manifest.generator} |",
        f"| rows | {manifest.rows} from {manifest.groups} problems ({manifest.duplicates} duplicates left out, {manifest.lost} problems lost) |",
        f"| hash | {manifest.hash} |",
        f"| held-out families | {', '.join(manifest.held_out) or 'none'} |",
        "",
    ]
    for title, counts in (
        ("Tasks", manifest.tasks), ("Splits", manifest.splits), ("Kinds", manifest.kinds), ("Metrics", manifest.metrics),
        ("Families", manifest.families), ("Deficiencies and mistakes", manifest.flaws),
    ):  # fmt: skip
        lines += [f"## {title}", "", *_table(counts, manifest.rows), ""]
    lines += [
        "## What judging left of each family",
        "",
        "| family | problems | versions right | versions tried | pairs better | mistakes that fail | of those mended by a repair |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {name} | {of.get('groups', 0)} | {_share(of, 'right', 'texts')} | {of.get('tried', 0)} | {_share(of, 'better', 'pairs')} | {_share(of, 'failing', 'broken')} | {_share(of, 'mended', 'failing')} |"
        for name, of in manifest.yields.items()
    ]
    return "\n".join(lines) + "\n"


def _table(counts: Mapping[str, int], rows: int) -> list[str]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [
        "| | rows | share |",
        "| --- | ---: | ---: |",
        *(f"| {name} | {count} | {count / max(rows, 1):.1%} |" for name, count in ordered),
    ]


def _share(of: Mapping[str, int], part: str, whole: str) -> str:
    total = of.get(whole, 0)
    return f"{of.get(part, 0)}/{total} ({of.get(part, 0) / total:.0%})" if total else "0"
