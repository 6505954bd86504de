"""Device part of a source file: host code is replaced by blanks, so that lines and columns are the user's.

NVRTC compiles device code only. The device part keeps the requested kernel, all device functions and variables, and
everything that they name: types, constants, aliases, macros. Everything else (host functions with their launches, host
headers, host globals, the file's other kernels, comments) is blanked. Project headers are processed in the same way and
passed to NVRTC in memory. Text that cannot be parsed is kept, and NVRTC accepts or rejects it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from kernelmate.compiler.declarations import ParsedDeclarations
from kernelmate.compiler.prelude import (
    CURAND_TYPES,
    DRIVER_TYPES,
    EXTREMES_OF_LISTS,
    MACROS,
    POSIX_TYPES,
    PROMOTING,
    RUNTIME_NAMES,
    STD_NAMES,
    THRUST,
    TYPEOF,
    promotes,
)
from kernelmate.compiler.preprocessor import (
    UMBRELLA,
    Fate,
    Include,
    IncludeSearch,
    ResolvedInclude,
    cub_umbrella,
    digest_of_raw,
    is_needed,
    is_standard,
    version_header,
)
from kernelmate.compiler.project import File, Files, TextBefore, load_files
from kernelmate.compiler.project_headers import include_folder
from kernelmate.compiler.rules import DeclarationNode, Rules, texts_of
from kernelmate.compiler.standins import CUTLASS_HOST, CUTLASS_STD, is_told, standin_for, standin_text
from kernelmate.source.tokens import Token

MISSING_MARK = "#warning kernelmate: header not found:"
"""Beginning of the line in the place of an `#include` whose header was not found; its number follows, and the compiler prints it
unless the preprocessor skips the line."""


def laid_out(text: str, pieces: Sequence[tuple[int, str]]) -> str:
    """Returns parts of a text at their lines and columns, with blanks between them."""
    out: list[str] = []
    at = 0
    for start, piece in pieces:
        if start < at:
            continue
        out += (_blank(text[at:start]), piece)
        at = start + len(piece)
        if not text.startswith(piece, start) and piece.count("\n") != text.count("\n", start, at):
            # A rewritten include may be longer or shorter than the original; the rest of its line is blank anyway.
            at = start
        if piece.startswith(("#include", MISSING_MARK)):
            end = text.find("\n", start)
            at = len(text) if end < 0 else end
    out.append(_blank(text[at:]))
    return "\n".join(line.rstrip() for line in "".join(out).split("\n"))


def _blank(text: str) -> str:
    if not text.strip(" \n\t"):
        return text  # between most tokens
    return re.sub(r"[^\n\t]", " ", text)


def _pieces(text: str, code: Sequence[Token], stays: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yields the kept tokens of a text with their offsets; adjacent tokens are yielded as one piece of text."""
    for first in range(0, len(stays), MOST_AT_ONCE):
        some = stays[first : first + MOST_AT_ONCE]
        start, end = code[some[0]].start, code[some[-1]].end
        whole = text[start:end]
        if some[-1] - some[0] == len(some) - 1 and not _NOT_KEPT.search(whole):
            yield start, whole
        else:
            yield from ((code[index].start, code[index].text) for index in some)


def shells(parsed: ParsedDeclarations) -> set[int]:
    """Returns the indices of the tokens that open and close namespaces and linkage blocks."""
    found: set[int] = set()
    waiting = list(parsed.declarations)
    while waiting:
        declaration = waiting.pop()
        if declaration.kind in ("namespace", "linkage") and declaration.body is not None:
            brace, closer = declaration.body
            found.update(range(declaration.start, brace + 1))
            found.update(range(closer, declaration.stop))
            waiting.extend(declaration.members)
    return found


def lambda_annotations(code: Sequence[Token], stays: set[int]) -> Iterator[int]:
    """Yields `__device__` tokens of lambdas: NVRTC compiles every lambda for the device, and rejects the annotation."""
    for index in [index for index, token in enumerate(code[:-1]) if token.text == "]"]:
        if index in stays:
            at = index + 1
            while at < len(code) and code[at].text in ("__host__", "__device__"):
                at += 1
            if at < len(code) and code[at].text in ("(", "{", "mutable"):
                yield from range(index + 1, at)


