"""Draws the inputs for a candidate and compares its results, in a process in which no candidate runs."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kernelmate_torch.comparing import deviation, in_double, in_float64
from kernelmate_torch.kernelbench.audited_task import OTHERS, Outputs, Subject, copies, tensors_of, tolerance_units
from kernelmate_torch.kernelbench.exchange import digest, read_tensor, tensors_in, write_tensor
from kernelmate_torch.kernelbench.records import (
    CandidateRun,
    CandidateVerdict,
    CaseFiles,
    CaseResult,
    PreparedTask,
    TaskFinding,
    ordered,
)
from kernelmate_torch.kernelbench.waste import DRAWS

OWN_SEEDS = (11, 12, 13, 14, 15)
"""Seeds of the inputs at which the benchmark itself compares: five, as it does."""
RIGHT_SHARE = 0.01
"""Share of right elements from which a result with one constant elsewhere counts as a part of the work."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """The answers for one case: eager in the task's own dtypes and in float64, and digests of the inputs."""

    case: CaseFiles
    eager: Outputs
    exact: Outputs
    inputs: tuple[str, ...]


class CandidateJudge:
    """Judges candidates of one task.

    Args:
        subject: the task, at the sizes of the comparison.
        limit: bytes of inputs by which these sizes were found; None for the task's own.
        folder: where inputs are written to.
    """

    def __init__(self, subject: Subject, limit: int | None, folder: Path) -> None:
        self._subject, self._limit, self._folder = subject, limit, folder
        self._expected: list[_Expected] = []
        self._random = any(word in one.name for one in subject.tape.operations for word in DRAWS)

    def prepare(self) -> PreparedTask:
        """Returns the calls that a candidate has to make, with the inputs' files; keeps the answers."""
        subject = self._subject
        drawn = [(f"seed {seed}, the task's own inputs", True, subject.own(seed)) for seed in OWN_SEEDS]
        drawn += [(f"seed {seed}, {distribution} inputs", False, subject.others(distribution, seed)) for distribution, seed in OTHERS]  # fmt: skip
        for number, (described, own, inputs) in enumerate(drawn):
            try:
                eager, exact = self._answers(inputs)
            except Exception:
                if own:
                    raise
                continue
            tensors = tuple(
                (place, *write_tensor(one, self._folder / f"input_{number}_{place}"))
                for place, one in enumerate(inputs)
                if torch.is_tensor(one)
            )
            case = CaseFiles(described, own, tensors)
            self._expected.append(_Expected(case, eager, exact, tuple(digest(one) for one in tensors_in(inputs))))
        return PreparedTask(
            tuple(one.case for one in self._expected), self._limit, dict(subject.loaded.smaller), self._shares()
        )

    def _answers(self, inputs: Sequence[Any]) -> tuple[Outputs, Outputs]:
        """Returns the results of eager PyTorch and those in float64.

        If the model draws random numbers, which would differ in float64, both are the eager results.
        """
        model = copy.deepcopy(self._subject.loaded.model)
        torch.manual_seed(self._subject.seed)
        with torch.no_grad():
            eager = tensors_of(model(*copies(inputs)))
            if self._random:
                return eager, eager
            torch.manual_seed(self._subject.seed)
            return eager, tensors_of(in_double(self._subject.loaded.model)(*in_float64(copies(inputs))))

    def _shares(self) -> bool:
        inputs = copies(self._subject.own(OWN_SEEDS[0]))
        with torch.no_grad():
            made = tensors_of(self._subject.loaded.model(*inputs))
        held = [*tensors_in(inputs), *self._subject.loaded.model.parameters(), *self._subject.loaded.model.buffers()]
        places = {one.untyped_storage().data_ptr() for one in held}
        return any(one.untyped_storage().data_ptr() in places for one in made)

    def judge(self, run: CandidateRun, file: str) -> CandidateVerdict:
        """Returns the verdict on what a candidate returned: without times."""
        smaller = dict(self._subject.loaded.smaller)
        if run.needs_gpu:
            return CandidateVerdict(file, smaller=smaller, findings=run.findings)
        findings = [one for one in run.findings if one.code != "aliased-output" or not self._shares()]
        if not run.cases:
            return CandidateVerdict(file, False, False, smaller=smaller, findings=ordered(findings))
        raised = next((one for one in run.cases if one.error), None)
        if raised is not None:
            findings.append(TaskFinding("raised", "error", raised.error, raised.line))
        made = [self._read(one) for one in run.cases if not one.error]
        comparison = _Comparison(self._subject.tolerance, self._expected, made, run.cases)
        if made:
            findings += comparison.findings()
        complete = raised is None and len(made) == len(self._expected) + 1
        passes = complete and comparison.passes
        right = complete and not any(one.severity == "error" for one in findings)
        return CandidateVerdict(file, passes, right, len(made), comparison.most, smaller, ordered(findings))

    def _read(self, result: CaseResult) -> Outputs | None:
        try:
            return tuple(read_tensor(*one) for one in result.outputs)
        except (ValueError, OSError):
            return None


