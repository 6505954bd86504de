"""Rewrites of an exported graph: operations that are one kernel each in place of those that PyTorch exports."""

from __future__ import annotations

from typing import Any

import torch


def rewrite(module: torch.fx.GraphModule) -> None:
    """Rewrites a graph in place: losses of a batch, eps by default, pieces of a split, and checks of values."""
    _without_checks(module)
    _apart(module)
    _name_eps(module)
    _pieces(module)
    _without_copies(module)


def replace_bags(module: torch.fx.GraphModule) -> None:
    """Replaces bags of one length, `EmbeddingBag` of a matrix of indices, by an embedding and its sum, mean or maximum.

    PyTorch exports them as bags of a vector that begin at multiples of the length. Bags that begin elsewhere, leave out a
    padding index, have weights or a sparse gradient stay as they are.
    """
    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if node.op != "call_function" or str(node.target).split(".")[:2] != ["aten", "embedding_bag"]:
            continue
        values = [*node.args, *[False, 0, False, None, False, None][len(node.args) - 3 :]]
        table, flat, starts, _, mode, sparse, weights, last, padding = values
        ids = _one_length(flat, starts)
        kept = [one for one in node.users if one.users]
        plain = not (sparse or last) and weights is None and padding in (None, -1) and not node.kwargs
        if ids is None or not plain or any(one.args[1] != 0 for one in kept):
            continue
        with module.graph.inserting_before(node):
            rows = _inserted(module, node, aten.embedding.default, (table, ids))
            target, args = ((aten.sum.dim_IntList, [1]), (aten.mean.dim, [1]), (aten.amax.default, [1]))[mode]
            made = _inserted(module, node, target, (rows, args))
        for one in kept:
            one.replace_all_uses_with(made)
    module.graph.eliminate_dead_code()
    module.recompile()


def _one_length(flat: torch.fx.Node, starts: torch.fx.Node) -> torch.fx.Node | None:
    """Returns the matrix of indices whose rows are the bags; None where bags begin elsewhere."""
    if str(flat.target) != "aten.reshape.default" or str(starts.target) != "aten.arange.start_step":
        return None
    ids = flat.args[0]
    assert isinstance(ids, torch.fx.Node)
    shape = ids.meta["val"].shape
    if len(shape) != 2 or flat.args[1] != [-1]:
        return None
    bounds = [one.meta["val"] if isinstance(one, torch.fx.Node) else one for one in starts.args]
    return ids if list(map(str, bounds)) == list(map(str, (0, shape[0] * shape[1], shape[1]))) else None


def _without_checks(module: torch.fx.GraphModule) -> None:
    """Removes checks of values, as those of `one_hot`, and what is computed for them alone."""
    for node in list(module.graph.nodes):
        if node.op == "call_function" and "_assert" in str(node.target) and not node.users:
            module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()


LOSSES = ("aten.cross_entropy_loss.default", "aten.nll_loss_nd.default")


def _without_copies(module: torch.fx.GraphModule) -> None:
    """Removes slices of all elements, and updates of all elements by a tensor of the same shape and dtype."""
    for node in list(module.graph.nodes):
        source = _all_of(node)
        if source is None or any(one.op == "output" for one in node.users):
            continue
        node.replace_all_uses_with(source)
        module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()


UPDATES = ("aten.slice_scatter.default", "aten.copy.default")


def _all_of(node: torch.fx.Node) -> torch.fx.Node | None:
    """Returns the argument that has the same elements as the node, in their order; None if there is none."""
    name = str(node.target)
    if node.op != "call_function" or name not in ("aten.slice.Tensor", *UPDATES) or node.kwargs:
        return None
    bounds: tuple[Any, ...] = () if name == "aten.copy.default" else tuple(node.args[2 + (name in UPDATES) :])
    default: tuple[Any, ...] = (None, None, 1)
    start, stop, step = bounds + default[len(bounds) :]
    whole = start in (None, 0) and (stop is None or (isinstance(stop, int) and stop >= 2**62)) and step == 1
    source = node.args[name in UPDATES]
    if not whole or not isinstance(source, torch.fx.Node):
        return None
    held, made = source.meta["val"], node.meta["val"]
    return source if held.dtype == made.dtype and str(held.shape) == str(made.shape) else None


