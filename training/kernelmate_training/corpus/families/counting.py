"""Histograms, and running sums along rows."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import (
    Kind,
    Problem,
    array,
    constant,
    draw_style,
    scalar,
)
from kernelmate_training.corpus.expressions import SMOOTH, grow, numpy_text, var
from kernelmate_training.corpus.families.maps import flat_sizes, row_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.reducing import Op
from kernelmate_training.corpus.templates import drafts


def histogram(family: str, kind: Kind, *, weighted: bool) -> Callable[[Random], Problem]:
    """Returns a family of histograms of bytes or ints."""

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
        top, _ = constant(style, style.n("block"), bins)
        draft = drafts(
            "histogram", style, x=x.name, weights=w.name if w else "", out=out.name, type=out.c_type, n=n, count=bins, top=top,
            bin_text=bin_text, size=rng.choice((128, 256, 512)), checked=checked or (low < 0 and bin_text == "{}"),
        )  # fmt: skip
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
            draft,
            style,
        )

    return draw


def scans(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family of running sums and extremes along rows."""

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
        warps = rng.choice((4, 8, 2))
        draft = drafts(
            "scan",
            style,
            x=x.name,
            y=y.name,
            rows=rows,
            cols=cols,
            op=op,
            value=value,
            exclusive=exclusive,
            warps=warps,
        )
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
            draft,
            style,
            exclusive=(frozenset({"serial_scan", "ping_pong"}),),
            require=(f"{rows} > 0",),
        )

    return draw
