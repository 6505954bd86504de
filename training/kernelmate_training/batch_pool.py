"""Processes that make batches beside the one that trains. They import no torch, so that they are there at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection

from kernelmate_training.batches import Batch, Packer
from kernelmate_training.spawned import Spawned

Part = tuple[list[list[int]], tuple[int, int]]
"""Rows of examples, with the numbers of their step and of the first row in it."""


class Lost(Exception):
    """A process that makes batches is gone."""


class Asked:
    """Batches that a process is making; to be taken in the order in which it was asked.

    Attributes:
        pipe: they come through it.
    """

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def result(self) -> list[Batch]:
        """The batches.

        Raises:
            Lost: the process is gone.
            Exception: what making them raised.
        """
        try:
            made = self.pipe.recv()
        except (EOFError, OSError) as error:
            raise Lost from error
        if isinstance(made, Exception):
            raise made
        return made  # type: ignore[no-any-return]


class BatchPool:
    """Processes that make batches; none if none are wanted, or once they are lost.

    Each has a pipe of its own, whose other end nobody else holds. A queue that is shared would stand still for good where a
    process is killed while it writes to it.
    """

    def __init__(self, packer: Packer, workers: int) -> None:
        self._all = [Spawned(_serve, packer) for _ in range(workers)]
        self._turns: Iterator[Spawned] = itertools.cycle(self._all)

    def __enter__(self) -> BatchPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def asked(self, parts: list[Part]) -> Asked | None:
        """Batches that are being made; None if there is nobody to ask."""
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
        """End them; what is still being made is lost."""
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
