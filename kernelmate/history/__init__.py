"""History of every judged version: one SQLite file per user, shared by all processes."""

from __future__ import annotations

from kernelmate.history.database import default_path
from kernelmate.history.store import History

__all__ = ["History", "default_path"]
