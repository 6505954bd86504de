"""Top-level parts of a file around a kernel: their names, and those that only the kernel uses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import tree_sitter
import tree_sitter_cuda

from kernelmate.records import Kernel
from kernelmate.source.host_code import DIVIDED, function_around
from kernelmate.source.tokens import Token, closing, lex

INCLUDED = (".cuh", ".h", ".hpp", ".hxx", ".hh", ".inl")
"""Suffixes of header files; any helper in them may be used by other files."""
NAMESPACES = frozenset({"namespace_definition", "declaration_list"})
_FLOATS = re.compile(r"\b(?:FLT|DBL|LDBL|DECIMAL)_\w+")
_INTEGERS = re.compile(r"\b(?:S?CHAR|UCHAR|U?SHRT|U?INT|U?LONG|U?LLONG|MB_LEN)_(?:MIN|MAX|BIT)\b")
LIMITS = {
    "cfloat": _FLOATS, "float.h": _FLOATS, "climits": _INTEGERS, "limits.h": _INTEGERS, "limits": re.compile(r"\bnumeric_limits\b"),
}  # fmt: skip
"""Headers that only declare limits of number types, and patterns of the declared names."""
NESTING = NAMESPACES | {"template_declaration", "linkage_specification"}
_LANGUAGE = tree_sitter.Language(tree_sitter_cuda.language())


@dataclass(frozen=True, slots=True)
class FilePiece:
    """A top-level part of a text: its node, its text, and its tokens without layout."""

    node: tree_sitter.Node
    text: str
    words: tuple[str, ...]


def without_kernel(kernel: Kernel) -> str:
    """Returns the unit's text with a semicolon in place of the kernel's definition, and without the contract."""
    text = kernel.unit.text
    spans = sorted(filter(None, [(kernel.start, kernel.end), kernel.contract_span]), reverse=True)
    for start, end in spans:
        text = text[:start] + (";" if start == kernel.start else "") + text[end:]
    return text


def pieces_of(
    text: str, opened: frozenset[str] = frozenset(), numbers: frozenset[str] = frozenset()
) -> Iterator[FilePiece]:
    """Yields the parts at the outermost level, or within nodes of the types `opened` there.

    `numbers` are names whose values are launch parameters.
    """
    raw = text.encode("utf-8", "surrogatepass")
    stack = [tree_sitter.Parser(_LANGUAGE).parse(raw).root_node]
    while stack:
        node = stack.pop()
        if node.type == "translation_unit" or node.type in opened:
            stack.extend(reversed(node.children))
            continue
        piece = raw[node.start_byte : node.end_byte].decode("utf-8", "replace")
        words = tuple(words_of(piece, numbers))
        if words and words != (";",) and (node.is_named or node.type == "ERROR"):
            yield FilePiece(node, piece, words)


def own_helpers(pieces: Sequence[FilePiece]) -> frozenset[tuple[str, ...]]:
    """Returns the names of device functions and constants in the kernel's file that only the kernel uses.

    A part that is used only by these is included. `pieces` are the file's parts except the kernel.
    """
    known = {names[0][1]: piece for piece in pieces if len(names := list(names_of(piece.node))) == 1}
    candidates = {name for name, piece in known.items() if name.isidentifier() and _is_own(piece, name)}
    while True:
        others = [piece for piece in pieces if not any(known[name] is piece for name in candidates)]
        named = {word for piece in others for word in piece.words}
        if not candidates & named:
            return frozenset(known[name].words for name in candidates)
        candidates -= named


def own_headers(pieces: Sequence[FilePiece]) -> Mapping[tuple[str, ...], re.Pattern[str]]:
    """Returns the includes of limits whose names only the kernel or its own helpers use, each with its names.

    The result is empty if the file includes files of the user, which may need these headers. `pieces` are the file's
    parts except the kernel.
    """
    included = [piece for piece in pieces if piece.words[:2] == ("#", "include")]
    if any(piece.words[2:3] != ("<",) for piece in included):
        return {}
    own = own_helpers(pieces)
    rest = " ".join(piece.text for piece in pieces if piece not in included and piece.words not in own)
    found = {piece.words: LIMITS.get("".join(piece.words[3:-1])) for piece in included}
    return {words: names for words, names in found.items() if names is not None and not names.search(rest)}


def own_numbers(pieces: Sequence[FilePiece]) -> frozenset[str]:
    """Returns the macros with a number, `#define BLOCK 256`, that only the kernel and its own helpers use.

    The result is empty if the file includes files of the user, which may use them. `pieces` are the file's parts except
    the kernel.
    """
    if any(piece.words[:2] == ("#", "include") and piece.words[2:3] != ("<",) for piece in pieces):
        return frozenset()
    own = own_helpers(pieces)
    numbers = [piece for piece in pieces if piece.words[:2] == ("#", "define") and _is_number(piece.words[3:])]
    names = [piece.words[2] for piece in numbers]
    used = {word for piece in pieces if piece.words not in own and piece not in numbers for word in piece.words}
    return frozenset(name for name in names if names.count(name) == 1 and name not in used)


def own_macros(pieces: Sequence[FilePiece]) -> Mapping[str, FilePiece]:
    """Returns the macros that only the kernel, its own helpers and other such macros use, by name.

    The result is empty if the file includes files of the user, which may use them. `pieces` are the file's parts except
    the kernel.
    """
    if any(piece.words[:2] == ("#", "include") and piece.words[2:3] != ("<",) for piece in pieces):
        return {}
    own = own_helpers(pieces)
    defined = [piece for piece in pieces if piece.words[:2] == ("#", "define") and len(piece.words) > 3]
    names = [piece.words[2] for piece in defined]
    found = {piece.words[2]: piece for piece in defined if names.count(piece.words[2]) == 1}
    while True:
        others = [one for one in pieces if one.words not in own and found.get("".join(one.words[2:3])) is not one]
        used = {word for piece in others for word in piece.words} & {*found}
        if not used:
            return found
        found = {name: piece for name, piece in found.items() if name not in used}


def _is_number(words: Sequence[str]) -> bool:
    return len(words) == 1 and words[0].isdecimal()


def _is_own(piece: FilePiece, name: str) -> bool:
    """Returns True if a part is private to its file: a device function, or a constant."""
    kind = next(iter(names_of(piece.node)))[0]
    if kind == "function":
        return "__device__" in piece.words and not {"__host__", "__global__", "__managed__"} & {*piece.words}
    before = piece.words[: piece.words.index(name)] if name in piece.words else ()
    filled = "__constant__" in before and "=" in piece.words  # another one is written by the host
    constant = piece.node.type == "declaration" and (
        filled or (bool({"constexpr", "const"} & {*before}) and "__constant__" not in before)
    )
    return constant and not {"extern", "*", "__managed__", "inline"} & {*before}


def names_of(node: tree_sitter.Node) -> Iterator[tuple[str, str]]:
    """Yields kind and name of each declaration in a part."""
    if node.type in NESTING:
        for child in node.named_children:
            yield from names_of(child)
    elif (aligned := aligned_type(tuple(words_of((node.text or b"").decode("utf-8", "replace"))))) is not None:
        yield "other", aligned
    elif node.type in {"function_definition", "declaration", "type_definition"}:
        for declarator in node.children_by_field_name("declarator"):
            name, function = _declared_name(declarator)
            yield "function" if function else "other", name
    elif node.type in {"struct_specifier", "class_specifier", "union_specifier", "enum_specifier", "alias_declaration"}:
        named = node.child_by_field_name("name")
        if named is not None:
            yield "other", (named.text or b"").decode("utf-8", "replace")
        yield from (("other", name) for name in _enumerators(node))


def _enumerators(node: tree_sitter.Node) -> Iterator[str]:
    """Yields the names of an unscoped enumeration's values."""
    scoped = {"class", "struct"} & {*words_of((node.text or b"").decode("utf-8", "replace"))}
    body = node.child_by_field_name("body") if node.type == "enum_specifier" and not scoped else None
    for one in body.named_children if body is not None else ():
        name = one.child_by_field_name("name")
        if name is not None:
            yield (name.text or b"").decode("utf-8", "replace")


