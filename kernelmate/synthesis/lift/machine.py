"""Symbolic evaluation of expressions for one thread: its names, memory and guards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernelmate.records import Contract, Kernel
from kernelmate.synthesis.lift.arithmetic import (
    ATOMICS,
    FUNCTIONS,
    INTEGERS,
    KINDS,
    NUMBERS,
    ROUNDED,
    SAME,
    binary,
    composed,
    constant,
    converted,
    kind_of,
    truth,
)
from kernelmate.synthesis.lift.file import ArrayStore, LaunchedKernel, LocalArray, Node, Pointer, parsed
from kernelmate.synthesis.lift.polynomials import NotLifted, Poly
from kernelmate.synthesis.lift.sharing import SharedArray, Write
from kernelmate.synthesis.lift.values import (
    ArrayLoad,
    Index,
    Number,
    Op,
    Sizes,
    Spread,
    hinted,
    negation,
    operation,
    to_poly,
)

_AXES = {"x": 0, "y": 1, "z": 2}


LARGEST = 2000
"""Maximum number of operations and operands of a value."""


class ThreadMachine(LaunchedKernel, ABC):
    """Evaluates expressions of a kernel symbolically for an arbitrary thread."""

    def __init__(self, kernel: Kernel, contract: Contract) -> None:
        super().__init__(kernel, contract)
        self.sizes = Sizes()

    @abstractmethod
    def called(self, function: Node, given: Sequence[Node]) -> Any:
        """Returns the value of a call to a function of the file; None for a void function."""

    # ------------------------------------------------------------------------------------------------ expressions

    def value(self, node: Node) -> Any:
        """Returns the value of an expression, or a pointer.

        Raises:
            NotLifted: the expression is not supported; the error has its line.
        """
        try:
            reader = getattr(self, f"_{node.type}", None)
            if reader is None:
                raise NotLifted(f"`{self.text(node)[:60]}` is not read")
            return reader(node)
        except NotLifted as reason:
            if reason.line is None:
                reason.line = self.line(node)
            raise

    def number(self, node: Node) -> Any:
        """Returns the value of an expression.

        Raises:
            NotLifted: the value is an address.
        """
        found = self.value(node)
        if isinstance(found, Pointer | LocalArray | SharedArray):
            raise NotLifted(f"`{self.text(node)[:60]}` is an address where a value is read", self.line(node))
        return found

    def condition(self, node: Node) -> Any:
        """Returns the value of an expression as a condition."""
        found = self.plain(self.number(node))
        return truth(found, self.space)

    def plain(self, value: Any) -> Any:
        """Returns a value in which values exchanged between threads are replaced by expressions."""
        return self.block.resolved(value, self.state.path) if isinstance(value, Spread) else value

    def combined(self, sign: str, first: Any, second: Any) -> Any:
        """Applies a binary operator, also to values exchanged between threads."""
        if isinstance(first, Spread) or isinstance(second, Spread):
            name = {"+": "add", "*": "multiply"}.get(sign)
            found = None if name is None else self.block.combined(name, first, second)
            if found is not None:
                return found
        return binary(sign, self.plain(first), self.plain(second), self.space)

    def _number_literal(self, node: Node) -> Any:
        text = self.text(node).replace("'", "").lower()
        if text.startswith("0x") or not any(one in text for one in ".ef"):
            return constant(int(text.rstrip("ul"), 0))
        return Number(float(text.rstrip("fl")), single=text.endswith("f"))

    def _true(self, _: Node) -> Any:
        return constant(1)

    def _false(self, _: Node) -> Any:
        return constant(0)

    def _char_literal(self, node: Node) -> Any:
        raise NotLifted("a character")

    def _identifier(self, node: Node) -> Any:
        name = self.text(node)
        if name in self.state.names:
            found = self.state.names[name]
            if found is None:
                raise NotLifted(f"`{name}` is used where it may have no value")
            if isinstance(found, SharedArray) and not found.sides:
                return self.sharing.read(found, (), self.state.path, self.state.epoch, self.state.loops)
            return found
        if name in self.constants:
            value = self.constants[name]
            if value.type == "preproc_arg":
                return self._macro(name, self.text(value))
            return self.value(value)
        if name in INTEGERS:
            return constant(INTEGERS[name])
        if name in NUMBERS:
            return Number(NUMBERS[name])
        raise NotLifted(f"`{name}` is not known")

    def _qualified_identifier(self, node: Node) -> Any:
        name = node.child_by_field_name("name")
        value = self.constants.get(self.text(name))
        if value is None:
            raise NotLifted(f"`{self.text(node)}` is not known")
        return self.value(value)

    def _macro(self, name: str, text: str) -> Any:
        data, root = parsed(f"int x = {text};")
        outer, self.data = self.data, data
        try:
            found = self.walk(root, "init_declarator")
            value = found[0].child_by_field_name("value") if found else None
            if value is None or root.has_error:
                raise NotLifted(f"the macro `{name}` is not read")
            return self.value(value)
        finally:
            self.data = outer

    def _field_expression(self, node: Node) -> Any:
        base, axis = self.text(node.child_by_field_name("argument")), self.text(node.child_by_field_name("field"))
        if axis in _AXES:
            place = _AXES[axis]
            if base == "threadIdx":
                return Index((self.block.x, self.block.y, self.block.z)[place])
            if base == "blockIdx":
                lone = self.grid[place].constant == 1
                return Index(Poly.number(0) if lone else Poly.name(f"%b{axis}"))
            if base == "blockDim":
                return constant(self.block.sides[place])
            if base == "gridDim":
                return Index(self.grid[place])
        raise NotLifted(f"`{self.text(node)[:60]}`: vectors and structures are not read")

    def _parenthesized_expression(self, node: Node) -> Any:
        return self.value(node.named_children[0])

    def _binary_expression(self, node: Node) -> Any:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign = self.text(node.child_by_field_name("operator"))
        assert left is not None and right is not None  # noqa: PT018 -- the grammar has both
        first, second = self.value(left), self.value(right)
        if isinstance(first, Pointer) or isinstance(second, Pointer):
            pointer, other = (first, second) if isinstance(first, Pointer) else (second, first)
            if sign not in "+-" or isinstance(other, Pointer) or (sign == "-" and pointer is second):
                raise NotLifted("arithmetic on addresses that is not read")
            by = to_poly(self.plain(other))
            return replace(pointer, at=pointer.at + by if sign == "+" else pointer.at - by)
        return self.combined(sign, first, second)

    def _unary_expression(self, node: Node) -> Any:
        inner = node.child_by_field_name("argument")
        sign = self.text(node.child_by_field_name("operator"))
        assert inner is not None
        value = self.plain(self.number(inner))
        if sign == "-":
            if isinstance(value, Index):
                return Index(-value.poly)
            return (
                replace(value, value=-value.value)
                if isinstance(value, Number)
                else Op("negative", (value,), value.kind)
            )
        if sign == "!":
            return negation(truth(value, self.space))
        if sign == "~":
            return Op(
                "invert",
                (converted(value, "int32", self.space) if value.kind in ("uint8", "int8") else value,),
                value.kind,
            )
        return value

    def _pointer_expression(self, node: Node) -> Any:
        inner = node.child_by_field_name("argument")
        assert inner is not None
        if self.text(node).startswith("&"):
            return self.place(inner)
        pointer = self.value(inner)
        if not isinstance(pointer, Pointer):
            raise NotLifted(f"`{self.text(node)[:60]}` is not read")
        return self._load(pointer, node)

    def _conditional_expression(self, node: Node) -> Any:
        condition = node.child_by_field_name("condition")
        first, second = node.child_by_field_name("consequence"), node.child_by_field_name("alternative")
        assert condition is not None and first is not None and second is not None  # noqa: PT018 -- the grammar has them
        asked = self.condition(condition)
        before = self.state.path
        self.state.path = (*before, asked)
        one = self.number(first)
        self.state.path = (*before, negation(asked))
        other = self.number(second)
        self.state.path = before
        return self.chosen(asked, one, other)

    def chosen(self, condition: Any, first: Any, second: Any) -> Any:
        """Returns the value of `condition ? first : second`."""
        if first == second:
            return first
        if isinstance(first, Spread) or isinstance(second, Spread):
            found = self.block.chosen(condition, first, second)
            if found is not None:
                return found
            first, second = self.plain(first), self.plain(second)
        kind = "float" if "float" in (first.kind, second.kind) else max(first.kind, second.kind, key=len)
        if kind == "float":
            first, second = (converted(one, "float", self.space) for one in (first, second))
        return operation("select", (condition, first, second), kind, self.space)

    def _cast_expression(self, node: Node) -> Any:
        kind, inner = self.text(node.child_by_field_name("type")), node.child_by_field_name("value")
        assert inner is not None
        return self._converted(kind, inner)

    def _converted(self, type_text: str, inner: Node) -> Any:
        if "*" in type_text:
            raise NotLifted("an address of another type")
        return converted(self.plain(self.number(inner)), kind_of(type_text), self.space)

    def _subscript_expression(self, node: Node) -> Any:
        if self.text(node) in self.state.kept:
            return self.state.names[self.state.kept[self.text(node)]]
        place = self.place(node)
        if isinstance(place, Pointer):
            return self._load(place, node)
        array, at = place if isinstance(place, tuple) else (None, ())
        if isinstance(array, SharedArray):
            if len(at) < len(array.sides):
                raise NotLifted(f"a row of {array.name} as a pointer")
            return self.sharing.read(array, at, self.state.path, self.state.epoch, self.state.loops)
        found = array.values[array.position(at)]
        if found is None:
            raise NotLifted("an element of a thread's own array is read before it is set")
        return found

    def place(self, node: Node) -> Any:
        """Returns the target of an element expression: a pointer into an argument, or another array with an index."""
        if node.type == "parenthesized_expression":
            return self.place(node.named_children[0])
        if node.type == "identifier":
            found = self.state.names.get(self.text(node))
            if isinstance(found, SharedArray):
                return found, (Poly.number(0),) * len(found.sides)
            raise NotLifted(f"the address of `{self.text(node)}`", self.line(node))
        if node.type == "pointer_expression":
            found = self.value(node.child_by_field_name("argument"))  # type: ignore[arg-type]
            if isinstance(found, Pointer):
                return found
        if node.type != "subscript_expression":
            raise NotLifted(f"`{self.text(node)[:60]}` is not read", self.line(node))
        indices = node.child_by_field_name("indices")
        base = node.child_by_field_name("argument")
        assert indices is not None and base is not None  # noqa: PT018 -- the grammar has both
        at = to_poly(self.plain(self.number(indices.named_children[0])))
        found = self.place(base) if base.type == "subscript_expression" else self.value(base)
        if isinstance(found, Pointer):
            return replace(found, at=found.at + at)
        if isinstance(found, tuple):
            return found[0], (*found[1], at)
        if isinstance(found, SharedArray | LocalArray):
            return found, (at,)
        raise NotLifted(f"`{self.text(node)[:60]}` is not read", self.line(node))

    def _load(self, pointer: Pointer, node: Node) -> Any:
        from kernelmate.synthesis.lift.memory import stored

        found = stored(self.state, pointer, self.space, self.line(node))
        if found is not None:
            return found
        self.state.loads.append((pointer.array, pointer.at, self.state.epoch, self.state.loops))
        return ArrayLoad(pointer.array, pointer.at, pointer.kind)

    # -------------------------------------------------------------------------------------------------------- calls

    def _call_expression(self, node: Node) -> Any:
        called, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
        assert called is not None and arguments is not None  # noqa: PT018 -- the grammar has both
        name = self.text(called).removeprefix("std::").removeprefix("::")
        given = list(arguments.named_children)
        if called.type == "template_function" and name.startswith(("static_cast", "reinterpret_cast")):
            return self._converted(self.text(called)[self.text(called).index("<") + 1 : -1], given[0])
        if name in KINDS and len(given) == 1:
            return self._converted(name, given[0])
        if name.startswith("__shfl"):
            return self._shuffle(name, given)
        if name in ATOMICS:
            raise NotLifted("the value that an atomic operation returns")
        if name in self.functions:
            return self.called(self.functions[name], given)
        values = [self.number(one) for one in given]
        return self._function(name, values)

    def _function(self, name: str, values: list[Any]) -> Any:
        meant = FUNCTIONS.get(name)
        if (
            meant in ("fmax", "fmin", "max", "min")
            and len(values) == 2
            and any(isinstance(one, Spread) for one in values)
        ):
            found = self.block.combined({"max": "fmax", "min": "fmin"}.get(meant, meant), values[0], values[1])
            if found is not None:
                return found
        values = [self.plain(one) for one in values]
        if name in SAME:
            return converted(values[0], "float", self.space) if "2" in name else values[0]
        if name in ROUNDED:
            kind = "uint32" if "uint" in name else "int32"
            return Op("cast", (Op(ROUNDED[name], (values[0],)),), kind)
        if meant is None:
            raise NotLifted(f"the function `{name}` is not known")
        return composed(meant, values, self.space)

    def _shuffle(self, name: str, given: list[Node]) -> Any:
        if len(given) != 3 and not (len(given) == 4 and self.plain(self.number(given[3])) == constant(32)):
            raise NotLifted("a shuffle within a part of a warp")
        value, by = self.number(given[1]), self.plain(self.number(given[2]))
        amounts = self.block.integers(to_poly(by)) if isinstance(by, Index) else None
        if amounts is None:
            raise NotLifted("a shuffle by an unknown amount")
        lanes = self.block.integers(self.block.x) % 32
        sources = {"__shfl_sync": amounts, "__shfl_down_sync": lanes + amounts, "__shfl_up_sync": lanes - amounts, "__shfl_xor_sync": lanes ^ amounts}.get(name)  # fmt: skip
        if sources is None or self.block.sides[1:] != (1, 1):
            raise NotLifted(f"the function `{name}`")
        return self.block.shuffled(value, sources, self.state.path)

    # -------------------------------------------------------------------------------------------------- assignments

    def set_place(self, node: Node, value: Any, op: str = "") -> None:
        """Assigns to the target of an expression; with `op`, combines atomically."""
        if node.type == "identifier":
            self._set_name(self.text(node), value)
            return
        if self.text(node) in self.state.kept:
            self.state.names[self.state.kept[self.text(node)]] = value
            return
        found = self.place(node)
        self.set_at(found, value, op, node)

    def set_at(self, found: Any, value: Any, op: str, node: Node) -> None:
        """Assigns a value to a target that `place` returned."""
        self._limit(value, self.text(node)[:40])
        if isinstance(found, Pointer):
            value = self.plain(value)
            self.state.stores.append(
                ArrayStore(
                    found.array,
                    found.at,
                    value,
                    self.state.path,
                    self.state.loops,
                    self.line(node),
                    self.state.epoch,
                    op,
                )
            )
            return
        if not isinstance(found, tuple):
            raise NotLifted("an assignment to something that is not a known element", self.line(node))
        array, at = found
        if isinstance(array, SharedArray):
            self.sharing.write(array, Write(at, value, self.state.path, self.state.epoch, self.state.loops, op))
            return
        position = array.position(at)
        values = (*array.values[:position], self.plain(value), *array.values[position + 1 :])
        name = next(key for key, held in self.state.names.items() if held is array)
        self.state.names[name] = replace(array, values=values)

    def _limit(self, value: Any, what: str) -> None:
        if self.sizes.of(value) > LARGEST:
            raise NotLifted(f"the expression of `{what}` is too large")

    def _set_name(self, name: str, value: Any) -> None:
        self._limit(value, name)
        before = self.state.names.get(name)
        if isinstance(before, SharedArray):
            self.sharing.write(before, Write((), value, self.state.path, self.state.epoch, self.state.loops))
            return
        self.state.names[name] = hinted(value, name)
