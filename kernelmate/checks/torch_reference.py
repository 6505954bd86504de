"""References that are functions of PyTorch: they are called with tensors on the CPU, in float64 or in the working type."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract

IN_TORCH = "it uses torch: `kernelmate port` writes kernels from such functions"
"""End of the message that such a reference cannot be traced."""


def uses_torch(function: Callable[..., Any]) -> bool:
    """Returns True if a function, or one of its file that it calls, uses PyTorch."""
    waiting: list[Any] = [function]
    seen: set[types.CodeType] = set()
    while waiting:
        one = waiting.pop()
        code = getattr(one, "__code__", None)
        if code is None or code in seen:
            continue
        seen.add(code)
        names = _names(code)
        if _calls_methods_of_tensors(names, one.__globals__):
            return True
        for name in names:
            value = one.__globals__.get(name)
            module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
            if name == "torch" or (module or "").partition(".")[0] == "torch":
                return True
            if isinstance(value, types.FunctionType):
                waiting.append(value)
    return False


def _calls_methods_of_tensors(names: set[str], held: Mapping[str, Any]) -> bool:
    """Returns True for names of methods that only tensors have, in a file that imports torch, without NumPy among the names."""
    modules = {name: value.__name__ for name, value in held.items() if isinstance(value, types.ModuleType)}
    tensor = next(
        (getattr(value, "Tensor", None) for name, value in held.items() if modules.get(name) == "torch"), None
    )
    if tensor is None or any(modules.get(name, "").partition(".")[0] == "numpy" for name in names):
        return False
    methods = names - held.keys()  # a helper may have a method's name
    return any(hasattr(tensor, name) and not hasattr(np.ndarray, name) for name in methods)


def _names(code: types.CodeType) -> set[str]:
    """Returns the names of globals and attributes that code uses, functions within it included."""
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def on_tensors(
    function: Callable[..., Any], contract: Contract, *, device: bool, working: np.dtype[Any] | None
) -> Callable[..., Any]:
    """Returns a function that takes and returns NumPy arrays, and calls a function of PyTorch with tensors.

    Args:
        function: the function.
        contract: the contract that names it.
        device: True if arrays are on a GPU.
        working: the floating type of the evaluation; None for float64. New tensors without a dtype have it too.

    Raises:
        ReferenceFailed: PyTorch cannot compute with these arrays.
    """
    if device:
        raise ReferenceFailed(f"The reference {contract.reference!r} uses torch, and is evaluated on the CPU alone.")

    def called(**given: Any) -> Any:
        import torch

        if any(isinstance(one, np.ndarray) and one.dtype == np.longdouble for one in given.values()):
            raise ReferenceFailed(
                f"The reference {contract.reference!r} uses torch, which has no type wider than float64.",
                line=contract.line,
                hint="The tolerance of a float64 kernel needs one: write the reference in NumPy.",
            )
        kind = torch.float32 if working is not None and working.itemsize == 4 else torch.float64
        before = torch.get_default_dtype()
        torch.set_default_dtype(kind)
        try:
            with torch.no_grad():
                returned = _returned(torch, function, given)
        finally:
            torch.set_default_dtype(before)
        if isinstance(returned, tuple | list):
            return tuple(_array(torch, one) for one in returned)
        return _array(torch, returned)

    return called


def _returned(torch: Any, function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Returns the results for tensors, or for arrays if the function converts its arguments itself (`torch.from_numpy(x)`)."""
    plain = {name: np.asarray(one, order="C") if isinstance(one, np.ndarray) else one for name, one in given.items()}
    tensors = {name: torch.from_numpy(one) if isinstance(one, np.ndarray) else one for name, one in plain.items()}
    try:
        return function(**tensors)
    except (TypeError, AttributeError) as error:
        try:
            return function(**plain)
        except (TypeError, AttributeError):
            raise error from None


def _array(torch: Any, value: Any) -> Any:
    """Returns a tensor as an array, bfloat16 and 8-bit floats as float64; other values are unchanged."""
    if not isinstance(value, torch.Tensor):
        return value
    value = value.detach().cpu()
    known = (torch.float16, torch.float32, torch.float64)
    return (value.double() if value.is_floating_point() and value.dtype not in known else value).numpy()
