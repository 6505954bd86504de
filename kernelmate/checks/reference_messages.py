"""Messages between the judging process and the reference process."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
import numpy as np

from kernelmate.checks.precision import Arrays
from kernelmate.records import Contract

Described: TypeAlias = tuple[tuple[str, str, tuple[int, ...]], ...]
"""Name, NumPy dtype name and shape of each array that follows a header."""


class LoadReference(msgspec.Struct, frozen=True, tag=True):
    """Request to load a contract's reference; evaluations refer to it by this request's number."""

    number: int
    contract: Contract
    directory: str


class EvaluateReference(msgspec.Struct, frozen=True, tag=True):
    """Request to evaluate a loaded reference once or several times on the arrays that follow.

    Each of `calls` names the floating type to compute in, and the array of each argument. Calls may share arrays.
    """

    number: int
    loaded: int
    size: dict[str, int]
    calls: tuple[tuple[str | None, dict[str, str]], ...]
    arrays: Described


class MakeInputs(msgspec.Struct, frozen=True, tag=True):
    """Request to call the contract's `inputs` function."""

    number: int
    contract: Contract
    directory: str
    size: dict[str, int]
    seed: int


class TraceReference(msgspec.Struct, frozen=True, tag=True):
    """Request to trace the contract's reference."""

    number: int
    contract: Contract
    directory: str


class ReferenceLoaded(msgspec.Struct, frozen=True, tag=True):
    """Reply: the reference is loaded; `helpers` are modules that its file imported from its folder, by name."""

    number: int
    helpers: dict[str, str]


class ArraysMade(msgspec.Struct, frozen=True, tag=True):
    """Reply: the arrays that follow, each with dtype and shape.

    `helpers` as in `ReferenceLoaded`, for an `inputs` function.
    """

    number: int
    arrays: Described
    helpers: dict[str, str] = {}


class ReferenceTraced(msgspec.Struct, frozen=True, tag=True):
    """Reply: the graph of a reference, in the format of `kernelmate.synthesis.graph.Graph.text`."""

    number: int
    graph: str


class EvaluationFailed(msgspec.Struct, frozen=True, tag=True):
    """Reply: the reference raised an exception or its result does not match the contract.

    Its fields are those of `ReferenceFailed`.
    """

    number: int
    message: str
    file: str | None
    line: int | None
    column: int | None
    hint: str | None


class AllocationFailed(msgspec.Struct, frozen=True, tag=True):
    """Reply: an allocation failed."""

    number: int
    detail: str


Call: TypeAlias = tuple[Arrays, np.dtype[Any] | None]
"""One evaluation: the arguments' arrays, and the floating dtype to compute in; None is float64."""

Request: TypeAlias = LoadReference | EvaluateReference | MakeInputs | TraceReference
Answer: TypeAlias = ReferenceLoaded | ArraysMade | ReferenceTraced | EvaluationFailed | AllocationFailed
