"""Reads from host code the size of each array that a launch passes, and whether it is filled before and read after."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from kernelmate.source.expressions import ExpressionError, parse_expression
from kernelmate.source.host_code import Untranslatable
from kernelmate.source.host_places import HostPlace
from kernelmate.source.host_reader import HostReader, HostTranslation
from kernelmate.source.host_syntax import base_of, chain_end, part_of, unspaced
from kernelmate.source.tidying import tidied
from kernelmate.source.tokens import Token, assignment, closing, closing_angle, lex, split_list

Shape = tuple[str, ...]

_BYTES_AT = {
    "cudaMalloc": 1,
    "cudaMallocManaged": 1,
    "cudaMallocAsync": 1,
    "cudaMallocHost": 1,
    "cudaHostAlloc": 1,
    "hipMalloc": 1,
    "hipMallocManaged": 1,
    "cuMemAlloc": 1,
    "cuMemAllocManaged": 1,
    "cudaMallocFromPoolAsync": 1,
}
"""Position of the number of bytes in calls whose first argument is the address of a pointer."""

_PITCHED = frozenset({"cudaMallocPitch", "cuMemAllocPitch"})
_COPIES = frozenset(["cudaMemcpy", "cudaMemcpyAsync", "hipMemcpy", "hipMemcpyAsync"])
_COPIES_2D = frozenset(["cudaMemcpy2D", "cudaMemcpy2DAsync"])
_FILLS = frozenset(["cudaMemset", "cudaMemsetAsync", "cudaMemset2D", "cuMemsetD8", "cuMemsetD32", "hipMemset"])
_MADE = re.compile(r"(empty|zeros|ones|full|rand|randn|randint|arange)(_like)?\Z")
_SAME = frozenset(["contiguous", "clone", "to", "detach", "cuda", "toType", "view_as", "type"])
_LEAVES = re.compile(r"(?i)prefetch|advise|free|print|check|attribute|data_ptr|size")
"""Calls that leave the contents of an array as they are."""

_DEEPEST = 5


@dataclass(slots=True)
class HostArray:
    """Facts about an array that the host code states.

    Attributes:
        shape: sides as contract expressions, the outermost first; None where it is not known.
        nbytes: its size as a contract expression, where that alone is known.
        sure: False if the shape comes from a comment, or from the dimensions that a function reads.
        filled: True if the host gives it contents before the launch, False if it makes it without; None if unknown.
        zeros: it is filled with zeros.
        start: elements of it before the one that is passed, as in `p + n`; None where their number is not known.
        lines: positions of the host code from which these facts follow.
    """

    shape: Shape | None = None
    nbytes: str | None = None
    sure: bool = True
    filled: bool | None = None
    zeros: bool = False
    start: str | None = "0"
    lines: list[tuple[HostPlace, int]] = field(default_factory=list)


class HostArrays:
    """Reads the arrays of one launch."""

    def __init__(self, reading: HostTranslation) -> None:
        self.reading = reading
        reading.members = self._member
        self._asked: set[tuple[str, int]] = set()

    def array(self, text: str, reader: HostReader, depth: int = 0) -> HostArray:
        """Returns the known facts about an argument of a launch or of a call."""
        base = base_of(text)
        part = part_of(text) if base is None else None
        if part is not None and depth <= _DEEPEST:
            return self._part(*part, reader, depth)
        if base is None or base in ("nullptr", "NULL") or depth > _DEEPEST:
            return HostArray()
        return self._named(base, reader, depth)

    def _part(self, whole: str, offset: str | None, reader: HostReader, depth: int) -> HostArray:
        """Returns the known facts about an array that is passed from an offset on; the host may fill the rest elsewhere."""
        found = self.array(whole, reader, depth + 1)
        start = None if offset is None else _tried(reader, offset)
        if start != "0":
            found.start = start if found.start == "0" else None
            found.filled = found.filled or None
        return found

    # --------------------------------------------------------------------------------------------------- names

    def _named(self, name: str, reader: HostReader, depth: int) -> HostArray:
        """Returns the known facts about a variable, from the enclosing function and from its callers."""
        place, found = reader.place, HostArray()
        function = place.function()
        first, last = place.region() if re.fullmatch(r"\w+", name) else (0, len(place.host.tokens))
        own = function is not None and any(one.name == name for one in function.parameters)
        declared = any(True for _ in self._uses(name, place, first, last))
        if not own and not self._is_declared(name, place, first, last):
            first, last = 0, len(place.host.tokens)
        if own or declared:
            for at, end in self._uses(name, place, first, last):
                self._event(found, at, end, reader, depth)
        if own and function is not None:
            parameter = next(one for one in function.parameters if one.name == name)
            if re.search(r"Tensor|ArrayRef|\bView\b", parameter.text) and "*" not in parameter.text:
                self._as_tensor(found, name, reader)
            else:
                self._from_callers(found, name, reader, depth)
        return found

    @staticmethod
    def _is_declared(name: str, place: HostPlace, first: int, last: int) -> bool:
        """Returns True if a part of a text declares a variable: after a type, `*` or `&`, and before no operator."""
        tokens = place.host.tokens
        for at in place.host.words.get(re.split(r"\.|->", name)[0], ()):
            follows = tokens[at + 1].text if first < at < last and at + 1 < len(tokens) else ""
            before = tokens[at - 1]
            typed = before.kind == "word" and before.text not in ("return", "else", "delete")
            reference = before.text == "&" and (tokens[at - 2].text == ">" or tokens[at - 2].kind == "word")
            if follows in ("=", ";", ",", "(", "{", "[") and (typed or reference or before.text in ("*", ">")):
                return True
        return False

    @staticmethod
    def _uses(name: str, place: HostPlace, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yields the first and last token of each use of a variable in a part of a text."""
        tokens = place.host.tokens
        parts = [token.text for token in lex(name).tokens]
        for at in place.host.words.get(parts[0], ()):
            if first <= at < last and [t.text for t in tokens[at : at + len(parts)]] == parts:
                if at and tokens[at - 1].text in (".", "->"):
                    continue
                yield at, at + len(parts) - 1

    def _from_callers(self, found: HostArray, name: str, reader: HostReader, depth: int) -> None:
        for place in reader.place.callers(self.reading.files):
            if place.given is None or name not in place.given:
                continue
            other = self.array(place.given[name], reader.at_caller(place, reader.depth), depth + 1)
            if other.shape is None and other.nbytes is None and other.filled is None:
                continue
            if found.shape is None and found.nbytes is None:
                found.shape, found.nbytes, found.sure, found.start = other.shape, other.nbytes, other.sure, other.start
            found.filled = other.filled if found.filled is None else found.filled
            found.zeros |= other.zeros
            found.lines += other.lines
            return

    # --------------------------------------------------------------------------------------------------- events

    def _event(self, found: HostArray, at: int, end: int, reader: HostReader, depth: int) -> None:
        """Adds the facts that one use of a variable shows."""
        tokens, place = reader.place.host.tokens, reader.place
        following = tokens[end + 1].text if end + 1 < len(tokens) else ""
        call, opening = _call_around(place, at)
        before = at < place.index
        if call in _BYTES_AT or call in _PITCHED:
            if tokens[at - 1].text == "&" or call.startswith("cu"):
                self._allocated(found, call, opening, at, reader)
            return
        if call in _COPIES | _COPIES_2D or call in _FILLS:
            self._copied(found, call, opening, at, reader, before=before)
            return
        if following == "=" and tokens[end + 2].text != "=":
            self._assigned(found, end + 2, at, reader, depth)
        elif following in ("(", "{") and tokens[at - 1].text == ">":
            self._constructed(found, end + 1, at, reader)
        elif following == "[" and found.filled is not None and assignment(tokens, end + 1) == "=" and before:
            found.filled = True
            found.lines.append((place, at))
        elif before and found.filled is False and not _LEAVES.search(call):
            found.filled = None

    def _allocated(self, found: HostArray, call: str, opening: int, at: int, reader: HostReader) -> None:
        arguments = reader.place.host.arguments(opening)
        where = reader.at(at, most_free=0)
        found.lines.append((reader.place, at))
        if found.filled is None:
            found.filled = False
        try:
            if call in _PITCHED and len(arguments) > 3:
                found.nbytes = f"({where.expression(arguments[3])}) * ({where.expression(arguments[2])})"
            elif len(arguments) > 1:
                found.nbytes = where.expression(arguments[_BYTES_AT.get(call, 1)])
        except Untranslatable:
            return

    def _copied(self, found: HostArray, call: str, opening: int, at: int, reader: HostReader, *, before: bool) -> None:
        arguments = [unspaced(one) for one in reader.place.host.arguments(opening)]
        tokens = reader.place.host.tokens
        first_comma = next(
            (i for i in range(opening, at) if tokens[i].text == "," and reader.place.host.parents[i] == opening), None
        )
        is_target = first_comma is None
        kind = arguments[-1] if arguments else ""
        kind = next((one for one in arguments if "MemcpyHostTo" in one or "MemcpyDeviceTo" in one), kind)
        if call in _FILLS and is_target and before:
            found.filled, found.zeros = True, len(arguments) > 1 and arguments[1] in ("0", "0x00")
        elif is_target and before and not kind.endswith("DeviceToHost"):
            found.filled, found.zeros = True, False
        elif is_target or before or "HostToDevice" in kind:
            return
        found.lines.append((reader.place, at))

    def _assigned(self, found: HostArray, start: int, at: int, reader: HostReader, depth: int) -> None:
        """Adds the facts that follow from a value that is assigned to a variable."""
        tokens = reader.place.host.tokens
        if at > reader.place.index:
            return
        end = start
        while end < len(tokens) and tokens[end].text not in (";", ","):
            close = closing(tokens, end) if tokens[end].text in ("(", "{", "[") else None
            if tokens[end].text == "<" and (angle := closing_angle(tokens, end)) is not None:
                close = angle
            end = end + 1 if close is None else close + 1
        value = tokens[start:end]
        text = reader.place.host.text[tokens[start].start : tokens[end - 1].end] if value else ""
        where = reader.at(at, most_free=0)
        made = self._made(value, text, where, depth)
        whole = base_of(text) or next(iter(part_of(text) or ()), None)
        if made is None and whole is not None and base_of(whole) not in (None, unspaced(spelled(reader, at))):
            made = self.array(text, where, depth + 1) if depth < _DEEPEST else None
        if made is not None and (made.shape or made.nbytes or made.filled is not None):
            found.shape, found.nbytes, found.sure, found.start = made.shape, made.nbytes, made.sure, made.start
            found.filled, found.zeros = made.filled, made.zeros
            found.lines += [(reader.place, at), *made.lines]

    def _made(self, value: Sequence[Token], text: str, where: HostReader, depth: int) -> HostArray | None:
        """Returns the array that an expression makes: `new`, `malloc`, or a tensor's factory."""
        words = [token.text for token in value if token.kind == "word"]
        if (
            words[:1] == ["new"]
            and (opening := next((i for i, t in enumerate(value) if t.text == "["), None)) is not None
        ):
            return HostArray(shape=self._sides(where, [_inside(value, opening)]), filled=False)
        for name in ("malloc", "calloc"):
            if name in words:
                at = next(i for i, t in enumerate(value) if t.text == name)
                inside = _inside(value, at + 1).replace(",", " * ") if at + 1 < len(value) else ""
                return HostArray(nbytes=_tried(where, inside), filled=name == "calloc", zeros=name == "calloc")
        return self._tensor_made(value, where, depth)

    def _tensor_made(self, value: Sequence[Token], where: HostReader, depth: int) -> HostArray | None:
        opening = next((i for i, token in enumerate(value) if token.text == "(" and i), None)
        if opening is None:
            return None
        method = value[opening - 1].text
        base = "".join(token.text for token in value[: opening - 2]) if value[opening - 2].text in (".", "->") else ""
        made = _MADE.match(method.removeprefix("new_"))
        if made is not None and (method.startswith("new_") or not base):
            first = value[opening + 1 : closing(value, opening)]
            found = HostArray(filled=made[1] != "empty", zeros=made[1] == "zeros")
            if made[2]:
                found.shape = self.array(_argument(first), where, depth + 1).shape
            elif first and first[0].text == "{":
                found.shape = self._sides(where, _parts(first))
            elif len(first) > 4 and "sizes" in [token.text for token in first]:
                found.shape = self.array(first[0].text, where, depth + 1).shape
            return found
        if method in ("view", "reshape") and base and value[opening + 1].text == "{":
            found = self.array(base, where, depth + 1)
            found.shape = self._sides(where, _parts(value[opening + 1 :])) or found.shape
            return found
        return self.array(base, where, depth + 1) if method in _SAME and base else None

    def _constructed(self, found: HostArray, opening: int, at: int, reader: HostReader) -> None:
        """Adds the facts that a container's construction shows: `std::vector<float> x(n)`, `thrust::device_vector<float> x(n, 0.0f)`."""
        arguments = reader.place.host.arguments(opening)
        where = reader.at(at, most_free=0)
        if not arguments or at > reader.place.index:
            return
        found.shape = self._sides(where, arguments[:1]) or found.shape
        found.filled = len(arguments) > 1 or found.filled
        found.lines.append((reader.place, at))

    def _sides(self, reader: HostReader, texts: Sequence[str]) -> Shape | None:
        try:
            return tuple(tidied(reader.expression(text)) for text in texts) or None
        except Untranslatable:
            return None

    # --------------------------------------------------------------------------------------------------- tensors

    def _as_tensor(self, found: HostArray, name: str, reader: HostReader) -> None:
        """Adds the sides of a tensor argument that its function reads (`x.size(0)`) or that a comment states."""
        found.filled = True if found.filled is None else found.filled
        shape = commented_shape(name, reader)
        if shape is None:
            shape = self._asked_sides(name, reader)
        if shape is not None and found.shape is None:
            found.shape, found.sure = shape, False
            found.lines.append((reader.place, reader.place.index))

    def _asked_sides(self, name: str, reader: HostReader) -> Shape | None:
        """Returns the dimensions of a tensor if the function reads all of them and passes each one on as a size."""
        text = reader.place.host.between(*reader.place.region()) if reader.place.region()[0] else ""
        escaped = re.escape(name)
        axes = {int(axis) for axis in re.findall(rf"\b{escaped}\s*(?:\.|->)\s*size\s*\(\s*(\d+)\s*\)", text)}
        checked = re.search(rf"\b{escaped}\s*\.\s*(?:dim|ndimension)\s*\(\s*\)\s*==\s*(\d+)", text)
        count = int(checked[1]) if checked is not None else len(axes)
        if not axes or axes != set(range(count)) or (count == 1 and checked is None):
            return None
        sides = []
        for axis in range(count):
            fixed = re.search(rf"\b{escaped}\s*\.\s*size\s*\(\s*{axis}\s*\)\s*==\s*(\d+)", text)
            side = fixed[1] if fixed is not None else _named_side(f"{name}.size({axis})", reader)
            if side is None:
                return None
            sides.append(side)
        return tuple(sides)

    def _member(self, name: str, selected: str, reader: HostReader) -> str | None:
        """Returns `x.size(0)` and `x.numel()` for a tensor whose sides are known."""
        key = (f"{name}.{selected}", reader.place.index)
        axis = re.fullmatch(r"size\((-?\d+)\)|sizes\(\)\[(-?\d+)\]|shape\[(-?\d+)\]", selected)
        if key in self._asked or (axis is None and selected not in ("numel()", "size()")):
            return None
        named = _named_side(f"{name}.{selected}", reader)
        if named is not None:
            return named
        self._asked.add(key)
        shape = self.array(name, reader, 1).shape
        self._asked.discard(key)
        if shape is None:
            return None
        if axis is None:
            return f"({' * '.join(_grouped(side) for side in shape)})"
        number = int(next(part for part in axis.groups() if part is not None))
        return f"({shape[number]})" if -len(shape) <= number < len(shape) else None


