"""Statements of one stage that a block computes: a loop over the elements of an array, or of a reduction's or scan's terms."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kernelmate.records import Size
from kernelmate.source import evaluate
from kernelmate.synthesis.axes import leaf_text
from kernelmate.synthesis.block_stages import BlockPlan, BlockStage
from kernelmate.synthesis.kernel_text import KernelText, block_of, c_type, fresh_names
from kernelmate.synthesis.names import position_name
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import EXTREMES, RESULT_NAMES, STARTS, WARP, Reductions, Team, is_extreme, start_of
from kernelmate.synthesis.schedules.vector_stages import VectorSteps
from kernelmate.synthesis.schedules.vector_text import PositionTexts, StepExpressions

LEAST_LANES = 16
"""Number of neighbouring terms from which on a warp reduces them together."""

AHEAD = 4
"""Number of a sum's terms whose loads overlap."""


@dataclass(frozen=True, slots=True)
class StageSteps(VectorSteps):
    """Plan in which each reduction has its own position; `names` has it by the reduction's node."""

    names: Mapping[int, str] = field(default_factory=dict, kw_only=True)

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns where the operands of an operation are evaluated; for a reduction or a scan, at one of its terms."""
        node, index = self.node(key), key[1]
        if node.op == "reshape":
            raise Refused("it changes the shape of what it computes within a stage")
        if node.op not in ("reduce", "scan"):
            return VectorSteps.operands(self, key)
        axis = int(node.data[1] or 0)
        rest = index[axis:] if node.op == "reduce" else index[axis + 1 :]
        return ((node.args[0], (*index[:axis], self.names[key[0]], *rest)),)


def elements(stage: BlockStage, size: Size) -> int:
    """Returns the number of elements of a stage's value that a block computes."""
    return math.prod(int(evaluate(stage.sides[axis], size)) for axis in stage.own)


