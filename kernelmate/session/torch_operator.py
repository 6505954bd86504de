"""Writes the Python text of a torch operator from its plan: the operator, its fake, its guards and its backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelmate.records import Argument
from kernelmate.session.operator_plan import BackwardPlan, OperatorPlan
from kernelmate.source.expressions import names_in
from kernelmate.version import VERSION

NAMESPACE = "kernelmate"
"""Namespace of the operators in torch: `torch.ops.kernelmate.softmax`."""

_WIDE = 120
"""Characters up to which the arguments of a call are written in one line."""


@dataclass(frozen=True, slots=True)
class OperatorCode:
    """Compilation of an operator's kernel.

    Attributes:
        expression: the name by which NVRTC finds it.
        file: its text, beside the operator's module.
        options: compiler options, without the architecture.
        target: the GPU that it was judged for.
    """

    expression: str
    file: str
    options: tuple[str, ...]
    target: str


def operator_module(
    plan: OperatorPlan, code: OperatorCode, origin: str, backward: BackwardPlan | None = None, *, folder: str = "judged"
) -> str:
    """Returns the text of the module that defines an operator.

    Args:
        plan: the operator.
        code: how its kernel is compiled.
        origin: name of the file that the kernel comes from.
        backward: its backward kernel, which the module `backward` beside this one defines.
        folder: where that file and the verdict are, beside this module.
    """
    parts = [
        "\n".join((*_head(plan, code, origin, backward, folder), "", *_kernel(plan, code))),
        "\n".join(_operator(plan)),
        "\n".join(_fake(plan)),
        "\n".join(_sizes(plan)),
        "\n".join(_gradient(plan) if backward is None else _backward(plan, backward)),
    ]
    return "\n\n\n".join(parts) + "\n"


# --------------------------------------------------------------------------------------------------------- sections


def _head(
    plan: OperatorPlan, code: OperatorCode, origin: str, backward: BackwardPlan | None, folder: str
) -> Iterator[str]:
    yield f'"""The CUDA kernel {plan.kernel.name} as the torch operator `{NAMESPACE}::{plan.name}`.'
    yield ""
    yield f"On a GPU, CuPy compiles and launches {code.file}; on the CPU, KernelMate's emulator runs it, which is for tests."
    yield f"Written by KernelMate {VERSION} after {origin} was judged; `{folder}/` has that file and its verdict."
    yield '"""'
    yield ""
    if any(value in ("inf", "+inf", "-inf", "nan") for value in (a.value for a in plan.contract.args)):
        yield "import math"
        yield ""
    yield "import torch"
    yield ""
    if backward is not None:
        yield f"from .backward import {backward.plan.name}"
    helpers = ["Array", "CudaKernel"]
    helpers += ["Scalar"] if any(a.shape is None for a in plan.contract.args) else []
    helpers += ["cdiv"] if any("cdiv(" in text for text in _expressions(plan)) else []
    helpers += ["refuse_gradients"] if plan.mutated else []
    yield f"from .launching import {', '.join(helpers)}"


def _kernel(plan: OperatorPlan, code: OperatorCode) -> Iterator[str]:
    yield "KERNEL = CudaKernel("
    yield f"    name={_quoted(code.expression)},"
    yield f"    file={_quoted(code.file)},"
    yield "    parameters=("
    for a in plan.contract.args:
        name = _quoted(plan.names[a.name])
        if a.shape is None:
            yield f"        Scalar({name}, {_quoted(a.dtype)}),"
            continue
        shape = ", ".join(_quoted(text) for text in a.shape) + ("," if len(a.shape) == 1 else "")
        direction = "" if a.direction == "in" else f", direction={_quoted(a.direction or '')}"
        align = f", align={plan.alignments[a.name]}" if a.name in plan.alignments else ""
        yield f"        Array({name}, torch.{a.dtype}, ({shape}){direction}{align}),"
    yield "    ),"
    yield f"    options=({', '.join(_quoted(option) for option in code.options)}{',' if len(code.options) == 1 else ''}),"
    yield f"    target={_quoted(code.target)},"
    if plan.contract.cooperative:
        yield "    cooperative=True,"
    yield ")"


