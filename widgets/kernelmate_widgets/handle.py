"""The kernel as a Python object, which can be called to launch it; it holds verdict, versions and search results."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelmate.errors import ContractError, UsageError
from kernelmate.records import (
    BackendName,
    Candidate,
    Compiled,
    Contract,
    Cost,
    Judged,
    Kernel,
    LaunchShape,
    Optimization,
    Verdict,
)
from kernelmate.report.words import plural
from kernelmate.source import launch_shape, size_allowed
from kernelmate_widgets.arguments import CallArgument, check_against, read_arguments, size_text, solve_size
from kernelmate_widgets.error_display import at_the_call
from kernelmate_widgets.launching import Launcher, triton_arguments, triton_shape

USER = "user"


@dataclass(frozen=True, slots=True)
class KernelVersion:
    """One version of a kernel that is or was in force.

    Attributes:
        kernel: the kernel.
        contract: the contract that defines its launch.
        verdict: its verdict.
        author: the author's name; `user` for a cell's own text.
        why: the author's reason.
        prompt: the prompt that led to it.
    """

    kernel: Kernel
    contract: Contract
    verdict: Verdict
    author: str = USER
    why: str = ""
    prompt: str | None = None
    cost: Cost | None = None

    @property
    def source(self) -> str:
        """The text of the version's cell, contract included."""
        return self.kernel.unit.text

    def __repr__(self) -> str:
        from kernelmate.report.tables import verdict_line

        return f"<{self.author}: {verdict_line(self.verdict, candidate=self.author != USER).plain}>"


@dataclass(frozen=True, slots=True)
class LaunchableVersion:
    """A version with its compiled code and the launcher of this process; a pipeline has none."""

    version: KernelVersion
    launcher: Launcher | None
    compiled: Compiled


Prepare = Callable[[KernelVersion], tuple[Compiled, Launcher | None]]
"""Function that compiles a judged version and loads it in this process; its binary must be the judged one."""


