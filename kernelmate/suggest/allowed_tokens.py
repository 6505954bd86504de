"""Allow-list for text that a model or a plugin wrote: the characters, words and preprocessor lines of candidates.

A macro changes the meaning of its name in the user's file, in headers, and in code that calls the kernel. Therefore a
candidate's macros must have new names, and must be undefined after the kernel.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from kernelmate.compiler.prelude import STD_NAMES, words_of
from kernelmate.source.tokens import Token, closing, lex

MOST_TEXT = 256 * 1024
"""Largest number of characters in one answer, five times the longest handwritten kernels."""

INCLUDES = re.compile(
    r"<(?:cuda_(?:runtime|fp16|bf16|fp8|fp6|fp4|pipeline|awbarrier)(?:_primitives)?\.h|mma\.h|cooperative_groups\.h"
    r"|cooperative_groups/(?:reduce|scan|memcpy_async)\.h|cub/[\w/]+\.cuh|cuda/[\w/]+|math_constants\.h"
    r"|(?:math|stdint|stddef|stdio|limits|float|assert)\.h|c(?:math|stdint|stddef|stdio|limits|float|assert)|type_traits)>\Z"
)
"""Headers of CUDA and of the language that a candidate may add; headers of the user's file are allowed too."""

CONDITIONS = frozenset({"if", "ifdef", "ifndef", "elif", "elifdef", "elifndef", "else", "endif"})
DIRECTIVES = frozenset({"define", "undef", "include", "pragma"})
PRAGMAS = frozenset({"unroll", "nounroll"})
READS_FILES = frozenset(
    {"__has_include", "__has_include_next", "__has_embed", "include_next", "import", "embed", "incbin"}
)

_LIBRARY = re.compile(
    # CUDA: runtime, driver, vector types and their constructors, atomics, textures, cooperative groups.
    r"__\w*|_[A-Z]\w*|cuda\w*|cu[A-Z]\w*|CU(?:DA|RT)?_\w*|CUDART\w*|nv_?\w*|NV_\w*|atomic\w*|make_\w+|tex[123C]?\w*|surf[123C]\w*"
    r"|u?(?:char|short|int|long|longlong)[1-4]?|(?:float|double|half|nv_bfloat16|dim)[1-4]?|clock(?:64)?|warpSize"
    r"|(?:thread|block)Idx|(?:block|grid)Dim|r?norm[34]?d?f?|rsqrtf?|rcbrtf?|sinpif?|cospif?|sincos(?:pi)?f?|saturate|wmma|cg"
    # C: its types and its functions of numbers, of characters, of memory, of files, of time, and its limits.
    r"|u?int(?:_least|_fast)?\d+_t|u?int(?:max|ptr)_t|(?:size|ssize|ptrdiff|wchar|time|clock|off|fpos|va)_t|(?:l?l)?abs|f?(?:min|max)f?"
    r"|(?:a?(?:sin|cos|tan)h?|atan2|exp2?|expm1|exp10|log|log2|log10|log1p|logb|ilogb|sqrt|cbrt|pow|hypot|erfc?|erfinv|tgamma|lgamma"
    r"|ceil|floor|trunc|l?l?round|l?l?rint|nearbyint|fmod|modf?|remainder|remquo|copysign|nextafter|fdim|fabs|fma|frexp|ldexp|scalbl?n|nan"
    r"|j[01n]|y[01n])[fl]?|is(?:nan|inf|finite|normal|less\w*|greater\w*|unordered|alnum|alpha|digit|space|upper|lower|print|punct)|signbit"
    r"|mem(?:cpy|set|move|cmp|chr)|str\w+|ato[fil]l?|[mc]alloc|realloc|free|exit|abort|atexit|system|getenv|s?rand|qsort|bsearch|l?l?div"
    r"|v?[fs]?n?printf|v?[fs]?scanf|f?puts|f?putc|putchar|f?gets|f?getc|getchar|f(?:open|close|read|write|seek|tell|flush)|remove|rename|perror"
    r"|signal|raise|setjmp|longjmp|errno|assert|va_(?:arg|start|end|copy)|offsetof|gmtime|localtime|mktime|difftime|std(?:in|out|err)?|main"
    r"|E(?:OF|DOM|RANGE|INVAL|XIT_\w+)|NULL|NAN|INFINITY|HUGE_VALF?L?|M_\w+|RAND_MAX|BUFSIZ|FILE|SIG\w+|CLOCKS_PER_SEC|NDEBUG"
    r"|U?(?:CHAR|SHRT|INT|LONG|LLONG|SCHAR)_(?:MIN|MAX)|CHAR_BIT|U?INT\w*_(?:MIN|MAX|C)|SIZE_MAX|(?:FLT|DBL|LDBL)_\w+|bool|true|false"
)
"""Patterns of names of CUDA and the C library that a candidate's macros must not use."""

