"""Detects outputs that depend on a launch's environment: special registers, addresses, uninitialised registers.

Data flow through the PTX shows which of these values reach a condition, a store or an address
(`backends/emulator/dependence.py`). For such kernels, launches are repeated in the emulator with other values, whatever
the backend. A condition that had one outcome in all of them is forced to the other one, because variation does not find
a value that occurs once in a million launches. A dependence that affects only when and on which SM work is done, not
the outputs, is allowed.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from kernelmate.backends.base import EmulationTooLarge, LaunchEnvironment, Run, RunResult
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.backend import decoded_of
from kernelmate.backends.emulator.dependence import Dependence, dependence_of
from kernelmate.backends.emulator.link import LinkRefused
from kernelmate.backends.emulator.operands import PtxError
from kernelmate.records import BuildVariant, Contract, FindingCode, Target, Version

WORDS = {
    "%smid": "which SM a block runs on", "%nsmid": "how many SMs there are", "%warpid": "which slot of an SM a warp is in",
    "%nwarpid": "how many warps an SM holds", "%gridid": "the number of the launch", "%clock": "the clock",
    "%globaltimer": "the time of day",
}  # fmt: skip

_MOST_SWEPT = 8
_MOST_FORCED = 16
_MOST_COMBINED = 3
_MOST_STEPS = 100_000
_TIMES_STEPS = 16
MOST_TWIN_STEPS = 100_000
"""Maximum number of instructions of a thread in unoptimised code, which the emulator executes in about a second."""
_FAR_SLOTS = (888, 3, 1500)
"""First slots of arrays at other addresses, in the emulator's address space; slot 888 starts at 0x7f << 40."""
_FILLS = (0xFF, 0x5A)
_CLOCKS = ((1 << 20, 1), (1 << 40, 4096), ((1 << 31) - 3, 977), ((1 << 62) + 12345, 1 << 20))
_GRIDS = (1, 2, 6007, (1 << 31) + 77, (1 << 40) + 3)

_APART = (32, 2)
"""Groups of lanes that do not run together: each lane by itself, and even and odd ones."""

MASK_ADVICE = (
    "its outputs depend on which lanes run together, which __activemask() tells and the hardware is free to choose; use "
    "0xffffffff, or a mask that __ballot_sync() computes before the branch. With other lanes together"
)
RETRY_ADVICE = (
    "it gives up a compare-and-swap after a number of attempts, and other threads may win as often; repeat it until it "
    "succeeds, or use an atomic. Where a thread gives up"
)

Judge = Callable[[RunResult], str | None]
"""Function that returns a description of wrong outputs of a launch; None if they are right."""


@dataclass(frozen=True, slots=True)
class EnvironmentFinding:
    """A dependence of a launch's outputs on its environment: a finding's code, and a sentence."""

    code: FindingCode
    message: str
    line: int | None = None


@dataclass(frozen=True, slots=True)
class _ProbeLaunch:
    """A launch in another environment; `names` are the environment values that it varies."""

    environment: LaunchEnvironment
    names: frozenset[str]
    schedule: int | None = None
    forced: bool = False


def reaching_values(version: Version, contract: Contract) -> Dependence | None:
    """Returns environment values that reach a version's results; None without any, or if PTX cannot be decoded."""
    found = dependence(version, contract)
    return found or None


def dependence(version: Version, contract: Contract) -> Dependence | None:
    """Returns all environment values that a version reads; None if its PTX cannot be decoded."""
    compiled = version.compiled
    return _dependence(
        compiled.ptx,
        compiled.lowered_name,
        tuple(n for n, a in enumerate(contract.parameters) if a is not None and a.shape is not None),
    )


@functools.lru_cache(maxsize=16)
def _dependence(ptx: str, name: str, arrays: tuple[int, ...]) -> Dependence | None:
    try:
        return dependence_of(decoded_of(ptx, name), arrays)
    except (LinkRefused, PtxError):
        return None


class TooLong(Exception):
    """A launch does not end within its limit of steps."""


