"""Families that move data, with little arithmetic.

These are transposes, permutations of up to four axes, gathers, reversals, interleaving, and unpacking of words into
several elements.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import Arg, Kind, Problem, array, draw_style, load, scalar
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


DIMENSIONS: tuple[tuple[str, ...], ...] = (
    ("batch", "height", "width", "channels"),
    ("B", "T", "H", "D"),
    ("n", "c", "h", "w"),
    ("heads", "tokens", "dim"),
    ("planes", "rows", "cols"),
    ("nz", "ny", "nx"),
    ("frames", "bins", "bands"),
)
SIDE = 32
"""Side of a tile."""


def _place(names: list[str], dims: list[str] | tuple[str, ...]) -> str:
    """Returns the index of an element in a row-major array."""
    text = names[0]
    for name, dim in zip(names[1:], dims[1:], strict=True):
        text = f"({text}) * {dim} + {name}" if " " in text else f"{text} * {dim} + {name}"
    return text


def layouts(family: str, kind: Kind, *, count: int, turning: bool, dtypes: tuple[str, ...]) -> Callable[[Random], Problem]:  # fmt: skip
    """Returns a family of permuting copies of arrays of `count` dimensions.

    With `turning`, the fastest dimension changes.
    """

    def draw(rng: Random) -> Problem:
        names = pick(rng, 2, "array")
        dims = rng.choice([known for known in DIMENSIONS if len(known) == count])
        order = _order(rng, count, turning=turning)
        dtype = rng.choice(dtypes)
        x = array(names[0], "in", dtype, *dims, drawn="integers(0, 120)" if "int" in dtype else "normal")
        y = array(names[1], "out", dtype, *(dims[k] for k in order))
        style = draw_style(rng, {*names, *dims})
        indices = [f"{letter}{rng.choice(('', 'i', '0'))}" for letter in rng.sample("bcdefgmrstuv", count)]
        while set(indices) & ({*names, *dims} | set(style.names.values())):
            indices = [f"{letter}_" for letter in rng.sample("bcdefgmrstuv", count)]
        mirrored = rng.randrange(count) if rng.random() < 0.25 else None
        factor = str(rng.choice((0.5, 2.0, 0.25, 1.5, 0.1))) if dtype == "float32" and rng.random() < 0.5 else ""
        others = [k for k in reversed(range(count)) if k not in (count - 1, order[-1])]
        out = [f"({dims[k]} - 1 - {indices[k]})" if k == mirrored else indices[k] for k in order]
        draft = drafts(
            "layout", style, x=x.name, y=y.name, type=x.c_type, dims=dims, names=indices, order=order, turning=turning, factor=factor,
            thin=rng.choice((4, 8, 8, 16)), side=SIDE, fast_in=count - 1, fast_out=order[-1], others=others,
            others_deep=" * ".join(dims[k] for k in others), to=_place(out, [dims[k] for k in order]), source=_place(indices, dims),
        )  # fmt: skip
        sizes, large = _extents(rng, dims)
        seen = x.name if mirrored is None else f"np.flip({x.name}, {mirrored})"
        reference = f"({factor or 1} * {seen}).transpose({', '.join(map(str, order))})" if factor else f"{seen}.transpose({', '.join(map(str, order))})"  # fmt: skip
        flaws = ["slow_order", "swapped_axes", "no_restrict", "wide_index"]
        flaws += ["strided_copy", "bank_conflicts"] if turning else []
        flaws += ["double_literals"] if factor else []
        rough = {"slow_order", "swapped_axes", *(["strided_copy"] if turning else [])}
        return Problem(
            family, kind, kernel_name(rng, family), (x, y, *(scalar(d) for d in dims)), sizes, large, reference, tuple(flaws),
            draft, style, exclusive=(frozenset(rough),),
        )  # fmt: skip

    return draw


def _order(rng: Random, count: int, *, turning: bool) -> tuple[int, ...]:
    while True:
        order = tuple(rng.sample(range(count), count))
        if order != tuple(range(count)) and (order[-1] != count - 1) == turning:
            return order


def _extents(rng: Random, dims: tuple[str, ...]) -> tuple[tuple[dict[str, int], ...], dict[str, int]]:
    """Returns sizes of the contract and a large one.

    The dimensions differ, so that exchanged ones give wrong results.
    """
    head = rng.choice(((3, 12, 20, 40), (2, 18, 34, 24), (4, 10, 33, 36))[: None if len(dims) == 4 else 3])
    odd = rng.choice(((2, 3, 5, 37), (3, 2, 7, 19), (2, 5, 3, 33)))
    large = rng.choice(((8, 64, 64, 128), (16, 32, 96, 64), (4, 128, 48, 160)))
    sizes = tuple(dict(zip(dims, one[-len(dims) :], strict=True)) for one in (head, odd, (1, 1, 1, 1)))
    wide = dict(zip(dims, large[-len(dims) :], strict=True))
    if len(dims) == 3:
        wide[dims[0]] *= 8
    return sizes, wide


def unpacking(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family that unpacks nibbles, bytes and other fields of words to floats or ints."""

    def draw(rng: Random) -> Problem:
        names, n = pick(rng, 2, "array"), pick(rng, 1, "length")[0]
        fields, width = rng.choice(((8, 4), (4, 8), (16, 2), (2, 16), (3, 10), (5, 6)))
        dtype = rng.choice(("float32", "float32", "int32"))
        x = array(names[0], "in", "uint32", n, drawn="integers(0, 4294967295)")
        y = array(names[1], "out", dtype, n, str(fields))
        value, spelled = rng.choice(
            (("{v} * 0.25{f} - 1.0{f}", "{v} * 0.25 - 1"), ("{v} * 0.0625{f}", "{v} * 0.0625"), ("{v} - 8.0{f}", "{v} - 8"))
        )  # fmt: skip
        style = draw_style(rng, {*names, n})
        whole, mask = dtype == "int32", hex((1 << width) - 1) + "u"
        draft = drafts(
            "unpack", style, x=x.name, y=y.name, n=n, fields=fields, width=width, mask=mask,
            written=lambda field, suffix: f"(int){field}" if whole else value.format(v=f"(float){field}", f=suffix),
        )  # fmt: skip
        raw = f"(({x.name}[:, None] >> ({width} * np.arange({fields}, dtype=np.uint32))) & {2**width - 1}).astype(np.int64)"
        reference = raw if dtype == "int32" else spelled.format(v=raw)
        flaws = ("chunked", "no_restrict", *(("double_literals",) if dtype == "float32" else ()))
        sizes = ({n: rng.choice((512, 1000))}, {n: 37}, {n: 1})
        large = {n: (1 << 23) // fields}
        return Problem(
            family, kind, kernel_name(rng, family), (x, y, scalar(n)), sizes, large, reference, flaws, draft, style
        )

    return draw
