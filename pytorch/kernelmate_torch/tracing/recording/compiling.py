"""Records the actions of torch.compile: branches that it takes while it traces, graph breaks, and kernels in its graphs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from .branches import FOLLOWING
from .kernels import REGISTRY, is_user_file
from .operators import named_operator
from .stepping import STEPPER

_BREAKS = 100
"""Different graph breaks that are kept."""


class Compilations:
    """Compilations of this process.

    Attributes:
        graphs: graphs that were compiled.
        breaks: graph breaks: reason, file and line, the functions above it, and how often.
        in_graphs: kernels in graphs as torch.compile traced them: number of graphs, and the user's file and line.
        limits: functions that reached the limit of recompilations.
    """

    def __init__(self) -> None:
        self.graphs = 0
        self.breaks: list[dict[str, Any]] = []
        self.in_graphs: dict[str, dict[str, Any]] = {}
        self.limits: list[dict[str, Any]] = []

    def broke(self, reason: str, stack: list[Any]) -> None:
        """Notes a graph break."""
        frames = [[one.filename, one.lineno or 0, one.name] for one in stack if is_user_file(one.filename)]
        first = reason.strip().split("\n")[0].strip()
        known = next((one for one in self.breaks if one["frames"] == frames), None)
        if known is not None:
            known["count"] += 1
        elif frames and len(self.breaks) < _BREAKS:
            explained = [line.strip() for line in reason.split("\n") if line.strip().startswith("Explanation:")]
            self.breaks.append({"reason": first, "explained": (explained or [""])[0], "frames": frames, "count": 1})


COMPILATIONS = Compilations()


def follow_translation(module: Any) -> None:
    """Wraps the step by which torch.compile executes one instruction symbolically."""
    kind = module.InstructionTranslatorBase
    step = kind.step

    @functools.wraps(step)
    def traced_step(self: Any) -> Any:
        pointer = self.instruction_pointer
        if pointer is not None and is_user_file(self.f_code.co_filename):
            _visited(self, self.instructions[pointer])
        return step(self)

    kind.step = traced_step


def _visited(translator: Any, instruction: Any) -> None:
    code = translator.f_code
    variables = translator.f_locals if isinstance(getattr(translator, "f_locals", None), dict) else {}
    followed = FOLLOWING.of(code, lambda: variables, translator.f_globals)
    if followed is None or instruction.positions is None:
        return
    place = instruction.positions
    followed.visited((place.lineno, place.end_lineno, place.col_offset, place.end_col_offset))


def follow_graphs(module: Any) -> None:
    """Wraps the compilation of graphs: their ends, which may be graph breaks, and their kernels."""
    kind = module.OutputGraph
    subgraph, backend = kind.compile_subgraph, kind.call_user_compiler

    @functools.wraps(subgraph)
    def compile_subgraph(self: Any, tx: Any, reason: Any, *more: Any, **named: Any) -> Any:
        if getattr(reason, "graph_break", False):
            COMPILATIONS.broke(str(reason.reason), list(reason.user_stack))
        return subgraph(self, tx, reason, *more, **named)

    @functools.wraps(backend)
    def call_user_compiler(self: Any, graph: Any, *more: Any, **named: Any) -> Any:
        COMPILATIONS.graphs += 1
        for node in graph.graph.nodes:
            _note_node(node)
        return backend(self, graph, *more, **named)

    kind.compile_subgraph, kind.call_user_compiler = compile_subgraph, call_user_compiler


def _note_node(node: Any) -> None:
    key = named_operator(node.target) if node.op == "call_function" else None
    if key is None and "triton_kernel_wrapper" in str(node.target):
        wrap: Any = sys.modules["torch._higher_order_ops.triton_kernel_wrap"]
        key = REGISTRY.bound(wrap.kernel_side_table.get_kernel(node.kwargs["kernel_idx"]))
    if key is not None:
        known = COMPILATIONS.in_graphs.setdefault(
            key, {"graphs": 0, "stack": str(node.meta.get("stack_trace") or "")[-2000:]}
        )
        known["graphs"] += 1


def follow_frames(module: Any) -> None:
    """Pause the stepper while torch.compile compiles, and note the limit of recompilations."""
    compiled: Callable[..., Any] = module._compile
    exceeds = module.exceeds_recompile_limit

    @functools.wraps(compiled)
    def _compile(code: Any, *more: Any, **named: Any) -> Any:
        with STEPPER.paused():
            return compiled(code, *more, **named)

    @functools.wraps(exceeds)
    def exceeds_recompile_limit(*args: Any, **named: Any) -> Any:
        result = exceeds(*args, **named)
        if result[0]:
            _note_limit(sys._getframe(1).f_locals.get("code"))
        return result

    module._compile, module.exceeds_recompile_limit = _compile, exceeds_recompile_limit


def _note_limit(code: Any) -> None:
    if code is None:
        return
    place = {"file": code.co_filename, "line": code.co_firstlineno, "name": code.co_name}
    known = next((one for one in COMPILATIONS.limits if all(one[name] == value for name, value in place.items())), None)
    if known is None:
        COMPILATIONS.limits.append({**place, "count": 1})
    else:
        known["count"] += 1
