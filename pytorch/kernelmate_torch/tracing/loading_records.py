"""Reads the records that traced processes wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class TracedCode:
    """A function of the program whose executed instructions were counted; its attributes are those of `FollowedCode`.

    Attributes:
        file: its file.
        qualified: its dotted name.
        line: its first line.
        entries: calls by the interpreter.
        positions: first line, last line, first and last column of each instruction.
        counts: executions of each instruction.
        traced: visits of each instruction by torch.compile.
        truncated: True if a call was longer than the budget.
        references: names in it that lead to kernels.
        paths: `{"executed": [instructions], "calls": N, "facts": [[tensor, ...], ...], "empty": N}`.
        exceptions: exceptions that instructions raised or passed on.
    """

    file: str
    qualified: str
    line: int
    entries: int
    positions: list[tuple[int, int, int, int]]
    counts: list[int]
    traced: list[int]
    truncated: bool
    references: list[Mapping[str, Any]]
    paths: list[Mapping[str, Any]]
    exceptions: list[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class TracedProcess:
    """The record of one process, as `recording.process` writes it.

    Attributes:
        pid: its number.
        parent: number of the process that started it.
        arguments: its command line.
        complete: True if it ended by itself, False if it was killed: the counts are of the last second before then.
        torch: version of PyTorch; empty if it never imported it.
        lines: True if the executed branches are known.
        kernels: kernels by key.
        codes: functions that lead to kernels.
        sources: texts of the user's files.
        document: the whole record.
    """

    pid: int
    parent: int
    arguments: tuple[str, ...]
    complete: bool
    torch: str
    lines: bool
    kernels: Mapping[str, Mapping[str, Any]]
    codes: tuple[TracedCode, ...]
    sources: Mapping[str, str]
    document: Mapping[str, Any] = field(repr=False)

    def launches(self, key: str) -> dict[str, int]:
        """Returns a kernel's launches by phase, with those that torch.compile put in its place.

        That is so for the Triton functions of a `triton_op`. One launch of it may launch several of them, so that the largest
        number among them is given, where the operator itself has none in that phase.
        """
        kernel = self.kernels[key]
        own: dict[str, int] = kernel["launches"]
        if key not in self.document["compiled"]["in_graphs"]:
            return own
        inner: dict[str, int] = {}
        for one in kernel["inner"]:
            for phase, count in self.kernels[one]["launches"].items() if one in self.kernels else ():
                if phase.startswith("compiled"):
                    inner[phase] = max(count, inner.get(phase, 0))
        return inner | own


def read_records(folder: Path) -> list[TracedProcess]:
    """Returns the records of a folder, the earliest process first."""
    documents = [json.loads(one.read_text()) for one in sorted(folder.glob("*.json"))]
    return [_process(one) for one in sorted(documents, key=lambda one: one["started"])]


def _process(document: Mapping[str, Any]) -> TracedProcess:
    kept = TracedCode.__slots__
    codes = [
        TracedCode(**{name: one[name] for name in kept if name != "positions"}, positions=_positions(one))
        for one in document["codes"]
    ]
    return TracedProcess(
        document["pid"], document["parent"], tuple(document["arguments"]), document["ended"] is not None, document["torch"],
        document["lines"], {one["key"]: one for one in document["kernels"]}, tuple(codes), document["sources"], document,
    )  # fmt: skip


def _positions(code: Mapping[str, Any]) -> list[tuple[int, int, int, int]]:
    return [tuple(-1 if part is None else part for part in one) for one in code["positions"]]  # type: ignore[misc]
