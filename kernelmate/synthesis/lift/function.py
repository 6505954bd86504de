"""Converts a kernel's stores to a NumPy function that returns the kernel's outputs."""

from __future__ import annotations

import contextlib
import keyword
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelmate.checks.reference import spelled
from kernelmate.records import Argument, Contract, Kernel
from kernelmate.synthesis.lift.arithmetic import DTYPES
from kernelmate.synthesis.lift.domains import Domains, LiftedResult
from kernelmate.synthesis.lift.loading import Loading
from kernelmate.synthesis.lift.machine import ThreadMachine
from kernelmate.synthesis.lift.memory import refuse_races
from kernelmate.synthesis.lift.polynomials import Atom, NotLifted, Poly, is_variable
from kernelmate.synthesis.lift.reducing import FunctionWriter
from kernelmate.synthesis.lift.statements import KernelMachine
from kernelmate.synthesis.lift.text import ATOM, NumpyText
from kernelmate.synthesis.lift.values import (
    MAP_OF,
    TRUE,
    ArrayLoad,
    Index,
    Number,
    Op,
    Scalar,
    Substitution,
    free,
    joined,
    negation,
    operation,
    parts,
    walk,
)


@dataclass(frozen=True)
class Lifted:
    """A NumPy function equivalent to a kernel.

    Attributes:
        name: the function's name.
        text: its definition.
        special: True if it needs `from scipy import special`.
    """

    name: str
    text: str
    special: bool


def new_file(function: Lifted) -> str:
    """Returns the text of a Python file that defines a function."""
    special = "\nfrom scipy import special" if function.special else ""
    return f'"""References that were read from kernels."""\n\nimport numpy as np{special}\n\n\n{function.text}'


def lift(kernel: Kernel, contract: Contract, *, exact: bool = False) -> Lifted:
    """Returns a NumPy function equivalent to a kernel.

    Args:
        kernel: the kernel.
        contract: the contract, which defines launch and arguments.
        exact: True to keep guards that zero padding could replace; results differ if a factor is infinite.

    Raises:
        NotLifted: the kernel is not supported; the error has the reason and the line.
    """
    if kernel.unit.language == "triton":
        raise NotLifted("it is a Triton function, and only CUDA is read")
    if contract.passing or any(one.direction == "scratch" or one.partly for one in contract.args):
        raise NotLifted("its contract has structs, pointers, variables, scratch arrays, or outputs compared in part")
    try:
        machine = KernelMachine(kernel, contract)
        machine.run()
        refuse_races(machine.state, machine.block.names, machine.space)
        return _FunctionText(machine, contract, exact=exact).written()
    except RecursionError:
        raise NotLifted("its expressions are too deep", kernel.line) from None
    except NotLifted as reason:
        reason.line = kernel.line if reason.line is None else reason.line
        raise


@contextlib.contextmanager
def _at_line(line: int | None) -> Iterator[None]:
    """Context manager that adds a line number to `NotLifted` errors without one."""
    try:
        yield
    except NotLifted as reason:
        reason.line = line if reason.line is None else reason.line
        raise


