"""Dependence of a kernel on its environment: special registers, address bits, uninitialised registers.

None of these may affect a kernel's results. A forward data-flow analysis of the PTX finds the conditions, stores and
addresses that they reach; it proves no error by itself, but determines what launches must vary. Address arithmetic is
distinguished from inspecting address bits: sums with numbers stay pointers, the difference of two pointers into one
array is a number, and so are the low bits that alignment tests mask out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from kernelmate.backends.emulator.decode import DecodedKernel, DecodedStep, registers_in
from kernelmate.backends.emulator.liveness import operands_of, read_at_entry
from kernelmate.backends.emulator.operations import ActiveMask, Atomic, Compute, Load, ReadClock, Store
from kernelmate.backends.emulator.program import Address, Immediate, Operand, Register, Special, Symbol
from kernelmate.backends.emulator.retries import bounded_retries
from kernelmate.backends.emulator.types import SIZES

VOLATILE = frozenset(
    {"%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid", "%current_graph_exec", "%aggr_smem_size",
     "%reserved_smem_offset_begin", "%total_smem_size"}
)  # fmt: skip
"""Special registers that the launch does not determine (PTX ISA, Special Registers); clocks are separate operations."""

ALIGNMENT_BITS = 8
"""Low bits of an address that alignment tests examine: allocations start at multiples of 256 bytes."""

_WINDOW = "the window of shared memory"
_LOCAL_WINDOW = "the window of local memory"
"""Base of generic addresses of shared and local memory, which the launch does not determine either."""

_FROM_WINDOWS = ("cvta.shared", "cvta.local")
_GLOBAL = frozenset({"global", "generic"})
_MASKING = frozenset({"and", "rem", "bfe", "shl"})
"""Operations that extract low bits of a number."""

_MOST_LITERALS = 12
_MOST_PASSES = 16


@dataclass(frozen=True, slots=True)
class ValueTrace:
    """Abstract value of a register with respect to the environment.

    Attributes:
        kind: `pointer`; `bits` of one or several pointers, shifted right by `shift`; `address`, a number that depends
            on high bits or distances of pointers; `volatile`, a number that depends on special registers.
        base: the object that a pointer points into.
        exact: True if it is the base itself.
        names: names of the sources.
    """

    kind: Literal["pointer", "bits", "address", "volatile"]
    names: frozenset[str]
    base: str = ""
    exact: bool = False
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Dependence:
    """Effects of the environment on a kernel.

    Attributes:
        conditions: by step, the sources that its predicates depend on.
        plain: those of them that are comparisons of numbers alone, and no combinations of predicates.
        reached: sources that reach a condition, or a value or an address in memory.
        leaked: by line, special registers whose value is stored in an array by arithmetic alone.
        literals: numbers that volatile values are computed with.
        undefined: registers that may be read unwritten.
        stale: it loads through the read-only cache from an array or a variable that it writes to.
        aligned: it depends on low bits of addresses, as tests of alignment do; no surrounding launch varies those.
        masks: lines of the kernel that read the mask of converged lanes (`activemask`), which no program determines.
        retries: comparisons by which loops around a compare-and-swap give up, and the lines of the swaps.
    """

    conditions: Mapping[int, frozenset[str]]
    plain: frozenset[int]
    reached: frozenset[str]
    volatile: bool
    addresses: bool
    literals: tuple[int, ...]
    undefined: frozenset[str]
    stale: bool
    leaked: Mapping[int, frozenset[str]] = field(default_factory=dict)
    aligned: bool = False
    masks: tuple[int, ...] = ()
    retries: Mapping[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.reached or self.undefined or self.stale or self.masks or self.retries)


def dependence_of(decoded: DecodedKernel, arrays: Iterable[int]) -> Dependence:
    """Returns the dependence of a kernel; `arrays` are the positions of its array pointer parameters."""
    flow = _EnvironmentFlow(decoded, arrays)
    flow.settle()
    lines = [step.position.line if step.position else 0 for step in decoded.steps]
    masks = [line for line, step in zip(lines, decoded.steps, strict=True) if isinstance(step.operation, ActiveMask)]
    retries = {number: lines[swap] for number, swap in bounded_retries(decoded).items()}
    return replace(flow.result(), masks=tuple(dict.fromkeys(masks)), retries=retries)


class _EnvironmentFlow:
    def __init__(self, decoded: DecodedKernel, arrays: Iterable[int]) -> None:
        linked = decoded.linked
        names = [placed.variable.name for placed in linked.parameters]
        self._parameters = {names[number] for number in arrays if number < len(names)}
        self._outside = frozenset(linked.globals)
        self._steps = decoded.steps
        self._reads = [
            {name for operand in operands_of(step.operation) for name in registers_in(operand)}
            for step in decoded.steps
        ]
        self._values: dict[str, ValueTrace] = {}
        self._memory: dict[str, ValueTrace] = {}
        self._conditions: dict[int, frozenset[str]] = {}
        self._undefined = read_at_entry(decoded)
        self._aligned = False

    def settle(self) -> None:
        """Iterates the data flow to a fixed point."""
        sources = [number for number, step in enumerate(self._steps) if self._begins(step)]
        pending = range(len(self._steps)) if sources else ()
        for _ in range(_MOST_PASSES):
            changed = False
            for number in pending:
                step = self._steps[number]
                if self._begins(step) or not self._reads[number].isdisjoint(self._values):
                    changed |= self._follow(number, step)
                elif isinstance(step.operation, Load) and self._memory:
                    changed |= self._load(step, step.operation)
            if not changed:
                return

    def _begins(self, step: DecodedStep) -> bool:
        """True if a step reads a source itself: a parameter, a variable's address, a special register."""
        operation = step.operation
        if isinstance(operation, Load):
            base = operation.address.base
            return operation.space == "param" and isinstance(base, Symbol) and base.name in self._parameters
        if isinstance(operation, Compute):
            if step.opcode.startswith(_FROM_WINDOWS):
                return True
            return any(self._source(operand) is not None for operand, _ in operation.sources)
        return isinstance(operation, ReadClock)

    def _source(self, operand: Operand) -> ValueTrace | None:
        if isinstance(operand, Special) and (operand.name in VOLATILE or operand.name.startswith("%envreg")):
            if operand.name in {"%envreg1", "%envreg2"}:  # the workspace of a cooperative launch, in two halves
                return ValueTrace("bits", frozenset({operand.name}))
            return ValueTrace("volatile", frozenset({operand.name}))
        if isinstance(operand, Symbol) and operand.name in self._outside:
            return ValueTrace("pointer", frozenset({operand.name}), operand.name, exact=not operand.offset)
        return None

    def _value(self, operand: Operand) -> ValueTrace | None:
        if isinstance(operand, Register):
            return self._values.get(operand.name)
        return self._source(operand)

    def _follow(self, number: int, step: DecodedStep) -> bool:
        operation = step.operation
        if isinstance(operation, Compute):
            traces = [self._value(operand) for operand, _ in operation.sources]
            if any(kind == "pred" for _, kind in operation.results):
                found = _compared(step, operation, traces)
                names = frozenset() if found is None else found.names
                known = self._conditions.get(number, frozenset())
                if names - known and any(kind != "pred" for _, kind in operation.sources):
                    self._conditions[number] = names | known
                # A condition's effect shows when both of its outcomes are tried.
                return bool(names - known)
            if step.opcode.startswith(_FROM_WINDOWS):
                window = _WINDOW if step.opcode.startswith("cvta.shared") else _LOCAL_WINDOW
                return self._write(step, ValueTrace("pointer", frozenset({window}), window))
            found = _computed(step, operation, traces)
            self._aligned |= found is None and any(traces) and step.opcode.split(".")[0] in _MASKING
            return self._write(step, found)
        if isinstance(operation, ReadClock):
            return self._write(step, ValueTrace("volatile", frozenset({operation.register})))
        if isinstance(operation, Load):
            return self._load(step, operation)
        if isinstance(operation, Store | Atomic):
            return self._store(operation)
        hard = [t for name in self._reads[number] if (t := self._values.get(name)) and t.kind == "volatile"]
        return self._write(step, _join_all(hard))

    def _load(self, step: DecodedStep, operation: Load) -> bool:
        base = operation.address.base
        if operation.space == "param" and isinstance(base, Symbol) and base.name in self._parameters:
            return self._write(step, ValueTrace("pointer", frozenset({base.name}), base.name, exact=True))
        found = self._memory.get(self._place(operation.space, operation.address))
        if found is not None and found.kind == "pointer":
            wide = SIZES[operation.kind] == 8
            found = replace(found, base=step.writes[0], exact=False) if wide and step.writes else None
        return self._write(step, found)

    def _store(self, operation: Store | Atomic) -> bool:
        values = operation.sources if isinstance(operation, Store) else (operation.value,)
        stored = _join_all([t for operand in values if (t := self._value(operand))])
        if stored is None or stored.kind in {"bits", "address"}:
            return False
        place = self._place(operation.space, operation.address)
        joined = _join(self._memory.get(place), stored, place)
        if joined == self._memory.get(place):
            return False
        assert joined is not None
        self._memory[place] = joined
        return True

    def _place(self, space: str, address: Address) -> str:
        """Returns the memory of an access: a variable of the module by name, an array, or the whole space."""
        base = self._base(address)
        if base in (_WINDOW, _LOCAL_WINDOW):
            return "shared" if base == _WINDOW else "local"
        if space in {"generic", "global"} and base is not None:
            return base
        return "local" if space in {"generic", "param"} else space

    def _base(self, address: Address) -> str | None:
        found = self._value(address.base) if address.base is not None else None
        return found.base if found is not None and found.kind == "pointer" else None

    def _write(self, step: DecodedStep, found: ValueTrace | None) -> bool:
        if found is None:
            return False
        changed = False
        for index, name in enumerate(step.writes):
            mine = found
            if found.kind == "pointer" and len(step.writes) > 1:  # halves of a pointer
                mine = ValueTrace("address" if index else "bits", found.names)
            joined = _join(self._values.get(name), mine, name)
            if joined is not None and joined != self._values.get(name):
                self._values[name] = joined
                changed = True
        return changed

    def result(self) -> Dependence:
        """Returns which sources reach conditions, stores and addresses, after the values no longer change."""
        reached: set[str] = set()
        for names in self._conditions.values():
            reached |= names
        leaked: dict[int, frozenset[str]] = {}
        cached, written = set[str](), set[str]()
        for step in self._steps:
            operation = step.operation
            base = self._base(operation.address) if isinstance(operation, Load | Store | Atomic) else None
            if base is not None and isinstance(operation, Load) and "nc" in step.opcode.split("."):
                cached.add(base)
            elif base is not None and isinstance(operation, Store | Atomic):
                written.add(base)
            if isinstance(operation, Load | Store | Atomic):
                reached |= self._reaches(step, operation, leaked)
        volatile = any(name.startswith("%") for name in reached)
        addresses = any(not name.startswith("%") for name in reached)
        literals = self._literals()
        plain = frozenset(number for number in self._conditions if _is_plain(self._steps[number]))
        return Dependence(
            self._conditions,
            plain,
            frozenset(reached),
            volatile,
            addresses,
            literals,
            self._undefined,
            not cached.isdisjoint(written),
            leaked,
            self._aligned,
        )

    def _reaches(
        self, step: DecodedStep, operation: Load | Store | Atomic, leaked: dict[int, frozenset[str]]
    ) -> frozenset[str]:
        where = self._value(operation.address.base) if operation.address.base is not None else None
        found = [where] if where is not None and where.kind in {"address", "volatile"} else []
        values = operation.sources if isinstance(operation, Store) else ()
        values = (operation.value,) if isinstance(operation, Atomic) else values
        hard = [t for operand in values if (t := self._value(operand)) and t.kind != "pointer"]
        if hard and where is not None and where.kind == "pointer" and where.base in self._parameters:
            names = frozenset[str]().union(*(t.names for t in hard if t.kind == "volatile"))
            if names:
                line = step.position.line if step.position else 0
                leaked[line] = leaked.get(line, frozenset()) | names
        return frozenset[str]().union(*(trace.names for trace in (*found, *hard)))

    def _literals(self) -> tuple[int, ...]:
        """Returns the first few constants that volatile values are compared or combined with."""
        found: dict[int, None] = {}
        for number, step in enumerate(self._steps):
            operation = step.operation
            if not isinstance(operation, Compute):
                continue
            traces = [self._values.get(name) for name in self._reads[number]]
            if not any(trace is not None and trace.kind == "volatile" for trace in traces):
                continue
            for operand, _ in operation.sources:
                if isinstance(operand, Immediate) and not operand.float_bytes:
                    found[operand.bits] = None
        return tuple(found)[:_MOST_LITERALS]


