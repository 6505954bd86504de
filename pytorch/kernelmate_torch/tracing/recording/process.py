"""Begins the recording in this process, and writes the record when it ends, forks or is replaced."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from .compiling import COMPILATIONS, follow_frames, follow_graphs, follow_translation
from .imports import ImportWatcher, WhenImported
from .kernels import REGISTRY, nearest_user_frame
from .launchers import follow_autotuner, follow_cupy, follow_inductor, follow_triton
from .operators import follow_torch
from .records import forget, record_of
from .stepping import STEPPER
from .timing import TIMES, WINDOWS

VERSION = 1
"""Version of the record format."""

SNAPSHOT_S = 3.0
"""Seconds between two writes of the record, whose last version a killed process leaves behind."""

_WATCHER = ImportWatcher()


class ProcessRecord:
    """The record of this process.

    Attributes:
        folder: the folder for records.
        notes: what could not be followed.
        replacements: reports of `kernelmate_torch.replace`.
        backwards: backward passes.
        uncaught: identity of the exception that ended the program.
        followed: executed lines are followed, since a library of kernels was imported.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pid = os.getpid()
        self.started = time.time()
        self.notes: list[str] = []
        self.replacements: list[dict[str, Any]] = []
        self.backwards = 0
        self.uncaught = 0
        self.ended = False
        self.torch = ""
        self.lines = self.followed = False
        self._lock = threading.Lock()

    @property
    def file(self) -> Path:
        """Returns the record's file."""
        return self.folder / f"{self.pid}-{int(self.started * 1000)}.json"

    def write(self, *, ended: bool) -> None:
        """Writes the record, whole or not at all; later calls replace it."""
        if self.ended or not self.folder.is_dir():
            return
        self.ended = ended
        with self._lock, contextlib.suppress(OSError):
            temporary = self.file.with_suffix(f".{threading.get_ident()}.part")
            temporary.write_text(json.dumps(self._document(ended=ended)))
            temporary.replace(self.file)

    def _document(self, *, ended: bool) -> dict[str, Any]:
        torch = sys.modules.get("torch")
        return {
            "version": VERSION, "pid": self.pid, "parent": os.getppid(), "arguments": sys.orig_argv, "started": self.started,
            "ended": time.time() if ended else None, "torch": self.torch, "python": sys.version.split()[0],
            "cuda": bool(self.torch and getattr(torch, "cuda", None) is not None and TIMES.kernels), "lines": self.lines and not STEPPER.replaced,
            "role": _role(), "notes": self.notes, "replacements": self.replacements, "backwards": self.backwards, "uncaught": self.uncaught,
            **record_of(COMPILATIONS, TIMES, ended=ended),
        }  # fmt: skip


def _role() -> str:
    """Returns the role of the process among several: a rank of torchrun, else a worker of pytest-xdist; empty for neither."""
    worker, rank = os.environ.get("PYTEST_XDIST_WORKER"), os.environ.get("RANK")
    # Ranks that a test starts inherit the name of the test's own worker, which does not tell them apart.
    return f"rank {rank}" if rank else f"pytest-xdist worker {worker}" if worker else ""


_RECORD: ProcessRecord | None = None


def start(folder: Path) -> ProcessRecord:
    """Begin to record this process; modules that are already imported are followed from now on.

    Args:
        folder: where the record is written.

    Returns:
        The record; the same one if the process is recorded already.
    """
    global _RECORD
    if _RECORD is not None:
        return _RECORD
    _RECORD = record = ProcessRecord(folder)
    record.write(ended=False)
    sys.meta_path.insert(0, _WATCHER)
    follow: dict[str, WhenImported] = {
        "torch": functools.partial(_torch_imported, record, "torch" in sys.modules),
        "triton.runtime.jit": follow_triton, "triton.runtime.interpreter": follow_triton,
        "triton.runtime.autotuner": follow_autotuner, "torch._inductor.runtime.triton_heuristics": follow_inductor,
        "cupy": functools.partial(_cupy_imported, record), "torch._dynamo.symbolic_convert": follow_translation, "torch._dynamo.output_graph": follow_graphs,
        "torch._dynamo.convert_frame": follow_frames, "kernelmate_torch.replacing": functools.partial(_replacing, record),
    }  # fmt: skip
    for name, function in follow.items():
        _WATCHER.when(name, function)
    _follow_ends(record)
    return record


