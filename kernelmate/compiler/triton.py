"""Compiles Triton kernels to PTX and CUBIN without a GPU, with the specialisation that a launch applies.

Triton generates different code for addresses and integers that are multiples of 16, and for integers equal to 1. The
contract determines these: arrays are aligned to 16 bytes, and an integer is a multiple if it is a constant multiple or
`require` states it for its size. For an architecture with instructions that the emulator lacks, the result has PTX for
sm_80.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelmate.compiler.cache import cache_in, key_of
from kernelmate.compiler.diagnostics import UNIT_NAME
from kernelmate.compiler.frames import CompileJob, CompileOutput
from kernelmate.compiler.process import CompilerProcess
from kernelmate.compiler.ptx_text import parameter_bytes
from kernelmate.compiler.resources import read_resources
from kernelmate.errors import CompilerUnavailable, CompileTimeout, SourceError
from kernelmate.records import Argument, Compiled, Contract, Diagnostic, Kernel, Member, Passed, Target
from kernelmate.source.launch import scalar_values
from kernelmate.source.triton import SETTINGS, function_of
from kernelmate.source.triton_contract import ALIGNED, is_divisible, is_one, values_of
from kernelmate.source.triton_modules import TritonModule, triton_modules

_TYPES = {
    "bool": "i1", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8", "uint16": "u16", "uint32": "u32",
    "uint64": "u64", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64", "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5", "float8_e4m3b11fnuz": "fp8e4b15",
}  # fmt: skip
"""Triton's type names (triton/runtime/jit.py, type_canonicalisation_dict), by NumPy and ml_dtypes name."""

_FORMAT = 5
"""Version of the format of cached replies; a change discards older entries."""

EMULATED_ARCH = "sm_80"

SCRATCH_ALIGN = 128
"""Alignment of scratch memory in bytes, that of a map of a tensor (triton/backends/nvidia/driver.py)."""

COMPILER = CompilerProcess(1, "kernelmate.compiler.triton_child", "'kernelmate[triton]'")
"""The Triton compiler of this program, started on first use."""


def compile_triton(
    kernel: Kernel,
    contract: Contract | None,
    *,
    target: Target,
    timeout_s: float,
    cache_dir: Path | None,
) -> Compiled:
    """Compiles a Triton kernel for the types, constants and alignments of its contract.

    Args:
        kernel: a kernel in a unit of language `triton`.
        contract: gives the types and values that Triton takes from a launch; without a contract the kernel is not
            compiled, and the result has a note.
        target: the GPU.
        timeout_s: seconds until the compiler is killed.
        cache_dir: folder of compiled code; None for the default.

    Raises:
        CompileTimeout: the compiler was killed at the time limit.
        CompilerUnavailable: Triton is not installed.
    """
    if contract is None or contract.inferred:
        text = f"{kernel.name} is a Triton kernel without a contract, which gives the types of its parameters"
        note = Diagnostic("note", text, kernel.unit.path, kernel.line, kernel.column, "no-contract")
        return Compiled(kernel.name, None, "", target.arch, "Triton", False, (note,))
    version = f"Triton {_version()} {' '.join(contract.options)}"
    try:
        modules = triton_modules(kernel)
        job = _job(kernel, contract, target, modules)
    except SourceError as error:
        told = Diagnostic("error", error.message, error.file, error.line, error.column)
        return Compiled(kernel.name, None, "", target.arch, version, False, (told,))
    cache = cache_in(cache_dir)
    key = key_of("triton", _FORMAT, _version(), job.text, job.options, job.expressions)
    output = cache.load(key)
    if output is None:
        try:
            output = COMPILER.compile(job, timeout_s)
        except CompileTimeout as error:
            error.file, error.line, error.column = kernel.unit.path, kernel.line, kernel.column
            raise
        if output.log.startswith("{"):  # a reply of the compiler, and not the message about its crash
            cache.store(key, output)
    if not output.ok:
        return Compiled(kernel.name, None, "", target.arch, version, False, (_error(kernel, output, modules),))
    remarks = (*_unspecialised(kernel, contract), *_ambiguous(modules, json.loads(output.log)["chosen"]))
    return _compiled(kernel, target, version, output, remarks)


