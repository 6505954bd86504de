"""Copies that store an array of three or four dimensions in another order, and words that are taken apart into several elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import Arg, Code, Draft, Flaws, Kind, Problem, Style, array, draw_style, scalar
from kernelmate_training.corpus.families.words import kernel_name, pick

DIMENSIONS: tuple[tuple[str, ...], ...] = (
    ("batch", "height", "width", "channels"),
    ("B", "T", "H", "D"),
    ("n", "c", "h", "w"),
    ("heads", "tokens", "dim"),
    ("planes", "rows", "cols"),
    ("nz", "ny", "nx"),
    ("frames", "bins", "bands"),
)
SIDE = 32
"""Of a tile."""


@dataclass(frozen=True)
class _Layout:
    """Writes the versions of a permuting copy, at times turned round along one dimension and scaled.

    Attributes:
        order: places of the output's dimensions among the input's, the slowest first.
        mirrored: the dimension that runs backwards in the output; None for none.
        factor: a literal that values are multiplied by; empty for none.
    """

    style: Style
    x: Arg
    y: Arg
    dims: tuple[str, ...]
    names: tuple[str, ...]
    order: tuple[int, ...]
    mirrored: int | None
    factor: str
    thin: int

    def draft(self, flaws: Flaws) -> Draft:
        turning = self.order[-1] != len(self.dims) - 1
        if turning and not flaws & {"strided_copy", "slow_order", "swapped_axes"}:
            return self._tiled(flaws)
        return self._axes(flaws) if "swapped_axes" in flaws else self._flat(flaws)

    def _flat(self, flaws: Flaws) -> Draft:
        """A thread per element of the output, whose number is taken apart."""
        style, code = self.style, Code(self.style)
        i, total = style.n("i"), " * ".join(self.dims)
        kind = "long long" if "wide_index" in flaws else "int"
        first = f"({kind}){style.gid()}" if kind != "int" and not style.turned else style.gid()
        code(f"{style.const_word}{kind} {i} = {first};")
        code.guard((i, total))
        # The output's fastest dimension comes out of the remainder first, or its slowest where that is the flaw.
        places = self.order if "slow_order" in flaws else tuple(reversed(self.order))
        self._apart(code, i, places, kind)
        self._copy(code, flaws)
        return code.drafted(flaws, (f"cdiv({total}, block)",), (256,))

    def _apart(self, code: Code, number: str, places: tuple[int, ...], kind: str = "int") -> None:
        """Statements that take a number apart; the first of the places varies fastest."""
        word, passed = self.style.const_word, ""
        for at, place in enumerate(places):
            over = f"{number} / ({passed})" if " * " in passed else f"{number} / {passed}" if passed else number
            rest = "" if at == len(places) - 1 else f" % {self.dims[place]}"
            code(f"{word}{kind} {self.names[place]} = {over}{rest};")
            passed = f"{passed} * {self.dims[place]}" if passed else self.dims[place]

    def _axes(self, flaws: Flaws) -> Draft:
        """Three axes of the launch, the first of which runs over the slowest dimension; a fourth is a loop."""
        style, code = self.style, Code(self.style)
        axes = self.order[:3]
        for axis, place in zip("xyz", axes, strict=True):
            code(f"{style.const_word}int {self.names[place]} = {style.gid(axis)};")
        code.guard(*((self.names[place], self.dims[place]) for place in axes))
        for place in self.order[3:]:
            code.loop(self.names[place], "0", self.dims[place])
        self._copy(code, flaws)
        grid = tuple(f"cdiv({self.dims[place]}, block_{axis})" for axis, place in zip("xyz", axes, strict=True))
        return code.drafted(flaws, grid, (8, 8, 4))

    def _copy(self, code: Code, flaws: Flaws) -> None:
        value = f"{self.x.name}[{self._from()}]"
        code(f"{self.y.name}[{self._to()}] = {self._scaled(value, flaws)};")

    def _scaled(self, value: str, flaws: Flaws) -> str:
        suffix = "" if "double_literals" in flaws else "f"
        return f"{self.factor}{suffix} * {value}" if self.factor else value

    def _from(self) -> str:
        return _place([self.names[k] for k in range(len(self.dims))], self.dims)

    def _to(self) -> str:
        def at(place: int) -> str:
            name, bound = self.names[place], self.dims[place]
            return f"({bound} - 1 - {name})" if place == self.mirrored else name

        return _place([at(k) for k in self.order], [self.dims[k] for k in self.order])

    def _tiled(self, flaws: Flaws) -> Draft:
        """Tiles of the input's and the output's fastest dimensions, turned round in shared memory."""
        style, code = self.style, Code(self.style)
        fast_in, fast_out = len(self.dims) - 1, self.order[-1]
        others = tuple(k for k in reversed(range(len(self.dims))) if k not in (fast_in, fast_out))
        tile, step, z = style.n("tile"), style.n("loop"), style.n("z")
        pad = "" if "bank_conflicts" in flaws else " + 1"
        code(f"__shared__ {self.x.c_type} {tile}[{SIDE}][{SIDE}{pad}];")
        if len(others) == 1:
            code(f"{style.const_word}int {self.names[others[0]]} = blockIdx.z;")
        else:
            code(f"{style.const_word}int {z} = blockIdx.z;")
            self._apart(code, z, others)
        one, other = self.names[fast_in], self.names[fast_out]
        for stored in (False, True):
            code.loop(step, "threadIdx.y", str(SIDE), str(self.thin))
            code(
                f"{style.const_word}int {one} = blockIdx.x * {SIDE} + {step if stored else 'threadIdx.x'};",
                f"{style.const_word}int {other} = blockIdx.y * {SIDE} + {'threadIdx.x' if stored else step};",
            )
            inside = f"{one} < {self.dims[fast_in]} && {other} < {self.dims[fast_out]}"
            if stored:
                value = self._scaled(f"{tile}[threadIdx.x][{step}]", flaws)
                code.when(inside, f"{self.y.name}[{self._to()}] = {value};")
            else:
                code.when(inside, f"{tile}[{step}][threadIdx.x] = {self.x.name}[{self._from()}];")
            code.close()
            if not stored:
                code("__syncthreads();")
        grid = (f"cdiv({self.dims[fast_in]}, {SIDE})", f"cdiv({self.dims[fast_out]}, {SIDE})")
        deep = " * ".join(self.dims[k] for k in others)
        return code.drafted(flaws, (*grid, deep), (SIDE, self.thin))


def _place(names: list[str], dims: list[str] | tuple[str, ...]) -> str:
    """The place of an element in a row-major array of any dimensions."""
    text = names[0]
    for name, dim in zip(names[1:], dims[1:], strict=True):
        text = f"({text}) * {dim} + {name}" if " " in text else f"{text} * {dim} + {name}"
    return text


def layouts(family: str, kind: Kind, *, count: int, turning: bool, dtypes: tuple[str, ...]) -> Callable[[Random], Problem]:  # fmt: skip
    """Permuting copies of arrays of `count` dimensions; `turning`: another dimension becomes the fastest one."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 2, "array")
        dims = rng.choice([known for known in DIMENSIONS if len(known) == count])
        order = _order(rng, count, turning=turning)
        dtype = rng.choice(dtypes)
        x = array(names[0], "in", dtype, *dims, drawn="integers(0, 120)" if "int" in dtype else "normal")
        y = array(names[1], "out", dtype, *(dims[k] for k in order))
        style = draw_style(rng, {*names, *dims})
        indices = [f"{letter}{rng.choice(('', 'i', '0'))}" for letter in rng.sample("bcdefgmrstuv", count)]
        while set(indices) & ({*names, *dims} | set(style.names.values())):
            indices = [f"{letter}_" for letter in rng.sample("bcdefgmrstuv", count)]
        mirrored = rng.randrange(count) if rng.random() < 0.25 else None
        factor = str(rng.choice((0.5, 2.0, 0.25, 1.5, 0.1))) if dtype == "float32" and rng.random() < 0.5 else ""
        plan = _Layout(style, x, y, dims, tuple(indices), order, mirrored, factor, rng.choice((4, 8, 8, 16)))
        sizes, large = _extents(rng, dims)
        seen = x.name if mirrored is None else f"np.flip({x.name}, {mirrored})"
        reference = f"({factor or 1} * {seen}).transpose({', '.join(map(str, order))})" if factor else f"{seen}.transpose({', '.join(map(str, order))})"  # fmt: skip
        flaws = ["slow_order", "swapped_axes", "no_restrict", "wide_index"]
        flaws += ["strided_copy", "bank_conflicts"] if turning else []
        flaws += ["double_literals"] if factor else []
        rough = {"slow_order", "swapped_axes", *(["strided_copy"] if turning else [])}
        return Problem(
            family, kind, kernel_name(rng, family), (x, y, *(scalar(d) for d in dims)), sizes, large, reference, tuple(flaws),
            plan.draft, style, exclusive=(frozenset(rough),),
        )  # fmt: skip

    return draw