def find(version: Version, found: Dependence, run: Run, target: Target, judge: Judge) -> EnvironmentFinding | None:
    """Search for environment values on which the outputs of a launch depend.

    Args:
        version: the version; every launch is the first of a newly loaded module.
        found: environment values that reach its outputs, from the data flow analysis.
        run: the launch, with arrays in host memory.
        target: the GPU to emulate.
        judge: checks the outputs.
    """
    for line, names in found.leaked.items():
        return EnvironmentFinding(
            FindingCode.NONDETERMINISTIC, f"stores a value that is computed from {_named(names)}", line or None
        )
    usual = LaunchEnvironment(clock=(0, 64), watched=frozenset((*found.conditions, *found.retries)))
    first = _launched(version, run, target, _ProbeLaunch(usual, frozenset()), None)
    if first is None or _wrong(first, judge, forced=False) is not None:
        return None  # another finding covers it, or the environment would not explain it
    if found.stale:
        checked = _launched(version, run, target, _ProbeLaunch(usual, frozenset()), None, check=True)
        for finding in checked.findings if checked is not None else ():
            if finding.severity == "error":
                return EnvironmentFinding(finding.code, finding.message, finding.line)
    limit = min(max(_MOST_STEPS, _TIMES_STEPS * (first.longest_thread or 0)), run.step_limit)
    told = _of_threads(version, found, usual, run, target, judge, limit)
    if told is not None:
        return told
    seen = {number: set(outcomes) for number, outcomes in first.outcomes.items()}
    for probe in _varied(found, usual, target, run.shape.blocks):
        result = _launched(version, run, target, probe, limit)
        said = None if result is None else _wrong(result, judge, forced=False)
        if said is not None:
            return _told(probe, said)
        for number, outcomes in (result.outcomes if result is not None else {}).items():
            seen.setdefault(number, set()).update(outcomes)
    for probe in _forced(found, usual, seen):
        result = _launched(version, run, target, probe, limit)
        said = None if result is None else _wrong(result, judge, forced=True)
        if said is not None:
            return _told(probe, said)
    return None


def _of_threads(
    version: Version, found: Dependence, usual: LaunchEnvironment, run: Run, target: Target, judge: Judge, limit: int
) -> EnvironmentFinding | None:
    """Returns a dependence on which lanes run together, or on how often other threads win at a compare-and-swap."""
    for apart in _APART if found.masks else ():
        probe = _ProbeLaunch(replace(usual, apart=apart), frozenset())
        result = _launched(version, run, target, probe, limit)
        said = None if result is None else _wrong(result, judge, forced=False)
        if said is not None:
            return EnvironmentFinding(FindingCode.SHUFFLE_MASK, f"{MASK_ADVICE}: {said}", found.masks[0] or None)
    for (number, line), outcome in itertools.product(found.retries.items(), (True, False)):
        probe = _ProbeLaunch(replace(usual, forced={number: outcome}), frozenset(), forced=True)
        result = _launched(version, run, target, probe, limit)
        said = None if result is None else _wrong(result, judge, forced=True)
        if said is not None:
            message = f"{RETRY_ADVICE}: {said}"
            return EnvironmentFinding(FindingCode.NONDETERMINISTIC, message, line or None)
    return None


def find_in_twin(
    version: Version, twin: BuildVariant, run: Run, target: Target, judge: Judge
) -> EnvironmentFinding | None:
    """Searches a build variant for such dependences: code for another architecture, or unoptimised code.

    Code for other architectures may be wrong, and unoptimised code may read uninitialised variables.

    Raises:
        TooLong: a thread of unoptimised code exceeds `MOST_TWIN_STEPS`; a smaller size may not.
    """
    try:
        decoded_of(twin.compiled.ptx, twin.compiled.lowered_name)
    except (LinkRefused, PtxError):
        return None  # an unsupported feature of the emulator is no evidence against the version
    other = replace(version, compiled=twin.compiled)
    limit = None if twin.arch is not None else MOST_TWIN_STEPS
    first = _launched(other, run, target, _ProbeLaunch(LaunchEnvironment(), frozenset()), limit)
    if first is None and limit is not None:
        raise TooLong
    if first is None:
        return None
    if twin.arch is not None:
        said = _wrong(first, judge, forced=False)
        message = f"compiled for {twin.arch}, as its conditions on __CUDA_ARCH__ provide for, it is wrong: {said}"
        return None if said is None else EnvironmentFinding(FindingCode.WRONG_VALUES, message)
    for fill in _FILLS:
        filled = _launched(other, run, target, _ProbeLaunch(LaunchEnvironment(fill=fill), frozenset()), None)
        if filled is None or _same(first, filled):
            continue
        said = _wrong(filled, judge, forced=False) or _wrong(first, judge, forced=False)
        if said is not None:
            return _told(_ProbeLaunch(LaunchEnvironment(fill=fill), frozenset()), said)
    return None


def _same(one: RunResult, two: RunResult) -> bool:
    """Returns True if two launches left the same bytes."""
    return all(array.tobytes() == two.arrays[name].tobytes() for name, array in one.arrays.items())


def _launched(
    version: Version, run: Run, target: Target, probe: _ProbeLaunch, limit: int | None, *, check: bool = False
) -> RunResult | None:
    """Makes a launch; returns None if it exceeds the emulator's limits or does not finish within the step limit."""
    changed = replace(
        run, environment=probe.environment, check=check, count=False, key=None, executed=False,
        schedule_seed=run.schedule_seed if probe.schedule is None else probe.schedule,
        step_limit=limit or run.step_limit,
    )  # fmt: skip
    try:
        result = EmulatorBackend("never").load(version.compiled, target).run(changed)
    except EmulationTooLarge:
        return None
    # A wait for the clock need not end where the clock stands still, or where its end is forced never to come.
    return None if any(finding.code == FindingCode.HANG for finding in result.findings) else result


