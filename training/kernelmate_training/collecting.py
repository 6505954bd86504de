"""The user's own judged versions as a corpus."""

from __future__ import annotations

from pathlib import Path


def collect(folder: Path, history_file: Path | None = None) -> int:
    """Make a corpus of the history; gives how many pairs it has.

    Args:
        folder: where it goes.
        history_file: the history; None for the user's own.

    Raises:
        HistoryUnavailable: it cannot be read. UsageError: the folder holds another corpus.
    """
    from kernelmate.config import load_settings
    from kernelmate.history.database import default_path
    from kernelmate_training.corpus import collect as collected

    settings = load_settings()
    return collected(folder, history_file or settings.history_file or default_path())