RESERVED = STD_NAMES | words_of(
    "alignas alignof and asm auto break case catch class const constexpr continue default delete do else enum explicit extern for"
    " friend goto if inline mutable namespace new noexcept not nullptr operator or private protected public register return signed"
    " sizeof static static_assert struct switch template this throw try typedef typename union unsigned using virtual void volatile"
    " while defined override final import module decltype typeid co_await concept requires wchar_t char8_t char16_t char32_t xor"
    " bitand bitor compl and_eq or_eq xor_eq not_eq thread_local const_cast dynamic_cast reinterpret_cast static_cast dim3"
)
"""Keywords and library names that a candidate's macros must not redefine."""

_ATTRIBUTES = words_of(
    "aligned align noinline always_inline unused packed pure const maybe_unused nodiscard fallthrough likely unlikely gnu nv_pure"
    " noreturn no_unique_address"
)
"""Attributes that a candidate may add; others run code at start-up, or rename or place symbols."""

_ODD = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\u2028\u2029\ufeff\ud800-\udfff]"
)
_SPELLINGS = re.compile(r"\?\?[=/'()!<>-]|%:|\\u[0-9a-fA-F]|\\U[0-9a-fA-F]")

_SPLIT = re.compile(r"[^\s\\]{1,40}\\\r?\n\S{1,40}")
"""Two parts of a word or operator joined by a line continuation, which can hide a directive, a name or a comment."""


_COVERED_SPLICE = re.compile(r"\\[^\S\n]+\n")
"""A backslash and blanks at the end of a line, which some compilers read as a line continuation, even in comments."""

_DIGRAPHS = frozenset({("<", "%"), ("%", ">"), ("<", ":"), (":", ">"), ("%", ":")})

_ASSEMBLY = frozenset({"asm", "__asm__", "__asm"})
_ASSEMBLY_DIRECTIVES = frozenset({"reg", "param", "local", "shared", "pragma"})
"""PTX directives allowed in an assembly statement; others end the function or declare symbols visible outside of it."""


class ForbiddenText(Exception):
    """The text is rejected; the message is one sentence."""


def check_characters(text: str, extra: int = 0) -> None:
    """Rejects characters that hide text or change its reading direction.

    Raises:
        ForbiddenText: the text is too long, or contains such characters.
    """
    if len(text) > MOST_TEXT + extra:
        raise ForbiddenText(f"The text has {len(text):,} characters; at most {MOST_TEXT + extra:,} are read.")
    odd = _ODD.search(text)
    if odd is not None:
        raise ForbiddenText(
            f"The text holds the character U+{ord(odd.group()):04X}, which is invisible or changes how text is displayed."
        )
    spelling = _SPELLINGS.search(text)
    if spelling is not None:
        raise ForbiddenText(f"The text holds {spelling.group()!r}, an alternative spelling of a plain token.")


def check_words(text: str, baseline: str, kernel: str) -> None:
    """Rejects preprocessor lines, and words with effects outside the kernel, that are not in the user's file.

    Args:
        text: the candidate's text.
        baseline: the text of the user's file.
        kernel: the text of the user's kernel, which may contain conditional compilation.

    Raises:
        ForbiddenText: the text contains one.
    """
    split = next((match for match in _SPLIT.finditer(text) if match.group() not in baseline), None)
    if split is not None:
        raise ForbiddenText(f"The text has {split.group()!r}, a token that is split over two lines.")
    covered = next((match for match in _COVERED_SPLICE.finditer(text) if match.group() not in baseline), None)
    if covered is not None:
        raise ForbiddenText("The text has a backslash before blanks at the end of a line.")
    tokens = lex(_joined(text)).tokens
    if any(token.text == "\\" for token in tokens):
        raise ForbiddenText("The text holds a stray backslash.")
    known = lex(baseline).tokens
    _check_hidden(tokens, known)
    known_words = {token.text for token in known}
    known_lines = Counter(_directives(known))
    macros = frozenset(_defined(known_lines))
    own = frozenset(_defined(_directives(tokens))) - macros
    for line, count in Counter(_directives(tokens)).items():
        if line[1:2] and line[1] in CONDITIONS:
            if count > known_lines[line]:
                raise ForbiddenText(f"The text compiles something else under a condition, by #{line[1]}.")
        elif line not in known_lines:
            _check_directive(line, macros, own)
    _check_branches(tokens, lex(kernel).tokens, known_lines)
    for index, token in enumerate(tokens):
        if token.text in ("__attribute__", "__declspec", "["):
            _check_attribute(tokens, index, known_words)
        if token.text not in known_words:
            _check_word(tokens, index)


