"""Expected outputs with tolerances.

A tolerance is measured more precisely if an output exceeds it only slightly; results are cached.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeVar

from kernelmate.checks import perturbation
from kernelmate.checks.compare import Difference, compare
from kernelmate.checks.evaluations import Expected, Reference
from kernelmate.checks.precision import Array, Arrays, is_inexact, module_of, on_device
from kernelmate.checks.tolerances import MaximumErrors, derive, rounded_outputs
from kernelmate.records import Contract, Size

T = TypeVar("T")


class AnswerCache(Generic[T]):
    """A least-recently-used cache: entries are evicted when their arrays exceed `limit` bytes.

    The newest entry is kept whatever its size until the next one arrives, because it is requested again while in use.

    Args:
        limit: bytes of arrays kept in host memory.
        arrays: returns the arrays of a value.
        device_limit: bytes of arrays kept on a GPU.
    """

    def __init__(self, limit: int, arrays: Callable[[T], Iterable[Array]], device_limit: int = 0) -> None:
        self._limits, self._arrays = (limit, device_limit), arrays
        self._kept: OrderedDict[Hashable, tuple[T, tuple[int, int]]] = OrderedDict()
        self._bytes = [0, 0]

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the cached value for a key, else makes and stores it."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        value = make()
        self._keep(key, value)
        return value

    def replace(self, key: Hashable, value: T) -> None:
        """Replaces the value of a key."""
        if key in self._kept:
            self._count(self._kept.pop(key)[1], -1)
        self._keep(key, value)

    def _keep(self, key: Hashable, value: T) -> None:
        size = [0, 0]
        for array in self._arrays(value):
            size[on_device(array)] += array.nbytes
        self._kept[key] = value, (size[0], size[1])
        self._count(size, 1)
        while len(self._kept) > 1 and any(held > limit for held, limit in zip(self._bytes, self._limits, strict=True)):
            self._count(self._kept.popitem(last=False)[1][1], -1)

    def bound_device(self, limit: int) -> None:
        """Sets the limit of bytes kept on a GPU."""
        self._limits = self._limits[0], limit

    def forget_device(self) -> None:
        """Frees all entries kept on a GPU."""
        for key in [key for key, (_, size) in self._kept.items() if size[1]]:
            self._count(self._kept.pop(key)[1], -1)

    def _count(self, size: Sequence[int], sign: int) -> None:
        self._bytes = [held + sign * more for held, more in zip(self._bytes, size, strict=True)]

    def known(self, key: Hashable) -> T | None:
        """Returns the cached value for a key; None if it is not there."""
        return self._kept[key][0] if key in self._kept else None


NEARLY_MET = 100.0
"""Multiple of a tolerance up to which an error may be an artefact of few draws or of pooling, so that the tolerance is
measured again with more draws.
"""

LONGEST_S = 12.0
"""Maximum seconds on the host for measuring a tolerance again; the draws are reduced to fit, or the tolerance stays."""

MOST_DRAWS, FEWEST_DRAWS = 32, 4
"""Maximum and minimum number of draws of perturbed inputs when a tolerance is measured again."""


@dataclass(frozen=True, slots=True)
class ExpectedOutputs:
    """Expected outputs for one set of inputs, with the allowed errors.

    Attributes:
        origin: how the tolerance was found.
        against: the source of the expected outputs.
        again: True if the tolerance was measured a second time, with many draws.
        ties: for integer outputs, two acceptable values of each element near a rounding tie; absent until examined.
    """

    want: Expected
    allowed: MaximumErrors
    origin: Literal["derived", "carried", "contract"] = "derived"
    against: Literal["reference", "baseline"] = "reference"
    again: bool = False
    ties: Mapping[str, perturbation.TiedValues] = field(default_factory=dict)

    def difference(self, name: str, got: Array) -> Difference:
        """Compares an output with the expected one."""
        want = perturbation.wanted_of_ties(got, self.want[name], self.ties.get(name))
        return compare(name, got, want, self.allowed.error[name], self.allowed.coarse[name])

    def arrays(self) -> Iterator[Array]:
        """Yields all arrays, for counting bytes."""
        for part in (self.want, self.allowed.error, self.allowed.coarse):
            yield from part.values()
        for pair in self.ties.values():
            yield from pair


@dataclass(frozen=True, slots=True)
class BaselineOutputs:
    """Outputs of the baseline for one launch.

    Attributes:
        errors: codes of errors that the backend reported.
        right: True if it ran without errors and within tolerance; None without a reference.
        off: |got - want| per element of each output; empty without a reference.
        outputs: its outputs, kept only if candidates are compared with them.
        longest_thread: instructions of its longest thread, if the backend counts them.
        nans: for inputs with NaN, the elements of each output at which it handles NaN as the reference does.
        bits: elements of each output whose bits a candidate must preserve, as baseline and reference do.
        small: subnormal elements of each output that a candidate must preserve, as baseline and reference do.
        exact: for each 16-bit output whose elements it all rounds to nearest, the error per element that arithmetic may
            add to that rounding.
        nearest: the same for each output of at most 16 bits, on any inputs and for sums of any length.
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
    nearest: Arrays = field(default_factory=dict)

    def arrays(self) -> Iterator[Array]:
        """Yields all arrays, for counting bytes."""
        for part in (self.off, self.outputs, self.nans, self.bits, self.small, self.exact, self.nearest):
            yield from part.values()


