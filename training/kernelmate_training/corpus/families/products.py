"""Families in which every output needs a row and a column: matrix products, distances, correlations, with epilogues."""

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
from kernelmate_training.corpus.expressions import CONSTANTS, Emitter, Expr, Real, call, const, numpy_text, var
from kernelmate_training.corpus.families.words import kernel_name, pick

SIDES = (
    ("m", "n", "k"),
    ("M", "N", "K"),
    ("rows", "cols", "inner"),
    ("na", "nb", "dim"),
    ("tokens", "outs", "ins"),
    ("h", "w", "d"),
)


@dataclass(frozen=True)
class _Product:
    """Writes the versions of one product.

    Attributes:
        turned_a, turned_b: the operand is stored the other way round. term: of one step, over `p` and `q`.
        epilogue: over `acc`, and over other arrays by name. extras: those arrays, with how each is indexed.
    """

    style: Style
    a: Arg
    b: Arg
    out: Arg
    sides: tuple[str, str, str]
    turned_a: bool
    turned_b: bool
    term: Expr
    epilogue: Expr
    extras: tuple[tuple[Arg, str], ...]
    real: Real
    tile: int
    block: tuple[int, int]
    batch: str

    def draft(self, flaws: Flaws) -> Draft:
        return self._plain(flaws) if "untiled" in flaws else self._tiled(flaws)

    def _at_a(self, row: str, k: str) -> str:
        m, _, inner = self.sides
        base = f"{self.style.n('z')} * {m} * {inner} + " if self.batch else ""
        return base + (f"{k} * {m} + {row}" if self.turned_a else f"{row} * {inner} + {k}")

    def _at_b(self, k: str, col: str) -> str:
        _, n, inner = self.sides
        base = f"{self.style.n('z')} * {n} * {inner} + " if self.batch else ""
        return base + (f"{col} * {inner} + {k}" if self.turned_b else f"{k} * {n} + {col}")

    def _at_out(self, row: str, col: str) -> str:
        m, n, _ = self.sides
        base = f"{self.style.n('z')} * {m} * {n} + " if self.batch else ""
        return f"{base}{row} * {n} + {col}"

    def _emitter(self, flaws: Flaws, **names: str) -> Emitter:
        real: Real = "double" if "wide_type" in flaws and self.real == "float" else self.real
        return Emitter(
            real, "double_literals" in flaws, "powers" in flaws, True, names, const_word=self.style.const_word
        )

    def _step(self, code: Code, flaws: Flaws, acc: str, p: str, q: str) -> None:
        if not (p.isidentifier() and q.isidentifier()) and (self.term.op not in ("mul",)):
            real = self._emitter(flaws).real
            code(f"{self.style.const_word}{real} p_v = {p};", f"{self.style.const_word}{real} q_v = {q};")
            p, q = "p_v", "q_v"
        emitter = self._emitter(flaws, p=p, q=q)
        text = emitter.text(self.term)
        code(*emitter.statements, f"{acc} = {acc} + {text};" if "[" in acc else f"{acc} += {text};")

    def _end(self, code: Code, flaws: Flaws, row: str, col: str, acc: str) -> None:
        names = {"acc": acc}
        for arg, where in self.extras:
            index = {"row": row, "col": col, "all": self._at_out(row, col), "none": ""}[where]
            names[arg.name] = load(arg, index, self.real) if index else arg.name
        emitter = self._emitter(flaws, **names)
        text = emitter.text(self.epilogue)
        place = self._at_out(row, col)
        code(*emitter.statements)
        if acc != f"{self.out.name}[{place}]" or text != acc:
            code(store(self.out, place, text))

    def _heads(self, code: Code) -> None:
        if self.batch:
            code(f"{self.style.const_word}int {self.style.n('z')} = blockIdx.z;")

    def _plain(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        m, n, inner = self.sides
        row, col, k, acc = style.n("row"), style.n("col"), style.n("loop"), style.n("acc")
        alone = "thread_per_row" in flaws
        bounds = {row: m, col: n}
        swapped = "swapped_axes" in flaws
        x, y = (row, col) if swapped else (col, row)
        self._heads(code)
        if alone:
            code(f"{style.const_word}int {row} = {style.gid()};")
            code.guard((row, m))
            code.loop(col, "0", n)
            grid: tuple[str, ...] = (f"cdiv({m}, block)",) if not self.batch else (f"cdiv({m}, block)", "1", self.batch)
            block: tuple[int, ...] = (64,)
        else:
            code(f"{style.const_word}int {x} = {style.gid('x')};", f"{style.const_word}int {y} = {style.gid('y')};")
            code.guard((row, m), (col, n))
            grid = (
                f"cdiv({bounds[x]}, block_x)",
                f"cdiv({bounds[y]}, block_y)",
                *((self.batch,) if self.batch else ()),
            )
            block = self.block
        emitter = self._emitter(flaws)
        zero = emitter.literal(0)
        place = f"{self.out.name}[{self._at_out(row, col)}]"
        kept = (
            "global_accumulator" in flaws
            and self.out.dtype in ("float32", "float64", "int32")
            and self.out.direction == "out"
        )
        if kept:
            acc = place
            code(f"{acc} = {zero};")
        else:
            code(f"{emitter.real} {acc} = {zero};")
        code.loop(k, "0", inner)
        self._step(
            code, flaws, acc, load(self.a, self._at_a(row, k), self.real), load(self.b, self._at_b(k, col), self.real)
        )
        code.close()
        self._end(code, flaws, row, col, acc)
        return code.drafted(flaws, grid, block)

    def _tiled(self, flaws: Flaws) -> Draft:
        style, code, side = self.style, Code(self.style), self.tile
        m, n, inner = self.sides
        tile = inner_constant(code, style.n("block"), side)
        row, col, k, t, acc = style.n("row"), style.n("col"), style.n("loop"), style.n("loop2"), style.n("acc")
        left, right = style.n("tile"), style.n("tile2")
        kind = self._emitter(flaws).real if self.real != "float" or "wide_type" not in flaws else "float"
        wide = side * 2 if "oversized_shared" in flaws else None
        pad = "" if "bank_conflicts" in flaws else " + 1"
        if not (self.turned_b or self.turned_a):
            pad = ""
        self._heads(code)
        code(
            f"__shared__ {kind} {left}[{wide or tile}][{wide or tile + pad}];",
            f"__shared__ {kind} {right}[{wide or tile}][{wide or tile + pad}];",
        )
        code(
            f"{style.const_word}int {row} = blockIdx.y * {tile} + threadIdx.y;",
            f"{style.const_word}int {col} = blockIdx.x * {tile} + threadIdx.x;",
        )
        emitter = self._emitter(flaws)
        zero = emitter.literal(0)
        code(f"{emitter.real} {acc} = {zero};")
        code.open(f"for (int {t} = 0; {t} < {inner}; {t} += {tile})")
        self._stage(code, flaws, left, right, t, tile)
        code("__syncthreads();")
        if "extra_barriers" in flaws:
            code("__syncthreads();")
        code.loop(k, "0", tile)
        self._step(code, flaws, acc, f"{left}[threadIdx.y][{k}]", f"{right}[{k}][threadIdx.x]")
        if "extra_barriers" in flaws:
            code("__syncthreads();")
        code.close()
        code("__syncthreads();")
        code.close()
        code.open(f"if ({row} < {m} && {col} < {n})")
        self._end(code, flaws, row, col, acc)
        code.close()
        grid = (f"cdiv({n}, {side})", f"cdiv({m}, {side})", *((self.batch,) if self.batch else ()))
        return code.drafted(flaws, grid, (side, side))

    def _stage(self, code: Code, flaws: Flaws, left: str, right: str, t: str, tile: str) -> None:
        """Load a tile of each operand, neighbouring threads along what is contiguous."""
        m, n, inner = self.sides
        style = self.style
        row, col = style.n("row"), style.n("col")
        real = self._emitter(flaws).real
        zero = Emitter(self.real if real == self.real else "float").literal(0)
        if self.turned_a:
            r, k = f"(blockIdx.y * {tile} + threadIdx.x)", f"({t} + threadIdx.y)"
            code(
                f"{left}[threadIdx.x][threadIdx.y] = {r} < {m} && {k} < {inner} ? {load(self.a, self._at_a(r, k), self.real)} : {zero};"
            )
        else:
            k = f"({t} + threadIdx.x)" if style.turned else f"{t} + threadIdx.x"
            code(
                f"{left}[threadIdx.y][threadIdx.x] = {row} < {m} && {k} < {inner} ? {load(self.a, self._at_a(row, k), self.real)} : {zero};"
            )
        if self.turned_b:
            c, k = f"(blockIdx.x * {tile} + threadIdx.y)", f"({t} + threadIdx.x)"
            code(
                f"{right}[threadIdx.x][threadIdx.y] = {c} < {n} && {k} < {inner} ? {load(self.b, self._at_b(k, c), self.real)} : {zero};"
            )
        else:
            k = f"({t} + threadIdx.y)"
            code(
                f"{right}[threadIdx.y][threadIdx.x] = {k} < {inner} && {col} < {n} ? {load(self.b, self._at_b(k, col), self.real)} : {zero};"
            )


_TERMS: dict[str, Expr] = {
    "product": var("p") * var("q"),
    "square": call("square", var("p") - var("q")),
    "absolute": call("abs", var("p") - var("q")),
    "minimum": call("min", var("p"), var("q")),
}


def product(
    family: str, kind: Kind, *, terms: tuple[str, ...] = ("product",), epilogues: tuple[str, ...] = ("none",),
    dtypes: tuple[str, ...] = ("float32",), turned: tuple[tuple[bool, bool], ...] = ((False, False),), batched: bool = False,
) -> Callable[[Random], Problem]:  # fmt: skip
    """A family of products.

    Args:
        family: its name.
        kind: what it is bound by, mostly.
        terms: what is added up.
        epilogues: what becomes of sums: `none`, `bias`, `activation`, `blend`, `scale`, `residual`, `step`.
        dtypes: of all arrays.
        turned: which operands are stored the other way round.
        batched: many products at once.
    """

    def draw(rng: Random) -> Problem:
        dtype, (turned_a, turned_b), term = rng.choice(dtypes), rng.choice(turned), rng.choice(terms)
        real: Real = "int" if dtype == "int32" else "double" if dtype == "float64" else "float"
        names = pick(rng, 6, "array")
        sides = rng.choice(SIDES)
        m, n, inner = sides
        batch = "batches" if batched else ""
        lead = (batch,) if batched else ()
        drawn = "integers(-9, 9)" if real == "int" else "normal"
        a = array(names[0], "in", dtype, *lead, *((inner, m) if turned_a else (m, inner)), drawn=drawn)
        b = array(names[1], "in", dtype, *lead, *((n, inner) if turned_b else (inner, n)), drawn=drawn)
        epilogue, extras, blend = _epilogue(
            rng, "none" if real == "int" else rng.choice(epilogues), names, (m, n), dtype, real, drawn, lead
        )
        out = array(names[2], "inout" if blend else "out", dtype, *lead, m, n, drawn=drawn if blend else "")
        style = draw_style(rng, {*names, *sides, "batches", "p_v", "q_v", *(e.name for e, _ in extras)})
        tile = rng.choice((16, 16, 32, 8))
        block = rng.choice(((16, 16), (32, 8), (8, 8), (32, 4)))
        plan = _Product(
            style, a, b, out, sides, turned_a, turned_b, _TERMS[term], epilogue, extras, real, tile, block, batch
        )
        size = rng.choice(((48, 64, 40), (64, 48, 56), (80, 32, 48)))
        odd = rng.choice(((19, 37, 13), (33, 21, 29), (7, 45, 51)))
        sizes = tuple(
            dict(zip(sides, s, strict=True)) | ({batch: c} if batched else {})
            for s, c in ((size, 3), (odd, 2), ((1, 1, 1), 1))
        )
        large = dict.fromkeys(sides, 256 if batched else 512) | ({batch: 8} if batched else {})
        flaws = [
            "untiled",
            "swapped_axes",
            "thread_per_row",
            "global_accumulator",
            "no_restrict",
            "oversized_shared",
            "extra_barriers",
        ]
        flaws += ["bank_conflicts"] if turned_a or turned_b else []
        flaws += ["wide_type"] if real == "float" else []
        flaws += ["double_literals"] if real == "float" and epilogue.op != "var" else []
        flaws += ["powers"] if term == "square" and real == "float" else []
        scalars = tuple(dict.fromkeys(e for e, where in extras if where == "none"))
        arrays = tuple(dict.fromkeys(e for e, where in extras if where != "none" and e != out))
        args = (a, b, *arrays, out, *scalars, *(scalar(s) for s in sides))
        return Problem(
            family, kind, kernel_name(rng, family), args, sizes, large,
            _reference(plan, term), tuple(flaws), plan.draft, style, exclusive=(frozenset({"swapped_axes", "thread_per_row"}),),
        )  # fmt: skip

    return draw


def _reference(plan: _Product, term: str) -> str:
    a = f"{plan.a.name}.swapaxes(-1, -2)" if plan.turned_a else plan.a.name
    b = f"{plan.b.name}.swapaxes(-1, -2)" if plan.turned_b else plan.b.name
    if term == "product":
        acc = f"({a} @ {b})"
    else:
        both = numpy_text(plan.term, {"p": f"{a}[..., :, None, :]", "q": f"({b}).swapaxes(-1, -2)[..., None, :, :]"})
        acc = f"({both}).sum(axis=-1)"
    names = {"acc": acc}
    for arg, where in plan.extras:
        names[arg.name] = {"row": f"{arg.name}[:, None]", "col": arg.name, "all": arg.name, "none": arg.name}[where]
    return numpy_text(plan.epilogue, names)


def _epilogue(
    rng: Random, kind: str, names: list[str], shape: tuple[str, str], dtype: str, real: Real, drawn: str, lead: tuple[str, ...]
) -> tuple[Expr, tuple[tuple[Arg, str], ...], bool]:  # fmt: skip
    """The epilogue, its arrays, and whether it reads the output itself."""
    acc = var("acc")
    factor = "float64" if real == "double" else "float32"
    bias = array(names[3], "in", dtype, shape[1], drawn=drawn)
    if kind == "bias":
        return acc + var(bias.name), ((bias, "col"),), False
    if kind == "activation":
        function = rng.choice(("relu", "gelu", "silu", "tanh", "sigmoid", "leaky"))
        if rng.random() < 0.6:
            return call(function, acc + var(bias.name)), ((bias, "col"),), False
        return call(function, acc), (), False
    if kind == "blend":
        out = array(names[2], "inout", dtype, *lead, *shape, drawn=drawn)
        alpha, beta = scalar("alpha", factor, "1.25"), scalar("beta", factor, "0.5")
        return var("alpha") * acc + var("beta") * var(out.name), ((out, "all"), (alpha, "none"), (beta, "none")), True
    if kind == "scale":
        value = acc * const(rng.choice(CONSTANTS)) if rng.random() < 0.5 else acc / const(rng.choice(CONSTANTS))
        return (call("sqrt", call("max", value, const(0))) if rng.random() < 0.3 else value), (), False
    if kind == "residual":
        other = array(names[4], "in", dtype, *lead, *shape, drawn=drawn)
        return var(other.name) + call(rng.choice(("silu", "gelu", "relu")), acc), ((other, "all"),), False
    if kind == "step":
        x, noise = (
            array(names[4], "in", dtype, *lead, *shape, drawn=drawn),
            array(names[5], "in", dtype, *lead, *shape, drawn=drawn),
        )
        s0, s1 = scalar("sa", factor, "0.8"), scalar("sb", factor, "0.6")
        clean = (var(x.name) - var("sb") * acc) / var("sa")
        if rng.random() < 0.5:
            return clean, ((x, "all"), (s0, "none"), (s1, "none")), False
        return clean + const(0.1) * var(noise.name), ((x, "all"), (noise, "all"), (s0, "none"), (s1, "none")), False
    return acc, (), False
