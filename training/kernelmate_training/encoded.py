"""Examples as tokens, in one file that is read where it lies."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmate.errors import UsageError
from kernelmate_training.examples import TASKS, Example

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True)
class Encoded:
    """Examples as tokens, one after the other.

    Attributes:
        tokens: of all, uint16 or uint32. starts: int64 [examples + 1], where each begins.
        answers: int64 [examples], how many tokens each one's prompt has. tasks: uint8, index into `TASKS`.
        families: uint16, which examples are of one kind of problem; None if that is not known.
        gains: float32, how many times as fast each answer's version is, NaN where that does not apply; None if it is not known.
    """

    tokens: np.ndarray[Any, Any]
    starts: np.ndarray[Any, Any]
    answers: np.ndarray[Any, Any]
    tasks: np.ndarray[Any, Any]
    families: np.ndarray[Any, Any] | None = None
    gains: np.ndarray[Any, Any] | None = None

    def __len__(self) -> int:
        return len(self.answers)

    @cached_property
    def lengths(self) -> np.ndarray[Any, Any]:
        """Tokens of each example."""
        return np.diff(self.starts)

    @property
    def sha256(self) -> str:
        """Of everything in it: what a run must find again when it goes on."""
        digest = hashlib.sha256()
        for part in (
            self.tokens,
            self.starts,
            self.answers,
            self.tasks,
            *(() if self.gains is None else (self.gains,)),
        ):
            digest.update(np.ascontiguousarray(part).tobytes())
        return digest.hexdigest()

    def take(self, chosen: np.ndarray[Any, Any]) -> Encoded:
        """Some of the examples, by their numbers."""
        texts = [self.tokens[self.starts[at] : self.starts[at + 1]] for at in chosen]
        starts = np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)]).astype(np.int64)
        tokens = np.concatenate([self.tokens[:0], *texts])
        families = None if self.families is None else self.families[chosen]
        gains = None if self.gains is None else self.gains[chosen]
        return Encoded(tokens, starts, self.answers[chosen], self.tasks[chosen], families, gains)

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as file:
            families = np.zeros(0, np.uint16) if self.families is None else self.families
            gains = np.zeros(0, np.float32) if self.gains is None else self.gains
            np.savez(file, tokens=self.tokens, starts=self.starts, answers=self.answers, tasks=self.tasks, families=families, gains=gains)  # fmt: skip
        partial.replace(path)


def encode(examples: Sequence[Example], tokenizer: Tokenizer, longest: int) -> tuple[Encoded, int]:
    """Examples as tokens, and how many were too long to be taken.

    Prompt and answer are encoded apart, as they are when a model is asked.

    Args:
        examples: of one split.
        tokenizer: the model's.
        longest: tokens of prompt and answer together at most.
    """
    prompts = tokenizer.encode_batch([example.prompt for example in examples], add_special_tokens=False)
    answers = tokenizer.encode_batch([example.answer for example in examples], add_special_tokens=False)
    width = np.uint16 if tokenizer.get_vocab_size() <= 1 << 16 else np.uint32
    texts, cuts, tasks, families, gains = [], [], [], [], []
    known: dict[str, int] = {}
    for example, prompt, answer in zip(examples, prompts, answers, strict=True):
        if len(prompt.ids) + len(answer.ids) <= longest:
            texts.append(np.array([*prompt.ids, *answer.ids], dtype=width))
            cuts.append(len(prompt.ids))
            tasks.append(TASKS.index(example.task))
            families.append(known.setdefault(example.family, len(known)))
            gains.append(np.nan if example.gain is None else example.gain)
    starts = np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)]).astype(np.int64)
    tokens = np.concatenate(texts) if texts else np.zeros(0, dtype=width)
    kinds = np.array(tasks, dtype=np.uint8), np.array(families, dtype=np.uint16), np.array(gains, dtype=np.float32)
    found = Encoded(tokens, starts, np.array(cuts, dtype=np.int64), *kinds)
    return found, len(examples) - len(texts)


def load_encoded(path: Path) -> Encoded:
    """Reads what `Encoded.save` wrote.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with np.load(path) as file:
            # What an earlier version has kept may lack either: then all answers weigh alike, and nothing else is lost.
            families, gains = (
                file[name] if name in file.files and len(file[name]) else None for name in ("families", "gains")
            )
            return Encoded(file["tokens"], file["starts"], file["answers"], file["tasks"], families, gains)
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise UsageError(
            f"The encoded examples cannot be read: {error}.",
            file=str(path),
            hint="Delete the file to have it written again.",
        ) from None


def words_of(encoded: Encoded) -> dict[str, Any]:
    """Figures for the log."""
    lengths = encoded.lengths
    return {
        "examples": len(encoded),
        "tokens": int(encoded.starts[-1]),
        "answer_tokens": int((lengths - encoded.answers).sum()) if len(encoded) else 0,
        "by_task": {task: int((encoded.tasks == at).sum()) for at, task in enumerate(TASKS)},
        "longest": int(lengths.max()) if len(encoded) else 0,
    }
