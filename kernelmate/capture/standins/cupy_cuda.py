"""Stand-in for `cupy.cuda`: one device, on which every launch is over when it returns."""

from __future__ import annotations

import time
import types
from typing import Any


class HostDevice:
    """The only device."""

    def __init__(self, device: Any = 0) -> None:
        self.id = int(getattr(device, "id", device) or 0)
        self.compute_capability = "90"

    def __enter__(self) -> HostDevice:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def use(self) -> None:
        """Does nothing."""

    def synchronize(self) -> None:
        """Does nothing: no launch is pending."""

    @property
    def attributes(self) -> dict[str, int]:
        """Attributes of the GPU that is emulated, an H100 SXM."""
        return {
            "MultiProcessorCount": 132,
            "MaxThreadsPerBlock": 1024,
            "WarpSize": 32,
            "MaxSharedMemoryPerBlock": 49152,
        }


class HostStream:
    """A stream, whose work is always done."""

    ptr = 0

    def __init__(self, *_args: Any, **_named: Any) -> None:
        pass

    def __enter__(self) -> HostStream:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def use(self) -> HostStream:
        """Returns the stream."""
        return self

    def synchronize(self) -> None:
        """Does nothing: no launch is pending."""

    def wait_event(self, event: Any) -> None:
        """Does nothing: no launch is pending."""

    def record(self, event: Any = None) -> Any:
        """Returns an event with the current time."""
        made = event or HostClockEvent()
        made.record()
        return made


class HostClockEvent:
    """A point in time of the host."""

    def __init__(self, *_args: Any, **_named: Any) -> None:
        self.time = 0.0

    def record(self, stream: Any = None) -> None:
        """Takes the current time."""
        self.time = time.perf_counter()

    def synchronize(self) -> None:
        """Does nothing: no launch is pending."""


HostStream.null = HostStream()  # type: ignore[attr-defined]
Device, Event, Stream, ExternalStream = HostDevice, HostClockEvent, HostStream, HostStream


def get_current_stream(device_id: int = -1) -> HostStream:
    """Returns a stream."""
    return HostStream()


def get_elapsed_time(start_event: HostClockEvent, end_event: HostClockEvent) -> float:
    """Returns milliseconds of the host, in which the emulator ran: nothing about a GPU."""
    return (end_event.time - start_event.time) * 1e3


def is_available() -> bool:
    """Returns True: programs take their way for GPUs."""
    return True


runtime = types.SimpleNamespace(
    getDeviceCount=lambda: 1, getDevice=lambda: 0, setDevice=lambda _device: None, deviceSynchronize=lambda: None,
    streamSynchronize=lambda _stream: None, runtimeGetVersion=lambda: 13000, driverGetVersion=lambda: 13000,
    getDeviceProperties=lambda _device: {"name": b"emulator", "major": 9, "minor": 0, "multiProcessorCount": 132, "warpSize": 32},
)  # fmt: skip
