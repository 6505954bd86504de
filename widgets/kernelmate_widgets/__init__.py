"""KernelMate in notebooks: `%load_ext kernelmate`, then `%%kernelmate` above a kernel."""

from __future__ import annotations

from typing import Any

_LOADED = "_kernelmate_magics"


def load_ipython_extension(shell: Any) -> None:
    """Registers the magics; a shell that already has them keeps them, with their kernels and workers."""
    if getattr(shell, _LOADED, None) is not None:
        return
    from kernelmate_widgets.completion import complete_with
    from kernelmate_widgets.magics import KernelmateMagics

    magics = KernelmateMagics(shell)
    shell.register_magics(magics)
    complete_with(shell, magics)
    magics.cells.connect()
    magics.offers.connect()
    magics.show_optimizations()
    setattr(shell, _LOADED, magics)


def unload_ipython_extension(shell: Any) -> None:
    """Closes the workers; bound kernels can still be launched."""
    magics = getattr(shell, _LOADED, None)
    if magics is not None:
        magics.offers.disconnect()
        magics.notebook.close()
        setattr(shell, _LOADED, None)
