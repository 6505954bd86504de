"""Passes over the elements of a row or a column: reductions in the order in which they need each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.plan import FLAT, Key, Plan, Refused, walk
from kernelmate.synthesis.reductions import Reductions

_NAMES = {"sum": "total", "prod": "product", "max": "largest", "min": "smallest"}


class Passes:
    """What schedules of rows and of columns have in common.

    Attributes:
        inputs: arrays that are read, with their access.
        expressions: of the kernel. reductions: the functions that combine what several threads found.
    """

    plan: Plan
    kernel: KernelText
    inputs: dict[str, str]
    expressions: Expressions
    reductions: Reductions

    def loop(
        self, roots: Sequence[Key], body: list[str], stores: Sequence[str], before: Sequence[str] = ()
    ) -> list[str]:
        """A pass: `before`, and a loop over the elements with the lines of `body`, which computes `roots`."""
        raise NotImplementedError

    def accesses(self, outputs: Sequence[str], single: str) -> dict[str, str]:
        """How each array is met.

        Results that are one for each row or column are met as `single`.

        Raises:
            Refused: an array is met along different axes, or read after another thread may have written it.
        """
        found: dict[str, str] = {}
        for key in walk(self.plan):
            node = self.plan.node(key)
            if node.op != "input":
                continue
            name, access = str(node.data[0]), self.plan.access(key)
            whole = any(map(self.is_whole, self.plan.outputs))
            if name in outputs and access != "flat" and (access != single or whole):
                raise Refused(f"{name} is read where another thread may have written it")
            access = "flat" if access.startswith("@") else access
            if found.setdefault(name, access) != access:
                raise Refused(f"it meets {name} along different axes")
        return found

    def stores(self, pairs: Sequence[tuple[Key, str]], place: Callable[[str], str]) -> list[str]:
        """Statements that compute some outputs and store each at its place."""
        lines: list[str] = []
        texts = self.expressions.locals_for([key for key, _ in pairs], lines)
        values = [
            self.kernel.stored(name, text, self.plan.node(key).dtype)
            for (key, name), text in zip(pairs, texts, strict=True)
        ]
        if len(pairs) > 1 and any(name in self.inputs for _, name in pairs):
            # An array that is changed may still be read for the next output.
            held = [self.kernel.names.fresh(f"{name}_value") for _, name in pairs]
            for (_, name), local, value in zip(pairs, held, values, strict=True):
                lines.append(f"const {self.kernel.element(name)} {local} = {value};")
            values = held
        return [*lines, *(f"{place(name)} = {value};" for (_, name), value in zip(pairs, values, strict=True))]

    def is_whole(self, output: Key) -> bool:
        """Whether an output has an element for each element of the domain."""
        index = output[1]
        return index == (FLAT,) or len([one for one in index if one is not None]) == len(self.plan.domain)

    def levels(self) -> list[list[Key]]:
        """Reductions in the order of their passes: those of one pass need none of each other."""
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

    def reduction(self, keys: Sequence[Key]) -> list[str]:
        """One pass over the row, and its results in every thread."""
        lines, finals, updates = [], [], []
        roots: list[Key] = []
        by_node: dict[int, str] = {}
        for key in keys:
            node = self.plan.node(key)
            if key[0] in by_node:
                self.expressions.known[key] = by_node[key[0]]
                continue
            kind, ctype = str(node.data[0]), self.expressions.type_of(key)
            if ctype != self.kernel.real and (kind != "sum" or ctype == "bool"):
                raise Refused(f"the {kind} of {node.dtype}")
            squares = kind == "sum" and self.expressions.squares(node)
            name = self.kernel.names.fresh("squares" if squares else _NAMES[kind])
            start = {"sum": "0", "prod": "1"}.get(kind, "")
            if ctype == self.kernel.real:
                start = self.expressions.number(
                    {"sum": 0.0, "prod": 1.0, "max": -float("inf"), "min": float("inf")}[kind]
                )
            lines.append(f"{ctype} {name} = {start};")
            updates.append((name, kind))
            finals.append(f"{name} = {self.reductions.function(kind, ctype)}({name});")
            roots.append(self.plan.operands(key)[0])
            by_node[key[0]] = name
        body: list[str] = []
        texts = self.expressions.locals_for(roots, body)
        for (name, kind), text in zip(updates, texts, strict=True):
            body.append(self.reductions.combined(kind, name, text))
        loop = self.loop(roots, body, (), lines)
        self.expressions.known |= {key: by_node[key[0]] for key in keys}
        return [*loop, *finals]
