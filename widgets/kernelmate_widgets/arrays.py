"""Arrays of NumPy, CuPy and torch with the properties that a launch needs: device, dtype, and memory layout."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from kernelmate.source import numpy_dtype

Library = Literal["numpy", "cupy", "torch"]

_TORCH_NAMES = {
    "torch.float8_e4m3fn": "float8_e4m3fn",
    "torch.float8_e5m2": "float8_e5m2",
    "torch.float8_e8m0fnu": "float8_e8m0fnu",
}
_SAME_BITS = {1: "uint8", 2: "int16"}


@dataclass(frozen=True, slots=True)
class LiveArray:
    """A user's array with its properties; its contents are not copied.

    Attributes:
        owner: the array itself.
        library: `numpy`, `cupy` or `torch`.
        dtype: the name of the dtype in NumPy or ml_dtypes.
        device: the GPU's number, None for host memory.
        contiguous: True if C-contiguous.
        writable: True if a kernel may write to it.
        pointer: the address of its first element.
    """

    owner: Any
    library: Library
    dtype: str
    shape: tuple[int, ...]
    device: int | None
    contiguous: bool
    writable: bool
    pointer: int

    @property
    def where(self) -> str:
        """Description of library and location: `a CuPy array on GPU 0`."""
        name = {"numpy": "a NumPy array", "cupy": "a CuPy array", "torch": "a torch tensor"}[self.library]
        return f"{name} in host memory" if self.device is None else f"{name} on GPU {self.device}"

    def copied(self) -> np.ndarray[Any, Any]:
        """Returns a C-contiguous copy of the array's contents in host memory."""
        return np.array(self._host(), order="C", copy=True)

    def shared(self) -> np.ndarray[Any, Any]:
        """Returns a NumPy view of host memory; writing to it writes to the array. Only for arrays in host memory."""
        return self._host()

    def _host(self) -> np.ndarray[Any, Any]:
        if self.library == "numpy":
            return np.asarray(self.owner)
        if self.library == "cupy":
            host: np.ndarray[Any, Any] = self.owner.get()
            return host
        tensor = self.owner.detach()
        dtype = numpy_dtype(self.dtype)
        if dtype.kind == "V" or self.dtype not in np.sctypeDict:
            # NumPy has no such dtype, so the bits are passed as integers.
            import torch

            tensor = tensor.view(getattr(torch, _SAME_BITS[dtype.itemsize]))
        return np.asarray(tensor.cpu().numpy()).view(dtype)


def live_array(value: object) -> LiveArray | None:
    """Returns the properties of an array; None if the value is not an array of a supported library."""
    if isinstance(value, np.ndarray):
        return LiveArray(
            value, "numpy", value.dtype.name, value.shape, None, value.flags.c_contiguous, value.flags.writeable,
            value.ctypes.data,
        )  # fmt: skip
    # Looked up by name, since a library that is not loaded cannot have created the user's arrays.
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if cupy is not None and isinstance(value, cupy.ndarray):
        return LiveArray(
            value, "cupy", value.dtype.name, tuple(value.shape), int(value.device.id), bool(value.flags.c_contiguous),
            True, int(value.data.ptr),
        )  # fmt: skip
    if torch is not None and isinstance(value, torch.Tensor):
        return _torch(value)
    return None


def _torch(tensor: Any) -> LiveArray | None:
    if tensor.device.type not in {"cpu", "cuda"} or tensor.layout is not sys.modules["torch"].strided:
        return None
    name = str(tensor.dtype)
    device = None if tensor.device.type == "cpu" else int(tensor.device.index or 0)
    return LiveArray(
        tensor, "torch", _TORCH_NAMES.get(name, name.removeprefix("torch.")), tuple(tensor.shape), device,
        bool(tensor.is_contiguous()), True, int(tensor.data_ptr()),
    )  # fmt: skip