def aligned_type(words: Sequence[str]) -> str | None:
    """Returns the name of `struct __align__(16) Name { ... }`, which the grammar parses as a function."""
    kind, *attribute, name, opening = words[:7] if len(words) > 6 else ("",) * 7
    aligned = kind in ("struct", "union") and attribute[:2] == ["__align__", "("] and attribute[3:] == [")"]
    return name if aligned and opening == "{" else None


def _declared_name(declarator: tree_sitter.Node) -> tuple[str, bool]:
    """Returns the name in a declarator, without template arguments and namespaces, and True if it is a function's."""
    function = False
    while True:
        function |= declarator.type == "function_declarator"
        inner = declarator.child_by_field_name("declarator") or declarator.child_by_field_name("name")
        if inner is None:
            return (declarator.text or b"").decode("utf-8", "replace").strip("*& "), function
        declarator = inner


_VALUE = re.compile(r"\w+")
"""A number, or a name."""


def launch_numbers(text: str) -> frozenset[str]:
    """Returns the names of constants such as `const int threads = 256;` that only launches use.

    The value is a number, or the name of another constant.
    """
    outside = list(words_of(text))
    given = {
        name
        for name, sign, number in zip(outside, outside[1:], outside[2:], strict=False)
        if sign == "=" and _VALUE.fullmatch(number)
    }
    return frozenset(name for name in given if outside.count(name) == 1)


