"""Families for what a GPU has instructions for: vectors of four floats, pairs of halves, bytes by four, votes, approximations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from kernelmate.upskill.corpus.drafting import (
    Arg,
    Code,
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
from kernelmate.upskill.corpus.expressions import SMOOTH, Emitter, Expr, grow, numpy_text, var
from kernelmate.upskill.corpus.families.maps import flat_sizes, random_map
from kernelmate.upskill.corpus.families.reducing import FULL
from kernelmate.upskill.corpus.families.words import kernel_name, pick

APPROXIMATE = {"expf": "__expf", "sinf": "__sinf", "cosf": "__cosf", "logf": "__logf"}
"""Functions of float and what the hardware has instead (CUDA C++ Programming Guide, intrinsic functions)."""


def _aligned(args: tuple[Arg, ...], count: int) -> str:
    """The condition that all arrays start at a multiple of so many bytes, which no caller has to keep to."""
    places = " | ".join(f"reinterpret_cast<size_t>({arg.name})" for arg in args)
    return f"({places}) % {count} == 0" if len(args) > 1 else f"{places} % {count} == 0"


@dataclass(frozen=True)
class _Vector:
    """Writes the versions of a map of floats, four at a time or one."""

    style: Style
    inputs: tuple[Arg, ...]
    out: Arg
    n: str
    value: Expr
    block: int
    strided: bool

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        i, at = style.n("i"), style.n("loop")
        bare = "no_restrict" in flaws
        block = 32 if "tiny_block" in flaws else self.block
        if "scalar_access" in flaws:
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, self.n))
            self._one(code, flaws, i)
            return Draft(
                code.finish(),
                (f"cdiv({self.n}, block)",),
                (block,),
                restrict=not bare,
                constant=not bare or style.turned,
            )
        code(f"{style.const_word}int {i} = 4 * ({style.gid()});")
        code.open(f"if ({i} + 3 < {self.n} && {_aligned((*self.inputs, self.out), 16)})")
        for arg in self.inputs:
            code(f"{style.const_word}float4 {arg.name}_4 = *reinterpret_cast<const float4*>({arg.name} + {i});")
        code(f"float4 {self.out.name}_4;")
        for lane in "xyzw":
            emitter = Emitter(
                "float",
                "double_literals" in flaws,
                names={a.name: f"{a.name}_4.{lane}" for a in self.inputs},
                prefix=f"t{lane}",
                const_word=style.const_word,
            )
            text = emitter.text(self.value)
            code(*emitter.statements, f"{self.out.name}_4.{lane} = {text};")
        code(f"*reinterpret_cast<float4*>({self.out.name} + {i}) = {self.out.name}_4;")
        code.close()
        code.open("else")
        code.loop(at, i, f"min({i} + 4, {self.n})")
        self._one(code, flaws, at)
        return Draft(code.finish(), (f"cdiv({self.n}, 4 * block)",), (block,), restrict=not bare, constant=True)

    def _one(self, code: Code, flaws: Flaws, i: str) -> None:
        emitter = Emitter(
            "float",
            "double_literals" in flaws,
            names={a.name: f"{a.name}[{i}]" for a in self.inputs},
            const_word=self.style.const_word,
        )
        text = emitter.text(self.value)
        code(*emitter.statements, f"{self.out.name}[{i}] = {text};")


def vectors(family: str) -> Callable[[Random], Problem]:
    """Maps of floats that gain by vectors of four."""

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
        plan = _Vector(style, inputs, out, n, value, rng.choice((128, 256)), rng.random() < 0.3)
        sizes, _ = flat_sizes(rng, n)
        flaws = ("scalar_access", "tiny_block", "no_restrict", "double_literals")
        return Problem(
            family,
            "target",
            kernel_name(rng, family),
            (*inputs, out, scalar(n)),
            sizes,
            {n: 1 << 24},
            numpy_text(value, {}),
            flaws,
            plan.draft,
            style,
        )

    return draw


@dataclass(frozen=True)
class _Pairs:
    """Writes the versions of a map of halves, in pairs or one by one."""

    style: Style
    inputs: tuple[Arg, ...]
    out: Arg
    n: str
    value: Expr
    block: int

    def draft(self, flaws: Flaws) -> Draft:
        style, code, brain = self.style, Code(self.style), self.out.dtype == "bfloat16"
        i, bare = style.n("i"), "no_restrict" in flaws
        block = 32 if "tiny_block" in flaws else self.block
        if "half_scalar" in flaws:
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, self.n))
            self._one(code, flaws, i)
            return Draft(
                code.finish(),
                (f"cdiv({self.n}, block)",),
                (block,),
                restrict=not bare,
                constant=not bare or style.turned,
            )
        pair, widen, narrow = (
            ("__nv_bfloat162", "__bfloat1622float2", "__float22bfloat162_rn")
            if brain
            else ("__half2", "__half22float2", "__float22half2_rn")
        )
        code(f"{style.const_word}int {i} = 2 * ({style.gid()});")
        code.open(f"if ({i} + 1 < {self.n} && {_aligned((*self.inputs, self.out), 4)})")
        for arg in self.inputs:
            code(
                f"{style.const_word}float2 {arg.name}_2 = {widen}(*reinterpret_cast<const {pair}*>({arg.name} + {i}));"
            )
        code(f"float2 {self.out.name}_2;")
        for lane in "xy":
            emitter = Emitter(
                "float",
                "double_literals" in flaws,
                names={a.name: f"{a.name}_2.{lane}" for a in self.inputs},
                prefix=f"t{lane}",
                const_word=style.const_word,
            )
            text = emitter.text(self.value)
            code(*emitter.statements, f"{self.out.name}_2.{lane} = {text};")
        code(f"*reinterpret_cast<{pair}*>({self.out.name} + {i}) = {narrow}({self.out.name}_2);")
        code.close()
        code.open("else")
        at = style.n("loop")
        code.loop(at, i, f"min({i} + 2, {self.n})")
        self._one(code, flaws, at)
        return Draft(code.finish(), (f"cdiv({self.n}, 2 * block)",), (block,), restrict=not bare, constant=True)

    def _one(self, code: Code, flaws: Flaws, i: str) -> None:
        names = {a.name: load(a, i) for a in self.inputs}
        emitter = Emitter("float", "double_literals" in flaws, names=names, const_word=self.style.const_word)
        text = emitter.text(self.value)
        code(*emitter.statements, store(self.out, i, text))


def pairs(family: str, dtype: str) -> Callable[[Random], Problem]:
    """Maps of halves or of bfloat16 that gain by pairs."""

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
        plan = _Pairs(style, inputs, out, n, value, rng.choice((128, 256)))
        sizes, _ = flat_sizes(rng, n)
        flaws = ("half_scalar", "tiny_block", "no_restrict", "double_literals")
        return Problem(
            family,
            "target",
            kernel_name(rng, family),
            (*inputs, out, scalar(n)),
            sizes,
            {n: 1 << 24},
            numpy_text(value, {}),
            flaws,
            plan.draft,
            style,
        )

    return draw


@dataclass(frozen=True)
class _Bytes:
    """Writes the versions of products of rows of bytes with a vector of bytes."""

    style: Style
    a: Arg
    x: Arg
    y: Arg
    rows: str
    cols: str
    warps: int
    shift: int

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        row, k, acc, lane = style.n("row"), style.n("loop"), style.n("acc"), style.n("lane")
        words = "byte_dot" not in flaws
        alone = "thread_per_row" in flaws
        bare = "no_restrict" in flaws
        grid: tuple[str, ...]
        block: tuple[int, ...]
        if alone:
            code(f"{style.const_word}int {row} = {style.gid()};")
            code.guard((row, self.rows))
            grid, block = (f"cdiv({self.rows}, block)",), (128,)
            start, step = "0", "1"
        else:
            code(
                f"{style.const_word}int {row} = blockIdx.x * blockDim.y + threadIdx.y;",
                f"{style.const_word}int {lane} = threadIdx.x;",
            )
            code(f"if ({row} >= {self.rows}) return;")
            grid, block = (f"cdiv({self.rows}, block_y)",), (32, self.warps)
            start, step = lane, "32"
        code(f"int {acc} = 0;")
        one = f"{acc} += {self.a.name}[{row} * {self.cols} + {k}] * {self.x.name}[{k}];"
        if words:
            code.open(f"if ({_aligned((self.a, self.x), 4)})")
            code(f"const int* {self.a.name}_4 = reinterpret_cast<const int*>({self.a.name} + {row} * {self.cols});")
            code(f"const int* {self.x.name}_4 = reinterpret_cast<const int*>({self.x.name});")
            code.loop(k, start, f"{self.cols} / 4", None if step == "1" else step)
            code(f"{acc} = __dp4a({self.a.name}_4[{k}], {self.x.name}_4[{k}], {acc});")
            code.close(2)
            code.open("else")
        code.loop(k, start, self.cols, None if step == "1" else step)
        code(one)
        code.close(2 if words else 1)
        value = f"{acc} >> {self.shift}" if self.shift else acc
        if alone:
            code(f"{self.y.name}[{row}] = {value};")
        else:
            half = style.n("half")
            if "integer_tree" in flaws:
                code(f"for (int {half} = 16; {half} > 0; {half} /= 2) {acc} += __shfl_xor_sync({FULL}, {acc}, {half});")
            else:
                code(f"{acc} = __reduce_add_sync({FULL}, {acc});")
            code.when(f"{lane} == 0", f"{self.y.name}[{row}] = {value};")
        return Draft(code.finish(), grid, block, restrict=not bare, constant=True)


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
        plan = _Bytes(style, a, x, y, rows, cols, rng.choice((4, 8)), shift)
        sizes = ({rows: rng.choice((64, 96)), cols: rng.choice((256, 320))}, {rows: 37, cols: 52}, {rows: 1, cols: 4})
        product = f"{a.name}.astype(np.int64) @ {x.name}.astype(np.int64)"
        reference = f"({product}) >> {shift}" if shift else product
        return Problem(
            family, "target", kernel_name(rng, family), (a, x, y, scalar(rows), scalar(cols)), sizes, {rows: 8192, cols: 4096}, reference,
            ("byte_dot", "thread_per_row", "integer_tree", "no_restrict"), plan.draft, style, require=(f"{cols} % 4 == 0",),
        )  # fmt: skip

    return draw


@dataclass(frozen=True)
class _Votes:
    """Writes the versions of a count per block of what holds."""

    style: Style
    x: Arg
    y: Arg
    n: str
    condition: str
    block: int

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        i, flag, half, tile, warp = style.n("i"), style.n("tmp"), style.n("half"), style.n("tile"), style.n("warp")
        bare = "no_restrict" in flaws
        size = 1024 if "oversized_shared" in flaws else self.block // 32
        code(f"__shared__ int {tile}[{size}];", f"{style.const_word}int {i} = {style.gid()};")
        holds = f"{i} < {self.n} && {self.condition.format(f'{self.x.name}[{i}]')}"
        if "vote_by_shuffle" in flaws:
            code(f"int {flag} = ({holds}) ? 1 : 0;")
            code(f"for (int {half} = 16; {half} > 0; {half} /= 2) {flag} += __shfl_xor_sync({FULL}, {flag}, {half});")
        else:
            code(f"{style.const_word}int {flag} = __popc(__ballot_sync({FULL}, {holds}));")
        code(f"if (threadIdx.x % 32 == 0) {tile}[threadIdx.x / 32] = {flag};", "__syncthreads();")
        if "extra_barriers" in flaws:
            code("__syncthreads();")
        acc = style.n("acc")
        code.open("if (threadIdx.x == 0)")
        code(
            f"int {acc} = 0;",
            f"for (int {warp} = 0; {warp} < {self.block // 32}; ++{warp}) {acc} += {tile}[{warp}];",
            f"{self.y.name}[blockIdx.x] = {acc};",
        )
        code.close()
        return Draft(
            code.finish(),
            (f"cdiv({self.n}, {self.block})",),
            (self.block,),
            restrict=not bare,
            constant=not bare or style.turned,
        )


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
        plan = _Votes(style, x, y, n, text, block)
        sizes, large = flat_sizes(rng, n)
        reference = (
            f"np.pad(({spelled.format(x.name)}).astype(np.int64), (0, -{n} % {block})).reshape(-1, {block}).sum(axis=1)"
        )
        return Problem(
            family, "target", kernel_name(rng, family), (x, y, scalar(n)), sizes, large, reference,
            ("vote_by_shuffle", "oversized_shared", "extra_barriers", "no_restrict"), plan.draft, style,
        )  # fmt: skip

    return draw


@dataclass(frozen=True)
class _Window:
    """Writes the versions of statistics over a few elements that each thread keeps to itself."""

    style: Style
    x: Arg
    y: Arg
    n: str
    count: int
    form: str
    block: int

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        i, j, k, own, acc = style.n("i"), style.n("loop"), style.n("loop2"), style.n("tile"), style.n("acc")
        bare = "no_restrict" in flaws
        pragma = "#pragma unroll 1" if "local_array" in flaws else "#pragma unroll"
        code(f"{style.const_word}int {i} = {style.gid()};")
        code.guard((i, self.n))
        code(f"float {own}[{self.count}];")
        code.lines.append(pragma)
        place = f"{j} * {self.n} + {i}" if "chunked" not in flaws else f"{i} * {self.count} + {j}"
        if self.x.shape is not None and self.x.shape[0] == self.n:
            place = f"{i} * {self.count} + {j}"
        code(f"for (int {j} = 0; {j} < {self.count}; ++{j}) {own}[{j}] = {self.x.name}[{place}];")
        code(f"float {acc} = 0.0f;")
        code.lines.append(pragma)
        code.open(f"for (int {j} = 0; {j} < {self.count}; ++{j})")
        code.lines.append(pragma)
        code.open(f"for (int {k} = {'0' if self.form == 'rank' else f'{j} + 1'}; {k} < {self.count}; ++{k})")
        term = {
            "spread": f"fabsf({own}[{j}] - {own}[{k}])",
            "product": f"{own}[{j}] * {own}[{k}]",
            "rank": f"({own}[{j}] > {own}[{k}] ? {own}[{j}] : 0.0f)",
        }[self.form]
        code(f"{acc} += {term};")
        code.close(2)
        code(f"{self.y.name}[{i}] = {acc};")
        head = f"__launch_bounds__({self.block}, {2048 // self.block})" if "launch_bounds" in flaws else ""
        return Draft(
            code.finish(),
            (f"cdiv({self.n}, block)",),
            (self.block,),
            head=head,
            restrict=not bare,
            constant=not bare or style.turned,
        )


def own_windows(family: str) -> Callable[[Random], Problem]:
    """Statistics of a few elements for each thread, in registers or in local memory."""

    def draw(rng: Random) -> Problem:
        names, n = pick(rng, 2, "array"), pick(rng, 1, "length")[0]
        count, form = rng.choice((6, 8, 10, 12)), rng.choice(("spread", "product", "rank"))
        across = rng.random() < 0.5
        x = array(names[0], "in", "float32", *((n, str(count)) if across else (str(count), n)), drawn="normal")
        y = array(names[1], "out", "float32", n)
        style = draw_style(rng, {*names, n})
        plan = _Window(style, x, y, n, count, form, rng.choice((128, 256)))
        v = f"{x.name}.T" if across else x.name
        pairs_of = {
            "spread": f"np.abs({v}[:, None] - {v}[None]).sum(axis=(0, 1)) / 2",
            "product": f"({v}.sum(axis=0) ** 2 - ({v} ** 2).sum(axis=0)) / 2",
            "rank": f"np.where({v}[:, None] > {v}[None], {v}[:, None], 0).sum(axis=(0, 1))",
        }
        sizes = ({n: 8192}, {n: 1021}, {n: 1})
        flaws = ("local_array", "no_restrict", *(("launch_bounds",) if count >= 10 else ()))
        return Problem(
            family,
            "target",
            kernel_name(rng, family),
            (x, y, scalar(n)),
            sizes,
            {n: 1 << 21},
            pairs_of[form],
            flaws,
            plan.draft,
            style,
        )

    return draw


def approximations(family: str) -> Callable[[Random], Problem]:
    """Maps whose tolerance has room for the hardware's approximations."""
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


