"""Ports a module: cuts its program into parts, writes a kernel for each, and leaves to PyTorch what has none."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import structs

from kernelmate.errors import InputError
from kernelmate.session import Session
from kernelmate.session.writing import NewKernel, why_not_written, write_kernel
from kernelmate.source import contract_for, load_kernel
from kernelmate.source.examples import Examples, load_python_function
from kernelmate.source.launch import argument_shapes
from kernelmate.synthesis.draft import KernelRequest
from kernelmate_torch.compiling import compiled_operator
from kernelmate_torch.cutting import (
    before_product,
    connected_count,
    has_no_statement,
    is_library,
    part_lengths,
    products_first,
    reorders_elements,
    untiled,
    views_late,
)
from kernelmate_torch.module_process import ModuleProcess
from kernelmate_torch.numpy_text import UnknownSize, Untranslated
from kernelmate_torch.operations import OPERATIONS, RANDOM, VIEWS
from kernelmate_torch.parts import PartFunction, interface, judged_size, part_function, reference_file, structure
from kernelmate_torch.program import (
    DerivedGraph,
    GraphNode,
    ModelProgram,
    NamedValue,
    PartTimes,
    PartToCheck,
    PartToDifferentiate,
    PartToTime,
)

MOST_NODES = 40
"""Maximum number of operations of a part that is tried."""

MOST_STEPS = 6
"""Maximum number of kernels and operations for the gradients of a part; with more of them, PyTorch's own derivative is no slower."""

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
        gradient: what computes the gradients of its inputs; None if there are none, or they were not asked for.
        times: of the kernel and the operations that it replaces, on a GPU.
        again: True if its kernel is that of an earlier part, which computes the same of other values.
    """

    nodes: tuple[GraphNode, ...]
    function: PartFunction | None = None
    kernel: NewKernel | None = None
    why: str = ""
    gradient: PartGradient | None = None
    times: PartTimes | None = None
    again: bool = False

    @property
    def computes(self) -> bool:
        """Returns True unless it only changes shapes."""
        return self.why not in (VIEW, NOT_TENSOR)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Returns the values that its statement takes."""
        return tuple(self.nodes[0].uses) if self.function is None else self.function.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        """Returns the values that its statement assigns."""
        return (self.nodes[0].name,) if self.function is None else self.function.outputs


@dataclass(frozen=True, slots=True)
class PartGradient:
    """The gradients of a part.

    Attributes:
        derived: the backward graph.
        parts: its parts, in order of execution.
    """

    derived: DerivedGraph
    parts: tuple[PortedPart, ...]

    @property
    def steps(self) -> tuple[PortedPart, ...]:
        """Returns the parts that compute something."""
        return tuple(one for one in self.parts if one.computes)


@dataclass(frozen=True, slots=True)
class PortRequest:
    """Request to port a module.

    Attributes:
        folder: where kernels are written while they are judged; holds `kernels/` and reference files.
        everything: also write kernels for what a library computes as fast.
        schedules: kernels that are judged for each part; the fastest right one is taken.
        until: time on `time.monotonic` after which no further part is begun; None for no limit.
        real_sizes: judge at sizes for a GPU, as near to the example's as they can be judged.
        device: number of the GPU of this machine that kernels are judged on, where a part stays eager if PyTorch's operations
            are faster; None for the emulator, and for a GPU of another machine.
        backward: also write kernels for gradients.
    """

    folder: Path
    everything: bool = False
    schedules: int = 1
    until: float | None = None
    seed: int = 0
    real_sizes: bool = False
    device: int | None = None
    backward: bool = False


