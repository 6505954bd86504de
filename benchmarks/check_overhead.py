"""`check` in a warm session against bare NVRTC on the same sources. Goal: under 30% more.

Bare NVRTC is one call of `nvrtcCompileProgram` in this process for each instance of the kernel, with the same options, taking
PTX, CUBIN and log: the least that anyone who wants this kernel's resources has to pay. `check` adds finding the kernel, its contract, the
device part, the way to the compiler's process and back, resources and occupancy. The disk cache is emptied before each.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from benchmarks.machine import alternate
from kernelmate.compiler.cuda_toolkit import system_includes
from kernelmate.compiler.options import flags_for
from kernelmate.records import CompileOptions, Kernel, Target
from kernelmate.source import parse_contract

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ROUNDS = 5


def bench_inputs(kernel: Kernel, target: Target) -> tuple[str, list[bytes], tuple[str, ...]]:
    """Returns the unit's unchanged text, the options to compile it with NVRTC directly, and the contract's instances."""
    directory = str(Path(kernel.unit.path).resolve().parent)
    flags = flags_for(target, CompileOptions(), ())
    includes = [f"--include-path={path}" for path in (directory, *system_includes())]
    options = (*flags, "--generate-line-info", "--ptxas-options=--verbose", *includes)
    contract = parse_contract(kernel)
    return kernel.unit.text, [option.encode() for option in options], contract.instances if contract is not None else ()


def bare_nvrtc(text: str, name: str, options: list[bytes], instances: Sequence[str] = ()) -> None:
    """Compile as NVRTC does it alone, once for each instance of a template; raises where it does not compile."""
    for instance in instances or (None,):
        _compile(text, name, options, instance)


def _compile(text: str, name: str, options: list[bytes], instance: str | None) -> None:
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), name.encode(), 0, [], [])
    if instance is not None:
        nvrtc.nvrtcAddNameExpression(program, instance.encode())
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(f"{name} does not compile with bare NVRTC")
    for size_of, get in (
        (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX),
        (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN),
        (nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog),
    ):
        _, size = size_of(program)
        get(program, b"\0" * size)
    nvrtc.nvrtcDestroyProgram(program)


def main() -> None:
    """Print a row for each example that bare NVRTC can compile as it stands, and the median ratio."""
    from kernelmate.config import load_settings
    from kernelmate.session import Session
    from kernelmate.source import load_kernels

    ratios = []
    with tempfile.TemporaryDirectory() as cache, Session(load_settings(cache_dir=cache)) as session:
        for path in sorted(EXAMPLES.glob("*.cu")):
            text, options, instances = bench_inputs(load_kernels(path)[0], session.target)
            try:
                bare_nvrtc(text, path.name, options, instances)
            except RuntimeError:
                continue

            def checked(path: Path = path) -> None:
                shutil.rmtree(cache)
                Path(cache).mkdir()
                session.check(load_kernels(path)[0])

            checked()
            ours, bare, ratio = alternate(checked, partial(bare_nvrtc, text, path.name, options, instances), ROUNDS)
            ratios.append(ratio)
            print(f"{path.name:<28} check {ours * 1e3:7.1f} ms   NVRTC {bare * 1e3:7.1f} ms   ratio {ratio:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f} over {len(ratios)} examples (goal: under 1.30)")
