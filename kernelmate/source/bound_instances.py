"""Template instances whose arguments follow sizes: `scale<float, {n}>` is another instance at each n."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from kernelmate.records import Contract, Size
from kernelmate.source.expressions import evaluate_integer, parse_expression
from kernelmate.source.launch import size_allowed

BOUND = re.compile(r"\{([^{}]*[^{}\s][^{}]*)\}")
"""An argument that follows sizes; the group is its expression. `{}` is C++'s own: `k<Config<2>{}>`."""


def concrete_instances(contract: Contract) -> tuple[str, ...]:
    """Return the instances of a contract: those it names, and one for each value that its listed sizes give an argument.

    Raises:
        ContractError: an argument has no whole number as its value at a size.
    """
    found: list[str] = []
    for instance in contract.instances:
        sizes = _sizes(contract) if BOUND.search(instance) else contract.sizes[:1]
        found += [_at_size(instance, size) for size in sizes]
    return tuple(dict.fromkeys(found))


def at_instance(contract: Contract, instance: str | None) -> Contract:
    """Return the contract under which one of the concrete instances is judged: at its own sizes, and at none that select another.

    The same contract if no argument follows sizes.

    Raises:
        ContractError: as `concrete_instances`.
    """
    if instance is None or instance in contract.instances:
        return contract
    for bound in contract.instances:
        own = [
            at for at, size in enumerate(contract.sizes) if BOUND.search(bound) and _at_size(bound, size) == instance
        ]
        if not own:
            continue
        size = contract.sizes[own[0]]
        required = (f"({text.strip()}) == {evaluate_integer(text, size, text)}" for text in BOUND.findall(bound))
        return replace(
            contract,
            sizes=tuple(contract.sizes[at] for at in own),
            weights=tuple(contract.weights[at] for at in own) if contract.weights else (),
            require=tuple(
                dict.fromkeys((*contract.require, *(ast.unparse(parse_expression(one)) for one in required)))
            ),
            instances=(instance,),
        )
    return contract


def _sizes(contract: Contract) -> tuple[Size, ...]:
    allowed = tuple(size for size in contract.sizes if size_allowed(contract, size))
    return allowed or contract.sizes


def _at_size(instance: str, size: Size) -> str:
    return BOUND.sub(lambda match: str(evaluate_integer(match[1], size, match[1].strip())), instance)
