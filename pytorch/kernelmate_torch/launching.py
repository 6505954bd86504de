"""Makes a PyTorch operator of a kernel's file: CuPy launches it on a GPU, KernelMate's emulator on the CPU.

`operator("kernels/linear_gelu.cu")` takes the contract's inputs in their order and returns its results. A call whose dtypes or
shapes the contract does not allow raises ValueError. The operator has no backward: a gradient through it raises RuntimeError.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernelmate.records import Argument, Contract, Kernel, LaunchShape, Size
from kernelmate.source import contract_for, load_kernel
from kernelmate.source.expressions import evaluate_integer
from kernelmate.source.launch import launch_shape, scalar_values

NAMESPACE = "kernelmate_port"

MOST_PLANS = 1024
"""Largest number of shapes of the inputs whose launches an operator keeps."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Results, launch and scalars for one set of input shapes.

    Evaluating the expressions of the contract takes longer than the launch itself, so that plans are kept.

    Attributes:
        results: shape and dtype of each result.
        scratch: shape and dtype of each scratch array, and the function that makes it.
        shape: grid, block and shared memory.
        scalars: the scalars that are passed, by name.
        cells: the bytes of each parameter's scalar as an integer, and 0 for arrays.
    """

    results: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    scratch: tuple[tuple[tuple[int, ...], torch.dtype, Callable[..., torch.Tensor]], ...]
    shape: LaunchShape
    scalars: Mapping[str, np.generic]
    cells: tuple[int, ...]


class KernelOperator:
    """One kernel, launched on tensors.

    Args:
        path: its file, with a contract.
    """

    def __init__(self, path: Path) -> None:
        self.kernel: Kernel = load_kernel(str(path))
        self.contract: Contract = contract_for(self.kernel)
        arrays = [one for one in self.contract.args if one.shape is not None]
        self.inputs = [one for one in arrays if one.direction == "in"]
        self.outputs = [one for one in arrays if one.direction == "out"]
        self.scratch = [one for one in arrays if one.direction == "scratch"]
        order = [one.name for one in (*self.inputs, *self.outputs, *self.scratch)]
        self._places = [
            (place, order.index(one.name)) for place, one in enumerate(self.contract.args) if one.shape is not None
        ]
        self._plans: dict[tuple[tuple[torch.dtype, torch.Size], ...], LaunchPlan] = {}

    def size(self, tensors: Sequence[torch.Tensor]) -> Size:
        """Returns the sizes of the contract that follow from the shapes of the inputs.

        Raises:
            ValueError: a dtype or shape is another than the contract's.
        """
        found: dict[str, Any] = {}
        for argument, tensor in zip(self.inputs, tensors, strict=True):
            if str(tensor.dtype) != f"torch.{argument.dtype}" or tensor.dim() != len(argument.shape or ()):
                raise self._wrong(argument, tensor, found)
            found.update({side: extent for side, extent in zip(argument.shape or (), tensor.shape, strict=True) if side.isidentifier() and side not in found})  # fmt: skip
        for argument, tensor in zip(self.inputs, tensors, strict=True):
            for side, extent in zip(argument.shape or (), tensor.shape, strict=True):
                if (found[side] if side in found else evaluate_integer(side, found, argument.name)) != extent:
                    raise self._wrong(argument, tensor, found)
        return found

    def _wrong(self, argument: Argument, tensor: torch.Tensor, found: Size) -> ValueError:
        at = ", ".join(f"{name} = {value}" for name, value in found.items())
        return ValueError(
            f"{self.kernel.name}: {argument.name} has to be {argument.dtype}[{', '.join(argument.shape or ())}]"
            f"{f' with {at}' if at else ''}, and it is {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}."
        )

    def results(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns tensors without contents for the results, on the device of the inputs; their shapes may be symbols."""
        size, device = self.size(tensors), tensors[0].device
        made = self._made(self.outputs, size)
        return [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in made]

    @staticmethod
    def _made(arrays: Sequence[Argument], size: Size) -> tuple[tuple[tuple[int, ...], torch.dtype], ...]:
        return tuple(
            (tuple(evaluate_integer(side, size, one.name) for side in one.shape or ()), getattr(torch, one.dtype))
            for one in arrays
        )

    def _plan(self, size: Size) -> LaunchPlan:
        values = scalar_values(self.contract, size)
        scalars = {one.name: np.dtype(one.dtype).type(values[one.name]) for one in self.contract.args if one.shape is None}  # fmt: skip
        cells = tuple(int.from_bytes(scalars[one.name].tobytes(), "little") if one.name in scalars else 0 for one in self.contract.args)  # fmt: skip
        makers = [getattr(torch, one.distribution or "empty") for one in self.scratch]
        scratch = tuple((*made, maker) for made, maker in zip(self._made(self.scratch, size), makers, strict=True))
        return LaunchPlan(self._made(self.outputs, size), scratch, launch_shape(self.contract, size), scalars, cells)

    def plan(self, tensors: Sequence[torch.Tensor]) -> LaunchPlan:
        """Returns the launch for tensors of these shapes, kept for the next call with the same ones.

        Raises:
            ValueError: an input is not what the contract says.
        """
        key = tuple((one.dtype, one.shape) for one in tensors)
        found = self._plans.get(key)
        if found is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            found = self._plans[key] = self._plan(self.size(tensors))
        return found

    def launch(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Returns the results of one launch.

        Raises:
            ValueError: an input is not what the contract says.
            RuntimeError: the launch failed.
        """
        plan, device = self.plan(tensors), tensors[0].device
        tensors = [one.contiguous() for one in tensors]
        made = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in plan.results]
        run = self._on_gpu if device.type == "cuda" else self._emulated
        scratch = [make(shape, dtype=dtype, device=device) for shape, dtype, make in plan.scratch]
        run([*tensors, *made, *scratch], plan)
        return made

    @functools.cached_property
    def compiled(self) -> Any:
        """The kernel's code and its target, for the emulator."""
        from kernelmate_torch.compiling import compiled_operator

        return compiled_operator(self.kernel, self.contract)

    def _emulated(self, tensors: Sequence[torch.Tensor], plan: LaunchPlan) -> None:
        from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
        from kernelmate.backends.emulator import EmulatorBackend
        from kernelmate_torch.emulation import host_array

        order = [*self.inputs, *self.outputs, *self.scratch]
        by_name = {one.name: tensor for one, tensor in zip(order, tensors, strict=True)}
        compiled, target = self.compiled
        outputs = {one.name for one in self.outputs}
        written = outputs | {one.name for one in self.scratch}
        arguments = tuple(
            ScalarArgument(one.name, plan.scalars[one.name])
            if one.shape is None
            else ArrayArgument(
                one.name, host_array(by_name[one.name]), written=one.name in written, output=one.name in outputs
            )
            for one in self.contract.args
        )
        result = EmulatorBackend().load(compiled, target).run(Run(plan.shape, arguments, check=False))
        for finding in result.findings:
            if finding.severity == "error":
                raise RuntimeError(f"{self.kernel.name}: {finding.message}")
        for name in outputs:
            host_array(by_name[name])[...] = result.arrays[name].reshape(by_name[name].shape)

    def _on_gpu(self, tensors: Sequence[torch.Tensor], plan: LaunchPlan) -> None:
        device = tensors[0].device
        cells = list(plan.cells)
        for place, tensor in self._places:
            cells[place] = tensors[tensor].data_ptr()
        # As the code that torch.compile writes asks for the stream: torch.cuda.current_stream makes an object.
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        self._loaded(device.index).launch(plan.shape, cells, stream)

    @functools.cache  # noqa: B019 -- an operator lives as long as the program
    def _loaded(self, device: int) -> LoadedKernel:
        """Returns the kernel on a GPU, compiled as it is judged: CuPy's own compilation would add -ftz=true."""
        import cupy as cp

        from kernelmate.backends.cuda.loading import load_function
        from kernelmate_torch.compiling import compiled_operator

        gpu = f"sm_{cp.cuda.Device(device).compute_capability}"
        compiled, _ = compiled_operator(self.kernel, self.contract, gpu)
        if not compiled.ok:
            said = next(
                (one.message for one in compiled.diagnostics if one.severity == "error"), "the compiler refuses it"
            )
            raise RuntimeError(f"{self.kernel.name} does not compile for {gpu}: {said}.")
        with cp.cuda.Device(device):
            return LoadedKernel(load_function(compiled), cp.cuda.Device(device), len(self.contract.args))


class LoadedKernel:
    """A kernel's code on one GPU, launched by the driver's own call, with less work on the host than `cupy.RawKernel`.

    Args:
        function: the kernel as a `cupy.RawKernel`.
        device: the GPU, as a `cupy.cuda.Device`.
        parameters: number of the kernel's parameters.
    """

    def __init__(self, function: Any, device: Any, parameters: int) -> None:
        from cupy.cuda import driver

        from kernelmate.backends.cuda.backend import STATIC_SHARED_LIMIT

        self._launch_kernel, self._function, self._device = driver.launchKernel, function, device
        self._address = function.kernel.ptr
        self._shared = STATIC_SHARED_LIMIT - int(function.shared_size_bytes)  # dynamic bytes that may be asked for
        self._cells = ctypes.c_uint64 * parameters
        self._pointers = ctypes.c_void_p * parameters
        self._offsets = tuple(range(0, 8 * parameters, 8))

    def launch(self, shape: LaunchShape, cells: Sequence[int], stream: int) -> None:
        """Launches the kernel without waiting.

        Args:
            shape: grid, block and shared memory.
            cells: the eight bytes of each parameter, as an integer: an address, or a scalar in the lowest bytes.
            stream: address of the CUDA stream.

        Raises:
            cupy.cuda.driver.CUDADriverError: the driver refuses the launch.
        """
        values = self._cells(*cells)
        first = ctypes.addressof(values)
        pointers = self._pointers(*[first + offset for offset in self._offsets])
        with self._device:
            if shape.shared_bytes > self._shared:
                self._function.max_dynamic_shared_size_bytes = self._shared = shape.shared_bytes
            self._launch_kernel(
                self._address, *shape.grid, *shape.block, shape.shared_bytes, stream, ctypes.addressof(pointers), 0
            )


@functools.cache
def operator(path: str | Path) -> Callable[..., Any]:
    """Returns the operator of a kernel's file, registered with torch.library for the CPU, CUDA and fake tensors.

    Args:
        path: the file; its contract says what the operator takes and returns.

    Raises:
        SourceError: the file holds no kernel with a contract.
    """
    kernel = KernelOperator(Path(path).resolve())
    key = hashlib.sha256(kernel.kernel.unit.text.encode()).hexdigest()[:8]
    takes = ", ".join(f"Tensor {one.name}" for one in kernel.inputs)
    gives = "Tensor" if len(kernel.outputs) == 1 else f"({', '.join('Tensor' for _ in kernel.outputs)})"

    def returned(made: list[torch.Tensor]) -> Any:
        return made[0] if len(made) == 1 else tuple(made)

    def launched(*tensors: torch.Tensor) -> Any:
        return returned(kernel.launch(tensors))

    name = f"{NAMESPACE}::{kernel.kernel.name}_{key}"
    made = torch.library.custom_op(
        name, launched, mutates_args=(), schema=f"({takes}) -> {gives}", device_types="cpu"
    )  # fmt: skip
    # Without custom_op's check of aliases in each call: results are always new tensors.
    torch.library.impl(name, "cuda", launched)
    made.register_fake(lambda *tensors: returned(kernel.results(tensors)))
    registered: Callable[..., Any] = made
    return registered


__all__ = ["KernelOperator", "operator"]
