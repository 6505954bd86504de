"""Finds blocks of autocast for CUDA that PyTorch turns off since there is no GPU. Used only in the module's own process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch


@contextlib.contextmanager
def autocast_turned_off(path: Path) -> Iterator[list[int]]:
    """Yields a list that gets the line in a file of each block of autocast that is entered and turned off; 0 elsewhere.

    Without CUDA, `torch.autocast("cuda")` computes in the tensors' own dtype, so a graph exported there has not the dtypes
    that the module has on a GPU.
    """
    kind: Any = torch.amp.autocast_mode.autocast
    made, entered, wanted = kind.__init__, kind.__enter__, path.resolve()
    off: set[int] = set()
    kept: list[Any] = []  # so that no other object gets an identity that is in `off`
    lines: list[int] = []

    def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *args: Any, **given: Any) -> None:
        made(self, device_type, dtype, enabled, *args, **given)
        if device_type == "cuda" and enabled and not torch.cuda.is_available():
            off.add(id(self))
            kept.append(self)

    def enter(self: Any) -> Any:
        if id(self) in off:
            lines.append(_line(wanted))
        return entered(self)

    kind.__init__, kind.__enter__ = init, enter
    try:
        yield lines
    finally:
        kind.__init__, kind.__enter__ = made, entered


def _line(path: Path) -> int:
    """Returns the line of the innermost caller in a file; 0 if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        if Path(frame.f_code.co_filename).resolve() == path:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0
