"""Families that reduce along rows: normalisations, softmax and its kin, statistics, products of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import (
    Arg,
    Code,
    Draft,
    Flaws,
    Kind,
    Problem,
    Style,
    array,
    draw_style,
    load,
    scalar,
    store,
)
from kernelmate_training.corpus.expressions import Emitter, Expr, Real, var
from kernelmate_training.corpus.families.maps import row_sizes
from kernelmate_training.corpus.families.reducing import Op, Team, grown, neutral
from kernelmate_training.corpus.families.row_model import Names, Pass, RowProgram, reference_of
from kernelmate_training.corpus.families.words import kernel_name, pick


def row_problem(
    rng: Random, family: str, kind: Kind, make: Callable[[Random], RowProgram], dtypes: tuple[str, ...] = ("float32",)
) -> Problem:
    """A problem of a row program, with every flaw that its passes allow."""
    program = make(rng)
    dtype = rng.choice(dtypes)
    rows, cols = pick(rng, 2, "sides")
    names = Names.drawn(rng, program)
    arrays = [array(names.of[n], "in", dtype, rows, cols, drawn="normal") for n in program.inputs]
    arrays += [array(names.of[n], "in", dtype, cols, drawn="normal") for n in program.columns]
    outputs = [array(names.of["out"], "out", dtype, rows, cols)] if program.element is not None else []
    outputs += [array(f"{names.of['row_out']}{k or ''}", "out", dtype, rows) for k in range(len(program.values))]
    style = draw_style(rng, {a.name for a in (*arrays, *outputs)} | {rows, cols} | {p.name for p in program.passes})
    sizes, large = row_sizes(rng, rows, cols)
    flaws = ["no_restrict", "thread_per_row", "serial_block", "double_literals", "divides", "wide_type"]
    warp = rng.random() < 0.35
    if not warp:
        flaws += ["shared_tree", "modulo_tree", "oversized_shared", "extra_barriers"]
        flaws += ["second_buffer"] if len(program.passes) > 1 else []
    flaws += ["two_pass_moments"] if program.moments else []
    flaws += ["two_pass_softmax"] if program.online is not None else []
    if dtype == "float32" and _stores_exponentials(program):
        flaws.append("through_memory")
    if program.element is None and len(program.passes) == 1 and program.passes[0].post is None and dtype == "float32":
        flaws.append("global_accumulator")
    block = rng.choice((64, 128, 256, 256))
    plan = _Rows(program, style, names, rows, cols, tuple(arrays), tuple(outputs), block, warp, rng.random() < 0.5)
    args = (*arrays, *outputs) if rng.random() < 0.8 else (*outputs, *arrays)
    reference = reference_of(program, names, cols)
    return Problem(
        family, kind, kernel_name(rng, family), (*args, scalar(rows), scalar(cols)), sizes, large, reference, tuple(flaws),
        plan.draft, style, require=(f"{cols} > 0",),
        exclusive=(frozenset({"thread_per_row", "serial_block"}), frozenset({"shared_tree", "modulo_tree"})),
    )  # fmt: skip


def _stores_exponentials(program: RowProgram) -> bool:
    """The result is what the second pass sums, over the sum: it can wait in the output until the sum is known."""
    element = program.element
    return (
        program.online is not None
        and element is not None
        and element.op == "div"
        and element.args[0] == program.passes[1].expr
    )


@dataclass(frozen=True)
class _Rows:
    """Writes the versions of one row program."""

    program: RowProgram
    style: Style
    names: Names
    rows: str
    cols: str
    arrays: tuple[Arg, ...]
    outputs: tuple[Arg, ...]
    block: int
    warp: bool
    pointer: bool

    def draft(self, flaws: Flaws) -> Draft:
        writer = _RowWriter(self, flaws)
        return writer.draft()


class _RowWriter:
    """One version of a row program under way."""

    def __init__(self, plan: _Rows, flaws: Flaws) -> None:
        self.plan, self.flaws, self.style = plan, flaws, plan.style
        self.code = Code(plan.style)
        self.row, self.col, self.tid = plan.style.n("row"), plan.style.n("col"), plan.style.n("tid")
        self.real: Real = "double" if "wide_type" in flaws else "float"
        self.alone = "thread_per_row" in flaws
        self.serial = "serial_block" in flaws and not self.alone
        block = plan.block
        self.team = Team(plan.style, block, self.tid, flaws, self.real)
        self.stores = flaws >= {"through_memory", "two_pass_softmax"}
        self.names: dict[str, str] = {"count": plan.cols}
        self.bufs: list[str] = []

    def draft(self) -> Draft:
        plan, flaws, code = self.plan, self.flaws, self.code
        warp = plan.warp and not self.alone and not self.serial
        grid: tuple[str, ...]
        block: tuple[int, ...]
        if self.alone:
            grid, block = (f"cdiv({plan.rows}, block)",), (128,)
            code(f"{self.style.const_word}int {self.row} = {self.style.gid()};")
            code.guard((self.row, plan.rows))
        elif warp:
            grid, block = (f"cdiv({plan.rows}, block_y)",), (32, plan.block // 32)
            code(f"{self.style.const_word}int {self.row} = {self.style.gid('y').replace('blockIdx.y', 'blockIdx.x')};")
            code(f"{self.style.const_word}int {self.tid} = threadIdx.x;")
            code.guard((self.row, plan.rows), early=True)
        else:
            grid, block = (plan.rows,), (plan.block,)
            self._shared()
            code(f"{self.style.const_word}int {self.row} = blockIdx.x;")
            code(f"{self.style.const_word}int {self.tid} = threadIdx.x;")
        self.warp = warp
        self._passes()
        self._results()
        return code.drafted(flaws, grid, block)

    def _shared(self) -> None:
        if self.serial:
            self.code(*(f"__shared__ {self.real} shared_{p.name};" for p in self.plan.program.passes))
            return
        count = len(self.plan.program.passes) if "second_buffer" in self.flaws else 1
        self.bufs = [self.style.n("tile"), self.style.n("tile2"), f"{self.style.n('tile')}_3"][:count]
        self.code(*(f"__shared__ {self.real} {name}[{self.team.elements}];" for name in self.bufs))

    def _loop(self, *, together: bool = False) -> None:
        """Begin the loop over the elements that this thread takes; `together`: with all others, whatever the flaw."""
        if self.alone or (self.serial and not together):
            self.code.loop(self.col, "0", self.plan.cols)
        else:
            self.code.loop(self.col, self.tid, self.plan.cols, "32" if self.warp else "blockDim.x")

    def _emitter(self) -> Emitter:
        names = dict(self.names)
        for given in self.plan.arrays:
            index = self.col if len(given.shape or ()) == 1 else self.style.at(self.row, self.plan.cols, self.col)
            key = next(k for k, v in self.plan.names.of.items() if v == given.name)
            text = load(given, index)
            names[key] = f"(double){text}" if self.real == "double" else text
        doubles = "double_literals" in self.flaws or self.real == "double"
        return Emitter(self.real, doubles, divides=True, names=names, const_word=self.style.const_word)

    def _passes(self) -> None:
        program, flaws = self.plan.program, self.flaws
        if program.moments and "two_pass_moments" not in flaws:
            self._both_moments()
            rest = list(enumerate(program.passes))[2:]
        elif program.online is not None and "two_pass_softmax" not in flaws:
            self._online()
            rest = list(enumerate(program.passes))[2:]
        else:
            rest = list(enumerate(program.passes))
        for number, one in rest:
            self._pass(number, one)

    def _pass(self, number: int, one: Pass) -> None:
        code, acc = self.code, one.name
        kept = "global_accumulator" in self.flaws and self.alone
        if kept:
            acc = f"{self.plan.outputs[0].name}[{self.row}]"
            code(f"{acc} = {neutral(one.op, self.real)};")
        elif self.serial:
            code.open(f"if ({self.tid} == 0)")
            code(f"{self.real} {acc} = {neutral(one.op, self.real)};")
        else:
            code(f"{self.real} {acc} = {neutral(one.op, self.real)};")
        self._loop()
        emitter = self._emitter()
        text = emitter.text(one.expr)
        if self.stores and number == 1:
            out, at = self.plan.outputs[0], self.style.at(self.row, self.plan.cols, self.col)
            code(*emitter.statements, f"{out.name}[{at}] = {text};", grown(one.op, acc, f"{out.name}[{at}]", self.real))
        else:
            code(*emitter.statements, grown(one.op, acc, text, self.real))
        code.close()
        if self.serial:
            code(f"shared_{one.name} = {acc};")
            code.close()
            code("__syncthreads();", f"{self.real} {acc} = shared_{one.name};")
        self._finish(number, one)
        self.names[one.name] = acc

    def _finish(self, number: int, one: Pass) -> None:
        """Join what the threads have, and compute what follows from it."""
        if not (self.alone or self.serial):
            self._joined(number, one.op, one.name)
        if one.post is not None:
            self._post(one)

    def _joined(self, number: int, op: Op, value: str) -> None:
        if self.warp:
            self.team.shuffled(self.code, op, value)
            return
        buffer = self.bufs[min(number, len(self.bufs) - 1)]
        last = number == len(self.plan.program.passes) - 1
        self.team.reduce(self.code, op, value, buffer, again=len(self.bufs) == 1 and not last)

    def _post(self, one: Pass) -> None:
        emitter = self._emitter()
        emitter.names = {**emitter.names, one.name: one.name}
        text = emitter.text(one.post) if one.post is not None else one.name
        self.code(*emitter.statements, f"{one.name} = {text};")

    def _both_moments(self) -> None:
        mean, spread = self.plan.program.passes[:2]
        code, squares = self.code, spread.name
        emitter = self._emitter()
        if self.serial:
            code.open(f"if ({self.tid} == 0)")
        code(
            f"{self.real} {mean.name} = {neutral('sum', self.real)};",
            f"{self.real} {squares} = {neutral('sum', self.real)};",
        )
        self._loop()
        value = self.style.n("tmp")
        code(f"{self.style.const_word}{self.real} {value} = {emitter.text(mean.expr)};")
        code(f"{mean.name} += {value};", f"{squares} += {value} * {value};")
        code.close()
        if self.serial:
            code(f"shared_{mean.name} = {mean.name};", f"shared_{squares} = {squares};")
            code.close()
            code("__syncthreads();")
            code(f"{self.real} {mean.name} = shared_{mean.name};", f"{self.real} {squares} = shared_{squares};")
        elif not self.alone:
            self._joined(0, "sum", mean.name)
            self._joined(1, "sum", squares)
        zero = "0.0" if self.real == "double" else "0.0f"
        code(f"{mean.name} = {mean.name} / {self.plan.cols};")
        largest = "fmax" if self.real == "double" else "fmaxf"
        code(f"{squares} = {largest}({squares} / {self.plan.cols} - {mean.name} * {mean.name}, {zero});")
        self.names.update({mean.name: mean.name, squares: squares})

    def _online(self) -> None:
        """Maximum and sum of exponentials in one pass; partial results are joined by their maxima."""
        top, total = self.plan.program.passes[:2]
        code, value, new = self.code, self.style.n("tmp"), f"{top.name}_new"
        exp = "exp" if self.real == "double" else "expf"
        emitter = self._emitter()
        if self.serial:
            code.open(f"if ({self.tid} == 0)")
        code(
            f"{self.real} {top.name} = {neutral('max', self.real)};",
            f"{self.real} {total.name} = {neutral('sum', self.real)};",
        )
        self._loop()
        text = emitter.text(top.expr)
        code(*emitter.statements, f"{self.style.const_word}{self.real} {value} = {text};")
        largest = "fmax" if self.real == "double" else "fmaxf"
        code(f"{self.style.const_word}{self.real} {new} = {largest}({top.name}, {value});")
        code(
            f"{total.name} = {total.name} * {exp}({top.name} - {new}) + {exp}({value} - {new});", f"{top.name} = {new};"
        )
        code.close()
        if self.serial:
            code(f"shared_{top.name} = {top.name};", f"shared_{total.name} = {total.name};")
            code.close()
            code("__syncthreads();")
            code(f"{self.real} {top.name} = shared_{top.name};", f"{self.real} {total.name} = shared_{total.name};")
        elif not self.alone:
            mine = f"own_{top.name}"
            code(f"{self.style.const_word}{self.real} {mine} = {top.name};")
            self._joined(0, "max", top.name)
            code(f"{total.name} *= {exp}({mine} - {top.name});")
            self._joined(1, "sum", total.name)
        self.names.update({top.name: top.name, total.name: total.name})

    def _results(self) -> None:
        program, code, plan = self.plan.program, self.code, self.plan
        outputs = list(plan.outputs)
        element = None
        if program.element is not None:
            out = outputs.pop(0)
            element = program.element
            hoisted = self._hoisted(element)
            self._loop(together=True)
            at = self.style.at(self.row, plan.cols, self.col)
            emitter = self._emitter()
            if self.stores:
                total = program.passes[1].name
                code(
                    f"{out.name}[{at}] = {out.name}[{at}] / {total};"
                    if not hoisted
                    else f"{out.name}[{at}] *= {hoisted[1]};"
                )
            else:
                text = emitter.text(hoisted[0] if hoisted else element)
                code(*emitter.statements, store(out, at, text))
            code.close()
        if outputs:
            self._row_values(outputs)

    def _hoisted(self, element: Expr) -> tuple[Expr, str] | None:
        """A division by a row's own value turned into a product with its inverse, which is computed once."""
        if element.op != "div" or "divides" in self.flaws:
            return None
        below = element.args[1]
        name = "inv"
        emitter = self._emitter()
        one = "1.0" if self.real == "double" else "1.0f"
        text = emitter._bracketed(below, 3)
        self.code(*emitter.statements, f"{self.style.const_word}{self.real} {name} = {one} / {text};")
        return element.args[0] * var(name), name

    def _row_values(self, outputs: list[Arg]) -> None:
        program, code = self.plan.program, self.code
        if "global_accumulator" in self.flaws and self.alone:
            return
        statements = []
        for out, value in zip(outputs, program.values, strict=True):
            emitter = self._emitter()
            text = emitter.text(value)
            statements += [*emitter.statements, store(out, self.row, text)]
        if self.alone:
            code(*statements)
        else:
            code.when(f"{self.tid} == 0", *statements)
