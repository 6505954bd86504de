"""Style of the user's file in generated text: casts, side of the `*`, braces of single statements, and names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelmate.records import Kernel
from kernelmate.source.folding import folded, width_of, wrapped
from kernelmate.synthesis.names import RESERVED, indent_of, without_comments, words_of

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|#include[^\n]*')
_CAST = re.compile(r"\b(?:static|reinterpret)_cast<")
_C_CAST = re.compile(
    r"\((?:const )?(?:unsigned |long )*(?:size_t|int|long|float|double|unsigned|u?char|u?short|uint|half|\w+_t|\w+ ?\*)\)(?=[\w(])"
)
_CONST = re.compile(r"\bconst ((?:unsigned |long )*[A-Za-z_][\w:]*(?:<[\w, ]+>)?)(?=[*&]| [\w*&(])")
_OPERAND = re.compile(r"[\w.]+(?:\[[^\[\]]*\]|\([^()]*\))*")
_CONTROL = re.compile(r"(?<!\} )\b(?:for|while|if) ?\(")
"""Heads of loops and conditions, without the end of a loop that begins with `do`."""

_LONG_MACRO = re.compile(r"^[ \t]*#(?:.*\\\n)+.*$", re.MULTILINE)
_ONE_STATEMENT = re.compile(r"\{\s*(?!\s|for\b|while\b|if\b|do\b)[^;{}]*;\s*\}")
_BARE = re.compile(r"[ \t]*(\n)?\s*(?!\s|return\b|continue\b|break\b)[^;{}\n]*;")
_CONSTANT = re.compile(r"^(?:#[ \t]*define|[ \t]*(?:static )?const(?:expr)? (?:unsigned )?\w+)[ \t]+(\w+)(?= = \d|[ \t]+\(?\d)", re.MULTILINE)  # fmt: skip
_KNOWN = frozenset({"threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "cudaStream_t", "cudaError_t"})
_FOREIGN = re.compile(r"\w+(?:_t|_v|_cast|_cv)|cuda\w+|static_assert|thread_local|align_val")
"""Identifiers of C++ and CUDA among those with an underscore."""


@dataclass(frozen=True, slots=True)
class FileStyle:
    """Style of a file.

    Attributes:
        c_casts: True if casts are written as in C.
        const_right: True if `const` follows the type that it belongs to.
        star_right: True if the `*` of a pointer is written next to its name.
        bare: `beside` (on the line of the condition) or `below` if single statements have no braces; else empty.
        exits: `beside`, `below` or `braced`, as early exits are written; empty without any.
        apart: `below` or `braced` if no statement of the file is on the line of its condition; else empty.
        capitals: True if constants are written in capitals.
        camel: True if locals are written in camel case.
        functions: `camel` or `pascal` if functions are written so; else empty.
        width: columns of a line.
        indent: indentation of one level.
        taken: words of the file that new names may not be.
    """

    c_casts: bool
    const_right: bool
    star_right: bool
    bare: str
    exits: str
    apart: str
    capitals: bool
    camel: bool
    functions: str
    width: int
    indent: str
    taken: frozenset[str]

    @classmethod
    def of(cls, kernel: Kernel, *, replaced: bool = False) -> FileStyle:
        """Returns the style of a kernel's file; if the kernel is replaced, its own names are free for the new text."""
        text = without_comments(kernel.unit.text)
        code = _LONG_MACRO.sub("", text)
        constants = {*_CONSTANT.findall(text)}
        words = {*re.findall(r"\b[a-z]\w*\b(?!\s*[(<])", without_comments(kernel.source))}
        snake, camel = _cases(words - constants - {kernel.name})
        if not snake and not camel:
            snake, camel = _cases({*re.findall(r"\b[a-z]\w*\b(?!\s*[(<])", text)} - constants)
        if not snake and not camel:
            snake, camel = _cases({kernel.name.rpartition("::")[2]})
        rest = f"{kernel.unit.text[: kernel.start]}{kernel.unit.text[kernel.end :]}"
        right, left = (len(re.findall(one, text)) for one in (r"\w \*+(?:__restrict__ )?\w+ ?[,)=;]", r"[\w>]\*+ (?:__restrict__ )?\w+ ?[,)=;]"))  # fmt: skip
        return cls(
            c_casts=_has_c_casts(without_comments(kernel.source), text),
            const_right=len(re.findall(r"\w const(?=[*& ])", text)) > len(re.findall(r"\bconst [\w:]", text)),
            star_right=right > left,
            bare=_bare_statements(code),
            exits=_exits(code),
            apart=_statements_apart(code),
            capitals=any(one.isupper() and len(one) > 1 for one in constants)
            and not any(re.match(r"k[A-Z]", one) for one in constants),
            camel=camel > snake,
            functions=_case_of_functions(text) or ("camel" if camel > snake else ""),
            width=width_of(kernel.unit.text),
            indent=indent_of(kernel.source),
            taken=frozenset(words_of(without_comments(rest) if replaced else text)),
        )


