"""Recursive filters along rows, statistics of a few elements per thread, and joint counts of two indices."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import Kind, Problem, array, draw_style, scalar
from kernelmate_training.corpus.expressions import SMOOTH, grow, numpy_text, var
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts


def own_windows(family: str) -> Callable[[Random], Problem]:
    """Returns a family of statistics of a few elements per thread, in registers or in local memory."""

    def draw(rng: Random) -> Problem:
        names, n = pick(rng, 2, "array"), pick(rng, 1, "length")[0]
        count, form = rng.choice((6, 8, 10, 12)), rng.choice(("spread", "product", "rank"))
        across = rng.random() < 0.5
        x = array(names[0], "in", "float32", *((n, str(count)) if across else (str(count), n)), drawn="normal")
        y = array(names[1], "out", "float32", n)
        style = draw_style(rng, {*names, n})
        size = rng.choice((128, 256))
        draft = drafts("own-window", style, x=x.name, y=y.name, n=n, count=count, form=form, across=across, size=size)
        v = f"{x.name}.T" if across else x.name
        pairs_of = {
            "spread": f"np.abs({v}[:, None] - {v}[None]).sum(axis=(0, 1)) / 2",
            "product": f"({v}.sum(axis=0) ** 2 - ({v} ** 2).sum(axis=0)) / 2",
            "rank": f"np.where({v}[:, None] > {v}[None], {v}[:, None], 0).sum(axis=(0, 1))",
        }
        sizes = ({n: 8192}, {n: 1021}, {n: 1})
        flaws = ("local_array", "no_restrict", *(("launch_bounds",) if count >= 10 else ()))
        return Problem(
            family,
            "target",
            kernel_name(rng, family),
            (x, y, scalar(n)),
            sizes,
            {n: 1 << 21},
            pairs_of[form],
            flaws,
            draft,
            style,
        )

    return draw


def own_sorts(family: str) -> Callable[[Random], Problem]:
    """Returns a family of order statistics, such as medians, of a few elements per thread."""

    def draw(rng: Random) -> Problem:
        names, n, count = pick(rng, 2, "array"), pick(rng, 1, "length")[0], rng.choice((5, 6, 7, 8, 9))
        place, strided = rng.choice((0, count // 2, count - 1, count - 2)), rng.random() < 0.5
        x = array(names[0], "in", "float32", *((str(count), n) if strided else (n, str(count))), drawn="normal")
        y = array(names[1], "out", "float32", n)
        style = draw_style(rng, {*names, n})
        draft = drafts("own-order", style, x=x.name, y=y.name, n=n, count=count, place=place, strided=strided)
        reference = f"np.sort({x.name}, axis=0)[{place}]" if strided else f"np.sort({x.name}, axis=1)[:, {place}]"
        return Problem(
            family,
            "target",
            kernel_name(rng, family),
            (x, y, scalar(n)),
            ({n: 8192}, {n: 1021}, {n: 1}),
            {n: 1 << 21},
            reference,
            ("local_array", "no_restrict"),
            draft,
            style,
        )

    return draw


def decays(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family of first-order filters along rows, such as exponential smoothing."""

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
        warps = rng.choice((2, 4, 8))
        draft = drafts("decay", style, x=x.name, y=y.name, rows=rows, cols=cols, keep=keep, value=value, warps=warps)
        # y = K x for the lower triangular matrix K of powers of the factor.
        powers = f"np.tril({keep} ** np.maximum(np.subtract.outer(np.arange({x.name}.shape[1]), np.arange({x.name}.shape[1])), 0))"
        reference = f"({numpy_text(value, {'v': x.name})}) @ {powers}.T"
        flaws = ("serial_scan", "global_accumulator", "no_restrict", "double_literals")
        made = ((24, 96), (13, 77), (1, 1))
        return Problem(
            family, kind, kernel_name(rng, family), (x, y, scalar(rows), scalar(cols)),
            tuple({rows: a, cols: b} for a, b in made), {rows: 8192, cols: 512}, reference, flaws, draft, style,
        )  # fmt: skip

    return draw


def joint_counts(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family of confusion matrices and joint histograms."""

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
        size = rng.choice((128, 256, 512))
        draft = drafts(
            "joint-counts", style, a=a.name, b=b.name, out=out.name, type=out.c_type, n=n, sides=sides, size=size
        )
        place = f"{a.name}.astype(np.int64) * {sides[1]} + {b.name}"
        counted = f"np.bincount({place}, minlength={sides[0] * sides[1]}).reshape({sides[0]}, {sides[1]})"
        sizes = ({n: rng.choice((2000, 3072))}, {n: 317}, {n: 1})
        return Problem(
            family, kind, kernel_name(rng, family), (a, b, out, scalar(n)), sizes, {n: 1 << 22},
            f"{out.name} + {counted}", ("atomic_bins", "full_grid", "no_restrict"), draft, style,
        )  # fmt: skip

    return draw
