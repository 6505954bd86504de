"""Judgement of `kernelmate ci`.

Every kernel that a change touches, judged beside its earlier version and checked against limits.
"""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelmate.config import Settings
from kernelmate.decide.acceptance import not_shown_right
from kernelmate.errors import CompileTimeout, InputError, KernelmateError, LaunchTooLarge
from kernelmate.records import (
    Allowance,
    CompileOptions,
    Contract,
    Finding,
    Gate,
    GatedKernel,
    GateMetric,
    Kernel,
    Verdict,
)
from kernelmate.report.gate import figure_sentence
from kernelmate.session.changes import ChangeSide, KernelPair, changed_paths, lay_out, pairs
from kernelmate.session.devices import choose_backend, make_worker
from kernelmate.session.preparing import options_for
from kernelmate.session.revisions import Blob, Repository
from kernelmate.session.session import Session
from kernelmate.session.thresholds import figures_of, is_stopped_by_limit, more_findings
from kernelmate.source import contract_for, parse_contract, write_contract

PROJECT = "pyproject.toml"

OnKernel = Callable[[str, int, int], None]
"""Callback with the kernel judged next, the number judged, and the total."""


@dataclass(frozen=True, slots=True)
class JudgedSide:
    """One side of a kernel: its verdicts by instance, or the reason for having none.

    Attributes:
        ran: True if it ran; False if only compiled.
        guessed: True if its contract was inferred.
        sizes: the sizes of its figures.
    """

    verdicts: Mapping[str | None, Verdict] = field(default_factory=dict)
    error: KernelmateError | None = None
    ran: bool = True
    guessed: bool = False
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class ChangeGate:
    """Judges a working tree against a revision.

    Attributes:
        settings: the loaded settings; the history is not used.
        repository: the repository to judge.
        allowances: allowed deterioration of each metric.
        chosen: folders or files relative to the root; empty for all.
        excluded: folders or files to leave out.
        on_kernel: called for each kernel.
        on_progress: called for the stages of judging one.
    """

    settings: Settings
    repository: Repository
    allowances: Mapping[GateMetric, Allowance]
    chosen: Sequence[str] = ()
    excluded: Sequence[str] = ()
    on_kernel: OnKernel | None = None
    on_progress: Callable[[str, int, int], None] | None = None

    def run(self, base: str) -> Gate:
        """Judges every kernel that differs from a revision.

        Raises:
            UsageError: there is no such revision, or git cannot read it.
            EnvironmentFailed: the compiler or the worker is unavailable.
        """
        commit = self.repository.resolve(base)
        with tempfile.TemporaryDirectory(prefix="kernelmate-ci-") as folder:
            return self._run(base, commit, Path(folder).resolve())

    def _run(self, base: str, commit: str, folder: Path) -> Gate:
        blobs, now = self.repository.files(commit), self.repository.working_files()
        changed = changed_paths(self.repository, blobs, now)
        before = ChangeSide(folder, lambda file: self._options_before(file, folder))
        after = ChangeSide(self.repository.root, lambda file: options_for(self.settings, file))
        if changed:
            lay_out(self.repository, blobs, folder)
            before.read(path for path in blobs if self._meant(path))
            after.read(path for path in now if self._meant(path))
        touched = [pair for pair in pairs(before, after) if _touched(pair, before, after, changed)]
        differing = [pair for pair in touched if not _same(pair, before, after)]
        settings = self.settings.model_copy(
            update={
                "history": False,
                "seed": secrets.randbits(31) if self.settings.seed is None else self.settings.seed,
            }
        )
        with contextlib.ExitStack() as stack:
            bench = _GateSessions(settings, folder, self.on_progress, stack)
            kernels: list[GatedKernel] = []
            for number, pair in enumerate(differing):
                self._tell(pair, number, len(differing))
                kernels += self._judged(bench, pair, before, after)
            target, backend = bench.place()
        notes = (
            *(f"{path} cannot be read: {error.message}" for path, error in after.problems.items()),
            *self._own_rules(blobs),
        )
        order = {"failed": 0, "passed": 1, "moved": 2, "removed": 3}
        kernels.sort(key=lambda one: (order[one.outcome], one.path, one.line or 0))
        unchanged = len(touched) - len(differing)
        return Gate(base, commit, str(self.repository.root), target, backend, tuple(kernels), unchanged, notes)

    def _own_rules(self, blobs: Mapping[str, Blob]) -> Iterator[str]:
        """Yields notes for rules in the repository that the change itself modifies."""
        there = self.repository.root / PROJECT
        now = there.read_bytes() if there.is_file() and not there.is_symlink() else b""
        before = [data for _, data in self.repository.contents([blobs[PROJECT]])] if PROJECT in blobs else [b""]
        if _rules(now) != _rules(before[0]):
            yield f"the change alters [tool.kernelmate.ci] in {PROJECT}, by which it is judged: review it"

    def _meant(self, path: str) -> bool:
        return (not self.chosen or _within(path, self.chosen)) and not _within(path, self.excluded)

    def _options_before(self, file: Path, folder: Path) -> CompileOptions:
        """Returns a file's present compiler options with repository folders mapped to the revision, followed by the present ones."""
        root = self.repository.root
        here = root / file.relative_to(folder) if file.is_relative_to(folder) else file
        options = options_for(self.settings, here)
        mapped = [str(folder / Path(one).resolve().relative_to(root)) for one in options.include_paths if Path(one).resolve().is_relative_to(root)]  # fmt: skip
        return replace(options, include_paths=(*mapped, *options.include_paths))

    def _tell(self, pair: KernelPair, number: int, total: int) -> None:
        kernel = pair.after or pair.before
        if self.on_kernel is not None and kernel is not None:
            self.on_kernel(kernel.name, number, total)

    def _judged(
        self, bench: _GateSessions, pair: KernelPair, before: ChangeSide, after: ChangeSide
    ) -> Iterator[GatedKernel]:
        if pair.after is None:
            assert pair.before is not None, "a pair has a kernel"
            yield GatedKernel(pair.before.name, None, before.relative(pair.before), None, None, "removed", "removed")
            return
        place = _placed(pair, before, after)
        if pair.before is not None and before.identity(pair.before) == after.identity(pair.after):
            yield replace(place, change="moved", outcome="moved")
            return
        new = bench.now(pair.after)
        if new.error is not None:
            yield replace(place, outcome="failed", failures=(_said(new.error),))
            return
        old = JudgedSide() if pair.before is None else bench.then(pair.before, pair.after, self._options_before)
        for instance, verdict in new.verdicts.items():
            yield self._gated(replace(place, instance=instance), old, new, verdict, before.root)

    def _gated(
        self, place: GatedKernel, old: JudgedSide, new: JudgedSide, verdict: Verdict, folder: Path
    ) -> GatedKernel:
        baseline = old.verdicts.get(place.instance)
        notes = [*new.notes, *old.notes]
        if old.error is not None:
            notes.append(f"The version before could not be judged: {_said(old.error)}")
        failures, fresh = more_findings(baseline, verdict, self.allowances, guessed=new.guessed)
        if new.ran and verdict.unreached and not is_stopped_by_limit(verdict):
            failures.append("its verdict could not be reached: neither right nor wrong was found")
        figures = figures_of(baseline, verdict, self.allowances, len(fresh))
        comparable = baseline is not None and _headline(baseline) == _headline(verdict)
        if baseline is not None and not comparable:
            figures = tuple(
                replace(one, worse=False, most=None, note="not compared: another size")
                if one.metric in {"sectors", "time"}
                else one
                for one in figures
            )
        failures += [figure_sentence(one) for one in figures if one.worse and one.metric != "findings"]
        if new.guessed:
            notes.append("judged with a guessed contract: write it into the file to have it judged by more than this")
        if new.ran and verdict.correct is None and verdict.compiled:
            notes.append(not_shown_right(verdict))
        root = Path(self.repository.root)
        return replace(
            place,
            outcome="failed" if failures else "passed",
            figures=figures,
            failures=tuple(failures),
            notes=tuple(dict.fromkeys(notes)),
            fresh=tuple(_relabelled(finding, root) for finding in fresh),
            baseline=None if baseline is None else relabelled(baseline, folder),
            verdict=relabelled(verdict, root),
        )


