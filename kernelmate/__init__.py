"""KernelMate: change CUDA kernels by prompts in plain words; each change comes with a verdict.

The five functions here open a session, do one thing, and close it. Each takes a kernel as `"FILE"`, `"FILE::KERNEL"` or
a `Kernel`, and any setting of `kernelmate.config.Settings` by name (`target="L4"`, `seed=7`). Keep a
`kernelmate.session.Session` open to do several things with one warm worker. Times in what they return are microseconds,
memory is bytes, occupancy and limits are fractions; a time is `predicted` unless a GPU measured it.
"""

from __future__ import annotations

from kernelmate.version import VERSION

# Importing `typing` would take longer than all else until Ctrl-C is handled (`__main__`).
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import Any

    from kernelmate.records import Kernel, Optimization, Verdict
    from kernelmate.session import Comparison, Session

__version__ = VERSION
__all__ = [
    "__version__",
    "bench",
    "check",
    "compare",
    "fix",
    "load_ipython_extension",
    "optimize",
    "unload_ipython_extension",
]


def check(kernel: str | Path | Kernel, **settings: Any) -> tuple[Verdict, ...]:
    """Compiles a kernel: diagnostics, resources (bytes, registers per thread) and occupancy (0 to 1). Runs nothing.

    Args:
        kernel: `"FILE"`, `"FILE::KERNEL"`, or a kernel.
        **settings: as in `kernelmate.config.Settings`.

    Returns:
        One verdict per template instance, or a single one for a kernel that is not a template.

    Raises:
        KernelmateError: file, contract, settings or machine need a change.
    """
    with _session(settings) as session:
        return session.check(_kernel(kernel))


def bench(
    kernel: str | Path | Kernel,
    sizes: Sequence[Mapping[str, int]] = (),
    reference: str | None = None,
    **settings: Any,
) -> tuple[Verdict, ...]:
    """Judges a kernel by its contract: correctness at every size, guards, and time in microseconds.

    Args:
        kernel: `"FILE"`, `"FILE::KERNEL"`, or a kernel.
        sizes: replace the contract's sizes; figures refer to the first one.
        reference: replaces the contract's: `path.py:function`, another kernel of the file, or a NumPy expression.
        **settings: as in `kernelmate.config.Settings`.

    Returns:
        One verdict per template instance, or a single one for a kernel that is not a template.

    Raises:
        KernelmateError: file, contract, reference, settings or machine need a change.
    """
    with _session(settings) as session:
        return session.bench(_kernel(kernel), sizes, reference)


def compare(
    kernel: str | Path | Kernel,
    candidate: str | Path | Kernel,
    prompt: str | None = None,
    sizes: Sequence[Mapping[str, int]] = (),
    reference: str | None = None,
    **settings: Any,
) -> Comparison:
    """Judges a changed kernel against its baseline by the baseline's contract.

    Args:
        kernel: the baseline: `"FILE"`, `"FILE::KERNEL"`, or a kernel.
        candidate: the changed kernel, likewise.
        prompt: the objective in plain words ("reduce memory usage"); acceptance depends on it.
        sizes: replace the contract's sizes; figures refer to the first one.
        reference: replaces the contract's.
        **settings: as in `kernelmate.config.Settings`.

    Raises:
        KernelmateError: files, contract, reference, settings or machine need a change.
    """
    with _session(settings) as session:
        return session.compare(_kernel(kernel), _kernel(candidate), prompt, sizes, reference)


def optimize(
    kernel: str | Path | Kernel,
    prompt: str,
    sizes: Sequence[Mapping[str, int]] = (),
    max_candidates: int = 32,
    reference: str | None = None,
    **settings: Any,
) -> Optimization:
    """Search for a version that meets the prompt's objective; no file is written.

    Args:
        kernel: `"FILE"`, `"FILE::KERNEL"`, or a kernel.
        prompt: the objective in plain words: "make it faster", "reduce memory usage".
        sizes: replace the contract's sizes; figures refer to the first one.
        max_candidates: the largest number of candidates to judge.
        reference: replaces the contract's.
        **settings: as in `kernelmate.config.Settings`.

    Returns:
        Every candidate with its verdict, the best first; `best` is None when none is worth taking.

    Raises:
        KernelmateError: file, prompt, contract, reference, settings or machine need a change.
    """
    with _session(settings) as session:
        return session.optimize(_kernel(kernel), prompt, sizes, max_candidates, reference=reference)


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext kernelmate`: registers the magics `%%kernelmate` and `%kernelmate`."""
    _widgets().load_ipython_extension(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext kernelmate`: removes the magics and closes their session."""
    _widgets().unload_ipython_extension(shell)


def _widgets() -> Any:
    """Imports the notebook package by name at run time, because the core package must not depend on it."""
    import importlib

    return importlib.import_module("kernelmate_widgets")


def fix(
    kernel: str | Path | Kernel,
    sizes: Sequence[Mapping[str, int]] = (),
    max_candidates: int = 48,
    reference: str | None = None,
    **settings: Any,
) -> Optimization:
    """Search for a correct version of a kernel that does not compile or is wrong; no file is written.

    Args:
        kernel: `"FILE"`, `"FILE::KERNEL"`, or a kernel.
        sizes: replace the contract's sizes.
        max_candidates: the largest number of candidates to judge.
        reference: replaces the contract's.
        **settings: as in `kernelmate.config.Settings`.

    Returns:
        Every candidate with its verdict; `best` is None if no candidate is correct or the kernel already was; `notes`
        say which.

    Raises:
        KernelmateError: file, contract, reference, settings or machine need a change.
    """
    with _session(settings) as session:
        return session.optimize(
            _kernel(kernel), "fix the kernel", sizes, max_candidates, reference=reference, objective="correct"
        )


def _session(settings: Mapping[str, Any]) -> Session:
    from kernelmate.config import load_settings
    from kernelmate.session import Session

    return Session(load_settings(**settings))


def _kernel(kernel: str | Path | Kernel) -> Kernel:
    from kernelmate.records import Kernel
    from kernelmate.source import load_kernel

    return kernel if isinstance(kernel, Kernel) else load_kernel(str(kernel))
