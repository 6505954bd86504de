"""The exam's prompts in a file, for models that are sampled on another machine."""

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
    """A suggester that only records its requests."""

    name: str = "prompts"
    requests: list[SuggestRequest] = field(default_factory=list)

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Records the request and yields nothing."""
        self.requests.append(request)
        yield from ()


def request_of(session: Session, goal: Goal) -> SuggestRequest:
    """Returns the request that a suggester receives for a goal: the judged kernel, and the interpreted prompt.

    Raises:
        RuntimeError: the search does not ask suggesters about this kernel.
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
        path: the output file.
        codec: name of the codec.
        goals: names of goals; empty for all.
        on_goal: called with the name of each goal.

    Returns:
        The number of written prompts, and a sentence for each goal that the codec cannot express.

    Raises:
        UsageError: there is no such codec.
        SourceError: there is no such goal.
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
