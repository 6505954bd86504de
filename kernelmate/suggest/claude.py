"""Claude as an author, by the anthropic SDK.

It reviews a version that failed, audits one with a suspiciously large gain, and writes kernels only if allowed.

Nothing is sent without consent, and the text that is sent equals the text that was shown. The SDK reads the key from
the environment or from its own store.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelmate.records import Cost, Judged
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.consent import Ask, Consents, OutgoingText, redacted
from kernelmate.suggest.prices import OverBudget, SpendingBudget, cost_of
from kernelmate.suggest.prompts import QUESTIONS, RULES, failed_part, kernel_part, review_part, versions_part
from kernelmate.suggest.replies import Audit, Form, Malformed, Proposal, Review, read_reply, schema_of

if TYPE_CHECKING:
    import anthropic

DEFAULT_MODEL = "claude-opus-5-5"
MOST_OUTPUT_TOKENS = 24_000
LEAST_OUTPUT_TOKENS = 4_000
"""Fewest output tokens of a call; with fewer, an answer is likely to be truncated."""
TIMEOUT_S = 300.0
ANSWER_S = 600.0
"""Largest duration of one answer in seconds."""
MOST_ANSWER = 1 << 20
"""Largest number of characters of one answer."""
_LOOK_S = 0.05

REVIEW_TASK = """\
You are the reviewer. Another author wrote the version under review, and it was not accepted: its verdict stands with it. \
Say in the analysis what limits the kernel as it is and why that version fell short; name every problem of that version \
(wrong, unsafe, cheating, slow) with its place; then say what to do next, each step so that another author can carry it \
out without asking, with why it helps on this GPU; and the speed-up over the kernel as it is that you expect if it is \
done well.
"""

AUDIT_TASK = """\
You are the adversarial checker. The version under review passed every check and is much faster than the kernel as it is. \
Try to show that it should not be trusted: does it really compute what the contract asks for, at every size and for every \
input the contract allows, and does its speed come from doing the work better, or from leaving some out, keeping results \
between launches, relying on particular inputs, or lowering precision? Give every doubt with its place and an input for \
which it shows. Have no doubt where you find no reason for one.
"""

WRITE_TASK = f"""\
Answer these questions, the first two in the analysis, and give the kernel:
{QUESTIONS}"""

OnText = Callable[[str], None]


@dataclass(slots=True)
class Claude:
    """Client of one session with Claude.

    Attributes:
        spending: the spending limit.
        consents: stored consents.
        ask: asks the user for consent.
        workspace: the folder that a consent covers.
        model: the model's name in the API.
        on_text: called with text as it arrives.
        stop: returns True to cancel; checked with every piece of text.
        retries: number of retries by the SDK, which waits as long as the server requests.
        timeout_s: seconds without data after which a call fails.
        answer_s: largest duration of an answer in seconds, retries included.
    """

    spending: SpendingBudget
    consents: Consents
    ask: Ask
    workspace: Path
    model: str = DEFAULT_MODEL
    on_text: OnText | None = None
    stop: Callable[[], bool] = lambda: False
    retries: int = 2
    timeout_s: float = TIMEOUT_S
    answer_s: float = ANSWER_S
    last_cost: Cost = field(default_factory=Cost)
    _client: anthropic.Anthropic | None = None

    @property
    def name(self) -> str:
        """The author's name in candidates and in the history."""
        return f"claude:{self.model}"

    @property
    def account(self) -> str:
        """Returns the cost of all calls of the session so far, and the spending limit."""
        return self.spending.account

    def review(self, request: SuggestRequest, failed: Judged | None) -> Review:
        """Review the best version that failed, and plan the next one.

        Raises:
            AuthorFailed: Claude cannot answer.
        """
        versions = versions_part(request.versions(), request)
        tried = versions if failed is None else f"{versions}\n\n{failed_part(failed, request)}"
        return self._call(request, tried, REVIEW_TASK, Review)

    def audit(self, request: SuggestRequest, suspicious: Judged) -> Audit:
        """Audit a version that passed; called even after the search's budget is used up.

        Raises:
            AuthorFailed: Claude cannot answer.
        """
        return self._call(replace(request, stop=_never), failed_part(suspicious, request), AUDIT_TASK, Audit)

    def write(self, request: SuggestRequest, review: Review | None = None) -> Proposal:
        """Writes a new kernel.

        Raises:
            AuthorFailed: Claude cannot answer.
        """
        versions = versions_part(request.versions(), request)
        tried = versions if review is None else f"{versions}\n\n{review_part(review)}"
        return self._call(request, tried, WRITE_TASK, Proposal)

    def _call(self, request: SuggestRequest, tried: str, task: str, form: type[Form]) -> Form:
        """Makes one call: checks consent and budget, streams the answer, and parses it."""
        self.last_cost = Cost()
        if self.stop():
            raise AuthorFailed("cancelled", "Claude was not asked: the search was interrupted.")
        system, kernel, rest = (redacted(part) for part in (RULES, kernel_part(request), f"{tried}\n\n{task}"))
        text = f"{system}\n{kernel}\n{rest}"
        tokens = self._tokens(len(text))
        client = self._connected()
        self._agreed(text, str(client.base_url.host), tokens)
        arguments: dict[str, Any] = {
            "model": self.model,
            "max_tokens": tokens,
            "system": [{"type": "text", "text": system, "cache_control": {"type": "ephemeral"}}],
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": kernel, "cache_control": {"type": "ephemeral"}},
                        {"type": "text", "text": rest},
                    ],
                }
            ],
            "output_config": {"format": {"type": "json_schema", "schema": schema_of(form)}},
        }
        answer = self._streamed(client, arguments, request.stop)
        try:
            return read_reply(answer, form)
        except Malformed as error:
            raise AuthorFailed("malformed", f"Claude's answer cannot be used: {error}") from None

    def _tokens(self, characters: int) -> int:
        """Returns the number of output tokens that the remaining budget allows, at most `MOST_OUTPUT_TOKENS`."""
        tokens = MOST_OUTPUT_TOKENS
        while True:
            try:
                self.spending.check(self.model, characters, tokens)
            except OverBudget as error:
                if tokens <= LEAST_OUTPUT_TOKENS:
                    raise AuthorFailed("budget", str(error)) from None
                tokens = max(tokens // 2, LEAST_OUTPUT_TOKENS)
            else:
                return tokens

    def _connected(self) -> anthropic.Anthropic:
        if self._client is not None:
            return self._client
        try:
            import anthropic
        except ImportError:
            raise AuthorFailed(
                "missing", "Claude needs the anthropic package: pip install 'kernelmate[claude]'"
            ) from None
        try:
            self._client = anthropic.Anthropic(max_retries=self.retries, timeout=self.timeout_s)
        except Exception as error:  # noqa: BLE001 -- whatever the SDK's store holds must not end the search
            raise AuthorFailed("key", f"The anthropic SDK cannot start ({type(error).__name__}). {_KEY_HINT}") from None
        return self._client

    def _agreed(self, text: str, host: str, tokens: int) -> None:
        if self.consents.given(self.workspace, host):
            return
        most = self.spending.most(self.model, len(text), tokens)
        if not self.ask(OutgoingText(text, host, self.model, most, self.workspace)):
            raise AuthorFailed("consent", "Nothing was sent to Claude: you have not consented.")
        self.consents.give(self.workspace, host)

    def _streamed(self, client: anthropic.Anthropic, arguments: dict[str, Any], stop: Callable[[], bool]) -> str:
        import anthropic

        reading = _Reading(client, arguments)
        try:
            return _text(self._followed(reading, stop))
        except AuthorFailed:
            raise
        except anthropic.AnthropicError as error:
            raise _failure(error) from None
        except Exception as error:  # noqa: BLE001 -- whatever the SDK makes of what a server sends
            raise _unreadable(error, str(client.base_url.host)) from None
        finally:
            if not reading.done:
                reading.end()
                self._client = None
            self._pay(reading.usage())

    def _followed(self, reading: _Reading, stop: Callable[[], bool]) -> Any:
        """Returns the whole message once it is complete; passes its text on as it arrives."""
        deadline = time.monotonic() + self.answer_s
        length = 0
        while True:
            if self.stop() or stop():
                raise AuthorFailed("cancelled", "Claude was interrupted.")
            if time.monotonic() > deadline:
                raise AuthorFailed(
                    "timeout",
                    f"Claude did not end its answer within {self.answer_s:g} s. Try again, or raise model_answer_s in the settings.",
                )
            try:
                piece = reading.pieces.get(timeout=_LOOK_S)
            except queue.Empty:
                continue
            if piece is None:
                return reading.message()
            length += len(piece)
            if length > MOST_ANSWER:
                raise AuthorFailed(
                    "truncated", f"Claude's answer does not end: it has over {MOST_ANSWER:,} characters."
                )
            if piece and self.on_text is not None:
                self.on_text(piece)

    def _pay(self, usage: Any) -> None:
        if usage is None:
            return
        kinds = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        self.last_cost = cost_of(self.model, *(_count(getattr(usage, kind, None)) for kind in kinds))
        self.spending.pay(self.last_cost)


class _Reading:
    """Reader of an answer in a thread of its own, so that a slow or silent server does not block the caller.

    Attributes:
        pieces: queue of text as it arrives; empty for other events, None at the end.
        done: True after the end.
    """

    def __init__(self, client: anthropic.Anthropic, arguments: dict[str, Any]) -> None:
        self.pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self.done = False
        self._client, self._arguments = client, arguments
        self._over = threading.Event()
        self._stream: Any = None
        self._message: Any = None
        self._error: Exception | None = None
        threading.Thread(target=self._read, name="kernelmate-claude", daemon=True).start()

    def message(self) -> Any:
        """Returns the whole answer.

        Raises:
            Exception: the SDK's error, if the call failed.
        """
        if self._error is not None:
            raise self._error
        return self._message

    def usage(self) -> Any:
        """Returns the server's token counts so far; None if it has sent nothing."""
        try:
            return None if self._stream is None else self._stream.current_message_snapshot.usage
        except (AssertionError, AttributeError):
            return None

    def end(self) -> None:
        """Closes the connection, which also stops the server's work."""
        self._over.set()
        with contextlib.suppress(Exception):
            stream = self._stream.response.extensions["network_stream"]
            stream.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(Exception):
            self._client.close()

    def _read(self) -> None:
        try:
            with self._client.messages.stream(**self._arguments) as stream:
                self._stream = stream
                for event in stream:
                    if self._over.is_set():
                        return
                    self.pieces.put(event.text if event.type == "text" else "")
                self._message = stream.get_final_message()
        except Exception as error:  # noqa: BLE001 -- raised where the answer is waited for
            self._error = error
        finally:
            self.done = True
            self.pieces.put(None)


def _count(tokens: object) -> int:
    """Returns a token count of a server; 0 if it is not a positive integer."""
    return tokens if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0 else 0


def _unreadable(error: Exception, host: str) -> AuthorFailed:
    """Converts an error that is not the SDK's own: a missing key, a broken connection, an answer of unknown form."""
    if isinstance(error, TypeError) and "authentication" in str(error):
        return AuthorFailed("key", f"There is no key for Claude. {_KEY_HINT}")
    if type(error).__module__.split(".")[0] in {"httpx", "httpx2", "httpcore", "httpcore2", "json", "ssl"}:
        return AuthorFailed("connection", _BROKEN_OFF)
    return AuthorFailed(
        "malformed",
        f"The server at {host} answered in a form that the anthropic SDK cannot read ({type(error).__name__}). "
        "Check ANTHROPIC_BASE_URL, or update the anthropic package.",
    )


_BROKEN_OFF = "The connection to Claude broke off in the middle of the answer."
_KEY_HINT = "Set ANTHROPIC_API_KEY, or log in with the SDK's own tool."


def _never() -> bool:
    return False


def _text(message: Any) -> str:
    """Returns the text of a finished answer.

    Raises:
        AuthorFailed: the answer was refused or truncated.
    """
    if message.stop_reason is None:
        raise AuthorFailed("connection", _BROKEN_OFF)
    if message.stop_reason == "refusal":
        raise AuthorFailed("refused", "Claude declined to answer for this kernel.")
    if message.stop_reason in {"max_tokens", "model_context_window_exceeded"}:
        raise AuthorFailed("truncated", "Claude's answer was cut off: it exceeded the token limit.")
    return "".join(block.text for block in message.content if block.type == "text")


def _failure(error: Exception) -> AuthorFailed:
    """Converts an error of the SDK, after its own retries, to one line without headers or bodies."""
    import anthropic

    status = getattr(error, "status_code", None)
    known: tuple[tuple[type[Exception], str, str], ...] = (
        (anthropic.APITimeoutError, "timeout", "Claude did not answer in time."),
        (anthropic.APIConnectionError, "connection", "Claude cannot be reached; check the network."),
        (anthropic.AuthenticationError, "key", f"The key for Claude was not accepted. {_KEY_HINT}"),
        (anthropic.PermissionDeniedError, "key", "The key for Claude may not use this model (claude_model)."),
        (anthropic.NotFoundError, "request", "Claude does not know this model; see the setting claude_model."),
        (anthropic.RateLimitError, "limit", "Claude's rate limit is reached; try again in a minute."),
    )
    for kind, name, sentence in known:
        if isinstance(error, kind):
            return AuthorFailed(name, sentence)
    if status == 529 or getattr(error, "type", None) == "overloaded_error":
        return AuthorFailed("overloaded", "Claude is overloaded; try again in a minute.")
    if status is not None and status >= 500:
        return AuthorFailed("server", f"Claude's server failed (status {status}); try again in a minute.")
    if status is not None:
        return AuthorFailed("request", f"Claude's server rejected the request (status {status}).")
    return AuthorFailed("key", f"The anthropic SDK failed ({type(error).__name__}). {_KEY_HINT}")
