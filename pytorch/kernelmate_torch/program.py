"""Records of an exported module, as the module's process sends them: nodes, tensors and where they come from.

A dimension is a whole number, or the text of an expression over symbols ("s0", "s0 - 2") where the module takes any
number. `small_sizes` are those at which a ported module is compared with the old one.
"""

from __future__ import annotations

import re
from typing import Any, Literal, TypeAlias

import msgspec

Dim: TypeAlias = int | str
"""A dimension's number, or an expression over the program's symbols."""

SYMBOL = re.compile(r"[A-Za-z_]\w*\b(?!\()")
"""A symbol in the text of a dimension; `max(` and `min(` are functions."""

NodeKind: TypeAlias = Literal["input", "parameter", "buffer", "constant", "call"]


class TensorSpec(msgspec.Struct, frozen=True):
    """Shape and dtype (NumPy's name) of a tensor."""

    shape: tuple[Dim, ...]
    dtype: str


class GraphNode(msgspec.Struct, frozen=True):
    """A value of the program.

    Attributes:
        name: unique, a Python identifier.
        kind: where it comes from.
        target: the operator ("aten.linear.default"); for parameters and buffers the attribute path ("fc.weight").
        args: positional arguments: numbers, texts, lists, `{"node": name}` for values and `{"size": expression}`.
        kwargs: keyword arguments, likewise.
        tensor: its shape and dtype; None for what is not a single tensor.
        line: line of the module's file that computes it; 0 if unknown.
        literal: for a constant of at most 64 elements, its numbers as nested lists.
    """

    name: str
    kind: NodeKind
    target: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    tensor: TensorSpec | None = None
    line: int = 0
    literal: Any = None

    @property
    def uses(self) -> list[str]:
        """Returns the names of the values among its arguments."""
        return nodes_in([*self.args, *self.kwargs.values()])


class ModelProgram(msgspec.Struct, frozen=True):
    """An exported module.

    Attributes:
        nodes: in order of execution.
        outputs: names of the tensors that it returns; of a backward graph, None for a gradient that there is not.
        symbols: the number that each symbol, and each expression over them, had in the example inputs.
        inputs: texts of what forward is given, in order: `x`, `state[0]`, `batch['x']`.
        returned: what it returns, as arguments of operations are: `{"tuple": [...]}`, `{"list": [...]}`, `{"dict": [[key, one], ...]}` and
            `{"call": name of a class, "items": [...]}` for what is nested.
        parameters: text of forward's parameter list.
        passed: text of the arguments by which a call is passed on.
        containers: inputs that are nested, with the texts of their keys, or their length.
        fixed: inputs that are not tensors, with their values' text: the program is valid only for these values.
        written: for a buffer that forward changes, its attribute path and the node with its new value.
        same_in_training: True if training mode computes the same.
        smaller: numbers of the module's file that were made smaller, so that its example inputs fit into memory.
        notes: remarks for the user.
        starts: nodes with which a new part has to begin, since what is before them computes something else.
    """

    nodes: tuple[GraphNode, ...]
    outputs: tuple[str | None, ...]
    symbols: dict[str, int]
    inputs: tuple[str, ...]
    returned: Any = None
    parameters: str = ""
    passed: str = ""
    containers: dict[str, tuple[str, ...] | int] = {}
    fixed: dict[str, str] = {}
    written: dict[str, str] = {}
    same_in_training: bool = True
    smaller: dict[str, int | tuple[int, ...]] = {}
    notes: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()

    @property
    def arguments(self) -> set[str]:
        """Returns the names of forward's parameters."""
        return set(re.findall(r"[A-Za-z_]\w*", self.passed))

    def node(self, name: str) -> GraphNode:
        """Returns the node of a name."""
        return next(one for one in self.nodes if one.name == name)


class ModuleFailure(msgspec.Struct, frozen=True):
    """Reason why a request to the module's process failed; `kind` is `input` or `environment`."""

    message: str
    file: str | None = None
    line: int | None = None
    hint: str | None = None
    kind: Literal["input", "environment"] = "input"


