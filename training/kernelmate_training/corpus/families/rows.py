"""Families that reduce along rows: normalisations, softmax and its variants, statistics, products of rows.

A row program states the passes over a row and its results as data, from which kernels and their NumPy references are
written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import (
    Kind,
    Problem,
    array,
    draw_style,
    load,
    scalar,
)
from kernelmate_training.corpus.expressions import (
    CONSTANTS,
    SMOOTH,
    UNARY,
    Expr,
    Real,
    call,
    const,
    grow,
    numpy_text,
    var,
)
from kernelmate_training.corpus.families.maps import row_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.reducing import Op
from kernelmate_training.corpus.templates import drafts


@dataclass(frozen=True, slots=True)
class Pass:
    """One reduction over a row.

    Attributes:
        name: name of the result.
        op: operation that combines elements.
        expr: expression of one element, over inputs and earlier results.
        post: expression of the final result, over the combined value `name`; None for that value itself.
    """

    name: str
    op: Op
    expr: Expr
    post: Expr | None = None


@dataclass(frozen=True, slots=True)
class RowProgram:
    """Computation on each row.

    Attributes:
        inputs: names of two-dimensional arrays.
        columns: names of arrays with one element per column.
        passes: reductions, in order.
        element: expression to store for each element; None if only rows have results.
        values: expressions to store for each row, by output.
        moments: True if the first two passes are a mean and a variance, which one pass can compute.
        online: the summed value if the first two passes are a maximum and a sum of exponentials relative to it, which
            one pass can compute.
    """

    inputs: tuple[str, ...]
    columns: tuple[str, ...]
    passes: tuple[Pass, ...]
    element: Expr | None
    values: tuple[Expr, ...] = ()
    moments: bool = False
    online: Expr | None = None


def reference_of(program: RowProgram, names: Names, cols: str) -> str:
    """Returns the program as one NumPy expression, with every intermediate result as a parameter of a lambda."""
    spelled: dict[str, str] = {**{n: names.of[n] for n in (*program.inputs, *program.columns)}, "count": cols}
    plain = {"sum": "sum", "max": "max", "min": "min"}
    heads, first = [], names.of[program.inputs[0]]
    for one in program.passes:
        value = (
            f"np.broadcast_to({numpy_text(one.expr, spelled)}, {first}.shape).{plain[one.op]}(axis=1, keepdims=True)"
        )
        if one.post is not None:
            value = f"(lambda {one.name}: {numpy_text(one.post, spelled)})({value})"
        heads.append((one.name, value))
    results = []
    if program.element is not None:
        results.append(numpy_text(program.element, spelled))
    results += [f"({numpy_text(value, spelled)})[:, 0]" for value in program.values]
    text = results[0] if len(results) == 1 else f"({', '.join(results)})"
    for name, value in reversed(heads):
        text = f"(lambda {name}: {text})({value})"
    return text


@dataclass(frozen=True)
class Names:
    """Names of a program's arrays."""

    of: Mapping[str, str]

    @classmethod
    def drawn(cls, rng: Random, program: RowProgram) -> Names:
        """Returns random names that no pass uses."""
        wanted = (*program.inputs, *program.columns, "out", "row_out")
        taken = {p.name for p in program.passes}
        free = [word for word in pick(rng, 30, "array") if word not in taken]
        return cls(dict(zip(wanted, free, strict=False)))


def row_problem(
    rng: Random, family: str, kind: Kind, make: Callable[[Random], RowProgram], dtypes: tuple[str, ...] = ("float32",)
) -> Problem:
    """Returns a problem of a row program, with every flaw that its passes allow."""
    program = make(rng)
    dtype = rng.choice(dtypes)
    rows, cols = pick(rng, 2, "sides")
    names = Names.drawn(rng, program)
    arrays = [array(names.of[n], "in", dtype, rows, cols, drawn="normal") for n in program.inputs]
    arrays += [array(names.of[n], "in", dtype, cols, drawn="normal") for n in program.columns]
    outputs = [array(names.of["out"], "out", dtype, rows, cols)] if program.element is not None else []
    outputs += [array(f"{names.of['row_out']}{k or ''}", "out", dtype, rows) for k in range(len(program.values))]
    style = draw_style(rng, {a.name for a in (*arrays, *outputs)} | {rows, cols} | {p.name for p in program.passes})
    sizes, large = row_sizes(rng, rows, cols)
    flaws = ["no_restrict", "thread_per_row", "serial_block", "double_literals", "divides", "wide_type"]
    warp = rng.random() < 0.35
    if not warp:
        flaws += ["shared_tree", "modulo_tree", "oversized_shared", "extra_barriers"]
        flaws += ["second_buffer"] if len(program.passes) > 1 else []
    flaws += ["two_pass_moments"] if program.moments else []
    flaws += ["two_pass_softmax"] if program.online is not None else []
    if dtype == "float32" and _stores_exponentials(program):
        flaws.append("through_memory")
    if program.element is None and len(program.passes) == 1 and program.passes[0].post is None and dtype == "float32":
        flaws.append("global_accumulator")
    block = rng.choice((64, 128, 256, 256))
    row, col = style.n("row"), style.n("col")
    by_name = {name: key for key, name in names.of.items()}

    def reads(known: dict[str, str], kind: Real) -> dict[str, str]:
        """Returns spellings of the program's values: arrays at this element, and results of earlier passes."""
        places = {by_name[a.name]: col if len(a.shape or ()) == 1 else style.at(row, cols, col) for a in arrays}
        cast = "(double)" if kind == "double" else ""
        return {"count": cols, **known} | {by_name[a.name]: cast + load(a, places[by_name[a.name]]) for a in arrays}

    rng.random()  # drawn for what is no longer told apart; the seeds' problems stay the same
    element = program.element
    draft = drafts(
        "rows", style, rows=rows, cols=cols, passes=program.passes, moments=program.moments, online=program.online, element=element,
        scaled=element.args[0] * var("inv") if element is not None and element.op == "div" else None, values=program.values,
        outputs=outputs, size=block, by_warp=warp, reads=reads,
    )  # fmt: skip
    args = (*arrays, *outputs) if rng.random() < 0.8 else (*outputs, *arrays)
    reference = reference_of(program, names, cols)
    return Problem(
        family, kind, kernel_name(rng, family), (*args, scalar(rows), scalar(cols)), sizes, large, reference, tuple(flaws),
        draft, style, require=(f"{cols} > 0",),
        exclusive=(frozenset({"thread_per_row", "serial_block"}), frozenset({"shared_tree", "modulo_tree"})),
    )  # fmt: skip


