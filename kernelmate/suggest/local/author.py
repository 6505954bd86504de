"""The local model as an author: several attempts at one kernel, a repair, and an attempt to follow a review."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from kernelmate.records import Candidate, Cost, Judged
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.codec import CHAT
from kernelmate.suggest.codec.base import Question as CodecQuestion
from kernelmate.suggest.codec.requests import question_of, repair_of
from kernelmate.suggest.consent import redacted
from kernelmate.suggest.local.chat import ANSWER_S, ChatAnswer, ChatRequest, OnText, ask
from kernelmate.suggest.local.codec_query import LIKELY, CodecQuery
from kernelmate.suggest.local.serving import Endpoint
from kernelmate.suggest.prompts import RULES, failed_part, kernel_part, questions, review_part, versions_part
from kernelmate.suggest.replies import Malformed, Proposal, Review, read_reply, schema_of

CHARACTERS_PER_TOKEN = 2.5
"""Assumed characters per token, below the average for code in common vocabularies."""
ANSWER_SHARE = 0.4
"""Fraction of the context reserved for the answer."""
MOST_ANSWER_TOKENS = 6_000
WARMER, HOTTEST = 0.1, 1.2
"""Temperature increment between sampled attempts, and its maximum."""
MOST_DRAWS = 1.5
"""Number of sampled answers per requested one, since some are duplicates."""

REPAIR_TASK = (
    "The version under review failed for the reasons that are given with it. Repair it, keeping what made it better.\n"
)
APPLY_TASK = "Carry out the review, step by step, and give the kernel.\n"


class _NoProbabilities(Exception):
    """The server reports no token probabilities; the message gives the reason."""


@dataclass(slots=True)
class LocalModel:
    """A model that an endpoint serves, as an author.

    Attributes:
        endpoint: returns the server's endpoint; starts the server if needed.
        label: the model's name in candidates.
        temperature: temperature of the second attempt, which rises with each further one; the first is greedy.
        seed: seed of the first attempt; the others use the following numbers.
        on_text: called with text as it arrives.
        stop: returns True once the user has cancelled.
        timeout_s: seconds without data after which a request fails.
        answer_s: largest duration of an answer in seconds.
        agree: shown each text before it leaves this machine, with secrets removed, and returns the user's consent; None
            for a local server.
        codec: name of the model's codec in `kernelmate.suggest.codec`.
        taught: fingerprint of the rewrites that the model was trained to choose among; None if it chooses none.
        notes: remarks for the user, one line each: that other rewrites are installed, or that probabilities are
            missing.
        last_cost: tokens of the last answer.
    """

    endpoint: Callable[[], Endpoint]
    label: str
    temperature: float = 0.7
    seed: int = 1
    on_text: OnText | None = None
    stop: Callable[[], bool] = lambda: False
    timeout_s: float = 300.0
    answer_s: float = ANSWER_S
    agree: Callable[[str], bool] | None = None
    codec: str = CHAT
    taught: str | None = None
    notes: list[str] = field(default_factory=list)
    last_cost: Cost = field(default_factory=Cost)
    _asked: int = 0
    _unweighed: str = ""

    @property
    def name(self) -> str:
        """The author's name in candidates and in the history."""
        return f"local:{self.label}"

    def samples(self, request: SuggestRequest, count: int) -> Iterator[Proposal | Candidate]:
        """Yields different attempts: a codec's choices, the most probable first; then sampled ones, the first greedy.

        Raises:
            AuthorFailed: the model is not available, or none of its answers could be parsed.
        """
        if self.codec != CHAT:
            return self._coded(request, question_of(request), count)
        tried = versions_part(request.versions(), request)
        return self._attempts(request, [tried], questions(request), count)

    def repair(self, request: SuggestRequest, failed: Judged) -> Iterator[Proposal | Candidate]:
        """Yields the result of one attempt to repair a version.

        Raises:
            AuthorFailed: as `samples`.
        """
        if self.codec != CHAT:
            return self._coded(request, repair_of(request, failed), 1)
        return self._attempts(request, [failed_part(failed, request)], REPAIR_TASK, 1)

    def apply(self, request: SuggestRequest, review: Review) -> Iterator[Proposal | Candidate]:
        """Yields two attempts at following a review; models with their own codec ignore it and sample again.

        Raises:
            AuthorFailed: as `samples`.
        """
        if self.codec != CHAT:
            return self._coded(request, question_of(request), 2)
        return self._attempts(request, [review_part(review), versions_part(request.versions(), request)], APPLY_TASK, 2)

    def _attempts(self, request: SuggestRequest, parts: list[str], task: str, count: int) -> Iterator[Proposal]:
        endpoint = self.endpoint()
        user, room = fitted(kernel_part(request), parts, task, endpoint.context)
        if self.agree is not None:
            user = redacted(user)
            if not self.agree(f"{RULES}\n{user}"):
                raise AuthorFailed("consent", f"Nothing was sent to {self.name}: you have not consented.")
        read, unread = 0, ""
        for number in range(count):
            if self.stop() or request.stop():
                return
            question = ChatRequest(
                RULES,
                user,
                schema=schema_of(Proposal),
                temperature=self._temperature(number),
                seed=self.seed + self._asked,
                most_tokens=room,
            )
            self._asked += 1
            try:
                proposal = self._proposal(endpoint, question, request)
            except Malformed as error:
                unread = str(error)
                continue
            read += 1
            yield proposal
        if not read and unread:
            raise AuthorFailed("malformed", f"{self.name} gave nothing that can be used. {unread}")

    def _coded(self, request: SuggestRequest, asked: CodecQuestion, count: int) -> Iterator[Candidate]:
        """Yields attempts of a model with its own codec: choices among the offers, then sampled answers.

        An answer that equals an earlier one is sampled again. If the server reports no probabilities, choices are
        sampled too.
        """
        endpoint = self.endpoint()
        self._note_differing()
        coded = CodecQuery(self.codec, asked, request, self.name)
        if self.agree is not None and not self.agree(coded.prompt):
            raise AuthorFailed("consent", f"Nothing was sent to {self.name}: you have not consented.")
        self.last_cost, left = Cost(), count
        for candidate in self._weighed(coded, endpoint, request, count):
            if self.stop() or request.stop():
                return
            left -= 1
            yield candidate
            self.last_cost = Cost()
        for number in range(int(left * MOST_DRAWS)):
            if self.stop() or request.stop():
                return
            if number - coded.repeated >= left:
                break
            question = coded.question(self._temperature(number), self.seed + self._asked)
            self._asked += 1
            written = coded.read(self._answer(endpoint, question, request))
            self._note(self._unweighed)
            if written is not None:
                yield written
        if not coded.read_any:
            raise AuthorFailed("malformed", f"{self.name} gave nothing that can be used. {coded.unread}".rstrip())

    def _weighed(
        self, coded: CodecQuery, endpoint: Endpoint, request: SuggestRequest, count: int
    ) -> Iterator[Candidate]:
        """Yields choices, the most probable first; none if the server reports no probabilities.

        Raises:
            AuthorFailed: the model cannot answer.
        """
        try:
            if not self._unweighed:
                yield from islice(coded.choices(lambda text: self._following(endpoint, text, request)), count)
        except _NoProbabilities as lacking:
            self._unweighed = f"{self.name}: choices could not be weighed, so it is asked to write them. {lacking}"
        coded.weighed = not self._unweighed

    def _following(self, endpoint: Endpoint, text: str, request: SuggestRequest) -> Mapping[str, float]:
        """Returns log probabilities of the most probable tokens after a text; the cost is added to the last answer's.

        Raises:
            AuthorFailed: the model cannot answer.
            _NoProbabilities: the server reports no probabilities.
        """
        paid, question = self.last_cost, ChatRequest("", "", most_tokens=1, prompt=text, likely=LIKELY)
        try:
            answer = self._answer(endpoint, question, request, shown=False)
        except AuthorFailed as error:
            # Servers that do not support this parameter, or allow fewer tokens, reject the whole request.
            if error.kind != "request":
                raise
            raise _NoProbabilities(str(error)) from None
        self.last_cost = paid + self.last_cost
        if not answer.likely:
            raise _NoProbabilities("Its server reports no probabilities of tokens.")
        return answer.likely

    def _note_differing(self) -> None:
        if self.taught is not None:
            from kernelmate.suggest.codec.fingerprint import differing

            said, self.taught = differing(self.label, self.taught), None
            self._note(said or "")

    def _note(self, line: str) -> None:
        if line and line not in self.notes:
            self.notes.append(line)

    def _temperature(self, number: int) -> float:
        """Returns the temperature of an attempt: 0 for the first, then `temperature` and rising up to a maximum."""
        if number == 0:
            return 0.0
        return round(min(self.temperature + WARMER * (number - 1), max(HOTTEST, self.temperature)), 3)

    def _proposal(self, endpoint: Endpoint, question: ChatRequest, request: SuggestRequest) -> Proposal:
        """Returns one parsed answer.

        Raises:
            Malformed: the answer cannot be parsed.
            AuthorFailed: the model cannot answer.
        """
        try:
            answer = self._answer(endpoint, question, request)
        except AuthorFailed as error:
            if error.kind == "malformed":
                raise Malformed(str(error)) from None
            raise
        if not answer.finished:
            raise Malformed("The answer was cut off: it exceeded the token limit.")
        return read_reply(answer.text, Proposal)

    def _answer(
        self, endpoint: Endpoint, question: ChatRequest, request: SuggestRequest, *, shown: bool = True
    ) -> ChatAnswer:
        """Returns one answer and its cost; `shown` passes text to the user as it arrives.

        Raises:
            AuthorFailed: the model cannot answer.
        """
        self.last_cost = Cost()

        def stopped() -> bool:
            return self.stop() or request.stop()

        answer = ask(
            endpoint,
            question,
            on_text=self.on_text if shown else None,
            stop=stopped,
            timeout_s=self.timeout_s,
            answer_s=self.answer_s,
        )
        self.last_cost = Cost(answer.input_tokens, answer.output_tokens, 0.0)
        return answer


