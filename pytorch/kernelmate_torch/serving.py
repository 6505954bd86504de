"""Answers the requests to the module's process: export, check of reference functions, verification of the new module."""

from __future__ import annotations

import contextlib
import copy
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from msgspec import convert
from msgspec.structs import replace

from kernelmate_torch.capture import ExportedModule, capture
from kernelmate_torch.comparing import (
    cases,
    copies,
    deviation,
    example_cases,
    gradients_agree,
    in_double,
    in_float64,
    is_unsteady,
)
from kernelmate_torch.gradients import BackwardGraph, differentiate, refuse_without_gradient
from kernelmate_torch.loading import LoadedModule, Refusal, load, module_of, numbers_of_fixed_sizes, refusal_of
from kernelmate_torch.nesting import leaves, places
from kernelmate_torch.operations import RANDOM
from kernelmate_torch.part_timing import time_part
from kernelmate_torch.program import Agreement, DerivedGraph, ModelProgram, PartToDifferentiate, PartToTime

LARGEST_CHECKED = 64
"""Largest free size at which reference functions are compared in NumPy."""
LONGEST_S = 60.0
"""Seconds after which the new module is compared at no further inputs."""
LARGEST_EMULATED = 16
"""Largest free size at which the new module runs in the emulator."""


MOST_EMULATED = 1 << 16
"""Most elements of the example inputs with which the new module runs in the emulator, where it takes no others."""


class ModuleServer:
    """The module that was exported last, and answers about it."""

    def __init__(self) -> None:
        self._loaded: LoadedModule | None = None
        self._captured: ExportedModule | None = None
        self._graphs: list[BackwardGraph] = []

    def answer(self, request: Mapping[str, Any]) -> Any:
        """Returns the answer to one request, or the reason why there is none."""
        try:
            match request["do"]:
                case "export":
                    return self._export(request)
                case "check":
                    return self._check(Path(request["reference"]), request["parts"], request["seed"], request["graph"])
                case "time":
                    return time_part(self._known()[1], convert(request["part"], PartToTime))
                case "differentiate":
                    return self._differentiate(convert(request["part"], PartToDifferentiate))
                case _:
                    return self._verify(Path(request["folder"]), request["seed"], backward=request["backward"])
        except Refusal as refusal:
            return refusal.failure

    def _export(self, request: Mapping[str, Any]) -> ModelProgram:
        """Loads and exports the module, again where it holds for one value of a size that was made smaller, or needs equal sizes."""
        path = Path(request["path"])
        with autocast_turned_off(path) as lines:
            program = self._exported(request)
        if lines:
            raise Refusal(
                "forward uses autocast for CUDA, which PyTorch turns off here since there is no GPU: the dtypes would not be those of a GPU.",
                file=str(path),
                line=next(filter(None, lines), None),
                hint="Write torch.autocast(x.device.type, dtype=...), which also casts on a CPU, or port it on a machine with a GPU.",
            )
        return program

    def _exported(self, request: Mapping[str, Any]) -> ModelProgram:
        kept: frozenset[str] = frozenset()
        together = False
        while True:
            self._loaded = load(
                Path(request["path"]), request["name"], request["inputs"], request["seed"],
                real_sizes=request["real_sizes"], kept=kept, together=together,
            )  # fmt: skip
            self._graphs = []
            if request["backward"]:
                refuse_without_gradient(self._loaded)
            try:
                self._captured = capture(self._loaded)
            except Refusal:
                if together or not self._loaded.smaller:
                    raise
                together = True
                continue
            fixed = numbers_of_fixed_sizes(self._loaded, self._captured.program)
            if not fixed:
                return replace(self._captured.program, smaller=dict(self._loaded.smaller))
            kept |= fixed

    def _known(self) -> tuple[LoadedModule, ExportedModule]:
        assert self._loaded is not None
        assert self._captured is not None
        return self._loaded, self._captured

    def _differentiate(self, part: PartToDifferentiate) -> DerivedGraph:
        loaded, captured = self._known()
        try:
            self._graphs.append(differentiate(captured, loaded, part))
        except Refusal:
            raise
        except Exception as error:  # noqa: BLE001 -- torch raises many kinds
            raise refusal_of(error, loaded.path, "autograd cannot trace its gradients") from None
        return replace(self._graphs[-1].derived, number=len(self._graphs) - 1)

    def _check(self, reference: Path, parts: list[dict[str, Any]], seed: int, graph: int | None) -> list[Agreement]:
        """Returns, for each part, how its function in NumPy compares with the module's own values."""
        loaded, captured = self._known()
        module = module_of(reference, "kernelmate_port_reference")
        model = in_double(loaded.model)
        found = [Agreement(0, 0.0) for _ in parts]

        def at_example() -> Iterator[tuple[str, tuple[Any, ...]]]:
            if not all(one.compared or one.wrong for one in found):
                yield from example_cases(loaded.inputs, seed)

        drawn = cases(captured.program, loaded.inputs, seed, largest=LARGEST_CHECKED)
        for described, inputs in itertools.chain(drawn, at_example()):
            try:
                values = _values(captured, model, in_float64(inputs))
                if graph is not None:
                    values = _gradient_values(self._graphs[graph], values, seed)
            except Exception:  # noqa: BLE001, S112 -- the module itself does not take such inputs
                continue
            for place, part in enumerate(parts):
                if not found[place].wrong:
                    found[place] = _compared(getattr(module, part["function"]), part, values, found[place], described)
        return found

    def _verify(self, folder: Path, seed: int, *, backward: bool) -> Agreement:
        loaded, captured = self._known()
        sys.path.insert(0, str(folder))
        for name in [
            name for name, one in sys.modules.items() if name.endswith("_eager") and hasattr(one, "get_inputs")
        ]:
            del sys.modules[name]  # of a module that was verified before
        try:
            module = module_of(folder / "model_new.py", "model_new")
            new = module.ModelNew(*loaded.initial)
            new.load_state_dict(loaded.model.state_dict())
        except Exception as error:  # noqa: BLE001 -- the text is ours, but its imports are the user's
            raise refusal_of(error, folder / "model_new.py", "The new module cannot be loaded") from None
        finally:
            sys.path.remove(str(folder))
        if list(new.state_dict()) != list(loaded.model.state_dict()):
            raise Refusal("The new module has another state dict.", file=str(folder / "model_new.py"))
        compared, most, began = 0, 0.0, time.monotonic()
        random = any(one in node.target for node in captured.program.nodes for one in RANDOM)

        def at_example() -> Iterator[tuple[str, tuple[Any, ...]]]:
            if not compared:
                yield from example_cases(loaded.inputs, seed, most=MOST_EMULATED)

        small = cases(captured.program, loaded.inputs, seed, largest=LARGEST_EMULATED)
        for described, inputs in itertools.chain(small, at_example()):
            for training in (False, True):
                old = copy.deepcopy(loaded.model).train(training)
                drawn = random or (training and not captured.program.same_in_training)
                tried, wrong = _verified(new.train(training), old, inputs, seed, random=drawn)
                if backward and tried is not None and not wrong:
                    more, wrong = gradients_agree(new, old, inputs, seed, random=drawn)
                    tried = None if more is None else max(tried, more)
                if wrong:
                    mode = "training" if training else "eval"
                    return Agreement(compared, most, f"{wrong} ({mode} mode, {described})")
                compared, most = compared + (tried is not None), max(most, tried or 0.0)
            if compared and time.monotonic() - began > LONGEST_S:
                break
        none = (
            "at all of the inputs that were drawn, the module fails or deviates from float64 itself by over a sixteenth"
        )
        return Agreement(compared, most, "" if compared else none)


