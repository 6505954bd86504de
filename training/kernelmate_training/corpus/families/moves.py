"""Families that move data: transposes, permutations, gathers, reversals, interleaving, with little arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import (
    Arg,
    Kind,
    Problem,
    array,
    draw_style,
    load,
    scalar,
)
from kernelmate_training.corpus.expressions import SMOOTH, Real, grow, numpy_text, var
from kernelmate_training.corpus.families.maps import plane_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts


def transposes(
    family: str, kind: Kind, *, planes: bool = False, dtypes: tuple[str, ...] = ("float32",)
) -> Callable[[Random], Problem]:
    """Returns a family of transposes with little or no arithmetic."""

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
        thin = rng.choice((8, 4)) if tile == 32 else 16
        held = Arg(style.n("tile"), "in", dtype)

        def reading(k: str, wide: bool) -> str:
            place = f"threadIdx.x][threadIdx.y + {k}"
            return f"{held.name}[{place}]" if wide else load(held, place, real)

        draft = drafts(
            "transpose", style, real=real, X=x, Y=y, rows=rows, cols=cols, planes="planes" if planes else "", value=value, side=tile,
            thin=thin, held=reading,
        )  # fmt: skip
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
            reference, tuple(flaws), draft, style,
        )  # fmt: skip

    return draw


def gathers(family: str, kind: Kind, form: str) -> Callable[[Random], Problem]:
    """Returns a family of copies with computed indices."""

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
        sides = rng.choice(((32, 8), (64, 4), (16, 16)))
        row, col = style.n("row"), style.n("col")
        first = f"({row} * {cols} + {col}) * 3"
        place = {
            "gather": f"{index.name if index else ''}[{row}] * {cols} + {col}",
            "reverse": f"{row} * {cols} + ({cols} - 1 - {col})",
            "flip": f"({rows} - 1 - {row}) * {cols} + {col}",
            "shift": f"{row} * {cols} + ({col} + 1) % {cols}",
            "channels": f"{first} + 1",
            "even": f"{row} * 2 * {cols} + 2 * {col}",
        }[form]
        reads = {"here": f"{x.name}[{place}]"} | {a.name: f"{a.name}[{row} * {cols} + {col}]" for a in more}
        reads |= {"red": f"{x.name}[{first} + 0]", "blue": f"{x.name}[{first} + 2]"} if form == "channels" else {}
        draft = drafts("gather", style, inverts=True, Y=y, rows=rows, cols=cols, value=value, sides=sides, reads=reads)
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
            family, kind, kernel_name(rng, family), args, sizes, large, numpy_text(value, spelled), tuple(flaws), draft, style,
            exclusive=(frozenset({"swapped_axes", "thread_per_row"}),), require=("vocab > 0",) if form == "gather" else (),
        )  # fmt: skip

    return draw
