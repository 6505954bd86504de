"""A run's log: one JSON object per line, so that a run that is cut loses at most the line it was writing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """Appends to a log; that it cannot be written stops no run.

    Args:
        path: the file; None writes nowhere.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.lost = 0

    def write(self, event: str, **figures: Any) -> None:
        """One line, with the time of day in seconds. What is not finite is null."""
        if self._path is None:
            return
        finite = {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in figures.items()}  # fmt: skip
        line = json.dumps({"event": event, "at": round(time.time(), 2), **finite})
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            self.lost += 1


def events(path: Path, kind: str | None = None) -> Iterator[dict[str, Any]]:
    """The lines of a log, those of one kind where it is given; a line that was cut is left out."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and kind in (None, event.get("event")):
            yield event
