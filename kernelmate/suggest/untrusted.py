"""Check of text that a model or a plugin wrote, and its insertion into the user's file.

Such text must be device code: a definition of the kernel, and helpers above it. It must not read files at compile time,
contain host code, change code beside the kernel, or redefine the language for it. The kernel's behaviour at run time is
not checked here, but by the worker and the guards.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Sequence

import tree_sitter
import tree_sitter_cuda

from kernelmate.errors import SourceError
from kernelmate.records import Finding, FindingCode, Kernel
from kernelmate.source import apply_edits, find_kernels, helpers_offset, text_unit
from kernelmate.source.blocks import find_blocks
from kernelmate.source.tokens import lex
from kernelmate.suggest.allowed_tokens import (
    MOST_TEXT,
    ForbiddenText,
    check_characters,
    check_words,
    left_defined,
    macros_added,
)
from kernelmate.suggest.pieces import (
    INCLUDED,
    NAMESPACES,
    NESTING,
    FilePiece,
    aligned_type,
    launch_effects,
    launch_numbers,
    names_of,
    own_headers,
    own_helpers,
    own_macros,
    own_numbers,
    pieces_of,
    without_kernel,
    without_numbers_of_launches,
    words_of,
)

_HELPERS = frozenset(
    {
        "struct_specifier", "class_specifier", "union_specifier", "enum_specifier", "alias_declaration", "namespace_alias_definition",
        "type_definition", "static_assert_declaration", "comment", "preproc_def", "preproc_function_def", "preproc_include",
        "preproc_call", "preproc_undef", ";",
    }
)  # fmt: skip
_TYPES = frozenset({"struct_specifier", "class_specifier", "union_specifier", "enum_specifier"})
"""Types of nodes whose semicolon is not part of them."""
_ON_DEVICE = frozenset({"__device__", "__constant__", "constexpr"})
_NUMBER = re.compile(r"(?:static )?const(?:expr)? (?:int|unsigned|unsigned int|size_t) (\w+) = \d+ ;")
_LAUNCHES = "The kernel launches another one, which would run outside of what is judged."
_LANGUAGE = tree_sitter.Language(tree_sitter_cuda.language())


def spliced(baseline: Kernel, text: str) -> Kernel:
    """Returns the baseline's file with the kernel of an answer in place of its own, and helpers above it.

    Args:
        baseline: the kernel that the answer changes.
        text: CUDA text with one definition of it, and helpers that it needs.

    Raises:
        ForbiddenText: the text has another form, or contains something that a candidate may not have.
        SourceError: the user's Python string cannot contain the text.
    """
    check_characters(text)
    text = without_contracts(text)
    kernel = _only_kernel(baseline, text)
    check_words(text, baseline.unit.text, baseline.source)
    if _launches(text) and not _launches(baseline.source):
        raise ForbiddenText(_LAUNCHES)
    known = {
        piece.words for opened in (frozenset[str](), NAMESPACES) for piece in pieces_of(baseline.unit.text, opened)
    }
    helpers = [piece for piece in pieces_of(without_kernel(kernel)) if piece.words not in known]
    for piece in helpers:
        _check_node(piece.node)
    _check_names(baseline, helpers, macros := macros_added(text, baseline.unit.text))
    includes = [piece.text.strip() for piece in helpers if piece.node.type == "preproc_include"]
    others = [
        p.text.strip("\n") + ";" * (p.node.type in _TYPES)
        for p in helpers
        if p.node.type != "preproc_include" and p.words[1:2] != ("undef",)
    ]
    prefix = 'extern "C" ' if baseline.signature.extern_c and not kernel.signature.extern_c else ""
    above = helpers_offset(baseline)
    ended = [
        f"#undef {name}"
        for name in macros
        if left_defined(kernel.source, [name]) or name not in words_of(kernel.source)
    ]
    below = "\n\n" + "\n".join(ended) if ended else ""
    edits = [(baseline.start, baseline.end, prefix + kernel.source + below)]
    if others:
        edits.append((above, above, "\n".join(others) + "\n\n"))
    if includes:
        edits.append((0, 0, "".join(f"{line}\n" for line in includes)))
    return apply_edits(baseline, _merged(edits))


def as_written(baseline: Kernel, text: str) -> Kernel | None:
    """Returns the baseline's file with an answer's text, unchanged, in the kernel's place, for display.

    It serves for text that `spliced` rejects; it is shown with the finding of `screen` and is never compiled. The
    result is None if the text does not contain the kernel, or is too long to be checked.
    """
    if len(text) > MOST_TEXT:
        return None
    try:
        return apply_edits(baseline, [(baseline.start, baseline.end, text)])
    except SourceError:
        return None


def screen(
    baseline: Kernel, candidate: Kernel, in_headers: Callable[[], Collection[str]] = lambda: ()
) -> Finding | None:
    """Returns the finding that forbids compiling a candidate's whole file; None if there is none.

    Everything beside the kernel must be unchanged, except launch parameters; additions must be helpers.

    Args:
        baseline: the user's kernel.
        candidate: the kernel with everything that its author changed.
        in_headers: returns the words of the user's headers; called only if the candidate adds names.
    """
    try:
        check_characters(candidate.unit.text, extra=len(baseline.unit.text))
        candidate = _with_numbers_of(baseline, candidate)
        check_words(candidate.unit.text, baseline.unit.text, baseline.source)
        if len(find_blocks(candidate.unit)) > max(1, len(find_blocks(baseline.unit))):
            raise ForbiddenText("The text holds a contract of its own.")
        texts = [without_numbers_of_launches(without_kernel(kernel)) for kernel in (baseline, candidate)]
        numbers = launch_numbers(texts[0]) & launch_numbers(texts[1])
        before, after = (list(pieces_of(text, NAMESPACES, numbers)) for text in texts)
        given = {name for piece in before for kind, name in names_of(piece.node) if kind == "function"}
        given |= {piece.words[2] for piece in before if piece.words[:2] == ("#", "define") and len(piece.words) > 2}
        effects = launch_effects(texts[1], declared=False) - launch_effects(texts[0], declared=True) - given
        if effects:
            raise ForbiddenText(
                f"A launch has a call or an assignment that the file's launches do not have: {min(effects)}."
            )
        own = frozenset[tuple[str, ...]]()
        if not baseline.unit.path.endswith(INCLUDED):
            own = own_helpers(before) | frozenset(own_headers(before))
            own |= {piece.words for piece in own_macros(before).values()}
        new = _added([piece for piece in before if piece.words not in own], after)
        new = [piece for piece in new if piece.words not in own]
        for piece in new:
            _check_node(piece.node)
        macros = macros_added(candidate.unit.text, baseline.unit.text)
        if (macro := left_defined(candidate.unit.text, macros)) is not None:
            raise ForbiddenText(f"The macro {macro} is not undefined after the kernel, so it changes the text below.")
        _check_names(baseline, new, macros, in_headers, own)
        written = [candidate.source, *(piece.text for piece in new)]
        if any(map(_launches, written)) and not _launches(baseline.source):
            raise ForbiddenText(_LAUNCHES)
    except ForbiddenText as error:
        place = (candidate.unit.path, *candidate.unit.locate(candidate.line, candidate.column))
        return Finding(FindingCode.FORBIDDEN_SOURCE, "error", str(error), *place)
    return None


def _with_numbers_of(baseline: Kernel, candidate: Kernel) -> Kernel:
    """Returns the candidate with the baseline's numbers in `#define NAME NUMBER` whose names only the kernel uses."""
    names = (
        ()
        if baseline.unit.path.endswith(INCLUDED)
        else own_numbers(list(pieces_of(without_kernel(baseline), NAMESPACES)))
    )
    edits = []
    for name in names:
        line = re.compile(rf"^[ \t]*#[ \t]*define[ \t]+{re.escape(name)}[ \t]+(\d+)\b", re.MULTILINE)
        (before, *_), after = line.findall(baseline.unit.text), list(line.finditer(candidate.unit.text))
        if len(after) == 1:
            edits.append((*after[0].span(1), before))
    return apply_edits(candidate, edits) if edits else candidate


