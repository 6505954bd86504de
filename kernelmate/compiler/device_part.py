"""The device part of a real file: host code blanked line for line, so that positions stay those of the user's file.

NVRTC compiles device code only. What it cannot take (host functions with their launches, host headers, host globals) is
replaced by spaces, by the syntax tree; whatever is unclear stays, and NVRTC has the last word on it. Unannotated code
that stays is compiled as device code (`--device-as-default-execution-space`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from kernelmate.compiler.prelude import HOST_HEADERS, PRELUDE_HEADERS

_DEVICE = frozenset({"__global__", "__device__", "__constant__", "__managed__"})
_CONTAINERS = frozenset({"translation_unit", "declaration_list", "ERROR"})
_BRANCHES = frozenset({"preproc_if", "preproc_ifdef", "preproc_else", "preproc_elif", "preproc_elifdef"})
_HOST_USE = re.compile(
    rb"\bstd\s*::|\bthrust\s*::|\bcuda(?:Malloc|Free|Memcpy|Memset|Stream|Event|Device|Get|Set|Launch|Error|Host)\w*"
    rb"|\b(?:fprintf|fopen|malloc|exit|getenv|FILE)\b|<<<"
)
_INCLUDE = re.compile(rb'^\s*#\s*include\s*(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)
_DEVICE_MACRO = re.compile(rb"^\s*#\s*define\s+(\w+)\b[^\n]*__(?:device|global)__", re.MULTILINE)
_LAMBDA_ANNOTATION = re.compile(rb"\]\s*((?:__host__\s*|__device__\s*)+)(?=[({])")
"""NVRTC compiles every lambda for the device, and refuses to be told so."""
_MOST_HEADERS = 200


@dataclass(frozen=True, slots=True)
class DevicePart:
    """Device code of a unit, and of the project headers that it includes.

    Attributes:
        text: as long, in lines, as the unit.
        headers: device part of each project header, by the name it is included by.
        paths: the file that each of them came from.
    """

    text: str
    headers: tuple[tuple[str, str], ...] = ()
    paths: tuple[tuple[str, str], ...] = ()


@functools.lru_cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_cuda.language()))


def device_part(text: str, directory: Path, include_paths: tuple[Path, ...] = ()) -> DevicePart:
    """The device part of CUDA text, its project headers looked for in `directory` and then in `include_paths`.

    Reads headers, and executes nothing.
    """
    headers: dict[str, str] = {}
    paths: dict[str, str] = {}
    macros: set[bytes] = set()
    waiting = [(text.encode(), directory)]
    sources: list[tuple[str | None, bytes]] = [(None, waiting[0][0])]
    while waiting and len(headers) < _MOST_HEADERS:
        source, beside = waiting.pop()
        macros.update(_DEVICE_MACRO.findall(source))
        for name, found in _project_headers(source, beside, include_paths):
            if name not in headers:
                content = _read(found)
                headers[name], paths[name] = "", str(found)
                sources.append((name, content))
                waiting.append((content, found.parent))
    words = frozenset(word.encode() for word in _DEVICE) | macros
    own = ""
    for included_as, source in sources:
        blanked = _blanked(source, words, frozenset(headers))
        if included_as is None:
            own = blanked
        else:
            headers[included_as] = blanked
    return DevicePart(own, tuple(headers.items()), tuple(paths.items()))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().replace(b"\r\n", b"\n")
    except OSError:
        return b""


def _project_headers(source: bytes, beside: Path, include_paths: tuple[Path, ...]) -> Iterator[tuple[str, Path]]:
    for quoted, angled in _INCLUDE.findall(source):
        name = (quoted or angled).decode(errors="replace")
        if name in PRELUDE_HEADERS or name in HOST_HEADERS:
            continue
        places = (beside, *include_paths) if quoted else include_paths
        found = next((place / name for place in places if (place / name).is_file()), None)
        if found is not None:
            yield name, found.resolve()


def _blanked(source: bytes, words: frozenset[bytes], headers: frozenset[str]) -> str:
    result = bytearray(source)
    for node in _host_nodes(_parser().parse(source).root_node, source, words, headers):
        for index in range(node.start_byte, node.end_byte):
            if result[index] != 0x0A:
                result[index] = 0x20
    for found in _LAMBDA_ANNOTATION.finditer(bytes(result)):
        result[found.start(1) : found.end(1)] = b" " * len(found[1])
    return result.decode(errors="replace")


def _host_nodes(node: Node, source: bytes, words: frozenset[bytes], headers: frozenset[str]) -> Iterator[Node]:
    for child in node.named_children:
        if child.type == "preproc_include":
            if _is_host_include(_text(child, source), headers):
                yield child
        elif child.type in _BRANCHES or child.type in _CONTAINERS:
            yield from _host_nodes(child, source, words, headers)
        elif child.type in ("namespace_definition", "linkage_specification") and _body(child) is not None:
            if child.type == "namespace_definition" or _body(child).type == "declaration_list":  # type: ignore[union-attr]
                yield from _host_nodes(_body(child), source, words, headers)  # type: ignore[arg-type]
            elif _is_host(child, source, words):
                yield child
        elif _is_host(child, source, words):
            yield child


def _body(node: Node) -> Node | None:
    return node.child_by_field_name("body")


def _text(node: Node, source: bytes) -> bytes:
    return source[node.start_byte : node.end_byte]


def _is_host_include(line: bytes, headers: frozenset[str]) -> bool:
    found = _INCLUDE.match(line)
    if found is None:
        return False
    name = (found[1] or found[2]).decode(errors="replace")
    if name in headers:
        return False
    return name in HOST_HEADERS or name in PRELUDE_HEADERS or name.startswith(("thrust/", "boost/", "gtest/"))


def _is_host(node: Node, source: bytes, words: frozenset[bytes]) -> bool:
    """Whether a declaration is of the host's: unclear ones are not."""
    kind, text = node.type, _text(node, source)
    if kind == "template_declaration":
        inner = [child for child in node.named_children if child.type not in ("template_parameter_list", "comment")]
        return bool(inner) and _is_host(inner[-1], source, words)
    if kind == "linkage_specification":
        inner_node = _body(node)
        return inner_node is not None and _is_host(inner_node, source, words)
    if kind in ("function_definition", "declaration"):
        return _is_host_declaration(node, source, words)
    if kind in ("class_specifier", "struct_specifier"):
        return _HOST_USE.search(text) is not None and not _mentions(text, words)
    if kind in ("using_declaration", "alias_declaration", "type_definition"):
        return re.search(rb"\bstd\b|\bthrust\b", text) is not None
    return kind == "expression_statement" and _HOST_USE.search(text) is not None


def _is_host_declaration(node: Node, source: bytes, words: frozenset[bytes]) -> bool:
    body = _body(node)
    head = source[node.start_byte : body.start_byte if body is not None else node.end_byte]
    if _mentions(head, words):
        return False
    if node.type == "function_definition":
        return not (re.search(rb"\bconstexpr\b", head) and not _HOST_USE.search(_text(node, source)))
    if any(child.type in ("class_specifier", "struct_specifier", "enum_specifier") for child in node.named_children):
        return _HOST_USE.search(head) is not None
    is_constant = re.search(rb"\b(?:const|constexpr)\b", head) is not None and b"(" not in head.split(b"=")[0]
    return not is_constant or _HOST_USE.search(head) is not None


def _mentions(text: bytes, words: frozenset[bytes]) -> bool:
    return any(word in words for word in re.findall(rb"\w+", text))