MOST_AT_ONCE = 64
"""Maximum number of tokens that are kept as one piece of text without comments and preprocessor lines."""
_NOT_KEPT = re.compile(r"//|/\*|#|\\|[^\n\t -~]")
# Each of these texts is sought in the whole file with every key: a pattern that starts with letters is found ten times as fast
# as one that starts with `\b`.
_STD = re.compile(r"std(?<!\wstd)\s*::")
_IDLE_PRAGMAS = frozenset(
    {"omp", "acc", "warning", "GCC", "clang", "comment", "region", "endregion", "STDC", "message"}
)
_SUFFIXED = re.compile(r'extern(?<!\wextern)\s*"C"(?=__)')
"""A linkage whose string NVRTC reads together with the word behind it, as a literal with a suffix."""

_EXTREME_OF_LIST = re.compile(r"std(?<!\wstd)\s*::\s*(?:min|max)\s*\(\s*\{")
_LIST = re.compile(r"initializer_list(?<!\winitializer_list)\b")
_AFTER = {"swap": "(", "clamp": "(", "true_type": ",;{>", "false_type": ",;{>"}
"""Tokens, other than `<`, that may follow an unqualified use of a name of `std::`."""


@dataclass(frozen=True, slots=True)
class MissingHeader:
    """A header that was not found or was left out, with line and column of its `#include`."""

    name: str
    included_by: str | None
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class DevicePart:
    """Device code of a unit, and of the project headers that it includes.

    Attributes:
        text: the device code, with as many lines as the unit.
        headers: device part of each project header, by include name.
        paths: the file of each header.
        std_names: names of `std::` in the code, and types of `cuda.h` if the code includes it.
        default_device: True if unannotated `constexpr` functions were kept and must be compiled for the device.
        host_functions: names of functions that were blanked.
        missing: headers that were not found.
        guessed: headers of the project that no include path leads to, each with its file.
        guessed_folders: include folders of those guessed headers that NVRTC reads itself.
        left_out: headers of host libraries that were left out, or replaced by a stand-in with types.
        raw_digest: a hash of the user's headers that NVRTC reads unchanged; empty if there are none.
    """

    text: str
    headers: tuple[tuple[str, str], ...] = ()
    paths: tuple[tuple[str, str], ...] = ()
    std_names: frozenset[str] = frozenset()
    default_device: bool = False
    host_functions: frozenset[str] = frozenset()
    missing: tuple[MissingHeader, ...] = ()
    guessed: tuple[tuple[MissingHeader, Path], ...] = ()
    guessed_folders: tuple[Path, ...] = ()
    left_out: tuple[MissingHeader, ...] = ()
    raw_digest: str = ""


def device_part(
    text: str,
    directory: Path,
    include_paths: Sequence[Path] = (),
    *,
    kernel: str | None = None,
    place: int | None = None,
    named: Iterable[str] = (),
    system: Sequence[Path] = (),
    everything: bool = False,
    guess: bool = True,
    mark_missing: bool = False,
    rejected: frozenset[tuple[str | None, int]] = frozenset(),
    before: TextBefore | None = None,
) -> DevicePart:
    """Extract the device part of CUDA text. Reads headers, and executes nothing.

    Args:
        text: the unit's text.
        directory: folder of its quoted includes.
        include_paths: folders of the user's headers, searched next.
        kernel: name of the requested kernel; None keeps every kernel.
        place: an offset in its definition, which distinguishes it from other kernels of its name; None keeps them all.
        named: words that count as used, such as those of a template instance or of defines.
        system: folders of CUDA's own headers.
        everything: True blanks no declaration (for text that was written for NVRTC).
        guess: True reads headers that no include path leads to from the nearest folder of the project.
        mark_missing: True replaces each `#include` of a missing header by a line that makes the compiler report that it
            reached it.
        rejected: lines where the compiler found errors, each with its header's name or None: plain types and aliases there are
            left out, unless they are always kept.
        before: the text of another file before its `#include` of the unit.
    """
    files = load_files(text, directory, IncludeSearch(tuple(include_paths), tuple(system), guess), before)
    rules = Rules(files, kernel, place=place, everything=everything)
    if rejected:
        rules.nodes = [node for node in rules.nodes if not _is_rejected(node, rejected)]
    return _Plan(files, rules, frozenset(named), mark_missing=mark_missing).result(tuple(system))


