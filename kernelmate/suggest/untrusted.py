"""Text that a model or a plugin wrote: what of it may be compiled, and how it gets into the user's file.

Such text is device code and nothing else. It may define the kernel, and helpers of its own above it; it may not read
files at compile time, bring host code, touch what stands beside the kernel, or redefine the language under it. What a
kernel does when it runs is not looked at here: that is the worker's and the guards' part.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tree_sitter
import tree_sitter_cuda

from kernelmate.errors import SourceError
from kernelmate.records import Finding, Kernel
from kernelmate.source import apply_edits, find_kernels, text_unit
from kernelmate.source.tokens import Token, closing, lex

MOST_TEXT = 256 * 1024
"""Characters of one answer; the longest kernels that people write by hand have a fifth of it."""

INCLUDES = re.compile(
    r"<(?:cuda_(?:runtime|fp16|bf16|fp8|fp6|fp4|pipeline|awbarrier)(?:_primitives)?\.h|mma\.h|cooperative_groups\.h"
    r"|cooperative_groups/(?:reduce|scan|memcpy_async)\.h|cub/[\w/]+\.cuh|cuda/[\w/]+|math_constants\.h"
    r"|(?:math|stdint|stddef|stdio|limits|float|assert)\.h|c(?:math|stdint|stddef|stdio|limits|float|assert))>\Z"
)
"""Headers of CUDA and of the language that a candidate may add; any that the user's file has are allowed too."""

DIRECTIVES = frozenset({"define", "undef", "if", "ifdef", "ifndef", "elif", "else", "endif", "include", "pragma"})
PRAGMAS = frozenset({"unroll", "nounroll", "once"})
READS_FILES = frozenset(
    {"__has_include", "__has_include_next", "__has_embed", "include_next", "import", "embed", "incbin"}
)

RESERVED = frozenset(
    {
        "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "const",
        "constexpr", "continue", "default", "delete", "do", "double", "else", "enum", "explicit", "extern", "false",
        "float", "for", "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept",
        "not", "nullptr", "operator", "or", "private", "protected", "public", "register", "return", "short", "signed",
        "sizeof", "static", "static_assert", "struct", "switch", "template", "this", "throw", "true", "try",
        "typedef", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "defined",
        "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "assert", "printf", "clock", "clock64", "half",
        "nv_bfloat16", "size_t",
    }
)  # fmt: skip
"""Names that no macro of a candidate may take: what stands below would mean something else."""

_HELPERS = frozenset(
    {
        "struct_specifier", "class_specifier", "union_specifier", "enum_specifier", "using_declaration", "alias_declaration",
        "type_definition", "static_assert_declaration", "comment", "preproc_def", "preproc_function_def", "preproc_include",
        "preproc_call", "preproc_undef", ";",
    }
)  # fmt: skip
_NAMESPACES = frozenset({"namespace_definition", "declaration_list"})
_NESTING = _NAMESPACES | {"preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "template_declaration", "linkage_specification"}  # fmt: skip
_ON_DEVICE = frozenset({"__device__", "__constant__", "constexpr"})
_LAUNCHES = "The kernel launches another one, which would run outside of what is judged."
_LANGUAGE = tree_sitter.Language(tree_sitter_cuda.language())
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff\ud800-\udfff]")
_SPELLINGS = re.compile(r"\?\?[=/'()!<>-]|%:|\\u[0-9a-fA-F]|\\U[0-9a-fA-F]")


