"""Audits a task's answers and inputs: constants that pass, inputs and parameters that do not matter, degenerate inputs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from kernelmate_torch.kernelbench.records import TaskFinding
from kernelmate_torch.kernelbench.subject import CALIBRATION, CHECKS, Outputs, Subject

PARAMETERS_S = 15.0
"""Seconds after which no further parameter is changed."""
MATTERS = 0.1
"""Share of all parameters' elements from which one that does not matter excludes the task."""


def constant_findings(subject: Subject, where: str, line: int) -> list[TaskFinding]:
    """Returns findings where zeros, one number or the answer to other inputs pass: the first of these that does.

    Args:
        subject: the task, which is called at three seeds.
        where: the sizes, for the message; empty for the task's own.
        line: of the last operation.
    """
    remembered = subject.call(subject.own(CALIBRATION))
    checked = _Checked(subject)
    absolute, relative = subject.tolerance
    limits = f"atol = {absolute:g} and rtol = {relative:g}{where}"
    if checked.miss(tuple(torch.zeros_like(one) for one in remembered)) <= 1.0:
        largest = max((one.abs().max().item() for one in checked.wanted[0] if one.numel()), default=0.0)
        return [TaskFinding("zeros-pass", "error", f"Zeros pass: the largest magnitude of the output is {largest:.3g}, and the tolerance is {limits}.", line)]  # fmt: skip
    middles = [_middle(one) for one in remembered]
    flat = tuple(torch.full_like(one, middle) for one, middle in zip(remembered, middles, strict=True))
    if sum(one.numel() for one in remembered) > 1 and checked.miss(flat) <= 1.0:
        low, high = (
            min(one.min().item() for one in checked.wanted[0]),
            max(one.max().item() for one in checked.wanted[0]),
        )
        return [TaskFinding("constant-passes", "error", f"The number {middles[0]:.4g} passes as every element: outputs lie in {low:.4g} to {high:.4g}, and the tolerance is {limits}.", line)]  # fmt: skip
    miss = checked.miss(remembered)
    if miss <= 1.0:
        return [TaskFinding("answer-repeats", "error", f"The answer for one seed's inputs passes for those of others, with at most {miss:.2g} tolerances: the tolerance is {limits}.", line)]  # fmt: skip
    return []


