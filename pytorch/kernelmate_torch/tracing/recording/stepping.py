"""Follows the executed instructions of chosen functions, by `sys.monitoring`, or by `sys.settrace` before Python 3.12."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any, Protocol

from .branches import FOLLOWING, FollowedCall
from .kernels import REGISTRY, is_user_file

_RESUMED = "torch_dynamo_resume_in_"
"""Beginning of the names of functions that torch.compile makes of the rest of a function after a graph break."""


class Stepper(Protocol):
    """A method of following executed instructions."""

    def start(self) -> bool:
        """Begins; False if another tool has the interpreter's hook."""
        ...

    def stop(self) -> None:
        """Ends, and leaves the hook as it was."""
        ...

    @property
    def costs(self) -> bool:
        """Returns True if functions that are not followed cost time now."""
        ...

    @property
    def replaced(self) -> bool:
        """Returns True if the program has taken the hook."""
        ...

    def paused(self) -> Any:
        """Returns a context in which this thread is not followed."""
        ...


def _made_by_dynamo(code: CodeType) -> bool:
    if code.co_name.startswith(_RESUMED):
        return True
    convert: Any = sys.modules.get("torch._dynamo.convert_frame")
    return code in getattr(convert, "output_codes", ())  # it has none while it is imported, which this code may do


def _is_fake() -> bool:
    """Returns True where tensors are stand-ins, as while a program is exported: calls launch nothing there."""
    torch: Any = sys.modules.get("torch")
    try:
        return torch is not None and torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    except AttributeError:
        return False


_FAILED: set[str] = set()
"""Errors of this package, each of which is printed once: the program runs on."""


def _begun(frame: FrameType) -> FollowedCall | None:
    """Returns the state of a call that is followed; None for another one. Raises nothing."""
    code = frame.f_code
    try:
        if not REGISTRY.active or not is_user_file(code.co_filename) or _made_by_dynamo(code) or _is_fake():
            return None
        followed = FOLLOWING.of(code, lambda: frame.f_locals, frame.f_globals)
        return None if followed is None else followed.begin(frame)
    except Exception as error:  # noqa: BLE001 -- it would be raised in the program
        text = f"{type(error).__name__}: {error}"
        if text not in _FAILED:
            _FAILED.add(text)
            print(f"kernelmate trace: {code.co_qualname} is not followed: {text}", file=sys.stderr)
        return None


