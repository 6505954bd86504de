"""Records as stand-ins write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from kernelmate.capture.records import (
    Capture,
    CaptureSettings,
    LaunchHeader,
    LaunchRecorder,
    RecordedArgument,
    read_capture,
    shape_key,
)


@dataclass
class Passed:
    """An argument of a launch: a scalar, or an array before and after it."""

    before: np.ndarray | np.generic
    after: np.ndarray | None = None
    address: int | None = None
    read: bool | None = None
    written: bool | None = None
    known: bool = True

    def argument(self, place: int) -> RecordedArgument:
        if isinstance(self.before, np.generic):
            return RecordedArgument(self.before.tobytes(), self.before.dtype.name)
        after = self.before if self.after is None else self.after
        shape = self.before.shape if self.known else (self.before.nbytes,)
        return RecordedArgument(
            (0x7F0000000000 + (place << 32) if self.address is None else self.address).to_bytes(8, "little"), self.before.dtype.name, shape, self.before.tobytes(), after.tobytes(),
            self.read, self.written,
        )  # fmt: skip


@dataclass
class Records:
    """Records of one process.

    Attributes:
        folder: the folder `launches`.
        recorder: writes them.
    """

    folder: Path
    recorder: LaunchRecorder = field(init=False)

    def __post_init__(self) -> None:
        self.recorder = LaunchRecorder(CaptureSettings(self.folder, "scale"))

    def add(self, arguments: Sequence[Passed], grid: tuple[int, int, int], block: tuple[int, int, int] = (256, 1, 1), *, shared: int = 0, times: int = 1, options: tuple[str, ...] = ()) -> None:  # fmt: skip
        """Records a launch, `times` times."""
        facts = LaunchHeader("scale", grid, block, shared, options=options)
        given = [one.before for one in arguments]
        key = shape_key(facts, [one.shape if isinstance(one, np.ndarray) else int(one) if one.dtype.kind in "iu" else None for one in given])  # fmt: skip
        for _ in range(times):
            number = self.recorder.admit(key, 0)
            if number is not None:
                self.recorder.record(number, key, facts, [one.argument(place) for place, one in enumerate(arguments)])

    def read(self) -> Capture:
        return read_capture(self.folder, 4)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    folder = tmp_path / "launches"
    folder.mkdir()
    return Records(folder)


Floats = Callable[..., np.ndarray]


@pytest.fixture
def floats() -> Floats:
    """`floats(3, 4)`: an array of random float32."""
    generator = np.random.default_rng(7)
    return lambda *shape: generator.standard_normal(shape).astype(np.float32)