# ------------------------------------------------------------------------------------------------------------ parts


def commented_shape(name: str, reader: HostReader) -> Shape | None:
    """Returns the sides that a comment states for a parameter of the enclosing function: `const at::Tensor& x, // (N, C)`."""
    function = reader.place.function()
    host = reader.place.host
    if function is None:
        return None
    start = max(host.tokens[function.brace].start - 3000, 0)
    head = host.text[start : host.tokens[function.brace].start]
    beside = re.findall(rf"\b{re.escape(name)}\s*,?\s*\)?\s*(?://|/\*)[^\n(\[]*[(\[]([\w\s,*+]+)[)\]]", head)
    above = re.findall(rf"\b{re.escape(name)}\s*:[^\n(\[]*?[(\[]\s*([\w\s,*+]+)\s*[)\]]", head)
    for text in [*beside[-1:], *above[-1:]]:
        sides = [_named_side(part.strip(), reader) for part in text.split(",") if part.strip()]
        if sides and all(sides):
            return tuple(str(side) for side in sides)
    return None


def _named_side(text: str, reader: HostReader) -> str | None:
    """Returns the size that the host code calls so, or defines by this text."""
    if text.isdigit():
        return text
    wanted = unspaced(text)
    for written, size in reader.names.items():
        if size is not None and written == wanted:
            return size
    for written, size in reader.names.items():
        value = reader.value(written) if size is not None and written.isidentifier() else None
        if value is not None and unspaced("".join(token.text for token in value)) == wanted:
            return size
    return None


