"""Compiles a kernel with nvcc from the user's whole file, host code included, as the user's build does.

NVRTC compiles only the device part. A file can distinguish the two compilers, and their versions may differ, so the
judged code and the built code may differ.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernelmate.compiler.cuda_toolkit import find_tool
from kernelmate.compiler.diagnostics import UNIT_NAME, Sources, read_log
from kernelmate.compiler.options import ALWAYS, flags_for, recorded_options
from kernelmate.compiler.resources import read_resources
from kernelmate.errors import CompilerUnavailable, CompileTimeout, UsageError
from kernelmate.records import Compiled, CompileOptions, Diagnostic, Kernel, Target

_NVRTC_ALONE = re.compile(
    r"--?(?:device-as-default-execution-space|default-device|device-int128|device-float128|builtin-[\w-]+=.*)"
)


def as_nvcc_builds(
    kernel: Kernel,
    compiled: Compiled,
    contract_options: Sequence[str],
    *,
    target: Target,
    options: CompileOptions,
    timeout_s: float = 60,
) -> Compiled:
    """Compiles a kernel with nvcc and the options that NVRTC was given.

    The file is preprocessed by the host compiler; none of its code runs.

    Args:
        kernel: a kernel in a CUDA file.
        compiled: NVRTC's result, which gives the kernel's symbol.
        contract_options: options from the contract, which follow all others.
        target: the GPU, whose `arch` is used.
        options: standard, defines, include paths and flags.
        timeout_s: seconds until nvcc is killed.

    Raises:
        CompileTimeout: nvcc did not end within `timeout_s`.
        CompilerUnavailable: there is no nvcc, or it cannot be started.
        UsageError: the kernel is in a Python file: a string, which NVRTC compiles, or a Triton function.
    """
    if kernel.unit.language in ("python", "triton"):
        raise UsageError("nvcc builds CUDA files, and this kernel is in a Python file.", hint="Leave out --nvcc.")
    tool = find_tool("nvcc")
    if tool is None:
        raise CompilerUnavailable("nvcc is not installed.", hint="Install a CUDA toolkit, or leave out --nvcc.")
    flags = _flags(kernel, contract_options, target, options)
    with tempfile.TemporaryDirectory(prefix="kernelmate-nvcc-") as folder:
        (Path(folder) / UNIT_NAME).write_text(kernel.unit.text, encoding="utf-8")
        log, status = _run(
            tool, ["--cubin", "--keep", UNIT_NAME, "-o", "built.cubin", *ALWAYS, *flags], folder, timeout_s, kernel
        )
        log = log.replace(f"{folder}{os.sep}", "")
        version = f"nvcc {_version(tool)} {recorded_options(flags)}"
        sources = Sources(kernel.unit, {}, place=(kernel.line, kernel.column))
        found = read_log(log, sources)
        if status != 0:
            found = found or (_at(kernel, sources, log.strip() or f"nvcc ended with exit status {status}"),)
            return replace(
                compiled, ok=False, compiler=version, diagnostics=found, ptx="", cubin=b"", binary=None, resources=None
            )
        cubin = (Path(folder) / "built.cubin").read_bytes()
        ptx = (Path(folder) / UNIT_NAME).with_suffix(".ptx").read_text(encoding="utf-8")
    try:
        resources = read_resources(cubin, compiled.lowered_name, log, target.capability)
    except ValueError:
        text = f"nvcc built no code of {compiled.lowered_name}: nothing in the file launches or instantiates it"
        return replace(
            compiled,
            ok=False,
            compiler=version,
            diagnostics=(_at(kernel, sources, text),),
            ptx="",
            cubin=b"",
            binary=None,
            resources=None,
        )
    binary = "sha256:" + hashlib.sha256(cubin).hexdigest()
    return replace(
        compiled, compiler=version, diagnostics=found, ptx=ptx, cubin=cubin, binary=binary, resources=resources
    )


def _flags(kernel: Kernel, contract_options: Sequence[str], target: Target, options: CompileOptions) -> list[str]:
    beside = Path(kernel.unit.path).resolve().parent
    own = [f"-I{beside / option[2:]}" if option.startswith("-I") else option for option in contract_options]
    flags = [flag for flag in flags_for(target, options, own) if not _NVRTC_ALONE.fullmatch(flag)]
    folders = [beside, *(Path(path).resolve() for path in options.include_paths)]
    return [*flags, *(f"-I{folder}" for folder in folders)]


def _run(tool: Path, arguments: Sequence[str], folder: str, timeout_s: float, kernel: Kernel) -> tuple[str, int]:
    """Runs nvcc and returns its output and exit status; kills it with its children at the time limit."""
    try:
        process = subprocess.Popen(
            [tool, *arguments], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        raise CompilerUnavailable(f"nvcc did not run: {error}.", hint="Install it again.") from None
    try:
        return process.communicate(timeout=timeout_s)[0], process.returncode
    except BaseException as error:
        _kill(process)
        if isinstance(error, subprocess.TimeoutExpired):
            line, column = kernel.unit.locate(kernel.line, kernel.column)
            raise CompileTimeout(
                f"nvcc did not end within {timeout_s:g} s.", file=kernel.unit.path, line=line, column=column,
                hint="Raise compile_timeout_s in the settings.",
            ) from None  # fmt: skip
        raise


def _kill(process: subprocess.Popen[str]) -> None:
    if hasattr(os, "killpg"):
        import signal

        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def _version(tool: Path) -> str:
    done = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False, timeout=30)
    found = re.search(r"V([\d.]+)", done.stdout)
    return found[1] if found else "of unknown version"


def _at(kernel: Kernel, sources: Sources, text: str) -> Diagnostic:
    return Diagnostic("error", text, *sources.locate(UNIT_NAME, kernel.line, kernel.column))