def _check_hidden(tokens: Sequence[Token], known: Sequence[Token]) -> None:
    """Checks that digraphs and assembly, except those of the user's file, hide no brackets."""
    digraphs = set(_digraphs(tokens)) - set(_digraphs(known))
    if digraphs:
        raise ForbiddenText(f"The text holds {min(digraphs)!r}, an alternative spelling of a plain token.")
    assembly = Counter(_assembly(known))
    for template, count in Counter(_assembly(tokens)).items():
        if count > assembly[template]:
            _check_assembly(template)


def _digraphs(tokens: Sequence[Token]) -> Iterator[str]:
    """Yields digraphs: two-character spellings of brackets and preprocessor symbols."""
    for one, two in itertools.pairwise(tokens):
        if one.end == two.start and (one.text, two.text) in _DIGRAPHS:
            yield one.text + two.text


def _assembly(tokens: Sequence[Token]) -> Iterator[str]:
    """Yields the strings of assembly statements, and of macros that may be used in one."""
    for index, token in enumerate(tokens):
        if token.kind == "string" and token.directive:
            yield token.text
        if token.text not in _ASSEMBLY:
            continue
        opening = next((at for at in range(index + 1, min(index + 5, len(tokens))) if tokens[at].text == "("), None)
        stop = None if opening is None else closing(tokens, opening)
        if opening is None or stop is None:
            raise ForbiddenText("The text holds an assembly statement without its brackets.")
        yield "".join(one.text for one in itertools.takewhile(lambda one: one.text != ":", tokens[opening:stop]))


def _check_assembly(template: str) -> None:
    """Checks that an assembly statement neither ends the function around it nor declares anything outside of it."""
    text = template.replace("\\n", "\n").replace("\\t", " ")
    directives = re.findall(r"(?:^|[;{}\n\"(])\s*\.([a-z]\w*)", text)
    odd = next((name for name in directives if name not in _ASSEMBLY_DIRECTIVES), None)
    if odd is not None:
        raise ForbiddenText(f"The text holds the assembly directive .{odd}.")
    depth = 0
    for character in text:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            break
    if depth or re.search(r"\\(?:x|u|U|[0-7])", text):
        raise ForbiddenText(
            "The text holds assembly that closes or opens more brackets than its own, or hides characters."
        )


def _check_word(tokens: Sequence[Token], index: int) -> None:
    """Checks a word that the user's file does not contain."""
    text = tokens[index].text
    if text in READS_FILES:
        raise ForbiddenText(f"The text accesses files by {text}.")
    if text == "friend":
        raise ForbiddenText("The text declares a friend, a function outside of its type.")
    if tokens[index].kind == "word" and not text.isascii():
        raise ForbiddenText(f"The text holds the name {text}, which has letters other than A to Z.")
    if text == "__pragma":
        raise ForbiddenText("The text holds a __pragma.")
    if text == "_Pragma" and not _is_unroll(tokens, index):
        raise ForbiddenText("The text holds a _Pragma other than unroll.")
    if re.fullmatch(r"cuda(?:rt)?[A-Z]\w*|cu[A-Z]\w+", text) and _is_called(tokens, index):
        raise ForbiddenText(f"The kernel calls the runtime, by {text}.")


def _joined(text: str) -> str:
    """Returns a text with continued lines joined, as the compiler reads it."""
    return text.replace("\\\r\n", "").replace("\\\n", "")


