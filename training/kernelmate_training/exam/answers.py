"""Sources of a model's answers: a file of answers sampled elsewhere, or the local model, asked as any user asks it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from kernelmate.config import Settings
from kernelmate.errors import SourceError
from kernelmate.records import Candidate
from kernelmate.suggest.base import AuthorFailed, SuggestRequest, candidate_key
from kernelmate.suggest.codec import CHAT, codec_named
from kernelmate.suggest.codec.base import Codec, DecodedAnswer, NotEncodable, UndecodableAnswer
from kernelmate.suggest.codec.requests import candidate_of, question_of
from kernelmate.suggest.local.author import LocalModel
from kernelmate.suggest.replies import proposed


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: a version, or the reason that there is none.

    Attributes:
        number: number of the answer; 0 is the greedy one.
        candidate: the version; None without one.
        problem: the reason that there is no version.
        seconds: wall time; None if it was sampled elsewhere.
    """

    number: int
    candidate: Candidate | None
    problem: str = ""
    seconds: float | None = None


class Answers(Protocol):
    """A model that takes the exam."""

    def identity(self) -> Mapping[str, str]:
        """Returns the model's identity for the exam's result: name, codec, SHA-256."""
        ...

    def of(self, goal: str, request: SuggestRequest, k: int) -> Iterator[Answered]:
        """Yields the model's answers to one goal, the greedy one first.

        Raises:
            AuthorFailed: the model is not available.
        """
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of a goal."""

    goal: str
    task: str
    codec: str
    prompt: str


def prompt_of(goal: str, codec: Codec, request: SuggestRequest) -> Prompt:
    """Returns the exact prompt of a question.

    Raises:
        NotEncodable: the codec cannot express the kernel.
    """
    question = question_of(request)
    return Prompt(goal, question.task, codec.name, codec.ask(question).prompt)


class Sampled:
    """Answers from a file: one JSON object per line, with `goal`, `sample` (0 is the greedy one) and `text`.

    Args:
        path: the file.
        codec: name of the codec that wrote the prompts.
        name: the model's name; None for the file's name.

    Raises:
        SourceError: the file has another form.
        UsageError: there is no such codec.
    """

    def __init__(self, path: Path, codec: str, name: str | None = None) -> None:
        self._codec = codec_named(codec)
        self._name = name or path.stem
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise SourceError(f"{path} cannot be read: {error.strerror}.") from None
        self._sha256 = hashlib.sha256(raw).hexdigest()
        self._texts: dict[str, dict[int, str]] = {}
        for number, line in enumerate(raw.decode("utf-8").splitlines(), 1):
            if line.strip():
                self._take(path, number, line)

    def _take(self, path: Path, number: int, line: str) -> None:
        try:
            row = json.loads(line)
            self._texts.setdefault(str(row["goal"]), {})[int(row["sample"])] = str(row["text"])
        except (ValueError, KeyError, TypeError):
            raise SourceError(
                f"{path}:{number}: this line is not an answer.",
                hint='A line is {"goal": ..., "sample": 0, "text": ...}.',
            ) from None

    def identity(self) -> Mapping[str, str]:
        """Returns the model's name and codec, and the file's hash."""
        return {"name": self._name, "codec": self._codec.name, "answers_sha256": self._sha256}

    def of(self, goal: str, request: SuggestRequest, k: int) -> Iterator[Answered]:
        """Yields the first `k` of the file's answers."""
        texts = self._texts.get(goal, {})
        try:
            asked = self._codec.ask(question_of(request))
        except NotEncodable as error:
            raise AuthorFailed("request", f"The codec {self._codec.name} cannot show this kernel: {error}") from None
        for number in sorted(texts)[:k]:
            try:
                candidate = self._read(request, asked.read(texts[number]))
            except UndecodableAnswer as error:
                yield Answered(number, None, str(error))
            else:
                yield Answered(number, candidate)

    def _read(self, request: SuggestRequest, answer: DecodedAnswer) -> Candidate:
        return candidate_of(request.kernel, request.contract, answer, f"local:{self._name}")


class Local:
    """The selected local model, or another one of the library, served as for any user.

    Args:
        settings: settings with the model's name.

    Raises:
        UsageError: there is no such model, or none at all.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._identity = _model_identity(settings)

    def identity(self) -> Mapping[str, str]:
        """Returns the model's name and its file's hash."""
        return self._identity

    def of(self, goal: str, request: SuggestRequest, k: int) -> Iterator[Answered]:
        """Yields the greedy answer, then sampled ones.

        The greedy one is requested alone, so that its time is its own.
        """
        from kernelmate.session.authors import SearchOptions, local_model

        model = local_model(self._settings, request.kernel, SearchOptions(author="local"), wanted=True)
        assert model is not None
        greedy: Candidate | None = None
        for answer in self._asked(model, request, 1):
            greedy = answer.candidate
            yield answer
        number = 1
        for answer in self._asked(model, request, k) if k > 1 else ():
            again = answer.candidate is not None and greedy is not None and _same(answer.candidate, greedy)
            if not again:
                yield replace(answer, number=number)
                number += 1

    def _asked(self, model: LocalModel, request: SuggestRequest, count: int) -> Iterator[Answered]:
        """Yields answers that could be decoded; if there are none, one that could not."""
        began = time.perf_counter()
        try:
            for proposal in model.samples(request, count):
                seconds = time.perf_counter() - began
                try:
                    yield Answered(0, proposed(request, proposal, model.name), seconds=seconds)
                except AuthorFailed as error:
                    yield Answered(0, None, str(error), seconds)
                began = time.perf_counter()
        except AuthorFailed as error:
            if error.kind != "malformed":
                raise
            yield Answered(0, None, str(error), time.perf_counter() - began)


def _same(one: Candidate, other: Candidate) -> bool:
    """Returns True if both are the same version."""
    texts = (one.kernel.unit.text, other.kernel.unit.text)
    return texts[0] == texts[1] and candidate_key(one.kernel, one.contract) == candidate_key(
        other.kernel, other.contract
    )


def _model_identity(settings: Settings) -> Mapping[str, str]:
    from kernelmate.errors import UsageError
    from kernelmate.session.authors import model_library

    if settings.model_url is not None:
        codec = settings.model_codec or CHAT
        return {"name": settings.model or "default", "url": settings.model_url, "codec": codec}
    library = model_library(settings)
    model = library.find(settings.model) if settings.model is not None else library.current()
    if model is None:
        raise UsageError("No model is in use.", hint="Add one with `kernelmate model add FILE.gguf`.")
    return {"name": model.name, "sha256": model.sha256, "codec": model.codec or CHAT}
