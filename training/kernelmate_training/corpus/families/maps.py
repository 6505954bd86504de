"""Element-wise families: every output element depends on inputs at the same position, or of the same row or column."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
    store,
)
from kernelmate_training.corpus.expressions import (
    UNARY,
    Emitter,
    Expr,
    Real,
    divides,
    grow,
    has,
    has_literals,
    names_of,
    numpy_text,
    var,
)
from kernelmate_training.corpus.families.words import kernel_name, pick

Where = str
"""Index of an input: `all` for the output's index, `row`, `col`, or `none` for a scalar argument."""


@dataclass(frozen=True, slots=True)
class Input:
    """A value of the expression: an array argument or a scalar, and its index."""

    arg: Arg
    where: Where


@dataclass(frozen=True, slots=True)
class Result:
    """An output array and its expression; an update in place reads the array by its own name."""

    arg: Arg
    expr: Expr


@dataclass(frozen=True, slots=True)
class Map:
    """An element-wise problem.

    Attributes:
        dims: names of the sizes, slowest first.
    """

    dims: tuple[str, ...]
    inputs: tuple[Input, ...]
    results: tuple[Result, ...]
    real: Real


def map_problem(
    rng: Random, family: str, kind: Kind, made: Map, style: Style, name: str,
    sizes: tuple[Mapping[str, int], ...], large: Mapping[str, int],
) -> Problem:  # fmt: skip
    """Returns a problem of an element-wise map, with every flaw that its shape allows."""
    block = rng.choice((64, 128, 256, 256, 512))
    sides = rng.choice(((32, 8), (16, 16), (64, 4), (32, 4)))
    chunk = rng.choice((4, 8, 16))
    used = tuple(i.arg for i in made.inputs) + tuple(r.arg for r in made.results)
    args = tuple(dict.fromkeys(used))
    args = (*args, *(scalar(d) for d in made.dims))
    if rng.random() < 0.4:
        scalars = [a for a in args if a.shape is None]
        args = (*(a for a in args if a.shape is not None), *scalars)
    exprs = [r.expr for r in made.results]
    flaws = ["no_restrict"]
    if made.real == "float" and any(has_literals(e) for e in exprs):
        flaws.append("double_literals")
    if made.real != "int":
        flaws += ["powers"] if any(has(e, "square", "cube") for e in exprs) else []
        flaws += ["divides"] if any(divides(e) for e in exprs) else []
    flat = len(made.dims) == 1
    access = ("chunked", "one_block", "tiny_block") if flat else ("swapped_axes", "thread_per_row", "flat_index")
    flaws += access
    flaws.append("wide_index")
    if made.real != "int" and all(r.arg.dtype in ("float32", "float64") for r in made.results):
        flaws.append("through_memory")
    plan = _Plan(made, style, block, sides, chunk)
    return Problem(
        family, kind, name, args, sizes, large, _reference(made), tuple(flaws), plan.draft, style,
        exclusive=(frozenset(access),),
    )  # fmt: skip


def _reference(made: Map) -> str:
    names = {}
    for given in made.inputs:
        if given.where == "row":
            names[given.arg.name] = f"{given.arg.name}[:, None]"
    texts = [numpy_text(r.expr, names) for r in made.results]
    shape = ", ".join(made.dims)
    shown = [
        t if _full(made, r) else f"np.broadcast_to({t}, ({shape},))" for t, r in zip(texts, made.results, strict=True)
    ]
    return shown[0] if len(shown) == 1 else f"({', '.join(shown)})"


def _full(made: Map, result: Result) -> bool:
    used = names_of(result.expr)
    return any(i.where == "all" and i.arg.name in used for i in made.inputs) or result.arg.name in used


