"""PyTorch: kernels as custom operators of a program, and modules as kernels."""

from __future__ import annotations

# Importing torch takes seconds, and most of the package's modules are used without `replace`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from kernelmate_torch.replacing import OperatorModule, ReplacementReport, replace

__all__ = ["OperatorModule", "ReplacementReport", "replace"]


def load_ipython_extension(shell: Any) -> None:
    """Adds `%%kernelmate_trace` to a notebook; called by `%load_ext kernelmate_torch`."""
    from kernelmate_torch.tracing.magic import TraceMagics

    shell.register_magics(TraceMagics)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kernelmate_torch import replacing

    return getattr(replacing, name)
