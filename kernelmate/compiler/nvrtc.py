"""One kernel through NVRTC: PTX and CUBIN from one compilation, with what the log tells."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import re
import site
import sys
from collections.abc import Sequence
from pathlib import Path

from kernelmate.compiler import cache
from kernelmate.compiler.child import Job, Product
from kernelmate.compiler.device_part import DevicePart, device_part
from kernelmate.compiler.diagnostics import read_log
from kernelmate.compiler.prelude import PRELUDE_NAME, prelude_for
from kernelmate.compiler.process import COMPILER
from kernelmate.compiler.resources import read_resources
from kernelmate.errors import CompilerUnavailable
from kernelmate.records import Compiled, CompileOptions, Kernel, Target

_ALWAYS = (
    "--generate-line-info",
    "--device-as-default-execution-space",
    "--ptxas-options=--verbose",
    f"--pre-include={PRELUDE_NAME}",
)
_QUIET = re.compile(r"^--?(?:I|include-path|pre-include|generate-line-info|device-as|ptxas-options=--verbose)")


def compile_kernel(
    kernel: Kernel,
    contract_options: Sequence[str],
    *,
    instance: str | None,
    target: Target,
    options: CompileOptions,
    timeout_s: float = 60,
    use_cache: bool = True,
) -> Compiled:
    """Compile one kernel, or one instance of a template, for a target's architecture.

    Args:
        kernel: within its unit; relative includes start at the unit's file.
        contract_options: NVRTC spellings from the contract, after all others.
        instance: for a template, its instance as `name<float, 256>`.
        target: its `arch` is compiled for.
        options: standard, defines, include paths and flags.
        timeout_s: seconds until the compiler is killed.
        use_cache: look the result up on disk, and keep it there.

    Raises:
        CompileTimeout: the compiler was killed at the time limit.
        CompilerUnavailable: there is no NVRTC here.
    """
    unit = kernel.unit
    includes = tuple(Path(path) for path in options.include_paths)
    part = device_part(unit.text, Path(unit.path).resolve().parent, includes)
    flags = _flags(target, options, contract_options)
    expression = instance or kernel.name
    version = compiler_version()
    directory = cache.default_directory()
    prelude = prelude_for((part.text, *(text for _, text in part.headers)))
    key = cache.key_of(version, part, flags, expression, unit.path, unit.anchors, kernel.name, prelude)
    kept = cache.load(directory, key) if use_cache else None
    if kept is not None:
        return kept
    job = Job(
        part.text, unit.path, (*part.headers, (PRELUDE_NAME, prelude)),
        (*flags, *(f"--include-path={path}" for path in (*map(str, includes), *system_includes()))), (expression,),
    )  # fmt: skip
    compiled = _compiled(
        kernel, instance, target, f"NVRTC {version} {_shown(flags)}", part, COMPILER.compile(job, timeout_s)
    )
    if use_cache and compiled.ok:
        cache.store(directory, key, compiled)
    return compiled


def _compiled(
    kernel: Kernel, instance: str | None, target: Target, compiler: str, part: DevicePart, product: Product
) -> Compiled:
    found = read_log(product.log, kernel.unit, dict(part.paths))
    if not product.ok:
        if not any(d.severity == "error" for d in found):
            from kernelmate.records import Diagnostic

            text = product.log.strip() or "the compiler gave no reason"
            found += (Diagnostic("error", text, kernel.unit.path, *kernel.unit.locate(kernel.line, kernel.column)),)
        return Compiled(kernel.name, instance, "", target.arch, compiler, False, found)
    symbol = product.lowered[0]
    resources = read_resources(product.cubin, symbol, product.log, target.capability)
    binary = "sha256:" + hashlib.sha256(product.cubin).hexdigest()
    return Compiled(
        kernel.name, instance, symbol, target.arch, compiler, True, found, product.ptx, product.cubin, binary, resources
    )


def _flags(target: Target, options: CompileOptions, contract_options: Sequence[str]) -> tuple[str, ...]:
    flags = [f"--gpu-architecture={target.arch}", f"--std={options.std}", *_ALWAYS]
    flags += [f"--define-macro={define}" for define in options.defines]
    if options.fast_math:
        flags.append("--use_fast_math")
    if options.max_registers is not None:
        flags.append(f"--maxrregcount={options.max_registers}")
    return (*flags, *options.flags, *contract_options)


def _shown(flags: Sequence[str]) -> str:
    """The flags that a figure depends on, without paths of this machine."""
    return " ".join(flag for flag in flags if not _QUIET.match(flag) and not flag.startswith("--gpu-architecture"))


@functools.lru_cache
def compiler_version() -> str:
    """NVRTC's version, as its wheel states it.

    Raises:
        CompilerUnavailable: it is not installed.
    """
    for name in ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "cuda-bindings"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if sys.platform == "darwin":
        raise CompilerUnavailable(
            "compiling CUDA is not available on macOS: NVIDIA ships no compiler for it.",
            hint="Use a Linux or Windows machine.",
        )
    raise CompilerUnavailable("NVRTC is not installed.", hint="Run: pip install nvidia-cuda-nvrtc cuda-bindings")


@functools.lru_cache
def system_includes() -> tuple[str, ...]:
    """Folders with CUDA's own headers: those of the wheels, then those of an installed toolkit."""
    places = [
        Path(place) / "nvidia" / "cu13" / "include" for place in (*site.getsitepackages(), site.getusersitepackages())
    ]
    places += [Path(entry) / "nvidia" / "cu13" / "include" for entry in sys.path if entry.endswith("site-packages")]
    places.append(Path("/usr/local/cuda/include"))
    found = [path for place in places for path in (place, place / "cccl") if path.is_dir()]
    return tuple(dict.fromkeys(str(path) for path in found))
