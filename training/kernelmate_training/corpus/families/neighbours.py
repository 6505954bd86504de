"""Sums over neighbours along one dimension, with weights, and in three."""

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
from kernelmate_training.corpus.expressions import CONSTANTS, Emitter, Expr, Real, call, const, numpy_text, var
from kernelmate_training.corpus.families.words import kernel_name, pick


@dataclass(frozen=True)
class _Filter:
    """Writes the versions of a correlation along one dimension, weights in an array."""

    style: Style
    x: Arg
    w: Arg
    y: Arg
    n: str
    taps: str
    epilogue: Expr
    real: Real
    block: int

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        i, t, acc = style.n("i"), style.n("loop"), style.n("acc")
        real: Real = "double" if "wide_type" in flaws else self.real
        emitter = Emitter(real, "double_literals" in flaws, names={"acc": acc}, const_word=style.const_word)
        zero = emitter.literal(0)
        per, grid = 8, f"cdiv({self.n}, block)"
        block = 32 if "tiny_block" in flaws else self.block
        if "chunked" in flaws:
            first, at = style.n("row"), style.n("loop2")
            grid = f"cdiv({self.n}, {per} * {block})"
            code(f"{style.const_word}int {first} = ({style.gid()}) * {per};")
            code.loop(at, "0", str(per))
            code(f"{style.const_word}int {i} = {first} + {at};")
            code.guard((i, self.n), early=False)
        else:
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, self.n))
        place = f"{self.y.name}[{i}]"
        kept = "global_accumulator" in flaws and self.y.dtype in ("float32", "float64")
        acc = place if kept else acc
        code(f"{acc} = {zero};" if kept else f"{real} {acc} = {zero};")
        code.loop(t, "0", self.taps)
        code(f"{acc} += {load(self.x, f'{i} + {t}', real)} * {load(self.w, t, real)};")
        code.close()
        emitter.names = {"acc": acc}
        text = emitter.text(self.epilogue)
        code(*emitter.statements)
        if not (kept and text == acc):
            code(store(self.y, i, text))
        return code.drafted(flaws, (grid,), (block,))


