"""Infers shapes and directions of a kernel's pointers from their subscripts.

A subscript is a sum of index variables, each times the product of the extents inside it; a comparison such as `c < cols`
bounds a variable. `a[r * cols + c]` with `r < rows` is thus `[rows, cols]`, and `x[c]` is `[cols]`. Whatever is not of this
form leaves the array as `infer` guesses it.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernelmate.records import Direction, Kernel
from kernelmate.source.infer_texts import text_of_accesses
from kernelmate.source.polynomials import Poly, added, multiplied, pitches_of, split_offset, with_planes
from kernelmate.source.tokens import Token, closing, lex, opening_angle

_INTEGER = r"(?:std\s*::\s*)?(?:(?:const|unsigned|signed|long|int|short|size_t|u?int\d*_t)\b\s*)+"
CAST = re.compile(rf"\(\s*{_INTEGER}\)|\b(?:static_cast\s*<\s*{_INTEGER}>|{_INTEGER})\s*(?=\()")
"""Casts to integers: `(long)n`, and the names in `long(n)` and `static_cast<long>(n)`."""
BUILTIN = re.compile(r"\b(blockIdx|threadIdx|blockDim|gridDim)\s*\.\s*([xyz])\b")
_PLACES = ("blockIdx_x", "blockIdx_y", "blockIdx_z")
_BY_VALUE = re.compile(
    r"(?:if|while|for|switch|return|sizeof|static_cast|float|double|int|half|unsigned|fmaf?|f?max[fl]?|f?min[fl]?|f?abs[fl]?|exp[fl]?|log\w*|pow[fl]?|"
    r"sqrt[fl]?|rsqrt[fl]?|tanh?[fl]?|sin[fl]?|cos[fl]?|erf[cl]?[fl]?|floor[fl]?|ceil[fl]?|round[fl]?|make_\w+|__\w+)\Z"
)
"""Functions that change no argument."""
_PLANE = "plane of"
"""Stands for the index of a part of an array; no variable has this name."""
_NESTED_POINTERS = 3
_NESTED = 12
"""Maximum depth of variables within variables' definitions."""


@dataclass(frozen=True, slots=True)
class ArrayAccesses:
    """The accesses of a kernel to one array.

    Attributes:
        shape: its sides as contract expressions, the outermost first; None if the subscripts do not determine it.
        direction: `out` where each element is written and none is read, `in` where elements are only read; None if the text
            does not tell.
        is_read: True if a subscript, an operator such as `+=` or an atomic operation reads elements.
    """

    shape: tuple[str, ...] | None
    direction: Direction | None
    is_read: bool = False


def array_accesses(
    kernel: Kernel, extents: Sequence[str], grid: Sequence[str], constants: Mapping[str, str] | None = None
) -> Mapping[str, ArrayAccesses]:
    """Returns the shape and direction that the subscripts of each pointer show; None where they do not decide.

    Args:
        kernel: the kernel.
        extents: names of the sizes, the outermost in memory first.
        grid: the launch's grid, as contract expressions.
        constants: values of template parameters; None for none.
    """
    body = _KernelBody(kernel, extents, grid, constants or {})
    return {p.name: body.accesses(p.name) for p in kernel.signature.parameters if p.pointer}


def row_lengths(kernel: Kernel, extents: Sequence[str]) -> Mapping[str, str]:
    """Returns the parameters that are the length of a row in memory, each with the size that the index within a row is below."""
    return _KernelBody(kernel, extents, (), {}).pitches


def once_defined(kernel: Kernel) -> Mapping[str, str]:
    """Returns the variables of a kernel that are assigned once, with their values as text."""
    return _KernelBody(kernel, (), (), {}).definitions