@dataclass(frozen=True)
class _Plan:
    """Writer of the versions of one map."""

    made: Map
    style: Style
    block: int
    sides: tuple[int, int]
    chunk: int

    def draft(self, flaws: Flaws) -> Draft:
        return self._flat(flaws) if len(self.made.dims) == 1 else self._plane(flaws)

    def _flat(self, flaws: Flaws) -> Draft:
        style, n = self.style, self.made.dims[0]
        code, i = Code(style), style.n("i")
        block = 32 if "tiny_block" in flaws else self.block
        grid: tuple[str, ...] = (f"cdiv({n}, block)",)
        if "one_block" in flaws:
            grid = ("1",)
            code.loop(i, "threadIdx.x", n, "blockDim.x", kind=style.index)
        elif "chunked" in flaws:
            grid = (f"cdiv({n}, {self.chunk * block})",)
            first, at = style.n("row"), style.n("loop")
            code(f"{style.const_word}int {first} = ({style.gid()}) * {self.chunk};")
            code.loop(at, "0", str(self.chunk))
            code(f"{style.const_word}int {i} = {first} + {at};")
            code.guard((i, n), early=False)
        else:
            wide = "wide_index" in flaws
            code(
                f"{style.const_word}{'long long' if wide else style.index} {i} = {'(long long)' if wide else ''}{style.gid()};"
            )
            code.guard((i, n))
        self._work(code, flaws, {"all": i})
        return code.drafted(flaws, grid, (block,))

    def _plane(self, flaws: Flaws) -> Draft:
        style = self.style
        rows, cols = self.made.dims[-2:]
        code, row, col = Code(style), style.n("row"), style.n("col")
        places = {"all": style.at(row, cols, col), "row": row, "col": col}
        block: tuple[int, ...] = self.sides
        if "thread_per_row" in flaws:
            block = (self.block,)
            grid: tuple[str, ...] = (f"cdiv({rows}, block)",)
            code(f"{style.const_word}int {row} = {style.gid()};")
            code.guard((row, rows))
            code.loop(col, "0", cols)
        elif "flat_index" in flaws:
            block, i = (self.block,), style.n("i")
            grid = (f"cdiv({rows} * {cols}, block)",)
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, f"{rows} * {cols}"))
            code(f"{style.const_word}int {row} = {i} / {cols};", f"{style.const_word}int {col} = {i} % {cols};")
            places["all"] = i
        else:
            x, y = (row, col) if "swapped_axes" in flaws else (col, row)
            bounds = {row: rows, col: cols}
            grid = (f"cdiv({bounds[x]}, block_x)", f"cdiv({bounds[y]}, block_y)")
            kind, cast = ("long long", "(long long)") if "wide_index" in flaws else ("int", "")
            code(
                f"{style.const_word}{kind} {x} = {cast}{style.gid('x')};",
                f"{style.const_word}{kind} {y} = {cast}{style.gid('y')};",
            )
            code.guard((row, rows), (col, cols))
        self._work(code, flaws, places)
        return code.drafted(flaws, grid, block)

    def _work(self, code: Code, flaws: Flaws, places: Mapping[str, str]) -> None:
        """Writes loads, arithmetic and stores of one element."""
        made, real = self.made, self.made.real
        at = places["all"]
        if not at.isidentifier() and (len(made.inputs) > 1 or self.style.const_word):
            name = self.style.n("i")
            code(f"{self.style.const_word}{'long long' if 'wide_index' in flaws else 'int'} {name} = {at};")
            at = name
        names: dict[str, str] = {}
        emitter = Emitter(
            real, "double_literals" in flaws, "powers" in flaws, "divides" in flaws or real == "int", names,
            const_word=self.style.const_word,
        )  # fmt: skip
        kept = len(made.results) > 1 or self.style.const_word != ""
        for given in made.inputs:
            text = self._read(given, at, places)
            if given.where != "none" and (kept or given.arg.dtype in ("float16", "bfloat16")):
                emitter_name = f"{given.arg.name}_v" if given.arg.name != self.style.n("tmp") else f"{given.arg.name}_w"
                code(f"{self.style.const_word}{real} {emitter_name} = {text};")
                text = emitter_name
            names[given.arg.name] = text
        waiting: list[str] = []
        for result in made.results:
            if "through_memory" in flaws:
                self._stepwise(code, emitter, result, at)
                continue
            text = emitter.text(result.expr)
            code(*emitter.statements)
            emitter.statements.clear()
            if len(made.results) > 1:
                name = f"{result.arg.name}_new"
                code(f"{self.style.const_word}{real} {name} = {text};")
                text = name
            waiting.append(store(result.arg, at, text))
        code(*waiting)

    def _read(self, given: Input, at: str, places: Mapping[str, str]) -> str:
        if given.where == "none":
            return given.arg.name
        return load(given.arg, at if given.where == "all" else places[given.where], self.made.real)

    def _stepwise(self, code: Code, emitter: Emitter, result: Result, at: str) -> None:
        """Writes the outermost operations one after another, each through the output in memory."""
        place = f"{result.arg.name}[{at}]"
        expr = result.expr
        steps: list[tuple[str, Expr]] = []
        safe = len(self.made.results) == 1 or self.style.const_word != ""
        own = result.arg.name
        while expr.op in ("add", "sub", "mul", "div") and len(steps) < 3 and safe:
            rest = expr.args[1]
            if own in names_of(rest):
                break
            steps.append((expr.op, rest))
            expr = expr.args[0]
        text = emitter.text(expr)
        code(*emitter.statements)
        emitter.statements.clear()
        code(f"{place} = {text};")
        here = var("__here")
        emitter.names = {**emitter.names, "__here": place}
        for op, rest in reversed(steps):
            text = emitter.text(Expr(op, (here, rest)))
            code(*emitter.statements)
            emitter.statements.clear()
            code(f"{place} = {text};")