def without_numbers_of_launches(text: str) -> str:
    """Returns a text without variables that only the launches of their function use.

    Such a variable is an integer, given by arithmetic, or a `dim3`.
    """
    while True:
        for found in _LOCAL.finditer(text):
            name, value = found[1] or found[3], found[2] or found[4]
            start, end = function_around(text, found.start())
            outside = [*words_of(text[start:end])].count(name)
            named = [token.text for token in lex(text[start:end]).tokens].count(name)
            if outside == 1 < named and _is_arithmetic([*words_of(DIVIDED.sub("(", value))]):
                text = text[: found.start()] + text[found.end() :]
                break
        else:
            return text


def launch_effects(text: str, *, declared: bool) -> frozenset[str]:
    """Returns the functions that launch parameters call, and their other effects.

    If `declared`, those of declarations of `dim3` variables and integers are included.
    """
    tokens, end, found = lex(text).tokens, "", list[str]()
    for index, token in enumerate(tokens):
        if not end and token.text == "<<<":
            end = ">"
        elif not end and declared and (token.text == "dim3" or _declares_integer(tokens, index)):
            end = ";"
        elif token.text == end and (end == ";" or _closes_launch(tokens, index)):
            end = ""
        found.append(token.text if end else ";")
    plain = re.sub(r"\b(min|max) < [^<>()]* > (?=\()", r"\1 ", _CAST.sub("", " ".join(found)))
    return frozenset(one[0].strip().removesuffix(" (") for one in _EFFECT.finditer(plain)) - _HARMLESS


def _declares_integer(tokens: Sequence[Token], index: int) -> bool:
    return tokens[index].text in _INTEGRAL and [one.text for one in tokens[index + 2 : index + 3]] == ["="]