def _apart(module: torch.fx.GraphModule) -> None:
    """Replaces losses of a batch by the losses of its rows, and their mean or sum: one kernel each.

    Classes of images, axis 1 of more than two, become the columns of a matrix. With weights of classes, the mean is over
    the weights of the targets that are not ignored.
    """
    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        if node.op != "call_function" or str(node.target) not in LOSSES:
            continue
        defaults = [None, 1, -100, 0.0] if node.target is aten.cross_entropy_loss.default else [None, 1, -100]
        values = [*node.args, *defaults[len(node.args) - 2 :]]
        x, target, weight, reduction, ignored, *smoothing = values
        rank = x.meta["val"].dim()
        if node.kwargs or rank < 2 or target.meta["val"].is_floating_point() or reduction == 0:
            continue
        if weight is not None and any(smoothing):  # it weights the smoothed part by class, too
            continue
        with module.graph.inserting_before(node):
            if rank > 2:
                x, target = _rows_of_classes(module, node, x, target)
            made = _inserted(module, node, node.target, (x, target, weight, 0, ignored, *smoothing))
            made = _inserted(module, node, aten.sum.default, (made,))
            if reduction == 1:
                counted = _inserted(module, node, aten.ne.Scalar, (target, ignored))
                if weight is not None:
                    places = _inserted(module, node, aten.where.ScalarOther, (counted, target, 0))
                    own = _inserted(module, node, aten.index.Tensor, (weight, [places]))
                    counted = _inserted(module, node, aten.mul.Tensor, (own, counted))
                counted = _inserted(module, node, aten.sum.default, (counted,))
                made = _inserted(module, node, aten.div.Tensor, (made, counted))
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)
    module.recompile()


def _rows_of_classes(
    module: torch.fx.GraphModule, node: torch.fx.Node, x: torch.fx.Node, target: torch.fx.Node
) -> tuple[torch.fx.Node, torch.fx.Node]:
    """Returns values of (batch, classes, ...) as rows of classes, and their targets as a vector."""
    aten = torch.ops.aten
    last = _inserted(module, node, aten.permute.default, (x, [0, *range(2, x.meta["val"].dim()), 1]))
    rows = _inserted(module, node, aten.flatten.using_ints, (last, 0, -2))
    # The export may have other names for the targets' sizes: their number is that of the rows.
    count = _inserted(module, node, aten.sym_size.int, (rows, 0))
    flat = _inserted(module, node, aten.reshape.default, (target, [count]))
    flat.args = (target, [-1])
    module.graph.erase_node(count)
    return rows, flat


def _name_eps(module: torch.fx.GraphModule) -> None:
    """Writes the eps of `rms_norm` as a number if it defaults to the dtype's, which would change in float64."""
    for node in module.graph.nodes:
        if str(node.target) == "aten.rms_norm.default" and (len(node.args) < 4 or node.args[3] is None):
            computed = torch.float64 if node.args[0].meta["val"].dtype == torch.float64 else torch.float32
            weight = node.args[2] if len(node.args) > 2 else None
            node.args = (*node.args[:2], weight, torch.finfo(computed).eps)
    module.recompile()


def _pieces(module: torch.fx.GraphModule) -> None:
    """Replaces the results of splits by slices, and those of unbind by selections, where their places are numbers."""
    aten = torch.ops.aten
    for node in list(module.graph.nodes):
        source = node.args[0] if getattr(node.target, "__name__", "") == "getitem" else None
        if not isinstance(source, torch.fx.Node) or source.op != "call_function":
            continue
        name, x = str(source.target), source.args[0]
        several = source.meta.get("val")
        if name not in SPLITS or not isinstance(several, list | tuple):
            continue
        place = source.args[1 if name in UNBOUND else 2 :] or (source.kwargs.get("dim", 0),)
        axis, index = int(place[0]) % x.meta["val"].dim(), int(node.args[1])
        index %= len(several)
        lengths = [1] * len(several) if name in UNBOUND else [one.shape[axis] for one in several[: index + 1]]
        if not all(isinstance(one, int) for one in lengths):
            continue
        start = sum(lengths[:index])
        with module.graph.inserting_before(node):
            target, args = (
                (aten.select.int, (x, axis, index))
                if name in UNBOUND
                else (aten.slice.Tensor, (x, axis, start, start + lengths[index]))
            )
            made = _inserted(module, source, target, args)
        node.replace_all_uses_with(made)
        module.graph.erase_node(node)
    module.graph.eliminate_dead_code()
    module.recompile()


UNBOUND = frozenset({"aten.unbind.int", "aten.unbind_copy.int"})
SPLITS = UNBOUND | {
    f"aten.{one}"
    for one in (
        "split.Tensor", "unsafe_split.Tensor", "split_with_sizes.default", "unsafe_split_with_sizes.default",
        "chunk.default", "unsafe_chunk.default", "split_copy.Tensor", "split_with_sizes_copy.default",
    )
}  # fmt: skip
"""Operations whose results are pieces of their first argument."""


def _inserted(module: torch.fx.GraphModule, before: torch.fx.Node, target: Any, args: tuple[Any, ...]) -> torch.fx.Node:
    """Returns a new node with the shape that its operation gives for the arguments' shapes."""
    name = target._schema.name.partition("::")[2]
    node = module.graph.create_node("call_function", target, args, name=name)
    fakes = torch.fx.node.map_arg(args, lambda one: one.meta["val"])
    node.meta["val"] = target(*fakes)
    node.meta["stack_trace"] = before.meta.get("stack_trace")
    return node
