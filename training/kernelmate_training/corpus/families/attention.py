"""Attention of some queries over keys and values, alone or fused with a following operation."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import Arg, Kind, Problem, array, draw_style, scalar
from kernelmate_training.corpus.expressions import Expr, call, const, numpy_text, var
from kernelmate_training.corpus.families.words import kernel_name
from kernelmate_training.corpus.templates import drafts

NAMES = (("q", "k", "v", "out"), ("query", "key", "val0", "result"), ("Q", "K", "V", "O"), ("qs", "ks", "vs", "att"))
SIZES = (("tokens", "length", "dim"), ("n", "len_k", "d_head"), ("queries", "keys", "width"), ("nq", "nk", "hd"))
FLAWED = (
    "thread_per_row", "recomputes", "swapped_axes", "shared_tree", "modulo_tree", "oversized_shared", "extra_barriers", "divides",
    "double_literals", "no_restrict",
)  # fmt: skip


def _epilogue(rng: Random, form: str, n: str, dim: str) -> tuple[tuple[Arg, ...], Expr]:
    """Returns the expression to store for the sum `acc`, and the further arrays that it reads."""
    x, noise = (
        array("x", "in", "float32", n, dim, drawn="normal"),
        array("noise", "in", "float32", n, dim, drawn="normal"),
    )
    acc = var("acc")
    if form == "residual":
        return (x,), var("x") + acc
    if form == "gate":
        return (x,), acc * call("sigmoid", var("x"))
    if form == "step":
        clean = (var("x") - const(rng.choice((0.6, 0.3))) * acc) / const(rng.choice((0.8, 0.95)))
        return ((x, noise), clean + const(0.1) * var("noise")) if rng.random() < 0.5 else ((x,), clean)
    return (), acc


def _reference(names: tuple[str, ...], sizes: tuple[str, ...], epilogue: Expr, *, causal: bool) -> str:
    """Returns the whole computation as one NumPy expression."""
    (q, k, v, _), (n, length, _) = names, sizes
    scores = f"{q} @ {k}.T * scale"
    if causal:
        scores = f"np.where(np.arange({length})[None, :] <= np.arange({n})[:, None], {scores}, -1e30)"
    weights = "(lambda e: e / e.sum(axis=1, keepdims=True))(np.exp(s - s.max(axis=1, keepdims=True)))"
    value = numpy_text(epilogue, {"acc": f"(w @ {v})"})
    return f"(lambda w: {value})((lambda s: {weights})({scores}))"


def attention(
    family: str, kind: Kind, epilogues: tuple[str, ...], *, causal: bool = False
) -> Callable[[Random], Problem]:
    """Returns a family of attention kernels with the epilogue `none`, `residual`, `step` (of a sampler) or `gate`."""

    def draw(rng: Random) -> Problem:
        names, sizes = rng.choice(NAMES), rng.choice(SIZES)
        (q, k, v, out), (n, length, dim) = names, sizes
        extras, epilogue = _epilogue(rng, rng.choice(epilogues), n, dim)
        style = draw_style(rng, {*names, *sizes, "x", "noise", "top", "denom", "score", "weight", "scale"})
        draft = drafts(
            "attention", style, q=q, k=k, v=v, out=out, n=n, length=length, dim=dim, epilogue=epilogue, causal=causal,
            extras=lambda acc, place: {"acc": acc} | {a.name: f"{a.name}[{place}]" for a in extras}, size=rng.choice((64, 128)),
        )  # fmt: skip
        arrays = [
            array(q, "in", "float32", n, dim, drawn="normal"),
            array(k, "in", "float32", length, dim, drawn="normal"),
            array(v, "in", "float32", length, dim, drawn="normal"),
        ]
        args = (
            *arrays,
            *extras,
            array(out, "out", "float32", n, dim),
            scalar("scale", "float32", rng.choice(("0.125", "0.25", "0.3"))),
            *(scalar(s) for s in sizes),
        )
        made = ((12, 40, 24), (7, 19, 13), (1, 1, 1))
        return Problem(
            family, kind, kernel_name(rng, family), args, tuple(dict(zip(sizes, s, strict=True)) for s in made), {n: 2048, length: 512, dim: 64},
            _reference(names, sizes, epilogue, causal=causal), FLAWED, draft, style, require=(f"{length} > 0",),
            exclusive=(frozenset({"thread_per_row", "recomputes"}), frozenset({"shared_tree", "modulo_tree"})),
        )  # fmt: skip

    return draw
