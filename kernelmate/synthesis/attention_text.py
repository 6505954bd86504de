"""C++ text shared by all attention schedules: block assignment, addresses, scores, and results."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from kernelmate.records import Contract
from kernelmate.source import evaluate, size_allowed
from kernelmate.synthesis.attention_plan import Attention, axes_of, by_axis
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.identities import always_equal
from kernelmate.synthesis.index_maps import Linear
from kernelmate.synthesis.kernel_text import KernelText, block_of, fresh_names
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.sizes import joined


class AttentionText:
    """Writer of the C++ text that all attention schedules share.

    Args:
        plan: the graph; a block has one position along each of its batch axes.
        kernel: the kernel whose text is written.
        columns: columns of the values that a block computes.

    Attributes:
        opening: declarations at the start of the kernel.
        at: the text of the position along each axis.
        low: the text of the score for masked keys.
        several: True if several blocks share the columns of a result.
    """

    def __init__(self, plan: Attention, kernel: KernelText, columns: int) -> None:
        self.plan, self.kernel = plan, kernel
        if kernel.real != "float":
            raise Refused("it computes attention in double")
        self.names = fresh_names(
            kernel, "kQueries", "kKeys", "kValues", "kDepth", "kStep", "kSector", "kPad", "kRows", "kSide", "kAcross", "kThreads", "kColumns",
            "infinity", "query", "key", "c", "column", "first", "inside", "row", "step", "end", "i", "j",
            "product", "score", "scores", "weight", "weights", "shift", "factor",
            "offset", "tiles", "n", "warp", "lane", "part", "count", "queries", "keys", "depth", "columns", "slice",
            rank="group_lane", total="acc", largest="row_max", sum="row_sum", bound="new_max", inverse_sum="inv_sum",
            key_first="first_key", c_first="first_c", column_first="first_column",
        )  # fmt: skip
        self.opening: list[str] = []
        if kernel.infinity != "INFINITY":
            self.opening.append(f"const float {self.names.infinity} = {kernel.infinity};")
            kernel.infinity = self.names.infinity
        self.low = f"-{kernel.infinity}"
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"flat"}))
        self._pointers: dict[Key, str] = {}
        self._addresses: dict[Key, str] = {}
        self._lengths: dict[str, str] = {}
        self.outputs = dict(zip((one.name for one in kernel.outputs()), plan.outputs, strict=True))
        self.read = [*plan.leaves([plan.score, *plan.left, *plan.right, *plan.values])]
        self._refuse_overwritten()
        self.several = not _bounded(kernel.contract, plan.domain[plan.column], columns)
        self.at: dict[int, str] = {plan.column: self.names.column, plan.key: self.names.key, plan.depth: self.names.c}
        if plan.query is not None:
            self.at[plan.query] = self.names.query

    def _refuse_overwritten(self) -> None:
        inner = {str(self.plan.node(key).data[0]) for key in self.read if self.plan.node(key).op == "input"}
        finals = [key for key in self.plan.leaves(self.plan.outputs) if self.plan.node(key).op == "input"]
        for key in finals:
            name = str(self.plan.node(key).data[0])
            if name in self.outputs and (len(self.outputs) > 1 or self.plan.steps(key) != self.plan.steps(self.outputs[name])):  # fmt: skip
                raise Refused(f"{name} is read where another thread may have written it")
        if inner & {*self.outputs}:
            raise Refused("an array is read where another thread may have written it")

    def length(self, axis: int, name: str) -> str:
        """Returns the extent of an axis in C++; an extent that is an expression becomes a local."""
        text = self.kernel.size(self.plan.domain[axis])
        if text.isidentifier() or text.isdigit():
            return text
        if text not in self._lengths:
            self._lengths[text] = name
            self.opening.append(f"const int {name} = {text};")
        return self._lengths[text]

    def blocks(self, tiles: str, query: int | None = None) -> tuple[list[str], str]:
        """Returns lines that declare a block's positions along batch axes, and the grid's size.

        Args:
            tiles: expression of the number of blocks that share these positions; empty if each block has its own.
            query: the batch axis of queries.
        """
        names, plan = self.names, self.plan
        groups = _merged_batch(plan, [*self.read, *plan.leaves(plan.outputs), *plan.outputs])
        lines, found = list[str](), list[str]()
        side, left = "", f"blockIdx.x / {names.tiles}" if tiles else "blockIdx.x"
        for number, group in enumerate(reversed(groups), 1):
            whole = "1"
            for axis in group:
                whole = joined(whole, "*", plan.domain[axis])
            wanted = "query" if query in group else "head" if "head" not in found else "batch"
            found.append(wanted)
            name = self.kernel.names.fresh(wanted) if wanted != "query" else names.query
            within = ""
            if number < len(groups):
                text = self.kernel.size(whole)
                text = text if text.isidentifier() or text.isdigit() else f"({text})"
                within = f" % {text}"
            lines.append(f"const int {name} = {left}{within};")
            left = f"{left} / {text}" if within else left
            for axis in group:  # the last of a group moves along all of it
                self.at[axis] = name if axis == group[-1] else "0"
            side = f"{whole} * {side}" if side else whole
        return lines, " * ".join(filter(None, [tiles, side])) or "1"

    def pointers(self, whole: str = "head") -> list[str]:
        """Declares pointers to a block's part of each array; requires the block's positions to be declared."""
        lines: list[str] = []
        arrays = [
            key for key in (*self.read, *self.plan.leaves(self.plan.outputs)) if self.plan.node(key).op == "input"
        ]
        names = [str(self.plan.node(key).data[0]) for key in dict.fromkeys(arrays)]
        for key, name in zip(dict.fromkeys(arrays), names, strict=True):
            suffix = self._role(key) if names.count(name) > 1 else whole
            self._place(key, name, suffix, lines)
        for name, key in self.outputs.items():
            self._place(key, name, whole, lines)
        return lines

    def _role(self, key: Key) -> str:
        plan = self.plan
        roles = {"query": plan.left, "key": plan.right, "value": plan.values}
        return next((role for role, roots in roles.items() if key in plan.leaves(roots)), "score")

    def _place(self, key: Key, name: str, suffix: str, lines: list[str]) -> None:
        """Declares the pointer of one array, and records the offsets of its elements."""
        steps = self.plan.steps(key)
        batch, inner = list[tuple[str, str]](), list[tuple[str, str]]()
        for axis, factor in sorted(by_axis(steps).items(), key=lambda pair: (pair[0] in (self.plan.column, self.plan.depth), pair[0])):  # fmt: skip
            if self.at[axis] == "0":
                continue
            stride = self._stride(factor)
            (batch if axis in self.plan.batch else inner).append((self.at[axis], stride))
        texts = [_moved(at, stride) for at, stride in batch]
        texts += [] if steps.offset == "0" else [self.kernel.size(steps.offset)]
        self._pointers[key] = name
        if texts:
            pointer = self.kernel.names.fresh(f"{name}_{suffix}")
            const = "" if name in self.outputs else "const "
            lines.append(f"{const}{self.kernel.element(name)}* {pointer} = {name} + {' + '.join(texts)};")
            self._pointers[key] = pointer
        self._addresses[key] = " + ".join(_moved(at, stride) for at, stride in inner) or "0"

    def _stride(self, factor: str) -> str:
        """Returns the text of an axis's stride, as a factor in a product that starts with a 64-bit position."""
        text = self.kernel.size(factor)
        if not re.fullmatch(r"\w+( \* \w+)*", text):
            return f"({text})"
        order = [*self.kernel.contract.sizes[0]]
        sides = text.split(" * ")
        return " * ".join(sorted(sides, key=order.index) if {*sides} <= {*order} else sides)

    def element(self, key: Key) -> str:
        """Returns an element of an array, as C++ text."""
        return f"{self._pointers[key]}[{self._addresses[key]}]"

    def begins(self, key: Key) -> str:
        """Returns the pointer to a block's part of an array."""
        return self._pointers[key]

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        name = str(node.data[0]) if node.data else ""
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        if node.op == "input":
            return self.kernel.loaded(name, self.element(key))
        steps = self.plan.steps(key)
        texts = [_moved(self.at[axis], self.kernel.size(factor)) for axis, factor in by_axis(steps).items()]
        texts = [one for one in texts if one != "0"]
        return " + ".join(texts + ([] if steps.offset == "0" else [self.kernel.size(steps.offset)])) or "0"

    def contiguous(self, roots: Sequence[Key], axis: int) -> bool:
        """Returns True if positions along an axis are contiguous in every array that some values depend on."""
        keys = [key for key in self.plan.leaves(roots) if self.plan.node(key).op == "input" and axis in axes_of(key)]
        return bool(keys) and all(by_axis(self.plan.steps(key))[axis] == "1" for key in keys)

    def product_of(self, roots: Sequence[Key], lines: list[str]) -> str:
        """Returns the product of some values; further statements go to `lines`."""
        texts = self.expressions.locals_for(roots, lines)
        self.forget()
        return " * ".join(one if one.isidentifier() or len(texts) == 1 or one.endswith((")", "]")) else f"({one})" for one in texts)  # fmt: skip

    def scored(self, product: str, lines: list[str], score: Key | None = None) -> str:
        """Returns the score of a query and a key from their product.

        `score` replaces the plan's score if the range of keys already implements the mask.
        """
        known: Mapping[Key, str] = {} if self.plan.product is None else {self.plan.product: product}
        self.expressions.known.update(known)
        (text,) = self.expressions.locals_for([self.plan.score if score is None else score], lines)
        self.forget()
        return text

    def forget(self) -> None:
        """Forgets locals of loops that have ended."""
        known = self.expressions.known
        self.expressions.known = {key: one for key, one in known.items() if key[0] < 0 or not self.expressions.varies(key)}  # fmt: skip

    def end(self, found: Linear | None, keys: str, behind: str) -> str:
        """Returns the end of the keys with weight for queries before `behind`.

        `found` is the maximum distance of a key with weight after its query; None means that all keys have weight.
        """
        if found is None:
            return keys
        more = "" if not found.constant else f" {'-' if found.constant < 0 else '+'} {abs(found.constant)}"
        terms = Linear(found.terms)
        try:
            rest = f" + ({self.kernel.size(terms.bare())})" if terms.terms else ""
        except Refused:
            return keys
        return f"min({keys}, {behind}{rest}{more})"

    def stores(self, total: str, summed: str, largest: str, *, vectors: bool) -> list[str]:
        """Returns the stores of outputs that are vectors, or of those with one number per query."""
        plan, kernel, lines = self.plan, self.kernel, list[str]()
        chosen = {name: key for name, key in self.outputs.items() if (plan.column in axes_of(key)) == vectors}
        self.expressions.known.update({plan.total: total, plan.summed: summed, plan.largest: largest})
        texts = self.expressions.locals_for(chosen.values(), lines)
        self.forget()
        for (name, key), text in zip(chosen.items(), texts, strict=True):
            lines.append(f"{self.element(key)} = {kernel.stored(name, text, plan.node(key).dtype)};")
        return lines

    def promise(self) -> str:
        """Returns a sentence on traffic and arithmetic at the headline size."""
        plan, size = self.plan, self.kernel.contract.sizes[0]
        names = dict.fromkeys(str(plan.node(key).data[0]) for key in self.read if plan.node(key).op == "input")
        sides = [int(evaluate(side or "1", size)) for side in plan.domain]
        scores = sides[plan.key]
        for axis in range(plan.key):
            scores *= 1 if axis == plan.column else sides[axis]
        work = 2 * scores * (sides[plan.column] + (sides[plan.depth] if plan.product else 0))
        return f"{self.kernel.promise(names)} It computes {work / 1e9:.3g} GFLOP at most, and stores no scores."


