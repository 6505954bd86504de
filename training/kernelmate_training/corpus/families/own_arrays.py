"""Arrays of a thread's own: windows and short rows that belong in registers, and in local memory where they are indexed by a variable."""

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
from kernelmate_training.corpus.families.words import kernel_name, pick


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
        return code.drafted(flaws, (f"cdiv({self.n}, block)",), (self.block,), head=head)


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
        style, code = self.style, Code(self.style)
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
        return code.drafted(flaws, (f"cdiv({self.n}, block)",), (128,))


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
