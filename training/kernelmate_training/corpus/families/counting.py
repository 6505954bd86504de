"""Histograms, and running sums along rows."""

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
    constant,
    draw_style,
    scalar,
)
from kernelmate_training.corpus.expressions import SMOOTH, Emitter, Expr, grow, numpy_text, var
from kernelmate_training.corpus.families.maps import flat_sizes, row_sizes
from kernelmate_training.corpus.families.reducing import FULL, Op, grown, joined, neutral
from kernelmate_training.corpus.families.words import kernel_name, pick


@dataclass(frozen=True)
class _Histogram:
    """Writes the versions of a histogram, at times weighted."""

    style: Style
    x: Arg
    weights: Arg | None
    out: Arg
    n: str
    bins: int
    bin_text: str
    block: int
    checked: bool

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        top, bins = constant(style, style.n("block"), self.bins)
        i, own, tid, value = style.n("i"), style.n("tile"), style.n("tid"), style.n("tmp")
        private = "atomic_bins" not in flaws
        kind = self.out.c_type
        if private:
            code(f"__shared__ {kind} {own}[{bins if 'oversized_shared' not in flaws else self.bins * 4}];")
            code(
                f"for (int {tid} = threadIdx.x; {tid} < {bins}; {tid} += blockDim.x) {own}[{tid}] = 0;",
                "__syncthreads();",
            )
            if "extra_barriers" in flaws:
                code("__syncthreads();")
        opened = 0
        if "full_grid" in flaws:
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, self.n), early=False)
            grid = f"cdiv({self.n}, block)"
        else:
            code.loop(i, style.gid(), self.n, "blockDim.x * gridDim.x")
            grid = f"min(cdiv({self.n}, block), 132)"
        opened += 1
        code(f"{style.const_word}int {value} = {self.bin_text.format(f'{self.x.name}[{i}]')};")
        weight = f"{self.weights.name}[{i}]" if self.weights else ("1u" if kind == "unsigned int" else "1")
        add = f"atomicAdd(&{own if private else self.out.name}[{value}], {weight});"
        if self.checked:
            code.when(f"{value} >= 0 && {value} < {bins}", add)
        else:
            code(add)
        code.close(opened)
        if private:
            code("__syncthreads();")
            code(
                f"for (int {tid} = threadIdx.x; {tid} < {bins}; {tid} += blockDim.x) atomicAdd(&{self.out.name}[{tid}], {own}[{tid}]);"
            )
        return code.drafted(flaws, (grid,), (self.block,), top=top)


def histogram(family: str, kind: Kind, *, weighted: bool) -> Callable[[Random], Problem]:
    """Histograms of bytes or ints."""

    def draw(rng: Random) -> Problem:
        names, n = pick(rng, 3, "array"), pick(rng, 1, "length")[0]
        bins = rng.choice((32, 64, 128, 256))
        checked = rng.random() < 0.4
        dtype = "int32" if bins < 256 or rng.random() < 0.5 else "uint8"
        low, high = (-3, bins + 3) if checked and dtype == "int32" else (0, bins)
        bin_text, spelled = rng.choice((("{}", "{}"), ("{} & " + str(bins - 1), "({} & " + str(bins - 1) + ")")))
        x = array(names[0], "in", dtype, n, drawn=f"integers({low}, {high})")
        w = array(names[1], "in", "float32", n, drawn="uniform(0, 1)") if weighted else None
        out = array(
            names[2], "inout", "float32" if weighted else rng.choice(("int32", "uint32")), str(bins), drawn="zeros"
        )
        style = draw_style(rng, {*names, n})
        plan = _Histogram(
            style, x, w, out, n, bins, bin_text, rng.choice((128, 256, 512)), checked or (low < 0 and bin_text == "{}")
        )
        sizes, large = flat_sizes(rng, n)
        binned = spelled.format(f"{x.name}.astype(np.int64)")
        inside = f"({binned} >= 0) & ({binned} < {bins})"
        counted = (
            f"np.bincount({binned}[{inside}], weights={w.name}[{inside}], minlength={bins})"
            if w
            else f"np.bincount({binned}[{inside}], minlength={bins})"
        )
        flaws = ("atomic_bins", "full_grid", "oversized_shared", "extra_barriers", "no_restrict")
        args = (x, *((w,) if w else ()), out, scalar(n))
        return Problem(
            family,
            kind,
            kernel_name(rng, family),
            args,
            sizes,
            large,
            f"{out.name} + {counted}",
            flaws,
            plan.draft,
            style,
        )

    return draw