def _operator(plan: OperatorPlan) -> Iterator[str]:
    mutated = ", ".join(_quoted(plan.names[a.name]) for a in plan.mutated) + ("," if len(plan.mutated) == 1 else "")
    yield f"@torch.library.custom_op({_quoted(f'{NAMESPACE}::{plan.name}')}, mutates_args=({mutated}))"
    yield from wrapped(f"def {plan.name}(", _typed(plan), f") -> {_returns(plan)}:")
    yield from _docstring(plan)
    yield f"    {_unpacked(plan)}"
    written = [plan.names[a.name] for a in (*plan.mutated, *plan.outputs)]
    for a in plan.contract.args:
        if a.direction == "out" or (a.direction == "scratch"):
            yield f"    {_allocated(plan, a, symbolic=False)}"
    filled = f"{written[0]}.numel()" if len(written) == 1 else f"any(one.numel() for one in ({', '.join(written)}))"
    yield f"    if not {filled}:"
    yield f"        return {_returned(plan)}".rstrip()
    yield from _launch(plan)
    if plan.outputs:
        yield f"    return {_returned(plan)}"


def _launch(plan: OperatorPlan) -> Iterator[str]:
    contract = plan.contract
    names = {name for text in (*contract.grid, contract.shared) for name, _ in names_in(text)}
    sides = [plan.python(text) for text in contract.block]
    block = "(block, 1, 1)"
    if len(sides) > 1 or names & {"block_x", "block_y", "block_z"}:
        block = "(block_x, block_y, block_z)"
        yield f"    block_x, block_y, block_z = {', '.join([*sides, '1', '1'][:3])}"
        if "block" in names:
            yield "    block = block_x * block_y * block_z"
    else:
        yield f"    block = {sides[0]}"
    grid = ", ".join([*(plan.python(text) for text in contract.grid), "1", "1"][:3])
    values = [plan.names[a.name] if a.shape is not None else _scalar(plan, a) for a in contract.args]
    more = [f"grid=({grid})", f"block={block}"]
    more += [] if contract.shared.strip() == "0" else [f"shared={plan.python(contract.shared)}"]
    yield from wrapped("    KERNEL.launch(", [*values, *more], ")")


def _scalar(plan: OperatorPlan, argument: Argument) -> str:
    """Returns the value of a scalar parameter: an argument of the operator, or an expression over sizes."""
    if argument.value is None or argument.name in {a.name for a, _ in plan.scalars}:
        return plan.names[argument.name]
    special = {"inf": "math.inf", "+inf": "math.inf", "-inf": "-math.inf", "nan": "math.nan"}
    return special.get(argument.value) or plan.python(argument.value)


def _fake(plan: OperatorPlan) -> Iterator[str]:
    yield f"@{plan.name}.register_fake"
    yield from wrapped("def _(", _plain(plan), "):")
    if not plan.outputs:
        yield f"    _sizes({', '.join(_of_sizes(plan))})"
        return
    yield f"    {_unpacked(plan)}"
    for a in plan.outputs:
        yield f"    {_allocated(plan, a, symbolic=True)}"
    yield f"    return {_returned(plan)}"


def _sizes(plan: OperatorPlan) -> Iterator[str]:
    names = [plan.names[size] for size in plan.contract.sizes[0]]
    yield f"def _sizes({', '.join(_of_sizes(plan))}):"
    yield f'    """Returns {", ".join(names)}; raises ValueError with the reason if these do not fit the kernel."""'
    yield from wrapped("    KERNEL.check(", [f"{plan.names[a.name]}={plan.names[a.name]}" for a in plan.tensors], ")")
    yield from _solutions(plan)
    for size in plan.size_parameters:
        name = plan.names[size]
        yield f'    KERNEL.require({name} >= 0, "{size} >= 0", {name}={name})'
    for a in plan.tensors:
        if not _defines(plan, a):
            shape = ", ".join(plan.python(text, symbolic=True) for text in a.shape or ())
            shape += "," if len(a.shape or ()) == 1 else ""
            yield f"    KERNEL.check_shape({_quoted(plan.names[a.name])}, {plan.names[a.name]}, ({shape}))"
    for text in plan.contract.require:
        at = [f"{plan.names[name]}={plan.names[name]}" for name in dict.fromkeys(name for name, _ in names_in(text))]
        yield from wrapped("    KERNEL.require(", [plan.python(text), _quoted(text), *at], ")")
    yield f"    return {', '.join(names)}"


