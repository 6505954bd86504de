"""Element-wise families with formulas from practice: optimisers, activations, gates, steps of diffusion samplers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from kernelmate_training.corpus.drafting import Draft, Kind, Problem, array, draw_style, scalar
from kernelmate_training.corpus.expressions import CONSTANTS, SMOOTH, Expr, call, const, names_of, var
from kernelmate_training.corpus.families.maps import Input, Map, Result, flat_sizes, map_problem, plane_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick


@dataclass(frozen=True, slots=True)
class Formula:
    """The computation for each element.

    Attributes:
        inputs: arrays by name, and the index of each: `all`, `row`, `col`.
        scalars: scalars by name, with their values.
        results: expressions by name; an array whose name occurs in its expression is updated in place.
        flat: True for one dimension.
        positive: arrays without negative values.
    """

    inputs: Sequence[tuple[str, str]]
    scalars: Sequence[tuple[str, float]]
    results: Sequence[tuple[str, Expr]]
    flat: bool = True
    positive: tuple[str, ...] = ()


Maker = Callable[[Random], Formula]


def formula_map(
    family: str, kind: Kind, make: Maker, dtypes: tuple[str, ...] = ("float32",)
) -> Callable[[Random], Problem]:
    """Returns a family of maps with formulas of one kind."""

    def draw(rng: Random) -> Problem:
        made = _varied(rng, make(rng))
        dtype = rng.choice(dtypes)
        dims = tuple(pick(rng, 1, "length")) if made.flat else tuple(pick(rng, 2, "sides"))
        shapes = {"all": dims, "row": dims[:1], "col": dims[-1:]}
        used = frozenset[str]().union(*(names_of(expr) for _, expr in made.results))

        def drawn(name: str) -> str:
            return "uniform(0.1, 2)" if name in made.positive else "normal"

        read = [Input(array(name, "in", dtype, *shapes[at], drawn=drawn(name)), at) for name, at in made.inputs]
        read += [Input(scalar(name, "float32", repr(value)), "none") for name, value in made.scalars]
        results = []
        for name, expr in made.results:
            updated = name in used
            out = array(name, "inout" if updated else "out", dtype, *dims, drawn=drawn(name) if updated else "")
            results.append(Result(out, expr))
            if updated:
                read.append(Input(out, "all"))
        taken = (
            {i.arg.name for i in read} | {r.arg.name for r in results} | {f"{i.arg.name}_v" for i in read} | set(dims)
        )
        sizes, large = flat_sizes(rng, dims[0]) if made.flat else plane_sizes(rng, *dims)
        plan = Map(dims, tuple(read), tuple(results), "float")
        return map_problem(rng, family, kind, plan, draw_style(rng, taken), kernel_name(rng, family), sizes, large)

    return draw


def _varied(rng: Random, made: Formula) -> Formula:
    """Returns a variation of the formula: a further term, factor, clamp or activation on its last result."""
    *earlier, (name, expr) = made.results
    leaves = [var(given) for given, _ in made.inputs if given not in made.positive]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        value, kind = const(rng.choice(CONSTANTS)), rng.random()
        if kind < 0.3 and leaves:
            term = rng.choice(leaves)
            term = call(rng.choice((*SMOOTH, "square", "relu")), term) if rng.random() < 0.5 else term
            expr = expr + value * term if rng.random() < 0.6 else expr - value * term
        elif kind < 0.5:
            expr = rng.choice((expr * value, value * expr, expr / value))
        elif kind < 0.6:
            expr = expr + value
        elif kind < 0.8 and leaves:
            expr = call(rng.choice(("max", "min")), expr, value * rng.choice(leaves))
        else:
            expr = call(rng.choice(("clip", "tanh", "relu", "softsign", "leaky", "silu")), expr)
    return replace(made, results=[*earlier, (name, expr)])


def _of(rng: Random, *values: float) -> Expr:
    return const(rng.choice(values))


def momentum(rng: Random) -> Formula:
    """Returns gradient descent with momentum and decay."""
    step = var("lr") * var("m")
    grad = var("grad") + _of(rng, 0.01, 0.001, 0.1) * var("param") if rng.random() < 0.5 else var("grad")
    velocity = var("mu") * var("m") + grad
    return Formula(
        [("grad", "all")],
        [("lr", 0.01), ("mu", 0.9)],
        [("m", velocity), ("param", var("param") - (step if rng.random() < 0.5 else var("lr") * velocity))],
    )


def adam(rng: Random) -> Formula:
    """Returns Adam and its variants."""
    b1, b2 = _of(rng, 0.9, 0.8), _of(rng, 0.999, 0.95)
    m = b1 * var("m") + (const(1) - b1) * var("g")
    v = b2 * var("v") + (const(1) - b2) * call("square", var("g"))
    step = m / (call("sqrt", v) + const(rng.choice((1e-8, 1e-6))))
    param = var("p") - var("lr") * (step + var("decay") * var("p") if rng.random() < 0.5 else step)
    scalars = [("lr", 0.001)] + ([("decay", 0.01)] if "decay" in repr(param) else [])
    return Formula([("g", "all")], scalars, [("m", m), ("v", v), ("p", param)], positive=("v",))


def adagrad(rng: Random) -> Formula:
    """Returns Adagrad or RMSprop."""
    share = _of(rng, 0.9, 0.99)
    total = (
        var("acc_g") + call("square", var("g"))
        if rng.random() < 0.5
        else share * var("acc_g") + (const(1) - share) * call("square", var("g"))
    )
    return Formula(
        [("g", "all")],
        [("lr", 0.01)],
        [("acc_g", total), ("p", var("p") - var("lr") * var("g") / (call("sqrt", total) + const(1e-6)))],
        positive=("acc_g",),
    )


def gated(rng: Random) -> Formula:
    """Returns a gate times a value, as in SwiGLU and its variants."""
    gate = call(rng.choice(("silu", "gelu", "sigmoid", "relu", "quick_gelu", "tanh")), var("gate"))
    value = gate * var("up")
    if rng.random() < 0.4:
        value = value * var("scale0")
        return Formula([("gate", "all"), ("up", "all")], [("scale0", 0.5)], [("out", value)])
    return Formula([("gate", "all"), ("up", "all")], [], [("out", value)])


def gate_grad(rng: Random) -> Formula:
    """Returns gradients of activations."""
    s = call("sigmoid", var("x"))
    grad = rng.choice((
        s * (const(1) + var("x") * (const(1) - s)),
        const(1) - call("square", call("tanh", var("x"))),
        s * (const(1) - s),
        Expr("above", (var("x"), const(0), const(1), _of(rng, 0.1, 0.01, 0.2))),
    ))  # fmt: skip
    return Formula([("x", "all"), ("dy", "all")], [], [("dx", var("dy") * grad)])


def bias_activation(rng: Random) -> Formula:
    """Returns an activation of the input with a bias along the columns, sometimes with a residual."""
    value = call(
        rng.choice(("gelu", "silu", "relu", "quick_gelu", "leaky", "elu", "hard_swish")), var("x") + var("bias")
    )
    inputs = [("x", "all"), ("bias", "col")]
    if rng.random() < 0.5:
        inputs.append(("residual", "all"))
        value = value + var("residual")
    return Formula(inputs, [], [("y", value)], flat=False)


def row_affine(rng: Random) -> Formula:
    """Returns a factor and an offset for each row, as in modulated normalisation."""
    value = (
        var("x") * (const(1) + var("scale_r")) + var("shift_r")
        if rng.random() < 0.5
        else (var("x") - var("shift_r")) * var("scale_r")
    )
    inputs = [("x", "all"), ("scale_r", "row"), ("shift_r", "row")]
    if rng.random() < 0.4:
        inputs.append(("w", "col"))
        value = value * var("w")
    return Formula(inputs, [], [("y", value)], flat=False)


def polynomial(rng: Random) -> Formula:
    """Returns a polynomial, by powers or by Horner's rule."""
    x = call("clip", var("x")) if rng.random() < 0.3 else var("x")
    c = [const(value) for value in rng.sample(CONSTANTS, 4)]
    if rng.random() < 0.5:
        value = ((c[0] * x + c[1]) * x + c[2]) * x + c[3]
    else:
        value = c[0] * call("cube", x) + c[1] * call("square", x) + c[2] * x + c[3]
    return Formula([("x", "all")], [], [("y", value)])