def words_of(text: str, numbers: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yields the words of a text without comments, layout, launch parameters and initialisers of their variables.

    Numbers and names assigned to the constants `numbers` are left out, too; `launch_numbers` finds such constants.
    """
    tokens = lex(text).tokens
    sides = _sides_of_launches(tokens)
    index = 0
    while index < len(tokens):
        if tokens[index].text == "<<<":
            while index < len(tokens) and not _closes_launch(tokens, index):
                index += 1
            index += 3
            continue
        if index in sides:
            yield tokens[index].text
            index = sides[index]
        named = index > 1 and tokens[index - 1].text == "=" and tokens[index - 2].text in numbers
        if not (named and _VALUE.fullmatch(tokens[index].text) and tokens[index + 1].text == ";"):
            yield tokens[index].text
        index += 1


def _sides_of_launches(tokens: Sequence[Token]) -> dict[int, int]:
    """Returns the initialisers of the grid and block of launches that are arithmetic: a `dim3`'s parentheses, an integer's value.

    Keys are the indices of the opening parenthesis or the equals sign, values those of the token after the initialiser.
    """
    words = [token.text for token in tokens]
    launched = {
        words[index + 1] for index, word in enumerate(words) if word == "<<<" and words[index + 2 : index + 3] == [","]
    }
    launched |= {
        words[index - 1]
        for index in range(2, len(words))
        if words[index - 2] == "," and (_closes_launch(tokens, index) or words[index] == ",")
    }
    alone = _alone(words, launched, tokens)
    found: dict[int, int] = {}
    within = False
    for index, word in enumerate(words):
        within = word == "dim3" or (within and word != ";")
        if within and word in launched and words[index + 1 : index + 2] in (["("], ["{"]):
            stop = closing(tokens, index + 1)
            if stop is not None and _is_arithmetic(words[index + 2 : stop]):
                found[index + 1] = stop
        if word in alone and (stop := _integer_end(words, index, tokens)):
            found[index + 1] = stop
    return found


def _alone(words: Sequence[str], launched: Collection[str], tokens: Sequence[Token]) -> frozenset[str]:
    """Returns the names of integers that are used only in launches, or in the values of other names that are returned."""
    outside, launching = list[tuple[int, str]](), False
    for index, word in enumerate(words):
        launching = word == "<<<" or (launching and not _closes_launch(tokens, index))
        outside += [] if launching else [(index, word)]
    alone = frozenset[str]()
    while True:
        values = [range(index + 2, _integer_end(words, index, tokens)) for index, word in outside if word in alone]
        used = Counter(word for index, word in outside if not any(index in one for one in values))
        found = frozenset(name for name in launched if used[name] == 1)
        if found == alone:
            return alone
        alone = found


def _integer_end(words: Sequence[str], index: int, tokens: Sequence[Token]) -> int:
    """Returns the index of the semicolon after the declaration of an integer whose value is arithmetic; else 0."""
    if words[index + 1 : index + 2] != ["="] or words[index - 1] not in _INTEGRAL or ";" not in words[index:]:
        return 0
    stop = words.index(";", index)
    inside = words[index + 2 : stop]
    if DIVIDED.match("".join(inside[:2])) and closing(tokens, index + 3) == stop - 1:  # a division of the user's
        return stop if _is_arithmetic(inside[2:-1]) else 0
    return stop if inside and "," not in inside and _is_arithmetic(inside) else 0


_INTEGRAL = frozenset({"int", "unsigned", "long", "auto", "size_t", "int32_t", "uint32_t", "int64_t", "uint64_t"})
"""Last words of the types of integers that hold a launch's grid or block."""

_LOCAL = re.compile(
    rf"^[ \t]+(?:const(?:expr)? )?(?:\w+ )*?(?:(?:{'|'.join(sorted(_INTEGRAL))}) (\w+) = ((?:\w+\([^;{{}}()]*\))|[^;{{}},]*)"
    r"|dim3 (?:const )?(\w+)(?: = dim3)?[({]((?:[^;{}()]|\((?:[^;{}()]|\([^;{}()]*\))*\))*)[)}]);",
    re.MULTILINE,
)
"""The declaration of one integer, or of one `dim3`, in a function."""

_CAST = re.compile(rf"(?:\(|\bstatic_cast <) (?:(?:std|::|{'|'.join(sorted(_INTEGRAL))}) )+[)>] (?=\()")
_EFFECT = re.compile(
    r"(?:\w+|[\])]|(?:^| )< [^;]*?>) \(|[{}]|\+ ?\+|- ?-|(?:^| )(?:[^=!<> ]|<<|>>)?=(?: |$)|\b(?:new|delete|throw)\b"
)
"""A call, also of a template or of what an expression gives, a body, an assignment, or a statement within an expression.

A `>` in front of a parenthesis ends a template's arguments only if a `<` precedes it; else it compares.
"""
_HARMLESS = frozenset({"dim3", "min", "max", "sizeof"})


def _is_arithmetic(words: Sequence[str]) -> bool:
    """Returns True for an expression that calls nothing and changes no variable."""
    return _EFFECT.search(_CAST.sub("", " ".join(words))) is None


def _closes_launch(tokens: Sequence[Token], index: int) -> bool:
    return [token.text for token in tokens[index : index + 3]] == [">", ">", ">"]