class TraceStepper:
    """Follows by `sys.settrace`: each call of the program asks whether the function is followed, those that are trace instructions."""

    def __init__(self) -> None:
        self._ignored: set[str] = set()
        self._kept = False

    def start(self) -> bool:
        """Begins in this thread, in its running functions and in new threads."""
        if sys.gettrace() is not None:
            return False
        self._kept = True
        threading.settrace(self.called)
        sys.settrace(self.called)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "<module>" and is_user_file(frame.f_code.co_filename):
                frame.f_trace = self.called(frame, "call", None)
            frame = frame.f_back
        return True

    def stop(self) -> None:
        """Ends, unless another tool has taken the hook."""
        if self._kept and sys.gettrace() == self.called:
            sys.settrace(None)
        threading.settrace(None)
        self._kept = False

    @property
    def costs(self) -> bool:
        """Returns True if each call of a function costs time now."""
        return sys.gettrace() == self.called

    @property
    def replaced(self) -> bool:
        """Returns True if the program has set a trace function of its own."""
        return self._kept and sys.gettrace() not in (None, self.called)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While torch.compile works: it calls hundreds of thousands of functions, none of which is followed."""
        if sys.gettrace() != self.called:
            yield
            return
        sys.settrace(None)
        try:
            yield
        finally:
            if sys.gettrace() is None:
                sys.settrace(self.called)

    def called(self, frame: FrameType, event: str, argument: Any) -> Callable[..., Any] | None:
        """Decides at a call whether its instructions are followed."""
        name = frame.f_code.co_filename
        if name in self._ignored:
            return None
        if not is_user_file(name):
            self._ignored.add(name)
            return None
        call = _begun(frame)
        if call is None:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return _FrameTrace(call)


class _FrameTrace:
    """Trace function of one frame."""

    __slots__ = ("call",)

    def __init__(self, call: FollowedCall) -> None:
        self.call = call

    def __call__(self, frame: FrameType, event: str, argument: Any) -> _FrameTrace:
        if event == "opcode":
            self.call.executed(frame.f_lasti >> 1)
            if self.call.budget <= 0:
                self.call.followed.truncated = True
                frame.f_trace_opcodes = False
        elif event == "return":
            self.call.ended(frame)
        elif event == "exception":
            kind, value, _ = argument
            if kind is not StopIteration:
                self.call.followed.raised(frame.f_lasti >> 1, value if isinstance(value, BaseException) else None, kind)
        return self


class MonitoringStepper:
    """Follows by `sys.monitoring`: functions that are not followed cost nothing after their first call."""

    TOOL = 4

    def __init__(self) -> None:
        self._local = threading.local()
        self._version = -1

    def start(self) -> bool:
        """Begins in all threads."""
        monitoring = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        if monitoring.get_tool(self.TOOL) is not None:
            return False
        events = monitoring.events
        monitoring.use_tool_id(self.TOOL, "kernelmate")
        for event, function in (
            (events.PY_START, self._begun), (events.INSTRUCTION, self._executed), (events.PY_RETURN, self._returned),
            (events.PY_UNWIND, self._unwound), (events.RAISE, self._raised),
        ):  # fmt: skip
            monitoring.register_callback(self.TOOL, event, function)
        monitoring.set_events(self.TOOL, events.PY_START | events.PY_UNWIND | events.RAISE)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_name == "<module>" and is_user_file(frame.f_code.co_filename):
                self._begin(frame)
            frame = frame.f_back
        return True

    def stop(self) -> None:
        """Ends."""
        monitoring = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        if monitoring.get_tool(self.TOOL) == "kernelmate":
            monitoring.set_events(self.TOOL, 0)
            monitoring.free_tool_id(self.TOOL)

    @property
    def costs(self) -> bool:
        """Returns False: functions that are not followed cost nothing."""
        return False

    @property
    def replaced(self) -> bool:
        """Returns False: other tools have identities of their own."""
        return False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Does nothing: functions that are not followed cost nothing."""
        yield

    @property
    def _calls(self) -> dict[int, FollowedCall]:
        if not hasattr(self._local, "calls"):
            self._local.calls = {}
        calls: dict[int, FollowedCall] = self._local.calls
        return calls

    def _begun(self, code: CodeType, offset: int) -> Any:
        monitoring = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        if self._version != REGISTRY.version:
            self._version = REGISTRY.version
            monitoring.restart_events()
        if not is_user_file(code.co_filename):
            return monitoring.DISABLE
        return None if self._begin(sys._getframe(1)) else monitoring.DISABLE

    def _begin(self, frame: FrameType) -> bool:
        monitoring = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        call = _begun(frame)
        if call is None:
            return False
        self._calls[id(frame)] = call
        events = monitoring.events
        if not monitoring.get_local_events(self.TOOL, frame.f_code):
            monitoring.set_local_events(self.TOOL, frame.f_code, events.INSTRUCTION | events.PY_RETURN)
        return True

    def _executed(self, code: CodeType, offset: int) -> Any:
        call = self._calls.get(id(sys._getframe(1)))
        if call is None:
            return None
        if call.budget <= 0:
            call.followed.truncated = True
            return None
        return call.executed(offset >> 1)

    def _returned(self, code: CodeType, offset: int, value: Any) -> None:
        frame = sys._getframe(1)
        call = self._calls.pop(id(frame), None)
        if call is not None:
            call.ended(frame)

    def _unwound(self, code: CodeType, offset: int, error: BaseException) -> None:
        self._returned(code, offset, None)

    def _raised(self, code: CodeType, offset: int, error: BaseException) -> None:
        call = self._calls.get(id(sys._getframe(1)))
        if call is not None and not isinstance(error, StopIteration):
            call.followed.raised(offset >> 1, error, type(error))


STEPPER: Stepper = MonitoringStepper() if sys.version_info >= (3, 12) else TraceStepper()
"""The stepper of this Python."""
