"""Writes a graph's operations as C++ expressions; values used twice become locals as far outside loops as possible."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from kernelmate.synthesis.graph import Node
from kernelmate.synthesis.kernel_text import KernelText, c_type
from kernelmate.synthesis.names import RESERVED, one_of
from kernelmate.synthesis.operations import NARROW, OF_COUNTS, Operations
from kernelmate.synthesis.plan import Key, Plan, Refused
from kernelmate.synthesis.size_text import ATOM, LOOSE, PRODUCT, SUM, bound

_NAMES = {
    "subtract": "difference", "multiply": "product", "add": "sum", "divide": "ratio", "exp": "exponential", "rint": "rounded", "floor": "floored",
    "sqrt": "root", "square": "square", "tanh": "tangent", "where": "selected", "maximum": "clamped", "minimum": "clamped",
    "negative": "negated", "power": "power", "fmin": "smaller", "fmax": "larger", "searchsorted": "place",
}  # fmt: skip

Leaf = Callable[[Key], str]


class Expressions(Operations):
    """Writer of the expressions of one kernel.

    Args:
        plan: the graph, and the domain over which it is evaluated.
        kernel: the kernel whose parameters hold sizes.
        leaf: returns the text of an array's element, a scalar or a position.
        varying: accesses that differ between the elements of a row; all other values are hoisted to `outer`.

    Attributes:
        known: the locals of values that are already computed.
        hints: the reference's names for values.
        outer: lines to be written before the loop over elements.
        at: the text of the position of each gather.
    """

    def __init__(self, plan: Plan, kernel: KernelText, leaf: Leaf, varying: frozenset[str]) -> None:
        super().__init__(plan, kernel)
        self.names, self._leaf, self._varying = kernel.names, leaf, varying
        self.at: dict[str, str] = {}
        self.known: dict[Key, str] = {}
        self.hints: dict[Key, str] = {}
        self._asked: frozenset[Key] = frozenset()
        self.outer: list[str] = []
        self._varies: dict[Key, bool] = {}

    def varies(self, key: Key) -> bool:
        """Returns True if a value differs between the elements of a row."""
        if key not in self._varies:
            node = self.plan.node(key)
            if node.op in ("input", "iota"):
                found = self.plan.access(key) in self._varying
            elif node.op in ("state", "recur"):
                found = node.op == "state" or node.data[2] != "last"
            elif node.op in ("reduce", "scan", "scatter", "segment"):
                found = self.plan.kind == "free" or node.op == "scan"
            else:
                found = any(self.varies(one) for one in self.plan.operands(key))
            self._varies[key] = found
        return self._varies[key]

    def locals_for(self, roots: Iterable[Key], lines: list[str]) -> list[str]:
        """Returns the expressions of some values; subexpressions used twice become locals in `lines`."""
        roots = list(roots)
        stack = [self._bare(key) for key in roots]
        before, self._asked = self._asked, frozenset(stack)
        uses: Counter[Key] = Counter(stack)
        seen: set[Key] = set()
        while stack:
            key = stack.pop()
            if key in seen or key in self.known or self.plan.node(key).op == "reduce":
                continue
            seen.add(key)
            for one in self.plan.operands(key):
                factor = 2 if self._repeats(key) else 1
                uses[self._bare(one)] += factor
                stack.append(self._bare(one))
        texts = [self._text(key, lines, uses, within=self.varies(key))[0] for key in roots]
        self._asked = before
        return texts

    def _repeats(self, key: Key) -> bool:
        """Returns True if an operation's text contains its first operand twice."""
        node = self.plan.node(key)
        repeated = self._whole_power(node) is not None or self._repeats_first(node)
        if node.op == "map" and node.data[0] in OF_COUNTS and not node.dtype.startswith("float"):
            repeated = not self._divides_counts(node)
        return node.op == "map" and (node.data[0] == "square" or repeated)

    def _bare(self, key: Key) -> Key:
        """Returns the key below views and casts that have no effect in C++."""
        node = self.plan.node(key)
        if node.op in ("view", "reshape", "repeat") or (node.op == "cast" and self._is_noise(key)):
            found = self._bare(self.plan.operands(key)[0])
            if node.name:
                self.hints.setdefault(found, node.name)
            return found
        return key

    def bare(self, key: Key) -> Key:
        """Returns the key of the same value below views and casts without effect."""
        return self._bare(key)

    def named(self, key: Key, lines: list[str], wanted: str) -> str:
        """Returns a local that holds a value; a new local is declared in `lines`."""
        (text,) = self.locals_for([key], lines)
        key = self._bare(key)
        if not text.isidentifier():
            name = self.names.fresh(self._said(key) or wanted)
            lines.append(self._declaration(key, name, text))
            text = self.known[key] = name
        return text

    def bare_number(self, key: Key) -> Key:
        """Returns the key of an integer below casts between integer types."""
        node = self.plan.node(key)
        while node.op in ("cast", "view") and self.plan.graph.nodes[node.args[0]].dtype[:3] in ("int", "uin"):
            key = self.plan.operands(key)[0]
            node = self.plan.node(key)
        return key

    def _is_noise(self, key: Key) -> bool:
        node, source = self.plan.node(key), self.plan.graph.nodes[self.plan.node(key).args[0]]
        promoted = node.dtype == "int32" and source.dtype in NARROW  # as C++ does with every operand
        return promoted or (node.dtype in ("float32", "float64") and source.dtype.startswith("float"))

    def type_of(self, key: Key) -> str:
        """Returns the C++ type of a value."""
        return c_type(self.plan.node(key).dtype, self.real)

    def _text(self, key: Key, lines: list[str], uses: Mapping[Key, int], *, within: bool) -> tuple[str, int]:
        key = self._bare(key)
        if key in self.known:
            return self.known[key], ATOM
        node = self.plan.node(key)
        if node.op in ("constant", "size", "scalar") or (node.op == "iota"):
            return self._simple(key, node)
        if node.op in ("reduce", "scan", "scatter", "segment", "state", "recur"):
            raise Refused(f"the result of a {node.op} is needed before it is known")
        if node.op in ("take", "pick", "along"):  # the schedule has loaded the number
            operands = self.plan.operands(key)
            if not operands:
                raise Refused("it selects elements by index beside parts of arrays or reductions")
            return self._text(operands[0], lines, uses, within=within)
        if node.op == "gather":
            source, chosen = self.plan.operands(key)
            self.at[f"@{node.args[1]}"] = self._text(self.bare_number(chosen), lines, uses, within=within)[0]
            return self._text(source, lines, uses, within=within)
        target = lines
        hoisted = within and not self.varies(key)
        if hoisted:
            target = self.outer
        if node.op == "input":
            text, level = self._leaf(key), ATOM
            named = hoisted or uses.get(key, 0) > 1
        else:
            text, level = self._operation(key, node, target, uses, within=within and not hoisted)
            said = key not in self._asked and (self._said(key) != "" or node.mapped == "searchsorted")
            named = hoisted or uses.get(key, 0) > 1 or said
        if not named or re.fullmatch(r"\w+", text):
            return text, level
        name = self._said(key) or self._name(key, node, text, uses)
        if name != "value" and not self.names.is_free(name):
            taken = (f"{self.plan.kind.removesuffix('s')}_{name}", f"{name.removesuffix('_i')}_value")
            name = next(
                (one for one in taken[self.plan.kind not in ("rows", "columns") :] if self.names.is_free(one)), name
            )
        name = self.names.fresh(name)
        target.append(self._declaration(key, name, text))
        self.known[key] = name
        return name, ATOM

    def _declaration(self, key: Key, name: str, text: str) -> str:
        """Returns the declaration of a local; a cast that its type implies is left out."""
        kind = self.type_of(key)
        if kind == "int":
            self._ints.add(name)
        plain = re.fullmatch(rf"static_cast<{re.escape(kind)}>\(([\w.\[\]]+)\)", text)
        return f"const {kind} {name} = {text if plain is None or kind != self.real else plain[1]};"

    def _simple(self, key: Key, node: Node) -> tuple[str, int]:
        if node.op == "constant":
            return self._constant(node)
        if node.op == "size":
            text = self._kernel.size(str(node.data[0]))
            if re.fullmatch(r"\w+( \* \w+)+", text):  # a product of sizes may be more than an int holds
                return re.sub(r"^\w+", lambda first: f"static_cast<long long>({first[0]})", text), PRODUCT
            level = SUM if re.fullmatch(r"\w+ [-+] \w+", text) else LOOSE
            return text, ATOM if re.fullmatch(r"\w+(\(.*\))?", text) else level
        text = self._leaf(key)
        return text, ATOM if re.fullmatch(r"\w+|static_cast<[\w ]+>\(\w+\)", text) else SUM if re.fullmatch(
            r"\w+ \+ \w+", text
        ) else LOOSE

    def _name(self, key: Key, node: Node, text: str, uses: Mapping[Key, int]) -> str:
        leaf = self._behind(node)
        if leaf.op == "input":
            return self.element_name(str(leaf.data[0]), key)
        if node.op == "map" and node.data[0] == "sqrt" and self._sums_squares(node.args[0]):
            return "norm"
        scaled_scalar = re.fullmatch(r"(\d[\d.e-]*)f? \* ([a-z]\w*)|([a-z]\w*) \* (\d[\d.e-]*)f?", text)
        if scaled_scalar is not None and not self.varies(key):
            factor, scalar = scaled_scalar[1] or scaled_scalar[4], scaled_scalar[2] or scaled_scalar[3]
            return f"{'half' if factor == '0.5' else 'scaled'}_{scalar}"
        rest = re.fullmatch(r"1\.0f? - ([a-z]\w*)", text)
        if rest is not None:
            return f"one_minus_{rest[1]}"
        called = re.fullmatch(r"(sqrt|log)f?\((1\.0f? - )?([a-z]\w*)\)", text)
        if called is not None:
            return f"{called[1]}_{'one_minus_' if called[2] else ''}{called[3]}"
        scaled = self._scaled(key, uses)
        if scaled:
            return f"{scaled}_scale"
        if node.mapped == "equal" and self._viewed(node.args[0]).op == "iota" and text.endswith(" == 0"):
            return "is_first"
        name = _NAMES.get(str(node.data[0]) if node.data else node.op, "condition" if node.dtype == "bool" else "value")
        if name in ("difference", "sum") and self.plan.kind == "free" and not self.varies(key):
            return "shift"
        if name == "sum" and any(self._viewed(one).data[:1] == ("multiply",) for one in node.args):
            return "affine"  # `sum` would read as one of the kernel's reductions
        if node.op == "map" and node.data[0] == "divide" and self.plan.kind != "free":
            return self._name_of_quotient(self._viewed(node.args[0]), text) or name
        return name

    def _name_of_quotient(self, reduced: Node, text: str) -> str:
        """Returns the name of a reduction divided by a number; empty if another value is divided."""
        if reduced.op != "reduce":
            return ""
        if reduced.data[0] in ("max", "min"):
            return "scale"
        of = re.match(r"sum_(?!sq\b)(\w+) /", text)
        return "mean_square" if self.squares(reduced) else f"mean_{of[1]}" if of is not None else "mean"

    def _said(self, key: Key) -> str:
        """Returns the reference's name for a value if it is usable for a local; else an empty string."""
        node = self.plan.node(key)
        name = self.hints.get(key, node.name if node.op == "map" else "")
        if not name or name == "value" or name in RESERVED:
            return ""
        result = name in self._kernel.arguments and self._kernel.arguments[name].direction == "out"
        if (self.varies(key) or result) and self.names.is_free(one_of(name)):
            name, result = one_of(name), False  # one element of what the reference computes as a whole
        if node.op == "map" and self.varies(key) and (result or name in self.known.values()):
            name = f"{name}_i"  # the result's array has the name, or a value outside of the loop
        return name if self.names.is_free(name) else ""

    def element_name(self, array: str, key: Key) -> str:
        """Returns a name for an element of an array, according to how the element varies."""
        access = self.plan.access(key)
        return {"row": f"row_{array}", "once": f"{array}_value"}.get(access, self.names.element_name(array))

    def _behind(self, node: Node) -> Node:
        """Returns the node below views, reshapes and casts."""
        return self._behind(self.plan.graph.nodes[node.args[0]]) if node.op in ("view", "cast", "reshape") else node

    def _scaled(self, key: Key, uses: Mapping[Key, int]) -> str:
        """Returns the name of the array whose elements a value scales, if it has no other use; else an empty string."""
        if self.varies(key) or self.plan.kind == "free":
            return ""
        found = set[str]()
        for one in uses:
            node = self.plan.node(one)
            operands = self.plan.operands(one)
            if not any(self._bare(operand) == key for operand in operands):
                continue
            others = [self._behind(self.plan.node(operand)) for operand in operands if self._bare(operand) != key]
            if node.op != "map" or node.data[0] != "multiply" or len(others) != 1 or others[0].op != "input":
                return ""
            found.add(str(others[0].data[0]))
        return found.pop() if len(found) == 1 else ""

    def _sums_squares(self, index: int) -> bool:
        """Returns True if a value is a sum of squares, possibly bounded or with a term added."""
        node = self._viewed(index)
        if node.op == "map" and node.data[0] in ("add", "maximum"):
            return any(self._sums_squares(one) for one in node.args)
        return node.op == "reduce" and node.data[0] == "sum" and self.squares(node)

    def squares(self, reduction: Node) -> bool:
        """Returns True if the operand of a reduction is a square."""
        operand = self.plan.graph.nodes[reduction.args[0]]
        same = operand.op == "map" and operand.data[0] == "multiply" and operand.args[0] == operand.args[1]
        return same or (operand.op == "map" and operand.data[0] == "square")

    def _operation(self, key: Key, node: Node, lines: list[str], uses: Mapping[Key, int], *, within: bool) -> tuple[str, int]:  # fmt: skip
        if node.op not in ("map", "cast"):
            raise Refused(f"{node.op} cannot be written here")
        if within and node.data[:1] == ("divide",) and self.varies(key) and self._bounded(self.plan.operands(key)[1]):
            first, second = self.plan.operands(key)
            product = self._text(first, lines, uses, within=within)
            return f"{bound(product, PRODUCT)} * {self._inverse(second, uses)}", PRODUCT
        args = [self._text(one, lines, uses, within=within) for one in self.plan.operands(key)]
        return self.applied(node, args)

    def _bounded(self, key: Key) -> bool:
        """Returns True if a divisor is the same for a whole row, and its reciprocal is finite unless it is 0."""
        node, nodes = self.plan.node(self._bare(key)), self.plan.graph.nodes
        if self.varies(key) or (self.plan.kind == "map" and all(one.op != "repeat" for one in nodes)):
            return False
        if node.op in ("reduce", "segment") and node.data[0] == "sum":
            return nodes[node.args[-1]].op == "map" and nodes[node.args[-1]].data[0] == "exp"
        if node.op == "map" and node.data[0] in ("maximum", "add"):
            return any(self._bounded(one) for one in self.plan.operands(self._bare(key)))
        return node.op == "map" and node.data[0] == "sqrt"

    def _inverse(self, key: Key, uses: Mapping[Key, int]) -> str:
        """Returns the local that holds a reciprocal, so that each element takes a product and the row one division."""
        known = (-1 - self._bare(key)[0], ())
        if known not in self.known:
            divisor = self._text(key, self.outer, uses, within=False)
            name = self.names.fresh(self._inverse_name(divisor[0]))
            text = f"{self.number(1.0)} / {bound(divisor, ATOM)}"
            if self._is_inverse_root([("1.0f", ATOM), divisor]):
                text = f"r{divisor[0]}"  # as the baseline has it
            self.outer.append(f"const {self.real} {name} = {text};")
            self.known[known] = name
        return self.known[known]

    def _inverse_name(self, divisor: str) -> str:
        """Returns a name for the reciprocal of a text's value."""
        names = {"mean_square": "inv_rms", "var": "inv_std", "sum_sq": "inv_norm", "norm": "inv_norm"}
        found = next((word for word in names if word in divisor), "")
        root = re.fullmatch(r"sqrtf?\((\w+)\)", divisor)
        if found or root is not None:
            return names[found] if found or root is None else f"inv_sqrt_{root[1]}"
        word = re.fullmatch(r"(?:row_|column_)?([a-z]\w*)", divisor)
        return f"inv_{word[1]}" if word is not None else "inverse"
