"""Times a candidate beside eager and compiled baselines on a GPU, in blocks of the order A B B A, with inputs not in L2.

Each leg is a number of calls between two CUDA events, every call with inputs of its own whose contents were replaced just
before the leg; together they take more than L2, so that every call reads from memory and no answer can be kept.
Used only in the confined process.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelmate_torch.kernelbench.audited_task import Subject, tensors_of, tolerance_units
from kernelmate_torch.kernelbench.candidate_run import LoadFailed, make_candidate
from kernelmate_torch.kernelbench.exchange import tensors_in
from kernelmate_torch.kernelbench.records import BlockTimes, TaskFinding, TimedCandidate
from kernelmate_torch.kernelbench.tampering import PytorchSnapshot

BLOCKS = 12
"""Blocks of two legs of each version."""
LEG_US = 4_000.0
"""Time that a leg takes at least, where the inputs' number permits it; an event has a resolution of 0.5 us."""
MOST_SETS = 64
"""Largest number of inputs that calls alternate between, and so of calls of a leg."""
L2_TIMES = 3
"""Multiple of L2 that the inputs take together at least."""
MEMORY_SHARE = 4
"""Part of the free memory, as its divisor, that they may take."""
WARM_UP = 3
STREAM_SHARE = 0.1
"""Share of a leg that the device may be busy on after its last event, and at least this many seconds:"""
STREAM_S = 2e-4
SEEDS = (21, 22, 23)
"""Seeds of the contents that inputs alternate between, and of those that the results of timed calls are checked with."""
BASELINES = {"eager": "", "compile": "default", "max-autotune": "max-autotune"}

Version = Callable[..., Any]


class Rotation:
    """Inputs that calls alternate between.

    Args:
        contents: two sets of contents, on the GPU; values that are not tensors stay.
        sets: number of copies.
    """

    def __init__(self, contents: Sequence[Sequence[Any]], sets: int) -> None:
        self._contents = contents
        self.sets = [[one.clone() if torch.is_tensor(one) else one for one in contents[0]] for _ in range(sets)]

    def refresh(self, leg: int) -> None:
        """Replaces the contents, in place; each set gets other ones than in the leg before."""
        for number, one in enumerate(self.sets):
            for held, value in zip(one, self._contents[(leg + number) % len(self._contents)], strict=True):
                if torch.is_tensor(held):
                    held.copy_(value)


