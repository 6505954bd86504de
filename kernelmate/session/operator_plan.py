"""Plans a kernel as an operator: its arguments, how sizes follow from tensors, and what cannot be an operator.

The plan of a backward kernel adds which of its arguments are saved, gradients, sizes or scalars.
"""

from __future__ import annotations

import ast
import copy
import keyword
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kernelmate.errors import UsageError
from kernelmate.records import Argument, Contract, Kernel
from kernelmate.source.dtypes import ITEM_BYTES
from kernelmate.source.expressions import evaluate, names_in, parse_expression
from kernelmate.source.instances import BOUND
from kernelmate.source.launch import NOT_FINITE

RESERVED = frozenset({"KERNEL", "block", "block_x", "block_y", "block_z", "cdiv", "ctx", "float", "inputs", "int", "math", "max", "min", "output", "torch"})  # fmt: skip
"""Names that the generated functions use themselves."""

_PASSING = {
    "struct": "takes a struct by value ({})",
    "pointer": "takes a pointer to a struct ({})",
    "pointers": "takes an array of pointers ({})",
    "alias": "takes two pointers into one array ({})",
    "tensor_map": "takes a tensor map ({})",
    "texture": "takes a texture or surface object ({})",
    "null": "takes a pointer that is never used ({})",
}
_COMPLEX = ("complex64", "complex128")


@dataclass(frozen=True, slots=True)
class SolvedSize:
    """A size that follows from a tensor: `tensor.shape[axis]` is an expression in it, and `solution` its inverse.

    `solution` is Python text in which `{}` stands for the extent; `{}` alone where the extent is the size.
    """

    size: str
    tensor: str
    axis: int
    solution: str = "{}"


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """A kernel as an operator. Names are the contract's; `names` has what they are called in Python.

    Attributes:
        name: of the operator and of its function.
        solved: sizes that follow from tensors, in the order in which they are computed.
        size_parameters: sizes that follow from no tensor, and are integer arguments of the operator.
        alignments: bytes of which an array's address must be a multiple, where that is more than its element.
    """

    kernel: Kernel
    contract: Contract
    name: str
    names: Mapping[str, str]
    solved: tuple[SolvedSize, ...]
    size_parameters: tuple[str, ...]
    alignments: Mapping[str, int] = field(default_factory=dict)

    @property
    def tensors(self) -> tuple[Argument, ...]:
        """Arrays that the operator takes: `in` and `inout`, in the contract's order."""
        return tuple(a for a in self.contract.args if a.direction in ("in", "inout"))

    @property
    def outputs(self) -> tuple[Argument, ...]:
        """Arrays that the operator returns."""
        return tuple(a for a in self.contract.args if a.direction == "out")

    @property
    def mutated(self) -> tuple[Argument, ...]:
        """Arrays that the operator writes in place."""
        return tuple(a for a in self.contract.args if a.direction == "inout")

    @property
    def scalars(self) -> tuple[tuple[Argument, int | float | bool], ...]:
        """Scalar arguments of the operator with their defaults: those that the checks varied."""
        return tuple((a, value) for a in self.contract.args if (value := free_value(a)) is not None)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Python names of all arguments of the operator, in order."""
        named = [*(a.name for a in self.tensors), *self.size_parameters, *(a.name for a, _ in self.scalars)]
        return tuple(self.names[name] for name in named)

    def python(self, expression: str, *, symbolic: bool = False) -> str:
        """Returns a contract's expression as Python text.

        Args:
            expression: as in the contract.
            symbolic: for symbolic sizes of `torch.compile`, on which `min` and `max` would fix the sizes.
        """
        tree = copy.deepcopy(parse_expression(expression))
        return ast.unparse(_Renamed(self.names, symbolic).visit(tree))


def free_value(argument: Argument) -> int | float | bool | None:
    """Returns a scalar's literal value, if the operator takes it as an argument; None for sizes, `fixed` and infinity."""
    if argument.shape is not None or argument.value is None or argument.fixed or argument.value in NOT_FINITE:
        return None
    if names_in(argument.value):
        return None
    value = evaluate(argument.value, {})
    if argument.dtype == "bool":
        return bool(value)
    return int(value) if "int" in argument.dtype else float(value)


