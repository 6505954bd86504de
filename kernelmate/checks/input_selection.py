"""Selection of inputs for a case: the hardest inputs on which the baseline and the reference agree."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmate.checks.answers import BaselineOutputs, ExpectedOutputs
from kernelmate.checks.case_launches import OTHER, Bench, PlannedLaunch
from kernelmate.checks.case_records import CaseRecord
from kernelmate.checks.oracle import Oracle
from kernelmate.checks.positions import ArgumentUses, has_running_product, uses_of
from kernelmate.checks.precision import Arrays
from kernelmate.checks.scalars import counted_names, has_switches, loops, untaken_names, varied_names
from kernelmate.checks.sizes import key_of
from kernelmate.checks.styles import NORMAL, ONE_MAGNITUDE, SMALLEST, InputStyle, milder_style
from kernelmate.checks.values import plantable
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract, Size
from kernelmate.source import numpy_dtype

_LEVELS: dict[Hashable, InputStyle] = {}
"""For each requested style, or style and size, the milder one on which a baseline and its reference agree."""

_AGREED: set[Hashable] = set()
"""Styles of varied scalars or planted values on which they agree at some size; at others they may still disagree."""


@dataclass(frozen=True, slots=True)
class SelectedInputs:
    """A launch with its inputs.

    Attributes:
        theirs: the baseline's outputs; None without a baseline.
        answer: the expected outputs; None without a source of them.
    """

    shot: PlannedLaunch
    given: Arrays
    theirs: BaselineOutputs | None
    answer: ExpectedOutputs | None


def other_style(contract: Contract, directory: Path) -> InputStyle:
    """Returns the style of the second set of ordinary inputs for an unknown kernel.

    Raises:
        ReferenceFailed: the reference's file cannot be loaded.
    """
    names, planted = varied_names(contract, directory), plantable(contract)
    zeros = has_switches(contract, names)
    return InputStyle("normal", vary=names, planted=planted, zeros=zeros) if names or planted else NORMAL


class InputSelection:
    """Finds inputs that the baseline handles correctly, or the version itself without a baseline.

    Args:
        bench: runs the version under judgement.
        oracle: source of expected outputs.
        compared: True with a baseline.
        directory: folder of the contract's files.
    """

    def __init__(self, bench: Bench, oracle: Oracle, *, compared: bool, directory: Path) -> None:
        self._bench, self._oracle, self._contract = bench, oracle, oracle.contract
        self._compared, self._directory = compared, directory
        self._uses: ArgumentUses | None = None
        self._other: InputStyle | None = None

    def other(self, size: Size) -> InputStyle:
        """Returns the style of the second set of ordinary inputs at a size, before it is made milder.

        It varies scalars and plants array values equal to scalars.
        """
        style = self._varied()
        fixed = self._fixed(size)
        if fixed.isdisjoint(style.vary):
            return style
        vary = tuple(name for name in style.vary if name not in fixed)
        return replace(style, vary=vary, wary=False) if vary or style.planted else NORMAL

    @property
    def varied_scalars(self) -> tuple[str, ...]:
        """Returns scalars that may have other values, at least at sizes that the emulator launches first."""
        return self._varied().vary

    def unvaried(self, records: Iterable[CaseRecord]) -> frozenset[str]:
        """Returns scalars that kept the contract's values: the reference has these as numbers, or the baseline was wrong with others at a size.

        Raises:
            ReferenceFailed: the reference's file cannot be loaded.
        """
        return untaken_names(self._contract, self._directory).union(
            name
            for record in records
            for seen in record.seen
            if seen.outcome.shot.inputs == OTHER and not self._oracle.large(record.size)
            for name in set(self.other(record.size).vary) - set(seen.outcome.shot.style.vary)
        )

    @property
    def wide_scalars(self) -> tuple[str, ...]:
        """Returns varied integer scalars that are mere values to the baseline and the reference, so may be of any size.

        They decide neither accesses nor the length of a loop. A branch, as on a bit of a random number, decides no access
        if baseline and reference still agree; on a GPU it might, where the emulator does not launch first (`may_try`).
        """
        used = self._used()
        bound = used.addresses | used.loops
        names = [
            a.name
            for a in self._contract.args
            if a.name in self._varied().vary and a.name not in bound
            and numpy_dtype(a.dtype).kind in "iu" and numpy_dtype(a.dtype).itemsize > 1
        ]  # fmt: skip
        counted = counted_names(self._contract, self._directory, names) if names else frozenset()
        return tuple(name for name in names if name not in counted)

    def allows(self, style: InputStyle) -> bool:
        """Returns False for inputs that are tried only beside a baseline that is right on them.

        These are integers that may be indices and exceed their range, and changed arrays of an `inputs` function.
        """
        if self._contract.inputs is not None and style.stress:
            return False
        return style.name != "integers" or not self.has_positions

    def may_try(self, style: InputStyle, size: Size) -> bool:
        """Returns False if a style's scalar values at a size could destroy a GPU's context."""
        return self._fixed(size).isdisjoint(name for name, _ in style.given)

    def _fixed(self, size: Size) -> frozenset[str]:
        """Returns scalars that keep the contract's values at a size.

        These are scalars that bound accesses, where a GPU launches before the emulator: an unintended stride or length
        can destroy the GPU's context.
        """
        first = self._bench.on_hardware and not self._bench.seen_first(size)
        return self._bounding() if first else frozenset()

    def _bounding(self) -> frozenset[str]:
        """Returns integer scalars that decide whether a launch stays within its arrays."""
        used = self._used()
        return (used.addresses | used.guards) & {
            a.name for a in self._contract.args if a.shape is None and "int" in a.dtype
        }

    def _varied(self) -> InputStyle:
        if self._other is None:
            style = other_style(self._contract, self._directory)
            if style.vary and self._bench.on_hardware:
                # A step of 0 makes a loop endless.
                zeros = style.zeros and self._used().loops.isdisjoint(style.vary)
                style = replace(style, zeros=zeros, wary=not self._bounding().isdisjoint(style.vary))
            if style.planted:
                style = replace(style, positions=tuple(sorted(self._positions())))
            if style.vary and not self._bench.on_hardware and not self.has_positions:
                style = replace(style, negative=bool(self._integers()))
            self._other = style if style.vary or style.planted else NORMAL
        return self._other

    def level(self, style: InputStyle, size: Size) -> InputStyle:
        """Returns the style made as mild as earlier disagreements at this style required."""
        if style.name == "integers" and self._key(style) not in _LEVELS:
            _LEVELS[self._key(style)] = self._first_integers(style)
        if style.name == "mixed" and self._key(style) not in _LEVELS:
            compiled = (self._oracle.judge_of_inputs or self._bench.version).compiled
            if has_running_product(compiled.ptx, compiled.lowered_name):
                _LEVELS[self._key(style)] = replace(style, milder=max(style.milder, ONE_MAGNITUDE))
        key = self._key(style)
        return self._safe(_LEVELS.get((key, key_of(size)), _LEVELS.get(key, style)), size)

    def _first_integers(self, style: InputStyle) -> InputStyle:
        positions = self._positions()
        looped = positions & self._used().loops
        if looped or (positions and loops(self._contract, self._directory)):
            return replace(style, positions=tuple(sorted(positions)))
        return style

    def _safe(self, style: InputStyle, size: Size) -> InputStyle:
        """Returns the style, with the smallest index values if a GPU launches before the emulator.

        A bad address destroys the GPU's context.
        """
        if style.name != "integers" or not self._bench.on_hardware or self._bench.seen_first(size):
            return style
        positions = self._positions()
        return replace(style, positions=tuple(sorted(positions)), bound=SMALLEST) if positions else style

    def _used(self) -> ArgumentUses:
        if self._uses is None:
            self._uses = uses_of(self._oracle.judge_of_inputs or self._bench.version, self._contract)
        return self._uses

    @property
    def has_positions(self) -> bool:
        """Returns True if elements of an integer array may be indices, lengths or bounds, or without PTX.

        Arrays with a declared distribution are excluded.
        """
        version, used = self._oracle.judge_of_inputs or self._bench.version, self._used()
        return not version.compiled.ptx or bool(
            (used.addresses | used.loops | used.guards) & frozenset(self._integers())
        )

    @property
    def indexed(self) -> bool:
        """Returns True if elements of an integer array without a declared distribution become addresses or lengths."""
        return bool(self._positions())

    def _positions(self) -> frozenset[str]:
        """Returns integer arrays whose elements are used as addresses or lengths."""
        used = self._used().addresses | self._used().loops
        return used & frozenset(self._integers())

    def _integers(self) -> list[str]:
        """Returns integer arrays without a declared distribution that may hold indices."""
        return [
            a.name for a in self._contract.args
            if a.direction in ("in", "inout") and a.distribution is None
            and numpy_dtype(a.dtype).kind in "iu" and numpy_dtype(a.dtype).itemsize > 1
        ]  # fmt: skip

    def _key(self, style: InputStyle) -> Hashable:
        version = self._oracle.judge_of_inputs or self._bench.version
        return self._oracle.context, version.compiled.binary, version.compiled.lowered_name, style

    def settle(self, size: Size, shot: PlannedLaunch, *, plainly: bool) -> SelectedInputs:
        """Returns the launch, with milder inputs if the baseline and the reference disagree on the requested ones.

        Args:
            size: size of the launch.
            shot: the requested launch.
            plainly: True if results on ordinary inputs were already wrong; scalars are then not varied.

        Raises:
            ReferenceFailed: the reference or the inputs function failed on the mildest inputs.
        """
        style = self.level(shot.style, size)
        if plainly and (style.vary or style.planted):
            style = NORMAL
        while True:
            tried = replace(shot, style=style)
            try:
                found = self._had(size, tried)
            except (ReferenceFailed, MemoryError):
                following = self.milder(size, tried, failed=True)
                if following is None:
                    raise
            else:
                theirs = found.theirs
                if theirs is None or not (theirs.errors or theirs.right is False):
                    if theirs is not None and style == shot.style:
                        self._note_agreement(style)
                    return found
                following = self.milder(size, tried, failed=bool(theirs.errors))
                if following is None:
                    return found
            style = self._keep(shot.style, following, size)

    def _note_agreement(self, style: InputStyle) -> None:
        if style.vary or style.planted:
            _AGREED.add(self._key(style))

    def _keep(self, asked: InputStyle, style: InputStyle, size: Size) -> InputStyle:
        """Keeps a milder style for all sizes, or for this one if baseline and reference agree on the harder one elsewhere."""
        if asked.name != "mixed":
            key = self._key(asked)
            _LEVELS[(key, key_of(size)) if key in _AGREED else key] = style
        return style

    def _had(self, size: Size, shot: PlannedLaunch) -> SelectedInputs:
        given = self._oracle.inputs(size, shot)
        theirs = self._oracle.theirs(size, shot, given)
        return SelectedInputs(shot, given, theirs, self._oracle.answer(size, shot, given, theirs))

    def instead(self, size: Size, shot: PlannedLaunch, mine: BaselineOutputs, *, plainly: bool) -> InputStyle | None:
        """Returns milder inputs for a version without a baseline that is wrong on varied scalars; None otherwise."""
        varies = shot.style.vary or shot.style.planted
        if plainly or not varies or self._bench.over:
            return None
        if not (mine.errors or mine.right is False):
            if shot.style == self.other(size):
                self._note_agreement(shot.style)
            return None
        following = self.milder(size, shot, failed=bool(mine.errors))
        return None if following is None else self._keep(self.other(size), following, size)

    def milder(self, size: Size, shot: PlannedLaunch, *, failed: bool) -> InputStyle | None:
        """Returns the next milder style; None if there is none."""
        style = shot.style
        if not style.vary and not style.planted:
            return milder_style(style, size, self._integers(), failed=failed)
        if style.zeros or style.negative:
            return replace(style, zeros=False, negative=False)
        parts = len(style.vary) + style.planted
        if parts == 1:
            return NORMAL if style.alone or not style.planted or failed else replace(style, alone=True)
        agreeing = tuple(n for n in style.vary if self._agrees(size, shot, replace(style, vary=(n,), planted=False)))
        planted = style.planted and self._agrees(size, shot, replace(style, vary=()))
        alone = style.alone
        if style.planted and not (planted or alone or failed):
            planted = alone = self._agrees(size, shot, replace(style, vary=(), alone=True))
        found = replace(style, vary=agreeing, planted=planted, alone=alone)
        return NORMAL if found == style or not (agreeing or planted) else found

    def _agrees(self, size: Size, shot: PlannedLaunch, style: InputStyle) -> bool:
        tried = replace(shot, style=style)
        try:
            given = self._oracle.inputs(size, tried)
            theirs = self._oracle.theirs(size, tried, given)
            if not self._compared:
                if self._bench.over:
                    return False
                theirs = self._oracle.learn(self._bench, size, tried, self._bench.run(size, tried, given))
        except (ReferenceFailed, MemoryError):
            return False
        return theirs is not None and not theirs.errors and theirs.right is not False
