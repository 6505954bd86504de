"""A run's log: one JSON object per line, so that an interrupted run loses at most its last line."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """Writer of a log; a failure to write does not stop the run.

    Args:
        path: the file; None writes nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.lost = 0

    def write(self, event: str, **figures: Any) -> None:
        """Writes one line, with the time of day in seconds; numbers that are not finite become null."""
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
    """Yields the events of a log, or those of one kind; an incomplete line is skipped."""
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
