"""Share of good choices that a model makes among applicable rewrites, on problems of held-out families.

It is a figure for development that never uses the exam.

    python -m benchmarks.upskill_choices CORPUS... --model FILE.gguf [--model ...] [--most 500] [--keep FOLDER] [--out results.txt]

A question is a held-out row's kernel and wish (or what is said of a broken kernel) where recipes or repairs made the versions that
turned out right and best. Ways of choosing, each of which puts everything that is offered into an order:

- a model: by how likely it is to answer with each (`kernelmate/suggest/codec/applicable.py`, through llama.cpp as users ask it);
- `in order`: the first variant of each as it is offered, then the second of each;
- `by habit`: by how often each was among the best when it was offered for that metric, in the rows to learn from, with one win of ten
  added to each, so that what is rare counts little;
- `at random`: what chance comes to.

`best` counts questions whose first choice is the best version that was found (debug: one that was found to be right); `good k` those
where one of the first k is among the best three, which are nearly as good; `recipe` those whose first choice is of the same recipe as
a good one. CORPUS is a corpus' folder, its `corpus.jsonl`, or that packed by xz;
`benchmarks/data/corpus` is the one that the starter learned from.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.applicable import Choice, Following, Offer, choices, in_order, offers_in
from kernelmate.suggest.codec.base import NotEncodable
from kernelmate.suggest.local.chat import ChatRequest as Asked
from kernelmate.suggest.local.chat import ask
from kernelmate.suggest.local.codec_query import LIKELY
from kernelmate.suggest.local.engine_settings import EngineSettings
from kernelmate.suggest.local.engines import start_engine
from kernelmate.suggest.local.serving import Endpoint
from kernelmate_training.corpus_files import opened, rows_file
from kernelmate_training.examples import offers_of, question_of

Way = Callable[["Known"], list[Choice]]
WINS, OFFERED = 1.0, 10.0
"""Constants that are added to the counts of wins and of offers of `by habit`."""


@dataclass(slots=True)
class Known:
    """A question and what is known to answer it well.

    Attributes:
        row: of the corpus. metric: what is requested. offers: of the row.
        best, good: choices of the first rank, and of all.
    """

    row: Mapping[str, Any]
    metric: str
    offers: tuple[Offer, ...]
    best: set[Choice] = field(default_factory=set)
    good: set[Choice] = field(default_factory=set)

    @property
    def prompt(self) -> str:
        """As a model of the codec that offers is asked.

        Raises:
            NotEncodable: it cannot be told.
        """
        return codec_named("mixed-2").ask(question_of(self.row)).prompt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="+")
    parser.add_argument("--model", type=Path, action="append", default=[])
    parser.add_argument("--most", type=int, default=500, help="questions, drawn by chance; 0 for all")
    parser.add_argument(
        "--keep", type=Path, help="where the models' probabilities are kept, and read from the next time"
    )
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    learned, held_out = questions([line for path in given.corpus for line in rows_of(path)])
    held_out = [one for one in held_out if len(in_order(one.offers)) > 1]
    if given.most and given.most < len(held_out):
        held_out = random.Random(1).sample(held_out, given.most)
    habit = habits(learned)
    ways: dict[str, Way] = {
        **{path.stem: by_model(path, given.keep) for path in given.model},
        "in order": lambda one: in_order(one.offers),
        "by habit": lambda one: sorted(in_order(one.offers), key=lambda choice: -habit(one.metric, choice)),
    }
    said = [f"{describe()} · python -m benchmarks.upskill_choices, {len(held_out)} questions of held-out families", ""]
    said += report(held_out, ways)
    text = "\n".join(said) + "\n"
    print(text)
    if given.out is not None:
        given.out.write_text(text, encoding="utf-8")


def rows_of(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a corpus."""
    with opened(rows_file(path)) as file:
        for line in file:
            yield json.loads(line)


def questions(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Known], list[Known]]:
    """The questions that choices of one step answer: those to learn from, and those that are held out."""
    found: dict[tuple[str, ...], Known] = {}
    split: dict[tuple[str, ...], bool] = {}
    for row in rows:
        actions, offers = row.get("actions") or [], dict(offers_of(row) or ())
        if row["task"] == "analyse" or len(actions) != 1 or actions[0]["recipe"] not in offers:
            continue
        metric = str(row["problem"].get("metric") or "time")
        key = (row["task"], metric, row["group"], row["before"]["source"], str(row.get("broken")))
        known = found.setdefault(key, Known(row, metric, tuple(offers.items())))
        choice = actions[0]["recipe"], int(actions[0]["variant"])
        known.good.add(choice)
        if row.get("rank") in (None, 1):
            known.best.add(choice)
        split[key] = row.get("split") == "held-out"
    learned, held_out = (
        [one for key, one in found.items() if split[key] is held and one.best] for held in (False, True)
    )
    return learned, held_out


