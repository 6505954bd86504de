"""Families that reduce a whole array to one number, or to one per block: sums, counts, extremes.

Also histograms, and running sums along rows.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import Kind, Problem, array, constant, draw_style, load, scalar
from kernelmate_training.corpus.expressions import (
    SMOOTH,
    UNARY,
    Expr,
    Real,
    call,
    const,
    divides,
    grow,
    has,
    has_literals,
    numpy_text,
    var,
)
from kernelmate_training.corpus.families.maps import flat_sizes, row_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.reducing import Op
from kernelmate_training.corpus.templates import drafts


def total(family: str, kind: Kind, form: str) -> Callable[[Random], Problem]:
    """Returns a family of reductions: `sum`, `dot`, `partials`, `count`, `ints`, `error` (between two arrays)."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 3, "array")
        n = pick(rng, 1, "length")[0]
        whole = form in ("count", "ints")
        real: Real = "int" if whole else "float"
        dtype = "int32" if form == "ints" else "float32"
        two = form in ("dot", "error") or (form == "partials" and rng.random() < 0.4)
        inputs = tuple(
            array(
                name,
                "in",
                dtype,
                n,
                drawn="integers(-30, 30)" if form == "ints" else rng.choice(("normal", "uniform(0, 1)")),
            )
            for name in names[: 1 + two]
        )
        a, b = var(names[0]), var(names[1])
        op: Op = "sum"
        if form == "count":
            element: Expr = Expr("above", (a if rng.random() < 0.5 else call("abs", a), const(0), const(1), const(0)))
            element = Expr("above", (a, var("limit"), const(1), const(0)))
            inputs = (*inputs, scalar("limit", "float32", str(rng.choice((0.25, 0.5, 0.75)))))
        elif form == "ints":
            op = rng.choice(("sum", "max", "min"))
            element = grow(rng, [a], extra=rng.randint(0, 2), whole=True)
        elif form == "dot":
            element = grow(rng, [a * b], extra=rng.randint(0, 1), unary=("relu", "clip", "abs"))
        elif form == "error":
            element = rng.choice((call("square", a - b), call("abs", a - b), call("log1p", call("abs", a - b))))
        else:
            element = grow(rng, [a, b] if two else [a], extra=rng.randint(0, 3), unary=UNARY)
            op = rng.choice(("sum", "max", "min")) if form == "partials" else "sum"
        block = rng.choice((128, 256, 512))
        partials = form == "partials"
        out = array(
            names[2],
            "out" if partials else "inout",
            "int32" if whole else "float32",
            f"cdiv({n}, {block})" if partials else "1",
            drawn="" if partials else "zeros",
        )
        style = draw_style(rng, {*names, n, "limit"})
        sizes, large = flat_sizes(rng, n)
        flaws = ["shared_tree", "modulo_tree", "oversized_shared", "extra_barriers", "no_restrict", "second_buffer"]
        flaws += [] if partials else ["atomic_each", "full_grid", "chunked"]
        if real == "float":
            flaws += ["double_literals"] if has_literals(element) else []
            flaws += ["powers"] if has(element, "square", "cube") else []
            flaws += ["divides"] if divides(element) else []
        reads = {a.name: a for a in inputs if a.shape is not None}
        draft = drafts(
            "total", style, real=real, inverts=True, n=n, out=out.name, element=element, op=op, size=block, partials=partials,
            names=lambda i: {name: load(a, i, real) for name, a in reads.items()},
        )  # fmt: skip
        args = (*inputs, out, scalar(n)) if rng.random() < 0.7 else (out, *inputs, scalar(n))
        text = numpy_text(element, {})
        if partials:
            fill = {"sum": "0", "max": "-1e30", "min": "1e30"}[op]
            reference = f"np.pad({text}, (0, -{n} % {block}), constant_values={fill}).reshape(-1, {block}).{op}(axis=1)"
        elif op == "sum":
            reference = f"{out.name} + np.sum({text})"
        else:
            reference = f"np.{op}imum({out.name}, np.{op}({text}))"
        return Problem(
            family, kind, kernel_name(rng, family), args, sizes, large, reference, tuple(flaws), draft, style,
            require=(f"{n} > 0",),
            exclusive=(frozenset({"atomic_each", "full_grid", "chunked"}), frozenset({"shared_tree", "modulo_tree"})),
        )  # fmt: skip

    return draw


def warp_integers(family: str) -> Callable[[Random], Problem]:
    """Returns a family of sums and counts of integers by warp instructions."""

    def draw(rng: Random) -> Problem:
        names, n = pick(rng, 2, "array"), pick(rng, 1, "length")[0]
        counts = rng.random() < 0.5
        limit = scalar("limit", "int32", str(rng.randint(-5, 5))) if counts else None
        x, out = (
            array(names[0], "in", "int32", n, drawn="integers(-20, 20)"),
            array(names[1], "inout", "int32", "1", drawn="zeros"),
        )
        style = draw_style(rng, {*names, n, "limit"})
        sizes, large = flat_sizes(rng, n)
        size = rng.choice((128, 256, 512))
        draft = drafts(
            "warp-integers",
            style,
            x=x.name,
            out=out.name,
            n=n,
            size=size,
            limit=limit and limit.name,
        )
        args = (x, out, *((limit,) if limit else ()), scalar(n))
        element = f"np.sum(({x.name} > limit).astype(np.int64))" if counts else f"np.sum({x.name} * {x.name})"
        return Problem(
            family, "target", kernel_name(rng, family), args, sizes, large, f"{out.name} + {element}",
            ("integer_tree", "full_grid", "no_restrict", "atomic_each"), draft, style,
        )  # fmt: skip

    return draw


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
