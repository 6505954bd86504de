"""Operations that implement Python's and NumPy's protocols for traced arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kernelmate.synthesis.arrays import Array
from kernelmate.synthesis.composed import COMPOSED, logaddexp, logsumexp
from kernelmate.synthesis.functions import FUNCTIONS, METHODS, matmul
from kernelmate.synthesis.indexed import Segments, accumulated, added_at, reduced_at
from kernelmate.synthesis.joining import stack
from kernelmate.synthesis.loop_subscripts import accumulated as accumulated_in_turns
from kernelmate.synthesis.loops import batched, over
from kernelmate.synthesis.primitives import broadcast_to, reduced, where
from kernelmate.synthesis.ragged import CsrRows
from kernelmate.synthesis.subscripts import assigned, subscript
from kernelmate.synthesis.tables import TABLES


def function_named(name: str) -> Callable[..., Any] | None:
    """Returns a traced function of NumPy by name; None if it is not supported."""
    return FUNCTIONS.get(name) or COMPOSED.get(name) or TABLES.get(name)


def element(a: Array, key: Any) -> Any:
    """Returns the elements of an array that a key selects."""
    if isinstance(key, Segments):
        return key.of(a)
    return key.taken_from(a) if isinstance(key, CsrRows) else subscript(a, key)


OPERATIONS: Mapping[str, Callable[..., Any]] = {
    "method": METHODS.get, "function": function_named, "subscript": element, "assign": assigned, "iterate": over,
    "batched": batched, "stack": stack, "broadcast": broadcast_to, "where": where, "reduce": reduced, "accumulate": accumulated,
    "at": added_at, "reduceat": reduced_at, "matmul": matmul, "logaddexp": logaddexp, "logsumexp": logsumexp,
    "accumulate_in_turns": accumulated_in_turns,
}  # fmt: skip
"""Operations by the names under which `arrays` calls them."""