def _wrong(result: RunResult, judge: Judge, *, forced: bool) -> str | None:
    for finding in result.findings:
        if finding.severity != "error":
            continue
        # An assertion that holds for every value may fail where its condition is forced.
        return None if forced and finding.code == FindingCode.TRAP else finding.message
    return judge(result)


def _varied(found: Dependence, usual: LaunchEnvironment, target: Target, blocks: int) -> Iterator[_ProbeLaunch]:
    """Yields launches with other special registers, array addresses or undefined registers.

    Each kind is varied only if the outputs may depend on it.
    """
    registers = frozenset(name for name in found.reached if name.startswith("%"))
    addresses = found.reached - registers
    if registers:
        for around in _registers(found, target.sms, blocks):
            yield _ProbeLaunch(replace(around, watched=usual.watched), registers)
    if addresses:
        for number, slot in enumerate(_FAR_SLOTS):
            yield _ProbeLaunch(replace(usual, first_slot=slot), addresses, 901 + number)
    if found.undefined:
        for fill in _FILLS:
            yield _ProbeLaunch(replace(usual, fill=fill), frozenset())


def _registers(found: Dependence, sms: int, blocks: int) -> Iterator[LaunchEnvironment]:
    swept = min(max(-(-sms // max(blocks, 1)), 3), _MOST_SWEPT)
    for number in range(swept):
        there = max(sms >> (number % 2), 1)
        yield _with_registers((number * blocks) % there, there, number, _GRIDS[number % 5], _CLOCKS[number % 4])
    for literal in found.literals:
        value = literal % (1 << 64)
        smid = value if value < sms else 0
        yield _with_registers(smid, sms, 0, value, (value - 1, 1), step=0)
        yield _with_registers(smid, sms, 0, (value + 1) % (1 << 64), (value, value + 1), step=0)


def _with_registers(
    smid: int, sms: int, warp: int, grid: int, clock: tuple[int, int], step: int = 1
) -> LaunchEnvironment:
    whole = 1 << 63
    specials = {
        "%smid": (smid, step, sms), "%nsmid": (sms, 0, whole), "%warpid": (warp, 1 + warp, 64), "%gridid": (grid % whole, 0, whole),
        "%nwarpid": (64, 0, whole),
    }  # fmt: skip
    return LaunchEnvironment(specials, clock)


def _forced(found: Dependence, usual: LaunchEnvironment, seen: dict[int, set[bool]]) -> Iterator[_ProbeLaunch]:
    """Yields launches with condition outcomes not seen so far: for each condition alone, then for all together.

    Forcing may reach conditions that were not reached before; all outcome combinations of the first few are tried.
    """
    lacking = {n: not next(iter(had)) for n, had in seen.items() if len(had) == 1 and n in found.plain}
    lacking = dict(itertools.islice(lacking.items(), _MOST_FORCED))
    unmet = [number for number in sorted(found.plain) if not seen.get(number)]
    for number, outcome in lacking.items():
        yield _ProbeLaunch(replace(usual, forced={number: outcome}), found.conditions[number], forced=True)
    if len(lacking) + len(unmet) < 2 or not lacking:
        return
    names = frozenset[str]().union(*(found.conditions[number] for number in (*lacking, *unmet)))
    for outcomes in itertools.product((True, False), repeat=min(len(unmet), _MOST_COMBINED)):
        forced = lacking | dict(itertools.zip_longest(unmet, outcomes, fillvalue=True))
        yield _ProbeLaunch(replace(usual, forced=forced), names, forced=True)


def _told(probe: _ProbeLaunch, said: str) -> EnvironmentFinding:
    if probe.environment.fill:
        return EnvironmentFinding(
            FindingCode.UNINITIALISED_LOCAL,
            f"its outputs depend on what a variable holds before anything is assigned to it: {said}",
        )
    registers = frozenset(name for name in probe.names if name.startswith("%"))
    if registers:
        what = _named(registers)
    else:
        what = "where its arrays lie in memory (the bits of their addresses, or the distance between two of them)"
    when = "where a condition on it has its other outcome" if probe.forced else "where that is another"
    return EnvironmentFinding(FindingCode.NONDETERMINISTIC, f"its outputs depend on {what}: {when}, {said}")


def _named(names: frozenset[str]) -> str:
    told = {
        name: WORDS.get(name) or WORDS.get(name.rstrip("0123456789_hilo"), "what the driver left") for name in names
    }
    return " and ".join(f"{name} ({words})" for name, words in sorted(told.items()))
