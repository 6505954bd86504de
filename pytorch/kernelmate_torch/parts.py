"""Writes a part of a program as a reference function in NumPy, with its arguments as a contract describes them."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelmate.records import Argument
from kernelmate.source.examples import LITERAL, UNNAMED
from kernelmate.synthesis.draft import CPP_WORDS
from kernelmate_torch.numpy_text import HELPERS, NumpyValue, SizeTexts, Untranslated, substituted
from kernelmate_torch.operations import OPERATIONS
from kernelmate_torch.program import Dim, GraphNode, ModelProgram, TensorSpec, nodes_in

POSITIVE = {"aten.batch_norm.default": (4,), "aten._native_batch_norm_legit_no_training.default[0]": (4,)}
"""Arguments that are variances, by operation."""

INDICES = {
    "aten.embedding.default": (1, 0, 0), "aten.gather.default": (2, 0, None), "aten.index_select.default": (2, 0, None),
    "aten.scatter.value": (2, 0, None), "aten.scatter.src": (2, 0, None),
    "aten.cross_entropy_loss.default": (1, 0, 1), "aten.nll_loss_nd.default": (1, 0, 1), "aten.nll_loss.default": (1, 0, 1),
}  # fmt: skip
"""Arguments that are indices, by operation: the index's place, that of the indexed tensor, and the axis (None: argument 1)."""

MOST_PRODUCT = 1 << 18
"""Largest product of a part's sizes at which kernels are judged in the emulator; larger examples are halved."""

_RESERVED = {"np", "math", "block", "grid", "cdiv", "min", "max", *HELPERS, "normalised", *CPP_WORDS}

SHORT = {
    "scaled_dot_product_attention": "attention",
    "cross_entropy_loss": "cross_entropy",
    "cosine_similarity": "cosine",
}

SILENT = {
    "view",
    "reshape",
    "permute",
    "transpose",
    "unsqueeze",
    "squeeze",
    "expand",
    "contiguous",
    "clone",
    "t",
    "to",
    "arange",
    "flatten",
    "slice",
    "select",
    "alias",
    "detach",
    "zeros_like",
    "dropout",
    "unsafe_view",
    "to_copy",
    "lift_fresh_copy",
    "copy",
    "expand_as",
    "view_as",
}
"""Operations that a part's name leaves out."""

MOST_WORDS = 4


