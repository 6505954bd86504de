"""A computation of PyTorch as a version of a timing device, beside a kernel: both are replayed as CUDA graphs.

A graph's replay costs the same for one kernel as for another, and no gap in it depends on how fast the host submits launches, as a program that
captures its step has none. The results of torch lie in memory of the graph; nothing copies them into the kernel's outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmate.backends.cuda.launching import device_view
from kernelmate.backends.cuda.pipeline_timing import ReplayedSteps
from kernelmate.backends.cuda.timing_arena import Launch, TimingArena
from kernelmate.backends.timed import CannotCapture
from kernelmate.records import LaunchShape

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaModule

WARM_UPS = 3
"""Calls before the capture: torch.compile compiles in the first, and libraries allocate their workspaces."""

Results = tuple[Any, ...]
TorchFunction = Callable[[Mapping[str, Any]], Results]
"""Takes tensors by argument, and returns the tensors of the results."""


@dataclass(frozen=True, slots=True)
class ReplayedKernel:
    """A loaded kernel that is launched by a graph.

    Attributes:
        module: the kernel.
        shape: its launch.
    """

    module: CudaModule
    shape: LaunchShape

    @property
    def traps(self) -> bool:
        """True if the kernel contains a trap instruction."""
        return self.module.traps

    def placed(self, arena: TimingArena, place: int, stream: Any) -> Launch:
        """Returns a launcher on an arena's arrays; see `CudaPipeline.placed`."""
        ready = self.module.ready_elsewhere(self.shape, place) if place else self.module.ready(self.shape)
        return ReplayedSteps([arena.launcher(ready, self.shape)], stream, ())


class TorchVersion:
    """A function of torch on the arrays of an arena.

    Args:
        function: the function.
        arrays: shape and dtype of each array that it takes.
    """

    traps = False

    def __init__(self, function: TorchFunction, arrays: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]) -> None:
        self._function, self._arrays = function, arrays
        self._first: _CapturedCall | None = None

    def placed(self, arena: TimingArena, place: int, stream: Any) -> Launch:
        """Returns a launcher on an arena's arrays; see `CudaPipeline.placed`."""
        given = {
            name: tensor_of(device_view(arena.places[name], shape, bits_of(dtype)), dtype)
            for name, (shape, dtype) in self._arrays.items()
        }
        call = _CapturedCall(lambda: self._function(given), stream, keep=place == 0)
        if place == 0:
            self._first = call
        return call

    @property
    def results(self) -> Results:
        """Returns the results of the last replay in the first placement."""
        assert self._first is not None, "a version has results once it was placed"
        return self._first.results


class _CapturedCall:
    """One call of a function of torch, captured on a stream of CuPy and replayed.

    Args:
        call: makes the call.
        stream: the stream.
        keep: keep the results; else their memory serves the next graph's.

    Raises:
        CannotCapture: the function cannot be captured, as when it waits for the GPU.
    """

    def __init__(self, call: Callable[[], Results], stream: Any, *, keep: bool) -> None:
        import torch

        self._cupy_stream = stream
        self._stream = torch.cuda.ExternalStream(stream.ptr)
        self._graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.stream(self._stream):
            for _ in range(WARM_UPS):
                call()
            self._stream.synchronize()
            try:
                with torch.cuda.graph(self._graph, stream=self._stream, capture_error_mode="thread_local"):
                    results = call()
            except RuntimeError as error:
                line = next((line for line in str(error).splitlines() if line.strip()), "")
                raise CannotCapture(f"it cannot be captured in a CUDA graph: {line}") from None
        self.results: Results = results if keep else ()

    def __call__(self, stream: int) -> None:
        """Replays the call on the stream that it was captured on."""
        import torch

        if self._cupy_stream.is_capturing():
            raise CannotCapture("a graph of torch is not captured in another")
        with torch.cuda.stream(self._stream):
            self._graph.replay()


def bits_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Returns the type in which arrays are passed to torch: integers of its size for a type that only ml_dtypes has."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"{'u' if dtype.itemsize == 1 else 'i'}{dtype.itemsize}")


def tensor_of(array: Any, dtype: np.dtype[Any]) -> Any:
    """Returns an array of NumPy or CuPy, in the type `bits_of`, as a tensor of a dtype on the same memory."""
    import torch

    if isinstance(array, np.ndarray):
        tensor = torch.from_numpy(array)
    else:
        tensor = torch.as_tensor(array, device=f"cuda:{array.device.id}")
    return tensor.view(getattr(torch, dtype.name))
