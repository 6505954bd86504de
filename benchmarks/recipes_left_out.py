"""Recipes left out one at a time: how much of what was measured is lost without each.

    python -m benchmarks.recipes_left_out [CORPUS] [--run FOLDER...] [--out results.txt]

CORPUS (`benchmarks/data/corpus`) holds rows whose versions were all run on a GPU, up to three of the best for each kernel and metric,
with the recipes that made each. A recipe is left out by taking away the rows that it had a part in: `offered` counts the questions for
which it applied, `best` those whose best version it had a part in, `only` those for which nothing else is in the rows, and `loss` is by
how much the best version left is worse, as a geometric mean over the others. FOLDER holds JSON files of `benchmarks.recipes --json`,
`benchmarks.recipes_gpu` or of the exam (`benchmarks/results` by default): `kernels` counts best or goal-meeting candidates in them.
A candidate for deletion is offered at least 30 times, best in none, and has no part in any best version of the other files.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernelmate.suggest.recipes import ALL
from kernelmate_training.examples import lines_of

ROOT = Path(__file__).resolve().parent
LEAST_OFFERED = 30
HIGHER_IS_BETTER = ("occupancy",)


@dataclass(slots=True)
class Use:
    """Counts of one recipe. `losses`: ratios of the best version without it to the best one, at least 1."""

    offered: int = 0
    best: int = 0
    only: int = 0
    kernels: int = 0
    losses: list[float] = field(default_factory=list)

    @property
    def loss(self) -> float:
        """The geometric mean of `losses`; 1 where there are none."""
        return math.exp(sum(map(math.log, self.losses)) / len(self.losses)) if self.losses else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="?", default=ROOT / "data" / "corpus")
    parser.add_argument("--run", type=Path, action="append", help="in place of benchmarks/results")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    uses = {recipe.name: Use() for recipe in ALL}
    count = of_corpus(map(json.loads, lines_of(given.corpus)), uses)
    for folder in given.run or [ROOT / "results"]:
        for path in sorted(folder.glob("*.json")):
            for name in best_of(json.loads(path.read_text(encoding="utf-8"))):
                if name in uses:
                    uses[name].kernels += 1
    text = "\n".join(table(uses, count))
    print(text)
    if given.out is not None:
        given.out.write_text(text + "\n", encoding="utf-8")


def of_corpus(rows: Iterator[dict[str, Any]], uses: dict[str, Use]) -> int:
    """Count a corpus' rows; gives the number of questions."""
    questions: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        if row["task"] == "generate" and row.get("actions") and row["verdict"].get("objective"):
            size = json.dumps(row["problem"].get("size"), sort_keys=True)
            questions[row["group"], row["before"]["source"], row["problem"]["metric"], size].append(row)
    for found in questions.values():
        for offer in found[0].get("offers") or ():
            if offer["recipe"] in uses:
                uses[offer["recipe"]].offered += 1
        ranked = sorted(found, key=cost)
        for name in names_in(ranked[0]) & uses.keys():
            left = [row for row in ranked if name not in names_in(row)]
            uses[name].best += 1
            if not left:
                uses[name].only += 1
            elif cost(ranked[0]) > 0:
                uses[name].losses.append(cost(left[0]) / cost(ranked[0]))
    return len(questions)


def names_in(row: dict[str, Any]) -> set[str]:
    return {step["recipe"] for step in row["actions"]}


def cost(row: dict[str, Any]) -> float:
    """The requested figure; smaller is better."""
    objective = row["verdict"]["objective"]
    after = float(objective["after"] or 0.0)
    return 1.0 / after if objective["name"] in HIGHER_IS_BETTER and after else after


def best_of(result: Any) -> Iterator[str]:
    """Recipes with a part in the best candidates of a result: rows of searches, of their confirmation, or goals of an exam."""
    if not isinstance(result, dict):
        result = {"rows": result} if isinstance(result, list) else {}
    for row in result.get("rows") or ():
        if isinstance(row, dict) and (row.get("best") or (row.get("accepted") is not False and "factor" in row)):
            yield from _recipes(str(row.get("author", "")))
    for goal in result.get("goals") or ():
        met = [one for one in goal.get("attempts") or () if isinstance(one, dict) and one.get("standing") == "met"] if isinstance(goal, dict) else []  # fmt: skip
        for attempt in met:
            yield from _recipes(str(attempt.get("label", "")))


def _recipes(author: str) -> Iterator[str]:
    for part in re.split(r"[+,]", author.removeprefix("recipe:")):
        yield part.partition("#")[0].strip()


def table(uses: dict[str, Use], count: int) -> Iterator[str]:
    yield f"{count} questions whose better versions recipes made, all measured"
    yield ""
    yield f"{'recipe':26} {'offered':>8} {'best':>6} {'only':>6} {'loss':>6} {'kernels':>8}"
    for name, use in sorted(uses.items(), key=lambda item: (item[1].best, item[1].kernels)):
        yield f"{name:26} {use.offered:8} {use.best:6} {use.only:6} {use.loss:6.2f} {use.kernels:8}"
    unused = candidates(uses)
    yield ""
    yield "candidates for deletion: " + (", ".join(unused) or "none")
    few = [name for name, use in uses.items() if use.offered < LEAST_OFFERED]
    yield f"offered fewer than {LEAST_OFFERED} times, so nothing is known: " + (", ".join(few) or "none")


def candidates(uses: dict[str, Use]) -> Sequence[str]:
    return [name for name, use in uses.items() if use.offered >= LEAST_OFFERED and not use.best and not use.kernels]


if __name__ == "__main__":
    main()
