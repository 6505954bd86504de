"""A reference's graph as a function of PyTorch, at one size: the computation with which a kernel's time is compared.

Each node becomes one call of torch with the same meaning, except that matrix products and what `torch_functions` recognises become torch's own
functions. Floating-point values have the type that the contract lets the kernel compute in (`accumulate`, else float32; float64 for float64
outputs), as in the kernel. Refused by name are what has no exact counterpart, and convolutions and attention: torch has one function for each,
which needs the reader's own words, and the time of its parts would mislead.
"""

from __future__ import annotations

import keyword
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kernelmate.checks.reference import spelled
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes
from kernelmate.source import evaluate as evaluate_expression
from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.torch_functions import KnownFunction, known_function, small_size
from kernelmate.synthesis.torch_products import call_of, is_convolution, is_pure, product_of
from kernelmate.synthesis.torch_views import NO_SLICE, NotCarried, arranged, insertion_of, maps_of, shape_of, window_of

FUNCTION = "computation"
"""Name of the function in the text."""

DTYPES = frozenset(
    {"bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"}
)  # fmt: skip
"""Types of arrays that torch has, and computes with or casts from, under NumPy's names."""

HALVES = ("float16", "bfloat16")
FLOATS = ("float8_e4m3fn", "float8_e5m2", *HALVES, "float32", "float64")

OPERATORS = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%", "power": "**",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "left_shift": "<<", "right_shift": ">>",
    "logical_and": "&", "logical_or": "|", "greater": ">", "greater_equal": ">=", "less": "<", "less_equal": "<=",
    "equal": "==", "not_equal": "!=",
}  # fmt: skip
"""Operators, by NumPy's ufunc; the logical ones are of booleans."""

COMPARISONS = frozenset({"greater", "greater_equal", "less", "less_equal", "equal", "not_equal"})

FUNCTIONS = {
    **{name: name for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "square", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor",
        "ceil", "trunc", "sign", "reciprocal", "isnan", "isinf", "isfinite", "signbit", "logical_not", "bitwise_not", "maximum",
        "minimum", "fmax", "fmin", "fmod", "hypot", "copysign", "logaddexp", "erf", "erfc", "lgamma", "where",
    )},
    "negative": "neg", "absolute": "abs", "fabs": "abs", "rint": "round", "invert": "bitwise_not", "arctan2": "atan2", "arcsin": "asin",
    "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "deg2rad": "deg2rad",
}  # fmt: skip
"""Functions of torch, by NumPy's ufunc or the name in `math`; both propagate NaN alike, and round to even alike."""

OF_NUMBERS = frozenset(
    {"exp", "exp2", "log", "log2", "log10", "log1p", "expm1", "sqrt", "sin", "cos", "tan", "tanh", "floor", "ceil"}
)
"""Functions of `math` that stand for those of NumPy where all operands are scalars."""

