"""The list of all families, with their kinds, and those that are held out."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import Family, Kind, Problem, array, draw_style, scalar
from kernelmate_training.corpus.families import formulas, rows
from kernelmate_training.corpus.families.formulas import Maker, formula_map, power_series
from kernelmate_training.corpus.families.hardware import approximations, byte_products, pairs, vectors, votes
from kernelmate_training.corpus.families.maps import random_map, row_sizes
from kernelmate_training.corpus.families.moves import gathers, layouts, transposes, unpacking
from kernelmate_training.corpus.families.pointwise3d import bags, bits, cubes, ranks
from kernelmate_training.corpus.families.products import attention, product
from kernelmate_training.corpus.families.records import byte_records, dense, pooling
from kernelmate_training.corpus.families.recurrences import decays, joint_counts, own_sorts, own_windows
from kernelmate_training.corpus.families.rows import RowProgram, row_problem
from kernelmate_training.corpus.families.stencils import filters, volume, window
from kernelmate_training.corpus.families.totals import histogram, scans, total, warp_integers
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.templates import drafts


def accurate(family: str, kind: Kind, form: str) -> Callable[[Random], Problem]:
    """Returns a family of statistics that allow a more accurate computation: `half`, `variance`, `long`."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 3, "array")
        rows, cols = pick(rng, 2, "sides")
        across = rng.random() < 0.5
        dtype = "float16" if form == "half" else "float32"
        drawn = {
            "half": "uniform(0, 1)",
            "variance": rng.choice(("normal(100, 1)", "normal(30, 2)", "uniform(50, 60)")),
            "long": rng.choice(("uniform(0, 1)", "uniform(0, 100)")),
        }[form]
        x = array(names[0], "in", dtype, rows, cols, drawn=drawn)
        w = (
            array(names[1], "in", dtype, rows if across else cols, drawn="uniform(0, 1)")
            if form == "half" and rng.random() < 0.5
            else None
        )
        y = array(names[2], "out", dtype, cols if across else rows)
        style = draw_style(rng, {*names, rows, cols})
        row, col = style.n("row"), style.n("col")
        (mine, bound), (other, last) = ((col, cols), (row, rows)) if across else ((row, rows), (col, cols))
        draft = drafts(
            "accuracy", style, form=form, x=x.name, w=w.name if w else "", y=y.name, cols=cols, mine=mine, bound=bound, other=other,
            last=last, size=rng.choice((64, 128, 256)),
        )  # fmt: skip
        axis = 0 if across else 1
        weighted = x.name if w is None else f"{x.name} * {w.name}{'[:, None]' if across else ''}"
        reference = f"{x.name}.var(axis={axis})" if form == "variance" else f"({weighted}).sum(axis={axis})"
        sizes, _ = row_sizes(rng, rows, cols)
        # Sums are short enough for the inaccurate version's error to stay within the tolerance of comparisons.
        large = {rows: 128, cols: 1 << 16} if across else {rows: 1 << 16, cols: 128}
        flaw = {"half": "naive_sum", "variance": "cancelling", "long": "plain_sum"}[form]
        tolerance = {
            "half": "{ rtol = 0.1, atol = 0.1 }",
            "variance": "{ rtol = 0.2, atol = 0.2 }",
            "long": "{ rtol = 1e-4, atol = 1e-4 }",
        }[form]
        args = (x, *((w,) if w else ()), y, scalar(rows), scalar(cols))
        return Problem(
            family, kind, kernel_name(rng, family), args, sizes, large, reference, (flaw, "no_restrict", "tiny_block"), draft, style,
            tolerance=tolerance, require=(f"{rows} > 0", f"{cols} > 0"),
        )  # fmt: skip

    return draw


HELD_OUT = frozenset({
    "log-sum-exp", "correlations-1d", "matmul-left-turned", "multistep-solver", "sum-partials", "heat-3d",
    "turn-three", "permute-small", "dense-bytes", "power-series", "row-bits", "decay-rows",
})  # fmt: skip
"""Families whose problems are used for evaluation only."""

Drawer = Callable[[Random], Problem]


def _rows(
    name: str, kind: Kind, make: Callable[[Random], RowProgram], dtypes: tuple[str, ...] = ("float32",)
) -> tuple[str, Kind, Drawer]:
    return name, kind, lambda rng: row_problem(rng, name, kind, make, dtypes)