def without_contracts(text: str) -> str:
    """Returns a text without contract blocks: only the user decides on a kernel's contract."""
    blocks = [block.span for block in find_blocks(text_unit(text)) if block.span is not None]
    for start, end in sorted(blocks, reverse=True):
        text = text[:start] + text[end:]
    return text


def _check_names(
    baseline: Kernel,
    added: Sequence[FilePiece],
    macros: Sequence[str],
    in_headers: Callable[[], Collection[str]] = lambda: (),
    own: Collection[tuple[str, ...]] = (),
) -> None:
    """Checks that a candidate's names beside the kernel occur nowhere else in the user's file or its headers.

    Args:
        baseline: the user's kernel.
        added: the parts that the candidate adds.
        macros: names of the macros that the candidate defines.
        in_headers: returns the words of the user's headers.
        own: words of the helpers that only the kernel uses, which may be changed.

    Raises:
        ForbiddenText: a name occurs elsewhere.
    """
    functions: list[str] = []
    others = list(macros)
    numbers = {found[1] for words in own if (found := _NUMBER.fullmatch(" ".join(words)))}
    for piece in added:
        number = _NUMBER.fullmatch(" ".join(piece.words))
        if number is not None and number[1] in numbers:
            continue  # the kernel's own, with another value
        for kind, name in names_of(piece.node):
            (functions if kind == "function" else others).append(name)
    if not (functions or others):
        return
    pieces = [piece for piece in pieces_of(without_kernel(baseline), NAMESPACES) if piece.words not in own]
    file = [token.text for piece in pieces for token in lex(piece.text).tokens]
    called = {name for name, after in itertools.pairwise(file) if after in ("(", "<", "<<<")}
    outside = {name for piece in pieces for _, name in names_of(piece.node)}
    words = frozenset(file) | frozenset(in_headers())
    taken = next((name for name in others if name in words), None) or next(
        (name for name in functions if name in called | outside | (words - set(file))), None
    )
    if taken is not None:
        raise ForbiddenText(f"The text redefines {taken}, which the file or its headers define.")


