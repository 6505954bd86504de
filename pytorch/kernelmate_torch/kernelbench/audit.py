"""Audits one task: chooses sizes at which it can be called often, and collects what each kind of check finds.

The checks of its answers and inputs find constants that pass, inputs and parameters that do not matter, and degenerate
inputs. Used only in the module's own process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from kernelmate_torch.kernelbench.audited_task import (
    CALIBRATION,
    CHECKS,
    MOST_RUN_S,
    RUN_S,
    Outputs,
    SizeFacts,
    Subject,
    affordable,
    free_bytes,
    size_facts,
)
from kernelmate_torch.kernelbench.records import TaskAudit, TaskFinding, ordered
from kernelmate_torch.kernelbench.shortcuts import input_returned, shortcut_findings
from kernelmate_torch.kernelbench.tape import LAUNCH_S
from kernelmate_torch.kernelbench.waste import measured_findings, static_findings
from kernelmate_torch.loading import Refusal

PARAMETERS_S = 15.0
"""Seconds after which no further parameter is changed."""
MATTERS = 0.1
"""Share of all parameters' elements from which one that does not matter excludes the task."""


def constant_findings(subject: Subject, where: str, line: int) -> list[TaskFinding]:
    """Returns a finding for the first of these answers that passes: zeros, one number, the answer to other inputs.

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
        """Returns the largest deviation in tolerances; stops at the first seed at which it exceeds 1."""
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
    """Returns other values of a similar distribution: the same values in another order, or different values if all are equal."""
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


SLOWER = 4.0
"""Multiple of the estimated time from which sizes are halved again."""
REPLACING_S = 30.0
"""Seconds after which no further operation is replaced."""
FULL_RUN_S = 2.0
"""Estimated seconds of one call at the task's own sizes up to which answers are compared there, too."""
CONSTANT = frozenset({"zeros-pass", "constant-passes", "answer-repeats"})


def audit_task(path: Path, seed: int, tolerance: tuple[float, float], full_s: float = FULL_RUN_S) -> TaskAudit:
    """Returns the audit's findings on a task, or the reason why the task could not be run.

    Args:
        path: the task's file, with `Model`, `get_inputs` and `get_init_inputs`.
        seed: of the parameters.
        tolerance: absolute and relative, of the benchmark.
        full_s: estimated seconds of a call at larger sizes up to which answers are compared there, too.
    """
    try:
        full = size_facts(path, seed, None)
        chosen = full if full.tape is None else affordable(path, seed, full, RUN_S)
        if chosen.seconds > MOST_RUN_S or chosen.held_bytes > free_bytes() / 2:
            return TaskAudit(failed=f"One call is estimated at {chosen.seconds:.0f} s and {chosen.held_bytes / 1e9:.1f} GB on this machine's CPU, at the smallest sizes.")  # fmt: skip
        subject, chosen, pace = _quick(path, seed, full, chosen, tolerance)
        subject.weighed_by(full.tape)
        return _audited(subject, full, dict(chosen.smaller), full_s / pace)
    except Refusal as refusal:
        failure = refusal.failure
        return TaskAudit(failed=f"{failure.message}{f' (line {failure.line})' if failure.line else ''}")


def _quick(
    path: Path, seed: int, full: SizeFacts, chosen: SizeFacts, tolerance: tuple[float, float]
) -> tuple[Subject, SizeFacts, float]:
    """Returns the task and its sizes, halved further where a call takes much longer than estimated, and how much longer it takes."""
    subject = Subject(path, seed, chosen.input_bytes if chosen.smaller else None, tolerance)
    inputs = subject.own(CHECKS[0])
    began = time.monotonic()
    subject.call(inputs)
    spent = time.monotonic() - began
    pace = max(1.0, spent / max(chosen.seconds, RUN_S))
    if pace < SLOWER or full.tape is None:
        return subject, chosen, pace
    smaller = affordable(path, seed, full, RUN_S / pace)
    if smaller.smaller == chosen.smaller:
        return subject, chosen, pace
    return Subject(path, seed, smaller.input_bytes, tolerance), smaller, pace


class _Collected:
    """The findings of one task so far, and the number of operations that were replaced."""

    def __init__(self) -> None:
        self.findings: list[TaskFinding] = []
        self.replaced = 0

    def check(self, what: str, check: Callable[[], list[TaskFinding]]) -> None:
        """Adds the findings of a check; a check that fails leaves a note and does not affect the others."""
        try:
            self.findings += check()
        except Exception as error:  # noqa: BLE001 -- whatever a module does at changed inputs or results
            self.note(f"{what} could not be checked: {type(error).__name__}: {_first_line(error)}.")

    def note(self, message: str) -> None:
        """Adds that something was not checked."""
        self.findings.append(TaskFinding("partly-audited", "note", message))


