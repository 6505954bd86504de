"""Derives the backward graph of a part of an exported module by autograd. Used only in the module's own process."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernelmate_torch.capture import (
    ExportedModule,
    argument_record,
    copied,
    is_left_out,
    is_mutable,
    target_text,
    tensor_spec,
    translated_element,
)
from kernelmate_torch.loading import LoadedModule, Refusal, refusal_of
from kernelmate_torch.nesting import leaves
from kernelmate_torch.operations import HEAVY, OPERATIONS, VIEWS
from kernelmate_torch.program import DerivedGraph, GraphNode, ModelProgram, NamedValue, PartToDifferentiate, sizes_in

aten = torch.ops.aten

UNDIVIDED = ("embedding_dense_backward", "max_pool", "avg_pool", "index", "upsample", "grid_sampler", "unfold", "conv")
"""Derivatives that PyTorch computes with a kernel of its own, and that as plain operations would be scatters or slower."""

REDUCING = frozenset(
    (
        "sum", "mean", "var", "var_mean", "std", "prod", "amax", "amin", "max", "min", "argmax", "argmin", "any", "all", "softmax",
        "_softmax", "log_softmax", "_log_softmax", "logsumexp", "cumsum", "cumprod", "linalg_vector_norm",
    )
)  # fmt: skip
"""Operations whose results several gradients share; all other operations on elements are computed again for each."""

NAMES = {"aten.var_mean.correction[0]": "var", "aten.var_mean.correction[1]": "mean", "aten.rsqrt.default": "rstd"}
"""Names of values in the text, by operation, in place of the operation's own."""

_SAME = frozenset((aten.detach.default, aten.alias.default))


@dataclass(frozen=True, slots=True)
class BackwardGraph:
    """The backward graph of a part.

    Attributes:
        module: takes the saved values and the gradients of the part's results, and returns the gradients of its inputs.
        derived: its description.
    """

    module: torch.fx.GraphModule
    derived: DerivedGraph


def refuse_without_gradient(loaded: LoadedModule) -> None:
    """Refuses a module that has no gradient to be ported.

    Raises:
        Refusal: no result depends on a parameter or a floating input by a differentiable operation, or the module changes
            a tensor that requires a gradient.
    """
    model, inputs = copied(loaded)
    tensors = [
        one for one in (*model.parameters(), *leaves(inputs)) if torch.is_tensor(one) and one.is_floating_point()
    ]
    for one in tensors:
        one.requires_grad_()
    try:
        returned = model(*inputs)
    except Exception as error:  # noqa: BLE001 -- whatever the module raises is reported
        raise refusal_of(error, loaded.path, "The module failed with gradients") from None
    results = [one for one in leaves(returned) if torch.is_tensor(one)]
    if not results or any(one.requires_grad for one in results):
        return  # `capture` refuses what is no tensor
    message = "No result of forward depends on an input or a parameter by operations that have a derivative."
    if not any(one.is_floating_point() for one in results):
        dtypes = ", ".join(sorted({str(one.dtype).removeprefix("torch.") for one in results}))
        message = f"forward returns {dtypes}, which has no gradient."
    raise Refusal(message, file=str(loaded.path), hint="Port it without --backward.")


def differentiate(captured: ExportedModule, loaded: LoadedModule, part: PartToDifferentiate) -> BackwardGraph:
    """Returns the backward graph of the nodes between some values of a program.

    It reads the part's inputs and results, which are saved, and computes elements and reductions of the forward pass again.

    Args:
        captured: the program.
        loaded: its module.
        part: the values.

    Raises:
        Refusal: it would compute a matrix product or an operation without translation of the forward pass again, or needs a
            size that follows from none of the saved tensors.
    """
    traced = _joint(captured, [one.node for one in part.inputs], [one.node for one in part.outputs])
    return _BackwardBuilder(traced, loaded, part).backward()


