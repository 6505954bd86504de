"""Names in a kernel: words with a fixed meaning, placeholders for all others, and local names in launch expressions.

Words of C++, CUDA and their headers are known; all others are user-defined names. Placeholders stand for these and for
long literals, since a small model copies one token reliably, but may corrupt a longer name. A contract's expressions can
only contain parameters, so local names in launches are replaced by the parameters that they derive from.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from kernelmate.suggest.codec.lines import is_number, is_string, is_word

KEYWORDS = frozenset(
    {
        "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "concept",
        "const", "consteval", "constexpr", "constinit", "const_cast", "continue", "decltype", "default", "delete", "do",
        "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "final", "float", "for",
        "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "nullptr",
        "operator", "or", "override", "private", "protected", "public", "register", "reinterpret_cast", "requires",
        "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template",
        "this", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using",
        "virtual", "void", "volatile", "while", "define", "undef", "ifdef", "ifndef", "elif", "endif", "include",
        "pragma", "unroll", "defined", "once", "line", "error", "warning", "nounroll",
    }
)  # fmt: skip
"""Words of C++ and of its preprocessor."""

CONTROL = frozenset({"if", "for", "while", "switch", "else", "do"})

_NAMES = frozenset(
    {
        "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "dim3", "half", "half2", "nv_bfloat16",
        "nv_bfloat162", "size_t", "ptrdiff_t", "uchar", "ushort", "uint", "ulong", "printf", "assert", "INFINITY",
        "NAN", "HUGE_VALF", "FLT_MAX", "FLT_MIN", "FLT_EPSILON", "DBL_MAX", "DBL_MIN", "DBL_EPSILON", "INT_MAX",
        "INT_MIN", "UINT_MAX", "LLONG_MAX", "M_PI", "M_E", "M_SQRT2", "M_SQRT1_2", "CUDART_INF_F", "CUDART_PI_F",
        "CUDART_NAN_F", "CUDART_INF", "CUDART_PI", "NULL", "clock", "clock64", "std", "cub", "cuda", "wmma", "nvcuda",
        "cooperative_groups", "thrust", "cg", "memcpy", "memset", "min", "max", "abs", "swap", "saturatef", "sincosf",
        "sincos", "sincospif", "signbit", "isnan", "isinf", "isfinite", "copysign", "copysignf", "ldexp", "ldexpf",
        "frexp", "frexpf", "pow", "powf", "fmod", "fmodf", "hypot", "hypotf", "norm3df", "norm4df", "rnorm3df",
        "rhypotf", "ceil", "ceilf", "floor", "floorf", "round", "roundf", "rint", "rintf", "trunc", "truncf",
        "nearbyint", "nearbyintf", "lrint", "lrintf", "lround", "lroundf", "fdim", "fdimf", "fma", "fmaf", "fmin",
        "fminf", "fmax", "fmaxf", "fabs", "fabsf", "remainderf", "erf", "erff", "erfc", "erfcf", "erfinv", "erfinvf",
        "normcdf", "normcdff", "tgamma", "tgammaf", "lgamma", "lgammaf", "cbrt", "cbrtf", "rcbrtf", "sqrt", "sqrtf",
        "rsqrt", "rsqrtf", "exp", "expf", "exp2", "exp2f", "exp10", "exp10f", "expm1", "expm1f", "log", "logf", "log2",
        "log2f", "log10", "log10f", "log1p", "log1pf", "sin", "sinf", "cos", "cosf", "tan", "tanf", "asin", "asinf",
        "acos", "acosf", "atan", "atanf", "atan2", "atan2f", "sinh", "sinhf", "cosh", "coshf", "tanh", "tanhf",
        "sinpif", "cospif", "asinh", "asinhf", "acosh", "acoshf", "atanh", "atanhf", "umin", "umax", "llmin", "llmax",
        "hexp", "hlog", "hsqrt", "hrsqrt", "h2exp", "htanh",
    }
)  # fmt: skip

_FAMILIES = re.compile(
    r"__\w+|atomic[A-Z]\w*|make_\w+|u?int(?:8|16|32|64)_t|uintptr_t|intptr_t|u?(?:char|short|int|long|longlong)[1-4]"
    r"|(?:float|double|half)[1-4]|nv_\w+|cuda[A-Z]\w*|tex[123]D\w*|surf[123]D\w*|CUDART_\w+"
)

MEMBERS = frozenset(
    {
        "x", "y", "z", "w", "sync", "size", "thread_rank", "group_index", "thread_index", "num_threads",
        "meta_group_rank", "meta_group_size", "shfl", "shfl_down", "shfl_up", "shfl_xor", "any", "all", "ballot",
        "fill", "num_elements", "get", "map_shared_rank", "block_rank", "num_blocks", "is_valid",
    }
)  # fmt: skip
"""Member names that are not user-defined: fields of vectors, members of thread groups and fragments."""


def is_known(word: str) -> bool:
    """Returns True if the word is not a user-defined name."""
    return word in KEYWORDS or word in _NAMES or _FAMILIES.fullmatch(word) is not None


TYPES = frozenset(
    {
        "void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "auto", "const",
        "volatile", "half", "half2", "size_t", "uint", "ushort", "uchar", "ulong", "nv_bfloat16", "nv_bfloat162",
        "typename", "struct", "ptrdiff_t", "dim3",
    }
)  # fmt: skip
_TYPE_FAMILIES = re.compile(
    r"\w+_t|(?:float|double|half|u?(?:char|short|int|long|longlong))[1-4]|__half2?|__nv_bfloat16\w*|__nv_fp8\w*|[A-Z]"
)


def is_type(word: str) -> bool:
    """Returns True if the word names a type, or is part of such a name, in any context."""
    return word in TYPES or _TYPE_FAMILIES.fullmatch(word) is not None


NAMES, LITERALS = 96, 32
"""Number of placeholders for names and for literals; further ones are not replaced."""
SHORT_NUMBER, SHORT_STRING = 5, 4
"""Largest length in characters of numbers and strings that are not replaced."""

_SUFFIX = re.compile(r"(?<=[\w.])(?:[uU]?[lL]{0,2}|[fFhH])\Z")
_HEX_SUFFIX = re.compile(r"[uU]?[lL]{0,2}\Z")
_PLACEHOLDER = re.compile(r"@([vk])(\d+)([A-Za-z]\w*)?\Z")
_WORD = re.compile(r"(?<![\w@])[A-Za-z_]\w*|@v\d+")


def placeholders() -> tuple[str, ...]:
    """Returns all placeholders: of names (`@v0`, ...) and of literals (`@k0`, ...)."""
    return (*(f"@v{number}" for number in range(NAMES)), *(f"@k{number}" for number in range(LITERALS)))


@dataclass(slots=True)
class Placeholders:
    """Placeholders of the names in one unit.

    Attributes:
        names: placeholder of each name.
        literals: placeholder of each literal, which is given without its suffix.
    """

    names: dict[str, str] = field(default_factory=dict)
    literals: dict[str, str] = field(default_factory=dict)
    _back: dict[str, str] = field(default_factory=dict)
    _fresh: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Sequence[str]], seed: int | None, *, replace: bool = True) -> Placeholders:
        """Assigns placeholders to names and literals, in the order of first appearance, or by a seed.

        Args:
            lines: the tokens of each line.
            seed: as `Question.seed`.
            replace: False replaces only literals that could be read as special tokens.
        """
        words, numbers = list(range(NAMES)), list(range(LITERALS))
        if seed is not None:
            drawn = random.Random(seed)  # noqa: S311 -- nothing secret is drawn
            drawn.shuffle(words)
            drawn.shuffle(numbers)
        found = cls()
        for line in lines:
            for index, token in enumerate(line):
                if is_word(token):
                    if replace and token not in found.names and words_are_free(found, line, index):
                        found.names[token] = f"@v{words[len(found.names)]}"
                elif len(found.literals) < LITERALS and _is_long(token, replace=replace):
                    core = _split(token)[0]
                    if core not in found.literals:
                        found.literals[core] = f"@k{numbers[len(found.literals)]}"
        found._back = {mark: word for table in (found.names, found.literals) for word, mark in table.items()}
        return found

    def hide(self, line: Sequence[str]) -> list[str]:
        """Replaces names and literals of a line by placeholders."""
        names, literals = self.names, self.literals
        hidden = []
        for index, token in enumerate(line):
            mark = names.get(token)
            if mark is not None:
                hidden.append(token if is_fixed(line, index) else mark)
            elif literals and token[0] in "0123456789.\"'@uULR":
                core, suffix = _split(token)
                hidden.append(literals[core] + suffix if core in literals else token)
            else:
                hidden.append(token)
        return hidden

    def show(self, line: Sequence[str]) -> list[str]:
        """Replaces placeholders in a model's line by their values.

        A name that the model wrote and that the unit uses with another meaning gets an underscore.

        Raises:
            KeyError: a placeholder is undefined.
        """
        shown = []
        for index, token in enumerate(line):
            found = _PLACEHOLDER.match(token)
            if found is not None:
                shown.append(self._back[f"@{found[1]}{found[2]}"] + (found[3] or ""))
            elif token in self.names and not is_fixed(line, index):
                shown.append(self._renamed(token))
            else:
                shown.append(token)
        return shown

    def _renamed(self, name: str) -> str:
        if name not in self._fresh:
            other = f"{name}_"
            while other in self.names or other in self._fresh.values():
                other += "_"
            self._fresh[name] = other
        return self._fresh[name]

    def hide_expression(self, text: str) -> str:
        """Replaces names in a contract expression by placeholders."""
        return _WORD.sub(lambda word: self.names.get(word[0], word[0]), text)

    def show_expression(self, text: str) -> str:
        """Replaces placeholders in an answer's expression by names.

        Raises:
            KeyError: a placeholder is undefined.
        """
        return _WORD.sub(lambda word: self._back[word[0]] if word[0][0] == "@" else word[0], text)


def words_are_free(found: Placeholders, line: Sequence[str], index: int) -> bool:
    """Returns True if the word at `index` is a user-defined name and a placeholder is left."""
    return len(found.names) < NAMES and not is_known(line[index]) and not is_fixed(line, index)


def is_fixed(line: Sequence[str], index: int) -> bool:
    """Returns True if the context of the word at `index` gives it a fixed meaning.

    Examples are a vector's field, a library's name, and a header.
    """
    if line[0] == "#" and (index == 1 or line[1] in ("include", "pragma")):
        return True
    before = line[index - 1] if index else ""
    if before in (".", "->"):
        return line[index] in MEMBERS
    return before == "::" or (index + 1 < len(line) and line[index + 1] == "::")


def _is_long(token: str, *, replace: bool) -> bool:
    if "@" in token:
        return True
    if not replace:
        return False
    if is_number(token):
        return len(_split(token)[0]) > SHORT_NUMBER
    return is_string(token) and len(token) > SHORT_STRING


def _split(token: str) -> tuple[str, str]:
    """Splits a number into its digits and its suffix; other tokens have no suffix."""
    if not is_number(token):
        return token, ""
    pattern = _HEX_SUFFIX if token[:2] in ("0x", "0X") else _SUFFIX
    found = pattern.search(token)
    cut = found.start() if found is not None else len(token)
    return token[:cut], token[cut:]


MOST_DEPTH = 3
"""Largest depth of nested replacements."""

_LAUNCH_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_INTEGER_SUFFIX = re.compile(r"[uUlL]+\Z")
_CHANGES = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "++", "--"})
_OPERATORS = frozenset("+-*/%()")


def values_of(lines: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    """Returns the values of names that are assigned once, at their declaration: constants, macros, local variables.

    Args:
        lines: the tokens of each line.
    """
    found: dict[str, list[str]] = {}
    spoiled: set[str] = set()
    for line in lines:
        name, value = _declared(line)
        for place, text in enumerate(line):
            changes = {*line[place + 1 : place + 2]} & _CHANGES or {*line[max(place - 1, 0) : place]} & {"++", "--"}
            if is_word(text) and changes and text != name:
                spoiled.add(text)
        if name is not None:
            if name in found:
                spoiled.add(name)
            found[name] = value
    return {name: value for name, value in found.items() if name not in spoiled}


def in_parameters(expression: str, values: dict[str, list[str]], known: Collection[str], depth: int = MOST_DEPTH) -> str:  # fmt: skip
    """Replaces a kernel's own names in a launch expression; names without a simple value stay.

    Args:
        expression: the expression, as in a contract.
        values: tokens of the value of each name.
        known: names that a contract defines, which stay.
        depth: levels of nested names to replace.
    """

    def value(found: re.Match[str]) -> str:
        tokens = values.get(found[0])
        if found[0] in known or tokens is None or not depth:
            return found[0]
        text = " ".join(_INTEGER_SUFFIX.sub("", one) if is_number(one) else one.replace("/", "//") for one in tokens)
        inner = in_parameters(text, values, known, depth - 1)
        return inner if len(tokens) == 1 else f"({inner})"

    return _LAUNCH_WORD.sub(value, expression)


def _declared(line: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the name that a line declares with a simple value, and the value's tokens."""
    if line[:2] == ["#", "define"] and len(line) > 3:
        name, value = line[2], list(line[3:])
    elif len(line) > 4 and line[-1] == ";" and "=" in line:
        at = list(line).index("=")
        name, value = line[at - 1], list(line[at + 1 : -1])
        if at < 2 or not all(is_type(word) or word in ("const", "constexpr", "static") for word in line[: at - 1]):
            return None, []
    else:
        return None, []
    simple = all(token in _OPERATORS or (is_number(token) and "." not in token) or is_word(token) for token in value)
    return (name, value) if is_word(name) and simple and value else (None, [])
