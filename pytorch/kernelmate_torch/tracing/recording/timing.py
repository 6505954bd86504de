"""Times of operators and kernels, by PyTorch's profiler (Kineto), in windows so that its events take little memory.

On a GPU windows follow each other without a pause, so that every launch is in one, replays of CUDA graphs included. Without a GPU they are
samples, which take at most a tenth of the program's time.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from .branches import BETWEEN
from .kernels import REGISTRY, in_backward, place_in
from .stepping import STEPPER

WINDOW_S = 2.0
"""Length of a window, in seconds."""

SAMPLED = 10
"""Without a GPU, a window is followed by a pause of this many times as long as reading it took."""

_SILENT = "99"
"""Level above all of Kineto's messages, which it would write to the program's standard error."""

_UNSAFE = (
    "torch/_ops.py",
    "/_library/",
    "/_dynamo/",
    "/_inductor/",
    "_functorch",
    "autograd/",
    "_python_dispatch",
    "torch/cuda/graphs",
)
"""Files of PyTorch between whose frames and the caller the profiler may not be restarted."""


class Times:
    """Totals over the windows, in microseconds.

    Attributes:
        operators: by name of an operator: calls, and their time with all that they called, without first calls.
        cpu_us: time of all outermost operators, without those in which an operator was called for the first time.
        first: like `operators`, of the calls that are left out: they load and compile code.
        first_us: like `cpu_us`, of the calls that are left out.
        kernels: by name of a GPU kernel: number of launches, and device time.
        device_us: device time of all kernels and copies.
        owners: by name of a GPU kernel: device time by the operator of a program that launched it; "" for what none launched.
        windows: number of windows.
        covered_s: seconds that the windows cover.
    """

    def __init__(self) -> None:
        self.operators: dict[str, list[float]] = {}
        self.cpu_us = 0.0
        self.first: dict[str, list[float]] = {}
        self.first_us = 0.0
        self.kernels: dict[str, list[float]] = {}
        self.device_us = 0.0
        self.owners: dict[str, dict[str, float]] = {}
        self.windows = 0
        self.covered_s = 0.0

    def add(self, events: Iterable[Any]) -> None:
        """Adds the events of a window, as `prof.kineto_results.events()` gives them."""
        host: list[HostEvent] = []
        device: list[tuple[str, float, int]] = []
        for one in events:
            annotation = bool(one.is_user_annotation()) if hasattr(one, "is_user_annotation") else False
            begin, duration = _begin_and_duration_ns(one)
            name = one.name()
            if str(one.device_type()).endswith("CPU"):
                counted = name.startswith("Torch-Compiled Region") or (not annotation and "::" in name)
                host.append(
                    HostEvent(one.start_thread_id(), begin, begin + duration, name, counted, one.correlation_id())
                )
            elif not annotation and duration > 0:
                device.append((name, duration / 1000, one.linked_correlation_id()))
        owners = self._add_host(host)
        for name, us, correlation in device:
            _count(self.kernels, name, us)
            self.device_us += us
            mine = self.owners.setdefault(name, {})
            owner = owners.get(correlation, "")
            mine[owner] = mine.get(owner, 0.0) + us
        self.windows += 1

    def _add_host(self, host: list[HostEvent]) -> dict[int, str]:
        """Adds operators, and gives for each correlation number the innermost operator of the program that encloses it."""
        named = {one.name for one in list(REGISTRY.kernels.values()) if one.kind == "operator"}
        owners: dict[int, str] = {}
        for tree in _outermost(host):
            open_calls: list[HostEvent] = []
            counted: list[HostEvent] = []
            for one in tree:
                while open_calls and open_calls[-1].end <= one.begin:
                    open_calls.pop()
                if one.counted and not any(outer.name == one.name for outer in open_calls):
                    counted.append(one)
                open_calls.append(one)
                if one.correlation:
                    owners[one.correlation] = next(
                        (each.name for each in reversed(open_calls) if each.name in named), ""
                    )
            self._add_tree(tree[0], counted)
        return owners

    def _add_tree(self, outermost: HostEvent, counted: list[HostEvent]) -> None:
        """Adds the operators of an outermost one; apart, if one of them was called for the first time."""
        first = any(one.name not in self.operators and one.name not in self.first for one in counted)
        table = self.first if first else self.operators
        for one in counted:
            _count(table, one.name, one.us)
        if outermost.counted and first:
            self.first_us += outermost.us
        elif outermost.counted:
            self.cpu_us += outermost.us


@dataclass(frozen=True, slots=True, order=True)
class HostEvent:
    """A call on the CPU: thread, begin and end in nanoseconds, name, whether it is an operator, and Kineto's correlation number."""

    thread: int
    begin: int
    end: int
    name: str
    counted: bool
    correlation: int

    @property
    def us(self) -> float:
        """Returns its time in microseconds."""
        return (self.end - self.begin) / 1000