def _is_plain(step: DecodedStep) -> bool:
    operation = step.operation
    return isinstance(operation, Compute) and all(kind != "pred" for _, kind in operation.sources)


def _join_all(traces: list[ValueTrace]) -> ValueTrace | None:
    joined: ValueTrace | None = None
    for trace in traces:
        joined = _join(joined, trace, "")
    return joined


_RANK = {"pointer": 0, "bits": 1, "address": 2, "volatile": 3}


def _join(one: ValueTrace | None, two: ValueTrace | None, where: str) -> ValueTrace | None:
    """Joins two values; two pointers into different arrays become a pointer into the base of `where`."""
    if one is None or two is None or one == two:
        return one or two
    names = one.names | two.names
    if one.kind == two.kind == "pointer":
        base = one.base if one.base == two.base else where
        return ValueTrace("pointer", names, base, one.exact and two.exact and one.base == two.base)
    kind = max(one.kind, two.kind, key=_RANK.__getitem__)
    return ValueTrace(kind, names, shift=max(one.shift, two.shift))


def _immediate(step: Compute, index: int) -> int | None:
    if index >= len(step.sources):
        return None
    operand = step.sources[index][0]
    return operand.bits if isinstance(operand, Immediate) and not operand.float_bytes else None


def _hard(traces: Iterable[ValueTrace | None]) -> ValueTrace | None:
    """Combines values in a way that preserves neither pointers nor their low bits."""
    there = [trace for trace in traces if trace is not None]
    if not there:
        return None
    kind: Literal["address", "volatile"] = "volatile" if any(t.kind == "volatile" for t in there) else "address"
    if kind == "volatile":  # the other summand adds no information
        there = [trace for trace in there if trace.kind != "pointer"]
    return ValueTrace(kind, frozenset[str]().union(*(t.names for t in there)))