def _check_branches(tokens: Sequence[Token], kernel: Sequence[Token], known: Counter[tuple[str, ...]]) -> None:
    """Checks that a candidate keeps all of the file's preprocessor conditions, those of the kernel alone, or none."""
    found = [line for line in _directives(tokens) if line[1:2] and line[1] in CONDITIONS]
    own = [line for line in _directives(kernel) if line[1:2] and line[1] in CONDITIONS]
    whole = [line for line in known.elements() if line[1:2] and line[1] in CONDITIONS]
    if sorted(found) not in ([], sorted(own), sorted(whole)):
        raise ForbiddenText("The text keeps only some of the conditions that the file has.")


def macros_added(text: str, baseline: str) -> tuple[str, ...]:
    """Returns the macros that a candidate's text defines and the user's file does not, in order."""
    known = set(_directives(lex(baseline).tokens))
    lines = _directives(lex(_joined(text)).tokens)
    return tuple(dict.fromkeys(_defined(line for line in lines if line not in known)))


def left_defined(text: str, macros: Sequence[str]) -> str | None:
    """Returns the first of these macros that is still defined at the end of the text; None if all are undefined."""
    last = {}
    for line in _directives(lex(_joined(text)).tokens):
        if len(line) > 2 and line[1] in ("define", "undef"):
            last[line[2]] = line[1]
    return next((name for name in macros if last.get(name) != "undef"), None)


def _defined(lines: Iterable[tuple[str, ...]]) -> Iterator[str]:
    return (line[2] for line in lines if line[1:2] == ("define",) and len(line) > 2)


def _check_attribute(tokens: Sequence[Token], index: int, known_words: Collection[str]) -> None:
    """Checks that an attribute in `__attribute__((...))` or `[[...]]` only affects compilation."""
    opening = index if tokens[index].text == "[" else index + 1
    if tokens[opening : opening + 1] == [] or (
        opening == index and [t.text for t in tokens[index : index + 2]] != ["[", "["]
    ):
        return
    stop = closing(tokens, opening)
    inside = tokens[opening:] if stop is None else tokens[opening:stop]
    for token in inside:
        if token.kind == "word" and token.text.strip("_") not in _ATTRIBUTES and token.text not in known_words:
            raise ForbiddenText(f"The text holds the attribute {token.text}.")


def _is_called(tokens: Sequence[Token], index: int) -> bool:
    return index + 1 < len(tokens) and tokens[index + 1].text == "("


def _is_unroll(tokens: Sequence[Token], index: int) -> bool:
    if not _is_called(tokens, index) or closing(tokens, index + 1) is None:
        return False
    return re.match(r'"\s*(?:unroll|nounroll)\b', tokens[index + 2].text) is not None


def _directives(tokens: Sequence[Token]) -> Iterator[tuple[str, ...]]:
    """Yields the words of each preprocessor line."""
    line: list[str] = []
    number = 0
    for token in tokens:
        if token.directive != number and line:
            yield tuple(line)
            line = []
        number = token.directive
        if number:
            line.append(token.text)
    if line:
        yield tuple(line)


def _check_directive(line: tuple[str, ...], macros: Collection[str], own: Collection[str]) -> None:
    name = line[1] if len(line) > 1 else ""
    if name and name not in DIRECTIVES:
        raise ForbiddenText(f"The text holds the directive #{name}.")
    if name == "include":
        target = "".join(line[2:])
        if INCLUDES.match(target) is None:
            raise ForbiddenText(f"The text includes {target}, which is not among the headers that a candidate may add.")
    elif name == "pragma" and (len(line) < 3 or line[2] not in PRAGMAS):
        raise ForbiddenText(f"The text holds #pragma {' '.join(line[2:4])}.")
    elif name in {"define", "undef"}:
        macro = line[2] if len(line) > 2 else ""
        if macro in macros or (name == "undef" and macro not in own):
            raise ForbiddenText(f"The text redefines {macro}, under which the rest would mean something else.")
        if macro in RESERVED or _LIBRARY.fullmatch(macro):
            raise ForbiddenText(
                f"The text redefines {macro}, which is a name of the language, of CUDA or of the C library."
            )
        if any(one == "#" and two == "#" for one, two in itertools.pairwise(line)):
            raise ForbiddenText(f"The macro {macro} pastes tokens, which can spell what may not be written.")
