"""Families for special GPU instructions: vectors, pairs of halves, approximations, byte dot products, votes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

from kernelmate_training.corpus.drafting import (
    Arg,
    Draft,
    Flaws,
    Problem,
    Style,
    array,
    draw_style,
    load,
    scalar,
    store,
)
from kernelmate_training.corpus.expressions import SMOOTH, Expr, grow, numpy_text, var
from kernelmate_training.corpus.families.maps import flat_sizes, random_map
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts

APPROXIMATE = {"expf": "__expf", "sinf": "__sinf", "cosf": "__cosf", "logf": "__logf"}
"""Float functions and their hardware approximations (CUDA C++ Programming Guide, intrinsic functions)."""


def aligned(args: tuple[Arg, ...], count: int) -> str:
    """Returns the condition that all arrays are aligned to `count` bytes, which callers need not guarantee."""
    places = " | ".join(f"reinterpret_cast<size_t>({arg.name})" for arg in args)
    return f"({places}) % {count} == 0" if len(args) > 1 else f"{places} % {count} == 0"


def vectors(family: str) -> Callable[[Random], Problem]:
    """Returns a family of float maps that profit from vectors of four."""

    def draw(rng: Random) -> Problem:
        count = rng.choice((1, 2, 2, 3))
        names, n = pick(rng, count + 1, "array"), pick(rng, 1, "length")[0]
        inputs = tuple(array(name, "in", "float32", n, drawn="normal") for name in names[:count])
        out = array(names[-1], "out", "float32", n)
        value = grow(
            rng,
            [var(name) for name in names[:count]],
            extra=rng.randint(0, 2),
            unary=(*SMOOTH, "relu", "square", "abs"),
        )
        style = draw_style(rng, {*names, n, *(f"{name}_4" for name in names)})
        style = replace(style, const_word="const ")
        size = rng.choice((128, 256))
        rng.random()  # unused draw, so that equal seeds still give equal problems
        return _problem(rng, family, style, inputs, out, n, value, size, 4, ("float4", "", ""), "scalar_access")

    return draw


def pairs(family: str, dtype: str) -> Callable[[Random], Problem]:
    """Returns a family of half or bfloat16 maps that profit from pairs."""

    def draw(rng: Random) -> Problem:
        count = rng.choice((1, 2, 2))
        names, n = pick(rng, count + 1, "array"), pick(rng, 1, "length")[0]
        inputs = tuple(array(name, "in", dtype, n, drawn="normal") for name in names[:count])
        out = array(names[-1], "out", dtype, n)
        value = grow(
            rng,
            [var(name) for name in names[:count]],
            extra=rng.randint(0, 2),
            unary=(*SMOOTH, "relu", "square", "silu"),
        )
        style = replace(draw_style(rng, {*names, n, *(f"{name}_2" for name in names)}), const_word="const ")
        packs = ("__half2", "__half22float2(", "__float22half2_rn(")
        if dtype == "bfloat16":
            packs = ("__nv_bfloat162", "__bfloat1622float2(", "__float22bfloat162_rn(")
        return _problem(rng, family, style, inputs, out, n, value, rng.choice((128, 256)), 2, packs, "half_scalar")

    return draw


def _problem(
    rng: Random, family: str, style: Style, inputs: tuple[Arg, ...], out: Arg, n: str, value: Expr, size: int, count: int,
    packs: tuple[str, str, str], narrow: str,
) -> Problem:  # fmt: skip
    """Returns a one-dimensional map on packs of `count` elements; `narrow` is the flaw of moving single elements."""
    sizes, _ = flat_sizes(rng, n)
    pack, widen, narrowed = packs
    draft = drafts(
        "vector-map", style, inputs=[a.name for a in inputs], out=out, n=n, value=value, size=size, count=count,
        pack=pack, widen=widen, narrow=narrowed, aligned=aligned((*inputs, out), 16 if count == 4 else 4), stored=store,
        reads=lambda end, alone: {a.name: load(Arg(a.name, "in", a.dtype if alone else "float32"), end[1:-1]) if alone else a.name + end for a in inputs},
    )  # fmt: skip
    args = (*inputs, out, scalar(n))
    return Problem(
        family, "target", kernel_name(rng, family), args, sizes, {n: 1 << 24}, numpy_text(value, {}),
        (narrow, "tiny_block", "no_restrict", "double_literals"), draft, style,
    )  # fmt: skip


def approximations(family: str) -> Callable[[Random], Problem]:
    """Returns a family of maps whose tolerance permits hardware approximations."""
    plain = random_map(
        family, "target", inputs=("all",), extra=(1, 3), unary=("sigmoid", "silu", "gauss", "quick_gelu", "sin", "cos")
    )

    def draw(rng: Random) -> Problem:
        problem = plain(rng)

        def draft(flaws: Flaws) -> Draft:
            made = problem.draft(flaws - {"slow_functions"})
            if "slow_functions" in flaws or "double_literals" in flaws:
                return made
            return replace(made, body=re.sub(r"\b(expf|sinf|cosf|logf)\b", lambda m: APPROXIMATE[m[0]], made.body))

        return replace(
            problem, flaws=(*problem.flaws, "slow_functions"), draft=draft, tolerance="{ rtol = 1e-2, atol = 1e-3 }"
        )

    return draw


def byte_products(family: str) -> Callable[[Random], Problem]:
    """Returns a family of byte products, four at a time."""

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
    """Returns a family of counts per block by warp votes."""

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
