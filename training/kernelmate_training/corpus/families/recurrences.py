"""Filters in which each element of a row needs the one before, and counts in tables of two indices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import Arg, Code, Draft, Flaws, Kind, Problem, Style, array, draw_style, scalar
from kernelmate_training.corpus.expressions import SMOOTH, Emitter, Expr, grow, numpy_text, var
from kernelmate_training.corpus.families.reducing import FULL
from kernelmate_training.corpus.families.words import kernel_name, pick


@dataclass(frozen=True)
class _Decay:
    """Writes the versions of `s = keep * s + f(x)` along rows: by a thread, or by a warp that scans 32 elements at once.

    Attributes:
        keep: the factor, a literal without suffix. value: of an element.
    """

    style: Style
    x: Arg
    y: Arg
    dims: tuple[str, str]
    keep: str
    value: Expr
    warps: int

    def draft(self, flaws: Flaws) -> Draft:
        return self._serial(flaws) if flaws & {"serial_scan", "global_accumulator"} else self._by_warps(flaws)

    def _text(self, code: Code, flaws: Flaws, place: str) -> str:
        emitter = Emitter("float", "double_literals" in flaws, names={"v": f"{self.x.name}[{place}]"}, const_word=self.style.const_word)  # fmt: skip
        text = emitter.text(self.value)
        code(*emitter.statements)
        return text

    def _serial(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        row, col, state = style.n("row"), style.n("col"), style.n("acc")
        rows, cols = self.dims
        code(f"{style.const_word}int {row} = {style.gid()};")
        code.guard((row, rows))
        suffix = "" if "double_literals" in flaws else "f"
        place = style.at(row, cols, col)
        code(f"float {state} = 0.0{suffix};")
        code.loop(col, "0", cols)
        before = state
        if "global_accumulator" in flaws:
            before = f"({col} > 0 ? {self.y.name}[{style.at(row, cols, f'{col} - 1') if not style.turned else f'{col} - 1 + {row} * {cols}'}] : {state})"  # fmt: skip
        text = self._text(code, flaws, place)
        target = f"{self.y.name}[{place}]" if "global_accumulator" in flaws else state
        code(f"{target} = {self.keep}{suffix} * {before} + {text};")
        if target == state:
            code(f"{self.y.name}[{place}] = {state};")
        return code.drafted(flaws, (f"cdiv({rows}, block)",), (64,))

    def _by_warps(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        row, col, state, value = style.n("row"), style.n("col"), style.n("acc"), style.n("tmp")
        start, step, other, factor, power = style.n("loop"), style.n("half"), style.n("acc2"), style.n("stride"), style.n("loop2")  # fmt: skip
        rows, cols = self.dims
        suffix = "" if "double_literals" in flaws else "f"
        code(f"{style.const_word}int {row} = blockIdx.x * blockDim.y + threadIdx.y;", f"if ({row} >= {rows}) return;")
        code(f"float {state} = 0.0{suffix};", f"float {power} = {self.keep}{suffix};")
        code(f"for (int {step} = 0; {step} < (int)threadIdx.x; ++{step}) {power} *= {self.keep}{suffix};")
        code.open(f"for (int {start} = 0; {start} < {cols}; {start} += 32)")
        code(f"{style.const_word}int {col} = {start} + threadIdx.x;", f"float {value} = 0.0{suffix};")
        place = style.at(row, cols, col)
        code.open(f"if ({col} < {cols})")
        code(f"{value} = {self._text(code, flaws, place)};")
        code.close()
        code(f"float {factor} = {self.keep}{suffix};")
        code.open(f"for (int {step} = 1; {step} < 32; {step} *= 2)")
        code(f"{style.const_word}float {other} = __shfl_up_sync({FULL}, {value}, {step});")
        code.when(f"threadIdx.x >= {step}", f"{value} += {factor} * {other};")
        code(f"{factor} *= {factor};")
        code.close()
        code(f"{value} += {power} * {state};")
        code.when(f"{col} < {cols}", f"{self.y.name}[{place}] = {value};")
        code(f"{state} = __shfl_sync({FULL}, {value}, 31);")
        return code.drafted(flaws, (f"cdiv({rows}, block_y)",), (32, self.warps))


def decays(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Exponential smoothing and other first-order filters along rows."""

    def draw(rng: Random) -> Problem:
        names, dims = pick(rng, 2, "array"), pick(rng, 2, "sides")
        rows, cols = dims
        keep = rng.choice(("0.9", "0.5", "0.75", "0.99", "0.25", "0.8"))
        x, y = (
            array(names[0], "in", "float32", rows, cols, drawn="normal"),
            array(names[1], "out", "float32", rows, cols),
        )
        value = grow(rng, [var("v")], extra=rng.randint(0, 2), unary=SMOOTH)
        style = draw_style(rng, {*names, rows, cols, "v"})
        plan = _Decay(style, x, y, (rows, cols), keep, value, rng.choice((2, 4, 8)))
        # y = K x for the lower triangular matrix K of powers of the factor.
        powers = f"np.tril({keep} ** np.maximum(np.subtract.outer(np.arange({x.name}.shape[1]), np.arange({x.name}.shape[1])), 0))"
        reference = f"({numpy_text(value, {'v': x.name})}) @ {powers}.T"
        flaws = ("serial_scan", "global_accumulator", "no_restrict", "double_literals")
        made = ((24, 96), (13, 77), (1, 1))
        return Problem(
            family, kind, kernel_name(rng, family), (x, y, scalar(rows), scalar(cols)),
            tuple({rows: a, cols: b} for a, b in made), {rows: 8192, cols: 512}, reference, flaws, plan.draft, style,
        )  # fmt: skip

    return draw


