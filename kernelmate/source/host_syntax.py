"""Expressions of host code as tokens: where they end, and the operators, casts and lists in them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from kernelmate.source.host_code import Untranslatable, strip_parentheses
from kernelmate.source.tokens import Token, closing, closing_angle, lex, split_list

_CAST = re.compile(
    r"(?:const |unsigned |signed |long |short |int |float |double |char |(?:std :: )?(?:size_t|u?int\d*_t|uint) )+"
)
_POINTER_CALLS = re.compile(r"\.(?:mutable_|const_)?(?:data_ptr|data|get|ptr|raw_ptr|begin)(?:<[^()]*>)?\(\)\Z")
_SAME_CALLS = re.compile(r"\.(?:contiguous|clone|detach|cuda|flatten)\(\)\Z")
_WRAPPED = re.compile(r"(?:reinterpret_cast|static_cast|const_cast)<[^()]*>\((.*)\)\Z|(?:thrust::)?raw_pointer_cast\((.*)\)\Z|\([\w:\s*<>,&]+\)(.+)\Z")  # fmt: skip

MOST_NESTED = 40
"""Maximum number of parentheses around a part of an expression that is read."""


def unspaced(text: str) -> str:
    """Returns a text without blanks, by which host expressions are compared."""
    return "".join(text.split())


def chain_end(tokens: Sequence[Token], index: int) -> int:
    """Returns the index after a name and all that is called, subscripted or selected of it."""
    at = index
    while at < len(tokens):
        text = tokens[at].text
        word = tokens[at].kind == "word" and (at == index or tokens[at - 1].text in (".", "->", "::"))
        if word or text in (".", "->", "::"):
            at += 1
        elif text in ("(", "[", "{") and at > index:
            end = closing(tokens, at)
            if end is None:
                raise Untranslatable("a parenthesis is not closed")
            at = end + 1
        elif text == "<" and at > index and tokens[at - 1].kind == "word":
            end = closing_angle(tokens, at)
            if end is None or end + 1 >= len(tokens) or tokens[end + 1].text not in ("(", "{"):
                break
            at = end + 1
        else:
            break
    return max(at, index + 1)


def deepest(tokens: Sequence[Token]) -> int:
    """Returns the largest number of brackets around a token."""
    return max(
        itertools.accumulate((t.text in ("(", "[", "{")) - (t.text in (")", "]", "}")) for t in tokens), default=0
    )


def is_cast(inside: Sequence[Token]) -> bool:
    """Returns True for the type between the parentheses of a cast."""
    return _CAST.fullmatch("".join(f"{token.text} " for token in inside)) is not None


def uncast(text: str) -> str:
    """Strips parentheses and casts to integer types that enclose a whole expression."""
    tokens = lex(text).tokens
    last = len(tokens) - 1
    inner: Sequence[Token] = ()
    end = closing(tokens, 0) if tokens and tokens[0].text == "(" else None
    if end is not None:
        whole = is_cast(tokens[1:end]) and not {"float", "double"} & {token.text for token in tokens[1:end]}
        if whole and end < last and operand_end(tokens, end + 1) == last + 1:
            inner = tokens[end + 1 :]
        elif end == last and not whole:
            inner = tokens[1:-1]
    elif re.match(
        r"(?:static_cast\s*<(?:const |unsigned |long |int|(?:std::)?u?int\d+_t|size_t|\s)+>|(?:std::)?u?int(?:\d+_t)?|size_t|unsigned|long)\s*\(",
        text,
    ):
        opening = next(at for at, token in enumerate(tokens) if token.text == "(")
        inner = tokens[opening + 1 : -1] if closing(tokens, opening) == last else ()
    return uncast(text[inner[0].start : inner[-1].end]) if inner else text


def operand_end(tokens: Sequence[Token], index: int) -> int:
    """Returns the index after the operand of a cast."""
    while index < len(tokens) and tokens[index].text == "(":
        end = closing(tokens, index)
        if end is None:
            return len(tokens)
        if not is_cast(tokens[index + 1 : end]):
            return end + 1
        index = end + 1
    return chain_end(tokens, index) if index < len(tokens) else index


def opening_of(chain: Sequence[Token]) -> int:
    """Returns the index of the bracket that the last token closes."""
    return next(at for at in range(len(chain)) if chain[at].text in ("(", "{") and closing(chain, at) == len(chain) - 1)


def outside(tokens: Sequence[Token], *symbols: str, last: bool = False) -> tuple[int, int] | None:
    """Returns begin and end of the first (or the last) of `symbols` outside of all brackets; None if there is none."""
    index, found = 0, None
    while index < len(tokens):
        token = tokens[index]
        end = closing(tokens, index) if token.text in ("(", "[", "{") else None
        if token.text == "<" and _is_angle(tokens, index):
            end = closing_angle(tokens, index)
        if end is not None:
            index = end + 1
            continue
        pair = token.text
        if index + 1 < len(tokens) and pair in "<>&|!" and tokens[index + 1].start == token.end:
            pair += tokens[index + 1].text if tokens[index + 1].text in "<>&|=" else ""
        if pair in symbols and token.kind == "symbol" and (pair != "&" or index):
            found = index, index + (1 if pair == token.text else 2)
            if not last:
                return found
        index += 1 if pair == token.text else 2
    return found


def _is_angle(tokens: Sequence[Token], index: int) -> bool:
    end = closing_angle(tokens, index) if index and tokens[index - 1].kind == "word" else None
    return end is not None and end + 1 < len(tokens) and tokens[end + 1].text in ("(", "{")


def constructed(tokens: Sequence[Token], most: int = 3) -> list[Sequence[Token]] | None:
    """Returns the arguments of `dim3(a, b)`, `dim3{a, b}` or `{a, b}`; None for anything else, and for more than `most`."""
    start = 1 if tokens and tokens[0].text == "dim3" else 0
    if len(tokens) <= start or tokens[start].text not in (("(", "{") if start else ("{",)):
        return None
    end = closing(tokens, start)
    if end != len(tokens) - 1:
        return None
    parts = [tokens[first:last] for first, last in split_list(tokens, start + 1, end)]
    return parts if 1 <= len(parts) <= most else None


def value_end(tokens: Sequence[Token], start: int) -> int:
    """Returns the index after the expression that begins at a token."""
    index = start
    while index < len(tokens) and tokens[index].text not in (";", ",", ")", "}"):
        if tokens[index].text == "<" and index > start and tokens[index - 1].kind == "word":
            angle = closing_angle(tokens, index)
            if angle is not None and tokens[angle + 1 : angle + 2] and tokens[angle + 1].text == "(":
                index = angle
        end = closing(tokens, index) if tokens[index].text in ("(", "{", "[") else None
        index = index + 1 if end is None else end + 1
    return index


def is_number(text: str) -> bool:
    """Returns True for a whole number of C++ in decimal digits."""
    return re.fullmatch(r"[\d']+[uUlL]*", text) is not None


def read_number(text: str) -> str:
    """Returns a C++ number literal as the number of a contract expression.

    Raises:
        Untranslatable: it is not whole.
    """
    plain = text.replace("'", "")
    try:
        return str(int(plain.rstrip("uUlLzZ"), 0))
    except ValueError:
        pass
    try:
        number = float(plain.rstrip("fF"))
    except ValueError:
        raise Untranslatable(f"{text} is not a number") from None
    if not number.is_integer():
        raise Untranslatable(f"{text} is not a whole number")
    return str(int(number))


def power_of_two(text: str) -> str:
    """Returns the power of two whose exponent is a contract expression."""
    plain = strip_parentheses(text)
    return str(2 ** int(plain)) if plain.isdigit() and int(plain) < 63 else f"2 ** {text}"


def base_of(text: str) -> str | None:
    """Returns the variable in an argument, without casts and calls that take its address.

    None for another expression: `part_of` gives that of a sum.
    """
    plain = re.sub(r"\s+", " ", text).strip()
    for _ in range(6):
        plain = _SAME_CALLS.sub("", _POINTER_CALLS.sub("", plain.strip()))
        wrapped = _WRAPPED.match(plain)
        if wrapped is None:
            break
        plain = next(part for part in wrapped.groups() if part is not None)
    plain = re.sub(r"\A&(.*)\[0\]\Z", r"\1", unspaced(plain))
    while plain.startswith("(") and plain.endswith(")"):
        plain = plain[1:-1]
    return plain if re.fullmatch(r"(?:this->)?[A-Za-z_]\w*(?:(?:\.|->)\w+)*", plain) else None


def part_of(text: str) -> tuple[str, str | None] | None:
    """Returns the array and the offset of an argument that begins within it: `p + n`, `&p[n]`, `x.data() + n`; None for another expression.

    The offset is None where a cast around the sum leaves open what it counts.
    """
    tokens = lex(text).tokens
    while len(tokens) > 2 and tokens[0].text == "(" and closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    at, last = 0, len(tokens) - 1
    while at < last:
        end = closing(tokens, at) if tokens[at].text in ("(", "[", "{") else None
        address = tokens[0].text == "&" and tokens[at].text == "[" and end == last
        if at > 0 and (address or tokens[at].text == "+"):
            whole = tokens[1:at] if address else tokens[:at]
            offset = tokens[at + 1 : last] if address else tokens[at + 1 :]
            return text[whole[0].start : whole[-1].end], text[offset[0].start : offset[-1].end]
        at = (at if end is None else end) + 1
    wrapped = _WRAPPED.match(re.sub(r"\s+", " ", text).strip())
    inner = None if wrapped is None else part_of(next(part for part in wrapped.groups() if part is not None))
    return None if inner is None else (inner[0], None)
