"""Kernels of the traced program and the counts of their launches."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import sysconfig
import threading
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

HASH_DIGITS = 12
"""Hexadecimal digits of a code hash (SHA-256)."""

_STACK = 200
"""Number of frames above a launch that are examined."""

_ERRORS = 20
"""Different errors that are kept for one kernel."""

_LIBRARIES = tuple(
    {
        os.path.realpath(path) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
        if (path := sysconfig.get_path(name))
    }
)
_REGISTRARS = ("torch", "triton", "cupy")
"""Libraries that register kernels for others."""

_LIBRARY = ("library.py", "_library", "_custom_op", "_ops.py")
"""Files and folders of PyTorch by which `torch.library` registers what others define."""

_OWN = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))) + os.sep

LIBRARIES = "KERNELMATE_TRACE_LIBRARIES"
"""Environment variable with further folders whose files are not part of the user's program."""


def is_user_file(name: str) -> bool:
    """Returns True for a file of the user's program: no library, no generated code, a cell of a notebook included."""
    known = _USER_FILES.get(name)
    if known is None:
        known = _USER_FILES[name] = _is_user_file(name)
    return known


_USER_FILES: dict[str, bool] = {}


def _is_user_file(name: str) -> bool:
    if name.startswith("<"):
        return name.startswith("<ipython-input")
    real = os.path.realpath(name)
    parts = real.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts or any(one.startswith("torchinductor_") for one in parts):
        return False
    more = [one for one in os.environ.get(LIBRARIES, "").split(os.pathsep) if one]
    return not real.startswith((*_LIBRARIES, _OWN, *more)) and not os.path.basename(os.path.dirname(real)).startswith(
        "tmp_triton"
    )


def place_in(library: str, file: str) -> str:
    """Returns the path of a file within a package that is imported; empty for a file outside, also in a folder of that name."""
    root = os.path.dirname(getattr(sys.modules.get(library), "__file__", None) or "") + os.sep
    return file[len(root) :] if root != os.sep and file.startswith(root) else ""


def nearest_user_frame(frame: FrameType | None) -> FrameType | None:
    """Returns the innermost frame of the user's program, from a frame outwards; None if there is none."""
    for _ in range(_STACK):
        if frame is None:
            return None
        if is_user_file(frame.f_code.co_filename):
            return frame
        frame = frame.f_back
    return None


def registering_frame(frame: FrameType | None) -> FrameType | None:
    """Returns the frame that registers an operator: the innermost outside PyTorch, Triton, the standard library and this package."""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_user_file(file) or ("-packages" in file and not any(place_in(one, file) for one in _REGISTRARS)):
            return frame
        if file.startswith("<frozen"):
            return None
        frame = frame.f_back
    return None


def is_by_torch(frame: FrameType | None) -> bool:
    """Returns True where PyTorch registers an operator of its own: the innermost frame outside `torch.library` is of PyTorch."""
    while frame is not None and (
        frame.f_code.co_filename.startswith(_OWN)
        or place_in("torch", frame.f_code.co_filename).split(os.sep)[0] in _LIBRARY
    ):
        frame = frame.f_back
    return frame is not None and bool(place_in("torch", frame.f_code.co_filename))


