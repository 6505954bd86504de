"""Maps over three dimensions, and sums over all pairs, over bags of rows, and over the bits of words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import Arg, Code, Draft, Flaws, Kind, Problem, Style, array, draw_style, scalar
from kernelmate_training.corpus.expressions import SMOOTH, Emitter, Expr, grow, numpy_text, var
from kernelmate_training.corpus.families.reducing import FULL
from kernelmate_training.corpus.families.words import kernel_name, pick

DIMENSIONS = (
    ("planes", "rows", "cols"),
    ("nz", "ny", "nx"),
    ("batch", "channels", "pixels"),
    ("heads", "steps", "feat"),
    ("D", "H", "W"),
)


@dataclass(frozen=True)
class _Cube:
    """Writes the versions of a map of three dimensions, at times stored in another order of them.

    Attributes:
        order: places of the output's dimensions among the input's, the slowest first.
    """

    style: Style
    x: Arg
    along: Arg
    axis: int
    y: Arg
    dims: tuple[str, str, str]
    order: tuple[int, int, int]
    value: Expr

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        names = (style.n("z"), style.n("row"), style.n("col"))
        out = [names[k] for k in self.order]
        bounds = dict(zip(names, self.dims, strict=True))
        block: tuple[int, ...] = (32, 4, 2)
        if "slow_order" in flaws or "flat_index" in flaws:
            i, block = style.n("i"), (256,)
            total = " * ".join(self.dims)
            grid: tuple[str, ...] = (f"cdiv({total}, block)",)
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, total))
            first, second, third = (out[0], out[1], out[2]) if "slow_order" in flaws else (out[2], out[1], out[0])
            code(f"{style.const_word}int {first} = {i} % {bounds[first]};")
            code(f"{style.const_word}int {second} = {i} / {bounds[first]} % {bounds[second]};")
            code(f"{style.const_word}int {third} = {i} / ({bounds[first]} * {bounds[second]});")
        elif "thread_per_row" in flaws:
            block, grid = (64, 2), (f"cdiv({bounds[out[1]]}, block_x)", f"cdiv({bounds[out[0]]}, block_y)")
            code(
                f"{style.const_word}int {out[1]} = {style.gid('x')};",
                f"{style.const_word}int {out[0]} = {style.gid('y')};",
            )
            code.guard((out[0], bounds[out[0]]), (out[1], bounds[out[1]]))
            code.loop(out[2], "0", bounds[out[2]])
        else:
            x, y, z = (out[0], out[1], out[2]) if "swapped_axes" in flaws else (out[2], out[1], out[0])
            block = (8, 8, 4) if "swapped_axes" in flaws else block
            for axis, name in zip("xyz", (x, y, z), strict=True):
                code(f"{style.const_word}int {name} = {style.gid(axis)};")
            code.guard(*((name, bounds[name]) for name in names))
            grid = tuple(f"cdiv({bounds[name]}, block_{axis})" for axis, name in zip("xyz", (x, y, z), strict=True))
        place = f"({names[0]} * {self.dims[1]} + {names[1]}) * {self.dims[2]} + {names[2]}"
        spelled = {"v": f"{self.x.name}[{place}]", "w": f"{self.along.name}[{names[self.axis]}]"}
        emitter = Emitter("float", "double_literals" in flaws, names=spelled, const_word=style.const_word)
        text = emitter.text(self.value)
        to = f"({out[0]} * {bounds[out[1]]} + {out[1]}) * {bounds[out[2]]} + {out[2]}"
        code(*emitter.statements, f"{self.y.name}[{to}] = {text};")
        return code.drafted(flaws, grid, block)


def cubes(family: str, kind: Kind, *, turned: bool) -> Callable[[Random], Problem]:
    """Maps of three dimensions with a factor along one; `turned`: stored in another order."""

    def draw(rng: Random) -> Problem:
        names, dims = pick(rng, 3, "array"), rng.choice(DIMENSIONS)
        axis = rng.randrange(3)
        order = rng.choice(((1, 0, 2), (2, 1, 0), (0, 2, 1), (1, 2, 0), (2, 0, 1))) if turned else (0, 1, 2)
        x, along = (
            array(names[0], "in", "float32", *dims, drawn="normal"),
            array(names[1], "in", "float32", dims[axis], drawn="normal"),
        )
        y = array(names[2], "out", "float32", *(dims[k] for k in order))
        value = grow(rng, [var("v"), var("w")], extra=rng.randint(0, 2), unary=SMOOTH)
        style = draw_style(rng, {*names, *dims, "v", "w"})
        plan = _Cube(style, x, along, axis, y, dims, order, value)
        sizes = tuple(dict(zip(dims, size, strict=True)) for size in ((12, 24, 64), (5, 7, 19), (1, 1, 1)))
        at = f"{along.name}" + ("[:, None, None]", "[:, None]", "")[axis]
        reference = f"({numpy_text(value, {'v': x.name, 'w': at})}).transpose({', '.join(map(str, order))})"
        flaws = ["swapped_axes", "slow_order", "flat_index", "thread_per_row", "no_restrict", "double_literals"]
        large = dict(zip(dims, (64, 128, 512), strict=True))
        return Problem(
            family, kind, kernel_name(rng, family), (x, along, y, *(scalar(d) for d in dims)), sizes, large, reference, tuple(flaws),
            plan.draft, style, exclusive=(frozenset({"swapped_axes", "slow_order", "flat_index", "thread_per_row"}),),
        )  # fmt: skip

    return draw


@dataclass(frozen=True)
class _Warped:
    """Writes the versions of one sum for each of many outputs: by a thread, or by a warp.

    Attributes:
        form: `rank` (over all pairs), `bits` (of words), `bags` (of rows of a table).
    """

    style: Style
    form: str
    arrays: tuple[Arg, ...]
    y: Arg
    sizes: tuple[str, ...]
    term: str
    warps: int

    def draft(self, flaws: Flaws) -> Draft:
        return self._bags(flaws) if self.form == "bags" else self._sums(flaws)

    def _sums(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        i, j, acc, bit = style.n("i"), style.n("loop"), style.n("acc"), style.n("loop2")
        n, last = self.sizes[0], self.sizes[-1]
        alone = "thread_per_row" in flaws
        if alone:
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, n))
        else:
            code(f"{style.const_word}int {i} = blockIdx.x * blockDim.y + threadIdx.y;")
            code(f"if ({i} >= {n}) return;")
        code(f"int {acc} = 0;")
        code.loop(j, "0" if alone else "threadIdx.x", last, None if alone else "32")
        if self.form == "bits":
            a, b = self.arrays
            word, place = style.n("tmp"), f"{i} * {last} + {j}"
            code(
                f"{style.const_word}unsigned int {word} = {self.term.format(a=f'{a.name}[{place}]', b=f'{b.name}[{j}]')};"
            )
            if "bit_loop" in flaws:
                code(f"for (int {bit} = 0; {bit} < 32; ++{bit}) {acc} += ({word} >> {bit}) & 1u;")
            else:
                code(f"{acc} += __popc({word});")
        else:
            x = self.arrays[0].name
            code(f"{acc} += ({self.term.format(a=f'{x}[{j}]', b=f'{x}[{i}]')}) ? 1 : 0;")
        code.close()
        if alone:
            code(f"{self.y.name}[{i}] = {acc};")
            return code.drafted(flaws, (f"cdiv({n}, block)",), (128,))
        half = style.n("half")
        code(f"for (int {half} = 16; {half} > 0; {half} /= 2) {acc} += __shfl_xor_sync({FULL}, {acc}, {half});")
        code.when("threadIdx.x == 0", f"{self.y.name}[{i}] = {acc};")
        return code.drafted(flaws, (f"cdiv({n}, block_y)",), (32, self.warps))

    def _bags(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        bag, d, j, acc = style.n("row"), style.n("col"), style.n("loop"), style.n("acc")
        bags, dim, length = self.sizes
        table, ids = self.arrays[:2]
        weight = f"{self.arrays[2].name}[{bag} * {length} + {j}] * " if len(self.arrays) > 2 else ""
        if "thread_per_row" in flaws:
            grid, block = (f"cdiv({bags}, block)",), (64,)
            code(f"{style.const_word}int {bag} = {style.gid()};")
            code.guard((bag, bags))
            code.loop(d, "0", dim)
        else:
            grid, block = (bags,), (32 * self.warps,)
            code(f"{style.const_word}int {bag} = blockIdx.x;")
            code.loop(d, "threadIdx.x", dim, "blockDim.x")
        place = f"{self.y.name}[{bag} * {dim} + {d}]"
        acc = place if "global_accumulator" in flaws else acc
        zero = "0.0" if "double_literals" in flaws else "0.0f"
        code(f"{acc} = {zero};" if acc == place else f"float {acc} = {zero};")
        code.loop(j, "0", length)
        code(f"{acc} += {weight}{table.name}[{ids.name}[{bag} * {length} + {j}] * {dim} + {d}];")
        code.close()
        if acc != place:
            code(f"{place} = {acc};")
        return code.drafted(flaws, grid, block)


def ranks(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Number of elements below each one."""

    def draw(rng: Random) -> Problem:
        names, n = pick(rng, 2, "array"), pick(rng, 1, "length")[0]
        x, y = array(names[0], "in", "float32", n, drawn="normal"), array(names[1], "out", "int32", n)
        term, spelled = rng.choice(
            (
                ("{a} < {b}", "{v}[None, :] < {v}[:, None]"),
                ("{a} > {b}", "{v}[None, :] > {v}[:, None]"),
                ("{a} <= {b}", "{v}[None, :] <= {v}[:, None]"),
            )
        )
        plan = _Warped(draw_style(rng, {*names, n}), "rank", (x,), y, (n,), term, rng.choice((4, 8)))
        reference = f"({spelled.format(v=x.name)}).sum(axis=1)"
        return Problem(
            family,
            kind,
            kernel_name(rng, family),
            (x, y, scalar(n)),
            ({n: 320}, {n: 101}, {n: 1}),
            {n: 4096},
            reference,
            ("thread_per_row", "no_restrict"),
            plan.draft,
            plan.style,
        )

    return draw