REMEMBERED_BYTES = 96 << 20
"""Bytes of expected outputs that a warm worker keeps; the same again for inputs and for baseline outputs."""

DEVICE_REMEMBERED_BYTES, DEVICE_SHARE = 4 << 30, 16
"""Bytes of expected outputs kept on a GPU, limited to its total memory divided by the second number; inputs and
baseline outputs have the same limit.

Kept arrays are freed when memory runs out.
"""

INPUTS: AnswerCache[Arrays] = AnswerCache(REMEMBERED_BYTES, lambda arrays: arrays.values(), DEVICE_REMEMBERED_BYTES)
ANSWERS: AnswerCache[ExpectedOutputs] = AnswerCache(REMEMBERED_BYTES, ExpectedOutputs.arrays, DEVICE_REMEMBERED_BYTES)
BASELINES: AnswerCache[BaselineOutputs] = AnswerCache(REMEMBERED_BYTES, BaselineOutputs.arrays, DEVICE_REMEMBERED_BYTES)


def bound_device(total: int) -> None:
    """Limits the bytes kept on a GPU according to its total memory."""
    for memo in (INPUTS, ANSWERS, BASELINES):
        memo.bound_device(min(DEVICE_REMEMBERED_BYTES, total // DEVICE_SHARE))


def forget_device(cupy: Any) -> None:
    """Frees all cached GPU memory."""
    for memo in (INPUTS, ANSWERS, BASELINES):
        memo.forget_device()
    cupy.get_default_memory_pool().free_all_blocks()


Task = tuple[Contract, Reference, Arrays, Size]
"""Contract, reference, inputs and size that expected outputs belong to."""


def nearly_met(answer: ExpectedOutputs, found: Mapping[str, Difference], outputs: Mapping[str, Array]) -> bool:
    """Returns True if rounded outputs slightly exceed a tolerance that was measured with few draws."""
    largest = max((found[name].error for name in found if is_inexact(outputs[name].dtype)), default=0.0)
    return answer.origin != "contract" and not answer.again and 1 < largest <= NEARLY_MET


def near_ties(answer: ExpectedOutputs, found: Mapping[str, Difference], outputs: Mapping[str, Array]) -> bool:
    """Returns True if a few elements of an integer output differ, which may be rounding ties."""
    whole = [name for name, one in found.items() if not one.right and not is_inexact(outputs[name].dtype)]
    return any(name not in answer.ties and perturbation.few_differ(outputs[name], answer.want[name]) for name in whole)


def thorough_answers(answer: ExpectedOutputs, task: Task, seed: tuple[int, ...], seconds: float) -> ExpectedOutputs:
    """Returns the expected outputs with a tolerance measured by many draws, nowhere smaller than before.

    With few draws, all perturbations of one element may have small effects by chance, and pooling of dissimilar
    elements gives a few of many millions too small a tolerance.

    Args:
        answer: the expected outputs so far.
        task: a task whose contract has no tolerance.
        seed: seed of the perturbations.
        seconds: duration of one evaluation of the reference.
    """
    # A draw takes one evaluation for the sensitivity and three for the inner loss.
    draws = min(MOST_DRAWS, int(LONGEST_S / (4 * seconds))) if seconds else MOST_DRAWS
    if draws < FEWEST_DRAWS:
        return answer
    contract, reference, given, size = task
    full = derive(contract, reference, given, size, answer.want, seed, exact=True, draws=draws)
    pairs = ((answer.allowed.error, full.error), (answer.allowed.coarse, full.coarse))
    error, coarse = ({n: module_of(a).maximum(a, new[n]) for n, a in old.items()} for old, new in pairs)
    return replace(answer, allowed=MaximumErrors(error, coarse, full.terms), again=True)


def with_ties(answer: ExpectedOutputs, task: Task, seed: tuple[int, ...], seconds: float) -> ExpectedOutputs:
    """Returns the expected outputs with both acceptable values of elements near a rounding tie.

    Arguments as for `thorough_answers`.
    """
    draws = perturbation.DRAWS if not seconds else min(perturbation.DRAWS, int(LONGEST_S / seconds))
    if draws < perturbation.FEWEST:
        return answer
    contract, reference, given, size = task
    rounded = rounded_outputs(contract, answer.want)
    names = [name for name in answer.want if name not in rounded]
    found = perturbation.measured_ties(contract, reference, given, size, answer.want, names, seed, draws)
    return replace(answer, ties=found)
