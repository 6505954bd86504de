"""Model cards: a model's purpose, its training data, its measurements, and its limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def card_of(facts: Mapping[str, Any]) -> str:
    """Returns a model card in Markdown from the facts that training stored; unknown figures are left out.

    Args:
        facts: contents of `kernelmate.json` in the model's folder.
    """
    corpus = facts.get("corpus") or {}
    train = corpus.get("train") or {}
    size = f"{facts['parameters'] / 1e6:.1f}M parameters" if facts.get("parameters") else "size unknown"
    base = f", fine-tuned from {facts['base']}" if facts.get("base") else ", trained from scratch"
    lines = [
        f"# {facts.get('name', 'model')}",
        "",
        f"A language model that rewrites CUDA kernels and says what limits them ({size}{base}). It is asked by KernelMate's "
        f"codec `{facts.get('codec', '')}` and is of no use without it. Licence: {facts.get('licence', 'not stated')}.",
        "",
        "## Data",
        "",
        f"Pairs of kernels, each judged before it was taken in: {_told(corpus.get('lines', '?'))} lines, "
        f"{_told(train.get('examples', '?'))} examples to learn ({_told(train.get('by_task', {}))}), {_told(train.get('tokens', '?'))} tokens.",
        f"SHA-256 of the corpus: `{corpus.get('corpus_sha256', 'not known')}`.",
        *([f"Fingerprint of the recipes that it chooses among: `{corpus['offers']}`."] if corpus.get("offers") else []),
        "",
        "## Training",
        "",
        *(f"- {words}: {_told(facts[key])}" for key, words in _SHOWN.items() if facts.get(key) is not None),
        *(
            f"- good choices on held-out families, {task}: {_choices(of)}"
            for task, of in (facts.get("choices") or {}).items()
        ),
        *(f"- a round on judged answers of its own: {_round(one)}" for one in _rounds(facts)),
        "",
        "## Limits",
        "",
        "Nothing that it writes is right because it wrote it: KernelMate compiles, checks and times every answer. It knows the "
        "families of kernels in its corpus and recombines them poorly. It has seen no host code, and no language but CUDA C++.",
        "",
    ]
    return "\n".join(lines)


_SHOWN = {
    "steps": "steps",
    "tokens": "tokens seen",
    "seconds": "seconds",
    "gpu": "device",
    "processes": "processes",
    "loss": "last training loss",
    "held_out_loss": "loss on held-out families",
    "finished": "came to its planned end",
}


def _told(value: object) -> str:
    """Formats a value for reading: thousands separators, four digits, mappings as `name value`."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_told(of)}" for name, of in value.items()) or "none told"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _choices(of: Mapping[str, Any]) -> str:
    return f"{of['first']:.1%} of {of['questions']:,.0f} first choices, {of['three']:.1%} with one among three"


def _rounds(facts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = facts.get("rounds")
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _round(one: Mapping[str, Any]) -> str:
    """Returns a line on one round: the counts of its answers, and where they were judged."""
    counted = ", ".join(
        f"{_told(one[name])} {name}" for name in ("answers", "right", "better", "learned") if name in one
    )
    return f"{one.get('kind', '?')}, {counted}; gains {one.get('judged_on', 'of unknown origin')}"