class _Comparison:
    """Compares a candidate's results with the answers."""

    def __init__(
        self, tolerance: tuple[float, float], expected: Sequence[_Expected], made: Sequence[Outputs | None], results: Sequence[CaseResult]
    ) -> None:  # fmt: skip
        self._expected, self._made, self._results = expected, made, results
        self.most = 0.0
        self._near = [one is not None and tolerance_units(one, want.eager, tolerance) <= 1.0 for one, want in zip(made, expected, strict=False)]  # fmt: skip
        self._wrong = [self._differs(one, want) for one, want in zip(made, expected, strict=False)]

    @property
    def passes(self) -> bool:
        """Returns True if the results pass the benchmark's own comparison: with eager, on its inputs, by its tolerance."""
        return all(near for near, want in zip(self._near, self._expected, strict=False) if want.case.own)

    def _differs(self, made: Outputs | None, want: _Expected) -> str:
        if made is None or len(made) != len(want.exact):
            return f"{'no readable results' if made is None else f'{len(made)} results'} in place of {len(want.exact)}"
        for one, exact, eager in zip(made, want.exact, want.eager, strict=True):
            relative, wrong = deviation(one, exact, eager)
            if wrong:
                return wrong
            self.most = max(self.most, relative)
        return ""

    def findings(self) -> list[TaskFinding]:
        """Returns the findings on the results, the cause of wrong values first."""
        return [*self._values(), *self._mutated(), *self._later()]

    def _values(self) -> list[TaskFinding]:
        wrong = [place for place, text in enumerate(self._wrong) if text]
        if not wrong:
            return []
        place = wrong[0]
        text = f"{self._wrong[place]} ({self._expected[place].case.described})"
        cause = self._cause(wrong)
        if cause is not None:
            return [cause]
        if all(self._near[one] for one in wrong):
            return [TaskFinding("precision-loss", "error", f"A result {text}; it is within the benchmark's tolerance.")]
        if not any(self._expected[one].case.own for one in wrong):
            return [TaskFinding("wrong-off-distribution", "error", f"A result {text}; results for the task's own inputs are right.")]  # fmt: skip
        return [
            TaskFinding(
                "wrong-values", "error", f"A result {text}; {len(wrong)} of {len(self._wrong)} cases are wrong."
            )
        ]

    def _cause(self, wrong: Sequence[int]) -> TaskFinding | None:
        """Returns the finding for wrong results that are the same for all inputs, equal an earlier answer, or are right in part; else None."""
        digests = ["".join(digest(one) for one in made) if made else "" for made in self._made]
        if self._wrong[0] and len(set(digests[: len(self._wrong)])) == 1 and len(digests) > 2:
            return TaskFinding("constant-output", "error", f"The result is the same for all {len(self._wrong)} inputs, and wrong for {len(wrong)}.")  # fmt: skip
        for place in wrong:
            if digests[place] and digests[place] in digests[:place]:
                earlier = digests.index(digests[place])
                return TaskFinding("cached-result", "error", f"The result for {self._expected[place].case.described} is that for {self._expected[earlier].case.described}: other values in the same memory.")  # fmt: skip
        if not self._expected[wrong[0]].case.own:
            return None
        made, want = self._made[wrong[0]], self._expected[wrong[0]].exact
        return _partial(made, want) if made is not None and len(made) == len(want) else None

    def _mutated(self) -> list[TaskFinding]:
        changed = [want.case.described for one, want in zip(self._results, self._expected, strict=False) if not one.error and one.inputs != want.inputs]  # fmt: skip
        return (
            [TaskFinding("input-mutated", "error", f"An input was changed by the call ({changed[0]}).")]
            if changed
            else []
        )

    def _later(self) -> list[TaskFinding]:
        found = []
        for one, made in zip(self._results, self._made, strict=False):
            if made is not None and one.late and one.late != tuple(digest(value) for value in made):
                found.append(TaskFinding("aliased-output", "error", "A result changed when the next call was made: both have the same memory."))  # fmt: skip
                break
        again, first = self._made[-1], self._made[0]
        complete = len(self._made) == len(self._expected) + 1
        if complete and again is not None and first is not None and not self._wrong[0]:
            text = self._differs(again, self._expected[0])
            if text:
                found.append(TaskFinding("stateful", "error", f"The same inputs give another result at a later call: it {text}."))  # fmt: skip
        return found


def _partial(made: Outputs, exact: Outputs) -> TaskFinding | None:
    for one, want in zip(made, exact, strict=True):
        if one.shape != want.shape or not one.numel() or not want.is_floating_point():
            continue
        scale = want[torch.isfinite(want)].abs().max().item() if bool(torch.isfinite(want).any()) else 0.0
        right = (one.double() - want.double()).abs() <= 1e-4 * scale
        others = one[~right]
        share = right.double().mean().item()
        if others.numel() and share >= RIGHT_SHARE and bool(((others == others[0]) | torch.isnan(others)).all()):
            return TaskFinding("partial-result", "error", f"{share:.0%} of the elements are right, and all others are {others[0].item():g}.")  # fmt: skip
    return None