def _stores_exponentials(program: RowProgram) -> bool:
    """Returns True if each element is the second pass's summand divided by its sum.

    The output can then store the summands until the sum is known.
    """
    element = program.element
    return (
        program.online is not None
        and element is not None
        and element.op == "div"
        and element.args[0] == program.passes[1].expr
    )


X, Y, W, B = var("x"), var("y"), var("w"), var("b")
COUNT = var("count")


def _tail(rng: Random, expr: Expr) -> Expr:
    """Returns the expression, sometimes with an epilogue."""
    kind = rng.random()
    if kind < 0.5:
        return expr
    if kind < 0.75:
        return call(rng.choice(("relu", "silu", "tanh", "sigmoid", "leaky", "quick_gelu", "hard_swish")), expr)
    return expr * const(rng.choice(CONSTANTS)) + const(rng.choice(CONSTANTS))


def _scaled(rng: Random, expr: Expr) -> Expr:
    return expr * const(rng.choice((0.5, 0.125, 0.25, 2.0))) if rng.random() < 0.5 else expr


def softmax(rng: Random) -> RowProgram:
    """Returns a softmax, sometimes of scaled or shifted values."""
    value = _scaled(rng, X)
    columns: tuple[str, ...] = ()
    if rng.random() < 0.3:
        value, columns = value + B, ("b",)
    below = call("exp", value - var("top"))
    passes = (Pass("top", "max", value), Pass("denom", "sum", below))
    return RowProgram(("x",), columns, passes, below / var("denom"), online=value)


def log_softmax(rng: Random) -> RowProgram:
    """Returns the logarithm of a softmax."""
    value = _scaled(rng, X)
    passes = (Pass("top", "max", value), Pass("denom", "sum", call("exp", value - var("top"))))
    return RowProgram(("x",), (), passes, value - var("top") - call("log", var("denom")), online=value)


def log_sum_exp(rng: Random) -> RowProgram:
    """Returns the logarithm of the sum of exponentials."""
    value = _scaled(rng, X)
    passes = (Pass("top", "max", value), Pass("denom", "sum", call("exp", value - var("top"))))
    return RowProgram(("x",), (), passes, None, (var("top") + call("log", var("denom")),), online=value)


def _moments(value: Expr) -> tuple[Pass, Pass]:
    centred = value - var("mean")
    return Pass("mean", "sum", value, var("mean") / COUNT), Pass("var", "sum", centred * centred, var("var") / COUNT)


def layer_norm(rng: Random) -> RowProgram:
    """Returns layer normalisation, with or without gain and offset."""
    eps = const(rng.choice((1e-5, 1e-6, 1e-3)))
    value = (X - var("mean")) / call("sqrt", var("var") + eps)
    columns: tuple[str, ...] = ()
    if rng.random() < 0.7:
        value, columns = value * W + B, ("w", "b")
    return RowProgram(("x",), columns, _moments(X), _tail(rng, value), moments=True)


def residual_norm(rng: Random) -> RowProgram:  # noqa: ARG001 -- all programs are drawn alike
    """Returns the normalised sum of two inputs."""
    both = X + Y
    value = (both - var("mean")) / call("sqrt", var("var") + const(1e-5)) * W
    return RowProgram(("x", "y"), ("w",), _moments(both), value, moments=True)


def statistics(rng: Random) -> RowProgram:
    """Returns mean and variance, or mean and standard deviation."""
    second = var("var") if rng.random() < 0.6 else call("sqrt", var("var"))
    return RowProgram(("x",), (), _moments(X), None, (var("mean"), second), moments=True)