@dataclass(slots=True)
class _GateSessions:
    """A session for the present kernels, and one for each set of compiler options of the earlier ones.

    Each side has a worker of its own: one process could not load Python modules of equal names from both states.
    """

    settings: Settings
    folder: Path
    on_progress: Callable[[str, int, int], None] | None
    stack: contextlib.ExitStack
    _sessions: dict[CompileOptions | None, Session] = field(default_factory=dict)
    _workers: dict[bool, Any] = field(default_factory=dict)

    def now(self, kernel: Kernel) -> JudgedSide:
        """Judges the present kernel."""
        return _bench(self._session(None), kernel)

    def then(self, kernel: Kernel, now: Kernel, options: Callable[[Path, Path], CompileOptions]) -> JudgedSide:
        """Judges the earlier kernel, at the present sizes if its contract allows them."""
        try:
            session = self._session(options(Path(kernel.unit.path), self.folder))
            wanted = contract_for(now)
            own = parse_contract(kernel)
            if own is None and not wanted.inferred:
                # It had no contract yet; the present one defines how it is called.
                with contextlib.suppress(KernelmateError):
                    kernel = write_contract(kernel, wanted)
            sizes = wanted.sizes if own is not None and set(own.sizes[0]) == set(wanted.sizes[0]) else ()
        except InputError as error:
            return JudgedSide(error=error)
        judged = _bench(session, kernel, sizes)
        if sizes and isinstance(judged.error, InputError):
            judged = _bench(session, kernel)
        return replace(judged, notes=judged.notes + tuple(_contract_notes(own, wanted)))

    def place(self) -> tuple[str, str]:
        """Returns the GPU that figures refer to, and the backend."""
        session = self._session(None)
        return session.target.name, session.backend

    def _session(self, options: CompileOptions | None) -> Session:
        if options not in self._sessions:
            settings = self.settings
            before = options is not None
            if before not in self._workers:
                self._workers[before] = make_worker(settings, choose_backend(settings.backend, settings.place))
                self.stack.callback(self._workers[before].close)
            if options is not None:
                changes = {name: getattr(options, name) for name in ("std", "defines", "include_paths", "fast_math", "max_registers", "flags")}  # fmt: skip
                settings = settings.model_copy(update=changes | {"build": None})
            self._sessions[options] = Session(settings, self.on_progress, worker=self._workers[before])
        return self._sessions[options]


