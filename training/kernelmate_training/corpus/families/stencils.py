"""Families in which every output needs its neighbours in a plane: convolutions, pooling, steps of a grid in time."""

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
    store,
)
from kernelmate_training.corpus.expressions import CONSTANTS, Emitter, Expr, Real, call, const, numpy_text, var
from kernelmate_training.corpus.families.maps import plane_sizes
from kernelmate_training.corpus.families.words import kernel_name, pick


@dataclass(frozen=True)
class _Window:
    """Writes the versions of a stencil on a plane.

    Attributes:
        radius: of the window. form: `weights` (an array), `mean`, `max`, `star` (a cross, with factors), `sobel`.
        border: `zero` or `clamp`.
    """

    style: Style
    x: Arg
    w: Arg | None
    y: Arg
    rows: str
    cols: str
    radius: int
    form: str
    border: str
    factors: tuple[float, float]
    epilogue: Expr
    planes: str
    sides: tuple[int, int]

    def draft(self, flaws: Flaws) -> Draft:
        style, code = self.style, Code(self.style)
        row, col = style.n("row"), style.n("col")
        swapped = "swapped_axes" in flaws
        x, y = (row, col) if swapped else (col, row)
        bounds = {row: self.rows, col: self.cols}
        block: tuple[int, ...] = self.sides
        grid: tuple[str, ...] = (
            f"cdiv({bounds[x]}, block_x)",
            f"cdiv({bounds[y]}, block_y)",
            *((self.planes,) if self.planes else ()),
        )
        base = ""
        if self.planes:
            base = f"{style.n('z')} * {self.rows} * {self.cols} + "
            code(f"{style.const_word}int {style.n('z')} = blockIdx.z;")
        if "thread_per_row" in flaws:
            block, grid = (64,), (f"cdiv({self.rows}, block)", *(("1", self.planes) if self.planes else ()))
            code(f"{style.const_word}int {row} = {style.gid()};")
            code.guard((row, self.rows))
            code.loop(col, "0", self.cols)
        elif "flat_index" in flaws:
            i = style.n("i")
            block, grid = (
                (256,),
                (f"cdiv({self.rows} * {self.cols}, block)", *(("1", self.planes) if self.planes else ())),
            )
            code(f"{style.const_word}int {i} = {style.gid()};")
            code.guard((i, f"{self.rows} * {self.cols}"))
            code(
                f"{style.const_word}int {row} = {i} / {self.cols};", f"{style.const_word}int {col} = {i} % {self.cols};"
            )
        else:
            code(f"{style.const_word}int {x} = {style.gid('x')};", f"{style.const_word}int {y} = {style.gid('y')};")
            code.guard((row, self.rows), (col, self.cols))
        _WindowBody(self, code, flaws, base).write()
        return code.drafted(flaws, grid, block)