def _is_rejected(node: DeclarationNode, rejected: frozenset[tuple[str | None, int]]) -> bool:
    """Returns True for a type or alias on one of these lines that is not a template and is kept only because it is named."""
    declaration, code = node.declaration, node.file.parsed.code
    lines = {line for name, line in rejected if name == node.file.name}
    if not lines or node.rule != "if-named" or declaration.kind not in ("type", "alias"):
        return False
    first = node.file.text.count("\n", 0, code[declaration.start].start) + 1
    last = node.file.text.count("\n", 0, code[declaration.stop - 1].end) + 1
    return code[declaration.start].text != "template" and any(first <= line <= last for line in lines)


# --------------------------------------------------------------------------------------------------- what is kept


class _Plan:
    """Selection of the declarations, in all files, that device code uses."""

    def __init__(self, files: Files, rules: Rules, named: frozenset[str], *, mark_missing: bool) -> None:
        self.files = files
        self.nodes = rules.nodes
        self.host_functions = rules.host_functions
        self.named = named
        missing = [include for file in files.files for include, found in file.includes if found.fate == "missing"]
        self.numbers = {id(include): number for number, include in enumerate(missing)} if mark_missing else {}

    def result(self, system: tuple[Path, ...]) -> DevicePart:
        """Returns the rendered device part."""
        kept, words = self._kept()
        texts = {id(file): self._render(file, kept, words) for file in self.files.files}
        headers = [(file.name, texts[id(file)]) for file in self.files.files if file.name is not None]
        paths = [(file.name, str(file.path)) for file in self.files.files if file.name is not None]
        includes = [pair for file in self.files.files for pair in file.includes]
        if any(include.name == "cub/cub.cuh" for include, _ in includes) and "cub" in words:
            headers.append((UMBRELLA, cub_umbrella(words, system)))
        own = _declared(self.nodes) | set(self.files.macros)
        for name in sorted({one for include, found in includes if (one := self._standin(include, found, words))}):
            headers.append((name, standin_text(name, words, own)))
        raw = [found.path for _, found in includes if found.fate == "raw" and found.path is not None]
        cutlass = any(
            found.fate == "raw" and include.name.startswith(("cutlass/", "cute/")) for include, found in includes
        )
        if cutlass:
            headers += [(name, "") for name in CUTLASS_HOST]
        thrust = any(
            found.fate == "raw" and include.name.startswith("thrust/") and is_needed(include.name, words)
            for include, found in includes
        )
        mine = [path for path in raw if not any(path.is_relative_to(place) for place in system)]
        folders = tuple(
            dict.fromkeys(
                include_folder(include.name, found.path)
                for include, found in includes
                if found.fate == "raw" and found.guessed and found.path is not None
            )
        )
        return DevicePart(
            text=texts[id(self.files.files[0])],
            headers=tuple(headers),
            paths=tuple(paths),
            std_names=self._std_names(kept, words)
            | (CUTLASS_STD if cutlass else frozenset())
            | (frozenset({THRUST}) if thrust else frozenset()),
            # Unannotated functions of libraries are errors to NVRTC, though no kernel calls them.
            default_device=bool(mine) or thrust or any(node.relaxed for node in kept),
            host_functions=frozenset(self.host_functions - _declared(kept)),
            missing=tuple(one for one, _ in self._with_fate("missing")),
            guessed=tuple(
                (one, found.path)
                for fate in ("project", "raw")
                for one, found in self._with_fate(fate)
                if found.guessed and found.path is not None
            ),
            guessed_folders=folders,
            left_out=tuple(
                one for one, _ in self._with_fate("blank") if is_told(one.name) and not is_standard(one.name)
            ),
            raw_digest=digest_of_raw(mine, self.files.search.also_in(folders)) if mine else "",
        )

    # ------------------------------------------------------------------------------------------------ reachability

    def _kept(self) -> tuple[list[DeclarationNode], frozenset[str]]:
        """Returns the kept nodes, and all words in them and in the macros that they use."""
        by_name: dict[str, list[DeclarationNode]] = {}
        for node in self.nodes:
            if node.rule == "if-named" and node.declaration.kind != "assert":
                for name in node.declaration.names:
                    by_name.setdefault(name, []).append(node)
        kept = {id(node): node for node in self.nodes if node.rule == "keep"}
        words: set[str] = set()
        waiting = [*self.named, *(word for node in kept.values() for word in _words(node))]
        while waiting:
            word = waiting.pop()
            if word in words:
                continue
            words.add(word)
            for macro in self.files.macros.get(word, ()):
                waiting.extend(macro.words)
                if macro.pastes:
                    # Names are pasted together somewhere, so any declaration may be meant.
                    waiting.extend(name for name in by_name if name not in words)
            for node in by_name.get(word, ()):
                if id(node) not in kept:
                    kept[id(node)] = node
                    waiting.extend(_words(node))
        self._drop_what_needs_the_host(kept)
        self._keep_assertions(kept)
        return [node for node in self.nodes if id(node) in kept], frozenset(words)

    def _drop_what_needs_the_host(self, kept: dict[int, DeclarationNode]) -> None:
        """Drops constants whose value comes from a host function."""
        available = _declared(kept.values())
        for node in list(kept.values()):
            if node.rule == "if-named" and node.declaration.kind == "variable":
                value = texts_of(node.file, node.declaration.head, node.declaration.stop)
                if (value & self.host_functions) - available:
                    del kept[id(node)]

    def _keep_assertions(self, kept: dict[int, DeclarationNode]) -> None:
        """Keeps an assertion if everything that it mentions is kept."""
        declared = _declared(self.nodes)
        available = _declared(kept.values())
        for node in self.nodes:
            is_assertion = node.rule == "if-named" and node.declaration.kind == "assert"
            if is_assertion and set(_words(node)) & declared <= available:
                kept[id(node)] = node

    def _std_names(self, kept: Iterable[DeclarationNode], words: frozenset[str]) -> frozenset[str]:
        """Returns names used from `std::`; with `using namespace std` also unqualified ones that nothing here declares."""
        opened = any(node.declaration.kind == "using" and "std" in _words(node) for node in kept)
        own = _declared(self.nodes) | set(self.files.macros)
        found: set[str] = set()
        for file in self.files.files:
            if not opened and not _STD.search(file.text):
                continue
            parsed = file.parsed
            texts = [token.text for tokens in (parsed.code, *parsed.directives) for token in tokens]
            found.update(c for a, b, c in zip(texts, texts[1:], texts[2:], strict=False) if a == "std" and b == "::")
            if opened:
                found.update(a for a, b in pairwise(texts) if b in _AFTER.get(a, "<") and a not in own)
        names = frozenset(found) & words & STD_NAMES
        driver = any(include.name == "cuda.h" for file in self.files.files for include, _ in file.includes)
        names |= ((RUNTIME_NAMES | TYPEOF) & words - own) | (POSIX_TYPES & words)
        names |= {promotes(name) for name in PROMOTING & words - own}
        if any(one.name.startswith("curand") for one, _ in self._with_fate("missing")):
            names |= CURAND_TYPES & words - own
        names |= {
            one for one in MACROS if any(one in file.text for file in self.files.files)
        } - self.files.macros.keys()
        if any(_EXTREME_OF_LIST.search(file.text) or _LIST.search(file.text) for file in self.files.files):
            names |= {EXTREMES_OF_LISTS}
        return names | (DRIVER_TYPES & words - own) if driver else names

    # --------------------------------------------------------------------------------------------------- rendering

    def _render(self, file: File, kept: Sequence[DeclarationNode], words: frozenset[str]) -> str:
        stays = shells(file.parsed)
        for node in kept:
            if node.file is file:
                stays.update(range(node.declaration.start, node.declaration.stop))
                for start, stop in node.cut:
                    stays.difference_update(range(start, stop))
        code = file.parsed.code
        stays.difference_update(lambda_annotations(code, stays))
        pieces = list(_pieces(file.text, code, sorted(stays)))
        includes = {include.start: (include, found) for include, found in file.includes}
        for line in file.parsed.directives:
            if line in file.parsed.pragmas and any(
                start < line[0].start < stop for start, stop in self._gone(file, kept)
            ):
                continue
            written = self._directive(file.text, line, includes.get(line[0].start), words)
            if written:
                pieces.append((line[0].start, written))
        text = _SUFFIXED.sub(r"\g<0> ", laid_out(file.text, sorted(pieces)))
        return _with_constants(text, file.text, sorted(_computed_constants(kept).get(id(file), ()), reverse=True))

    def _gone(self, file: File, kept: Sequence[DeclarationNode]) -> Iterator[tuple[int, int]]:
        """Yields the character ranges of the text to blank."""
        code = file.parsed.code
        stays = {id(node) for node in kept}
        for node in self.nodes:
            if node.file is file:
                whole = (node.declaration.start, node.declaration.stop)
                for start, stop in node.cut if id(node) in stays else (whole,):
                    if start < stop:
                        yield code[start].start, code[stop - 1].end

    def _directive(
        self, text: str, line: Sequence[Token], include: tuple[Include, ResolvedInclude] | None, words: frozenset[str]
    ) -> str:
        written = text[line[0].start : line[-1].end]
        if include is None:
            idle = len(line) > 2 and line[1].text == "pragma" and line[2].text in _IDLE_PRAGMAS
            return "" if idle else written
        wanted, found = include
        if found.fate == "project" and found.path is not None:
            served = self.files.names[found.path]
            return written if served == wanted.name else f'#include "{served}"'
        if found.fate == "raw" and is_needed(wanted.name, words):
            return f'#include "{UMBRELLA}"' if wanted.name == "cub/cub.cuh" else written
        if found.fate == "raw" and found.path is not None:
            version = version_header(wanted.name, found.path, (file.text for file in self.files.files))
            return f"#include <{version}>" if version else ""
        if id(wanted) in self.numbers:
            return f"{MISSING_MARK} {self.numbers[id(wanted)]}"
        standin = self._standin(wanted, found, words)
        return f'#include "{standin}"' if standin else ""

    def _standin(self, include: Include, found: ResolvedInclude, words: frozenset[str]) -> str | None:
        return standin_for(include.name, words) if found.fate == "blank" else None

    def _with_fate(self, fate: Fate) -> Iterator[tuple[MissingHeader, ResolvedInclude]]:
        for file in self.files.files:
            for include, found in file.includes:
                if found.fate == fate:
                    line = file.text.count("\n", 0, include.start) + 1
                    column = include.start - file.text.rfind("\n", 0, include.start)
                    yield MissingHeader(include.name, file.name, line, column), found