def _merged(edits: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """Joins insertions at the same offset into one edit, in the order of the file: includes first."""
    merged: dict[tuple[int, int], str] = {}
    for start, end, new in reversed(edits):
        merged[start, end] = merged.get((start, end), "") + new
    return [(start, end, new) for (start, end), new in merged.items()]


def _only_kernel(baseline: Kernel, text: str) -> Kernel:
    kernels = find_kernels(text_unit(text))
    short = baseline.name.rpartition("::")[2]
    if len(kernels) != 1:
        raise ForbiddenText(f"The text defines {len(kernels)} kernels; one is wanted, {short}.")
    if kernels[0].name.rpartition("::")[2] != short:
        raise ForbiddenText(f"The text defines {kernels[0].name} and not {short}.")
    return kernels[0]


def _added(before: Sequence[FilePiece], after: Sequence[FilePiece]) -> list[FilePiece]:
    """Returns the new parts, after matching every old one in its order.

    Raises:
        ForbiddenText: an old part was removed or changed.
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
        raise ForbiddenText(f"The text changes something outside the kernel: {first} ...")
    return new


def _check_node(node: tree_sitter.Node) -> None:
    """Checks that an addition of a candidate is a device helper."""
    if node.type in NESTING:
        condition = node.child_by_field_name("condition") or node.child_by_field_name("name")
        parameters = node.child_by_field_name("parameters")
        for child in node.named_children:
            if child not in (condition, parameters):
                _check_node(child)
        return
    words = tuple(words_of((node.text or b"").decode("utf-8", "replace")))
    start = " ".join(words[:8])
    if "::" in _named(node):
        raise ForbiddenText(f"The text defines {_named(node)}, a part of another namespace or type.")
    if node.type in _HELPERS or not words or words == (";",) or aligned_type(words):
        return
    if "__global__" in words:
        raise ForbiddenText("The text defines another kernel.")
    if node.type in {"function_definition", "declaration"}:
        name = _defined_name(node)
        if name.startswith("__"):
            raise ForbiddenText(f"The text defines {name}, which is reserved for the compiler.")
        if "asm" in {word.strip("_") for word in words} and (words.count("__host__") or "__device__" not in words):
            raise ForbiddenText(f"The text has assembly that affects more than the device: {start} ...")
        if _ON_DEVICE & set(words) and "__managed__" not in words:
            return
        if _NUMBER.fullmatch(" ".join(words)):
            return  # a constant of the language, which device code may read
        raise ForbiddenText(f"The text has host code: {start} ...")
    raise ForbiddenText(f"The text has something that is neither the kernel nor a helper of it: {start} ...")


def _named(node: tree_sitter.Node) -> str:
    """Returns the name of a type definition with its scope; empty for any other node."""
    name = node.child_by_field_name("name") if node.type in _TYPES else None
    return "" if name is None else (name.text or b"").decode("utf-8", "replace").partition("<")[0]


def _defined_name(node: tree_sitter.Node) -> str:
    """Returns the name of a function definition or declaration; empty if it cannot be determined."""
    declarator = node.child_by_field_name("declarator")
    while declarator is not None and declarator.child_by_field_name("declarator") is not None:
        declarator = declarator.child_by_field_name("declarator")
    return "" if declarator is None else (declarator.text or b"").decode("utf-8", "replace").strip("*& ")


def _launches(text: str) -> bool:
    return any(token.text == "<<<" for token in lex(text).tokens)
