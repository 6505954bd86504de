"""Times prepared variants on the GPU of this machine. Needs NumPy and CuPy, and nothing of KernelMate.

Verdicts are timed by `kernelmate.measure.timing`. This stays apart from it: it runs where only NumPy and CuPy are, and what
predictions were fitted to is its figure, the replay period.

A time is the period of a CUDA graph of many launches, per launch, less an empty kernel's: what a launch adds where one
follows the other, with L2 as an equal launch left it. The cold time is the period of a flush of L2 and the launch, less
that of the flush alone. Rounds go through all variants in changing order, so that drift meets all of them alike.
"""

from __future__ import annotations

import datetime
import json
import shutil
import statistics
import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS = 9
GRAPH_US = 4000.0
"""Minimum duration of a graph in microseconds: starting one takes about 10."""
COLD_LAUNCHES = 12
FLUSH_BYTES = 256 << 20
FLUSH_BLOCKS = 1056

Launch = Callable[[], None]


def draw(described: dict[str, Any]) -> np.ndarray[Any, Any]:
    """The contents of an array that `Variant.arguments` describes; equal descriptions give equal contents."""
    random = np.random.default_rng(zlib.crc32(json.dumps(described, sort_keys=True).encode()))
    kind, *figures = described["fill"]
    shape, dtype = tuple(described["shape"]), np.dtype(described["dtype"])
    if kind == "zeros":
        return np.zeros(shape, dtype)
    if kind == "integers":
        return random.integers(figures[0], figures[1], shape).astype(dtype)
    if kind == "uniform":
        return (random.random(shape, np.float32) * (figures[1] - figures[0]) + figures[0]).astype(dtype)
    raise ValueError(f"{described['name']}: unknown distribution {kind}")


class Timer:
    """Replays graphs on a stream of its own."""

    def __init__(self) -> None:
        import cupy

        self._cupy = cupy
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._start, self._end = cupy.cuda.Event(), cupy.cuda.Event()

    def graph(self, launch: Launch, launches: int) -> Any:
        """A graph of equal launches."""
        with self._stream:
            launch()
            self._stream.synchronize()
            self._stream.begin_capture()
            for _ in range(launches):
                launch()
            return self._stream.end_capture()

    def replay(self, graph: Any, times: int = 2) -> float:
        """Microseconds of the last of some replays; those before it warm up."""
        for _ in range(times - 1):
            graph.launch(self._stream)
        self._start.record(self._stream)
        graph.launch(self._stream)
        self._end.record(self._stream)
        self._end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(self._start, self._end)) * 1e3


class Prepared:
    """A folder that `prediction prepare` wrote, loaded onto the GPU."""

    def __init__(self, folder: Path) -> None:
        import cupy

        self._cupy = cupy
        self._folder = folder
        self.described = json.loads((folder / "variants.json").read_text())
        self._arrays: dict[str, Any] = {}

    def launch(self, described: dict[str, Any]) -> Launch:
        """A call that launches one variant on the current stream."""
        module = self._cupy.RawModule(path=str(self._folder / described["cubin"]))
        function = module.get_function(described["symbol"])
        arguments = tuple(self._argument(item) for item in described["arguments"])
        grid, block, shared = tuple(described["grid"]), tuple(described["block"]), described["shared_bytes"]
        return lambda: function(grid, block, arguments, shared_mem=shared)

    def _argument(self, described: dict[str, Any]) -> Any:
        if "shape" not in described:
            return np.dtype(described["dtype"]).type(described["value"])
        key = json.dumps(described, sort_keys=True)
        if key not in self._arrays:
            self._arrays[key] = self._cupy.asarray(draw(described))
        return self._arrays[key]

    def helpers(self) -> tuple[Launch, Launch]:
        """The empty kernel and the flush of L2."""
        empty, flush = (
            self._cupy.RawModule(path=str(self._folder / item["cubin"])).get_function(item["symbol"])
            for item in self.described["helpers"]
        )
        buffer, sink = self._cupy.zeros(FLUSH_BYTES // 4, np.float32), self._cupy.zeros(1, np.float32)
        count = np.int64(FLUSH_BYTES // 16)
        return (
            lambda: empty((1,), (32,), ()),
            lambda: flush((FLUSH_BLOCKS,), (256,), (buffer, sink, count)),
        )


class Timed:
    """One launch's graphs and the times of its rounds, in microseconds for each launch."""

    def __init__(self, timer: Timer, launch: Launch, flush: Launch | None) -> None:
        self._timer = timer
        self._kept = (launch, flush)  # a graph does not keep the modules of its kernels loaded
        few = timer.graph(launch, 10)
        once = max(timer.replay(few, 3) / 10, 0.1)
        self.launches = int(min(max(GRAPH_US / once, 20), 2000))
        self._warm = timer.graph(launch, self.launches)
        self._cold = None if flush is None else timer.graph(lambda: (flush(), launch())[0], COLD_LAUNCHES)
        self.warm: list[float] = []
        self.cold: list[float] = []

    def round(self) -> None:
        """Time both once."""
        self.warm.append(self._timer.replay(self._warm) / self.launches)
        if self._cold is not None:
            self.cold.append(self._timer.replay(self._cold) / COLD_LAUNCHES)


def _gpu_state() -> str:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "nvidia-smi is absent"
    asked = "name,driver_version,clocks.sm,clocks.max.sm,clocks.mem,temperature.gpu,power.draw"
    done = subprocess.run(
        [tool, f"--query-gpu={asked}", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or done.stderr.strip()


def _quartiles(figures: list[float]) -> list[float]:
    low, _, high = statistics.quantiles(figures, n=4)
    return [round(low, 4), round(high, 4)]


def measure(folder: Path, out: Path) -> None:
    """Time every variant of the folder and write `out`."""
    prepared, timer = Prepared(folder), Timer()
    before = _gpu_state()
    empty_launch, flush_launch = prepared.helpers()
    empty, flush = Timed(timer, empty_launch, None), Timed(timer, flush_launch, None)
    timed = {}
    for described in prepared.described["variants"]:
        try:
            timed[described["name"]] = Timed(timer, prepared.launch(described), flush_launch)
        except Exception as error:  # noqa: BLE001 - one variant that CUDA refuses must not cost the others' times
            print(f"{described['name']}: {type(error).__name__}: {error}", flush=True)
    order = [empty, flush, *timed.values()]
    random = np.random.default_rng(0)
    for _ in range(ROUNDS):
        for at in random.permutation(len(order)):
            order[at].round()
    nothing, flushing = statistics.median(empty.warm), statistics.median(flush.warm)
    rows = []
    for name, item in timed.items():
        warm = statistics.median(item.warm) - nothing
        cold = statistics.median(item.cold) - flushing
        rows.append({"name": name, "warm_us": round(warm, 4), "cold_us": round(cold, 4), "launches": item.launches,
                     "replay_quartiles_us": _quartiles(item.warm), "cold_quartiles_us": _quartiles(item.cold)})  # fmt: skip
        print(f"{name:<60} {warm:9.3f} us warm {cold:9.3f} us cold", flush=True)
    text = {
        "device": before.split(",")[0], "before": before, "after": _gpu_state(), "rounds": ROUNDS,
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(), "empty_us": round(nothing, 4),
        "flush_us": round(flushing, 4), "compiler": prepared.described["compiler"], "variants": rows,
    }  # fmt: skip
    out.write_text(json.dumps(text, indent=1) + "\n")
    print(f"{len(rows)} variants on {before}; empty kernel {nothing:.3f} us, flush {flushing:.1f} us; written to {out}")
