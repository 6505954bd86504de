"""Row programs: what is computed of each row, family by family."""

from __future__ import annotations

from random import Random

from kernelmate_training.corpus.expressions import CONSTANTS, SMOOTH, UNARY, Expr, call, const, grow, var
from kernelmate_training.corpus.families.row_model import Pass, RowProgram

X, Y, W, B = var("x"), var("y"), var("w"), var("b")
COUNT = var("count")


def _tail(rng: Random, expr: Expr) -> Expr:
    """An epilogue, at times."""
    kind = rng.random()
    if kind < 0.5:
        return expr
    if kind < 0.75:
        return call(rng.choice(("relu", "silu", "tanh", "sigmoid", "leaky", "quick_gelu", "hard_swish")), expr)
    return expr * const(rng.choice(CONSTANTS)) + const(rng.choice(CONSTANTS))


def _scaled(rng: Random, expr: Expr) -> Expr:
    return expr * const(rng.choice((0.5, 0.125, 0.25, 2.0))) if rng.random() < 0.5 else expr


def softmax(rng: Random) -> RowProgram:
    """Softmax, at times of scaled or shifted values."""
    value = _scaled(rng, X)
    columns: tuple[str, ...] = ()
    if rng.random() < 0.3:
        value, columns = value + B, ("b",)
    below = call("exp", value - var("top"))
    passes = (Pass("top", "max", value), Pass("denom", "sum", below))
    return RowProgram(("x",), columns, passes, below / var("denom"), online=value)


def log_softmax(rng: Random) -> RowProgram:
    """Logarithm of softmax."""
    value = _scaled(rng, X)
    passes = (Pass("top", "max", value), Pass("denom", "sum", call("exp", value - var("top"))))
    return RowProgram(("x",), (), passes, value - var("top") - call("log", var("denom")), online=value)


def log_sum_exp(rng: Random) -> RowProgram:
    """Logarithm of the sum of exponentials."""
    value = _scaled(rng, X)
    passes = (Pass("top", "max", value), Pass("denom", "sum", call("exp", value - var("top"))))
    return RowProgram(("x",), (), passes, None, (var("top") + call("log", var("denom")),), online=value)


def _moments(value: Expr) -> tuple[Pass, Pass]:
    centred = value - var("mean")
    return Pass("mean", "sum", value, var("mean") / COUNT), Pass("var", "sum", centred * centred, var("var") / COUNT)


def layer_norm(rng: Random) -> RowProgram:
    """Layer normalisation with gain and offset, or with neither."""
    eps = const(rng.choice((1e-5, 1e-6, 1e-3)))
    value = (X - var("mean")) / call("sqrt", var("var") + eps)
    columns: tuple[str, ...] = ()
    if rng.random() < 0.7:
        value, columns = value * W + B, ("w", "b")
    return RowProgram(("x",), columns, _moments(X), _tail(rng, value), moments=True)


def residual_norm(rng: Random) -> RowProgram:  # noqa: ARG001 -- all programs are drawn alike
    """A sum of two inputs, normalised."""
    both = X + Y
    value = (both - var("mean")) / call("sqrt", var("var") + const(1e-5)) * W
    return RowProgram(("x", "y"), ("w",), _moments(both), value, moments=True)


def statistics(rng: Random) -> RowProgram:
    """Mean and variance, or the deviation."""
    second = var("var") if rng.random() < 0.6 else call("sqrt", var("var"))
    return RowProgram(("x",), (), _moments(X), None, (var("mean"), second), moments=True)


def rms_norm(rng: Random) -> RowProgram:
    """Root-mean-square normalisation."""
    post = call("sqrt", var("squares") / COUNT + const(rng.choice((1e-5, 1e-6))))
    value = X * W / var("squares") if rng.random() < 0.7 else X / var("squares")
    columns = ("w",) if value.args[0].op == "mul" else ()
    return RowProgram(("x",), columns, (Pass("squares", "sum", X * X, post),), _tail(rng, value))


