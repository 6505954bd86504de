"""Swaps modules of a model for others, or for operators, and says which were not swapped and why."""

from __future__ import annotations

import fnmatch
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class ReplacementReport:
    """Result of `replace`.

    Attributes:
        swapped: dotted names of the modules that were replaced.
        left: modules that were not, by dotted name, each with the reason: those that a name matched, and those of the
            same class as a replaced one.
    """

    swapped: tuple[str, ...]
    left: Mapping[str, str]

    def __str__(self) -> str:
        lines = [f"swapped {len(self.swapped)}: {', '.join(self.swapped) or 'none'}"]
        return "\n".join([*lines, *(f"not swapped: {name}: {reason}" for name, reason in self.left.items())])


class OperatorModule(torch.nn.Module):
    """A module that calls an operator with its input and with the parameters of the module that it replaces.

    Arguments of the operator that the old module has by name (`weight`, `bias`, `eps`) come from it, the others from
    `forward`, in order. Parameters keep their names, so that a state dict fits both.

    Args:
        operator: what `torch.library.custom_op` returns, or one of `torch.ops`.
        old: the module that it replaces.

    Raises:
        ValueError: the old module has parameters that the operator does not take, or leaves it without an input.
    """

    def __init__(self, operator: Callable[..., Any], old: torch.nn.Module) -> None:
        super().__init__()
        self._operator = operator
        names = _argument_names(operator)
        state = {**dict(old.named_parameters(recurse=False)), **dict(old.named_buffers(recurse=False))}
        unknown = [name for name in state if name not in names]
        if unknown:
            raise ValueError(f"the operator takes no {unknown[0]}, which the module has")
        inner = [name for name, _ in old.named_children()]
        if inner:
            raise ValueError(f"it has modules of its own ({', '.join(inner)}), which an operator cannot have")
        for name, tensor in state.items():
            if isinstance(tensor, torch.nn.Parameter):
                self.register_parameter(name, tensor)
            else:
                self.register_buffer(name, tensor)
        numbers = {name: vars(old)[name] for name in names if isinstance(vars(old).get(name), int | float)}
        self._numbers = numbers
        self._bound = tuple(name for name in names if name in state)
        self._free = tuple(name for name in names if name not in state and name not in numbers)
        if not self._free:
            raise ValueError("the module has all arguments of the operator, so that no input is left")
        self.train(old.training)

    def forward(self, *inputs: Any) -> Any:
        """Calls the operator."""
        given = dict(zip(self._free, inputs, strict=False))
        given |= {name: getattr(self, name) for name in self._bound}
        return self._operator(**given, **self._numbers)

    def extra_repr(self) -> str:
        """Returns the operator's name, for `print(model)`."""
        return str(getattr(self._operator, "_qualname", self._operator))


def replace(
    model: torch.nn.Module, swaps: Mapping[str, Any], *, tell: Callable[[str], None] | None = print
) -> ReplacementReport:
    """Swap modules of a model in place.

    Args:
        model: the model.
        swaps: by dotted name of modules (`layers.0.norm`), pattern (`layers.*.norm`) or name of a class (`RMSNorm`,
            `torch.nn.RMSNorm`): a module for a single place, an operator, or a function that takes the old module
            and returns the new one.
        tell: is given the report as text; None for silence.

    Returns:
        The replaced modules, and those that were not replaced, with reasons.

    Raises:
        LookupError: a name matches no module of the model; nothing is swapped then.
        TypeError: a replacement is neither a module nor callable.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    matched = {key: [name for name, module in modules.items() if _matches(key, name, module)] for key in swaps}
    for key, names in matched.items():
        if not names:
            raise LookupError(f"{key!r} matches no module of {type(model).__name__}: {_known(modules)}.")
        if not callable(swaps[key]):
            raise TypeError(f"{key!r}: {swaps[key]!r} is neither a module, an operator nor a function.")
    swapped: list[str] = []
    left: dict[str, str] = {}
    classes: set[type] = set()
    for key, names in matched.items():
        for name in names:
            reason = _refusal(name, names, swaps[key], swapped)
            try:
                if not reason:
                    _put(model, name, _replacement(swaps[key], modules[name]))
            except ValueError as error:
                reason = str(error)
            if reason:
                left[name] = reason
                continue
            swapped.append(name)
            classes.add(type(modules[name]))
    left = {name: reason for name, reason in left.items() if name not in swapped}
    for name, module in modules.items():
        if type(module) in classes and name not in swapped and name not in left:
            left[name] = f"it is a {type(module).__name__}, too, and no name matches it"
    report = ReplacementReport(tuple(swapped), left)
    if tell is not None:
        tell(str(report))
    return report


def _matches(key: str, name: str, module: torch.nn.Module) -> bool:
    kind = type(module)
    if key in (kind.__name__, f"{kind.__module__}.{kind.__qualname__}"):
        return True
    public = f"torch.nn.{kind.__name__}" if kind.__module__.startswith("torch.nn.") else ""
    return key == public or (bool(name) and _parts_match(key, name))


def _parts_match(pattern: str, name: str) -> bool:
    """Returns True if a pattern matches a dotted name part by part: `*` stands for one part."""
    patterns, parts = pattern.split("."), name.split(".")
    return len(patterns) == len(parts) and all(map(fnmatch.fnmatchcase, parts, patterns))


def _refusal(name: str, names: list[str], new: Any, swapped: list[str]) -> str:
    """Returns the reason why a module that a name matches is not replaced; empty if there is none."""
    if not name:
        return "it is the model itself, which cannot be swapped in place"
    if name in swapped:
        return "another name has matched it before"
    if any(name.startswith(f"{other}.") for other in swapped):
        return "it is in a module that was swapped"
    if isinstance(new, torch.nn.Module) and name != next(one for one in names if one):
        return "one module cannot be in several places without sharing its parameters: give a function that makes one"
    return ""


def _replacement(new: Any, old: torch.nn.Module) -> torch.nn.Module:
    if isinstance(new, torch.nn.Module):
        return new
    if _is_operator(new):
        return OperatorModule(new, old)
    made = new(old)
    if not isinstance(made, torch.nn.Module):
        raise TypeError(f"The function for {type(old).__name__} returned {made!r}, which is not a module.")
    return made


def _is_operator(value: Any) -> bool:
    packet = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    return isinstance(value, packet) or hasattr(value, "_opoverload")


def _argument_names(operator: Any) -> list[str]:
    if isinstance(operator, torch._ops.OpOverloadPacket):
        operator = operator.default
    overload = getattr(operator, "_opoverload", operator)
    if hasattr(overload, "_schema"):
        return [one.name for one in overload._schema.arguments]
    return list(inspect.signature(operator).parameters)


def _put(model: torch.nn.Module, name: str, new: torch.nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, new)


def _known(modules: Mapping[str, torch.nn.Module]) -> str:
    """Returns some names of modules, for a message."""
    named = [f"{name} ({type(module).__name__})" for name, module in modules.items() if name]
    more = f" and {len(named) - 8} more" if len(named) > 8 else ""
    return f"it has {', '.join(named[:8])}{more}" if named else "it has none"
