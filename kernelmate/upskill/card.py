"""Model cards: what a model is, what it learned from, what it was measured at, and what it must not be trusted with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def card_of(facts: Mapping[str, Any]) -> str:
    """A model card in Markdown from the facts that training kept; figures that are not known are left out.

    Args:
        facts: of `kernelmate.json` in the model's folder.
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
        f"Pairs of kernels, each judged before it was taken in: {corpus.get('lines', '?')} lines, "
        f"{train.get('examples', '?')} examples to learn, {train.get('tokens', '?')} tokens, by task {train.get('by_task', {})}.",
        f"SHA-256 of the corpus: `{corpus.get('corpus_sha256', 'not known')}`.",
        *([f"Fingerprint of the recipes that it chooses among: `{corpus['offers']}`."] if corpus.get("offers") else []),
        "",
        "## Training",
        "",
        *(f"- {words}: {facts[key]}" for key, words in _SHOWN.items() if facts.get(key) is not None),
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
    "choices": "shares of right choices on held-out families",
    "finished": "came to its planned end",
    "rounds": "rounds on judged answers of its own",
}
