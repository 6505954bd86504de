"""From a corpus to what trainers read: examples by a codec, a tokenizer learned from them, and tokens; made once and kept.

What is made for one codec, vocabulary, context and number of copies serves every model of these, and is made anew when the
corpus is another one.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmate.errors import EnvironmentFailed, UsageError
from kernelmate.suggest.codec import OFFERING
from kernelmate.suggest.codec.fingerprint import fingerprint
from kernelmate.upskill.encoded import Encoded, encode, load_encoded, words_of
from kernelmate.upskill.examples import Example, codec_named, lines_of, tell
from kernelmate.upskill.settings import ModelSection, Upskill
from kernelmate.upskill.vocabulary import load_tokenizer, train_tokenizer

TAUGHT = 20_000
"""Examples that a tokenizer is learned from: more change it little."""

Told = Callable[[str, int, int], None]
"""Told what is being done, and how much of how much is."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a model is trained from.

    Attributes:
        tokenizer: the text of `tokenizer.json`. train, held_out: examples as tokens.
        facts: counts, the corpus' hash, what was left out and why.
    """

    tokenizer: str
    train: Encoded
    held_out: Encoded
    facts: dict[str, Any]


def prepare(settings: Upskill, model: ModelSection, told: Told = lambda what, done, total: None) -> Prepared:
    """What a model is trained from, made where it is not there yet.

    Raises:
        UsageError: there is no corpus, or nothing of it can be told by the codec.
        EnvironmentFailed: it cannot be written.
    """
    lines = lines_of(settings.corpus_folder)
    sha256 = _sha256(lines)
    folder = settings.folder / "prepared" / _key(model, settings.seed, sha256)
    if (folder / "facts.json").is_file():
        return load_prepared(folder)
    found = tell(
        _share(lines, model.share), model.codec, copies=model.copies, seed=settings.seed,
        on_done=lambda done, total: told("telling", done, total),
    )  # fmt: skip
    learned = [example for example in found.examples if not example.held_out]
    if not learned:
        reasons = "; ".join(f"{count} x {why}" for why, count in list(found.left_out.items())[:3])
        raise UsageError(f"The codec {model.codec} can tell nothing of this corpus: {reasons or 'all is held out'}.")
    told("learning the vocabulary", 0, 1)
    tokenizer = _tokenizer(learned, model, settings.seed)
    told("encoding", 0, 1)
    train, too_long = encode(learned, tokenizer, model.context)
    held_out, _ = encode([example for example in found.examples if example.held_out], tokenizer, model.context)
    if not len(train):
        raise UsageError(f"Every example is longer than context = {model.context} tokens.", hint="Raise context.")
    facts: dict[str, Any] = {
        "corpus_sha256": sha256,
        "codec": model.codec,
        "lines": len(lines),
        "vocabulary": tokenizer.get_vocab_size(),
        "train": words_of(train),
        "held_out": words_of(held_out),
        "too_long": too_long,
        "left_out": dict(found.left_out),
    }
    if model.codec in OFFERING:
        facts["offers"] = fingerprint()
    _keep(folder, tokenizer.to_str(), train, held_out, facts)
    return Prepared(tokenizer.to_str(), train, held_out, facts)


def prepared_folder(settings: Upskill, model: ModelSection) -> Path:
    """Where what a model is trained from is kept; its name says what decides its content.

    Raises:
        UsageError: there is no corpus.
    """
    sha256 = _sha256(lines_of(settings.corpus_folder))
    return settings.folder / "prepared" / _key(model, settings.seed, sha256)


def _sha256(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def load_prepared(folder: Path) -> Prepared:
    """What `prepare` kept.

    Raises:
        UsageError: it is damaged.
    """
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    tokenizer = load_tokenizer(folder / "tokenizer.json").to_str()
    return Prepared(tokenizer, load_encoded(folder / "train.npz"), load_encoded(folder / "held-out.npz"), facts)


def _share(lines: list[str], share: float) -> list[str]:
    """A share of the problems, by their groups, so that what a model sees is whole groups; held-out lines all stay."""
    if share >= 1.0:
        return lines
    kept = []
    for line in lines:
        row = json.loads(line)
        drawn = int.from_bytes(hashlib.blake2b(str(row.get("group")).encode(), digest_size=4).digest(), "big") / 2**32
        if row.get("split") == "held-out" or drawn < share:
            kept.append(line)
    return kept


def _tokenizer(examples: list[Example], model: ModelSection, seed: int) -> Any:
    codec = codec_named(model.codec)
    chosen = random.Random(seed).sample(examples, min(TAUGHT, len(examples)))  # noqa: S311 -- no secret
    texts = (text for example in chosen for text in (example.prompt, example.answer))
    return train_tokenizer(texts, codec.vocabulary(), codec.end, model.vocabulary)


def _key(model: ModelSection, seed: int, corpus: str) -> str:
    """A folder's name: what decides its content."""
    parts = (model.codec, model.vocabulary, model.context, model.copies, model.share, seed, corpus)
    return f"{model.codec}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}"


def _keep(folder: Path, tokenizer: str, train: Encoded, held_out: Encoded, facts: dict[str, Any]) -> None:
    """Write it; the facts last, since they say that all is there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(tokenizer, encoding="utf-8")
        train.save(folder / "train.npz")
        held_out.save(folder / "held-out.npz")
        (folder / "facts.json").write_text(json.dumps(facts, indent=1), encoding="utf-8")
    except OSError as error:
        raise EnvironmentFailed(f"The encoded corpus cannot be written: {error.strerror or error}.", file=str(folder)) from None  # fmt: skip
