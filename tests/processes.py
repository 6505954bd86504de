"""Processes that tests start, and how they end."""

from __future__ import annotations

import subprocess


def end(process: subprocess.Popen[bytes], patience_s: float = 30) -> None:
    """Ask a process to end, and end it where it does not."""
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
