"""Terminal view of a launch in the roofline model: each roof, and the fraction reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kernelmate.records import HardwareProfile, Roofline
from kernelmate.report.console import table
from kernelmate.report.words import number, percent, time_words

PRECISION_WORDS = {"fp16": "fp16", "fp32": "fp32", "fp64": "fp64", "tensor": "tensor cores"}
BOUND_WORDS = {
    "memory": "memory",
    "compute": "arithmetic and issue",
    "latency": "too little work, or too few warps, to keep the GPU busy",
}
SOURCE_WORDS = {"table": "by the data sheet", "measured": "as measured by `kernelmate calibrate`"}
_BAR = 8


def flop_words(flops: float) -> str:
    """Formats floating-point operations of one launch: `33.6 MFLOP`."""
    for unit, size in (("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3)):
        if flops >= size:
            return f"{flops / size:.3g} {unit}"
    return f"{flops:.0f} FLOP"


def share_words(share: float | None, placed: Roofline) -> str:
    """Formats `62%` for a measured time, `~62%` for a predicted one."""
    if share is None:
        return "-"
    return f"~{percent(share)}" if placed.kind == "predicted" else percent(share)


def roofline_view(placed: Roofline, hardware: HardwareProfile | None = None) -> Group:
    """Shows the roofs above a launch, its intensity, its fraction of each roof, and the limiter.

    Args:
        placed: the launch.
        hardware: its hardware counters; measured DRAM bytes are shown beside the minimum.
    """
    return Group(_roofs(placed, hardware), Text(bound_words(placed)))


def under_one_roof(placed: Sequence[Roofline]) -> list[Roofline]:
    """Returns versions of one kernel with `cold` and `warm` as fractions of the same roof, the least work of them all.

    A version that moves or computes more than another needs a longer time at peak for the same result. By its own work it
    would come nearer to its roof than a faster version that has less to do.
    """
    floors = {
        "cold": [one.cold * one.cold_us for one in placed if one.cold is not None and one.cold_us is not None],
        "warm": [one.warm * one.warm_us for one in placed if one.warm is not None and one.warm_us is not None],
    }
    return [
        replace(
            one,
            cold=None if one.cold is None or one.cold_us is None else min(floors["cold"]) / one.cold_us,
            warm=None if one.warm is None or one.warm_us is None else min(floors["warm"]) / one.warm_us,
        )
        for one in placed
    ]


def bound_words(placed: Roofline) -> str:
    """Formats the limiter: `bound by memory (dram), as predicted; roofs by the data sheet`."""
    return (
        f"bound by {BOUND_WORDS[placed.bound]} ({placed.work.limiter}), as predicted; "
        f"roofs {SOURCE_WORDS[placed.roofs.source]}"
    )


def roofline_words(placed: Roofline) -> str:
    """Formats the position: `3.69 FLOP per byte of DRAM (ridge 20); ~14.5% of its roof with nothing in L2, ...`."""
    per_byte = (
        "no floating-point operations" if not placed.intensity else f"{placed.intensity:.3g} FLOP per byte of DRAM"
    )
    cold, warm = share_words(placed.cold, placed), share_words(placed.warm, placed)
    return f"{per_byte} (ridge {placed.ridge:.3g}); {cold} of its roof with nothing in L2, {warm} warm; {bound_words(placed)}"


def _roofs(placed: Roofline, hardware: HardwareProfile | None) -> Table:
    work, roofs = placed.work, placed.roofs
    made = table("roof", "at most", "FLOP/byte", "needs", "of the time", right=(1, 2, 3))
    done = sum(work.flops.values())
    rows = [
        ("DRAM", f"{number(roofs.dram_gbps)} GB/s", placed.intensity, placed.dram_us, _share(placed.dram_us, placed.cold_us), "cold"),
        ("L2, by a model", f"{number(roofs.l2_gbps)} GB/s", placed.l2_intensity, placed.l2_us, _share(placed.l2_us, placed.warm_us), "warm"),
        ("L1", f"{number(roofs.l1_gbps)} GB/s", placed.l1_intensity, placed.l1_us, _share(placed.l1_us, placed.warm_us), "warm"),
    ]  # fmt: skip
    moved = None if hardware is None else _moved(hardware)
    if moved is not None:
        needs = moved / (roofs.dram_gbps * 1e3)
        per_byte = done / moved if moved else None
        rows.insert(1, ("DRAM, by ncu", rows[0][1], per_byte, needs, _share(needs, placed.cold_us), "cold"))
    for name, at_most, intensity, needs, share, when in rows:
        made.add_row(name, at_most, _intensity(intensity), time_words(needs), _bar(share, placed, when))
    if done:
        names = ", ".join(PRECISION_WORDS.get(name, name) for name, flops in work.flops.items() if flops)
        share = _share(placed.compute_us, placed.warm_us)
        made.add_row(
            f"{names}, {flop_words(done)}", f"{placed.peak_tflops:.3g} TFLOPS", f"ridge {placed.ridge:.3g}", time_words(placed.compute_us),
            _bar(share, placed, "warm"),
        )  # fmt: skip
    return made


def _moved(hardware: HardwareProfile) -> int | None:
    """Returns bytes between DRAM and L2 in both directions; None if the profiler gave none."""
    read, written = hardware.dram_read_bytes, hardware.dram_written_bytes
    return None if read is None or written is None else read + written


def _share(needs: float, time: float | None) -> float | None:
    return None if time is None else needs / time


def _intensity(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _bar(share: float | None, placed: Roofline, remark: str) -> Text:
    """Shows a fraction as a bar and a number; the bar of a predicted time consists of hyphens."""
    if share is None:
        return Text("-")
    if not share:
        return Text(f"none {remark}")
    full = min(_BAR, round(share * _BAR))
    predicted = placed.kind == "predicted"
    drawn = ("-" if predicted else "#") * full + "." * (_BAR - full)
    return Text(f"[{drawn}] {share_words(share, placed):>5} {remark}", style="italic" if predicted else "")
