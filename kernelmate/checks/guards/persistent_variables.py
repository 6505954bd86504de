"""Finds variables of the module that outlive a launch and affect the next one, by data flow and without running it."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.backends.emulator.launch import readable
from kernelmate.backends.emulator.persistent_variables import PersistentVariable, variables_of
from kernelmate.records import Finding, FindingCode, Severity, Version


def find(version: Version, baseline: Version | None, lasting: frozenset[str]) -> Iterator[Finding]:
    """A finding for each such variable that the baseline does not have, and a note of those that blocks share.

    A variable that each launch leaves as it has found it, or writes before it reads it, is none: the ticket by which the
    last block knows itself and puts back.

    Args:
        version: what is judged.
        baseline: what it is compared with, if anything.
        lasting: variables that some launch has read before it wrote them and has left changed, where that is known.
    """
    theirs = {one.name for one in _variables(baseline) if one.decides}
    shared = []
    for one in _variables(version):
        if not (one.loaded and one.written):
            continue
        if one.decides and (one.name in lasting or (one.grows and not one.put_back)):
            held = baseline is not None and one.name not in theirs
            severity: Severity = "error" if held else "warning"
            yield _placed(one, severity, f"what earlier launches have left in {readable(one.name)} decides what a launch "
                          "does, and no launch puts it back")  # fmt: skip
        elif one.name not in theirs and baseline is not None:
            shared.append(one)
    if shared:
        names = " and ".join(readable(one.name) for one in shared)
        yield _placed(shared[0], "note", f"keeps {names} in memory of the module: two launches at the same time would "
                      "share it, and each would get the other's values")  # fmt: skip


def _variables(version: Version | None) -> tuple[PersistentVariable, ...]:
    return () if version is None else variables_of(version.compiled.ptx, version.compiled.lowered_name)


def _placed(one: PersistentVariable, severity: Severity, message: str) -> Finding:
    line, column = (None, None) if one.read is None else (one.read.line, one.read.column)
    return Finding(FindingCode.STATEFUL, severity, message, line=line, column=column, buffer=readable(one.name))