def rms_norm(rng: Random) -> RowProgram:
    """Returns root-mean-square normalisation."""
    post = call("sqrt", var("squares") / COUNT + const(rng.choice((1e-5, 1e-6))))
    value = X * W / var("squares") if rng.random() < 0.7 else X / var("squares")
    columns = ("w",) if value.args[0].op == "mul" else ()
    return RowProgram(("x",), columns, (Pass("squares", "sum", X * X, post),), _tail(rng, value))


def unit_length(rng: Random) -> RowProgram:
    """Returns rows scaled to unit length, by the L2 or the L1 norm."""
    element, post = rng.choice(
        ((X * X, call("sqrt", var("norm")) + const(1e-6)), (call("abs", X), var("norm") + const(1e-6)))
    )
    return RowProgram(("x",), (), (Pass("norm", "sum", element, post),), X / var("norm"))


def extreme_scale(rng: Random) -> RowProgram:
    """Returns rows scaled by their extremes."""
    if rng.random() < 0.5:
        top = Pass("peak", "max", call("abs", X), var("peak") + const(1e-6))
        return RowProgram(("x",), (), (top,), X / var("peak"))
    passes = (Pass("low", "min", X), Pass("high", "max", X))
    return RowProgram(("x",), (), passes, (X - var("low")) / (var("high") - var("low") + const(1e-3)))


def centred(rng: Random) -> RowProgram:
    """Returns rows minus their mean."""
    return RowProgram(("x",), (), (Pass("mean", "sum", X, var("mean") / COUNT),), _tail(rng, X - var("mean")))


def row_total(rng: Random) -> RowProgram:
    """Returns one number per row: a sum or an extreme of an expression."""
    element = grow(rng, [X], extra=rng.randint(0, 3), unary=UNARY)
    return RowProgram(
        ("x",), (), (Pass("total", rng.choice(("sum", "sum", "max", "min")), element),), None, (var("total"),)
    )


def row_product(rng: Random) -> RowProgram:
    """Returns products of rows with a vector or with each other, such as matrix times vector."""
    if rng.random() < 0.6:
        element = grow(rng, [X * W], extra=rng.randint(0, 1), unary=SMOOTH)
        return RowProgram(("x",), ("w",), (Pass("dot", "sum", element),), None, (var("dot"),))
    element = rng.choice((X * Y, (X - Y) * (X - Y), call("abs", X - Y)))
    return RowProgram(("x", "y"), (), (Pass("dot", "sum", element),), None, (_tail(rng, var("dot")),))


def cosine(rng: Random) -> RowProgram:  # noqa: ARG001 -- all formulas are drawn alike
    """Returns the cosine between rows."""
    passes = (Pass("dot", "sum", X * Y), Pass("xx", "sum", X * X), Pass("yy", "sum", Y * Y))
    return RowProgram(("x", "y"), (), passes, None, (var("dot") / (call("sqrt", var("xx") * var("yy")) + const(1e-4)),))


def gated_norm(rng: Random) -> RowProgram:
    """Returns a gate on one input, followed by root-mean-square normalisation."""
    gate = call(rng.choice(("silu", "sigmoid", "gelu")), X) * Y
    post = call("sqrt", var("squares") / COUNT + const(1e-5))
    return RowProgram(("x", "y"), (), (Pass("squares", "sum", gate * gate, post),), gate / var("squares"))


def any_rows(rng: Random) -> RowProgram:
    """Returns two reductions of random expressions, and a random result."""
    first = Pass(
        "s1",
        rng.choice(("sum", "max", "min")),
        grow(rng, [X], extra=rng.randint(0, 2), unary=SMOOTH),
        var("s1") / COUNT if rng.random() < 0.5 else None,
    )
    second = Pass("s2", "sum", grow(rng, [X, var("s1")], extra=1, unary=SMOOTH), var("s2") / COUNT)
    below = call("abs", var("s2")) + const(1)
    top = grow(rng, [X, var("s1")], extra=rng.randint(0, 2), unary=SMOOTH)
    return RowProgram(("x",), (), (first, second), top / below)


def softmax_pool(rng: Random) -> RowProgram:
    """Returns attention pooling: values weighted by the softmax of scores."""
    score = _scaled(rng, X)
    weight = call("exp", score - var("top"))
    passes = (Pass("top", "max", score), Pass("denom", "sum", weight), Pass("pooled", "sum", weight * Y))
    return RowProgram(("x", "y"), (), passes, None, (var("pooled") / var("denom"),), online=score)


def guided_norm(rng: Random) -> RowProgram:
    """Returns guidance between two predictions, normalised along the row, as in rescaled guidance."""
    guided = Y + const(rng.choice((7.5, 5.0, 3.0))) * (X - Y)
    post = call("sqrt", var("squares") / COUNT + const(1e-5))
    return RowProgram(
        ("x", "y"), (), (Pass("squares", "sum", guided * guided, post),), _tail(rng, guided / var("squares"))
    )