def _joint(captured: ExportedModule, inputs: Sequence[str], outputs: Sequence[str]) -> torch.fx.GraphModule:
    """Returns the graph of results and gradients: it takes a list of inputs and one of gradients of floating results."""
    nodes = {one.name: one for one in captured.exported.graph.nodes}
    fakes = [nodes[name].meta["val"] for name in inputs]
    floating = [name for name in outputs if nodes[name].meta["val"].is_floating_point()]

    def joint(given: list[torch.Tensor], gradients: list[torch.Tensor]) -> tuple[list[Any], list[Any]]:
        with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
            values = _run([nodes[name] for name in outputs], dict(zip((nodes[name] for name in inputs), given, strict=True)))  # fmt: skip
            varying = [one for one in given if one.requires_grad]
            pairs = [
                (values[nodes[name]], one)
                for name, one in zip(floating, gradients, strict=True)
                if values[nodes[name]].requires_grad
            ]
            found: Sequence[Any] = [None] * len(varying)
            if pairs and varying:
                results, into = zip(*pairs, strict=True)
                found = torch.autograd.grad(results, varying, into, allow_unused=True)
            known = iter(found)
            return [values[nodes[name]] for name in outputs], [next(known) if one.requires_grad else None for one in given]  # fmt: skip

    mode = detect_fake_mode(fakes)
    assert mode is not None
    table = _decompositions()
    with mode, enable_python_dispatcher():
        kinds = [captured.program.node(name).kind for name in inputs]
        leaves = [
            one.detach().requires_grad_(one.is_floating_point() and kind not in ("buffer", "constant"))
            for one, kind in zip(fakes, kinds, strict=True)
        ]
        into = [torch.empty_like(nodes[name].meta["val"]) for name in floating]
        while True:
            traced = make_fx(joint, decomposition_table=table)(leaves, into)
            used = {one.target for one in traced.graph.nodes if one.op == "call_function"}
            more = {one: decomposition_table[one] for one in used if _is_divided(one) and one not in table}
            if not more:
                return _plain_operations(traced)
            table |= more