def _formula(name: str, kind: Kind, make: Maker, dtypes: tuple[str, ...] = ("float32",)) -> tuple[str, Kind, Drawer]:
    return name, kind, formula_map(name, kind, make, dtypes)


def _maps() -> list[tuple[str, Kind, Drawer]]:
    half = ("float16", "bfloat16")
    return [
        ("unary-map", "memory", random_map("unary-map", "memory", inputs=("all",))),
        ("binary-map", "memory", random_map("binary-map", "memory", inputs=("all", "all"))),
        ("ternary-map", "memory", random_map("ternary-map", "memory", inputs=("all", "all", "all"), extra=(0, 3))),
        ("inplace-map", "memory", random_map("inplace-map", "memory", inputs=("all",), inplace=True)),
        ("two-output-map", "memory", random_map("two-output-map", "memory", inputs=("all", "all"), outputs=2, extra=(0, 2))),
        ("column-map", "memory", random_map("column-map", "memory", inputs=("all", "col"), flat=False)),
        ("row-map", "memory", random_map("row-map", "memory", inputs=("all", "row"), flat=False)),
        ("row-column-map", "memory", random_map("row-column-map", "memory", inputs=("all", "row", "col"), flat=False, extra=(0, 2))),
        ("outer-map", "memory", random_map("outer-map", "memory", inputs=("row", "col"), flat=False, extra=(0, 3))),
        ("half-map", "memory", random_map("half-map", "memory", inputs=("all", "all"), dtypes=half, extra=(0, 2))),
        ("half-column-map", "memory", random_map("half-column-map", "memory", inputs=("all", "col"), dtypes=half, flat=False, extra=(0, 2))),
        ("int-map", "memory", random_map("int-map", "memory", inputs=("all", "all"), dtypes=("int32",))),
        ("int-plane", "memory", random_map("int-plane", "memory", inputs=("all", "col"), dtypes=("int32",), flat=False)),
        ("double-map", "compute", random_map("double-map", "compute", inputs=("all", "all"), dtypes=("float64",))),
        ("heavy-map", "compute", random_map("heavy-map", "compute", inputs=("all",), extra=(5, 8))),
        ("convert-bytes", "memory", random_map("convert-bytes", "memory", inputs=("all",), source="uint8", extra=(1, 3), unary=("tanh", "sigmoid", "relu"))),
        ("convert-shorts", "memory", random_map("convert-shorts", "memory", inputs=("all", "col"), source="int16", extra=(1, 2), unary=("tanh", "softsign"), flat=False)),
        ("dequantize", "memory", random_map("dequantize", "memory", inputs=("all",), source="int8", extra=(1, 2), unary=("relu",), scalars=(2, 2))),
    ]  # fmt: skip


def _formulas() -> list[tuple[str, Kind, Drawer]]:
    half = ("float32", "float32", "float16", "bfloat16")
    f = formulas
    return [
        _formula("momentum-step", "memory", f.momentum), _formula("adam-step", "memory", f.adam),
        _formula("adagrad-step", "memory", f.adagrad), _formula("weight-average", "memory", f.ema),
        _formula("gated-units", "memory", f.gated, half), _formula("activation-gradient", "memory", f.gate_grad),
        _formula("bias-activation", "memory", f.bias_activation, half), _formula("modulate-rows", "memory", f.row_affine),
        _formula("polynomial", "compute", f.polynomial), _formula("complex-product", "memory", f.complex_product),
        _formula("rotate-pairs", "compute", f.rotation), _formula("point-distances", "memory", f.distances),
        _formula("discounting", "compute", f.finance), _formula("element-loss", "memory", f.loss),
        _formula("ddim-step", "mixed", f.ddim), _formula("ddpm-step", "mixed", f.ddpm),
        _formula("guidance-step", "mixed", f.guidance_step), _formula("euler-step", "mixed", f.euler_step),
        _formula("add-noise", "mixed", f.add_noise), _formula("multistep-solver", "mixed", f.multistep),
    ]  # fmt: skip


