"""Writes a new kernel for a Python function: contract, kernel and launch, judged like any other version."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from kernelmate.errors import CompileTimeout, KernelmateError, ReferenceFailed, SourceError
from kernelmate.records import Contract, Kernel, Verdict
from kernelmate.session.session import Session
from kernelmate.source import apply_edits
from kernelmate.synthesis.draft import KernelRequest, draft, with_results, with_scratch
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import WrittenKernel
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.results import Results
from kernelmate.synthesis.schedules.total import scratch_for
from kernelmate.synthesis.searches import with_ascending_tables
from kernelmate.synthesis.write import kernels_for

MOST = 3
"""Maximum number of schedules to judge."""


@dataclass(frozen=True, slots=True)
class NewKernel:
    """A kernel that was written and judged.

    Attributes:
        schedule: its name in docs/synthesis.md.
        why: the reason, one sentence.
        kernel: the kernel with its contract, in a file's text.
        verdict: its verdict.
    """

    schedule: str
    why: str
    kernel: Kernel
    contract: Contract
    verdict: Verdict

    @property
    def right(self) -> bool:
        """Returns True if the kernel was judged right and has no error."""
        return self.verdict.clean and self.verdict.correct is True


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """Result of writing a kernel for a function.

    Attributes:
        kernels: all judged kernels, right ones first, then by time at the headline size.
        notes: reasons for missing kernels.
        file: the file of a line that a note names.
    """

    kernels: tuple[NewKernel, ...]
    notes: tuple[str, ...] = ()
    file: str | None = None
    line: int | None = None

    @property
    def right(self) -> tuple[NewKernel, ...]:
        """The right ones, by time at the headline size."""
        return tuple(one for one in self.kernels if one.right)

    @property
    def best(self) -> NewKernel | None:
        """The fastest right one; None if there is none."""
        return next(iter(self.right), None)


def write_kernel(
    session: Session, asked: KernelRequest, most: int = MOST, on_trying: Callable[[str], None] | None = None
) -> WriteOutcome:
    """Trace a function, write kernels for it, and judge each; no file is changed.

    Args:
        session: judges.
        asked: the function, its examples, and the file that the kernel is for.
        most: schedules that are judged.
        on_trying: called with each schedule before it is judged.

    Raises:
        InputError: the function raises, or an example needs a change.
        EnvironmentFailed: the compiler or the worker is unavailable.
    """
    traced = _traced(session, asked)
    if isinstance(traced, WriteOutcome):
        return traced
    outcome = _judged(session, asked, traced, most, on_trying)
    added = [one for one in traced[1].require if one not in asked.require]
    if not added:
        return outcome
    note = f"{asked.function.name} raises, or returns fewer elements, at other sizes, so the contract requires {' and '.join(added)}."
    return replace(outcome, notes=(note, *outcome.notes))


def why_not_written(session: Session, asked: KernelRequest, left: tuple[str, ...] = ()) -> str:
    """Returns why no kernel can be written for a function; empty if a schedule takes it. Nothing is judged.

    Args:
        session: traces.
        asked: the function, its examples, and the file that the kernel is for.
        left: beginnings of the names of schedules without tiles, where a library could compute the function's products.

    Raises:
        As `write_kernel`.
    """
    traced = _traced(session, asked)
    if isinstance(traced, WriteOutcome):
        return next(iter(traced.notes), "The reference cannot be traced.")
    try:
        found = next((one for _, _, one in _schedules(asked, traced, new=not left)), None)
    except Refused as reason:
        return f"No schedule computes the function: {reason}."
    if found is None:
        return "No schedule computes the function."
    return (
        "its products are left to a library, which computes them in tiles"
        if left and found.schedule.startswith(left)
        else ""
    )


Traced = tuple[Kernel, Contract, Graph]
"""An empty kernel, its contract and its reference's graph."""


