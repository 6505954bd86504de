"""Identifiers for generated kernels, which do not collide with the user's text or with each other."""

from __future__ import annotations

import re
from collections.abc import Iterable

RESERVED = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "and_eq",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "compl",
        "const",
        "const_cast",
        "constexpr",
        "continue",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "half",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "nullptr",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "register",
        "reinterpret_cast",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "thread_local",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "while",
        "xor",
        "xor_eq",
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
        "warpSize",
        "min",
        "max",
        "abs",
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "rsqrt",
        "sin",
        "cos",
        "tan",
        "tanh",
        "sinh",
        "cosh",
        "floor",
        "ceil",
        "rint",
        "trunc",
        "round",
        "fabs",
        "fmax",
        "fmin",
        "pow",
        "atan",
        "hypot",
        "cbrt",
        "erf",
        "erfc",
        "atan2",
        "asin",
        "acos",
        "asinh",
        "acosh",
        "atanh",
        "copysign",
        "fmod",
        "isnan",
        "isinf",
        "sum",
    ]
)
"""Keywords of C++ and functions of CUDA that a name must not hide; also `sum`, a local of the schedules."""


COUNTERS = "ijkrst"
"""Names of loop counters, in order of preference."""


class Names:
    """Identifiers that are not used yet.

    Args:
        outer: names at the outermost level, which a local may not hide.
        every: all words, for names at that level.
        kernels: other names that a local of the kernel may not have.
    """

    def __init__(self, outer: Iterable[str], every: Iterable[str], kernels: Iterable[str] = ()) -> None:
        self._outer, self._every = set(outer), set(every)
        self._taken = {*self._outer, *kernels}
        self._numbered: dict[str, str] = {}
        self._positions = set[str]()

    @property
    def outer(self) -> frozenset[str]:
        """Returns the names at the outermost level."""
        return frozenset(self._outer)

    def outermost(self, wanted: str) -> str:
        """Returns an unused name for a function or constant at the outermost level."""
        name, number = wanted, 2
        while name in self._taken | self._every:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        self._outer.add(name)
        return name

    def element(self, array: str) -> str:
        """Returns a new name for one element of an array."""
        return self.fresh(self.element_name(array))

    def element_name(self, array: str) -> str:
        """Returns the name for one element of an array: `sample` for `samples`, `x_i` for `x`."""
        single = one_of(array)
        return single if single and self.is_free(single) else f"{array}_i"

    def is_free(self, name: str) -> bool:
        """Returns True if an identifier is unused."""
        return name.isascii() and name.isidentifier() and name not in self._taken

    def fresh(self, wanted: str) -> str:
        """Returns the wanted name, with a numeric suffix if it is used; a used counter gives the next counter."""
        if wanted in COUNTERS and wanted in self._taken:
            wanted = next((one for one in COUNTERS if one not in self._taken), wanted)
        name, number = wanted, 2
        while name in self._taken:
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name)
        if name != wanted:
            self._numbered[name] = wanted
        return name

    def position(self, wanted: str) -> str:
        """Returns a new name for a position; it becomes `batch_index` in a function that uses a size `batch`."""
        name = self.fresh(wanted)
        self._positions.add(name)
        return name

    def release(self, name: str) -> None:
        """Releases a name for other uses."""
        self._taken.discard(name)

    def unnumbered(self, function: str) -> str:
        """Removes numeric suffixes from a function's locals where that causes no collision."""
        words = words_of(without_comments(function))
        for name in dict.fromkeys(re.findall(r"\b[A-Za-z]\w*_\d+\b", function)):
            wanted = self._numbered.get(name, "")
            names = [wanted, *[f"{wanted}_index"] * (name in self._positions)] if wanted else []
            free = next((one for one in names if one not in words and one not in self._outer), None)
            if free is not None:
                function = re.sub(rf"\b{name}\b", free, function)
                words.add(free)
        return function


def singular(side: str, otherwise: str) -> str:
    """Returns a name for the position along an axis: `row` for the extent `rows`."""
    return side[:-1] if re.fullmatch(r"[a-z_]{2,}[a-rt-z]s", side) and side[:-1] not in RESERVED else otherwise


def one_of(several: str) -> str:
    """Returns the singular of a plural: `sample` for `samples`; empty for other names."""
    regular = re.fullmatch(r"[a-z_]{2,}[^aiosu_]s", several) and not re.search(r"(?:ie|[cshxz]e)s$", several)
    return several[:-1] if regular and several[:-1] not in RESERVED else ""


def position_name(side: str) -> str:
    """Returns a name for the position along an outer axis: `out_row` for `height`, `row` for `rows`, `c` for `C`."""
    words = set(re.findall(r"[A-Za-z_]\w*", side))
    word = words.pop() if len(words) == 1 else ""
    short = word.lower() if re.fullmatch(r"[A-Z]{1,2}", word) and word.lower() not in RESERVED else "outer"
    return {"height": "out_row", "width": "out_col", "batch": "batch"}.get(word) or singular(word, short)


def without_comments(text: str) -> str:
    """Returns C++ text with a space in place of each comment."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text, flags=re.DOTALL)


def base_name(kernel: str) -> str:
    """Returns a kernel's name for names of its helpers, without namespaces and without the word kernel."""
    bare = kernel.rpartition("::")[2]
    return re.sub(r"_kernel$|^kernel_|(?<=[a-z0-9])Kernel$", "", bare) or bare


def indent_of(source: str) -> str:
    """Returns the indentation of one level of a function: two or four blanks, or a tab."""
    indents = re.findall(r"\n([ \t]+)\S", source)
    indent = min(indents, key=len) if indents else "  "
    return indent if indent in ("\t", "    ") else "  "


def words_of(text: str) -> set[str]:
    """Returns all identifiers and numbers of a text."""
    return set(re.findall(r"\w+", text))


def without_bodies(text: str) -> str:
    """Returns the text outside braces and parentheses, followed by the names of all macros."""
    macros = re.findall(r"#\s*define\s+\w+", text)
    before = ""
    while text != before:
        before, text = text, re.sub(r"\{[^{}]*\}|\([^()]*\)", " ", text)
    return "\n".join([text, *macros])
