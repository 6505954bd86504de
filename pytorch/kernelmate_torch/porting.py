"""Ports a module: cuts its program into parts, writes a kernel for each, and leaves to PyTorch what has none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelmate.errors import InputError
from kernelmate.session import Session
from kernelmate.session.writing import NewKernel, why_not_written, write_kernel
from kernelmate.source.examples import Examples, load_python_function
from kernelmate.synthesis.draft import KernelRequest
from kernelmate_torch.module_process import ModuleProcess
from kernelmate_torch.numpy_text import Untranslated
from kernelmate_torch.operations import HEAVY, OPERATIONS, RANDOM, VIEWS
from kernelmate_torch.parts import PartFunction, judged_size, part_function, reference_file
from kernelmate_torch.program import GraphNode, ModelProgram, PartToCheck

MOST_NODES = 40
"""Operations of the largest part that is tried."""
MOST_HEAVY = 3
"""Matrix products and convolutions of the largest part: attention has two."""

LIBRARY = "a library's kernel alone, which is as fast"
VIEW = "views, which compute nothing"
NOT_TENSOR = "sizes and tuples, which compute nothing"


@dataclass(frozen=True, slots=True)
class PortedPart:
    """A part of the module, in order of execution.

    Attributes:
        nodes: what it computes.
        function: its function in NumPy; None if it stays eager.
        kernel: its kernel; None if it stays eager.
        why: for an eager part, the reason.
    """

    nodes: tuple[GraphNode, ...]
    function: PartFunction | None = None
    kernel: NewKernel | None = None
    why: str = ""

    @property
    def computes(self) -> bool:
        """Returns True unless it only changes shapes."""
        return self.why not in (VIEW, NOT_TENSOR)


@dataclass(frozen=True, slots=True)
class PortRequest:
    """Request to port a module.

    Attributes:
        folder: where kernels are written while they are judged; holds `kernels/` and reference files.
        everything: also write kernels for what a library computes as fast.
        schedules: kernels that are judged for each part; the fastest right one is taken.
        until: time on `time.monotonic` after which no further part is begun; None for no limit.
        real_sizes: judge at the example's sizes, however large (on a GPU).
    """

    folder: Path
    everything: bool = False
    schedules: int = 1
    until: float | None = None
    seed: int = 0
    real_sizes: bool = False


@dataclass
class Porter:
    """Ports one program.

    Args:
        session: judges kernels.
        process: holds the module, and compares references with it.
        program: of the module.
        request: how.
        on_part: called with a line about what is being done.
    """

    session: Session
    process: ModuleProcess
    program: ModelProgram
    request: PortRequest
    on_part: Callable[[str], None] = lambda line: None
    _taken: set[str] = field(default_factory=set)
    _attempts: int = 0

    def parts(self) -> Iterator[PortedPart]:
        """Yield the parts in order of execution, each once it is judged.

        Raises:
            EnvironmentFailed: compiler, worker or PyTorch are unavailable.
        """
        (self.request.folder / "kernels").mkdir(parents=True, exist_ok=True)
        run: list[GraphNode] = []
        for node in (one for one in self.program.nodes if one.kind == "call"):
            reason = self._why_eager(node)
            if reason:
                yield from self._run(run)
                run = []
                yield PortedPart((node,), why=reason)
            else:
                run.append(node)
        yield from self._run(run)

    def _why_eager(self, node: GraphNode) -> str:
        """Returns why a node has no translation; empty if it has one."""
        name = node.target.removeprefix("aten.").split(".")[0]
        if node.target.startswith("python.") or name.startswith(("sym_", "_assert")):
            return NOT_TENSOR
        if node.tensor is None:
            return VIEW if node.target in VIEWS else f"{name} gives several values"
        if node.target not in OPERATIONS:
            if any(one in name for one in RANDOM):
                return f"{name} draws random numbers, whose sequence stays PyTorch's"
            return f"{node.target} has no translation to NumPy"
        if node.target in VIEWS:
            return ""
        try:
            part_function(self._alone(node), [node], set())
        except Untranslated as reason:
            random = " (its sequence stays PyTorch's)" if "random" in str(reason) else ""
            return f"{reason}{random}"
        return ""

    def _alone(self, node: GraphNode) -> ModelProgram:
        """Returns a program in which the node's result is used, so that it can be translated by itself."""
        from msgspec.structs import replace

        return replace(self.program, outputs=(node.name,))

    def _run(self, nodes: Sequence[GraphNode]) -> Iterator[PortedPart]:
        """Yields parts of nodes that all have translations: each time the longest one that can be written."""
        start = 0
        while start < len(nodes):
            if nodes[start].target in VIEWS:
                yield PortedPart((nodes[start],), why=VIEW)
                start += 1
                continue
            part = self._longest(nodes[start : start + MOST_NODES])
            yield part
            start += len(part.nodes)

    def _longest(self, nodes: Sequence[GraphNode]) -> PortedPart:
        """Returns the longest part that begins with the first node, or this node, left eager."""
        why = "no kernel computes it"
        for end in _ends(nodes):
            if self.request.until is not None and time.monotonic() > self.request.until:
                return PortedPart((nodes[0],), why="the budget ended before its turn")
            chosen = nodes[:end]
            if not self.request.everything and _is_library(chosen):
                return PortedPart((nodes[0],), why=LIBRARY)
            made, why = self._written(chosen)
            if made is not None:
                return made
        return PortedPart((nodes[0],), why=why)

    def _written(self, nodes: Sequence[GraphNode]) -> tuple[PortedPart | None, str]:
        """Returns the part with its kernel, or the reason why there is none."""
        why = ""
        for literal in (False, True):
            try:
                function = part_function(self.program, nodes, self._taken, literal=literal)
            except Untranslated as reason:
                return None, str(reason)
            if literal and not why:
                break
            path = self._file(function)
            asked = self._asked(function, path)
            self.on_part(f"{function.name}: planning")
            try:
                why = why_not_written(self.session, asked, libraries=any(one.target in HEAVY for one in nodes))
                if why:
                    continue
                (agreement,) = self.process.check(path, [PartToCheck(function.name, function.inputs, function.outputs)], self.request.seed)  # fmt: skip
                if agreement.wrong or not agreement.compared:
                    return None, agreement.wrong or "its reference could not be compared"
                self.on_part(f"{function.name}: judging")
                outcome = write_kernel(self.session, asked, self.request.schedules)
            except InputError as error:
                why = error.message
                continue
            if outcome.best is not None:
                self._taken.add(function.name)
                return PortedPart(tuple(nodes), function, outcome.best), ""
            why = next(iter(outcome.notes), "no kernel was judged right")
        return None, why

    def _file(self, function: PartFunction) -> Path:
        """Writes the function into a file of its own, and returns its path."""
        self._attempts += 1
        path = self.request.folder / f"attempt_{self._attempts}.py"
        path.write_text(reference_file([function], f"{function.name} in NumPy."), encoding="utf-8")
        return path

    def _asked(self, function: PartFunction, path: Path) -> KernelRequest:
        found = load_python_function(f"{path}:{function.name}")
        size = dict(function.size) if self.request.real_sizes else judged_size(function)
        target = self.request.folder / "kernels" / f"{function.name}.cu"
        return KernelRequest(found, Examples(function.arguments, size), target, function.name, require=function.require)


def _ends(nodes: Sequence[GraphNode]) -> Iterator[int]:
    """Yields lengths of parts to try, the longest first: up to the next library calls, then shorter and shorter ones."""
    heavy = [place for place, node in enumerate(nodes) if node.target in HEAVY]
    limit = heavy[MOST_HEAVY] if len(heavy) > MOST_HEAVY else len(nodes)
    cuts = [limit, *(place for place in reversed(heavy) if 0 < place < limit)]
    first = cuts[-1]
    shorter = [first * share // 4 for share in (3, 2, 1)] + [3, 2, 1]
    seen: set[int] = set()
    for one in [*cuts, *(end for end in shorter if 0 < end < first)]:
        end = one
        while end > 1 and nodes[end - 1].target in VIEWS:  # views at the end stay views
            end -= 1
        if end not in seen:
            seen.add(end)
            yield end


def _is_library(nodes: Sequence[GraphNode]) -> bool:
    """Returns True for one library call and views, which would gain nothing from being one kernel."""
    computing = [one for one in nodes if one.target not in VIEWS]
    return len(computing) == 1 and computing[0].target in HEAVY