def _verified(
    new: torch.nn.Module, old: torch.nn.Module, inputs: tuple[Any, ...], seed: int, *, random: bool
) -> tuple[float | None, str]:
    """Returns the largest deviation of a module from another in float64, and what is wrong.

    The deviation is None if the other module fails at these inputs, or is itself too inexact there for a comparison.
    Modules that draw random numbers are compared in their own dtype: in float64 they draw others.
    """
    new.load_state_dict(old.state_dict())
    exact_model = copy.deepcopy(old) if random else in_double(old)
    with torch.no_grad():
        try:
            torch.manual_seed(seed)
            exact = leaves(exact_model(*(copies(inputs) if random else in_float64(copies(inputs)))))
            torch.manual_seed(seed)
            returned = old(*copies(inputs))
        except Exception:  # noqa: BLE001 -- the module itself does not take such inputs
            return None, ""
        try:
            torch.manual_seed(seed)
            made = new(*copies(inputs))
        except Exception as error:  # noqa: BLE001 -- whatever it is, the new module is wrong
            return 0.0, f"the new module raised {type(error).__name__}: {error}"
    if places(made) != places(returned):
        return 0.0, f"the new module returns {_described(made)} in place of {_described(returned)}"
    most, steady = 0.0, True
    results = zip(places(made), leaves(made), exact, leaves(returned), strict=True)
    pairs = [(f"result {place or 0}", *three) for place, *three in results]
    states = zip(new.state_dict().items(), exact_model.state_dict().values(), old.state_dict().values(), strict=True)
    pairs += [(f"the state {name}", one, exact_one, eager_one) for (name, one), exact_one, eager_one in states]
    for name, one, exact_one, eager_one in pairs:
        if torch.is_tensor(one) != torch.is_tensor(eager_one) or not (torch.is_tensor(one) or one == eager_one):
            return most, f"{name} is {one!r} in place of {eager_one!r}"
        if torch.is_tensor(one):
            relative, wrong = deviation(one, exact_one, eager_one)
            if wrong:
                return most, f"{name} {wrong}"
            most, steady = max(most, relative), steady and not is_unsteady(exact_one, eager_one)
    return most if steady else None, ""


