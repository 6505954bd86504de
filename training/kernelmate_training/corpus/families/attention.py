"""Attention of some queries over keys and values, plain or joined with what follows it, such as a step of a sampler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import Arg, Code, Draft, Flaws, Kind, Problem, Style, array, draw_style, scalar
from kernelmate_training.corpus.expressions import Emitter, Expr, call, const, numpy_text, var
from kernelmate_training.corpus.families.reducing import Team, neutral
from kernelmate_training.corpus.families.words import kernel_name


@dataclass(frozen=True)
class _Attention:
    """Writes the versions of one attention."""

    style: Style
    names: tuple[str, str, str, str]
    sizes: tuple[str, str, str]
    extras: tuple[Arg, ...]
    epilogue: Expr
    causal: bool
    block: int

    def draft(self, flaws: Flaws) -> Draft:
        writer = _AttentionWriter(self, flaws)
        if "thread_per_row" in flaws:
            return writer.by_rows()
        return writer.by_elements() if "recomputes" in flaws else writer.by_blocks()


class _AttentionWriter:
    """One version under way."""

    def __init__(self, plan: _Attention, flaws: Flaws) -> None:
        self.plan, self.flaws, self.style = plan, flaws, plan.style
        self.code = Code(plan.style)
        self.row, self.d, self.t = plan.style.n("row"), plan.style.n("col"), plan.style.n("loop")
        self.n, self.length, self.dim = plan.sizes
        self.emitter = Emitter("float", "double_literals" in flaws, const_word=plan.style.const_word)

    @property
    def last(self) -> str:
        """One past the last key that a query sees."""
        return f"min({self.row} + 1, {self.length})" if self.plan.causal else self.length

    def _score(self, score: str) -> None:
        """A query against a key, scaled."""
        q, k = self.plan.names[:2]
        e = self.style.n("loop2")
        self.code(f"float {score} = {self.emitter.literal(0)};")
        self.code.loop(e, "0", self.dim)
        self.code(f"{score} += {q}[{self.row} * {self.dim} + {e}] * {k}[{self.t} * {self.dim} + {e}];")
        self.code.close()
        self.code(f"{score} *= scale;")

    def _largest(self) -> None:
        self.code("float top = -1e30f;")
        self.code.loop(self.t, "0", self.last)
        self._score("score")
        self.code("top = fmaxf(top, score);")
        self.code.close()

    def _denominator(self) -> None:
        self.code(f"float denom = {self.emitter.literal(0)};")
        self.code.loop(self.t, "0", self.last)
        self._score("score")
        self.code("denom += expf(score - top);")
        self.code.close()

    def _end(self, d: str, acc: str) -> None:
        """The epilogue and the store of one element."""
        out = self.plan.names[3]
        place = f"{self.row} * {self.dim} + {d}"
        names = {"acc": acc} | {a.name: f"{a.name}[{place}]" for a in self.plan.extras if a.shape is not None}
        self.emitter.names = names
        text = self.emitter.text(self.plan.epilogue)
        self.code(*self.emitter.statements)
        self.emitter.statements.clear()
        if text != f"{out}[{place}]":
            self.code(f"{out}[{place}] = {text};")

    def by_rows(self) -> Draft:
        """A thread for each query; what it adds up stays in global memory."""
        code, (_, _, v, out) = self.code, self.plan.names
        code(f"{self.style.const_word}int {self.row} = {self.style.gid()};")
        code.guard((self.row, self.n))
        self._largest()
        self._denominator()
        code.loop(self.d, "0", self.dim)
        code(f"{out}[{self.row} * {self.dim} + {self.d}] = {self.emitter.literal(0)};")
        code.close()
        code.loop(self.t, "0", self.last)
        self._score("score")
        code(f"{self.style.const_word}float weight = expf(score - top) / denom;")
        code.loop(self.d, "0", self.dim)
        code(f"{out}[{self.row} * {self.dim} + {self.d}] += weight * {v}[{self.t} * {self.dim} + {self.d}];")
        code.close(2)
        if self.plan.epilogue.op != "var":
            code.loop(self.d, "0", self.dim)
            self._end(self.d, f"{out}[{self.row} * {self.dim} + {self.d}]")
            code.close()
        return self.code.drafted(self.flaws, (f"cdiv({self.n}, block)",), (64,))

    def by_elements(self) -> Draft:
        """A thread for each element of the result, each with the whole softmax."""
        code, (_, _, v, _) = self.code, self.plan.names
        x, y = (self.row, self.d) if "swapped_axes" in self.flaws else (self.d, self.row)
        code(
            f"{self.style.const_word}int {x} = {self.style.gid('x')};",
            f"{self.style.const_word}int {y} = {self.style.gid('y')};",
        )
        code.guard((self.row, self.n), (self.d, self.dim))
        self._largest()
        acc = self.style.n("acc")
        code(f"float denom = {self.emitter.literal(0)};", f"float {acc} = {self.emitter.literal(0)};")
        code.loop(self.t, "0", self.last)
        self._score("score")
        code(f"{self.style.const_word}float weight = expf(score - top);", "denom += weight;")
        code(f"{acc} += weight * {v}[{self.t} * {self.dim} + {self.d}];")
        code.close()
        code(f"{acc} /= denom;")
        self._end(self.d, acc)
        bounds = {self.row: self.n, self.d: self.dim}
        return self.code.drafted(self.flaws, (f"cdiv({bounds[x]}, block_x)", f"cdiv({bounds[y]}, block_y)"), (16, 8))

    def by_blocks(self) -> Draft:
        """A block for each query: scores in shared memory, then the values' sum by threads along the dimension."""
        code, flaws, (_, _, v, _) = self.code, self.flaws, self.plan.names
        tid, acc, buffer, weights = (
            self.style.n("tid"),
            self.style.n("acc"),
            self.style.n("tile"),
            self.style.n("tile2"),
        )
        team = Team(self.style, self.plan.block, tid, flaws)
        code(f"extern __shared__ float {weights}[];", f"__shared__ float {buffer}[{team.elements}];")
        code(f"{self.style.const_word}int {self.row} = blockIdx.x;", f"{self.style.const_word}int {tid} = threadIdx.x;")
        code(f"float top = {neutral('max')};")
        code.loop(self.t, tid, self.last, "blockDim.x")
        self._score("score")
        code(f"{weights}[{self.t}] = score;", "top = fmaxf(top, score);")
        code.close()
        team.reduce(code, "max", "top", buffer, again=True)
        code(f"float denom = {self.emitter.literal(0)};")
        code.loop(self.t, tid, self.last, "blockDim.x")
        code(
            f"{self.style.const_word}float weight = expf({weights}[{self.t}] - top);",
            f"{weights}[{self.t}] = weight;",
            "denom += weight;",
        )
        code.close()
        team.reduce(code, "sum", "denom", buffer, again=True)
        code.loop(self.d, tid, self.dim, "blockDim.x")
        code(f"float {acc} = {self.emitter.literal(0)};")
        code.loop(self.t, "0", self.last)
        share = f"{weights}[{self.t}] / denom" if "divides" in flaws else f"{weights}[{self.t}]"
        code(f"{acc} += {share} * {v}[{self.t} * {self.dim} + {self.d}];")
        code.close()
        if "divides" not in flaws:
            code(f"{acc} /= denom;")
        self._end(self.d, acc)
        code.close()
        return self.code.drafted(self.flaws, (self.n,), (self.plan.block,), shared=f"{self.length} * 4")


