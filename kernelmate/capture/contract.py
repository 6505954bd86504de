"""Makes a contract of captured launches: sizes, expressions of the launch, shapes and directions."""

from __future__ import annotations

import keyword
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernelmate.capture.launch_parameters import (
    LaunchParameter,
    alias_targets,
    buffer_of,
    last_change,
    most_frequent_kind,
    number_text,
    output_tolerance,
    passed_parameters,
    scalar_of,
)
from kernelmate.capture.records import Capture, CapturedBuffer, CapturedLaunch
from kernelmate.capture.relations import Relation, Values, find_fraction, find_relation
from kernelmate.errors import ContractError, UsageError
from kernelmate.records import Argument, Contract, Direction, Kernel, Member, Passed
from kernelmate.source import inference, numpy_dtype
from kernelmate.source.expressions import RESERVED, evaluate_integer, names_in
from kernelmate.source.triton import function_of

ALIGNED = 16
"""Largest alignment in bytes that is promised: that of the widest load of a thread."""

MOST_CASES = 16
"""Most combinations of values that are distinguished by the size `launch`."""

LONGEST_REQUIRE = 1000
"""Characters of an expression in a contract."""


@dataclass(frozen=True, slots=True)
class CapturedCase:
    """The launches of one size.

    Attributes:
        size: the size.
        shapes: the shape of each array at it.
        launches: its records.
        count: launches of this size, recorded or not.
    """

    size: Mapping[str, int]
    shapes: Mapping[str, tuple[int, ...]]
    launches: tuple[CapturedLaunch, ...]
    count: int


@dataclass(frozen=True, slots=True)
class CapturedContract:
    """A contract that was made of launches.

    Attributes:
        contract: without reference and inputs.
        parameters: for each array and scalar, its number among the kernel's parameters.
        cases: one for each size, in their order.
        notes: remarks for the reader: relations that were not found or are ambiguous, launches that were left out.
    """

    contract: Contract
    parameters: Mapping[str, int]
    cases: tuple[CapturedCase, ...]
    notes: tuple[str, ...]


def captured_contract(kernel: Kernel, capture: Capture) -> CapturedContract:
    """Makes a contract of the launches of a kernel.

    Args:
        kernel: the kernel, for the names and types of its parameters.
        capture: its launches, at least one.

    Raises:
        UsageError: the kernel has other parameters than those that were passed, or a parameter that is neither a number nor a
            pointer to numbers.
    """
    notes: list[str] = []
    launches = most_frequent_kind(capture.launches, notes)
    parameters = passed_parameters(kernel, launches)
    return _Relations(kernel, parameters, launches, notes).solved(capture)


