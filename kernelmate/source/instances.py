"""Template instances: those that a contract names, and those of a file's launches and explicit instantiations.

Arguments may follow sizes: `scale<float, {n}>` is another instance at each n.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace

from kernelmate.records import Contract, Kernel, Size
from kernelmate.source.cuda import read_source
from kernelmate.source.document import Document
from kernelmate.source.dtypes import ITEM_BYTES, c_type_dtype
from kernelmate.source.expressions import ExpressionError, evaluate_integer, parse_expression
from kernelmate.source.launch import size_allowed
from kernelmate.source.launches import find_launches
from kernelmate.source.signature import spell
from kernelmate.source.template_parameters import example_instance
from kernelmate.source.tokens import closing_angle, lex, split_list

BOUND = re.compile(r"(?:(?<=[<,])|(?<=[<,]\s))\{([^{}]*[^{}\s][^{}]*)\}(?=\s*[,>])")
"""An argument that follows sizes; the group is its expression. Braces behind a type are C++'s own: `k<Config<2>{}>`, `k<Config{2, true}>`."""


def concrete_instances(contract: Contract) -> tuple[str, ...]:
    """Returns the instances of a contract: those it names, with `{n}` replaced by each value at its listed sizes.

    Raises:
        ContractError: an argument has no whole number as its value at a size.
    """
    found: list[str] = []
    for instance in contract.instances:
        sizes = _sizes(contract) if BOUND.search(instance) else contract.sizes[:1]
        found += [_at_size(instance, size) for size in sizes]
    return tuple(dict.fromkeys(found))


def at_instance(contract: Contract, instance: str | None) -> Contract:
    """Returns the contract under which one concrete instance is judged, with only the sizes that select it.

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


def template_arguments(instance: str) -> tuple[str, tuple[str, ...]] | None:
    """Returns name and template arguments of `name<float, 256>`; None for other text."""
    tokens = lex(instance).tokens
    opening = next((index for index, token in enumerate(tokens) if token.text == "<"), None)
    if opening is None or opening == 0:
        return None
    end = closing_angle(tokens, opening)
    if end is None or end != len(tokens) - 1:
        return None
    parts = split_list(tokens, opening + 1, end)
    name = "".join(token.text for token in tokens[:opening])
    return name, tuple(spell(tokens[first:last]) for first, last in parts)


def stands_for(name: str, declared: str, given: str) -> str | None:
    """Returns the template argument for which a declared type, `Step<T>`, equals a given one, `Step<uchar>`; None if they differ."""
    declared, given = (" ".join(re.sub(r"\b(?:const|typename)\b", "", text).split()) for text in (declared, given))
    if declared == name:
        return given
    pattern, found = template_arguments(declared), template_arguments(given)
    if pattern is None or found is None or pattern[0].rpartition("::")[2] != found[0].rpartition("::")[2]:
        return None
    pairs = zip(pattern[1], found[1], strict=False)
    return next((value for one, other in pairs if (value := stands_for(name, one, other)) is not None), None)


def check_instances(document: Document, kernel: Kernel, contract: Contract) -> None:
    """Checks a contract's instances against the kernel's template.

    Raises:
        ContractError: instances on a kernel that is not a template, a template without, a wrong name, too many template
            arguments, a dtype that an instance contradicts.
    """
    parameters = kernel.signature.template_parameters
    if not parameters:
        if contract.instances:
            message = f"{kernel.name} is not a template, so it has no instances."
            document.fail(("instances",), message, "Remove instances.", key=True)
        return
    if not contract.instances:
        used = used_instances(kernel) or (example_instance(kernel)[0],)
        written = ", ".join(f'"{instance}"' for instance in used)
        document.required("instances", f"{kernel.name} is a template: add instances = [{written}].")
        document.fail(("instances",), "instances is empty.", f"Write instances = [{written}].")
    for index, instance in enumerate(contract.instances):
        path = ("instances", index)
        for bound in BOUND.finditer(instance):
            _check_bound(document, contract, index, bound)
        parsed = template_arguments(BOUND.sub("1", instance))
        if parsed is None:
            document.fail(
                path, f"{instance!r} is not an instance of {kernel.name}.", f"Write {example_instance(kernel)[0]}."
            )
        name, arguments = parsed
        if name not in (kernel.name, kernel.name.rpartition("::")[2]):
            document.fail(path, f"{name} is not {kernel.name}.", f"Write {example_instance(kernel)[0]}.")
        if instance in contract.instances[:index]:
            document.fail(path, f"{instance} is listed twice.", "Remove one of the two.")
        if len(arguments) > len(parameters) and not _has_pack(kernel):
            message = f"{instance} gives {len(arguments)} template arguments, {kernel.name} takes {len(parameters)}."
            document.fail(path, message, f"Write {example_instance(kernel)[0]}.")
        _check_dtypes(document, kernel, contract, index, dict(zip(parameters, arguments, strict=False)))


def _check_bound(document: Document, contract: Contract, index: int, bound: re.Match[str]) -> None:
    """Checks an argument that follows sizes, such as `{n}`: a whole number at each of them."""
    path = ("instances", index)
    document.expression(path, bound[1], contract.sizes[0], bound.start(1))
    for size in contract.sizes:
        try:
            evaluate_integer(bound[1], size, bound[1].strip())
        except ExpressionError as error:
            document.fail(path, error.message, error.hint or "", offset=bound.start(1) + error.offset)


def _check_dtypes(document: Document, kernel: Kernel, contract: Contract, index: int, bound: Mapping[str, str]) -> None:
    for parameter, argument in zip(kernel.signature.parameters, contract.parameters, strict=True):
        if argument is None:
            continue
        dtype, vector = c_type_dtype(bound.get(parameter.base, ""))
        width_differs = dtype is not None and ITEM_BYTES[dtype] != ITEM_BYTES[argument.dtype]
        if dtype is not None and vector == 1 and dtype != argument.dtype and (width_differs or not parameter.pointer):
            message = (
                f"{contract.instances[index]} makes {parameter.name} hold {dtype}, and [args] says {argument.dtype}."
            )
            document.fail(
                ("instances", index), message, "Change one of the two; a contract has one dtype per argument."
            )


def _has_pack(kernel: Kernel) -> bool:
    return "..." in "".join(kernel.source.split("__global__")[0].split())


def used_instances(kernel: Kernel) -> tuple[str, ...]:
    """Returns the instances in a file's launches and explicit instantiations, without duplicates.

    Instances whose arguments are template parameters or host variables are left out.
    """
    simple = kernel.name.rpartition("::")[2]
    found = []
    starts = {launch.start for launch in kernel.launches}
    for launch in find_launches(kernel.unit.text):
        if launch.start in starts and launch.template_arguments:
            found.append(f"{simple}{launch.template_arguments}")
    for name, spelled in read_source(kernel.unit.text).instantiations:
        if name == kernel.name or name.rpartition("::")[2] == simple:
            found.append(f"{simple}{spelled.removeprefix(simple)}")
    kept = []
    for instance in found:
        parsed = template_arguments(instance)
        if parsed is not None and all(_is_concrete(argument) for argument in parsed[1]):
            text = f"{kernel.name}<{', '.join(parsed[1])}>"
            if text not in kept:
                kept.append(text)
    return tuple(kept)


def _is_concrete(argument: str) -> bool:
    if c_type_dtype(argument)[0] is not None or argument in ("true", "false"):
        return True
    try:
        int(argument.rstrip("uUlL"), 0)
    except ValueError:
        return False
    return True
