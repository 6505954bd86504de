"""Compiles a kernel's file with the options of its operator; needs no PyTorch, so that a command can do it ahead."""

from __future__ import annotations

from kernelmate.records import Compiled, Contract, Kernel, Target


def compiled_operator(kernel: Kernel, contract: Contract, gpu: str | None = None) -> tuple[Compiled, Target]:
    """Returns a kernel's code, with the options that it is judged with, from the cache of compiled code if it is there.

    Args:
        kernel: the kernel.
        contract: gives further options.
        gpu: an architecture such as `sm_90`; None for the target of the settings, for the emulator.

    Raises:
        CompileTimeout: the compiler did not end.
        CompilerUnavailable: there is no NVRTC here.
    """
    from kernelmate.compiler import compile_kernel, find_target
    from kernelmate.config import load_settings

    settings = load_settings()
    target = find_target(settings.target if gpu is None else gpu)
    compiled = compile_kernel(
        kernel, contract.options, instance=None, target=target, options=settings.compile_options, cache_dir=settings.cache_dir
    )  # fmt: skip
    return compiled, target
