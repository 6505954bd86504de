"""Command line of NVRTC for one kernel, and the options of it that results record."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelmate.compiler.prelude import PRELUDE_NAME
from kernelmate.errors import UsageError
from kernelmate.flags import RefusedOption, allowed
from kernelmate.records import CompileOptions, Target

ALWAYS = ("--generate-line-info", "--ptxas-options=--verbose")
DEFAULT_DEVICE = "--device-as-default-execution-space"
SEED = "--frandom-seed=1"
"""Option that makes the random part of names with internal linkage reproducible."""

_PATHS = re.compile(r"-I|--include-path")
_ONCE = frozenset({"std", "maxrregcount"})
"""Options that NVRTC accepts only once; the last occurrence is kept."""


def flags_for(target: Target, options: CompileOptions, contract_options: Sequence[str]) -> tuple[str, ...]:
    """Returns all options that the compiled code depends on; the contract's options come last and take precedence.

    Raises:
        UsageError: an option is not on the allow-list.
    """
    flags = [f"--std={options.std}"]
    flags += [f"--define-macro={define}" for define in options.defines]
    if options.fast_math:
        flags.append("--use_fast_math")
    if options.max_registers is not None:
        flags.append(f"--maxrregcount={options.max_registers}")
    flags += options.flags
    flags += contract_options
    try:
        spelled = allowed(flags)
    except RefusedOption as error:
        raise UsageError(str(error), hint="Docs: docs/contract.md, Compiler options.") from None
    last = {name: index for index, flag in enumerate(spelled) if (name := flag.lstrip("-").partition("=")[0]) in _ONCE}
    kept = (f for index, f in enumerate(spelled) if last.get(f.lstrip("-").partition("=")[0], index) == index)
    return (f"--gpu-architecture={target.arch}", *kept)


def recorded_options(flags: Sequence[str]) -> str:
    """Returns the recorded options, without paths of this machine; the architecture is recorded separately."""
    return " ".join(flag for flag in flags if not _PATHS.match(flag) and not flag.startswith("--gpu-architecture"))


INT128 = "--device-int128"
"""NVRTC's option for 128-bit integers."""


def unseen_flags(
    user: Sequence[str], system: Sequence[str], *, default_device: bool, seeded: bool, int128: bool = False
) -> tuple[str, ...]:
    """Returns the options that are not recorded: header search, printed output, names, and nvcc's implicit settings.

    Args:
        user: folders of the user's headers.
        system: folders of CUDA's headers.
        default_device: True to compile unannotated functions for the device.
        seeded: True to make names with internal linkage reproducible.
        int128: True if the text has the type `__int128`, which nvcc supports on Linux without an option.
    """
    found = [*ALWAYS, f"--pre-include={PRELUDE_NAME}", *(f"--include-path={path}" for path in (*user, *system))]
    found += [DEFAULT_DEVICE] if default_device else []
    found += [INT128] if int128 else []
    return (*found, SEED) if seeded else tuple(found)
