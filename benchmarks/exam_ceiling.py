"""Can every goal of the exam be met? Versions written by hand sit it as a model would.

    python -m benchmarks.exam_ceiling                                     # on the emulator
    python -m benchmarks.exam_ceiling --backend cuda --jobs 8 -o OUT.json # measured, on a GPU

The versions (`tests/data/exam`) are told as proposals of an instruct model, and read again by its codec: what is met here is met by
answers that a model could write. Goals that are not met are named last.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from benchmarks.machine import describe
from kernelmate.records import Contract
from kernelmate.source import load_kernel, parse_contract
from kernelmate.suggest.codec import CHAT, codec_named
from kernelmate.suggest.codec.base import CodecVersion, Question
from kernelmate.suggest.codec.requests import launch_of
from kernelmate_training.exam import Goal, Terms, Wanted, load_exam, run, to_json
from kernelmate_training.exam.records import goal_line, summary_lines

SOLUTIONS = Path(__file__).resolve().parents[1] / "tests" / "data" / "exam"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("emulator", "cuda"), default="emulator")
    parser.add_argument("--goals", nargs="*", default=[], help="names of goals or kernels, in place of all")
    parser.add_argument("--jobs", type=int, default=1, help="goals at a time")
    parser.add_argument("-o", "--output", type=Path, help="the result as JSON; FILE.part holds what is done")
    given = parser.parse_args()
    print(describe(), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "by-hand.jsonl"
        rows = [
            {"goal": goal.name, "sample": 0, "text": answer_of(goal)} for goal in load_exam(tuple(given.goals)).goals
        ]
        answers.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        wanted = Wanted(
            goals=tuple(given.goals), backend=given.backend, answers=answers, codec=CHAT, model="by-hand",
            terms=Terms(k=1, recipes=0), jobs=given.jobs,
        )  # fmt: skip
        keep = None if given.output is None else given.output.with_name(given.output.name + ".part")
        result = run(wanted, keep=keep, on_goal=lambda goal, done, total: print(goal_line(goal), flush=True))
    print("\n".join(summary_lines(result)))
    for goal in result.goals:
        if not goal.reached("met", ("model",)):
            print(f"not met: {goal.goal}: {goal.problem or goal.attempts[0].why}")
    if given.output is not None:
        given.output.write_text(json.dumps(to_json(result), indent=1) + "\n", encoding="utf-8")


def answer_of(goal: Goal) -> str:
    """The version written by hand for a goal, as a model would tell it."""
    own = SOLUTIONS / f"{goal.kernel}.{goal.metric}.cu"
    kernel, contract, before = _side(goal.path)
    _, _, after = _side(own if own.is_file() else SOLUTIONS / f"{goal.kernel}.cu")
    question = Question(
        before.text, kernel, before.launch, goal.metric, goal.prompt, "debug" if goal.metric == "correct" else "generate",
        contract=contract,
    )  # fmt: skip
    return codec_named(CHAT).answer(question, after)


def _side(path: Path) -> tuple[str, Contract, CodecVersion]:
    kernel = load_kernel(path)
    contract = parse_contract(kernel)
    assert contract is not None
    return kernel.name, contract, CodecVersion(kernel.unit.text, launch_of(contract))


if __name__ == "__main__":
    main()
