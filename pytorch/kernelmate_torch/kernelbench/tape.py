"""Records the operations that a module runs, with the line of each, and runs them again with some of them changed.

A tape holds what PyTorch executes below autograd, in place or not, with control flow already decided; it needs no export, so
that every module that runs has one. Used only in the module's own process.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.flop_counter import flop_registry

from kernelmate.compiler.targets import find_target

LAUNCH_S = 2e-6
"""Seconds that a launch takes on a GPU at least; what an eager operation costs beside its bytes and arithmetic."""

_GPU = find_target(None)
_BYTES_PER_S = _GPU.memory_gbps * 1e9
_FLOPS_PER_S = _GPU.fp32_tflops * 1e12


@dataclass(frozen=True, slots=True)
class ValueRef:
    """A tensor of the tape, by its number."""

    number: int


@dataclass(frozen=True, slots=True)
class TapeOperation:
    """One executed operation.

    Attributes:
        place: its position on the tape, from 0.
        target: torch's operator.
        args, kwargs: its arguments, tensors as `ValueRef`.
        outs: numbers of the tensors that it returned, None for what is not a tensor.
        reads: numbers of the tensors that it took.
        writes: storages that it changed in place.
        after: places of the operations whose results it reads.
        line: the innermost line of the task's file that called it; 0 if unknown.
        call: number of the call of PyTorch that it is a part of; one call of an LSTM makes many operations.
        view: it computes nothing, since its result shares memory with an argument.
        flops: arithmetic operations.
        moved: bytes of arguments and results.
    """

    place: int
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outs: tuple[int | None, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    after: tuple[int, ...]
    line: int
    call: int
    view: bool
    flops: float
    moved: float

    @property
    def name(self) -> str:
        """Returns the operator's name as users write it: `softmax` for `aten._softmax.default`."""
        return str(self.target).removeprefix("aten.").split(".")[0].strip("_").removeprefix("native_")

    @property
    def seconds(self) -> float:
        """Returns the least time of the operation by itself on an H100: its roof, and a launch."""
        return 0.0 if self.view else max(self.moved / _BYTES_PER_S, self.flops / _FLOPS_PER_S) + LAUNCH_S


Change = Callable[[TapeOperation, Sequence[Any], Mapping[str, Any]], Any]
"""Computes an operation's result from its arguments in place of the operation."""

Watcher = Callable[[TapeOperation, Sequence[Any], Sequence[Any], Any], None]
"""Called with an operation, its arguments before and after it ran, and its result."""