@dataclass(frozen=True, slots=True)
class PartFunction:
    """A part as a function in NumPy.

    Attributes:
        name: of the function.
        nodes: names of the nodes that it computes.
        inputs: names of the nodes that it takes, in order of its parameters.
        outputs: names of the nodes that it returns.
        arguments: its parameters, with shapes over the sizes.
        size: example numbers of the sizes, as exported.
        require: conditions that the sizes must meet.
        text: its definition.
        helpers: names of the functions that it calls.
        line: first line of the module's file that it computes; 0 if unknown.
    """

    name: str
    nodes: tuple[str, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    arguments: tuple[Argument, ...]
    size: Mapping[str, int]
    require: tuple[str, ...]
    text: str
    helpers: tuple[str, ...]
    line: int


def part_function(
    program: ModelProgram, nodes: Sequence[GraphNode], taken: set[str], *, literal: bool = False, name: str = ""
) -> PartFunction:
    """Writes a function for some nodes, which follow one another in a program.

    Args:
        program: the program.
        nodes: in order.
        taken: names of functions that exist.
        literal: keep the numbers of dimensions, and name only free sizes.
        name: of the function, with a number where it is taken; by default made of its operations.

    Raises:
        Untranslated: a node has no translation, or its sizes follow from no input.
    """
    return _PartWriter(program, nodes, taken, literal=literal, name=name).function()


def interface(program: ModelProgram, nodes: Sequence[GraphNode]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the inputs of some nodes in order of first use, and their outputs: values that later nodes use."""
    inside = {one.name for one in nodes}
    later = {*(one for one in program.outputs if one), *program.written.values()}
    later |= {name for node in program.nodes if node.name not in inside for name in node.uses}
    used = dict.fromkeys(name for node in nodes for name in node.uses)
    return tuple(one for one in used if one not in inside), tuple(one.name for one in nodes if one.name in later)


def structure(program: ModelProgram, nodes: Sequence[GraphNode]) -> str:
    """Returns a text that is equal for parts of the same structure, such as equal layers of a network."""
    inputs, outputs = interface(program, nodes)
    places = {name: place for place, name in enumerate((*inputs, *(one.name for one in nodes)))}

    def placed(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [placed(one) for one in value]
        return f"@{places[value['node']]}" if isinstance(value, dict) and "node" in value else value

    taken = [program.node(one).tensor for one in inputs]
    made = [(one.target, placed(one.args), sorted((key, placed(held)) for key, held in one.kwargs.items()), one.tensor) for one in nodes]  # fmt: skip
    return repr((taken, made, [places[one] for one in outputs]))


def reference_file(functions: Sequence[PartFunction], title: str) -> str:
    """Returns the text of a file with these functions and the helpers that they call."""
    helpers = list(dict.fromkeys(name for one in functions for name in one.helpers))
    imports = (["import math", ""] if "erf" in helpers else []) + ["import numpy as np", ""]
    blocks = [f"{HELPERS['erf']}\n"] if "erf" in helpers else []
    blocks += [f"\n{HELPERS[name]}\n" for name in helpers if name != "erf"]
    blocks += [f"\n{one.text}\n" for one in functions]
    return "\n".join([f'"""{title}"""', "", *imports, *blocks]).rstrip("\n") + "\n"


class _PartWriter:
    """Writes one function."""

    def __init__(
        self, program: ModelProgram, nodes: Sequence[GraphNode], taken: set[str], *, literal: bool, name: str
    ) -> None:
        self.program, self.nodes, self.taken, self.literal, self.wanted = program, nodes, taken, literal, name
        self.by_name = {one.name: one for one in program.nodes}
        self.inputs, self.outputs = interface(program, nodes)
        self.variables = self._variables()

    def function(self) -> PartFunction:
        if not self.outputs:
            raise Untranslated("its result is not used")
        for name in self.inputs:
            if self._spec(name) is None:
                raise Untranslated(f"{name} is not a tensor")
        fixed: set[Dim] = set()
        while True:
            sizes = SizeTexts(self._size_names(fixed))
            sizes.fixed |= fixed
            body = [self._statement(node, sizes) for node in self.nodes]
            if sizes.fixed <= fixed:
                break
            fixed |= sizes.fixed
        name = self._name()
        arguments = tuple(self._arguments(sizes))
        size = {text: self._number(dim) for dim, text in sizes.names.items()}
        parameters = [self.variables[one] for one in self.inputs]
        returned = ", ".join(self.variables[one] for one in self.outputs)
        lines = [
            f"def {name}({', '.join(parameters)}):",
            f'    """{self._summary()}"""',
            *self._heads(sizes, body),
            *body,
        ]
        last = body[-1].strip()
        if len(self.outputs) == 1 and last.startswith(f"{returned} = "):
            lines[-1] = f"    return {last.removeprefix(f'{returned} = ')}"
        else:
            lines.append(f"    return {returned}")
        line = next((one.line for one in self.nodes if one.line), 0)
        nodes = tuple(one.name for one in self.nodes)
        return PartFunction(name, nodes, self.inputs, self.outputs, arguments, size, tuple(dict.fromkeys(sizes.require)), "\n".join(lines), tuple(sizes.helpers), line)  # fmt: skip

    def _spec(self, name: str) -> TensorSpec | None:
        return self.by_name[name].tensor

    def _variables(self) -> dict[str, str]:
        """Returns the variables' names, by node."""
        found: dict[str, str] = {}
        for name in (*self.inputs, *(one.name for one in self.nodes)):
            node = self.by_name[name]
            wanted = node.target.replace(".", "_") if node.kind in ("parameter", "buffer") else name
            wanted = "".join(one if one.isalnum() else "_" for one in wanted).strip("_") or "value"
            if wanted[0].isdigit():
                wanted = f"value_{wanted}"
            while keyword.iskeyword(wanted) or wanted in _RESERVED or wanted in found.values():
                wanted += "_"
            found[name] = wanted
        return found

    def _size_names(self, fixed: set[Dim]) -> dict[Dim, str]:
        """Returns names for the dimensions of the inputs that may vary."""
        names: dict[Dim, str] = {}
        taken = {*self.variables.values(), *_RESERVED}
        shapes = [spec.shape for name in self.inputs if (spec := self._spec(name)) is not None]
        plain = {one for shape in shapes for one in shape if isinstance(one, str) and one.isidentifier()}
        for shape in shapes:
            usual = UNNAMED.get(len(shape), ())
            for axis, dim in enumerate(shape):
                if dim in names or dim in fixed or (isinstance(dim, int) and (self.literal or dim <= LITERAL)):
                    continue
                if (
                    isinstance(dim, str)
                    and not dim.isidentifier()
                    and not substituted(dim, dict.fromkeys(plain, ""))[1]
                ):
                    continue
                wanted = [usual[axis]] if usual else []
                wanted += ["rows", "cols", "n", "depth", "width", *(f"n{number}" for number in range(2, 99))]
                names[dim] = next(one for one in wanted if one not in taken)
                taken.add(names[dim])
        return names

    def _number(self, dim: Dim) -> int:
        return dim if isinstance(dim, int) else self.program.symbols[dim]

    def _statement(self, node: GraphNode, sizes: SizeTexts) -> str:
        if node.target not in OPERATIONS:
            raise Untranslated(f"{node.target} has no translation")
        if node.tensor is None:
            raise Untranslated(f"{node.target} gives several values")
        args = [self._argument(one, sizes) for one in node.args]
        kwargs = {name: self._argument(one, sizes) for name, one in node.kwargs.items()}
        ignored = {"device", "pin_memory", "layout", "memory_format", "non_blocking", "copy", "implicit"}
        kwargs = {name: one for name, one in kwargs.items() if name not in ignored}
        try:
            text = OPERATIONS[node.target](sizes, node.tensor, *args, **kwargs)
        except TypeError:
            raise Untranslated(f"{node.target} has arguments that are not translated") from None
        return f"    {self.variables[node.name]} = {text}"

    def _argument(self, value: Any, sizes: SizeTexts) -> Any:
        if isinstance(value, list | tuple):
            return [self._argument(one, sizes) for one in value]
        if not isinstance(value, dict):
            return value
        if "size" in value:
            return sizes.dim(value["size"])
        if "number" in value:
            return float(value["number"])
        if "torch" in value:
            return value["torch"]
        spec = self._spec(value["node"])
        if spec is None:
            raise Untranslated(f"{value['node']} is not a tensor")
        return NumpyValue(self.variables[value["node"]], spec)

    def _arguments(self, sizes: SizeTexts) -> Iterator[Argument]:
        drawn = self._distributions(sizes)
        for name in self.inputs:
            spec = self._spec(name)
            assert spec is not None
            shape = tuple(sizes.dim(one).removeprefix("(").removesuffix(")") if isinstance(one, str) else sizes.dim(one) for one in spec.shape)  # fmt: skip
            yield Argument(self.variables[name], "in", spec.dtype, shape or ("1",), distribution=drawn.get(name))

    def _distributions(self, sizes: SizeTexts) -> dict[str, str]:
        """Returns distributions of inputs that are indices or variances, by node."""
        found: dict[str, str] = {}
        for node in self.nodes:
            for place in POSITIVE.get(node.target, ()):
                found |= dict.fromkeys(nodes_in(list(node.args[place : place + 1])), "uniform(0.5, 1.5)")
            if node.target in INDICES:
                place, of, axis = INDICES[node.target]
                spec = next((self._spec(name) for name in nodes_in(list(node.args[of : of + 1]))), None)
                if spec is not None:
                    dim = spec.shape[node.args[1] if axis is None else axis]
                    found |= {name: f"integers(0, {sizes.dim(dim)})" for name in nodes_in(list(node.args[place : place + 1]))}  # fmt: skip
            if node.target == "aten.index.Tensor":
                spec = self._spec(node.args[0]["node"])
                for axis, index in enumerate(node.args[1]):
                    if spec is not None and index is not None:
                        found |= {name: f"integers(0, {sizes.dim(spec.shape[axis])})" for name in nodes_in(index)}
        return {name: text for name, text in found.items() if name in self.inputs}

    def _heads(self, sizes: SizeTexts, body: Sequence[str]) -> Iterator[str]:
        """Yields statements that define the sizes which the body names, and take inputs without axes out of their arrays."""
        words = set("".join(one if one.isalnum() or one == "_" else " " for one in " ".join(body)).split())
        for dim, text in sizes.names.items():
            if text not in words:
                continue
            for name in self.inputs:
                spec = self._spec(name)
                if spec is not None and dim in spec.shape:
                    yield f"    {text} = {self.variables[name]}.shape[{spec.shape.index(dim)}]"
                    break
        for name in self.inputs:
            spec = self._spec(name)
            if spec is not None and not spec.shape:
                yield f"    {self.variables[name]} = {self.variables[name]}[0]"

    def _words(self) -> list[str]:
        words = [_word(node.target) for node in self.nodes]
        words = [SHORT.get(one, one) for one in words if one not in SILENT]
        return [one for place, one in enumerate(words) if place == 0 or words[place - 1] != one]

    def _name(self) -> str:
        words = self._words() or ["part"]
        if len(words) > MOST_WORDS:
            words = [*words[: MOST_WORDS - 1], words[-1]]
        base = self.wanted or "_".join(words)
        wanted, number = base, 2
        given = {self.variables[one] for one in self.inputs}
        while wanted in self.taken or wanted in given or wanted in _RESERVED or keyword.iskeyword(wanted):
            wanted, number = f"{base}_{number}", number + 1
        return wanted

    def _summary(self) -> str:
        words = [one.replace("_", " ") for one in self._words()] or ["part"]
        if self.wanted:
            words = [f"{self.wanted}'s {', '.join(self.variables[one] for one in self.outputs)}"]
        text = f"Computes {', '.join(words)}."
        return text if len(text) <= 100 else f"{text[:96].rpartition(',')[0]}, ..."


def _word(target: str) -> str:
    """Returns an operation's name without its namespace, overload and marks: `aten._softmax.default` is softmax."""
    word = target.split(".")[1].strip("_")
    return {
        "native_batch_norm_legit_no_training": "batch_norm",
        "native_layer_norm": "layer_norm",
        "native_group_norm": "group_norm",
        "adaptive_avg_pool2d": "average",
    }.get(word, word)


def judged_size(function: PartFunction, *, gpu: bool = False) -> dict[str, int]:
    """Returns the sizes at which a part is judged, made of the example's by halving.

    In the emulator they are at most `MOST_PRODUCT`, and the largest ones are halved. On a GPU every array has at most
    `MOST_ELEMENTS` elements; the first axis is halved as long as it is longer than `MANY_ROWS`, since the lengths of rows
    decide which schedule is the fastest.
    """
    size = dict(function.size)
    work, most = (_elements, MOST_ELEMENTS) if gpu else (_work, MOST_PRODUCT)
    while work(function, size) > most and max(size.values(), default=1) > SMALLEST:
        largest = max(size, key=lambda name: size[name])
        first = next((one.shape[0] for one in function.arguments if one.shape), "")
        chosen = first if gpu and size.get(first, 0) > MANY_ROWS else largest
        size[chosen] = max(size[chosen] // 2, 1)
    return size


MOST_ELEMENTS = 1 << 25
"""Elements of the largest array at which a part is judged on a GPU: 128 MB of float32, more than twice the L2 of an H200."""

MANY_ROWS = 512
"""Length of a first axis that keeps every multiprocessor of a GPU busy."""


SMALLEST = 8
"""Sizes up to this are not halved."""


def _arrays(function: PartFunction, size: Mapping[str, int]) -> list[int]:
    """Returns the elements of each argument."""
    return [
        math.prod(size.get(side, int(side) if side.isdigit() else 1) for side in one.shape or ())
        for one in function.arguments
    ]


def _elements(function: PartFunction, size: Mapping[str, int]) -> int:
    """Returns the elements of the largest array; of a contraction, products count as `PRODUCTS` to an element."""
    largest = max(_arrays(function, size), default=1)
    return max(largest, _work(function, size) // PRODUCTS) if _is_contraction(function) else largest


PRODUCTS = 1 << 10
"""Products that count as one element: of square matrices, at most 3250 rows, whose reference is evaluated on the CPU."""


def _is_contraction(function: PartFunction) -> bool:
    return " @ " in function.text or "einsum" in function.text


def _work(function: PartFunction, size: Mapping[str, int]) -> int:
    """Returns the product of all sizes, or the elements of the largest array, or about the products of a contraction."""
    arrays = _arrays(function, size)
    most = max(math.prod(size.values()), *arrays)
    if not _is_contraction(function):
        return most
    # Of m x k and k x n: sqrt(mk * kn * mn), where the result is about as large as the larger operand.
    largest = sorted(arrays)[-2:]
    return max(most, math.isqrt(math.prod(largest) * largest[-1]))