def finish() -> None:
    """Ends the recording, and writes the record."""
    if _RECORD is None or _RECORD.ended:
        return
    STEPPER.stop()
    if _RECORD.torch:
        WINDOWS.end()
    REGISTRY.active = False
    _RECORD.write(ended=True)


def resume() -> None:
    """Begins to record again in a process whose recording was finished: counts start at 0, under the same name."""
    assert _RECORD is not None
    forget()
    _RECORD.ended, _RECORD.backwards, _RECORD.replacements, _RECORD.notes = False, 0, [], []
    REGISTRY.active = True
    if _RECORD.followed:
        _RECORD.lines = STEPPER.start()
    if _RECORD.torch:
        WINDOWS.resume()


def _torch_imported(record: ProcessRecord, late: bool, torch: ModuleType) -> None:
    record.torch = torch.__version__
    follow_torch(torch, late=late)
    _follow_lines(record)
    engine = torch.autograd._engine_run_backward

    @functools.wraps(engine)
    def _engine_run_backward(*args: Any, **named: Any) -> Any:
        record.backwards += 1
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.endswith(("autograd/__init__.py", "torch/_tensor.py")):
            frame = frame.f_back
        if frame is not None:
            WINDOWS.between(frame)
        return engine(*args, **named)

    torch.autograd._engine_run_backward = _engine_run_backward
    WINDOWS.follow(torch.autograd.profiler)


def _cupy_imported(record: ProcessRecord, cupy: ModuleType) -> None:
    """Follows CuPy's kernels, and the branches that lead to them, also in a program without PyTorch."""
    follow_cupy(cupy)
    _follow_lines(record)


def _follow_lines(record: ProcessRecord) -> None:
    """Follows executed lines from the first library of kernels on, and writes the record from time to time."""
    if record.followed:
        return
    record.followed, record.lines = True, STEPPER.start()
    if not record.lines:
        record.notes.append("another tool traces this process, so that branches are not known")
    threading.Thread(target=_snapshots, args=(record,), name="kernelmate-trace-record", daemon=True).start()


def _snapshots(record: ProcessRecord) -> None:
    wait = threading.Event()
    while not record.ended and record is _RECORD:
        wait.wait(SNAPSHOT_S)
        with contextlib.suppress(Exception):  # a table grew while it was read, say: the next writing has it
            record.write(ended=False)


def _replacing(record: ProcessRecord, module: Any) -> None:
    replace = module.replace

    @functools.wraps(replace)
    def recorded(model: Any, swaps: Any, **named: Any) -> Any:
        from .references import reached_by_value

        frame = nearest_user_frame(sys._getframe(1))
        report = replace(model, swaps, **named)
        record.replacements.append({
            "kernels": sorted({key for value in swaps.values() for key in reached_by_value(value)}),
            "names": list(swaps), "swapped": list(report.swapped), "left": dict(report.left),
            "file": "" if frame is None else frame.f_code.co_filename, "line": 0 if frame is None else frame.f_lineno,
        })  # fmt: skip
        return report

    module.replace = recorded


def _follow_ends(record: ProcessRecord) -> None:
    """Writes the record at each way in which Python ends or replaces a process."""
    # Registered once more when the threads have ended, so that it comes before what libraries do at the end.
    atexit.register(finish)
    threading._register_atexit(atexit.register, finish)  # type: ignore[attr-defined]
    for name in ("_exit", "execv", "execve"):
        setattr(os, name, _ending(getattr(os, name)))
    os.register_at_fork(after_in_child=_forked)
    hook = sys.excepthook

    def excepthook(kind: Any, error: BaseException, trace: Any) -> None:
        record.uncaught = id(error)
        hook(kind, error, trace)

    sys.excepthook = excepthook


def _ending(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any) -> Any:
        finish()
        return function(*args)

    return wrapped


def _forked() -> None:
    """Begins a separate record in a forked process, whose counts start at zero."""
    global _RECORD
    if _RECORD is None:
        return
    before, _RECORD = _RECORD, ProcessRecord(_RECORD.folder)
    _RECORD.torch, _RECORD.lines, _RECORD.followed = before.torch, before.lines, before.followed
    WINDOWS.forked()
    forget()
