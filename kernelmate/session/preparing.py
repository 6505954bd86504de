"""Prepares a version for running: compiles it, evaluates its launch, and checks the launch against the target's limits."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelmate.compiler import (
    cluster_refusal,
    compile_kernel,
    occupancy,
    read_build,
    required_cluster,
    sm_limits,
)
from kernelmate.compiler.built import as_built
from kernelmate.compiler.nvcc import as_nvcc_builds
from kernelmate.compiler.process import COMPILER, CompilerProcess
from kernelmate.compiler.project_build import project_build
from kernelmate.compiler.ptx_text import used_names_of
from kernelmate.compiler.triton import compile_triton, with_launch_facts
from kernelmate.config import Settings
from kernelmate.errors import CompileTimeout, ContractError
from kernelmate.records import (
    Compiled,
    CompileOptions,
    Contract,
    Diagnostic,
    Finding,
    FindingCode,
    Kernel,
    LaunchShape,
    Occupancy,
    Resources,
    Target,
    Version,
)
from kernelmate.records.compiled import INFERRED
from kernelmate.source import find_kernels, launch_shape, size_allowed
from kernelmate.source.blocks import kernel_named
from kernelmate.source.entries import fits
from kernelmate.source.instances import at_instance
from kernelmate.source.template_parameters import InferredInstance, guessed_instances
from kernelmate.source.template_uses import MOST_INSTANCES, inferred_instances


def options_for(settings: Settings, file: Path) -> CompileOptions:
    """Returns the compiler options in force for a file.

    Raises:
        UsageError: the build's commands cannot be read.
    """
    options = settings.compile_options
    build = project_build(file) if settings.build is None else read_build(settings.build, file)
    return options if build is None else _joined(options, build, "std" in settings.model_fields_set)


def _joined(own: CompileOptions, build: CompileOptions, explicit_std: bool) -> CompileOptions:
    """Combines a build's options with the settings': the settings' folders are searched first, their defines come last."""
    return CompileOptions(
        std=own.std if explicit_std else build.std,
        defines=build.defines + own.defines,
        include_paths=own.include_paths + build.include_paths,
        fast_math=own.fast_math or build.fast_math,
        max_registers=own.max_registers if own.max_registers is not None else build.max_registers,
        flags=build.flags + own.flags,
    )


_LONG_S = 15.0
"""Seconds of compiling after which no further instance is inferred."""

NAMES_FILE = "__nv_name_map"
"""The file that NVRTC reports errors in name expressions for."""


@dataclass(frozen=True, slots=True)
class PreparedVersion:
    """One instance of one version, compiled for a target.

    Attributes:
        contract: the contract in force; None if only compilation was requested and none could be inferred.
        launch: the launch at the headline size; None without a contract or a valid launch.
        resources: resources with that launch's dynamic shared bytes.
        findings: errors that prevent running: it does not compile, or cannot be launched.
        stages: of a pipeline, its kernels in the order of their stages.
    """

    kernel: Kernel
    contract: Contract | None
    compiled: Compiled
    launch: LaunchShape | None = None
    resources: Resources | None = None
    occupancy: Occupancy | None = None
    findings: tuple[Finding, ...] = ()
    stages: tuple[PreparedVersion, ...] = ()

    @property
    def version(self) -> Version:
        """Returns the version for the worker."""
        assert self.contract is not None, "only versions with a contract are run"
        stages = tuple(one.version for one in self.stages)
        return Version(self.compiled, self.contract, self.kernel.unit, stages)