def _count(table: dict[str, list[float]], name: str, us: float) -> None:
    total = table.setdefault(name, [0, 0.0])
    total[0] += 1
    total[1] += us


def _outermost(host: list[HostEvent]) -> Iterator[list[HostEvent]]:
    """Yields each outermost operator with all calls inside it; calls outside operators, such as those of ranges, are yielded alone."""
    tree: list[HostEvent] = []
    for one in sorted(host, key=lambda each: (each.thread, each.begin, -each.end)):
        inside = tree and tree[0].counted and one.thread == tree[0].thread and one.begin < tree[0].end
        if tree and not inside:
            yield tree
            tree = []
        tree.append(one)
    if tree:
        yield tree


def _begin_and_duration_ns(event: Any) -> tuple[int, int]:
    if hasattr(event, "start_ns"):
        return event.start_ns(), event.duration_ns()
    return event.start_us() * 1000, event.duration_us() * 1000


TIMES = Times()


class ProfilerWindows:
    """The profiler's windows. They begin and end in the main thread, where a followed function or a backward pass begins."""

    def __init__(self) -> None:
        self._profile: Any = None
        self._begun = 0.0
        self._pause_until = 0.0
        self._cuda = False
        self._off = False

    def follow(self, profiler: Any) -> None:
        """Begin; while the program runs a profiler of its own, that profiler's events are read instead."""
        os.environ.setdefault("KINETO_LOG_LEVEL", _SILENT)
        kind = profiler.profile
        kind._prepare_trace = self._giving_way(kind._prepare_trace)
        kind.__exit__ = self._reading(kind.__exit__)
        BETWEEN.append(self.between)
        self.resume()

    def resume(self) -> None:
        """Begins a window."""
        self._off = False
        self._begin()

    def forked(self) -> None:
        """Ends in a forked process, whose profiler is the parent's."""
        self._profile, self._off = None, True

    def end(self) -> None:
        """Reads the last window."""
        self._off = True
        self._close()

    def _giving_way(self, prepare: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(prepare)
        def _prepare_trace(other: Any) -> Any:
            if not getattr(other, "kernelmate", False):
                self._close()
            return prepare(other)

        return _prepare_trace

    def _reading(self, leave: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(leave)
        def __exit__(other: Any, *more: Any) -> Any:  # noqa: N807
            result = leave(other, *more)
            if not getattr(other, "kernelmate", False) and getattr(other, "enabled", True) and REGISTRY.active:
                with contextlib.suppress(RuntimeError, AttributeError):
                    TIMES.add(other.kineto_results.events())
                self._begin()
            return result

        return __exit__

    def _begin(self) -> None:
        torch: Any = sys.modules["torch"]
        if self._off or self._profile is not None or torch.autograd.profiler._is_profiler_enabled:
            return
        self._cuda = bool(torch.cuda.is_available())
        made = torch.autograd.profiler.profile(use_kineto=True, use_device="cuda" if self._cuda else None)
        made.kernelmate = True
        made.__enter__()
        self._profile, self._begun = made, time.monotonic()

    def _close(self) -> None:
        if self._profile is None:
            return
        made, self._profile = self._profile, None
        ended = time.monotonic()
        TIMES.covered_s += ended - self._begun
        made.__exit__(None, None, None)
        with STEPPER.paused():
            TIMES.add(made.kineto_results.events())
        if not self._cuda:
            self._pause_until = time.monotonic() + SAMPLED * (time.monotonic() - ended)

    def between(self, frame: FrameType) -> None:
        """Ends or begins a window if one is due; called outside operators."""
        now = time.monotonic()
        due = now - self._begun > WINDOW_S if self._profile is not None else now > self._pause_until
        if self._off or not due or threading.current_thread() is not threading.main_thread() or not _is_safe(frame):
            return
        was_open = self._profile is not None
        self._close()
        if self._cuda or not was_open:
            self._begin()


def _is_safe(frame: FrameType | None) -> bool:
    """Returns True if the profiler may be restarted here: outside the dispatcher, the backward pass, compilation and captures."""
    torch: Any = sys.modules["torch"]
    if REGISTRY.is_inside or in_backward() or (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        return False
    while frame is not None:
        name = frame.f_code.co_filename
        if place_in("torch", name) and any(one in name for one in _UNSAFE):
            return False
        frame = frame.f_back
    return True


WINDOWS = ProfilerWindows()
