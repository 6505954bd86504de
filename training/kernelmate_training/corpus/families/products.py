"""Families in which every output combines a row and a column: matrix products, distances, correlations, attention.

Attention of some queries over keys and values is alone or fused with a following operation.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import Arg, Kind, Problem, array, draw_style, load, scalar
from kernelmate_training.corpus.expressions import CONSTANTS, Emitter, Expr, Real, call, const, numpy_text, var
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts

SIDES = (
    ("m", "n", "k"),
    ("M", "N", "K"),
    ("rows", "cols", "inner"),
    ("na", "nb", "dim"),
    ("tokens", "outs", "ins"),
    ("h", "w", "d"),
)


_TERMS: dict[str, Expr] = {
    "product": var("p") * var("q"),
    "square": call("square", var("p") - var("q")),
    "absolute": call("abs", var("p") - var("q")),
    "minimum": call("min", var("p"), var("q")),
}


def product(
    family: str, kind: Kind, *, terms: tuple[str, ...] = ("product",), epilogues: tuple[str, ...] = ("none",),
    dtypes: tuple[str, ...] = ("float32",), turned: tuple[tuple[bool, bool], ...] = ((False, False),), batched: bool = False,
) -> Callable[[Random], Problem]:  # fmt: skip
    """Returns a family of matrix products and similar operations.

    Args:
        family: the family's name.
        kind: the usual limiter.
        terms: summands to choose from.
        epilogues: epilogues to choose from: `none`, `bias`, `activation`, `blend`, `scale`, `residual`, `step`.
        dtypes: dtypes to choose from.
        turned: for each choice, which of the two operands is stored transposed.
        batched: True for many products at once.
    """

    def draw(rng: Random) -> Problem:
        dtype, (turned_a, turned_b), term = rng.choice(dtypes), rng.choice(turned), rng.choice(terms)
        real: Real = "int" if dtype == "int32" else "double" if dtype == "float64" else "float"
        names = pick(rng, 6, "array")
        sides = rng.choice(SIDES)
        m, n, inner = sides
        batch = "batches" if batched else ""
        lead = (batch,) if batched else ()
        drawn = "integers(-9, 9)" if real == "int" else "normal"
        a = array(names[0], "in", dtype, *lead, *((inner, m) if turned_a else (m, inner)), drawn=drawn)
        b = array(names[1], "in", dtype, *lead, *((n, inner) if turned_b else (inner, n)), drawn=drawn)
        epilogue, extras, blend = _epilogue(
            rng, "none" if real == "int" else rng.choice(epilogues), names, (m, n), dtype, real, drawn, lead
        )
        out = array(names[2], "inout" if blend else "out", dtype, *lead, m, n, drawn=drawn if blend else "")
        style = draw_style(rng, {*names, *sides, "batches", "p_v", "q_v", *(e.name for e, _ in extras)})
        tile = rng.choice((16, 16, 32, 8))
        block = rng.choice(((16, 16), (32, 8), (8, 8), (32, 4)))
        base = f"{style.n('z')} * {{}} * {{}} + " if batched else ""

        def names_of(acc: str, row: str, col: str, place: str) -> dict[str, str]:
            places = {"row": row, "col": col, "all": place}
            return {"acc": acc} | {e.name: load(e, places[at], real) if at in places else e.name for e, at in extras}

        draft = drafts(
            "product", style, real=real, base=real, A=a, B=b, out=out, m=m, n=n, inner=inner, turned_a=turned_a, turned_b=turned_b,
            term=_TERMS[term], epilogue=epilogue, extras=names_of, side=tile, sides=block, batch=batch, z_of=base.format,
            simple=lambda p, q: term == "product" or (p.isidentifier() and q.isidentifier()),
            zero_of=lambda kind: Emitter(real if kind == real else "float").literal(0),
            may_keep=out.dtype in ("float32", "float64", "int32") and out.direction == "out",
        )  # fmt: skip
        size = rng.choice(((48, 64, 40), (64, 48, 56), (80, 32, 48)))
        odd = rng.choice(((19, 37, 13), (33, 21, 29), (7, 45, 51)))
        sizes = tuple(
            dict(zip(sides, s, strict=True)) | ({batch: c} if batched else {})
            for s, c in ((size, 3), (odd, 2), ((1, 1, 1), 1))
        )
        large = dict.fromkeys(sides, 256 if batched else 512) | ({batch: 8} if batched else {})
        flaws = [
            "untiled",
            "swapped_axes",
            "thread_per_row",
            "global_accumulator",
            "no_restrict",
            "oversized_shared",
            "extra_barriers",
        ]
        flaws += ["bank_conflicts"] if turned_a or turned_b else []
        flaws += ["wide_type"] if real == "float" else []
        flaws += ["double_literals"] if real == "float" and epilogue.op != "var" else []
        flaws += ["powers"] if term == "square" and real == "float" else []
        scalars = tuple(dict.fromkeys(e for e, where in extras if where == "none"))
        arrays = tuple(dict.fromkeys(e for e, where in extras if where != "none" and e != out))
        args = (a, b, *arrays, out, *scalars, *(scalar(s) for s in sides))
        return Problem(
            family, kind, kernel_name(rng, family), args, sizes, large,
            _reference(a, b, turned_a, turned_b, _TERMS[term], epilogue, extras), tuple(flaws), draft, style, exclusive=(frozenset({"swapped_axes", "thread_per_row"}),),
        )  # fmt: skip

    return draw


def _reference(a: Arg, b: Arg, turned_a: bool, turned_b: bool, term: Expr, epilogue: Expr, extras: tuple[tuple[Arg, str], ...]) -> str:  # fmt: skip
    left = f"{a.name}.swapaxes(-1, -2)" if turned_a else a.name
    right = f"{b.name}.swapaxes(-1, -2)" if turned_b else b.name
    acc = f"({left} @ {right})"
    if term is not _TERMS["product"]:
        both = numpy_text(term, {"p": f"{left}[..., :, None, :]", "q": f"({right}).swapaxes(-1, -2)[..., None, :, :]"})
        acc = f"({both}).sum(axis=-1)"
    names = {e.name: f"{e.name}[:, None]" if where == "row" else e.name for e, where in extras}
    return numpy_text(epilogue, {"acc": acc, **names})


def _epilogue(
    rng: Random, kind: str, names: list[str], shape: tuple[str, str], dtype: str, real: Real, drawn: str, lead: tuple[str, ...]
) -> tuple[Expr, tuple[tuple[Arg, str], ...], bool]:  # fmt: skip
    """Returns the epilogue, its arrays, and True if it reads the output itself."""
    acc = var("acc")
    factor = "float64" if real == "double" else "float32"
    bias = array(names[3], "in", dtype, shape[1], drawn=drawn)
    if kind == "bias":
        return acc + var(bias.name), ((bias, "col"),), False
    if kind == "activation":
        function = rng.choice(("relu", "gelu", "silu", "tanh", "sigmoid", "leaky"))
        if rng.random() < 0.6:
            return call(function, acc + var(bias.name)), ((bias, "col"),), False
        return call(function, acc), (), False
    if kind == "blend":
        out = array(names[2], "inout", dtype, *lead, *shape, drawn=drawn)
        alpha, beta = scalar("alpha", factor, "1.25"), scalar("beta", factor, "0.5")
        return var("alpha") * acc + var("beta") * var(out.name), ((out, "all"), (alpha, "none"), (beta, "none")), True
    if kind == "scale":
        value = acc * const(rng.choice(CONSTANTS)) if rng.random() < 0.5 else acc / const(rng.choice(CONSTANTS))
        return (call("sqrt", call("max", value, const(0))) if rng.random() < 0.3 else value), (), False
    if kind == "residual":
        other = array(names[4], "in", dtype, *lead, *shape, drawn=drawn)
        return var(other.name) + call(rng.choice(("silu", "gelu", "relu")), acc), ((other, "all"),), False
    if kind == "step":
        x, noise = (
            array(names[4], "in", dtype, *lead, *shape, drawn=drawn),
            array(names[5], "in", dtype, *lead, *shape, drawn=drawn),
        )
        s0, s1 = scalar("sa", factor, "0.8"), scalar("sb", factor, "0.6")
        clean = (var(x.name) - var("sb") * acc) / var("sa")
        if rng.random() < 0.5:
            return clean, ((x, "all"), (s0, "none"), (s1, "none")), False
        return clean + const(0.1) * var(noise.name), ((x, "all"), (noise, "all"), (s0, "none"), (s1, "none")), False
    return acc, (), False


NAMES = (("q", "k", "v", "out"), ("query", "key", "val0", "result"), ("Q", "K", "V", "O"), ("qs", "ks", "vs", "att"))
SIZES = (("tokens", "length", "dim"), ("n", "len_k", "d_head"), ("queries", "keys", "width"), ("nq", "nk", "hd"))
FLAWED = (
    "thread_per_row", "recomputes", "swapped_axes", "shared_tree", "modulo_tree", "oversized_shared", "extra_barriers", "divides",
    "double_literals", "no_restrict",
)  # fmt: skip


def _attention_epilogue(rng: Random, form: str, n: str, dim: str) -> tuple[tuple[Arg, ...], Expr]:
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


def _attention_reference(names: tuple[str, ...], sizes: tuple[str, ...], epilogue: Expr, *, causal: bool) -> str:
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
        extras, epilogue = _attention_epilogue(rng, rng.choice(epilogues), n, dim)
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
            _attention_reference(names, sizes, epilogue, causal=causal), FLAWED, draft, style, require=(f"{length} > 0",),
            exclusive=(frozenset({"thread_per_row", "recomputes"}), frozenset({"shared_tree", "modulo_tree"})),
        )  # fmt: skip

    return draw
