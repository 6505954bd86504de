"""Records of the compiler: options, diagnostics, resources, occupancy, targets; PTX and SASS with their source lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "note"]
Limiter = Literal["registers", "shared", "blocks", "threads", "launch"]


INFERRED = "inferred-instance"
"""Code of the note that states the origin of a template instance that no contract lists."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One compiler message, placed in the user's file.

    `code` is the compiler's error number or name; None if it gave none.
    """

    severity: Severity
    message: str
    file: str | None
    line: int | None
    column: int | None
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of a kernel: `registers`, `local_bytes` and `spill_bytes` per thread, shared bytes per block."""

    registers: int
    shared_bytes: int
    dynamic_shared_bytes: int
    local_bytes: int
    spill_bytes: int | None
    max_threads: int
    code_bytes: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Theoretical occupancy: active warps over the most that the target's SM holds.

    `limiter` is one of `registers`, `shared`, `blocks`, `threads`, or `launch` when the block cannot be launched at
    all. `waves` is the grid's number of blocks over the number that the whole GPU holds at once.
    """

    theoretical: float
    limiter: Limiter
    blocks_per_sm: int
    waves: float | None


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options for compiling device code, in addition to a contract's `options`.

    `flags` are in NVRTC's spelling and follow all other options unchanged.
    """

    std: str = "c++17"
    defines: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    fast_math: bool = False
    max_registers: int | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A kernel (one template instance of it) compiled for one target, or the diagnostics of a failed compilation.

    Attributes:
        name: the kernel's name as in the source.
        instance: the template instance, such as `f<float, 4>`, or None.
        lowered_name: the symbol in PTX and CUBIN; empty when compilation failed.
        arch: `sm_90`.
        compiler: `NVRTC 13.0.88 --std=c++17 ...`, version and flags.
        binary: `sha256:` and the CUBIN's hash; None when compilation failed.
        resources: resource usage. `dynamic_shared_bytes` is 0 where the launch decides it, and what the compiler decided for
            a Triton kernel. None when compilation failed.
        headers: the user's headers: the name that the compiler reports for each, and its file.
        rejected: lines of host types that the compiler rejects and that are left out, each with its header's name or None.
        enabled: macros that are defined as 1, since conditions of the project ask for them and nothing defines them.
        scratch_bytes: bytes of global memory that the compiler's own data takes in each block, as maps of tensors that a Triton
            kernel describes.
    """

    name: str
    instance: str | None
    lowered_name: str
    arch: str
    compiler: str
    ok: bool
    diagnostics: tuple[Diagnostic, ...]
    ptx: str = ""
    cubin: bytes = b""
    binary: str | None = None
    resources: Resources | None = None
    headers: tuple[tuple[str, str], ...] = ()
    rejected: tuple[tuple[str | None, int], ...] = ()
    enabled: tuple[str, ...] = ()
    scratch_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """One GPU of the built-in table, for which kernels are compiled, occupancy is computed and times are predicted.

    Attributes:
        arch: `sm_90`.
        capability: (9, 0).
        sms: streaming multiprocessors.
        clock_mhz: boost clock of an SM.
        memory_gbps: DRAM bandwidth, 10^9 bytes/s.
        l2_bytes: L2 size.
        fp32_tflops: peak of FMA lanes outside tensor cores; likewise fp64, fp16 (packed, outside tensor cores).
        tensor_tflops: peak of tensor cores on dense fp16 matrices; 0 if it is not known.
    """

    name: str
    arch: str
    capability: tuple[int, int]
    sms: int
    clock_mhz: int
    memory_bytes: int
    memory_gbps: float
    l2_bytes: int
    fp32_tflops: float
    fp64_tflops: float
    fp16_tflops: float
    source: str
    tensor_tflops: float = 0.0


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