def habits(learned: Sequence[Known]) -> Callable[[str, Choice], float]:
    """Returns a function that gives the share of offers of a choice, for a metric, in which it was among the best."""
    won: Counter[tuple[str, Choice]] = Counter()
    offered: Counter[tuple[str, Choice]] = Counter()
    for one in learned:
        offered.update((one.metric, choice) for choice in in_order(one.offers))
        won.update((one.metric, choice) for choice in one.best)
    return lambda metric, choice: (won[metric, choice] + WINS) / (offered[metric, choice] + OFFERED)


def by_model(path: Path, keep: Path | None) -> Way:
    """Choices by a model's probabilities."""
    file = None if keep is None else keep / f"{path.stem}.jsonl"
    known: dict[str, dict[str, float]] = {}
    if file is not None and file.is_file():
        known = dict(json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    endpoints: list[Endpoint] = []

    def following(text: str) -> Mapping[str, float]:
        if text not in known:
            if not endpoints:
                url = start_engine(EngineSettings(str(path), path.stem, "none", 2048, parallel=1))
                endpoints.append(Endpoint(f"{url}/v1", path.stem, "none"))
            told = ask(endpoints[0], Asked("", "", prompt=text, most_tokens=1, likely=LIKELY)).likely
            known[text] = {token: chance for token, chance in told.items() if token.startswith(("@use-", "@#"))}
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("a", encoding="utf-8") as out:
                    out.write(json.dumps([text, known[text]]) + "\n")
        return known[text]

    return lambda one: chosen(one.prompt, following)


def chosen(prompt: str, following: Following) -> list[Choice]:
    """All that a prompt offers, in the model's order."""
    return [choice for choice, _ in choices(prompt, following)]


def report(asked: Sequence[Known], ways: Mapping[str, Way]) -> list[str]:
    """A table for each kind of question."""
    kinds: defaultdict[str, list[Known]] = defaultdict(list)
    orders: dict[int, dict[str, list[Choice]]] = {}
    for one in asked:
        try:
            if offers_in(one.prompt) != one.offers:
                continue
        except NotEncodable:
            continue
        orders[id(one)] = {name: way(one) for name, way in ways.items()}
        judged = "measured" if one.row.get("judged_on") == "measured" else "emulated"
        of_time = f", {judged}" if one.metric == "time" else ""
        for kind in ("all", "repairs" if one.row["task"] == "debug" else f"{one.metric}{of_time}"):
            kinds[kind].append(one)
    lines = [f"{'':34}{'best':>8}{'good 1':>8}{'good 3':>8}{'good 8':>8}{'recipe':>8}"]
    for kind, some in sorted(kinds.items(), key=lambda item: -len(item[1])):
        lines += ["", f"{kind}, {len(some)} questions"]
        for name in ways:
            lines.append(f"  {name:32}" + _shares([_marks(one, orders[id(one)][name]) for one in some]))
        lines.append(f"  {'at random':32}" + _shares([_by_chance(one) for one in some]))
    return lines


def _marks(one: Known, order: Sequence[Choice]) -> tuple[float, ...]:
    good = [any(choice in one.good for choice in order[:k]) for k in (1, 3, 8)]
    recipe = order[0][0] in {name for name, _ in one.good}
    return tuple(map(float, (order[0] in one.best, *good, recipe)))


def _by_chance(one: Known) -> tuple[float, ...]:
    """Returns the expected scores of a random order."""
    every = in_order(one.offers)
    total, good, recipes = len(every), len(one.good & set(every)), {name for name, _ in one.good}

    def some(k: int) -> float:
        missed = 1.0
        for drawn in range(min(k, total)):
            missed *= max(total - good - drawn, 0) / (total - drawn)
        return 1 - missed

    return len(one.best) / total, some(1), some(3), some(8), sum(name in recipes for name, _ in every) / total


def _shares(marks: Sequence[tuple[float, ...]]) -> str:
    return "".join(f"{sum(column) / len(marks):8.1%}" for column in zip(*marks, strict=True))


if __name__ == "__main__":
    main()
