"""Exports a module by torch.export and describes the graph as a `ModelProgram`. Used only in the module's own process."""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._sympy.printers import PythonPrinter

from kernelmate_torch.comparing import copies
from kernelmate_torch.loading import MODULE_NAME, LoadedModule, Refusal, refusal_of
from kernelmate_torch.nesting import PLAIN, containers, leaf_texts, leaves, mapped
from kernelmate_torch.operations import OPERATIONS
from kernelmate_torch.program import GraphNode, ModelProgram, TensorSpec
from kernelmate_torch.rewriting import replace_bags, rewrite

LITERAL_ELEMENTS = 64
"""Constant tensors of up to this many elements are written into the new module's text."""

WHOLE = frozenset(
    f"aten.{one}" for one in ("roll.default", "lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
)
"""Operations without translation that stay whole: what they are made of takes more launches."""

_DATA_DEPENDENT = ("GuardOnDataDependentSymNode", "DataDependentOutputException")


class ExportedModule:
    """An exported module.

    Attributes:
        exported: torch's own program, of which the checks run parts.
        program: its description.
    """

    def __init__(self, exported: torch.export.ExportedProgram, program: ModelProgram) -> None:
        self.exported = exported
        self.program = program


def capture(loaded: LoadedModule) -> ExportedModule:
    """Export a module in eval mode, with free sizes of the inputs where it permits them.

    Raises:
        Refusal: the module raises, changes its inputs, or its control flow depends on data.
    """
    try:
        with torch.no_grad():
            model, inputs = copied(loaded)
            returned = model(*inputs)
    except Exception as error:  # noqa: BLE001 -- whatever the module raises is reported
        raise refusal_of(error, loaded.path, "The module failed") from None
    returned_record(loaded, returned, iter(leaves(returned)))  # refuses what cannot be exported
    try:
        return _captured(loaded, returned)
    except Exception as error:
        if not _depends_on_values(error):
            raise
        raise _refused(loaded, error) from None


def _captured(loaded: LoadedModule, returned: Any) -> ExportedModule:
    """Returns the exported module; raises as `capture`, and what torch raises for a shape that depends on values."""
    raw = _exported(loaded, loaded.model)
    same = _same_in_training(loaded, raw)
    exported = _known_operations(raw)
    signature = exported.graph_signature
    changed = list(signature.user_inputs_to_mutate.values())
    if changed:
        raise Refusal(
            f"forward changes its input {changed[0]} in place.",
            file=str(loaded.path),
            line=_line_of_change(loaded) or None,
            hint="Compute a new tensor instead, as x = x + 1 in place of x += 1.",
        )
    program = _described(loaded, exported, returned, same_in_training=same)
    return ExportedModule(exported, program)


def copied(loaded: LoadedModule) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """Returns copies of a module and its inputs, which it may change."""
    return copy.deepcopy(loaded.model), copies(loaded.inputs)


def _exported(loaded: LoadedModule, model: torch.nn.Module) -> torch.export.ExportedProgram:
    """Returns the program with free sizes, or with fixed ones if some of its operations need them."""
    auto = torch.export.Dim.AUTO
    free = mapped(lambda one: dict.fromkeys(range(one.dim()), auto) if torch.is_tensor(one) else None, loaded.inputs)
    if isinstance(model, torch.nn.Module) and type(model).__name__ == "FunctionModule":
        shapes: Any = (free,)
    else:
        shapes = free
    first: Exception | None = None
    for dynamic in (shapes, None):
        try:
            return torch.export.export(model, copies(loaded.inputs), dynamic_shapes=dynamic, strict=False)
        except Exception as error:  # noqa: BLE001 -- torch raises many kinds; the second attempt's is reported
            first = error
    assert first is not None
    raise _refused(loaded, first)


def _refused(loaded: LoadedModule, error: Exception) -> Refusal:
    """Returns the message for a module that cannot be exported as a graph."""
    refusal = refusal_of(error, loaded.path, "The module cannot be exported")
    if _depends_on_values(error):
        return Refusal(
            "The control flow or a shape depends on the values of a tensor, so there is no one graph.",
            file=refusal.failure.file,
            line=refusal.failure.line,
            hint="Write the choice as torch.where, or port the module's parts.",
        )
    return refusal


def _depends_on_values(error: Exception) -> bool:
    """Returns True for an error of torch.export that a choice or a shape by a tensor's values causes."""
    said = str(error).lower()
    kind = getattr(getattr(error, "error_type", None), "name", "")
    named = type(error).__name__ in _DATA_DEPENDENT or kind == "DYNAMIC_CONTROL_FLOW"
    return named or "data-dependent" in said or "data dependent" in said


def _known_operations(exported: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Returns the program with each untranslatable operation decomposed into the operations that torch defines it by."""
    replace_bags(exported.graph_module)
    defaults = torch.export.default_decompositions()
    graphs = [one.graph for one in exported.graph_module.modules() if isinstance(one, torch.fx.GraphModule)]
    used = {node.target for graph in graphs for node in graph.nodes if node.op == "call_function"}
    known = {*OPERATIONS, *WHOLE}
    table = {one: defaults[one] for one in used if str(one) not in known and one in defaults}
    table = {one: made for one, made in table.items() if f"{one}[0]" not in OPERATIONS}
    # It also makes operations in place plain ones, and blocks of autocast and no_grad a part of the graph.
    if table or len(graphs) > 1 or any(map(is_mutable, used)):
        exported = exported.run_decompositions(table)
    rewrite(exported.graph_module)
    return exported


def is_mutable(target: Any) -> bool:
    """Returns True for an operation that changes one of its arguments."""
    return isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable


def _described(
    loaded: LoadedModule, exported: torch.export.ExportedProgram, returned: Any, *, same_in_training: bool
) -> ModelProgram:
    signature = exported.graph_signature
    symbols: dict[str, int] = {}
    nodes = list(_nodes(loaded, exported, symbols))
    returned_nodes = next(one for one in exported.graph.nodes if one.op == "output").args[0]
    changes = len(signature.buffers_to_mutate)
    written = dict(zip(signature.buffers_to_mutate.values(), (one.name for one in returned_nodes), strict=False))
    outputs = [argument_record(one, symbols) for one in returned_nodes[changes:]]
    names, inputs = leaf_texts(loaded.names, loaded.inputs), leaves(loaded.inputs)
    fixed = {name: repr(one) for name, one in zip(names, inputs, strict=True) if not torch.is_tensor(one)}
    return ModelProgram(
        tuple(nodes),
        tuple(one["node"] for one in outputs if isinstance(one, dict) and "node" in one),
        symbols,
        names,
        returned_record(loaded, returned, iter(outputs)),
        loaded.parameters.text,
        loaded.parameters.passed,
        {**loaded.parameters.more, **containers(loaded.names, loaded.inputs)},
        fixed | loaded.parameters.defaults,
        written,
        same_in_training,
    )


def returned_record(loaded: LoadedModule, returned: Any, records: Iterator[Any]) -> Any:
    """Returns a module's result with records, in the order of `leaves`, in place of its tensors and numbers.

    Raises:
        Refusal: a part of it is of another kind.
    """
    file = sys.modules.get(MODULE_NAME)

    def record(one: Any) -> Any:
        kind = type(one)
        if kind is dict and all(isinstance(key, str | int) for key in one):
            return {"dict": [[repr(key), record(held)] for key, held in one.items()]}
        if kind in (list, tuple):
            return {kind.__name__: [record(held) for held in one]}
        if getattr(torch.return_types, kind.__name__, None) is kind:
            return {"call": f"torch.return_types.{kind.__name__}", "items": [{"tuple": [record(held) for held in one]}]}
        if isinstance(one, tuple) and getattr(file, kind.__name__, None) is kind:
            return {"call": kind.__name__, "items": [record(held) for held in one]}
        if torch.is_tensor(one) or isinstance(one, PLAIN):
            return next(records)
        raise Refusal(
            f"forward returns a {kind.__name__}.",
            file=str(loaded.path),
            hint="Return tensors, in tuples, lists, dictionaries and named tuples of this file.",
        )

    return record(returned)


def _nodes(
    loaded: LoadedModule, exported: torch.export.ExportedProgram, symbols: dict[str, int]
) -> Iterator[GraphNode]:
    signature = exported.graph_signature
    parameters, buffers = signature.inputs_to_parameters, signature.inputs_to_buffers
    constants = signature.inputs_to_lifted_tensor_constants
    user = iter(leaf_texts(loaded.names, loaded.inputs))
    for node in exported.graph.nodes:
        tensor = tensor_spec(node.meta.get("val"), symbols)
        if node.op == "placeholder":
            if node.name in parameters:
                yield GraphNode(node.name, "parameter", parameters[node.name], tensor=tensor)
            elif node.name in buffers:
                yield GraphNode(node.name, "buffer", buffers[node.name], tensor=tensor)
            elif node.name in constants:
                held = exported.constants[constants[node.name]]
                literal = held.tolist() if held.numel() <= LITERAL_ELEMENTS else None
                yield GraphNode(node.name, "constant", constants[node.name], tensor=tensor, literal=literal)
            else:
                yield GraphNode(node.name, "input", next(user), tensor=tensor)
        elif node.op == "call_function" and is_left_out(node):
            continue
        elif node.op == "call_function" and translated_element(node) is not None:
            producer = node.args[0]
            yield GraphNode(
                node.name, "call", str(translated_element(node)), tuple(argument_record(one, symbols) for one in producer.args),
                {name: argument_record(one, symbols) for name, one in producer.kwargs.items()}, tensor, _line(producer, loaded),
            )  # fmt: skip
        elif node.op == "call_function":
            yield GraphNode(
                node.name, "call", target_text(node.target), tuple(argument_record(one, symbols) for one in node.args),
                {name: argument_record(one, symbols) for name, one in node.kwargs.items()}, tensor, _line(node, loaded),
            )  # fmt: skip
        elif node.op == "get_attr":
            raise Refusal("The module has control flow of higher order (torch.cond, map).", file=str(loaded.path))


def is_left_out(node: torch.fx.Node) -> bool:
    """Returns True for what the description leaves out.

    These are sizes, which the text has as expressions, checks of what is exported, and tuples whose elements are
    operations of their own.
    """
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool | int | float) or "_assert" in str(node.target):
        return True
    return isinstance(value, tuple | list) and bool(node.users) and all(map(translated_element, node.users))


def translated_element(node: torch.fx.Node) -> str | None:
    """Returns the name of an operation's one result, `aten.max.dim[0]`, if that has a translation of its own."""
    if getattr(node.target, "__name__", "") != "getitem" or not isinstance(node.args[0], torch.fx.Node):
        return None
    name = f"{node.args[0].target}[{node.args[1]}]"
    return name if name in OPERATIONS else None


def target_text(target: Any) -> str:
    """Returns an operation's name; that of a Python function with `python` before it."""
    text = str(target)
    return text if "." in text and "<" not in text else f"python.{getattr(target, '__name__', text)}"


def tensor_spec(value: Any, symbols: dict[str, int]) -> TensorSpec | None:
    """Returns shape and dtype of a tensor, and adds its symbols; None for another value."""
    if not isinstance(value, torch.Tensor):
        return None
    dims = tuple(_dim(one, symbols) for one in value.shape)
    return TensorSpec(dims, str(value.dtype).removeprefix("torch."))


def _dim(dim: Any, symbols: dict[str, int]) -> int | str:
    """Returns a dimension: a number also if torch found that a free symbol can only have one value."""
    if isinstance(dim, int) or dim.node.expr.is_number:
        return int(dim)
    return _expression(dim, symbols)


def _expression(dim: Any, symbols: dict[str, int]) -> str:
    """Returns a dimension as an expression of Python, which has `a % b` for sympy's `Mod(a, b)`."""
    node = dim.node
    for symbol in node.expr.free_symbols:
        symbols[str(symbol)] = _example_size(node.shape_env, symbol)
    text: str = PythonPrinter().doprint(node.expr)
    symbols[text] = _example_size(node.shape_env, node.expr)
    return text


def _example_size(shape_env: Any, expression: Any) -> int:
    """Returns the number that an expression over free sizes has for the example inputs."""
    found = getattr(shape_env, "guarding_hint_or_throw", None) or shape_env.size_hint  # PyTorch 2.13; older ones
    return int(found(expression))


def argument_record(value: Any, symbols: dict[str, int]) -> Any:
    """Returns an argument of an operation as `GraphNode` has it, and adds its symbols."""
    if isinstance(value, torch.fx.Node):
        held = value.meta.get("val")
        if isinstance(held, torch.SymInt):
            held = _dim(held, symbols)
            return held if isinstance(held, int) else {"size": held}
        if isinstance(held, torch.SymFloat):
            return _number_record(held.node, symbols)
        return {"node": value.name}
    if isinstance(value, list | tuple):
        return [argument_record(one, symbols) for one in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"number": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return {"torch": str(value)}


def _number_record(node: Any, symbols: dict[str, int]) -> Any:
    """Returns the record of a floating-point number computed from sizes, such as a quotient, and adds their symbols."""
    if node.expr.is_number:
        return float(node.expr)
    for symbol in node.expr.free_symbols:
        symbols[str(symbol)] = _example_size(node.shape_env, symbol)
    text = PythonPrinter().doprint(node.expr).replace("torch.sym_float(", "(")  # `/` gives a floating number without it
    return {"size": f"({text.replace('float(', '(')})"}


def _line(node: torch.fx.Node, loaded: LoadedModule) -> int:
    """Returns the last line of the module's file in the node's stack trace, which names the file as it was opened."""
    wanted = loaded.path.resolve()
    found = re.findall(r'File "(.+)", line (\d+)', node.meta.get("stack_trace") or "")
    return next((int(line) for file, line in reversed(found) if Path(file).resolve() == wanted), 0)


def _line_of_change(loaded: LoadedModule) -> int:
    """Returns the line of the first operation in place."""
    with torch.no_grad():
        graph = torch.export.export(loaded.model, copies(loaded.inputs), strict=False).graph
    changing = (one for one in graph.nodes if one.op == "call_function" and re.search(r"_\.|_$", str(one.target)))
    return next((line for one in changing if (line := _line(one, loaded))), 0)


def _same_in_training(loaded: LoadedModule, exported: torch.export.ExportedProgram) -> bool:
    """Returns True if training mode has the same operations with the same arguments, and changes no buffer."""
    model = copy.deepcopy(loaded.model).train()
    try:
        other = _exported(loaded, model)
    except Refusal:  # what cannot be exported is not known to be the same
        return False
    return _signature(other) == _signature(exported)


def _signature(exported: torch.export.ExportedProgram) -> list[tuple[str, str]]:
    return [(str(one.target), str((one.args, one.kwargs))) for one in exported.graph.nodes if one.op == "call_function"]
