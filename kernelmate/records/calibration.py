"""Records of measured GPU peak rates."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.records.roofline import Roofs


@dataclass(frozen=True, slots=True)
class Calibration:
    """The roofs of one GPU as measured on it, and what a launch costs there.

    Attributes:
        gpu: its name. uuid: as nvidia-smi shows it. sms: its streaming multiprocessors.
        driver: the newest CUDA that its driver knows.
        measured_at: UTC, ISO 8601.
        replay_us: how much later the next of many empty launches in a CUDA graph begins.
        submit_us: what each of many empty launches on a stream costs the host.
        notes: why figures may be off, in phrases.
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
