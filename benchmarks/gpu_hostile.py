"""Hundreds of hostile candidates in one search, and what is left of the process that asked: `python -m benchmarks.gpu_hostile`.

Needs an NVIDIA GPU with CuPy and torch. Arguments: candidates (300), seconds a verdict may take (2), seconds for the
whole run (none). Goals: every CuPy and torch array of this process is bit-identical afterwards, the GPU's memory is back,
the next verdict is right, and whatever a candidate does costs one worker and under two seconds. Prints the table and
writes `benchmarks/results/gpu_hostile.json`; the exit code is 1 where a goal is missed.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu_edit_to_verdict import Watch, words
from benchmarks.hostile_set import KINDS, RIGHT, Kind, hostile_kernels
from benchmarks.machine import describe
from kernelmate.config import load_settings
from kernelmate.records import Candidate, FindingCode, Judged, Verdict
from kernelmate.session import Session
from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.suggest.base import SuggestRequest

RESULT = Path(__file__).resolve().parent / "results" / "gpu_hostile.json"
HANGS = 30
SLACK_BYTES = 64 << 20
"""Memory that may be missing afterwards: the driver keeps some for a process that has used the GPU."""
WRONG = RIGHT.replace("2.0f * x[i]", "i == n - 1 ? 3.0f * x[i] : 2.0f * x[i]")


@dataclass(slots=True)
class Hostile:
    """Proposes the hostile kernels, and takes down what became of each."""

    count: int
    hangs: int
    until: float
    name: str = "hostile"
    kinds: dict[str, Kind] = field(default_factory=dict)
    seen: list[tuple[Kind, Verdict, float]] = field(default_factory=list)
    _last: float = 0.0

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """One candidate for each kernel."""
        self._last = time.monotonic()
        for number, (kind, text) in enumerate(hostile_kernels(self.count, self.hangs)):
            if time.monotonic() > self.until:
                return
            kernel = find_kernels(text_unit(text, f"hostile_{number}.cu"))[-1]
            self.kinds[kernel.unit.path] = kind
            yield Candidate("hostile", kind.name, kernel, contract_for(kernel))

    def judged(self, judged: Judged) -> None:
        """Take down a verdict and the seconds it took."""
        now = time.monotonic()
        self.seen.append((self.kinds[judged.candidate.kernel.unit.path], judged.verdict, now - self._last))
        self._last = now


@dataclass(frozen=True, slots=True)
class Held:
    """Arrays of this process on the GPU, and their bytes as they were."""

    cupy_array: object
    torch_array: object
    before: tuple[bytes, bytes]

    def unharmed(self) -> tuple[bool, bool]:
        """Returns two flags, for CuPy's and for torch's array: true if it is unchanged, bit for bit, and still usable."""
        import cupy
        import torch

        cupy.cuda.Device().synchronize()
        torch.cuda.synchronize()
        mine = cupy.asnumpy(self.cupy_array).tobytes() == self.before[0] and bool(
            (self.cupy_array == self.cupy_array).all()
        )
        theirs = self.torch_array.cpu().numpy().tobytes() == self.before[1] and bool(
            (self.torch_array == self.torch_array).all()
        )
        return mine, theirs


def hold() -> Held:
    """64 MB of random numbers in each library's memory."""
    import cupy
    import torch

    one = cupy.random.default_rng(1).random(8 << 20)
    two = torch.rand(16 << 20, device="cuda")
    return Held(one, two, (cupy.asnumpy(one).tobytes(), two.cpu().numpy().tobytes()))


def used_bytes() -> int:
    """The GPU's memory in use by anybody, by NVML."""
    import pynvml

    pynvml.nvmlInit()
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)


def settled_bytes(goal: int, patience_s: float = 10.0) -> int:
    """The same once it is down to the goal, or after a while."""
    until = time.monotonic() + patience_s
    while (used := used_bytes()) > goal and time.monotonic() < until:
        time.sleep(0.1)
    return used


def fits(kind: Kind, verdict: Verdict) -> bool:
    """True if a verdict diagnoses the kernel's fault correctly."""
    errors = [finding.code for finding in verdict.findings if finding.severity == "error"]
    if not kind.codes:
        return verdict.correct is True and not errors
    return verdict.correct is not True and bool(set(errors) & set(kind.codes))


