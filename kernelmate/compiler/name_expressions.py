"""NVRTC's name expressions, which select the kernel, or the instance of a template, that is compiled."""

from __future__ import annotations

import re
from itertools import zip_longest

from kernelmate.records import Kernel
from kernelmate.source.instances import template_arguments
from kernelmate.source.template_parameters import template_parameters

AMBIGUOUS = "cannot determine which instance of overloaded function"
"""NVRTC's message about a name that another function has too, such as a kernel called `exp`."""


def by_type(kernel: Kernel) -> str:
    """Returns the name expression of a kernel that is not a template, with its type, which distinguishes it from other functions of its name."""
    types = ", ".join(one.type.replace("__grid_constant__", "") for one in kernel.signature.parameters)
    return f"static_cast<void (*)({types})>({kernel.name})"


def name_expression(kernel: Kernel, instance: str | None) -> tuple[str, str]:
    """Returns NVRTC's name expression for a kernel, and text that must be appended to the unit.

    NVRTC resolves a name expression in the global namespace, but template arguments may be names of the kernel's
    namespace. The appended text declares aliases for them in that namespace.
    """
    if instance is None:
        return kernel.name, ""
    space, _, last = kernel.name.rpartition("::")
    text = instance.strip()
    if text.startswith("<"):
        text = kernel.name + text
    elif space and re.match(rf"{re.escape(last)}\s*<", text):
        text = f"{space}::{text}"
    parsed = template_arguments(text) if space else None
    if parsed is None:
        return text, ""
    aliases, arguments = [], []
    for number, (argument, parameter) in enumerate(zip_longest(parsed[1], template_parameters(kernel))):
        if argument is None:
            break
        known = not re.search(r"[^\W\d]\w*", _BUILT_IN.sub("", argument))
        if known or parameter is None or parameter.kind not in ("type", "value"):
            arguments.append(argument)
            continue
        name = f"kernelmate_argument_{number}"
        declared = f"using {name} =" if parameter.kind == "type" else f"constexpr auto {name} ="
        aliases.append(f"{declared} {argument};")
        arguments.append(f"{space}::{name}")
    if not aliases:
        return text, ""
    spaces = space.split("::")
    opened = " ".join(f"namespace {one} {{" for one in spaces)
    return f"{parsed[0]}<{', '.join(arguments)}>", f"\n{opened} {' '.join(aliases)} {'}' * len(spaces)}\n"


_BUILT_IN = re.compile(
    r"\b(?:bool|char|signed|unsigned|short|int|long|float|double|true|false|const|\d[\w.]*|half|__half2?|__nv_bfloat162?)\b"
)