def _reductions() -> list[tuple[str, Kind, Drawer]]:
    r = rows
    half = ("float32", "float32", "float16")
    return [
        _rows("softmax", "memory", r.softmax, half), _rows("log-softmax", "memory", r.log_softmax),
        _rows("log-sum-exp", "memory", r.log_sum_exp), _rows("layer-norm", "memory", r.layer_norm, half),
        _rows("residual-norm", "mixed", r.residual_norm), _rows("row-statistics", "memory", r.statistics),
        _rows("rms-norm", "memory", r.rms_norm, half), _rows("unit-length", "memory", r.unit_length),
        _rows("extreme-scale", "memory", r.extreme_scale), _rows("centre-rows", "memory", r.centred),
        _rows("row-total", "memory", r.row_total, half), _rows("row-product", "memory", r.row_product, half),
        _rows("row-cosine", "memory", r.cosine), _rows("gated-norm", "mixed", r.gated_norm),
        _rows("any-rows", "memory", r.any_rows), _rows("softmax-pool", "mixed", r.softmax_pool),
        _rows("guided-norm", "mixed", r.guided_norm),
        ("sum-all", "memory", total("sum-all", "memory", "sum")), ("dot-product", "memory", total("dot-product", "memory", "dot")),
        ("sum-partials", "memory", total("sum-partials", "memory", "partials")), ("count-above", "memory", total("count-above", "memory", "count")),
        ("reduce-ints", "memory", total("reduce-ints", "memory", "ints")), ("mean-error", "memory", total("mean-error", "memory", "error")),
        ("warp-integers", "target", warp_integers("warp-integers")),
    ]  # fmt: skip


def _products() -> list[tuple[str, Kind, Drawer]]:
    c: Kind = "compute"
    return [
        ("matmul", c, product("matmul", c, dtypes=("float32", "float32", "float64", "int32"), epilogues=("none", "none", "scale"))),
        ("matmul-half", c, product("matmul-half", c, dtypes=("float16", "bfloat16"), epilogues=("none", "bias"))),
        ("matmul-left-turned", c, product("matmul-left-turned", c, turned=((True, False),))),
        ("matmul-right-turned", c, product("matmul-right-turned", c, turned=((False, True),), epilogues=("none", "scale"))),
        ("matmul-both-turned", c, product("matmul-both-turned", c, turned=((True, True),), epilogues=("none", "blend"))),
        ("gemm", c, product("gemm", c, epilogues=("blend",), dtypes=("float32", "float64"))),
        ("linear-layer", c, product("linear-layer", c, epilogues=("bias", "activation"), turned=((False, True), (False, False)))),
        ("batched-matmul", c, product("batched-matmul", c, batched=True, turned=((False, False), (False, True)))),
        ("pair-distances", c, product("pair-distances", c, terms=("square", "absolute"), turned=((False, True),), epilogues=("none", "scale"))),
        ("pair-overlaps", c, product("pair-overlaps", c, terms=("minimum", "absolute"), turned=((False, True), (False, False)))),
        ("attention-scores", "mixed", product("attention-scores", "mixed", batched=True, turned=((False, True),), epilogues=("scale",))),
        ("projection-residual", "mixed", product("projection-residual", "mixed", epilogues=("residual",), turned=((False, True), (False, False)))),
        ("projection-step", "mixed", product("projection-step", "mixed", epilogues=("step",))),
    ]  # fmt: skip


def _stencils() -> list[tuple[str, Kind, Drawer]]:
    c: Kind = "compute"
    return [
        ("correlations-1d", c, filters("correlations-1d", c)),
        ("convolve-2d", c, window("convolve-2d", c, "weights", epilogues=True)),
        ("depthwise-conv", c, window("depthwise-conv", c, "weights", planes=True)),
        ("conv-activation", "mixed", window("conv-activation", "mixed", "weights", planes=True, epilogues=True)),
        ("box-blur", c, window("box-blur", c, "mean")), ("max-filter", c, window("max-filter", c, "max")),
        ("heat-2d", "memory", window("heat-2d", "memory", "star", epilogues=True)), ("edges", c, window("edges", c, "sobel")),
        ("heat-3d", "memory", volume("heat-3d", "memory")),
    ]  # fmt: skip