def code_hash(text: str | bytes) -> str:
    """Returns the hash of a kernel's text."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.sha256(data).hexdigest()[:HASH_DIGITS]


def function_hash(code: CodeType) -> str:
    """Returns the hash of a Python function: of its text where that can be read, else of its bytecode."""
    import inspect

    try:
        return code_hash(inspect.getsource(code))
    except (OSError, TypeError, IndexError):
        return code_hash(code.co_code)


@dataclass
class LaunchableKernel:
    """A kernel that the program may launch.

    Attributes:
        key: `operator:ns::name`, `triton:FILE:NAME` or `cupy:NAME:HASH`.
        name: its name for people.
        kind: `operator`, `triton` or `cupy`.
        file: the file that defines it; empty if unknown.
        line: line of the definition.
        user: True if a file of the user's program, or an export of KernelMate, defines it.
        code: hash of its text.
        scope: module and name of its definition, by which rebound names are found.
        launches: launches by phase: `forward`, `backward`, each also as `compiled forward`, `compiled backward`.
        eager_in_compiled: launches from plain Python below a function that torch.compile was to compile.
        sites: launches by `FILE:LINE` of the innermost frame of the user's program.
        errors: what its implementation raised: `[type, message, count]`.
        registrations: implementations by dispatch key: `[key, file, line, function]`, in order.
        autograd: True if a formula for gradients is registered.
        needed_gradient: forward launches with an input that requires a gradient, without such a formula.
        disabled: launches that ran the default implementation because the kernel of the device was disabled.
        devices: launches by device type.
        exact: False if launches are counted only by executed calls.
        inner: keys of the kernels that its implementation launches, which compiled code may hold in its place.
    """

    key: str
    name: str
    kind: str
    file: str = ""
    line: int = 0
    user: bool = False
    code: str = ""
    scope: str = ""
    launches: dict[str, int] = field(default_factory=dict)
    eager_in_compiled: int = 0
    sites: dict[str, int] = field(default_factory=dict)
    errors: list[list[Any]] = field(default_factory=list)
    registrations: list[list[Any]] = field(default_factory=list)
    autograd: bool = False
    needed_gradient: int = 0
    disabled: int = 0
    devices: dict[str, int] = field(default_factory=dict)
    exact: bool = True
    inner: list[str] = field(default_factory=list)

    def failed(self, error: BaseException) -> None:
        """Notes what a launch raised."""
        kind, message = type(error).__name__, str(error).strip().split("\n")[0][:300]
        for one in self.errors:
            if one[:2] == [kind, message]:
                one[2] += 1
                return
        if len(self.errors) < _ERRORS:
            self.errors.append([kind, message, 1])

    def launched(self, device: str = "") -> None:
        """Counts a launch, with its phase and place."""
        with _LOCK:
            compiled, below = _compiled(sys._getframe(2))
            phase = ("compiled " if compiled else "") + ("backward" if in_backward() else "forward")
            self.launches[phase] = self.launches.get(phase, 0) + 1
            self.eager_in_compiled += below
            if device:
                self.devices[device] = self.devices.get(device, 0) + 1
            frame = nearest_user_frame(sys._getframe(2))
            if frame is not None:
                site = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self.sites[site] = self.sites.get(site, 0) + 1


_LOCK = threading.RLock()


def in_backward() -> bool:
    """Returns True inside the backward pass of autograd."""
    torch: Any = sys.modules.get("torch")
    try:
        return torch is not None and int(torch._C._current_graph_task_id()) != -1
    except AttributeError:
        return False


def _compiled(frame: FrameType | None) -> tuple[bool, bool]:
    """Returns whether a launch comes from code that torch.compile made, and whether from plain Python below it."""
    for _ in range(_STACK):
        if frame is None:
            break
        file = frame.f_code.co_filename
        if file.startswith("<eval_with_key>") or "torchinductor" in file or "torch/_inductor/runtime" in file:
            return True, False
        if file.endswith("_dynamo/eval_frame.py") and frame.f_code.co_name == "compile_wrapper":
            return False, True
        frame = frame.f_back
    return False, False


class Registry:
    """All kernels of the process.

    Attributes:
        kernels: by key.
        version: grows when a kernel is added, so that earlier searches for references are repeated.
        active: False while nothing is to be counted.
        benchmarking: depth of an autotuner's own launches, which are not counted.
    """

    def __init__(self) -> None:
        self.kernels: dict[str, LaunchableKernel] = {}
        self.objects: dict[int, tuple[Any, str]] = {}
        self.version = 0
        self.active = True
        self.benchmarking = 0
        self.depth = threading.local()

    def add(self, kernel: LaunchableKernel) -> LaunchableKernel:
        """Adds a kernel and returns it; a known kernel with the same key is returned instead."""
        known = self.kernels.get(kernel.key)
        if known is not None:
            return known
        self.kernels[kernel.key] = kernel
        self.version += 1
        return kernel

    def by_scope(self) -> dict[str, LaunchableKernel]:
        """Returns the kernels by module and name of their definition."""
        return {one.scope: one for one in list(self.kernels.values()) if one.scope and one.user}

    def bind(self, value: Any, kernel: LaunchableKernel) -> None:
        """Notes that an object of the program is a kernel; the object is kept alive, so that its `id` is not used again."""
        self.objects[id(value)] = (value, kernel.key)

    def bound(self, value: Any) -> str | None:
        """Returns the key of the kernel that an object is."""
        found = self.objects.get(id(value))
        return None if found is None else found[1]

    @contextlib.contextmanager
    def inside(self) -> Any:
        """Marks that this thread is inside the dispatcher, where the profiler may not be restarted."""
        self.depth.value = getattr(self.depth, "value", 0) + 1
        try:
            yield
        finally:
            self.depth.value -= 1

    @property
    def is_inside(self) -> bool:
        """Returns True if this thread is inside an implementation of an operator."""
        return bool(getattr(self.depth, "value", 0))


REGISTRY = Registry()
