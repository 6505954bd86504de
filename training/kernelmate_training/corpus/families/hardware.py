"""Families for what a GPU has instructions for: vectors of four floats, pairs of halves, approximations."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
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
    load,
    scalar,
    store,
)
from kernelmate_training.corpus.expressions import SMOOTH, Emitter, Expr, grow, numpy_text, var
from kernelmate_training.corpus.families.maps import flat_sizes, random_map
from kernelmate_training.corpus.families.words import kernel_name, pick

APPROXIMATE = {"expf": "__expf", "sinf": "__sinf", "cosf": "__cosf", "logf": "__logf"}
"""Functions of float and what the hardware has instead (CUDA C++ Programming Guide, intrinsic functions)."""


def aligned(args: tuple[Arg, ...], count: int) -> str:
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
            return code.drafted(flaws, (f"cdiv({self.n}, block)",), (block,))
        code(f"{style.const_word}int {i} = 4 * ({style.gid()});")
        code.open(f"if ({i} + 3 < {self.n} && {aligned((*self.inputs, self.out), 16)})")
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
        return _problem(rng, family, plan, "scalar_access")

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
            return code.drafted(flaws, (f"cdiv({self.n}, block)",), (block,))
        pair, widen, narrow = (
            ("__nv_bfloat162", "__bfloat1622float2", "__float22bfloat162_rn")
            if brain
            else ("__half2", "__half22float2", "__float22half2_rn")
        )
        code(f"{style.const_word}int {i} = 2 * ({style.gid()});")
        code.open(f"if ({i} + 1 < {self.n} && {aligned((*self.inputs, self.out), 4)})")
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
        return _problem(rng, family, plan, "half_scalar")

    return draw


def _problem(rng: Random, family: str, plan: _Vector | _Pairs, narrow: str) -> Problem:
    """A map of one dimension whose versions `plan` writes; `narrow` is the flaw of moving one element at a time."""
    sizes, _ = flat_sizes(rng, plan.n)
    return Problem(
        family,
        "target",
        kernel_name(rng, family),
        (*plan.inputs, plan.out, scalar(plan.n)),
        sizes,
        {plan.n: 1 << 24},
        numpy_text(plan.value, {}),
        (narrow, "tiny_block", "no_restrict", "double_literals"),
        plan.draft,
        plan.style,
    )


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