class BlockValues:
    """The values of a block's stages: arrays in shared memory, and locals of single numbers.

    Attributes:
        threads: the threads of a block.
        of_warp, of_block: the reductions over the threads of a warp, and of the block.
        arrays: the shared array of each stage's value, by its target.
        numbers: the locals of single numbers, likewise.
        at: the block's position along each axis that blocks share.
    """

    def __init__(self, plan: BlockPlan, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.names = fresh_names(kernel, "lane", "warp", "shared", "carry", "other", "offset", "first", element="i")
        self.threads = self._threads()
        self.names.kThreads, self.constants = kernel.threads(self.threads)
        self.of_warp = Reductions(plan.graph, kernel, Team("warp", WARP, self.threads), self.names.kThreads)
        self.of_block = Reductions(
            plan.graph, kernel, Team("block", self.threads, self.threads), self.names.kThreads, self.of_warp
        )
        self.outputs = [one.name for one in kernel.outputs()]
        outer = next(one for one in plan.stages if one.output is not None)
        single = ["row"] if len(plan.blocks) == 1 and outer.block == (0,) else []
        self.at = [kernel.names.fresh(one) for one in single or map(position_name, plan.blocks)]
        self.numbers: dict[int, str] = {}
        self.arrays: dict[int, str] = {}
        for one in plan.stages:
            if one.output is None and one.own:
                self.arrays[one.target] = kernel.names.fresh(self._wanted(one))

    def _threads(self) -> int:
        """Returns the threads of a block: one for each element of the largest stage, or for a few terms of it."""
        size, most = self.kernel.contract.sizes[0], 256 if self.plan.blocks else 512
        terms = max(one.terms(size) for one in self.plan.stages)
        widest = max(elements(one, size) for one in self.plan.stages)
        wanted = max(widest, -(-terms // AHEAD))
        return min(most, -(-wanted // WARP) * WARP)

    def _wanted(self, stage: BlockStage) -> str:
        """Returns a name for a stage's value: the reference's, or that of its reduction."""
        node = stage.graph.nodes[stage.graph.outputs[0]]
        if node.name and self.kernel.names.is_free(node.name):
            return node.name
        found = [str(stage.graph.nodes[one].data[0]) for one in stage.reductions]
        word = position_name(stage.sides[stage.own[0]])
        return f"{word}_{RESULT_NAMES.get(found[-1], 'place')}" if found else "values"

    def type_of(self, stage: BlockStage) -> str:
        """Returns the C++ type of a stage's value.

        Raises:
            Refused: no array in shared memory holds it.
        """
        node = stage.graph.nodes[stage.graph.outputs[0]]
        found = c_type(node.dtype, self.kernel.real)
        if found not in (self.kernel.real, "int") and stage.own:
            raise Refused(f"it keeps {node.dtype} values as intermediates")
        return found


class StageText(PositionTexts):
    """Writer of one stage's statements."""

    def __init__(self, block: BlockValues, stage: BlockStage) -> None:
        self.block, self.stage, self.kernel, self.names = block, stage, block.kernel, block.names
        self.own = stage.own
        self.positions: dict[int, str] = {}
        for place, axis in enumerate(stage.block):
            if axis is not None:
                self.positions[axis] = block.at[place]
        fresh = self.kernel.names.fresh
        self.flat = str(self.names.element)
        for axis in self.own:
            word = position_name(stage.sides[axis])
            self.positions[axis] = self.flat if len(self.own) == 1 else fresh("j" if word == "outer" else word)
        nodes = stage.graph.nodes
        self.chain = [one for one, node in enumerate(nodes) if node.op in ("reduce", "scan")]
        self.terms = {one: fresh("k") for one in self.chain}
        self.index = tuple(None if side == "1" else self.positions[axis] for axis, side in enumerate(stage.sides))
        self.output: Key = (stage.graph.outputs[0], self.index)
        self.plan = StageSteps(stage.graph, (), 0, (self.output,), "free", names=self.terms)
        self.expressions = StepExpressions(self.plan, self.kernel, self._leaf, frozenset({"element"}))
        self.expressions.steps, self.expressions.position = self.plan, self.position

    def _leaf(self, key: Key) -> str:
        node, index = self.plan.node(key), key[1]
        name = str(node.data[0]) if node.data else ""
        if not name.startswith("@"):
            return leaf_text(self.kernel, node, lambda: "0" if index[0] is None else self.position(index[0]), lambda: self.offset(node.shape, index))  # fmt: skip
        target = int(name[1:])
        source = next(one for one in self.block.plan.stages if one.target == target and one.output is None)
        if target in self.block.numbers:
            return self.block.numbers[target]
        if node.shape == source.sides:
            inner = [(side, one) for axis, (side, one) in enumerate(zip(node.shape, index, strict=True)) if axis in source.own]  # fmt: skip
        else:  # in another shape, which begins with the same sides up to the blocks' axes
            inner = [(side, one) for axis, (side, one) in enumerate(zip(node.shape, index, strict=True)) if axis not in source.block]  # fmt: skip
        long = [(side, one) for side, one in inner if one is not None]
        whole = [one for _, one in long] == [self.positions[axis] for axis in self.own] and [side for side, _ in long] == [self.stage.sides[axis] for axis in self.own]  # fmt: skip
        place = self.flat if whole else re.sub(r"static_cast<size_t>\((\w+)\)", r"\1", self.offset([side for side, _ in long], [one for _, one in long]))  # fmt: skip
        self.expressions.hints[key] = self.kernel.names.element_name(self.block.arrays[target])
        bare = re.fullmatch(r"\(([^()]*)\)", place)
        return f"{self.block.arrays[target]}[{place if bare is None else bare[1]}]"

    def lines(self) -> list[str]:
        """Returns the stage's statements."""
        kinds = {self.plan.graph.nodes[one].op for one in self.chain}
        if "scan" in kinds:
            if len(self.chain) > 1 or self.plan.graph.nodes[self.chain[0]].op != "scan" or self._root(self.chain[0]) != self.stage.graph.outputs[0]:  # fmt: skip
                raise Refused("it scans and reduces within a stage")
            lines = self._scanned()
        elif not self.chain:
            lines = self._mapped([], [])
        else:
            lines = self._reduced()
        keep = {*self.block.numbers.values()}
        for name in re.findall(r"^ +(?:const )?(?:\w+ )?\w+ (\w+)(?: = |;)", "\n".join(lines), re.MULTILINE):
            if name not in keep:
                self.kernel.names.release(name)  # the next stage may use it again
        for name in (*self.terms.values(), *(self.positions[axis] for axis in self.own if len(self.own) > 1)):
            self.kernel.names.release(name)
        return ["", *lines]

    def _root(self, index: int) -> int:
        """Returns the last of the views and casts between floats above a node."""
        users = [one for one, node in enumerate(self.plan.graph.nodes) if index in node.args]
        if len(users) == 1 and self.plan.graph.nodes[users[0]].op in ("view", "cast"):
            return self._root(users[0])
        return index

    def _decomposed(self, index: str, axes: Sequence[tuple[str, str]], used: str) -> list[str]:
        """Returns the declarations of used positions along axes, given by name and side, of the element with a flat index."""
        lines, left = list[str](), index
        if len(axes) < 2:
            return []
        for number, (name, side) in enumerate(reversed(axes)):
            text = left if number + 1 == len(axes) else f"{left} % {self.text_of(side)}"
            if re.search(rf"\b{name}\b", used):
                lines.append(f"const int {name} = {text};")
            left = f"{left} / {self.text_of(side)}"
        return lines[::-1]

    def _count(self, sides: Sequence[str]) -> str:
        """Returns a number of elements in C++."""
        return self.kernel.size(" * ".join(f"({side})" if re.search(r"\W", side) and not side.startswith("(") else side for side in sides))  # fmt: skip

    def _over_each(self, lines: Sequence[str], first: str = "threadIdx.x", step: str = "") -> list[str]:
        """Returns the loop over the block's elements of the stage."""
        axes = [(self.positions[axis], self.stage.sides[axis]) for axis in self.own]
        inner = [*self._decomposed(self.flat, axes, "\n".join(lines)), *lines]
        head = f"for (int {self.flat} = {first}; {self.flat} < {self._count([side for _, side in axes])}; {self.flat} += {step or self.names.kThreads})"  # fmt: skip
        return block_of(head, inner)

    def _store(self, condition: str = "") -> list[str]:
        """Returns the statements that compute the stage's value and store it, or declare it as a number of the block."""
        stage, lines = self.stage, list[str]()
        (text,) = self.expressions.locals_for([self.output], lines)
        node = stage.graph.nodes[stage.graph.outputs[0]]
        if stage.output is not None:
            name = self.block.outputs[stage.output]
            place = self.flat if not self.block.at and self.own else self.offset(stage.sides, self.index)
            store = f"{name}[{place}] = {self.kernel.stored(name, text, node.dtype)};"
        elif self.own:
            store = f"{self.block.arrays[stage.target]}[{self.flat}] = {text};"
            self.block.type_of(stage)
        else:
            divided = node.mapped == "divide" and stage.graph.nodes[node.args[0]].data[:1] in (("max",), ("min",))
            wanted = {"divide": "scale" if divided else "mean", "sqrt": "norm"}.get(
                str(node.data[0]) if node.op == "map" else "", "total"
            )
            self.block.numbers[stage.target] = self.expressions.named(self.output, lines, wanted)
            return lines
        if not condition:
            return [*lines, store]
        return block_of(f"if ({condition})", [*lines, store]) if lines else [f"if ({condition}) {store}"]

    def _mapped(self, before: Sequence[str], after: Sequence[str]) -> list[str]:
        """Returns the statements of a stage without a reduction."""
        if self.own:
            return self._over_each([*before, *self._store(), *after])
        return self._store("threadIdx.x == 0" if self.stage.output is not None else "")

    def _reduced(self) -> list[str]:
        """Returns the statements of a stage with a reduction: a block, a warp or a thread for each result."""
        nodes = self.plan.graph.nodes
        keys = [key for key in walk(self.plan) if self.plan.node(key).op == "reduce"]
        outer = keys[-1]
        kind = str(self.plan.node(outer).data[0])
        if any(self.plan.node(key).data[0] != kind for key in keys) or not self._is_nested(keys):
            raise Refused("it combines several reductions in one stage")
        team = self._team(keys)
        sides = [(self.terms[key[0]], nodes[self.plan.node(key).args[0]].shape[int(self.plan.node(key).data[1] or 0)]) for key in reversed(keys)]  # fmt: skip
        (operand,) = self.plan.operands(keys[0])
        body: list[str] = []
        (text,) = self.expressions.locals_for([operand], body)
        ctype = c_type(self.plan.node(operand).dtype, self.kernel.real)
        begin, taken, finish, found = self._accumulated(outer, kind, text, ctype, team)
        lines = [*begin, *self._over_terms(sides, [*body, *taken], team), *finish]
        self.expressions.known = {self.expressions.bare(outer): found}
        if not self.own:
            return [*lines, *self._store("threadIdx.x == 0" if self.stage.output is not None else "")]
        if team == "thread":
            return self._over_each([*lines, *self._store()])
        return self._over_each([*lines, *self._store(f"{self.names.lane} == 0")], str(self.names.warp), f"{self.names.kThreads} / {WARP}")  # fmt: skip

    def _is_nested(self, keys: Sequence[Key]) -> bool:
        """Returns True if each reduction is of the results of the one before."""
        return all(self.expressions.bare(self.plan.operands(later)[0]) == earlier for earlier, later in itertools.pairwise(keys))  # fmt: skip

    def _team(self, keys: Sequence[Key]) -> str:
        """Returns the threads that compute a result: those of the block, of a warp, or one."""
        if not self.own:
            return "block"
        size = self.kernel.contract.sizes[0]
        last = self.terms[keys[0][0]]
        arrays = [
            key
            for key in walk(self.plan)
            if self.plan.node(key).op == "input" and any(one is not None for one in key[1])
        ]
        ends = [next(str(one) for one in reversed(key[1]) if one is not None) for key in arrays]
        neighbours = any(re.search(rf"\b{last}\b", one) for one in ends)
        terms = self.stage.terms(size) // max(elements(self.stage, size), 1)
        fills = elements(self.stage, size) >= self.block.threads
        along = neighbours and not any(
            self.own and re.search(rf"\b{self.positions[self.own[-1]]}\b", one) for one in ends
        )
        return "warp" if terms >= LEAST_LANES and (along or not fills) else "thread"

    def _accumulated(self, outer: Key, kind: str, text: str, ctype: str, team: str) -> tuple[list[str], list[str], list[str], str]:  # fmt: skip
        """Returns the statements before, for each term, and after the loop of a reduction, and the result's name."""
        reductions = self.block.of_block if team == "block" else self.block.of_warp
        real, fresh = self.kernel.real, self.kernel.names.fresh
        infinity = [self.expressions.number(sign * float("inf")) for sign in (-1, 1)]
        if is_extreme(kind):
            if ctype != real:
                raise Refused(f"it finds the place of an extreme of {ctype} values")
            best, place = fresh(RESULT_NAMES[EXTREMES[kind][0]]), fresh("place")
            held = fresh("candidate")
            taken = [f"const {real} {held} = {text};", *reductions.extremes.taken(kind, real, held, self.terms[outer[0]], best, place)]  # fmt: skip
            finish = (
                [] if team == "thread" else [f"{reductions.extremes.function(kind, real, 'int')}({best}, {place});"]
            )
            return [f"{real} {best} = {start_of(kind, real, infinity)};", f"int {place} = 0;"], taken, finish, place
        if kind not in RESULT_NAMES or ctype == "bool":
            raise Refused(f"it reduces {ctype} values by {kind} in a stage")
        said = self.plan.node(outer).name
        name = fresh(said if said and self.kernel.names.is_free(said) else RESULT_NAMES[kind])
        ctype = c_type(self.plan.node(outer).dtype, real)
        if kind in ("max", "min"):
            start = start_of(kind, ctype, infinity)
        else:
            start = self.expressions.number(STARTS[kind]) if ctype == real else str(int(STARTS[kind]))
        finish = [] if team == "thread" else [f"{name} = {reductions.function(kind, ctype)}({name});"]
        return [f"{ctype} {name} = {start};"], [reductions.combined(kind, name, text, ctype)], finish, name

    def _over_terms(self, sides: Sequence[tuple[str, str]], body: Sequence[str], team: str) -> list[str]:
        """Returns the loop over a reduction's terms, given by position and side, the outermost first."""
        first, step = {"block": ("threadIdx.x", str(self.names.kThreads)), "warp": (str(self.names.lane), str(WARP)), "thread": ("0", "1")}[team]  # fmt: skip
        if team == "thread" or len(sides) == 1:
            lines = [*body]
            for number, (name, side) in enumerate(reversed(sides)):
                own = step if number == 0 else "1"
                advance = f"++{name}" if own == "1" else f"{name} += {own}"
                head = (
                    f"for (int {name} = {first if number == 0 else '0'}; {name} < {self.kernel.size(side)}; {advance})"
                )
                lines = [*([f"#pragma unroll {AHEAD}"] if number == 0 else []), *block_of(head, lines)]
            return lines
        flat = self.kernel.names.fresh("term")
        head = f"for (int {flat} = {first}; {flat} < {self._count([side for _, side in sides])}; {flat} += {step})"
        lines = block_of(head, [*self._decomposed(flat, sides, "\n".join(body)), *body])
        self.kernel.names.release(flat)
        return [f"#pragma unroll {AHEAD}", *lines]

    def _scanned(self) -> list[str]:
        """Returns the statements of a scan: a warp for each line, 32 elements at a time."""
        names, real = self.names, self.kernel.real
        (key,) = [key for key in walk(self.plan) if self.plan.node(key).op == "scan"]
        node = self.plan.node(key)
        kind, axis, backwards = str(node.data[0]), int(node.data[1] or 0), bool(node.data[2])
        if backwards or self.stage.own[-1:] != [axis] or not node.dtype.startswith("float") or self.stage.output is not None:  # fmt: skip
            raise Refused("it scans from the end, or along other than the last axis, in a stage")
        name, length = self.terms[key[0]], self.kernel.size(node.shape[axis])
        (operand,) = self.plan.operands(key)
        body: list[str] = []
        (text,) = self.expressions.locals_for([operand], body)
        start = self.expressions.number(STARTS[kind])
        value = self.kernel.names.fresh("value")
        rows = [one for one in self.own if one != axis]
        front = f"{self.flat} * {self.text_of(node.shape[axis])} + " if rows else ""
        combined = self.block.of_warp.combined(kind, value, str(names.other))
        inner = [
            f"const int {name} = {names.first} + {names.lane};",
            f"{real} {value} = {start};",
            *block_of(f"if ({name} < {length})", [*body, f"{value} = {text};"]),
            *block_of(
                f"for (int {names.offset} = 1; {names.offset} < {WARP}; {names.offset} *= 2)",
                [f"const {real} {names.other} = __shfl_up_sync(0xffffffffu, {value}, {names.offset});", f"if ({names.lane} >= {names.offset}) {combined}"],
            ),
            self.block.of_warp.combined(kind, value, str(names.carry)),
            f"if ({name} < {length}) {self.block.arrays[self.stage.target]}[{front}{name}] = {value};",
            f"{names.carry} = __shfl_sync(0xffffffffu, {value}, {WARP - 1});",
        ]  # fmt: skip
        lines = [
            f"{real} {names.carry} = {start};",
            *block_of(f"for (int {names.first} = 0; {names.first} < {length}; {names.first} += {WARP})", inner),
        ]
        if not rows:
            return block_of(f"if ({names.warp} == 0)", lines)
        axes = [(self.positions[one], self.stage.sides[one]) for one in rows]
        place = f"const int {axes[0][0]} = {self.flat};"
        found = self._decomposed(self.flat, axes, "\n".join(lines)) if len(axes) > 1 else [place]
        return block_of(f"for (int {self.flat} = {names.warp}; {self.flat} < {self._count([side for _, side in axes])}; {self.flat} += {names.kThreads} / {WARP})", [*found, *lines])  # fmt: skip