REDUCTIONS = {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin", "argmax": "argmax", "argmin": "argmin"}
SCANS = {"sum": "cumsum", "prod": "cumprod", "max": "cummax", "min": "cummin", "logaddexp": "logcumsumexp"}


@dataclass(frozen=True, slots=True)
class TorchText:
    """A computation as Python text.

    Attributes:
        source: the text of the function `FUNCTION`, which takes the contract's arrays and scalars by keyword, and returns a tuple of
            the out and inout arrays.
        calls: names of the functions of torch that it calls, each once, in order.
    """

    source: str
    calls: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Value:
    """Text of a node's value and its dtype in torch; `number` is True for a Python number, which adopts the dtype of tensors."""

    text: str
    dtype: str
    number: bool = False


def torch_text(graph: Graph, contract: Contract, size: Size) -> TorchText:
    """Returns a graph's computation in torch, at one size.

    Raises:
        NotCarried: an operation or a dtype has no exact counterpart.
    """
    return _Writer(graph, contract, size).text()


def product_text(graph: Graph, contract: Contract, size: Size) -> TorchText:
    """Returns the torch call for a graph that is one matrix product of two arguments, at one size.

    Raises:
        NotCarried: the graph is something else, or its dtypes are not cuBLAS's.
    """
    last = graph.outputs[0]
    while graph.nodes[last].op == "cast":
        last = graph.nodes[last].args[0]
    if len(graph.outputs) != 1 or not is_pure(graph.nodes, last):
        some = any(product_of(graph.nodes, index) is not None for index in range(len(graph.nodes)))
        raise NotCarried("it is more than one matrix product of two arguments" if some else "it has no matrix product")
    return torch_text(graph, contract, size)


class _Writer:
    """Writes the lines of one function; each node that an output needs has a line."""

    def __init__(self, graph: Graph, contract: Contract, size: Size) -> None:
        self._graph, self._nodes, self._outputs = graph, graph.nodes, graph.outputs
        self._contract, self._size, self._small = contract, size, small_size(contract)
        self._arguments = {one.name: one for one in contract.args}
        self._results = [one for one in contract.args if one.direction in ("out", "inout")]
        wide = any(one.dtype == "float64" for one in self._results) or contract.accumulate == "float64"
        self._work = "float64" if wide else "float32"
        self._lines: list[str] = []
        self._calls: dict[str, None] = {}
        self._values: dict[int, _Value] = {}
        self._functions: dict[int, KnownFunction | None] = {}
        self._taken = {"torch", "math", FUNCTION, *map(spelled, self._arguments)}
        self._check_names()
        self._refuse()

    def text(self) -> TorchText:
        """Returns the whole function."""
        shapes = argument_shapes(self._contract, self._size)
        returned = []
        for argument, index in zip(self._results, self._outputs, strict=True):
            dtype, shape = self._of_torch(argument.dtype), shapes[argument.name]
            value = self._value(index)
            if value.number:
                value = _Value(
                    f"torch.full({shape}, {value.text}, dtype=torch.{dtype}, device={self._device()})", dtype
                )
            elif self._shape(self._nodes[index]) != shape:
                value = replace(value, text=f"{value.text}.expand({shape}).contiguous()")
            returned.append(self._stored(index, self._cast(value, dtype).text))
        parameters = ", ".join([*map(spelled, self._used()), "**_"])
        result = ", ".join(returned) + ("," if len(returned) == 1 else "")
        lines = [f"def {FUNCTION}({parameters}):", *(f"    {line}" for line in self._lines), f"    return ({result})"]
        return TorchText("\n".join(lines) + "\n", tuple(self._calls))

    def _stored(self, index: int, text: str) -> str:
        """Returns the text of a result as an array of its own: torch's views compute nothing, and the kernel stores its result."""
        source = index
        while self._nodes[source].op in ("view", "reshape", "window"):
            source = self._nodes[source].args[0]
        if self._nodes[source].op == "input" and text.endswith(self._value(index).text):
            self._calls["clone"] = None
            return f"{text}.clone(memory_format=torch.contiguous_format)"
        return text if source == index else f"{text}.contiguous()"

    # -------------------------------------------------------------------------------------------------- values

    def _value(self, index: int) -> _Value:
        if index not in self._values:
            node = self._nodes[index]
            made = self._made(index, node)
            self._values[index] = made if made.number or made.text.isidentifier() else self._line(index, node, made)
        return self._values[index]

    def _line(self, index: int, node: Node, value: _Value) -> _Value:
        name = node.name if node.name.isidentifier() and not keyword.iskeyword(node.name) else ""
        name = name if name and name not in self._taken else f"t{index}"
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        self._lines.append(f"{name} = {value.text}")
        return replace(value, text=name)

    def _made(self, index: int, node: Node) -> _Value:
        """Returns the text of a node's value, which may need further lines before it."""
        if node.op == "map":
            return self._known(index, node) or self._mapped(node)
        if node.op == "reduce":
            return self._product(index, node) or self._reduced(node)
        if node.op in ("scalar", "size", "constant"):
            return self._number(node)
        written: dict[str, Callable[[Node], _Value]] = {
            "input": self._input, "iota": self._iota, "cast": self._converted, "view": self._viewed, "reshape": self._reshaped,
            "scan": self._scanned, "scatter": self._scattered, "window": self._windowed,
            **dict.fromkeys(("take", "pick", "gather", "along"), self._indexed),
        }  # fmt: skip
        if node.op not in written:
            raise NotCarried(f"`{node.op}` has no exact counterpart in torch")
        return written[node.op](node)

    def _iota(self, node: Node) -> _Value:
        return _Value(self._call("arange", str(self._shape(node)[0]), f"device={self._device()}"), "int64")

    def _converted(self, node: Node) -> _Value:
        return self._cast(self._value(node.args[0]), self._dtype(node))

    def _viewed(self, node: Node) -> _Value:
        source, rank = self._value(node.args[0]), len(self._nodes[node.args[0]].shape)
        kept = [int(axis) for axis in node.data if axis is not None]
        return (
            source
            if source.number
            else replace(source, text=arranged(source.text, rank, kept, [axis is None for axis in node.data]))
        )

    def _reshaped(self, node: Node) -> _Value:
        source = self._value(node.args[0])
        return replace(source, text=f"{source.text}.reshape({self._shape(node)})")

    def _input(self, node: Node) -> _Value:
        argument = self._arguments[str(node.data[0])]
        return self._cast(_Value(spelled(argument.name), self._of_torch(argument.dtype)), self._dtype(node))

    def _number(self, node: Node) -> _Value:
        """Returns a scalar argument, a size or a constant; a constant array as an array."""
        dtype, datum = self._dtype(node), node.data[0]
        if node.op == "scalar":
            return _Value(spelled(str(datum)), dtype, number=True)
        if node.op == "size":
            return _Value(str(int(evaluate_expression(str(datum), self._size))), dtype, number=True)
        text = f"float({str(datum)!r})" if isinstance(datum, float) and not math.isfinite(datum) else repr(datum)
        if text.startswith("-"):
            text = f"({text})"  # a power binds tighter than its base's sign
        if set(node.shape) <= {"1"}:
            return _Value(text, dtype, number=True)
        made = self._call("full", str(self._shape(node)), text, f"dtype=torch.{dtype}", f"device={self._device()}")
        return _Value(made, dtype)

    def _mapped(self, node: Node) -> _Value:
        name = str(node.data[0])
        operands = [self._value(one) for one in node.args]
        if all(one.number for one in operands):
            return self._of_numbers(name, node, operands)
        dtype = self._dtype(node)
        condition, rest = ([self._tensor(operands[0], "bool")], operands[1:]) if name == "where" else ([], operands)
        if dtype != "bool":
            rest = self._promoted(rest, dtype)
        if name in OPERATORS:
            self._calls[name] = None
            return _Value(f"{rest[0].text} {OPERATORS[name]} {rest[1].text}", dtype)
        if name in ("maximum", "minimum") and any(one.number for one in rest):
            number, tensor = sorted(rest, key=lambda one: not one.number)
            bound = "min" if name == "maximum" else "max"
            return _Value(self._call("clamp", tensor.text, f"{bound}={number.text}"), dtype)
        if name != "where" or (dtype == "float64" and all(one.number for one in rest)):  # which torch makes float32
            rest = [self._tensor(one, dtype) for one in rest]
        return _Value(self._call(FUNCTIONS[name], *(one.text for one in (*condition, *rest))), dtype)

    def _of_numbers(self, name: str, node: Node, operands: Sequence[_Value]) -> _Value:
        texts = [one.text for one in operands]
        if name in OPERATORS and not name.startswith("logical"):
            return _Value(f"({texts[0]} {OPERATORS[name]} {texts[1]})", self._dtype(node), number=True)
        if name in ("maximum", "minimum", "absolute", "negative", "square") or name in OF_NUMBERS:
            forms = {
                "maximum": "max({}, {})",
                "minimum": "min({}, {})",
                "absolute": "abs({})",
                "negative": "(-{})",
                "square": "({} ** 2)",
            }
            return _Value(forms.get(name, f"math.{name}({{}})").format(*texts), self._dtype(node), number=True)
        raise NotCarried(f"`numpy.{name}` of scalars has no exact counterpart")

    def _promoted(self, operands: Sequence[_Value], dtype: str) -> list[_Value]:
        """Casts operands whose types torch would not promote to the result's: integers with a float, and all if none has it."""
        tensors = [one for one in operands if not one.number]
        none = all(one.dtype != dtype for one in tensors)
        return [
            one if one.number or not (none or (one.dtype not in FLOATS and dtype in FLOATS)) else self._cast(one, dtype)
            for one in operands
        ]

    def _tensor(self, value: _Value, dtype: str) -> _Value:
        """Returns a number as a tensor without dimensions; a tensor unchanged."""
        if not value.number:
            return value
        return _Value(
            self._call("scalar_tensor", value.text, f"dtype=torch.{dtype}", f"device={self._device()}"), dtype
        )

    def _cast(self, value: _Value, dtype: str) -> _Value:
        if value.number:
            return _Value(f"{'float' if dtype in FLOATS else 'int'}({value.text})", dtype, number=True)
        if value.dtype == dtype:
            return value
        text = (
            value.text
            if value.text.isidentifier() or (value.text.endswith(")") and " " not in value.text)
            else f"({value.text})"
        )
        return _Value(f"{text}.to(torch.{dtype})", dtype)

    def _reduced(self, node: Node) -> _Value:
        kind, axis, dtype = str(node.data[0]), int(node.data[1] or 0), self._dtype(node)
        if kind not in REDUCTIONS:
            raise NotCarried(f"`numpy.bitwise_{kind}.reduce` has no exact counterpart in torch")
        source = self._value(node.args[0])
        more = [f"dtype=torch.{dtype}"] if kind in ("sum", "prod") else []
        return _Value(self._call(REDUCTIONS[kind], source.text, f"dim={axis}", *more), dtype)

    def _scanned(self, node: Node) -> _Value:
        kind, axis, backwards = str(node.data[0]), int(node.data[1] or 0), bool(node.data[2])
        source, dtype = self._value(node.args[0]), self._dtype(node)
        text = f"{source.text}.flip({axis})" if backwards else source.text
        more = [f"dtype=torch.{dtype}"] if kind in ("sum", "prod") else []
        text = self._call(SCANS[kind], text, f"dim={axis}", *more) + (".values" if kind in ("max", "min") else "")
        return _Value(f"{text}.flip({axis})" if backwards else text, dtype)

    def _indexed(self, node: Node) -> _Value:
        source, index = self._value(node.args[0]), self._cast(self._value(node.args[1]), "int64")
        if source.number or index.number:
            raise NotCarried("an index that is one number has no counterpart here")
        if node.op == "gather":
            return replace(
                source,
                text=self._call("take_along_dim", source.text, f"{index.text}[..., None]", "dim=-1") + "[..., 0]",
            )
        axis = int(node.data[0] or 0) if node.data else 0
        if node.op == "along":
            return replace(source, text=self._call("take_along_dim", source.text, index.text, f"dim={axis}"))
        self._calls["index"] = None
        return replace(source, text=f"{source.text}[{':, ' * axis}{index.text}]")

    def _scattered(self, node: Node) -> _Value:
        if node.data:
            raise NotCarried(f"`numpy.{node.data[0]}imum.at` has no exact counterpart in torch")
        shape, dtype = self._shape(node), self._dtype(node)
        places = self._cast(self._value(node.args[0]), "int64")
        if len(node.args) > 1:
            added = self._tensor(self._cast(self._value(node.args[1]), dtype), dtype).text
            rows = self._shape(self._nodes[node.args[1]])
            if not rows:
                raise NotCarried("`numpy.add.at` of one number has no counterpart here")
        else:
            added = self._call("ones_like", places.text, f"dtype=torch.{dtype}")
        flat = f"{added}.reshape({(-1, *shape[1:])})"
        zeros = self._call("zeros", str(shape), f"dtype=torch.{dtype}", f"device={self._device()}")
        self._calls["index_add"] = None
        return _Value(f"{zeros}.index_add(0, {places.text}.reshape(-1), {flat})", dtype)

    def _windowed(self, node: Node) -> _Value:
        """Returns a window of an array, of the padded array, or of another array into which it is put."""
        source, sides, shape = self._value(node.args[0]), self._shape(self._nodes[node.args[0]]), self._shape(node)
        filling = self._value(node.args[1]) if len(node.args) > 1 else None
        maps = maps_of(node, shape)
        if filling is not None and (not filling.number or any(one.every != 1 for one in maps)):
            return self._inserted(source, filling, shape, insertion_of(maps, sides, shape, self._size))
        window, text = window_of(maps, sides, shape, self._size), source.text
        if any(window.padding):
            if filling is None:
                raise NotCarried(NO_SLICE)
            text = self._call("nn.functional.pad", text, str(window.padding), f"value={filling.text}")
        return replace(source, text=window.text(text))

    def _inserted(self, source: _Value, filling: _Value, shape: tuple[int, ...], slices: tuple[str, str]) -> _Value:
        """Returns a copy of an array, or a full one, in which a slice is replaced by one of another array."""
        name = f"filled{len(self._lines)}"
        self._taken.add(name)
        if filling.number:
            made = self._call(
                "full", str(shape), filling.text, f"dtype=torch.{source.dtype}", f"device={self._device()}"
            )
        else:
            made = f"{filling.text}.expand({shape}).clone()"
        self._calls["copy_"] = None
        self._lines += [f"{name} = {made}", f"{name}[{slices[0]}] = {source.text}[{slices[1]}]"]
        return replace(source, text=name)

    # ---------------------------------------------------------------------------------------- torch's own functions

    def _known(self, index: int, node: Node) -> _Value | None:
        """Returns a call of a torch function that computes a part of the graph; None if no function does."""
        found = self._function(index)
        if found is None or self._dtype(node) != self._work:
            return None
        inside = [self._cast(self._value(one), self._work).text for one in (found.source, *found.weights)]
        if found.arguments or not found.name.endswith("_norm"):
            return _Value(self._call(found.name, inside[0] + found.arguments), self._work)
        weights = [f"{name}={text}" for name, text in zip(("weight", "bias"), inside[1:], strict=False)]
        eps = "0.0" if found.eps is None else self._value(found.eps).text
        return _Value(
            self._call(found.name, inside[0], f"({self._shape(node)[-1]},)", *weights, f"eps={eps}"), self._work
        )

    def _function(self, index: int) -> KnownFunction | None:
        if index not in self._functions:
            self._functions[index] = known_function(self._graph, index, self._small)
        return self._functions[index]

    def _product(self, index: int, node: Node) -> _Value | None:
        """Returns a matrix product; None if the node is none."""
        product = product_of(self._nodes, index)
        if product is None:
            return None
        if self._dtype(node) not in FLOATS:
            raise NotCarried("torch multiplies no matrices of integers on a GPU")
        if any((known := self._function(one)) is not None and known.name == "softmax" for one in product.bases):
            raise NotCarried("it is attention, and torch has one function for that")
        halves = {self._half_of(one) for one in product.bases}
        half = halves.pop() if len(halves) == 1 else None
        function, operands = call_of(product, [self._factor(one, raw=half is not None) for one in product.bases])
        if half is None or self._is_result(index, half):
            return self._cast(_Value(self._call(function, *operands), half or self._work), self._dtype(node))
        ranks = {len(self._nodes[one].shape) for one in product.bases}
        if function != "matmul" or ranks not in ({2}, {3}):
            raise NotCarried(f"torch has no product of these {half} arrays with a {self._work} result")
        return self._wide_product("mm" if ranks == {2} else "bmm", operands)

    def _factor(self, index: int, *, raw: bool) -> str:
        """Returns the text of an operand: cast to the type of the computation or, if `raw`, the argument itself."""
        return spelled(str(self._nodes[index].data[0])) if raw else self._cast(self._value(index), self._work).text

    def _wide_product(self, name: str, operands: Sequence[str]) -> _Value:
        """Returns a product of 16-bit arrays with a float32 result, which torch supports only on CUDA (torch 2.8)."""
        wide = ", ".join(f"{one}.to(torch.{self._work})" for one in operands)
        on_gpu = self._call(name, *operands, f"out_dtype=torch.{self._work}")
        return _Value(f'({on_gpu} if {self._device()}.type == "cuda" else torch.{name}({wide}))', self._work)

    def _is_result(self, index: int, dtype: str) -> bool:
        """Returns True if a node is, but for its cast to this dtype, an output and nothing else."""
        outputs = {one: argument.dtype for one, argument in zip(self._outputs, self._results, strict=True)}
        readers = [one for one, node in enumerate(self._nodes) if index in node.args]
        if index in outputs:
            return outputs[index] == dtype and not readers
        return len(readers) == 1 and self._nodes[readers[0]].op == "cast" and outputs.get(readers[0]) == dtype

    def _half_of(self, index: int) -> str | None:
        """Returns the dtype of a node that is an argument of a 16-bit floating-point type."""
        node = self._nodes[index]
        dtype = self._arguments[str(node.data[0])].dtype if node.op == "input" else ""
        return dtype if dtype in HALVES else None

    def _refuse(self) -> None:
        """Refuses a convolution, and functions that torch lacks."""
        names = (str(node.data[0]) for node in self._nodes if node.op == "map")
        lacking = next((name for name in names if name not in OPERATORS and name not in FUNCTIONS), None)
        if lacking is not None:
            raise NotCarried(f"`numpy.{lacking}` has no exact counterpart in torch")
        if is_convolution(self._nodes):
            raise NotCarried("it is a convolution, and torch has one function for that")

    # ------------------------------------------------------------------------------------------------- small parts

    def _call(self, name: str, *arguments: str) -> str:
        self._calls[name.rpartition(".")[2]] = None
        return f"torch.{name}({', '.join(arguments)})"

    def _shape(self, node: Node) -> tuple[int, ...]:
        return shape_of(node, self._size)

    def _dtype(self, node: Node) -> str:
        """Returns the type in which torch computes a node: the graph's float64 is the type that the kernel computes in."""
        return self._work if node.dtype == "float64" else self._of_torch(node.dtype)

    def _of_torch(self, dtype: str) -> str:
        if dtype not in DTYPES:
            raise NotCarried(f"torch does not compute with {dtype}")
        return dtype

    def _device(self) -> str:
        first = next((one.name for one in self._contract.args if one.name in self._used()), None)
        if first is None:
            raise NotCarried("the reference reads no array")
        return f"{spelled(first)}.device"

    def _used(self) -> list[str]:
        """Returns arrays and scalars that the graph reads, in the contract's order; arrays first."""
        read = {str(node.data[0]) for node in self._nodes if node.op in ("input", "scalar")}
        return sorted(
            (one.name for one in self._contract.args if one.name in read),
            key=lambda name: self._arguments[name].shape is None,
        )

    def _check_names(self) -> None:
        for name in ("torch", "math", FUNCTION):
            if name in self._arguments:
                raise NotCarried(f"an argument has the name {name}, which the function in torch uses")
