"""Weighted sums over neighbours in one dimension and in three."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import (
    Kind,
    Problem,
    array,
    draw_style,
    load,
    scalar,
)
from kernelmate_training.corpus.expressions import CONSTANTS, Real, call, const, numpy_text, var
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts


def filters(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family of correlations in one dimension."""

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
        draft = drafts(
            "filter",
            style,
            real=real,
            X=x,
            W=w,
            Y=y,
            n=n,
            taps=taps,
            epilogue=epilogue,
            read=load,
            size=rng.choice((128, 192, 256)),
        )
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
            draft,
            style,
            exclusive=(frozenset({"chunked", "tiny_block"}),),
            require=(f"{taps} > 0",),
        )

    return draw


def volume(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family of stencils in three dimensions."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 2, "array")
        dims = rng.choice((("nz", "ny", "nx"), ("depth", "height", "width"), ("d0", "d1", "d2")))
        x, y = array(names[0], "in", "float32", *dims, drawn="normal"), array(names[1], "out", "float32", *dims)
        acc = var("acc")
        epilogue = rng.choice((acc, acc, call("tanh", acc), acc * const(0.5)))
        style = draw_style(rng, {*names, *dims})
        factors = rng.choice(((0.4, 0.1), (-6.0, 1.0), (0.25, 0.125)))
        nz, ny, nx = dims
        draft = drafts("volume", style, x=x.name, y=y.name, nz=nz, ny=ny, nx=nx, factors=factors, epilogue=epilogue)
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
            draft,
            style,
        )

    return draw