def _has_c_casts(kernel: str, file: str) -> bool:
    """Returns True if casts are written as in C: in the kernel, or in the file if the kernel has none."""
    text = kernel if _CAST.search(kernel) or _C_CAST.search(kernel) else file
    return _CAST.search(text) is None and _C_CAST.search(text) is not None


def _cases(words: Iterable[str]) -> tuple[int, int]:
    """Returns how many words are in snake case and in camel case."""
    own = [one for one in words if one not in _KNOWN and not _FOREIGN.fullmatch(one)]
    snake, camel = (sum(re.match(case, one) is not None for one in own) for case in (r"\w*[a-z0-9]_[a-z]", r"(?!k[A-Z])[a-z]+[A-Z][a-z]\w*$"))  # fmt: skip
    return snake, camel


_EXIT = re.compile(
    r"[ \t]*(\n\s*)?(?:return\b|continue\b|break\b)|\s*\{\s*(?:return\b|continue\b|break\b)[^;{}]*;\s*(\})"
)


def _exits(text: str) -> str:
    """Returns how most early exits of a file are written: `beside` or `below` their condition, or `braced`; empty without any."""
    places = {"beside": 0, "below": 0, "braced": 0}
    for found in _CONTROL.finditer(text):
        after = _EXIT.match(text, closing_bracket(text, found.end() - 1) + 1)
        if after is not None:
            places["braced" if after[2] else "below" if after[1] else "beside"] += 1
    return max(places, key=lambda one: places[one]) if any(places.values()) else ""


def _statements_apart(text: str) -> str:
    """Returns how a file writes single statements, `below` their condition or `braced`; empty if one is on the same line."""
    below, braced, single = 0, 0, 0
    for control in _CONTROL.finditer(text):
        after = text[closing_bracket(text, control.end() - 1) + 1 :]
        if re.match(r"[ \t]*\w", after):
            return ""
        braced += re.match(r"\s*\{", after) is not None
        single += _ONE_STATEMENT.match(after.lstrip()) is not None
        below += re.match(r"[ \t]*\n\s*\w", after) is not None
    if below and below >= single:
        return "below"
    return "braced" if braced else ""


def _bare_statements(text: str) -> str:
    """Returns where a file has single statements without braces: `beside` the condition or `below` it; empty if nowhere."""
    braced, places = 0, [0, 0]
    for found in _CONTROL.finditer(text):
        end = closing_bracket(text, found.end() - 1) + 1
        if re.match(r"\s*\{", text[end:]):
            braced += _ONE_STATEMENT.match(text[end:].lstrip()) is not None
        elif (bare := _BARE.match(text[end:])) is not None:
            places[bare[1] is not None] += 1
    if sum(places) <= braced:
        return ""
    return "beside" if places[0] >= places[1] else "below"


