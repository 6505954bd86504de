"""Wrapper of llama-cpp-python that answers one request at a time and stops once the client has disconnected.

The package's own server does not support `json_schema`, continues to evaluate a prompt after its client has
disconnected, and ends a stream without an error message on a failure; therefore only the binding is used.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelmate.suggest.local.engine_settings import BATCH, EngineSettings

PLAIN = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n\n{% endfor %}assistant: "
"""Chat template for a model file without one."""


class Unanswerable(Exception):
    """A request that this model cannot answer; the message is one sentence."""


class ClientGone(Exception):
    """The client has closed its connection."""


@dataclass(frozen=True, slots=True)
class SamplingOptions:
    """Sampling options of an answer.

    `grammar` is a result of `Binding.grammar`, `likely` is as in `chat.ChatRequest`.
    """

    most_tokens: int
    temperature: float
    seed: int
    grammar: Any = None
    likely: int = 0


@dataclass(slots=True)
class TokenCounts:
    """Token counts of one answer, and the reason that it ended.

    Attributes:
        prompt: tokens of the prompt.
        known: tokens of the prompt that were cached.
        written: tokens of the answer.
        finish: `stop` if the model ended its answer, `length` if there was no more room.
        likely: most probable values of the first token with log probabilities, if requested.
    """

    prompt: int
    known: int = 0
    written: int = 0
    finish: str = "length"
    likely: list[tuple[str, float]] = field(default_factory=list)


class Binding:
    """A loaded model.

    Args:
        settings: the settings of the model.

    Raises:
        Exception: any error of llama-cpp-python while loading.
    """

    def __init__(self, settings: EngineSettings) -> None:
        import llama_cpp
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        threads = settings.threads or _cores()
        # llama.cpp's log matters only while loading: its last lines give the reason of a failure.
        self._llama = llama_cpp.Llama(
            settings.model,
            n_ctx=settings.context,
            n_gpu_layers=settings.gpu_layers,
            n_threads=threads,
            n_threads_batch=threads,
            n_batch=BATCH,
        )
        self._llama.verbose = False
        logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
        self._vocab = llama_cpp.llama_model_get_vocab(self._llama.model)
        # A file's chat template is untrusted code: the formatter runs it in Jinja's sandbox, without access to
        # attributes of Python; if it never ends, the client times out and ends this process.
        template = self._llama.metadata.get("tokenizer.chat_template", PLAIN)
        self._format = Jinja2ChatFormatter(template, self._text_of("eos"), self._text_of("bos"))
        self._gone: Callable[[], bool] = bool
        # llama.cpp calls it between any two operations of an evaluation: on a CPU, some thousand times a second.
        self._abort = llama_cpp.ggml_abort_callback(lambda _: self._gone())
        llama_cpp.llama_set_abort_callback(self._llama.ctx, self._abort, None)

    @property
    def context(self) -> int:
        """Context length in tokens."""
        return int(self._llama.n_ctx())

    def prompt(self, messages: Sequence[dict[str, Any]]) -> list[int]:
        """Returns the tokens of a conversation, by the chat template of the model's file.

        Raises:
            Unanswerable: the template fails, or the context is too small.
        """
        try:
            text: str = self._format(messages=list(messages)).prompt
        except Exception as error:
            raise Unanswerable(
                f"the chat template of the model's file fails: {type(error).__name__}: {error}"
            ) from error
        return self.tokens(text)

    def tokens(self, text: str) -> list[int]:
        """Tokenise an exact text; special tokens that it spells out become single tokens.

        Raises:
            Unanswerable: the context is too small.
        """
        tokens: list[int] = self._llama.tokenize(text.encode("utf-8", "replace"), add_bos=False, special=True)
        if len(tokens) >= self.context:
            raise Unanswerable(f"the prompt has {len(tokens)} tokens and exceeds the context of {self.context}")
        return tokens

    def grammar(self, schema: object) -> Any:
        """Returns a grammar for a JSON Schema.

        Raises:
            Unanswerable: the schema cannot be converted.
        """
        from llama_cpp import LlamaGrammar

        try:
            return LlamaGrammar.from_json_schema(json.dumps(schema), verbose=False)
        except Exception as error:
            raise Unanswerable(f"no grammar can be made of the schema: {type(error).__name__}: {error}") from error

    def answer(
        self, prompt: list[int], wanted: SamplingOptions, counts: TokenCounts, gone: Callable[[], bool]
    ) -> Iterator[bytes]:
        """Yields the answer's bytes in pieces; a piece may end within a character.

        Args:
            prompt: the tokens of the prompt.
            wanted: sampling options.
            counts: updated during the answer.
            gone: returns True once the client has disconnected; called thousands of times a second, so it must be fast.

        Raises:
            ClientGone: the client has disconnected.
            RuntimeError: llama.cpp failed.
        """
        import llama_cpp

        counts.known = self._known(prompt)
        room = min(wanted.most_tokens, self.context - len(prompt))
        self._gone = gone
        self._llama.set_seed(wanted.seed)
        try:
            for token in self._llama.generate(prompt, temp=wanted.temperature, grammar=wanted.grammar):
                if gone():
                    raise ClientGone
                if wanted.likely and not counts.written:
                    counts.likely = self._likely(wanted.likely)
                if llama_cpp.llama_vocab_is_eog(self._vocab, token):
                    counts.finish = "stop"
                    return
                counts.written += 1
                yield self._piece(token)
                if counts.written >= room:
                    return
        except RuntimeError:
            if gone():
                raise ClientGone from None
            raise
        finally:
            self._gone = bool

    def _known(self, prompt: list[int]) -> int:
        """Returns the number of leading prompt tokens that are cached from the previous request."""
        known = 0
        for one, other in zip(self._llama.input_ids[: self._llama.n_tokens], prompt, strict=False):
            if one != other:
                break
            known += 1
        return known

    def _likely(self, count: int) -> list[tuple[str, float]]:
        """Returns the most probable values of the next token with their log probabilities, before sampling."""
        import llama_cpp
        import numpy as np

        logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self._llama.ctx, -1), (self._llama.n_vocab(),))
        logits = logits.astype(np.float64)
        logits -= logits.max()
        logits -= np.log(np.exp(logits).sum())
        first = np.argsort(-logits, kind="stable")[:count]
        return [(self._piece(int(token)).decode("utf-8", "replace"), float(logits[token])) for token in first]

    def _piece(self, token: int, *, special: bool = False) -> bytes:
        """Returns a token's text. The package's own `detokenize` drops tokens of more than 32 bytes."""
        import llama_cpp

        buffer = ctypes.create_string_buffer(64)
        size = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        if size < 0:
            buffer = ctypes.create_string_buffer(-size)
            size = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[: max(size, 0)]

    def _text_of(self, name: str) -> str:
        """Returns the text of the vocabulary's `eos` or `bos` token; empty if there is none."""
        token = self._llama.token_eos() if name == "eos" else self._llama.token_bos()
        return "" if token < 0 else self._piece(token, special=True).decode("utf-8", "replace")


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