def _solutions(plan: OperatorPlan) -> Iterator[str]:
    """Yields the assignments of sizes; a tensor whose every dimension is a size of its own is unpacked at once."""
    done: set[str] = set()
    for one in plan.solved:
        if one.size in done:
            continue
        argument = next(a for a in plan.tensors if a.name == one.tensor)
        tensor = plan.names[one.tensor]
        if _defines(plan, argument):
            sizes = [text.strip() for text in argument.shape or ()]
            done.update(sizes)
            yield f"    {_targets([plan.names[size] for size in sizes])} = {tensor}.shape"
        else:
            done.add(one.size)
            yield f"    {plan.names[one.size]} = {one.solution.format(f'{tensor}.shape[{one.axis}]')}"


def _defines(plan: OperatorPlan, argument: Argument) -> bool:
    """Returns True if every dimension of a tensor is a size that follows from it, so that its shape cannot be wrong."""
    found = {one.axis for one in plan.solved if one.tensor == argument.name and one.solution == "{}"}
    return found == set(range(len(argument.shape or ())))


def _gradient(plan: OperatorPlan) -> Iterator[str]:
    """Yields the registration of an operator without a backward kernel."""
    if plan.mutated:
        yield "_GUARD = refuse_gradients("
        yield f"    {plan.name},"
        yield f'    "{plan.name} writes to its arguments, so it has no gradient: "'
        yield '    "call it under torch.no_grad().",'
        yield ")"
        return
    yield "def _backward(ctx, *gradients):"
    yield "    raise RuntimeError("
    yield f'        "{plan.name} has no backward kernel, so it has no gradient: "'
    yield '        "call it under torch.no_grad(), or export it with --backward."'
    yield "    )"
    yield ""
    yield ""
    yield f"{plan.name}.register_autograd(_backward)"


def _backward(plan: OperatorPlan, backward: BackwardPlan) -> Iterator[str]:
    """Yields the registration of a backward kernel."""
    read = {*backward.saved, *backward.kept, *(like for _, like in backward.zeros)}
    needs_sizes = _needs_sizes(plan, backward)
    outputs = [plan.names[a.name] for a in plan.outputs]
    keeping = [_unpacked(plan)] if needs_sizes else []
    keeping += [f"ctx.{name} = {name}" for name in backward.kept]
    keeping += [f"ctx.shape_of_{like} = {like}.shape" for _, like in backward.zeros]
    yield from gradient_registration(
        GradientRegistration(
            plan.name, tuple(plan.arguments), tuple(outputs), backward.saved,
            tuple(f"grad_{name}" for name in outputs), tuple(_gradient_call(plan, backward, outputs)),
            tuple(backward.gradients.get(name, "None") for name in plan.arguments),
            keeping=tuple(keeping), reads_inputs=bool(set(plan.arguments) & read or needs_sizes),
            lacking=tuple(_lacking(plan, backward)),
        )
    )  # fmt: skip


def _lacking(plan: OperatorPlan, backward: BackwardPlan) -> Iterator[str]:
    """Yields statements that raise for a gradient that the backward kernel does not compute."""
    for a in plan.tensors:
        name = plan.names[a.name]
        if name not in backward.gradients:
            yield f"if ctx.needs_input_grad[{plan.arguments.index(name)}]:"
            yield f'    raise RuntimeError("{backward.plan.name} gives no gradient of {name}: detach {name}.")'


