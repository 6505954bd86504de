"""Reads a kernel's launch from Python code: grid, block, shared bytes, sizes, scalars and arrays, each with its line."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from kernelmate.records import Kernel
from kernelmate.source.expressions import names_in
from kernelmate.source.host_arrays import HostArray
from kernelmate.source.host_code import Untranslatable
from kernelmate.source.infer_host import HostFacts, whole_number
from kernelmate.source.python import PythonFile
from kernelmate.source.python_launches import PythonLaunch, PythonReader, find_python_launches
from kernelmate.source.tidying import tidied

_MADE = {
    "empty": False,
    "zeros": True,
    "ones": True,
    "full": True,
    "empty_like": False,
    "zeros_like": True,
    "ones_like": True,
}
_COPIED = frozenset(["array", "asarray", "ascontiguousarray", "astype", "copy"])
_READING = frozenset(
    [
        "all",
        "any",
        "asnumpy",
        "astype",
        "copy",
        "get",
        "item",
        "len",
        "max",
        "mean",
        "min",
        "print",
        "ravel",
        "reshape",
        "sum",
    ]
)
"""Functions and methods that write no element of an array; elements of what they give may be its own."""

_DEEPEST = 6


def python_facts(kernel: Kernel, extents: Sequence[str]) -> Iterator[HostFacts]:
    """Yields the facts that each call of a kernel of a Python file shows, in order.

    Args:
        kernel: the kernel.
        extents: its parameters that are sizes by type and name.
    """
    file, launches = find_python_launches(kernel.unit, kernel.name)
    for launch in launches:
        yield _CallReader(kernel, extents, file, launch).facts()


class _CallReader:
    """Reads one call."""

    def __init__(self, kernel: Kernel, extents: Sequence[str], file: PythonFile, launch: PythonLaunch) -> None:
        self.kernel, self.extents, self.file, self.launch = kernel, extents, file, launch
        self.found = HostFacts()
        pairs = zip(kernel.signature.parameters, launch.nodes, strict=False)
        self.passed = {parameter.name: node for parameter, node in pairs}

    def facts(self) -> HostFacts:
        """Returns all that is found."""
        where = f"line {self.launch.line}"
        for name in self.extents:
            names = self._names([one for one in self.extents if one != name and one not in self.found.derived])
            value = self._tried(self.passed.get(name), names)
            if value is not None and any(one in set(names.values()) for one, _ in names_in(value)):
                self.found.derived[name] = tidied(value)
                self.found.origins[name] = where
        names = self._names([one for one in self.extents if one not in self.found.derived])
        self._shape(names, where)
        self._numbers(names, where)
        for parameter in self.kernel.signature.parameters:
            node = self.passed.get(parameter.name)
            if parameter.pointer and node is not None:
                self.found.arrays[parameter.name] = self._array(node, names, parameter.name)
        return self.found

    def _names(self, extents: Sequence[str]) -> dict[str, str]:
        names: dict[str, str] = {}
        twice = set()
        for name in extents:
            node = self.passed.get(name)
            if node is None or isinstance(node, ast.Constant):
                continue
            for one in (node, *self._values(node), *self._sides_of(node)):
                written = self.file.written(one) if one is not None and hasattr(one, "end_lineno") else ""
                if written and not isinstance(one, ast.Constant):
                    twice |= {written} if names.get(written, name) != name else set()
                    names[written] = name
        return {written: name for written, name in names.items() if written not in twice}

    def _values(self, node: ast.expr) -> list[ast.expr]:
        values = self.file.values(node) if isinstance(node, ast.Name) else []
        return values if len(values) == 1 and values[0] is not node and not isinstance(values[0], ast.Name) else []

    def _reader(self, names: Mapping[str, str]) -> PythonReader:
        return PythonReader(self.file, names, self._side)

    def _tried(self, node: ast.expr | None, names: Mapping[str, str]) -> str | None:
        try:
            return None if node is None else self._reader(names).expression(node)
        except Untranslatable:
            return None

    def _shape(self, names: Mapping[str, str], where: str) -> None:
        reader = self._reader(names)
        try:
            self.found.block = reader.sides(self.launch.block)
            self.found.origins["block"] = where
        except Untranslatable:
            pass
        block = self.found.block
        threads = int(block[0]) if len(block) == 1 and block[0].isdigit() else None
        try:
            one_block = self.launch.pycuda and self.launch.grid is None
            grid = ("1",) if one_block else reader.sides(self.launch.grid)
            self.found.grid = tuple(tidied(side, threads) for side in grid)
            shared = "0" if self.launch.shared is None else reader.expression(self.launch.shared)
            self.found.shared = tidied(shared, threads)
            self.found.origins |= {"grid": where, "shared": where}
        except Untranslatable:
            self.found.grid = ()

    def _numbers(self, names: Mapping[str, str], where: str) -> None:
        for parameter in self.kernel.signature.parameters:
            name, node = parameter.name, self.passed.get(parameter.name)
            if parameter.pointer or node is None or name in self.found.derived:
                continue
            if name in self.extents:
                value = self._tried(node, {})
                number = None if value is None else whole_number(value)
                if number is not None and number > 0:
                    self.found.values[name] = number
                    self.found.origins["sizes"] = where
                continue
            followed = next(iter(self._values(node)), node)
            if isinstance(followed, ast.Constant) and isinstance(followed.value, int | float):
                constant = followed.value
                self.found.scalars[name] = repr(constant) if isinstance(constant, float) else str(int(constant))
                self.found.origins[name] = where
            elif (value := self._tried(node, names)) is not None:
                self.found.scalars[name] = tidied(value)
                self.found.origins[name] = where

    # ------------------------------------------------------------------------------------------------------ arrays

    def _array(self, node: ast.expr, names: Mapping[str, str], parameter: str) -> HostArray:
        call = self._call(node, 0)
        if call is None:
            return HostArray()
        made = _function(call)
        found = HostArray(filled=_MADE.get(made, True), zeros=made.startswith("zeros"))
        if isinstance(node, ast.Name) and self._is_changed(node.id, call):
            found.filled, found.zeros = None, False
        found.shape = self._sides(call, names)
        self.found.origins[parameter] = f"line {call.lineno}"
        return found

    def _is_changed(self, name: str, made: ast.Call) -> bool:
        """Returns True if elements of an array may be written between the call that makes it and the launch."""
        first = made.end_lineno or made.lineno
        uses = [node for node in self.file.nodes if isinstance(node, ast.Name) and node.id == name]
        return any(first < use.lineno < self.launch.line and self._may_write(use) for use in uses)

    def _may_write(self, node: ast.expr) -> bool:
        """Returns True where an array's elements, or those of a view of it, are assigned or passed to a function that is not known."""
        parent = self.file.parents[node]
        while isinstance(parent, ast.Attribute | ast.Subscript) and parent.value is node:
            if not isinstance(parent.ctx, ast.Load):
                return True
            node, parent = parent, self.file.parents[parent]
            if isinstance(parent, ast.Call) and parent.func is node:
                if _function(parent) not in _READING:
                    return True
                node, parent = parent, self.file.parents[parent]
        while isinstance(parent, ast.Tuple | ast.List | ast.Starred | ast.keyword):
            parent = self.file.parents[parent]
        return isinstance(parent, ast.Call) and _function(parent) not in _READING

    def _call(self, node: ast.expr, depth: int) -> ast.Call | None:
        """Returns the call that makes an array."""
        if isinstance(node, ast.Call):
            made = _function(node)
            if made in _MADE or made in ("random", "rand", "randn", "arange", "normal", "uniform", "randint", *_COPIED):
                return node
        followed = self._values(node)
        return self._call(followed[0], depth + 1) if followed and depth < _DEEPEST else None

    def _sides(self, call: ast.Call, names: Mapping[str, str]) -> tuple[str, ...] | None:
        texts = [self._tried(side, names) for side in self._listed(call, 0)]
        return tuple(tidied(str(text)) for text in texts) if texts and all(texts) else None

    def _listed(self, call: ast.Call, depth: int) -> list[ast.expr]:
        """Returns the sides of the array that a call creates; empty if they are not known."""
        made = _function(call)
        first = call.args[0] if call.args else None
        if depth > _DEEPEST:
            return []
        if made in ("empty", "zeros", "ones", "full") and first is not None:
            return _elements(first)
        if made in ("rand", "randn") or (made == "arange" and len(call.args) == 1):
            return list(call.args)
        if made in ("random", "normal", "uniform", "randint"):
            size = next((word.value for word in call.keywords if word.arg == "size"), None)
            return _elements(size or call.args[-1]) if size is not None or call.args else []
        inner = first if made.endswith("_like") or made in ("array", "asarray", "ascontiguousarray") else None
        if inner is None and isinstance(call.func, ast.Attribute):
            inner = call.func.value
        other = self._call(inner, depth + 1) if inner is not None else None
        return self._listed(other, depth + 1) if other is not None else []

    def _side(self, node: ast.expr, names: Mapping[str, str]) -> str | None:
        """Returns the contract expression of `x.size` or `x.shape[0]`; None if the array's sides are not known."""
        texts = [self._tried(side, names) for side in self._sides_of(node)]
        if not texts or not all(texts):
            return None
        return f"({' * '.join(f'({text})' for text in texts)})"

    def _sides_of(self, node: ast.expr) -> list[ast.expr]:
        """Returns the sides whose product is `x.size`, or the side that is `x.shape[0]`."""
        axis = None
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            axis, node = node.slice.value, node.value
        if not isinstance(node, ast.Attribute) or node.attr != ("size" if axis is None else "shape"):
            return []
        call = self._call(node.value, 0)
        sides = self._listed(call, 1) if call is not None else []
        if axis is None:
            return sides
        return sides[axis : axis + 1] if isinstance(axis, int) and 0 <= axis < len(sides) else []


def _elements(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, ast.Tuple | ast.List) else [node]


def _function(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