def complex_product(rng: Random) -> Formula:
    """Returns products of complex numbers in separate arrays."""
    re = var("ar") * var("br") - var("ai") * var("bi")
    im = var("ar") * var("bi") + var("ai") * var("br")
    if rng.random() < 0.4:
        return Formula([("ar", "all"), ("ai", "all"), ("br", "all"), ("bi", "all")], [], [("cr", re), ("ci", im)])
    size = call("sqrt", re * re + im * im)
    return Formula([("ar", "all"), ("ai", "all"), ("br", "all"), ("bi", "all")], [], [("size_c", size)])


def rotation(rng: Random) -> Formula:  # noqa: ARG001 -- all formulas are drawn alike
    """Returns a rotation of pairs, in place."""
    c, s = call("cos", var("theta")), call("sin", var("theta"))
    return Formula(
        [("theta", "all")], [], [("px", var("px") * c - var("py") * s), ("py", var("px") * s + var("py") * c)]
    )


def distances(rng: Random) -> Formula:
    """Returns distances between points given by coordinates."""
    dx, dy, dz = (var(f"{a}1") - var(f"{a}2") for a in "xyz")
    square = call("square", dx) + call("square", dy) + call("square", dz)
    value = (
        call("sqrt", square)
        if rng.random() < 0.5
        else const(1) / call("sqrt", square + const(rng.choice((0.01, 0.1, 1.0))))
    )
    return Formula([(f"{a}{k}", "all") for k in (1, 2) for a in "xyz"], [], [("dist", value)])


