"""Sums over the features of records: by a thread that goes through all of a record, by one per feature, or by a warp."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import Arg, Code, Draft, Flaws, Kind, Problem, Style, array, draw_style, scalar
from kernelmate_training.corpus.expressions import SMOOTH, Emitter, Expr, grow, numpy_text, var
from kernelmate_training.corpus.families.reducing import FULL, Op, grown, neutral
from kernelmate_training.corpus.families.words import kernel_name, pick

GROUPS = (("segments", "length", "features"), ("batch", "steps", "channels"), ("clusters", "points", "dim"), ("windows", "taps", "width"))  # fmt: skip


@dataclass(frozen=True)
class _Pooling:
    """Writes the versions of what is joined over the middle of three dimensions."""

    style: Style
    x: Arg
    y: Arg
    dims: tuple[str, str, str]
    op: Op
    value: Expr
    scaled: bool

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        group, feature, step = style.n("row"), style.n("col"), style.n("loop")
        groups, length, features = self.dims
        if "thread_per_row" in flaws:
            block: tuple[int, ...] = (64,)
            grid: tuple[str, ...] = (f"cdiv({groups}, block)",)
            code(f"{style.const_word}int {group} = {style.gid()};")
            code.guard((group, groups))
            code.loop(feature, "0", features)
        elif "swapped_axes" in flaws:
            block, grid = (32, 8), (f"cdiv({groups}, block_x)", f"cdiv({features}, block_y)")
            self._both(code, group, feature, "xy")
        elif not style.early:
            block, grid = (128,), (groups,)
            code(f"{style.const_word}int {group} = blockIdx.x;")
            code.loop(feature, "threadIdx.x", features, "blockDim.x")
        else:
            block, grid = (32, 8), (f"cdiv({features}, block_x)", f"cdiv({groups}, block_y)")
            self._both(code, group, feature, "yx")
        place = f"{self.y.name}[{style.at(group, features, feature)}]"
        acc = place if "global_accumulator" in flaws else style.n("acc")
        doubles = "double_literals" in flaws
        start = neutral(self.op, doubles=doubles)
        code(f"{acc} = {start};" if acc == place else f"float {acc} = {start};")
        code.loop(step, "0", length)
        at = f"{self.x.name}[({group} * {length} + {step}) * {features} + {feature}]"
        emitter = Emitter("float", doubles, names={"v": at}, const_word=style.const_word)
        text = emitter.text(self.value)
        code(*emitter.statements, grown(self.op, acc, text))
        code.close()
        result = f"{acc} / {length}" if self.scaled else acc
        if result != place:
            code(f"{place} = {result};")
        return code.drafted(flaws, grid, block)

    def _both(self, code: Code, group: str, feature: str, axes: str) -> None:
        word = self.style.const_word
        code(f"{word}int {group} = {self.style.gid(axes[0])};", f"{word}int {feature} = {self.style.gid(axes[1])};")
        code.guard((group, self.dims[0]), (feature, self.dims[2]))


def pooling(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Sums, means and extremes over the steps of each group, feature by feature."""

    def draw(rng: Random) -> Problem:
        names, dims = pick(rng, 2, "array"), rng.choice(GROUPS)
        op: Op = rng.choice(("sum", "sum", "max", "min"))
        scaled = op == "sum" and rng.random() < 0.5
        x = array(names[0], "in", "float32", *dims, drawn="normal")
        y = array(names[1], "out", "float32", dims[0], dims[2])
        value = grow(rng, [var("v")], extra=rng.randint(0, 3), unary=SMOOTH)
        style = draw_style(rng, {*names, *dims, "v"})
        plan = _Pooling(style, x, y, dims, op, value, scaled)
        made = ((24, 9, 64), (13, 5, 37), (1, 1, 1))
        sizes = tuple(dict(zip(dims, one, strict=True)) for one in made)
        text = numpy_text(value, {"v": x.name})
        method = "mean" if scaled else op
        flaws = ["thread_per_row", "swapped_axes", "global_accumulator", "no_restrict", "double_literals"]
        large = dict(zip(dims, rng.choice(((2048, 16, 256), (512, 32, 512), (4096, 8, 192))), strict=True))
        return Problem(
            family, kind, kernel_name(rng, family), (x, y, *(scalar(d) for d in dims)), sizes, large,
            f"np.{method}({text}, axis=1)", tuple(flaws), plan.draft, style, require=(f"{dims[1]} > 0",),
            exclusive=(frozenset({"thread_per_row", "swapped_axes"}),),
        )  # fmt: skip

    return draw


