"""Counts the launches of operators that are registered by torch.library, or that the program names as torch.ops.NS.NAME."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from .kernels import (
    REGISTRY,
    LaunchableKernel,
    code_hash,
    function_hash,
    is_by_torch,
    is_user_file,
    nearest_user_frame,
    place_in,
    registering_frame,
)

_UNCOUNTED = (
    "Autograd",
    "Autocast",
    "Meta",
    "Functionalize",
    "BackendSelect",
    "Python",
    "FuncTorch",
    "Batched",
    "ADInplace",
)
"""Beginnings of dispatch keys whose implementations do not launch the kernel, or call it again below."""

_TORCH: set[str] = {
    "aten",
    "prim",
    "prims",
    "rngprims",
    "debugprims",
    "inductor",
    "quantized",
    "_quantized",
    "higher_order",
    "c10d",
    "_c10d_functional",
    "symm_mem",
    "sparse",
    "cuda",
    "profiler",
    "onnx",
    "onnx_symbolic",
    "streams",
    "debug_mode_ops",
    "flex_lib",
    "cplib",
    "mkldnn",
    "mkldnn_prepacked",
    "onednn",
    "xnnpack",
    "prepacked",
    "static_runtime",
    "internal",
    "_test",
    "dist",
}
"""Namespaces of PyTorch itself; those that it registers at its import are added."""

DEFINITIONS: dict[str, Any] = {}
"""Objects that `torch.library.custom_op` returned, by key of the kernel."""


def follow_torch(torch: ModuleType, *, late: bool) -> None:
    """Wraps the registration of operators.

    Args:
        torch: the package.
        late: True if it was imported before, so that operators of the program may be registered already.
    """
    if not late:
        _TORCH.update(name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names())
    library = torch.library.Library
    library.define = _defining(library.define)
    library.impl = _implementing(library.impl)
    from torch._library import custom_ops  # type: ignore[import-not-found, unused-ignore]

    custom = custom_ops.CustomOpDef
    custom.__init__ = _creating(custom.__init__)
    custom.register_kernel = _registering(custom.register_kernel)
    for definition in list(custom_ops.OPDEFS.values()):
        _follow_earlier(definition)


def _creating(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def __init__(self: Any, namespace: str, name: str, schema: Any, function: Any, *more: Any, **named: Any) -> None:  # noqa: N807
        own = user_function(function)
        if _is_torchs(namespace, own):
            init(self, namespace, name, schema, function, *more, **named)
            return
        kernel = _operator(f"{namespace}::{name}")
        _describe(kernel, own)
        DEFINITIONS[kernel.key] = self
        REGISTRY.bind(self, kernel)
        init(self, namespace, name, schema, function, *more, **named)

    return __init__


def user_function(function: Any) -> Any:
    """Returns the user's function that `triton_op` wrapped (without `__wrapped__`); any other function unchanged."""
    code = getattr(function, "__code__", None)
    if (
        code is None
        or place_in("torch", code.co_filename) != os.path.join("_library", "triton.py")
        or "fn" not in code.co_freevars
    ):
        return function
    return function.__closure__[code.co_freevars.index("fn")].cell_contents


def _is_torchs(namespace: str, function: Any) -> bool:
    return namespace in _TORCH or bool(
        place_in("torch", getattr(getattr(function, "__code__", None), "co_filename", ""))
    )


def _describe(kernel: LaunchableKernel, function: Any) -> None:
    """Takes place and hash of an operator from the function that defines it."""
    code = getattr(function, "__code__", None)
    if code is None:
        return
    kernel.file, kernel.line = code.co_filename, code.co_firstlineno
    kernel.code = _device_code(function) or function_hash(code)
    kernel.scope = f"{function.__module__}:{function.__name__}"
    kernel.user = is_user_file(code.co_filename) or kernel.name.startswith("kernelmate::")
    kernel.registrations = [["", code.co_filename, code.co_firstlineno, function.__qualname__]]


def _device_code(function: Any) -> str:
    """Returns the hash of the CUDA text of an operator that KernelMate exported; empty for others."""
    kernel = function.__globals__.get("KERNEL")
    if type(kernel).__name__ != "CudaKernel":
        return ""
    try:
        return code_hash(kernel.text)
    except (OSError, AttributeError):
        return ""


