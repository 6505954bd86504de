"""Writes the files of a ported module: `model_new.py`, its kernels, their references, and a test.

A part's gradients are registered with torch.library: what is saved, and the parts of the backward graph.
"""

from __future__ import annotations

import ast
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmate.errors import SourceError
from kernelmate.session.torch_operator import GradientRegistration, gradient_registration, wrapped
from kernelmate.source.python import parse_python
from kernelmate_torch.body_text import BodyWriter
from kernelmate_torch.parts import PartFunction, reference_file
from kernelmate_torch.porting import PartGradient, PortedPart
from kernelmate_torch.program import GraphNode, ModelProgram, small_sizes


def gradient_lines(function: PartFunction, gradient: PartGradient) -> Iterator[str]:
    """Yields the lines that register the gradients of a part's operator, `NAME_kernel`.

    Args:
        function: the part.
        gradient: its gradients.
    """
    program = gradient.derived.program
    inputs = [one for one in program.nodes if one.kind == "input"]
    writer = BodyWriter(program, gradient.parts, _unknown)
    writer.boxed = _boxed(writer, program)
    writer.conditions = _conditions(gradient)
    lines = writer.statements(*(one for one in program.outputs if one))
    body = [line for statement in lines for line in _lines(statement)]
    gradients = tuple("None" if name is None else _as_array(writer, name) for name in program.outputs)
    scalars = [one.target for one in inputs if not writer.rank(one.name) and one.name not in writer.boxed]
    heads = [*writer.sizes(), *(f"{name} = {name}.reshape(())" for name in scalars)]
    into = {one.node: one.name for one in gradient.derived.into}
    yield from gradient_registration(
        GradientRegistration(
            operator=f"{function.name}_kernel",
            arguments=tuple(one.name for one in function.arguments),
            outputs=function.outputs,
            saved=tuple(one.name for one in gradient.derived.saved),
            into=tuple(into.get(name, f"grad_{name}") for name in function.outputs),
            body=(*heads, *body),
            gradients=gradients,
            reads_inputs=any(one.node in function.inputs for one in gradient.derived.saved),
            prefix=f"_{function.name}_",
        )
    )


def _lines(statement: str) -> Iterator[str]:
    """Yields the lines of a statement; a call that is too long is split over several."""
    start, bracket, arguments = statement.partition("(")
    if not bracket or not statement.endswith(")"):
        yield statement
        return
    lines = wrapped(f"    {start}(", arguments.removesuffix(")").split(", "), ")")
    yield from (line.removeprefix("    ") for line in lines)


def _conditions(gradient: PartGradient) -> dict[str, str]:
    """Returns the condition that an input needs a gradient, for operations that only the gradient of this one of several inputs uses."""
    places = [(place, name) for place, name in enumerate(gradient.derived.program.outputs) if name is not None]
    if len(places) < 2:
        return {}
    uses: defaultdict[str, set[int]] = defaultdict(set)
    for place, name in places:
        uses[name].add(place)
    for part in reversed(gradient.parts):  # a kernel takes all of its inputs, although one of its results suffices
        served = set().union(*(uses[name] for name in part.outputs))
        for name in part.inputs:
            uses[name] |= served
    return {name: f"ctx.needs_input_grad[{place}]" for name, (place, *more) in uses.items() if not more}


def _boxed(writer: BodyWriter, program: ModelProgram) -> set[str]:
    """Returns the inputs without axes that only kernels use; operators receive them as arrays of one element."""
    eager = {
        name
        for part in writer.kept(*(one for one in program.outputs if one))
        if part.function is None
        for name in part.inputs
    }
    return {one.name for one in program.nodes if one.kind == "input" and not writer.rank(one.name)} - eager


def _as_array(writer: BodyWriter, name: str) -> str:
    """Returns a gradient's text with the shape of the operator's input: one without axes has one element."""
    if writer.rank(name) or name in writer.boxed:
        return writer.value(name)
    condition = writer.conditions.get(name, "")
    return f"{writer.value(name)}.reshape(1)" + (f" if {condition} else None" if condition else "")


