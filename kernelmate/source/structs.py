"""Fields of structs and of CUDA's vector types, which a contract describes by a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelmate.caching import text_cache
from kernelmate.records import Argument, Member, Parameter, Passed
from kernelmate.source.dtypes import ITEM_BYTES, c_type_dtype
from kernelmate.source.instances import template_arguments
from kernelmate.source.tokens import Token, closing, lex, opening_angle, split_list

AXES = "xyzw"
"""Fields of a vector type, in their order (CUDA C++ Programming Guide, Built-in Vector Types)."""


def alignment_of(declared: str) -> int:
    """Returns the alignment of a vector type such as `float4`, which is more than that of its elements; 1 for another type."""
    dtype, vector = c_type_dtype(declared)
    return 1 if dtype is None or vector not in (2, 4) else min(ITEM_BYTES[dtype] * vector, 16)


def is_vector(parameter: Parameter) -> bool:
    """Returns True for a vector that is passed by value."""
    return 1 < parameter.vector <= len(AXES) and not parameter.pointer


def vector_example(parameter: Parameter) -> str | None:
    """Returns an entry for a vector that is passed by value; None for another parameter."""
    if not is_vector(parameter):
        return None
    fields = ", ".join(f'{axis} = "{parameter.dtype} = 1"' for axis in AXES[: parameter.vector])
    return f"{parameter.name} = {{ {fields} }}"


def pass_vectors(
    parameters: Sequence[Parameter], types: Mapping[str, tuple[str, int]], args: Sequence[Argument]
) -> tuple[tuple[Argument, ...], tuple[Passed, ...]]:
    """Returns the arguments of a contract with one for each field of vectors that are passed by value, and how all are passed.

    Args:
        parameters: of the kernel.
        types: dtype and number of elements of each.
        args: one for each parameter, with the value of every field of a vector.
    """
    widths = {one.name: 1 if one.pointer else types[one.name][1] for one in parameters}
    if all(width == 1 for width in widths.values()):
        return tuple(args), ()
    leaves = Counter(axis for width in widths.values() if width > 1 for axis in AXES[:width])
    leaves.update(name for name, width in widths.items() if width == 1)
    found: list[Argument] = []
    passing: list[Passed] = []
    for one in args:
        width, nbytes = widths[one.name], ITEM_BYTES[one.dtype]
        if width == 1:
            found.append(one)
            passing.append(Passed(one.name, "argument", (Member(one.name, 0),)))
            continue
        names = [axis if leaves[axis] == 1 else f"{one.name}_{axis}" for axis in AXES[:width]]
        found += [Argument(name, None, one.dtype, value=one.value) for name in names]
        members = (Member(name, nbytes * at, (AXES[at],)) for at, name in enumerate(names))
        passing.append(Passed(one.name, "struct", tuple(members), nbytes * width))
    return tuple(found), tuple(passing)


@dataclass(frozen=True, slots=True)
class StructField:
    """One field of a struct: the type without stars and qualifiers, whether it is a pointer, to `const` data, and its elements.

    `count` is None for a plain field, a number for an array such as `int pads[2]`, and 0 for an array of another extent.
    """

    name: str
    type: str
    pointer: bool
    const: bool
    count: int | None


def members_of(text: str, name: str) -> dict[str, str] | None:
    """Returns the types of the fields of a struct or a vector type by name, a pointer's with a trailing `*`.

    The result is None where the text defines no struct of this name, or one that has more than plain fields.
    """
    dtype, vector = c_type_dtype(name)
    if dtype is not None and 1 < vector <= len(AXES):
        return dict.fromkeys(AXES[:vector], dtype)
    fields = struct_fields(text, name)
    return None if fields is None else {one.name: one.type + "*" * one.pointer for one in fields}


@text_cache(256)
def struct_fields(text: str, name: str) -> tuple[StructField, ...] | None:
    """Returns the fields of a struct, those of its bases first: of `View<float>` with `float` for the parameter of its template.

    Functions and types in it are ignored. The result is None where the text defines no struct of this name, or one whose
    layout is not that of its fields: with virtual functions, bit fields, default values, or fields in branches of the preprocessor.
    """
    parsed = template_arguments(name)
    simple, arguments = (name, ()) if parsed is None else parsed
    simple = simple.rpartition("::")[2]
    tokens = lex(text).tokens
    for index in range(len(tokens) - 2):
        if tokens[index].text not in ("struct", "class") or tokens[index - 1].text == "enum":
            continue
        stops = next(
            (at for at in range(index + 1, len(tokens)) if tokens[at].text in ("{", ";", "(", ">", ":")), index
        )
        opening = next((at for at in range(stops, len(tokens)) if tokens[at].text in ("{", ";", "(")), None)
        if tokens[stops].text == ">":
            continue
        end = None if opening is None or tokens[opening].text != "{" else closing(tokens, opening)
        if opening is None or end is None:
            continue
        head = [token.text for token in tokens[index + 1 : opening]]
        own = head[: head.index(":")] if ":" in head else head
        alias = tokens[index - 1].text == "typedef" and tokens[min(end + 1, len(tokens) - 1)].text == simple
        if own[-1:] == [simple] or (alias and ":" not in head):
            bound = dict(zip(_template_names(tokens, index), arguments, strict=False))
            bases = _base_fields(text, tokens[index + 1 + len(own) : opening], bound)
            fields = _ClassBody(tokens[opening + 1 : end], bound).fields()
            return None if bases is None or fields is None else (*bases, *fields)
    return None


_EMPTY_BASES = frozenset({"unary_function", "binary_function"})
"""Bases without fields of standard libraries, whose definitions projects do not hold."""


def _template_names(tokens: Sequence[Token], index: int) -> list[str]:
    """Returns the names of the parameters of the template that a struct's definition belongs to."""
    opening = opening_angle(tokens, index - 1) if index and tokens[index - 1].text == ">" else None
    if opening is None:
        return []
    names = []
    for first, last in split_list(tokens, opening + 1, index - 1):
        words = [token.text for token in tokens[first:last]]
        names.append((words[: words.index("=")] if "=" in words else words)[-1])
    return names


