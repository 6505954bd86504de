"""PTX and SASS of a compiled kernel, instruction by instruction, each with its source line.

SASS is read from `nvdisasm`. One run gives source lines with inlining and the PTX line of each instruction; a second
run gives live registers, since that option drops line information. The two are joined by address.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from kernelmate.compiler.diagnostics import UNIT_NAME
from kernelmate.compiler.disassembly import class_of, disassemble, disassembling, mix_of
from kernelmate.errors import CompilerUnavailable
from kernelmate.records import (
    Compiled,
    Control,
    Listing,
    Live,
    PtxInstruction,
    SassInstruction,
    SourcePlace,
    Unit,
)

_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^,\s]+),")
_LABEL = re.compile(r"^([.$\w]+):\s*(?://.*)?$")
_TYPE = re.compile(r"^\s*\.type\s+([^\s,]+),@function")
_ENTRY = re.compile(r'^\s*\.other\s+([^\s,]+),@"[^"]*STO_CUDA_ENTRY')
_CODE = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*(?:/\* 0x[0-9a-f]{16} \*/\s*)?(?://\s*\|(.*)\|\s*)?$")
_UPPER = re.compile(r"^\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
"""Upper half of an instruction's 128-bit encoding, which is on a separate line below the instruction."""

_CONTROL_FROM = 41
"""First bit of the control information in the upper half: 4 bits of stall count, 1 yield flag (0 yields), 3 bits each
of write and read scoreboard (7 for none), 6 bits of awaited scoreboards, 4 of reuse. Z. Jia et al., "Dissecting the
NVIDIA Volta GPU Architecture via Microbenchmarking" (arXiv:1804.06826), section 2.1; unchanged up to sm_120.
"""

_FILE = re.compile(r'^\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)(?: inlined at "[^"]*", line \d+)?')
_PTX_FILE = ".nv_debug_ptx_txt"
_PREDICATED = re.compile(r"(?:@!?\w+\s+)?([A-Z][A-Z0-9_.]*)")
_TARGET = re.compile(r"`\(([^()`]*)\)")
_INTERNAL = "$__internal_"
"""Prefix of functions that ptxas adds (such as slow paths of division), which have no source lines."""


def read_listing(compiled: Compiled, unit: Unit) -> Listing:
    """Returns a kernel's PTX and SASS.

    Args:
        compiled: the kernel.
        unit: the text that it was compiled from.

    Raises:
        CompilerUnavailable: there is no `nvdisasm`, or it failed on this code.
        ValueError: the kernel was not compiled.
    """
    text = disassemble(
        compiled, "--print-line-info-inline", "--print-line-info-ptx", "--print-instruction-encoding"
    )  # fmt: skip
    places = _Places(unit, dict(compiled.headers))
    live = _live(compiled)
    sass = tuple(_ListingReader(compiled.lowered_name, places, live).read(text))
    resources = compiled.resources
    assert resources is not None, "what compiled has resources"
    return Listing(
        kernel=compiled.name,
        instance=compiled.instance,
        files=(unit.path, *dict.fromkeys(path for _, path in compiled.headers)),
        symbol=compiled.lowered_name,
        arch=compiled.arch,
        compiler=compiled.compiler,
        binary=compiled.binary or "",
        registers=resources.registers,
        spill_bytes=resources.spill_bytes,
        code_bytes=resources.code_bytes,
        mix=mix_of(instruction.opcode for instruction in sass),
        ptx=tuple(_ptx(compiled.ptx, places)),
        sass=sass,
    )


def reading_code(compiled: Compiled) -> Callable[[], tuple[SassInstruction, ...]]:
    """Starts reading a kernel's SASS with PTX lines in the background; the returned function waits for the result.

    The result has no source lines and no live registers.

    Raises:
        CompilerUnavailable: there is no `nvdisasm`, or it failed on this code, which the returned function may raise as
        well.
        ValueError: the kernel was not compiled.
    """
    text = disassembling(compiled, "--print-line-info-ptx")
    return lambda: tuple(_ListingReader(compiled.lowered_name, None, {}).read(text()))


