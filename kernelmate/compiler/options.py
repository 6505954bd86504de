"""NVRTC's command line for one kernel, and the names under which a figure remembers it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernelmate.compiler.prelude import PRELUDE_NAME
from kernelmate.records import CompileOptions, Target

ALWAYS = ("--generate-line-info", "--ptxas-options=--verbose")
DEFAULT_DEVICE = "--device-as-default-execution-space"
SEED = "--frandom-seed=1"
"""Names of internal linkage hold a random part (the process id, it seems); with a seed they are the same every time."""

_PATHS = re.compile(r"-I|--include-path|-isystem|--pre-include|-include")
_OF_NVCC = re.compile(
    r"-O[0-9s]?|-g|-G|-lineinfo|--generate-line-info|--expt-relaxed-constexpr|-expt-relaxed-constexpr|--expt-extended-lambda"
    r"|-expt-extended-lambda|--extended-lambda|-extended-lambda|-Xcompiler=?.*|--compiler-options=?.*|-x=?(?:cu)?|-c|-rdc=false"
    r"|--relocatable-device-code=false|-W.*|-f(?!mad|tz).*|-m64|-(?:gencode|arch|code).*|--generate-code.*"
)
"""Spellings that mean nothing to NVRTC, or that it does of itself."""

_ONCE = frozenset({"std", "maxrregcount", "gpu-architecture"})
"""Options of which NVRTC takes one only: the last one given counts."""


def flags_for(target: Target, options: CompileOptions, contract_options: Sequence[str]) -> tuple[str, ...]:
    """All that the compiled code depends on, include paths left out; the contract's options come last and win."""
    flags = [f"--gpu-architecture={target.arch}", f"--std={options.std}"]
    flags += [f"--define-macro={define}" for define in options.defines]
    if options.fast_math:
        flags.append("--use_fast_math")
    if options.max_registers is not None:
        flags.append(f"--maxrregcount={options.max_registers}")
    flags += options.flags
    flags += contract_options
    spelled = list(_spelled(flags))
    last = {name: index for index, flag in enumerate(spelled) if (name := flag.lstrip("-").partition("=")[0]) in _ONCE}
    return tuple(
        flag for index, flag in enumerate(spelled) if last.get(flag.lstrip("-").partition("=")[0], index) == index
    )


def _spelled(flags: Sequence[str]) -> Iterator[str]:
    """Options as NVRTC spells them: joined, and without those that only nvcc has."""
    waiting = list(flags)
    while waiting:
        flag = waiting.pop(0)
        if flag in ("-Xptxas", "--ptxas-options") and waiting:
            yield f"--ptxas-options={waiting.pop(0)}"
        elif flag.startswith("-Xptxas="):
            yield f"--ptxas-options={flag.partition('=')[2]}"
        elif flag in ("-Xcompiler", "--compiler-options", "-gencode", "-x") and waiting:
            waiting.pop(0)
        elif flag in ("-D", "-I", "-U", "-std", "-maxrregcount", "--maxrregcount") and waiting:
            value = waiting.pop(0)
            yield f"{flag}{value}" if flag in ("-D", "-I", "-U") else f"{flag}={value}"
        elif re.fullmatch(r"-std=gnu\+\+\d\d|--std=gnu\+\+\d\d", flag):
            yield flag.replace("gnu++", "c++")
        elif not _OF_NVCC.fullmatch(flag):
            yield flag


def shown(flags: Sequence[str]) -> str:
    """The flags that a figure depends on, without paths of this machine; the architecture stands beside them."""
    return " ".join(flag for flag in flags if not _PATHS.match(flag) and not flag.startswith("--gpu-architecture"))


def unseen_flags(user: Sequence[str], system: Sequence[str], *, default_device: bool, seeded: bool) -> tuple[str, ...]:
    """What goes with the flags of every kernel, and is not shown: header search, what is printed, names.

    Args:
        user: folders of the user's headers.
        system: folders of CUDA's.
        default_device: take unannotated functions for the device's.
        seeded: make names of internal linkage the same every time.
    """
    found = [*ALWAYS, f"--pre-include={PRELUDE_NAME}", *(f"--include-path={path}" for path in (*user, *system))]
    found += [DEFAULT_DEVICE] if default_device else []
    return (*found, SEED) if seeded else tuple(found)
