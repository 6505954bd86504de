"""Effect of each choice in training a model on its exam, as one table from the files of finished runs.

    python -m benchmarks.upskill_ablations FOLDER_OR_RESULT...            # reads, prints, judges nothing
    python -m benchmarks.upskill_ablations FOLDER --judge --jobs 4        # first judges answers that have no result yet
    python -m benchmarks.upskill_ablations FOLDER -o benchmarks/results/upskill_ablations.txt

A FOLDER is a model's, with `kernelmate.json` and `exam.json` (or `answers.jsonl`, for --judge), or holds such folders at any
depth, as `kernelmate upskill run` leaves them. A RESULT is a file of `python -m kernelmate_training.exam run -o`; what its model
was is read from its labels: `--label output=edits --label parameters=35000000 --label pairs=120000 --label rounds=2`.
Shares are of goals: right, better and met by the greedy answer, and by the best of k.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from kernelmate.errors import SourceError
from kernelmate_training.exam import ExamResult, Terms, Wanted, read_result, run, to_json
from kernelmate_training.exam.running import ExamTaker, Together, apart

FACTS, ANSWERS, RESULT = "kernelmate.json", "answers.jsonl", "exam.json"
OUTPUTS = {
    "lines": "line edits",
    "edits": "line edits",
    "whole": "whole kernels",
    "actions": "recipe actions",
    "mixed": "offers, edits",
}


CHOICES = ("output", "placeholders", "parameters", "pairs", "seconds", "rounds")
ALIKE = 0.2
"""Share of the larger of two numbers by which they may differ and still be one choice."""


@dataclass(frozen=True, slots=True)
class Row:
    """One model on the exam.

    Attributes:
        output: what it answers with. placeholders: names and literals stand as placeholders in what it reads.
        parameters: of the model. pairs: that it was trained on, and for how many seconds; 0 if that is not known.
        rounds: of learning from its own judged answers, after training; how many, and of what kind.
        exam: the exam's hash and where it was judged: rows of different exams are not comparable.
        greedy, best: right, better and met, as shares, with one answer and with `k`.
    """

    model: str
    output: str
    placeholders: bool
    parameters: int
    pairs: int
    seconds: int
    rounds: str
    exam: str
    greedy: tuple[float, float, float]
    best: tuple[float, float, float]
    k: int
    goals: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--judge", action="store_true", help="judge answers of models that have no result yet")
    parser.add_argument("--k", type=int, default=8, help="answers to each goal, for --judge")
    parser.add_argument("--jobs", type=int, default=1, help="goals at a time, for --judge")
    parser.add_argument("--backend", choices=("emulator", "cuda"), default="emulator", help="for --judge")
    parser.add_argument("-o", "--output", type=Path, help="write the table here as well")
    given = parser.parse_args()
    if given.judge:
        judge(list(models_without_result(given.paths)), given.k, given.jobs, given.backend)
    rows = list(rows_of(given.paths))
    text = "\n".join([describe(), *table(rows)])
    print(text)
    if given.output is not None:
        given.output.write_text(text + "\n", encoding="utf-8")


def models_without_result(paths: Iterable[Path]) -> Iterator[Path]:
    """Folders of models that have answered the exam, and whose answers were not judged."""
    for path in paths:
        for answers in sorted(path.rglob(ANSWERS)) if path.is_dir() else ():
            if (answers.parent / FACTS).is_file() and not (answers.parent / RESULT).is_file():
                yield answers.parent


def judge(folders: Sequence[Path], k: int, jobs: int, backend: Any) -> None:
    """Judge models' answers together, and leave each one's result beside them; goes on where it was cut off."""
    if not folders:
        return
    known = [json.loads((folder / FACTS).read_text(encoding="utf-8")) for folder in folders]
    sitters = tuple(
        ExamTaker(folder / ANSWERS, facts["codec"], str(facts.get("name") or folder.name))
        for folder, facts in zip(folders, known, strict=True)
    )
    wanted = Wanted(backend=backend, together=sitters, terms=Terms(k=k, recipes=0, again=False), jobs=jobs)
    keep = folders[0] / (RESULT + ".part")
    result = run(wanted, on_goal=lambda goal, done, total: print(f"{done}/{total}: {goal.goal}", flush=True), keep=keep)
    for folder, own in zip(folders, apart(result, Together(sitters).identities()), strict=True):
        (folder / RESULT).write_text(json.dumps(to_json(own), indent=1) + "\n", encoding="utf-8")
    keep.unlink()


def rows_of(paths: Iterable[Path]) -> Iterator[Row]:
    """A row for each result.

    Raises:
        SourceError: a file is no result, or nothing is there.
    """
    found = 0
    for path in paths:
        files = [path] if path.is_file() else sorted(path.rglob(RESULT))
        for file in files:
            facts = file.parent / FACTS
            known = json.loads(facts.read_text(encoding="utf-8")) if facts.is_file() else {}
            yield row_of(read_result(file), known, file)
            found += 1
    if not found:
        raise SourceError("There is no result of an exam.", hint="Name folders with exam.json, or judge with --judge.")


def row_of(result: ExamResult, facts: Mapping[str, Any], file: Path) -> Row:
    """One result with what is known of its model; labels go before what stands beside the model."""
    if result.model is None:
        raise SourceError(f"{file} is a result of recipes alone: no model sat that exam.")
    labels, model = result.labels, result.model
    codec = str(facts.get("codec") or model.get("codec") or "")
    plain = codec.endswith("-plain")
    trained = (facts.get("corpus") or {}).get("train") or {}
    figures = {one.entrant: one for one in result.figures()}
    greedy = figures["model, greedy"]
    best = figures.get(f"model, k = {result.k}", greedy)
    return Row(
        model=str(labels.get("name") or facts.get("name") or model.get("name") or file.parent.name),
        output=OUTPUTS.get(str(labels.get("output") or codec.partition("-")[0]), codec or "unknown"),
        placeholders=str(labels.get("placeholders", "no" if plain else "yes")) in {"yes", "true", "1"},
        parameters=int(labels.get("parameters") or facts.get("parameters") or 0),
        pairs=int(labels.get("pairs") or trained.get("examples") or 0),
        seconds=round(float(labels.get("seconds") or facts.get("seconds") or 0)),
        rounds=str(labels.get("rounds") or _rounds(facts)),
        exam=f"{result.sha256[:8]} {result.backend}" + ("" if result.whole else " in part"),
        greedy=(greedy.right / greedy.goals, greedy.better / greedy.goals, greedy.met / greedy.goals),
        best=(best.right / best.goals, best.better / best.goals, best.met / best.goals),
        k=result.k,
        goals=greedy.goals,
    )


def _rounds(facts: Mapping[str, Any]) -> str:
    """Returns the number and kinds of training rounds that a model's facts state, or 0."""
    rounds = facts.get("rounds") or 0
    if isinstance(rounds, Mapping):
        return f"{rounds.get('count', '?')} {rounds.get('kind', '')}".strip()
    if not isinstance(rounds, list):
        return str(rounds)
    kinds = "+".join(dict.fromkeys(str(one.get("kind", "")) for one in rounds if isinstance(one, Mapping)))
    return f"{len(rounds)} {kinds}".strip()


