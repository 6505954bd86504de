"""Measures a GPU's peak rates: bandwidths, arithmetic rates, and launch costs.

For each limit a kernel of `probes.cu` does only that kind of work, several times and long enough that launch overhead
does not matter; the best run is the peak. Nothing else of KernelMate runs on the GPU meanwhile.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from kernelmate.backends.cuda.driver import read_driver, require_gpu
from kernelmate.backends.cuda.gpu_lock import GpuLock
from kernelmate.backends.cuda.sensors import Sensors
from kernelmate.records import Calibration, Roofs

RUNS = 5
LONG_ENOUGH_MS = 4.0
"""Milliseconds that one launch of a probe must take; its rounds are doubled until it does."""

MOST_ROUNDS = 1 << 22
MOST_BYTES = 1 << 30
"""Bytes of each buffer read from DRAM, at most an eighth of the free memory."""

L1_BYTES = 16 << 10
"""Bytes that fit into each L1 whatever the shared-memory configuration."""

BLOCK = 256
BLOCKS_PER_SM = 8
EMPTY_LAUNCHES = 1000

OnProbe = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Rate:
    """One arithmetic kernel, and the work of each thread in a round.

    Attributes:
        kernel: its name.
        precision: its key in `Roofs.tflops`.
        flops: operations per thread and round.
        values: the type of its scalars and outputs, and the two scalars.
    """

    kernel: str
    precision: str
    flops: int
    values: tuple[Any, Any, Any]


RATES = (
    Rate("fma_fp32", "fp32", 2 * 8 * 16, (np.float32, 0.999, 0.001)),
    Rate("fma_fp64", "fp64", 2 * 8 * 16, (np.float64, 0.999, 0.001)),
    Rate("fma_fp16", "fp16", 4 * 8 * 16, (np.uint32, 0x3BFF3BFF, 0x14001400)),
    Rate("mma_fp16", "tensor", 2 * 16 * 8 * 16 * 16 // 32, (np.uint32, 0x3C003C00, 0x3C003C00)),
)
"""Scalars are numbers a little below 1 and a little above 0, so that no chain overflows; as bits of two halves for fp16."""

OLD_TENSOR_FLOPS = 2 * 16 * 8 * 8 * 16 // 32
"""Operations per thread and round of `mma_fp16` before sm_80, whose products are half as deep."""


def source() -> str:
    """Returns the CUDA text of all probes."""
    return resources.files("kernelmate.backends.cuda").joinpath("probes.cu").read_text(encoding="utf-8")


def calibrate(device: int = 0, on_probe: OnProbe | None = None) -> Calibration:
    """Measures one GPU.

    Args:
        device: its number, as CUDA counts them.
        on_probe: called with each probe, the number done, and the total.

    Raises:
        BackendUnavailable: the GPU does not exist or cannot be used.
    """
    require_gpu(device)
    driver = read_driver()
    assert driver is not None, "a GPU was found"
    import cupy

    with cupy.cuda.Device(device), cupy.cuda.Stream(non_blocking=True) as stream:
        properties = cupy.cuda.runtime.getDeviceProperties(device)
        sensors, turns = Sensors(driver.gpus[device].uuid), GpuLock(driver.gpus[device].uuid)
        try:
            with turns.alone() as alone:
                bench = _ProbeKernels(stream, properties, on_probe)
                roofs, replay_us, submit_us = bench.roofs(), bench.replay_us(), bench.submit_us()
                notes = [] if alone else ["other sessions of KernelMate used the GPU meanwhile"]
                notes += [f"clocks were throttled: {reason}" for reason in sensors.throttle_reasons()]
                notes += [f"another process was on the GPU: {other}" for other in sensors.others()]
        finally:
            turns.close()
    version = cupy.cuda.runtime.driverGetVersion()
    return Calibration(
        gpu=properties["name"].decode(errors="replace"),
        uuid=driver.gpus[device].uuid,
        sms=int(properties["multiProcessorCount"]),
        driver=f"{version // 1000}.{version % 1000 // 10}",
        measured_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        roofs=roofs,
        replay_us=replay_us,
        submit_us=submit_us,
        notes=tuple(notes),
    )


class _ProbeKernels:
    """The probes, loaded on the current device."""

    def __init__(self, stream: Any, properties: Any, on_probe: OnProbe | None) -> None:
        import cupy

        self._cupy, self._stream, self._on_probe = cupy, stream, on_probe
        self._module = cupy.RawModule(code=source(), options=("--std=c++17",))
        self._sms = int(properties["multiProcessorCount"])
        self._l2_bytes = int(properties["l2CacheSize"])
        self._capability = int(properties["major"]), int(properties["minor"])
        self._blocks = self._sms * BLOCKS_PER_SM
        self._out = cupy.zeros(BLOCK, cupy.float64)
        self._done = 0

    def roofs(self) -> Roofs:
        """Returns all bandwidths and rates."""
        dram = self._dram_gbps()
        l2, l1 = self._cache_gbps("read_l2", _power_below(self._l2_bytes // 4)), self._cache_gbps("read_l1", L1_BYTES)
        tflops = {rate.precision: self._tflops(rate) for rate in RATES}
        return Roofs("measured", dram, l2, l1, tflops)

    def replay_us(self) -> float:
        """Returns the period of empty launches in a graph, in microseconds."""
        self._tell("launches in a graph")
        nothing = self._module.get_function("nothing")
        self._stream.begin_capture()
        for _ in range(EMPTY_LAUNCHES):
            nothing((1,), (32,), ())
        graph = self._stream.end_capture()
        graph.launch(self._stream)
        return self._best_ms(lambda: graph.launch(self._stream)) * 1e3 / EMPTY_LAUNCHES

    def submit_us(self) -> float:
        """Returns the host's time for each of many empty launches, in microseconds."""
        self._tell("launches on a stream")
        nothing = self._module.get_function("nothing")
        best = float("inf")
        for _ in range(RUNS):
            self._stream.synchronize()
            begun = time.perf_counter()
            for _ in range(EMPTY_LAUNCHES):
                nothing((1,), (32,), ())
            self._stream.synchronize()
            best = min(best, time.perf_counter() - begun)
        return best * 1e6 / EMPTY_LAUNCHES

    def _dram_gbps(self) -> float:
        """Returns the higher bandwidth of reading and of copying."""
        self._tell("DRAM")
        free, _ = self._cupy.cuda.runtime.memGetInfo()
        count = max(min(MOST_BYTES, int(free) // 8) // 16, 1)
        given, taken = (self._cupy.zeros(4 * count, self._cupy.float32) for _ in range(2))
        grid, block, number = (self._blocks,), (BLOCK,), np.int64(count)
        read, copy = self._module.get_function("read_once"), self._module.get_function("copy_once")
        reading = self._best_ms(lambda: read(grid, block, (given, self._out, number)))
        copying = self._best_ms(lambda: copy(grid, block, (given, taken, number)))
        return float(max(16 * count / reading, 32 * count / copying)) / 1e6

    def _cache_gbps(self, name: str, size: int) -> float:
        self._tell("L2" if name == "read_l2" else "L1")
        given = self._cupy.zeros(size // 4, self._cupy.float32)
        kernel, count = self._module.get_function(name), np.int32(size // 16)

        def launch(rounds: int) -> Callable[[], None]:
            return lambda: kernel((self._blocks,), (BLOCK,), (given, self._out, count, np.int32(rounds)))

        rounds, best_ms = self._long_enough(launch)
        return 16 * 8 * rounds * self._blocks * BLOCK / best_ms / 1e6

    def _tflops(self, rate: Rate) -> float:
        self._tell(rate.precision)
        kind, a, b = rate.values
        kernel = self._module.get_function(rate.kernel)

        def launch(rounds: int) -> Callable[[], None]:
            return lambda: kernel((self._blocks,), (BLOCK,), (self._out, np.int32(rounds), kind(a), kind(b)))

        rounds, best_ms = self._long_enough(launch)
        flops = OLD_TENSOR_FLOPS if rate.precision == "tensor" and self._capability < (8, 0) else rate.flops
        return flops * rounds * self._blocks * BLOCK / best_ms / 1e9

    def _long_enough(self, launch: Callable[[int], Callable[[], None]]) -> tuple[int, float]:
        """Returns the rounds that make a launch long enough, and the best time of such launches in milliseconds."""
        rounds = 64
        while self._ms(launch(rounds)) < LONG_ENOUGH_MS and rounds < MOST_ROUNDS:
            rounds *= 2
        return rounds, self._best_ms(launch(rounds))

    def _best_ms(self, launch: Callable[[], None]) -> float:
        launch()
        return min(self._times_ms(launch))

    def _times_ms(self, launch: Callable[[], None]) -> Iterator[float]:
        for _ in range(RUNS):
            yield self._ms(launch)

    def _ms(self, launch: Callable[[], None]) -> float:
        begin, end = (self._cupy.cuda.Event() for _ in range(2))
        begin.record(self._stream)
        launch()
        end.record(self._stream)
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(begin, end))

    def _tell(self, what: str) -> None:
        if self._on_probe is not None:
            self._on_probe(f"measuring {what}", self._done, len(RATES) + 5)
        self._done += 1


def _power_below(number: int) -> int:
    """Returns the largest power of two up to a number, and at least one L1 buffer."""
    return max(1 << (number.bit_length() - 1) if number > 0 else 0, L1_BYTES)