@dataclass
class Porter:
    """Ports one program.

    Args:
        session: judges kernels.
        process: holds the module, and compares references with it.
        program: of the module.
        request: how.
        on_part: called with a line about what is being done.
        graph: the number of the backward graph that the program describes; None for the module's own.
        name: of the kernels' functions; by default made of their operations.
    """

    session: Session
    process: ModuleProcess
    program: ModelProgram
    request: PortRequest
    on_part: Callable[[str], None] = lambda line: None
    graph: int | None = None
    name: str = ""
    _taken: set[str] = field(default_factory=set)
    _attempts: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _tried: dict[str, tuple[PortedPart | None, str]] = field(default_factory=dict)
    """Parts with their kernels, or the reasons why there are none, by what the parts compute."""

    def parts(self) -> Iterator[PortedPart]:
        """Yields the parts in order of execution, each once it is judged.

        Raises:
            EnvironmentFailed: compiler, worker or PyTorch are unavailable.
        """
        (self.request.folder / "kernels").mkdir(parents=True, exist_ok=True)
        run: list[GraphNode] = []
        calls = [one for one in self.program.nodes if one.kind == "call"]
        for node in views_late(products_first(calls) if self.request.backward and self.graph is None else calls):
            if has_no_statement(node):
                yield PortedPart((node,), why=NOT_TENSOR)
                continue
            reason = self._why_eager(node)
            if reason or node.name in self.program.starts:
                yield from self._run(run)
                run = []
            if reason:
                yield PortedPart((node,), why=reason)
            else:
                run.append(node)
        yield from self._run(run)

    def _why_eager(self, node: GraphNode) -> str:
        """Returns why a node has no translation; empty if it has one."""
        name = node.target.removeprefix("aten.").split(".")[0]
        if node.target.startswith("python."):
            return NOT_TENSOR
        if node.tensor is None:
            return VIEW if node.target in VIEWS else f"{node.target} has no translation to NumPy"
        if self._is_complex(node):
            return VIEW if node.target in VIEWS else f"{name} computes complex numbers"
        if node.target not in OPERATIONS:
            if any(one in name for one in RANDOM):
                return f"{name} draws random numbers, whose sequence stays PyTorch's"
            return f"{node.target} has no translation to NumPy"
        if node.target in VIEWS:
            return ""
        try:
            part_function(self._alone(node), [node], set())
        except UnknownSize:
            return ""  # another node of its part may have it
        except Untranslated as reason:
            random = " (its sequence stays PyTorch's)" if "random" in str(reason) else ""
            return f"{reason}{random}"
        return ""

    def _is_complex(self, node: GraphNode) -> bool:
        """Returns True for an operation of complex numbers, which kernels do not take."""
        named = (self.program.node(name).tensor for name in node.uses)
        return any(one is not None and one.dtype.startswith("complex") for one in (node.tensor, *named))

    def _alone(self, node: GraphNode) -> ModelProgram:
        """Returns a program in which the node's result is used, so that it can be translated by itself."""
        return structs.replace(self.program, outputs=(node.name,))

    def _run(self, nodes: Sequence[GraphNode]) -> Iterator[PortedPart]:
        """Yields parts of nodes that all have translations; each is the longest one that can be written."""
        start = 0
        while start < len(nodes):
            views = next(
                (place for place, node in enumerate(nodes[start:]) if node.target not in VIEWS), len(nodes) - start
            )
            part = (
                None
                if views and not reorders_elements(nodes[start:], views)
                else self._longest(nodes[start : start + MOST_NODES])
            )
            if part is None or (views and part.kernel is None):
                yield from (PortedPart((one,), why=VIEW) for one in nodes[start : start + views])
                start += views
            else:
                yield part
                start += len(part.nodes)

    def _longest(self, nodes: Sequence[GraphNode]) -> PortedPart:
        """Returns the longest part that begins with the first node; if none can be written, that node alone, left eager."""
        why = "no kernel computes it"
        nodes = nodes[: before_product(nodes) if self.request.backward else connected_count(self.program, nodes)]
        for end in part_lengths(self.program, nodes):
            chosen = nodes[:end]
            if not self.request.everything and is_library(chosen):
                return PortedPart((nodes[0],), why=LIBRARY)
            key = structure(self.program, chosen)
            known = key in self._tried
            if not known:
                if self.request.until is not None and time.monotonic() > self.request.until:
                    return PortedPart((nodes[0],), why="the budget ended before its turn")
                self._tried[key] = self._written(chosen)
            made, why = self._tried[key]
            if made is not None:
                return self._again(made, chosen) if known else made
        return PortedPart((nodes[0],), why=why)

    def _again(self, made: PortedPart, nodes: Sequence[GraphNode]) -> PortedPart:
        """Returns a part with the kernel of an earlier one of the same structure."""
        assert made.function is not None
        inputs, outputs = interface(self.program, nodes)
        names = tuple(one.name for one in nodes)
        function = replace(made.function, nodes=names, inputs=inputs, outputs=outputs)
        return replace(made, nodes=tuple(nodes), function=function, again=True)

    def _written(self, nodes: Sequence[GraphNode]) -> tuple[PortedPart | None, str]:
        """Returns the part with its kernel, or the reason why there is none."""
        why = ""
        # Derivatives have fixed dimensions as factors, so that these cannot vary in a backward graph.
        for literal in (False, True) if self.graph is None else (True,):
            try:
                function = part_function(self.program, nodes, self._taken, literal=literal, name=self.name)
            except Untranslated as reason:
                return None, str(reason)
            if not function.arguments:
                return None, "it reads no tensor: its result is a constant"
            if literal and not why and self.graph is None:
                break
            path = self._file(function)
            asked = self._asked(function, path)
            self.on_part(f"{function.name}: planning")
            try:
                why = why_not_written(self.session, asked, untiled(nodes))
                if why:
                    continue
                part = PartToCheck(function.name, function.inputs, function.outputs)
                (agreement,) = self.process.check(path, [part], self.request.seed, self.graph)
                if agreement.wrong or not agreement.compared:
                    return None, agreement.wrong or "its reference could not be compared"
                derived = self._derived(function) if self.request.backward and self.graph is None else None
                self.on_part(f"{function.name}: judging")
                outcome = write_kernel(self.session, asked, self.request.schedules)
            except InputError as error:
                why = error.message
                continue
            if outcome.right:
                best, times = self._fastest(function, outcome.right)
                why = _slower(times)
                if why and not self.request.everything:
                    return None, why
                self._taken.add(function.name)
                gradient = None if derived is None else self._gradient(function, derived)
                if gradient is not None and len(gradient.steps) > MOST_STEPS:
                    return None, f"its gradients would take more than {MOST_STEPS} kernels"
                return PortedPart(tuple(nodes), function, best, gradient=gradient, times=times), ""
            why = next(iter(outcome.notes), "no kernel was judged right")
        return None, why

    def _fastest(self, function: PartFunction, right: Sequence[NewKernel]) -> tuple[NewKernel, PartTimes | None]:
        """Returns the fastest of some kernels with its times, at the example's own size if a GPU holds that."""
        timed = [(one, self._timed(function, one)) for one in right]
        return min(
            timed, key=lambda pair: math.inf if pair[1] is None or pair[1].kernel_us is None else pair[1].kernel_us
        )

    def _timed(self, function: PartFunction, made: NewKernel) -> PartTimes | None:
        """Returns the times of a part of the module's own graph on a GPU."""
        device = self.request.device
        if device is None or self.graph is not None:
            return None
        self.on_part(f"{function.name}: timing {made.schedule} beside PyTorch")
        path = self.request.folder / f"timed_{next(self._attempts)}.cu"
        path.write_text(made.kernel.unit.text, encoding="utf-8")
        kernel = load_kernel(str(path))
        contract = contract_for(kernel)
        # The confined process cannot start a compiler; it finds the code in the cache.
        compiled_operator(kernel, contract, self.session.target.arch)
        times = PartTimes()
        for size in (function.size, contract.sizes[0]):
            shapes = argument_shapes(contract, size)
            inputs = tuple(shapes[one.name] for one in contract.args if one.name in shapes and one.direction == "in")
            with _alone_on(device):
                times = self.process.time(PartToTime(str(path), function.inputs, function.outputs, inputs, device))
            if times.kernel_us is not None:
                break
        return times

    def _derived(self, function: PartFunction) -> DerivedGraph | None:
        """Returns the backward graph of a function; None where no input or no result is a floating number.

        Raises:
            InputError: it would compute products of the forward pass again.
        """
        dtypes = [[self.program.node(name).tensor for name in names] for names in (function.inputs, function.outputs)]
        if not all(any(one is not None and "float" in one.dtype for one in some) for some in dtypes):
            return None
        inputs = tuple(
            NamedValue(name, one.name) for name, one in zip(function.inputs, function.arguments, strict=True)
        )
        outputs = tuple(NamedValue(name, name) for name in function.outputs)
        return self.process.differentiate(PartToDifferentiate(inputs, outputs))

    def _gradient(self, function: PartFunction, derived: DerivedGraph) -> PartGradient:
        name = f"{function.name}_backward"
        porter = replace(self, program=derived.program, graph=derived.number, name=name, _tried={})
        parts: list[PortedPart] = []
        for part in porter.parts():
            parts.append(part)
            if sum(one.computes for one in parts) > MOST_STEPS:
                break
        return PartGradient(derived, tuple(parts))

    def _file(self, function: PartFunction) -> Path:
        """Writes the function into a file of its own, and returns its path."""
        path = self.request.folder / f"attempt_{next(self._attempts)}.py"
        path.write_text(reference_file([function], f"{function.name} in NumPy."), encoding="utf-8")
        return path

    def _asked(self, function: PartFunction, path: Path) -> KernelRequest:
        found = load_python_function(f"{path}:{function.name}")
        size = judged_size(function, gpu=self.request.real_sizes)
        target = self.request.folder / "kernels" / f"{function.name}.cu"
        return KernelRequest(
            found, Examples(function.arguments, size), target, function.name, require=function.require,
            dtypes=self._dtypes(function), planned=function.size,
        )  # fmt: skip

    def _dtypes(self, function: PartFunction) -> tuple[str | None, ...]:
        """Returns the dtypes of floating results: the program may convert them, or compute in float32 where inputs are shorter."""
        specs = [self.program.node(name).tensor for name in function.outputs]
        return tuple(one.dtype if one is not None and "float" in one.dtype else None for one in specs)


@contextlib.contextmanager
def _alone_on(device: int) -> Iterator[None]:
    """Holds the lock of a GPU of this machine, so that no other session of KernelMate uses it."""
    from kernelmate.backends.cuda.driver import read_driver
    from kernelmate.backends.cuda.gpu_lock import GpuLock

    driver = read_driver()
    assert driver is not None, "kernels were judged on its GPU"
    turns = GpuLock(driver.gpus[device].uuid)
    try:
        with turns.alone():
            yield
    finally:
        turns.close()


def _slower(times: PartTimes | None) -> str:
    """Returns why a part stays eager; empty where the kernel is faster, or nothing was timed."""
    if times is None or times.eager_us is None or times.kernel_us is None or times.kernel_us <= times.eager_us:
        return ""
    return f"PyTorch takes {times.eager_us:.3g} us for it, and the kernel {times.kernel_us:.3g} us"