def with_launch_facts(contract: Contract, compiled: Compiled) -> Contract:
    """Returns a Triton kernel's contract with the shared memory and scratch parameters of its compiled code.

    The last parameters are addresses of scratch buffers in global memory. The first one holds the compiler's own data of each
    block, if there are any; the others are not used.
    """
    if not compiled.ok:
        return contract
    assert compiled.resources is not None
    shared = str(compiled.resources.dynamic_shared_bytes)
    missing = len(parameter_bytes(compiled.ptx, compiled.lowered_name)) - len(contract.passing)
    scratch = [Passed(f"scratch {number}", "null") for number in range(missing)]
    args = contract.args
    if compiled.scratch_bytes and scratch:
        name = scratch[0].name.replace(" ", "_")
        blocks = " * ".join(f"({side})" for side in contract.grid)
        args = (
            *args,
            Argument(name, "scratch", "uint8", (f"{compiled.scratch_bytes} * {blocks}",), align=SCRATCH_ALIGN),
        )
        scratch[0] = Passed(name, "argument", (Member(name, 0),))
    return replace(contract, shared=shared, args=args, passing=(*contract.passing, *scratch))


def _version() -> str:
    try:
        return importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        raise CompilerUnavailable(
            "Triton is not installed, and this kernel is a Triton function.",
            hint="Run: pip install 'kernelmate[triton]'",
        ) from None


def _job(kernel: Kernel, contract: Contract, target: Target, modules: Sequence[TritonModule]) -> CompileJob:
    values = values_of(contract)
    arguments = {one.name: one for one in contract.args}
    constants: dict[str, Any] = {}
    signature: dict[str, str] = {}
    for parameter in function_of(kernel).parameters:
        argument = arguments.get(parameter.name)
        if argument is None and parameter.name not in values:
            raise SourceError(
                f"{kernel.name} takes {parameter.name}, which the contract neither passes nor gives a value.",
                file=kernel.unit.path, line=kernel.line, column=kernel.column,
            )  # fmt: skip
        if argument is None or is_one(argument):
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = 1 if argument is not None else _constant(values[parameter.name])
        else:
            kind = _TYPES.get(argument.dtype)
            if kind is None:
                raise SourceError(
                    f"Triton has no type for {parameter.name}, which holds {argument.dtype}.",
                    file=kernel.unit.path,
                    line=contract.line,
                )
            signature[parameter.name] = f"*{kind}" if argument.shape is not None else kind
    major, minor = target.capability
    given = {
        "modules": [
            {
                "name": _file_name(number, one),
                "text": one.text,
                "library": one.library,
                "imported": one.imported,
                "chosen": sorted(one.chosen),
            }
            for number, one in enumerate(modules)
        ],
        "capability": 10 * major + minor,
        "signature": signature,
        "constants": constants,
        "divisible": [one.name for one in contract.args if is_divisible(one, contract) and not is_one(one)],
        "settings": {name: int(values[name]) for name in SETTINGS if name in values},
    }
    return CompileJob(modules[0].text, UNIT_NAME, (), (json.dumps(given, sort_keys=True),), (kernel.name,))


def _file_name(number: int, module: TritonModule) -> str:
    """Returns the name of a file for the compiler; the kernel's own file has the same name for all kernels."""
    return UNIT_NAME if number == 0 else f"imported {number}/{Path(module.path).name}"


def _constant(text: str) -> Any:
    """Returns a constant for the compiler process; a type of triton.language becomes `{"tl": name}`."""
    if text.startswith("tl."):
        return {"tl": text[3:]}
    named = {"True": True, "False": False, "None": None}
    if text in named:
        return named[text]
    if text[:1] in "'\"":
        return text[1:-1]
    return float(text) if re.search(r"[.e]", text) else int(text)


def _unspecialised(kernel: Kernel, contract: Contract) -> tuple[Diagnostic, ...]:
    """Returns a note on scalars for which Triton specialises the code differently at the first size."""
    values = scalar_values(contract, contract.sizes[0])
    found = [
        one.name
        for one in contract.args
        if one.shape is None and "int" in one.dtype and not is_one(one) and not is_divisible(one, contract)
        and int(values[one.name]) % ALIGNED == 0 and values[one.name]
    ]  # fmt: skip
    if not found:
        return ()
    required = ", ".join(f'"{one} % {ALIGNED} == 0"' for one in found)
    text = (
        f"at the first size Triton would use that {', '.join(found)} {'is a multiple' if len(found) == 1 else 'are multiples'} of "
        f"{ALIGNED}; this code serves every size: to judge the other, write require = [{required}]"
    )
    return (Diagnostic("note", text, kernel.unit.path, kernel.line, kernel.column, "specialisation"),)


