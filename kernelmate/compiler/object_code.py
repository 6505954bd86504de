"""Machine code of a kernel in a build's output: a program, library, object file, fatbin or CUBIN.

`cuobjdump` extracts the CUBINs. The kernel is identified by its mangled name, which is the same under NVRTC and nvcc.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmate.compiler.cuda_toolkit import find_tool
from kernelmate.compiler.diagnostics import demangled
from kernelmate.compiler.resources import code_symbols, read_resources
from kernelmate.errors import CompilerUnavailable, UsageError
from kernelmate.records import Compiled, Target

_TIMEOUT_S = 120
_EXTRACTED = re.compile(r"\.(sm_\d+[af]?)\.cubin\Z")
_ANONYMOUS = re.compile(r"(\d+)_GLOBAL__N_")
_TOOL_NOTE = re.compile(rb"ptxas\0[^\0]*, V(?P<version>[\d.]+)\0[^\0]*\0(?P<flags>[^\0]*)\0")
"""Strings of a CUBIN's section `.note.nv.tkinfo`: tool name, release, build and flags."""


@dataclass(frozen=True, slots=True)
class _Cubin:
    arch: str
    code: bytes


def built_code(path: Path, compiled: Compiled, target: Target) -> Compiled:
    """Returns a kernel as found in a build's output, with CUBIN, symbol, resources, and ptxas's version and flags.

    Args:
        path: an executable, a shared or static library, an object file, a fatbin or a CUBIN.
        compiled: the same kernel (or template instance) compiled from its text.
        target: the GPU for which it was compiled.

    Raises:
        UsageError: the file has no machine code of the kernel that the GPU can run.
        CompilerUnavailable: there is no `cuobjdump`, or it failed on this file.
    """
    cubins = _cubins(path)
    if not cubins:
        raise UsageError(
            f"{path} has no machine code for GPUs.",
            hint="Name the program, library or object file that nvcc has made; PTX alone is compiled when it is loaded.",
        )
    suited = _suited(cubins, target)
    if not suited:
        archs = ", ".join(dict.fromkeys(one.arch for one in cubins))
        raise UsageError(
            f"{path} has machine code for {archs}, and {target.name} needs {target.arch}.",
            hint=f"Build it with -gencode arch=compute_{target.arch[3:]},code={target.arch}, or name a GPU with --target.",
        )
    for cubin in suited:
        symbol = _symbol_of(cubin, compiled)
        if symbol is not None:
            return _as_built(cubin, symbol, compiled, target)
    names = sorted({demangled(one) for cubin in suited for one in code_symbols(cubin.code)})
    listed = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    wanted = compiled.instance or compiled.name
    raise UsageError(f"{path} has no code of {wanted}.", hint=f"It has {listed}. A kernel that nothing launches may be left out by the compiler.")  # fmt: skip


def _cubins(path: Path) -> list[_Cubin]:
    """Returns all CUBINs of a file."""
    tool = find_tool("cuobjdump")
    if tool is None:
        raise CompilerUnavailable("cuobjdump is not installed.", hint="Run: pip install nvidia-cuda-cuobjdump")
    if not path.is_file():
        raise UsageError(f"There is no file {path}.", hint="Name what the build has made, as in --object build/app.")
    with tempfile.TemporaryDirectory(prefix="kernelmate-") as folder:
        try:
            done = subprocess.run(
                [tool, "-xelf", "all", path.resolve()],
                cwd=folder, capture_output=True, text=True, errors="replace", check=False, timeout=_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CompilerUnavailable(f"cuobjdump did not run: {error}.", hint="Install it again.") from None
        found = [
            _Cubin(match[1], file.read_bytes())
            for file in sorted(Path(folder).iterdir())
            if (match := _EXTRACTED.search(file.name)) is not None
        ]
    said = (done.stderr or done.stdout).strip()
    if not found and "does not contain device code" not in said and done.returncode:
        raise UsageError(f"cuobjdump cannot read {path}: {said.splitlines()[-1] if said else done.returncode}.", hint="Name a program, library, object file, fatbin or CUBIN.")  # fmt: skip
    return found


def _suited(cubins: Sequence[_Cubin], target: Target) -> list[_Cubin]:
    """Returns the CUBINs that a GPU can run, most specific first (CUDA Programming Guide, "Binary Compatibility")."""
    major, minor = target.capability

    def rank(one: _Cubin) -> tuple[int, int] | None:
        number, suffix = re.fullmatch(r"sm_(\d+)([af]?)", one.arch).groups()  # type: ignore[union-attr]
        own_major, own_minor = int(number[:-1]), int(number[-1])
        if own_major != major or own_minor > minor or (suffix == "a" and own_minor != minor):
            return None
        return minor - own_minor, int(not suffix)

    ranked = [(place, one) for one in cubins if (place := rank(one)) is not None]
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


def _symbol_of(cubin: _Cubin, compiled: Compiled) -> str | None:
    """Returns the symbol of a kernel in a CUBIN; None if the CUBIN does not contain it."""
    symbols = list(code_symbols(cubin.code))
    if compiled.lowered_name in symbols:
        return compiled.lowered_name
    wanted = _without_file(compiled.lowered_name)
    return next((one for one in symbols if _without_file(one) == wanted), None)


def _without_file(symbol: str) -> str:
    """Returns a symbol without the file hash that distinguishes anonymous namespaces."""
    found = _ANONYMOUS.search(symbol)
    if found is None:
        return symbol
    end = found.end(1) + int(found[1])
    return f"{symbol[: found.start()]}(anonymous){symbol[end:]}"


def _as_built(cubin: _Cubin, symbol: str, compiled: Compiled, target: Target) -> Compiled:
    note = _TOOL_NOTE.search(cubin.code)
    tool = "unknown compiler"
    if note is not None:
        tool = f"ptxas {note['version'].decode()} {note['flags'].decode(errors='replace')}".rstrip()
    return replace(
        compiled,
        lowered_name=symbol,
        arch=cubin.arch,
        compiler=tool,
        ptx="",
        cubin=cubin.code,
        binary=f"sha256:{hashlib.sha256(cubin.code).hexdigest()}",
        resources=read_resources(cubin.code, symbol, "", target.capability),
    )
