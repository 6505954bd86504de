"""C++ text of windows: guards, operations and reductions over windows, for one element of the result."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

from kernelmate.source.expressions import evaluate
from kernelmate.synthesis.graph import Node
from kernelmate.synthesis.index_maps import Linear, never_negative
from kernelmate.synthesis.kernel_text import block_of
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.size_text import ATOM, LOOSE, PRODUCT, SUM, bound, without_parentheses
from kernelmate.synthesis.window_elements import WindowElements, replaced
from kernelmate.synthesis.window_plan import Windows, parsed, walked

_START = {"sum": 0.0, "prod": 1.0, "max": -float("inf"), "min": float("inf")}
_BESIDE = {
    (0, 0): "center", (-1, -1): "up_left", (-1, 0): "up", (-1, 1): "up_right", (0, -1): "left", (0, 1): "right", (1, -1): "down_left",
    (1, 0): "down", (1, 1): "down_right",
}  # fmt: skip
"""Names of adjacent elements by row and column offset."""
_NAMES = {"sum": "sum", "prod": "product", "max": "max_value", "min": "min_value"}


MOST_UNROLLED = 64
"""Longest loop of a constant length that is unrolled: of 64 by 1024 iterations NVRTC did not end within its time limit."""

MOST_REPEATED = 4096
"""Largest number of elements that the reductions within another one may have together, for each result."""


def _side(down: int, across: int) -> str | None:
    """Returns the name of a position by its offsets: `left`, or `left2` for the one beyond it; None for others."""
    apart = max(abs(down), abs(across))
    if apart < 2 or down * across:
        return _BESIDE.get((down, across))
    return f"{_BESIDE[down // apart, across // apart]}{apart}"


def _limit(kind: str, ctype: str) -> str:
    """Returns the smallest number of a C++ integer type for a maximum, or the largest one for a minimum."""
    largest = {"int": "2147483647", "unsigned int": "4294967295u", "long long": "9223372036854775807ll", "unsigned long long": "18446744073709551615ull"}[ctype]  # fmt: skip
    if kind == "min":
        return largest
    return "0" if ctype.startswith("unsigned") else f"-{largest} - 1"


class WindowText(WindowElements):
    """Writes the values of one element of the result; arguments as for `WindowElements`."""

    _read: tuple[Windows, tuple[Key, ...]] | None = None

    def _leaves(self) -> tuple[Key, ...]:
        """Returns all elements of arrays that the plan reads, which a sorting network asks for at each of its steps."""
        if self._read is None or self._read[0] is not self.plan:
            self._read = self.plan, tuple(one for one in walked(self.plan) if self.plan.is_leaf(one))
        return self._read[1]

    def varies(self, key: Key) -> bool:
        """Returns False: nothing is hoisted, because guarded values must stay inside their guards."""
        return True

    def values(self, lines: list[str]) -> list[str]:
        """Returns the value of each target, as text; locals go to `lines`."""
        lines += self._tables()
        self._point(list(self._reads()), lines)
        return self.locals_for([target.key for target in self.plan.targets], lines)

    def _tables(self) -> list[str]:
        """Returns the declarations of constant tables."""
        lines = []
        for index, node in enumerate(self.plan.graph.nodes):
            if node.op == "table":
                name = self.tables[index] = self.names.fresh("weights")
                numbers = ", ".join(self.number(float(one or 0)) for one in node.data)
                lines.append(f"constexpr {self.real} {name}[] = {{{numbers}}};")
        return lines

    def _bare(self, key: Key) -> Key:
        node = self.plan.node(key)
        if self.plan.is_leaf(key):
            return key
        part = node.op == "window" and len(self.plan.operands(key)) == 1
        if (
            part
            or node.op in ("view", "reshape", "take", "pick", "along", "gather")
            or (node.op == "cast" and self._is_noise(key))
        ):
            found = self._bare(self.plan.operands(key)[0])
            self._hint(found)
            if node.name:
                self.hints.setdefault(found, self._numbered(key))
            return found
        return self._summand(key)

    def _numbered(self, key: Key) -> str:
        """Returns the reference's name of an array, with an element's place in its last axes if that is constant, as `a02`."""
        node, digits = self.plan.node(key), ""
        for at, side in zip(reversed(key[1]), reversed(node.shape), strict=False):
            if not side.isdigit() or not str(at).isdigit() or int(side) < 2:
                break
            digits = f"{at}{digits}"
        return f"{node.name}{digits}"

    def _summand(self, key: Key) -> Key:
        """Returns the key of a value added to zero, as by `sum` or to an array of zeros; other keys unchanged."""
        node, nodes = self.plan.node(key), self.plan.graph.nodes
        if node.op != "map" or node.data[0] != "add":
            return key
        first, second = self.plan.operands(key)
        for zero, other in ((first, second), (second, first)):
            if nodes[zero[0]].op == "constant" and nodes[zero[0]].data[0] == 0 and nodes[other[0]].dtype == node.dtype:
                return self._bare(other)
        return key

    def _text(self, key: Key, lines: list[str], uses: Mapping[Key, int], *, within: bool) -> tuple[str, int]:
        key = self._bare(key)
        node = self.plan.node(key)
        self._lines = lines
        if key in self.known:
            return self.known[key], ATOM
        if node.op == "reduce":
            return self._reduced(key, lines), ATOM
        if node.op == "table":
            place = Linear()
            for side, at in zip(node.shape, key[1], strict=True):
                place = place.times(int(side)).plus(parsed(str(at)))
            return f"{self.tables[key[0]]}[{self.number_text(place)[0]}]", ATOM
        if node.op == "window":
            return self._guarded(key, lines, uses)
        if node.op == "reshape":
            text = self._element(key)
            if uses.get(key, 0) < 2:
                return text, ATOM
            self.known[key] = self.names.fresh(f"{self.plan.name(key)}_i")
            lines.append(f"const {self.type_of(key)} {self.known[key]} = {text};")
            return self.known[key], ATOM
        self._hint(key)
        return super()._text(key, lines, uses, within=False)

    def applied(self, node: Node, args: list[tuple[str, int]]) -> tuple[str, int]:
        """Returns the text of an operation; elements of an identity matrix at constant places are numbers."""
        texts = [text for text, _ in args]
        if node.data[:1] == ("equal",) and all(text.isdigit() for text in texts):
            return "true" if texts[0] == texts[1] else "false", ATOM
        if node.op == "cast" and node.dtype.startswith("float") and texts[0] in ("true", "false"):
            return self.number(float(texts[0] == "true")), ATOM
        if node.data[:1] == ("multiply",) and node.dtype.startswith("float") and self.number(1.0) in texts:
            place = texts.index(self.number(1.0))
            if self.plan.graph.nodes[node.args[1 - place]].dtype.startswith("float"):
                return args[1 - place]
        return super().applied(node, args)

    def _hint(self, key: Key) -> None:
        """Names an element by its position relative to the thread's own, as in a stencil."""
        if not self.plan.is_leaf(key):
            if self.plan.node(key).name and self._numbered(key) != self.plan.node(key).name:
                self.hints.setdefault(key, self._numbered(key))
            return
        ends = [parsed(str(one)) for one in key[1] if one is not None][-2:]
        if len(ends) == 2 and all(len(one.terms) == 1 and one.terms[0][1] == 1 for one in ends):
            side = _side(ends[0].constant, ends[1].constant)
            if side == "center" and (self.plan.node(key).name or not self._has_neighbours(key)):
                return
            if side is not None:
                several = len({self.plan.name(one) for one in self._leaves() if self._is_beside(one)}) > 1
                self.hints.setdefault(key, f"{self.plan.name(key)}_{side}" if several else side)
        elif len(key[1]) > 1 and str(key[1][-1]).isdigit():  # one of the few elements of a short row
            name = self.plan.name(key)
            alike = {str(one[1][-1]) for one in self._leaves() if self.plan.name(one) == name and len(one[1]) > 1}
            if len(alike) > 1 and all(one.isdigit() for one in alike):
                self.hints.setdefault(key, f"{name}{key[1][-1]}")

    def _has_neighbours(self, key: Key) -> bool:
        """Returns True if elements adjacent to an array's element are read, too."""
        name = self.plan.name(key)
        for one in self._leaves():
            if self.plan.name(one) == name and one != key:
                ends = [parsed(str(end)) for end in one[1] if end is not None][-2:]
                own = [parsed(str(end)) for end in key[1] if end is not None][-2:]
                apart = [end.plus(other, -1) for end, other in zip(ends, own, strict=True)]
                if all(not one.terms and abs(one.constant) <= 1 for one in apart):
                    return True
        return False

    def _is_beside(self, key: Key) -> bool:
        return any(parsed(str(one)).constant for one in key[1] if one is not None)

    def _guarded(self, key: Key, lines: list[str], uses: Mapping[Key, int]) -> tuple[str, int]:
        """Returns an element of one array where it exists, else of another: as a local, unless the case is known."""
        inner, other = (self._bare(one) for one in self.plan.operands(key))
        condition, kind = self._condition(key), self.type_of(key)
        self._hint(inner)
        if self.plan.node(key).name:
            self.hints.setdefault(inner, self._numbered(key))
        if not condition:
            return self._text(inner, lines, uses, within=False)
        if self._is_plain(inner) and self._is_plain(other):
            texts = [self._text(one, lines, {}, within=False) for one in (inner, other)]
            if kind == self.real:
                texts = [self._as_real(one[0], text) for one, text in zip((inner, other), texts, strict=True)]
            named = f"{self.plan.name(inner)}_i" if self.plan.is_leaf(inner) else "value"
            condition = self._named_condition(key, condition, lines)
            name = self.names.fresh(self._said(inner) or named)
            lines.append(f"const {kind} {name} = {condition} ? {texts[0][0]} : {texts[1][0]};")
        else:
            name = self.names.fresh("result")
            self._assign(key, name, lines, uses, f"{kind} ")
        self.known[key] = name
        return name, ATOM

    def _assign(self, key: Key, name: str, lines: list[str], uses: Mapping[Key, int], declared: str = "") -> None:
        """Appends statements that assign the value of a key to a local."""
        key = self._bare(key)
        if self.plan.node(key).op != "window" or key in self.known or not self._condition(key):
            (text,) = self.locals_for([key], lines)
            lines.append(f"{declared}{name} = {text};")
            return
        inner, other = (self._bare(one) for one in self.plan.operands(key))
        facts = [parsed(guard) for guard in self.plan.guards(key) or () if not guard.startswith("divides(")]
        if declared and self._is_plain(other) and self._is_safe(other):
            start = self._text(other, lines, uses, within=False)
            start = self._as_real(other[0], start) if self.type_of(key) == self.real else start
            lines.append(f"{declared}{name} = {start[0]};")
            lines += block_of(f"if ({self._condition(key)})", self._branch(inner, name, facts))
            return
        if declared:
            lines.append(f"{declared}{name};")
        lines += block_of(f"if ({self._condition(key)})", self._branch(inner, name, facts))
        opposite = [facts[0].times(-1).plus(-1)] if len(facts) == len(self.plan.guards(key) or ()) == 1 else []
        rest = self._branch(other, name, opposite)
        if rest[0].startswith("if ("):
            lines[-1] = f"}} else {rest[0]}"
            lines += rest[1:]
        else:
            lines[-1] = "} else {"
            lines += ["  " + line for line in rest] + ["}"]

    def _branch(self, key: Key, name: str, facts: Sequence[Linear]) -> list[str]:
        """Returns statements that compute a value under a condition; their locals are known only there."""
        known, places, before = dict(self.known), dict(self._places), self._facts
        lines: list[str] = []
        self._facts = [*before, *facts]
        self._assign(key, name, lines, {})
        self.known, self._places, self._facts = known, places, before
        return lines

    def _condition(self, key: Key) -> str:
        """Returns the condition for a window to lie in its source, without known parts."""
        tests = [self._test(guard) for guard in self.plan.guards(key) or () if not self._is_implied(guard)]
        return " && ".join(tests)

    def _named_condition(self, key: Key, condition: str, lines: list[str]) -> str:
        """Returns the condition of a loop's window by names for its positions and for the whole; their locals go to `lines`."""
        if not any(
            name.startswith("__r") for guard in self.plan.guards(key) or () for name in re.findall(r"\w+", guard)
        ):
            return condition
        tests = condition.split(" && ")
        compared = (re.match(r"([^<>=%|]* [+-] [^<>=%|]*?) (?:>=|<) ", test) for test in tests)
        found = [one[1] for one in compared if one is not None]
        several = [one for one in dict.fromkeys(found) if found.count(one) > 1]
        for one, wanted in zip(
            several, ("in_row", "in_col") if len(several) == 2 else ("at",) * len(several), strict=True
        ):
            name = self.names.fresh(wanted)
            lines.append(f"const int {name} = {one};")
            tests = [test.replace(one, name, 1) if test.startswith(f"{one} ") else test for test in tests]
        condition = " && ".join(tests)
        if len(tests) < 4:
            return condition
        name = self.names.fresh("inside")
        lines.append(f"const bool {name} = {condition};")
        return name

    def _is_implied(self, guard: str) -> bool:
        if guard.startswith("divides("):
            return False
        value = parsed(guard)
        return any(never_negative(value.plus(fact, -1), self.plan.ranges) for fact in self._facts)

    def _test(self, guard: str) -> str:
        """Returns a condition: a sum is at least zero, or divisible."""
        if guard.startswith("divides("):
            at, _, every = guard[len("divides(") : -1].rpartition(", ")
            return f"{bound(self.number_text(parsed(at)), PRODUCT)} % {every} == 0"
        value = parsed(guard)
        variables = [term for term in value.terms if "__" in term[0]]
        left = Linear(tuple((name, factor) for name, factor in variables))
        right = value.plus(left, -1).times(-1)
        moving = any(name.startswith("__r") for name, _ in variables)  # positions of a loop are told as they are read
        if all(factor < 0 for _, factor in variables):
            limit = right.times(-1).plus(1)
            shift = limit.constant if moving and limit.terms else 0
            at = self.number_text(left.times(-1).plus(-shift))[0]
            return f"{at} < {self.number_text(limit.plus(-shift))[0]}"
        if moving and not right.terms:
            return f"{self.number_text(value)[0]} >= 0"
        return f"{self.number_text(left)[0]} >= {self.number_text(right)[0]}"

    def _is_plain(self, key: Key) -> bool:
        """Returns True if a value is an array element or a number whose address needs no guarded value."""
        node = self.plan.node(key)
        if node.op in ("constant", "scalar", "size") or key in self.known:
            return True
        return self.plan.is_leaf(key) and not any("value(" in str(one) for one in key[1])

    def _is_safe(self, key: Key) -> bool:
        """Returns True if a value may be computed without a condition."""
        node = self.plan.node(key)
        if not self.plan.is_leaf(key):
            return True
        for at, side in zip(map(parsed, map(str, key[1])), node.shape, strict=True):
            upper = parsed(side).plus(at, -1).plus(-1)
            if not never_negative(at, self.plan.ranges) or not never_negative(upper, self.plan.ranges):
                return False
        return True

    def _reduced(self, key: Key, lines: list[str]) -> str:
        """Returns the local that holds a reduction over a window; others over windows of the same size share its loops."""
        variables, roots = self._roots(key)
        shared = [(key, roots), *(self._alongside(key, variables) if variables else [])]
        for one, _ in shared:
            kind, ctype = str(self.plan.node(one).data[0]), self.type_of(one)
            whole = ctype != self.real
            if whole and (kind == "prod" or ctype == "bool"):
                raise Refused(f"the {kind} of {self.plan.node(one).dtype}")
            start = self.number(_START[kind]) if not whole else "0" if kind == "sum" else _limit(kind, ctype)
            name = self._totals[one] = self.names.fresh(self.plan.node(one).name or _NAMES[kind])
            lines.append(f"{ctype} {name} = {start};")
        if variables:
            self._read_before([root for _, several in shared for root in several], lines)
        loops: list[tuple[str, str]] = []
        for variable in variables:
            length = self.number_text(self.plan.ranges[variable])[0]
            local = self.names.fresh(self._counter(length, len(loops), len(variables)))
            self._positions[variable] = local
            loops.append((local, length))
        outer = self._repetitions
        self._repetitions *= math.prod(self._length(variable) for variable in variables)
        if outer > 1 and self._repetitions > MOST_REPEATED:
            raise Refused(f"a reduction would be computed again for each of the {outer} elements of another one")
        known, places = dict(self.known), dict(self._places)
        body: list[str] = []
        texts = self.locals_for([root for _, several in shared for root in several], body)
        for one, several in shared:
            own, texts = texts[: len(several)], texts[len(several) :]
            for text in own:
                body += self._combined(str(self.plan.node(one).data[0]), self._totals[one], text, self.type_of(one))
        self.known, self._places, self._repetitions = known, places, outer
        for local, length in reversed(loops):
            body = block_of(f"for (int {local} = 0; {local} < {length}; ++{local})", body)
            body = ["#pragma unroll", *body] if length.isdigit() and int(length) <= MOST_UNROLLED else body
        lines += body
        self.known |= {one: self._totals[one] for one, _ in shared}
        return self._totals[key]

    def _read_before(self, roots: Sequence[Key], lines: list[str]) -> None:
        """Declares locals for the elements that are the same in all iterations of a loop."""
        stack, seen = list(reversed(roots)), set[Key]()
        while stack:
            key = stack.pop()
            if key in seen or key in self.known:
                continue
            seen.add(key)
            stack += reversed(self.plan.operands(key))
            fixed = not any(word in str(one) for one in key[1] for word in ("__r", "value("))
            if self.plan.is_leaf(key) and fixed and self._is_safe(key):
                self._hint(key)
                self.named(key, lines, self.hints.get(key) or f"{self.plan.name(key)}_i")

    def _alongside(self, key: Key, variables: Sequence[str]) -> list[tuple[Key, list[Key]]]:
        """Returns independent reductions at the same index over the same lengths, with their operands in terms of `variables`."""
        found: list[tuple[Key, list[Key]]] = []
        inner = {one for one in walked(self.plan) if self.plan.node(one).op == "reduce"}
        inner -= {operand for one in inner for operand in self.plan.operands(one) if self.plan.node(operand).op == "reduce"}  # fmt: skip
        for one in sorted(inner - {key} - self.known.keys()):
            if one[1] != key[1] or self._reaches(one, inner - {one}) or self._reaches(key, {one}):
                continue
            others, roots = self._roots(one)
            lengths = [self.plan.ranges[name] for name in others]
            if lengths == [self.plan.ranges[name] for name in variables]:
                for mine, its in zip(variables, others, strict=True):
                    roots = [replaced(root, its, mine) for root in roots]
                found.append((one, roots))
        return found

    def _reaches(self, key: Key, wanted: Collection[Key]) -> bool:
        """Returns True if a value needs one of some others."""
        stack, seen = list(self.plan.operands(key)), set[Key]()
        while stack:
            one = stack.pop()
            if one in wanted:
                return True
            if one not in seen:
                seen.add(one)
                stack += self.plan.operands(one)
        return False

    def _length(self, variable: str) -> int:
        """Returns the length of a reduction's axis at the first listed size."""
        return max(1, int(evaluate(self.plan.ranges[variable].text(), self.plan.sizes[0])))

    def _combined(self, kind: str, name: str, text: str, ctype: str) -> list[str]:
        """Returns statements that combine one more value of a type into a reduction.

        NaN propagates as in NumPy, unless the baseline drops it by `fmaxf` or `fminf`.
        """
        if kind in ("sum", "prod"):
            return [f"{name} {'+' if kind == 'sum' else '*'}= {text};"]
        if ctype == self.real and self._kernel.drops_nan:
            return [f"{name} = f{kind}{'f' if ctype == 'float' else ''}({name}, {without_parentheses(text)});"]
        lines = []
        if not re.fullmatch(r"\w+", text):
            value = self.names.fresh("value")
            lines, text = [f"const {ctype} {value} = {text};"], value
        nan = f" || isnan({text})" if ctype == self.real else ""
        return [*lines, f"if ({text} {'>' if kind == 'max' else '<'} {name}{nan}) {name} = {text};"]

    def _repeats(self, key: Key) -> bool:
        return super()._repeats(key) or self._compares(self.plan.node(key))

    def _compares(self, node: Node) -> bool:
        """Returns True for a maximum or minimum of two values that is written as a comparison."""
        return node.op == "map" and node.data[0] in ("maximum", "minimum") and node.dtype.startswith("float")

    def _mapped(self, node: Node, name: str, args: list[tuple[str, int]], kinds: list[str]) -> tuple[str, int]:
        drops = self._kernel.drops_nan
        if self._compares(node) and not drops and not self._repeats_first(node):  # fmaxf would drop NaN
            first, second = (bound(arg, SUM) for arg in args)
            return f"{first} {'>' if name == 'maximum' else '<'} {second} || isnan({first}) ? {first} : {second}", LOOSE
        return super()._mapped(node, name, args, kinds)

    def _counter(self, length: str, place: int, count: int) -> str:
        """Returns the name of the kernel's own loop variable over `length`, or a generic name."""
        loops = rf"for \((?:int|size_t|unsigned) (\w+) = 0; \1 < {re.escape(length)}\b"
        mine = dict.fromkeys(re.findall(loops, self._kernel.kernel.source))
        plain = ("dy", "dx")[place] if count == 2 else "k"
        return next((name for name in mine if name not in self._positions.values()), plain)
