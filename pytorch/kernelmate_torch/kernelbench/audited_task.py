"""A task as the audit runs it: its module in training mode, as the benchmark calls it, its tape, and drawn inputs.

Used only in the module's own process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_flatten

from kernelmate_torch.comparing import random_tensor
from kernelmate_torch.kernelbench.tape import Change, Tape, Watcher, record
from kernelmate_torch.loading import MODULE_NAME, LoadedModule, Refusal, load, refusal_of
from kernelmate_torch.nesting import leaves

RUN_S = 0.04
"""Estimated seconds of one call on the CPU to which sizes are halved, since the audit makes hundreds of calls."""
MOST_RUN_S = 40.0
"""Estimated seconds of one call above which a task is not run at all."""
CPU_FLOPS, CPU_BYTES, CPU_DRAWN = 2.5e10, 2e9, 5e8
"""Rates of one core, per second, by which calls are estimated: arithmetic, bytes moved, and bytes of inputs drawn."""
HELD_BYTES = 64 << 20
"""Bytes of inputs up to which they are kept once they are drawn."""
SMALLEST_INPUTS = 1 << 12
"""Bytes of inputs below which sizes are not halved further."""

CALIBRATION, CHECKS = 101, (202, 303)
"""Seeds of the inputs from which constants are taken, and of those at which answers are compared."""
OTHERS = (("normal", 404), ("wide", 505), ("uniform", 606))
"""Distributions and seeds of inputs that separate properties of the computation from those of the task's own inputs."""

PIECE = 1 << 20
"""Elements that are compared at once."""

Outputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """Cost of a call at some sizes, estimated without running it.

    Attributes:
        tape: recorded with tensors that have no elements; None if it cannot be.
        input_bytes: of the inputs.
        unique_bytes: of inputs, parameters and results.
        smaller: numbers of the file that were made smaller.
    """

    tape: Tape | None
    input_bytes: int
    unique_bytes: int
    smaller: Mapping[str, int]

    @property
    def seconds(self) -> float:
        """Returns the estimated seconds of a call on one core, inputs drawn for it."""
        drawing = self.input_bytes / CPU_DRAWN
        return drawing if self.tape is None else drawing + self.tape.flops / CPU_FLOPS + self.tape.moved / CPU_BYTES

    @property
    def held_bytes(self) -> float:
        """Returns the bytes that a call needs if all intermediate results stay in memory."""
        return self.input_bytes if self.tape is None else self.unique_bytes + self.tape.moved


def size_facts(path: Path, seed: int, limit: int | None) -> SizeFacts:
    """Returns the cost of a call with inputs of up to `limit` bytes (None: the task's own sizes).

    Raises:
        Refusal: the file or its module need a change.
    """
    limit = sys.maxsize if limit is None else limit
    with FakeTensorMode(allow_non_fake_inputs=True):
        loaded = load(path, "Model", "", seed, limit=limit)
        tape: Tape | None = None
        results: Sequence[torch.Tensor] = ()
        with contextlib.suppress(
            Exception
        ):  # what depends on values has no such tape; it is recorded with values below
            tape, returned = record(loaded.model.train(), loaded.inputs, path)
            results = [one for one in leaves(returned) if torch.is_tensor(one)]
        inputs = [one for one in loaded.inputs if torch.is_tensor(one)]
        state = [*loaded.model.parameters(), *loaded.model.buffers()]
        return SizeFacts(tape, _bytes(inputs), _bytes([*inputs, *state, *results]), loaded.smaller)


def _tensor_bytes(values: Sequence[Any]) -> int:
    return _bytes([one for one in values if torch.is_tensor(one)])


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


def affordable(path: Path, seed: int, full: SizeFacts, seconds: float) -> SizeFacts:
    """Returns the largest sizes, halved again and again, at which a call takes up to `seconds` as estimated.

    Raises:
        Refusal: the file or its module need a change.
    """
    found = full
    limit = full.input_bytes
    while limit > SMALLEST_INPUTS and (found.seconds > seconds or found.held_bytes > free_bytes() / 4):
        limit //= 2
        with contextlib.suppress(Refusal):  # halved sizes may no longer fit each other
            next_one = size_facts(path, seed, limit)
            if next_one.tape is not None and next_one.seconds <= found.seconds:
                found = next_one
    return found


