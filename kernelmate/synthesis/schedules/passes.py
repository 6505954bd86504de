"""Passes over the elements of a row or a column: reductions in order of dependency."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import BITWISE, Node
from kernelmate.synthesis.kernel_text import KernelText, block_of
from kernelmate.synthesis.online import LOWEST as LOWEST_REAL
from kernelmate.synthesis.plan import FLAT, Key, Plan, Refused, behind, walk
from kernelmate.synthesis.reductions import EXTREMES, LOWEST, Reductions, is_extreme, start_of

IN_FLIGHT = 64
"""Bytes of a thread's loads in flight before the first is used: for 1024 threads, latency times bandwidth."""

FEWEST_AHEAD = 4
"""Minimum number of loads in flight if many blocks share a multiprocessor or results are stored in between."""


def _takes_int(node: Node) -> bool:
    """Returns True for operations in which a column index, which fits an int, needs no conversion to 64 bits."""
    compares = node.op == "map" and node.data[0] in ("equal", "not_equal")
    return compares or node.op in ("cast", "view", "reshape", "gather")


@dataclass(frozen=True, slots=True)
class ReductionLocals:
    """The locals of one reduction.

    Attributes:
        key: the reduction.
        kind: `sum`, ...
        ctype: the type of its values.
        name: the name of the local that accumulates.
        starts: declarations before the pass.
        final: the statement after it.
        result: the text of the result.
        at: the local that holds a position, if the reduction gives positions.
        own: the local that keeps a thread's own value.
    """

    key: Key
    kind: str
    ctype: str
    name: str
    starts: tuple[str, ...]
    final: str
    result: str
    at: str = ""
    own: str = ""


_NAMES = {
    "sum": "sum",
    "prod": "product",
    "max": "max",
    "min": "min",
    "squares": "sum_sq",
    "xor": "parity",
    "and": "common_bits",
    "or": "bits",
}
_STARTS = {"sum": "0", "prod": "1", "xor": "0", "and": "~0", "or": "0"}