def sets_needed(bytes_each: int, l2_bytes: int, free: int, call_us: float) -> int:
    """Returns the number of input sets: enough to exceed L2 and to fill a leg, within the memory and `MOST_SETS`."""
    wanted = max(math.ceil(L2_TIMES * l2_bytes / max(bytes_each, 1)), math.ceil(LEG_US / max(call_us, 0.1)), 2)
    return max(1, min(wanted, MOST_SETS, free // MEMORY_SHARE // max(bytes_each, 1)))


def time_candidate(path: Path, subject: Subject) -> TimedCandidate:
    """Returns the times of eager, its compiled forms and the candidate.

    Raises:
        LoadFailed: the candidate cannot be loaded.
    """
    device = torch.device("cuda")
    name = torch.cuda.get_device_name(device)
    contents = [[one.to(device) if torch.is_tensor(one) else one for one in subject.own(seed)] for seed in SEEDS]
    reference = subject.loaded.model.to(device)
    watched = PytorchSnapshot()
    new, notes = make_candidate(path, subject, device)
    versions, skipped = _versions(reference, new, contents[0])
    if "new" not in versions:
        return TimedCandidate(
            name, (), skipped, (TaskFinding("raised", "error", f"ModelNew raised: {skipped['new']}."),)
        )
    times, left = timed_blocks(versions, contents[:2])
    findings = [*notes, *_checked(new, reference, contents[2], subject.tolerance), *watched.findings()]
    if left > BLOCKS // 2:
        findings.append(TaskFinding("side-stream", "error", f"In {left} of {2 * BLOCKS} legs the GPU was still busy after the candidate's last event."))  # fmt: skip
    return TimedCandidate(
        name, tuple(BlockTimes(one, tuple(blocks)) for one, blocks in times.items()), skipped, tuple(findings)
    )


def _versions(reference: torch.nn.Module, new: torch.nn.Module, inputs: Sequence[Any]) -> tuple[dict[str, Version], dict[str, str]]:  # fmt: skip
    """Returns the versions that run, warmed up, in the order of a block, and why others do not."""
    made: dict[str, Version] = {}
    for name, mode in BASELINES.items():
        made[name] = torch.compile(copy.deepcopy(reference), mode=mode) if mode else reference
    made["new"] = new
    skipped: dict[str, str] = {}
    for name, version in list(made.items()):
        try:
            with torch.no_grad():
                for _ in range(WARM_UP):
                    version(*_cloned(inputs))
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001 -- whatever it raises, this version has no time
            text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
            skipped[name] = f"{type(error).__name__}: {text}".rstrip(".")
            del made[name]
    return made, skipped


def _cloned(inputs: Sequence[Any]) -> list[Any]:
    return [one.clone() if torch.is_tensor(one) else one for one in inputs]


def _once_us(version: Version, inputs: Sequence[Any]) -> float:
    """Returns the microseconds of one call, which decides the number of calls in a leg."""
    given = _cloned(inputs)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with torch.no_grad():
        start.record()
        version(*given)
        end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3


def timed_blocks(
    versions: Mapping[str, Version], contents: Sequence[Sequence[Any]]
) -> tuple[dict[str, list[float]], int]:
    """Returns microseconds of a call, for each version and block, and the legs of the version `new` that left work unfinished.

    Args:
        versions: what is timed, warmed up, in the order of a block.
        contents: sets of inputs on the current GPU, between which calls alternate.
    """
    call_us = min(_once_us(version, contents[0]) for version in versions.values())
    each = sum(one.numel() * one.element_size() for one in tensors_in(contents[0]))
    free, _ = torch.cuda.mem_get_info()
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    rotation = Rotation(contents, sets_needed(each, l2, free, call_us))
    times: dict[str, list[float]] = {name: [] for name in versions}
    left = leg = 0
    for _ in range(BLOCKS):
        legs: dict[str, list[float]] = {name: [] for name in versions}
        for name in [*versions, *reversed(list(versions))]:
            rotation.refresh(leg)
            leg += 1
            spent, busy = _leg(versions[name], rotation)
            legs[name].append(spent)
            left += name == "new" and busy
        for name, both in legs.items():
            times[name].append(sum(both) / len(both))
    return times, left


def _leg(version: Version, rotation: Rotation) -> tuple[float, bool]:
    """Returns microseconds of a call, and True if the GPU was still busy for long after the last event."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    with torch.no_grad():
        start.record()
        for inputs in rotation.sets:
            version(*inputs)
        end.record()
    end.synchronize()
    done = time.perf_counter()
    torch.cuda.synchronize()
    after = time.perf_counter() - done
    spent = float(start.elapsed_time(end))
    return spent * 1e3 / len(rotation.sets), after > max(STREAM_S, STREAM_SHARE * spent / 1e3)


def _checked(
    new: torch.nn.Module, reference: torch.nn.Module, inputs: Sequence[Any], tolerance: tuple[float, float]
) -> list[TaskFinding]:
    """Returns a finding if a call after the timed ones is wrong at new inputs; freed memory is filled with NaN before it."""
    torch.manual_seed(SEEDS[-1])
    with torch.no_grad():
        poisons = [
            torch.full_like(one, math.nan) for one in tensors_of(new(*_cloned(inputs))) if one.is_floating_point()
        ]
        del poisons
        torch.manual_seed(SEEDS[-1])
        made = tuple(one.clone() for one in tensors_of(new(*_cloned(inputs))))
        torch.manual_seed(SEEDS[-1])
        wanted = tensors_of(reference(*_cloned(inputs)))
    miss = tolerance_units(made, wanted, tolerance)
    if miss <= 1.0:
        return []
    return [TaskFinding("timed-output", "error", f"After the timed calls the result for new inputs deviates by {miss:.3g} tolerances.")]  # fmt: skip


def answer_timing(request: Mapping[str, Any]) -> TimedCandidate:
    """Returns the answer to the request to time a candidate, at the task's own sizes."""
    absolute, relative = request["tolerance"]
    subject = Subject(Path(request["task"]), request["seed"], None, (absolute, relative))
    try:
        return time_candidate(Path(request["candidate"]), subject)
    except LoadFailed as error:
        return TimedCandidate(torch.cuda.get_device_name(), (), {}, (TaskFinding("not-loaded", "error", str(error), error.line),))  # fmt: skip
