"""Expected outputs with the errors that pass, measured more closely where an output is only a little beyond them, and kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kernelmate.checks import ties
from kernelmate.checks.compare import Difference, compare
from kernelmate.checks.evaluations import Expected, Reference
from kernelmate.checks.memo import Memo
from kernelmate.checks.precision import Array, Arrays, is_inexact, module_of
from kernelmate.checks.tolerances import Allowed, derive, rounded_outputs
from kernelmate.records import Contract, Size

NEARLY_MET = 100.0
"""Times a tolerance up to which an error may be the fault of few draws, or of pooling, and the tolerance is measured again."""

LONGEST_S = 12.0
"""Seconds on the host for measuring a tolerance again: fewer draws are made within them, or the answer is left as it is."""

MOST_DRAWS, FEWEST_DRAWS = 32, 4
"""Draws of moves: so many that no element's were all small by chance, and no fewer than usually."""


@dataclass(frozen=True, slots=True)
class ExpectedOutputs:
    """The wanted outputs for one set of inputs, and the errors that pass.

    Attributes:
        origin: how the tolerance was found. against: whose outputs are wanted.
        again: it was measured again, by many draws of moves.
        ties: for outputs of whole numbers, two values of each element that are both right; without those not looked at yet.
    """

    want: Expected
    allowed: Allowed
    origin: Literal["derived", "carried", "contract"] = "derived"
    against: Literal["reference", "baseline"] = "reference"
    again: bool = False
    ties: Mapping[str, ties.Pair] = field(default_factory=dict)

    def difference(self, name: str, got: Array) -> Difference:
        """The difference of an output from the expected one."""
        want = ties.wanted(got, self.want[name], self.ties.get(name))
        return compare(name, got, want, self.allowed.error[name], self.allowed.coarse[name])

    def arrays(self) -> Iterator[Array]:
        """All arrays, for counting bytes."""
        for part in (self.want, self.allowed.error, self.allowed.coarse):
            yield from part.values()
        for pair in self.ties.values():
            yield from pair


@dataclass(frozen=True, slots=True)
class BaselineOutputs:
    """Outputs of the baseline for one launch.

    Attributes:
        errors: codes of the errors that the backend saw.
        right: it ran clean and is within tolerance; None where there is no reference to say.
        off: |got - want| per element of each output, empty without a reference.
        outputs: what it gave, kept only where it is itself what candidates are compared with.
        longest_thread: instructions of its longest thread, where the backend counts them.
        nans: on inputs with NaN, where it and the reference both gave NaN, per floating output.
        bits: elements whose bits it keeps as the reference does, per output, where a candidate must keep them.
        small: those below the smallest normal number that it keeps as the reference does, where a candidate must keep them.
        exact: where it rounds a narrow output to nearest throughout, the error that computing may add to that.
    """

    errors: frozenset[str]
    right: bool | None
    off: Expected
    outputs: Arrays
    longest_thread: int | None = None
    nans: Arrays = field(default_factory=dict)
    bits: Arrays = field(default_factory=dict)
    small: Arrays = field(default_factory=dict)
    exact: Arrays = field(default_factory=dict)

    def arrays(self) -> Iterator[Array]:
        """All arrays, for counting bytes."""
        for part in (self.off, self.outputs, self.nans, self.bits, self.small, self.exact):
            yield from part.values()


REMEMBERED_BYTES = 96 << 20
"""Bytes of answers, again as many of inputs and of what baselines gave, that a warm worker keeps."""

DEVICE_REMEMBERED_BYTES, DEVICE_SHARE = 4 << 30, 16
"""The same on a GPU, and no more than this part of its memory: what does not fit when it is needed makes it be given back."""

INPUTS: Memo[Arrays] = Memo(REMEMBERED_BYTES, lambda arrays: arrays.values(), DEVICE_REMEMBERED_BYTES)
ANSWERS: Memo[ExpectedOutputs] = Memo(REMEMBERED_BYTES, ExpectedOutputs.arrays, DEVICE_REMEMBERED_BYTES)
BASELINES: Memo[BaselineOutputs] = Memo(REMEMBERED_BYTES, BaselineOutputs.arrays, DEVICE_REMEMBERED_BYTES)


def bound_device(total: int) -> None:
    """Keep no more on a GPU than its memory of so many bytes allows."""
    for memo in (INPUTS, ANSWERS, BASELINES):
        memo.bound_device(min(DEVICE_REMEMBERED_BYTES, total // DEVICE_SHARE))


def forget_device(cupy: Any) -> None:
    """Give back the GPU's memory that is kept for later."""
    for memo in (INPUTS, ANSWERS, BASELINES):
        memo.forget_device()
    cupy.get_default_memory_pool().free_all_blocks()


Task = tuple[Contract, Reference, Arrays, Size]
"""The contract, reference, inputs and size that an answer belongs to."""


def nearly_met(answer: ExpectedOutputs, found: Mapping[str, Difference], outputs: Mapping[str, Array]) -> bool:
    """True where rounded outputs are a little beyond a tolerance that was measured by few draws of moves."""
    largest = max((found[name].error for name in found if is_inexact(outputs[name].dtype)), default=0.0)
    return answer.origin != "contract" and not answer.again and 1 < largest <= NEARLY_MET


def near_ties(answer: ExpectedOutputs, found: Mapping[str, Difference], outputs: Mapping[str, Array]) -> bool:
    """True where a few whole numbers of an output differ, which may lie near a tie of what they are rounded from."""
    whole = [name for name, one in found.items() if not one.right and not is_inexact(outputs[name].dtype)]
    return any(name not in answer.ties and ties.few(outputs[name], answer.want[name]) for name in whole)


def thorough(answer: ExpectedOutputs, task: Task, seed: tuple[int, ...], seconds: float) -> ExpectedOutputs:
    """The answer with a tolerance by many draws of moves, nowhere less than it was.

    Of a few draws all may be small by chance at one element of many; and a pool whose elements are very unlike each other leaves
    a few of many millions with less tolerance than they need.

    Args:
        answer: to the task.
        task: its contract has no tolerance of its own.
        seed: of the moves.
        seconds: that an evaluation of the reference takes.
    """
    # A draw takes one evaluation for the sensitivity and two for the inner loss.
    draws = min(MOST_DRAWS, int(LONGEST_S / (3 * seconds))) if seconds else MOST_DRAWS
    if draws < FEWEST_DRAWS:
        return answer
    contract, reference, given, size = task
    full = derive(contract, reference, given, size, answer.want, seed, exact=True, draws=draws)
    pairs = ((answer.allowed.error, full.error), (answer.allowed.coarse, full.coarse))
    error, coarse = ({n: module_of(a).maximum(a, new[n]) for n, a in old.items()} for old, new in pairs)
    return replace(answer, allowed=Allowed(error, coarse, full.terms), again=True)


def with_ties(answer: ExpectedOutputs, task: Task, seed: tuple[int, ...], seconds: float) -> ExpectedOutputs:
    """The answer with the two values that elements near a tie may have; arguments as of `thorough`."""
    draws = ties.DRAWS if not seconds else min(ties.DRAWS, int(LONGEST_S / seconds))
    if draws < ties.FEWEST:
        return answer
    contract, reference, given, size = task
    rounded = rounded_outputs(contract, answer.want)
    names = [name for name in answer.want if name not in rounded]
    found = ties.measured(contract, reference, given, size, answer.want, names, seed, draws)
    return replace(answer, ties=found)