def _gradient_call(plan: OperatorPlan, backward: BackwardPlan, outputs: Sequence[str]) -> Iterator[str]:
    """Yields the statements that launch a backward kernel."""
    for name in outputs:
        if any(f"grad_{name}" == source for source in backward.sources):
            yield f"grad_{name} = grad_{name}.contiguous()  # that of a sum, for one, is a view of one element"
    dtypes = {plan.names[a.name]: a.dtype for a in plan.tensors}
    for name, like in backward.zeros:
        where = f"dtype=torch.{dtypes[like]}, device=grad_{outputs[0]}.device"
        yield f"{name} = torch.zeros(ctx.shape_of_{like}, {where})"
    returned = [backward.plan.names[a.name] for a in backward.plan.outputs]
    call = f"{', '.join(returned)} = {backward.plan.name}(" if returned else f"{backward.plan.name}("
    yield from wrapped(call, list(backward.sources), ")")


@dataclass(frozen=True, slots=True)
class GradientRegistration:
    """The gradient of an operator, as text.

    Attributes:
        operator: the operator's name in the text.
        arguments: names of what it takes.
        outputs: names of what it returns.
        saved: those of both that are saved.
        into: names of the gradients of its results.
        body: statements that compute the gradients of its arguments.
        gradients: for each argument, its gradient.
        keeping: statements that keep more than tensors.
        reads_inputs: the statements that save read arguments.
        lacking: statements before the saved tensors are read, which raise for gradients that there are not.
        prefix: of the names of both functions.
    """

    operator: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    saved: tuple[str, ...]
    into: tuple[str, ...]
    body: tuple[str, ...]
    gradients: tuple[str, ...]
    keeping: tuple[str, ...] = ()
    reads_inputs: bool = True
    lacking: tuple[str, ...] = ()
    prefix: str = "_"


def gradient_registration(gradient: GradientRegistration) -> Iterator[str]:
    """Yields the lines that register an operator's gradient with torch.library."""
    setup, backward = f"{gradient.prefix}setup_context", f"{gradient.prefix}backward"
    saving = [f"{_targets(gradient.arguments)} = inputs"] if gradient.reads_inputs else []
    if set(gradient.outputs) & set(gradient.saved):
        saving.insert(0 if "output" in gradient.arguments else len(saving), f"{', '.join(gradient.outputs)} = output")
    saving += [f"ctx.save_for_backward({', '.join(gradient.saved)})"] if gradient.saved else []
    saving += gradient.keeping
    if saving:
        yield f"def {setup}(ctx, inputs, output):"
        yield from (f"    {line}" for line in saving)
        yield ""
        yield ""
    yield from wrapped(f"def {backward}(", ["ctx", *gradient.into], "):")
    yield from (f"    {line}" for line in gradient.lacking)
    if gradient.saved:
        yield f"    {_targets(gradient.saved)} = ctx.saved_tensors"
    yield from (f"    {line}" for line in gradient.body)
    yield f"    return {', '.join(gradient.gradients)}"
    yield ""
    yield ""
    context = f", setup_context={setup}" if saving else ""
    yield f"{gradient.operator}.register_autograd({backward}{context})"


def _needs_sizes(plan: OperatorPlan, backward: BackwardPlan) -> bool:
    """Returns True if the backward kernel takes a size that the forward operator computes from shapes."""
    computed = {plan.names[size] for size in plan.contract.sizes[0]} - set(plan.arguments)
    return bool(computed & set(backward.kept))


# ------------------------------------------------------------------------------------------------------------ pieces


def _targets(names: Sequence[str]) -> str:
    """Returns the left side of an assignment from a sequence."""
    return f"({names[0]},)" if len(names) == 1 else ", ".join(names)


def _typed(plan: OperatorPlan) -> list[str]:
    """Returns the operator's parameters with types and defaults."""
    typed = [f"{plan.names[a.name]}: torch.Tensor" for a in plan.tensors]
    typed += [f"{plan.names[size]}: int" for size in plan.size_parameters]
    return typed + [f"{plan.names[a.name]}: {type(value).__name__} = {value!r}" for a, value in plan.scalars]


def _plain(plan: OperatorPlan) -> list[str]:
    """Returns the operator's parameters with defaults."""
    defaults = {plan.names[a.name]: f"={value!r}" for a, value in plan.scalars}
    return [name + defaults.get(name, "") for name in plan.arguments]


