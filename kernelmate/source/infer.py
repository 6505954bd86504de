"""Infers a contract from the host code that launches a kernel, from its signature, and from its indices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from kernelmate.errors import ContractError
from kernelmate.records import Argument, Contract, Direction, Kernel, Parameter
from kernelmate.source.arguments import entry_hint
from kernelmate.source.dtypes import ITEM_BYTES, c_type_dtype
from kernelmate.source.expressions import FUNCTIONS
from kernelmate.source.host_arrays import HostArray, divided
from kernelmate.source.infer_accesses import array_accesses, row_lengths
from kernelmate.source.infer_host import HostFacts, host_facts, lambda_launch, with_project_types
from kernelmate.source.infer_indices import indexed_by_inputs
from kernelmate.source.infer_launch import (
    LaunchGuess,
    is_launched,
    is_legal,
    launch_by_indices,
    partly_written,
    scaled_launch,
    work_of,
    written_launch,
)
from kernelmate.source.infer_loops import KernelLoops
from kernelmate.source.infer_python import python_facts
from kernelmate.source.infer_sizes import (
    MOST_ELEMENTS,
    ONLY_SIZE,
    bounded,
    commented_sides,
    counted,
    guessed_value,
    is_size,
    largest_array,
    matmul,
    matrix_of,
    ordered,
    rounded,
    shrunk_sizes,
    sizes_of,
)
from kernelmate.source.infer_structs import FlattenedKernel, element_of, mixed_hint, taken_apart, undefined
from kernelmate.source.instances import template_arguments, used_instances
from kernelmate.source.structs import AXES, pass_vectors
from kernelmate.source.template_parameters import example_instance
from kernelmate.source.template_uses import MOST_INSTANCES, inferred_instances
from kernelmate.source.tidying import tidied

_INDEX_TYPES = frozenset({"int32", "int64", "uint32", "uint64"})
LARGEST_FIXED = 1024
"""Largest number in the sides of an array that is taken for the same at every size."""

SMALL = 16
"""Multiprocessors of a first run, where a launch depends on their number."""


@dataclass(frozen=True, slots=True)
class Inference:
    """An inferred contract.

    Attributes:
        contract: with `inferred` set.
        origins: the source of each of its lines, by `sizes`, `grid`, `block`, `shared`, `instances` and the names of arguments.
    """

    contract: Contract
    origins: Mapping[str, str]


def infer_contract(kernel: Kernel) -> Contract:
    """Returns a contract for a kernel that has none, with `inferred` set.

    Raises:
        ContractError: as `inference`.
    """
    return inference(kernel).contract


def inference(kernel: Kernel) -> Inference:
    """Infer a contract, and say where each line of it comes from.

    The first launch in the file, else in its project, that is plain arithmetic gives grid, block and shared bytes, the numbers of sizes
    and scalars, and, by the allocations and copies of what it passes, shapes and directions. Everything else is guessed: a
    const pointer is an input, and any other is read and written, unless its subscripts show that each element is written and none
    read; they give shapes too, where they are sums of bounded indices. An integer is a size of its own name; a floating-point
    scalar is 1. Nothing is run.

    Raises:
        ContractError: a parameter's type does not determine its data, or a template has no instance in the file.
    """
    if kernel.unit.language == "triton":
        _fail_without_types(kernel)
    kernel = with_project_types(kernel)
    instances, bound = _instances(kernel)
    apart = taken_apart(kernel, bound)
    parameters = apart.kernel.signature.parameters
    types = {p.name: _type(kernel, p, bound) for p in parameters}
    single = [p for p in parameters if not p.pointer and types[p.name][1] == 1 and p.name not in apart.renamed]
    common = [replace(p, name=apart.common[p.name]) for p in parameters if p.name in apart.common and not p.pointer]
    own = [p.name for p in single if is_size(p, types[p.name][0])]
    whole = list(dict.fromkeys((*own, *(p.name for p in common if is_size(p, p.dtype or "")))))
    guess = _Guess(apart, types, whole, _constants(kernel, instances))
    instance = instances[0] if instances else None
    launches = _facts(kernel, whole, instance, types)
    for facts in launches:
        only = "" if guess.extents(facts) or facts.more else guess.count_of(facts)
        launch = written_launch(kernel, guess.launch_extents(facts), facts)
        if launch is not None and (selected := guess.bound(launch, facts, launches, instances)) is not None:
            return selected
        if launch is not None and (sizes := guess.legal_sizes(launch, facts, fixed=only)):
            return guess.contract(launch, sizes, facts, instances)
        launch = partly_written(launch_by_indices(kernel, guess.launch_extents(facts)), facts)
        if facts.values and (sizes := guess.legal_sizes(launch, facts)):
            return guess.contract(launch, sizes, facts, instances)
    nothing = HostFacts()
    launch = launch_by_indices(kernel, guess.launch_extents(nothing))
    return guess.contract(launch, sizes_of((*launch.more, *guess.extents(nothing)) or (ONLY_SIZE,)), nothing, instances)


def _facts(
    kernel: Kernel, whole: Sequence[str], instance: str | None, types: Mapping[str, tuple[str, int]]
) -> list[HostFacts]:
    """Returns the facts that the first launches show, those with a known grid before the others."""
    if kernel.unit.language == "python":
        found = list(python_facts(kernel, whole))
    else:
        found = list(host_facts(kernel, whole, instance, lambda name: "int" in types.get(name, ("", 1))[0]))
    return sorted(found, key=lambda facts: (not facts.grid, not facts.block))


def _instances(kernel: Kernel) -> tuple[tuple[str, ...], Mapping[str, str]]:
    """Returns the instances of a template, and what the first one binds its parameters to."""
    if not kernel.signature.template_parameters:
        return (), {}
    instances = used_instances(kernel) or tuple(one.text for one in inferred_instances(kernel)[:MOST_INSTANCES])
    if not instances:
        _fail_without_instance(kernel)
    parsed = template_arguments(instances[0])
    bound = {} if parsed is None else dict(zip(kernel.signature.template_parameters, parsed[1], strict=False))
    return tuple(text for text in instances if _same_types(kernel, text, bound)), bound


def _constants(kernel: Kernel, instances: Sequence[str]) -> Mapping[str, str]:
    """Returns template parameters that are the same whole number in all instances, with their values."""
    found: list[dict[str, str]] = []
    for text in instances:
        parsed = template_arguments(text)
        found.append({} if parsed is None else dict(zip(kernel.signature.template_parameters, parsed[1], strict=False)))
    first = found[0] if found else {}
    return {
        name: value for name, value in first.items() if value.isdigit() and all(one.get(name) == value for one in found)
    }


def _fail_without_types(kernel: Kernel) -> NoReturn:
    raise ContractError(
        f"{kernel.name} is a Triton kernel, whose parameters have no types until a contract gives them.",
        file=kernel.unit.path,
        line=kernel.line,
        column=kernel.column,
        hint="Write a contract above it; docs/triton.md has examples.",
    )


def _fail_without_instance(kernel: Kernel) -> None:
    line, column = kernel.unit.locate(kernel.line, kernel.column)
    example, needed = example_instance(kernel)
    given = lambda_launch(kernel)
    shown = "and neither its file nor its project shows its template arguments"
    raise ContractError(
        f"{kernel.name} is a template, {shown if given is None else f'and {given}, whose type has no name'}.",
        file=kernel.unit.path,
        line=line,
        column=column,
        hint=f'Give it a contract with instances = ["{example}"]{f", and the file {needed}" if needed else "."}',
    )


def _same_types(kernel: Kernel, instance: str, bound: Mapping[str, str]) -> bool:
    """Returns True if an instance gives the parameters the same dtypes as the first one, since a contract has one dtype each."""
    parsed = template_arguments(instance)
    if parsed is None:
        return False
    other = dict(zip(kernel.signature.template_parameters, parsed[1], strict=False))
    bases = {parameter.base for parameter in kernel.signature.parameters} & set(bound)
    return all(c_type_dtype(other.get(base, ""))[0] == c_type_dtype(bound[base])[0] for base in bases)


# ------------------------------------------------------------------------------------------------- the whole contract


class _Guess:
    """Composes a contract of what host code says and of guesses."""

    def __init__(
        self,
        apart: FlattenedKernel,
        types: Mapping[str, tuple[str, int]],
        whole: Sequence[str],
        constants: Mapping[str, str],
    ) -> None:
        self.apart, self.kernel = apart, apart.kernel
        self.types, self.whole, self.constants = types, whole, constants

    def extents(self, facts: HostFacts) -> tuple[str, ...]:
        """Returns the parameters that are sizes, the outermost in memory first."""
        return ordered([name for name in self.whole if name not in facts.derived])

    def count_of(self, facts: HostFacts) -> str:
        """Gives the size of a kernel without any the largest array's number of elements, and returns its name if host code says it."""
        largest = largest_array(facts.arrays, {name: ITEM_BYTES[dtype] for name, (dtype, _) in self.types.items()})
        if largest is None:
            return ""
        facts.values[ONLY_SIZE] = largest[1]
        facts.origins.setdefault("sizes", facts.origins.get(largest[0], ""))
        return ONLY_SIZE

    def launch_extents(self, facts: HostFacts) -> tuple[str, ...]:
        """Returns the extents that a launch by the kernel's indices runs over."""
        return matrix_of(self.whole) if self._matrix() else self.extents(facts)

    def _matrix(self) -> dict[str, tuple[str, ...]]:
        return matmul(self.whole, [p.name for p in self.kernel.signature.parameters if p.pointer])

    def legal_sizes(self, launch: LaunchGuess, facts: HostFacts, *, fixed: str = "") -> tuple[Mapping[str, int], ...]:
        """Returns the sizes at which a launch is valid, the host's own first; empty if there is none.

        The value of the size `fixed` is never made smaller.
        """
        extents = (*launch.more, *self.extents(facts)) or (ONLY_SIZE,)
        usual, odd = (*sizes_of(extents, launch.fixed_threads(self.whole)), {})[:2]
        own = {**usual, **facts.values}
        if "multiProcessorCount" in launch.more:
            own, odd = {**own, "multiProcessorCount": SMALL}, {**odd, "multiProcessorCount": 3}
        fixed = ONLY_SIZE if launch.fixed_threads(self.whole) else fixed
        most = MOST_ELEMENTS // max(own.get(fixed, 1), 1)
        tried = [{**own, **shrunk_sizes({name: own[name] for name in extents if name != fixed}, most)}, usual, odd]
        sides = (*launch.grid, *launch.block)
        whole, odd = rounded(usual, sides, launch.block), rounded(odd, sides, launch.block)
        if all(name in facts.values for name in extents) and is_legal(launch, tried[:1]):
            return ({name: tried[0][name] for name in extents},)  # a guessed one might be none that it is meant for
        found: list[Mapping[str, int]] = []
        for size in (*tried[:2], whole, *tried[2:]):
            size = {name: size[name] for name in usual}
            if size not in found and (size not in (usual, whole) or not found) and is_legal(launch, [size]):
                found.append(size)
        return tuple(found)

    def bound(
        self, launch: LaunchGuess, facts: HostFacts, launches: Sequence[HostFacts], instances: tuple[str, ...]
    ) -> Inference | None:
        """Returns a contract whose instance follows a size, where launches of several instances are selected by its value."""
        chosen = facts.selection
        if chosen is None or not instances:
            return None
        others = [
            one
            for one in launches
            if one.selection is not None
            and (one.selection.size, one.selection.position) == (chosen.size, chosen.position)
        ]
        values = {one.selection.value: one for one in reversed(others) if one.selection is not None}
        parsed = template_arguments(instances[0])
        if parsed is None or chosen.position >= len(parsed[1]):
            return None
        followed = scaled_launch(launch, values, chosen)
        sizes: list[Mapping[str, int]] = []
        for value in sorted(values):
            if is_launched(values[value], followed, chosen.size, value):
                own = replace(facts, values={**facts.values, chosen.size: value})
                sizes += [
                    size
                    for size in self.legal_sizes(followed, own, fixed=chosen.size)[:1]
                    if size[chosen.size] == value
                ]
        if not sizes:
            return None
        arguments = list(parsed[1])
        arguments[chosen.position] = f"{{{chosen.size}}}" if len(sizes) > 1 else str(sizes[0][chosen.size])
        found = self.contract(
            followed, tuple(sizes), replace(facts, values={}), (f"{parsed[0]}<{', '.join(arguments)}>",)
        )
        where = facts.origins.get("grid", "its launches")
        given = {name: value for name, value in facts.values.items() if name != chosen.size}
        smaller = [
            f"{name} = {value} there" for name, value in given.items() if any(size[name] != value for size in sizes)
        ]
        listed = ", ".join([where, *smaller, *_guesses(sizes[0], {**given, chosen.size: 0})])
        others_left = [str(value) for value in sorted(values) if all(size[chosen.size] != value for size in sizes)]
        left = f"; launched otherwise at {chosen.size} = {', '.join(others_left)}" if others_left else ""
        unread = f"; {facts.unread} more launches are not read" if facts.unread else ""
        return Inference(found.contract, {**found.origins, "sizes": listed + left + unread, "instances": where})

    def contract(
        self, launch: LaunchGuess, sizes: tuple[Mapping[str, int], ...], facts: HostFacts, instances: tuple[str, ...]
    ) -> Inference:
        """Returns the contract, and the origins of its lines."""
        extents = (*launch.more, *self.extents(facts)) or (ONLY_SIZE,)
        origins = {key: facts.origins[key] for key in launch.known if key in facts.origins}
        args = tuple(
            self._argument(one, extents, launch.grid, facts, origins, sizes) for one in self.kernel.signature.parameters
        )
        args, passing = pass_vectors(self.kernel.signature.parameters, self.types, args)
        args, passing = self.apart.passed(args, passing, extents)
        loops = KernelLoops(self.kernel, args, passing, self.constants)
        if launch.fixed_threads(self.whole) is None:
            sizes = tuple(bounded(size, args, facts.values, lambda at: work_of(launch, at, loops)) for size in sizes)
        if facts.values and "sizes" in facts.origins:
            smaller = [f"{name} = {value} there" for name, value in facts.values.items() if sizes[0].get(name) != value]
            origins["sizes"] = ", ".join([facts.origins["sizes"], *smaller, *_guesses(extents, facts.values)])
        args, passing = self.apart.passed(args, passing, extents)
        if instances:
            origins["instances"] = _origin_of(self.kernel, instances[0])
        integers = [one.name for one in args if one.shape is not None and "int" in one.dtype and one.direction != "out"]
        contract = Contract(
            kernel=self.kernel.name,
            sizes=sizes,
            grid=launch.grid,
            block=launch.block,
            args=args,
            passing=passing,
            shared=launch.shared,
            instances=instances,
            inferred=True,
            guessed=(
                *(name for name in extents if name not in facts.values),
                *(one.name for one in args if one.shape is not None and one.name not in origins),
            ),
            indexed=indexed_by_inputs(self.kernel, integers),
        )
        return Inference(contract, origins)

    def _argument(
        self,
        parameter: Parameter,
        extents: tuple[str, ...],
        grid: Sequence[str],
        facts: HostFacts,
        origins: dict[str, str],
        sizes: Sequence[Mapping[str, int]],
    ) -> Argument:
        name, (dtype, _) = parameter.name, self.types[parameter.name]
        if parameter.pointer:
            return self._array(parameter, extents, grid, facts, origins, sizes)
        told = facts.derived.get(name) or facts.scalars.get(name) or self.apart.value(name, extents)
        value = told or row_lengths(self.kernel, extents).get(name)
        if value is not None and _names_of(value) <= set(extents):
            origins |= {name: facts.origins[name]} if name in facts.origins else {}
            return Argument(name, None, dtype, value=value)
        own = [*(one for one in extents if one in self.whole), *([name] if name in extents else [])]
        return Argument(name, None, dtype, value=guessed_value(parameter, dtype, own))

    def _array(
        self,
        parameter: Parameter,
        extents: tuple[str, ...],
        grid: Sequence[str],
        facts: HostFacts,
        origins: dict[str, str],
        sizes: Sequence[Mapping[str, int]],
    ) -> Argument:
        dtype, vector = self.types[parameter.name]
        seen = array_accesses(self.kernel, extents, grid, self.constants)[parameter.name]
        host = facts.arrays.get(parameter.name, HostArray())
        shape, told = self._shape(parameter, facts, seen.shape, extents, sizes)
        origin = [facts.origins.get(parameter.name, "")] if told == "host" else [told] if told else []
        if shape is None:
            chosen = facts.selection
            small = chosen.size if chosen is not None and not chosen.known and chosen.value < SMALL else ""
            shape = self._matrix().get(parameter.name, tuple(name for name in extents if name != small) or extents)
        if told != "host" and vector > 1:
            shape = (*shape[:-1], f"{shape[-1]} * {vector}")
        if told != "host" and "(*" in parameter.type:
            sides = re.findall(r"\[([^\]]+)\]", parameter.type)
            values = [self.constants.get(side, side) for side in sides]
            shape = (*shape, *values) if all(value.isdecimal() for value in values) else shape
        direction: Direction = "in" if parameter.const else seen.direction or "inout"
        distribution = _index_range(extents) if direction == "in" and dtype in _INDEX_TYPES and vector == 1 else None
        if direction == "inout" and host.filled is False and told and not seen.is_read:
            direction = "out"
            origin += [facts.origins.get(parameter.name, "")]
        elif direction == "inout" and host.zeros:
            distribution = "zeros"
            origin += [facts.origins.get(parameter.name, "")]
        if any(origin):
            origins[parameter.name] = ", ".join(dict.fromkeys(one for one in origin if one))
        return Argument(parameter.name, direction, dtype, shape, distribution)

    def _shape(
        self,
        parameter: Parameter,
        facts: HostFacts,
        seen: tuple[str, ...] | None,
        extents: Sequence[str],
        sizes: Sequence[Mapping[str, int]],
    ) -> tuple[tuple[str, ...] | None, str]:
        """Returns an array's sides in elements, and their origin: `host`, a phrase, or nothing.

        The subscripts of the kernel give more sides than an allocation does, and less reliable ones: they hold if both have as
        many elements.
        """
        dtype, vector = self.types[parameter.name]
        host = facts.arrays.get(parameter.name, HostArray())
        known = host.shape
        if known is None and host.nbytes is not None:
            known = divided(host.nbytes, ITEM_BYTES[dtype], extents)
        known = _rest(_sized(known, facts.values), host.start)
        if known is not None and (not _names_of(*known) <= set(extents) or _is_fixed(known, extents)):
            known = None
        if known is not None and not _names_of(*known) and not facts.values and extents:
            known = None
        if known is not None and seen is not None and vector == 1 and counted(known, sizes) == counted(seen, sizes):
            return seen, "host"
        commented = commented_sides(self.kernel, parameter, extents)
        for shape, origin, sure in (
            (known, "host", host.sure and host.start == "0"),
            (seen, "its subscripts", True),
            (commented, "its comment", True),
            (known, "host", True),
        ):
            if shape is not None and sure and counted(shape, sizes) is not None:
                return shape, origin
        return None, ""