class _FunctionText:
    """Writer of the lifted function, which combines a kernel's stores into results."""

    def __init__(self, machine: ThreadMachine, contract: Contract, *, exact: bool) -> None:
        self.contract, self.space = contract, machine.space
        blocks = [f"%b{axis}" for axis, grid in zip("xyz", machine.grid, strict=True) if grid.constant != 1]
        self.domains = Domains(contract, machine.space, [*machine.block.names, *blocks])
        self.loading = Loading(self.domains)
        self.results: dict[str, list[LiftedResult]] = {}
        for store in machine.state.stores:
            found = self.domains.solved(store)
            self.results.setdefault(store.array, []).append(found)
        self.name = contract.kernel.rpartition("::")[2]
        taken = {spelled(one.name) for one in contract.args} | {"np", "special", self.name, *keyword.kwlist}
        taken |= {name for size in contract.sizes for name in size}
        self.writer = FunctionWriter(self.loading, taken, exact=exact)

    def written(self) -> Lifted:
        """Returns the lifted function."""
        outputs = [one for one in self.contract.args if one.direction in ("out", "inout")]
        layered = [(one, self._layered(one)) for one in outputs]
        for _, results in layered:
            for one in results:
                self._look(one)
        for _, results in layered:
            for one in results:
                with _at_line(one.line):
                    self.loading.find_pads(one.value)
                    self.loading.find_pads(one.condition)
        self.writer.pads()
        returned = []
        for argument, results in layered:
            with _at_line(results[0].line if results else None):
                returned.append(self._returned(argument, results))
        last = self.writer.lines[-1].strip() if self.writer.lines else ""
        if (
            len(returned) == 1
            and last.startswith(f"{returned[0]} = ")
            and not self.writer.lines[-1].startswith("     ")
        ):
            self.writer.lines.pop()
            returned = [last.partition(" = ")[2]]
        self.writer.line(f"return {', '.join(returned)}")
        body = "\n".join(self.writer.lines)
        parameters = ", ".join(self._parameters(body))
        what = ", ".join(f"`{one.name}`" for one in outputs)
        text = f'def {self.name}({parameters}):\n    """{self.name.replace("_", " ").capitalize()}: what the kernel writes to {what}."""\n{body}\n'
        return Lifted(self.name, text, "special." in body)

    def _look(self, result: LiftedResult) -> None:
        outputs = {one.name for one in self.contract.args if one.direction == "out"}
        for one in walk(result.value):
            if isinstance(one, ArrayLoad) and one.array in outputs:
                raise NotLifted(f"{one.array} is read before it is written", result.line)
        self.loading.find_taps(result.value)
        self.writer.repeats.count(result.value)

    def _parameters(self, body: str) -> list[str]:
        used = set()
        for one in self.results.values():
            for result in one:
                for value in (
                    *walk(result.value),
                    *walk(result.condition),
                    *(v for axis in result.axes for v in walk(Index(axis))),
                ):
                    if isinstance(value, ArrayLoad):
                        used.add(value.array)
                    elif isinstance(value, Scalar):
                        used.add(value.name)
        used |= self.writer.sizes
        used |= {one.name for one in self.contract.args if one.direction == "inout" and f"{spelled(one.name)}" in body}
        sizes = [name for name in self.contract.sizes[0] if name in used]
        found = [one.name for one in self.contract.args if one.name in used and one.name not in sizes]
        return [spelled(name) for name in (*found, *sizes)]

    # ------------------------------------------------------------------------------------------------------ layers

    def _layered(self, argument: Argument) -> list[LiftedResult]:
        """Returns the results of an argument in common variables (later stores take precedence), or as parts."""
        results = self.results.get(argument.name, [])
        if not results and argument.direction == "out":
            raise NotLifted(f"nothing is written to {argument.name}")
        if any(self._counts(one) for one in results) or not results:
            return results
        named = [self._canonical(one) for one in results]
        if any(one is None for one in named):
            return self._parts(argument, results)
        several = [one for one in named if one is not None]
        if len({(one.shape, one.axes) for one in several}) > 1:
            return self._parts(argument, results)
        return [self._merged(argument, several)]

    def _canonical(self, result: LiftedResult) -> LiftedResult | None:
        """Returns the result with variables named after its axes, if it covers each axis completely; else None."""
        known: dict[str, Poly] = {}
        axes = []
        for place, (side, index) in enumerate(zip(result.shape, result.axes, strict=True)):
            if index == Poly.number(0) and side == Poly.number(1):
                axes.append(index)
                continue
            lone = index.lone
            if not isinstance(lone, str) or not is_variable(lone) or lone in known or self.space.extents[lone] != side:
                return None
            name = f"%o{place}:{side.ordered()}"
            self.space.extents[name] = side
            known[lone] = Poly.name(name)
            axes.append(Poly.name(name))
        put = Substitution(self.space, known)
        return replace(result, axes=tuple(axes), value=put.value(result.value), condition=put.value(result.condition))

    def _merged(self, argument: Argument, results: Sequence[LiftedResult]) -> LiftedResult:
        first = results[0]
        at = Poly.number(0)
        for side, index in zip(first.shape, first.axes, strict=True):
            at = at * side + index
        kind = DTYPES.get(argument.dtype, argument.dtype)
        value: Any = ArrayLoad(argument.name, at, kind) if argument.direction == "inout" else None
        for place, one in enumerate(results):
            if one.op:
                if value is None:
                    raise NotLifted(f"{argument.name} is added to, but is not an inout argument", one.line)
                value = Op(MAP_OF[one.op], (value, one.value), kind)
            elif one.condition == TRUE or (value is None and self._covered(results, place)):
                value = one.value
            elif value is None:
                value = one.value if place + 1 < len(results) and self._covered(results, len(results) - 1) else None
                if value is None:
                    raise NotLifted(f"elements of {argument.name} are not written", one.line)
            else:
                value = operation("select", (one.condition, one.value, value), one.value.kind, self.space)
        return replace(first, value=value, condition=TRUE, op="")

    def _covered(self, results: Sequence[LiftedResult], place: int) -> bool:
        """Returns True if the results up to `place` cover all elements: the last negates all other conditions."""
        if len(results) == 1:
            return False
        others = joined(negation(one.condition) for one in results[:place])
        return place == len(results) - 1 and set(parts(others)) == set(parts(results[place].condition))

    def _parts(self, argument: Argument, results: Sequence[LiftedResult]) -> list[LiftedResult]:
        for one in results:
            if one.condition != TRUE or one.op:
                raise NotLifted(f"a part of {argument.name} is written under a condition", one.line)
        return list(results)

    def _counts(self, result: LiftedResult) -> bool:
        return bool(result.op) and any(
            isinstance(one, Atom) and one.kind == "data" for axis in result.axes for one in axis.factors()
        )

    # ------------------------------------------------------------------------------------------------------- texts

    def _returned(self, argument: Argument, results: Sequence[LiftedResult]) -> str:
        """Returns the expression of an argument's final contents."""
        if not results:
            return spelled(argument.name)
        if self._counts(results[0]):
            return self._counted(argument, results)
        if len(results) == 1 and self._canonical(results[0]) is not None:
            return self._whole(argument, results[0])
        return self._assigned(argument, results)

    def _whole(self, argument: Argument, result: LiftedResult) -> str:
        order = tuple(str(one.lone) for one in result.axes if one.lone is not None)
        text = self._typed(argument, result.value, self.writer.value(result.value, order))
        code = self.writer.aligned(text, order)
        if any(one not in text.axes for one in order):
            code = (
                f"np.broadcast_to({code}, ({''.join(f'{self.writer.size(side)}, ' for side in result.shape).rstrip()}))"
            )
        wanted = self.domains.shapes[argument.name]
        if result.shape != wanted:
            code = f"({code})" if code != text.code or text.binds < ATOM else code
            return f"{code}.reshape({', '.join(map(self.writer.size, wanted))})"
        if not order and len(wanted) > 1:
            return f"np.reshape({code}, ({', '.join(map(self.writer.size, wanted))}))"
        return code

    def _typed(self, argument: Argument, value: Any, text: NumpyText) -> NumpyText:
        if argument.dtype in DTYPES or value.kind == argument.dtype or isinstance(value, Index | Number):
            return text
        if value.kind == "float" and not text.axes:
            return text
        return NumpyText(f"{text.within(9)}.astype(np.{argument.dtype})", text.axes)

    def _assigned(self, argument: Argument, results: Sequence[LiftedResult]) -> str:
        """Returns an expression for the final contents, after statements that create an array and assign its parts."""
        shape = results[0].shape
        if any(one.shape != shape for one in results):
            raise NotLifted(f"parts of {argument.name} have different axes", results[0].line)
        name = self.writer.name("result")
        texts = [self._part(argument, name, one) for one in results]
        sides = "".join(f"{self.writer.size(side)}, " for side in shape)
        sides = sides.rstrip() if len(shape) == 1 else sides.rstrip(", ")
        if argument.direction == "inout":
            self.writer.line(f"{name} = {spelled(argument.name)}.copy()")
        else:
            self._complete(argument, results)
            self.writer.line(f"{name} = np.zeros(({sides}){self._dtype(argument)})")
        for text in texts:
            self.writer.line(text)
        whole = self.domains.shapes[argument.name]
        return name if whole == shape else f"{name}.reshape({', '.join(map(self.writer.size, whole))})"

    def _part(self, argument: Argument, name: str, result: LiftedResult) -> str:
        order: list[str] = []
        pieces: list[str] = []
        for side, index in zip(result.shape, result.axes, strict=True):
            names = sorted(free(Index(index)))
            if len(names) > 1:
                raise NotLifted(f"the elements of {argument.name} that are written overlap", result.line)
            order += names
            pieces.append(self._slice(side, index, names))
        text = self._typed(argument, result.value, self.writer.value(result.value, tuple(order)))
        return f"{name}[{', '.join(pieces)}] = {self.writer.aligned(text, order)}"

    def _dtype(self, argument: Argument) -> str:
        return "" if argument.dtype in DTYPES else f", np.{argument.dtype}"

    def _slice(self, side: Poly, index: Poly, names: Sequence[str]) -> str:
        if not names:
            return self.writer.size(index)
        extent, stride = self.space.extents[names[0]], index.coefficient(names[0])
        start = index - stride * Poly.name(names[0])
        if extent is None or free(Index(start)) or (stride.constant or 0) < 1:
            raise NotLifted("the elements that are written are not a slice")
        first = self.writer.size(start) if start.terms else ""
        if stride.constant == 1:
            return f"{first}:{'' if start + extent == side else self.writer.size(start + extent)}"
        return (
            f"{first}::{stride.constant}"
            if extent * stride == side
            else f"{first}:{self.writer.size(start + stride * (extent - 1) + 1)}:{stride.constant}"
        )

    def _complete(self, argument: Argument, results: Sequence[LiftedResult]) -> None:
        """Checks that stores cover all elements, by counting them at the listed sizes.

        Raises:
            NotLifted: they do not.
        """
        whole = Poly.number(1)
        for side in results[0].shape:
            whole = whole * side
        total = Poly.number(0)
        for one in results:
            part = Poly.number(1)
            for index in one.axes:
                for name in free(Index(index)):
                    part = part * (self.space.extents[name] or Poly.number(0))
            total = total + part
        if self.domains.at_sizes(total) != self.domains.at_sizes(whole):
            raise NotLifted(f"elements of {argument.name} are not written, or twice", results[0].line)

    def _counted(self, argument: Argument, results: Sequence[LiftedResult]) -> str:
        """Returns an expression for additions to elements with indices read from an array."""
        (one,) = results if len(results) == 1 else (None,)
        if one is None or one.op != "sum" or len(one.axes) != 1 or argument.direction != "inout":
            raise NotLifted(f"additions to elements of {argument.name} by index", results[0].line)
        order = tuple(sorted(free(Index(one.axes[0])) | free(one.value)))
        index = self.writer.index(one.axes[0], order)
        value = one.value
        if isinstance(value, Op) and value.name == "select":
            raise NotLifted(f"additions to elements of {argument.name} under a condition", one.line)
        side = self.writer.size(one.shape[0])
        flat = index.code if len(index.axes) == 1 else f"{index.within(9)}.ravel()"
        if isinstance(value, Index | Number) and (value == Number(1.0) or value == Index(Poly.number(1))):
            return f"{spelled(argument.name)} + np.bincount({flat}, minlength={side}){self._as_counts(argument)}"
        text = self.writer.value(value, order)
        if len(index.axes) != 1 or text.axes not in (index.axes, ()):
            raise NotLifted(f"additions to elements of {argument.name} along several axes", one.line)
        name = self.writer.name("result")
        self.writer.line(f"{name} = {spelled(argument.name)}.copy()")
        self.writer.line(f"np.add.at({name}, {flat}, {text.code})")
        return name

    def _as_counts(self, argument: Argument) -> str:
        return "" if argument.dtype in DTYPES else f".astype(np.{argument.dtype})"