def _of_sizes(plan: OperatorPlan) -> list[str]:
    return [plan.names[name] for name in (*(a.name for a in plan.tensors), *plan.size_parameters)]


def _unpacked(plan: OperatorPlan) -> str:
    names = [plan.names[size] for size in plan.contract.sizes[0]]
    return f"{', '.join(names)} = _sizes({', '.join(_of_sizes(plan))})"


def _allocated(plan: OperatorPlan, argument: Argument, *, symbolic: bool) -> str:
    """Returns the assignment of a new array: contiguous, on the device of the inputs."""
    shape = ", ".join(plan.python(text, symbolic=symbolic) for text in argument.shape or ())
    shape += "," if len(argument.shape or ()) == 1 else ""
    kind = {"zeros": "zeros", "ones": "ones"}.get(argument.distribution or "", "empty")
    kind = kind if argument.direction == "scratch" else "empty"
    first = plan.names[plan.tensors[0].name]
    name = plan.names[argument.name]
    return f"{name} = torch.{kind}(({shape}), dtype=torch.{argument.dtype}, device={first}.device)"


def _returns(plan: OperatorPlan) -> str:
    count = len(plan.outputs)
    if count == 0:
        return "None"
    return "torch.Tensor" if count == 1 else f"tuple[{', '.join(['torch.Tensor'] * count)}]"


def _returned(plan: OperatorPlan) -> str:
    return ", ".join(plan.names[a.name] for a in plan.outputs)


def _docstring(plan: OperatorPlan) -> Iterator[str]:
    outputs = [plan.names[a.name] for a in plan.outputs]
    changed = [plan.names[a.name] for a in plan.mutated]
    does = [f"returns {_listed(outputs)}"] if outputs else []
    does += [f"changes {_listed(changed)} in place"] if changed else []
    yield f'    """Launches {plan.kernel.name}; {" and ".join(does)}.'
    yield ""
    yield "    Args:"
    for a in plan.tensors:
        zeroed = (
            "; the kernel adds to it, and was judged with zeros"
            if a in plan.mutated and a.distribution == "zeros"
            else ""
        )
        yield f"        {plan.names[a.name]}: {_described(a)}{zeroed}."
    for size in plan.size_parameters:
        yield f"        {plan.names[size]}: a size that no tensor has."
    for a, _ in plan.scalars:
        yield f"        {plan.names[a.name]}: passed as {a.dtype}."
    if plan.outputs:
        yield ""
        yield "    Returns:"
        for a in plan.outputs:
            yield f"        {plan.names[a.name]}: {_described(a)}."
    yield ""
    yield "    Raises:"
    yield "        ValueError: the kernel cannot take a tensor or a size; the message has the reason."
    yield '    """'


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _described(argument: Argument) -> str:
    return f"{argument.dtype}[{', '.join(argument.shape or ())}]"


def _expressions(plan: OperatorPlan) -> Iterator[str]:
    """Yields the contract's expressions that become Python."""
    contract = plan.contract
    yield from (*contract.grid, *contract.block, contract.shared, *contract.require)
    for a in contract.args:
        yield from a.shape or ()
        if a.value is not None:
            yield a.value


def _quoted(text: str) -> str:
    """Returns a text as a Python literal, in double quotes if it contains none."""
    return f'"{text}"' if text.isprintable() and not set(text) & set('"\\') else repr(text)


def wrapped(start: str, items: Sequence[str], end: str) -> Iterator[str]:
    """Yields the lines of a call or a signature: one line or, if that is too long, three or one for each item."""
    line = f"{start}{', '.join(items)}{end}"
    if len(line) <= _WIDE:
        yield line
        return
    indent = " " * (len(start) - len(start.lstrip()))
    yield start
    inner = f"{indent}    {', '.join(items)}"
    if len(inner) <= _WIDE:
        yield inner
        yield f"{indent}{end.lstrip()}"
        return
    for item in items:
        yield f"{indent}    {item},"
    yield f"{indent}{end.lstrip()}"