class Passes:
    """Shared parts of the schedules of rows and columns.

    Attributes:
        inputs: arrays that are read, with their access.
        expressions: the kernel's expressions.
        reductions: the functions that combine the values of several threads.
        alone: whether one thread takes all elements of a reduction.
        online: nodes of sums that are computed in the same pass as a maximum on which they depend, and that maximum's.
    """

    plan: Plan
    kernel: KernelText
    inputs: dict[str, str]
    expressions: Expressions
    reductions: Reductions
    alone: bool = False
    over: str = ""
    online: Mapping[int, int] = {}

    @functools.cached_property
    def positions(self) -> dict[str, str]:
        """Returns texts of positions that need no cast, by those with one."""
        return {}

    def loop(
        self, roots: Sequence[Key], body: list[str], stores: Sequence[str], before: Sequence[str] = ()
    ) -> list[str]:
        """Returns a pass: `before`, and a loop over the elements with the lines of `body`, which computes `roots`."""
        raise NotImplementedError

    def accesses(self, outputs: Sequence[str], single: str, *, late: bool = False) -> dict[str, str]:
        """Returns the access of each array, by its name: a value of `Plan.access`.

        Results with one element for each row or column are accessed as `single`; `late` is True if the only thread that reads
        such an element writes it after all reads.

        Raises:
            Refused: an array is accessed along different axes, or read after another thread may have written it.
        """
        found: dict[str, str] = {}
        for key in walk(self.plan):
            node = self.plan.node(key)
            if node.op != "input":
                continue
            name, access = str(node.data[0]), self.plan.access(key)
            whole = any(map(self.is_whole, self.plan.outputs))
            if name in outputs and access != "flat" and (access != single or (whole and not late)):
                raise Refused(f"{name} is read where another thread may have written it")
            access = "flat" if access.startswith("@") else access
            if found.setdefault(name, access) != access:
                raise Refused(f"it reads {name} along different axes")
        return found

    def stores(self, pairs: Sequence[tuple[Key, str]], place: Callable[[str], str]) -> list[str]:
        """Returns statements that compute and store some outputs at a position."""
        lines: list[str] = []
        texts = self.expressions.locals_for([key for key, _ in pairs], lines)
        values = [
            self.kernel.stored(name, text, self.plan.node(key).dtype)
            for (key, name), text in zip(pairs, texts, strict=True)
        ]
        values = [self.positions.get(value, value) for value in values]
        if len(pairs) > 1 and any(name in self.inputs for _, name in pairs):
            # An array that is changed may still be read for the next output.
            held = [self.kernel.names.fresh(f"new_{name}") for _, name in pairs]
            for (_, name), local, value in zip(pairs, held, values, strict=True):
                lines.append(f"const {self.kernel.element(name)} {local} = {value};")
            values = held
        return [*lines, *(self.store(place(name), value) for (_, name), value in zip(pairs, values, strict=True))]

    def store(self, place: str, value: str) -> str:
        """Returns the statement that stores a value in an element of an output."""
        return f"{place} = {value};"

    def is_whole(self, output: Key) -> bool:
        """Returns True if an output has an element for each element of the domain."""
        index = output[1]
        return index == (FLAT,) or len([one for one in index if one is not None]) == len(self.plan.domain)

    def levels(self) -> list[list[Key]]:
        """Returns the reductions in order of passes: those of one pass are independent."""
        levels: dict[Key, int] = {}
        passes: list[list[Key]] = []
        for key in walk(self.plan):
            below = [levels[one] for one in self.plan.operands(key)]
            level = max(below, default=0)
            if self.plan.node(key).op == "reduce":
                while len(passes) <= level:
                    passes.append([])
                passes[level].append(key)
                level += 1
            levels[key] = level
        return passes

    def most_ahead(self) -> int:
        """Returns the maximum number of loads in flight if a multiprocessor may have one block: a power of two."""
        arrays = sum(access in ("flat", "slab") for access in self.inputs.values())
        most = IN_FLIGHT // (max(1, arrays) * (8 if self.kernel.real == "double" else 4))
        return max(FEWEST_AHEAD, 1 << max(0, most.bit_length() - 1))

    def position(self) -> tuple[str, str]:
        """Returns the index of the loop's element along the reduced axes, and its C++ type."""
        raise NotImplementedError

    def reduction(self, keys: Sequence[Key]) -> list[str]:
        """Returns one pass over the row, after which every thread has its results."""
        by_node: dict[int, ReductionLocals] = {}
        for key in sorted(keys, key=lambda one: not is_extreme(self.plan.node(one).data[0])):
            if key[0] not in by_node:
                by_node[key[0]] = self._with_position(key, by_node) or self._accumulator(key)
        found = [one for node, one in by_node.items() if one.key[0] == node]
        body: list[str] = []
        sums = [one for one in found if one.key[0] in self.online]
        self._take([one for one in found if one not in sums], sums, body)
        self.expressions.known |= {key: by_node[key[0]].name for key in keys if key[0] in self.online.values()}
        self._take(sums, (), body)
        roots = [self.plan.operands(one.key)[0] for one in found]
        loop = self.loop(roots, body, (), [line for one in found for line in one.starts])
        self.expressions.known |= {
            key: by_node[key[0]].result if by_node[key[0]].key[0] == key[0] else by_node[key[0]].name for key in keys
        }
        return [*loop, *(line for one in found for line in self._final(one, by_node) if line)]

    def _take(self, found: Sequence[ReductionLocals], online: Sequence[ReductionLocals], body: list[str]) -> None:
        """Adds statements to `body` that combine one more value into each reduction.

        `online` sums are rescaled when the maximum grows.
        """
        roots = [self.plan.operands(one.key)[0] for one in found]
        for one, root, text in zip(found, roots, self.expressions.locals_for(roots, body), strict=True):
            scaled = [other.name for other in online if self.online[other.key[0]] == one.key[0]]
            if not scaled:
                body += self._taken(one, text, body)
                continue
            if not text.isidentifier():
                held = self.kernel.names.fresh("element")
                body.append(f"const {one.ctype} {held} = {text};")
                text = self.expressions.known[behind(self.plan, root)] = held
            lines = [f"{other} *= {self._exp}({one.name} - {text});" for other in scaled]
            lines[0] += "  // the sum so far is relative to the maximum"
            body += block_of(f"if ({self.reductions.is_larger(text, one.name)})", [*lines, f"{one.name} = {text};"])

    @property
    def _exp(self) -> str:
        return "expf" if self.kernel.real == "float" else "exp"

    def _final(self, one: ReductionLocals, found: Mapping[int, ReductionLocals]) -> list[str]:
        """Returns the statements after a pass that give every thread the combined result."""
        if one.key[0] in self.online.values():
            return [f"const {one.ctype} {one.own} = {one.name};", one.final]
        if one.key[0] not in self.online:
            return [one.final]
        largest = found[self.online[one.key[0]]]
        function = self.reductions.function(one.kind, one.ctype)
        return [f"{one.name} = {function}({one.name} * {self._exp}({largest.own} - {largest.name}));"]

    def _with_position(self, key: Key, found: Mapping[int, ReductionLocals]) -> ReductionLocals | None:
        """Returns the argmax or argmin that shares a local with a maximum or minimum; None if there is none."""
        node = self.plan.node(key)
        alike = (one for one in found.values() if EXTREMES.get(one.kind, ("",))[0] == node.data[0])
        return next((one for one in alike if self.plan.node(one.key).args == node.args), None)

    def _accumulator(self, key: Key) -> ReductionLocals:
        """Returns the locals of a reduction, and their combination over threads."""
        node, names = self.plan.node(key), self.kernel.names
        kind = str(node.data[0])
        ctype = self.expressions.type_of(self.plan.operands(key)[0] if is_extreme(kind) else key)
        if ctype != self.kernel.real and (
            ctype == "bool" or (kind not in ("sum", *BITWISE) and (kind == "prod" or ctype not in LOWEST))
        ):
            raise Refused(f"the {kind} of {node.dtype}")
        infinity = [self.expressions.number(sign * float("inf")) for sign in (-1, 1)]
        if is_extreme(kind):
            best, (_, index) = names.fresh(self._named(EXTREMES[kind][0], key)), self.position()
            at = names.fresh(kind)
            self.positions[f"static_cast<{index}>({at})"] = at
            starts = (f"{ctype} {best} = {start_of(kind, ctype, infinity)};", f"{index} {at} = 0;")
            final = "" if self.alone else f"{self.reductions.extremes.function(kind, ctype, index)}({best}, {at});"
            used = any(key[0] in one.args and not _takes_int(one) for one in self.plan.graph.nodes)
            return ReductionLocals(
                key, kind, ctype, best, starts, final, f"static_cast<long long>({at})" if used else at, at
            )
        squares = kind == "sum" and self.expressions.squares(node)
        name = names.fresh(self._named("squares" if squares else kind, key))
        start = start_of(kind, ctype, infinity) if kind in ("max", "min") else _STARTS[kind]
        if key[0] in self.online.values():
            start = self.expressions.number(LOWEST_REAL[ctype])
        if ctype == self.kernel.real and kind in ("sum", "prod"):
            start = self.expressions.number(float(start))
        final = "" if self.alone else f"{name} = {self.reductions.function(kind, ctype)}({name});"
        own = names.fresh(f"thread_{kind}") if key[0] in self.online.values() else ""
        finite = "  // finite: the difference of two infinities is not a number" if own else ""
        return ReductionLocals(key, kind, ctype, name, (f"{ctype} {name} = {start};{finite}",), final, name, own=own)

    def _named(self, kind: str, key: Key) -> str:
        """Returns the name of a reduction's local: `row_max` for rows.

        If that is taken, the names of the reduced arrays follow.
        """
        name, (value,) = _NAMES[kind], self.plan.operands(key)
        several = f"{name}_{'_'.join(dict.fromkeys(self._arrays(value)))}"
        if kind in ("sum", "squares") and len(several) < 24 and self._sums_several():
            return several
        plain = f"{name}_value" if kind in ("max", "min") else name  # `max` alone is a function's
        wanted = f"{self.over}_{name}" if self.over and kind != "squares" else plain
        if self.kernel.names.is_free(wanted):
            return wanted
        return next((one for one in (plain, several) if len(one) < 24 and self.kernel.names.is_free(one)), wanted)

    def _sums_several(self) -> bool:
        """Returns True if several arrays are summed, so that the names of sums must distinguish them."""
        sums = [
            key
            for key in walk(self.plan)
            if self.plan.node(key).op == "reduce" and self.plan.node(key).data[0] == "sum"
        ]
        return len({tuple(sorted({*self._arrays(self.plan.operands(key)[0])})) for key in sums}) > 1

    def _arrays(self, key: Key) -> Iterator[str]:
        """Yields the arrays from which a value is computed without a reduction in between."""
        node = self.plan.node(key)
        if node.op == "input":
            yield str(node.data[0])
        elif node.op != "reduce":
            for one in self.plan.operands(key):
                yield from self._arrays(one)

    def _taken(self, one: ReductionLocals, text: str, body: list[str]) -> list[str]:
        """Returns statements that combine one more value; `body` receives their prerequisites."""
        if not is_extreme(one.kind):
            return [self.reductions.combined(one.kind, one.name, text, one.ctype)]
        if not text.isidentifier():
            held = self.kernel.names.fresh("element")
            body.append(f"const {one.ctype} {held} = {text};")
            text = held
        return self.reductions.extremes.taken(one.kind, one.ctype, text, self.position()[0], one.name, one.at)
