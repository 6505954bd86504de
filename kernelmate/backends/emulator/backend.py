"""The emulator as a backend: runs a kernel's PTX on the CPU."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import replace

import numpy as np

from kernelmate.backends.base import (
    ArrayArgument,
    CacheSample,
    EmulationTooLarge,
    Run,
    RunResult,
    UnsupportedInstruction,
)
from kernelmate.backends.emulator.attribution import with_l1
from kernelmate.backends.emulator.barrier_exits import with_detours
from kernelmate.backends.emulator.bound import WorthCompiling
from kernelmate.backends.emulator.caches import estimated
from kernelmate.backends.emulator.contention import with_contended
from kernelmate.backends.emulator.decode import DecodedKernel, decode
from kernelmate.backends.emulator.execution import NativeCodeChoice
from kernelmate.backends.emulator.facts import facts_of
from kernelmate.backends.emulator.jit.access_stamps import Suspicion
from kernelmate.backends.emulator.jit.native_choice import MODES, Mode, NativeCodeDecision
from kernelmate.backends.emulator.launch import Launch, WaitsForLater
from kernelmate.backends.emulator.link import LinkedKernel, LinkRefused, link
from kernelmate.backends.emulator.liveness import unused_reads
from kernelmate.backends.emulator.operands import PtxError
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.ptx import parse_program
from kernelmate.backends.emulator.sampling import sample_l1
from kernelmate.backends.emulator.sass.mix import Sass
from kernelmate.backends.emulator.types import Array
from kernelmate.backends.processes import available_memory
from kernelmate.compiler import cluster_refusal, required_cluster, sm_limits
from kernelmate.records import BackendName, Compiled, Finding, FindingCode, Target

_PER_BYTE = 1.25
"""Bytes of memory per byte of an array: its copy, and a written mark for each four bytes."""
_FIXED = 512 << 20
"""Maximum bytes of registers, shadows, counters and native code, besides the arrays."""


def needed_bytes(run: Run) -> int:
    """Returns the bytes that a launch takes beyond its arguments."""
    arrays = sum(argument.data.nbytes for argument in run.arguments if isinstance(argument, ArrayArgument))
    return int(_PER_BYTE * arrays) + min(_FIXED, (16 << 20) + 16 * arrays)


def check_memory(run: Run) -> None:
    """Refuses a launch for which memory does not suffice.

    Raises:
        EmulationTooLarge: it needs more memory than is available.
    """
    needed, left = needed_bytes(run), available_memory()
    if left is not None and needed > left.size:
        raise EmulationTooLarge(
            f"the launch needs about {needed >> 20} MiB of memory to be emulated, and {left.size >> 20} MiB {left.limit}.",
            left.size,
            left.advice,
        )


def out_of_memory(run: Run) -> EmulationTooLarge:
    """Returns the error for a launch that ran out of memory anyway."""
    needed = needed_bytes(run)
    return EmulationTooLarge(
        f"the launch needs about {needed >> 20} MiB of memory to be emulated, more than could be allocated.",
        needed,
        "raise memory_limit_mb in the settings",
    )


class EmulatorBackend:
    """Runs kernels without a GPU.

    Args:
        hasty: finish each launch as soon as possible, since other processes make the following ones.
        jit: compilation to native code: `auto` if it pays, `always`, `never`; the default is the environment variable
            `KERNELMATE_EMULATOR_JIT`.
    """

    name: BackendName = "emulator"
    poisoned = False

    def __init__(self, jit: Mode | None = None, *, hasty: bool = False) -> None:
        self._jit, self._hasty = jit, hasty

    def load(self, compiled: Compiled, target: Target) -> EmulatedModule:
        """Decodes a compiled kernel.

        Raises:
            UnsupportedInstruction: it contains an instruction that the emulator does not support; the finding names it
            and its line.
        """
        try:
            return EmulatedModule(
                compiled, target, decoded_of(compiled.ptx, compiled.lowered_name), self._jit, hasty=self._hasty
            )
        except LinkRefused as refused:
            raise UnsupportedInstruction(_refusal(str(refused), refused.position)) from None
        except PtxError as error:
            raise UnsupportedInstruction(_refusal(str(error), error.position)) from None


@functools.lru_cache(maxsize=16)
def decoded_of(ptx: str, name: str) -> DecodedKernel:
    """Returns a kernel's operations, cached: they are immutable, and a search loads its baseline for each candidate.

    Raises:
        LinkRefused: the emulator does not support an instruction.
        PtxError: the text is not valid PTX.
    """
    decoded = with_detours(decode(link(parse_program(ptx, name), name)))
    return with_contended(replace(decoded, unused=unused_reads(decoded.steps)))


def _refusal(message: str, position: Position | None) -> Finding:
    return Finding(
        FindingCode.UNSUPPORTED_INSTRUCTION,
        "error",
        message,
        line=position.line if position else None,
        column=position.column if position else None,
    )


class EmulatedModule:
    """One decoded kernel. Launches start from fresh memory but for `__device__` variables, which a loaded module keeps."""

    def __init__(
        self,
        compiled: Compiled,
        target: Target,
        decoded: DecodedKernel,
        jit: Mode | None = None,
        *,
        hasty: bool = False,
    ) -> None:
        self.compiled = compiled
        self._jit = jit
        self.target = target
        self.decoded = decoded
        self._variables: dict[str, Array] = {}
        self._facts = facts_of(decoded)
        self._cluster = required_cluster(compiled)
        self._sass = Sass(compiled, decoded, target.capability)
        text = f"{compiled.lowered_name}\n{compiled.ptx}"
        self._chooser = NativeCodeDecision(decoded, self._facts.single, self._facts.addresses, text, hasty=hasty)

    def run(self, run: Run) -> RunResult:
        """Makes one launch.

        Raises:
            EmulationTooLarge: the launch takes more than `run.total_limit` instructions, or too much memory.
        """
        refused = launch_failure(self.decoded.linked, self.target, run, self._cluster)
        if refused is not None:
            return RunResult(
                {item.name: item.data.copy() for item in run.arguments if isinstance(item, ArrayArgument)}, (refused,)
            )
        check_memory(run)
        if run.shape.cluster is None and self._cluster is not None:
            run = replace(run, shape=replace(run.shape, cluster=self._cluster))
        with np.errstate(all="ignore"):
            mode = self._mode(run)
            before = dict(self._variables)
            try:
                if mode == "auto" and run.native:
                    result = replace(self._launch_anew(run, "always"), native=True)
                else:
                    result = self._launch_anew(run, mode)
                if not run.count:
                    return result
                stopped = any(finding.severity == "error" for finding in result.findings)
                return (
                    result
                    if stopped
                    else self._with_caches(replace(result, l1=self._l1(run, before, result.ptx_instructions or 0)))
                )
            except MemoryError:
                raise out_of_memory(run) from None

    def _mode(self, run: Run) -> Mode:
        """Returns the use of native code, which knows neither clusters nor environments.

        Threads that wait for each other depend on the scheduler's step limit.
        """
        clusters = self._facts.clusters or math.prod(run.shape.cluster or ()) > 1
        if self._facts.waits or clusters or run.environment is not None:
            return "never"
        return self._jit or jit_of_environment()

    def _with_caches(self, result: RunResult) -> RunResult:
        assert result.counters is not None
        found = with_l1(result, self.decoded)
        counters = replace(result.counters, caches=estimated(self.target, found))
        resources = self.compiled.resources
        if resources is None or resources.spill_bytes != 0:
            counters = replace(counters, local_sectors=None)  # spills are not in PTX
        return replace(found, counters=counters)

    def _l1(self, run: Run, variables: dict[str, Array], taken: int) -> CacheSample | None:
        try:
            return sample_l1(self.compiled, self.decoded, self.target, run, self._facts, variables, taken)
        except EmulationTooLarge:
            return None

    def _launch_anew(self, run: Run, mode: Mode) -> RunResult:
        """Launches, and restarts in another mode if the launch shows that it needs one.

        A launch never changes its arguments.
        """
        try:
            return self._launch(run, mode)
        except WorthCompiling:
            return replace(self._launch_anew(run, "always"), native=True)
        except Suspicion:
            self._chooser.suspicions += 1
            return self._launch(run, "never")
        except WaitsForLater:
            return self._launch(run, mode, together=True)

    def _launch(self, run: Run, mode: Mode, *, together: bool = False) -> RunResult:
        launch = Launch(self.decoded, self.target, run, self._facts, self._variables, together=together)
        if run.count and run.executed:
            self._sass.begin()
        result = launch.go(NativeCodeChoice(self._chooser, mode, settled=run.native is False))
        if (
            result.counters is None
            or not run.executed
            or any(finding.severity == "error" for finding in result.findings)
        ):
            return result
        mix, unknown = self._sass.mix(
            run.shape, launch.machine.parameters.tobytes(), result.block_counts, launch.machine.unusual or set()
        )
        counters = replace(
            result.counters,
            thread_instructions=None if mix is None else mix.threads,
            instruction_mix=mix,
            instruction_mix_unknown=unknown,
        )
        return replace(result, counters=counters)


def jit_of_environment() -> Mode:
    """Returns the value of `KERNELMATE_EMULATOR_JIT`, else `auto`."""
    wanted = os.environ.get("KERNELMATE_EMULATOR_JIT", "auto")
    return next((mode for mode in MODES if mode == wanted), "auto")


def launch_failure(
    linked: LinkedKernel, target: Target, run: Run, cluster: tuple[int, int, int] | None = None
) -> Finding | None:
    """Returns the finding for a launch that no GPU of the target's architecture accepts.

    Args:
        linked: the kernel.
        target: the GPU.
        run: the launch.
        cluster: the shape of clusters that the kernel is compiled for.
    """
    shape, limits = run.shape, sm_limits(target.capability)
    shared = linked.shared_bytes + shape.shared_bytes
    reason = None
    if min(*shape.grid, *shape.block) < 1:
        reason = f"grid {shape.grid} and block {shape.block} must be at least 1 in every dimension"
    elif shape.threads > limits.threads_per_block or shape.block[2] > 64:
        reason = f"block {shape.block} is over the {limits.threads_per_block} threads (64 in z) that a block may have"
    elif shape.grid[0] >= 1 << 31 or max(shape.grid[1:]) >= 1 << 16:
        reason = f"grid {shape.grid} is over 2147483647 x 65535 x 65535 blocks"
    elif shared > limits.shared_per_block_optin:
        reason = f"{shared} bytes of shared memory are over the {limits.shared_per_block_optin} that a block may have"
    else:
        reason = cluster_refusal(target, shape, cluster)
    return (
        Finding(FindingCode.LAUNCH_FAILURE, "error", f"the launch is not possible on {target.arch}: {reason}")
        if reason
        else None
    )
