"""Examples as tokens, in one file."""

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
        tokens: all tokens, uint16 or uint32.
        starts: int64 [examples + 1], start of each example.
        answers: int64 [examples], number of tokens of each prompt.
        tasks: uint8 [examples], index into `TASKS`.
        families: uint16 [examples], number of the family; None if unknown.
        gains: float32 [examples], speedup of each answer's version, NaN if not applicable; None if unknown.
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
        """Number of tokens of each example."""
        return np.diff(self.starts)

    @property
    def sha256(self) -> str:
        """Hash of all contents; a resumed run must find the same."""
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
        """Returns some of the examples, by their indices."""
        texts = [self.tokens[self.starts[at] : self.starts[at + 1]] for at in chosen]
        starts = np.concatenate([[0], np.cumsum([len(text) for text in texts], dtype=np.int64)]).astype(np.int64)
        tokens = np.concatenate([self.tokens[:0], *texts])
        families = None if self.families is None else self.families[chosen]
        gains = None if self.gains is None else self.gains[chosen]
        return Encoded(tokens, starts, self.answers[chosen], self.tasks[chosen], families, gains)

    def save(self, path: Path) -> None:
        """Writes the examples to a file atomically."""
        partial = path.with_name(path.name + ".partial")
        with partial.open("wb") as file:
            families = np.zeros(0, np.uint16) if self.families is None else self.families
            gains = np.zeros(0, np.float32) if self.gains is None else self.gains
            np.savez(file, tokens=self.tokens, starts=self.starts, answers=self.answers, tasks=self.tasks, families=families, gains=gains)  # fmt: skip
        partial.replace(path)


def encode(examples: Sequence[Example], tokenizer: Tokenizer, longest: int) -> tuple[Encoded, int]:
    """Returns examples as tokens, and the number of examples that were too long.

    Prompt and answer are encoded separately, as at inference.

    Args:
        examples: examples of one split.
        tokenizer: the model's tokenizer.
        longest: largest number of tokens of prompt and answer together.
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
    """Reads the file that `Encoded.save` wrote.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        with np.load(path) as file:
            # Files of earlier versions may lack either; all answers then have equal weights.
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
    """Returns figures for the log."""
    lengths = encoded.lengths
    return {
        "examples": len(encoded),
        "tokens": int(encoded.starts[-1]),
        "answer_tokens": int((lengths - encoded.answers).sum()) if len(encoded) else 0,
        "by_task": {task: int((encoded.tasks == at).sum()) for at, task in enumerate(TASKS)},
        "longest": int(lengths.max()) if len(encoded) else 0,
    }