def _bounded(contract: Contract, side: str, most: int) -> bool:
    """Returns True if an extent is bounded at every size: it is a number, or `require` limits it to `most`."""
    names = [name for name in contract.sizes[0] if re.search(rf"\b{name}\b", side)]
    if names and not any(re.search(rf"\b{name}\b", rule) for rule in contract.require for name in names):
        return False
    tried = [{**size, name: value} for size in contract.sizes for name in names for value in range(most + 1, 4 * most)]
    tried += [{**size, name: size[name] << bits} for size in contract.sizes for name in names for bits in range(1, 13)]
    return all(
        evaluate(side, size) <= most for size in [*contract.sizes, *filter(partial(size_allowed, contract), tried)]
    )


def _moved(at: str, stride: str) -> str:
    """Returns the offset, in elements, of a position along an axis."""
    if stride == "1":
        return at
    return f"static_cast<size_t>({at}) * {stride}"


def over(name: str, count: str | int) -> str:
    """Returns the head of a `for` loop from zero."""
    return f"for (int {name} = 0; {name} < {count}; ++{name})"


def unrolled(name: str, count: str | int, lines: Sequence[str]) -> list[str]:
    """Returns a loop of constant trip count with `#pragma unroll`."""
    return ["#pragma unroll", *block_of(over(name, count), lines)]


def _merged_batch(plan: Attention, keys: Sequence[Key]) -> list[list[int]]:
    """Groups the batch axes; axes that are contiguous with each other in every array form one group."""
    assert plan.contract is not None
    steps = [by_axis(plan.steps(key)) for key in keys]
    groups: list[list[int]] = []
    for axis in plan.batch:
        before = groups[-1][-1] if groups else -1
        together = before == axis - 1 and all(
            always_equal(plan.contract, one.get(before, "0"), f"({plan.domain[axis]}) * ({one.get(axis, '0')})")
            for one in steps
        )
        if before >= 0 and together:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups
