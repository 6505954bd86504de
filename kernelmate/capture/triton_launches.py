"""Launches of Triton functions without a GPU: compiled as for a GPU, run in the emulator on tensors of the host."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.capture.emulated import EmulatedKernel, EmulatedLaunchFailed, launch, noted_failure, triton_kernel
from kernelmate.capture.library_wrappers import host_array
from kernelmate.errors import KernelmateError
from kernelmate.records import Argument, Contract, Kernel, LaunchShape
from kernelmate.source.triton import DEFAULTS, SETTINGS, function_of
from kernelmate.source.triton_contract import ALIGNED

LARGEST_INT32 = 2**31 - 1


def follow_triton() -> None:
    """Lets Triton's functions launch in the emulator; autotuners take their first configuration."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import autotuner, driver, jit

    jit.JITFunction.run = _run
    autotuner.Autotuner.run = _first_configuration
    driver.set_active(_Driver(GPUTarget("cuda", 90, 32)))


class _Driver:
    """Triton's driver on a machine without one, for programs that ask it for the device."""

    def __init__(self, target: Any) -> None:
        self._target = target

    def get_current_target(self) -> Any:
        """Returns the GPU that is emulated."""
        return self._target

    def get_active_torch_device(self) -> Any:
        """Returns the device of tensors: the host."""
        import torch

        return torch.device("cpu")

    def get_current_device(self) -> int:
        """Returns the number of the device."""
        return 0

    def get_current_stream(self, _device: int = 0) -> int:
        """Returns the stream."""
        return 0


def _first_configuration(self: Any, *args: Any, **named: Any) -> Any:
    """Launches an autotuned function with its first configuration, since no time can be measured."""
    config = self.configs[0]
    if config.pre_hook is not None:
        config.pre_hook({**dict(zip(self.arg_names, args, strict=False)), **named, **config.all_kwargs()})
    return self.fn.run(*args, **{**named, **config.all_kwargs()})


def _run(self: Any, *args: Any, grid: Any, warmup: bool = False, **named: Any) -> None:
    """Launches a function as `JITFunction.run` does, with the values of `fn[grid](...)`."""
    if warmup:
        return
    kernel = _kernel_of(inspect.getsourcefile(self.fn) or "", self.fn.__name__)
    given, options = _bound(kernel, args, named)
    sides = grid({**given, **named}) if callable(grid) else grid
    x, y, z = (int(one) for one in (*(sides if isinstance(sides, Sequence) else (sides,)), 1, 1)[:3])
    values = {name: _value(name, value) for name, value in given.items()}
    with noted_failure(kernel.name, LaunchShape((x, y, z), (1, 1, 1)), list(values.values())):
        made, whole = _compiled(kernel, _arguments(values), options)
    passed = [one.name for one in whole.passing if one.kind == "argument"]
    scratch = len(whole.passing) - len(passed)
    launched = LaunchShape((x, y, z), (int(whole.block[0]), 1, 1), int(whole.shared))
    # A number that is always 1 is no parameter of the code, but one of the function.
    launch(
        made, launched, [values[name] for name in values], scratch=scratch, passed=[name in passed for name in values]
    )


@lru_cache(maxsize=64)
def _kernel_of(file: str, name: str) -> Kernel:
    from kernelmate.source import load_kernels

    try:
        found = [one for one in load_kernels(Path(file)) if one.unit.language == "triton" and one.name == name]
    except KernelmateError as error:
        raise EmulatedLaunchFailed(f"the Triton function {name} cannot be read: {error}") from None
    if not found:
        raise EmulatedLaunchFailed(
            f"{name} is not a Triton kernel at the top level of {file}; the emulator launches only those"
        )
    return found[0]


def _bound(kernel: Kernel, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Returns the arguments of a launch that are passed, and its constants and settings as `NAME=value`."""
    function = function_of(kernel)
    given = {**dict(zip([one.name for one in function.parameters], args, strict=False)), **named}
    constants, passed = {}, {}
    for one in function.parameters:
        if one.name not in given and one.default is None:
            raise EmulatedLaunchFailed(f"{kernel.name} is launched without {one.name}")
        if one.name not in given:
            constants[one.name] = str(one.default)
        elif one.constexpr or given[one.name] is None:
            constants[one.name] = _constant_text(given[one.name])
        else:
            passed[one.name] = given[one.name]
    settings = {name: str(given.get(name) or default) for name, default in DEFAULTS.items()}
    settings |= {name: str(given[name]) for name in SETTINGS if name not in DEFAULTS and given.get(name)}
    return passed, tuple(f"{name}={value}" for name, value in {**constants, **settings}.items())


def _constant_text(value: Any) -> str:
    """Returns a constant as the contract's `options` write it."""
    if isinstance(value, bool | int | float | str) or value is None:
        return repr(value)
    if type(value).__module__.startswith("triton.language"):
        names = {"fp16": "float16", "fp32": "float32", "fp64": "float64", "bf16": "bfloat16"}
        return f"tl.{names.get(str(value), str(value))}"
    raise EmulatedLaunchFailed(f"the constant {value!r} is not a number, text or type of triton.language")


def _value(name: str, value: Any) -> Any:
    """Returns an argument as the emulator takes it: an array of the host, or a NumPy scalar of the type that Triton gives it."""
    array = host_array(value)
    if array is not None:
        return array
    if isinstance(value, bool):
        return np.bool_(value)
    if isinstance(value, int):
        return np.int32(value) if -LARGEST_INT32 <= value <= LARGEST_INT32 else np.int64(value)
    if isinstance(value, float):
        return np.float32(value)
    raise EmulatedLaunchFailed(
        f"{name} is a {type(value).__name__}, and the emulator launches with tensors and numbers"
    )


def _arguments(values: Mapping[str, Any]) -> tuple[Argument, ...]:
    """Returns the types of one launch's arguments, its whole numbers being constants as far as they decide about the code."""
    args = []
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            align = ALIGNED if value.ctypes.data % ALIGNED == 0 else value.dtype.itemsize
            args.append(Argument(name, "inout", value.dtype.name, ("1",), align=align))
        else:
            # Only 1 makes other code: multiples of 16 run in code for any number.
            text = "1" if value.dtype.kind in "iu" and value == 1 else "2"
            args.append(Argument(name, None, value.dtype.name, value=text))
    return tuple(args)


@lru_cache(maxsize=256)
def _compiled(kernel: Kernel, args: tuple[Argument, ...], options: tuple[str, ...]) -> tuple[EmulatedKernel, Contract]:
    return triton_kernel(kernel, Contract(kernel.name, ({},), ("1",), (), args, options=options))