class _Checked:
    """Compares answers with the results at the checks' seeds, of which later ones are computed only where the first passes."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.wanted = [subject.call(subject.own(CHECKS[0]))]

    def miss(self, made: Outputs) -> float:
        """Returns the largest deviation, in tolerances, up to the first seed at which it is over 1."""
        worst = self._subject.misses(made, self.wanted[0])
        for place, seed in enumerate(CHECKS[1:], 1):
            if worst > 1.0:
                break
            if len(self.wanted) <= place:
                self.wanted.append(self._subject.call(self._subject.own(seed)))
            worst = max(worst, self._subject.misses(made, self.wanted[place]))
        return worst


def _middle(tensor: torch.Tensor) -> float:
    return (tensor.min().item() + tensor.max().item()) / 2 if tensor.numel() else 0.0


def given_findings(subject: Subject) -> list[TaskFinding]:
    """Returns findings about what `get_inputs` gives: the same for every seed, or equal elements."""
    first, second = (subject.own(seed) for seed in CHECKS)
    line = _line_of(subject, "get_inputs")
    found: list[TaskFinding] = []
    for name, one, other in zip(subject.loaded.names, first, second, strict=True):
        if not torch.is_tensor(one) or one.numel() < 2:
            continue
        if one.is_floating_point() and bool((one == one.reshape(-1)[0]).all()):
            found.append(TaskFinding("degenerate-inputs", "error", f"All {one.numel()} elements of the input {name} are {one.reshape(-1)[0].item():g}.", line))  # fmt: skip
        elif one.shape == other.shape and torch.equal(one, other):
            severity: Any = "error" if one.is_floating_point() else "note"
            found.append(TaskFinding("same-inputs", severity, f"get_inputs gives the same {name} for every seed, so its values can be known beforehand.", line))  # fmt: skip
    return found


def input_findings(subject: Subject, where: str) -> list[TaskFinding]:
    """Returns findings about inputs of which other values, of two further seeds, leave the output within the tolerance.

    Args:
        subject: the task.
        where: the sizes, for the message; empty for the task's own.
    """
    inputs = subject.own(CHECKS[0])
    wanted = subject.call(inputs)
    found: list[TaskFinding] = []
    for place, name in enumerate(subject.loaded.names):
        one = inputs[place]
        if not torch.is_tensor(one):
            continue
        drawn = [subject.own(seed)[place] for seed in (CHECKS[1], CALIBRATION)]
        others = [subject.others("normal", CHECKS[1])[place] if torch.equal(one, other) else other for other in drawn]
        misses = [
            subject.misses(subject.call([*inputs[:place], other, *inputs[place + 1 :]]), wanted) for other in others
        ]
        if max(misses) <= 1.0 and not any(torch.equal(one, other) for other in others):
            text = (
                f"changes the output by {max(misses):.2g} tolerances only" if max(misses) else "gives the same output"
            )
            found.append(TaskFinding("input-unused", "error", f"Another {name} {text}: the output does not depend on this input as it is judged{where}.", _line_of(subject, "forward")))  # fmt: skip
    return found


def parameter_findings(subject: Subject, where: str) -> list[TaskFinding]:
    """Returns findings about parameters without influence on the output, and about those with neutral values.

    Args:
        subject: the task.
        where: the sizes, for the message; empty for the task's own.
    """
    parameters = dict(subject.loaded.model.named_parameters())
    inputs = subject.own(CHECKS[0])
    wanted = subject.call(inputs)
    total = sum(one.numel() for one in parameters.values())
    without: list[str] = []
    began = time.monotonic()
    for name, one in parameters.items():
        if time.monotonic() - began > PARAMETERS_S:
            break
        kept = one.detach().clone()
        with torch.no_grad():
            one.copy_(_redrawn(kept))
            made = subject.call(inputs)
            one.copy_(kept)
        if subject.misses(made, wanted) <= 1.0:
            without.append(name)
    found = []
    if without:
        share = sum(parameters[name].numel() for name in without) / total
        severity: Any = "error" if share >= MATTERS else "note"
        found.append(TaskFinding("parameters-unused", severity, f"The output does not depend on {_listed(without)}, {share:.2g} of all parameters: other values of them pass{where}.", _line_of(subject, "forward")))  # fmt: skip
    neutral = [name for name, one in parameters.items() if name not in without and bool((one == one.reshape(-1)[0]).all()) and one.reshape(-1)[0].item() in (0.0, 1.0)]  # fmt: skip
    if neutral:
        found.append(TaskFinding("neutral-parameters", "note", f"All elements of {_listed(neutral)} are 0 or 1, as PyTorch begins: an answer that leaves them out passes.", _line_of(subject, "__init__")))  # fmt: skip
    return found


def _redrawn(values: torch.Tensor) -> torch.Tensor:
    """Returns other values of the same distribution: the same in another order, or others where all are equal."""
    flat = values.reshape(-1)
    if bool((flat == flat[0]).all()):
        return values + (abs(flat[0].item()) or 1.0) * torch.linspace(-1.0, 1.0, flat.numel(), dtype=values.dtype).reshape(values.shape) / 2 + 0.25  # fmt: skip
    return flat.roll(flat.numel() // 2 + 1).reshape(values.shape)


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _line_of(subject: Subject, function: str) -> int:
    """Returns the line of a function's definition in the task's file; the last one, as Python takes it."""
    import ast

    tree = ast.parse(subject.path.read_text(encoding="utf-8", errors="replace"))
    lines = [one.lineno for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == function]
    return max(lines, default=0)