def _order(rng: Random, count: int, *, turning: bool) -> tuple[int, ...]:
    while True:
        order = tuple(rng.sample(range(count), count))
        if order != tuple(range(count)) and (order[-1] != count - 1) == turning:
            return order


def _extents(rng: Random, dims: tuple[str, ...]) -> tuple[tuple[dict[str, int], ...], dict[str, int]]:
    """Sizes of the contract and a large one: the dimensions differ, so that mistaking one for another shows."""
    head = rng.choice(((3, 12, 20, 40), (2, 18, 34, 24), (4, 10, 33, 36))[: None if len(dims) == 4 else 3])
    odd = rng.choice(((2, 3, 5, 37), (3, 2, 7, 19), (2, 5, 3, 33)))
    large = rng.choice(((8, 64, 64, 128), (16, 32, 96, 64), (4, 128, 48, 160)))
    sizes = tuple(dict(zip(dims, one[-len(dims) :], strict=True)) for one in (head, odd, (1, 1, 1, 1)))
    wide = dict(zip(dims, large[-len(dims) :], strict=True))
    if len(dims) == 3:
        wide[dims[0]] *= 8
    return sizes, wide


@dataclass(frozen=True)
class _Unpack:
    """Writes the versions of a kernel that takes fields of words apart: a thread per word, or per field."""

    style: Style
    x: Arg
    y: Arg
    n: str
    fields: int
    width: int
    value: str

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        i, field, word = style.n("i"), style.n("loop"), style.n("tmp")
        mask = hex((1 << self.width) - 1) + "u"
        if "chunked" in flaws:
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, self.n))
            code(f"{style.const_word}unsigned int {word} = {self.x.name}[{i}];")
            code.loop(field, "0", str(self.fields))
            raw = f"(({word} >> ({self.width} * {field})) & {mask})"
            code(f"{self.y.name}[{i} * {self.fields} + {field}] = {self._text(raw, flaws)};")
            total = self.n
        else:
            total = f"{self.n} * {self.fields}"
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, total))
            code(f"{style.const_word}unsigned int {word} = {self.x.name}[{i} / {self.fields}];")
            raw = f"(({word} >> ({self.width} * ({i} % {self.fields}))) & {mask})"
            code(f"{self.y.name}[{i}] = {self._text(raw, flaws)};")
        bare = "no_restrict" in flaws
        return Draft(code.finish(), (f"cdiv({total}, block)",), (256,), restrict=not bare, constant=not bare)

    def _text(self, raw: str, flaws: Flaws) -> str:
        suffix = "" if "double_literals" in flaws else "f"
        return self.value.format(v=f"(float){raw}", f=suffix) if self.y.dtype == "float32" else f"(int){raw}"