def _plain_operations(traced: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Returns the graph with casts as ATen operations, and in-place operations replaced by those that return a tensor.

    That is the same in a traced graph, in which what follows takes the result.
    """
    for node in traced.graph.nodes:
        name = _name(node.target)
        if is_mutable(node.target) and name.endswith("_") and hasattr(aten, name[:-1]):
            overload = str(node.target).rpartition(".")[2]
            node.target = getattr(getattr(aten, name[:-1]), overload, node.target)
        elif node.target is torch.ops.prims.convert_element_type.default:
            node.target, node.args, node.kwargs = aten._to_copy.default, node.args[:1], {"dtype": node.args[1]}
    return traced


def _run(results: Sequence[torch.fx.Node], values: dict[torch.fx.Node, Any]) -> dict[torch.fx.Node, Any]:
    """Returns the values of nodes, computed from those that are known."""

    def value(node: torch.fx.Node) -> Any:
        if node not in values:
            args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), value)
            values[node] = node.target(*args, **kwargs)
        return values[node]

    for one in results:
        value(one)
    return values


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """Returns the decompositions of backward operations into plain ones."""
    made = {
        one: text
        for one, text in decomposition_table.items()
        if "backward" in str(one) and not _name(one).lstrip("_").startswith(UNDIVIDED)
    }
    layer_norm = aten.native_layer_norm.default  # whose statistics need neither weight nor bias
    return {**made, layer_norm: decomposition_table[layer_norm], aten.nll_loss_backward.default: _nll_loss_backward}


def _is_divided(target: Any) -> bool:
    """Returns True for an operation that is translated only after torch decomposed it into others."""
    if target not in decomposition_table or is_mutable(target) or _name(target).lstrip("_").startswith(UNDIVIDED):
        return False
    return not any(one == str(target) or one.startswith(f"{target}[") for one in OPERATIONS)


def _name(target: Any) -> str:
    """Returns the name of an operation: `aten.sum.dim_IntList` is `sum`."""
    return str(target).removeprefix("aten.").split(".")[0]


def _nll_loss_backward(
    grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, weight: Any, reduction: int, ignored: int, total: torch.Tensor
) -> torch.Tensor:  # fmt: skip
    """Computes the gradient of the losses of rows without a scatter; of other losses as PyTorch does."""
    if weight is not None or reduction != 0 or x.dim() != 2:
        done: torch.Tensor = decomposition_table[aten.nll_loss_backward.default](
            grad, x, target, weight, reduction, ignored, total
        )
        return done
    classes = torch.arange(x.shape[1], device=x.device)
    picked = (classes == target.unsqueeze(1)) & (target != ignored).unsqueeze(1)
    return torch.where(picked, -grad.unsqueeze(1), 0.0)


class _BackwardBuilder:
    """Extracts the backward graph from a joint graph: the nodes that its gradients need, with the saved values as inputs."""

    def __init__(self, traced: torch.fx.GraphModule, loaded: LoadedModule, part: PartToDifferentiate) -> None:
        inputs, outputs = part.inputs, part.outputs
        nodes = list(traced.graph.nodes)
        places = [one for one in nodes if one.op == "placeholder"]
        returned = [None if one is None else _plain(one) for one in nodes[-1].args[0]]
        results, self.gradients = returned[: len(outputs)], returned[len(outputs) :]
        floating = [
            one for one, node in zip(outputs, results, strict=True) if node and node.meta["val"].is_floating_point()
        ]
        names = {one.name for one in (*inputs, *outputs)}
        into = {
            node: NamedValue(one.node, f"grad_{one.name}" + "_" * (f"grad_{one.name}" in names))
            for node, one in zip(places[len(inputs) :], floating, strict=True)
        }
        saved = dict(zip(places, inputs, strict=False))
        saved |= {node: one for node, one in zip(results, outputs, strict=True) if node not in saved}
        self.loaded = loaded
        self.saved, self.into = saved, into
        self.leaves: dict[torch.fx.Node, NamedValue] = saved | into
        self.inputs = inputs
        self.after = set(into)
        for node in nodes:
            if any(one in self.after for one in node.all_input_nodes):
                self.after.add(node)
        self.graph = torch.fx.Graph()

    def backward(self) -> BackwardGraph:
        """Returns the backward graph.

        Raises:
            Refusal: as `differentiate`.
        """
        needed = self._needed()
        self._refuse_repeated(needed)
        made: dict[torch.fx.Node, torch.fx.Node] = {}
        for leaf, value in self.leaves.items():
            if leaf in needed:
                made[leaf] = self.graph.placeholder(value.name)
                made[leaf].meta["val"] = leaf.meta["val"]
        gradients, groups = dict(made), []
        for group in self._groups():
            own, before = dict(made), len(self.graph.nodes)
            for node in group:
                gradients[node] = self._emitted(node, own)
            made |= {node: new for node, new in own.items() if _is_shared(node)}
            groups.append(list(self.graph.nodes)[before:])
        self.graph.output([None if one is None else gradients[one] for one in self.gradients])
        self.graph.eliminate_dead_code()
        self._name_gradients(gradients)
        kept = set(self.graph.nodes)
        starts = [next((one.name for one in group if one in kept and not is_left_out(one)), "") for group in groups]
        saved, into = (
            tuple(NamedValue(value.node, str(made[leaf].target)) for leaf, value in some.items() if leaf in needed)
            for some in (self.saved, self.into)
        )
        module = torch.fx.GraphModule(torch.nn.Module(), self.graph)
        return BackwardGraph(module, DerivedGraph(0, self._program(starts), saved, into))

    def _name_gradients(self, made: Mapping[torch.fx.Node, torch.fx.Node]) -> None:
        for node, value in zip(self.gradients, self.inputs, strict=True):
            if node is not None and made[node].op != "placeholder" and not made[node].name.startswith("grad_"):
                made[node]._rename(f"grad_{value.name}")

    def _needed(self) -> set[torch.fx.Node]:
        """Returns the nodes that the gradients are computed from, up to the saved values."""
        found: set[torch.fx.Node] = set()
        open_ones = [one for one in self.gradients if one is not None]
        while open_ones:
            node = open_ones.pop()
            if node not in found:
                found.add(node)
                open_ones += [] if node in self.leaves else [_plain(one) for one in node.all_input_nodes]
        return found

    def _refuse_repeated(self, needed: set[torch.fx.Node]) -> None:
        for node in needed:
            if is_mutable(node.target):
                raise Refusal(f"its gradient changes a tensor in place, by {_name(node.target)}", file=str(self.loaded.path))  # fmt: skip
        for node in needed - self.after - set(self.leaves):
            target = str(node.target)
            single = isinstance(node.meta.get("val"), torch.Tensor) and node.target is not operator.getitem
            unknown = single and target not in OPERATIONS
            unknown |= node.target is operator.getitem and translated_element(node) is None
            if target in HEAVY or unknown:
                named = node.args[0].target if node.target is operator.getitem else node.target
                raise Refusal(f"its gradient would compute {_name(named)} again", file=str(self.loaded.path))

    def _groups(self) -> list[list[torch.fx.Node]]:
        """Returns the gradients to compute, grouped by shape; those with the most axes come first."""
        groups: dict[str, list[torch.fx.Node]] = {}
        for node in dict.fromkeys(self.gradients):
            if node is not None and node not in self.leaves:
                groups.setdefault(str(tuple(node.meta["val"].shape)), []).append(node)
        return sorted(groups.values(), key=lambda group: -group[0].meta["val"].dim())

    def _emitted(self, node: torch.fx.Node, made: dict[torch.fx.Node, torch.fx.Node]) -> torch.fx.Node:
        """Returns the node of the new graph that has the value of a node."""
        if node in made:
            return made[node]

        def known(one: torch.fx.Node) -> torch.fx.Node:
            return self._emitted(_plain(one), made)

        target, args, kwargs = _simpler(node)
        args, kwargs = torch.fx.map_arg((args, kwargs), known)
        same = _unchanged(node, args)
        if same is None:
            name = NAMES.get(translated_element(node) or str(target), node.name)
            if target is aten._to_copy.default:
                name = f"{args[0].name}_{str(node.meta['val'].dtype).removeprefix('torch.')}"
            same = self.graph.create_node(node.op, target, args, kwargs, name=name)
            same.meta["val"] = node.meta["val"]
        made[node] = same
        return same

    def _program(self, starts: Sequence[str]) -> ModelProgram:
        symbols: dict[str, int] = {}
        nodes = list(self._records(symbols))
        known = {dim for one in nodes if one.kind == "input" and one.tensor is not None for dim in one.tensor.shape}
        missing = [one for node in nodes for one in sizes_in([*node.args, *node.kwargs.values()]) if one not in known]
        if missing:
            raise Refusal(f"its gradient needs the size {missing[0]}, which no saved tensor has", file=str(self.loaded.path))  # fmt: skip
        outputs = next(one for one in self.graph.nodes if one.op == "output").args[0]
        return ModelProgram(
            tuple(nodes), tuple(None if one is None else one.name for one in outputs), symbols,
            tuple(one.name for one in nodes if one.kind == "input"), starts=tuple(starts),
        )  # fmt: skip

    def _records(self, symbols: dict[str, int]) -> Iterator[GraphNode]:
        for node in self.graph.nodes:
            tensor = tensor_spec(node.meta.get("val"), symbols)
            if node.op == "placeholder":
                yield GraphNode(node.name, "input", str(node.target), tensor=tensor)
            elif node.op == "call_function" and not is_left_out(node):
                element = translated_element(node)
                call = node if element is None else node.args[0]
                yield GraphNode(
                    node.name, "call", element or target_text(node.target),
                    tuple(argument_record(one, symbols) for one in call.args),
                    {name: argument_record(one, symbols) for name, one in call.kwargs.items()}, tensor,
                )  # fmt: skip


def _plain(node: torch.fx.Node) -> torch.fx.Node:
    """Returns the node whose value a node returns unchanged, or copies over another value."""
    while True:
        cast = node.target is aten._to_copy.default and _described(node) == _described(node.args[0])
        if node.target in _SAME or cast:
            node = node.args[0]
        elif node.target is aten.copy_.default and _described(node) == _described(node.args[1]):
            node = node.args[1]
        else:
            return node


def _simpler(node: torch.fx.Node) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Returns an operation and its arguments in simplified form.

    A choice between a tensor and a number has the number itself, and a sum whose summed axes are then dropped drops them.
    """
    source = node.args[0] if node.args else None
    if node.target is aten.view.default and isinstance(source, torch.fx.Node) and source.target is aten.sum.dim_IntList:
        x, axes, *keep = source.args
        kept = [side for axis, side in enumerate(x.meta["val"].shape) if axis not in axes]
        if keep == [True] and str(kept) == str(list(node.meta["val"].shape)):
            return source.target, (x, axes), {}
    if node.target is aten.where.self:
        for place, target in ((1, aten.where.ScalarSelf), (2, aten.where.ScalarOther)):
            one = node.args[place]
            if isinstance(one, torch.fx.Node) and one.target is aten.scalar_tensor.default:
                return target, (*node.args[:place], one.args[0], *node.args[place + 1 :]), {}
    return node.target, node.args, dict(node.kwargs)


def _described(node: Any) -> tuple[str, torch.dtype]:
    return str(tuple(node.meta["val"].shape)), node.meta["val"].dtype


def _unchanged(node: torch.fx.Node, args: Sequence[Any]) -> torch.fx.Node | None:
    """Returns the argument that an operation leaves unchanged: transposed twice, or reshaped to its own shape; else None."""
    if node.target is aten.t.default and args[0].target is aten.t.default:
        twice: torch.fx.Node = args[0].args[0]
        return twice
    views = (aten.view.default, aten.expand.default, aten.reshape.default, aten._unsafe_view.default)
    if node.target in views and str(node.meta["val"].shape) == str(args[0].meta["val"].shape):
        same: torch.fx.Node = args[0]
        return same
    return None


def _is_shared(node: torch.fx.Node) -> bool:
    """Returns True for what is computed once for all gradients.

    These are reductions, products and their operands, operations without translation, and values of rows.
    """
    call = node.args[0] if node.target is operator.getitem else node
    if not isinstance(call, torch.fx.Node):
        return False
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return False
    if _is_operand(node):
        return True
    of_rows = isinstance(value, torch.Tensor) and value.dim() > 1 and isinstance(value.shape[-1], int) and value.shape[-1] == 1  # fmt: skip
    return of_rows or _name(call.target) in REDUCING or str(call.target) in HEAVY or str(call.target) not in OPERATIONS


def _is_operand(node: torch.fx.Node) -> bool:
    """Returns True if a product takes a node's value, also transposed or reshaped."""
    return any(str(one.target) in HEAVY or (str(one.target) in VIEWS and _is_operand(one)) for one in node.users)