def _described(value: Any) -> str:
    return ", ".join(places(value)) or "one value"


class _Recorder(torch.fx.Interpreter):
    """Runs a graph in float64, and keeps the values of its nodes.

    Values stay in float64 in operations for which the graph names a floating dtype, such as casts for more or less precision and
    `softmax(x, -1, dtype=torch.float32)`.
    """

    def __init__(self, module: torch.fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[str, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        """Returns the node's value."""
        value = super().run_node(n)
        self.values[n.name] = value.clone() if torch.is_tensor(value) else value
        return value

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the value of a call, with float64 for each floating dtype."""
        given = {name: _double(one) for name, one in kwargs.items()}
        return super().call_function(target, tuple(_double(one) for one in args), given)


def _double(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _values(captured: ExportedModule, model: torch.nn.Module, inputs: tuple[Any, ...]) -> dict[str, Any]:
    """Returns the values of all nodes of the program, in float64."""
    exported = captured.exported
    state = dict(model.state_dict(keep_vars=True))
    state |= dict(model.named_buffers())
    signature = exported.graph_signature
    user = iter(leaves(inputs))
    given: list[Any] = []
    for spec in signature.input_specs:
        kind = spec.kind.name
        if kind in ("PARAMETER", "BUFFER"):
            given.append(state[str(spec.target)].detach())
        elif kind == "CONSTANT_TENSOR":
            held = exported.constants[str(spec.target)]
            given.append(held.double() if held.is_floating_point() else held)
        else:
            given.append(next(user))
    recorder = _Recorder(exported.graph_module)
    with torch.no_grad():
        recorder.run(*given)
    return recorder.values


def _gradient_values(graph: BackwardGraph, values: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Returns the values of all nodes of a backward graph, in float64, for normal gradients of the part's results."""
    generator = torch.Generator().manual_seed(seed)
    given = [values[one.node] for one in graph.derived.saved]
    for one in graph.derived.into:
        given.append(torch.randn(values[one.node].shape, generator=generator, dtype=torch.float64))
    recorder = _Recorder(graph.module)
    with torch.no_grad():
        recorder.run(*given)
    return recorder.values


def _compared(
    function: Callable[..., Any], part: Mapping[str, Any], values: Mapping[str, Any], so_far: Agreement, described: str
) -> Agreement:  # fmt: skip
    inputs = [_array(values[name]) for name in part["inputs"]]
    try:
        with np.errstate(all="ignore"):
            made = function(*inputs)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the translation is wrong
        return Agreement(so_far.compared, so_far.deviation, f"its reference raised {type(error).__name__}: {error}")
    most = so_far.deviation
    for name, one in zip(part["outputs"], made if isinstance(made, tuple) else (made,), strict=True):
        want = values[name]
        got = torch.from_numpy(np.ascontiguousarray(one)).reshape(want.shape if want.dim() == 0 else np.shape(one))
        relative, wrong = deviation(got, want, None)
        if wrong:
            return Agreement(so_far.compared, most, f"its reference is not what PyTorch computes: {name} {wrong} ({described})")  # fmt: skip
        most = max(most, relative)
    return Agreement(so_far.compared + 1, most)


def _array(value: torch.Tensor) -> Any:
    """Returns a value as a kernel argument: a zero-dimensional one becomes an array of one element."""
    array = value.detach().numpy()
    return array.reshape(1) if array.ndim == 0 else array


@contextlib.contextmanager
def autocast_turned_off(path: Path) -> Iterator[list[int]]:
    """Yields a list that gets the line in a file of each block of autocast that is entered and turned off; 0 elsewhere.

    Without CUDA, `torch.autocast("cuda")` computes in the tensors' own dtype, so a graph exported there has not the dtypes
    that the module has on a GPU.
    """
    kind: Any = torch.amp.autocast_mode.autocast
    made, entered, wanted = kind.__init__, kind.__enter__, path.resolve()
    off: set[int] = set()
    kept: list[Any] = []  # so that no other object gets an identity that is in `off`
    lines: list[int] = []

    def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *args: Any, **given: Any) -> None:
        made(self, device_type, dtype, enabled, *args, **given)
        if device_type == "cuda" and enabled and not torch.cuda.is_available():
            off.add(id(self))
            kept.append(self)

    def enter(self: Any) -> Any:
        if id(self) in off:
            lines.append(_line(wanted))
        return entered(self)

    kind.__init__, kind.__enter__ = init, enter
    try:
        yield lines
    finally:
        kind.__init__, kind.__enter__ = made, entered


def _line(path: Path) -> int:
    """Returns the line of the innermost caller in a file; 0 if there is none."""
    frame = sys._getframe(1)
    while frame is not None:
        if Path(frame.f_code.co_filename).resolve() == path:
            return frame.f_lineno
        frame = frame.f_back  # type: ignore[assignment]
    return 0