def _compared(step: DecodedStep, operation: Compute, traces: list[ValueTrace | None]) -> ValueTrace | None:
    """Returns the dependence of a predicate; None for comparisons with the same result in any environment."""
    if step.opcode.startswith("isspacep"):
        return None
    there = [trace for trace in traces if trace is not None]
    if all(trace.kind == "pointer" for trace in there):
        equality = {"eq", "ne"} & set(step.opcode.split("."))
        if len(there) == 1 and equality and 0 in (_immediate(operation, 0), _immediate(operation, 1)):
            return None  # a null pointer
        if len(there) == 2 and (there[0].base == there[1].base or (equality and there[0].exact and there[1].exact)):
            return None
    return _hard(there)


def _computed(step: DecodedStep, operation: Compute, traces: list[ValueTrace | None]) -> ValueTrace | None:
    there = [trace for trace in traces if trace is not None]
    if not there or any(trace.kind in {"address", "volatile"} for trace in there):
        return _hard(there)
    name = step.opcode.split(".")[0]
    if step.opcode.startswith(("cvta.to.shared", "cvta.to.local")):
        return None
    if name in {"mapa", "getctarank"}:
        return there[0] if name == "mapa" else None
    if name in {"mov", "cvta", "cvt"}:
        return _moved(step, operation, there)
    if name in {"selp", "min", "max"}:
        joined = _join_all(there)
        return replace(joined, base=step.writes[0]) if joined is not None and len(there) > 1 else joined
    if name in {"add", "sub", "mad", "neg", "not"}:
        return _summed(name, traces)
    if name in {"and", "shr", "shl", "bfe", "rem"}:
        return _masked(name, operation, traces)
    if name in {"or", "xor", "lop3"} and all(trace.shift == 0 for trace in there):
        return ValueTrace("bits", frozenset[str]().union(*(trace.names for trace in there)))
    return _hard(there)