def _compiled(
    kernel: Kernel, target: Target, version: str, output: CompileOutput, remarks: tuple[Diagnostic, ...]
) -> Compiled:
    place = (kernel.unit.path, kernel.line, kernel.column)
    facts = json.loads(output.log)
    if facts.get("profile_scratch_size"):
        text = f"{kernel.name} asks for memory for Triton's profiler, which is not supported here"
        note = Diagnostic("note", text, *place, "not-supported")
        return Compiled(kernel.name, None, "", target.arch, version, False, (note,))
    shared, notes = facts["shared"], remarks
    if "emulated" in facts:
        # One launch serves both codes; that for sm_80 seldom takes more.
        shared = max(shared, facts["emulated"]["shared"])
        text = f"code for {target.arch} has instructions that are not emulated: without a GPU, code for {EMULATED_ARCH} runs instead"
        notes = (*notes, Diagnostic("note", text, *place, "emulated-arch"))
    if "not_emulated" in facts:
        text = f"Triton has no code for {EMULATED_ARCH}, which is emulated in place of that for {target.arch}: {facts['not_emulated']}"
        notes = (*notes, Diagnostic("note", text, *place, "emulated-arch"))
    symbol = output.lowered[0]
    resources = replace(read_resources(output.cubin, symbol, "", target.capability), dynamic_shared_bytes=shared)
    binary = "sha256:" + hashlib.sha256(output.cubin).hexdigest()
    return Compiled(
        kernel.name, None, symbol, target.arch, version, True, notes, output.ptx, output.cubin, binary, resources,
        scratch_bytes=facts.get("global_scratch_size") or 0,
    )  # fmt: skip


def _ambiguous(modules: Sequence[TritonModule], chosen: Sequence[tuple[int, str, str]]) -> tuple[Diagnostic, ...]:
    """Returns a note for each name that branches of a file define differently.

    Args:
        modules: the files.
        chosen: names with several meanings in the installed Triton: the file's number, the name, the meaning that was taken.
    """
    told = [
        (one.path, line, f"{name} is defined in several branches, and the last one is compiled")
        for one in modules
        for name, line in one.ambiguous.items()
    ]
    for number, name, meaning in chosen:
        text = f"{name} is defined in several branches, and is compiled as {meaning}"
        told.append((modules[number].path, modules[number].chosen[name], text))
    return tuple(Diagnostic("note", text, path, line, 1, "branches") for path, line, text in told)


def _error(kernel: Kernel, output: CompileOutput, modules: Sequence[TritonModule]) -> Diagnostic:
    """Returns the compiler's error at its position in its file.

    Triton counts lines from the `def` of the function that contains the error.
    """
    try:
        told: Mapping[str, Any] = json.loads(output.log)
    except ValueError:
        told = {"message": output.log or "The compiler gave no reason.", "place": None}
    path, line, column = kernel.unit.path, kernel.line, kernel.column
    if told.get("place"):
        row, at, text = told["place"]
        found = _place_of(modules, text or "")
        path, line, column = (path, line, column) if found is None else (found[0], found[1] + row - 1, at)
    # The compiler quotes an exception of its own as Python writes it.
    wrapped = re.fullmatch(r"\w+\((['\"])(.*)\1\)", told["message"], re.DOTALL)
    message = told["message"] if wrapped is None else wrapped[2]
    for one in modules:
        for absent, reason in one.missing.items():
            if re.search(rf"\b{re.escape(absent)}\b", message):
                message += f": {reason}"
    return Diagnostic("error", message, path, line, column)


def _place_of(modules: Sequence[TritonModule], text: str) -> tuple[str, int] | None:
    """Returns the file and the line of a function by its text from its `def`; None if no file has it."""
    for one in modules:
        at = one.text.find(text.rstrip()) if text.strip() else -1
        if at >= 0:
            return one.path, one.text.count("\n", 0, at) + 1
    return None