class _KernelBody:
    """The tokens of a kernel's body, and the properties of its variables."""

    def __init__(
        self, kernel: Kernel, extents: Sequence[str], grid: Sequence[str], constants: Mapping[str, str]
    ) -> None:
        tokens = lex(text_of_accesses(kernel)).code
        opening = next((i for i, token in enumerate(tokens) if token.text == "{"), len(tokens))
        self._tokens, self._extents = tokens[opening:], tuple(extents)
        self.definitions = {**constants, **self._defined()}
        self._conditions = self._conditioned()
        self._bounds: dict[str, set[tuple[str, ...]]] = {}
        self._fixed: dict[str, set[int]] = {}
        self._partial, self.pitches = False, dict[str, str]()
        self._compare()
        for name, extent in zip(_PLACES, grid, strict=False):
            counted = extent.isdigit() and int(extent) > 1 and name not in self._bounds
            self._extents = tuple(dict.fromkeys((*self._extents, extent))) if counted else self._extents
            if extent in self._extents:
                self._bounds[name] = {(extent,)}
        scalars = [p.name for p in kernel.signature.parameters if not p.pointer and p.name not in self._extents]
        self.pitches |= pitches_of(_text(self._tokens), scalars, self._bounds)

    def accesses(self, pointer: str) -> ArrayAccesses:
        """Returns shape and direction of one pointer's array."""
        uses = self._uses(pointer, 0)
        places = [self._constant(subscript) for subscript, _, _ in uses]
        if len(set(places)) > 1 and None not in places:
            return self._few_elements([place for place in places if place is not None], uses)
        shapes = {None if subscript is None else self._shape(subscript) for subscript, _, _ in uses}
        same = len(shapes) == 1 and None not in shapes
        shape = shapes.pop() if same else self._planes([subscript for subscript, _, _ in uses])
        kinds = {kind for _, kind, _ in uses}
        whole = shape is not None and not (len(shape) > 1 and shape[-1].isdigit())
        covered = whole and not self._partial and all(self._is_guarded_by_bounds(at) for _, _, at in uses)
        direction: Direction | None = "in" if kinds == {"read"} else "out" if kinds == {"write"} and covered else None
        return ArrayAccesses(shape, direction, bool(kinds & {"read", "update", "passed"}))

    def _few_elements(self, places: Sequence[int], uses: Sequence[tuple[str | None, str, int]]) -> ArrayAccesses:
        """Returns shape and direction of an array whose elements are all named by constants: `box[0]`, `box[3]`."""
        kinds = {kind for _, kind, _ in uses}
        every = set(places) == set(range(max(places) + 1)) and not self._partial
        written = kinds == {"write"} and every and all(self._is_guarded_by_bounds(at) for _, _, at in uses)
        direction: Direction | None = "in" if kinds == {"read"} else "out" if written else None
        return ArrayAccesses((str(max(places) + 1),), direction, bool(kinds & {"read", "update", "passed"}))

    def _planes(self, subscripts: Sequence[str | None]) -> tuple[str, ...] | None:
        """Returns the shape of an array whose equal parts are all named by offsets: `x[i]`, `x[i + n]`, `x[i + 2 * n]`."""
        polys = [None if subscript is None else self._poly(subscript) for subscript in subscripts]
        parts = [split_offset(poly or {}, self._extents) for poly in polys]
        planes = {product for _, offset in parts for product in offset}
        numbers = {sum(offset.values()) for _, offset in parts}
        count = str(len(numbers))
        if None in polys or len(planes) != 1 or numbers != set(range(len(numbers))):
            return None
        self._extents = tuple(dict.fromkeys((*self._extents, count)))
        self._bounds[_PLANE] = {(count,)}
        shapes = {self._shape_of(with_planes(rest, planes.copy().pop(), count, _PLANE)) for rest, _ in parts}
        return shapes.pop() if len(shapes) == 1 else None

    def _constant(self, subscript: str | None) -> int | None:
        """Returns a subscript's value if it is a whole number that nothing changes, else None."""
        poly = self._poly(subscript) if subscript is not None else None
        value = None if poly is None or poly.keys() - {()} else poly.get((), 0)
        return value if value is not None and value >= 0 else None

    def _uses(self, pointer: str, depth: int) -> list[tuple[str | None, str, int]]:
        """Subscript, kind and position of each use of a pointer, and of the pointers that are derived from it."""
        places = [at for at, token in enumerate(self._tokens) if token.text == pointer and not self._is_member(at)]
        if depth:
            places = places[1:]  # its definition
        places, start = self._moved(places)
        found: list[tuple[str | None, str, int]] = []
        for at in places:
            alias = self._alias(at) if depth < _NESTED_POINTERS else None
            if alias is None:
                found.append((*self._access(at), at))
                continue
            name, offset = alias
            inner = self._uses(name, depth + 1)
            known = ((None if None in (text, offset) else text, kind, index) for text, kind, index in inner)
            found += [(None if text is None else f"{offset} + ({text})", kind, index) for text, kind, index in known]
        return (
            [(None if text is None else f"{start} + ({text})", kind, at) for text, kind, at in found]
            if start
            else found
        )

    def _alias(self, at: int) -> tuple[str, str | None] | None:
        """Returns the name and the offset of a pointer that is made of another one: `T* row = x + r * cols;`, `T* row = &x[r * cols];`.

        The offset is None for a cast: `float4* wide = reinterpret_cast<float4*>(x);`.
        """
        tokens = self._tokens
        first, last, _ = self._around(*self._element(at))
        cast = first < at - 1 and tokens[last + 1].text in (";", ",")
        if cast and tokens[first - 1].text == "=" and tokens[first - 3].text in ("*", "__restrict__", "__restrict"):
            return (tokens[first - 2].text, None) if self._is_defined_once(tokens[first - 2].text) else None
        address = tokens[at - 1].text == "&"
        equals = at - 2 if address else at - 1
        if tokens[equals].text != "=" or tokens[equals - 2].text not in ("*", "__restrict__", "__restrict"):
            return None
        name = tokens[equals - 1].text
        if not self._is_defined_once(name):
            return None
        if address:
            end = closing(tokens, at + 1) if tokens[at + 1].text == "[" else None
            if end is None or tokens[end + 1].text not in (";", ","):
                return None
            return name, f"({_text(tokens[at + 2 : end])})"
        if tokens[at + 1].text == ";":
            return name, "0"
        return (name, f"({_text(self._until(at + 2, {';', ','}))})") if tokens[at + 1].text == "+" else None

    def _is_defined_once(self, name: str) -> bool:
        return sum(one.text == name and following.text == "=" for one, following in pairwise(self._tokens)) == 1

    def _element(self, at: int) -> tuple[int, int, int]:
        """Returns the first and last token of an element `x[...]`, or of a pointer `x` or `x + ...` in parentheses.

        The last number is 0 for an element, and -1 for a pointer.
        """
        tokens = self._tokens
        after = tokens[at + 1].text if at + 1 < len(tokens) else ""
        end = closing(tokens, at + 1) if after == "[" else None
        if end is not None:
            return at, end, 0
        if tokens[at - 1].text == "(" and after == "+":
            return at, at + 1 + len(self._until(at + 2, {",", ";"})), -1
        return at, at, -1

    def _around(self, first: int, last: int, level: int) -> tuple[int, int, int]:
        """Returns an element or a pointer with the parentheses, casts, `&`, `*` and `[0]` around it."""
        tokens = self._tokens
        while last + 1 < len(tokens):
            before, after = tokens[first - 1].text, tokens[last + 1].text
            if before == "&" and level == 0 and self._is_unary(first - 1):
                first, level = first - 1, -1
            elif before == "*" and level == -1 and self._is_unary(first - 1):
                first, level = first - 1, 0
            elif level == -1 and [token.text for token in tokens[last + 1 : last + 4]] == ["[", "0", "]"]:
                last, level = last + 3, 0
            elif before == "(" and after == ")" and (start := self._opened(first - 1)) is not None:
                first, last = start, last + 1
            elif before == ")" and level == -1 and (start := self._cast(first - 1)) is not None:
                first = start
            else:
                break
        return first, last, level

    def _is_unary(self, at: int) -> bool:
        """Returns True for a `*` or `&` without a first operand; a cast before it is none."""
        before = self._tokens[at - 1]
        cast = before.text == ")" and self._cast(at - 1) is not None
        return cast or before.text == "return" or (before.kind == "symbol" and before.text not in (")", "]"))

    def _opened(self, at: int) -> int | None:
        """Returns the start of a parenthesis with the cast before it, such as `reinterpret_cast<float4*>`; None for a call."""
        before = self._tokens[at - 1]
        angle = opening_angle(self._tokens, at - 1) if before.text == ">" else None
        if angle is not None and self._tokens[angle - 1].text in ("reinterpret_cast", "const_cast"):
            return angle - 1
        return at if before.kind == "symbol" and before.text not in (")", "]", ">") else None

    def _cast(self, end: int) -> int | None:
        """Returns the opening parenthesis of a cast to a pointer, `(float4*)`, by its closing one; None for another text."""
        at = end - 1
        while self._tokens[at].kind == "word" or self._tokens[at].text in ("*", ":", "::"):
            at -= 1
        return at if self._tokens[at].text == "(" and self._tokens[end - 1].text == "*" else None

    def _moved(self, uses: list[int]) -> tuple[list[int], str]:
        """Returns the uses of a pointer without the one that moves it before all others, and by how much: `x += row * cols;`."""
        tokens = self._tokens
        moves = [at for at in uses if [token.text for token in tokens[at + 1 : at + 3]] == ["+", "="]]
        if len(moves) != 1 or moves[0] != uses[0] or tokens[moves[0] - 1].text not in (";", "{", "}"):
            return uses, ""
        return uses[1:], _text(self._until(moves[0] + 3, {";"}))

    def _is_member(self, index: int) -> bool:
        return (
            self._tokens[index - 1].text in {".", "->", ">"}
            and self._tokens[index - 1].end == self._tokens[index].start
        )

    def _access(self, index: int) -> tuple[str | None, str]:
        """Returns the subscript of a use of a pointer, and its kind: `read`, `write`, `update` or `other`."""
        tokens = self._tokens
        start = self._element(index)
        first, last, level = self._around(*start)
        if level == 0 and (first, last) != start[:2]:
            # Through a cast several elements are read or written, of which the subscript names one.
            cast = not {token.text for token in tokens[first:index]} <= {"(", "*", "&"}
            text = "0" if start[0] == start[1] else _text(tokens[index + 2 : start[1] - start[2]])
            return None if cast else text, self._kind(first, last)
        end = start[1] if start[2] == 0 else None
        address = tokens[index - 1].text == "&" and tokens[index - 2].text != "&"
        if end is None or address:
            called = tokens[index - 3 if address else index - 2].text
            return None, "update" if called.startswith("atomic") else "other"
        return _text(tokens[index + 2 : end]), self._kind(index, end)

    def _kind(self, first: int, last: int) -> str:
        """Returns the kind of an access to an element: `read`, `write`, `update`, `passed` if it may be read or changed, or `other`."""
        after = [token.text for token in self._tokens[last + 1 : last + 3]] + ["", ""]
        if after[0] == ".":
            return "passed" if self._kind(first, last + 2) in ("read", "update", "passed") else "other"
        kind = "write" if after[0] == "=" and after[1] != "=" else "other" if after[0] in {"[", "<<"} else "read"
        twice = after[0] in ("+", "-") and after[1] == after[0]
        if twice or (after[0] in set("+-*/%&|^") and after[1] == "="):
            kind = "update"
        if kind == "read" and self._may_change(first, last):
            kind = "update" if self._tokens[first - 1].text in ("+", "-") else "passed"
        return kind

    def _may_change(self, index: int, end: int) -> bool:
        """Returns True for an element that is incremented, bound to a reference, shifted in place or passed to a function."""
        before = [token.text for token in self._tokens[max(index - 3, 0) : index]]
        after = [token.text for token in self._tokens[end + 1 : end + 4]]
        if before[-2:] in (["+", "+"], ["-", "-"]) or before[-1:] in (["++"], ["--"]) or after[:3] == [">", ">", "="]:
            return True
        if before[-1:] == ["="] and before[:1] == ["&"]:
            return True
        if before[-1:] not in (["("], [","]) or after[:1] not in ([")"], [","]):
            return False
        depth = 0
        for at in range(index - 1, 0, -1):
            text = self._tokens[at].text
            depth += (text in ")]}") - (text in "([{")
            if depth < 0:
                return self._tokens[at - 1].kind == "word" and not _BY_VALUE.match(self._tokens[at - 1].text)
        return True

    # ------------------------------------------------------------------------------------------- variables

    def _defined(self) -> dict[str, str]:
        """Returns definitions of variables that are assigned once, as text."""
        found: dict[str, list[str]] = {}
        tokens = self._tokens
        for index in range(1, len(tokens) - 1):
            token, after = tokens[index], tokens[index + 1].text
            if token.kind != "word":
                continue
            if after == "=" and tokens[index + 2 : index + 3] and tokens[index + 2].text != "=":
                found.setdefault(token.text, []).append(_text(self._until(index + 2, {";", ","})))
            elif after in set("+-*/%&|^") and tokens[index + 2 : index + 3] and tokens[index + 2].text in {"=", after}:
                found.setdefault(token.text, []).extend(["", ""])
        return {name: texts[0] for name, texts in found.items() if len(texts) == 1}

    def _until(self, start: int, ends: set[str]) -> list[Token]:
        """Returns the tokens up to one of some symbols, or up to the closing bracket around them."""
        depth, found = 0, []
        for token in self._tokens[start:]:
            depth += (token.text in "([{") - (token.text in ")]}")
            if depth < 0 or (depth == 0 and token.text in ends):
                break
            found.append(token)
        return found

    def _compare(self) -> None:
        """Records bounds of variables from comparisons, and whether some elements are skipped."""
        for index in range(1, len(self._tokens) - 2):
            token, sign, before = self._tokens[index], self._tokens[index + 1].text, self._tokens[index - 1].text
            if token.kind != "word" or sign not in {"<", ">", "<=", ">="} or before not in {"(", "&", "|", ";", "!"}:
                continue
            guard = any(first <= index < last for first, last, _ in self._conditions)
            limit = self._poly(_text(self._until(index + 2, {";", ",", "&", "|", "?", "{"})), bounds=False)
            if sign == "<" and not guard and limit is not None and set(limit) == {()} and before == ";":
                self._fixed.setdefault(token.text, set()).add(limit[()])
            if sign in {">", "<="} or limit is None or set(limit) == {()}:
                self._partial |= guard and sign in {">", ">="}
                continue
            products = [product for product in limit if product]
            self._partial |= () in limit
            if len(products) == 1 and limit[products[0]] == 1:
                self._bounds.setdefault(token.text, set()).add(products[0])
        for name, text in self.definitions.items():
            remainder = re.search(r"% (\w+)\Z", text)
            if remainder is not None and remainder[1] in self._extents:
                self._bounds.setdefault(name, set()).add((remainder[1],))
        for index in range(len(self._tokens) - 5):
            # `CUDA_1D_KERNEL_LOOP(i, n)` and the like are loops of an index below a size.
            texts = [token.text for token in self._tokens[index : index + 6]]
            looped = re.fullmatch(r"\w*KERNEL_LOOP\w*", texts[0]) and [texts[1], texts[3], texts[5]] == ["(", ",", ")"]
            if looped and texts[4] in self._extents:
                self._bounds.setdefault(texts[2], set()).add((texts[4],))
        begun = re.findall(r"\bfor \( (?:\w+ )*(\w+) = (?!0\b)\d", _text(self._tokens))
        self._partial |= any(name in self._bounds for name in begun)

    def _conditioned(self) -> list[tuple[int, int, int]]:
        """Returns begin and end of each `if` condition, and the end of the code that it guards.

        For an early exit that end is the end of the body.
        """
        found, tokens = [], self._tokens
        for index, token in enumerate(tokens):
            end = closing(tokens, index + 1) if token.text == "if" and index + 1 < len(tokens) else None
            if end is None:
                continue
            last = self._statement(end + 1)
            if last < len(tokens) and tokens[last].text == "else":
                last = self._statement(last + 1)
            leaves = {one.text for one in tokens[end:last]} & {"return", "continue", "break"}
            found.append((index + 2, end, len(tokens) if leaves else last))
        return found

    def _statement(self, start: int) -> int:
        """Returns the index after the statement that begins at a token."""
        if start < len(self._tokens) and self._tokens[start].text == "{":
            return (closing(self._tokens, start) or len(self._tokens) - 1) + 1
        return start + len(self._until(start, {";"})) + 1

    def _is_guarded_by_bounds(self, use: int) -> bool:
        """True if the conditions around a store compare indices with sizes alone, so that every element is written."""
        if any(token.text in {"while", "switch", "goto"} for token in self._tokens):
            return False
        for first, last, until in self._conditions:
            if not last <= use < until:
                continue
            words = [i for i in range(first, last) if self._tokens[i].kind == "word" and not self._is_member(i)]
            text = _text(self._tokens[first:last])
            whole = all(
                value == "0" and name not in self._bounds for name, value in re.findall(r"(\w+) == (\w+)", text)
            )
            indices = all(self._is_index(self._tokens[i].text) for i in words)
            if "%" in text or "! =" in text or not whole or not indices:
                return False
        return True

    def _is_index(self, word: str) -> bool:
        if word in self._extents or word in self._bounds or word in {"blockIdx", "threadIdx", "blockDim", "gridDim"}:
            return True
        text = self.definitions.get(word)
        words = re.findall(r"[A-Za-z_]\w*", BUILTIN.sub("0", text)) if text else [""]
        return not [one for one in words if one != "warpSize" and one not in self._bounds and one not in self._extents]

    # -------------------------------------------------------------------------------------------- subscripts

    def _shape(self, subscript: str) -> tuple[str, ...] | None:
        poly = self._poly(subscript)
        if poly is None:
            return None
        width, rest = self._width(poly)
        if width > 1:  # a fixed number of elements for each index: `x[3 * i + 1]`, `x[8 * i + k]` with k below 8.
            sides = self._shape_of({product: factor // width for product, factor in rest.items()})
            return None if sides is None else (*sides, str(width))
        return self._shape_of(poly)

    def _width(self, poly: Poly) -> tuple[int, Poly]:
        """The number of elements that each index steps over, and the terms that step; 1 where there is none."""
        inner = [one for one in poly if len(one) == 1 and one[0] in self._fixed and one[0] not in self._bounds]
        rest = {product: factor for product, factor in poly.items() if product and product not in inner}
        width = math.gcd(*rest.values()) if rest else 1
        if not inner:
            return (width, rest) if 0 <= poly.get((), 0) < width else (1, poly)
        limits = self._fixed[inner[0][0]]
        fits = len(inner) == 1 and poly[inner[0]] == 1 and not poly.get((), 0) and max(limits) <= width
        return (width, rest) if fits else (1, poly)

    def _shape_of(self, poly: Poly) -> tuple[str, ...] | None:
        strides: dict[str, tuple[str, ...]] = {}
        for product, factor in poly.items():
            variables = [name for name in product if name not in self._extents]
            if not variables:
                if product and min(poly.values()) > 0:
                    return None  # an offset by a size: a part of a larger array
                continue
            if len(variables) > 1 or abs(factor) != 1 or variables[0] in strides:
                return None
            strides[variables[0]] = tuple(sorted(name for name in product if name in self._extents))
        return self._sides(strides) if strides else ("1",) if poly in ({}, {(): 0}) else None

    def _sides(self, strides: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
        """Returns sides from the variables' bounds, if each variable's stride is the product of the sides within it."""
        inner: tuple[str, ...] = ()
        sides: list[str] = []
        for name, stride in sorted(strides.items(), key=lambda item: len(item[1])):
            bounds = self._bounds.get(name, set())
            if stride != tuple(sorted(inner)) or len(bounds) != 1:
                return None
            (bound,) = bounds
            inner += bound
            sides = [*sorted(bound, key=self._extents.index), *sides]
        return tuple(sides)

    def _poly(self, text: str, depth: int = 0, *, bounds: bool = True) -> Poly | None:
        """Returns a text as a sum of products of extents and index variables; None if it is not one."""
        plain = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", CAST.sub(" ", BUILTIN.sub(r"\1_\2", text)).strip())
        try:
            tree = ast.parse(plain, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
        return self._sum(tree, depth, bounds=bounds)

    def _sum(self, node: ast.expr, depth: int, *, bounds: bool) -> Poly | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return {(): int(node.value)}
        if isinstance(node, ast.Name):
            return self._variable(node.id, depth, bounds=bounds)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult):
            left = self._sum(node.left, depth, bounds=bounds)
            right = self._sum(node.right, depth, bounds=bounds)
            if left is None or right is None:
                return None
            return multiplied(left, right) if isinstance(node.op, ast.Mult) else added(left, right, 1 if isinstance(node.op, ast.Add) else -1)  # fmt: skip
        return None

    def _variable(self, name: str, depth: int, *, bounds: bool) -> Poly | None:
        if name in self._extents or (bounds and (name in self._bounds or name in self._fixed)):
            return {(name,): 1}
        if name in self.pitches:
            return {(self.pitches[name],): 1}
        text = self.definitions.get(name)
        if text is None or depth > _NESTED:
            return None
        return self._poly(text, depth + 1, bounds=bounds)


def _text(tokens: Sequence[Token]) -> str:
    return " ".join(token.text for token in tokens)
