"""The exam: hand-written kernels that are in no training corpus, goals for them, and the evaluation of answers."""

from __future__ import annotations

from kernelmate_training.exam.attempts import Terms
from kernelmate_training.exam.goals import Exam, Goal, exam_hash, load_exam
from kernelmate_training.exam.records import Attempt, ExamResult, Figure, GoalResult, read_result, to_json
from kernelmate_training.exam.running import SEED, Wanted, interrupted, run

__all__ = [
    "SEED",
    "Attempt",
    "Exam",
    "ExamResult",
    "Figure",
    "Goal",
    "GoalResult",
    "Terms",
    "Wanted",
    "exam_hash",
    "interrupted",
    "load_exam",
    "read_result",
    "run",
    "to_json",
]