def _audited(subject: Subject, full: SizeFacts, smaller: Mapping[str, int], full_s: float) -> TaskAudit:
    tape = subject.tape
    own = _own_sizes(subject, full, full_s) if smaller else subject
    larger, where = _largest(subject, own, full, full_s)
    found = _Collected()
    found.check("The answer", lambda: constant_findings(larger, where, tape.last_line))
    trivial = any(one.code in CONSTANT for one in found.findings)
    found.check("What get_inputs gives", lambda: given_findings(subject))
    wanted = [subject.call(subject.own(seed)) for seed in CHECKS]
    again = [subject.replay(subject.own(seed)) for seed in CHECKS]
    if any(subject.misses(made, want) > 1.0 for made, want in zip(again, wanted, strict=True)):
        found.note("The operations depend on values of the inputs, so none was left out or replaced.")
    else:
        if not trivial and larger is not subject and constant_findings(subject, "", 0):
            found.note(f"Parts were not tried: a constant passes{_where(smaller)}, and not at larger sizes.")
        elif not trivial:
            found.check("Inputs", lambda: input_findings(subject, _where(smaller)))
            found.check("Parameters", lambda: parameter_findings(subject, _where(smaller)))
            found.check("Parts", lambda: _parts(found, subject, larger, wanted, where))
        found.check("Values of operations", lambda: measured_findings(subject))
    found.check("Operations", lambda: static_findings(tape if full.tape is None else full.tape))
    found.findings += _launches(full)
    return TaskAudit(
        ordered(_merged(found.findings)), dict(smaller), own is not None, sum(not one.view for one in tape.operations),
        found.replaced,
        None if full.tape is None else full.tape.seconds * 1e6,
        None if full.tape is None else full.tape.flops,
        float(full.unique_bytes) if full.tape is not None else None,
    )  # fmt: skip


def _parts(
    found: _Collected, subject: Subject, larger: Subject, wanted: Sequence[Outputs], where: str
) -> list[TaskFinding]:
    """Returns findings about sufficient parts: an input passes as the output, or operations can be omitted or replaced."""
    returned = input_returned(subject, wanted)
    if returned is not None:
        return [returned]
    again = larger if larger is not subject else None
    findings, found.replaced = shortcut_findings(subject, time.monotonic() + REPLACING_S, again, where)
    return findings


def _own_sizes(subject: Subject, full: SizeFacts, full_s: float) -> Subject | None:
    """Returns the task at its own sizes; None where a call there takes too much time or memory."""
    if full.tape is None or full.seconds > full_s or full.held_bytes > free_bytes() / 2:
        return None
    own = Subject(subject.path, subject.seed, None, subject.tolerance)
    own.weighed_by(full.tape)
    return own


def _largest(subject: Subject, own: Subject | None, full: SizeFacts, full_s: float) -> tuple[Subject, str]:
    """Returns the task at the largest sizes at which it can be called a few times, and these sizes for a message."""
    if own is not None:
        return own, ""
    larger = full if full.tape is None else affordable(subject.path, subject.seed, full, full_s)
    if larger.tape is None or larger.smaller == subject.loaded.smaller:
        return subject, _where(subject.loaded.smaller)
    made = Subject(subject.path, subject.seed, larger.input_bytes, subject.tolerance)
    made.weighed_by(full.tape)
    return made, _where(larger.smaller)


def _where(smaller: Mapping[str, int]) -> str:
    return f" (seen at {', '.join(f'{name} = {value}' for name, value in smaller.items())})" if smaller else ""


def _launches(full: SizeFacts) -> list[TaskFinding]:
    """Returns a finding if launches take longer than the work at the task's own sizes."""
    if full.tape is None:
        return []
    computing = [one for one in full.tape.operations if not one.view]
    count = len({one.call for one in computing})
    launches = count * LAUNCH_S
    work = full.tape.seconds - len(computing) * LAUNCH_S
    if count == 0 or work >= launches:
        return []
    return [
        TaskFinding(
            "launch-bound",
            "error",
            f"An H100 needs {work * 1e6:.1f} us for the bytes and arithmetic of {count} {'operation' if count == 1 else 'operations'}, and their launches {launches * 1e6:.0f} us.",
        )
    ]


def _merged(findings: list[TaskFinding]) -> list[TaskFinding]:
    """Returns the findings without those that another finding of the same line already covers."""
    kept: list[TaskFinding] = []
    places = {(one.code, one.line) for one in findings if one.severity == "error"}
    known = any(code in ("same-inputs", "degenerate-inputs") for code, _ in places)
    for one in findings:
        idle = any((code, one.line) in places for code in ("identity", "constant-work"))
        said = (one.code == "answer-repeats" and known) or (one.code == "part-suffices" and idle)
        if not said and one not in kept:
            kept.append(one)
    return kept


def _first_line(error: Exception) -> str:
    return next((line.strip().rstrip(".") for line in str(error).splitlines() if line.strip()), "no message")
