"""Audits one task: chooses sizes at which it can be called often, and collects what each kind of check finds.

Used in the module's own process alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kernelmate_torch.kernelbench.answers import constant_findings, given_findings, input_findings, parameter_findings
from kernelmate_torch.kernelbench.records import TaskAudit, TaskFinding, ordered
from kernelmate_torch.kernelbench.shortcuts import input_returned, shortcut_findings
from kernelmate_torch.kernelbench.subject import (
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
from kernelmate_torch.kernelbench.tape import LAUNCH_S
from kernelmate_torch.kernelbench.waste import measured_findings, static_findings
from kernelmate_torch.loading import Refusal

SLOWER = 4.0
"""Multiple of the estimated time from which sizes are halved again."""
REPLACING_S = 30.0
"""Seconds after which no further operation is replaced."""
FULL_RUN_S = 2.0
"""Estimated seconds of one call at the task's own sizes up to which answers are compared there, too."""
CONSTANT = frozenset({"zeros-pass", "constant-passes", "answer-repeats"})


def audit_task(path: Path, seed: int, tolerance: tuple[float, float], full_s: float = FULL_RUN_S) -> TaskAudit:
    """Returns what the audit finds about a task; the reason why it could not be run, if it could not.

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
        """Adds what a check finds; one that fails leaves a note and the other checks."""
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
    """Returns findings about parts that suffice: an input as the output, else operations that are left out or replaced."""
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
    """Returns findings without what another one of the same line already says."""
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
