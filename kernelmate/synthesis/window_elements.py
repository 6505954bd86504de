"""C++ expressions for positions in windows, and for array elements at these positions."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

from kernelmate.synthesis.elements import number_name
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.index_maps import Linear, never_negative
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.size_text import ATOM, PRODUCT, SUM, bound, falls
from kernelmate.synthesis.window_plan import UNROLLED, Windows, parsed, valued


class WindowElements(Expressions):
    """Writer of positions, addresses and pointers.

    Args:
        plan: the plan of the windows.
        kernel: the kernel whose parameters hold sizes.
        positions: the locals that hold the position along each axis, by variable.
    """

    plan: Windows

    def __init__(self, plan: Windows, kernel: KernelText, positions: Mapping[str, str]) -> None:
        super().__init__(plan, kernel, self._element, frozenset())
        self._positions = dict(positions)
        self._places: dict[str, str] = {}
        self._lines: list[str] = []
        self._pointers: dict[tuple[str, str], str] = {}
        self.tables: dict[int, str] = {}
        self._totals: dict[Key, str] = {}
        self._strides: dict[str, str] = {}
        self._facts: list[Linear] = []
        self._repetitions = 1  # of what is written, by the loops of reductions around it

    def number_text(self, value: Linear) -> tuple[str, int]:
        """Returns a position or a size as C++ text."""
        positive = sorted(value.terms, key=lambda term: (term[1] < 0, -abs(term[1]), not term[0].startswith("__")))
        text, level = "", ATOM
        for name, factor in positive:
            term, inner = self._term(name)
            if abs(factor) != 1:
                term, inner = f"{abs(factor)} * {bound((term, inner), ATOM)}", PRODUCT
            elif factor < 0 or text:
                term = bound((term, inner), PRODUCT)
            if not text:
                text, level = (f"-{bound((term, inner), ATOM if factor == -1 else PRODUCT)}", PRODUCT) if factor < 0 else (term, inner)  # fmt: skip
            else:
                text, level = f"{text} {'-' if factor < 0 else '+'} {term}", SUM
        if not text:
            return str(value.constant), ATOM if value.constant >= 0 else PRODUCT
        if value.constant:
            text, level = f"{text} {'-' if value.constant < 0 else '+'} {abs(value.constant)}", SUM
        return text, level

    def address(self, shape: Sequence[str], index: Sequence[Linear]) -> str:
        """Returns the linear index of an element in an array of a shape."""
        pairs = [(side, at) for side, at in zip(shape, index, strict=True) if side != "1"]
        if not pairs:
            return "0"
        text, level = self.number_text(pairs[0][1])
        narrow = True
        for side, at in pairs[1:]:
            length = bound(self.number_text(parsed(side)), PRODUCT + 1)
            if text == "0":
                text, level = self.number_text(at)
                continue
            if text == "1":
                text, level = self.number_text(parsed(side))
            elif narrow and not text.isdigit():
                text, level, narrow = _times(f"static_cast<size_t>({text})", length), PRODUCT, False
            else:
                text, level = _times(bound((text, level), PRODUCT), length), PRODUCT
            if at != Linear():
                more = self.number_text(at)[0]
                text, level = f"{text} {'-' if more.startswith('-') else '+'} {more.removeprefix('-')}", SUM
        return text

    def _term(self, name: str) -> tuple[str, int]:
        if name in self._positions:
            return self._positions[name], ATOM
        if "__" not in name and "value(" not in name:
            text = self._kernel.size(name)
            return text, ATOM if re.fullmatch(r"[\w.]+(\([^()]*\))?", text) else PRODUCT if "+" not in text and "-" not in text else SUM  # fmt: skip
        node = ast.parse(name, mode="eval").body
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                sign = {ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%"}[type(op)]
                sides = [self.number_text(parsed(ast.unparse(one))) for one in (left, right)]
                if sign == "%" and falls(left) and not any("__" in term for term, _ in parsed(ast.unparse(left)).terms):
                    by = bound(sides[1], ATOM)
                    return f"({bound(sides[0], PRODUCT)} % {by} + {by}) % {by}", PRODUCT
                return f"{bound(sides[0], PRODUCT)} {sign} {bound(sides[1], ATOM)}", PRODUCT
            case ast.Call(func=ast.Name(id="max" | "min" as call), args=args):
                texts = [self.number_text(parsed(ast.unparse(one)))[0] for one in args]
                return f"{call}({', '.join(texts)})", ATOM
        return self._local(name, node), ATOM

    def _local(self, name: str, node: ast.expr) -> str:
        """Returns the local variable that holds a position other than a sum of terms, declared at its first use."""
        if name in self._places:
            return self._places[name]
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            raise Refused("it has a position that cannot be written")
        if node.func.id == "value":
            key = valued(name)
            (text,) = self.locals_for([self.bare_number(key)], self._lines)
            numbers = self.plan.node(self.bare_number(key))
            kind, wanted = "int" if numbers.dtype == "int32" else "long long", number_name(numbers, self.names)
        else:
            at, side = (parsed(ast.unparse(one)) for one in node.args)
            text, wanted = self._beyond(node.func.id, at, side)
            kind = "int"
        local = self.names.fresh(wanted)
        self._lines.append(f"const {kind} {local} = {text};")
        self._places[name] = local
        return local

    def _beyond(self, call: str, at: Linear, side: Linear) -> tuple[str, str]:
        """Returns the text and the name of a clamped, wrapped or mirrored position."""
        text, length = self.number_text(at)[0], self.number_text(side)
        variables = [name for name, _ in at.terms if name in self._positions]
        axis = self._positions[variables[0]] if variables else "position"
        apart = abs(at.constant) if abs(at.constant) > 1 else ""
        name = f"{axis}_{'near' if len(at.terms) > 1 else f'before{apart}' if at.constant < 0 else f'after{apart}'}"
        last = self.number_text(side.plus(-1))[0]
        if call == "edge":
            low = never_negative(at, self.plan.ranges)
            high = never_negative(side.plus(at, -1).plus(-1), self.plan.ranges)
            text = text if low else f"max({text}, 0)"
            return text if high else f"min({text}, {last})", name
        if call in ("reflect", "symmetric"):
            return self._mirrored(call, at, side), name.replace("_near", "_mirrored")
        simple = at.terms == ((variables[0], 1),) if variables else False
        if simple and at.constant == -1:
            return f"{axis} == 0 ? {last} : {text}", name
        if simple and at.constant == 1:
            return f"{axis} == {last} ? 0 : {text}", name
        size = bound(length, ATOM)
        if never_negative(at, self.plan.ranges):
            return f"({text}) % {size}", name
        return f"(({text}) % {size} + {length[0]}) % {size}", name

    def _mirrored(self, call: str, at: Linear, side: Linear) -> str:
        """Returns the text of a mirrored position, within the axis even if it is shorter than the padding."""
        outer = int(call == "symmetric")
        ranges, last = self.plan.ranges, self.number_text(side.plus(-1))[0]
        plain = self.number_text(at)
        text, beyond = plain, side.plus(at, -1).plus(-1)  # not negative up to the last position
        if not never_negative(at, ranges):
            image = self.number_text(at.times(-1).plus(-1))[0]
            near = outer and never_negative(at.plus(1), ranges)  # the image of -1 is 0
            text = (f"abs({plain[0]})" if not outer else f"max({plain[0]}, {'0' if near else image})"), ATOM
        if never_negative(beyond, ranges):
            return text[0] if text == plain or text[0].endswith(", 0)") else f"min({text[0]}, {last})"
        if outer and never_negative(beyond.plus(1), ranges):
            return f"min({text[0]}, {last})"
        image = f"{self.number_text(side.times(2).plus(outer - 2))[0]} - {bound(text, ATOM)}"
        if text == plain:
            image = self.number_text(side.times(2).plus(at, -1).plus(outer - 2))[0]
        return f"max(min({text[0]}, {image}), 0)"

    def _point(self, keys_read: Sequence[Key], lines: list[str]) -> None:
        """Declares pointers for arrays that are read at several offsets from the same position."""
        self._lines = lines
        reads: dict[tuple[str, str], set[Key]] = {}
        for key in keys_read:
            base, _ = self._split(key)
            reads.setdefault((self.plan.name(key), " ".join(one.text() for one in base)), set()).add(key)
        for pair, keys in reads.items():
            base, rest = self._split(next(iter(keys)))
            looped = any(one.terms for one in rest)
            moved = any("(" in name and "__" in name for one in base for name, _ in one.terms)
            if (len(keys) > 1 or looped) and any(one.terms for one in base) and not moved:
                self._declare(lines, pair, base, self.plan.node(next(iter(keys))).shape, "at")
        rows: dict[tuple[str, str], list[Key]] = {}
        for pair, keys in reads.items():
            for key in () if pair in self._pointers else keys:
                rows.setdefault((pair[0], " ".join(map(str, key[1][:-1]))), []).append(key)
        for pair, several in rows.items():
            row = [parsed(str(one)) for one in several[0][1][:-1]]
            if len(several) > 1 and any(one.terms for one in row) and not any("value(" in one.text() for one in row):
                self._declare(lines, pair, [*row, Linear()], self.plan.node(several[0]).shape, "row")
        for key in keys_read:  # positions and strides are declared before any condition
            base, rest = self._split(key)
            if (self.plan.name(key), " ".join(one.text() for one in base)) in self._pointers:
                self._offset(self.plan.node(key).shape, rest, declare=True)
            if not any(word in str(one) for one in key[1] for word in ("__r", "value(")):
                self._element(key)

    def _declare(self, lines: list[str], pair: tuple[str, str], at: Sequence[Linear], shape: Sequence[str], what: str) -> None:  # fmt: skip
        """Declares a pointer to an element."""
        name, address = pair[0], self.address(shape, at)
        places = [local for text, local in self._places.items() if text in at[-2].text()] if len(at) > 1 else []
        local = self.names.fresh(f"{name}_{places[-1] if places and what == 'row' else what}")
        const = "" if name in [target.name for target in self.plan.targets] else "const "
        lines.append(f"{const}{self._kernel.element(name)}* {local} = {name} + {address};")
        self._pointers[pair] = local

    def _reads(self) -> Iterable[Key]:
        """Yields reads of arrays in program order; unrolled reductions yield the reads of each element."""
        seen: set[Key] = set()
        stack = list(reversed(self.plan.outputs))
        while stack:
            key = stack.pop()
            if key in seen:
                continue
            seen.add(key)
            if self.plan.is_leaf(key):
                yield key
            elif self.plan.node(key).op == "reduce":
                stack += reversed(self._roots(key)[1])
            else:
                stack += reversed(self.plan.operands(key))

    def _split(self, key: Key) -> tuple[list[Linear], list[Linear]]:
        """Splits an index into the part that moves with the thread, and the constant or loop part."""
        base, rest = [], []
        for one in key[1]:
            at = parsed(str(one))
            own = tuple(term for term in at.terms if not term[0].startswith("__r"))
            base.append(Linear(own))
            rest.append(Linear(tuple(term for term in at.terms if term[0].startswith("__r")), at.constant))
        return base, rest

    def _element(self, key: Key) -> str:
        """Returns the text of an array's element, a scalar or a position."""
        node = self.plan.node(key)
        if node.op == "scalar":
            return self._kernel.loaded(str(node.data[0]), str(node.data[0]))
        if node.op == "iota":
            return self.number_text(parsed(str(key[1][0])))[0]
        name, shape = self.plan.name(key), node.shape
        base, rest = self._split(key)
        pointer = self._pointers.get((name, " ".join(one.text() for one in base)))
        row = self._pointers.get((name, " ".join(map(str, key[1][:-1]))))
        if pointer is None and row is not None:
            return self._kernel.loaded(name, f"{row}[{self.number_text(parsed(str(key[1][-1])))[0]}]")
        if pointer is None:
            return self._kernel.loaded(name, f"{name}[{self.address(shape, [parsed(str(one)) for one in key[1]])}]")
        return self._kernel.loaded(name, f"{pointer}[{self._offset(shape, rest)}]")

    def _offset(self, shape: Sequence[str], rest: Sequence[Linear], *, declare: bool = False) -> str:
        """Returns an element's offset from a pointer, as small row and column offsets; or only declares the strides."""
        total = Linear()
        factors: list[tuple[Linear, str]] = []
        for axis, at in enumerate(rest):
            if at == Linear():
                continue
            stride = Linear((), 1)
            symbolic = "1"
            for side in shape[axis + 1 :]:
                if side.isdigit():
                    stride = stride.times(int(side))
                elif side != "1":
                    symbolic = side if symbolic == "1" else f"{symbolic} * {side}"
            if symbolic == "1":
                total = total.plus(at, stride.constant)
            else:
                factors.append((at.times(stride.constant), symbolic))
        lengths = [self._stride(symbolic) for _, symbolic in factors]
        if declare:
            return ""
        text = ""
        for (at, _), length in zip(factors, lengths, strict=True):
            one = "" if at == Linear((), 1) else "-" if at == Linear((), -1) else f"{bound(self.number_text(at), PRODUCT)} * "  # fmt: skip
            term = f"{one}{bound(length, PRODUCT if one in ('',) else ATOM)}"
            text = term if not text else f"{text} - {term[1:]}" if term.startswith("-") else f"{text} + {term}"
        if total == Linear():
            return text or "0"
        more = self.number_text(total)[0]
        return more if not text else f"{text} - {more[1:]}" if more.startswith("-") else f"{text} + {more}"

    def _stride(self, symbolic: str) -> tuple[str, int]:
        """Returns the stride along an axis; a product of several lengths is computed in 64 bits."""
        parts = symbolic.split(" * ") if "(" not in symbolic else [symbolic]
        texts = [self.number_text(parsed(part)) for part in parts]
        if len(texts) == 1:
            return texts[0]
        if symbolic not in self._strides:
            first, *others = (bound(text, ATOM) for text in texts)
            self._strides[symbolic] = self.names.fresh("plane_size" if len(texts) == 2 else "stride")
            product = f"static_cast<long long>({first}) * {' * '.join(others)}"
            self._lines.append(f"const long long {self._strides[symbolic]} = {product};")
        return self._strides[symbolic], ATOM

    def _roots(self, key: Key) -> tuple[list[str], list[Key]]:
        """Returns the variables of a chain of reductions of one kind, and its operands, one per unrolled element."""
        variables: list[str] = []
        kind, root = self.plan.node(key).data[0], key
        while self.plan.node(root).op == "reduce" and self.plan.node(root).data[0] == kind:
            (inner,) = self.plan.operands(root)
            variables.append(f"__r{root[0]}")
            root = inner
        roots = [root]
        for variable in list(variables):
            length = self.plan.ranges[variable]
            few = not length.terms and length.constant <= UNROLLED
            if few and (length.constant == 1 or any(self._chooses(one, variable) for one in roots)):
                roots = [replaced(one, variable, value) for one in roots for value in range(length.constant)]
                variables.remove(variable)
        return variables, roots

    def _chooses(self, key: Key, variable: str) -> bool:
        """Returns True if arrays are joined along a variable's axis, so that each value reads another array."""
        stack, seen = [key], set()
        while stack:
            one = stack.pop()
            if one in seen:
                continue
            seen.add(one)
            if self.plan.node(one).op == "window" and any(variable in guard for guard in self.plan.guards(one) or ()):
                other = self.plan.graph.nodes[self.plan.node(one).args[1]]
                if other.op != "constant":
                    return True
            stack += self.plan.operands(one)
        return False


def replaced(key: Key, variable: str, value: int | str) -> Key:
    """Returns a key with a number or another variable in place of a variable."""
    return key[0], tuple(parsed(re.sub(rf"\b{variable}\b", str(value), str(one))).text() for one in key[1])


def _times(text: str, length: str) -> str:
    """Returns a product with a length, with two trailing numbers multiplied."""
    number = re.search(r"(?<= \* )\d+$", text)
    if number is None or not length.isdigit():
        return f"{text} * {length}"
    return f"{text[: number.start()]}{int(number[0]) * int(length)}"
