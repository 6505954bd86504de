"""Text of a kernel in which every access to an element is written as a subscript or a dereferenced pointer."""

from __future__ import annotations

import re

from kernelmate.records import Kernel

_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\((\w+)\)[ \t]+(.*\S)", re.MULTILINE)
"""Name, parameter and body of a macro of one parameter and one line."""
_CACHED_LOAD = re.compile(r"\b__ld(?:g|c[agsv]|lu)\s*\(")


def text_of_accesses(kernel: Kernel) -> str:
    """Returns a kernel's text in which macros that cast an element are expanded, and cached loads are dereferenced pointers.

    `FLOAT4(x[i])` becomes the macro's `*(float4*)&(x[i])`, and `__ldg(&x[i])` becomes `0 + *(&x[i])`.
    """
    text = kernel.source
    for name, parameter, body in _MACRO.findall(kernel.unit.text):
        uses = re.findall(rf"\b{parameter}\b", body)
        if len(uses) != 1 or not re.search(r"\breinterpret_cast\b|\*\s*\)", body) or f"{name}(" not in text:
            continue
        argument = rf"\b{re.escape(name)}\(((?:[^()]|\([^()]*\))*)\)"
        text = re.sub(argument, lambda call: re.sub(rf"\b{parameter}\b", lambda _: call[1], body), text)  # noqa: B023 -- called at once
    return _CACHED_LOAD.sub("0 + *(", text)
