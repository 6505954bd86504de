"""The exam's questions as a model reads them, in a file, for models that are asked on another machine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kernelmate.records import Candidate
from kernelmate.session import Session
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.base import NotEncodable
from kernelmate_training.exam.answers import prompt_of
from kernelmate_training.exam.goals import Goal, load_exam
from kernelmate_training.exam.running import Wanted


@dataclass(slots=True)
class _Asking:
    """A suggester that only looks at what it is asked."""

    name: str = "prompts"
    requests: list[SuggestRequest] = field(default_factory=list)

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Nothing."""
        self.requests.append(request)
        yield from ()


def request_of(session: Session, goal: Goal) -> SuggestRequest:
    """The request that a suggester receives for a goal: the kernel judged, the prompt read.

    Raises:
        RuntimeError: the goal's kernel is not such that anything would be asked.
    """
    asking = _Asking()
    found = session.optimize(goal.load(), goal.prompt, suggesters=(asking,))
    if not asking.requests:
        raise RuntimeError(f"Nothing is asked for the goal {goal.name}: {' '.join(found.notes)}")
    return asking.requests[0]


def write_prompts(
    path: Path, codec: str, goals: tuple[str, ...] = (), *, on_goal: Callable[[str], None] = lambda name: None
) -> tuple[int, list[str]]:
    """Write a line for each goal: goal, task, codec, prompt, and the exam's hash.

    Args:
        path: what is written.
        codec: how the model is asked.
        goals: names; empty for all.
        on_goal: called with each.

    Returns:
        How many were written, and a sentence for each goal that the codec cannot show.

    Raises:
        UsageError: there is no such codec. SourceError: there is no such goal.
    """
    asked, exam = codec_named(codec), load_exam(goals)
    written, untold = 0, []
    wanted = Wanted()
    with Session(wanted.settings(wanted.seed)) as session, path.open("w", encoding="utf-8") as file:
        for goal in exam.goals:
            on_goal(goal.name)
            request = request_of(session, goal)
            try:
                row = asdict(prompt_of(goal.name, asked, request))
            except NotEncodable as error:
                untold.append(f"{goal.name}: {error}")
                continue
            file.write(json.dumps({**row, "exam": exam.sha256}, ensure_ascii=False) + "\n")
            written += 1
    return written, untold