@dataclass(frozen=True, slots=True)
class _Places:
    """Converts the compiler's source positions to positions in the user's files."""

    unit: Unit
    headers: Mapping[str, str]

    def of(self, file: str, line: int) -> SourcePlace | None:
        """Returns the position in the user's file; None for line 0, which means that there is no line."""
        if line <= 0:
            return None
        if self._is(file, UNIT_NAME):
            return SourcePlace(self.unit.path, self.unit.locate(line, None)[0])
        name = next((name for name in self.headers if self._is(file, name)), None)
        return SourcePlace(file if name is None else self.headers[name], line)

    @staticmethod
    def _is(file: str, name: str) -> bool:
        return file == name or file.endswith(f"/{name}")


# --------------------------------------------------------------------------------------------------------- SASS


class _ListingReader:
    """Parses one disassembly: the kernel's section first, then those of functions that it calls."""

    def __init__(self, symbol: str, places: _Places | None, live: Mapping[tuple[str, int], Live]) -> None:
        self._symbol = symbol
        self._places = places
        self._live = live
        self._section = ""
        self._forget()

    def read(self, text: str) -> Iterator[SassInstruction]:
        """Yields the instructions by address, without the padding after each section."""
        sections: dict[str, list[SassInstruction]] = {}
        functions: set[str] = set()
        entries: set[str] = set()
        for line in text.splitlines():
            code = _CODE.match(line)
            if code is not None:
                sections.setdefault(self._section, []).append(self._instruction(code))
            elif (upper := _UPPER.match(line)) is not None:
                code_so_far = sections[self._section]
                code_so_far[-1] = replace(code_so_far[-1], control=_control(int(upper[1], 16)))
            elif (named := _TYPE.match(line)) is not None:
                functions.add(named[1])
            elif (entry := _ENTRY.match(line)) is not None:
                entries.add(entry[1])
            else:
                self._take(line, functions)
        others = (name for name in sections if name != self._symbol and name not in entries)
        for name in (self._symbol, *others):
            yield from _without_padding(sections.get(name, []))

    def _forget(self) -> None:
        """Resets line information, which does not extend across functions."""
        self._place: SourcePlace | None = None
        self._inlined: tuple[SourcePlace, ...] = ()
        self._ptx_line: int | None = None
        self._labels: list[str] = []
        self._function = self._section
        self._in_block = False

    def _take(self, line: str, functions: set[str]) -> None:
        place = _FILE.match(line)
        if place is not None:
            self._take_place(place)
        elif (section := _SECTION.match(line)) is not None:
            self._section = section[1]
            self._forget()
        elif (label := _LABEL.match(line)) is not None:
            name = label[1]
            if name in functions:
                self._function = name
                if name.startswith(_INTERNAL):
                    self._place, self._inlined, self._ptx_line = None, (), None
            elif not name.startswith(".text."):
                self._labels.append(name)

    def _take_place(self, match: re.Match[str]) -> None:
        """Parses the directives before an instruction: a line, then its inlining call sites, then the PTX line."""
        line = int(match["line"])
        if match["file"] == _PTX_FILE:
            self._ptx_line = line or None
            return
        place = None if self._places is None else self._places.of(match["file"], line)
        if not self._in_block:
            self._place, self._inlined, self._in_block = place, (), True
        elif place is not None:
            self._inlined = (*self._inlined, place)

    def _instruction(self, match: re.Match[str]) -> SassInstruction:
        text = _TARGET.sub(r"\1", " ".join(match[2].split()))
        opcode = _PREDICATED.match(text)
        address = int(match[1], 16)
        labels, self._labels, self._in_block = tuple(self._labels), [], False
        return SassInstruction(
            address=address,
            text=text,
            opcode=opcode[1] if opcode else "",
            kind=class_of(opcode[1]) if opcode else "other",
            function=self._function,
            labels=labels,
            place=self._place,
            inlined_at=self._inlined,
            ptx_line=self._ptx_line,
            live=self._live.get((self._section, address)),
        )


