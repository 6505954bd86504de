"""Traced arrays: replacements for a reference's arrays that record operations as a graph."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kernelmate.records import Size
from kernelmate.source import evaluate as evaluate_expression
from kernelmate.synthesis.graph import Datum, Graph, Node
from kernelmate.synthesis.sizes import Unequal, Untraceable, dim, product, text_of

if TYPE_CHECKING:
    from kernelmate.synthesis.loops import TracedLoop
    from kernelmate.synthesis.recurrences import Carried

REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}
_BITWISE = {"bitwise_xor": "xor", "bitwise_and": "and", "bitwise_or": "or"}


MOST_CONSTANTS = 64
"""Maximum number of elements of a constant array that is written as literals."""


class Builder:
    """Builder of a graph at one size; equal operations become one node.

    Attributes:
        carried: facts that earlier traces have found about each loop.
        operations: implementations of Python's and NumPy's protocols for arrays: `protocol.OPERATIONS`, which imports
            this module and is therefore passed in.
        instead: for each state, the node that replaces its value outside the loop, and the loop's number.
        repeats: True if loops of many iterations, whose number is fixed, are loops of the graph too.
        long_loops: the number of such loops that were met.
    """

    def __init__(
        self,
        size: Size,
        file: str,
        operations: Mapping[str, Callable[..., Any]],
        carried: dict[int, Carried] | None = None,
    ) -> None:
        self.size, self.file, self.operations = size, file, operations
        self.carried = {} if carried is None else carried
        self.instead: dict[int, tuple[int, int]] = {}
        self.nodes: list[Node] = []
        self.lines: list[int | None] = []
        self._known: dict[tuple[Node, tuple[TracedLoop, ...]], int] = {}
        self.open: list[TracedLoop] = []
        self.batches: dict[int, tuple[TracedLoop, ...]] = {}
        self.loop_count = 0
        self.repeats, self.long_loops = False, 0

    def add(
        self,
        op: str,
        args: Sequence[Array] = (),
        shape: Sequence[int] = (),
        dtype: Any = "float64",
        data: Sequence[Datum] = (),
    ) -> Array:
        """Adds an operation, and returns the traced array of its result."""
        if any(arg.loops for arg in args):
            made: Array = self.operations["batched"](self, op, args, shape, dtype, data)
            return made
        return self.put(op, [arg.node for arg in args], shape, dtype, data)

    def put(
        self,
        op: str,
        args: Sequence[int],
        shape: Sequence[int],
        dtype: Any,
        data: Sequence[Datum],
        loops: tuple[TracedLoop, ...] = (),
    ) -> Array:
        """Adds a node with all its axes; the first ones belong to open loops."""
        shapes = tuple(text_of(one) for one in shape)
        plain = tuple(math.nan if isinstance(one, float) and math.isnan(one) else one for one in data)
        node = Node(op, tuple(args), shapes, np.dtype(dtype).name, plain)
        if (node, loops) not in self._known:
            self._known[node, loops] = len(self.nodes)
            if loops:
                self.batches[len(self.nodes)] = loops
            self.nodes.append(node)
            self.lines.append(line_of(self.file))
        return Array(self, self._known[node, loops])

    def dim(self, text: str) -> int:
        """Returns the value of a size expression, with the expression attached."""
        return dim(int(evaluate_expression(text, self.size)), text, self.scalar)

    def scalar(self, text: str) -> Array:
        """Returns a size as a traced number."""
        return self.add("size", dtype="int64", data=(text,))

    def lift(self, value: Any) -> Array:
        """Converts a number or size to a traced array; a traced array is returned unchanged."""
        if isinstance(value, Array):
            return value
        if isinstance(value, int) and not isinstance(value, bool) and text_of(value) != str(int(value)):
            return self.scalar(text_of(value))
        if isinstance(value, list | tuple) and any(isinstance(one, Array) for one in value):
            made: Array = self.operations["stack"]([self.lift(one) for one in value])
            return made
        array = np.asarray(value)
        if array.dtype.kind not in "biuf" or array.size > MOST_CONSTANTS or (array.ndim and not array.size):
            raise Untraceable(f"a constant array of {array.size} elements" if array.ndim else repr(value)[:40])
        if array.ndim:
            return (
                self.operations["stack"]([self.lift(one) for one in array])
                if len(array) > 1
                else self.lift(array[0]).view_of([None, *range(array.ndim - 1)])
            )
        return self.add("constant", dtype=array.dtype, data=(array.item(),))

    def called(self, name: str, index: int) -> None:
        """Records the reference's name for a result, and for the array that the result is a view of."""
        node = self.nodes[index]
        self.nodes[index] = replace(node, name=name)
        below = self.nodes[node.args[0]] if node.op in ("view", "cast", "reshape") else None
        same = below is not None and ("float" in below.dtype) == ("float" in node.dtype)  # else it is rounded
        if below is not None and same and not below.name:
            self.called(name, node.args[0])

    def graph(self, outputs: Sequence[Array]) -> Graph:
        """Returns the graph of the outputs, without unneeded nodes."""
        order: dict[tuple[int, frozenset[int]], int] = {}
        kept: dict[Node, int] = {}

        def below(index: int, inside: frozenset[int]) -> tuple[list[tuple[int, frozenset[int]]], bool]:
            """Returns the operands of a node within some recurrences, and True if its only operand replaces it."""
            instead, number = self.instead.get(index, (index, -1))
            if instead != index and number not in inside:
                return [(instead, inside)], True
            node = self.nodes[index]
            within = inside | {int(node.data[0] or 0)} if node.op == "recur" else inside
            starts = len(node.args) // 2
            operands = [(arg, within if place >= starts else inside) for place, arg in enumerate(node.args)]
            return operands, node.op == "view" and node.data == tuple(range(len(self.nodes[node.args[0]].shape)))

        for output in outputs:
            if output.loops:
                raise Untraceable("a result of a loop's last iteration")
        keys = [(output.node, frozenset[int]()) for output in outputs]
        # Without recursion: a sum of hundreds of terms is as deep.
        stack = [(key, False) for key in reversed(keys)]
        while stack:
            key, done = stack.pop()
            if key in order:
                continue
            needed, same = below(*key)
            if not done:
                stack += [(key, True), *((one, False) for one in reversed(needed))]
                continue
            if same:
                order[key] = order[needed[0]]
            else:
                args, line = tuple(order[one] for one in needed), self.lines[key[0]] or 0
                node = replace(self.nodes[key[0]], args=args, line=line)
                order[key] = kept.setdefault(node, len(kept))
        return Graph(tuple(kept), tuple(order[key] for key in keys))

    def depends(self, index: int, number: int) -> bool:
        """Returns True if a value depends on a value that a loop carries between iterations."""
        stack, seen = [index], {index}
        while stack:
            node = self.nodes[stack.pop()]
            if node.op == "state" and node.data[0] == number:
                return True
            if node.op != "recur" or node.data[0] != number:
                stack += [arg for arg in node.args if arg not in seen]
                seen.update(node.args)
        return False