@dataclass(frozen=True)
class _Sorted:
    """Writes the versions of an order statistic of a few elements that each thread keeps to itself."""

    style: Style
    x: Arg
    y: Arg
    n: str
    count: int
    place: int
    strided: bool

    def draft(self, flaws: Flaws) -> Draft:
        style, code, bare = self.style, Code(self.style), "no_restrict" in flaws
        i, j, k, own, held = style.n("i"), style.n("loop"), style.n("loop2"), style.n("tile"), style.n("tmp")
        slow = "local_array" in flaws
        pragma = "#pragma unroll 1" if slow else "#pragma unroll"
        code(f"{style.const_word}int {i} = {style.gid()};")
        code.guard((i, self.n))
        code(f"float {own}[{self.count}];")
        code.lines.append(pragma)
        at = f"{j} * {self.n} + {i}" if self.strided else f"{i} * {self.count} + {j}"
        code(f"for (int {j} = 0; {j} < {self.count}; ++{j}) {own}[{j}] = {self.x.name}[{at}];")
        code.lines.append(pragma)
        code.open(f"for (int {j} = 0; {j} < {self.count} - 1; ++{j})")
        code.lines.append(pragma)
        code.open(f"for (int {k} = 0; {k} < {self.count} - 1 - {j}; ++{k})")
        one, other = f"{own}[{k}]", f"{own}[{k} + 1]"
        if slow:
            code.open(f"if ({one} > {other})")
            code(f"float {held} = {one};", f"{one} = {other};", f"{other} = {held};")
            code.close()
        else:
            code(f"float {held} = fminf({one}, {other});", f"{other} = fmaxf({one}, {other});", f"{one} = {held};")
        code.close(2)
        code(f"{self.y.name}[{i}] = {own}[{self.place}];")
        return Draft(
            code.finish(), (f"cdiv({self.n}, block)",), (128,), restrict=not bare, constant=not bare or style.turned
        )


def own_sorts(family: str) -> Callable[[Random], Problem]:
    """Medians and other order statistics of a few elements for each thread."""

    def draw(rng: Random) -> Problem:
        names, n, count = pick(rng, 2, "array"), pick(rng, 1, "length")[0], rng.choice((5, 6, 7, 8, 9))
        place, strided = rng.choice((0, count // 2, count - 1, count - 2)), rng.random() < 0.5
        x = array(names[0], "in", "float32", *((str(count), n) if strided else (n, str(count))), drawn="normal")
        y = array(names[1], "out", "float32", n)
        style = draw_style(rng, {*names, n})
        plan = _Sorted(style, x, y, n, count, place, strided)
        reference = f"np.sort({x.name}, axis=0)[{place}]" if strided else f"np.sort({x.name}, axis=1)[:, {place}]"
        return Problem(
            family,
            "target",
            kernel_name(rng, family),
            (x, y, scalar(n)),
            ({n: 8192}, {n: 1021}, {n: 1}),
            {n: 1 << 21},
            reference,
            ("local_array", "no_restrict"),
            plan.draft,
            style,
        )

    return draw