def _case_of_functions(text: str) -> str:
    """Returns `camel` or `pascal` if the file's functions are written so more often than otherwise."""
    names = re.findall(r"^(?:[\w:<>]+[*&]* +)+(\w+)\((?=[^;]*\)\s*\{)", text, re.MULTILINE)
    camel, pascal = (sum(re.fullmatch(one, name) is not None for name in names) for one in (r"[a-z0-9]+[A-Z]\w*", r"[A-Z][a-z]\w*"))  # fmt: skip
    snake = sum("_" in one for one in names)
    if camel + pascal <= snake:
        return ""
    return "pascal" if pascal > camel else "camel"


def in_file_style(style: FileStyle, *texts: str) -> tuple[str, ...]:
    """Returns generated functions in a file's style; names that occur in several of them are changed alike."""
    names = _names_in_style(style, texts)
    return tuple("\n".join(_apart(style, _without_braces(style, _restyled(style, names, text)))) for text in texts)


def lines_in_style(style: FileStyle, lines: Sequence[str], changed: Iterable[int]) -> list[str]:
    """Returns a kernel's lines, of which the changed ones follow the file's case of locals, its layout of single statements and its width."""
    found, own = list(lines), sorted(changed)
    names = _declared_in_style(style, _STRING.sub(" ", without_comments("\n".join(found[one] for one in own))))
    for number in reversed(own):
        line = _outside_strings(found[number], lambda code: _renamed(code, names))
        goes_on = number + 1 < len(found) and found[number + 1].lstrip().startswith("else")
        parts = [line] if goes_on else list(_apart(style, [line]))
        whole = all(one.lstrip().startswith("//") or re.search(r"[;{}](?:  //.*)?$", one) for one in parts)
        balanced = all(one.count("(") == one.count(")") for one in parts)
        folds = whole and balanced and '"' not in line and not line.startswith("#")
        found[number : number + 1] = [piece for one in parts for piece in (_wrapped(style, one) if folds and len(one) > style.width else [one])]  # fmt: skip
    return found


_DECLARED = re.compile(
    r"\b(?:auto|bool|char|double|float|half|int|long|short|unsigned|size_t|\w+_t|\w+_x\d+)[*&]* (\w+)(?= =|[;\[,)])"
)
"""Locals and parameters of the usual types, where they are declared."""

_SEVERAL = re.compile(r"\b(?:bool|double|float|half|int|long|unsigned|size_t) (\w+(?: =)?[^;{}]*,[^;{}]*);")
"""A declaration of several locals of one type."""


def _declared_in_style(style: FileStyle, code: str) -> dict[str, str]:
    """Returns the new names, by the old ones, of locals and functions that new code declares in another case than the file's."""
    fresh = words_of(code) - style.taken - RESERVED
    functions = {*re.findall(r"^(?:static )?__device__ [^(]*?(\w+)\(", code, re.MULTILINE)} & fresh
    declared = {
        *_DECLARED.findall(code),
        *(one.partition(" ")[0] for found in _SEVERAL.findall(code) for one in parts_of(found)),
    }
    declared = declared & fresh - functions if style.camel else set[str]()
    names = {one: in_case(one, style.functions if one in functions else "camel") for one in functions | declared}
    return {one: new for one, new in names.items() if new != one and new not in style.taken | fresh}


def _restyled(style: FileStyle, names: Mapping[str, str], text: str) -> Iterator[str]:
    """Yields the lines with casts, pointers and names in style; statements that change are wrapped anew."""
    for lines in _statements(text.split("\n")):
        joined = _on_one_line(lines)
        if '"' in joined or joined.startswith("#"):
            yield from (_outside_strings(line, lambda code: _renamed(code, names)) for line in lines)
            continue
        code, mark, comment = joined.partition("//")
        changed = _renamed(code, names)
        changed = _with_c_casts(changed) if style.c_casts else changed
        changed = _CONST.sub(r"\1 const", changed) if style.const_right else changed
        changed = _with_stars_right(changed) if style.star_right else changed
        changed += mark + _renamed(comment, names)
        if changed == joined and (len(lines) > 1 or code.strip()):
            yield from lines
        elif len(changed) <= style.width:
            yield changed
        else:
            yield from _wrapped(style, changed)