def finance(rng: Random) -> Formula:
    """Returns formulas of discounting, compounding, and logistic growth."""
    r, t = var("rate"), var("years")
    value = rng.choice((
        var("amount") * call("exp", -(r * t)),
        var("amount") / (const(1) + r * t),
        var("amount") * (const(1) + r * t + const(0.5) * call("square", r * t)),
    ))  # fmt: skip
    return Formula(
        [("amount", "all"), ("years", "all")], [("rate", 0.05)], [("worth", value)], positive=("amount", "years")
    )


def ddim(rng: Random) -> Formula:
    """Returns a DDIM step, sometimes with noise and a clamp."""
    clean = (var("x") - call("sqrt", const(1) - var("alpha")) * var("eps")) / call("sqrt", var("alpha"))
    if rng.random() < 0.5:
        clean = call("clip", clean)
    value = call("sqrt", var("alpha_prev")) * clean + call(
        "sqrt", const(1) - var("alpha_prev") - var("sig") * var("sig")
    ) * var("eps")
    inputs = [("x", "all"), ("eps", "all")]
    if rng.random() < 0.6:
        inputs.append(("noise", "all"))
        value = value + var("sig") * var("noise")
    return Formula(inputs, [("alpha", 0.6), ("alpha_prev", 0.75), ("sig", 0.1)], [("out", value)])


def ddpm(rng: Random) -> Formula:  # noqa: ARG001 -- all formulas are drawn alike
    """Returns a step of DDPM's reverse process: the posterior's mean plus noise."""
    mean = (var("x") - var("beta") / call("sqrt", const(1) - var("bar")) * var("eps")) / call(
        "sqrt", const(1) - var("beta")
    )
    return Formula(
        [("x", "all"), ("eps", "all"), ("z", "all")],
        [("beta", 0.02), ("bar", 0.6), ("sig", 0.14)],
        [("x_prev", mean + var("sig") * var("z"))],
    )


def guidance_step(rng: Random) -> Formula:
    """Returns classifier-free guidance, alone or fused with the sampler's step."""
    eps = var("uncond") + var("g") * (var("cond") - var("uncond"))
    kind = rng.random()
    if kind < 0.35:
        return Formula([("cond", "all"), ("uncond", "all")], [("g", 7.5)], [("eps", eps)])
    if kind < 0.7:
        return Formula(
            [("cond", "all"), ("uncond", "all")], [("g", 7.5), ("dt", 0.02)], [("x", var("x") - var("dt") * eps)]
        )
    clean = (var("x") - var("s1") * eps) / var("s0")
    return Formula(
        [("cond", "all"), ("uncond", "all"), ("x", "all")],
        [("g", 5.0), ("s0", 0.8), ("s1", 0.6)],
        [("x0", call("clip", clean)), ("eps_out", eps)],
    )


