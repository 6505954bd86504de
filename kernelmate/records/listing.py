"""A kernel's code as the assembler takes it and as the GPU runs it: PTX and SASS, each instruction with its source line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A line of one of the user's files, or of a header."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Live:
    """Registers that hold a value still needed, at one instruction: general ones, predicates, and uniform ones."""

    general: int
    predicate: int
    uniform: int


@dataclass(frozen=True, slots=True)
class Control:
    """Scheduling information of one instruction, set by the assembler.

    Six scoreboards let a warp wait for results whose time is not known beforehand: an instruction sets one, and those that
    need its result wait for it.

    Attributes:
        stall: clocks until the warp may issue its next instruction.
        yields: another warp should go first.
        sets: the scoreboard that is set until the result is written; reads: until the sources have been read.
        waits: scoreboards that must be clear before this instruction goes.
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
        line: of the PTX text.
        text: as it stands there, on one line, without the semicolon.
        place: where it was written; None where the compiler says nothing.
        inlined_at: where that function was inlined, the innermost call first.
    """

    line: int
    text: str
    place: SourcePlace | None
    inlined_at: tuple[SourcePlace, ...] = ()


@dataclass(frozen=True, slots=True)
class SassInstruction:
    """One instruction of the GPU.

    Attributes:
        address: bytes from the start of its function's section.
        text: predicate, opcode and operands: `@!P0 BRA .L_x_2`.
        opcode: with its modifiers: `LDG.E.128`. kind: the class that it belongs to: `global_load`.
        function: the symbol of the function that it is part of.
        labels: that stand before it.
        place: where it was written; None where the compiler says nothing.
        inlined_at: where that function was inlined, the innermost call first.
        ptx_line: the line of the PTX text that it was made from.
        live: registers in use when it runs; None where nvdisasm could not count them.
        control: what the assembler tells the scheduler; None where the encoding is not known.
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
class Listing:
    """One kernel (one instance of it) as PTX and SASS.

    Attributes:
        files: the user's: the one that holds the kernel first, then headers of the project. symbol: its name in PTX and SASS.
        registers: that the kernel is given per thread; the most that are live at once may be fewer.
        spill_bytes: per thread; None where the compiler did not say.
        mix: SASS instructions by class, each counted once however often it runs.
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
    mix: Mapping[str, int]
    ptx: tuple[PtxInstruction, ...]
    sass: tuple[SassInstruction, ...]

    @property
    def peak(self) -> int | None:
        """The most general registers that are live at one instruction; None where that was not counted."""
        return max((one.live.general for one in self.sass if one.live is not None), default=None)
