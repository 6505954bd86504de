"""Selection of each step's tokens: examples drawn by the tasks' weights and packed into rows.

The result depends only on seed and step, so a resumed run sees the same batches. Processes make batches in parallel with
training; they do not import torch, so that they start quickly.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from kernelmate_training.augmentation import Augmentation
from kernelmate_training.encoded import Encoded
from kernelmate_training.examples import TASKS
from kernelmate_training.spawned import Spawned

Array = np.ndarray[Any, Any]
OPEN_ROWS = 32
"""Number of rows filled at the same time: more waste less padding, fewer keep examples near their drawn position."""
VARIED = 1
"""Component of the seed that separates draws of variations from draws of examples."""
LEAST_SHARE = 0.1
"""Smallest fraction of its weight that an answer keeps, however small its gain is."""
ROOM = 1.25
"""Factor on the mean number of texts in a batch, to leave room for batches with more."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows of one step; all arrays have shape [rows, tokens].

    Attributes:
        tokens: int64.
        targets: the token after each.
        weights: float32; 0 for tokens that are not learned.
        positions: position of each token in its text.
        documents: number of the token's text in its row; padding has a number of its own.
        bounds: int32, starts of texts in the flattened rows, then the end, repeated up to a fixed length.
        filled: number of tokens that are not padding.
        attended: average number of tokens that a token attends to.
    """

    tokens: Array
    targets: Array
    weights: Array
    positions: Array
    documents: Array
    bounds: Array
    filled: int
    attended: float


@dataclass(frozen=True, slots=True)
class Packer:
    """Maker of the batches of a run.

    Attributes:
        encoded: the examples.
        rows: rows of a step, over all processes.
        length: tokens of a row.
        weights: share of each task among drawn examples.
        seed: seed of the draws.
        prompt_weight: weight of prompt tokens in the loss. Answer tokens have weight 1, more in answers shorter than
            `least_answer`, less in answers whose speedup is below `full_gain`.
        pad: the token that fills rows.
        varying: augmentation of each drawn example; None for none.
    """

    encoded: Encoded
    rows: int
    length: int
    weights: Mapping[str, float]
    seed: int
    prompt_weight: float = 0.0
    least_answer: int = 0
    full_gain: float = 0.0
    pad: int = 1
    varying: Augmentation | None = None

    def steps(self, first: int = 0) -> Iterator[list[list[int]]]:
        """Yields the rows of each step from `first` on, without end; a row is a list of examples."""
        skipped, waiting, epoch = first * self.rows, list[list[int]](), 0
        while True:
            rows = self.epoch_rows(epoch)
            epoch += 1
            if skipped >= len(rows):
                skipped -= len(rows)
                continue
            waiting += rows[skipped:]
            skipped = 0
            while len(waiting) >= self.rows:
                yield waiting[: self.rows]
                waiting = waiting[self.rows :]

    def epoch_rows(self, epoch: int) -> list[list[int]]:
        """Returns the rows of one epoch: as many draws as there are examples.

        Each task's examples are drawn in turn until all were drawn, then again.
        """
        drawn = self._drawn(np.random.default_rng([self.seed, epoch])).tolist()
        lengths = self.encoded.lengths.tolist()
        full: list[list[int]] = []
        # Free tokens and number of each open row, the fullest first, so that the tightest that fits is found at once.
        opened: list[tuple[int, int]] = []
        rows: list[list[int]] = []
        for example in drawn:
            at = bisect.bisect_left(opened, (lengths[example], -1))
            if at < len(opened):
                free, row = opened.pop(at)
            else:
                free, row = self.length, len(rows)
                rows.append([])
            rows[row].append(example)
            bisect.insort(opened, (free - lengths[example], row))
            if len(opened) > OPEN_ROWS:
                full.append(rows[opened.pop(0)[1]])
        return full + [rows[row] for _, row in opened]

    def _drawn(self, random: np.random.Generator) -> Array:
        present = [at for at in range(len(TASKS)) if (self.encoded.tasks == at).any()]
        shares = np.array([max(self.weights.get(TASKS[at], 0.0), 0.0) for at in present])
        if shares.sum() == 0:
            shares = np.ones(len(present))
        counts = np.floor(shares / shares.sum() * len(self.encoded)).astype(int)
        counts[int(np.argmax(counts))] += len(self.encoded) - int(counts.sum())
        parts = []
        for at, count in zip(present, counts, strict=True):
            members = np.flatnonzero(self.encoded.tasks == at)
            passes = [random.permutation(members) for _ in range(-(-int(count) // len(members)))]
            parts.append(np.concatenate([np.zeros(0, dtype=np.int64), *passes])[:count])
        return random.permutation(np.concatenate(parts))

    def batch(self, rows: list[list[int]], at: tuple[int, int] = (0, 0)) -> Batch:
        """Returns the tokens of rows, padded to their length.

        Args:
            rows: the examples of each row.
            at: number of the step, and of the first row in it, which seed the variations.
        """
        shape = (len(rows), self.length)
        tokens, targets = np.full(shape, self.pad, np.int64), np.full(shape, self.pad, np.int64)
        weights = np.zeros(shape, np.float32)
        positions, documents = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        bounds, squares, filled = [0], 0, 0
        for number, row in enumerate(rows):
            at_token = 0
            for document, (text, cut) in enumerate(self._texts(row, (at[0], at[1] + number))):
                size = len(text)
                here = slice(at_token, at_token + size)
                tokens[number, here] = text
                targets[number, at_token : at_token + size - 1] = text[1:]
                weights[number, at_token : at_token + size - 1] = self.prompt_weight
                weights[number, at_token + max(cut - 1, 0) : at_token + size - 1] = self._answer_weight(
                    row[document], size, cut
                )
                positions[number, here] = np.arange(size)
                documents[number, here] = document
                at_token += size
                squares += size * size
                bounds.append(number * self.length + at_token)
            filled += at_token
            if at_token < self.length:
                positions[number, at_token:] = np.arange(self.length - at_token)
                documents[number, at_token:] = len(row)
                bounds.append((number + 1) * self.length)
        fixed = np.full(self.most_bounds(len(rows), len(bounds)), bounds[-1], np.int32)
        fixed[: len(bounds)] = bounds
        return Batch(tokens, targets, weights, positions, documents, fixed, filled, squares / 2 / max(filled, 1))

    def _texts(self, row: list[int], at: tuple[int, int]) -> Iterator[tuple[Array, int]]:
        """Yields the tokens of each example of a row, and the number of tokens of its prompt."""
        encoded = self.encoded
        random = np.random.default_rng([self.seed, VARIED, *at]) if self.varying is not None else None
        for example in row:
            text = encoded.tokens[encoded.starts[example] : encoded.starts[example + 1]]
            cut = int(encoded.answers[example])
            if random is None or self.varying is None:
                yield text, cut
            else:
                yield self.varying.draw(text, cut, TASKS[encoded.tasks[example]], random)

    def weight(self, rows: list[list[int]]) -> float:
        """Returns the sum of the weights of rows, without variations and without making the batch."""
        lengths, cuts = self.encoded.lengths, self.encoded.answers
        told = [(one, int(lengths[one]), max(int(cuts[one]), 1)) for row in rows for one in row]
        answers = sum((size - cut) * self._answer_weight(one, size, cut) for one, size, cut in told)
        return float(answers + self.prompt_weight * sum(cut - 1 for _, _, cut in told))

    def _answer_weight(self, example: int, size: int, cut: int) -> float:
        """Returns the weight of each answer token of an example with `size` tokens, of which `cut` are the prompt's."""
        weight = max(1.0, self.least_answer / max(size - max(cut, 1), 1))
        gains = self.encoded.gains
        if self.full_gain <= 1.0 or gains is None or np.isnan(gains[example]):
            return weight
        share = math.log(max(float(gains[example]), 1.0)) / math.log(self.full_gain)
        return weight * min(max(share, LEAST_SHARE), 1.0)

    def most_bounds(self, rows: int, found: int) -> int:
        """Returns a length for the bounds equal for nearly every batch, so that compiled code sees one shape."""
        mean = float(self.encoded.lengths.mean()) if len(self.encoded) else float(self.length)
        usual = int(rows * (self.length / max(mean, 1.0) + 1) * ROOM) + 2
        return usual if found <= usual else 2 * max(found, usual)