def _schedules(asked: KernelRequest, traced: Traced, *, new: bool) -> Iterator[tuple[Kernel, Contract, WrittenKernel]]:
    """Yields a kernel of each schedule with the empty one and the contract that it takes, the most promising first.

    Raises:
        Refused: no schedule applies.
    """
    kernel, contract, graph = traced
    planned = _planned(asked, contract)
    scratch = scratch_for(graph, kernel, planned)
    if scratch:
        own, under = with_scratch(asked, contract, scratch)
        yield from ((own, under, one) for one in kernels_for(graph, own, _planned(asked, under)))
    for one in kernels_for(graph, kernel, planned, new=new):
        if not one.another:
            yield kernel, contract, one


def _planned(asked: KernelRequest, contract: Contract) -> Contract:
    """Returns the contract with the size for which schedules are chosen as its first size."""
    return replace(contract, sizes=(dict(asked.planned), *contract.sizes)) if asked.planned else contract


def _traced(session: Session, asked: KernelRequest) -> Traced | WriteOutcome:
    """Returns the traced graph, or the reasons why there is none."""
    kernel, contract = draft(asked)
    prepared = session.prepare(kernel, contract=contract)[0]
    if prepared.findings:
        asked = replace(asked, name=f"{asked.name}_kernel")
        kernel, contract = draft(asked)
        prepared = session.prepare(kernel, contract=contract)[0]
    if prepared.findings:
        said = next(iter(prepared.compiled.diagnostics), None)
        raise SourceError(
            f"A kernel with the function's parameters does not compile: {prepared.findings[0].message if said is None else said.message}",
            file=str(asked.function.path),
            line=asked.function.line,
            hint="Rename the parameters that mean something in CUDA C++.",
        )
    results = Results.of(session.trace(kernel, contract))
    if results.require and not {*results.require} <= {*asked.require}:
        return _traced(session, replace(asked, require=(*asked.require, *results.require)))
    if results.graph is None:
        return WriteOutcome((), (results.refusal or "The reference cannot be traced.",), results.file, results.line)
    kernel, contract = with_results(asked, with_ascending_tables(contract, Graph.of(results.graph)), results)
    try:
        graph = Graph.of(session.trace(kernel, contract))
    except ReferenceFailed as error:  # at the small size, which was not known before
        return WriteOutcome((), (error.message,), error.file, error.line)
    return kernel, contract, graph


def _judged(
    session: Session, asked: KernelRequest, traced: Traced, most: int, on_trying: Callable[[str], None] | None
) -> WriteOutcome:
    """Judges the kernels of each schedule."""
    found: list[NewKernel] = []
    notes: list[str] = []
    try:
        for kernel, contract, written in islice(_schedules(asked, traced, new=True), most):
            if on_trying is not None:
                on_trying(written.schedule)
            try:
                found.append(_new(session, kernel, contract, written))
            except KernelmateError as error:
                if error.exit_code != 2 and not isinstance(error, CompileTimeout):
                    raise
                notes.append(f"The schedule {written.schedule} was left out: {error.message}")
    except Refused as reason:
        notes.append(f"No schedule computes the function: {reason}.")
    notes += [f"{one.schedule} is not right: {_why_not(one.verdict)}" for one in found if not one.right]
    return WriteOutcome(tuple(sorted(found, key=_rank)), tuple(notes))


def _new(session: Session, kernel: Kernel, contract: Contract, written: WrittenKernel) -> NewKernel:
    new, in_force = placed(kernel, contract, written)
    new = _explained(new, written)
    verdict = session.bench(new, written=True)[0]
    return NewKernel(written.schedule, written.why, new, in_force, verdict)


def _explained(kernel: Kernel, written: WrittenKernel) -> Kernel:
    """Returns the kernel's file with a comment, below its first line, that describes the computation."""
    lines = textwrap.wrap(written.method, 107)
    place = kernel.unit.text.index("\n") + 1
    return apply_edits(kernel, [(place, place, "".join(f"// {line}\n" for line in lines))])


def _rank(one: NewKernel) -> tuple[bool, float]:
    timing = one.verdict.timing
    return not one.right, float("inf") if timing is None else timing.median_us


def _why_not(verdict: Verdict) -> str:
    findings = [one.message for one in verdict.findings if one.severity == "error"]
    return next(iter([*findings, *verdict.reasons]), "it could not be judged")