def bits(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Bits in which rows of words and a pattern agree, differ, or are both set."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 3, "array")
        rows, cols = pick(rng, 2, "sides")
        a, b, y = (
            array(names[0], "in", "uint32", rows, cols, drawn="integers(0, 4294967295)"),
            array(names[1], "in", "uint32", cols, drawn="integers(0, 4294967295)"),
            array(names[2], "out", "int32", rows),
        )
        term, sign = rng.choice((("{a} ^ {b}", "^"), ("{a} & {b}", "&"), ("{a} | {b}", "|")))
        plan = _Warped(draw_style(rng, {*names, rows, cols}), "bits", (a, b), y, (rows, cols), term, rng.choice((4, 8)))
        word = f"({a.name} {sign} {b.name})"
        reference = f"(({word}[..., None] >> np.arange(32, dtype=np.uint32)) & 1).sum(axis=(1, 2))"
        sizes = ({rows: 48, cols: 64}, {rows: 37, cols: 29}, {rows: 1, cols: 1})
        return Problem(
            family,
            kind,
            kernel_name(rng, family),
            (a, b, y, scalar(rows), scalar(cols)),
            sizes,
            {rows: 16384, cols: 256},
            reference,
            ("bit_loop", "thread_per_row", "no_restrict"),
            plan.draft,
            plan.style,
        )

    return draw


def bags(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Sums of rows of a table that lists of indices name."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 4, "array")
        table, ids = (
            array(names[0], "in", "float32", "vocab", "dim", drawn="normal"),
            array(names[1], "in", "int32", "bags", "length", drawn="integers(0, vocab)"),
        )
        more = (
            (array(names[2], "in", "float32", "bags", "length", drawn="uniform(0, 1)"),) if rng.random() < 0.5 else ()
        )
        y = array(names[3], "out", "float32", "bags", "dim")
        plan = _Warped(
            draw_style(rng, {*names, "vocab", "dim", "bags", "length"}),
            "bags",
            (table, ids, *more),
            y,
            ("bags", "dim", "length"),
            "",
            rng.choice((1, 2, 4)),
        )
        rows = f"{table.name}[{ids.name}]"
        reference = f"({rows} * {more[0].name}[:, :, None]).sum(axis=1)" if more else f"{rows}.sum(axis=1)"
        made = ((40, 64, 6, 50), (13, 37, 5, 11), (1, 1, 1, 1))
        sizes = tuple(dict(zip(("bags", "dim", "length", "vocab"), size, strict=True)) for size in made)
        return Problem(
            family, kind, kernel_name(rng, family), (table, ids, *more, y, scalar("bags"), scalar("dim"), scalar("length")), sizes,
            {"bags": 8192, "dim": 256, "length": 8, "vocab": 3000}, reference,
            ("thread_per_row", "global_accumulator", "no_restrict", "double_literals"), plan.draft, plan.style, require=("vocab > 0",),
        )  # fmt: skip

    return draw