def euler_step(rng: Random) -> Formula:
    """Returns Euler and Heun steps of an ODE sampler."""
    d = (var("x") - var("denoised")) / var("sig")
    if rng.random() < 0.5:
        return Formula(
            [("x", "all"), ("denoised", "all")],
            [("sig", 1.5), ("sig_next", 1.2)],
            [("out", var("x") + d * (var("sig_next") - var("sig")))],
        )
    second = (d + var("d_prev")) / const(2)
    return Formula(
        [("x", "all"), ("denoised", "all"), ("d_prev", "all")],
        [("sig", 1.5), ("sig_next", 1.2)],
        [("out", var("x") + second * (var("sig_next") - var("sig")))],
    )


def add_noise(rng: Random) -> Formula:
    """Returns the addition of noise with a level for each image of the batch."""
    a, s = var("alpha_b"), call("sqrt", call("max", const(1) - var("alpha_b"), const(0)))
    if rng.random() < 0.5:
        return Formula(
            [("x0", "all"), ("noise", "all"), ("alpha_b", "row")],
            [],
            [("xt", call("sqrt", call("abs", a)) * var("x0") + s * var("noise"))],
            flat=False,
        )
    return Formula(
        [("x0", "all"), ("noise", "all"), ("sa", "row"), ("sb", "row")],
        [],
        [("v_target", var("sa") * var("noise") - var("sb") * var("x0"))],
        flat=False,
    )


def multistep(rng: Random) -> Formula:  # noqa: ARG001 -- all formulas are drawn alike
    """Returns a multistep solver: a weighted sum of the last model outputs."""
    c = [var(f"c{k}") for k in range(3)]
    d = c[0] * var("e0") + c[1] * var("e1") + c[2] * var("e2")
    return Formula(
        [("e0", "all"), ("e1", "all"), ("e2", "all")],
        [("c0", 1.9), ("c1", -1.3), ("c2", 0.4), ("h", 0.05)],
        [("x", var("x") + var("h") * d)],
    )


def ema(rng: Random) -> Formula:  # noqa: ARG001 -- all formulas are drawn alike
    """Returns moving averages of weights."""
    return Formula(
        [("weights", "all")],
        [("decay", 0.995)],
        [("avg", var("decay") * var("avg") + (const(1) - var("decay")) * var("weights"))],
    )


def loss(rng: Random) -> Formula:
    """Returns element-wise losses and their gradients."""
    d = var("pred") - var("target")
    huber = Expr("above", (call("abs", d), const(1), call("abs", d) - const(0.5), const(0.5) * call("square", d)))
    value = rng.choice(
        (call("square", d), huber, call("log1p", call("square", d)), call("sqrt", call("square", d) + const(0.01)))
    )
    if rng.random() < 0.3:
        value = value * var("weight")
        return Formula([("pred", "all"), ("target", "all"), ("weight", "col")], [], [("loss", value)], flat=False)
    return Formula(
        [("pred", "all"), ("target", "all")],
        [],
        [("loss", value), ("grad", const(2) * d)] if rng.random() < 0.4 else [("loss", value)],
    )


def power_series(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family of polynomials by powers of the argument, or by Horner's rule."""

    def draw(rng: Random) -> Problem:
        degree, dims = rng.randint(3, 6), tuple(pick(rng, 1, "length"))
        names = pick(rng, 2, "array")
        factors = [const(rng.choice(CONSTANTS)) for _ in range(degree + 1)]
        x = var(names[0])
        horner, series = factors[degree], factors[0]
        for power in range(degree - 1, -1, -1):
            horner = horner * x + factors[power]
        for power in range(1, degree + 1):
            series = series + factors[power] * (x if power == 1 else Expr("power", (x, const(power))))
        given = Input(array(names[0], "in", "float32", *dims, drawn="uniform(-1, 1)"), "all")
        style = draw_style(rng, {*names, *dims, f"{names[0]}_v"})
        sizes, large = flat_sizes(rng, dims[0])
        seed, called = rng.random(), kernel_name(rng, family)

        def version(expr: Expr) -> Problem:
            plan = Map(dims, (given,), (Result(array(names[1], "out", "float32", *dims), expr),), "float")
            return map_problem(Random(seed), family, kind, plan, style, called, sizes, large)  # noqa: S311

        best, worst = version(horner), version(series)

        def draft(flaws: frozenset[str]) -> Draft:
            return (worst if "power_series" in flaws else best).draft(flaws - {"power_series"})

        flaws = tuple(flaw for flaw in best.flaws if flaw != "through_memory")
        return replace(best, flaws=("power_series", *flaws), draft=draft)

    return draw
