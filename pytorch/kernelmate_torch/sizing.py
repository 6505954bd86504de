"""Makes a file's example inputs smaller where they would not fit into memory. Used in the module's own process alone."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

MOST_BYTES = 64 << 20
"""Bytes of example inputs where kernels run in the emulator, which takes them at much smaller sizes."""

SHARE = 16
"""Part of the available memory, as its divisor, that example inputs may take on a GPU: copies in float64 are twice as large."""

SMALLEST = 16
"""Smallest number that a size is halved to."""


def made_smaller(file: Any, limit: int) -> dict[str, int]:
    """Halve numbers of a module's file, the largest first, until the inputs of its `get_inputs` are small enough.

    Args:
        file: the imported file, whose numbers are replaced. First come those that `get_inputs` alone uses, since sizes of the
            module's parameters follow from the others.
        limit: bytes that the inputs may take.

    Returns:
        The replaced numbers, by name; empty where the inputs fit, or their size cannot be told without making them.
    """
    make = getattr(file, "get_inputs", None)
    size = _bytes(make)
    if not callable(make) or size is None or size <= limit:
        return {}
    used, others = _numbers(file, make), _numbers(file, getattr(file, "get_init_inputs", None))
    before = {name: getattr(file, name) for name in sorted(used)}
    for names in (used - others, used):
        while size is not None and size > limit:
            name = max(sorted(names), key=lambda one: int(getattr(file, one)), default="")
            if not name or getattr(file, name) < 2 * SMALLEST:
                break
            setattr(file, name, getattr(file, name) // 2)
            size = _bytes(make)
    return {name: getattr(file, name) for name, value in before.items() if getattr(file, name) != value}


def _numbers(file: Any, function: Any) -> set[str]:
    """Returns the names of the file's whole numbers that a function uses."""
    code = getattr(function, "__code__", None)
    names = () if code is None else code.co_names
    return {name for name in names if type(vars(file).get(name)) is int}


def _bytes(make: Callable[[], Any] | None) -> int | None:
    """Returns the bytes of the inputs, which are not made; None if that cannot be told."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            given = make() if make is not None else ()
            sizes: list[int] = [int(one.element_size()) * math.prod(one.shape) for one in given if torch.is_tensor(one)]
            return sum(sizes)
    except Exception:  # noqa: BLE001 -- making them for real says what is wrong
        return None


def most_bytes(*, real_sizes: bool) -> int:
    """Returns the bytes that example inputs may take: with `real_sizes`, as on a GPU, a part of the available memory."""
    if not real_sizes:
        return MOST_BYTES
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // SHARE
    except (ValueError, OSError):
        return 16 * MOST_BYTES