Part = tuple[list[list[int]], tuple[int, int]]
"""Rows of examples, with the number of their step and of their first row in it."""


class BatchProcessLost(Exception):
    """A process that makes batches has ended."""


class RequestedBatches:
    """Batches that a process is making; results must be fetched in the order of the requests.

    Attributes:
        pipe: connection to the process.
    """

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def result(self) -> list[Batch]:
        """Returns the batches.

        Raises:
            BatchProcessLost: the process has ended.
            Exception: any error that the process reported.
        """
        try:
            made = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise BatchProcessLost from error
        if isinstance(made, Exception):
            raise made
        return made  # type: ignore[no-any-return]


class BatchPool:
    """Pool of processes that make batches; empty if none are requested, or after they are lost.

    Each process has a pipe whose other end no other process holds. With a shared queue, all would block forever if one
    process were killed while it writes.
    """

    def __init__(self, packer: Packer, workers: int) -> None:
        self._all = [Spawned(_serve, packer) for _ in range(workers)]
        self._turns: Iterator[Spawned] = itertools.cycle(self._all)

    def __enter__(self) -> BatchPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def asked(self, parts: list[Part]) -> RequestedBatches | None:
        """Starts to make batches; returns None without processes."""
        if not self._all:
            return None
        pipe = next(self._turns).pipe
        try:
            pipe.send(parts)
        except OSError:
            self.close()
            return None
        return RequestedBatches(pipe)

    def close(self) -> None:
        """Kills the processes; unfinished batches are discarded."""
        for one in self._all:
            one.kill()
        self._all = []


def _serve(pipe: Connection, packer: Packer) -> None:
    with suppress(EOFError, OSError):
        while True:
            parts = pipe.recv()
            try:
                made: list[Batch] | Exception = [packer.batch(rows, at) for rows, at in parts]
            except Exception as error:  # noqa: BLE001 -- raised where the batches are taken
                made = error
            pipe.send(made)
