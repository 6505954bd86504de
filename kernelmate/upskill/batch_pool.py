"""Processes that make batches beside the one that trains. They import no torch, so that they are there at once."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

from kernelmate.upskill.batches import Batch, Packer

Lost = BrokenProcessPool
"""What a future raises whose process is gone."""
Part = tuple[list[list[int]], tuple[int, int]]
"""Rows of examples, with the numbers of their step and of the first row in it."""


class BatchPool:
    """Processes that make batches; none where none are wanted, or once they are lost."""

    def __init__(self, packer: Packer, workers: int) -> None:
        self._pool: ProcessPoolExecutor | None = None
        if workers:
            # Not by forking: this process has threads and perhaps a GPU, of which a copy would hold broken halves.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(packer,))

    def __enter__(self) -> BatchPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def asked(self, parts: list[Part]) -> Future[list[Batch]] | None:
        """Batches that are being made; None where there is nobody to ask."""
        if self._pool is None:
            return None
        try:
            return self._pool.submit(_make, parts)
        except Lost:
            self.close()
            return None

    def close(self) -> None:
        """No more is asked of them."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None


_PACKER: list[Packer] = []


def _begin(packer: Packer) -> None:
    _PACKER[:] = [packer]


def _make(parts: list[Part]) -> list[Batch]:
    return [_PACKER[0].batch(rows, at) for rows, at in parts]
