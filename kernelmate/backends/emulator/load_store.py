"""Binds loads and stores to registers and memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.backends.emulator.access import (
    ClusterPort,
    GenericPort,
    GlobalPort,
    ParameterPort,
    Port,
    WindowPort,
)
from kernelmate.backends.emulator.happens_before import SCOPES
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.link import LinkedKernel
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.operations import Atomic, Load, Store
from kernelmate.backends.emulator.program import Address, Register, Symbol
from kernelmate.backends.emulator.registers import Bound, ConstantOperand, LaneOperand, Value, spread, values_of
from kernelmate.backends.emulator.spaces import CLUSTER_SHARED
from kernelmate.backends.emulator.types import SIGNED, SIZES, UNSIGNED, Array, is_signed

_NOT_A_NUMBER = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "tf32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}


def element_dtype(kind: str) -> np.dtype[Any]:
    """Returns the memory type of a value: bits, signed if a load extends them."""
    return (SIGNED if is_signed(kind) else UNSIGNED)[SIZES[kind]]


class Addressing:
    """Source of an instruction's addresses: a base per lane or for all, and the port of its space."""

    def __init__(
        self,
        machine: Machine,
        linked: LinkedKernel,
        site: MemoryInstruction,
        space: str,
        address: Address,
        dtype: np.dtype[Any],
    ) -> None:
        self.machine = machine
        offset = address.offset
        base: Value = ConstantOperand(np.uint64(0))
        if isinstance(address.base, Symbol):
            space, start = self._symbol(linked, space, address.base)
            offset += start
        elif isinstance(address.base, Register):
            wide = machine.registers.width(address.base.name)
            base = machine.registers.read(address.base, f"u{8 * wide}")
        self.port = self._port(machine, site, space, offset, dtype)
        self.base = base
        self._scalar_base = isinstance(base, ConstantOperand) and isinstance(self.port, WindowPort)

    def _symbol(self, linked: LinkedKernel, space: str, symbol: Symbol) -> tuple[str, int]:
        if symbol.name in linked.local:
            return "local", linked.local[symbol.name].offset
        if symbol.name in linked.shared:
            return "shared", linked.shared[symbol.name].offset
        for buffer in self.machine.memory.buffers:
            if buffer.name == symbol.name and not buffer.visible:
                return "global", buffer.address
        for placed in linked.parameters:
            if placed.variable.name == symbol.name:
                return "param", placed.offset
        raise ValueError(f"no variable {symbol.name} in {space} memory")

    @staticmethod
    def _port(machine: Machine, site: MemoryInstruction, space: str, offset: int, dtype: np.dtype[Any]) -> Port:
        if space in {"global", "const"}:
            return GlobalPort(machine, site, offset, dtype)
        if space == "shared":
            return WindowPort(machine, site, offset, dtype, machine.shared)
        if space == CLUSTER_SHARED:
            return ClusterPort(machine, site, offset, dtype, machine.shared)
        if space == "local":
            return WindowPort(machine, site, offset, dtype, machine.local)
        if space == "param":
            return ParameterPort(machine, site, offset, dtype)
        return GenericPort(machine, site, offset, dtype)

    def addresses(self, active: Group) -> Array:
        """Returns the base of each active lane; one number if the port accepts that."""
        base = self.base
        if isinstance(base, LaneOperand):
            return base.array[active] if type(active) is slice else base.array.take(active)
        if self._scalar_base:
            return np.asarray(base.value)
        return np.full(len(self.machine.lanes_of(active)), base.value)


def poison_of(kind: str) -> Any:
    """Returns the value that a load from an invalid address gives: NaN for a float."""
    return element_dtype(kind).type(_NOT_A_NUMBER.get(kind, 0))


def bind_load(operation: Load, machine: Machine, linked: LinkedKernel, site: MemoryInstruction) -> Bound:
    """Binds a load as a function of the active lanes."""
    dtype = element_dtype(operation.kind)
    addressing = Addressing(machine, linked, site, operation.space, operation.address, dtype)
    kind = ("s" if dtype.kind == "i" else "b") + str(8 * dtype.itemsize)
    targets = [machine.registers.target(operand, kind) for operand in operation.results]
    poison = poison_of(operation.kind)
    port = addressing.port

    def write(values: Array, active: Group) -> None:
        if site.count == 1:
            if targets[0] is not None:
                targets[0][active] = values
            return
        for column, target in enumerate(targets):
            if target is not None:
                target[active] = values[:, column]

    def run(group: Group | None, active: Group) -> None:
        del group
        whole = False
        gathered: Array | None = None

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            nonlocal whole, gathered
            values = rows[elements] if type(elements) is slice else rows.take(elements, axis=0)
            if type(positions) is slice:
                whole = True
                write(values, active)
                return
            if gathered is None:
                gathered = np.full((len(machine.lanes_of(active)), *values.shape[1:]), poison)
            gathered[positions] = values

        port.visit(addressing.addresses(active), active, visit)
        if not whole:
            shape = (len(machine.lanes_of(active)),) if site.count == 1 else (len(machine.lanes_of(active)), site.count)
            write(np.full(shape, poison) if gathered is None else gathered, active)

    return run


def bind_store(operation: Store, machine: Machine, linked: LinkedKernel, site: MemoryInstruction) -> Bound:
    """Binds a store as a function of the active lanes."""
    dtype = UNSIGNED[SIZES[operation.kind]]
    addressing = Addressing(machine, linked, site, operation.space, operation.address, dtype)
    values = [machine.registers.read(operand, f"b{8 * dtype.itemsize}") for operand in operation.sources]
    port = addressing.port

    def run(group: Group | None, active: Group) -> None:
        del group
        count = len(machine.lanes_of(active))
        if site.count == 1:
            data = spread(values[0], active, count)
        else:
            data = np.empty((count, site.count), dtype)
            for column, value in enumerate(values):
                data[:, column] = values_of(value, active)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            rows[elements] = data[positions]

        port.visit(addressing.addresses(active), active, visit, data)

    return run


def site_of(operation: Load | Store | Atomic, number: int, position: Any, opcode: str) -> MemoryInstruction:
    """Describes a memory instruction for ports and monitors."""
    size = SIZES[operation.kind]
    if isinstance(operation, Load):
        count = len(operation.results)
        site = MemoryInstruction(number, "load", size * count, count, position, synchronizing=operation.synchronizing)
    elif isinstance(operation, Store):
        count = len(operation.sources)
        site = MemoryInstruction(number, "store", size * count, count, position, synchronizing=operation.synchronizing)
    else:
        site = MemoryInstruction(
            number, "atomic", size, 1, position, returns=operation.result is not None, synchronizing=True
        )
    _order_of(site, frozenset(opcode.split(".")[1:]))
    return site


def _order_of(site: MemoryInstruction, words: frozenset[str]) -> None:
    """Strength of the access (PTX ISA, memory consistency model: `.volatile` is `.relaxed.sys`, atomics are `.gpu`)."""
    site.volatile = "volatile" in words
    site.read_only = "nc" in words
    site.acquires = bool(words & {"acquire", "acq_rel"})
    site.releases = bool(words & {"release", "acq_rel"})
    if site.volatile or "mmio" in words:
        site.scope = SCOPES["sys"]
    elif site.action == "atomic" or words & {"relaxed", "acquire", "release"}:
        site.scope = next((SCOPES[word] for word in ("cta", "cluster", "gpu", "sys") if word in words), SCOPES["gpu"])
