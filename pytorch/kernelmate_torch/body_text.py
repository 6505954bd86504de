"""Writes the parts of a program as statements of a Python function: calls of kernels, and of PyTorch where there is none."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernelmate.source.examples import UNNAMED
from kernelmate_torch.cutting import has_no_statement
from kernelmate_torch.numpy_text import substituted
from kernelmate_torch.operations import RANDOM
from kernelmate_torch.porting import PortedPart
from kernelmate_torch.program import SYMBOL, GraphNode, ModelProgram

_OWN = {"self", "torch", "kernels", "Path", "HERE", "operator", "super", "ctx"}

METHODS = {
    "aten.view.default": "reshape", "aten.reshape.default": "reshape", "aten.permute.default": "permute", "aten.transpose.int": "transpose",
    "aten.unsqueeze.default": "unsqueeze", "aten.squeeze.dim": "squeeze", "aten.flatten.using_ints": "flatten", "aten.t.default": "t",
    "aten.expand.default": "expand", "aten.contiguous.default": "contiguous", "aten.select.int": "select", "aten.clone.default": "clone",
    "aten.mm.default": "mm", "aten.bmm.default": "bmm", "aten.split.Tensor": "split", "aten.chunk.default": "chunk", "aten.unbind.int": "unbind",
}  # fmt: skip
"""Operations that are written as methods of their first argument."""


class BodyWriter:
    """Writes statements for a program.

    Args:
        program: the program.
        parts: in order of execution.
        outside: returns the text of a value that no statement computes and that is not an input: a parameter, a constant.
    """

    def __init__(self, program: ModelProgram, parts: Sequence[PortedPart], outside: Callable[[GraphNode], str]) -> None:
        self.program, self.parts, self._outside = program, parts, outside
        self.by_name = {one.name: one for one in program.nodes}
        self.symbols: dict[str, str] = {}
        self.boxed: set[str] = set()
        """Values without axes that are held as arrays of one element, as kernels take them."""
        self.conditions: dict[str, str] = {}
        """By value, the text of a condition without which nothing needs it; it is None then."""
        self.names: dict[str, str] = {}
        self._name_values()

    @property
    def device(self) -> str:
        """Returns the text of the device of the inputs, which replaces that of the example inputs; empty without one."""
        tensors = [one for one in self.program.nodes if one.tensor is not None]
        first = next((one for kind in ("input", "parameter", "buffer") for one in tensors if one.kind == kind), None)
        return "" if first is None else f"{self.value(first.name)}.device"

    def kept(self, *needed: str) -> list[PortedPart]:
        """Returns the parts that compute some values or draw random numbers."""
        wanted, kept = set(needed), []
        for part in reversed(self.parts):
            if wanted.intersection(part.outputs) or (part.function is None and _is_random(part.nodes[0])):
                kept.append(part)
                wanted.update(part.inputs)
        return kept[::-1]

    def statements(self, *needed: str) -> Iterator[str]:
        """Yields the statements that compute some values."""
        for part in self.kept(*needed):
            condition = self.conditions.get(part.outputs[0], "") if len(part.outputs) == 1 else ""
            for line in self._kernel(part) if part.function is not None else self._eager(part):
                yield f"{line} if {condition} else None" if condition else line

    def sizes(self) -> Iterator[str]:
        """Yields the definitions of the sizes that were named so far."""
        for symbol, name in self.symbols.items():
            for node in self.program.nodes:
                if node.kind == "input" and node.tensor is not None and symbol in node.tensor.shape:
                    yield f"{name} = {self.names[node.name]}.shape[{node.tensor.shape.index(symbol)}]"
                    break

    def value(self, name: str) -> str:
        """Returns the text of a value."""
        return self.names[name] if name in self.names else self._outside(self.by_name[name])

    def rank(self, name: str) -> int:
        """Returns the number of a value's axes."""
        spec = self.by_name[name].tensor
        return 0 if spec is None else len(spec.shape)

    def _kernel(self, part: PortedPart) -> Iterator[str]:
        function = part.function
        assert function is not None
        given = [self.value(one) + ("" if self.rank(one) or one in self.boxed else ".reshape(1)") for one in function.inputs]  # fmt: skip
        names = [self.value(one) for one in function.outputs]
        call = f"{function.name}_kernel({', '.join(given)})"
        if len(names) == 1 and not self.rank(function.outputs[0]):
            call += ".reshape(())"
        yield f"{', '.join(names)} = {call}"
        if len(names) > 1:
            yield from (f"{name} = {name}.reshape(())" for name, one in zip(names, function.outputs, strict=True) if not self.rank(one))  # fmt: skip

    def _eager(self, part: PortedPart) -> Iterator[str]:
        node = part.nodes[0]
        if node.target == "python.getitem":
            yield f"{self.value(node.name)} = {self.text(node.args[0])}[{self.text(node.args[1])}]"
            return
        if has_no_statement(node):
            return
        given = [self.text(one) for one in node.args]
        given += [f"{name}={self.text(one)}" for name, one in node.kwargs.items() if not (name in ("device", "layout", "pin_memory", "memory_format") and one is None)]  # fmt: skip
        called = METHODS.get(node.target)
        if called is not None and not node.kwargs:
            yield f"{self.value(node.name)} = {given[0]}.{called}({', '.join(given[1:])})"
        else:
            name, bracket, place = node.target.partition("[")
            yield f"{self.value(node.name)} = torch.ops.{name}({', '.join(given)}){bracket}{place}"

    def text(self, value: Any) -> str:
        """Returns the text of an argument of an operation."""
        if isinstance(value, list | tuple):
            return f"[{', '.join(self.text(one) for one in value)}]"
        if not isinstance(value, dict):
            return repr(value)
        if "node" in value:
            return self.value(value["node"])
        if "size" in value:
            return self._expression(value["size"])
        if "number" in value:
            return f'float("{value["number"]}")'
        text = str(value["torch"])
        if text in ("cpu", "meta") or text.startswith("cuda"):
            return self.device or f"torch.device({text!r})"
        return text

    def _expression(self, text: str) -> str:
        return substituted(text, {symbol: self._symbol(symbol) for symbol in SYMBOL.findall(text)})[0]

    def _symbol(self, symbol: str) -> str:
        if symbol not in self.symbols:
            wanted = ["n"]
            for node in self.program.nodes:
                if node.kind == "input" and node.tensor is not None and symbol in node.tensor.shape:
                    usual = UNNAMED.get(len(node.tensor.shape), ())
                    wanted = [usual[node.tensor.shape.index(symbol)]] if usual else wanted
                    break
            taken = {*self.symbols.values(), *self.names.values(), *_OWN}
            self.symbols[symbol] = next(
                one for one in (*wanted, *(f"n{number}" for number in range(2, 99))) if one not in taken
            )
        return self.symbols[symbol]

    def _name_values(self) -> None:
        for node in self.program.nodes:
            if node.kind == "input":
                self.names[node.name] = node.target if node.target.isidentifier() else self._free(node.name)
        for node in self.program.nodes:
            if node.kind == "call":
                self.names[node.name] = self._free(node.name)

    def _free(self, wanted: str) -> str:
        """Returns a name for a value, followed by underscores if it is taken."""
        taken = {*_OWN, *self.names.values(), *self.program.arguments}
        while keyword.iskeyword(wanted) or wanted in taken or wanted.endswith("_kernel"):
            wanted += "_"
        return wanted


def _is_random(node: GraphNode) -> bool:
    return any(one in node.target for one in RANDOM)