@dataclass
class Tape:
    """The operations of one call of a module.

    Attributes:
        operations: in order of execution.
        inputs: numbers of the module's inputs; None for one that is not a tensor, or that no operation took.
        externals: parameters, buffers and constants, by number.
        names: of parameters and buffers, by number.
        outputs: numbers of the tensors that the module returned.
        facts: shape and dtype, by number.
    """

    operations: list[TapeOperation] = field(default_factory=list)
    inputs: list[int | None] = field(default_factory=list)
    externals: dict[int, torch.Tensor] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    outputs: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    facts: dict[int, tuple[torch.Size, torch.dtype]] = field(default_factory=dict)

    def run(
        self, inputs: Sequence[Any], changes: Mapping[int, Change] | None = None, watch: Watcher | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Runs the operations on other inputs, and returns the results.

        Args:
            inputs: as many as the module takes, of the recorded shapes.
            changes: the computation that replaces an operation, by position.
            watch: sees every operation; floating arguments that it changes in place are copied for that.
        """
        values: dict[int, Any] = dict(self.externals)
        values |= {n: given for n, given in zip(self.inputs, inputs, strict=True) if n is not None}
        last = self._last_uses()
        for one in self.operations:
            args, kwargs = _filled(one.args, values), _filled(one.kwargs, values)
            before = args
            if watch is not None and one.writes:
                before = tree_map(lambda value: value.clone() if torch.is_tensor(value) else value, args)
            change = None if changes is None else changes.get(one.place)
            made = one.target(*args, **kwargs) if change is None else _changed(change, one, args, kwargs)
            if watch is not None:
                watch(one, before, args, made)
            for number, value in zip(one.outs, tree_flatten(made)[0], strict=False):
                if number is not None:
                    values[number] = value
            for number in last.get(one.place, ()):
                values.pop(number, None)
        return tuple(values[number] for number in self.outputs)

    def _last_uses(self) -> dict[int, list[int]]:
        last: dict[int, int] = {}
        for one in self.operations:
            last.update(dict.fromkeys((*one.reads, *(n for n in one.outs if n is not None)), one.place))
        kept = {*self.externals, *self.outputs}
        found: dict[int, list[int]] = {}
        for number, place in last.items():
            if number not in kept:
                found.setdefault(place, []).append(number)
        return found

    def live(self, cut: Mapping[int, Iterable[int]] | None = None) -> set[int]:
        """Returns the positions on the tape of the operations that the results need.

        Args:
            cut: for changed operations, the positions whose results they still read.
        """
        found: set[int] = set()
        left = list(self.ends)
        while left:
            place = left.pop()
            if place not in found:
                found.add(place)
                left += (cut or {}).get(place, self.operations[place].after)
        return found

    def needed_share(self, cut: Mapping[int, Iterable[int]]) -> float:
        """Returns the share of the work, by least times on a GPU, that is left when operations are changed."""
        whole = sum(self.operations[place].seconds for place in self.live())
        left = sum(self.operations[place].seconds for place in self.live(cut) if place not in cut)
        return left / whole if whole else 1.0

    def needed(self, places: Iterable[int]) -> set[int]:
        """Returns operations, and all those whose results they need."""
        found: set[int] = set()
        left = list(places)
        while left:
            one = left.pop()
            if one not in found:
                found.add(one)
                left += self.operations[one].after
        return found

    def reach(self, starts: Iterable[int]) -> set[int]:
        """Returns the positions of operations whose results depend on any of some values, given by number."""
        numbers: set[int] = set(starts)
        found: set[int] = set()
        for one in self.operations:
            if numbers.intersection(one.reads) or found.intersection(one.after):
                found.add(one.place)
        return found

    def producer(self, one: TapeOperation, argument: Any) -> tuple[int, ...]:
        """Returns the positions of the operations whose results an argument of an operation holds."""
        if not isinstance(argument, ValueRef):
            return ()
        return tuple(place for place in one.after if argument.number in self.operations[place].outs)

    def inner(self) -> set[int]:
        """Returns the positions of operations that are only a part of a call whose other parts also compute something.

        PyTorch makes such a call of several operations; the task's author did not write them.
        """
        calls = Counter(one.call for one in self.operations if not one.view)
        return {one.place for one in self.operations if calls[one.call] > 1}

    @property
    def last_line(self) -> int:
        """Returns the line of the operation that makes the result; 0 if unknown."""
        return max((self.operations[place].line for place in self.ends), default=0)

    @property
    def seconds(self) -> float:
        """Returns the least time of all operations, one after the other, on an H100."""
        return sum(one.seconds for one in self.operations)

    @property
    def flops(self) -> float:
        """Returns the arithmetic operations of all."""
        return sum(one.flops for one in self.operations)

    @property
    def moved(self) -> float:
        """Returns the bytes that all operations take and give."""
        return sum(one.moved for one in self.operations if not one.view)


def _filled(tree: Any, values: Mapping[int, Any]) -> Any:
    """Returns arguments with numbers replaced by their tensors; containers are small, so plain recursion is fastest."""
    if isinstance(tree, ValueRef):
        return values[tree.number]
    if isinstance(tree, list | tuple):
        return type(tree)(_filled(one, values) for one in tree)
    if isinstance(tree, dict):
        return {name: _filled(one, values) for name, one in tree.items()}
    return tree


def _changed(change: Change, one: TapeOperation, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Returns the value that a change computes; it is written into the first argument if the operation works in place."""
    made = change(one, args, kwargs)
    if one.writes and torch.is_tensor(args[0]):
        args[0].copy_(made)
        made = args[0]
    return made


class _Calls(TorchFunctionMode):
    """Counts the calls of PyTorch that the module makes; those inside of another are not seen."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += 1
        return func(*args, **(kwargs or {}))


class _CallRecorder(TorchDispatchMode):
    """Writes down every operation that PyTorch executes."""

    def __init__(self, path: Path, tape: Tape, calls: _Calls) -> None:
        super().__init__()
        self._calls = calls
        self._files = frozenset({str(path), str(path.resolve())})
        self._tape = tape
        self._numbers: dict[int, int] = {}
        self._held: list[torch.Tensor] = []  # an identity is unique only while the tensor lives
        self._roots: dict[int, int] = {}
        self._makers: dict[int, int] = {}
        self._writers: dict[int, int] = {}

    def number(self, tensor: torch.Tensor) -> int:
        """Returns the number of a tensor; a new tensor gets the next number."""
        found = self._numbers.get(id(tensor))
        if found is None:
            found = self._numbers[id(tensor)] = len(self._held)
            self._held.append(tensor)
            self._roots[found] = _storage(tensor, found)
            self._tape.facts[found] = (tensor.shape, tensor.dtype)
        return found

    def after(self, number: int) -> tuple[int, ...]:
        """Returns the positions on the tape of the operations that created a tensor and that last changed its memory."""
        places = (self._makers.get(number), self._writers.get(self._roots[number]))
        return tuple(sorted({one for one in places if one is not None}))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # questions about a tensor's device and shape, which tensors without elements ask
            return func(*args, **kwargs)
        tape = self._tape
        given = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        reads = tuple(self._external(one) for one in given)
        after = tuple(sorted({place for one in reads for place in self.after(one)}))
        made = func(*args, **kwargs)
        flat = tree_flatten(made)[0]
        place = len(tape.operations)
        writes = tuple(sorted(self._written(func, args, kwargs)))
        known = {self._roots[one] for one in reads}
        outs = tuple(self.number(one) if isinstance(one, torch.Tensor) else None for one in flat)
        results = [number for number in outs if number is not None]
        view = not writes and bool(results) and all(self._roots[one] in known for one in results)
        for number in results:
            self._makers.setdefault(number, place)
        self._writers |= dict.fromkeys(writes, place)
        replaced = tree_map(
            lambda one: ValueRef(self.number(one)) if isinstance(one, torch.Tensor) else one, (args, kwargs)
        )
        moved = sum(
            one.numel() * one.element_size() for one in (*given, *(x for x in flat if isinstance(x, torch.Tensor)))
        )
        tape.operations.append(
            TapeOperation(
                place, func, tuple(replaced[0]), replaced[1], outs, reads, writes, after, self._line(), self._calls.number, view,
                0.0 if view else _flops(func, args, kwargs, made), 0.0 if view else float(moved),
            )
        )  # fmt: skip
        return made

    def _external(self, tensor: torch.Tensor) -> int:
        new = id(tensor) not in self._numbers
        number = self.number(tensor)
        if new:
            self._tape.externals[number] = tensor
        return number

    def _written(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> set[int]:
        """Returns the storages of the arguments that the operator's schema says it changes."""
        found: set[int] = set()
        for place, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            value = args[place] if place < len(args) else kwargs.get(argument.name)
            found |= {self._roots[self.number(one)] for one in tree_flatten(value)[0] if isinstance(one, torch.Tensor)}
        return found

    def _line(self) -> int:
        frame = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename in self._files:
                return frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return 0


def _storage(tensor: torch.Tensor, number: int) -> int:
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return -number - 1


def _flops(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], made: Any) -> float:
    """Returns the arithmetic operations: of products and convolutions exactly, else one for each element read or written."""
    counted = flop_registry.get(getattr(func, "overloadpacket", None))
    if counted is not None:
        try:
            return float(counted(*args, **kwargs, out_val=made))
        except Exception:  # noqa: BLE001, S110 -- a form that torch's own counter does not know counts as pointwise
            pass
    tensors = [one for one in (*tree_flatten(args)[0], *tree_flatten(made)[0]) if isinstance(one, torch.Tensor)]
    if "scaled_dot_product" in str(func) and len(tensors) >= 3:
        query, key, value = tensors[:3]
        products: float = 2.0 * query.numel() * (key.shape[-2] + value.shape[-2] * value.shape[-1] / query.shape[-1])
        return products
    return float(max((one.numel() for one in tensors), default=0))


def record(model: torch.nn.Module, inputs: Sequence[Any], path: Path) -> tuple[Tape, Any]:
    """Calls a module without gradients, and returns the tape with what the module returned.

    Args:
        model: the module.
        inputs: its inputs, which it may change.
        path: the task's file, of which lines are noted.

    Raises:
        Exception: whatever the module raises.
    """
    tape = Tape()
    calls = _Calls()
    recorder = _CallRecorder(path, tape, calls)
    tape.inputs = [recorder.number(one) if torch.is_tensor(one) else None for one in inputs]
    for name, one in [*model.named_parameters(), *model.named_buffers()]:
        number = recorder.number(one)
        if number not in tape.inputs:
            tape.externals[number], tape.names[number] = one, name
    with torch.no_grad(), calls, recorder:
        returned = model(*inputs)
    tape.outputs = [recorder.number(one) for one in tree_flatten(returned)[0] if torch.is_tensor(one)]
    tape.ends = sorted({place for number in tape.outputs for place in recorder.after(number)})
    for number in tape.outputs:  # a parameter or constant that is returned as it is
        if number not in tape.inputs and recorder.after(number) == ():
            tape.externals.setdefault(number, recorder._held[number])
    return tape, returned