@dataclass(frozen=True, slots=True)
class KernelPreparer:
    """Prepares kernels for one target.

    Attributes:
        target: the GPU to compile for, with its launch limits.
        options: compiler options.
        timeout_s: seconds for one compilation.
        cache_dir: folder of compiled code; None for the user's cache folder.
        compiler: the compiler's child process.
        nvcc: use nvcc on the whole file in place of NVRTC.
    """

    target: Target
    options: CompileOptions
    timeout_s: float
    cache_dir: Path | None = None
    compiler: CompilerProcess = COMPILER
    nvcc: bool = False

    def prepare(self, kernel: Kernel, contract: Contract | None, instance: str | None) -> PreparedVersion:
        """Compiles one instance and evaluate its launch, at the sizes that select it.

        Raises:
            CompileTimeout: the compiler did not end.
            EnvironmentFailed: there is no compiler.
        """
        if contract is not None and contract.stages:
            return self._pipeline(kernel, contract)
        contract = at_instance(contract, instance) if contract is not None else None
        compiled = self._compiled(kernel, contract, instance, self.target, ())
        if kernel.unit.language == "triton" and contract is not None:
            contract = with_launch_facts(contract, compiled)
        if compiled.ok and self.nvcc:
            own = contract.options if contract is not None else ()
            compiled = as_nvcc_builds(
                kernel, compiled, own, target=self.target, options=self.options, timeout_s=self.timeout_s
            )
        if not compiled.ok or compiled.resources is None:
            noted = compiled.diagnostics and not any(one.severity == "error" for one in compiled.diagnostics)
            findings = () if noted else (_compile_error(kernel, compiled),)
            return PreparedVersion(kernel, contract, compiled, findings=findings)
        if contract is None:
            return PreparedVersion(kernel, None, compiled, resources=compiled.resources)
        return self._launched(kernel, contract, compiled, compiled.resources)

    def _pipeline(self, kernel: Kernel, contract: Contract) -> PreparedVersion:
        """Prepares every kernel of a pipeline; a kernel that several stages launch is compiled once."""
        kernels = find_kernels(kernel.unit)
        stages, findings = [], []
        for stage in contract.stages:
            launched = kernel_named(kernels, stage.contract.kernel)
            if stage.library or launched is None:
                continue
            own = replace(stage.contract, sizes=contract.sizes, require=contract.require)
            prepared = self.prepare(launched, own, stage.instance)
            stages.append(prepared)
            findings += [replace(one, stage=stage.name) for one in prepared.findings]
        shared = _shared_variable([one.compiled for one in stages])
        if shared is not None and not findings:
            findings.append(_launch_failure(kernel, shared))
        compiled = joined_code(kernel.name, self.target.arch, contract, [one.compiled for one in stages])
        resources = _most([one.resources for one in stages if one.resources is not None])
        return PreparedVersion(
            kernel, contract, compiled, resources=resources, findings=tuple(findings), stages=tuple(stages)
        )

    def prepare_template(self, kernel: Kernel, contract: Contract | None) -> tuple[PreparedVersion, ...]:
        """Prepare the instances that the project uses of a template whose contract names none.

        Returns:
            The most used instances that compile. Without one, a guessed instance that compiles; else the error of the
            most used one, or a note that asks for instances if nothing uses the template.

        Raises:
            CompileTimeout: the compiler did not end.
            EnvironmentFailed: there is no compiler.
        """
        first = contract.instances if contract is not None else ()
        used = sorted(inferred_instances(kernel), key=lambda one: one.text not in first)
        good: list[PreparedVersion] = []
        own: list[PreparedVersion] = []
        guessed: list[PreparedVersion] = []
        began = time.monotonic()
        for one in (*used[: 2 * MOST_INSTANCES], *guessed_instances(kernel)):
            failed = guessed if one.guessed else own
            late = time.monotonic() - began > _LONG_S and (good or own or guessed)
            if len(good) == MOST_INSTANCES or (good and one.guessed) or late:
                break
            if _repeats(failed):
                continue
            prepared = self._inferred(kernel, contract, one)
            if prepared.compiled.ok:
                good.append(prepared)
            elif not _is_unnameable(prepared):
                failed.append(prepared)
        if good:
            return tuple(good)
        return tuple(own[:1]) or (_with_reason(self.prepare(kernel, contract, None), guessed),)

    def _inferred(self, kernel: Kernel, contract: Contract | None, inferred: InferredInstance) -> PreparedVersion:
        prepared = self.prepare_or_timeout(kernel, contract, inferred.text)
        text = f"no contract names instances; {inferred.text} comes from {inferred.origin}"
        note = Diagnostic("note", text, *_place(kernel), INFERRED)
        compiled = replace(prepared.compiled, diagnostics=(*prepared.compiled.diagnostics, note))
        # A guessed launch must not reject a guessed instance.
        return replace(prepared, compiled=compiled, findings=() if compiled.ok else prepared.findings)

    def compiled_as(
        self, kernel: Kernel, contract: Contract, instance: str | None, arch: str | None, more: tuple[str, ...]
    ) -> Compiled:
        """Compiles one instance for another architecture, or with additional options, without evaluating a launch.

        Raises:
            CompileTimeout: the compiler did not end.
            EnvironmentFailed: there is no compiler.
        """
        target = self.target if arch is None else replace(self.target, arch=arch)
        return self._compiled(kernel, contract, instance, target, more)

    def _compiled(
        self, kernel: Kernel, contract: Contract | None, instance: str | None, target: Target, more: tuple[str, ...]
    ) -> Compiled:
        """Compiles one instance by the compiler of the kernel's language."""
        limits: dict[str, Any] = {"target": target, "timeout_s": self.timeout_s, "cache_dir": self.cache_dir}
        if kernel.unit.language == "triton":
            return compile_triton(kernel, contract, **limits)
        if kernel.unit.built is not None:
            return as_built(kernel, kernel.unit.built, target)
        options = contract.options if contract is not None else ()
        return compile_kernel(
            kernel, (*options, *more), instance=instance, options=self.options, compiler=self.compiler, **limits
        )

    def prepare_or_timeout(self, kernel: Kernel, contract: Contract | None, instance: str | None) -> PreparedVersion:
        """Like `prepare`, but a compilation that did not end is an error of the instance.

        Raises:
            EnvironmentFailed: there is no compiler.
        """
        try:
            return self.prepare(kernel, contract, instance)
        except CompileTimeout as error:
            return _timed_out(kernel, contract, instance, self.target, error)

    def prepare_candidate(self, kernel: Kernel, contract: Contract, instance: str | None) -> PreparedVersion:
        """Like `prepare`, but errors of a candidate become findings, a compiler time-out included.

        Raises:
            EnvironmentFailed: there is no compiler.
        """
        mismatch = parameter_mismatch(kernel, contract)
        prepared = self.prepare_or_timeout(kernel, contract, instance)
        if mismatch is not None and not prepared.findings:
            return replace(prepared, findings=(_launch_failure(kernel, mismatch),))
        return prepared

    def _launched(
        self, kernel: Kernel, contract: Contract, compiled: Compiled, resources: Resources
    ) -> PreparedVersion:
        """Returns the launch at the headline size, with a finding for the first listed size that the target cannot launch."""
        required = required_cluster(compiled)
        if contract.cluster is None and required is not None:
            contract = replace(contract, cluster=required)
        headline: LaunchShape | None = None
        problem: str | None = None
        for size in contract.sizes:
            try:
                if not size_allowed(contract, size):
                    continue
                shape = launch_shape(contract, size)
            except ContractError as error:
                problem = problem or error.message
                continue
            if size is contract.sizes[0]:
                headline = shape
            problem = problem or self._refusal(resources, shape, size, required)
        findings = () if problem is None else (_launch_failure(kernel, problem),)
        if headline is None:
            return PreparedVersion(kernel, contract, compiled, None, resources, None, findings)
        resources = replace(resources, dynamic_shared_bytes=headline.shared_bytes)
        fits = occupancy(self.target, resources, headline)
        return PreparedVersion(kernel, contract, compiled, headline, resources, fits, findings)

    def _refusal(
        self, resources: Resources, shape: LaunchShape, size: Mapping[str, int], required: tuple[int, int, int] | None
    ) -> str | None:
        """Returns the reason why the target would refuse this launch; None if it would not."""
        at = ", ".join(f"{name} = {value}" for name, value in size.items())
        where = f" at {at}" if at else ""
        if shape.threads > resources.max_threads:
            return (
                f"A block has {shape.threads} threads{where}; this kernel allows {resources.max_threads} "
                f"(by __launch_bounds__, or because each thread takes {resources.registers} registers)."
            )
        shared = resources.shared_bytes + shape.shared_bytes
        most = sm_limits(self.target.capability).shared_per_block_optin
        if shared > most:
            return (
                f"A block needs {shared} bytes of shared memory{where} ({resources.shared_bytes} static, "
                f"{shape.shared_bytes} dynamic); {self.target.name} allows {most}."
            )
        refused = cluster_refusal(self.target, shape, required)
        if refused is not None:
            return f"{refused[0].upper()}{refused[1:]}{where}."
        fits = occupancy(self.target, replace(resources, dynamic_shared_bytes=shape.shared_bytes), shape)
        if fits.blocks_per_sm == 0:
            return f"No block fits on an SM of {self.target.name}{where}: limited by {fits.limiter}."
        resident = fits.blocks_per_sm * self.target.sms
        if shape.cooperative and shape.blocks > resident:
            return (
                f"A cooperative launch must fit all at once: {shape.blocks} blocks{where}, and {self.target.name} "
                f"holds {resident}."
            )
        return None


