"""Answers of a chooser that has learned nothing, to hold models against that choose among offers.

    python -m kernelmate.upskill.exam prompts --codec mixed-2 -o prompts.jsonl
    python -m benchmarks.exam_in_order prompts.jsonl answers.jsonl
    python -m kernelmate.upskill.exam run --answers answers.jsonl --codec mixed-2 --k 8 --recipes 0 -o exam.json

It takes what a prompt offers in the order in which it stands there, each rewrite once before any is taken with its next variant,
by the very function that leaves out what earlier answers took. What it meets is owed to the recipes and to their order, not to
any model; a model is worth what it meets beyond.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

from kernelmate.suggest.codec.offers import OFFERS, asked_again

ANSWERS = 8
_OFFER = re.compile(r"@use-([a-z0-9-]+):")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("answers", type=Path)
    given = parser.parse_args()
    with given.answers.open("w", encoding="utf-8") as file:
        for line in given.prompts.read_text(encoding="utf-8").splitlines():
            asked = json.loads(line)
            for number, text in enumerate(in_order(asked["prompt"])):
                file.write(json.dumps({"goal": asked["goal"], "sample": number, "text": text}) + "\n")


def in_order(prompt: str) -> Iterator[str]:
    """The answers to one prompt; fewer where less is offered."""
    taken: dict[str, int] = {}
    answers: list[str] = []
    while len(answers) < ANSWERS:
        offers = _OFFER.findall(asked_again(prompt, answers).partition(OFFERS)[2])
        if not offers:
            return
        name = min(offers, key=lambda one: taken.get(one, 0))
        number = taken.get(name, 0)
        taken[name] = number + 1
        answers.append(f"@use-{name}:" + (f"@#{number}" if number else ""))
        yield answers[-1]


if __name__ == "__main__":
    main()
