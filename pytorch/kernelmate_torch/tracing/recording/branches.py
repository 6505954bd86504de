"""Counts the instructions that chosen functions execute, the paths of their calls, and the exceptions that pass through them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from .kernels import REGISTRY, nearest_user_frame
from .references import KernelReference, ScopeNames, references_of
from .sources import defines, scope_of

FRAME_BUDGET = 1_000_000
"""Instructions of one call that are followed; what comes later in it is not."""

_PATHS = 64
"""Maximum number of different paths through a function that are distinguished."""

_FACTS = 3
"""Calls of one path whose tensors are described."""

_EXCEPTIONS = 20


BETWEEN: list[Callable[[FrameType], None]] = []
"""Functions that are called with the frame of each followed call, before its first instruction."""


@dataclass
class FollowedCode:
    """A function of the program whose executed instructions are counted.

    Attributes:
        code: its code object.
        references: names in it that lead to kernels.
        positions: place of each instruction in the text.
        counts: executions of each instruction by the interpreter.
        traced: visits of each instruction by torch.compile, while it traced the function.
        entries: calls.
        paths: by executed instructions: calls, and what the tensors of some of them were.
        exceptions: exceptions that an instruction of this function raised or passed on.
        truncated: True if a call was longer than the budget.
        version: version of the registry for which `references` were found.
        by_position: the first instruction at each position.
        module: global variables of its module.
        defines: True if it imports or defines functions, so that names in it may lead to kernels later.
    """

    code: CodeType
    references: list[KernelReference] = field(default_factory=list)
    positions: list[tuple[Any, ...]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    traced: list[int] = field(default_factory=list)
    entries: int = 0
    paths: dict[bytes, list[Any]] = field(default_factory=dict)
    exceptions: list[dict[str, Any]] = field(default_factory=list)
    truncated: bool = False
    version: int = -1
    by_position: dict[tuple[Any, ...], int] = field(default_factory=dict)
    module: Any = None
    defines: bool = False

    def __post_init__(self) -> None:
        self.positions = list(self.code.co_positions())
        self.counts = [0] * len(self.positions)
        self.traced = [0] * len(self.positions)
        for index, one in enumerate(self.positions):
            self.by_position.setdefault(tuple(one), index)

    @property
    def followed(self) -> bool:
        """Returns True if its instructions are worth counting."""
        return bool(self.references) or self.defines

    def refresh(self) -> None:
        """Finds its references again, if kernels were added while it ran."""
        if self.version < REGISTRY.version and self.module is not None:
            self.version = REGISTRY.version
            self.references = self.references or references_of(self.code, ScopeNames({}, self.module))

    def begin(self, frame: FrameType) -> FollowedCall:
        """Counts a call, and returns its state; each resumption of a generator is one, too."""
        self.entries += 1
        for function in BETWEEN:
            function(frame)
        facts = tensor_facts(frame, arguments_only=True) if self.entries < FRAME_BUDGET else ()
        return FollowedCall(self, facts)

    def visited(self, position: tuple[Any, ...]) -> None:
        """Counts a visit of torch.compile to the first instruction at a position."""
        index = self.by_position.get(position)
        if index is not None:
            self.traced[index] += 1

    def raised(self, index: int, error: BaseException | None, kind: type[BaseException]) -> None:
        """Notes an exception at an instruction."""
        message = str(error).strip().split("\n")[0][:300]
        found = [index, kind.__name__, message]
        for one in self.exceptions:
            if one["what"] == found:
                one["count"] += 1
                one["identity"] = id(error)
                return
        if len(self.exceptions) < _EXCEPTIONS:
            origin = _origin(error)
            self.exceptions.append({"what": found, "count": 1, "origin": origin, "identity": id(error)})


class FollowedCall:
    """One call of a followed function."""

    __slots__ = ("budget", "facts", "followed", "seen")

    def __init__(self, followed: FollowedCode, facts: tuple[str, ...]) -> None:
        self.followed = followed
        self.facts = facts
        self.seen = bytearray(len(followed.positions))
        self.budget = FRAME_BUDGET

    def executed(self, index: int) -> None:
        """Counts an instruction."""
        self.followed.counts[index] += 1
        self.seen[index] = 1
        self.budget -= 1

    def ended(self, frame: FrameType) -> None:
        """Adds the call to those of its path."""
        paths = self.followed.paths
        key = bytes(self.seen)
        known = paths.get(key)
        if known is None:
            if len(paths) >= _PATHS:
                return
            known = paths[key] = [0, [], 0]
        known[0] += 1
        known[2] += any("[empty]" in one for one in self.facts)
        if len(known[1]) < _FACTS:
            more = tensor_facts(frame, arguments_only=False)
            names = {one.partition(":")[0] for one in self.facts}
            facts = [*self.facts, *(one for one in more if one.partition(":")[0] not in names)]
            if facts not in known[1]:
                known[1].append(facts)


def _origin(error: BaseException | None) -> list[Any]:
    """Returns file and line where an exception was raised, in the user's program."""
    place: list[Any] = []
    step = None if error is None else error.__traceback__
    while step is not None:
        if nearest_user_frame(step.tb_frame) is step.tb_frame:
            place = [step.tb_frame.f_code.co_filename, step.tb_lineno]
        step = step.tb_next
    return place


