"""Compiled kernels: built on demand, cached on disk by content and in memory with a limit."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernelmate.backends.emulator import llvm
from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.jit import store
from kernelmate.backends.emulator.jit.build import Interface, Shape, build
from kernelmate.backends.emulator.jit.layout import Checks
from kernelmate.backends.emulator.jit.refine import PartitionedKernel
from kernelmate.backends.emulator.program import Special
from kernelmate.version import VERSION

MOST_LOADED = 64
"""Maximum number of programs in memory; the least recently used are dropped."""
_loaded: OrderedDict[str, NativeProgram] = OrderedDict()


@dataclass(frozen=True, slots=True)
class NativeProgram:
    """Native code of a kernel for launches of one shape."""

    refined: PartitionedKernel
    interface: Interface
    loaded: llvm.LoadedObject


def program_for(refined: PartitionedKernel, shape: Shape, text: str, *, quick: bool = False) -> NativeProgram:
    """Returns the program of a kernel.

    Args:
        refined: the kernel.
        shape: properties of the launches.
        text: the kernel's PTX with its name.
        quick: a quickly compiled program suffices if no optimised one exists.

    Raises:
        Exception: LLVM is missing or fails.
    """
    quick = quick and not _is_there(_key(shape, text))
    key = _key(shape, text, quick=quick)
    found = _loaded.get(key)
    if found is None:
        found = _load(refined, shape, key, quick=quick)
        while len(_loaded) >= MOST_LOADED:
            _loaded.popitem(last=False)
        _loaded[key] = found
    _loaded.move_to_end(key)
    return found


def loaded_keys() -> tuple[str, ...]:
    """Returns the keys of the programs in memory, the least recently used first."""
    return tuple(_loaded)


def forget() -> None:
    """Drops all programs in memory; those on disk stay."""
    _loaded.clear()


def is_at_hand(shape: Shape, text: str) -> bool:
    """True if the program need not be compiled."""
    return any(_is_there(_key(shape, text, quick=quick)) for quick in (False, True))


def _is_there(key: str) -> bool:
    return key in _loaded or store.is_stored(key)


def _key(shape: Shape, text: str, *, quick: bool = False) -> str:
    parts = (
        VERSION, _own_code(), llvm.describe(), text, repr(quick),
        repr(sorted(shape.constants)), repr(sorted(shape.fixed)), repr(shape.counts), _text_of(shape.checks),
    )  # fmt: skip
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _text_of(checks: Checks | None) -> str:
    if checks is None:
        return ""
    return f"{checks.shared_shift} {checks.global_shift} {sorted(checks.indices)}"


@cache
def _own_code() -> str:
    """Returns a hash of the code generator, so that its changes invalidate older programs."""
    found = hashlib.sha256()
    here = Path(__file__).parent
    for path in sorted([*here.glob("*.py"), *here.parent.glob("*.py"), *here.parent.glob("instructions/*.py")]):
        found.update(path.read_bytes())
    return found.hexdigest()


def _load(refined: PartitionedKernel, shape: Shape, key: str, *, quick: bool) -> NativeProgram:
    found = _kept(refined, key)
    if found is not None:
        return found
    with store.compile_lock(key):
        # All processes that emulate for one verdict need it at the same time: another may just have built it.
        return _kept(refined, key) or _made(refined, shape, key, quick=quick)


def _kept(refined: PartitionedKernel, key: str) -> NativeProgram | None:
    kept = store.read(key)
    if kept is None:
        return None
    try:
        head, code = kept
        return NativeProgram(refined, _interface_of(head), llvm.LoadedObject(code))
    except (RuntimeError, ValueError, KeyError, TypeError):
        return None  # An entry that does not load is as good as none.


def _made(refined: PartitionedKernel, shape: Shape, key: str, *, quick: bool) -> NativeProgram:
    text, interface = build(refined, shape)
    code = llvm.compile_text(text, quick=quick)
    program = NativeProgram(refined, interface, llvm.LoadedObject(code))
    store.write(key, _head_of(interface), code)
    return program


def _head_of(interface: Interface) -> bytes:
    uniforms = [list(key) for key in interface.uniforms]  # type: ignore[call-overload]
    return json.dumps([dict(interface.registers), uniforms, interface.groups]).encode()


def _interface_of(head: bytes) -> Interface:
    registers, uniforms, groups = json.loads(head)
    return Interface(registers, {tuple(key): place for place, key in enumerate(uniforms)}, groups)


def specials_in(decoded: DecodedKernel) -> frozenset[str]:
    """Returns the names of the special registers that a kernel reads."""
    from kernelmate.backends.emulator.liveness import operands_of

    return frozenset(
        operand.name
        for step in decoded.steps
        for operand in operands_of(step.operation)
        if isinstance(operand, Special)
    )
