"""Classification of declarations: always kept for the device, kept if kept code names them, or never kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kernelmate.compiler.declarations import SPACES, Declaration, ParsedDeclarations, parse
from kernelmate.compiler.prelude import STD_NAMES, words_of
from kernelmate.compiler.preprocessor import Macro
from kernelmate.compiler.project import File, Files
from kernelmate.compiler.standins import is_torch, torch_names
from kernelmate.source.host_text import host_text
from kernelmate.source.tokens import Token

_HOST_ROOTS = words_of(
    "thrust boost torch at c10 pybind11 chrono filesystem this_thread cv nlohmann fmt spdlog Eigen testing benchmark "
    "absl tbb py ios ios_base"
)
_TORCH_ROOTS = frozenset({"torch", "at", "c10"})
_HOST_WORD = re.compile(
    r"FILE|cu(?:blas|sparse|solver|dnn|fft|rand(?=Gen))\w*|nccl\w*|MPI_\w+|pthread_\w+|cudaDeviceProp"
)
_CONSTANT = frozenset({"const", "constexpr", "constinit", "concept"})

Rule = Literal["keep", "if-named", "drop"]


@dataclass(slots=True)
class DeclarationNode:
    """A declaration at namespace scope: its rule, and the token ranges in it that are always blanked."""

    file: File
    declaration: Declaration
    rule: Rule
    cut: list[tuple[int, int]] = field(default_factory=list)
    relaxed: bool = False
    """True if it has unannotated functions that are kept because they are `constexpr`."""


class Rules:
    """Treatment of each declaration of a compilation's texts.

    Attributes:
        nodes: every declaration at namespace scope, with its rule.
        host_functions: names of functions that are never kept.
    """

    def __init__(self, files: Files, kernel: str | None, *, place: int | None = None, everything: bool) -> None:
        self.nodes: list[DeclarationNode] = []
        self.host_functions: set[str] = set()
        self._files = files
        self._kernel = kernel.rpartition("::")[2] if kernel is not None else None
        self._place = place
        self._device_macros = _expanding_to(files.macros, SPACES)
        self._global_macros = _expanding_to(files.macros, {"__global__"})
        self._host_names = _host_macros(files.macros)
        self._namespaces: set[str] = {"std", "cooperative_groups", "nvcuda", "cuda", "cub"}
        self._annotated: set[tuple[str, ...]] = set()
        if any(is_torch(include.name) for file in files.files for include, _ in file.includes):
            self._namespaces |= _TORCH_ROOTS
        types: dict[str, list[tuple[File, Declaration]]] = {}
        for file in files.files:
            for declaration in nested_declarations(file.parsed.declarations):
                if declaration.kind == "function" and self._is_annotated(file, declaration):
                    self._annotated.add(_prototype(file.parsed, declaration))
                if declaration.kind == "namespace":
                    self._namespaces.update(declaration.names)
                if declaration.kind == "alias" and file.parsed.code[declaration.start].text == "namespace":
                    self._namespaces.update(declaration.names)
                elif declaration.kind in ("alias", "type"):
                    for name in declaration.names:
                        types.setdefault(name, []).append((file, declaration))
        self._add_host_aliases(types)
        self._members: dict[str, tuple[set[str], set[str]]] = {}
        for file in files.files:
            self._add(file, file.parsed.declarations, everything=everything)
        self._cut_usings()

    def _add_host_aliases(self, types: dict[str, list[tuple[File, Declaration]]]) -> None:
        """Adds names that denote a host type in every declaration; not `type`, which many class templates define."""
        found = True
        while found:
            more = {
                name
                for name, declared in types.items()
                if name not in self._host_names
                and all(one.kind == "alias" and self._is_host(file, one.start, one.stop) for file, one in declared)
            }
            self._host_names |= more
            found = bool(more)

    def _add(self, file: File, declarations: Iterable[Declaration], *, everything: bool) -> None:
        for declaration in declarations:
            if declaration.kind in ("namespace", "linkage"):
                self._add(file, declaration.members, everything=everything)
                continue
            if declaration.kind == "macro":
                declaration = replace(declaration, names=self._names_by_macro(file, declaration))
            node = DeclarationNode(file, declaration, "keep")
            if not everything:
                node.rule = self._rule(node)
                if node.rule == "drop" and declaration.kind == "function":
                    self.host_functions.update(declaration.names)
            self.nodes.append(node)

    def _rule(self, node: DeclarationNode) -> Rule:
        file, declaration = node.file, node.declaration
        if declaration.kind == "function":
            return self._function_rule(node)
        if declaration.kind == "variable":
            if self._is_annotated(file, declaration):
                return "keep"
            constant = _CONSTANT & texts_of(file, declaration.start, declaration.head)
            return "if-named" if constant and not self._is_host(file, declaration.start, declaration.stop) else "drop"
        if declaration.kind == "type":
            return self._type_rule(node)
        if declaration.kind == "using":
            return "keep" if self._known_namespace(file, declaration) else "drop"
        if declaration.kind == "macro":
            if file.parsed.code[declaration.start].text in self._device_macros:
                return "keep"
            return "if-named" if declaration.names else "drop"
        if declaration.kind in ("alias", "assert"):
            return "drop" if self._is_host(file, declaration.start, declaration.stop) else "if-named"
        return "drop" if file.parsed.code[declaration.start].text == "catch" else "keep"

    def _names_by_macro(self, file: File, declaration: Declaration) -> tuple[str, ...]:
        """Returns the names that a macro's call declares if they are types, aliases and constants; otherwise none."""
        name = file.parsed.code[declaration.start].text
        if name in self._device_macros:
            return ()
        defining = next((one for one in self._files.files if any(macro.name == name for macro in one.macros)), None)
        macro = host_text(defining.text).macros.get(name) if defining is not None else None
        if macro is None:
            return ()
        code = file.parsed.code
        call = host_text(file.text[code[declaration.start].start : code[declaration.stop - 1].end])
        parsed = parse(macro.expanded(call.arguments(1)))
        declared = [one for one in nested_declarations(parsed.declarations) if one.kind not in ("namespace", "linkage")]
        for one in declared:
            constant = one.kind == "variable" and _CONSTANT & {
                token.text for token in parsed.code[one.start : one.head]
            }
            if one.kind not in ("type", "alias", "assert") and not constant:
                return ()
        return tuple(name for one in declared for name in one.names)

    def _function_rule(self, node: DeclarationNode) -> Rule:
        file, declaration = node.file, node.declaration
        code = file.parsed.code
        if code[declaration.start].text == "template" and code[declaration.start + 1].text != "<":
            # An explicit instantiation is dropped, because instances are requested by name.
            return "drop"
        head = texts_of(file, declaration.start, declaration.head)
        if self._is_annotated(file, declaration):
            if head & ({"__global__"} | self._global_macros) and self._kernel is not None and declaration.names:
                return self._kernel_rule(file, declaration) if self._kernel in declaration.names else "if-named"
            return "keep"
        prototype = _prototype(file.parsed, declaration)
        if prototype and prototype in self._annotated and "__host__" not in head:
            return "keep"
        if head & {"constexpr", "consteval"} and not self._is_host(file, declaration.start, declaration.stop):
            node.relaxed = True
            return "if-named"
        return "drop"

    def _kernel_rule(self, file: File, declaration: Declaration) -> Rule:
        """Returns the rule for a kernel; other definitions of the requested kernel's name are dropped.

        These are overloads, and definitions in other namespaces or preprocessor branches.
        """
        code = file.parsed.code
        if self._place is None or file.name is not None:
            return "keep"
        start, end = code[declaration.start].start, code[declaration.stop - 1].end
        words = [token.text for token in code[declaration.start : declaration.start + 3]]
        if start <= self._place < end or words == ["template", "<", ">"]:
            return "keep"
        return "drop" if declaration.body is not None else "keep"

    def _type_rule(self, node: DeclarationNode) -> Rule:
        file, declaration = node.file, node.declaration
        code = file.parsed.code
        if code[declaration.start].text == "template" and code[declaration.start + 1].text != "<":
            return "drop"
        node.relaxed = self._prune(file, declaration, node.cut)
        if declaration.body is None:
            return "if-named"
        brace, closer = declaration.body
        clause = [index for index in range(declaration.start, brace) if code[index].text == ":"]
        host_base = bool(clause) and self._is_host(file, clause[0], brace)
        if host_base:
            node.cut.append((clause[0], brace))
        if "typedef" not in texts_of(file, declaration.start, brace) and not self._is_annotated(file, declaration):
            last = declaration.stop - (code[declaration.stop - 1].text == ";")
            node.cut.append((closer + 1, last))
        members = [member for member in nested_declarations(declaration.members) if member.kind == "function"]
        device = any(self._is_annotated(file, member) for member in members)
        clean = not host_base and not any(self._is_host(file, m.start, m.head) for m in members)
        return "keep" if device and clean else "if-named"

    def _cut_usings(self) -> None:
        """Cuts each `using Base::member;` in a type whose member is a function that is cut from its class.

        A class that is known only by an alias or as a parameter is assumed to have the members of all classes.
        """
        everywhere = tuple(set().union(*some) for some in zip(*self._members.values(), strict=True)) or (set(), set())
        for node in self.nodes:
            code = node.file.parsed.code
            for member in nested_declarations((node.declaration,)) if node.declaration.kind == "type" else ():
                words = [token.text for token in code[member.start : member.stop]]
                if member.kind != "alias" or words[0] != "using" or "=" in words or words[-3:-2] != ["::"]:
                    continue
                kept, gone = self._members.get(_class_before(words[:-3]), everywhere)
                if words[-2] in gone - kept:
                    node.cut.append((member.start, member.stop))

    def _prune(self, file: File, declaration: Declaration, cut: list[tuple[int, int]]) -> bool:
        """Adds the host members of a type to `cut`; returns True if unannotated `constexpr` functions stay in it."""
        before = len(cut)
        relaxed = self._prune_members(file, declaration, cut)
        starts = {start for start, _ in cut[before:]}
        kept, gone = self._members.setdefault("".join(declaration.names[:1]), (set(), set()))
        for member in declaration.members:
            is_gone = member.kind == "function" and member.start in starts
            (gone if is_gone else kept).update(member.names)
        return relaxed

    def _prune_members(self, file: File, declaration: Declaration, cut: list[tuple[int, int]]) -> bool:
        relaxed = False
        code = file.parsed.code
        for member in declaration.members:
            if member.kind == "type":
                relaxed |= self._prune(file, member, cut)
            elif member.kind == "function":
                if self._is_annotated(file, member) or (
                    _is_defaulted(code, member) and "virtual" not in texts_of(file, member.start, member.head)
                ):
                    continue  # NVRTC takes a virtual destructor that is defaulted for a function of the host
                if {"constexpr", "consteval"} & texts_of(file, member.start, member.head) and not self._is_host(
                    file, member.start, member.stop
                ):
                    relaxed = True
                else:
                    cut.append((member.start, member.stop))
            elif member.kind == "macro":
                if code[member.start].text not in self._device_macros:
                    cut.append((member.start, member.stop))
            elif self._is_host_variable(file, member) or (
                member.kind != "other" and self._is_host(file, member.start, member.stop)
            ):
                cut.append((member.start, member.stop))
        return relaxed

    def _is_host_variable(self, file: File, member: Declaration) -> bool:
        """Returns True for a static member that is not a constant: one variable, in the memory of the host."""
        head = texts_of(file, member.start, member.head)
        static = member.kind == "variable" and "static" in head and not head & _CONSTANT
        return static and not self._is_annotated(file, member)

    def _is_annotated(self, file: File, declaration: Declaration) -> bool:
        return not texts_of(file, declaration.start, declaration.head).isdisjoint(SPACES | self._device_macros)

    def _is_host(self, file: File, start: int, stop: int) -> bool:
        """Returns True if these tokens use names that only a host compiler has."""
        code = file.parsed.code
        for index in range(start, min(stop, len(code))):
            token = code[index]
            if token.kind != "word":
                continue
            qualified = index + 2 < len(code) and code[index + 1].text == "::"
            if qualified and token.text == "std" and code[index + 2].text not in STD_NAMES:
                return True
            if qualified and token.text in _TORCH_ROOTS and code[index + 2].text in torch_names():
                continue
            if qualified and token.text in _HOST_ROOTS and (index == 0 or code[index - 1].text != "cuda"):
                return True
            if token.text in self._host_names or _HOST_WORD.fullmatch(token.text):
                return True
        return False

    def _known_namespace(self, file: File, declaration: Declaration) -> bool:
        words = [t.text for t in file.parsed.code[declaration.start + 2 : declaration.stop] if t.kind == "word"]
        if words and words[0] in _TORCH_ROOTS and set(words[1:]) - torch_names() - self._namespaces:
            return False  # a part of torch for host code alone
        return bool(words) and words[0] in self._namespaces and not (words[0] == "std" and len(words) > 1)