def _guesses(sizes: Iterable[str], known: Mapping[str, int]) -> list[str]:
    """Returns a phrase for each size whose value is guessed, if other sizes have known values."""
    return [f"{name} is a guess" for name in sizes if name not in known]


def _origin_of(kernel: Kernel, instance: str) -> str:
    found = next((one.origin for one in inferred_instances(kernel) if one.text == instance), "")
    return found or "its launches"


def _sized(shape: tuple[str, ...] | None, values: Mapping[str, int]) -> tuple[str, ...] | None:
    """Returns the sides, with a single numeric length replaced by the size that has this value in the host code."""
    if shape is None or len(shape) > 1 or not shape[0].isdigit():
        return shape
    return next(((name,) for name, value in values.items() if value == int(shape[0])), shape)


def _rest(shape: tuple[str, ...] | None, start: str | None) -> tuple[str, ...] | None:
    """Returns the sides of an array from an element on; all of them if it is the first element or not known."""
    if shape is None or start in ("0", None):
        return shape
    return (tidied(f"{' * '.join(f'({side})' for side in shape)} - ({start})"),)


def _is_fixed(shape: Sequence[str], extents: Sequence[str]) -> bool:
    """Returns True for sides that contain a large number, which is right at one size only."""
    numbers = [int(text) for side in shape for text in re.findall(r"\b\d+\b", side)]
    return bool(extents) and any(number > LARGEST_FIXED for number in numbers)


