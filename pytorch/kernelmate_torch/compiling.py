"""Compiles a kernel's file as its operator runs it in the emulator; without PyTorch, so that a command can do it ahead."""

from __future__ import annotations

from kernelmate.records import Compiled, Contract, Kernel, Target


def compiled_for_emulator(kernel: Kernel, contract: Contract) -> tuple[Compiled, Target]:
    """Return a kernel's code for the target of the settings, from the cache of compiled code if it is there.

    Raises:
        CompileTimeout: the compiler did not end. CompilerUnavailable: there is no NVRTC here.
    """
    from kernelmate.compiler import compile_kernel, find_target
    from kernelmate.config import load_settings

    settings = load_settings()
    target = find_target(settings.target)
    compiled = compile_kernel(
        kernel, contract.options, instance=None, target=target, options=settings.compile_options, cache_dir=settings.cache_dir
    )  # fmt: skip
    return compiled, target
