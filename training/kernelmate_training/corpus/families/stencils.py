"""Families in which every output depends on neighbours.

In a plane these are convolutions, pooling, and time steps on a grid; in one dimension and in three, weighted sums.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from kernelmate_training.corpus.drafting import Arg, Kind, Problem, Style, array, draw_style, load, scalar
from kernelmate_training.corpus.expressions import CONSTANTS, Expr, Real, call, const, numpy_text, var
from kernelmate_training.corpus.families.maps import plane_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts


@dataclass(frozen=True)
class _Plane:
    """Inputs and form of a stencil.

    Attributes:
        x, w: the input, and the weights if there are any.
        rows, cols: names of the plane's extents.
        radius: radius of the window.
        form: `weights` (an array), `mean`, `max`, `star` (a cross, with factors), `sobel`.
        border: `zero` or `clamp`.
        factors: factors of the centre and of the neighbours of `star`.
        planes: name of the number of planes; empty for one plane.
    """

    x: Arg
    w: Arg | None
    rows: str
    cols: str
    radius: int
    form: str
    border: str
    factors: tuple[float, float]
    planes: str


def _beside(plane: _Plane, style: Style, dy: int, dx: int, real: Real, zero: str) -> str:
    """Returns a neighbour's value; outside of the plane 0, or the nearest value."""
    base = f"{style.n('z')} * {plane.rows} * {plane.cols} + " if plane.planes else ""
    found, checks = [], []
    for name, step, end in ((style.n("row"), dy, plane.rows), (style.n("col"), dx, plane.cols)):
        if not step:
            found.append(name)
        elif plane.border == "clamp":
            found.append(f"max({name} - 1, 0)" if step < 0 else f"min({name} + 1, {end} - 1)")
        else:
            found.append(f"({name} {'+' if step > 0 else '-'} 1)")
            checks.append(f"{name} > 0" if step < 0 else f"{name} < {end} - 1")
    value = load(plane.x, f"{base}{found[0]} * {plane.cols} + {found[1]}", real)
    return f"({' && '.join(checks)} ? {value} : {zero})" if checks else value


def window(
    family: str, kind: Kind, form: str, *, planes: bool = False, epilogues: bool = False
) -> Callable[[Random], Problem]:
    """Returns a family of stencils on one plane, or on many."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 3, "array")
        rows, cols = pick(rng, 2, "sides")
        lead = ("planes",) if planes else ()
        dtype = rng.choice(("float32", "float32", "float32", "float16"))
        radius = rng.choice((1, 1, 2, 3)) if form in ("weights", "mean", "max") else 1
        size = 2 * radius + 1
        x, y = (
            array(names[0], "in", dtype, *lead, rows, cols, drawn="normal"),
            array(names[1], "out", dtype, *lead, rows, cols),
        )
        w = array(names[2], "in", dtype, *lead, str(size), str(size), drawn="normal") if form == "weights" else None
        acc = var("acc")
        epilogue = (
            rng.choice(
                (
                    acc,
                    call("relu", acc),
                    call("silu", acc),
                    acc * const(rng.choice(CONSTANTS)) + const(rng.choice(CONSTANTS)),
                )
            )
            if epilogues
            else acc
        )
        style = draw_style(rng, {*names, rows, cols, "planes", "up", "down", "west", "east", "mid", "gx", "gy"})
        border = "zero" if form == "max" else rng.choice(("zero", "clamp"))
        factors = rng.choice(((0.5, 0.125), (-4.0, 1.0), (0.6, 0.1), (0.2, 0.2)))
        sides = rng.choice(((32, 8), (16, 16), (32, 4)))
        plane = _Plane(x, w, rows, cols, radius, form, border, factors, "planes" if planes else "")
        result = epilogue / const(float(size**2)) if form == "mean" else epilogue
        draft = drafts(
            "window", style, inverts=True, X=x, W=w, Y=y, rows=rows, cols=cols, radius=radius, form=form, border=border, factors=factors,
            result=result, planes=plane.planes, sides=sides, read=load, beside=partial(_beside, plane, style),
        )  # fmt: skip
        sizes, large = plane_sizes(rng, rows, cols)
        small = ({rows: 64, cols: 96}, *sizes[1:])
        sizes = tuple(
            dict(s) | ({"planes": count} if planes else {}) for s, count in zip(small, (3, 2, 1), strict=True)
        )
        large = dict(large) | ({"planes": 4} if planes else {})
        flaws = ["swapped_axes", "thread_per_row", "flat_index", "no_restrict", "wide_type"]
        flaws = [f for f in flaws if not (f == "wide_type" and form == "max")]
        flaws += ["global_accumulator"] if form in ("weights", "mean") and dtype == "float32" else []
        flaws += ["divides"] if form == "mean" else []
        flaws += ["double_literals"] if form in ("star", "sobel", "mean") or epilogue is not acc else []
        args = (x, *((w,) if w else ()), y, scalar(rows), scalar(cols))
        return Problem(
            family, kind, kernel_name(rng, family), args, sizes, large, _window_reference(plane, epilogue), tuple(flaws), draft, style,
            exclusive=(frozenset({"swapped_axes", "thread_per_row", "flat_index"}),), require=(f"{rows} > 0", f"{cols} > 0"),
        )  # fmt: skip

    return draw


def _window_reference(plan: _Plane, epilogue: Expr) -> str:
    r, rows, cols = plan.radius, plan.rows, plan.cols
    fill = "-1e30" if plan.form == "max" else "0"
    how = "mode='edge'" if plan.border == "clamp" else f"constant_values={fill}"
    pads = f"((0, 0), ({r}, {r}), ({r}, {r}))" if plan.planes else str(r)
    dots = ":, " if plan.planes else ""

    def part(dy: int, dx: int) -> str:
        return f"v[{dots}{r + dy}:{r + dy} + {rows}, {r + dx}:{r + dx} + {cols}]"

    if plan.form == "star":
        one, other = plan.factors
        text = f"{one} * {part(0, 0)} + {other} * ({part(-1, 0)} + {part(1, 0)} + {part(0, -1)} + {part(0, 1)})"
    elif plan.form == "sobel":
        gx = f"({part(-1, 1)} - {part(-1, -1)} + 2 * ({part(0, 1)} - {part(0, -1)}) + {part(1, 1)} - {part(1, -1)})"
        gy = f"({part(1, -1)} - {part(-1, -1)} + 2 * ({part(1, 0)} - {part(-1, 0)}) + {part(1, 1)} - {part(-1, 1)})"
        text = f"np.sqrt({gx} ** 2 + {gy} ** 2 + 0.01)"
    else:
        text = _summed(plan, part)
    text = numpy_text(epilogue, {"acc": f"({text})"})
    return f"(lambda v: {text})(np.pad({plan.x.name}, {pads}, {how}))"


def _summed(plan: _Plane, part: Callable[[int, int], str]) -> str:
    r = plan.radius
    places = [(dy, dx) for dy in range(-r, r + 1) for dx in range(-r, r + 1)]
    if plan.form == "max":
        return f"np.max(np.stack([{', '.join(part(*p) for p in places)}]), axis=0)"
    if plan.form == "mean":
        return f"({' + '.join(part(*p) for p in places)}) / {float(len(places))}"
    assert plan.w is not None
    dims = "[:, {}, {}, None, None]" if plan.planes else "[{}, {}]"
    name = plan.w.name
    terms = [f"{name}{dims.format(dy + r, dx + r)} * {part(dy, dx)}" for dy, dx in places]
    return " + ".join(terms)


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
