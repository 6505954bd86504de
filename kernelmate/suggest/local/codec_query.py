"""Queries of a model by its codec: one exact prompt, decoded to candidates that differ from all earlier ones.

If rewrites are offered, the first candidates are choices among them, by probability; further ones are sampled. If the
server reports no probabilities, the prompt still contains the offers, and a sampled answer may be a choice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kernelmate.errors import UsageError
from kernelmate.records import Candidate
from kernelmate.suggest.base import AuthorFailed, SuggestRequest, candidate_key
from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.applicable import Following, answers, fits, offers_in, without_offers
from kernelmate.suggest.codec.base import CodecLaunch, NotEncodable, UndecodableAnswer
from kernelmate.suggest.codec.base import Question as CodecQuestion
from kernelmate.suggest.codec.requests import candidate_of
from kernelmate.suggest.local.chat import ChatAnswer, ChatRequest
from kernelmate.suggest.recipes.readable import readable

_SAMPLE = """\
__global__ void scale(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] / 3.0;
}
"""
MOST_TOKENS = 512
"""Largest number of tokens of an answer, several times as many as usual edits need."""
LIKELY = 256
"""Number of most probable tokens in which choices are looked up; more than the tokens that can start an answer."""


class CodecQuery:
    """One question to a model with a codec, and the answers so far.

    Args:
        codec: name of the codec.
        asked: the question.
        request: the search's request.
        author: the author of candidates, also named in messages.

    Raises:
        AuthorFailed: there is no such codec, or it cannot express the kernel.

    Attributes:
        weighed: True if `choices` yields the choices, so that sampled answers are asked without offers.
        read_any: True if any answer could be decoded.
        unread: the reason that the last answer could not be decoded; empty if it could.
        repeated: number of sampled answers that equal an earlier version, or choose a rewrite that is not offered.
    """

    def __init__(self, codec: str, asked: CodecQuestion, request: SuggestRequest, author: str) -> None:
        try:
            self._codec, self._plain = codec_named(codec), asked
            self._asked = self._first = self._codec.ask(asked)
            self.prompt = self._shown = self._first.prompt
        except UsageError as error:
            raise AuthorFailed(
                "request", f"{author} cannot be asked: {error.message} {error.hint or ''}".rstrip()
            ) from None
        except NotEncodable as error:
            raise AuthorFailed("truncated", f"{author} cannot be asked about this kernel: {error}") from None
        self._request, self._author = request, author
        self._known = {_key(judged.candidate) for judged in request.versions()}
        self._known.add((*candidate_key(request.kernel, request.contract), request.kernel.unit.text))
        self.weighed = True
        self.read_any = False
        self.unread = ""
        self.repeated = 0

    def choices(self, following: Following) -> Iterator[Candidate]:
        """Yields the offered choices, most probable first, then pairs, without versions yielded before.

        Args:
            following: returns log probabilities of the tokens after a text; called as choices are needed.
        """
        for answer, _ in answers(self.prompt, following):
            candidate = self._candidate(answer)
            if candidate is not None:
                yield candidate

    def question(self, temperature: float, seed: int) -> ChatRequest:
        """Returns the request for a sampled answer; the next call of `read` must be for its answer.

        At temperatures above 0, the seed also determines the numbering of placeholders.
        """
        self._asked, self._shown = self._first, without_offers(self.prompt) if self.weighed else self.prompt
        if temperature > 0:
            self._asked = self._codec.ask(replace(self._plain, seed=seed, offers=offers_in(self._shown)))
            self._shown = self._asked.prompt
        return ChatRequest("", "", temperature=temperature, seed=seed, most_tokens=MOST_TOKENS, prompt=self._shown)

    def read(self, answer: ChatAnswer) -> Candidate | None:
        """Returns an answer's candidate; None if it is invalid, changes nothing, or is a duplicate."""
        if not answer.finished:
            self.unread = "The answer was cut off: it exceeded the token limit."
            return None
        if not fits(self._shown, answer.text):
            self.repeated += 1
            self.unread = "The answer chooses what is not offered." if answer.text else "The answer is empty."
            return None
        candidate = self._candidate(answer.text)
        self.repeated += candidate is None and not self.unread
        return candidate

    def _candidate(self, answer: str) -> Candidate | None:
        self.unread = ""
        try:
            found = self._asked.read(answer)
            candidate = candidate_of(self._request.kernel, self._request.contract, found, self._author)
            candidate = readable(self._request.kernel, candidate)
        except UndecodableAnswer as error:
            self.unread = str(error)
            return None
        self.read_any = True
        key = _key(candidate)
        if key in self._known:
            return None
        self._known.add(key)
        return candidate


def sample_question(codec: str, most_tokens: int) -> ChatRequest:
    """Returns a question for any model with this codec, to test its speed.

    Raises:
        UsageError: there is no such codec.
    """
    prompt = codec_named(codec).ask(CodecQuestion(_SAMPLE, "scale", CodecLaunch(("cdiv(n, 256)",), ("256",)))).prompt
    return ChatRequest("", "", most_tokens=most_tokens, prompt=prompt)


def _key(candidate: Candidate) -> tuple[str, ...]:
    return (*candidate_key(candidate.kernel, candidate.contract), candidate.kernel.unit.text)