@dataclass(frozen=True)
class _Scan:
    """Writes the versions of a running sum or extreme along rows."""

    style: Style
    x: Arg
    y: Arg
    rows: str
    cols: str
    op: Op
    value: Expr
    exclusive: bool
    warps: int

    def draft(self, flaws: Flaws) -> Draft:
        if "serial_scan" in flaws:
            return self._serial(flaws)
        return self._ping_pong(flaws) if "ping_pong" in flaws else self._by_warps(flaws)

    def _ping_pong(self, flaws: Flaws) -> Draft:
        """A block for each row, stretch by stretch, between two buffers in shared memory."""
        style, code, block = self.style, Code(self.style), 32 * self.warps
        row, col, carry, tid = style.n("row"), style.n("col"), style.n("acc"), style.n("tid")
        one, other, start, step = style.n("tile"), style.n("tile2"), style.n("loop"), style.n("half")
        code(f"__shared__ float {one}[{block}];", f"__shared__ float {other}[{block}];")
        code(
            f"{style.const_word}int {row} = blockIdx.x;",
            f"{style.const_word}int {tid} = threadIdx.x;",
            f"float {carry} = {neutral(self.op)};",
        )
        code.open(f"for (int {start} = 0; {start} < {self.cols}; {start} += {block})")
        code(f"{style.const_word}int {col} = {start} + {tid};", f"{one}[{tid}] = {neutral(self.op)};")
        place = style.at(row, self.cols, col)
        code.open(f"if ({col} < {self.cols})")
        code(f"{one}[{tid}] = {self._text(code, flaws, place)};")
        code.close()
        code("__syncthreads();")
        code.open(f"for (int {step} = 1; {step} < {block}; {step} *= 2)")
        before = f"{one}[{tid} - {step}]"
        code(
            f"{other}[{tid}] = {tid} >= {step} ? {joined(self.op, before, f'{one}[{tid}]')} : {one}[{tid}];",
            "__syncthreads();",
        )
        code(f"{one}[{tid}] = {other}[{tid}];", "__syncthreads();")
        code.close()
        held = f"({tid} > 0 ? {one}[{tid} - 1] : {neutral(self.op)})" if self.exclusive else f"{one}[{tid}]"
        code.when(f"{col} < {self.cols}", f"{self.y.name}[{place}] = {joined(self.op, carry, held)};")
        code(f"{carry} = {joined(self.op, carry, f'{one}[{block - 1}]')};", "__syncthreads();")
        code.close()
        return code.drafted(flaws, (self.rows,), (block,))

    def _text(self, code: Code, flaws: Flaws, place: str) -> str:
        emitter = Emitter(
            "float",
            "double_literals" in flaws,
            names={"v": f"{self.x.name}[{place}]"},
            const_word=self.style.const_word,
        )
        text = emitter.text(self.value)
        code(*emitter.statements)
        return text

    def _serial(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        row, col, acc = style.n("row"), style.n("col"), style.n("acc")
        code(f"{style.const_word}int {row} = {style.gid()};")
        code.guard((row, self.rows))
        place = style.at(row, self.cols, col)
        code(f"float {acc} = {neutral(self.op)};")
        code.loop(col, "0", self.cols)
        if self.exclusive:
            code(f"{self.y.name}[{place}] = {acc};")
        text = self._text(code, flaws, place)
        code(grown(self.op, acc, text))
        if not self.exclusive:
            code(f"{self.y.name}[{place}] = {acc};")
        code.close()
        return code.drafted(flaws, (f"cdiv({self.rows}, block)",), (64,))

    def _by_warps(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        row, col, carry, value = style.n("row"), style.n("col"), style.n("acc"), style.n("tmp")
        lane, step, start, other = style.n("lane"), style.n("half"), style.n("loop"), style.n("acc2")
        code(
            f"{style.const_word}int {lane} = threadIdx.x;",
            f"{style.const_word}int {row} = blockIdx.x * blockDim.y + threadIdx.y;",
        )
        code(f"if ({row} >= {self.rows}) return;")
        code(f"float {carry} = {neutral(self.op)};")
        code.open(f"for (int {start} = 0; {start} < {self.cols}; {start} += 32)")
        code(f"{style.const_word}int {col} = {start} + {lane};", f"float {value} = {neutral(self.op)};")
        place = style.at(row, self.cols, col)
        code.open(f"if ({col} < {self.cols})")
        code(f"{value} = {self._text(code, flaws, place)};")
        code.close()
        code.open(f"for (int {step} = 1; {step} < 32; {step} *= 2)")
        code(f"{style.const_word}float {other} = __shfl_up_sync({FULL}, {value}, {step});")
        code.when(f"{lane} >= {step}", grown(self.op, value, other))
        code.close()
        if self.exclusive:
            code(
                f"float {other} = __shfl_up_sync({FULL}, {value}, 1);",
                f"if ({lane} == 0) {other} = {neutral(self.op)};",
            )
            code.when(f"{col} < {self.cols}", f"{self.y.name}[{place}] = {joined(self.op, carry, other)};")
        else:
            code.when(f"{col} < {self.cols}", f"{self.y.name}[{place}] = {joined(self.op, carry, value)};")
        code(f"{carry} = {joined(self.op, carry, f'__shfl_sync({FULL}, {value}, 31)')};")
        code.close()
        return code.drafted(flaws, (f"cdiv({self.rows}, block_y)",), (32, self.warps))


def scans(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Running sums and extremes along rows."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 2, "array")
        rows, cols = pick(rng, 2, "sides")
        x, y = (
            array(names[0], "in", "float32", rows, cols, drawn="uniform(0, 1)"),
            array(names[1], "out", "float32", rows, cols),
        )
        op: Op = rng.choice(("sum", "sum", "max", "min"))
        value = grow(rng, [var("v")], extra=rng.randint(0, 2), unary=SMOOTH)
        exclusive = op == "sum" and rng.random() < 0.3
        style = draw_style(rng, {*names, rows, cols, "v"})
        plan = _Scan(style, x, y, rows, cols, op, value, exclusive, rng.choice((4, 8, 2)))
        sizes, large = row_sizes(rng, rows, cols)
        text = numpy_text(value, {"v": x.name})
        function = {"sum": "np.cumsum", "max": "np.maximum.accumulate", "min": "np.minimum.accumulate"}[op]
        reference = f"{function}({text}, axis=1)"
        if exclusive:
            reference = f"np.pad({function}({text}, axis=1), ((0, 0), (1, 0)))[:, :-1]"
        flaws = ("serial_scan", "ping_pong", "no_restrict", *(("double_literals",) if value.op != "var" else ()))
        return Problem(
            family,
            kind,
            kernel_name(rng, family),
            (x, y, scalar(rows), scalar(cols)),
            sizes,
            large,
            reference,
            flaws,
            plan.draft,
            style,
            exclusive=(frozenset({"serial_scan", "ping_pong"}),),
            require=(f"{rows} > 0",),
        )

    return draw
