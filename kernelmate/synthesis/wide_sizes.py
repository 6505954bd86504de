"""Indices of generated text along 64-bit sizes: they have the type of the size."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from kernelmate.records import Kernel
from kernelmate.synthesis.file_style import closing_bracket, parts_of
from kernelmate.synthesis.names import without_comments

_INDEX = r"(?<![\w<])(?:int|size_t) "
"""Types of indices in generated text, as a pattern."""


def with_wide_indices(kernel: Kernel, definition: str, helpers: str) -> tuple[str, str]:
    """Returns a generated kernel and its helpers, whose indices along the user's 64-bit sizes have the type of these.

    An index of type `int` would not reach the end of an axis of 2^31 elements, `min` takes arguments of one type, and
    comparisons of `size_t` with a signed size make compilers warn.
    """
    given = [one for one in kernel.signature.parameters if not one.pointer and one.dtype in ("int64", "uint64")]
    wide = {one.name: re.sub(r"\bconst\b ?", "", one.type) for one in given}
    texts = [helpers, definition]
    while wide:
        found = _compared(without_comments("\n".join(texts)), wide)
        if not found:
            break
        wide |= found
        for name, kind in found.items():
            texts = [_retyped(text, name, kind) for text in texts]
    helpers, definition = (_with_equal_types(text, wide) if wide else text for text in texts)
    return definition, helpers


def _retyped(text: str, name: str, kind: str) -> str:
    """Returns the text with a variable, and the unnamed `int` parameter that receives it, declared with type `kind`."""
    text = re.sub(rf"{_INDEX}(?={name}(?: =|,|\)))", f"{kind} ", text)
    if re.search(rf"\bbody\([^;]*, {name}\);", text):
        text = re.sub(r"(\[&\]\([^()]*, )int\) \{", rf"\g<1>{kind}) {{", text)
    return re.sub(
        rf"\b(?:const )?{re.escape(kind)} {name} = [^;]*;",
        lambda one: _aligned(one[0].replace("static_cast<size_t>(", f"static_cast<{kind}>("), kind),
        text,
    )


def _aligned(declaration: str, kind: str) -> str:
    """Returns a declaration, whose type was `size_t` or `int`, with further lines moved as far as its value."""
    longer = len(kind) - len("size_t" if "static_cast<" in declaration else "int")
    return re.sub(r"\n( +)", lambda one: "\n" + " " * max(len(one[1]) + longer, 0), declaration)


def _compared(code: str, wide: Mapping[str, str]) -> dict[str, str]:
    """Returns the indices that are compared with a wide variable, or receive one in a call, with its type."""
    found: dict[str, str] = {}
    passed = dict(_passed(code))
    for name in dict.fromkeys(re.findall(rf"{_INDEX}(?!k[A-Z])(\w+)(?= =|,|\))", code)):
        for size, kind in wide.items():
            over = rf"\b{name}(?: \+ \w+)? (?:<|<=|>=) {size}\b|\b{size} (?:>|<=|<) {name}\b|\b(?:int|size_t) {name} = [^;]*[?:] {size};"
            if passed.get(name) == size or re.search(over, code):
                found[name] = kind
    return {name: kind for name, kind in found.items() if not re.search(rf"\b{re.escape(kind)} {name}\b", code)}


def _passed(code: str) -> Iterator[tuple[str, str]]:
    """Yields the parameters of generated functions, each with an argument that it receives."""
    for head in re.finditer(r"^static __device__ [^(]*?\b(\w+)\(", code, re.MULTILINE):
        end = closing_bracket(code, head.end() - 1)
        names = [one.rpartition(" ")[2] for one in parts_of(code[head.end() : end])]
        for call in re.finditer(rf"\b{head[1]}(?:<\w+>)?\(", code[end:]):
            start = end + call.end()
            arguments = parts_of(code[start : closing_bracket(code, start - 1)])
            yield from zip(names, arguments, strict=False)


def _with_equal_types(text: str, wide: Mapping[str, str]) -> str:
    """Returns a text in which calls of `min` and `max` with one wide argument convert the other, without needless conversions."""
    at = 0
    while (call := re.compile(r"\b(?:min|max)\(").search(text, at)) is not None:
        at = call.end()
        end = closing_bracket(text, at - 1)
        parts = parts_of(text[at:end])
        kinds = [next((wide[one] for one in re.findall(r"\w+", part) if one in wide), "") for part in parts]
        if any(kinds) and not all(kinds):
            kind = max(kinds)
            new = ", ".join(part if has else f"static_cast<{kind}>({part})" for part, has in zip(parts, kinds, strict=True))  # fmt: skip
            text = text[:at] + new + text[end:]
    return re.sub(
        r"static_cast<(\w+)>\((\w+)\)", lambda cast: cast[2] if wide.get(cast[2]) == cast[1] else cast[0], text
    )
