"""Description of the machine behind a figure, and comparison of two programs on a noisy machine."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from kernelmate.backends.cuda.driver import read_driver


def describe() -> str:
    """Machine, date and versions in one line."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _cpuinfo() if line.startswith("model name")), platform.processor()
    )
    versions = ", ".join(f"{name} {_version(name)}" for name in ("kernelmate", "numpy", "nvidia-cuda-nvrtc"))
    day = datetime.datetime.now(tz=datetime.UTC).date()
    driver = read_driver()
    gpus = "" if driver is None else "".join(f"{gpu.name} · " for gpu in driver.gpus)
    return f"{day} · {gpus}{model} · {os.cpu_count()} cores · Python {platform.python_version()} · {versions}"


def save(out: Path, rows: Mapping[str, Sequence[object]], **more: object) -> None:
    """Write figures with the machine and the day as JSON, each row in a line of its own."""
    parts = [
        f'"machine": {json.dumps(describe())}',
        *(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in more.items()),
    ]
    for name, some in rows.items():
        lines = ",\n".join(json.dumps(row) for row in some)
        parts.append(f"{json.dumps(name)}: [\n{lines}\n]")
    out.write_text("{" + ",\n".join(parts) + "}\n")


def print_or_write(lines: Iterable[str], output: Path | None) -> None:
    """Print the lines of a table, or write them to a file."""
    text = "\n".join(lines) + "\n"
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, encoding="utf-8")


def _cpuinfo() -> list[str]:
    path = Path("/proc/cpuinfo")
    return path.read_text().splitlines() if path.is_file() else []


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def alternate(first: Callable[[], object], second: Callable[[], object], rounds: int) -> tuple[float, float, float]:
    """Wall seconds of both, in A B B A order, and the ratio first/second: medians over the rounds.

    Neighbouring runs share what else the machine was doing, so the ratio is taken round by round.
    """
    firsts, seconds, ratios = [], [], []
    for _ in range(rounds):
        a1, b1, b2, a2 = (_wall(work) for work in (first, second, second, first))
        firsts.append((a1 + a2) / 2)
        seconds.append((b1 + b2) / 2)
        ratios.append((a1 + a2) / (b1 + b2))
    return statistics.median(firsts), statistics.median(seconds), statistics.median(ratios)


def _wall(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def family_cpu_s() -> float:
    """CPU seconds that this process and its living descendants have taken so far (Linux: `/proc`, proc(5))."""
    ticks, waiting = 0, [os.getpid()]
    while waiting:
        process = Path("/proc") / str(waiting.pop())
        with contextlib.suppress(OSError):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
            for children in process.glob("task/*/children"):
                waiting += [int(child) for child in children.read_text().split()]
    return ticks / os.sysconf("SC_CLK_TCK")


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds (user and system) of this process and of the children that `work` waits for."""

    def spent() -> float:
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime

    start = spent()
    work()
    return spent() - start