def _on_one_line(lines: Sequence[str]) -> str:
    """Returns a statement of several lines as one."""
    joined = lines[0]
    for line in lines[1:]:
        joined += ("" if joined.endswith("(") else " ") + line.lstrip()
    return joined


def _statements(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yields the lines of each statement, of each head of a function, and other lines alone."""
    current: list[str] = []
    depth = 0
    for line in lines:
        code = line.partition("//")[0].rstrip()
        if current == [] and (not code or code.lstrip().startswith("#")):
            yield [line]
            continue
        current.append(line)
        depth += sum((one in "([") - (one in ")]") for one in code)
        outermost = not current[0].startswith((" ", "\t"))
        if code.endswith("{") or "//" in line or (depth <= 0 and (outermost or code.endswith((";", "}", ":")))):
            yield current
            current, depth = [], 0
    if current:
        yield current


def _wrapped(style: FileStyle, line: str) -> list[str]:
    """Returns a statement or a function's head, broken into lines that fit the width."""
    head = re.fullmatch(r"(\S[^()]*\()(.*)\)( \{)?", line)
    if head is not None and not line.startswith(("//", "struct")):
        return f"{wrapped(head[1], parts_of(head[2]), style.width)}{head[3] or ''}".split("\n")
    lead = len(line) - len(line.lstrip())
    levels = lead // len(style.indent)
    pieces = folded("  " * levels + line.lstrip(), style.width - (len(style.indent) - 2) * levels)
    own = style.indent * levels
    return [own + piece[2 * levels :] for piece in pieces]


def parts_of(text: str) -> list[str]:
    """Returns the parameters of a list, separated by commas outside brackets."""
    parts, depth, start = list[str](), 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "([<{") - (letter in ")]>}")
        if letter == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
    return [*parts, text[start:].strip()]


def _without_braces(style: FileStyle, lines: Iterator[str]) -> list[str]:
    """Returns the lines without braces around single statements, if that is the style."""
    kept: list[str] = []
    for line in lines:
        kept.append(line)
        if not style.bare or line.strip() != "}" or len(kept) < 3:
            continue
        head, body = kept[-3], kept[-2]
        indent = line[: len(line) - 1]
        either = [re.fullmatch(rf"{indent}(?:if \(.*\) \{{|\}} else \{{|[ \t]+[\w*].*\);)", one) for one in kept[-5:-1]]
        if style.bare == "below" and len(either) == 4 and all(either) and kept[-3] == f"{indent}}} else {{":
            kept[-5:] = [kept[-5].removesuffix(" {"), kept[-4], f"{indent}else", kept[-2]]
            continue
        begun = re.fullmatch(rf"{indent}((?:for|while|if) \(.*\)) \{{", head)
        only = re.fullmatch(rf"{indent}[ \t]+((?!\s|for\b|while\b|if\b|do\b|const\b|#)(?!.*//).*;)", body)
        if begun is None or only is None:
            continue
        beside = f"{indent}{begun[1]} {only[1]}"
        if style.bare == "below":
            kept[-3:] = [f"{indent}{begun[1]}", body]
        elif len(beside) <= style.width:
            kept[-3:] = [beside]
    return kept


def _apart(style: FileStyle, lines: Sequence[str]) -> Iterator[str]:
    """Yields the lines; a statement on the line of its condition is moved below it or into braces, if that is the style."""
    for number, line in enumerate(lines):
        head = re.match(r"([ \t]*)(?:if|for|while) \(", line)
        end = 0 if head is None else closing_bracket(line, head.end() - 1) + 1
        only = re.fullmatch(r" ((?!if\b|for\b)[^{}\"]*;)(  //.*)?", line[end:])
        goes_on = number + 1 < len(lines) and lines[number + 1].lstrip().startswith("else")
        if head is None or only is None or goes_on:
            yield line
            continue
        leaves = re.match(r"return\b|continue\b|break\b", only[1]) is not None
        place = (style.exits or style.apart) if leaves else style.apart
        if place not in ("below", "braced"):
            yield line
            continue
        yield line[:end] + " {" * (place == "braced")
        yield f"{head[1]}{style.indent}{only[1]}{only[2] or ''}"
        yield from [f"{head[1]}}}"] * (place == "braced")


