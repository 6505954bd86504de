"""Arrays of a thread's own: windows and short rows that belong in registers, and in local memory where they are indexed by a variable."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import (
    Problem,
    array,
    draw_style,
    scalar,
)
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts


def own_windows(family: str) -> Callable[[Random], Problem]:
    """Statistics of a few elements for each thread, in registers or in local memory."""

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
    """Medians and other order statistics of a few elements for each thread."""

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