def unpacking(family: str, kind: Kind) -> Callable[[Random], Problem]:
    """Nibbles, bytes and other fields of words as floats or ints."""

    def draw(rng: Random) -> Problem:
        names, n = pick(rng, 2, "array"), pick(rng, 1, "length")[0]
        fields, width = rng.choice(((8, 4), (4, 8), (16, 2), (2, 16), (3, 10), (5, 6)))
        dtype = rng.choice(("float32", "float32", "int32"))
        x = array(names[0], "in", "uint32", n, drawn="integers(0, 4294967295)")
        y = array(names[1], "out", dtype, n, str(fields))
        value, spelled = rng.choice(
            (("{v} * 0.25{f} - 1.0{f}", "{v} * 0.25 - 1"), ("{v} * 0.0625{f}", "{v} * 0.0625"), ("{v} - 8.0{f}", "{v} - 8"))
        )  # fmt: skip
        style = draw_style(rng, {*names, n})
        plan = _Unpack(style, x, y, n, fields, width, value)
        raw = f"(({x.name}[:, None] >> ({width} * np.arange({fields}, dtype=np.uint32))) & {2**width - 1}).astype(np.int64)"
        reference = raw if dtype == "int32" else spelled.format(v=raw)
        flaws = ("chunked", "no_restrict", *(("double_literals",) if dtype == "float32" else ()))
        sizes = ({n: rng.choice((512, 1000))}, {n: 37}, {n: 1})
        large = {n: (1 << 23) // fields}
        return Problem(
            family, kind, kernel_name(rng, family), (x, y, scalar(n)), sizes, large, reference, flaws, plan.draft, style
        )

    return draw