class PartToCheck(msgspec.Struct, frozen=True):
    """A function of a reference file, and the nodes that it takes and returns, in order."""

    function: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


class PartToTime(msgspec.Struct, frozen=True):
    """A part that has a kernel, to be timed beside PyTorch's own operations on a GPU.

    Attributes:
        kernel: path of the kernel's file.
        inputs: nodes that it takes, in order.
        outputs: nodes that it returns, in order.
        shapes: shape of each input at which both are timed.
        device: number of the GPU.
    """

    kernel: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    device: int = 0


class PartTimes(msgspec.Struct, frozen=True):
    """Microseconds of one call of a part from Python, with inputs that are not in L2: medians of the blocks.

    Attributes:
        eager_us: PyTorch's operations, one after the other; None where they could not be timed.
        kernel_us: the kernel's operator; None likewise.
        why: why there are no times.
    """

    eager_us: float | None = None
    kernel_us: float | None = None
    why: str = ""


class NamedValue(msgspec.Struct, frozen=True):
    """A node of a program, and the name that a part's text has for it."""

    node: str
    name: str


class PartToDifferentiate(msgspec.Struct, frozen=True):
    """A part whose gradients are asked for: what it takes and what it returns, in order, with the names of its text."""

    inputs: tuple[NamedValue, ...]
    outputs: tuple[NamedValue, ...]


class DerivedGraph(msgspec.Struct, frozen=True):
    """The backward graph of a part.

    Attributes:
        number: by which the module's process knows it.
        program: its description. Its inputs are `saved` and `into`, in order; its outputs the gradients of the part's inputs,
            None where there is none.
        saved: what it reads of the part's inputs and results: the node of the forward program, and the input's name.
        into: the same for the gradients of results.
    """

    number: int
    program: ModelProgram
    saved: tuple[NamedValue, ...]
    into: tuple[NamedValue, ...]


class Agreement(msgspec.Struct, frozen=True):
    """Comparison of what was ported with the module in float64.

    Attributes:
        compared: number of comparisons, each of one seed, distribution and size.
        deviation: the largest difference, relative to the largest magnitude of the tensor.
        wrong: description of the first disagreement; empty if there is none.
    """

    compared: int
    deviation: float
    wrong: str = ""


def nodes_in(value: Any) -> list[str]:
    """Returns the names of the values that an argument, or nested arguments, refer to."""
    if isinstance(value, dict):
        return [value["node"]] if "node" in value else [name for one in value.values() for name in nodes_in(one)]
    if isinstance(value, list | tuple):
        return [name for one in value for name in nodes_in(one)]
    return []


def sizes_in(value: Any) -> list[str]:
    """Returns the symbols of sizes that an argument, or nested arguments, contain."""
    if isinstance(value, dict):
        return SYMBOL.findall(value["size"]) if "size" in value else []
    if isinstance(value, list | tuple):
        return [name for one in value for name in sizes_in(one)]
    return []


SMALL = (3, 5, 9, 7, 11, 6)
"""Values of free sizes besides those of the example, as far as they are smaller."""


def small_sizes(program: ModelProgram) -> dict[str, int]:
    """Returns small numbers for the program's symbols.

    With inputs of whole numbers, which may be indices, only the first axis of each input is small: the others bound values.
    """
    inputs = [one.tensor for one in program.nodes if one.kind == "input" and one.tensor is not None]
    first = {one.shape[0] for one in inputs if one.shape}
    indexed = any("float" not in one.dtype for one in inputs)
    symbols = [name for name in program.symbols if name.isidentifier()]
    return {
        name: program.symbols[name] if indexed and name not in first else min(SMALL[place % len(SMALL)], program.symbols[name])
        for place, name in enumerate(symbols)
    }  # fmt: skip


def sizes_to_try(program: ModelProgram, *, largest: int) -> list[dict[str, int]]:
    """Returns numbers for the program's symbols: small ones, and those of the example, the free ones up to `largest`."""
    small = small_sizes(program)
    limited = {name: max(small[name], min(program.symbols[name], largest)) for name in small}
    return [small] if limited == small else [small, limited]
