"""Imported by each stand-in first: says what to do where the program's Python lacks KernelMate."""

import sys

try:
    import kernelmate.capture.recorder  # noqa: F401 -- and NumPy with it
except ImportError as error:
    raise ImportError(
        f"kernelmate capture: the Python of this program, {sys.executable}, lacks KernelMate or a part of it ({error}). "
        f"Run: {sys.executable} -m pip install kernelmate"
    ) from None