def plan_operator(kernel: Kernel, contract: Contract, alignments: Mapping[str, int] | None = None) -> OperatorPlan:
    """Returns the plan of a kernel's operator.

    Args:
        kernel: the kernel.
        contract: its contract.
        alignments: what the kernel was found to need beside what its contract promises, in bytes by array.

    Raises:
        UsageError: it cannot be an operator; the message says why.
    """
    for reason, hint in _refusals(kernel, contract):
        raise UsageError(f"{kernel.name} cannot be a torch operator: it {reason}.", file=kernel.unit.path, line=contract.line, hint=hint)  # fmt: skip
    solved = tuple(_solved(contract))
    known = {one.size for one in solved}
    free = tuple(size for size in contract.sizes[0] if size not in known)
    needed = {a.name: _alignment(kernel, a, dict(alignments or {})) for a in contract.args if a.shape is not None}
    return OperatorPlan(
        kernel, contract, operator_name(kernel), _python_names(contract), solved, free,
        {array: count for array, count in needed.items() if count > 1},
    )  # fmt: skip


def operator_name(kernel: Kernel) -> str:
    """Returns the name of a kernel's operator: a Python identifier."""
    name = re.sub(r"\W+", "_", kernel.name).strip("_")
    return name + "_" * keyword.iskeyword(name)


def _refusals(kernel: Kernel, contract: Contract) -> Iterator[tuple[str, str]]:
    """Yields the properties of a kernel that an operator cannot have, each with a remedy."""
    if kernel.unit.language == "triton":
        yield "is a Triton kernel", "torch.library.triton_op takes the function as it is."
    if contract.inferred:
        yield (
            "has no contract, and arguments of an operator cannot be guessed",
            "Write one: `kernelmate check` shows what would be inferred.",
        )
    for one in contract.passing:
        if one.variable:
            yield f"uses a variable of its module ({one.name})", "Pass it as a parameter."
        elif one.kind != "argument":
            yield _PASSING[one.kind].format(one.name), "Pass each array and each number as a parameter of its own."
    if len(contract.instances) > 1:
        yield (
            f"is a template of which the contract lists {len(contract.instances)} instances",
            "Leave one in `instances`, and export each by itself.",
        )
    if any(BOUND.search(one) for one in contract.instances):
        yield "is a template whose instance follows a size", "Write an instance without braces."
    if contract.cluster is not None:
        yield "is launched in clusters, for which CuPy has no call", "Export a version without clusters."
    yield from _refused_arguments(contract)


def _refused_arguments(contract: Contract) -> Iterator[tuple[str, str]]:
    """Yields the properties of arguments that an operator cannot have, each with a remedy."""
    for a in contract.args:
        if a.shape is None and a.dtype in _COMPLEX:
            yield f"takes a complex number ({a.name}), which torch's operators do not", "Pass an array of one element."
        for text in a.shape or ():
            if any(isinstance(node, ast.Div | ast.Pow) for node in ast.walk(parse_expression(text))):
                yield (
                    f"has the shape {text!r} ({a.name}), which symbolic sizes cannot have",
                    "Use + - * // % alone in shapes.",
                )
    arrays = [a for a in contract.args if a.shape is not None]
    if not any(a.direction in ("in", "inout") for a in arrays):
        yield "reads no array, so that nothing says on which device it runs", "Add an input to the kernel."
    if not any(a.direction in ("out", "inout") for a in arrays):
        yield "writes no array", "Mark an argument as `out` or `inout` in the contract."


# ------------------------------------------------------------------------------------------------------------ sizes


def _solved(contract: Contract) -> Iterator[SolvedSize]:
    """Yields the sizes that follow from the shapes of inputs; those that are a dimension by themselves come first."""
    dimensions = [
        (a.name, axis, text)
        for a in contract.args
        if a.direction in ("in", "inout")
        for axis, text in enumerate(a.shape or ())
    ]
    found: set[str] = set()
    for tensor, axis, text in dimensions:
        if text.strip() in contract.sizes[0] and text.strip() not in found:
            found.add(text.strip())
            yield SolvedSize(text.strip(), tensor, axis)
    for tensor, axis, text in dimensions:
        inverse = _inverse(parse_expression(text))
        if inverse is not None and inverse[0] not in found:
            found.add(inverse[0])
            yield SolvedSize(inverse[0], tensor, axis, inverse[1])


def _inverse(tree: ast.expr) -> tuple[str, str] | None:
    """Returns the only name of an expression and the inverse of the expression; None if there is none.

    Understood are a name plus, minus or times a number. `check_shape` refuses extents that are not multiples.
    """
    if not isinstance(tree, ast.BinOp):
        return None
    left, right = tree.left, tree.right
    if isinstance(left, ast.Constant) and isinstance(tree.op, ast.Add | ast.Mult):
        left, right = right, left
    if not (isinstance(left, ast.Name) and isinstance(right, ast.Constant) and isinstance(right.value, int)):
        return None
    inverse = {ast.Add: "-", ast.Sub: "+", ast.Mult: "//"}.get(type(tree.op))
    if inverse is None or (inverse == "//" and right.value <= 0):
        return None
    return left.id, f"{{}} {inverse} {right.value}"


