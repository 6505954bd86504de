"""Value of choosing without a model: answers to the exam that take the offers in order, or at random.

    python -m benchmarks.upskill_offers PROMPTS.jsonl FOLDER [--k 8] [--seed 1]
    python -m benchmarks.upskill_ablations FOLDER --judge

PROMPTS are those of a codec that offers the rewrites that apply (`python -m kernelmate_training.exam prompts --codec mixed-2`).
`offers-in-order` takes the first variant of each rewrite in the order of the offers, then the second of each, and so on;
`offers-at-random` draws among all variants, each once. A model of such a codec is worth what it does better than these two.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from kernelmate.suggest.codec.applicable import Choice, Offer, format_choice, in_order, offers_in


def at_random(offers: Sequence[Offer], seed: str) -> list[Choice]:
    """All variants, shuffled; equal seeds give equal orders."""
    drawn = in_order(offers)
    random.Random(seed).shuffle(drawn)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--k", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    asked = [json.loads(line) for line in given.prompts.read_text(encoding="utf-8").splitlines()]
    ways: dict[str, Callable[[Sequence[Offer], str], list[Choice]]] = {
        "offers-in-order": lambda offers, goal: in_order(offers),
        "offers-at-random": lambda offers, goal: at_random(offers, f"{given.seed} {goal}"),
    }
    for name, way in ways.items():
        folder = given.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps({"goal": one["goal"], "sample": number, "text": format_choice(choice)})
            for one in asked
            for number, choice in enumerate(way(offers_in(one["prompt"]), one["goal"])[: given.k])
        ]
        (folder / "answers.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        facts = {"name": name, "codec": asked[0]["codec"], "parameters": 0}
        (folder / "kernelmate.json").write_text(json.dumps(facts) + "\n", encoding="utf-8")
        print(f"{folder}: {len(lines)} answers to {len(asked)} goals")


if __name__ == "__main__":
    main()
