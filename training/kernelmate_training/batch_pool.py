"""Processes that make batches in parallel with training. They do not import torch, so that they start quickly."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection

from kernelmate_training.batches import Batch, Packer
from kernelmate_training.spawned import Spawned

Part = tuple[list[list[int]], tuple[int, int]]
"""Rows of examples, with the number of their step and of their first row in it."""


class Lost(Exception):
    """A process that makes batches has ended."""


class Asked:
    """Batches that a process is making; results must be fetched in the order of the requests.

    Attributes:
        pipe: connection to the process.
    """

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def result(self) -> list[Batch]:
        """Returns the batches.

        Raises:
            Lost: the process has ended.
            Exception: any error that the process reported.
        """
        try:
            made = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise Lost from error
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

    def asked(self, parts: list[Part]) -> Asked | None:
        """Starts to make batches; returns None without processes."""
        if not self._all:
            return None
        pipe = next(self._turns).pipe
        try:
            pipe.send(parts)
        except OSError:
            self.close()
            return None
        return Asked(pipe)

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