def table(rows: Sequence[Row]) -> Iterator[str]:
    """All rows, the best first; a heading for each exam, since figures of different ones are not comparable."""
    for exam in dict.fromkeys(row.exam for row in rows):
        mine = sorted(
            (row for row in rows if row.exam == exam), key=lambda row: (-row.best[2], -row.greedy[2], row.model)
        )
        yield f"\nexam {exam} · {mine[0].goals} goals"
        yield (
            f"{'model':<24} {'answers with':<15} {'placeh.':<7} {'parameters':>10} {'pairs':>8} {'seconds':>7} {'rounds':>21}  "
            f"{'greedy: right better met':^24}  {'k: right better met':^28}"
        )
        for row in mine:
            yield (
                f"{row.model:<24} {row.output:<15} {'yes' if row.placeholders else 'no':<7} "
                f"{row.parameters / 1e6:>9.1f}M {row.pairs or '-':>8} {row.seconds or '-':>7} {row.rounds:>21}  {_shares(row.greedy):>24}  "
                f"{f'k = {row.k}: ' + _shares(row.best):>28}"
            )
        yield from _effects(mine)


def _shares(shares: tuple[float, float, float]) -> str:
    return " ".join(f"{share:>6.1%}" for share in shares)


def _effects(rows: Sequence[Row]) -> Iterator[str]:
    """Pairs of rows that differ in one choice alone: what it is worth."""
    told = False
    for place, one in enumerate(rows):
        for other in rows[place + 1 :]:
            differ = [name for name in CHOICES if not _alike(getattr(one, name), getattr(other, name))]
            if len(differ) != 1 or one.k != other.k:
                continue
            if not told:
                yield f"what one choice alone is worth, in goals met by one answer and by {one.k}; numbers within a fifth count as alike:"
                told = True
            name = differ[0]
            first, second = (f"{_said(row, name)} {row.greedy[2]:.1%}, {row.best[2]:.1%}" for row in (one, other))
            yield f"  {name}: {first} against {second} ({one.model}, {other.model})"


def _alike(one: object, other: object) -> bool:
    """True if the same choice: vocabularies and what a codec can tell make small differences of numbers."""
    if isinstance(one, int) and isinstance(other, int):
        return abs(one - other) <= ALIKE * max(one, other)
    return one == other


def _said(row: Row, name: str) -> str:
    return f"{row.parameters / 1e6:.1f}M" if name == "parameters" else str(getattr(row, name))


if __name__ == "__main__":
    main()
