"""Transfer of batches to the device; batches are made in advance, in a thread or by processes."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from kernelmate_training.batches import Batch, BatchPool, BatchProcessLost, Packer, Part, RequestedBatches
from kernelmate_training.torch_device import RunProcess

AHEAD = 4
"""Number of steps prepared while the device works."""


@dataclass(frozen=True, slots=True)
class Step:
    """Work of one process in one step: portions of rows, tokens without padding, mean number of tokens attended to."""

    portions: list[dict[str, Tensor]]
    filled: int
    attended: float


class Feed:
    """Source of this process's part of every step.

    Args:
        packer: makes batches.
        place: this process.
        portion: number of rows that fit into memory at once.
        bounds: True to pass the starts of texts as layout, False to pass the texts' numbers.
        workers: number of processes that make batches; 0 for a single thread.
        told: called with the reason if the workers are lost.
    """

    def __init__(self, packer: Packer, place: RunProcess, portion: int, *, bounds: bool, workers: int = 0, told: Callable[[str], None] = lambda why: None) -> None:  # fmt: skip
        self._packer, self._place, self._portion = packer, place, portion
        self._bounds, self._workers, self._told = bounds, workers, told

    def steps(self, first: int) -> Iterator[Step]:
        """Yields the steps from `first` on, without end, some of them prepared in advance."""
        return _ahead(self._steps(first))

    def tensors(self, batch: Batch, total: float) -> dict[str, Tensor]:
        """Returns a portion as tensors of this device; weights are divided by `total`, the sum over the whole step."""
        host = {
            "tokens": torch.from_numpy(batch.tokens),
            "targets": torch.from_numpy(batch.targets),
            "weights": torch.from_numpy(batch.weights / max(total, 1e-9)),
            "positions": torch.from_numpy(batch.positions),
            "layout": torch.from_numpy(batch.bounds if self._bounds else batch.documents),
        }
        if self._place.device.type != "cuda":
            return host
        return {name: one.pin_memory().to(self._place.device, non_blocking=True) for name, one in host.items()}

    def _steps(self, first: int) -> Iterator[Step]:
        for batches, total in self._made(first):
            filled = sum(batch.filled for batch in batches)
            attended = sum(batch.attended for batch in batches) / len(batches)
            yield Step([self.tensors(batch, total) for batch in batches], filled, attended)

    def _made(self, first: int) -> Iterator[tuple[list[Batch], float]]:
        """Yields the batches of each step and the sum of the step's weights."""
        asked: deque[tuple[int, list[list[int]], RequestedBatches | None]] = deque()
        wanted = enumerate(self._packer.steps(first), first)
        with BatchPool(self._packer, self._workers) as pool:
            while True:
                while len(asked) <= 2 * self._workers:
                    number, rows = next(wanted)
                    asked.append((number, rows, pool.asked(self._mine(number, rows))))
                number, rows, coming = asked.popleft()
                try:
                    batches = coming.result() if coming is not None else None
                except BatchProcessLost:
                    self._told("A process that makes batches was lost; they are made by this one from here on.")
                    pool.close()
                    batches = None
                    asked = deque((one, its, None) for one, its, _ in asked)
                yield batches or [self._packer.batch(*part) for part in self._mine(number, rows)], self._packer.weight(rows)  # fmt: skip

    def _mine(self, step: int, rows: list[list[int]]) -> list[Part]:
        """Returns this process's rows in portions, each with its step and first row."""
        mine = self._packer.rows // self._place.processes
        first = self._place.rank * mine
        starts = range(first, first + mine, self._portion)
        return [(rows[start : start + self._portion], (step, start)) for start in starts]


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Iterates in a thread, some items ahead of the consumer; errors of the thread are raised in the consumer."""
    ready: queue.Queue[Any] = queue.Queue(AHEAD)
    over = threading.Event()

    def fill() -> None:
        try:
            for batch in batches:
                while not over.is_set():
                    try:
                        ready.put(batch, timeout=0.2)
                        break
                    except queue.Full:
                        continue
                if over.is_set():
                    return
        except Exception as error:  # noqa: BLE001 -- carried over to the loop, which raises it
            ready.put(error)
        finally:
            batches.close()  # type: ignore[attr-defined]

    thread = threading.Thread(target=fill, daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, Exception):
                raise item
            yield item
    finally:
        over.set()
        thread.join()