def flat_sizes(rng: Random, name: str) -> tuple[tuple[Mapping[str, int], ...], Mapping[str, int]]:
    """Returns sizes of one dimension (ordinary, odd, one), and a large one for timing."""
    ordinary = rng.choice((65536, 32768, 40000, 49152))
    return ({name: ordinary}, {name: rng.choice((3001, 1021, 2503, 4099, 1537))}, {name: 1}), {name: 1 << 22}


def plane_sizes(rng: Random, rows: str, cols: str) -> tuple[tuple[Mapping[str, int], ...], Mapping[str, int]]:
    """Returns sizes of two dimensions (ordinary, odd, one), and a large one for timing."""
    ordinary = rng.choice(((128, 512), (256, 256), (64, 768), (192, 320), (512, 96)))
    odd = rng.choice(((37, 53), (21, 101), (45, 77), (67, 29)))
    sizes = ({rows: ordinary[0], cols: ordinary[1]}, {rows: odd[0], cols: odd[1]}, {rows: 1, cols: 1})
    return sizes, {rows: 2048, cols: 2048}


def row_sizes(rng: Random, rows: str, cols: str) -> tuple[tuple[Mapping[str, int], ...], Mapping[str, int]]:
    """Returns sizes as `plane_sizes` does, with fewer elements, for kernels of whole rows, which take longer to emulate."""
    ordinary = rng.choice(((64, 256), (32, 512), (128, 160), (96, 192)))
    odd = rng.choice(((37, 53), (21, 101), (45, 77), (67, 29)))
    sizes = ({rows: ordinary[0], cols: ordinary[1]}, {rows: odd[0], cols: odd[1]}, {rows: 1, cols: 1})
    return sizes, {rows: 4096, cols: 1024}


Drawer = Callable[[Random], Problem]


def random_map(
    family: str, kind: Kind, *, inputs: tuple[Where, ...], outputs: int = 1, flat: bool = True, inplace: bool = False,
    extra: tuple[int, int] = (1, 4), dtypes: tuple[str, ...] = ("float32",), scalars: tuple[int, int] = (0, 1),
    unary: tuple[str, ...] = UNARY, source: str | None = None,
) -> Drawer:  # fmt: skip
    """Returns a family of maps with random expressions.

    Args:
        family: the family's name.
        kind: the usual limiter.
        inputs: index of each input array.
        outputs: number of output arrays.
        inplace: True if the first output is updated in place.
        flat: True for one dimension, else rows and columns.
        extra: bounds of the number of steps beyond joining the inputs.
        dtypes: dtypes to choose from, one for all arrays.
        source: dtype of the inputs if it differs.
        scalars: bounds of the number of scalar arguments.
        unary: functions that may occur.
    """

    def draw(rng: Random) -> Problem:
        dtype = rng.choice(dtypes)
        real: Real = "int" if dtype == "int32" else "double" if dtype == "float64" else "float"
        words = pick(rng, len(inputs) + outputs, "array")
        dims = tuple(pick(rng, 1, "length")) if flat else tuple(pick(rng, 2, "sides"))
        shapes = {"all": dims, "row": dims[:1], "col": dims[-1:]}
        drawn = "integers(-40, 40)" if real == "int" else rng.choice(("normal", "", "uniform(-2, 2)"))
        read = [
            Input(array(w, "in", source or dtype, *shapes[at], drawn="" if source else drawn), at)
            for w, at in zip(words, inputs, strict=False)
        ]
        count = rng.randint(*scalars) if real != "int" else 0
        factors = [
            Input(
                scalar(
                    s, "float64" if real == "double" else "float32", str(rng.choice((0.5, 1.5, 0.1, 2.0, 0.75, 0.9)))
                ),
                "none",
            )
            for s in pick(rng, count, "scalar")
        ]
        results = []
        for number, name in enumerate(words[len(inputs) :]):
            leaves = [var(i.arg.name) for i in (*read, *factors)]
            out = array(name, "out", dtype, *dims)
            if inplace and number == 0:
                out = array(name, "inout", dtype, *dims, drawn=drawn)
                leaves.append(var(name))
            results.append(Result(out, grow(rng, leaves, extra=rng.randint(*extra), unary=unary, whole=real == "int")))
        if inplace:
            read.append(Input(results[0].arg, "all"))
        style = draw_style(
            rng, {a for i in (*read, *factors) for a in (i.arg.name, f"{i.arg.name}_v")} | set(words) | set(dims)
        )
        sizes, large = flat_sizes(rng, dims[0]) if flat else plane_sizes(rng, *dims)
        made = Map(dims, (*read, *factors), tuple(results), real)
        return map_problem(rng, family, kind, made, style, kernel_name(rng, family), sizes, large)

    return draw