def nested_declarations(declarations: Iterable[Declaration]) -> Iterator[Declaration]:
    """Yields declarations, each followed by those inside it."""
    for declaration in declarations:
        yield declaration
        yield from nested_declarations(declaration.members)


def texts_of(file: File, start: int, stop: int) -> set[str]:
    """Returns the texts of a range of tokens."""
    return {token.text for token in file.parsed.code[start:stop]}


def _class_before(words: Sequence[str]) -> str:
    """Returns the name of a class at the end of some tokens, without its template arguments."""
    depth = 0
    for word in reversed(words):
        depth += (word == ">") - (word == "<")
        if depth == 0 and word != "<":
            return word
    return ""


def _is_defaulted(code: Sequence[Token], declaration: Declaration) -> bool:
    after = declaration.head + 1
    return code[min(declaration.head, len(code) - 1)].text == "=" and (
        after < len(code) and code[after].text in ("default", "delete")
    )


def _prototype(parsed: ParsedDeclarations, declaration: Declaration) -> tuple[str, ...]:
    """Returns a function's name and parameters as written, which match an annotated declaration to its definition."""
    words = tuple([token.text for token in parsed.code[declaration.start : declaration.head]])
    name = declaration.names[0] if declaration.names else None
    at = next((i for i, word in enumerate(words[:-1]) if word == name and words[i + 1] in ("(", "<")), len(words))
    return words[at:]


def _host_macros(macros: dict[str, list[Macro]]) -> set[str]:
    """Returns macros that stand for a name that only a host compiler has, such as `#define Plan cufftHandle`."""
    named = {
        word for all_of in macros.values() for macro in all_of for word in macro.words if _HOST_WORD.fullmatch(word)
    }
    return {
        name for name in _expanding_to(macros, named) if not any(macro.function for macro in macros[name])
    }  # fmt: skip


def _expanding_to(macros: dict[str, list[Macro]], words: Iterable[str]) -> frozenset[str]:
    """Returns macros whose expansion contains one of the words, also through other macros."""
    found: set[str] = set()
    wanted = set(words)
    grown = True
    while grown:
        grown = False
        for name, all_of in macros.items():
            if name not in found and any(not wanted.isdisjoint(macro.words) for macro in all_of):
                found.add(name)
                wanted.add(name)
                grown = True
    return frozenset(found)