def _moved(step: DecodedStep, operation: Compute, there: list[ValueTrace]) -> ValueTrace | None:
    if len(operation.sources) > 1:  # two halves
        return ValueTrace("pointer", frozenset[str]().union(*(t.names for t in there)), step.writes[0])
    (found,) = there
    result, source = operation.results[0][1], operation.sources[0][1]
    if step.opcode.startswith("cvt.") and found.kind == "pointer" and SIZES[result] < SIZES[source]:
        return ValueTrace("bits", found.names)
    if "f" in (result[0], source[0]) and step.opcode.startswith("cvt."):
        return _hard(there)
    return found


def _summed(name: str, traces: list[ValueTrace | None]) -> ValueTrace | None:
    there = [trace for trace in traces if trace is not None]
    if name == "mad" and (traces[0] is not None or traces[1] is not None):
        return _hard(there)
    if len(there) == 1:
        (found,) = there
        backwards = name in {"neg", "not"} or (name == "sub" and traces[0] is None)
        if found.kind == "pointer" and not backwards:
            return replace(found, exact=False)
        return ValueTrace("bits", found.names) if found.shift == 0 else _hard(there)
    one, two = there[0], there[1]
    if name == "sub" and one.kind == two.kind == "pointer" and one.base == two.base:
        return None
    return _hard(there)


def _masked(name: str, operation: Compute, traces: list[ValueTrace | None]) -> ValueTrace | None:
    there = [trace for trace in traces if trace is not None]
    found = there[0]
    constant = _immediate(operation, 1)
    if len(there) > 1 or constant is None:
        constant = _immediate(operation, 0) if name == "and" and len(there) == 1 else None
        if constant is None:
            return _hard(there)
    bits = 8 * SIZES[operation.results[0][1]]
    constant %= 1 << bits
    if name == "shr":
        return ValueTrace("bits", found.names, shift=found.shift + constant)
    if name == "shl":
        return None if bits - constant + found.shift <= ALIGNMENT_BITS else _hard(there)
    if name == "rem":
        return None if constant in {2, 4, 8, 16, 32, 64, 128, 256} and found.shift == 0 else _hard(there)
    if name == "bfe":
        length = _immediate(operation, 2)
        top = ALIGNMENT_BITS + 1 if length is None else found.shift + constant + length
        return None if top <= ALIGNMENT_BITS else _hard(there)
    if (constant << found.shift) < 1 << ALIGNMENT_BITS:
        return None
    if (1 << bits) - 1 - constant < 1 << ALIGNMENT_BITS and found.kind == "pointer":
        return replace(found, exact=False)
    return _hard(there)