def _unknown(node: GraphNode) -> str:
    raise SourceError(f"The gradient uses {node.name}, which no statement computes.")


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
    """Returns the definitions in a module's file, from its syntax tree; none of it runs.

    Raises:
        SourceError: it is not Python.
    """
    tree = parse_python(str(path), text)
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
    file: PortedFile,
    text: str,
    program: ModelProgram,
    parts: Sequence[PortedPart],
    folder: Path,
    *,
    backward: bool = False,
) -> dict[str, str]:
    """Returns the texts of the new module's files, by path relative to its folder.

    Args:
        file: the user's file.
        text: its text.
        program: of the module.
        parts: in order.
        folder: where the files are for.
        backward: the parts have gradients.

    Raises:
        SourceError: the module holds a large constant tensor, which no state dict has.
    """
    made = {
        "model_new.py": _ModelWriter(file, program, parts, folder, backward=backward).text(),
        f"{file.copy}.py": text,
    }
    parts = [
        one
        for part in parts
        if not part.again
        for one in (part, *(part.gradient.parts if part.gradient is not None else ()))
    ]
    functions = [one.function for one in parts if one.function is not None]
    if functions:
        title = f"The parts of {file.name} of {file.path.name} that have kernels, in NumPy."
        made["reference.py"] = reference_file(functions, title)
    for part in parts:
        if part.kernel is not None and part.function is not None:
            kernel = re.sub(r"attempt_\d+\.py:", "reference.py:", part.kernel.kernel.unit.text)
            made[f"kernels/{part.function.name}.cu"] = kernel
    made["test_model_new.py"] = _test_text(file, program, backward=backward)
    return made


class _ModelWriter:
    """Writes `model_new.py`."""

    def __init__(
        self, file: PortedFile, program: ModelProgram, parts: Sequence[PortedPart], folder: Path, *, backward: bool
    ) -> None:
        self.file, self.program, self.parts, self.folder, self.backward = file, program, parts, folder, backward
        self.writer = BodyWriter(program, parts, self._outside)

    def text(self) -> str:
        kernels = [one.function.name for one in self.parts if one.function is not None and not one.again]
        backward = [one.function.name for one in self._backward_parts() if one.function is not None]
        body = list(self._body())
        heads = [*self._guards(), *self.writer.sizes()]
        what = f"{self.file.name} of {self.file.path.name}"
        count = f"{len(kernels)} CUDA kernel{'' if len(kernels) == 1 else 's'}"
        count += f" and {len(backward)} for gradients" if backward else ""
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
            f"from {self.file.copy} import {', '.join(sorted({self.file.name, *self.file.helpers, *_classes(self.program.returned)}))}  # noqa: E402, F401",
            "",
            *(f'{name}_kernel = operator(HERE / "kernels" / "{name}.cu")' for name in (*kernels, *backward)),
            "",
            *self._gradients(),
            "",
            f"class ModelNew({self.file.name if self.file.is_class else 'torch.nn.Module'}):",
            f'    """{what}, with kernels for {", ".join(kernels) if kernels else "nothing"}."""',
            "",
            f"    def forward(self, {self.program.parameters}):",
            *(f"        {line}" for line in [*self._training(), *self._nested(), *heads, *body]),
        ]
        return "\n".join(lines) + "\n"

    def _backward_parts(self) -> list[PortedPart]:
        firsts = (part.gradient for part in self.parts if not part.again)
        return [one for gradient in firsts if gradient is not None for one in gradient.parts]

    def _gradients(self) -> Iterator[str]:
        """Yields the registrations of the gradients."""
        for part in self.parts:
            if part.function is not None and part.gradient is not None and not part.again:
                yield ""
                yield from gradient_lines(part.function, part.gradient)
                yield ""

    def _path_beside(self) -> Iterator[str]:
        place = os.path.relpath(self.file.path.resolve().parent, self.folder.resolve()).replace(os.sep, "/")
        yield f'sys.path.append(str((HERE / "{place}").resolve()))  # for the modules that {self.file.path.name} imports'

    def _training(self) -> Iterator[str]:
        given = self.program.passed
        eager = f"super().forward({given})" if self.file.is_class else f"{self.file.name}({given})"
        if not self.program.same_in_training:
            yield "if self.training:  # it computes something else in training mode: statistics or random numbers"
            yield f"    return {eager}"
        elif not self.backward and any(one.function for one in self.parts):
            yield "if self.training and torch.is_grad_enabled():  # the kernels have no backward"
            yield f"    return {eager}"

    def _nested(self) -> Iterator[str]:
        """Yields checks of the inputs' containers, and names for the tensors in them."""
        for name, held in self.program.containers.items():
            if isinstance(held, int):
                yield f"if len({name}) != {held}:"
                yield f'    raise ValueError(f"{name} has to have {held} element{"" if held == 1 else "s"}, and it has {{len({name})}}.")'
            else:
                yield f"if set({name}) != {{{', '.join(held)}}}:" if held else f"if {name}:"
                yield f"    raise ValueError(f\"{name} has to have the keys {', '.join(held)}, and it has {{', '.join(map(repr, {name}))}}.\")"
        named = [
            one for one in self.program.nodes if one.kind == "input" and one.tensor and not one.target.isidentifier()
        ]
        if named:
            yield f"{', '.join(self.writer.value(one.name) for one in named)} = {', '.join(one.target for one in named)}"

    def _guards(self) -> Iterator[str]:
        """Yields checks of what the program takes for granted: numbers, fixed dimensions, dtypes."""
        for name, value in self.program.fixed.items():
            yield f"if {name} {'is not' if value in ('None', 'True', 'False') else '!='} {value}:"
            said = f"This module was ported for {name} = {value}, and it is {{{name}}}."
            yield f"    raise ValueError(f{_quoted(said)})"
        for node in self.program.nodes:
            if node.kind != "input" or node.tensor is None:
                continue
            spec, name = node.tensor, self.writer.value(node.name)
            fixed = [f"{name}.shape[{axis}] == {dim}" for axis, dim in enumerate(spec.shape) if isinstance(dim, int)]
            met = [f"{name}.dim() == {len(spec.shape)}", f"{name}.dtype == torch.{spec.dtype}", *fixed]
            shape = f"{spec.dtype}[{', '.join('any' if isinstance(one, str) else str(one) for one in spec.shape)}]"
            yield f"if not ({' and '.join(met)}):"
            yield f'    raise ValueError(f"{node.target} has to be {shape}, and it is {{{name}.dtype}}{{list({name}.shape)}}.")'

    def _body(self) -> Iterator[str]:
        """Yields the statements of `forward` after its checks."""
        writer = self.writer
        yield from writer.statements(*(one for one in self.program.outputs if one), *self.program.written.values())
        for path, name in self.program.written.items():
            yield f"{self._attribute(path)}.copy_({writer.value(name)})"
        yield f"return {self._returned(self.program.returned)}"

    def _returned(self, record: Any) -> str:
        """Returns the text of what forward returns."""
        kind = next(iter(record)) if isinstance(record, dict) else ""
        if kind == "dict":
            return f"{{{', '.join(f'{key}: {self._returned(one)}' for key, one in record['dict'])}}}"
        if kind not in ("tuple", "list", "call"):
            return self.writer.text(record)
        several = [self._returned(one) for one in record["items" if kind == "call" else kind]]
        if kind == "tuple":
            return f"({', '.join(several)}{',' if len(several) == 1 else ''})"
        return f"[{', '.join(several)}]" if kind == "list" else f"{record['call']}({', '.join(several)})"

    def _outside(self, node: GraphNode) -> str:
        """Returns the text of a parameter, a buffer or a constant."""
        if node.kind in ("parameter", "buffer"):
            return self._attribute(node.target)
        spec = node.tensor
        if node.literal is None or spec is None:
            raise SourceError(
                f"forward uses the tensor {node.target}, which is neither parameter nor buffer.",
                file=str(self.file.path),
                hint="Register it by register_buffer(..., persistent=False).",
            )
        return f"torch.tensor({node.literal!r}, dtype=torch.{spec.dtype}, device={self.writer.device})"

    @staticmethod
    def _attribute(path: str) -> str:
        steps = path.split(".")
        if all(one.isidentifier() or one.isdigit() for one in steps):
            return "self" + "".join(f"[{one}]" if one.isdigit() else f".{one}" for one in steps)
        return f"dict([*self.named_parameters(), *self.named_buffers()])[{path!r}]"