class _WindowBody:
    """The work of one output."""

    def __init__(self, plan: _Window, code: Code, flaws: Flaws, base: str) -> None:
        self.plan, self.code, self.flaws, self.base = plan, code, flaws, base
        self.row, self.col = plan.style.n("row"), plan.style.n("col")
        self.place = f"{plan.y.name}[{base}{self.row} * {plan.cols} + {self.col}]"
        self.real: Real = "double" if "wide_type" in flaws else "float"
        self.emitter = Emitter(
            self.real, "double_literals" in flaws, divides="divides" in flaws, const_word=plan.style.const_word
        )

    def write(self) -> None:
        plan, code, acc = self.plan, self.code, self.plan.style.n("acc")
        kept = "global_accumulator" in self.flaws and plan.form in ("weights", "mean") and plan.y.dtype == "float32"
        acc = self.place if kept else acc
        if plan.form == "star":
            self._star(acc)
        elif plan.form == "sobel":
            self._sobel(acc)
        else:
            start = "-1e30f" if plan.form == "max" else self.emitter.literal(0)
            code(f"{acc} = {start};" if kept else f"{self.real} {acc} = {start};")
            self._window(acc)
        names = {"acc": acc}
        self.emitter.names = names
        value = plan.epilogue
        text = self.emitter.text(value / const(float((2 * plan.radius + 1) ** 2)) if plan.form == "mean" else value)
        code(*self.emitter.statements)
        if not (kept and text == acc):
            code(store(plan.y, self.place.split("[", 1)[1][:-1], text))

    def _window(self, acc: str) -> None:
        plan, code, style = self.plan, self.code, self.plan.style
        dy, dx, r, c = style.n("loop"), style.n("loop2"), f"{style.n('half')}_r", f"{style.n('half')}_c"
        size = 2 * plan.radius + 1
        if style.turned:
            code.open(f"for (int {dy} = 0; {dy} < {size}; ++{dy})")
            code.open(f"for (int {dx} = 0; {dx} < {size}; ++{dx})")
            offsets, weight = (f"{dy} - {plan.radius}", f"{dx} - {plan.radius}"), f"{dy} * {size} + {dx}"
        else:
            code.open(f"for (int {dy} = -{plan.radius}; {dy} <= {plan.radius}; ++{dy})")
            code.open(f"for (int {dx} = -{plan.radius}; {dx} <= {plan.radius}; ++{dx})")
            offsets, weight = (dy, dx), f"({dy} + {plan.radius}) * {size} + {dx} + {plan.radius}"
        if plan.border == "clamp":
            code(f"{style.const_word}int {r} = min(max({self.row} + {offsets[0]}, 0), {plan.rows} - 1);")
            code(f"{style.const_word}int {c} = min(max({self.col} + {offsets[1]}, 0), {plan.cols} - 1);")
        else:
            code(
                f"{style.const_word}int {r} = {self.row} + {offsets[0]};",
                f"{style.const_word}int {c} = {self.col} + {offsets[1]};",
            )
            code.open(f"if ({r} >= 0 && {r} < {plan.rows} && {c} >= 0 && {c} < {plan.cols})")
        value = load(plan.x, f"{self.base}{r} * {plan.cols} + {c}", self.real)
        if plan.form == "max":
            code(f"{acc} = fmaxf({acc}, {value});")
        elif plan.w is not None:
            at = f"{style.n('z')} * {size * size} + {weight}" if plan.planes else weight
            code(f"{acc} += {load(plan.w, at, self.real)} * {value};")
        else:
            code(f"{acc} += {value};")
        code.close(2 if plan.border == "clamp" else 3)

    def _near(self, dy: int, dx: int) -> str:
        """A neighbour's value; beyond the border the value at the border, or 0."""
        plan, row, col = self.plan, self.row, self.col
        r = row if dy == 0 else f"({row} {'+' if dy > 0 else '-'} {abs(dy)})"
        c = col if dx == 0 else f"({col} {'+' if dx > 0 else '-'} {abs(dx)})"
        checks = [f"{row} > 0"] if dy < 0 else [f"{row} < {plan.rows} - 1"] if dy > 0 else []
        checks += [f"{col} > 0"] if dx < 0 else [f"{col} < {plan.cols} - 1"] if dx > 0 else []
        if plan.border == "clamp":
            r = row if dy == 0 else f"max({row} - 1, 0)" if dy < 0 else f"min({row} + 1, {plan.rows} - 1)"
            c = col if dx == 0 else f"max({col} - 1, 0)" if dx < 0 else f"min({col} + 1, {plan.cols} - 1)"
            checks = []
        value = load(plan.x, f"{self.base}{r} * {plan.cols} + {c}", self.real)
        return f"({' && '.join(checks)} ? {value} : {self.emitter.literal(0)})" if checks else value

    def _star(self, acc: str) -> None:
        plan, code, words = self.plan, self.code, self.plan.style.const_word
        middle = self._near(0, 0)
        code(f"{words}{self.real} up = {self._near(-1, 0)};", f"{words}{self.real} down = {self._near(1, 0)};")
        code(f"{words}{self.real} west = {self._near(0, -1)};", f"{words}{self.real} east = {self._near(0, 1)};")
        code(f"{words}{self.real} mid = {middle};")
        one, other = (self.emitter.literal(f) for f in plan.factors)
        code(f"{self.real} {acc} = {one} * mid + {other} * (up + down + west + east);")

    def _sobel(self, acc: str) -> None:
        code, words, near = self.code, self.plan.style.const_word, self._near
        two = self.emitter.literal(2)
        code(
            f"{words}{self.real} gx = {near(-1, 1)} - {near(-1, -1)} + {two} * ({near(0, 1)} - {near(0, -1)}) + {near(1, 1)} - {near(1, -1)};"
        )
        code(
            f"{words}{self.real} gy = {near(1, -1)} - {near(-1, -1)} + {two} * ({near(1, 0)} - {near(-1, 0)}) + {near(1, 1)} - {near(-1, 1)};"
        )
        root = "sqrt" if self.real == "double" else "sqrtf"
        code(f"{self.real} {acc} = {root}(gx * gx + gy * gy + {self.emitter.literal(0.01)});")