def _with_c_casts(code: str) -> str:
    """Returns code with `(size_t)x` for `static_cast<size_t>(x)`."""
    while (found := _CAST.search(code)) is not None:
        kind_end = closing_bracket(code, found.end() - 1)
        end = closing_bracket(code, kind_end + 1)
        kind, operand = code[found.end() : kind_end], code[kind_end + 2 : end]
        call = re.match(r"\w+(?=\()", operand)
        alone = _OPERAND.fullmatch(operand) or (call and closing_bracket(operand, call.end()) == len(operand) - 1)
        text = f"({kind}){operand if alone else f'({operand})'}"
        if code[end + 1 : end + 2] in ("[", ".") or code[end + 1 : end + 3] == "->":
            text = f"({text})"
        code = code[: found.start()] + text + code[end + 1 :]
    return code


def _with_stars_right(code: str) -> str:
    return re.sub(r"(?<=[\w>])([*&]+)(?: (?=[\w(])|(?=>\(|\)[\w(&]))", lambda found: f" {found[1]}", code)


def closing_bracket(text: str, start: int) -> int:
    """Returns the offset of the bracket that closes the one at an offset."""
    pairs = {"(": ")", "<": ">", "{": "}"}
    opening, closing, depth = text[start], pairs[text[start]], 0
    for place in range(start, len(text)):
        depth += (text[place] == opening) - (text[place] == closing)
        if depth == 0:
            return place
    return len(text) - 1


def _outside_strings(line: str, change: Callable[[str], str]) -> str:
    """Returns a line with its parts outside of strings and includes changed."""
    pieces, at = list[str](), 0
    for found in _STRING.finditer(line):
        pieces += [change(line[at : found.start()]), found[0]]
        at = found.end()
    return "".join([*pieces, change(line[at:])])


# ------------------------------------------------------------------------------------------- names


def _renamed(code: str, names: Mapping[str, str]) -> str:
    return re.sub(r"(?<!::)\b[A-Za-z]\w*\b", lambda found: names.get(found[0], found[0]), code) if names else code


def _names_in_style(style: FileStyle, texts: Sequence[str]) -> dict[str, str]:
    """Returns the new name of each name in the generated text that does not have the file's style."""
    code = _STRING.sub(" ", without_comments("\n".join(texts)))
    words = words_of(code)
    functions = {*re.findall(r"\b(\w+)(?:<\w+>)?\(", code)} & {*re.findall(r"^static __device__ [^(]*?(\w+)\(", code, re.MULTILINE)}  # fmt: skip
    named: dict[str, str] = {}
    for word in sorted(words - style.taken - RESERVED):
        if style.capitals and re.match(r"k[A-Z]", word):
            new = "_".join(re.findall(r"[A-Z][a-z]*\d*|\d+x\d+|\d+", word)).upper()
        elif word in functions:
            new = in_case(word, style.functions)
        elif style.camel and not _FOREIGN.fullmatch(word) and f"::{word}" not in code:
            new = in_case(word, "camel")
        else:
            continue
        if new != word and new not in words | style.taken | RESERVED | set(named.values()):
            named[word] = new
    return named


def in_case(word: str, case: str) -> str:
    """Returns a name of several words in camel or Pascal case; constants and numbered names are unchanged."""
    if not case or re.fullmatch(r"(?!k[A-Z])[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z]+\d*)+", word) is None:
        return word
    first, *rest = re.sub(r"_i$", "_elem", word).split("_")
    first = first[:1].upper() + first[1:] if case == "pascal" else first
    return first + "".join(one[:1].upper() + one[1:] for one in rest)
