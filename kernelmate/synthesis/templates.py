"""Kernel templates: what the judged instances have in common, and the instances for which a text is valid."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernelmate.records import Contract, Kernel, Parameter
from kernelmate.source import launch_shape
from kernelmate.source.dtypes import c_type_dtype
from kernelmate.source.instances import template_arguments
from kernelmate.source.template_parameters import TemplateParameter, template_parameters
from kernelmate.source.template_uses import inferred_instances
from kernelmate.synthesis.names import without_comments
from kernelmate.synthesis.plan import Refused

_INTEGRAL = re.compile(r"(?:const )?(?:(?:unsigned|signed|long|int|short|size_t|std::size_t|u?int\d+_t)\s*)+")


TESTED = "only the instances of the contract were tested"
"""Message of the assertion that rejects other instances."""


@dataclass(frozen=True, slots=True)
class Template:
    """The judged instances of a kernel that is a template.

    Attributes:
        types: the C++ type of each type parameter; only of those that are the same in all instances.
        sizes: value parameters that are sizes of the contract, by size.
        condition: a C++ expression that is true of the judged instances, and of all for which the text is written; may be empty.
    """

    types: Mapping[str, str]
    sizes: Mapping[str, str]
    condition: str

    @property
    def guard(self) -> list[str]:
        """Returns the statement that rejects other instances at compile time, if there can be any."""
        return [f'static_assert({self.condition}, "{TESTED}");'] if self.condition else []

    def resolved(self, parameter: Parameter) -> Parameter:
        """Returns a parameter with the types of the judged instances."""
        element = self.types.get(parameter.base)
        if element is None:
            return parameter
        dtype, vector = c_type_dtype(element)
        kind = re.sub(rf"\b{re.escape(parameter.base)}\b", element, parameter.type)
        return replace(parameter, base=element, type=kind, dtype=dtype, vector=vector)

    def passed(self, kernel: Kernel) -> dict[str, Parameter]:
        """Returns the value parameters that are sizes as function parameters, by name."""
        kinds = {one.name: one.type.removeprefix("const ") for one in template_parameters(kernel)}
        return {
            name: Parameter(name, kinds[name], kinds[name], None, 1, False, False, False, kernel.line, kernel.column)
            for name in self.sizes.values()
        }


def template_of(kernel: Kernel, contract: Contract) -> Template | None:
    """Returns the judged instances of a template; None for a kernel that is none.

    Raises:
        Refused: no instance is known, or a text for the judged ones would not compile for others that the project uses.
    """
    if not kernel.signature.template_parameters:
        return None
    parameters = template_parameters(kernel)
    if not parameters or any(one.kind in ("pack", "template") or not one.name for one in parameters):
        raise Refused("the kernel is a template with a pack, a template or a parameter without a name")
    given = [_bound(parameters, one) for one in contract.instances]
    if not given or any(one is None for one in given):
        raise Refused("the kernel is a template of which no instance is known")
    values = {one.name: list(dict.fromkeys(bound[one.name] for bound in given if bound)) for one in parameters}
    types = {one.name: values[one.name][0] for one in parameters if one.kind == "type" and len(values[one.name]) == 1}
    if kernel.unit.language != "cuda" and any(one.kind == "type" for one in parameters):
        raise Refused("the kernel is a template of a type, in Python text")
    sizes = _sizes(parameters, values, contract)
    free = {name for size, name in sizes.items() if _plain(size) == _plain(name)}
    guarded = [one for one in parameters if one.name not in free]
    listed = list(dict.fromkeys(tuple(bound[one.name] for one in guarded) for bound in given if bound))
    _check_uses(kernel, parameters, guarded, listed)
    return Template(types, sizes, _guard(guarded, listed))


def bound_arguments(kernel: Kernel, contract: Contract) -> list[dict[str, str]]:
    """Returns the arguments of each judged instance by template parameter; none for a kernel without known instances."""
    parameters = template_parameters(kernel) if kernel.signature.template_parameters else ()
    given = [_bound(parameters, one) for one in contract.instances] if parameters else []
    return [] if None in given else [one for one in given if one is not None]


def _bound(parameters: Sequence[TemplateParameter], instance: str) -> dict[str, str] | None:
    """Returns the template arguments by parameter, with defaults; None if one is missing."""
    parsed = template_arguments(instance)
    if parsed is None or len(parsed[1]) > len(parameters):
        return None
    defaults = [one.default for one in parameters[len(parsed[1]) :]]
    given = [*parsed[1], *(one for one in defaults if one is not None)]
    if len(given) < len(parameters):
        return None
    return {one.name: _number(argument) for one, argument in zip(parameters, given, strict=True)}


def _number(argument: str) -> str:
    """Returns a template argument as a decimal number without a suffix."""
    try:
        return str(int(argument.rstrip("uUlL"), 0))
    except ValueError:
        return argument


def _sizes(
    parameters: Sequence[TemplateParameter], values: Mapping[str, Sequence[str]], contract: Contract
) -> dict[str, str]:
    """Returns the value parameters that hold sizes, by size, matched by name or else by a unique value."""
    whole = {one.name: values[one.name] for one in parameters if _INTEGRAL.fullmatch(one.type)}
    numbers = {name: int(given[0]) for name, given in whole.items() if len(given) == 1 and given[0].isdigit()}
    constant = {
        size: value for size, value in contract.sizes[0].items() if all(one[size] == value for one in contract.sizes)
    }
    threads = {math.prod(launch_shape(contract, one).block) for one in contract.sizes}
    found: dict[str, str] = {}
    for size, value in constant.items():
        same = [name for name, number in numbers.items() if number == value]
        named = [name for name in same if _plain(name) == _plain(size)]
        alone = len(same) == 1 and [*constant.values()].count(value) == 1 and value not in threads
        if named or alone:
            found[size] = (named or same)[0]
    return found


def _plain(name: str) -> str:
    """Returns a name in a normal form: `kHeadDim` and `HEAD_DIM` become `head_dim`."""
    return re.sub(r"^k(?=[A-Z])", "", name).replace("_", "").casefold()


def _guard(parameters: Sequence[TemplateParameter], listed: Sequence[tuple[str, ...]]) -> str:
    """Returns a C++ expression that is true only for the listed arguments; empty if it is always true."""
    values = [list(dict.fromkeys(one)) for one in zip(*listed, strict=True)]
    if len(listed) == math.prod(map(len, values)):
        conditions = [_condition(*pair) for pair in zip(parameters, values, strict=True)]
        return _joined([one for one in conditions if one])
    # Only some of the combinations are listed.
    fixed = [_condition(one, given) for one, given in zip(parameters, values, strict=True) if len(given) == 1]
    several = [place for place, given in enumerate(values) if len(given) > 1]
    rows = dict.fromkeys(
        " && ".join(_condition(parameters[place], [one[place]]) for place in several) for one in listed
    )
    return _joined([*fixed, " || ".join(f"({row})" if " && " in row else row for row in rows)])


def _condition(parameter: TemplateParameter, values: Sequence[str]) -> str:
    """Returns a C++ expression that is true for the given values of a parameter; empty if it is always true."""
    name = parameter.name
    if {*values} == {"true", "false"}:
        return ""
    if parameter.kind == "type":
        tests = [f"std::is_same_v<{name}, {one}>" for one in values]
    elif values[0] in ("true", "false"):
        tests = [name if values[0] == "true" else f"!{name}"]
    else:
        tests = [f"{name} == {one}" for one in values]
    return " || ".join(tests)


def _joined(conditions: Sequence[str]) -> str:
    several = len(conditions) > 1
    return " && ".join(f"({one})" if several and " || " in one else one for one in conditions)


def _check_uses(
    kernel: Kernel,
    parameters: Sequence[TemplateParameter],
    guarded: Sequence[TemplateParameter],
    listed: Sequence[tuple[str, ...]],
) -> None:
    for used in inferred_instances(kernel):
        bound = _bound(parameters, used.text)
        if bound is not None and tuple(bound[one.name] for one in guarded) not in listed:
            raise Refused(
                f"the kernel is a template that is also used as {used.text}, which its contract does not list"
            )


_MOVED = frozenset({"float", "double", "half", "__half", "__nv_bfloat16"})
"""Types of elements that no index has."""


def with_block_sides(
    kernel: Kernel, template: Template | None, definition: str, helpers: str
) -> tuple[Template | None, str]:
    """Returns the template and a definition that has a template parameter as the measure of its tiles.

    That is a parameter that the baseline uses only to count threads along the grid. The text's constants of once, twice
    and half its value depend on it, so that the text serves every value of it, and its guard tests one condition less.
    """
    if template is None or " || " in template.condition or helpers:
        return template, definition
    body = without_comments(kernel.source).partition("{")[2]
    for test in template.condition.split(" && "):
        name, _, value = test.partition(" == ")
        along = re.sub(rf"\bblockIdx\.[xyz] \* {name}\b|\b{name} \* blockIdx\.[xyz]\b", "", body)
        if not value.isdigit() or along == body or re.search(rf"\b{name}\b", along):
            continue
        forms = {str(2 * int(value)): f"2 * {name}", value: name}
        forms |= {} if int(value) % 2 else {str(int(value) // 2): f"{name} / 2"}
        declared = re.findall(r"^[ \t]+constexpr int \w+ = (\d+);", definition, re.MULTILINE)
        bound = re.search(r"__launch_bounds__\((\d+)\)", definition)
        if not declared or not {*declared} <= forms.keys() or (bound is not None and int(bound[1]) != int(value) ** 2):
            continue
        left = " && ".join(one for one in template.condition.split(" && ") if one != test)
        guards = "".join(template.guard), "".join(replace(template, condition=left).guard)
        even = f'static_assert({name} % 2 == 0, "whole tiles");' if f"{name} / 2" in map(forms.get, declared) else ""
        was = _guard_of(definition, guards[0])
        indent = re.match(r"[ \t]*", definition[definition.rfind("\n", 0, definition.find(was)) + 1 :])
        now = f"\n{indent[0] if indent else ''}".join(one for one in (guards[1], even) if one)
        definition = definition.replace(was, now, 1) if now else re.sub(rf"[ \t]*{re.escape(was)}\n", "", definition, count=1)  # fmt: skip
        for number, form in forms.items():
            definition = re.sub(rf"(?m)^([ \t]+constexpr int \w+ = ){number};", rf"\g<1>{form};", definition)
        if bound is not None:
            definition = definition.replace(bound[0], f"__launch_bounds__({name} * {name})", 1)
        template = replace(template, condition=left)
    return template, definition


def _guard_of(definition: str, guard: str) -> str:
    """Returns a guard as a definition has it, which may have wrapped it."""
    found = re.search(r"\s+".join(map(re.escape, guard.split())), definition)
    return guard if found is None else found[0]


def for_every_type(template: Template | None, definition: str, helpers: str) -> str:
    """Returns the definition of a kernel that only moves elements, for each type that its template is instantiated with.

    The definition stays as it is if it has packs of elements, whose width depends on the type, or helpers with the type.
    """
    if template is None or len(template.types) != 1:
        return definition
    ((name, element),) = template.types.items()
    guard = "".join(template.guard)
    alone = template.condition == f"std::is_same_v<{name}, {element}>" and definition.count(guard) == 1
    if not alone or element not in _MOVED or "Pack" in definition or re.search(rf"\b{element}\b", helpers):
        return definition
    return re.sub(rf"\b{element}\b", name, re.sub(rf"\n[ \t]*{re.escape(guard)}", "", definition))


def template_head(front: str) -> tuple[str, str]:
    """Splits the text before a kernel's name after its template head and the line break or space that follows it."""
    end = front.rindex(">", 0, front.index("__global__")) + 1
    rest = front[end:].lstrip(" \t")
    return front[:end].lstrip() + ("\n" if rest.startswith("\n") else " "), rest
