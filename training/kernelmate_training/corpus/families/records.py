"""Sums over the features of records: by a thread per record, by one per feature, or by a warp."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from kernelmate_training.corpus.drafting import Kind, Problem, array, draw_style, scalar
from kernelmate_training.corpus.expressions import SMOOTH, Real, grow, numpy_text, var
from kernelmate_training.corpus.families.words import kernel_name, pick
from kernelmate_training.corpus.reducing import Op
from kernelmate_training.corpus.templates import drafts

GROUPS = (("segments", "length", "features"), ("batch", "steps", "channels"), ("clusters", "points", "dim"), ("windows", "taps", "width"))  # fmt: skip


def pooling(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family of sums, means and extremes over the steps of each group, for each feature."""

    def draw(rng: Random) -> Problem:
        names, dims = pick(rng, 2, "array"), rng.choice(GROUPS)
        op: Op = rng.choice(("sum", "sum", "max", "min"))
        scaled = op == "sum" and rng.random() < 0.5
        x = array(names[0], "in", "float32", *dims, drawn="normal")
        y = array(names[1], "out", "float32", dims[0], dims[2])
        value = grow(rng, [var("v")], extra=rng.randint(0, 3), unary=SMOOTH)
        style = draw_style(rng, {*names, *dims, "v"})
        groups, length, features = dims
        draft = drafts(
            "pooling",
            style,
            x=x.name,
            y=y.name,
            groups=groups,
            length=length,
            features=features,
            op=op,
            value=value,
            scaled=scaled,
        )
        made = ((24, 9, 64), (13, 5, 37), (1, 1, 1))
        sizes = tuple(dict(zip(dims, one, strict=True)) for one in made)
        text = numpy_text(value, {"v": x.name})
        method = "mean" if scaled else op
        flaws = ["thread_per_row", "swapped_axes", "global_accumulator", "no_restrict", "double_literals"]
        large = dict(zip(dims, rng.choice(((2048, 16, 256), (512, 32, 512), (4096, 8, 192))), strict=True))
        return Problem(
            family, kind, kernel_name(rng, family), (x, y, *(scalar(d) for d in dims)), sizes, large,
            f"np.{method}({text}, axis=1)", tuple(flaws), draft, style, require=(f"{dims[1]} > 0",),
            exclusive=(frozenset({"thread_per_row", "swapped_axes"}),),
        )  # fmt: skip

    return draw


def dense(family: str, kind: Kind, *, whole: bool = False) -> Callable[[Random], Problem]:
    """Returns a family of dense layers on few rows with weights [out][in]; `whole` uses bytes summed as ints."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 4, "array")
        dims = rng.choice((("rows", "outputs", "inputs"), ("batch", "units", "features"), ("B", "N", "K"), ("tokens", "hidden", "width")))  # fmt: skip
        rows, outputs, inputs = dims
        dtype, drawn = ("int8", "integers(-9, 9)") if whole else ("float32", "normal")
        x, w = array(names[0], "in", dtype, rows, inputs, drawn=drawn), array(names[1], "in", dtype, outputs, inputs, drawn=drawn)  # fmt: skip
        kind_of = "int32" if whole else "float32"
        bias = array(names[2], "in", kind_of, outputs, drawn="integers(-99, 99)" if whole else "normal") if rng.random() < 0.5 else None  # fmt: skip
        y = array(names[3], "out", kind_of, rows, outputs)
        tail, spelled = rng.choice(
            (("{s}", "{s}"), ("max({s}, 0)", "np.maximum({s}, 0)"))
            if whole
            else (("{s}", "{s}"), ("fmaxf({s}, 0.0f)", "np.maximum({s}, 0)"), ("0.5f * ({s})", "0.5 * ({s})"), ("tanhf({s})", "np.tanh({s})"))
        )  # fmt: skip
        style = draw_style(rng, {*names, *dims})
        base: Real = "int" if whole else "float"
        draft = drafts(
            "dense", style, real=base, base=base, x=x.name, w=w.name, y=y.name, bias=bias and bias.name, rows=rows, outputs=outputs,
            inputs=inputs, tail=tail, warps=rng.choice((2, 4, 8)),
        )  # fmt: skip
        wide = ".astype(np.int64)" if whole else ""
        product = f"({x.name}{wide} @ {w.name}{wide}.T{f' + {bias.name}' if bias else ''})"
        made = ((2, 40, 96), (3, 19, 37), (1, 1, 1))
        flaws = ("thread_per_row", "global_accumulator", "no_restrict", *(() if whole else ("wide_type",)))
        return Problem(
            family, kind, kernel_name(rng, family), (x, w, *((bias,) if bias else ()), y, *(scalar(d) for d in dims)),
            tuple(dict(zip(dims, one, strict=True)) for one in made), dict(zip(dims, (4, 4096, 2048), strict=True)),
            spelled.format(s=product), flaws, draft, style,
        )  # fmt: skip

    return draw


def byte_records(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Returns a family of checksums, counts and masks of byte records."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 2, "array")
        dims = rng.choice((("records", "length"), ("lines", "chars"), ("messages", "bytes_each"), ("slices", "size")))
        mark = rng.choice((10, 32, 44, 65, 97))
        term, joins, spelled = rng.choice(
            (
                ("{v}", "+", "{x}.sum(axis=1)"),
                ("{v} * ({k} + 1u)", "+", "({x} * (np.arange({x}.shape[1], dtype=np.uint64) + 1)).sum(axis=1)"),
                ("{v} << ({k} % 24u)", "^", "np.bitwise_xor.reduce({x} << (np.arange({x}.shape[1], dtype=np.uint64) % 24), axis=1)"),
                ("{v} == " + f"{mark}u ? 1u : 0u", "+", "({x} == " + f"{mark}).sum(axis=1)"),
                ("{v} == " + f"{mark}u ? 1u : 0u", "+", "({x} == " + f"{mark}).sum(axis=1)"),
                ("1u << ({v} & 31u)", "|", "np.bitwise_or.reduce(np.uint64(1) << ({x} & 31), axis=1)"),
                ("{v} * {v}", "+", "({x} * {x}).sum(axis=1)"),
            )
        )  # fmt: skip
        share = " == " in term and rng.random() < 0.7
        x = array(names[0], "in", "uint8", *dims, drawn="integers(0, 128)")
        y = array(names[1], "out", "float32" if share else "uint32", dims[0])
        style = draw_style(rng, {*names, *dims})
        records, length = dims
        draft = drafts(
            "byte-records", style, x=x.name, y=y.name, records=records, length=length, term=term, joins=joins, share=share,
            warps=rng.choice((4, 8)),
        )  # fmt: skip
        reference = spelled.format(x=f"{x.name}.astype(np.uint64)") + (f" / {x.name}.shape[1]" if share else "")
        flaws = ("thread_per_row", "no_restrict", *(() if share else ("global_accumulator",)))
        sizes = tuple(dict(zip(dims, one, strict=True)) for one in ((96, 48), (37, 29), (1, 1)))
        large = dict(zip(dims, rng.choice(((65536, 128), (16384, 512), (131072, 64))), strict=True))
        return Problem(
            family, kind, kernel_name(rng, family), (x, y, scalar(dims[0]), scalar(dims[1])), sizes, large,
            reference, flaws, draft, style,
            require=(f"{dims[1]} > 0",),
        )  # fmt: skip

    return draw
