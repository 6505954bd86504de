"""Plans the backward kernel of an operator: which of its arguments are saved, gradients, sizes or scalars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kernelmate.errors import UsageError
from kernelmate.records import Argument, Contract, Kernel
from kernelmate.session.operator_plan import OperatorPlan, free_value, plan_operator


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
    """Return the plan of a backward kernel.

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
    for reason, hint in _refusals(forward, plan):
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


def _refusals(forward: OperatorPlan, plan: OperatorPlan) -> Iterator[tuple[str, str]]:
    """Yields what does not fit, each with a remedy."""
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
                f"its output {a.name} is no gradient of an input",
                f"Name it grad_INPUT with INPUT one of {', '.join(inputs)}.",
            )
        elif source.dtype != a.dtype:
            yield f"{a.name} is {a.dtype}, and {source.name} {source.dtype}", "Give both one dtype."
    yield from _refused_numbers(forward, plan)


def _refused_numbers(forward: OperatorPlan, plan: OperatorPlan) -> Iterator[tuple[str, str]]:
    for size in plan.size_parameters:
        if size not in forward.contract.sizes[0]:
            yield (
                f"its size {size} follows from none of its tensors, and is no size of {forward.kernel.name}",
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
    """Returns the Python name of the forward output of which an array is the gradient; None if it is none."""
    return _without_prefix(name, {a.name: forward.names[a.name] for a in forward.outputs})


def _input_of(forward: OperatorPlan, name: str) -> str | None:
    """Returns the Python name of the forward input of which an array is the gradient; None if it is none."""
    return _without_prefix(name, {a.name: forward.names[a.name] for a in forward.tensors})


def _without_prefix(name: str, known: Mapping[str, str]) -> str | None:
    return next(
        (known[rest] for prefix in ("grad_", "d") if (rest := name.removeprefix(prefix)) != name and rest in known),
        None,
    )


def _scalar_of(forward: OperatorPlan, name: str) -> Argument | None:
    return next((a for a in forward.contract.args if a.name == name and free_value(a) is not None), None)