class _Relations:
    """Finds the contract that all launches meet."""

    def __init__(
        self,
        kernel: Kernel,
        parameters: Sequence[LaunchParameter],
        launches: list[CapturedLaunch],
        notes: list[str],
    ) -> None:
        self._kernel, self._parameters, self._notes = kernel, parameters, notes
        self._launches = launches
        self._prior = _prior(kernel)
        self._whole = {
            one.name: tuple(int(scalar_of(launch, one)) for launch in launches)
            for one in parameters
            if not one.pointer and numpy_dtype(one.dtype).kind in "iu"
        }
        self._candidates = {name: values for name, values in self._whole.items() if _usable(name) and min(values) >= 0}
        self._used: dict[str, Values] = {}

    def solved(self, capture: Capture) -> CapturedContract:
        """Returns the contract, and notes on it."""
        aliases = alias_targets(self._launches[0], self._parameters)
        arrays = {one.name: self._array(one) for one in self._parameters if one.pointer and one.number not in aliases}
        block = self._block()
        grid = self._grid()
        shared = self._shared()
        scalars = {one.name: self._scalar_entry(one) for one in self._parameters if not one.pointer}
        scalars |= self._by_launch([one for one in self._parameters if not one.pointer and scalars[one.name] is None])
        entries = {**arrays, **scalars}
        args = tuple(entry for one in self._parameters if (entry := entries.get(one.name)) is not None)
        contract = Contract(
            kernel=self._kernel.name, sizes=(), grid=grid, block=block, args=args, shared=shared,
            tolerance=output_tolerance(self._parameters, arrays, self._launches), options=self._launches[0].options,
            cooperative=self._launches[0].cooperative, passing=self._passing(aliases), instances=self._instances(),
            cluster=self._launches[0].cluster,
        )  # fmt: skip
        cases = self._cases(contract, capture)
        kept = tuple(self._within_require(cases))
        contract = replace(
            contract, sizes=tuple(case.size for case in kept), require=_require([case.size for case in kept]),
            weights=tuple(float(case.count) for case in kept) if len(kept) > 1 else (),
        )  # fmt: skip
        self._tell_support(kept)
        numbers = {one.name: one.number for one in self._parameters if one.name in entries}
        return CapturedContract(contract, numbers, kept, tuple(self._notes))

    # ------------------------------------------------------------------------------------------------ arrays

    def _array(self, one: LaunchParameter) -> Argument:
        buffers = [buffer_of(launch, one) for launch in self._launches]
        direction = self._direction(one, buffers)
        shape = self._shape(one, buffers)
        align = min(ALIGNED, *(one.address & -one.address or ALIGNED for one in buffers))
        itemsize = numpy_dtype(one.dtype).itemsize
        return Argument(one.name, direction, one.dtype, shape, align=align if align > itemsize else None)

    def _direction(self, one: LaunchParameter, buffers: Sequence[CapturedBuffer]) -> Direction:
        if one.const and any(buffer.changed for buffer in buffers):
            self._notes.append(
                f"{one.name} shares memory that the kernel writes by another parameter: it gets an array of its own"
            )
        if one.const or not any(buffer.changed for buffer in buffers):
            if not one.const and self._kernel.unit.language != "triton":
                self._notes.append(f"{one.name} is not const, but no captured launch changed it: it is an input")
            return "in"
        if all(buffer.written and buffer.read is False for buffer in buffers):
            return "out"
        prior = self._prior_argument(one.name)
        if prior is not None and prior.direction == "out" and all(buffer.written is None for buffer in buffers):
            return "out"
        if all(buffer.read is False for buffer in buffers):
            self._notes.append(f"{one.name}: the kernel reads nothing of it and writes only a part, so it is inout")
        return "inout"

    def _shape(self, one: LaunchParameter, buffers: Sequence[CapturedBuffer]) -> tuple[str, ...]:
        """Returns the shape in terms of sizes, by the first that fits every launch.

        These are the subscripts of the kernel's text, the shape of the program's arrays, the number of elements, and a size of
        its own.
        """
        itemsize = numpy_dtype(one.dtype).itemsize
        elements = tuple(buffer.extent // itemsize for buffer in buffers)
        prior = self._prior_shape(one.name)
        told = None if prior is None else tuple(math.prod(dims) for dims in zip(*prior[1], strict=True))
        if prior is not None and told == elements:
            return self._use(prior[0])
        known = [buffer.shape for buffer in buffers]
        ranks = {len(shape) if shape is not None and math.prod(shape) == count else 0 for shape, count in zip(known, elements, strict=True)}  # fmt: skip
        if len(ranks) == 1 and (rank := ranks.pop()):
            sides = [self._side(f"dimension {axis} of {one.name}", f"{one.name}_{axis}" if rank > 1 else f"{one.name}_size",
                                tuple(shape[axis] for shape in known if shape is not None)) for axis in range(rank)]  # fmt: skip
            return tuple(sides)
        if prior is not None and told is not None and all(map(int.__le__, told, elements)):
            most = max(have - need for have, need in zip(elements, told, strict=True))
            self._notes.append(
                f"{one.name}: its buffers go up to {most} elements beyond [{', '.join(prior[0])}], which the kernel's text indexes: that "
                "padding is left out"
            )
            self._check_recorded(one, buffers, told)
            return self._use(prior[0])
        self._check_recorded(one, buffers, elements)
        shape = (self._side(f"the number of elements of {one.name}", f"{one.name}_size", elements),)
        self._tell_padding(one, buffers, elements)
        return shape

    def _check_recorded(self, one: LaunchParameter, buffers: Sequence[CapturedBuffer], elements: Values) -> None:
        """Refuses arrays of which a part was not recorded.

        Raises:
            UsageError: a buffer is recorded only in part, and the array is or may be longer.
        """
        itemsize = numpy_dtype(one.dtype).itemsize
        for buffer, count in zip(buffers, elements, strict=True):
            if buffer.clipped and count * itemsize > buffer.bytes:
                raise UsageError(
                    f"{one.name} was recorded in part: {buffer.bytes} of {count * itemsize} bytes.",
                    hint="Raise --limit. Allocations of PyTorch hold many tensors; subscripts such as x[row * cols + col] show what belongs to one.",
                )

    def _tell_padding(self, one: LaunchParameter, buffers: Sequence[CapturedBuffer], elements: Values) -> None:
        """Notes how far launches changed a buffer of which only the allocation is known."""
        itemsize = numpy_dtype(one.dtype).itemsize
        touched = [last_change(buffer) // itemsize + 1 for buffer in buffers if buffer.changed]
        if touched and max(touched) < max(elements):
            self._notes.append(
                f"{one.name}: launches changed nothing beyond element {max(touched) - 1} of {max(elements)}: what follows may be padding"
            )

    def _prior_argument(self, name: str) -> Argument | None:
        """Returns the entry that the kernel's text and its host code show of an array."""
        return None if self._prior is None else next((one for one in self._prior.args if one.name == name), None)

    def _prior_shape(self, name: str) -> tuple[tuple[str, ...], list[Values]] | None:
        """Returns the shape that the kernel's text shows, and the values of its sides; None if a name has no value."""
        prior = self._prior_argument(name)
        if prior is None or not prior.shape:
            return None
        values = [self._evaluated(side, self._candidates) for side in prior.shape]
        return None if None in values else (prior.shape, [one for one in values if one is not None])

    def _evaluated(self, expression: str, names: Mapping[str, Values]) -> Values | None:
        try:
            return tuple(
                evaluate_integer(expression, {name: values[place] for name, values in names.items()}, expression)
                for place in range(len(self._launches))
            )
        except ContractError:
            return None

    def _use(self, expressions: tuple[str, ...]) -> tuple[str, ...]:
        """Marks the sizes in expressions as used, and returns the expressions."""
        for text in expressions:
            names = dict(names_in(text))
            self._used |= {name: values for name, values in self._candidates.items() if name in names}
        return expressions

    def _side(self, what: str, own: str, wanted: Values, block: Mapping[str, Values] | None = None) -> str:
        """Returns an expression for observed values; without one, a size of its own that has them."""
        sizes = {**self._candidates, **self._used}
        found = find_relation(wanted, sizes, block)
        if found is None:
            name = self._free_name(own)
            self._used[name] = wanted
            self._notes.append(f"no relation of {what} to other sizes was found: it is the size {name}")
            return name
        self._tell_ambiguous(what, found)
        return self._use((found.text,))[0]

    def _tell_ambiguous(self, what: str, found: Relation) -> None:
        if found.others:
            self._notes.append(
                f"{what} is {found.text}; {', '.join(found.others[:3])} fits the captured launches as well"
            )

    def _free_name(self, name: str) -> str:
        while (
            not _usable(name) or name in self._whole or name in self._used or name in {p.name for p in self._parameters}
        ):
            name += "_"
        return name

    # ------------------------------------------------------------------------------------------------ launch

    def _block(self) -> tuple[str, ...]:
        sides = _trimmed([tuple(launch.block[axis] for launch in self._launches) for axis in range(3)])
        if self._kernel.unit.language == "triton":
            return ("1",)
        return tuple(
            str(values[0])
            if len(set(values)) == 1
            else self._side(f"block.{'xyz'[axis]}", f"threads_{'xyz'[axis]}", values)
            for axis, values in enumerate(sides)
        )

    def _grid(self) -> tuple[str, ...]:
        names = self._block_names()
        sides = _trimmed([tuple(launch.grid[axis] for launch in self._launches) for axis in range(3)])
        if self._prior is not None and len(self._prior.grid) == len(sides):
            told = [self._evaluated(side, {**self._candidates, **names}) for side in self._prior.grid]
            if told == sides and any(len(set(values)) > 1 for values in sides):
                return self._use(self._prior.grid)
        return tuple(
            self._side(f"grid.{'xyz'[axis]}", f"grid_{'xyz'[axis]}", values, names) for axis, values in enumerate(sides)
        )

    def _shared(self) -> str:
        wanted = tuple(launch.shared for launch in self._launches)
        if self._kernel.unit.language == "triton" or not any(wanted):
            return "0"
        return self._side("the shared memory", "shared_bytes", wanted, self._block_names())

    def _block_names(self) -> dict[str, Values]:
        """Returns the names that stand for the block, or for a Triton kernel's constants, with their values."""
        if self._kernel.unit.language == "triton":
            options = dict(option.split("=", 1) for option in self._launches[0].options)
            constants = {one.name for one in function_of(self._kernel).parameters if one.constexpr}
            return {
                name: (int(value),) * len(self._launches)
                for name, value in options.items()
                if name in constants and value.isdigit()
            }
        flat = all(launch.block[1:] == (1, 1) for launch in self._launches)
        axes = {f"block_{'xyz'[axis]}": tuple(launch.block[axis] for launch in self._launches) for axis in range(3)}
        threads = tuple(math.prod(launch.block) for launch in self._launches)
        if flat:
            return {"block": threads}
        return {name: values for name, values in axes.items() if max(values) > 1}

    # ----------------------------------------------------------------------------------------------- scalars

    def _scalar_entry(self, one: LaunchParameter) -> Argument | None:
        """Returns a scalar's entry; None if its values follow from no size."""
        if one.name in self._used:
            return Argument(one.name, None, one.dtype)
        values = [scalar_of(launch, one) for launch in self._launches]
        same = len({repr(value) for value in values}) == 1
        if one.name in self._whole:
            whole = self._whole[one.name]
            listed = self._prior is not None and any(one.name in size for size in self._prior.sizes)
            if not same or (listed and one.name in self._candidates and whole[0] > 1):
                varying = {name: other for name, other in self._used.items() if len(set(other)) > 1}
                found = None if same else find_relation(whole, varying)
                if found is not None:
                    self._tell_ambiguous(one.name, found)
                    return Argument(one.name, None, one.dtype, value=found.text)
                if one.name not in self._candidates:
                    return None
                self._used[one.name] = whole
                return Argument(one.name, None, one.dtype)
            return Argument(one.name, None, one.dtype, value=str(whole[0]), fixed=True)
        if same:
            return Argument(one.name, None, one.dtype, value=number_text(values[0]), fixed=True)
        kind = numpy_dtype(one.dtype).type
        text = find_fraction([float(value) for value in values], self._used, lambda number: float(kind(number)))
        return None if text is None else Argument(one.name, None, one.dtype, value=text)

    def _by_launch(self, others: Sequence[LaunchParameter]) -> dict[str, Argument]:
        """Returns entries of scalars that no size gives, whose values the size `launch` numbers."""
        if not others:
            return {}
        rows = [tuple(number_text(scalar_of(launch, one)) for one in others) for launch in self._launches]
        distinct = list(dict.fromkeys(rows))[:MOST_CASES]
        left = sum(row not in distinct for row in rows)
        name = self._free_name("launch")
        kept = [place for place, row in enumerate(rows) if row in distinct]
        self._launches = [self._launches[place] for place in kept]
        for known in (self._used, self._whole, self._candidates):
            known.update({one: tuple(values[place] for place in kept) for one, values in known.items()})
        self._used[name] = tuple(distinct.index(rows[place]) for place in kept)
        names = ", ".join(one.name for one in others)
        dropped = f"; {left} launches with further values are left out" if left else ""
        self._notes.append(f"no relation of {names} to sizes was found: the size {name} indexes their values{dropped}")
        entries = {}
        for column, one in enumerate(others):
            text = distinct[-1][column]
            for number, row in reversed(list(enumerate(distinct[:-1]))):
                text = text if row[column] == text else f"{row[column]} if {name} == {number} else {text}"
            entries[one.name] = Argument(one.name, None, one.dtype, value=text, fixed=text == distinct[-1][column])
        return entries

    # ------------------------------------------------------------------------------------------------- cases

    def _instances(self) -> tuple[str, ...]:
        """Returns the instance of a template that was launched, by its name, else by the kernel's text."""
        name = self._launches[0].kernel
        if not self._kernel.signature.template_parameters:
            return ()
        return (name,) if "<" in name else () if self._prior is None else self._prior.instances

    def _passing(self, aliases: Mapping[int, int]) -> tuple[Passed, ...]:
        if not aliases:
            return ()
        found = []
        for one in self._parameters:
            target = self._parameters[aliases.get(one.number, one.number)].name
            found.append(Passed(one.name, "alias" if one.number in aliases else "argument", (Member(target, 0),)))
        return tuple(found)

    def _cases(self, contract: Contract, capture: Capture) -> list[CapturedCase]:
        order = [
            *(name for name in self._whole if name in self._used),
            *(n for n in self._used if n not in self._whole),
        ]
        sizes = [{name: self._used[name][place] for name in order} for place in range(len(self._launches))]
        recorded = Counter(launch.key for launch in self._launches)
        shares = {key: sum(capture.counts.get(key, Counter()).values()) / number for key, number in recorded.items()}
        groups: dict[tuple[int, ...], list[int]] = {}
        for place, size in enumerate(sizes):
            groups.setdefault(tuple(size.values()), []).append(place)
        cases = []
        for places in groups.values():
            size = sizes[places[0]]
            shapes = {
                one.name: tuple(evaluate_integer(side, size, side) for side in one.shape)
                for one in contract.args
                if one.shape is not None
            }
            # Launches of one key may have different sizes, if floats are among them: each stands for as many unrecorded ones.
            count = round(sum(shares[self._launches[place].key] for place in places))
            launches = tuple(self._launches[place] for place in places)
            cases.append(CapturedCase(size, shapes, launches, max(count, len(launches))))
        return sorted(cases, key=lambda case: -case.count)

    def _within_require(self, cases: Sequence[CapturedCase]) -> list[CapturedCase]:
        """Returns the most frequent sizes that one condition can list."""
        kept = list(cases)
        while len(_condition([case.size for case in kept])) > LONGEST_REQUIRE:
            kept.pop()
        if len(kept) < len(cases):
            self._notes.append(
                f"{len(cases) - len(kept)} of {len(cases)} sizes, the least frequent, are left out: `require` has no room for them"
            )
        return kept

    def _tell_support(self, cases: Sequence[CapturedCase]) -> None:
        if len(cases) == 1 and cases[0].size:
            self._notes.append("all launches have one size: expressions that fit it may be coincidences")
        alone = [case for case in cases if len(case.launches) == 1]
        if alone:
            names = "; ".join(", ".join(f"{name} = {value}" for name, value in case.size.items()) for case in alone[:3])
            at = f" ({names}{'; ...' if len(alone) > 3 else ''})" if names else ""
            self._notes.append(
                f"{len(alone)} of {len(cases)} sizes have one recorded launch{at}: bench settles a size with two whose outputs differ"
            )


# ------------------------------------------------------------------------------------------------------- values


def _prior(kernel: Kernel) -> Contract | None:
    """Returns the parts of a contract that follow from the kernel's text and its host code, without guesses; None if there are none."""
    try:
        found = inference(kernel)
    except ContractError:
        return None
    args = tuple(one for one in found.contract.args if one.name in found.origins)
    return replace(found.contract, args=args, grid=found.contract.grid if "grid" in found.origins else ())


def _usable(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not keyword.iskeyword(name) and name not in RESERVED


def _trimmed(sides: list[Values]) -> list[Values]:
    """Returns the sides without those of one block or thread at the end."""
    while len(sides) > 1 and set(sides[-1]) == {1}:
        sides = sides[:-1]
    return sides


def _condition(sizes: Sequence[Mapping[str, int]]) -> str:
    alternatives = [" and ".join(f"{name} == {value}" for name, value in size.items()) for size in sizes]
    return " or ".join(f"({one})" if " and " in one and len(alternatives) > 1 else one for one in alternatives)


def _require(sizes: Sequence[Mapping[str, int]]) -> tuple[str, ...]:
    """Returns the condition that allows only the captured sizes, since outputs are known for no others."""
    text = _condition(sizes)
    return (text,) if text else ()