def joined_code(name: str, arch: str, contract: Contract, stages: Sequence[Compiled]) -> Compiled:
    """Returns the figures of a pipeline's code for its verdict; the code itself stays with the stages.

    The hash is that of the stages' binaries and of the expressions between them, in order.
    """
    binaries = iter([one.binary or "" for one in stages])
    parts = [f"{one.name} {one.contract.reference if one.library else next(binaries)}" for one in contract.stages]
    ok = all(one.ok for one in stages)
    return Compiled(
        name=name,
        instance=None,
        lowered_name="",
        arch=arch,
        compiler=next((one.compiler for one in stages), "no compiler"),
        ok=ok,
        diagnostics=tuple(dict.fromkeys(said for one in stages for said in one.diagnostics)),
        binary=f"sha256:{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()}" if ok else None,
        headers=tuple(dict.fromkeys(header for one in stages for header in one.headers)),
    )


def _most(resources: Sequence[Resources]) -> Resources | None:
    """Returns the most that any stage takes of each resource, and the bytes of all their code; None without a kernel."""
    if not resources:
        return None
    spills = [one.spill_bytes for one in resources if one.spill_bytes is not None]
    return Resources(
        registers=max(one.registers for one in resources),
        shared_bytes=max(one.shared_bytes + one.dynamic_shared_bytes for one in resources),
        dynamic_shared_bytes=0,
        local_bytes=max(one.local_bytes for one in resources),
        spill_bytes=max(spills) if len(spills) == len(resources) else None,
        max_threads=min(one.max_threads for one in resources),
        code_bytes=sum(one.code_bytes for one in resources),
    )