def free_bytes() -> int:
    """Returns the bytes of memory that are available."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class Subject:
    """One task, loaded at some sizes.

    Args:
        path: its file.
        seed: of its parameters.
        limit: bytes that its inputs may take; None for the task's own sizes.
        tolerance: absolute and relative, of the benchmark.

    Raises:
        Refusal: the file or its module need a change, or the module raises.
    """

    def __init__(self, path: Path, seed: int, limit: int | None, tolerance: tuple[float, float]) -> None:
        self.path, self.seed, self.tolerance = path, seed, tolerance
        self.loaded: LoadedModule = load(path, "Model", "", seed, limit=sys.maxsize if limit is None else limit)
        self.loaded.model.train()
        self._file = sys.modules[MODULE_NAME]
        self._held: dict[int, tuple[Any, ...]] = {}
        self._own_tape: Tape | None = None

    @functools.cached_property
    def tape(self) -> Tape:
        """The operations of a call.

        Raises:
            Refusal: the module raises.
        """
        torch.manual_seed(CALIBRATION)
        try:
            return record(self.loaded.model, copies(self.own(CALIBRATION)), self.path)[0]
        except Exception as error:  # noqa: BLE001 -- whatever the module raises is reported
            raise refusal_of(error, self.path, "The module failed") from None

    def weighed_by(self, full: Tape | None) -> None:
        """Sets the tape of the task's own sizes, whose shares of work count in place of those of smaller sizes."""
        here = self.tape.operations
        if full is not None and [one.target for one in full.operations] == [one.target for one in here]:
            self._own_tape = full

    @property
    def weights(self) -> Tape:
        """Returns the tape from which shares of work are computed: that of the task's own sizes if there is one."""
        return self._own_tape or self.tape

    def own(self, seed: int) -> tuple[Any, ...]:
        """Returns inputs of `get_inputs` for a seed; they must not be changed."""
        if seed in self._held:
            return self._held[seed]
        torch.manual_seed(seed)
        np.random.seed(seed)
        random.seed(seed)
        made = tuple(self._file.get_inputs())
        if _tensor_bytes(made) <= HELD_BYTES:
            self._held[seed] = made
        return made

    def others(self, distribution: str, seed: int) -> tuple[Any, ...]:
        """Returns inputs of another distribution, of the same shapes."""
        generator = torch.Generator().manual_seed(seed)
        return tuple(
            random_tensor(one, list(one.shape), distribution, generator) if torch.is_tensor(one) else one
            for one in self.own(CALIBRATION)
        )

    def call(self, inputs: Sequence[Any]) -> Outputs:
        """Returns the module's results.

        Raises:
            Refusal: the module raises.
        """
        torch.manual_seed(self.seed)
        try:
            with torch.no_grad():
                return tensors_of(self.loaded.model(*self._given(inputs)))
        except Exception as error:  # noqa: BLE001 -- whatever the module raises is reported
            raise refusal_of(error, self.path, "The module failed") from None

    def replay(
        self, inputs: Sequence[Any], changes: Mapping[int, Change] | None = None, watch: Watcher | None = None
    ) -> Outputs:
        """Returns the results of the tape's operations, some of them changed."""
        torch.manual_seed(self.seed)
        with torch.no_grad():
            return self.tape.run(self._given(inputs), changes, watch)

    def _given(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """Returns copies of inputs that are drawn once; inputs that are drawn for a single call are not copied."""
        held = any(inputs is one for one in self._held.values())
        return copies(inputs) if held or _tensor_bytes(inputs) <= HELD_BYTES else tuple(inputs)

    def misses(self, made: Outputs, wanted: Outputs) -> float:
        """Returns the largest deviation in tolerances: up to 1 passes."""
        return tolerance_units(made, wanted, self.tolerance)


def copies(inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Returns inputs of which the tensors are copies."""
    return tuple(one.clone() if torch.is_tensor(one) else one for one in inputs)


def tensors_of(returned: Any) -> Outputs:
    """Returns the tensors of what a module returned."""
    return tuple(one for one in tree_flatten(returned)[0] if torch.is_tensor(one))


def tolerance_units(made: Outputs, wanted: Outputs, tolerance: tuple[float, float]) -> float:
    """Returns the largest |made - wanted| / (atol + rtol |wanted|), as `torch.allclose` judges: up to 1 passes.

    Elements are compared piece by piece, and none after the first piece with one over 1.
    """
    worst = 0.0
    if len(made) != len(wanted):
        return float("inf")
    for one, want in zip(made, wanted, strict=True):
        if one.shape != want.shape:
            return float("inf")
        for got, exact in zip(one.reshape(-1).split(PIECE), want.reshape(-1).split(PIECE), strict=True):
            if worst <= 1.0 and exact.numel():
                worst = max(worst, _largest_miss(_comparable(got), _comparable(exact), tolerance))
    return worst


def _largest_miss(got: torch.Tensor, exact: torch.Tensor, tolerance: tuple[float, float]) -> float:
    absolute, relative = tolerance
    miss = ((got - exact).abs() / (absolute + relative * exact.abs())).masked_fill_(got == exact, 0.0).max().item()
    return float("inf") if miss != miss else miss


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.double()
