"""Fields of structs and of CUDA's vector types, which a contract describes by a table."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelmate.records import Argument, Member, Parameter, Passed
from kernelmate.source.dtypes import ITEM_BYTES, c_type_dtype
from kernelmate.source.tokens import Token, closing, lex

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


def struct_fields(text: str, name: str) -> tuple[StructField, ...] | None:
    """Returns the fields of a struct; None where the text defines none of this name, or one that has more than plain fields."""
    tokens = lex(text).tokens
    for index in range(len(tokens) - 2):
        if tokens[index].text not in ("struct", "class"):
            continue
        opening = next((at for at in (index + 1, index + 2) if tokens[at].text == "{"), None)
        end = None if opening is None else closing(tokens, opening)
        if opening is None or end is None:
            continue
        alias = tokens[index - 1].text == "typedef" and tokens[min(end + 1, len(tokens) - 1)].text == name
        if tokens[opening - 1].text == name or alias:
            return _fields(tokens[opening + 1 : end])
    return None


def _fields(tokens: Sequence[Token]) -> tuple[StructField, ...] | None:
    found: list[StructField] = []
    start = 0
    for index, token in enumerate(tokens):
        if token.text in ("(", "{", ":", "static", "template", "virtual"):
            return None
        if token.text != ";":
            continue
        declared = _declared([one.text for one in tokens[start:index]])
        start = index + 1
        if declared is None:
            return None
        found += declared
    return tuple(found) or None


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
