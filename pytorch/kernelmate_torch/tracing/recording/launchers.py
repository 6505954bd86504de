"""Counts the launches of Triton functions and of CuPy's kernels."""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .kernels import REGISTRY, LaunchableKernel, code_hash, is_user_file, registering_frame


def follow_triton(module: ModuleType) -> None:
    """Wrap the functions that `triton.jit` makes: `JITFunction`, or `InterpretedFunction` of Triton's interpreter."""
    name = "JITFunction" if hasattr(module, "JITFunction") else "InterpretedFunction"
    kind = getattr(module, name)
    kind.__init__ = _created(kind.__init__)
    kind.run = _run(kind.run)


def follow_autotuner(module: ModuleType) -> None:
    """Leave out the launches by which Triton's autotuner compares settings."""
    bench = module.Autotuner._bench

    @functools.wraps(bench)
    def _bench(self: Any, *args: Any, **named: Any) -> Any:
        REGISTRY.benchmarking += 1
        try:
            return bench(self, *args, **named)
        finally:
            REGISTRY.benchmarking -= 1

    module.Autotuner._bench = _bench


def follow_inductor(module: ModuleType) -> None:
    """Count launches of the user's Triton functions from code that inductor made, where they have its names."""
    run = module.CachingAutotuner.run

    @functools.wraps(run)
    def counted_run(self: Any, *args: Any, **named: Any) -> Any:
        result = run(self, *args, **named)
        if REGISTRY.active and not REGISTRY.benchmarking:
            kernel = by_inductors_name(getattr(self.fn, "__name__", ""))
            if kernel is not None:
                kernel.launched("cuda")
        return result

    module.CachingAutotuner.run = counted_run


def by_inductors_name(name: str) -> LaunchableKernel | None:
    """Returns the user's Triton function of a name, which inductor gives a number at its end (`add_kernel_0`)."""
    plain = re.sub(r"_\d+$", "", name)
    found = [
        one
        for one in list(REGISTRY.kernels.values())
        if one.kind == "triton" and one.user and one.name in (name, plain)
    ]
    return max(found, key=lambda one: len(one.name), default=None)


def _created(init: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(init)
    def __init__(self: Any, fn: Any, *args: Any, **named: Any) -> None:  # noqa: N807
        init(self, fn, *args, **named)
        code = getattr(fn, "__code__", None)
        if code is not None:
            REGISTRY.bind(self, triton_kernel(self, fn))

    return __init__


def triton_kernel(value: Any, fn: Any) -> LaunchableKernel:
    """Returns the kernel of a Triton function."""
    code = fn.__code__
    text = getattr(value, "src", None)
    return REGISTRY.add(
        LaunchableKernel(
            key=f"triton:{code.co_filename}:{fn.__name__}", name=fn.__name__, kind="triton", file=code.co_filename,
            line=code.co_firstlineno, user=is_user_file(code.co_filename), scope=f"{fn.__module__}:{fn.__name__}",
            code=code_hash(text if isinstance(text, str) else code.co_code),
        )
    )  # fmt: skip


def _run(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def counted_run(self: Any, *args: Any, **named: Any) -> Any:
        if not REGISTRY.active or REGISTRY.benchmarking or named.get("warmup"):
            return run(self, *args, **named)
        key = REGISTRY.bound(self)
        kernel = REGISTRY.kernels[key] if key is not None else triton_kernel(self, self.fn)
        try:
            result = run(self, *args, **named)
        except BaseException as error:
            kernel.failed(error)
            raise
        kernel.launched("cuda")
        return result

    return counted_run


def follow_cupy(cupy: Any) -> None:
    """Give `cupy.RawKernel` and `cupy.RawModule` subclasses that count launches; CuPy's own cannot be changed."""

    class RawKernel(cupy.RawKernel):
        def __init__(self, code: str, name: str, *args: Any, **named: Any) -> None:
            REGISTRY.bind(self, _cupy_kernel(name, code))

        def __call__(self, *args: Any, **named: Any) -> Any:
            return _cupy_launch(self, super().__call__, *args, **named)

    class RawModule(cupy.RawModule):
        def __init__(self, code: str | None = None, *args: Any, **named: Any) -> None:
            self.kernelmate_text = code or named.get("path") or ""

        def get_function(self, name: str) -> Any:
            """Returns a function whose launches are counted."""
            return LoadedFunction(super().get_function(name), _cupy_kernel(name, self.kernelmate_text))

    cupy.RawKernel, cupy.RawModule = RawKernel, RawModule


class LoadedFunction:
    """A function of a `cupy.RawModule` whose launches are counted."""

    def __init__(self, function: Any, kernel: LaunchableKernel) -> None:
        self._function = function
        REGISTRY.bind(self, kernel)

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Launches it."""
        return _cupy_launch(self, self._function, *args, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)


def _cupy_kernel(name: str, text: str) -> LaunchableKernel:
    frame = registering_frame(sys._getframe(1))
    file = "" if frame is None else frame.f_code.co_filename
    line = 0 if frame is None else frame.f_lineno
    made = code_hash(str(text))
    return REGISTRY.add(
        LaunchableKernel(
            f"cupy:{name}:{made}", name, "cupy", file, line, user=bool(file) and is_user_file(file), code=made
        )
    )


def _cupy_launch(value: Any, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    key = REGISTRY.bound(value)
    if key is None or not REGISTRY.active:
        return call(*args, **named)
    kernel = REGISTRY.kernels[key]
    try:
        result = call(*args, **named)
    except BaseException as error:
        kernel.failed(error)
        raise
    kernel.launched("cuda")
    return result