@dataclass(frozen=True)
class _Joint:
    """Writes the versions of a table that counts pairs of classes, at times by weight."""

    style: Style
    a: Arg
    b: Arg
    out: Arg
    n: str
    sides: tuple[int, int]
    block: int

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        i, own, tid = style.n("i"), style.n("tile"), style.n("tid")
        first, second = self.sides
        bins, private = first * second, "atomic_bins" not in flaws
        kind = self.out.c_type
        flat = style.turned
        if private:
            shape = f"[{bins}]" if flat else f"[{first}][{second}]"
            code(f"__shared__ {kind} {own}{shape};")
            cell = f"{own}[{tid}]" if flat else f"{own}[{tid} / {second}][{tid} % {second}]"
            code(f"for (int {tid} = threadIdx.x; {tid} < {bins}; {tid} += blockDim.x) {cell} = 0;", "__syncthreads();")
        if "full_grid" in flaws:
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, self.n), early=False)
            grid = f"cdiv({self.n}, block)"
        else:
            code.loop(i, style.gid(), self.n, "blockDim.x * gridDim.x")
            grid = f"min(cdiv({self.n}, block), 264)"
        row, col = f"{self.a.name}[{i}]", f"{self.b.name}[{i}]"
        target = f"{own}[{row}][{col}]" if private and not flat else f"{own if private else self.out.name}[{row} * {second} + {col}]"  # fmt: skip
        code(f"atomicAdd(&{target}, 1{'u' if kind == 'unsigned int' else '.0f' if kind == 'float' else ''});")
        code.close()
        if private:
            code("__syncthreads();")
            code(f"for (int {tid} = threadIdx.x; {tid} < {bins}; {tid} += blockDim.x) atomicAdd(&{self.out.name}[{tid}], {cell});")  # fmt: skip
        bare = "no_restrict" in flaws
        return Draft(code.finish(), (grid,), (self.block,), restrict=not bare, constant=not bare or style.early)


def joint_counts(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Confusion matrices and joint histograms."""

    def draw(rng: Random) -> Problem:
        names, n = pick(rng, 3, "array"), pick(rng, 1, "length")[0]
        sides = rng.choice(((8, 8), (10, 10), (16, 16), (4, 16), (12, 5), (32, 8), (3, 3)))
        dtype = rng.choice(("int32", "uint8"))
        a = array(names[0], "in", dtype, n, drawn=f"integers(0, {sides[0]})")
        b = array(names[1], "in", dtype, n, drawn=f"integers(0, {sides[1]})")
        out = array(
            names[2], "inout", rng.choice(("int32", "uint32", "float32")), str(sides[0]), str(sides[1]), drawn="zeros"
        )
        style = draw_style(rng, {*names, n})
        plan = _Joint(style, a, b, out, n, sides, rng.choice((128, 256, 512)))
        place = f"{a.name}.astype(np.int64) * {sides[1]} + {b.name}"
        counted = f"np.bincount({place}, minlength={sides[0] * sides[1]}).reshape({sides[0]}, {sides[1]})"
        sizes = ({n: rng.choice((2000, 3072))}, {n: 317}, {n: 1})
        return Problem(
            family, kind, kernel_name(rng, family), (a, b, out, scalar(n)), sizes, {n: 1 << 22},
            f"{out.name} + {counted}", ("atomic_bins", "full_grid", "no_restrict"), plan.draft, style,
        )  # fmt: skip

    return draw
