"""Times a part's kernel beside PyTorch's own operations on a GPU. Used only in the module's own process."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelmate_torch.capture import ExportedModule
from kernelmate_torch.kernelbench.timing import WARM_UP, timed_blocks
from kernelmate_torch.launching import operator
from kernelmate_torch.program import PartTimes, PartToTime

SEED = 31


def time_part(captured: ExportedModule, part: PartToTime) -> PartTimes:
    """Returns the times of a part's kernel and of the operations that it replaces, at the shapes asked for.

    Both are called from Python, as the new module does, so that the time to launch counts where it is the longer one.
    Inputs of whole numbers are 0 or 1, which are valid as indices everywhere.
    """
    try:
        nodes = {one.name: one for one in captured.exported.graph.nodes}
        shapes = {name: torch.Size(shape) for name, shape in zip(part.inputs, part.shapes, strict=True)}
        device = torch.device("cuda", part.device)
        eager = eager_part(captured.exported.graph_module, nodes, part, _symbols(nodes, shapes), device)
        with torch.cuda.device(device), torch.no_grad():
            contents = [_drawn(nodes, shapes, seed, device) for seed in (SEED, SEED + 1)]
            scalars = [not nodes[name].meta["val"].dim() for name in part.inputs]
            versions = {"eager": _of_scalars(eager, scalars), "kernel": operator(part.kernel)}
            for version in versions.values():
                for _ in range(WARM_UP):
                    version(*contents[0])
            torch.cuda.synchronize()
            times, _ = timed_blocks(versions, contents)
    except Exception as error:  # noqa: BLE001 -- the kernel is judged right, and stays without its times
        text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return PartTimes(why=f"{type(error).__name__}: {text}")
    return PartTimes(statistics.median(times["eager"]), statistics.median(times["kernel"]))


def eager_part(
    module: torch.fx.GraphModule,
    nodes: Mapping[str, torch.fx.Node],
    part: PartToTime,
    symbols: Mapping[Any, int],
    device: torch.device,
) -> Callable[..., Any]:
    """Returns the function that runs the operations between a part's inputs and its results.

    Args:
        module: the exported module.
        nodes: its nodes, by name.
        part: the part.
        symbols: the number of each symbol of a size.
        device: where the operations make tensors, whatever device the module was exported on.

    Raises:
        ValueError: they need a value that is neither an input nor a size.
    """
    graph = torch.fx.Graph()
    made: dict[torch.fx.Node, Any] = {nodes[name]: graph.placeholder(name) for name in part.inputs}

    def value(node: torch.fx.Node) -> Any:
        if node not in made:
            held = node.meta.get("val")
            if isinstance(held, torch.SymInt):
                made[node] = int(held.node.expr.subs(symbols))
            elif node.op != "call_function":
                raise ValueError(f"{node.name} is not an input of the part")
            else:
                args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), value)
                kwargs = {name: device if isinstance(one, torch.device) else one for name, one in kwargs.items()}
                made[node] = graph.call_function(node.target, args, kwargs)
        return made[node]

    graph.output(tuple(value(nodes[name]) for name in part.outputs))
    made_of: Callable[..., Any] = torch.fx.GraphModule(module, graph)
    return made_of


def _symbols(nodes: Mapping[str, torch.fx.Node], shapes: Mapping[str, torch.Size]) -> dict[Any, int]:
    """Returns the numbers of the symbols that are dimensions of the inputs."""
    return {
        side.node.expr: extent
        for name, shape in shapes.items()
        for side, extent in zip(nodes[name].meta["val"].shape, shape, strict=False)
        if isinstance(side, torch.SymInt) and side.node.expr.is_Symbol
    }


def _drawn(
    nodes: Mapping[str, torch.fx.Node], shapes: Mapping[str, torch.Size], seed: int, device: torch.device
) -> list[torch.Tensor]:
    generator = torch.Generator(device).manual_seed(seed)
    made = []
    for name, shape in shapes.items():
        dtype = nodes[name].meta["val"].dtype
        if dtype.is_floating_point:
            made.append(torch.randn(shape, generator=generator, device=device).to(dtype))
        else:
            made.append(torch.randint(0, 2, shape, generator=generator, device=device).to(dtype))
    return made


def _of_scalars(function: Callable[..., Any], scalars: Sequence[bool]) -> Callable[..., Any]:
    """Returns the function wrapped to take zero-dimensional values as arrays of one element, as kernels do."""
    if not any(scalars):
        return function
    return lambda *tensors: function(
        *(one.reshape(()) if scalar else one for one, scalar in zip(tensors, scalars, strict=True))
    )


__all__ = ["eager_part", "time_part"]
