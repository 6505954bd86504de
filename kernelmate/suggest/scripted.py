"""A suggester with fixed answers, for tests of programs that use suggesters and as an example of a plugin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmate.records import Candidate
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.replies import Proposal, Step, proposed


class Scripted:
    """Suggester that proposes given kernels in their order, for any request.

    Args:
        texts: CUDA text of each version of the kernel, helpers included.
        name: the suggester's name, and the author of its candidates.
        why: the reason of every candidate.
    """

    def __init__(self, texts: Sequence[str], *, name: str = "scripted", why: str = "it was told to") -> None:
        self.name = name
        self.requests: list[SuggestRequest] = []
        self._texts = tuple(texts)
        self._why = why

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields one candidate for each text.

        Raises:
            AuthorFailed: a text is not allowed in a candidate.
        """
        self.requests.append(request)
        for text in self._texts:
            if request.stop():
                return
            proposal = Proposal(self._why, (Step(self._why, ""),), text)
            yield proposed(request, proposal, f"plugin:{self.name}")