def spelled(reader: HostReader, at: int) -> str:
    """Returns the name that begins at a token of a reader's text."""
    tokens = reader.place.host.tokens
    try:
        return "".join(token.text for token in tokens[at : chain_end(tokens, at)])
    except Untranslatable:
        return tokens[at].text


def _call_around(place: HostPlace, at: int) -> tuple[str, int]:
    """Returns the name of the innermost call around a token, and the index of its parenthesis; empty outside of calls."""
    tokens = place.host.tokens
    for opening in place.host.around(at):
        if tokens[opening].text == "{":
            break
        name = tokens[opening - 1] if opening else None
        if tokens[opening].text != "(" or name is None:
            continue
        if name.kind == "word" and name.text not in ("void", "if", "while", "for", "sizeof", "return"):
            return name.text, opening
        if name.text == ">" and tokens[opening - 2].text == ">":
            return "", opening
    return "", -1


def _inside(value: Sequence[Token], opening: int) -> str:
    end = closing(value, opening)
    return " ".join(token.text for token in value[opening + 1 : end])


def _parts(value: Sequence[Token]) -> list[str]:
    """Returns the texts between the commas of the braces that a value begins with."""
    text = _inside(value, 0)
    tokens = lex(text).tokens
    return [text[tokens[a].start : tokens[b - 1].end] for a, b in split_list(tokens, 0, len(tokens)) if b > a]