def _bench(session: Session, kernel: Kernel, sizes: Sequence[Mapping[str, int]] = ()) -> JudgedSide:
    """Returns verdicts on a kernel; if judging exceeds this machine's limits, those of compiling alone.

    Raises:
        EnvironmentFailed: the compiler or the worker is unavailable.
    """
    notes: tuple[str, ...] = ()
    ran = True
    try:
        guessed = contract_for(kernel).inferred
        try:
            verdicts = session.bench(kernel, sizes)
        except LaunchTooLarge as error:
            verdicts, ran = session.check(kernel), False
            notes = (f"only compiled: {error.message}",)
    except (InputError, CompileTimeout) as error:
        return JudgedSide(error=error)
    return JudgedSide({verdict.instance: verdict for verdict in verdicts}, None, ran, guessed, notes)


def _rules(text: bytes) -> object:
    """Returns the `ci` table of a project's file; None without a readable one."""
    try:
        document = tomllib.loads(text.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        return None
    for key in ("tool", "kernelmate", "ci"):
        document = document.get(key) if isinstance(document, dict) else None  # type: ignore[assignment]
    return document


def _within(path: str, places: Sequence[str]) -> bool:
    """Returns True if a path is one of the given files or folders, or lies below one."""
    return any(one in {".", path} or path.startswith(f"{one.rstrip('/')}/") for one in places)


def _touched(pair: KernelPair, before: ChangeSide, after: ChangeSide, changed: frozenset[str]) -> bool:
    """Returns True if the kernel's file, or one that it depends on, differs between the sides."""
    for side, kernel in ((before, pair.before), (after, pair.after)):
        if kernel is not None and (side.relative(kernel) in changed or side.reaches(side.relative(kernel), changed)):
            return True
    return False


def _same(pair: KernelPair, before: ChangeSide, after: ChangeSide) -> bool:
    """Returns True if the kernel's position, compiled code and contract are equal."""
    if pair.before is None or pair.after is None or pair.before.name != pair.after.name:
        return False
    return before.relative(pair.before) == after.relative(pair.after) and before.identity(pair.before) == after.identity(pair.after)  # fmt: skip


def _placed(pair: KernelPair, before: ChangeSide, after: ChangeSide) -> GatedKernel:
    kernel = pair.after
    assert kernel is not None, "removed kernels are told apart before"
    path, was = after.relative(kernel), None
    if pair.before is not None:
        was = f"{before.relative(pair.before)}::{pair.before.name}"
    same = was == f"{path}::{kernel.name}"
    line = kernel.unit.locate(kernel.line, kernel.column)[0]
    change = "added" if pair.before is None else "changed"
    return GatedKernel(kernel.name, None, path, line, None if same else was, change, "passed")  # type: ignore[arg-type]


def _contract_notes(own: Contract | None, wanted: Contract) -> Iterator[str]:
    """Yields notes on contract changes that a reviewer must see, because they change what counts as right."""
    if own is None or wanted.inferred:
        return
    fewer = [size for size in own.sizes if size not in wanted.sizes]
    if fewer:
        yield f"the contract lists fewer sizes than before: {'; '.join(_size(size) for size in fewer)}"
    for key in ("reference", "tolerance", "require", "inputs", "accumulate", "deterministic"):
        old, new = getattr(own, key), getattr(wanted, key)
        if old != new:
            yield f"the contract's {key} is another one: {old} before, {new} now"


def _size(size: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in size.items())


def _headline(verdict: Verdict) -> Mapping[str, int] | None:
    """Returns the size that figures refer to; cases are in the contract's order."""
    return next((case.size for case in verdict.cases if case.origin == "contract"), None)


def _said(error: KernelmateError) -> str:
    place = "" if error.line is None else f"line {error.line}: "
    return f"{place}{error.message}{f' {error.hint}' if error.hint else ''}"


def relabelled(verdict: Verdict, root: Path) -> Verdict:
    """Returns the verdict with file names relative to the repository's root."""
    return replace(
        verdict,
        diagnostics=tuple(replace(one, file=_from_root(one.file, root)) for one in verdict.diagnostics),
        findings=tuple(_relabelled(one, root) for one in verdict.findings),
    )


def _relabelled(finding: Finding, root: Path) -> Finding:
    return replace(finding, file=_from_root(finding.file, root))


def _from_root(file: str | None, root: Path) -> str | None:
    if file is None or not Path(file).is_absolute() or not Path(file).is_relative_to(root):
        return file
    return Path(file).relative_to(root).as_posix()
