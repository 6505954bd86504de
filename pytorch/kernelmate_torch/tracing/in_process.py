"""Recording in this process: of a notebook's cell, and of pytest."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernelmate_torch.tracing.loading_records import TracedProcess, read_records
from kernelmate_torch.tracing.recording import process
from kernelmate_torch.tracing.recording.kernels import LIBRARIES
from kernelmate_torch.tracing.running import FOLDER, library_folders


def begin(folder: Path) -> None:
    """Begin to record this process, with the processes that it starts with the hook on their path.

    Args:
        folder: where the records are written.

    Raises:
        RuntimeError: `kernelmate trace` records this process already.
    """
    if "kernelmate_torch_recording" in sys.modules:
        raise RuntimeError("kernelmate trace records this process already")
    os.environ[LIBRARIES] = library_folders()
    os.environ[FOLDER] = str(folder)
    record = process.start(folder)
    if record.ended:
        record.folder = folder
        process.resume()


@contextmanager
def recorded_here() -> Iterator[list[TracedProcess]]:
    """Record what runs in the context; the list has the records afterwards."""
    found: list[TracedProcess] = []
    with tempfile.TemporaryDirectory(prefix="kernelmate-trace-", ignore_cleanup_errors=True) as held:
        begin(Path(held))
        try:
            yield found
        finally:
            process.finish()
            os.environ.pop(FOLDER, None)
            found += read_records(Path(held))
