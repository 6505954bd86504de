"""Detects module variables whose value survives a launch and affects the next one, by static data flow."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.backends.emulator.launch import readable
from kernelmate.backends.emulator.persistent_variables import PersistentVariable, variables_of
from kernelmate.records import Finding, FindingCode, Severity, Version


def find(version: Version, baseline: Version | None, lasting: frozenset[str]) -> Iterator[Finding]:
    """Yields a finding for each variable that decides later launches, and a note for others that are shared.

    A variable that each launch restores, or writes before reading, is allowed: for instance a block counter that the
    last block resets.

    Args:
        version: the version under judgement.
        baseline: its baseline, or None.
        lasting: variables that some launch read before writing and left changed, as far as known.
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