def replacement_costs(session: Session, watch: Watch) -> dict[str, float]:
    """By kind: how many seconds later than in a warm worker the right kernel's verdict comes after a hostile one's."""

    def right() -> float:
        began = time.monotonic()
        (verdict,) = session.bench(find_kernels(text_unit(RIGHT, "right.cu"))[0])
        assert verdict.correct is True, verdict.findings
        return time.monotonic() - began

    right()
    warm = statistics.median(right() for _ in range(5))
    costs = {}
    chosen = (
        "write far away",
        FindingCode.TRAP,
        "stack overflow",
        "endless loop",
        "allocates until nothing is left",
        "prints without end",
    )
    for kind in (kind for kind in KINDS if kind.name in chosen):
        # The second variant: straight to the GPU.
        text = [text for other, text in hostile_kernels(2 * len(KINDS), 2 * len(KINDS)) if other is kind][1]
        session.bench(find_kernels(text_unit(text, "hostile.cu"))[-1])
        watch.begin()
        costs[kind.name] = right() - warm
        print(f"after {kind.name}: {costs[kind.name]:+.2f} s beyond {warm:.2f} s ({words(watch.end())})", flush=True)
    return costs


def main(arguments: list[str]) -> int:
    """Run it all and print the table; 1 where a goal is missed."""
    count = int(arguments[0]) if arguments else 300
    timeout_s = float(arguments[1]) if len(arguments) > 1 else 2.0
    until = time.monotonic() + (float(arguments[2]) if len(arguments) > 2 else 1e9)
    held = hold()
    before, descriptors, threads = used_bytes(), len(os.listdir("/proc/self/fd")), threading.active_count()
    print(describe(), flush=True)
    author = Hostile(count, HANGS, until)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as cache:
        settings = load_settings(backend="cuda", timeout_s=timeout_s, timing_budget_s=0, cache_dir=cache)
        watch = Watch()
        with Session(settings, watch) as session:
            baseline = find_kernels(text_unit(RIGHT, "twice.cu"))[0]
            session.bench(baseline)
            session.optimize(
                baseline, "use fewer registers", max_candidates=count, on_judged=author.judged, suggesters=(author,)
            )
            (after,) = session.bench(find_kernels(text_unit(RIGHT, "twice.cu"))[0])
            (wrong,) = session.bench(find_kernels(text_unit(WRONG, "twice.cu"))[0])
            costs = replacement_costs(session, watch)
    seconds = time.monotonic() - began
    used = settled_bytes(before + SLACK_BYTES)
    mine, theirs = held.unharmed()
    rows = table(author)
    goals = {
        f"{count} candidates were judged": len(author.seen) == count,
        "each for what it is": all(row["as expected"] == row["candidates"] for row in rows),
        "CuPy's array is bit-identical": mine,
        "torch's array is bit-identical": theirs,
        "the GPU's memory is back": used <= before + SLACK_BYTES,
        "the next right kernel is right": after.correct is True and after.accepted is True,
        "the next wrong kernel is wrong": wrong.correct is False,
        "a worker costs under 2 s": max(costs.values()) < 2.0,
        "no descriptor is left open": len(os.listdir("/proc/self/fd")) <= descriptors + 4,
        "no thread is left": threading.active_count() <= threads + 2,
    }
    figures = {
        "machine": describe(), "candidates": len(author.seen), "seconds": round(seconds, 1), "timeout_s": timeout_s,
        "kinds": rows, "replacement_s": {name: round(cost, 2) for name, cost in costs.items()},
        "memory_mb": {"before": before >> 20, "after": used >> 20}, "goals": goals,
    }  # fmt: skip
    RESULT.write_text(json.dumps(figures, indent=1) + "\n")
    for row in rows:
        print(
            f"{row['kind']:<44} {row['as expected']:>3} of {row['candidates']:<3} median {row['median_s']:5.2f} s   {row['codes']}"
        )
    print("".join(f"after {name:<40} {cost:+.2f} s\n" for name, cost in costs.items()), end="")
    print(
        f"{len(author.seen)} candidates in {seconds:.0f} s; GPU memory {before >> 20} MB before, {used >> 20} MB after"
    )
    for goal, met in goals.items():
        print(f"{'yes' if met else 'NO ':<4} {goal}")
    return 0 if all(goals.values()) else 1


def table(author: Hostile) -> list[dict[str, object]]:
    """A row for each kind."""
    groups: dict[str, list[tuple[Kind, Verdict, float]]] = defaultdict(list)
    for kind, verdict, seconds in author.seen:
        groups[kind.name].append((kind, verdict, seconds))
    rows: list[dict[str, object]] = []
    for name, group in groups.items():
        codes: dict[str, int] = defaultdict(int)
        for _, verdict, _ in group:
            first = next((finding.code for finding in verdict.findings if finding.severity == "error"), "none")
            codes[first if verdict.correct is not True else "right"] += 1
        rows.append({
            "kind": name, "candidates": len(group), "as expected": sum(fits(kind, verdict) for kind, verdict, _ in group),
            "median_s": round(statistics.median(seconds for _, _, seconds in group), 3),
            "codes": ", ".join(f"{code} {number}" for code, number in sorted(codes.items())),
        })  # fmt: skip
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
