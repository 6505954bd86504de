"""Writes the files of a ported module: `model_new.py`, its kernels, their references, and a test."""

from __future__ import annotations

import ast
import keyword
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmate.errors import SourceError
from kernelmate.source.examples import UNNAMED
from kernelmate_torch.comparing_sizes import small_sizes
from kernelmate_torch.numpy_text import substituted
from kernelmate_torch.operations import RANDOM
from kernelmate_torch.parts import reference_file
from kernelmate_torch.porting import PortedPart
from kernelmate_torch.program import GraphNode, ModelProgram, nodes_in

_OWN = {"self", "torch", "kernels", "Path", "HERE", "operator", "super"}


@dataclass(frozen=True, slots=True)
class PortedFile:
    """The user's file, as far as the new module needs it.

    Attributes:
        path: the file.
        name: of the class or function.
        is_class: True for a class.
        helpers: which of get_inputs and get_init_inputs it has.
        beside: True if it imports modules of its own folder.
    """

    path: Path
    name: str
    is_class: bool
    helpers: tuple[str, ...]
    beside: bool

    @property
    def copy(self) -> str:
        """Returns the name of the file's copy, without the suffix."""
        name = f"{re.sub(r'[^0-9a-zA-Z_]', '_', self.path.stem)}_eager"
        return f"model_{name}" if name[0].isdigit() else name


