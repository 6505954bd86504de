"""Nested inputs and results of modules: dictionaries, lists and tuples of tensors. Used only in the module's own process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as tree

PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device)
"""Kinds of values besides tensors that a module may take and return."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of `forward`, as the ported module declares them.

    Attributes:
        names: texts of the positional arguments: `x`, and `xs[0]` for one of `*xs`.
        text: the parameter list.
        passed: arguments by which a call with these parameters is passed on.
        defaults: parameters that no input is given for, with their values' texts.
        more: the parameter `*xs`, with the number of its arguments; empty without one.
    """

    names: tuple[str, ...]
    text: str
    passed: str
    defaults: dict[str, str] = field(default_factory=dict)
    more: dict[str, int] = field(default_factory=dict)


def parameters_of(function: Callable[..., Any], count: int) -> Parameters:
    """Returns the parameters of a function, or of a module's `forward`, for a call with `count` positional arguments.

    A parameter that is not given is kept if its default is a number, a text, True, False or None.
    """
    names: list[str] = []
    texts: list[str] = []
    passed: list[str] = []
    defaults: dict[str, str] = {}
    more: dict[str, int] = {}
    for one in inspect.signature(function).parameters.values():
        if one.name == "self":
            continue
        if one.kind is one.VAR_POSITIONAL:
            if len(names) < count:
                more[one.name] = count - len(names)
                names += [f"{one.name}[{place}]" for place in range(count - len(names))]
                texts.append(f"*{one.name}")
                passed.append(f"*{one.name}")
        elif one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) and len(names) < count:
            names.append(one.name)
            texts.append(one.name)
            passed.append(one.name)
        elif isinstance(one.default, bool | int | float | str | None):
            if one.kind is one.KEYWORD_ONLY and not any(text.startswith("*") for text in texts):
                texts.append("*")
            texts.append(f"{one.name}={one.default!r}")
            passed.append(f"{one.name}={one.name}")
            defaults[one.name] = repr(one.default)
    return Parameters(tuple(names), ", ".join(texts), ", ".join(passed), defaults, more)


def leaves(value: Any) -> list[Any]:
    """Returns tensors and other values of nested inputs or results, in order."""
    found: list[Any] = tree.tree_leaves(value)
    return found


def places(value: Any) -> list[str]:
    """Returns, for each of `leaves`, how it is reached: `[0]['x']`."""
    return [tree.keystr(path) for path, _ in tree.tree_flatten_with_path(value)[0]]


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Returns nested inputs with each of their tensors and other values replaced."""
    return tree.tree_map(function, value)


def with_leaves(value: Any, new: Sequence[Any]) -> Any:
    """Returns nested inputs with the leaves replaced by other values, in order."""
    return tree.tree_unflatten(list(new), tree.tree_structure(value))


def leaf_texts(names: Sequence[str], inputs: Sequence[Any]) -> tuple[str, ...]:
    """Returns the texts of the inputs' tensors and other values in `forward`: `x`, `state[0]`, `batch['x']`."""
    return tuple(f"{name}{place}" for name, one in zip(names, inputs, strict=False) for place in places(one))


def containers(names: Sequence[str], inputs: Sequence[Any]) -> dict[str, tuple[str, ...] | int]:
    """Returns the inputs' containers by their texts: the keys' texts of a dictionary, the length of a list or tuple."""
    found: dict[str, tuple[str, ...] | int] = {}

    def walk(text: str, value: Any) -> None:
        if isinstance(value, dict):
            found[text] = tuple(map(repr, value))
            for key, one in value.items():
                walk(f"{text}[{key!r}]", one)
        elif isinstance(value, tuple | list):
            found[text] = len(value)
            for place, one in enumerate(value):
                walk(f"{text}[{place}]", one)

    for name, one in zip(names, inputs, strict=False):
        walk(name, one)
    return found
