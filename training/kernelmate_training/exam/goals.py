"""The exam's goals: a kernel, a prompt, and the condition for meeting it. Frozen, and identified by a hash."""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from kernelmate.decide.metrics import better, metric_value
from kernelmate.errors import SourceError
from kernelmate.records import Kernel, MetricName, Verdict
from kernelmate.source import load_kernels

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "kernels"
GOALS = HERE / "goals.toml"

FROZEN = {1: "7b742533713eb9626b51f9143265297362eb595bbf78fe9e93a83ad781126b1e"}
"""SHA-256 of the exam's files, by version. A result states both, so that different exams are never compared."""


@dataclass(frozen=True, slots=True)
class Goal:
    """One prompt for one kernel.

    Attributes:
        name: unique name of the goal.
        kernel: the file's name in `kernels`, without suffix.
        prompt: the user's words.
        metric: the metric that the prompt must be read as.
        most: largest value of the metric that meets the goal, as `kernelmate.decide.metrics.metric_value` gives it
            (bytes, registers or tolerances); None if any gain beyond noise suffices.
    """

    name: str
    kernel: str
    prompt: str
    metric: MetricName
    most: float | None = None

    @property
    def path(self) -> Path:
        """Path of the kernel's file."""
        return KERNELS / f"{self.kernel}.cu"

    def load(self) -> Kernel:
        """Returns the kernel.

        Raises:
            SourceError: the file does not contain exactly one kernel.
        """
        kernels = load_kernels(self.path)
        if len(kernels) != 1:
            raise SourceError(f"{self.path} holds {len(kernels)} kernels.", hint="A goal's file holds exactly one.")
        return kernels[0]

    def met(self, verdict: Verdict) -> bool:
        """Returns True if a version with this verdict, judged against the goal's kernel, meets the goal.

        It must be worth taking by the product's rules (correct, no finding that rejects it, better beyond noise, no
        other metric worse beyond its limit), and within the goal's own limit.
        """
        if not verdict.worth_taking or verdict.correct is not True:
            return False
        if self.most is None:
            return True
        value = metric_value(self.metric, verdict)
        if value is None:
            return False
        return value <= self.most if better(self.metric) == "lower" else value >= self.most


@dataclass(frozen=True, slots=True)
class Exam:
    """All goals, and their identity.

    Attributes:
        version: raised with every change.
        sha256: hash of goals, kernels and references.
        goals: the goals.
    """

    version: int
    sha256: str
    goals: tuple[Goal, ...]


def load_exam(names: tuple[str, ...] = ()) -> Exam:
    """Returns the exam, or only the named goals.

    Args:
        names: names of goals or of kernels; empty for all.

    Raises:
        SourceError: a name is neither.
    """
    document = tomllib.loads(GOALS.read_text(encoding="utf-8"))
    goals = tuple(_goal(entry) for entry in document["goals"])
    known = {goal.name for goal in goals} | {goal.kernel for goal in goals}
    strange = [name for name in names if name not in known]
    if strange:
        raise SourceError(
            f"The exam has no goal and no kernel {strange[0]!r}.",
            hint="`kernelmate upskill examine --list` names them.",
        )
    chosen = tuple(goal for goal in goals if not names or goal.name in names or goal.kernel in names)
    return Exam(int(document["version"]), exam_hash(), chosen)


def exam_hash() -> str:
    """Returns the SHA-256 of the goals, every kernel and the references, each with its name and with LF line ends."""
    digest = hashlib.sha256()
    files = [GOALS, *sorted(KERNELS.glob("*.cu")), KERNELS / "reference.py"]
    for path in files:
        text = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"{path.name} {len(text)}\n".encode())
        digest.update(text)
    return digest.hexdigest()


def _goal(entry: dict[str, object]) -> Goal:
    metric = str(entry["metric"])
    if metric not in get_args(MetricName):
        raise SourceError(f"{GOALS}: goal {entry['name']} has metric {metric!r}, which is not a metric.")
    most = entry.get("most")
    limit = None if most is None else float(str(most))
    return Goal(str(entry["name"]), str(entry["kernel"]), str(entry["prompt"]), metric, limit)  # type: ignore[arg-type]