def fitted(kernel: str, parts: list[str], task: str, context: int | None) -> tuple[str, int]:
    """Fit the user message of a prompt into a context; returns it with the number of tokens left for the answer.

    Parts are truncated from the least important one, which is the last; the kernel is never truncated.

    Args:
        kernel: the facts about the kernel.
        parts: other parts, the most important first.
        task: the task.
        context: context length in tokens; None if unknown.

    Raises:
        AuthorFailed: the kernel alone does not fit.
    """
    if context is None:
        return "\n\n".join([kernel, *parts, task]), MOST_ANSWER_TOKENS
    answer = min(int(context * ANSWER_SHARE), MOST_ANSWER_TOKENS)
    room = int((context - answer) * CHARACTERS_PER_TOKEN) - len(RULES) - len(kernel) - len(task) - 64
    if room < 0:
        needed = int((len(RULES) + len(kernel) + len(task)) / CHARACTERS_PER_TOKEN / (1 - ANSWER_SHARE))
        raise AuthorFailed(
            "truncated",
            f"The kernel is too long for the model: about {needed} tokens of context are needed, it has {context}.",
        )
    kept = []
    for part in parts:
        if len(part) > room:
            part = part[: max(room - 20, 0)] + "\n[cut]" if room > 200 else ""
        room -= len(part)
        kept.append(part)
    return "\n\n".join([kernel, *filter(None, kept), task]), answer
