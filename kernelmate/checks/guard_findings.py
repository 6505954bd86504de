"""Findings of guards from PTX and SASS, and from launches after the judged one; properties that a baseline sets.

Such properties are stricter than the tolerance: signs of zero, bits of NaN, subnormals, and rounding to nearest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from kernelmate.checks.answers import BaselineOutputs, ExpectedOutputs
from kernelmate.checks.findings import placed
from kernelmate.checks.guards import (
    approximations,
    clocks,
    compilers,
    flushed,
    launch_registers,
    lost_bits,
    narrow_matrix,
    repeated_launches,
    single_units,
    timed_output,
)
from kernelmate.checks.precision import Array, Arrays
from kernelmate.checks.styles import InputStyle
from kernelmate.checks.timed import JudgedLaunch, LaunchTimes
from kernelmate.compiler.disassembly import sass
from kernelmate.errors import CompilerUnavailable
from kernelmate.records import Compiled, Contract, Finding, FindingCode, Version


def code_findings(version: Version, baseline: Version | None, contract: Contract) -> Iterator[Finding]:
    """Yields findings from a version's PTX and SASS, placed in the user's file.

    Args:
        version: the version under judgement.
        baseline: the version it is compared with, or None; its own defects do not count against the version.
        contract: the contract in force, which defines the required precision.
    """
    told = compilers.find(version.unit.text, None if baseline is None else baseline.unit.text)
    if told is not None:
        yield placed(Finding(FindingCode.FORBIDDEN_SOURCE, "error", told[1], line=told[0]), version.unit)
    ptx, theirs = version.texts, None if baseline is None else baseline.texts
    noted = {
        FindingCode.PRECISION_LOSS: approximations.find(ptx, theirs),
        FindingCode.NONDETERMINISTIC: launch_registers.find(ptx, theirs),
    }
    for code, sentence in noted.items():
        if sentence is not None:
            yield Finding(code, "note", sentence, file=version.unit.path)
    for one in version.stages or (version,):
        if narrow_matrix.PTX_MATRIX.search(one.compiled.ptx):
            yield from _matrix_findings(one, baseline, contract)


def _matrix_findings(version: Version, baseline: Version | None, contract: Contract) -> Iterator[Finding]:
    try:
        mine, theirs = sass(version.compiled), None if baseline is None else _sass(baseline.compiled)
    except CompilerUnavailable as error:
        message = f"which precision its matrix instructions have was not looked at: {error.message} {error.hint or ''}"
        yield Finding(FindingCode.PRECISION_LOSS, "note", message.strip(), file=version.unit.path)
        return
    for finding in narrow_matrix.find(contract, mine, theirs):
        yield placed(finding, version.unit)


def _sass(compiled: Compiled) -> str | None:
    return sass(compiled) if narrow_matrix.PTX_MATRIX.search(compiled.ptx) else None


def later_findings(
    contract: Contract, kept: JudgedLaunch | None, timed: LaunchTimes
) -> Iterator[tuple[FindingCode, str, str | None]]:
    """Yields a code, a sentence, and the output concerned, for each error in launches after the judged one.

    Args:
        contract: the contract in force.
        kept: the judged launch with its arrays; None if they were not kept.
        timed: results of the launches that followed.
    """
    if timed.doubt is not None:
        yield FindingCode.SUB_PHYSICAL_TIME, timed.doubt, None
    repeats = timed.repeats
    if kept is not None:
        left = [timed.outputs, None if repeats is None else repeats.arrays]
        judged = kept.outcome.result.arrays
        others = (timed_output.find(contract, judged, kept.answer, one) for one in left if one is not None)
        other = next((one for one in others if one is not None), None)
        if other is not None:
            yield FindingCode.STATEFUL, other[1], other[0]
            return
    idle, late = repeated_launches.find(repeats, timed.timing), None if repeats is None else clocks.find(repeats)
    if idle is not None:
        yield FindingCode.STATEFUL, idle, None
    if late is not None:
        yield FindingCode.SUB_PHYSICAL_TIME, late, None


def binding(
    contract: Contract, seen: BaselineOutputs, style: InputStyle, outputs: Arrays, answer: ExpectedOutputs, ptx: str
) -> BaselineOutputs:
    """Returns the launch with the properties that the baseline has and that a candidate must keep.

    Args:
        contract: may allow flushing.
        seen: the facts about the launch.
        style: the style of its inputs.
        outputs: the outputs of the baseline.
        answer: the reference's, with its tolerance as derived.
        ptx: the baseline's PTX.
    """
    pairs = [(name, outputs[name], want) for name, want in answer.want.items()]
    nearest = dict[str, Array | None]()
    if answer.origin == "derived":
        nearest = {name: single_units.nearest(got, want, answer.allowed, name) for name, got, want in pairs}
    if not style.stress:
        return replace(seen, nearest=_had(nearest))
    bits = {name: lost_bits.kept(ptx, got, want) for name, got, want in pairs}
    small, exact = dict[str, Array | None](), dict[str, Array | None]()
    if style.name == "denormals":
        small = {name: flushed.kept(contract, got, want) for name, got, want in pairs}
    if style.name == "patterns" and answer.origin == "derived":
        exact = {name: single_units.exact(got, want, answer.allowed, name) for name, got, want in pairs}
    return replace(seen, bits=_had(bits), small=_had(small), exact=_had(exact), nearest=_had(nearest))


def _had(found: Mapping[str, Array | None]) -> Arrays:
    return {name: array for name, array in found.items() if array is not None}
