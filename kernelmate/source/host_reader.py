"""Translates expressions of C++ host code to contract expressions; variables are replaced by their values.

A name is looked up from its position in the text: in the enclosing blocks and function, in preprocessor lines and constants of its file and
its project, and, for a parameter, in the calls of its function. Nothing is executed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from kernelmate.source.dtypes import ITEM_BYTES, c_type_dtype
from kernelmate.source.expressions import RESERVED, ExpressionError, parse_expression
from kernelmate.source.host_code import Untranslatable, strip_parentheses
from kernelmate.source.host_fractions import ceiling, divides, refuse_fractions
from kernelmate.source.host_places import HostBody, HostPlace, function_body
from kernelmate.source.host_syntax import (
    MOST_NESTED,
    chain_end,
    constructed,
    is_cast,
    is_number,
    opening_of,
    outside,
    power_of_two,
    read_number,
    unspaced,
    value_end,
)
from kernelmate.source.host_text import HostFiles
from kernelmate.source.host_values import WHOLE_TYPES, HostValue, constant_value, is_changed, value_before
from kernelmate.source.signature import spell
from kernelmate.source.tokens import Token, closing, lex, split_list

_ROUND_UP = re.compile(r"(?i)(?:(?:aten|i)?_?ceil_?div|c_?div|i?div_?(?:round_?)?up|divide_?up|ceildivide|updiv)\Z")
_LOGIC = {"&&": "and", "||": "or"}
_DEEPEST = 10
_MOST_FREE = 2
_MOST_STEPS = 400

Names = Mapping[str, str | None]


@dataclass(slots=True)
class HostTranslation:
    """State shared by the translations of one launch.

    Attributes:
        files: the texts that are read.
        types: arguments of the host code's template parameters.
        members: returns the value of a member call such as `x.size(0)`; None if nothing is known of `x`.
        used: the definitions that were followed, each as file and index of a token.
        free: host variables of unknown value, which become sizes of their own, in order of appearance.
        taken: names that mean something else in the contract.
    """

    files: HostFiles
    types: Mapping[str, str] = field(default_factory=dict)
    members: Callable[[str, str, HostReader], str | None] | None = None
    used: list[tuple[HostPlace, int]] = field(default_factory=list)
    free: list[str] = field(default_factory=list)
    taken: frozenset[str] = frozenset()
    steps: int = _MOST_STEPS
    nested: int = 0


class HostReader:
    """Translates expressions at one token of the host code.

    Args:
        place: the token.
        names: the contract's expression for host expressions, by their text without blanks; None if it is ambiguous.
        reading: what the translations of one launch share.
        block: the launch's block as written; if it is a variable, that name means the block.
        most_free: host variables of unknown value that may become sizes.
        depth: of the definitions and calls that were followed to this place.
        expanded: the same token in the expansion of the macro that is called there.
    """

    def __init__(
        self, place: HostPlace, names: Names, reading: HostTranslation, *, block: str = "", most_free: int = _MOST_FREE, depth: int = 0,
        expanded: HostPlace | None = None,
    ) -> None:  # fmt: skip
        self.place = place
        self.names = names
        self.reading = reading
        self.block = block
        self.most_free = most_free
        self.depth = depth
        self.expanded = expanded
        products = [([t.text for t in lex(text).tokens], name) for text, name in names.items() if "*" in text and name]
        self._products = sorted(products, key=lambda product: -len(product[0]))

    def sides(self, text: str) -> tuple[str, ...]:
        """Returns a grid or a block as one to three contract expressions.

        Raises:
            Untranslatable: something in it is not arithmetic over known names.
        """
        return self._sides(lex(text).tokens, self.depth)

    def expression(self, text: str) -> str:
        """Translates one expression.

        Raises:
            Untranslatable: as `sides`.
        """
        return strip_parentheses(self._convert(lex(text).tokens, self.depth))

    def value(self, name: str) -> Sequence[Token] | None:
        """Returns the tokens of a variable's or macro's value at this token; None if it is not visible or not known."""
        found = self._value_of(name)
        return None if found is None else found.tokens or None

    def at(self, index: int, *, most_free: int | None = None) -> HostReader:
        """Returns a reader at another token of the same function, without names whose values change between the two."""
        place = self.place.moved(index)
        names = {
            text: size
            for text, size in self.names.items()
            if not (text.isidentifier() and is_changed(self.place, text, index, again=False))
        }
        most_free = self.most_free if most_free is None else most_free
        return HostReader(place, names, self.reading, block=self.block, most_free=most_free, depth=self.depth)

    # ---------------------------------------------------------------------------------------------------- sides

    def _sides(self, tokens: Sequence[Token], depth: int) -> tuple[str, ...]:
        if depth > _DEEPEST:
            raise Untranslatable("variables refer to each other too deeply")
        listed = constructed(tokens)
        if listed is not None:
            return tuple(strip_parentheses(self._convert(part, depth)) for part in listed)
        if len(tokens) == 1 and tokens[0].kind == "word" and tokens[0].text not in self.names:
            name = tokens[0].text
            value = self._value_of(name)
            members = self._assigned_sides(name, depth, value)
            if members is not None:
                return members
            if value is not None and (
                len(value.tokens) == 1
                or constructed(value.tokens) is not None
                or self._called(value.tokens) is not None
            ):
                return self._where(value)._sides(value.tokens, depth + 1)
            if value is None:
                for reader, text in self._arguments(name, depth):
                    return reader._sides(lex(text).tokens, depth + 1)
        if (called := self._called(tokens)) is not None:
            body, parts = called
            return self._inlined(body, parts, depth)._sides(body.value, depth + 1)
        return (strip_parentheses(self._convert(tokens, depth)),)

    def _called(self, tokens: Sequence[Token]) -> tuple[HostBody, Sequence[Sequence[Token]]] | None:
        """Returns the called function and the arguments if the tokens are a call of a function that returns a `dim3`; else None."""
        if len(tokens) < 3 or tokens[1].text != "(" or closing(tokens, 1) != len(tokens) - 1:
            return None
        parts = [tokens[first:last] for first, last in split_list(tokens, 2, len(tokens) - 1)]
        body = function_body(self.reading.files, tokens[0].text, len(parts))
        return (body, parts) if body is not None and body.result == "dim3" else None

    def _assigned_sides(self, name: str, depth: int, made: HostValue | None) -> tuple[str, ...] | None:
        """Returns the sides of a `dim3` with the members that were assigned after its construction; None without any."""
        host, tokens = self.place.host, self.place.host.tokens
        if made is not None and made.place.host is not host:
            return None
        since = made.place.index if made is not None else self.place.region()[0]
        sides: dict[str, str] = {}
        if made is not None and (listed := constructed(made.tokens)) is not None:
            reader = self._where(made)
            sides = {axis: reader._convert(part, depth + 1) for axis, part in zip("xyz", listed, strict=False)}
        assigned = False
        for at in host.words.get(name, ()):
            texts = [token.text for token in tokens[at + 1 : at + 4]]
            if not since < at < self.place.index or texts[:1] != ["."] or texts[2:] != ["="]:
                continue
            if host.is_conditional(at) or not self.place.sees(at):
                raise Untranslatable(f"{name} is set under a condition")
            value = tokens[at + 4 : value_end(tokens, at + 4)]
            sides[texts[1]], assigned = self.at(at)._convert(value, depth + 1), True
        if not assigned or "x" not in sides:
            return None
        return tuple(strip_parentheses(sides.get(axis, "1")) for axis in "xyz")

    # ---------------------------------------------------------------------------------------------------- names

    def _value_of(self, name: str) -> HostValue | None:
        """Returns the last value given to a variable or macro before this token; None if there is none."""
        found = None if self.expanded is None else value_before(self.expanded, name)
        if found is not None:
            return found
        found = value_before(self.place, name)
        if found is not None and found.tokens:
            self.reading.used.append((self.place, found.place.index))
        return found

    def _where(self, value: HostValue) -> HostReader:
        """Returns the reader of a value: where it is given, and for a macro, where that is used."""
        place = value.place
        if place.host.tokens[place.index].directive:
            return self
        if place.host is self.place.host:
            return self.at(place.index)
        return HostReader(
            self.place,
            self.names,
            self.reading,
            block=self.block,
            most_free=self.most_free,
            depth=self.depth,
            expanded=place,
        )

    def _named(self, name: str, depth: int) -> str:
        """Returns the value of a host identifier."""
        if name == self.block and name not in ("", *self.names):
            return "block"
        value = self._value_of(name)
        if value is None:
            passed = self._passed(name, depth)
            return self._freed(name) if passed is None else passed
        if value.tokens:
            try:
                return self._where(value)._convert(value.tokens, depth + 1)
            except Untranslatable:
                if name.isupper():
                    raise
        return self._freed(name)

    def _passed(self, name: str, depth: int) -> str | None:
        """Returns the value of a parameter by the calls of its function, or of a constant by its project."""
        for reader, text in self._arguments(name, depth):
            reader.most_free = 0
            try:
                return reader._convert(lex(text).tokens, depth + 1)
            except Untranslatable:
                continue
        if name.isupper() or re.match(r"k[A-Z]|[A-Z]\w*_", name):
            value = constant_value(self.reading.files, name)
            if value is not None:
                return self._convert(value, depth + 1)
        return None

    def _arguments(self, name: str, depth: int) -> list[tuple[HostReader, str]]:
        """Returns the arguments that calls pass for a parameter of the enclosing function, each with a reader at the call."""
        function = self.place.function()
        self.reading.steps -= 1
        if function is None or depth > _DEEPEST or self.reading.steps < 0:
            return []
        if all(one.name != name for one in function.parameters):
            return []
        found = []
        for place in self.place.callers(self.reading.files):
            if place.given is None or place.caller is None or name not in place.given:
                continue
            found.append((self.at_caller(place, depth), place.given[name]))
        return found

    def at_caller(self, place: HostPlace, depth: int = 0) -> HostReader:
        """Returns a reader at a call of this function, with the names that the arguments have there."""
        assert place.given is not None
        assert place.caller is not None
        names = {}
        for known_text, size in self.names.items():
            parts = known_text.split("*")
            if all(part in place.given for part in parts):
                names["*".join(unspaced(place.given[part]) for part in parts)] = size
        block = unspaced(place.given.get(self.block, ""))
        known = {text: size for text, size in names.items() if not is_number(text)}
        return HostReader(place.caller, known, self.reading, block=block, most_free=self.most_free, depth=depth + 1)

    def _freed(self, name: str) -> str:
        usable = (
            name.isascii() and name.isidentifier() and not name.isupper() and name not in RESERVED | self.reading.taken
        )
        if name not in self.reading.free:
            if not usable or len(self.reading.free) >= self.most_free:
                raise Untranslatable(f"the value of {name} cannot be determined")
            self.reading.free.append(name)
        return name

    # ---------------------------------------------------------------------------------------------------- expressions

    def _convert(self, tokens: Sequence[Token], depth: int) -> str:
        self.reading.steps -= 1
        self.reading.nested += 1
        try:
            if depth > _DEEPEST or self.reading.steps < 0 or self.reading.nested > MOST_NESTED:
                raise Untranslatable("the expression is nested too deeply")
            return self._converted(tokens, depth)
        finally:
            self.reading.nested -= 1

    def _converted(self, tokens: Sequence[Token], depth: int) -> str:
        if (known := self.names.get(unspaced(spell(tokens)), "")) != "":
            if known is None:
                raise Untranslatable(f"{spell(tokens)} is passed for several sizes")
            return known
        text = self._weakest(tokens, depth)
        if text is None:
            text = self._pieces(tokens, depth)
        try:
            parse_expression(text)
        except ExpressionError as error:
            raise Untranslatable(error.message) from None
        return f"({text})" if len(tokens) > 1 else text

    def _weakest(self, tokens: Sequence[Token], depth: int) -> str | None:
        """Translates a conditional expression, a mask or a shift, which bind less than arithmetic; None for another one."""
        at = outside(tokens, "?")
        if at is not None:
            left, right = tokens[: at[0]], tokens[at[1] :]
            colon = outside(right, ":")
            if colon is None:
                raise Untranslatable("a condition without an alternative")
            yes, no = self._convert(right[: colon[0]], depth), self._convert(right[colon[1] :], depth)
            return f"{yes} if {self._condition(left, depth)} else {no}"
        at = outside(tokens, "&", last=True)
        if at is not None:
            return f"{self._convert(tokens[: at[0]], depth)} // {(step := self._step(tokens[at[1] :], depth))} * {step}"
        at = outside(tokens, "<<", ">>", last=True)
        if at is None:
            return None
        sign = "*" if tokens[at[0]].text == "<<" else "//"
        return f"{self._convert(tokens[: at[0]], depth)} {sign} {power_of_two(self._convert(tokens[at[1] :], depth))}"

    def _step(self, mask: Sequence[Token], depth: int) -> str:
        """Returns the power of two to whose multiples a mask such as `~255` rounds down."""
        one = len(mask) == 2 or (len(mask) > 2 and mask[1].text == "(" and closing(mask, 1) == len(mask) - 1)
        if not one or mask[0].text != "~":
            raise Untranslatable("& is not supported in a launch")
        low = strip_parentheses(self._convert(mask[1:], depth))
        if not low.isdigit():
            return f"({low} + 1)"
        if int(low) & (int(low) + 1):
            raise Untranslatable("the mask is not a power of two")
        return str(int(low) + 1)

    def _condition(self, tokens: Sequence[Token], depth: int) -> str:
        if tokens and tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1:
            return f"({self._condition(tokens[1:-1], depth)})"
        for symbols in (("||",), ("&&",), ("==", "!="), ("<=", ">=", "<", ">")):
            at = outside(tokens, *symbols)
            if at is not None:
                left, right = tokens[: at[0]], tokens[at[1] :]
                sign = "".join(token.text for token in tokens[slice(*at)])
                convert = self._condition if sign in ("&&", "||") else self._convert
                return f"{convert(left, depth)} {_LOGIC.get(sign, sign)} {convert(right, depth)}"
        return self._convert(tokens, depth)

    def _pieces(self, tokens: Sequence[Token], depth: int) -> str:
        refuse_fractions(tokens, self.place)
        out: list[str] = []
        index = 0
        while index < len(tokens):
            text, index = self._piece(tokens, index, depth)
            out.append(text)
        return "".join(out).strip()

    def _piece(self, tokens: Sequence[Token], index: int, depth: int) -> tuple[str, int]:
        token = tokens[index]
        if token.kind == "number":
            return read_number(token.text), index + 1
        if token.text == "(":
            return self._parenthesis(tokens, index, depth)
        if token.kind == "word" or token.text == "::":
            product = self._product(tokens, index)
            return product if product is not None else self._operand(tokens, index, depth)
        if token.text in ("+", "-", "*", "%", ","):
            return f" {token.text} " if token.text in "+-*%" else token.text, index + 1
        if token.text == "/":
            return " // ", index + 1
        raise Untranslatable(f"{token.text} is not supported in a launch")

    def _product(self, tokens: Sequence[Token], index: int) -> tuple[str, int] | None:
        """Returns the size that a part of a product stands for: `B * T` in `B * T * C`, where `B * T` is passed."""
        if index and tokens[index - 1].text in ("/", "%", ".", "->"):
            return None
        for one, size in self._products:
            end = index + len(one)
            follows = tokens[end].text if end < len(tokens) else ""
            if [token.text for token in tokens[index:end]] == one and follows not in (".", "->", "(", "["):
                return size, end
        return None

    def _parenthesis(self, tokens: Sequence[Token], index: int, depth: int) -> tuple[str, int]:
        end = closing(tokens, index)
        if end is None:
            raise Untranslatable("a parenthesis is not closed")
        inside = tokens[index + 1 : end]
        if is_cast(inside):
            return "", end + 1
        return f"({strip_parentheses(self._convert(inside, depth))})", end + 1

    def _operand(self, tokens: Sequence[Token], index: int, depth: int) -> tuple[str, int]:
        """Translates a name with what is called, subscripted or selected of it."""
        end = chain_end(tokens, index)
        chain = tokens[index:end]
        while chain and (chain[0].text == "::" or (chain[0].text == "std" and len(chain) > 2)):
            chain = chain[1:]
        if not chain:
            raise Untranslatable("a name is missing")
        text = unspaced(spell(chain))
        if self.names.get(text) is not None:
            return str(self.names[text]), end
        name = chain[0].text
        if len(chain) == 1:
            return self._named(name, depth), end
        if name == "sizeof":
            return self._size_of(chain), end
        if chain[1].text in (".", "->", "["):
            return self._member(chain, depth), end
        return self._call(chain, depth), end

    def _size_of(self, chain: Sequence[Token]) -> str:
        named = spell(chain[2:-1])
        dtype, vector = c_type_dtype(self.reading.types.get(named, named))
        if dtype is None:
            raise Untranslatable("sizeof of a type that is not known")
        return str(ITEM_BYTES[dtype] * vector)

    def _member(self, chain: Sequence[Token], depth: int) -> str:
        """Returns a component of a `dim3` variable, an element of a list, or a member that is known otherwise."""
        name, last = chain[0].text, chain[-1].text
        if len(chain) == 3 and chain[1].text == "." and last in ("x", "y", "z"):
            if name == self.block:
                return f"block_{last}"
            value = self._value_of(name)
            if value is not None:
                sides = (*self._where(value)._sides(value.tokens, depth + 1), "1", "1")
                return f"({sides['xyz'.index(last)]})"
            for reader, text in self._arguments(name, depth):
                reader.most_free = 0
                sides = (*reader._sides(lex(text).tokens, depth + 1), "1", "1")
                return f"({sides['xyz'.index(last)]})"
        if chain[1].text == "[" and last == "]":
            return self._element(name, depth)
        if self.reading.members is not None and chain[1].text in (".", "->"):
            selected = "".join(token.text for token in chain[2:])
            known = self.reading.members(name, selected, self)
            if known is not None:
                return known
        if last == "multiProcessorCount":
            return self._freed(last)
        raise Untranslatable(f"the value of {spell(chain)} cannot be determined")

    def _element(self, name: str, depth: int) -> str:
        """Returns one value of a list of constants that host code iterates over: 256 if it is among them, else the first."""
        value = self._value_of(name)
        listed = constructed(value.tokens, most=64) if value is not None else None
        if value is None or not listed:
            raise Untranslatable(f"the elements of {name} cannot be determined")
        reader = self._where(value)
        values = [strip_parentheses(reader._convert(part, depth + 1)) for part in listed]
        return "256" if "256" in values else values[0]

    def _call(self, chain: Sequence[Token], depth: int) -> str:
        opening = len(chain) - 1 if chain[-1].text not in (")", "}") else opening_of(chain)
        named = [token for token in chain[:opening] if token.kind == "word"]
        head = spell(chain[:opening]).split("<")[0].split("::")[-1].strip()
        parts = [chain[first:last] for first, last in split_list(chain, opening + 1, len(chain) - 1)]
        if not named:
            raise Untranslatable("a call without a name")
        if head in ("static_cast", "float", "double", *WHOLE_TYPES) and len(parts) == 1:
            return self._convert(parts[0], depth)
        if head in ("ceil", "ceilf", "floor", "floorf") and len(parts) == 1:
            text = self._convert(parts[0], depth)
            return ceiling(text) if head.startswith("ceil") and divides(parts[0], self.place) else text
        if _ROUND_UP.match(head) and len(parts) == 2:
            head = "cdiv"
        if head in ("cdiv", "min", "max"):
            return f"{head}({', '.join(strip_parentheses(self._convert(part, depth)) for part in parts)})"
        macro = self.reading.files.macro(head)
        if macro is not None and len(macro.parameters) == len(parts):
            return self._convert(lex(macro.expanded([f"({spell(part)})" for part in parts])).tokens, depth + 1)
        body = function_body(self.reading.files, head, len(parts))
        if body is None:
            raise Untranslatable(f"{head}() is not known")
        return self._inlined(body, parts, depth)._convert(body.value, depth + 1)

    def _inlined(self, body: HostBody, parts: Sequence[Sequence[Token]], depth: int) -> HostReader:
        """Returns the reader of the value of a function that is called with arguments."""
        names = {text: size for text, size in self.names.items() if re.fullmatch(r"\w+_", text)}  # members
        for number, parameter in enumerate(body.parameters):
            given = parts[number] if number < len(parts) else lex(parameter.default or "").tokens
            if not is_changed(body.place, parameter.name, body.place.region()[0]):
                names.update(self._bound(parameter.name, given, depth + 1))
        return HostReader(body.place, names, self.reading, most_free=0, depth=depth + 1)

    def _bound(self, name: str, given: Sequence[Token], depth: int) -> dict[str, str | None]:
        """Returns the value of a parameter in the call of a function: a number, or the dimensions of a `dim3`."""
        if given and spell(given) == self.block:
            return {f"{name}.{axis}": f"block_{axis}" for axis in "xyz"}
        try:
            sides = self._sides(given, depth)
        except Untranslatable:
            return {}
        members = {f"{name}.{axis}": side for axis, side in zip("xyz", (*sides, "1", "1"), strict=False)}
        return {**members, name: sides[0] if sides[0].isidentifier() or len(sides) > 1 else f"({sides[0]})"}