class KernelHandle:
    """A kernel that a cell defined. Bound under its name; every reference to it launches the version in force.

    `k(x, y, n)` takes grid and block from the contract, `k[grid, block](x, y, n)` and `k[grid, block,
    shared_bytes](...)` use the given launch; a Triton kernel is launched as `k[grid](x, y, n, BLOCK=1024)`. Arrays are CuPy's or torch's on the GPU, used in place, or NumPy's (and
    torch's of the CPU) in the emulator.

    Attributes:
        name: the name it is bound under.
        backend: the backend that runs it.
        optimization: the last search's result; None before any.
        searched: the version that the last search was to improve.
        versions: every version that was in force, in order; the last one is in force unless it was reverted.
    """

    def __init__(self, name: str, backend: BackendName, first: KernelVersion, prepare: Prepare) -> None:
        self.name = name
        self.backend: BackendName = backend
        self.optimization: Optimization | None = None
        self.searched = first
        self._prepare = prepare
        # A panel's thread may accept a version while a cell calls.
        self._lock = threading.RLock()
        self._versions: list[KernelVersion] = []
        self._history: list[int] = []
        self._ready: LaunchableVersion | None = None
        self._watchers: list[Callable[[], None]] = []
        self.rebase(first, backend, prepare)

    # ------------------------------------------------------------------------------------------------ what it is

    @property
    def version(self) -> KernelVersion:
        """The version in force."""
        return self._versions[self._history[-1]]

    @property
    def first(self) -> KernelVersion:
        """The version of the cell's own text, as of its last run."""
        return self._versions[self._history[0]]

    @property
    def verdict(self) -> Verdict:
        """Verdict on the version in force."""
        return self.version.verdict

    @property
    def versions(self) -> tuple[KernelVersion, ...]:
        """Every version that was in force, in order."""
        return tuple(self._versions)

    @property
    def candidates(self) -> tuple[Judged, ...]:
        """Candidates of the last search, best first; their numbers in its table start at 1."""
        return () if self.optimization is None else self.optimization.candidates

    @property
    def source(self) -> str:
        """The text of the version in force."""
        return self.version.source

    @property
    def contract(self) -> Contract:
        """The contract of the version in force, which defines its launch."""
        return self.version.contract

    @property
    @at_the_call
    def raw(self) -> Any:
        """The `cupy.RawKernel` in force; None in the emulator."""
        return self._loaded()[1].raw

    # -------------------------------------------------------------------------------------------------- changing

    def rebase(self, version: KernelVersion, backend: BackendName, prepare: Prepare) -> None:
        """Puts a new text of the cell in force; every reference to this object then launches it."""
        with self._lock:
            compiled, launcher = prepare(version)
            self._prepare, self.backend = prepare, backend
            self._ready = LaunchableVersion(version, launcher, compiled)
            self._versions.append(version)
            self._history = [len(self._versions) - 1]
            self.optimization = None
        self._tell()

    def found(self, optimization: Optimization) -> None:
        """Stores a search's result, whose candidates can then be accepted."""
        self.optimization, self.searched = optimization, self.version
        self._tell()

    @at_the_call
    def accept(self, number: int | None = None) -> KernelVersion:
        """Puts a candidate of the last search in force; every reference to this object then launches it.

        Args:
            number: the candidate's number in the table, from 1; None for the best.

        Raises:
            UsageError: there is no such candidate, or it cannot be accepted; the message gives the reason.
        """
        found = self._candidate(number)
        why_not = reason_not_to_take(found)
        if why_not is not None:
            raise UsageError(
                f"Candidate {number or 1} of {self.name} cannot be accepted: {why_not}.",
                hint="Choose another, or change the kernel.",
            )
        candidate = found.candidate
        assert self.optimization is not None
        # Sizes that a prompt named decided its search, and are not the kernel's.
        own = self.version.contract
        contract = replace(candidate.contract, sizes=own.sizes, weights=own.weights)
        version = KernelVersion(
            candidate.kernel, contract, found.verdict, candidate.author, candidate.why,
            self.optimization.objective.prompt, candidate.cost,
        )  # fmt: skip
        with self._lock:
            # Compiled first, so that a version that cannot be loaded changes nothing.
            compiled, launcher = self._prepare(version)
            self._ready = LaunchableVersion(version, launcher, compiled)
            self._versions.append(version)
            self._history.append(len(self._versions) - 1)
        self._tell()
        return version

    @at_the_call
    def revert(self) -> KernelVersion:
        """Returns to the version before the last accepted one.

        Raises:
            UsageError: nothing was accepted since the cell was run.
        """
        with self._lock:
            if len(self._history) < 2:
                raise UsageError(f"{self.name} is the version of its cell; there is no earlier version to return to.")
            version = self._versions[self._history[-2]]
            compiled, launcher = self._prepare(version)
            self._ready = LaunchableVersion(version, launcher, compiled)
            self._history.pop()
        self._tell()
        return version

    @property
    def can_revert(self) -> bool:
        """True if a candidate was accepted since the cell was run."""
        return len(self._history) > 1

    def watch(self, watcher: Callable[[], None]) -> None:
        """Registers a callback for changes of the version in force or of the search result."""
        self._watchers.append(watcher)

    def _tell(self) -> None:
        for watcher in list(self._watchers):
            watcher()

    @property
    def numbers(self) -> str:
        """The numbers of the candidates, as a sentence."""
        if self.optimization is None:
            return "There are no candidates yet."
        count = len(self.candidates)
        if count < 2:
            return "The only candidate is 1." if count else "The last search found no candidate: ask in other words."
        return f"Candidates are 1 to {count}."

    def _candidate(self, number: int | None) -> Judged:
        if self.optimization is None:
            hint = f'Ask for some: %kernelmate optimize {self.name} "make it faster".'
            raise UsageError(f"There are no candidates for {self.name} yet.", hint=hint)
        if number is None:
            if self.optimization.best is None:
                hint = "Name one by its number, or ask in other words." if self.candidates else self.numbers
                raise UsageError(f"No candidate for {self.name} is worth taking.", hint=hint)
            return self.candidates[self.optimization.best]
        if not 1 <= number <= len(self.candidates):
            raise UsageError(f"There is no candidate {number} for {self.name}.", hint=self.numbers)
        return self.candidates[number - 1]

    # -------------------------------------------------------------------------------------------------- calling

    @at_the_call
    def __call__(self, *arguments: object) -> None:
        """Launch, with grid and block from the contract.

        Raises:
            UsageError: the arguments do not fit the kernel, or the contract defines no launch for them.
            LaunchFailed: the backend reported an error.
        """
        version, launcher = self._loaded()
        given = read_arguments(version.kernel, version.contract, arguments, self.backend)
        launcher.launch(self._shape(version, given), given)

    @at_the_call
    def __getitem__(self, launch: Any) -> Callable[..., None]:
        """Returns a function that launches the kernel with `[grid, block]` or `[grid, block, shared_bytes]`.

        A Triton kernel takes `[grid]`.

        Raises:
            UsageError: the value in brackets is not a launch.
        """
        version, _ = self._loaded()
        kernel, contract = version.kernel, version.contract
        triton = kernel.unit.language == "triton"
        shape = triton_shape(kernel, launch, contract) if triton else _given_shape(self.name, launch, contract)

        @at_the_call
        def launched(*arguments: object, **named: object) -> None:
            version, launcher = self._loaded()
            kernel, contract = version.kernel, version.contract
            if triton:
                arguments = tuple(triton_arguments(kernel, contract, arguments, named))
            elif named:
                raise UsageError(f"{self.name} takes no arguments by name.", hint="Give them in the kernel's order.")
            launcher.launch(shape, read_arguments(kernel, contract, arguments, self.backend))

        return launched

    def _shape(self, version: KernelVersion, given: Sequence[CallArgument]) -> LaunchShape:
        contract = version.contract
        size = solve_size(contract, given)
        if size is None:
            names = ", ".join(contract.sizes[0])
            raise UsageError(
                f"These arguments do not determine {names}, on which grid and block depend.",
                hint=f"Give the launch: {self.name}[grid, block](...).",
            )
        check_against(contract, size, given)
        try:
            if not size_allowed(contract, size):
                raise UsageError(
                    f"{self.name} requires {' and '.join(contract.require)}, which {size_text(size)} does not satisfy.",
                    hint="Give other arrays.",
                )
            return launch_shape(contract, size)
        except ContractError as error:
            raise UsageError(error.message, hint=error.hint) from None

    def _loaded(self) -> tuple[KernelVersion, Launcher]:
        """Returns the version in force and its launcher.

        Raises:
            UsageError: the version is a pipeline, which is judged and not launched.
        """
        with self._lock:
            ready = self._ready
        assert ready is not None, "a version is loaded from the beginning"
        if ready.launcher is None:
            raise UsageError(
                f"{self.name} is a pipeline of {plural(len(self.contract.stages), 'stage')}, which is judged and not launched.",
                hint=f'Launch its kernels, or ask for one kernel: %kernelmate optimize {self.name} "make it faster".',
            )
        return ready.version, ready.launcher

    # --------------------------------------------------------------------------------------------------- showing

    def __repr__(self) -> str:
        """Returns the kernel's signature and launch, and its verdict, in two lines."""
        from kernelmate.report.tables import verdict_line

        version, contract = self.version, self.version.contract
        arguments = ", ".join(
            f"{one.name}: {one.dtype}" + ("" if one.shape is None else f"[{', '.join(one.shape)}]")
            for one in contract.args
        )
        launch = f"grid {_plain(contract.grid)}, block {_plain(contract.block)}"
        if contract.stages:
            launch = plural(len(contract.stages), "stage")
        by = "" if version.author == USER else f", by {version.author}"
        return f"<kernel {self.name}({arguments}), {launch}>\n{verdict_line(version.verdict).plain}{by}"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Returns the verdict of the version in force, as a cell shows it."""
        from kernelmate_widgets.output import handle_bundle

        return handle_bundle(self)


def _plain(sides: Sequence[str]) -> str:
    return sides[0] if len(sides) == 1 else f"({', '.join(sides)})"


def is_version(candidate: Candidate, version: KernelVersion) -> bool:
    """Returns True if a candidate has the text, kernel and launch of a version; sizes are not compared."""

    def identity(kernel: Kernel, contract: Contract) -> tuple[Any, ...]:
        launch = (contract.grid, contract.block, contract.shared, contract.require)
        return kernel.unit.text, kernel.name, contract.kernel, launch

    return identity(candidate.kernel, candidate.contract) == identity(version.kernel, version.contract)


def reason_not_to_take(found: Judged) -> str | None:
    """Returns the reason why the user cannot accept a candidate; None if the user can.

    A predicted gain or an inferred contract is no such reason, though such a version is never accepted automatically.
    """
    verdict = found.verdict
    if not verdict.compiled:
        return "it does not compile"
    if verdict.correct is False or any(finding.severity == "error" for finding in verdict.findings):
        return f"it was rejected ({'; '.join(verdict.reasons[:1]) or 'it is wrong'})"
    if verdict.accepted is False:
        return f"it was rejected ({'; '.join(verdict.reasons[:1])})"
    if verdict.correct is None:
        return "nothing shows that it is right"
    return None


def _given_shape(name: str, launch: Any, contract: Contract) -> LaunchShape:
    hint = f"Write {name}[grid, block](...), each a number or a tuple of up to three."
    if not isinstance(launch, tuple) or not 2 <= len(launch) <= 3:
        raise UsageError(f"{launch!r} is not a launch.", hint=hint)
    shared = launch[2] if len(launch) == 3 else 0
    if isinstance(shared, bool) or not isinstance(shared, int) or shared < 0:
        raise UsageError(f"{shared!r} is not a number of bytes of shared memory.", hint=hint)
    sides = tuple(_texts(one, hint) for one in launch[:2])
    fixed = replace(contract, grid=sides[0], block=sides[1], shared=str(shared))
    try:
        return launch_shape(fixed, contract.sizes[0])
    except ContractError as error:
        raise UsageError(error.message, hint=error.hint) from None


def _texts(sides: Any, hint: str) -> tuple[str, ...]:
    several = sides if isinstance(sides, tuple | list) else (sides,)
    if not 1 <= len(several) <= 3 or not all(_is_whole(side) for side in several):
        raise UsageError(f"{sides!r} is not a grid or block.", hint=hint)
    return tuple(str(int(side)) for side in several)


def _is_whole(side: Any) -> bool:
    return not isinstance(side, bool) and hasattr(side, "__index__")
