"""Records of a kernel's PTX and SASS, each instruction with its source line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A line of a user's file or of a header."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Live:
    """Live registers at one instruction: general, predicate and uniform ones."""

    general: int
    predicate: int
    uniform: int


@dataclass(frozen=True, slots=True)
class Control:
    """Scheduling information of one instruction, set by the assembler.

    Six scoreboards let a warp wait for results of variable latency: an instruction sets one, and the instructions that
    need its result wait for it.

    Attributes:
        stall: clock cycles until the warp may issue its next instruction.
        yields: True if the scheduler should prefer another warp.
        sets: the scoreboard held until the result is written.
        reads: the scoreboard held until the sources have been read.
        waits: scoreboards that must be clear before this instruction issues.
    """

    stall: int
    yields: bool
    sets: int | None
    reads: int | None
    waits: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PtxInstruction:
    """One PTX instruction.

    Attributes:
        line: line of the PTX text.
        text: the instruction on one line, without the semicolon.
        place: its source line; None if the compiler gives none.
        inlined_at: call sites through which the code was inlined, innermost first.
    """

    line: int
    text: str
    place: SourcePlace | None
    inlined_at: tuple[SourcePlace, ...] = ()


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """One SASS instruction.

    Attributes:
        address: bytes from the start of its function's section.
        text: predicate, opcode and operands: `@!P0 BRA .L_x_2`.
        opcode: with its modifiers: `LDG.E.128`.
        kind: its class, such as `global_load`.
        function: symbol of the containing function.
        labels: labels in front of it.
        place: its source line; None if the compiler gives none.
        inlined_at: call sites through which the code was inlined, innermost first.
        ptx_line: the PTX line that it was generated from.
        live: live registers at this instruction; None if nvdisasm could not count them.
        control: scheduling information; None if the encoding is unknown.
    """

    address: int
    text: str
    opcode: str
    kind: str
    function: str
    labels: tuple[str, ...]
    place: SourcePlace | None
    inlined_at: tuple[SourcePlace, ...]
    ptx_line: int | None
    live: Live | None
    control: Control | None = None


@dataclass(frozen=True, slots=True)
class CodeTotals:
    """Name and figures of the code of one kernel (one template instance of it).

    Attributes:
        files: the user's files: the kernel's own first, then headers of the project.
        symbol: the kernel's name in PTX and SASS.
        registers: registers allocated per thread; the maximum live at once may be lower.
        spill_bytes: bytes per thread; None if the compiler did not report them.
    """

    kernel: str
    instance: str | None
    files: tuple[str, ...]
    symbol: str
    arch: str
    compiler: str
    binary: str
    registers: int
    spill_bytes: int | None
    code_bytes: int


@dataclass(frozen=True, slots=True)
class Listing(CodeTotals):
    """One kernel (one template instance of it) as PTX and SASS.

    Attributes:
        mix: static number of SASS instructions by class.
    """

    mix: Mapping[str, int]
    ptx: tuple[PtxInstruction, ...]
    sass: tuple[SassInstruction, ...]

    @property
    def peak(self) -> int | None:
        """Returns the maximum of live general registers over all instructions; None if they were not counted."""
        return max((one.live.general for one in self.sass if one.live is not None), default=None)