def _names_of(*expressions: str) -> set[str]:
    return {name for text in expressions for name in re.findall(r"[A-Za-z_]\w*", text)} - {
        *FUNCTIONS,
        "if",
        "else",
        "and",
        "or",
    }


# ------------------------------------------------------------------------------------------------- arguments


def _index_range(extents: Sequence[str]) -> str:
    """Returns the distribution of read-only integers, which may be indices.

    Values below every extent are valid for every array.
    """
    smallest = extents[0] if len(extents) == 1 else f"min({', '.join(extents)})"
    return f"integers(0, {smallest})"


def _type(kernel: Kernel, parameter: Parameter, bound: Mapping[str, str]) -> tuple[str, int]:
    dtype, vector = parameter.dtype, parameter.vector
    if dtype is None and parameter.base in bound:
        dtype, vector = c_type_dtype(bound[parameter.base])
    if dtype is None and parameter.base == "void" and parameter.pointer:
        dtype = "uint8"
    if dtype is None and (element := element_of(kernel, parameter, bound)) is not None:
        dtype, vector = element
    if dtype is None or (vector > len(AXES) and not parameter.pointer) or "*" in parameter.base:
        line, column = kernel.unit.locate(parameter.line, parameter.column)
        raise ContractError(
            f"The element type of {parameter.name} ({parameter.type}) cannot be inferred{undefined(kernel, parameter, bound)}.",
            file=kernel.unit.path,
            line=line,
            column=column,
            hint=mixed_hint(kernel, parameter, bound) or entry_hint(kernel, parameter),
        )
    return dtype, vector