def _quoted(text: str) -> str:
    """Returns a text as a literal of Python, in double quotes where it contains none."""
    return repr(text) if '"' in text or "\\" in text else f'"{text}"'


def _classes(record: Any) -> list[str]:
    """Returns the classes of what forward returns."""
    if isinstance(record, dict):
        return [
            *([record["call"]] if "call" in record and record["call"].isidentifier() else []),
            *(name for one in record.values() for name in _classes(one)),
        ]
    return [name for one in record for name in _classes(one)] if isinstance(record, list) else []


def _test_text(file: PortedFile, program: ModelProgram, *, backward: bool) -> str:
    """Returns the text of a test that compares the new module with the old one in float64."""
    from importlib import resources

    templates = ("ported_test.txt", "ported_gradient_test.txt") if backward else ("ported_test.txt",)
    texts = (resources.files("kernelmate_torch").joinpath(one).read_text(encoding="utf-8") for one in templates)
    text = "".join(texts)
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
        "MODE": "train" if program.same_in_training else "eval",  # where the kernels run
        "NEW_IMPORT": "import model_new  # noqa: E402\n" if backward else "",
        "CASES_IMPORT": "from kernelmate_torch.operator_cases import contract_cases\n" if backward else "",
        "SHAPES": repr({name: tuple(shapes.get(name, ())) for name in program.inputs}),
    }
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text
