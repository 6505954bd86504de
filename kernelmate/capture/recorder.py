"""The recorder of a captured process, and the functions by which stand-ins report launches to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from kernelmate.capture.records import (
    FOLDER_VARIABLE,
    LaunchHeader,
    LaunchRecorder,
    RecordedArgument,
    settings_from,
    shape_key,
)

Value = np.ndarray[Any, np.dtype[Any]] | np.generic
"""An argument of a launch: an array of the host, or a scalar."""


@cache
def recorder() -> LaunchRecorder | None:
    """Returns the recorder of this process; None if it is not captured."""
    settings = settings_from(os.environ)
    return None if settings is None else LaunchRecorder(settings)


@dataclass(slots=True)
class ReportedLaunch:
    """One launch by a stand-in, as it is reported to the recorder.

    If records cannot be written, the reason is printed once, and the program continues without them.

    Attributes:
        facts: the launch.
        recorder: the process's recorder, or None.
        key: the key of its shape.
        number: its number, if it is to be recorded.
    """

    facts: LaunchHeader
    recorder: LaunchRecorder | None
    key: str = ""
    number: int | None = None

    @classmethod
    def of(cls, facts: LaunchHeader, values: Sequence[Value]) -> ReportedLaunch:
        """Returns the note of a launch that is about to be made."""
        noted = cls(facts, recorder())
        noted._guarded(lambda made: noted._begin(made, values))
        return noted

    @property
    def taken(self) -> bool:
        """True if the launch is to be recorded."""
        return self.number is not None

    def _begin(self, made: LaunchRecorder, values: Sequence[Value]) -> None:
        if not made.wanted(self.facts.kernel):
            return
        keyed = [
            one.shape if isinstance(one, np.ndarray) else int(one) if one.dtype.kind in "iub" else None
            for one in values
        ]
        self.key = shape_key(self.facts, keyed)
        self.number = made.admit(self.key, sum(one.nbytes for one in values if isinstance(one, np.ndarray)))

    def copies(self, values: Sequence[Value]) -> dict[int, bytes]:
        """Returns the contents of the arrays by argument index, if the launch is to be recorded."""
        return (
            {place: _bytes(one) for place, one in enumerate(values) if isinstance(one, np.ndarray)}
            if self.taken
            else {}
        )

    def fail(self) -> None:
        """Records that the launch failed."""
        if self.taken:
            self._guarded(lambda made: made.fail(self.key))

    def record(
        self, values: Sequence[Value], before: Mapping[int, bytes], seen: Mapping[int, tuple[bool, bool]] | None = None
    ) -> None:
        """Writes the record of the launch, which is over.

        Args:
            values: its arguments.
            before: the arrays' contents before it, by argument index.
            seen: by argument index, True if the launch read the array, and if it stored every element; None if that was not observed.
        """
        number = self.number
        if number is None:
            return
        arguments = []
        for place, one in enumerate(values):
            if isinstance(one, np.ndarray):
                read, written = (None, None) if seen is None else seen[place]
                address = one.ctypes.data.to_bytes(8, "little")
                shape = one.shape if one.flags.c_contiguous else (one.size,)
                arguments.append(
                    RecordedArgument(address, one.dtype.name, shape, before[place], _bytes(one), read, written)
                )
            else:
                arguments.append(RecordedArgument(one.tobytes(), one.dtype.name))
        self._guarded(lambda made: made.record(number, self.key, self.facts, arguments))

    def _guarded(self, act: Callable[[LaunchRecorder], None]) -> None:
        if self.recorder is None:
            return
        try:
            act(self.recorder)
        except OSError as error:
            print(f"kernelmate capture: nothing more is recorded in this process: {error}", file=sys.stderr)
            self.recorder = self.number = None
            os.environ.pop(FOLDER_VARIABLE, None)
            recorder.cache_clear()


def _bytes(array: np.ndarray[Any, Any]) -> bytes:
    """Returns an array's memory, in its own order."""
    return array.tobytes(order="A")