def _shared_variable(stages: Sequence[Compiled]) -> str | None:
    """Returns the reason why stages cannot be loaded one by one: a `__device__` variable that several use; None if there is none."""
    used = Counter(name for one in stages for name in set(used_names_of(one.ptx)))
    name = next((name for name, count in used.items() if count > 1), None)
    if name is None:
        return None
    return (
        f"Several stages use the __device__ variable {name}. Each stage is loaded as a module of its own, so they would "
        "not share it: pass it as an argument."
    )


def _timed_out(
    kernel: Kernel, contract: Contract | None, instance: str | None, target: Target, error: CompileTimeout
) -> PreparedVersion:
    """Returns a version with an error that its compiler was killed at the time limit."""
    diagnostic = Diagnostic("error", error.message, *_place(kernel))
    compiled = Compiled(kernel.name, instance, "", target.arch, "NVRTC", False, (diagnostic,))
    return PreparedVersion(kernel, contract, compiled, findings=(_compile_error(kernel, compiled),))


def _is_unnameable(prepared: PreparedVersion) -> bool:
    """Returns True if an instance contains a name known only in the scope of its use: the inference failed, not the code."""
    return any(one.file == NAMES_FILE and one.severity == "error" for one in prepared.compiled.diagnostics)


def _with_reason(asked: PreparedVersion, failed: Sequence[PreparedVersion]) -> PreparedVersion:
    """Returns the note that asks for instances, with the first error of a guessed one: it may be another than the choice of instances."""
    errors = [one for prepared in failed for one in prepared.compiled.diagnostics if one.severity == "error"]
    if not errors:
        return asked
    text = f"{failed[0].compiled.instance}, a guess, does not compile: {errors[0].message}"
    reason = replace(errors[0], severity="note", message=text, code=INFERRED)
    return replace(asked, compiled=replace(asked.compiled, diagnostics=(*asked.compiled.diagnostics, reason)))


def _repeats(failed: Sequence[PreparedVersion]) -> bool:
    """Returns True if two instances failed with the same message: further ones would as well."""
    said = [one.findings[0].message for one in failed if one.findings]
    return len(said) != len(set(said))


def parameter_mismatch(kernel: Kernel, contract: Contract) -> str | None:
    """Returns the reason why a kernel cannot take a contract's arguments, by number and kind; None if it can."""
    if kernel.unit.language == "triton" or kernel.unit.built is not None or kernel.parts:
        return None  # its parameters have the types that the contract gives them
    parameters, passed = kernel.signature.parameters, contract.parameters
    if len(parameters) != len(passed):
        return f"{kernel.name} takes {len(parameters)} arguments; the baseline's contract passes {len(passed)}."
    for parameter, argument in zip(parameters, passed, strict=True):
        if argument is None:
            continue
        if parameter.pointer != (argument.shape is not None):
            kinds = ("a scalar", "an array")
            return (
                f"{kernel.name} takes {parameter.name} as {kinds[parameter.pointer]}; the baseline's contract passes "
                f"{kinds[argument.shape is not None]} ({argument.name})."
            )
        if parameter.dtype is not None and not fits(argument.dtype, parameter.dtype, parameter):
            return (
                f"{kernel.name} takes {parameter.name} as {parameter.dtype}; the baseline's contract passes "
                f"{argument.dtype} ({argument.name})."
            )
    return None


def kernel_finding(kernel: Kernel, code: FindingCode, message: str) -> Finding:
    """Returns an error at the line of the kernel's name."""
    return Finding(code, "error", message, *_place(kernel))


def _place(kernel: Kernel) -> tuple[str, int, int | None]:
    return (kernel.unit.path, *kernel.unit.locate(kernel.line, kernel.column))


def _launch_failure(kernel: Kernel, message: str) -> Finding:
    return kernel_finding(kernel, FindingCode.LAUNCH_FAILURE, message)


def _compile_error(kernel: Kernel, compiled: Compiled) -> Finding:
    for diagnostic in compiled.diagnostics:
        if diagnostic.severity == "error":
            place = (diagnostic.file, diagnostic.line, diagnostic.column)
            return Finding(FindingCode.COMPILE_ERROR, "error", diagnostic.message, *place)
    return kernel_finding(kernel, FindingCode.COMPILE_ERROR, "The compiler gave no code and no reason.")
