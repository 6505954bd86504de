"""Records of measured GPU peak rates."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.records.verdict import Roofs


@dataclass(frozen=True, slots=True)
class Calibration:
    """Measured peak rates (roofs) and launch costs of one GPU.

    Attributes:
        gpu: its name.
        uuid: as nvidia-smi shows it.
        sms: its streaming multiprocessors.
        driver: the newest CUDA that its driver knows.
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
