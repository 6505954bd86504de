"""Preparation of training data: examples by a codec, a tokenizer learned from them, and tokens, stored for reuse.

Data of one codec, vocabulary, context and number of copies serve every model with these, and are made again if the
corpus changes. Finished steps are recorded with their inputs, so that a repeated command does nothing twice.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from kernelmate.errors import EnvironmentFailed, KernelmateError, UsageError
from kernelmate.suggest.codec import OFFERING, codec_named
from kernelmate.suggest.codec.fingerprint import fingerprint
from kernelmate_training.encoded import Encoded, encode, load_encoded, words_of
from kernelmate_training.examples import Example, FormattedExamples, format_examples, lines_of
from kernelmate_training.settings import ModelSection, Upskill
from kernelmate_training.vocabulary import load_tokenizer, train_tokenizer

TAUGHT = 20_000
"""Largest number of examples from which a tokenizer is learned; more change it little."""

WORTH_A_POOL = 512
"""Number of lines from which conversions for several codecs share a pool of processes."""

OnDone = Callable[[str, int, int], None]
"""Callback with the name of the operation, the number of finished items, and the total."""


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The data that a model is trained on.

    Attributes:
        tokenizer: the text of `tokenizer.json`.
        train, held_out: examples as tokens.
        facts: counts, the corpus' hash, and what was left out with the reasons.
    """

    tokenizer: str
    train: Encoded
    held_out: Encoded
    facts: dict[str, Any]


class ConvertedCorpora:
    """A corpus converted to examples, once for each codec however many models use it.

    Args:
        lines: lines of the corpus.
        seed: seed of the conversion.
        pool: pool of processes that convert; None starts processes each time.
    """

    def __init__(self, lines: list[str], seed: int, pool: Executor | None = None) -> None:
        self.lines, self._seed, self._pool = lines, seed, pool
        self._found: dict[tuple[str, int], FormattedExamples] = {}
        self._locks: defaultdict[tuple[str, int], threading.Lock] = defaultdict(threading.Lock)
        self._lock = threading.Lock()

    @cached_property
    def sha256(self) -> str:
        """Hash of the corpus."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()

    def of(self, model: ModelSection, told: OnDone) -> FormattedExamples:
        """Returns the corpus as examples in the model's codec, limited to the model's share of the problems."""
        key = (model.codec, model.copies)
        with self._lock:
            lock = self._locks[key]
        with lock:
            if key not in self._found:
                self._found[key] = format_examples(
                    self.lines, model.codec, copies=model.copies, seed=self._seed, pool=self._pool,
                    on_done=lambda done, total: told("telling", done, total),
                )  # fmt: skip
        found = self._found[key]
        if model.share >= 1.0:
            return found
        return replace(found, examples=tuple(one for one in found.examples if one.held_out or _drawn(one.group, model.share)))  # fmt: skip


def prepare_all(settings: Upskill, told: Callable[[str], None]) -> dict[str, dict[str, Any] | KernelmateError]:
    """Prepares the training data of all models at once, on all cores.

    Returns each model's facts, or the error that prevented them.

    Raises:
        UsageError: there is no corpus.
    """
    lines = lines_of(settings.corpus_folder)
    with contextlib.ExitStack() as stack:
        pool: Executor | None = None
        if len(lines) >= WORTH_A_POOL and not _all_there(settings):
            # Threads run in this process, so the pool's processes are spawned, not forked.
            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(os.cpu_count() or 1, mp_context=context))
        tellings = ConvertedCorpora(lines, settings.seed, pool)
        threads = stack.enter_context(ThreadPoolExecutor(max(len(settings.models), 1) if pool is not None else 1))
        locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

        def one(model: ModelSection) -> dict[str, Any] | KernelmateError:
            try:
                with locks[_key(model, settings.seed, tellings.sha256)]:
                    return prepare(settings, model, lambda *at: told(f"{model.name}: {at[0]} {at[1]}/{at[2]}"), tellings).facts  # fmt: skip
            except KernelmateError as error:
                return error

        assert tellings.sha256
        return {model.name: found for model, found in zip(settings.models, threads.map(one, settings.models), strict=True)}  # fmt: skip


def _all_there(settings: Upskill) -> bool:
    return all((prepared_folder(settings, model) / "facts.json").is_file() for model in settings.models)


def prepare(settings: Upskill, model: ModelSection, told: OnDone = lambda what, done, total: None, tellings: ConvertedCorpora | None = None) -> TrainingData:  # fmt: skip
    """Returns the training data of a model, and prepares it if it does not exist yet.

    Args:
        settings: the configuration.
        model: the model to prepare for.
        told: called with the operation, the number of finished items, and the total.
        tellings: examples of the corpus, shared with other models; None to convert the corpus.

    Raises:
        UsageError: there is no corpus, or the codec can express none of its lines.
        EnvironmentFailed: the data cannot be written.
    """
    tellings = tellings or ConvertedCorpora(lines_of(settings.corpus_folder), settings.seed)
    folder = settings.folder / "prepared" / _key(model, settings.seed, tellings.sha256)
    if (folder / "facts.json").is_file():
        return load_prepared(folder)
    found = tellings.of(model, told)
    learned = [example for example in found.examples if not example.held_out]
    if not learned:
        reasons = "; ".join(f"{count} x {why}" for why, count in list(found.left_out.items())[:3])
        raise UsageError(
            f"The codec {model.codec} can encode no example of this corpus: {reasons or 'all is held out'}."
        )
    told("learning the vocabulary", 0, 1)
    tokenizer = _tokenizer(learned, model, settings.seed)
    told("encoding", 0, 1)
    train, too_long = encode(learned, tokenizer, model.context)
    held_out, _ = encode([example for example in found.examples if example.held_out], tokenizer, model.context)
    if not len(train):
        raise UsageError(f"Every example is longer than context = {model.context} tokens.", hint="Raise context.")
    facts: dict[str, Any] = {
        "corpus_sha256": tellings.sha256,
        "share": model.share,
        "codec": model.codec,
        "lines": len(tellings.lines),
        "vocabulary": tokenizer.get_vocab_size(),
        "train": words_of(train),
        "held_out": words_of(held_out),
        "too_long": too_long,
        "left_out": dict(found.left_out),
    }
    if model.codec in OFFERING:
        facts["offers"] = fingerprint()
    _keep(folder, tokenizer.to_str(), train, held_out, facts)
    return TrainingData(tokenizer.to_str(), train, held_out, facts)


def prepared_folder(settings: Upskill, model: ModelSection) -> Path:
    """Returns the folder of a model's training data, whose name is a hash of everything that determines its content.

    Raises:
        UsageError: there is no corpus.
    """
    sha256 = ConvertedCorpora(lines_of(settings.corpus_folder), settings.seed).sha256
    return settings.folder / "prepared" / _key(model, settings.seed, sha256)


def load_prepared(folder: Path) -> TrainingData:
    """Returns the data that `prepare` stored in a folder.

    Raises:
        UsageError: the data are damaged.
    """
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    tokenizer = load_tokenizer(folder / "tokenizer.json").to_str()
    return TrainingData(tokenizer, load_encoded(folder / "train.npz"), load_encoded(folder / "held-out.npz"), facts)


def _drawn(group: str, share: float) -> bool:
    """Returns True if a problem belongs to a fraction of all problems; smaller fractions are subsets of larger ones."""
    drawn = int.from_bytes(hashlib.blake2b(group.encode(), digest_size=4).digest(), "big") / 2**32
    return drawn < share


def _tokenizer(examples: list[Example], model: ModelSection, seed: int) -> Any:
    codec = codec_named(model.codec)
    chosen = random.Random(seed).sample(examples, min(TAUGHT, len(examples)))  # noqa: S311 -- no secret
    texts = (text for example in chosen for text in (example.prompt, example.answer))
    return train_tokenizer(texts, codec.vocabulary(), codec.end, model.vocabulary)


def _key(model: ModelSection, seed: int, corpus: str) -> str:
    """Returns a folder's name: a hash of everything that determines its content."""
    parts = (model.codec, model.vocabulary, model.context, model.copies, model.share, seed, corpus)
    return f"{model.codec}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


