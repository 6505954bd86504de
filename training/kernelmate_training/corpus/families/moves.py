"""Families that move data: transposes, permutations, gathers, reversals, interleaving, with a little arithmetic on the way."""

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
    inner_constant,
    load,
    scalar,
    store,
)
from kernelmate_training.corpus.expressions import SMOOTH, Emitter, Expr, Real, grow, numpy_text, var
from kernelmate_training.corpus.families.maps import plane_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick


@dataclass(frozen=True)
class _Turn:
    """Writes the versions of a transpose, of one plane or of many."""

    style: Style
    x: Arg
    y: Arg
    rows: str
    cols: str
    planes: str
    value: Expr
    real: Real
    tile: int
    thin: int

    def draft(self, flaws: Flaws) -> Draft:
        return self._plain(flaws) if "strided_copy" in flaws else self._tiled(flaws)

    def _emitter(self, flaws: Flaws, text: str) -> Emitter:
        return Emitter(self.real, "double_literals" in flaws, names={"v": text}, const_word=self.style.const_word)

    def _base(self, code: Code) -> str:
        if not self.planes:
            return ""
        code(f"{self.style.const_word}int {self.style.n('z')} = blockIdx.z;")
        return f"{self.style.n('z')} * {self.rows} * {self.cols} + "

    def _plain(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        row, col = style.n("row"), style.n("col")
        base = self._base(code)
        x, y = (row, col) if "swapped_axes" in flaws else (col, row)
        bounds = {row: self.rows, col: self.cols}
        code(f"{style.const_word}int {x} = {style.gid('x')};", f"{style.const_word}int {y} = {style.gid('y')};")
        code.guard((row, self.rows), (col, self.cols))
        emitter = self._emitter(flaws, load(self.x, f"{base}{row} * {self.cols} + {col}", self.real))
        text = emitter.text(self.value)
        code(*emitter.statements, store(self.y, f"{base}{col} * {self.rows} + {row}", text))
        grid = (f"cdiv({bounds[x]}, block_x)", f"cdiv({bounds[y]}, block_y)", *((self.planes,) if self.planes else ()))
        return code.drafted(flaws, grid, (self.tile, self.thin))

    def _tiled(self, flaws: Flaws) -> Draft:
        style, code, side = self.style, Code(self.style), self.tile
        tile = inner_constant(code, style.n("block"), side)
        buffer, row, col, k = style.n("tile"), style.n("row"), style.n("col"), style.n("loop")
        pad = "" if "bank_conflicts" in flaws else " + 1"
        wide = side * 2 if "oversized_shared" in flaws else None
        kind = "float" if "wide_shared" in flaws else self.x.c_type
        base = self._base(code)
        code(f"__shared__ {kind} {buffer}[{wide or tile}][{wide or tile + pad}];")
        code(f"int {col} = blockIdx.x * {tile} + threadIdx.x;", f"int {row} = blockIdx.y * {tile} + threadIdx.y;")
        source = f"{self.x.name}[{base}({row} + {k}) * {self.cols} + {col}]"
        kept = (
            load(self.x, f"{base}({row} + {k}) * {self.cols} + {col}", self.real) if "wide_shared" in flaws else source
        )
        code.loop(k, "0", tile, str(self.thin))
        code.when(
            f"{row} + {k} < {self.rows} && {col} < {self.cols}", f"{buffer}[threadIdx.y + {k}][threadIdx.x] = {kept};"
        )
        code.close()
        code("__syncthreads();")
        if "extra_barriers" in flaws:
            code("__syncthreads();")
        code(f"{col} = blockIdx.y * {tile} + threadIdx.x;", f"{row} = blockIdx.x * {tile} + threadIdx.y;")
        code.loop(k, "0", tile, str(self.thin))
        code.open(f"if ({row} + {k} < {self.cols} && {col} < {self.rows})")
        held = f"{buffer}[threadIdx.x][threadIdx.y + {k}]"
        reading = (
            held
            if "wide_shared" in flaws
            else load(Arg(buffer, "in", self.x.dtype), f"threadIdx.x][threadIdx.y + {k}", self.real)
        )
        emitter = self._emitter(flaws, reading)
        text = emitter.text(self.value)
        code(*emitter.statements, store(self.y, f"{base}({row} + {k}) * {self.rows} + {col}", text))
        code.close(2)
        grid = (f"cdiv({self.cols}, {side})", f"cdiv({self.rows}, {side})", *((self.planes,) if self.planes else ()))
        return code.drafted(flaws, grid, (side, self.thin))


def transposes(
    family: str, kind: Kind, *, planes: bool = False, dtypes: tuple[str, ...] = ("float32",)
) -> Callable[[Random], Problem]:
    """Transposes with a little arithmetic, or none."""

    def draw(rng: Random) -> Problem:
        names, dtype = pick(rng, 2, "array"), rng.choice(dtypes)
        real: Real = "int" if dtype == "int32" else "double" if dtype == "float64" else "float"
        rows, cols = pick(rng, 2, "sides")
        lead = ("planes",) if planes else ()
        drawn = "integers(-99, 99)" if real == "int" else "normal"
        x, y = (
            array(names[0], "in", dtype, *lead, rows, cols, drawn=drawn),
            array(names[1], "out", dtype, *lead, cols, rows),
        )
        value = (
            var("v")
            if rng.random() < 0.5
            else grow(rng, [var("v")], extra=rng.randint(1, 2), unary=SMOOTH, whole=real == "int")
        )
        style = draw_style(rng, {*names, rows, cols, "planes", "v"})
        tile = rng.choice((32, 32, 16))
        plan = _Turn(
            style,
            x,
            y,
            rows,
            cols,
            lead[0] if lead else "",
            value,
            real,
            tile,
            rng.choice((8, 4)) if tile == 32 else 16,
        )
        sizes, large = plane_sizes(rng, rows, cols)
        sizes = tuple(
            dict(s) | ({"planes": c} if planes else {})
            for s, c in zip(({rows: 96, cols: 160}, *sizes[1:]), (2, 2, 1), strict=True)
        )
        flaws = ["strided_copy", "swapped_axes", "bank_conflicts", "no_restrict", "oversized_shared", "extra_barriers"]
        flaws += ["wide_shared"] if dtype in ("float16", "bfloat16") else []
        flaws += ["double_literals"] if real == "float" and value.op != "var" else []
        reference = numpy_text(value, {"v": f"{x.name}.swapaxes(-1, -2)"})
        args = (x, y) if rng.random() < 0.7 else (y, x)
        return Problem(
            family, kind, kernel_name(rng, family), (*args, scalar(rows), scalar(cols)), sizes, dict(large) | ({"planes": 4} if planes else {}),
            reference, tuple(flaws), plan.draft, style,
        )  # fmt: skip

    return draw


@dataclass(frozen=True)
class _Gather:
    """Writes the versions of copies whose places are computed: gathers, reversals, shifts, (de)interleaving."""

    style: Style
    form: str
    x: Arg
    index: Arg | None
    more: tuple[Arg, ...]
    y: Arg
    rows: str
    cols: str
    value: Expr
    sides: tuple[int, int]

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        row, col = style.n("row"), style.n("col")
        x, y = (row, col) if "swapped_axes" in flaws else (col, row)
        bounds = {row: self.rows, col: self.cols}
        block: tuple[int, ...] = self.sides
        grid: tuple[str, ...] = (f"cdiv({bounds[x]}, block_x)", f"cdiv({bounds[y]}, block_y)")
        if "thread_per_row" in flaws:
            block, grid = (128,), (f"cdiv({self.rows}, block)",)
            code(f"{style.const_word}int {row} = {style.gid()};")
            code.guard((row, self.rows))
            code.loop(col, "0", self.cols)
        elif "block_row" in flaws:
            block, grid = (32,), (self.rows,)
            code(f"{style.const_word}int {row} = blockIdx.x;")
            code.loop(col, "threadIdx.x", self.cols, "blockDim.x")
        else:
            code(f"{style.const_word}int {x} = {style.gid('x')};", f"{style.const_word}int {y} = {style.gid('y')};")
            code.guard((row, self.rows), (col, self.cols))
        source = {
            "gather": f"{self.index.name if self.index else ''}[{row}] * {self.cols} + {col}",
            "reverse": f"{row} * {self.cols} + ({self.cols} - 1 - {col})",
            "flip": f"({self.rows} - 1 - {row}) * {self.cols} + {col}",
            "shift": f"{row} * {self.cols} + ({col} + 1) % {self.cols}",
            "channels": f"({row} * {self.cols} + {col}) * 3 + 1",
            "even": f"{row} * 2 * {self.cols} + 2 * {col}",
        }[self.form]
        names = {"here": f"{self.x.name}[{source}]"} | {
            a.name: f"{a.name}[{row} * {self.cols} + {col}]" for a in self.more
        }
        if self.form == "channels":
            first = f"({row} * {self.cols} + {col}) * 3"
            names = {
                "red": f"{self.x.name}[{first} + 0]",
                "here": f"{self.x.name}[{first} + 1]",
                "blue": f"{self.x.name}[{first} + 2]",
            }
        emitter = Emitter(
            "float",
            "double_literals" in flaws,
            "powers" in flaws,
            "divides" in flaws,
            names,
            const_word=style.const_word,
        )
        text = emitter.text(self.value)
        code(*emitter.statements, store(self.y, style.at(row, self.cols, col), text))
        return code.drafted(flaws, grid, block)


def gathers(family: str, kind: Kind, form: str) -> Callable[[Random], Problem]:
    """Copies with computed places."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 4, "array")
        rows, cols = pick(rng, 2, "sides")
        shape = {"channels": (rows, cols, "3"), "even": (rows, f"2 * {cols}"), "gather": ("vocab", cols)}.get(
            form, (rows, cols)
        )
        x, y = array(names[0], "in", "float32", *shape, drawn="normal"), array(names[1], "out", "float32", rows, cols)
        index = array(names[2], "in", "int32", rows, drawn="integers(0, vocab)") if form == "gather" else None
        more = (
            (array(names[3], "in", "float32", rows, cols, drawn="normal"),)
            if form != "channels" and rng.random() < 0.5
            else ()
        )
        leaves = [var("here"), *(var(a.name) for a in more), *((var("red"), var("blue")) if form == "channels" else ())]
        value = grow(rng, leaves, extra=rng.randint(0, 2), unary=SMOOTH)
        style = draw_style(rng, {*names, rows, cols, "vocab"})
        plan = _Gather(style, form, x, index, more, y, rows, cols, value, rng.choice(((32, 8), (64, 4), (16, 16))))
        sizes, large = plane_sizes(rng, rows, cols)
        if form == "gather":
            sizes = tuple(dict(s) | {"vocab": v} for s, v in zip(sizes, (50, 11, 1), strict=True))
            large = dict(large) | {"vocab": 3000}
        source = {
            "gather": f"{x.name}[{index.name if index else ''}]",
            "reverse": f"{x.name}[:, ::-1]",
            "flip": f"{x.name}[::-1]",
            "shift": f"np.roll({x.name}, -1, axis=1)",
            "channels": f"{x.name}[:, :, 1]",
            "even": f"{x.name}[:, ::2]",
        }[form]
        spelled = {"here": source, "red": f"{x.name}[:, :, 0]", "blue": f"{x.name}[:, :, 2]"}
        flaws = ["swapped_axes", "thread_per_row", "no_restrict"]
        flaws += ["double_literals", "divides"] if value.op != "var" else []
        args = (x, *((index,) if index else ()), *more, y, scalar(rows), scalar(cols))
        return Problem(
            family, kind, kernel_name(rng, family), args, sizes, large, numpy_text(value, spelled), tuple(flaws), plan.draft, style,
            exclusive=(frozenset({"swapped_axes", "thread_per_row"}),), require=("vocab > 0",) if form == "gather" else (),
        )  # fmt: skip

    return draw