def tensor_facts(frame: FrameType, *, arguments_only: bool) -> tuple[str, ...]:
    """Returns descriptions of up to eight tensors of a call, and of autocast, the gradient mode and the training mode."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "Tensor"):
        return ()
    code = frame.f_code
    values = frame.f_locals
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if arguments_only else list(values)
    found = [
        f"{name}: {_described(values[name])}"
        for name in names
        if type(values.get(name)) in (torch.Tensor, torch.nn.Parameter)
    ]
    owner = values.get("self")
    if isinstance(owner, torch.nn.Module) and arguments_only:
        found += [f"training: {vars(owner)['training']}"] if "training" in vars(owner) else []
    if arguments_only:
        found += ["autocast: on"] if torch.is_autocast_enabled() or torch.is_autocast_enabled("cpu") else []
        found += [] if torch.is_grad_enabled() else ["gradients: off"]
    return tuple(found[:8])


def _described(tensor: Any) -> str:
    text = f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(str(int(one)) for one in tensor.shape)}]"
    text += "" if tensor.is_contiguous() else f", strides {tuple(tensor.stride())}"
    text += "" if tensor.device.type == "cpu" else f", on {tensor.device.type}"
    text += ", requires grad" if tensor.requires_grad else ""
    return text + (" [empty]" if tensor.numel() == 0 else "")


class Following:
    """The functions of the user's program that are followed."""

    def __init__(self) -> None:
        self.codes: dict[int, FollowedCode] = {}

    def of(self, code: CodeType, variables: Any, module: Any) -> FollowedCode | None:
        """Returns a function to follow; None if nothing in it leads to a kernel.

        Args:
            code: a function's or module's code, of a file of the user's program.
            variables: function that returns its local variables.
            module: its global variables.
        """
        known = self.codes.get(id(code))
        if known is not None and known.version == REGISTRY.version:
            return known if known.followed else None
        if known is None:
            known = self.codes[id(code)] = FollowedCode(code)
        known.version, known.module = REGISTRY.version, module
        scope = scope_of(code)
        if scope is not None:
            known.defines = code.co_name == "<module>" or defines(scope)
            known.references = references_of(code, ScopeNames(variables(), module))
            if known.references:
                for inner in _inner(code):
                    self.codes[id(inner)] = made = FollowedCode(inner)
                    made.references, made.version = known.references, sys.maxsize
        return known if known.followed else None


def _inner(code: CodeType) -> list[CodeType]:
    """Returns the comprehensions and lambdas of a function."""
    found = [one for one in code.co_consts if isinstance(one, CodeType) and one.co_name.startswith("<")]
    return [one for inner in found for one in (inner, *_inner(inner))]


FOLLOWING = Following()
