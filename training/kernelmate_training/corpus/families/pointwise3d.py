"""Maps over three dimensions, and sums over all pairs, over bags of rows, and over bits of words."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import Kind, Problem, array, draw_style, scalar
from kernelmate_training.corpus.expressions import SMOOTH, grow, numpy_text, var
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts

DIMENSIONS = (
    ("planes", "rows", "cols"),
    ("nz", "ny", "nx"),
    ("batch", "channels", "pixels"),
    ("heads", "steps", "feat"),
    ("D", "H", "W"),
)


def cubes(family: str, kind: Kind, *, turned: bool) -> Callable[[Random], Problem]:
    """Returns a family of three-dimensional maps with a factor along one axis; `turned` permutes the output's axes."""

    def draw(rng: Random) -> Problem:
        names, dims = pick(rng, 3, "array"), rng.choice(DIMENSIONS)
        axis = rng.randrange(3)
        order = rng.choice(((1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0), (2, 0, 1))) if turned else (0, 1, 2)
        x, along = (
            array(names[0], "in", "float32", *dims, drawn="normal"),
            array(names[1], "in", "float32", dims[axis], drawn="normal"),
        )
        y = array(names[2], "out", "float32", *(dims[k] for k in order))
        value = grow(rng, [var("v"), var("w")], extra=rng.randint(0, 2), unary=SMOOTH)
        style = draw_style(rng, {*names, *dims, "v", "w"})
        own = [style.n("z"), style.n("row"), style.n("col")]
        place = f"({own[0]} * {dims[1]} + {own[1]}) * {dims[2]} + {own[2]}"
        draft = drafts(
            "cube-map", style, y=y.name, dims=dims, out=[own[k] for k in order], ends=[dims[k] for k in order], value=value,
            reads={"v": f"{x.name}[{place}]", "w": f"{along.name}[{own[axis]}]"},
        )  # fmt: skip
        sizes = tuple(dict(zip(dims, size, strict=True)) for size in ((12, 24, 64), (5, 7, 19), (1, 1, 1)))
        at = f"{along.name}" + ("[:, None, None]", "[:, None]", "")[axis]
        reference = f"({numpy_text(value, {'v': x.name, 'w': at})}).transpose({', '.join(map(str, order))})"
        flaws = ["swapped_axes", "slow_order", "flat_index", "thread_per_row", "no_restrict", "double_literals"]
        large = dict(zip(dims, (64, 128, 512), strict=True))
        return Problem(
            family, kind, kernel_name(rng, family), (x, along, y, *(scalar(d) for d in dims)), sizes, large, reference, tuple(flaws),
            draft, style, exclusive=(frozenset({"swapped_axes", "slow_order", "flat_index", "thread_per_row"}),),
        )  # fmt: skip

    return draw


def ranks(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family that counts, for each element, the elements below it."""

    def draw(rng: Random) -> Problem:
        names, n = pick(rng, 2, "array"), pick(rng, 1, "length")[0]
        x, y = array(names[0], "in", "float32", n, drawn="normal"), array(names[1], "out", "int32", n)
        term, spelled = rng.choice(
            (
                ("{a} < {b}", "{v}[None, :] < {v}[:, None]"),
                ("{a} > {b}", "{v}[None, :] > {v}[:, None]"),
                ("{a} <= {b}", "{v}[None, :] <= {v}[:, None]"),
            )
        )
        style = draw_style(rng, {*names, n})
        draft = drafts(
            "warp-sums", style, x=x.name, pattern="", y=y.name, n=n, last=n, term=term, warps=rng.choice((4, 8))
        )
        reference = f"({spelled.format(v=x.name)}).sum(axis=1)"
        return Problem(
            family,
            kind,
            kernel_name(rng, family),
            (x, y, scalar(n)),
            ({n: 320}, {n: 101}, {n: 1}),
            {n: 4096},
            reference,
            ("thread_per_row", "no_restrict"),
            draft,
            style,
        )

    return draw


def bits(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family that counts bits in which rows of words and a pattern agree, differ, or are both set."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 3, "array")
        rows, cols = pick(rng, 2, "sides")
        a, b, y = (
            array(names[0], "in", "uint32", rows, cols, drawn="integers(0, 4294967295)"),
            array(names[1], "in", "uint32", cols, drawn="integers(0, 4294967295)"),
            array(names[2], "out", "int32", rows),
        )
        term, sign = rng.choice((("{a} ^ {b}", "^"), ("{a} & {b}", "&"), ("{a} | {b}", "|")))
        style = draw_style(rng, {*names, rows, cols})
        warps = rng.choice((4, 8))
        draft = drafts(
            "warp-sums", style, x=a.name, pattern=b.name, y=y.name, n=rows, last=cols, term=term, warps=warps
        )
        word = f"({a.name} {sign} {b.name})"
        reference = f"(({word}[..., None] >> np.arange(32, dtype=np.uint32)) & 1).sum(axis=(1, 2))"
        sizes = ({rows: 48, cols: 64}, {rows: 37, cols: 29}, {rows: 1, cols: 1})
        return Problem(
            family,
            kind,
            kernel_name(rng, family),
            (a, b, y, scalar(rows), scalar(cols)),
            sizes,
            {rows: 16384, cols: 256},
            reference,
            ("bit_loop", "thread_per_row", "no_restrict"),
            draft,
            style,
        )

    return draw


def bags(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family that sums, for each list of indices, the rows of a table at these indices."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 4, "array")
        table, ids = (
            array(names[0], "in", "float32", "vocab", "dim", drawn="normal"),
            array(names[1], "in", "int32", "bags", "length", drawn="integers(0, vocab)"),
        )
        more = (
            (array(names[2], "in", "float32", "bags", "length", drawn="uniform(0, 1)"),) if rng.random() < 0.5 else ()
        )
        y = array(names[3], "out", "float32", "bags", "dim")
        style = draw_style(rng, {*names, "vocab", "dim", "bags", "length"})
        draft = drafts(
            "bag-sums", style, table=table.name, ids=ids.name, weights=more[0].name if more else "", y=y.name, bags="bags", dim="dim",
            length="length", warps=rng.choice((1, 2, 4)),
        )  # fmt: skip
        rows = f"{table.name}[{ids.name}]"
        reference = f"({rows} * {more[0].name}[:, :, None]).sum(axis=1)" if more else f"{rows}.sum(axis=1)"
        made = ((40, 64, 6, 50), (13, 37, 5, 11), (1, 1, 1, 1))
        sizes = tuple(dict(zip(("bags", "dim", "length", "vocab"), size, strict=True)) for size in made)
        return Problem(
            family, kind, kernel_name(rng, family), (table, ids, *more, y, scalar("bags"), scalar("dim"), scalar("length")), sizes,
            {"bags": 8192, "dim": 256, "length": 8, "vocab": 3000}, reference,
            ("thread_per_row", "global_accumulator", "no_restrict", "double_literals"), draft, style, require=("vocab > 0",),
        )  # fmt: skip

    return draw
