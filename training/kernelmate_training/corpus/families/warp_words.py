"""Instructions that take a word at once: products of four bytes, and a warp's votes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import (
    Problem,
    array,
    draw_style,
    scalar,
)
from kernelmate_training.corpus.families.hardware import aligned
from kernelmate_training.corpus.families.maps import flat_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts


def byte_products(family: str) -> Callable[[Random], Problem]:
    """Products of bytes, by four."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 3, "array")
        rows, cols = pick(rng, 2, "sides")
        a, x, y = (
            array(names[0], "in", "int8", rows, cols),
            array(names[1], "in", "int8", cols),
            array(names[2], "out", "int32", rows),
        )
        style = draw_style(rng, {*names, rows, cols, *(f"{name}_4" for name in names)})
        shift = rng.choice((0, 0, 4, 7))
        draft = drafts(
            "byte-products", style, a=a.name, x=x.name, y=y.name, rows=rows, cols=cols, warps=rng.choice((4, 8)), shift=shift,
            aligned=aligned((a, x), 4),
        )  # fmt: skip
        sizes = ({rows: rng.choice((64, 96)), cols: rng.choice((256, 320))}, {rows: 37, cols: 52}, {rows: 1, cols: 4})
        product = f"{a.name}.astype(np.int64) @ {x.name}.astype(np.int64)"
        reference = f"({product}) >> {shift}" if shift else product
        return Problem(
            family, "target", kernel_name(rng, family), (a, x, y, scalar(rows), scalar(cols)), sizes, {rows: 8192, cols: 4096}, reference,
            ("byte_dot", "thread_per_row", "integer_tree", "no_restrict"), draft, style, require=(f"{cols} % 4 == 0",),
        )  # fmt: skip

    return draw


def votes(family: str) -> Callable[[Random], Problem]:
    """Counts per block, by votes of warps."""

    def draw(rng: Random) -> Problem:
        names, n, block = pick(rng, 2, "array"), pick(rng, 1, "length")[0], rng.choice((128, 256, 512))
        x, y = (
            array(names[0], "in", "float32", n, drawn="normal"),
            array(names[1], "out", "int32", f"cdiv({n}, {block})"),
        )
        limit = rng.choice((0.5, 0.25, 1.0, 0.0))
        text, spelled = rng.choice(
            (
                (f"{{}} > {limit}f", f"{{}} > {limit}"),
                (f"fabsf({{}}) < {limit + 0.5}f", f"np.abs({{}}) < {limit + 0.5}"),
                (f"{{}} <= {limit}f", f"{{}} <= {limit}"),
            )
        )
        style = draw_style(rng, {*names, n})
        draft = drafts("votes", style, x=x.name, y=y.name, n=n, condition=text, size=block)
        sizes, large = flat_sizes(rng, n)
        reference = (
            f"np.pad(({spelled.format(x.name)}).astype(np.int64), (0, -{n} % {block})).reshape(-1, {block}).sum(axis=1)"
        )
        return Problem(
            family, "target", kernel_name(rng, family), (x, y, scalar(n)), sizes, large, reference,
            ("vote_by_shuffle", "oversized_shared", "extra_barriers", "no_restrict"), draft, style,
        )  # fmt: skip

    return draw