def _argument(tokens: Sequence[Token]) -> str:
    end = next((i for i, token in enumerate(tokens) if token.text == ","), len(tokens))
    return "".join(token.text for token in tokens[:end])


def _tried(reader: HostReader, text: str) -> str | None:
    try:
        return reader.expression(text)
    except Untranslatable:
        return None


def _grouped(side: str) -> str:
    return side if re.fullmatch(r"\w+", side) else f"({side})"


def divided(nbytes: str, item: int, sizes: Sequence[str]) -> Shape | None:
    """Returns the sides of an array of a number of bytes.

    A product of sizes and one number becomes one side each, in the order that the host code has them; another expression is one
    side. None if the bytes are not a whole number of elements.

    Args:
        nbytes: a contract expression.
        item: bytes of an element.
        sizes: the names that may become sides.
    """
    try:
        factors = list(factors_of(parse_expression(tidied(nbytes))))
    except ExpressionError:
        return None
    constant = prod(one.value for one in factors if isinstance(one, ast.Constant) and isinstance(one.value, int))
    named = [ast.unparse(one) for one in factors if not isinstance(one, ast.Constant)]
    if constant % item:
        return None
    constant //= item
    first = next((at for at, one in enumerate(named) if one not in sizes or one in named[:at]), len(named))
    rest = [one if re.fullmatch(r"\w+|\w+\([^()]*\)", one) else f"({one})" for one in named[first:]]
    if rest and constant > 1:
        rest.append(str(constant))
    elif constant > 1 or not named:
        return (*named, str(constant))
    return (*named[:first], *([" * ".join(rest)] if rest else []))


def factors_of(node: ast.expr) -> Iterator[ast.expr]:
    """Yields the factors of a product, or the expression itself."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        yield from factors_of(node.left)
        yield from factors_of(node.right)
    else:
        yield node