def window(
    family: str, kind: Kind, form: str, *, planes: bool = False, epilogues: bool = False
) -> Callable[[Random], Problem]:
    """A family of stencils on a plane, or on many."""

    def draw(rng: Random) -> Problem:
        names = pick(rng, 3, "array")
        rows, cols = pick(rng, 2, "sides")
        lead = ("planes",) if planes else ()
        dtype = rng.choice(("float32", "float32", "float32", "float16"))
        radius = rng.choice((1, 1, 2, 3)) if form in ("weights", "mean", "max") else 1
        size = 2 * radius + 1
        x, y = (
            array(names[0], "in", dtype, *lead, rows, cols, drawn="normal"),
            array(names[1], "out", dtype, *lead, rows, cols),
        )
        w = array(names[2], "in", dtype, *lead, str(size), str(size), drawn="normal") if form == "weights" else None
        acc = var("acc")
        epilogue = (
            rng.choice(
                (
                    acc,
                    call("relu", acc),
                    call("silu", acc),
                    acc * const(rng.choice(CONSTANTS)) + const(rng.choice(CONSTANTS)),
                )
            )
            if epilogues
            else acc
        )
        style = draw_style(rng, {*names, rows, cols, "planes", "up", "down", "west", "east", "mid", "gx", "gy"})
        border = "zero" if form == "max" else rng.choice(("zero", "clamp"))
        factors = rng.choice(((0.5, 0.125), (-4.0, 1.0), (0.6, 0.1), (0.2, 0.2)))
        plan = _Window(
            style,
            x,
            w,
            y,
            rows,
            cols,
            radius,
            form,
            border,
            factors,
            epilogue,
            lead[0] if lead else "",
            rng.choice(((32, 8), (16, 16), (32, 4))),
        )
        sizes, large = plane_sizes(rng, rows, cols)
        small = ({rows: 64, cols: 96}, *sizes[1:])
        sizes = tuple(
            dict(s) | ({"planes": count} if planes else {}) for s, count in zip(small, (3, 2, 1), strict=True)
        )
        large = dict(large) | ({"planes": 4} if planes else {})
        flaws = ["swapped_axes", "thread_per_row", "flat_index", "no_restrict", "wide_type"]
        flaws = [f for f in flaws if not (f == "wide_type" and form == "max")]
        flaws += ["global_accumulator"] if form in ("weights", "mean") and dtype == "float32" else []
        flaws += ["divides"] if form == "mean" else []
        flaws += ["double_literals"] if form in ("star", "sobel", "mean") or epilogue is not acc else []
        args = (x, *((w,) if w else ()), y, scalar(rows), scalar(cols))
        return Problem(
            family, kind, kernel_name(rng, family), args, sizes, large, _window_reference(plan), tuple(flaws), plan.draft, style,
            exclusive=(frozenset({"swapped_axes", "thread_per_row", "flat_index"}),), require=(f"{rows} > 0", f"{cols} > 0"),
        )  # fmt: skip

    return draw


def _window_reference(plan: _Window) -> str:
    r, rows, cols = plan.radius, plan.rows, plan.cols
    fill = "-1e30" if plan.form == "max" else "0"
    how = "mode='edge'" if plan.border == "clamp" else f"constant_values={fill}"
    pads = f"((0, 0), ({r}, {r}), ({r}, {r}))" if plan.planes else str(r)
    dots = ":, " if plan.planes else ""

    def part(dy: int, dx: int) -> str:
        return f"v[{dots}{r + dy}:{r + dy} + {rows}, {r + dx}:{r + dx} + {cols}]"

    if plan.form == "star":
        one, other = plan.factors
        text = f"{one} * {part(0, 0)} + {other} * ({part(-1, 0)} + {part(1, 0)} + {part(0, -1)} + {part(0, 1)})"
    elif plan.form == "sobel":
        gx = f"({part(-1, 1)} - {part(-1, -1)} + 2 * ({part(0, 1)} - {part(0, -1)}) + {part(1, 1)} - {part(1, -1)})"
        gy = f"({part(1, -1)} - {part(-1, -1)} + 2 * ({part(1, 0)} - {part(-1, 0)}) + {part(1, 1)} - {part(-1, 1)})"
        text = f"np.sqrt({gx} ** 2 + {gy} ** 2 + 0.01)"
    else:
        view = f"np.lib.stride_tricks.sliding_window_view(v, ({2 * r + 1}, {2 * r + 1}))"
        text = _summed(plan, part)
        del view
    text = numpy_text(plan.epilogue, {"acc": f"({text})"})
    return f"(lambda v: {text})(np.pad({plan.x.name}, {pads}, {how}))"


def _summed(plan: _Window, part: Callable[[int, int], str]) -> str:
    r = plan.radius
    places = [(dy, dx) for dy in range(-r, r + 1) for dx in range(-r, r + 1)]
    if plan.form == "max":
        return f"np.max(np.stack([{', '.join(part(*p) for p in places)}]), axis=0)"
    if plan.form == "mean":
        return f"({' + '.join(part(*p) for p in places)}) / {float(len(places))}"
    assert plan.w is not None
    dims = "[:, {}, {}, None, None]" if plan.planes else "[{}, {}]"
    name = plan.w.name
    terms = [f"{name}{dims.format(dy + r, dx + r)} * {part(dy, dx)}" for dy, dx in places]
    return " + ".join(terms)