def read_file(path: Path, name: str, text: str) -> PortedFile:
    """Return what a module's file has, from its syntax tree; nothing of it runs.

    Raises:
        SourceError: it is not Python.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise SourceError(
            f"This is not Python: {error}.", file=str(path), line=line, hint="Correct the file."
        ) from None
    functions = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
    imported = {
        alias.name.split(".")[0] for one in ast.walk(tree) if isinstance(one, ast.Import) for alias in one.names
    }
    imported |= {one.module.split(".")[0] for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) and one.module}
    beside = any(
        (path.parent / f"{one}.py").is_file() or (path.parent / one / "__init__.py").is_file() for one in imported
    )
    helpers = tuple(one for one in ("get_inputs", "get_init_inputs") if one in functions)
    return PortedFile(path, name, name not in functions, helpers, beside)


def new_files(
    file: PortedFile, text: str, program: ModelProgram, parts: Sequence[PortedPart], folder: Path
) -> dict[str, str]:
    """Returns the texts of the new module's files, by path relative to its folder.

    Args:
        file: the user's file.
        text: its text.
        program: of the module.
        parts: in order.
        folder: where the files are for.

    Raises:
        SourceError: the module holds a large constant tensor, which no state dict has.
    """
    made = {"model_new.py": _ModelWriter(file, program, parts, folder).text(), f"{file.copy}.py": text}
    functions = [one.function for one in parts if one.function is not None]
    if functions:
        title = f"The parts of {file.name} of {file.path.name} that have kernels, in NumPy."
        made["reference.py"] = reference_file(functions, title)
    for part in parts:
        if part.kernel is not None and part.function is not None:
            kernel = re.sub(r"attempt_\d+\.py:", "reference.py:", part.kernel.kernel.unit.text)
            made[f"kernels/{part.function.name}.cu"] = kernel
    made["test_model_new.py"] = _test_text(file, program)
    return made


class _ModelWriter:
    """Writes `model_new.py`."""

    def __init__(self, file: PortedFile, program: ModelProgram, parts: Sequence[PortedPart], folder: Path) -> None:
        self.file, self.program, self.parts, self.folder = file, program, parts, folder
        self.by_name = {one.name: one for one in program.nodes}
        self.symbols: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self._name_values()

    def text(self) -> str:
        kernels = [one.function.name for one in self.parts if one.function is not None]
        body = list(self._body())
        heads = [*self._guards(), *self._sizes()]
        what = f"{self.file.name} of {self.file.path.name}"
        count = f"{len(kernels)} CUDA kernel{'' if len(kernels) == 1 else 's'}"
        lines = [
            f'"""{what} with {count}: {"the same constructor and state dict" if self.file.is_class else "as a module"}."""',
            "",
            *(["import sys"] if self.file.beside else []),
            "from pathlib import Path",
            "",
            "import torch",
            "",
            *(["from kernelmate_torch.launching import operator", ""] if kernels else []),
            "HERE = Path(__file__).resolve().parent",
            *(self._path_beside() if self.file.beside else []),
            f"from {self.file.copy} import {', '.join(sorted({self.file.name, *self.file.helpers}))}  # noqa: E402, F401",
            "",
            *(f'{name}_kernel = operator(HERE / "kernels" / "{name}.cu")' for name in kernels),
            "",
            "",
            f"class ModelNew({self.file.name if self.file.is_class else 'torch.nn.Module'}):",
            f'    """{what}, with kernels for {", ".join(kernels) if kernels else "nothing"}."""',
            "",
            f"    def forward(self, {', '.join(self.program.inputs)}):",
            *(f"        {line}" for line in [*self._training(), *heads, *body]),
        ]
        return "\n".join(lines) + "\n"

    def _path_beside(self) -> Iterator[str]:
        place = os.path.relpath(self.file.path.resolve().parent, self.folder.resolve()).replace(os.sep, "/")
        yield f'sys.path.append(str((HERE / "{place}").resolve()))  # for the modules that {self.file.path.name} imports'

    def _training(self) -> Iterator[str]:
        given = ", ".join(self.program.inputs)
        eager = f"super().forward({given})" if self.file.is_class else f"{self.file.name}({given})"
        if not self.program.same_in_training:
            yield "if self.training:  # it computes something else in training mode: statistics or random numbers"
            yield f"    return {eager}"
        elif any(one.function for one in self.parts):
            yield "if self.training and torch.is_grad_enabled():  # the kernels have no backward"
            yield f"    return {eager}"

    def _guards(self) -> Iterator[str]:
        """Yields checks of what the program takes for granted: numbers, fixed dimensions, dtypes."""
        for name, value in self.program.fixed.items():
            yield f"if {name} != {value}:"
            yield f'    raise ValueError(f"This module was ported for {name} = {value}, and it is {{{name}}}.")'
        for node in self.program.nodes:
            if node.kind != "input" or node.tensor is None:
                continue
            spec = node.tensor
            fixed = [
                f"{node.target}.shape[{axis}] == {dim}" for axis, dim in enumerate(spec.shape) if isinstance(dim, int)
            ]
            met = [f"{node.target}.dim() == {len(spec.shape)}", f"{node.target}.dtype == torch.{spec.dtype}", *fixed]
            shape = f"{spec.dtype}[{', '.join('any' if isinstance(one, str) else str(one) for one in spec.shape)}]"
            yield f"if not ({' and '.join(met)}):"
            yield f'    raise ValueError(f"{node.target} has to be {shape}, and it is {{{node.target}.dtype}}{{list({node.target}.shape)}}.")'

    def _sizes(self) -> Iterator[str]:
        for symbol, name in self.symbols.items():
            for node in self.program.nodes:
                if node.kind == "input" and node.tensor is not None and symbol in node.tensor.shape:
                    yield f"{name} = {node.target}.shape[{node.tensor.shape.index(symbol)}]"
                    break

    def _body(self) -> Iterator[str]:
        """Yields the statements of `forward` after its checks."""
        needed = {*(one for one in self.program.outputs if one), *self.program.written.values()}
        kept: list[PortedPart] = []
        for part in reversed(self.parts):
            made = set(part.function.outputs) if part.function is not None else {part.nodes[0].name}
            if made & needed or (part.function is None and _is_random(part.nodes[0])):
                kept.append(part)
                needed |= set(part.function.inputs) if part.function is not None else set(_used(part.nodes[0]))
        for part in reversed(kept):
            yield from self._kernel(part) if part.function is not None else self._eager(part)
        for path, name in self.program.written.items():
            yield f"{self._attribute(path)}.copy_({self._value(name)})"
        values = ["None" if one is None else self._value(one) for one in self.program.outputs]
        several = f"({', '.join(values)}{',' if len(values) == 1 else ''})"
        yield f"return {several if self.program.several else values[0]}"

    def _kernel(self, part: PortedPart) -> Iterator[str]:
        function = part.function
        assert function is not None
        given = [self._value(one) + ("" if self._rank(one) else ".reshape(1)") for one in function.inputs]
        names = [self._value(one) for one in function.outputs]
        call = f"{function.name}_kernel({', '.join(given)})"
        if len(names) == 1 and not self._rank(function.outputs[0]):
            call += ".reshape(())"
        yield f"{', '.join(names)} = {call}"
        if len(names) > 1:
            yield from (f"{name} = {name}.reshape(())" for name, one in zip(names, function.outputs, strict=True) if not self._rank(one))  # fmt: skip

    def _eager(self, part: PortedPart) -> Iterator[str]:
        node = part.nodes[0]
        operation = node.target.removeprefix("python.").removeprefix("aten.").split(".")[0]
        if node.target == "python.getitem":
            yield f"{self._value(node.name)} = {self._text(node.args[0])}[{self._text(node.args[1])}]"
            return
        if node.target.startswith("python.") or operation.startswith(("sym_", "_assert")):
            return  # sizes stand in the text as expressions
        given = [self._text(one) for one in node.args]
        given += [f"{name}={self._text(one)}" for name, one in node.kwargs.items() if not (name in ("device", "layout", "pin_memory", "memory_format") and one is None)]  # fmt: skip
        called = METHODS.get(node.target)
        if called is not None and not node.kwargs:
            yield f"{self._value(node.name)} = {given[0]}.{called}({', '.join(given[1:])})"
        else:
            name, bracket, place = node.target.partition("[")
            yield f"{self._value(node.name)} = torch.ops.{name}({', '.join(given)}){bracket}{place}"

    def _rank(self, name: str) -> int:
        spec = self.by_name[name].tensor
        return 0 if spec is None else len(spec.shape)

    def _text(self, value: Any) -> str:
        if isinstance(value, list | tuple):
            return f"[{', '.join(self._text(one) for one in value)}]"
        if not isinstance(value, dict):
            return repr(value)
        if "node" in value:
            return self._value(value["node"])
        if "size" in value:
            return self._expression(value["size"])
        if "number" in value:
            return f'float("{value["number"]}")'
        text = str(value["torch"])
        return f"torch.device({text!r})" if text in ("cpu", "meta") or text.startswith("cuda") else text

    def _expression(self, text: str) -> str:
        return substituted(text, {symbol: self._symbol(symbol) for symbol in re.findall(r"[A-Za-z_]\w*", text)})[0]

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
                self.names[node.name] = node.target
        for node in self.program.nodes:
            if node.kind == "call":
                wanted = node.name
                while (
                    keyword.iskeyword(wanted)
                    or wanted in _OWN
                    or wanted in self.names.values()
                    or wanted.endswith("_kernel")
                ):
                    wanted += "_"
                self.names[node.name] = wanted

    def _value(self, name: str) -> str:
        node = self.by_name[name]
        if node.kind in ("parameter", "buffer"):
            return self._attribute(node.target)
        if node.kind == "constant":
            return self._constant(node)
        return self.names[name]

    def _constant(self, node: GraphNode) -> str:
        spec = node.tensor
        if node.literal is None or spec is None:
            raise SourceError(
                f"forward uses the tensor {node.target}, which is neither parameter nor buffer.",
                file=str(self.file.path),
                hint="Register it by register_buffer(..., persistent=False).",
            )
        return f"torch.tensor({node.literal!r}, dtype=torch.{spec.dtype}, device={self.program.inputs[0]}.device)"

    @staticmethod
    def _attribute(path: str) -> str:
        steps = path.split(".")
        if all(one.isidentifier() or one.isdigit() for one in steps):
            return "self" + "".join(f"[{one}]" if one.isdigit() else f".{one}" for one in steps)
        return f"dict([*self.named_parameters(), *self.named_buffers()])[{path!r}]"


METHODS = {
    "aten.view.default": "reshape", "aten.reshape.default": "reshape", "aten.permute.default": "permute", "aten.transpose.int": "transpose",
    "aten.unsqueeze.default": "unsqueeze", "aten.squeeze.dim": "squeeze", "aten.flatten.using_ints": "flatten", "aten.t.default": "t",
    "aten.expand.default": "expand", "aten.contiguous.default": "contiguous", "aten.select.int": "select", "aten.clone.default": "clone",
    "aten.split.Tensor": "split", "aten.chunk.default": "chunk", "aten.unbind.int": "unbind",
}  # fmt: skip
"""Operations that are written as methods of their first argument."""


def _used(node: GraphNode) -> list[str]:
    return nodes_in([*node.args, *node.kwargs.values()])


def _is_random(node: GraphNode) -> bool:
    return any(one in node.target for one in RANDOM)


def _test_text(file: PortedFile, program: ModelProgram) -> str:
    """Returns the text of a test that compares the new module with the old one in float64."""
    from importlib import resources

    text = resources.files("kernelmate_torch").joinpath("ported_test.txt").read_text(encoding="utf-8")
    small = small_sizes(program)
    shapes = {
        one.target: [dim if isinstance(dim, int) else small.get(dim, program.symbols[dim]) for dim in one.tensor.shape]
        for one in program.nodes
        if one.kind == "input" and one.tensor is not None
    }
    has_initial = "get_init_inputs" in file.helpers and file.is_class
    values = {
        "NAME": file.name,
        "COPY": file.copy,
        "OLD": f"{file.name}(*get_init_inputs())" if has_initial else f"{file.name}()" if file.is_class else "None",
        "NEW": "ModelNew(*get_init_inputs())" if has_initial else "ModelNew()",
        "IMPORTS": ", ".join(sorted([file.name, *file.helpers])),
        "SMALLER": "".join(
            f"{file.copy}.{name} = {value}  # those of the file itself are large for the emulator\n"
            for name, value in program.smaller.items()
        ),
        "IMPORT": f"import {file.copy}  # noqa: E402\n" if program.smaller else "",
        "SHAPES": repr({name: tuple(shapes.get(name, ())) for name in program.inputs}),
    }
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text
