"""Writes the registration of a part's gradients with torch.library: what is saved, and the parts of the backward graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kernelmate.errors import SourceError
from kernelmate.session.torch_operator import GradientRegistration, gradient_registration, wrapped
from kernelmate_torch.body_text import BodyWriter
from kernelmate_torch.parts import PartFunction
from kernelmate_torch.porting import PartGradient
from kernelmate_torch.program import GraphNode, ModelProgram


def gradient_lines(function: PartFunction, gradient: PartGradient) -> Iterator[str]:
    """Yields the lines that register the gradients of a part's operator, `NAME_kernel`.

    Args:
        function: the part.
        gradient: its gradients.
    """
    program = gradient.derived.program
    inputs = [one for one in program.nodes if one.kind == "input"]
    device = f"{inputs[0].target}.device" if inputs else ""
    writer = BodyWriter(program, gradient.parts, _unknown, device)
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
    """Yields a statement of a function, a call that is too long in several lines."""
    start, bracket, arguments = statement.partition("(")
    if not bracket or not statement.endswith(")"):
        yield statement
        return
    lines = wrapped(f"    {start}(", arguments.removesuffix(")").split(", "), ")")
    yield from (line.removeprefix("    ") for line in lines)


def _conditions(gradient: PartGradient) -> dict[str, str]:
    """Returns, for what serves the gradient of one input of several alone, the condition that this input needs it."""
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
    """Returns the inputs without axes that kernels alone take, as the arrays of one element that operators are given."""
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