def line_of(file: str) -> int | None:
    """Returns the line of the reference's file that is being executed."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else frame.f_lineno


class Array(NDArrayOperatorsMixin):
    """A traced array: an index into the graph's nodes. An assignment to the array changes the index."""

    __array_priority__ = 1000
    adding: tuple[TracedLoop, ...] = ()

    def __init__(self, builder: Builder, node: int) -> None:
        self.builder, self._node = builder, node
        self.shared = False

    @property
    def node(self) -> int:
        """Index of the array's node in the graph.

        Raises:
            Untraceable: all iterations of an open loop add to the array (`adding`), so that a single iteration would
                read a partial sum.
        """
        if any(loop in self.builder.open for loop in self.adding):
            raise Untraceable("a loop over a size in which an iteration needs a value of another one")
        return self.recorded

    @property
    def recorded(self) -> int:
        """Index of the array's node, also if the array is a sum in progress; not for computing with it."""
        return self._node

    @property
    def whole(self) -> Array:
        """The array that this array is a part of; the array itself if it is not a part."""
        return self

    @property
    def loops(self) -> tuple[TracedLoop, ...]:
        """The open loops over whose iterations the array varies, outermost first.

        The node has an axis for each of them before the array's own axes.
        """
        return self.builder.batches.get(self.node, ())

    @property
    def shape(self) -> tuple[int, ...]:
        """The lengths of the axes, as sizes with their expressions."""
        node = self.node
        own = self.builder.nodes[node].shape[len(self.builder.batches.get(node, ())) :]
        return tuple(self.builder.dim(text) for text in own)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype, as in NumPy."""
        return np.dtype(self.builder.nodes[self.node].dtype)

    @property
    def ndim(self) -> int:
        """The number of axes, as in NumPy."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements, as a size with its expression."""
        return product(self.shape, self.builder.scalar)

    @property
    def T(self) -> Array:  # noqa: N802 -- NumPy's name
        """The array with its axes reversed."""
        return self.view_of(tuple(reversed(range(self.ndim))))

    def __len__(self) -> int:
        return int(self.shape[0])

    def __iter__(self) -> Any:
        if self.ndim and text_of(self.shape[0]) == str(len(self)) and len(self) <= MOST_CONSTANTS:
            return iter([self[place] for place in range(len(self))])
        if not self.ndim:
            raise Untraceable("a loop over a number")
        return self.builder.operations["iterate"](self)

    def __bool__(self) -> bool:
        raise Untraceable("a branch over a value")

    def __float__(self) -> float:
        raise Untraceable("a value taken out of an array as a Python number")

    __int__ = __index__ = __complex__ = item = tolist = __float__

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Untraceable("a function that needs the values of an array")

    def __getattr__(self, name: str) -> Any:
        """Returns an array method that is implemented as a NumPy function."""
        if name.startswith("_"):
            raise AttributeError(name)
        method = self.builder.operations["method"](name)
        if method is None:
            raise Untraceable(f"the array method {name}")
        return functools.partial(method, self)

    def __getitem__(self, key: Any) -> Any:
        return self.builder.operations["subscript"](self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        keys = key if isinstance(key, tuple) else (key,)
        if not all(one is Ellipsis or is_whole(one) for one in keys) or len(keys) > self.ndim + 1:
            self.builder.operations["assign"](self, key, value)
            return
        self.assign(self.builder.lift(value))

    def assign(self, value: Array) -> None:
        """Replaces the contents by another array's values, broadcast to this shape and cast to this dtype."""
        if self.shared:
            raise Untraceable("an assignment to an array that another one is a view of")
        value = self.builder.operations["broadcast"](value, self.shape)
        self._node = cast(value, self.dtype).node

    def view_of(self, axes: Sequence[int | None]) -> Array:
        """Returns a view with these axes of this array; None stands for a new axis of length 1."""
        shape = self.shape
        if list(axes) == list(range(self.ndim)):
            return self
        self.shared = True
        made = self.builder.add("view", [self], [1 if axis is None else shape[axis] for axis in axes], self.dtype, axes)
        made.shared = True
        return made

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        """Records a ufunc call as an operation of the graph."""
        if any(_comes_first(one) for one in inputs):
            return NotImplemented
        if method == "reduce":
            if ufunc is np.logaddexp:
                return self.builder.operations["logsumexp"](
                    inputs[0], axis=keywords.get("axis", 0), keepdims=keywords.get("keepdims", False)
                )
            kinds = REDUCTIONS | _BITWISE
            return self.builder.operations["reduce"](inputs[0], kinds.get(ufunc.__name__, ufunc.__name__), **keywords)
        if method in ("accumulate", "reduceat", "at"):
            return self.builder.operations[method](ufunc, *inputs, **keywords)
        if method == "outer" and not keywords and out is None:
            first, second = map(self.builder.lift, inputs)
            first = first.view_of((*range(first.ndim), *(None for _ in range(second.ndim))))
            return self.builder.operations["mapped"](self.builder, ufunc, (first, second))
        mask = keywords.pop("where", True)
        kept = {key: value for key, value in keywords.items() if key not in ("dtype", "casting", "order", "subok")}
        if method != "__call__" or kept:
            raise Untraceable(
                f"np.{ufunc.__name__}" + (f".{method}" if method != "__call__" else f" with {', '.join(kept)}")
            )
        if ufunc.__name__ == "logaddexp":
            result = self.builder.operations["logaddexp"](*inputs)
        elif ufunc.__name__ == "matmul":
            result = self.builder.operations["matmul"](*map(self.builder.lift, inputs))
        elif ufunc.__name__ == "vecdot":
            result = self.builder.operations["reduce"](inputs[0] * inputs[1], "sum", -1)
        else:
            result = self.builder.operations["mapped"](self.builder, ufunc, inputs)
        target = out[0] if isinstance(out, tuple) else out
        return self._into(target, f"np.{ufunc.__name__}", result, mask)

    def _into(self, target: Any, name: str, result: Any, mask: Any = True) -> Any:
        """Assigns a result to the array of `out`, if given, where the mask holds."""
        if target is None:
            if mask is not True:
                raise Untraceable(f"{name} with where and without out")
            return result
        if not isinstance(target, Array):
            raise Untraceable(f"{name} into an array that was not made by the reference's own np")
        target.assign(
            result if mask is True else self.builder.operations["where"](mask, result, Array(self.builder, target.node))
        )
        return target

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Records a NumPy function call as operations of the graph."""
        if any(getattr(one, "__array_priority__", 0) > self.__array_priority__ for one in types):
            return NotImplemented
        name = func.__name__
        function = self.builder.operations["function"](name)
        if function is None:
            raise Untraceable(f"np.{name}")
        target = kwargs.pop("out", None)
        return self._into(target, f"np.{name}", function(*args, **kwargs))


def is_whole(key: Any) -> bool:
    """Returns True if a key is a slice without bounds and step."""
    return isinstance(key, slice) and key.start is key.stop is key.step is None


def _comes_first(value: Any) -> bool:
    """Returns True if the other operand's class implements the operation, by its priority."""
    return (
        isinstance(value, NDArrayOperatorsMixin) and getattr(value, "__array_priority__", 0) > Array.__array_priority__
    )


def _in_place(name: str) -> Any:
    ufunc = getattr(np, name)

    def operate(self: Array, other: Any) -> Array:
        other = other.along(self) if _comes_first(other) and hasattr(other, "along") else other
        mapped = self.builder.operations["mapped"]
        if not self.builder.open or name not in ("add", "subtract", "multiply"):
            self.assign(mapped(self.builder, ufunc, (self, other)))
            return self
        total = self.builder.operations["accumulate_in_turns"](self, other, "prod" if name == "multiply" else "sum")
        whole, before = self.whole, self.whole.node
        self.assign(mapped(self.builder, ufunc, (self, total)))
        if total is not other:
            for loop in self.builder.open:
                loop.sums.append((whole, before, whole.node))
        return self

    return operate


for _sign, _name in {
    "iadd": "add",
    "isub": "subtract",
    "imul": "multiply",
    "itruediv": "divide",
    "ipow": "power",
}.items():
    setattr(Array, f"__{_sign}__", _in_place(_name))


def cast(array: Array, dtype: Any) -> Array:
    """Returns the array in another dtype."""
    wanted = np.dtype(dtype)
    if wanted == array.dtype:
        return array
    if wanted.kind not in "biuf":
        raise Untraceable(f"arrays of {wanted}")
    return array.builder.add("cast", [array], array.shape, wanted)


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Returns the broadcast shape by NumPy's rules, if it does not depend on the sizes.

    Raises:
        Untraceable: the shape depends on the sizes, or the shapes are incompatible.
    """
    rank = max(map(len, shapes), default=0)
    result: list[int] = []
    for axis in range(-rank, 0):
        sides = [shape[axis] for shape in shapes if len(shape) >= -axis]
        wide = [side for side in sides if text_of(side) != "1"]
        if any(int(side) != int(wide[0]) for side in wide):
            refused = len({int(side) for side in wide} - {1}) > 1
            raise (Unequal if refused else Untraceable)(
                f"arrays of {' and '.join(dict.fromkeys(text_of(side) for side in wide))} elements together"
            )
        result.append(wide[0] if wide else 1)
    return tuple(result)