class Forbidden(Exception):
    """The text is not taken; the message is one sentence for people."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """One thing of a text: its node, its text, and its tokens without layout."""

    node: tree_sitter.Node
    text: str
    words: tuple[str, ...]


def spliced(baseline: Kernel, text: str) -> Kernel:
    """The baseline's file with a kernel of an answer in the place of its own, helpers above it.

    Args:
        baseline: the kernel that the answer is a version of.
        text: CUDA text with one definition of it, and helpers that it needs.

    Raises:
        Forbidden: the text is not that, or holds what a candidate may not have.
        SourceError: the user's Python string cannot hold the text.
    """
    _check_characters(text)
    kernel = _only_kernel(baseline, text)
    _check_words(text, baseline.unit.text)
    if _launches(text) and not _launches(baseline.source):
        raise Forbidden(_LAUNCHES)
    known = {piece.words for opened in (frozenset[str](), _NAMESPACES) for piece in _pieces(baseline.unit.text, opened)}
    helpers = [piece for piece in _pieces(_without_kernel(kernel)) if piece.words not in known]
    for piece in helpers:
        _check_node(piece.node)
    includes = [piece.text.strip() for piece in helpers if piece.node.type == "preproc_include"]
    others = [piece.text.strip("\n") for piece in helpers if piece.node.type != "preproc_include"]
    prefix = 'extern "C" ' if baseline.signature.extern_c and not kernel.signature.extern_c else ""
    above = baseline.contract_span[0] if baseline.contract_span is not None else baseline.start
    edits = [(baseline.start, baseline.end, prefix + kernel.source)]
    if others:
        edits.append((above, above, "\n".join(others) + "\n\n"))
    if includes:
        edits.append((0, 0, "".join(f"{line}\n" for line in includes)))
    return apply_edits(baseline, _merged(edits))


def as_written(baseline: Kernel, text: str) -> Kernel | None:
    """The baseline's file with a text in the kernel's place as it came, to be shown with what `screen` finds in it.

    It is for text that `spliced` does not take, and never compiled. None where the kernel is not in it, or where it is
    too long to be looked at.
    """
    if len(text) > MOST_TEXT:
        return None
    try:
        return apply_edits(baseline, [(baseline.start, baseline.end, text)])
    except SourceError:
        return None


def screen(baseline: Kernel, candidate: Kernel) -> Finding | None:
    """The finding because of which a whole candidate file of an untrusted author is not compiled; None where there is none.

    All that stands beside the kernel must be as it was, launch parameters aside; what is new must be helpers.
    """
    try:
        _check_characters(candidate.unit.text, extra=len(baseline.unit.text))
        _check_words(candidate.unit.text, baseline.unit.text)
        texts = [_without_kernel(kernel) for kernel in (baseline, candidate)]
        numbers = _launch_numbers(texts[0]) & _launch_numbers(texts[1])
        before, after = (list(_pieces(text, _NAMESPACES, numbers)) for text in texts)
        new = _added(before, after)
        for piece in new:
            _check_node(piece.node)
        written = [candidate.source, *(piece.text for piece in new)]
        if any(map(_launches, written)) and not _launches(baseline.source):
            raise Forbidden(_LAUNCHES)
    except Forbidden as error:
        place = (candidate.unit.path, *candidate.unit.locate(candidate.line, candidate.column))
        return Finding("forbidden-source", "error", str(error), *place)
    return None


def _merged(edits: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Insertions at one place as one edit, in the order of the file: includes first."""
    merged: dict[tuple[int, int], str] = {}
    for start, end, new in reversed(edits):
        merged[start, end] = merged.get((start, end), "") + new
    return [(start, end, new) for (start, end), new in merged.items()]


def _check_characters(text: str, extra: int = 0) -> None:
    if len(text) > MOST_TEXT + extra:
        raise Forbidden(f"The text has {len(text):,} characters; at most {MOST_TEXT + extra:,} are read.")
    odd = _ODD.search(text)
    if odd is not None:
        raise Forbidden(f"The text holds the character U+{ord(odd.group()):04X}, which hides or steers what is read.")
    spelling = _SPELLINGS.search(text)
    if spelling is not None:
        raise Forbidden(f"The text holds {spelling.group()!r}, another spelling of what could stand there plainly.")


def _only_kernel(baseline: Kernel, text: str) -> Kernel:
    kernels = find_kernels(text_unit(text))
    short = baseline.name.rpartition("::")[2]
    if len(kernels) != 1:
        raise Forbidden(f"The text defines {len(kernels)} kernels; one is wanted, {short}.")
    if kernels[0].name.rpartition("::")[2] != short:
        raise Forbidden(f"The text defines {kernels[0].name} and not {short}.")
    return kernels[0]


def _without_kernel(kernel: Kernel) -> str:
    """The unit's text with a semicolon in the place of the definition, and without the contract."""
    text = kernel.unit.text
    spans = sorted(filter(None, [(kernel.start, kernel.end), kernel.contract_span]), reverse=True)
    for start, end in spans:
        text = text[:start] + (";" if start == kernel.start else "") + text[end:]
    return text


def _pieces(text: str, opened: frozenset[str] = frozenset(), numbers: frozenset[str] = frozenset()) -> Iterator[_Piece]:
    """What stands at the outermost level, or within nodes of the opened types there; layout and comments are none.

    `numbers` are names whose numbers are launch parameters.
    """
    raw = text.encode("utf-8", "surrogatepass")
    stack = [tree_sitter.Parser(_LANGUAGE).parse(raw).root_node]
    while stack:
        node = stack.pop()
        if node.type == "translation_unit" or node.type in opened:
            stack.extend(reversed(node.children))
            continue
        piece = raw[node.start_byte : node.end_byte].decode("utf-8", "replace")
        words = tuple(_words(piece, numbers))
        if words and words != (";",) and (node.is_named or node.type == "ERROR"):
            yield _Piece(node, piece, words)


def _launch_numbers(text: str) -> frozenset[str]:
    """Names of a text that are given a number, `const int threads = 256;`, and then stand in launches alone."""
    outside = list(_words(text))
    given = {
        name
        for name, sign, number in zip(outside, outside[1:], outside[2:], strict=False)
        if sign == "=" and number.isdigit()
    }
    return frozenset(name for name in given if outside.count(name) == 1)


def _words(text: str, numbers: frozenset[str] = frozenset()) -> Iterator[str]:
    """The words of a text without comments, layout and launch parameters."""
    tokens = lex(text).tokens
    index = 0
    while index < len(tokens):
        if tokens[index].text == "<<<":
            while index < len(tokens) and not _closes_launch(tokens, index):
                index += 1
            index += 3
            continue
        named = index > 1 and tokens[index - 1].text == "=" and tokens[index - 2].text in numbers
        if not (named and tokens[index].text.isdigit()):
            yield tokens[index].text
        index += 1