def _moves() -> list[tuple[str, Kind, Drawer]]:
    m: Kind = "memory"
    return [
        ("transpose", m, transposes("transpose", m, dtypes=("float32", "float32", "int32", "float64"))),
        ("transpose-half", m, transposes("transpose-half", m, dtypes=("float16", "bfloat16"))),
        ("transpose-planes", m, transposes("transpose-planes", m, planes=True)),
        ("gather-rows", m, gathers("gather-rows", m, "gather")), ("reverse-rows", m, gathers("reverse-rows", m, "reverse")),
        ("flip-image", m, gathers("flip-image", m, "flip")), ("shift-columns", m, gathers("shift-columns", m, "shift")),
        ("mix-channels", m, gathers("mix-channels", m, "channels")), ("take-even", m, gathers("take-even", m, "even")),
        ("histogram", m, histogram("histogram", m, weighted=False)), ("weighted-histogram", m, histogram("weighted-histogram", m, weighted=True)),
        ("row-scan", m, scans("row-scan", m)),
    ]  # fmt: skip


def _attention() -> list[tuple[str, Kind, Drawer]]:
    return [
        ("attention", "mixed", attention("attention", "mixed", ("none", "none", "residual"))),
        (
            "causal-attention",
            "mixed",
            attention("causal-attention", "mixed", ("none", "residual", "gate"), causal=True),
        ),
        ("attention-step", "mixed", attention("attention-step", "mixed", ("step",))),
    ]


def _hardware() -> list[tuple[str, Kind, Drawer]]:
    return [
        ("float4-map", "target", vectors("float4-map")), ("half2-map", "target", pairs("half2-map", "float16")),
        ("bf16x2-map", "target", pairs("bf16x2-map", "bfloat16")), ("byte-products", "target", byte_products("byte-products")),
        ("warp-votes", "target", votes("warp-votes")), ("own-window", "target", own_windows("own-window")),
        ("fast-functions", "target", approximations("fast-functions")),
    ]  # fmt: skip


def _wider() -> list[tuple[str, Kind, Drawer]]:
    m: Kind = "memory"
    return [
        ("cube-map", m, cubes("cube-map", m, turned=False)), ("permute-cube", m, cubes("permute-cube", m, turned=True)),
        ("rank-elements", "compute", ranks("rank-elements", "compute")), ("row-bits", "target", bits("row-bits", "target")),
        ("bag-sums", m, bags("bag-sums", m)), ("power-series", "compute", power_series("power-series", "compute")),
        ("sums-of-halves", "compute", accurate("sums-of-halves", "compute", "half")),
        ("offset-variance", "compute", accurate("offset-variance", "compute", "variance")),
        ("long-sums", "compute", accurate("long-sums", "compute", "long")), ("own-order", "target", own_sorts("own-order")),
    ]  # fmt: skip


def _roles() -> list[tuple[str, Kind, Drawer]]:
    """Returns families in which the assignment of work to threads matters most."""
    m: Kind = "memory"
    plain, small = ("float32", "float32", "int32"), ("uint8", "float16", "int16")
    return [
        ("permute-four", m, layouts("permute-four", m, count=4, turning=False, dtypes=plain)),
        ("turn-four", m, layouts("turn-four", m, count=4, turning=True, dtypes=plain)),
        ("turn-three", m, layouts("turn-three", m, count=3, turning=True, dtypes=plain)),
        ("permute-small", m, layouts("permute-small", m, count=4, turning=False, dtypes=small)),
        ("turn-small", m, layouts("turn-small", m, count=3, turning=True, dtypes=small)),
        ("unpack-words", m, unpacking("unpack-words", m)), ("pool-groups", m, pooling("pool-groups", m)),
        ("dense-rows", "compute", dense("dense-rows", "compute")), ("dense-bytes", "compute", dense("dense-bytes", "compute", whole=True)),
        ("byte-records", m, byte_records("byte-records", m)), ("decay-rows", "mixed", decays("decay-rows", "mixed")),
        ("joint-counts", m, joint_counts("joint-counts", m)),
    ]  # fmt: skip


def _families() -> tuple[Family, ...]:
    listed = [
        *_maps(),
        *_formulas(),
        *_reductions(),
        *_products(),
        *_stencils(),
        *_moves(),
        *_attention(),
        *_hardware(),
        *_wider(),
        *_roles(),
    ]
    return tuple(Family(name, kind, draw, name in HELD_OUT) for name, kind, draw in listed)


FAMILIES = _families()