def _base_fields(text: str, tokens: Sequence[Token], bound: Mapping[str, str]) -> tuple[StructField, ...] | None:
    """Returns the fields of the bases that follow the name of a struct, `: public Pointer<T>`; None for a base that is not known."""
    found: list[StructField] = []
    for first, last in split_list(tokens, 1, len(tokens)):
        words = [bound.get(token.text, token.text) for token in tokens[first:last]]
        base = " ".join(word for word in words if word not in ("public", "private", "protected"))
        if _EMPTY_BASES & set(words):
            continue
        fields = None if "virtual" in words else struct_fields(text, base)
        if fields is None:
            return None
        found += fields
    return tuple(found)


class _ClassBody:
    """Reads the declarations between the braces of a struct."""

    def __init__(self, tokens: Sequence[Token], bound: Mapping[str, str]) -> None:
        self._tokens, self._bound = tokens, dict(bound)

    def fields(self) -> tuple[StructField, ...] | None:
        """Returns the fields; None where the layout does not follow from them alone."""
        if any(token.text in ("virtual", "union") for token in self._tokens):
            return None
        directives = [token for token in self._tokens if token.directive]
        opened = [one.start for one in directives if one.text in ("if", "ifdef", "ifndef")]
        closed = [one.start for one in directives if one.text == "endif"]
        self._tokens = tokens = [token for token in self._tokens if not token.directive]
        found: list[StructField] = []
        at = 0
        while at < len(tokens):
            if tokens[at].text in ("public", "private", "protected") and tokens[at + 1].text == ":":
                at += 2
                continue
            end, body = self._declaration(at)
            declared = self._of([token.text for token in tokens[at:end]], body=body)
            if declared is None:
                return None
            place = tokens[at].start
            if declared and sum(one < place for one in opened) > sum(one < place for one in closed):
                return None  # a branch of the preprocessor, which may not be taken
            found += declared
            at = end + 1
        return tuple(found)

    def _declaration(self, at: int) -> tuple[int, bool]:
        """Returns the index of a declaration's last token, and whether it declares a function or has a body."""
        tokens, called, listed = self._tokens, False, False
        while at < len(tokens) and tokens[at].text != ";":
            text = tokens[at].text
            end = closing(tokens, at) if text in ("(", "{", "[") else None
            called |= text == "("
            listed |= called and text == ":"
            if end is not None and text == "{" and called:
                after = tokens[end + 1].text if end + 1 < len(tokens) else ""
                if not (listed and tokens[at - 1].kind == "word" and after in (",", "{")):
                    return (end + 1 if after == ";" else end), True
            at = (at if end is None else end) + 1
        return at, called

    def _of(self, words: list[str], *, body: bool) -> list[StructField] | None:
        """Returns the fields of one declaration; None where it has some that are not plain."""
        first = words[0] if words else ";"
        if first in ("typedef", "using") and not body:
            name, type_ = (words[-1], words[1:-1]) if first == "typedef" else (words[1], words[3:])
            self._bound[name] = " ".join(self._bound.get(word, word) for word in type_)
            return []
        if body or first in ("template", "static", "friend", "typedef", "using", "static_assert", "enum", ";"):
            return []
        plain = [word for word in words if word != "mutable"]
        return _declared([part for word in plain for part in self._bound.get(word, word).split()])


def _declared(words: Sequence[str]) -> list[StructField] | None:
    """Returns the fields of one declaration such as `int n, m` or `const float* x`; None if it is another one."""
    plain = [one for one in words if one not in ("const", "__restrict__", "volatile")]
    text = " ".join(plain).replace(" *", "*").replace("*", " *").replace("* ", "*")
    match = re.fullmatch(r"(?P<type>[\w:]+(?: \w+)*) (?P<names>\**\w[ \w*,\[\]]*)", text)
    if match is None:
        return None
    found = []
    for part in match["names"].split(","):
        one = re.fullmatch(r"\s*(\**)\s*(\w+)\s*(\[.*)?", part)
        if one is None:
            return None
        length = re.fullmatch(r"\[\s*(\d+)\s*\]\s*", one[3] or "")
        count = None if one[3] is None else int(length[1]) if length is not None else 0
        found.append(StructField(one[2], match["type"] + one[1][1:], bool(one[1]), "const" in words, count))
    return found