@dataclass(frozen=True)
class _Dense:
    """Writes the versions of sums of products of few rows with weights whose rows belong to outputs.

    Attributes:
        real: `float` or `int`, what is added up. tail: what becomes of a sum, by `{s}`.
    """

    style: Style
    x: Arg
    w: Arg
    bias: Arg | None
    y: Arg
    dims: tuple[str, str, str]
    real: str
    tail: str
    warps: int

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        row, out, k, acc = style.n("row"), style.n("col"), style.n("loop"), style.n("acc")
        rows, outputs, inputs = self.dims
        alone = bool(flaws & {"thread_per_row", "global_accumulator"})
        code(f"{style.const_word}int {row} = blockIdx.y;")
        if alone:
            block: tuple[int, ...] = (128,)
            code(f"{style.const_word}int {out} = {style.gid()};")
            code.guard((out, outputs))
        else:
            block = (32, self.warps)
            code(f"{style.const_word}int {out} = blockIdx.x * blockDim.y + threadIdx.y;")
            code(f"if ({out} >= {outputs}) return;")
        grid = (f"cdiv({outputs}, {'block' if alone else 'block_y'})", rows)
        place = f"{self.y.name}[{row} * {outputs} + {out}]"
        kept = alone and "global_accumulator" in flaws
        acc = place if kept else acc
        kind = "double" if "wide_type" in flaws and self.real == "float" and not kept else self.real
        code(
            f"{acc} = 0;"
            if kept
            else f"{kind} {acc} = 0{'' if kind == 'int' else '.0' if kind == 'double' else '.0f'};"
        )
        code.loop(k, "0" if alone else "threadIdx.x", inputs, None if alone else "32")
        one, other = f"{self.x.name}[{row} * {inputs} + {k}]", f"{self.w.name}[{out} * {inputs} + {k}]"
        cast = "(int)" if self.real == "int" else "(double)" if kind == "double" else ""
        code(f"{acc} += {cast}{one} * {other};")
        code.close()
        if not alone:
            half = style.n("half")
            code(f"for (int {half} = 16; {half} > 0; {half} >>= 1) {acc} += __shfl_down_sync({FULL}, {acc}, {half});")
        bias = f" + {self.bias.name}[{out}]" if self.bias else ""
        stored = self.tail.format(s=f"{'(float)' if kind == 'double' else ''}{acc}{bias}")
        if alone:
            if stored != place:
                code(f"{place} = {stored};")
        else:
            code.when("threadIdx.x == 0", f"{place} = {stored};")
        return code.drafted(flaws, grid, block)


def dense(family: str, kind: Kind, *, whole: bool = False) -> Callable[[Random], Problem]:
    """A layer on few rows with weights [out][in]; `whole`: of bytes, added up as ints."""

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
        plan = _Dense(style, x, w, bias, y, dims, "int" if whole else "float", tail, rng.choice((2, 4, 8)))
        wide = ".astype(np.int64)" if whole else ""
        product = f"({x.name}{wide} @ {w.name}{wide}.T{f' + {bias.name}' if bias else ''})"
        made = ((2, 40, 96), (3, 19, 37), (1, 1, 1))
        flaws = ("thread_per_row", "global_accumulator", "no_restrict", *(() if whole else ("wide_type",)))
        return Problem(
            family, kind, kernel_name(rng, family), (x, w, *((bias,) if bias else ()), y, *(scalar(d) for d in dims)),
            tuple(dict(zip(dims, one, strict=True)) for one in made), dict(zip(dims, (4, 4096, 2048), strict=True)),
            spelled.format(s=product), flaws, plan.draft, style,
        )  # fmt: skip

    return draw


@dataclass(frozen=True)
class _Bytes:
    """Writes the versions of a whole number for each record of bytes: by a thread, or by a warp with a byte per lane.

    Attributes:
        share: what is stored is the number's share of the record's length.
    """

    style: Style
    x: Arg
    y: Arg
    dims: tuple[str, str]
    term: str
    joins: str
    warps: int
    share: bool

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        record, k, acc = style.n("row"), style.n("loop"), style.n("acc")
        records, length = self.dims
        alone = bool(flaws & {"thread_per_row", "global_accumulator"})
        if alone:
            block: tuple[int, ...] = (128,)
            code(f"{style.const_word}int {record} = {style.gid()};")
            code.guard((record, records))
        else:
            block = (32, self.warps)
            code(f"{style.const_word}int {record} = blockIdx.x * blockDim.y + threadIdx.y;")
            code(f"if ({record} >= {records}) return;")
        place = f"{self.y.name}[{record}]"
        kept = alone and "global_accumulator" in flaws
        acc = place if kept else acc
        result = f"(float){acc} / {length}" if self.share else acc
        code(f"{'' if kept else 'unsigned int '}{acc} = 0{'' if kept else 'u'};")
        code.loop(k, "0" if alone else "threadIdx.x", length, None if alone else "32")
        byte = f"(unsigned int){self.x.name}[{record} * {length} + {k}]"
        code(f"{acc} {self.joins}= {self.term.format(v=byte, k=f'(unsigned int){k}')};")
        code.close()
        if alone:
            if not kept:
                code(f"{place} = {result};")
        else:
            half = style.n("half")
            code(f"for (int {half} = 16; {half} > 0; {half} /= 2) {acc} {self.joins}= __shfl_xor_sync({FULL}, {acc}, {half});")  # fmt: skip
            code.when("threadIdx.x == 0", f"{place} = {result};")
        grid = (f"cdiv({records}, {'block' if alone else 'block_y'})",)
        return code.drafted(flaws, grid, block)


def byte_records(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Checksums, counts and masks of records of bytes."""

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
        plan = _Bytes(style, x, y, dims, term, joins, rng.choice((4, 8)), share)
        reference = spelled.format(x=f"{x.name}.astype(np.uint64)") + (f" / {x.name}.shape[1]" if share else "")
        flaws = ("thread_per_row", "no_restrict", *(() if share else ("global_accumulator",)))
        sizes = tuple(dict(zip(dims, one, strict=True)) for one in ((96, 48), (37, 29), (1, 1)))
        large = dict(zip(dims, rng.choice(((65536, 128), (16384, 512), (131072, 64))), strict=True))
        return Problem(
            family, kind, kernel_name(rng, family), (x, y, scalar(dims[0]), scalar(dims[1])), sizes, large,
            reference, flaws, plan.draft, style,
            require=(f"{dims[1]} > 0",),
        )  # fmt: skip

    return draw