def unit_length(rng: Random) -> RowProgram:
    """Rows scaled to unit length, by one norm or another."""
    element, post = rng.choice(
        ((X * X, call("sqrt", var("norm")) + const(1e-6)), (call("abs", X), var("norm") + const(1e-6)))
    )
    return RowProgram(("x",), (), (Pass("norm", "sum", element, post),), X / var("norm"))


def extreme_scale(rng: Random) -> RowProgram:
    """Rows scaled by their extremes."""
    if rng.random() < 0.5:
        top = Pass("peak", "max", call("abs", X), var("peak") + const(1e-6))
        return RowProgram(("x",), (), (top,), X / var("peak"))
    passes = (Pass("low", "min", X), Pass("high", "max", X))
    return RowProgram(("x",), (), passes, (X - var("low")) / (var("high") - var("low") + const(1e-3)))


def centred(rng: Random) -> RowProgram:
    """Rows with their mean taken off."""
    return RowProgram(("x",), (), (Pass("mean", "sum", X, var("mean") / COUNT),), _tail(rng, X - var("mean")))


def row_total(rng: Random) -> RowProgram:
    """One number per row: a sum or an extreme of an expression."""
    element = grow(rng, [X], extra=rng.randint(0, 3), unary=UNARY)
    return RowProgram(
        ("x",), (), (Pass("total", rng.choice(("sum", "sum", "max", "min")), element),), None, (var("total"),)
    )


def row_product(rng: Random) -> RowProgram:
    """Products of rows with a vector, or with each other: matrix times vector and its kin."""
    if rng.random() < 0.6:
        element = grow(rng, [X * W], extra=rng.randint(0, 1), unary=SMOOTH)
        return RowProgram(("x",), ("w",), (Pass("dot", "sum", element),), None, (var("dot"),))
    element = rng.choice((X * Y, (X - Y) * (X - Y), call("abs", X - Y)))
    return RowProgram(("x", "y"), (), (Pass("dot", "sum", element),), None, (_tail(rng, var("dot")),))


def cosine(rng: Random) -> RowProgram:  # noqa: ARG001 -- all formulas are drawn alike
    """Cosine between rows."""
    passes = (Pass("dot", "sum", X * Y), Pass("xx", "sum", X * X), Pass("yy", "sum", Y * Y))
    return RowProgram(("x", "y"), (), passes, None, (var("dot") / (call("sqrt", var("xx") * var("yy")) + const(1e-4)),))


def gated_norm(rng: Random) -> RowProgram:
    """A gate on one input, then a normalisation by the root of mean squares."""
    gate = call(rng.choice(("silu", "sigmoid", "gelu")), X) * Y
    post = call("sqrt", var("squares") / COUNT + const(1e-5))
    return RowProgram(("x", "y"), (), (Pass("squares", "sum", gate * gate, post),), gate / var("squares"))


def any_rows(rng: Random) -> RowProgram:
    """Two reductions of random expressions, and a random result."""
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
    """Attention pooling: values weighted by the softmax of scores."""
    score = _scaled(rng, X)
    weight = call("exp", score - var("top"))
    passes = (Pass("top", "max", score), Pass("denom", "sum", weight), Pass("pooled", "sum", weight * Y))
    return RowProgram(("x", "y"), (), passes, None, (var("pooled") / var("denom"),), online=score)


def guided_norm(rng: Random) -> RowProgram:
    """Guidance between two predictions, normalised along the row, as in rescaled guidance."""
    guided = Y + const(rng.choice((7.5, 5.0, 3.0))) * (X - Y)
    post = call("sqrt", var("squares") / COUNT + const(1e-5))
    return RowProgram(
        ("x", "y"), (), (Pass("squares", "sum", guided * guided, post),), _tail(rng, guided / var("squares"))
    )
