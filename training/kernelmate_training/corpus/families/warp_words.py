"""Instructions that take a word at once: products of four bytes, and a warp's votes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import (
    Arg,
    Code,
    Draft,
    Flaws,
    Problem,
    Style,
    array,
    draw_style,
    scalar,
)
from kernelmate_training.corpus.families.hardware import aligned
from kernelmate_training.corpus.families.maps import flat_sizes
from kernelmate_training.corpus.families.reducing import FULL
from kernelmate_training.corpus.families.words import kernel_name, pick


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
            code.open(f"if ({aligned((self.a, self.x), 4)})")
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
        return code.drafted(flaws, (f"cdiv({self.n}, {self.block})",), (self.block,))


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