def _control(upper: int) -> Control:
    """Decodes the control information in an instruction's upper half."""
    bits = upper >> _CONTROL_FROM
    sets, reads, waits = bits >> 5 & 7, bits >> 8 & 7, bits >> 11 & 63
    return Control(
        stall=bits & 15,
        yields=not bits >> 4 & 1,
        sets=None if sets == 7 else sets,
        reads=None if reads == 7 else reads,
        waits=tuple(board for board in range(6) if waits >> board & 1),
    )


def _without_padding(code: list[SassInstruction]) -> list[SassInstruction]:
    """Removes padding: a branch to itself and the `NOP` instructions after it."""
    end = len(code)
    while end and code[end - 1].opcode == "NOP":
        end -= 1
    if end < len(code) and end and code[end - 1].text in {f"BRA {label}" for label in code[end - 1].labels}:
        end -= 1
    return code[:end]


def _live(compiled: Compiled) -> Mapping[tuple[str, int], Live]:
    """Returns live register counts by section and address; empty if nvdisasm's analysis fails."""
    try:
        text = disassemble(compiled, "--life-range-mode", "count")
    except CompilerUnavailable:
        return {}
    found: dict[tuple[str, int], Live] = {}
    section, heads = "", ["GPR", "PRED", "UGPR"]
    for line in text.splitlines():
        named = _SECTION.match(line)
        if named is not None:
            section = named[1]
        elif "| GPR" in line:
            heads = [cell.strip() for cell in line.rpartition("//")[2].strip(" |").split("|")]
        elif (code := _CODE.match(line)) is not None and code[3] is not None:
            cells = dict(zip(heads, (cell.strip() for cell in code[3].split("|")), strict=False))
            counts = {head: int(cell) if cell.isdigit() else 0 for head, cell in cells.items()}
            found[section, int(code[1], 16)] = Live(
                counts.get("GPR", 0), counts.get("PRED", 0) + counts.get("UPRED", 0), counts.get("UGPR", 0)
            )
    return found


# ---------------------------------------------------------------------------------------------------------- PTX

_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_PTX_FILES = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_MOST_CALLS = 64


def _ptx(text: str, places: _Places) -> Iterator[PtxInstruction]:
    """Yields the instructions of a PTX text, without directives, labels and braces."""
    files = dict(_PTX_FILES.findall(text))
    callers: dict[tuple[str, ...], tuple[str, ...]] = {}
    at: tuple[str, ...] | None = None
    begun: tuple[int, list[str]] | None = None
    depth = 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("//")[0].strip()
        if line.startswith(".loc"):
            match = _LOC.match(line)
            at = None if match is None else match.groups()[:3]
            if match is not None and match[4] is not None and at is not None:
                callers[at] = match.groups()[3:]
            continue
        depth += line.count("{") - line.count("}") if not _is_code(line) else 0
        if begun is None and (depth <= 0 or not _is_code(line)):
            continue
        first, words = begun or (number, [])
        words.append(line)
        if not line.endswith(";"):
            begun = first, words
            continue
        begun = None
        chain = _chain(at, callers)
        found = [place for file, row, _ in chain if (place := places.of(files.get(file, ""), int(row))) is not None]
        code = " ".join(" ".join(words).rstrip(";").split())
        yield PtxInstruction(first, code, found[0] if found else None, tuple(found[1:]))


def _is_code(line: str) -> bool:
    """Returns True if the line starts an instruction, possibly after a predicate."""
    return bool(line) and (line[0].isalpha() or line[0] == "@") and not line.endswith(":")


def _chain(at: tuple[str, ...] | None, callers: Mapping[tuple[str, ...], tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Returns a source position, followed by its inlining call sites from the innermost outwards."""
    chain: list[tuple[str, ...]] = []
    while at is not None and at not in chain and len(chain) < _MOST_CALLS:
        chain.append(at)
        at = callers.get(at)
    return chain