NAMES = (("q", "k", "v", "out"), ("query", "key", "val0", "result"), ("Q", "K", "V", "O"), ("qs", "ks", "vs", "att"))
SIZES = (("tokens", "length", "dim"), ("n", "len_k", "d_head"), ("queries", "keys", "width"), ("nq", "nk", "hd"))
FLAWED = (
    "thread_per_row", "recomputes", "swapped_axes", "shared_tree", "modulo_tree", "oversized_shared", "extra_barriers", "divides",
    "double_literals", "no_restrict",
)  # fmt: skip


def _epilogue(rng: Random, form: str, n: str, dim: str) -> tuple[tuple[Arg, ...], Expr]:
    """What comes of the sum `acc`, and the arrays that it takes besides."""
    x, noise = (
        array("x", "in", "float32", n, dim, drawn="normal"),
        array("noise", "in", "float32", n, dim, drawn="normal"),
    )
    acc = var("acc")
    if form == "residual":
        return (x,), var("x") + acc
    if form == "gate":
        return (x,), acc * call("sigmoid", var("x"))
    if form == "step":
        clean = (var("x") - const(rng.choice((0.6, 0.3))) * acc) / const(rng.choice((0.8, 0.95)))
        return ((x, noise), clean + const(0.1) * var("noise")) if rng.random() < 0.5 else ((x,), clean)
    return (), acc


def _reference(names: tuple[str, ...], sizes: tuple[str, ...], epilogue: Expr, *, causal: bool) -> str:
    """The whole as one NumPy expression."""
    (q, k, v, _), (n, length, _) = names, sizes
    scores = f"{q} @ {k}.T * scale"
    if causal:
        scores = f"np.where(np.arange({length})[None, :] <= np.arange({n})[:, None], {scores}, -1e30)"
    weights = "(lambda e: e / e.sum(axis=1, keepdims=True))(np.exp(s - s.max(axis=1, keepdims=True)))"
    value = numpy_text(epilogue, {"acc": f"(w @ {v})"})
    return f"(lambda w: {value})((lambda s: {weights})({scores}))"


def attention(
    family: str, kind: Kind, epilogues: tuple[str, ...], *, causal: bool = False
) -> Callable[[Random], Problem]:
    """Attention with one of some epilogues: `none`, `residual`, `step` (of a sampler), `gate`."""

    def draw(rng: Random) -> Problem:
        names, sizes = rng.choice(NAMES), rng.choice(SIZES)
        (q, k, v, out), (n, length, dim) = names, sizes
        extras, epilogue = _epilogue(rng, rng.choice(epilogues), n, dim)
        style = draw_style(rng, {*names, *sizes, "x", "noise", "top", "denom", "score", "weight", "scale"})
        plan = _Attention(style, names, sizes, extras, epilogue, causal, rng.choice((64, 128)))
        arrays = [
            array(q, "in", "float32", n, dim, drawn="normal"),
            array(k, "in", "float32", length, dim, drawn="normal"),
            array(v, "in", "float32", length, dim, drawn="normal"),
        ]
        args = (
            *arrays,
            *extras,
            array(out, "out", "float32", n, dim),
            scalar("scale", "float32", rng.choice(("0.125", "0.25", "0.3"))),
            *(scalar(s) for s in sizes),
        )
        made = ((12, 40, 24), (7, 19, 13), (1, 1, 1))
        return Problem(
            family, kind, kernel_name(rng, family), args, tuple(dict(zip(sizes, s, strict=True)) for s in made), {n: 2048, length: 512, dim: 64},
            _reference(names, sizes, epilogue, causal=causal), FLAWED, plan.draft, style, require=(f"{length} > 0",),
            exclusive=(frozenset({"thread_per_row", "recomputes"}), frozenset({"shared_tree", "modulo_tree"})),
        )  # fmt: skip

    return draw
