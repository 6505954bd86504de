"""Threads per block as a template parameter: a text written for one number of threads uses the kernel's own parameter."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelmate.records import Contract, Kernel
from kernelmate.source.folding import folded
from kernelmate.synthesis.names import without_comments
from kernelmate.synthesis.templates import TESTED, bound_arguments

_FUNCTION = r"^(?:static )?__device__ [^;{{(]*?\b({})\("


def threads_parameter(kernel: Kernel, contract: Contract, block: tuple[str, ...]) -> str:
    """Returns the template parameter that the kernel uses as the number of threads of its block; empty if it has none."""
    given = bound_arguments(kernel, contract)
    if len(block) != 1 or not given:
        return ""
    names = [name for name in given[0] if all(one.get(name) == block[0] for one in given)]
    body = without_comments(kernel.source).partition("{")[2]
    return names[0] if len(names) == 1 and re.search(rf"\b{re.escape(names[0])}\b", body) else ""


def with_threads_parameter(parameter: str, threads: str, definition: str, helpers: str, width: int) -> tuple[str, str]:
    """Returns a kernel and its helpers with a template parameter in place of the number of threads.

    Args:
        parameter: the name of the template parameter.
        threads: its value in the judged instances, for which the text is written.
        definition: the kernel's text.
        helpers: the text above it.
        width: columns of a line.
    """
    named = re.search(rf"^constexpr int (\w+) = {threads};  // threads per block\n?", helpers, re.MULTILINE)
    pieces = definitions_of((helpers if named is None else helpers.replace(named[0], "", 1)).strip("\n"))
    literals = rf"(?<![\w.]){threads}(?![\w.])"
    body = _without_guard(re.sub(rf"__launch_bounds__\({threads}\)", f"__launch_bounds__({parameter})", definition), parameter)  # fmt: skip
    if re.search(literals, "\n".join([*pieces, body])) or re.search(rf"\b{parameter}\b", helpers):
        return definition, helpers
    functions = {found[1]: number for number, piece in enumerate(pieces) if (found := re.search(_FUNCTION.format(r"\w+"), piece, re.MULTILINE))}  # fmt: skip
    if named is None:
        return (definition, helpers) if "blockDim" in helpers else (_folded(body.replace("blockDim.x", parameter), width), helpers)  # fmt: skip
    using = {number for number, piece in enumerate(pieces) if re.search(rf"\b{named[1]}\b", piece)}
    while more := {number for number, piece in enumerate(pieces) if number not in using and any(functions[name] in using and re.search(rf"\b{name}\b", piece) for name in functions)}:  # fmt: skip
        using |= more
    if not using <= {*functions.values()}:
        return definition, helpers  # a constant or a type depends on it
    called = [name for name, number in functions.items() if number in using]
    for number in using:
        pieces[number] = _as_template(pieces[number], parameter)
    texts = [re.sub(rf"\b{named[1]}\b", parameter, _with_arguments(one, called, parameter)) for one in [*pieces, body]]
    texts[-1] = _with_whole_groups(texts[-1], texts, parameter)
    *pieces, body = (_folded(one, width) for one in texts)
    return body, "\n\n".join(pieces).strip("\n")


def definitions_of(helpers: str) -> list[str]:
    """Returns the parts of a text that blank lines separate; a blank line within a body separates none."""
    pieces: list[str] = []
    for part in helpers.split("\n\n"):
        if pieces and pieces[-1].count("{") > pieces[-1].count("}"):
            pieces[-1] += f"\n\n{part}"
        else:
            pieces.append(part)
    return pieces


def _without_guard(definition: str, parameter: str) -> str:
    """Returns a kernel that may be instantiated with other numbers of threads than the judged ones."""
    guard = re.search(rf'^[ \t]*static_assert\(([^;]*?),\s*"{TESTED}"\);\n', definition, re.MULTILINE)
    if guard is None:
        return definition
    tests = [one for one in re.split(r"\s*&&\s*", guard[1]) if not re.fullmatch(rf"{parameter} == \d+", one)]
    left = guard[0].replace(guard[1], " && ".join(tests)) if tests else ""
    return definition.replace(guard[0], left, 1)


def _with_whole_groups(definition: str, texts: Sequence[str], parameter: str) -> str:
    """Returns a kernel that compiles only for numbers of threads that are multiples of what the texts divide them by.

    A remainder, such as the last part of a warp, would have no place in what is divided.
    """
    divisors = {found[1] for one in texts for found in re.finditer(rf"\b{parameter} / (\w+)", one)}
    constants = {*re.findall(r"^constexpr int (\w+) = ", "\n".join(texts), re.MULTILINE)}
    divisors = {one for one in divisors if one.isdecimal() or one in constants}
    if not divisors:
        return definition
    tests = " && ".join(f"{parameter} % {one} == 0" for one in sorted(divisors))
    start = definition.index("{\n") + 2
    indent = re.match(r"[ \t]*", definition[start:])
    assert indent is not None
    check = f'{indent[0]}static_assert({tests}, "whole groups of threads");\n'
    return definition[:start] + check + definition[start:]


def _as_template(piece: str, parameter: str) -> str:
    """Returns a device function with one more template parameter, before the others."""
    if re.search(r"^template <", piece, re.MULTILINE):
        return re.sub(r"^template <", f"template <int {parameter}, ", piece, count=1, flags=re.MULTILINE)
    return re.sub(r"^(?=(?:static )?__device__ )", f"template <int {parameter}>\n", piece, count=1, flags=re.MULTILINE)


def _with_arguments(text: str, called: Sequence[str], parameter: str) -> str:
    """Returns a text whose calls of some functions pass the parameter as the first template argument."""
    for name in called:
        own = re.search(_FUNCTION.format(name), text, re.MULTILINE)
        place = -1 if own is None else own.start(1)

        def passed(found: re.Match[str], place: int = place) -> str:
            if found.start() == place:
                return found[0]
            return f"{found[1]}<{parameter}, " if found[2] == "<" else f"{found[1]}<{parameter}>("

        text = re.sub(rf"\b({name})([<(])", passed, text)
    return text


def _folded(text: str, width: int) -> str:
    """Returns a text with its statements that are too long wrapped."""
    lines = text.split("\n")
    return "\n".join(
        piece for line in lines for piece in (folded(line, width) if line.startswith((" ", "\t")) else [line])
    )