# ------------------------------------------------------------------------------------------------------------ names


def _python_names(contract: Contract) -> dict[str, str]:
    """Returns a Python identifier for each argument and each size: its name, followed by an underscore if it is a keyword or taken."""
    named: dict[str, str] = {}
    taken = set(RESERVED)
    for name in (*contract.sizes[0], *(a.name for a in contract.args)):
        if name in named:
            continue
        free = name
        while free in taken or keyword.iskeyword(free):
            free += "_"
        named[name] = free
        taken.add(free)
    return named


class _Renamed(ast.NodeTransformer):
    """Replaces the contract's names by those of Python, and functions by those for symbolic sizes."""

    def __init__(self, names: Mapping[str, str], symbolic: bool) -> None:
        self.names, self.symbolic = names, symbolic

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self.names.get(node.id, node.id))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = node.func.id if isinstance(node.func, ast.Name) else ""
        arguments: list[ast.expr] = [self.visit(one) for one in node.args]
        if function == "cdiv" or not self.symbolic:
            return ast.Call(ast.Name(function), arguments, [])
        result = arguments[0]
        for other in arguments[1:]:
            result = ast.Call(ast.Attribute(ast.Name("torch"), f"sym_{function}"), [result, other], [])
        return result


# -------------------------------------------------------------------------------------------------------- alignment


def _alignment(kernel: Kernel, argument: Argument, found: Mapping[str, int]) -> int:
    """Returns the bytes of which an array's address must be a multiple; 1 where the alignment of its elements is enough."""
    item = ITEM_BYTES[argument.dtype]
    vector = next((one.vector for one in kernel.signature.parameters if one.name == argument.name), 1)
    # A vector of three elements is aligned as one of them.
    whole = 1 << int(math.log2(vector)) if vector != 3 else 1
    most = max(argument.align or 1, found.get(argument.name, 1), min(16, item * whole) if vector > 1 else 1)
    return most if most > item else 1


@dataclass(frozen=True, slots=True)
class BackwardPlan:
    """A backward kernel, and where its arguments come from.

    Attributes:
        plan: the kernel as an operator.
        sources: Python text for each argument of its operator: a saved tensor, a gradient, a size or a scalar of the
            forward operator, or zeros that it adds to.
        saved: Python names of the forward operator's inputs and outputs that are saved.
        kept: Python names of sizes and scalars of the forward operator that are kept.
        gradients: by the forward operator's tensor, the Python name of its gradient.
        zeros: arrays that the kernel adds to: their name, and the forward tensor whose shape they have.
    """

    plan: OperatorPlan
    sources: tuple[str, ...]
    saved: tuple[str, ...]
    kept: tuple[str, ...]
    gradients: Mapping[str, str]
    zeros: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class _Sources:
    """Sources found so far; see `BackwardPlan`."""

    sources: list[str] = field(default_factory=list)
    saved: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    gradients: dict[str, str] = field(default_factory=dict)
    zeros: list[tuple[str, str]] = field(default_factory=list)


def plan_backward(
    forward: OperatorPlan, kernel: Kernel, contract: Contract, alignments: Mapping[str, int] | None = None
) -> BackwardPlan:
    """Returns the plan of a backward kernel.

    Its inputs are named as inputs or outputs of the forward kernel, or `grad_OUTPUT` (`dOUTPUT`); what it writes is
    `grad_INPUT` (`dINPUT`), as an output, or as an array that begins with zeros and to which it adds.

    Args:
        forward: the operator.
        kernel: its backward kernel.
        contract: the contract of that.
        alignments: as for `plan_operator`.

    Raises:
        UsageError: a name, a dtype or a scalar does not fit, or the kernel cannot be an operator.
    """
    plan = plan_operator(kernel, contract, alignments)
    for reason, hint in _refusals_of_backward(forward, plan):
        raise UsageError(f"{kernel.name} cannot be the backward kernel of {forward.kernel.name}: {reason}.", file=kernel.unit.path, line=contract.line, hint=hint)  # fmt: skip
    found = _Sources()
    for a in plan.tensors:
        _add_tensor(found, forward, plan, a)
    for size in plan.size_parameters:
        name = forward.names[size]
        found.kept.append(name)
        found.sources.append(f"ctx.{name}")
    for a, _ in plan.scalars:
        if _scalar_of(forward, a.name) is not None:
            found.kept.append(forward.names[a.name])
            found.sources.append(f"{plan.names[a.name]}=ctx.{forward.names[a.name]}")
    for a in plan.outputs:
        found.gradients[_input_of(forward, a.name) or ""] = plan.names[a.name]
    return BackwardPlan(
        plan, tuple(found.sources), tuple(found.saved), tuple(found.kept), found.gradients, tuple(found.zeros)
    )