def _closes_launch(tokens: Sequence[Token], index: int) -> bool:
    return [token.text for token in tokens[index : index + 3]] == [">", ">", ">"]


def _added(before: Sequence[_Piece], after: Sequence[_Piece]) -> list[_Piece]:
    """Pieces that are new, once every old one was found again in its order.

    Raises:
        Forbidden: an old one is gone or changed.
    """
    rest = iter(before)
    awaited = next(rest, None)
    new = []
    for piece in after:
        if awaited is not None and piece.words == awaited.words:
            awaited = next(rest, None)
        else:
            new.append(piece)
    if awaited is not None:
        first = " ".join(awaited.words[:8])
        raise Forbidden(f"The text changes what stands beside the kernel: {first} ...")
    return new


def _check_node(node: tree_sitter.Node) -> None:
    """What a candidate adds must be a helper of the device's."""
    if node.type in _NESTING:
        condition = node.child_by_field_name("condition") or node.child_by_field_name("name")
        parameters = node.child_by_field_name("parameters")
        for child in node.named_children:
            if child not in (condition, parameters):
                _check_node(child)
        return
    words = tuple(_words((node.text or b"").decode("utf-8", "replace")))
    start = " ".join(words[:8])
    if node.type in _HELPERS or not words or words == (";",):
        return
    if "__global__" in words:
        raise Forbidden("The text defines another kernel.")
    if node.type in {"function_definition", "declaration"}:
        name = _defined_name(node)
        if name.startswith("__"):
            raise Forbidden(f"The text defines {name}, which is the compiler's own.")
        if _ON_DEVICE & set(words) and "__managed__" not in words:
            return
        raise Forbidden(f"The text brings host code: {start} ...")
    raise Forbidden(f"The text brings something that is neither the kernel nor a helper of it: {start} ...")


def _defined_name(node: tree_sitter.Node) -> str:
    """The name that a function's definition or a declaration is about; empty where it cannot be read."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.child_by_field_name("declarator") is not None:
        declarator = declarator.child_by_field_name("declarator")
    return "" if declarator is None else (declarator.text or b"").decode("utf-8", "replace").strip("*& ")


def _launches(text: str) -> bool:
    return any(token.text == "<<<" for token in lex(text).tokens)


def _check_words(text: str, baseline: str) -> None:
    """Directives, and words that reach out of the text; those of the user's own file are allowed."""
    joined = text.replace("\\\r\n", "").replace("\\\n", "")
    if lex(joined).tokens and "\\" in {token.text for token in lex(joined).tokens}:
        raise Forbidden("The text holds a stray backslash.")
    tokens = lex(joined).tokens
    known = lex(baseline).tokens
    known_words = {token.text for token in known}
    known_lines = set(_directives(known))
    macros = {line[2] for line in known_lines if line[1:2] == ("define",) and len(line) > 2}
    for line in _directives(tokens):
        if line not in known_lines:
            _check_directive(line, macros)
    for index, token in enumerate(tokens):
        if token.text in known_words:
            continue
        if token.text in READS_FILES:
            raise Forbidden(f"The text reaches for files by {token.text}.")
        if token.text == "_Pragma" and not _is_unroll(tokens, index):
            raise Forbidden("The text holds a _Pragma other than unroll.")
        if re.fullmatch(r"cuda(?:rt)?[A-Z]\w*|cu[A-Z]\w+", token.text) and _is_called(tokens, index):
            raise Forbidden(f"The kernel calls the runtime, by {token.text}.")


def _is_called(tokens: Sequence[Token], index: int) -> bool:
    return index + 1 < len(tokens) and tokens[index + 1].text == "("


def _is_unroll(tokens: Sequence[Token], index: int) -> bool:
    if not _is_called(tokens, index) or closing(tokens, index + 1) is None:
        return False
    return re.match(r'"\s*(?:unroll|nounroll)\b', tokens[index + 2].text) is not None


def _directives(tokens: Sequence[Token]) -> Iterator[tuple[str, ...]]:
    """The words of each preprocessor line."""
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


def _check_directive(line: tuple[str, ...], macros: set[str]) -> None:
    name = line[1] if len(line) > 1 else ""
    if name and name not in DIRECTIVES:
        raise Forbidden(f"The text holds the directive #{name}.")
    if name == "include":
        target = "".join(line[2:])
        if INCLUDES.match(target) is None:
            raise Forbidden(f"The text includes {target}, which is not among the headers that a candidate may add.")
    elif name == "pragma" and (len(line) < 3 or line[2] not in PRAGMAS):
        raise Forbidden(f"The text holds #pragma {' '.join(line[2:4])}.")
    elif name in {"define", "undef"}:
        macro = line[2] if len(line) > 2 else ""
        if macro in RESERVED or macro.startswith("__") or macro in macros:
            raise Forbidden(f"The text redefines {macro}, under which the rest would mean something else.")
        if any(one == "#" and two == "#" for one, two in itertools.pairwise(line)):
            raise Forbidden(f"The macro {macro} pastes tokens, which can spell what may not be written.")