_FLOATING = [{"const", kind, *static} for kind in ("float", "double") for static in ((), ("static",))]


def _computed_constants(kept: Iterable[DeclarationNode]) -> dict[int, list[int]]:
    """Returns the offsets of `const` in variables such as `const float half = -other;`, and in those they name, by file."""
    floating: dict[str, DeclarationNode] = {}
    for node in kept:
        words = [token.text for token in node.file.parsed.code[node.declaration.start : node.declaration.head]]
        if node.declaration.kind == "variable" and words.count("const") == 1 and set(words[:-1]) in _FLOATING:
            floating[words[-1]] = node
    named = {name: set(_words(node)) & floating.keys() - {name} for name, node in floating.items()}
    found: dict[int, list[int]] = {}
    for name in {
        *(name for name, others in named.items() if others),
        *(other for others in named.values() for other in others),
    }:
        node = floating[name]
        code = node.file.parsed.code
        at = next(
            index for index in range(node.declaration.start, node.declaration.head) if code[index].text == "const"
        )
        found.setdefault(id(node.file), []).append(code[at].start)
    return found


def _with_constants(text: str, original: str, offsets: Iterable[int]) -> str:
    """Returns the text with `constexpr` for some `const`: NVRTC computes no other floating-point variable when it compiles.

    Args:
        text: the original with blanks.
        original: the user's text.
        offsets: of each `const` in the original, the last one first.
    """
    lines = text.split("\n")
    for offset in offsets:
        line, column = original.count("\n", 0, offset), offset - original.rfind("\n", 0, offset) - 1
        if lines[line].startswith("const ", column):
            lines[line] = f"{lines[line][:column]}constexpr{lines[line][column + 5 :]}"
    return "\n".join(lines)


def _declared(nodes: Iterable[DeclarationNode]) -> set[str]:
    """Returns all names that these nodes declare."""
    return {name for node in nodes for name in node.declaration.names}


def _words(node: DeclarationNode) -> Iterator[str]:
    """Yields the words of a node's kept text, including those of its pragmas: `#pragma unroll kSteps`."""
    code = node.file.parsed.code
    at = node.declaration.start
    for start, stop in (*sorted(node.cut), (node.declaration.stop, node.declaration.stop)):
        yield from [token.text for token in code[at:start] if token.kind == "word"]
        at = max(at, stop)
    if node.file.parsed.pragmas and node.declaration.start < node.declaration.stop:
        first, last = code[node.declaration.start].start, code[node.declaration.stop - 1].end
        for line in node.file.parsed.pragmas:
            if first < line[0].start < last:
                yield from (token.text for token in line[2:] if token.kind == "word")
