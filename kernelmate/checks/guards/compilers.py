"""Refuses text that compiles to other code with another compiler, for another architecture, or on another day.

The judged code must be the code that is built. Macros that the compiler predefines are refused in lines that the
baseline does not have, except in conditions around `#include` lines only. `__CUDA_ARCH__` has legitimate uses; the
kernel is also compiled and run for the architectures on both sides of each value it is compared with.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernelmate.compiler.prelude import STD_NAMES, prelude_for
from kernelmate.compiler.preprocessor import macros_of
from kernelmate.source.tokens import LexedText, Token, lex

ARCH = "__CUDA_ARCH__"

TELLING = frozenset(
    {
        "__CUDACC_RTC__", "__NVCC__", "__DATE__", "__TIME__", "__TIMESTAMP__", "__COUNTER__", "__BASE_FILE__",
        "__INCLUDE_LEVEL__", "__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__", "__CUDACC_VER_BUILD__", "__CUDACC_DEBUG__",
        "__CUDACC_RDC__", "__CUDACC_RELAXED_CONSTEXPR__", "__CUDACC_EXTENDED_LAMBDA__", "__NVCOMPILER", "__NVRTC__",
        "__GNUC__", "__clang__", "_MSC_VER", "__CUDA_ARCH_LIST__", "__has_include", "__builtin_FILE", "__OPTIMIZE__",
        "__cplusplus", "__nvvm_reflect", "__builtin_LINE", "__builtin_FUNCTION", "__PRETTY_FUNCTION__",
    }
)  # fmt: skip
"""Macros that reveal the compiler or the date (CUDA's documentation of nvcc and NVRTC; GCC's predefined macros)."""

_SAME_EVERYWHERE = frozenset({"__CUDACC__", "__VA_ARGS__", "__VA_OPT__", ARCH})
_CONDITIONS = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef"})
_OURS = frozenset(macro.name for macro in macros_of(prelude_for(STD_NAMES)))
_NV_TARGET = re.compile(r"NV_(IF|DISPATCH|IS|PROVIDES|HAS|ANY|NO)_")
"""Macros of `<nv/target>`, which select code by compiler and architecture."""

_PASSED_ON = frozenset({",", "(", ")", ";", "#", "{", "}"})
"""Tokens around an argument that is only passed to a call, for example to a function that reports errors."""

_NUMBER = re.compile(r"\d{3,4}")
Line = tuple[Token, ...]


def find(text: str, baseline: str | None) -> tuple[int, str] | None:
    """Returns the first line that depends on the compiler, and a sentence; None if the baseline has all such lines.

    Args:
        text: text of the version's file.
        baseline: text of the baseline's file, or None.
    """
    if baseline is None:
        return None
    known = {_words(line) for line in _lines(lex(baseline))}
    lexed = lex(text)
    lines = list(_lines(lexed))
    defined = {macro.name for macro in macros_of(text)}
    bare = _around_includes(lexed)
    for line in lines:
        names = [token.text for token in line if token.kind == "word" and _is_telling(token.text, line, defined)]
        if not names or line[0].directive in bare or _words(line) in known:
            continue
        message = (
            f"asks for {names[0]}, by which other compilers, options or days make other code of it than what was judged; "
            "the baseline does not"
        )
        return lexed.position(line[0].start)[0], message
    return None


def architectures(text: str, baseline: str | None) -> frozenset[int]:
    """Returns the numbers that lines absent from the baseline compare `__CUDA_ARCH__` with, such as 900."""
    if ARCH not in text:
        return frozenset()
    known = {_words(line) for line in _lines(lex(baseline))} if baseline is not None else set()
    return frozenset(
        int(token.text)
        for line in _lines(lex(text))
        if any(one.text == ARCH for one in line) and _words(line) not in known
        for token in line
        if _NUMBER.fullmatch(token.text)
    )


def _is_telling(name: str, line: Line, defined: set[str]) -> bool:
    if name in TELLING or _NV_TARGET.match(name):
        return True
    if name == "__LINE__":
        return _is_computed_with(name, line)
    condition = bool(line[0].directive) and len(line) > 1 and line[1].text in _CONDITIONS
    if not condition:
        return name == "__FILE__" and any(token.text == "[" for token in line)
    reserved = name.startswith("__") and name not in _SAME_EVERYWHERE
    return (reserved or name in _OURS) and name not in defined


def _is_computed_with(name: str, line: Line) -> bool:
    places = [place for place, token in enumerate(line) if token.text == name]
    around = [line[at].text for place in places for at in (place - 1, place + 1) if 0 <= at < len(line)]
    return any(text not in _PASSED_ON for text in around)


def _lines(lexed: LexedText) -> Iterator[Line]:
    """Yields the tokens of each line; a preprocessor line includes its continuation lines."""
    line: list[Token] = []
    for token in lexed.tokens:
        same = line and (
            token.directive == line[0].directive
            if token.directive or line[0].directive
            else lexed.line_start(token.start) == lexed.line_start(line[0].start)
        )
        if line and not same:
            yield tuple(line)
            line = []
        line.append(token)
    if line:
        yield tuple(line)


def _words(line: Sequence[Token]) -> tuple[str, ...]:
    return tuple(token.text for token in line)


def _around_includes(lexed: LexedText) -> frozenset[int]:
    """Returns the conditional directives, by number of their preprocessor line, that enclose only `#include` lines."""
    found: set[int] = set()
    opened: list[tuple[list[int], bool]] = []
    for line in _lines(lexed):
        word = line[1].text if line[0].directive and len(line) > 1 else ""
        if word in {"if", "ifdef", "ifndef"}:
            opened.append(([line[0].directive], True))
        elif word in {"elif", "elifdef", "elifndef", "else"} and opened:
            opened[-1][0].append(line[0].directive)
        elif word == "endif" and opened:
            directives, bare = opened.pop()
            if bare:
                found.update(directives)
        elif word not in {"include", "pragma"}:
            opened = [(directives, False) for directives, _ in opened]
    return frozenset(found)
