"""Families that make one number, or one per block, of a whole array: sums, counts, extremes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import (
    Arg,
    Code,
    Draft,
    Flaws,
    Kind,
    Problem,
    Style,
    array,
    draw_style,
    load,
    scalar,
)
from kernelmate_training.corpus.expressions import (
    UNARY,
    Emitter,
    Expr,
    call,
    const,
    divides,
    grow,
    has,
    has_literals,
    numpy_text,
    var,
)
from kernelmate_training.corpus.families.maps import flat_sizes
from kernelmate_training.corpus.families.reducing import FULL, Op, Team, grown, neutral
from kernelmate_training.corpus.families.words import kernel_name, pick


@dataclass(frozen=True)
class _Total:
    """Writes the versions of one reduction over a whole array."""

    style: Style
    inputs: tuple[Arg, ...]
    out: Arg
    n: str
    element: Expr
    op: Op
    real: str
    block: int
    partials: bool
    chunk: int

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        block = 1024 if "huge_block" in flaws and not self.partials else self.block
        tid, i, acc, tile = style.n("tid"), style.n("i"), style.n("acc"), style.n("tile")
        team = Team(style, block, tid, flaws, self.real)
        each = "atomic_each" in flaws and not self.partials
        grid = (
            f"cdiv({self.n}, {block})"
            if self.partials or each or "full_grid" in flaws
            else f"min(cdiv({self.n}, block), 132)"
        )
        if not each:
            code(f"__shared__ {self.real} {tile}[{team.elements}];")
            if "second_buffer" in flaws:
                code(f"__shared__ {self.real} {style.n('tile2')}[{team.elements}];")
        if not each:
            code(f"{style.const_word}int {tid} = threadIdx.x;")
        if each:
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, self.n))
            self._add(code, flaws, i, None)
        else:
            code(f"{self.real} {acc} = {neutral(self.op, self.real)};")
            if self.partials or "full_grid" in flaws:
                code(f"{style.const_word}int {i} = {style.gid()};")
                code.guard((i, self.n), early=False)
            elif "chunked" in flaws:
                per, first, last = style.n("stride"), style.n("row"), style.n("col")
                code(
                    f"{style.const_word}int {per} = ({self.n} + gridDim.x * blockDim.x - 1) / (gridDim.x * blockDim.x);"
                )
                code(
                    f"{style.const_word}int {first} = ({style.gid()}) * {per};",
                    f"{style.const_word}int {last} = min({first} + {per}, {self.n});",
                )
                code.loop(i, first, last)
            else:
                code.loop(i, style.gid(), self.n, "blockDim.x * gridDim.x")
            self._add(code, flaws, i, acc)
            code.close()
            if "second_buffer" in flaws:
                code(f"{style.n('tile2')}[{tid} % {team.elements}] = {acc};", "__syncthreads();")
            team.reduce(code, self.op, acc, tile, again=False)
            code.when(f"{tid} == 0", self._end(acc))
        return code.drafted(flaws, (grid,), (block,))

    def _add(self, code: Code, flaws: Flaws, i: str, acc: str | None) -> None:
        emitter = Emitter(
            self.real, "double_literals" in flaws, "powers" in flaws, "divides" in flaws,  # type: ignore[arg-type]
            {a.name: load(a, i, self.real) for a in self.inputs if a.shape is not None}, const_word=self.style.const_word,
        )  # fmt: skip
        text = emitter.text(self.element)
        code(*emitter.statements, self._end(text) if acc is None else grown(self.op, acc, text, self.real))

    def _end(self, value: str) -> str:
        if self.partials:
            return f"{self.out.name}[blockIdx.x] = {value};"
        return f"atomic{'Add' if self.op == 'sum' else self.op.capitalize()}(&{self.out.name}[0], {value});"


def total(family: str, kind: Kind, form: str) -> Callable[[Random], Problem]:
    """A family of reductions: `sum`, `dot`, `partials`, `count`, `ints`, `error` (between two arrays)."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 3, "array")
        n = pick(rng, 1, "length")[0]
        whole = form in ("count", "ints")
        real = "int" if whole else "float"
        dtype = "int32" if form == "ints" else "float32"
        two = form in ("dot", "error") or (form == "partials" and rng.random() < 0.4)
        inputs = tuple(
            array(
                name,
                "in",
                dtype,
                n,
                drawn="integers(-30, 30)" if form == "ints" else rng.choice(("normal", "uniform(0, 1)")),
            )
            for name in names[: 1 + two]
        )
        a, b = var(names[0]), var(names[1])
        op: Op = "sum"
        if form == "count":
            element: Expr = Expr("above", (a if rng.random() < 0.5 else call("abs", a), const(0), const(1), const(0)))
            element = Expr("above", (a, var("limit"), const(1), const(0)))
            inputs = (*inputs, scalar("limit", "float32", str(rng.choice((0.25, 0.5, 0.75)))))
        elif form == "ints":
            op = rng.choice(("sum", "max", "min"))
            element = grow(rng, [a], extra=rng.randint(0, 2), whole=True)
        elif form == "dot":
            element = grow(rng, [a * b], extra=rng.randint(0, 1), unary=("relu", "clip", "abs"))
        elif form == "error":
            element = rng.choice((call("square", a - b), call("abs", a - b), call("log1p", call("abs", a - b))))
        else:
            element = grow(rng, [a, b] if two else [a], extra=rng.randint(0, 3), unary=UNARY)
            op = rng.choice(("sum", "max", "min")) if form == "partials" else "sum"
        block = rng.choice((128, 256, 512))
        partials = form == "partials"
        out = array(
            names[2],
            "out" if partials else "inout",
            "int32" if whole else "float32",
            f"cdiv({n}, {block})" if partials else "1",
            drawn="" if partials else "zeros",
        )
        style = draw_style(rng, {*names, n, "limit"})
        sizes, large = flat_sizes(rng, n)
        flaws = ["shared_tree", "modulo_tree", "oversized_shared", "extra_barriers", "no_restrict", "second_buffer"]
        flaws += [] if partials else ["atomic_each", "full_grid", "chunked"]
        if real == "float":
            flaws += ["double_literals"] if has_literals(element) else []
            flaws += ["powers"] if has(element, "square", "cube") else []
            flaws += ["divides"] if divides(element) else []
        plan = _Total(style, inputs, out, n, element, op, real, block, partials, 4)
        args = (*inputs, out, scalar(n)) if rng.random() < 0.7 else (out, *inputs, scalar(n))
        text = numpy_text(element, {})
        if partials:
            fill = {"sum": "0", "max": "-1e30", "min": "1e30"}[op]
            reference = f"np.pad({text}, (0, -{n} % {block}), constant_values={fill}).reshape(-1, {block}).{op}(axis=1)"
        elif op == "sum":
            reference = f"{out.name} + np.sum({text})"
        else:
            reference = f"np.{op}imum({out.name}, np.{op}({text}))"
        return Problem(
            family, kind, kernel_name(rng, family), args, sizes, large, reference, tuple(flaws), plan.draft, style,
            require=(f"{n} > 0",),
            exclusive=(frozenset({"atomic_each", "full_grid", "chunked"}), frozenset({"shared_tree", "modulo_tree"})),
        )  # fmt: skip

    return draw


