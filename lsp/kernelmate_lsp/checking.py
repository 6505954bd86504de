"""Compiles the kernels of a document in a job queue's thread; no code of the document is executed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from pathlib import Path

from kernelmate.compiler import find_target, occupancy, what_would_lift
from kernelmate.compiler.process import CompilationAbandoned, CompilerProcess
from kernelmate.config import Settings
from kernelmate.decide.objective import read_objective
from kernelmate.errors import ContractError, KernelmateError, UsageError
from kernelmate.records import Candidate, Contract, Judged, Kernel, Listing
from kernelmate.session import Session
from kernelmate.source import contract_for, launch_shape
from kernelmate.suggest.base import SuggestRequest
from kernelmate_lsp.configuration import Configuration
from kernelmate_lsp.document_state import CompileResult, TargetFit
from kernelmate_lsp.job_queue import JobUnwanted, QueuedJob
from kernelmate_lsp.reading import DocumentKernel, DocumentKernels, span_lines

log = logging.getLogger(__name__)


def _judge_nothing(_: Candidate) -> Judged:
    raise KernelmateError("Nothing is judged while offers are collected.")


def offers_of(job: QueuedJob, session: Session, checked: CompileResult) -> dict[str, Candidate]:
    """Returns the first candidate of each applicable recipe for a kernel, by the recipe's name; nothing is judged.

    Args:
        job: checked for cancellation between recipes.
        session: a session with the document's settings.
        checked: the kernel's compile result.

    Raises:
        JobUnwanted: the text has changed.
    """
    # Recipes load the tree-sitter grammar, which compiling does not need.
    from kernelmate.suggest.recipes import ALL

    if checked.contract is None or not checked.verdicts or not checked.verdicts[0].compiled:
        return {}
    if checked.kernel.unit.language == "triton" or checked.kernel.parts:
        return {}  # recipes rewrite single kernels in CUDA
    prepared = session.prepare(checked.kernel, checked.verdicts[0].instance)[0]
    request = SuggestRequest(
        kernel=checked.kernel,
        contract=checked.contract,
        compiled=prepared.compiled,
        verdict=checked.verdicts[0],
        objective=read_objective("make it faster"),
        target=session.target,
        judge=_judge_nothing,
        versions=tuple,
        stop=job.unwanted.is_set,
    )
    found = {}
    for recipe in ALL:
        job.check()
        try:
            first = next(iter(recipe.candidates(request)), None)
        except Exception:  # a defect of one recipe must not affect the others
            log.exception("recipe %s failed", recipe.name)
            continue
        if first is not None:
            found[recipe.name] = first
    return found


OnChecked = Callable[[str, CompileResult], None]


class Checker:
    """Compiles for the editor in its own compiler process, so that a background search does not delay it."""

    def __init__(self) -> None:
        self._compiler = CompilerProcess()
        self._sessions: dict[str, Session] = {}
        self._by_files: dict[Hashable, Session] = {}

    def start(self) -> None:
        """Starts the compiler process before the first document arrives."""
        self._compiler.start()

    def kill(self) -> None:
        """Kills the running compilation; its job is then unwanted."""
        self._compiler.abandon()

    def close(self) -> None:
        """Ends all processes."""
        for session in self._sessions.values():
            session.close()
        self._compiler.close()

    def forget(self) -> None:
        """Discards cached sessions, so that settings are read again."""
        self._sessions.clear()
        self._by_files.clear()

    def check(
        self, job: QueuedJob, reading: DocumentKernels, configuration: Configuration, near: int, on_checked: OnChecked
    ) -> dict[str, CompileResult]:
        """Returns the compile result of each kernel of a document, by the kernel's id.

        Args:
            job: checked for cancellation between kernels.
            reading: the document.
            configuration: the client's configuration.
            near: the line last edited; kernels near it are compiled first.
            on_checked: called in this thread with each kernel as soon as it is compiled.

        Raises:
            JobUnwanted: the text has changed.
        """
        found: dict[str, CompileResult] = {}
        for spot in _nearest_first(reading, near):
            job.check()
            try:
                found[spot.id] = self._check(spot, reading, configuration)
            except CompilationAbandoned:
                raise JobUnwanted from None
            on_checked(spot.id, found[spot.id])
        return found

    def others(
        self, job: QueuedJob, checked: CompileResult, reading: DocumentKernels, configuration: Configuration
    ) -> tuple[TargetFit, ...]:
        """Returns a kernel's resources on the other GPUs in the settings that it compiles for.

        Raises:
            JobUnwanted: the text has changed.
        """
        found = []
        for name in configuration.own.other_targets:
            job.check()
            try:
                target = find_target(name)
                if any(verdict.target == target.name for verdict in checked.verdicts):
                    continue
                session = self._session(reading, configuration, target=target.name)
                first = next(iter(session.prepare(checked.kernel)), None)
            except CompilationAbandoned:
                raise JobUnwanted from None
            except KernelmateError:
                continue
            if first is not None and first.resources is not None:
                found.append(TargetFit(target.name, target.arch, first.resources, first.occupancy))
        return tuple(found)

    def offers(
        self, job: QueuedJob, checked: CompileResult, reading: DocumentKernels, configuration: Configuration
    ) -> dict[str, Candidate]:
        """Returns the first candidate of each applicable recipe for a kernel, by the recipe's name; nothing is judged.

        Raises:
            JobUnwanted: the text has changed.
        """
        try:
            return offers_of(job, self._session(reading, configuration), checked)
        except CompilationAbandoned:
            raise JobUnwanted from None
        except KernelmateError:
            return {}

    def listings(
        self, job: QueuedJob, kernel: Kernel, reading: DocumentKernels, configuration: Configuration
    ) -> tuple[Listing, ...]:
        """Returns PTX and SASS of a kernel, one listing per instance.

        Raises:
            JobUnwanted: the text has changed.
            KernelmateError: the kernel does not compile, or nvdisasm is missing.
        """
        # Disassembling is not needed for anything else that the checker does.
        from kernelmate.compiler.listing import read_listing

        found = []
        try:
            for prepared in self._session(reading, configuration).prepare(kernel):
                job.check()
                if not prepared.compiled.ok:
                    hint = "Correct what the diagnostics say first."
                    raise UsageError(f"{kernel.name} does not compile, so there is no code to show.", hint=hint)
                found.append(read_listing(prepared.compiled, kernel.unit))
        except CompilationAbandoned:
            raise JobUnwanted from None
        return tuple(found)

    def _check(self, spot: DocumentKernel, reading: DocumentKernels, configuration: Configuration) -> CompileResult:
        try:
            session = self._session(reading, configuration)
            verdicts = session.check(spot.kernel)
        except KernelmateError as error:
            return CompileResult(spot.kernel, error=error)
        contract = _contract(spot.kernel)
        first = verdicts[0] if verdicts else None
        if contract is None or first is None or first.resources is None or first.occupancy is None:
            return CompileResult(spot.kernel, verdicts, contract)
        shape = launch_shape(contract, contract.sizes[0])
        fits = occupancy(session.target, first.resources, shape)
        lifts = what_would_lift(session.target, first.resources, shape)
        verdicts = tuple(replace(one, occupancy=one.occupancy or fits) for one in verdicts)
        return CompileResult(spot.kernel, verdicts, contract, shape, lifts)

    def _session(self, reading: DocumentKernels, configuration: Configuration, **overrides: str) -> Session:
        """Returns a session for the document's folder; it only compiles, so it starts no worker."""
        folder = Path(reading.path).parent
        # Reading and validating settings at each key took a third of the CPU time of an edit of a short file.
        known = (repr(configuration), folder, *sorted(overrides.items()), configuration.stamp(folder))
        if known not in self._by_files:
            settings = configuration.settings(folder, history=False, **overrides)
            key = settings_key(settings)
            if key not in self._sessions:
                self._sessions[key] = Session(settings, compiler=self._compiler)
            self._by_files[known] = self._sessions[key]
        return self._by_files[known]


def settings_key(settings: Settings) -> str:
    """Returns a key that is the same for equal settings."""
    return settings.model_dump_json()


def _nearest_first(reading: DocumentKernels, near: int) -> Iterator[DocumentKernel]:
    def distance(spot: DocumentKernel) -> tuple[int, int]:
        first, last = span_lines(spot.kernel)
        return max(first - near, near - last, 0), first

    return iter(sorted(reading.spots, key=distance))


def _contract(kernel: Kernel) -> Contract | None:
    try:
        return contract_for(kernel)
    except ContractError:
        return None