def filters(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Correlations along one dimension."""

    def draw(rng: Random) -> Problem:
        dtype = rng.choice(("float32", "float32", "float64", "float16"))
        real: Real = "double" if dtype == "float64" else "float"
        names, n, taps = (
            pick(rng, 3, "array"),
            pick(rng, 1, "length")[0],
            rng.choice(("taps", "width_k", "order", "klen")),
        )
        x, w = (
            array(names[0], "in", dtype, f"{n} + {taps}", drawn="normal"),
            array(names[1], "in", dtype, taps, drawn="normal"),
        )
        y = array(names[2], "out", dtype, n)
        epilogue = rng.choice(
            (
                var("acc"),
                var("acc"),
                call("tanh", var("acc")),
                var("acc") * const(rng.choice(CONSTANTS)),
                call("relu", var("acc")),
            )
        )
        style = draw_style(rng, {*names, n, taps})
        plan = _Filter(style, x, w, y, n, taps, epilogue, real, rng.choice((128, 192, 256)))
        sizes = ({n: 16384, taps: 9}, {n: 1531, taps: 7}, {n: 1, taps: 1})
        flaws = ["global_accumulator", "chunked", "no_restrict", "tiny_block"]
        flaws += ["wide_type"] if real == "float" else []
        flaws += ["double_literals"] if real == "float" and epilogue.op != "var" else []
        reference = numpy_text(epilogue, {"acc": f"np.correlate({x.name}, {w.name}, 'valid')[:{n}]"})
        args = (x, w, y, scalar(n), scalar(taps))
        return Problem(
            family,
            kind,
            kernel_name(rng, family),
            args,
            sizes,
            {n: 1 << 21, taps: 16},
            reference,
            tuple(flaws),
            plan.draft,
            style,
            exclusive=(frozenset({"chunked", "tiny_block"}),),
            require=(f"{taps} > 0",),
        )

    return draw


@dataclass(frozen=True)
class _Volume:
    """Writes the versions of a seven-point stencil in three dimensions, or of a map along one of them."""

    style: Style
    x: Arg
    y: Arg
    dims: tuple[str, str, str]
    factors: tuple[float, float]
    epilogue: Expr

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        nz, ny, nx = self.dims
        names = style.n("z"), style.n("row"), style.n("col")
        z, y, x = names
        order = (z, y, x) if "swapped_axes" in flaws else (x, y, z)
        bounds = dict(zip(names, self.dims, strict=True))
        block = (8, 8, 4) if "swapped_axes" in flaws else (32, 4, 2)
        for axis, name in zip("xyz", order, strict=True):
            code(f"{style.const_word}int {name} = {style.gid(axis)};")
        code.guard((z, nz), (y, ny), (x, nx))
        at, acc = style.n("i"), style.n("acc")
        code(f"{style.const_word}int {at} = ({z} * {ny} + {y}) * {nx} + {x};")
        emitter = Emitter("float", "double_literals" in flaws, names={"acc": acc}, const_word=style.const_word)
        zero = emitter.literal(0)
        steps = (
            (f"{z} > 0", f"- {ny} * {nx}"),
            (f"{z} < {nz} - 1", f"+ {ny} * {nx}"),
            (f"{y} > 0", f"- {nx}"),
            (f"{y} < {ny} - 1", f"+ {nx}"),
            (f"{x} > 0", "- 1"),
            (f"{x} < {nx} - 1", "+ 1"),
        )
        one, other = (emitter.literal(f) for f in self.factors)
        if "through_memory" in flaws:
            place = f"{self.y.name}[{at}]"
            code(f"{place} = {one} * {self.x.name}[{at}];")
            for check, step in steps:
                code.when(check, f"{place} += {other} * {self.x.name}[{at} {step}];")
            emitter.names = {"acc": place}
        else:
            code(f"float {acc} = {zero};")
            for check, step in steps:
                code.when(check, f"{acc} += {self.x.name}[{at} {step}];")
            code(f"{acc} = {one} * {self.x.name}[{at}] + {other} * {acc};")
        text = emitter.text(self.epilogue)
        code(*emitter.statements)
        if text != f"{self.y.name}[{at}]":
            code(f"{self.y.name}[{at}] = {text};")
        grid = tuple(f"cdiv({bounds[name]}, block_{axis})" for axis, name in zip("xyz", order, strict=True))
        return code.drafted(flaws, grid, block)


def volume(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Stencils in three dimensions."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 2, "array")
        dims = rng.choice((("nz", "ny", "nx"), ("depth", "height", "width"), ("d0", "d1", "d2")))
        x, y = array(names[0], "in", "float32", *dims, drawn="normal"), array(names[1], "out", "float32", *dims)
        acc = var("acc")
        epilogue = rng.choice((acc, acc, call("tanh", acc), acc * const(0.5)))
        style = draw_style(rng, {*names, *dims})
        factors = rng.choice(((0.4, 0.1), (-6.0, 1.0), (0.25, 0.125)))
        plan = _Volume(style, x, y, dims, factors, epilogue)
        sizes = tuple(dict(zip(dims, s, strict=True)) for s in ((12, 20, 40), (5, 7, 19), (1, 1, 1)))
        one, other = factors
        shifts = [
            ("2:, 1:-1, 1:-1"),
            (":-2, 1:-1, 1:-1"),
            ("1:-1, 2:, 1:-1"),
            ("1:-1, :-2, 1:-1"),
            ("1:-1, 1:-1, 2:"),
            ("1:-1, 1:-1, :-2"),
        ]
        text = f"({one} * {x.name} + {other} * ({' + '.join(f'v[{s}]' for s in shifts)}))"
        reference = f"(lambda v: {numpy_text(epilogue, {'acc': text})})(np.pad({x.name}, 1))"
        flaws = ("swapped_axes", "through_memory", "double_literals", "no_restrict")
        return Problem(
            family,
            kind,
            kernel_name(rng, family),
            (x, y, *(scalar(d) for d in dims)),
            sizes,
            dict.fromkeys(dims, 192),
            reference,
            flaws,
            plan.draft,
            style,
        )

    return draw