@dataclass(frozen=True)
class _Warped:
    """Counting and adding integers by what warps have for it in hardware."""

    style: Style
    x: Arg
    out: Arg
    n: str
    limit: Arg | None
    block: int

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        i, tid, value, warp = style.n("i"), style.n("tid"), style.n("tmp"), style.n("acc")
        bare = "no_restrict" in flaws
        code(f"{style.const_word}int {tid} = threadIdx.x;", f"int {warp} = 0;")
        code.loop(i, style.gid(), self.n, "blockDim.x * gridDim.x")
        if self.limit is not None:
            code(f"{warp} += {self.x.name}[{i}] > {self.limit.name} ? 1 : 0;")
        else:
            code(f"{style.const_word}int {value} = {self.x.name}[{i}];", f"{warp} += {value} * {value};")
        code.close()
        if "integer_tree" in flaws:
            name = style.n("half")
            code(f"for (int {name} = 16; {name} > 0; {name} /= 2) {warp} += __shfl_xor_sync({FULL}, {warp}, {name});")
        else:
            code(f"{warp} = __reduce_add_sync({FULL}, {warp});")
        if "atomic_each" in flaws:
            code.when(f"{tid} % 32 == 0", f"atomicAdd(&{self.out.name}[0], {warp});")
        else:
            tile = style.n("tile")
            code.lines.insert(0, f"  __shared__ int {tile};")
            code.lines.insert(1, f"  if (threadIdx.x == 0) {tile} = 0;")
            code.lines.insert(2, "  __syncthreads();")
            code.when(f"{tid} % 32 == 0", f"atomicAdd(&{tile}, {warp});")
            code("__syncthreads();")
            code.when(f"{tid} == 0", f"atomicAdd(&{self.out.name}[0], {tile});")
        grid = f"cdiv({self.n}, block)" if "full_grid" in flaws else f"min(cdiv({self.n}, block), 264)"
        return Draft(code.finish(), (grid,), (self.block,), restrict=not bare, constant=not bare)


def warp_integers(family: str) -> Callable[[Random], Problem]:
    """Integers added or counted, with the warp's own instructions."""

    def draw(rng: Random) -> Problem:
        names, n = pick(rng, 2, "array"), pick(rng, 1, "length")[0]
        counts = rng.random() < 0.5
        limit = scalar("limit", "int32", str(rng.randint(-5, 5))) if counts else None
        x, out = (
            array(names[0], "in", "int32", n, drawn="integers(-20, 20)"),
            array(names[1], "inout", "int32", "1", drawn="zeros"),
        )
        style = draw_style(rng, {*names, n, "limit"})
        sizes, large = flat_sizes(rng, n)
        plan = _Warped(style, x, out, n, limit, rng.choice((128, 256, 512)))
        args = (x, out, *((limit,) if limit else ()), scalar(n))
        element = f"np.sum(({x.name} > limit).astype(np.int64))" if counts else f"np.sum({x.name} * {x.name})"
        return Problem(
            family, "target", kernel_name(rng, family), args, sizes, large, f"{out.name} + {element}",
            ("integer_tree", "full_grid", "no_restrict", "atomic_each"), plan.draft, style,
        )  # fmt: skip

    return draw