def _registering(register: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(register)
    def register_kernel(self: Any, device_types: Any, function: Any = None, /) -> Any:
        def noted(one: Any) -> Any:
            devices = [device_types] if device_types is None or isinstance(device_types, str) else list(device_types)
            known = REGISTRY.kernels.get(f"operator:{self._qualname}")
            for device in devices if known is not None else ():
                assert known is not None
                _note_registration(known, str(device or "default"), one)
            return register(self, device_types, one)

        return noted if function is None else noted(function)

    return register_kernel


def _note_registration(kernel: LaunchableKernel, key: str, function: Any) -> None:
    own = user_function(function)
    code = getattr(own, "__code__", None)
    if code is not None:
        kernel.registrations.append([key, code.co_filename, code.co_firstlineno, own.__qualname__])


def _defining(define: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(define)
    def wrapped(self: Any, schema: str, *more: Any, **named: Any) -> Any:
        name = define(self, schema, *more, **named)
        if self.ns in _TORCH or is_by_torch(sys._getframe(1)):
            return name
        kernel = _operator(f"{self.ns}::{schema.partition('(')[0].strip().partition('.')[0]}")
        frame = registering_frame(sys._getframe(1))
        if frame is not None and not kernel.file:
            kernel.file, kernel.line = frame.f_code.co_filename, frame.f_lineno
            kernel.user = is_user_file(kernel.file) or kernel.name.startswith("kernelmate::")
        return name

    return wrapped


def _implementing(impl: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(impl)
    def wrapped(self: Any, op_name: Any, fn: Any, dispatch_key: str = "", *more: Any, **named: Any) -> Any:
        key = dispatch_key or self.dispatch_key or "CompositeImplicitAutograd"
        name = op_name if isinstance(op_name, str) else op_name._schema.name
        name = (name if "::" in name else f"{self.ns}::{name}").partition(".")[0]
        if name.partition("::")[0] in _TORCH or not isinstance(fn, FunctionType):
            return impl(self, op_name, fn, dispatch_key, *more, **named)
        kernel = _operator(name)
        if key.startswith("Autograd") and "torch/_library" not in fn.__code__.co_filename:
            kernel.autograd = True
        if key.startswith(_UNCOUNTED):
            return impl(self, op_name, fn, dispatch_key, *more, **named)
        if "torch/_library" not in fn.__code__.co_filename:
            _note_registration(kernel, key, fn)
            kernel.code = kernel.code or function_hash(fn.__code__)
        return impl(self, op_name, counted(kernel, fn), dispatch_key, *more, **named)

    return wrapped


def _operator(name: str) -> LaunchableKernel:
    key = f"operator:{name}"
    known = REGISTRY.kernels.get(key)
    return known if known is not None else REGISTRY.add(LaunchableKernel(key, name, "operator"))


def _follow_earlier(definition: Any) -> None:
    """Follows an operator that was registered before the recording began."""
    own = user_function(definition._init_fn)
    if _is_torchs(definition._namespace, own):
        return
    kernel = _operator(definition._qualname)
    REGISTRY.bind(definition, kernel)
    DEFINITIONS[kernel.key] = definition
    _describe(kernel, own)
    for device, function in list(definition._backend_fns.items()):
        definition._backend_fns[device] = counted(kernel, function)


def counted(kernel: LaunchableKernel, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns an implementation that counts its launches and its exceptions."""

    @functools.wraps(function)
    def launch(*args: Any, **named: Any) -> Any:
        if not REGISTRY.active or not _is_real((*args, *named.values())):
            return function(*args, **named)
        with REGISTRY.inside():
            try:
                made = function(*args, **named)
            except BaseException as error:
                kernel.failed(error)
                raise
        device = _device((*args, *named.values()))
        kernel.launched(device)
        kernel.disabled += bool(_disabled(kernel) & {device, None})
        _note_gradient(kernel, (*args, *named.values()))
        return made

    return launch


def _disabled(kernel: LaunchableKernel) -> set[str | None]:
    """Returns the devices whose kernel the program has disabled by `set_kernel_enabled`."""
    held: set[str | None] = getattr(DEFINITIONS.get(kernel.key), "_disabled_kernel", set())
    return held


def _tensors(values: tuple[Any, ...]) -> list[Any]:
    torch: Any = sys.modules["torch"]
    flat = (inner for one in values for inner in (one if isinstance(one, list | tuple) else (one,)))
    return [one for one in flat if isinstance(one, torch.Tensor)]


def _is_real(values: tuple[Any, ...]) -> bool:
    """Returns True if no tensor is a stand-in of a compilation, nor on the device meta."""
    torch: Any = sys.modules["torch"]
    for one in _tensors(values):
        if type(one) is not torch.Tensor and type(one) is not torch.nn.Parameter:
            if type(one).__name__ in ("FakeTensor", "FunctionalTensor"):
                return False
        elif one.device.type == "meta":
            return False
    return True


def _device(values: tuple[Any, ...]) -> str:
    return next((str(one.device.type) for one in _tensors(values)), "")


def _note_gradient(kernel: LaunchableKernel, values: tuple[Any, ...]) -> None:
    """Notes a launch that a gradient cannot pass, unless an Autograd implementation is registered."""
    torch: Any = sys.modules["torch"]
    if kernel.autograd or not torch.is_grad_enabled() or not any(one.requires_grad for one in _tensors(values)):
        return
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    for key in ("Autograd", "CompositeImplicitAutograd", "AutogradCPU", "AutogradCUDA"):
        if has(kernel.name, key):
            kernel.autograd = True
            return
    kernel.needed_gradient += 1


def named_operator(value: Any) -> str | None:
    """Returns the key of the kernel that an object of torch.ops or torch.library is, and follows it; None for another object."""
    kind = type(value).__name__
    if kind == "CustomOpDef":
        name = value._qualname
    elif kind == "OpOverloadPacket":
        name = value._qualified_op_name
    elif kind == "OpOverload":
        name = value._schema.name
    else:
        return None
    if name.partition("::")[0] in _TORCH:
        return None
    known = REGISTRY.kernels.get(f"operator:{name}")
    if known is None:
        known = _operator(name)
        frame = nearest_user_frame(sys._getframe(1))
        known.file = "" if frame is None else frame.f_code.co_filename
        known.user = True
    if not known.registrations and known.exact:
        _follow_native(name, known)
    return known.key


def _follow_native(name: str, kernel: LaunchableKernel) -> None:
    """Counts the calls of an operator that C++ code registers."""
    torch: Any = sys.modules["torch"]
    namespace, _, last = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), last)
    kernel.exact = False
    kernel.autograd = True
    for one in (packet, *(getattr(packet, overload) for overload in packet.overloads())):
        one._op = counted(kernel, one._op)


__all__ = ["DEFINITIONS", "counted", "follow_torch", "named_operator", "user_function"]
