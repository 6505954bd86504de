"""Record of the GPU that kernels run on: a GPU of this machine, or of another machine reached by ssh."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelmate.records.verdict import Roofs


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured peak rates (roofs) and launch costs of one GPU.

    Attributes:
        gpu: its name.
        uuid: as nvidia-smi shows it.
        sms: its streaming multiprocessors.
        driver: the newest CUDA version that its driver supports.
        measured_at: UTC, ISO 8601.
        replay_us: the period of back-to-back empty launches in a CUDA graph.
        submit_us: host time per empty launch on a stream.
        notes: reasons why figures may be inaccurate, as short phrases.
    """

    gpu: str
    uuid: str
    sms: int
    driver: str
    measured_at: str
    roofs: Roofs
    replay_us: float
    submit_us: float
    notes: tuple[str, ...] = ()


_DEVICE = re.compile(r"(?:(?P<here>\d{1,3})|ssh:(?P<host>[^\s:\-][^\s:]*)(?::(?P<there>\d{1,3}))?)\Z")


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU by its CUDA device number; `host` is the ssh destination, None for this machine."""

    host: str | None = None
    index: int = 0

    def __str__(self) -> str:
        return str(self.index) if self.host is None else f"ssh:{self.host}:{self.index}"


def parse_device(text: str) -> Device:
    """Reads `N`, `ssh:HOST` or `ssh:HOST:N`; HOST may be `user@name` or a name of `~/.ssh/config`.

    Raises:
        ValueError: the text has none of these forms.
    """
    match = _DEVICE.match(text.strip())
    if match is None:
        raise ValueError("it is neither the number of a GPU nor ssh:HOST or ssh:HOST:N")
    if match["here"] is not None:
        return Device(None, int(match["here"]))
    return Device(match["host"], int(match["there"] or 0))