def _keep(folder: Path, tokenizer: str, train: Encoded, held_out: Encoded, facts: dict[str, Any]) -> None:
    """Writes the data; the facts last, since their presence marks the data as complete."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
        train.save(folder / "train.npz")
        held_out.save(folder / "held-out.npz")
        (folder / "facts.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    except OSError as error:
        raise EnvironmentFailed(f"The encoded corpus cannot be written: {error.strerror or error}.", file=str(folder)) from None  # fmt: skip


FILE = "done.json"
Step = Literal["training", "rounds", "export", "sampling"]
STEPS: tuple[Step, ...] = ("training", "rounds", "export", "sampling")
"""Steps of training a model, in order; each depends on the one before."""


class FinishedSteps:
    """Record of finished steps in a folder; a step is repeated if its inputs have changed.

    Args:
        folder: folder of the configuration, or of one of its models.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE

    def has(self, step: str, key: str) -> bool:
        """Returns True if the step was done with the inputs of this key."""
        return self._read().get(step) == key

    def mark(self, step: str, key: str) -> None:
        """Records the step as done. If the disk is full, the step is only repeated later."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps({**self._read(), step: key}, indent=1), encoding="utf-8")
        except OSError:
            return

    def _read(self) -> dict[str, Any]:
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def key_of(*parts: object) -> str:
    """Returns a hash of a step's inputs."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def model_keys(settings: Upskill, model: ModelSection) -> dict[Step, str]:
    """Returns the key of each of a model's steps: a hash of its inputs and of all steps before it.

    Raises:
        UsageError: there is no corpus.
    """
    plan = settings.plan(model)
    how = {**plan.identity(), "steps": plan.steps, "seconds": plan.seconds}
    training = key_of(prepared_folder(settings, model).name, how, model.shape(model.vocabulary).as_dict())
    rounds = key_of(training, settings.rounds.model_dump())
    prompts = settings.prompts_folder / f"{model.codec}.jsonl"
    asked = prompts.read_text(encoding="utf-8") if prompts.is_file() else ""
    return {
        "training": training,
        "rounds": rounds,
        "export": key_of(rounds, settings.export.kind, settings.licence),
        "sampling": key_of(rounds, settings.sampling.model_dump(), asked),
    }


def first_open(folder: Path, keys: dict[Step, str]) -> Step | None:
    """Returns the step with which the training of a model resumes; None if all are done.

    Rounds begin with the trained model. If other rounds have changed the model, work resumes with the step `training`,
    which only restores the trained model.
    """
    done = FinishedSteps(folder)
    step = next((step for step in STEPS if not done.has(step, keys[step])), None)
    return "training" if step == "rounds" else step