def _add_tensor(found: _Sources, forward: OperatorPlan, plan: OperatorPlan, argument: Argument) -> None:
    """Adds the source of an array that the backward kernel reads."""
    name = argument.name
    if argument.direction == "inout":
        like = _input_of(forward, name) or ""
        found.gradients[like] = plan.names[name]
        found.zeros.append((plan.names[name], like))
        found.sources.append(plan.names[name])
    elif (output := _gradient_of(forward, name)) is not None:
        found.sources.append(f"grad_{output}")
    else:
        found.sources.append(forward.names[name])
        if forward.names[name] not in found.saved:
            found.saved.append(forward.names[name])


def _refusals_of_backward(forward: OperatorPlan, plan: OperatorPlan) -> Iterator[tuple[str, str]]:
    """Yields the reasons why a backward kernel does not fit the forward one, each with a remedy."""
    if forward.mutated:
        yield (
            f"{forward.kernel.name} writes to its arguments ({forward.mutated[0].name}), and torch differentiates only operators that do not",
            "Write its result to an `out` array.",
        )
    known = {a.name: a for a in (*forward.tensors, *forward.outputs)}
    outputs, inputs = [a.name for a in forward.outputs], [a.name for a in forward.tensors]
    for a in plan.tensors:
        if a.direction == "inout":
            if _input_of(forward, a.name) is None or a.distribution != "zeros":
                yield (
                    f"{a.name} is `inout`, which only a gradient that begins with zeros can be",
                    f"Name it grad_INPUT with INPUT one of {', '.join(inputs)}, and write `~ zeros`.",
                )
            continue
        source = known.get(a.name) or _named(known, _gradient_of(forward, a.name), forward)
        if source is None:
            yield (
                f"its input {a.name} is unknown",
                f"Known are {', '.join([*known, *(f'grad_{name}' for name in outputs)])}.",
            )
        elif source.dtype != a.dtype:
            yield f"{a.name} is {a.dtype}, and {source.name} {source.dtype}", "Give both one dtype."
    for a in plan.outputs:
        source = _named(known, _input_of(forward, a.name), forward)
        if source is None:
            yield (
                f"its output {a.name} is not a gradient of an input",
                f"Name it grad_INPUT with INPUT one of {', '.join(inputs)}.",
            )
        elif source.dtype != a.dtype:
            yield f"{a.name} is {a.dtype}, and {source.name} {source.dtype}", "Give both one dtype."
    yield from _refused_numbers(forward, plan)


def _refused_numbers(forward: OperatorPlan, plan: OperatorPlan) -> Iterator[tuple[str, str]]:
    for size in plan.size_parameters:
        if size not in forward.contract.sizes[0]:
            yield (
                f"its size {size} follows from none of its tensors, and is not a size of {forward.kernel.name}",
                "Give it the name that it has there.",
            )
    free = {a.name for a, _ in plan.scalars}
    for a in plan.contract.args:
        if a.shape is None and a.name not in free and _scalar_of(forward, a.name) is not None:
            yield (
                f"{a.name} is fixed, and an argument of {forward.kernel.name}",
                "Write its value without `fixed`, so that it is judged with others, too.",
            )


def _named(known: Mapping[str, Argument], python: str | None, forward: OperatorPlan) -> Argument | None:
    return next((a for name, a in known.items() if forward.names[name] == python), None)


def _gradient_of(forward: OperatorPlan, name: str) -> str | None:
    """Returns the Python name of the forward output of which an array is the gradient; None if it is not a gradient."""
    return _without_prefix(name, {a.name: forward.names[a.name] for a in forward.outputs})


def _input_of(forward: OperatorPlan, name: str) -> str | None:
    """Returns the Python name of the forward input of which an array is the gradient; None if it is not a gradient."""
    return _without_prefix(name, {a.name: forward.names[a.name] for a in forward.tensors})


def _without_prefix(name: str, known: Mapping[str, str]) -> str | None:
    return next(
        (known[rest] for prefix in ("grad_", "d") if (rest := name.removeprefix(prefix)) != name and rest in known),
        None,
    )


def _scalar_of(forward: OperatorPlan, name: str) -> Argument | None:
    return next((a for a in forward.contract.args if a.name == name and free_value(a) is not None), None)
