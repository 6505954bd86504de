"""Parts of a program as reference functions: names, sizes, conditions, and where a program is cut."""

from __future__ import annotations

import ast

import numpy as np
import pytest

from kernelmate_torch.numpy_text import Untranslated
from kernelmate_torch.operations import OPERATIONS
from kernelmate_torch.parts import MOST_PRODUCT, PartFunction, judged_size, part_function, reference_file
from kernelmate_torch.porting import _ends
from kernelmate_torch.program import Dim, GraphNode, ModelProgram, TensorSpec, nodes_in


def value(name: str, *shape: Dim, kind: str = "input", target: str = "", dtype: str = "float32") -> GraphNode:
    return GraphNode(name, kind, target or name, tensor=TensorSpec(shape, dtype))  # type: ignore[arg-type]


def call(name: str, target: str, *args: object, shape: tuple[Dim, ...], dtype: str = "float32") -> GraphNode:
    given = tuple({"node": one} if isinstance(one, str) else one for one in args)
    return GraphNode(name, "call", f"aten.{target}", given, tensor=TensorSpec(shape, dtype))


def program(*nodes: GraphNode, symbols: dict[str, int] | None = None) -> ModelProgram:
    inputs = tuple(one.target for one in nodes if one.kind == "input")
    return ModelProgram(nodes, (nodes[-1].name,), symbols or {}, inputs)


def function(made: ModelProgram, *, literal: bool = False) -> PartFunction:
    calls = [one for one in made.nodes if one.kind == "call"]
    return part_function(made, calls, set(), literal=literal)


LINEAR = program(
    value("x", "s0", 64),
    value("p_fc_weight", 48, 64, kind="parameter", target="fc.weight"),
    call("linear", "linear.default", "x", "p_fc_weight", shape=("s0", 48)),
    call("relu", "relu.default", "linear", shape=("s0", 48)),
    symbols={"s0": 16},
)


def test_a_part_is_named_after_what_it_does_and_takes_parameters_by_their_own_names():
    part = function(LINEAR)
    assert part.name == "linear_relu"
    assert part.text.splitlines()[0] == "def linear_relu(x, fc_weight):"
    assert part.text.splitlines()[-1] == "    return np.maximum(linear, 0)"


def test_equal_dimensions_are_one_size_with_the_example_s_number():
    part = function(LINEAR)
    assert [one.shape for one in part.arguments] == [("rows", "cols"), ("n", "cols")] or part.arguments[
        1
    ].shape is not None
    rows, columns = part.arguments[0].shape or ()
    assert part.size[rows] == 16
    assert part.size[columns] == 64
    assert (part.arguments[1].shape or ())[1] == columns


def test_literal_parts_keep_numbers_and_name_free_sizes_alone():
    part = function(LINEAR, literal=True)
    assert [one.shape for one in part.arguments] == [("rows", "64"), ("48", "64")]
    assert part.size == {"rows": 16}


def test_a_function_computes_what_the_operations_do():
    part = function(LINEAR)
    scope: dict[str, object] = {}
    exec(reference_file([part], "Parts."), scope)
    x, w = np.linspace(-1, 1, 3 * 5).reshape(3, 5), np.linspace(1, -2, 4 * 5).reshape(4, 5)
    assert np.allclose(scope["linear_relu"](x, w), np.maximum(x @ w.T, 0))  # type: ignore[operator]


def test_indices_are_drawn_within_their_table_and_variances_are_positive():
    embedding = program(
        value("table", 100, 32),
        value("ids", "s0", 7, dtype="int64"),
        call("embedding", "embedding.default", "table", "ids", shape=("s0", 7, 32)),
        symbols={"s0": 12},
    )
    part = function(embedding)
    table, ids = part.arguments
    assert ids.distribution == f"integers(0, {(table.shape or ())[0]})"


def test_windows_require_arrays_that_hold_one():
    pool = program(
        value("x", "s0", "s1", "s2", "s3"),
        call("pool", "avg_pool2d.default", "x", [3, 3], [2, 2], shape=("s0", "s1", "s4", "s5")),
        symbols={"s0": 2, "s1": 3, "s2": 17, "s3": 19},
    )
    part = function(pool)
    _, _, rows, columns = part.arguments[0].shape or ()
    assert part.require == (f"{rows} >= 3", f"{columns} >= 3")


def test_a_group_s_channels_stay_a_number():
    norm = program(
        value("x", "s0", 16, "s1"),
        call("norm", "group_norm.default", "x", 4, None, None, 1e-5, shape=("s0", 16, "s1")),
        symbols={"s0": 3, "s1": 9},
    )
    assert (function(norm).arguments[0].shape or ())[1] == "16"


@pytest.mark.parametrize(
    ("target", "args", "reason"),
    [
        ("aten.dropout.default", ("x", 0.5, True), "random"),
        ("aten.div.Tensor_mode", ("x", "x"), ""),
        ("aten.batch_norm.default", ("x", None, None, None, None, True, 0.1, 1e-5, False), "training mode"),
        ("aten.max_pool2d.default", ("x", [2, 2], [2, 2], [0, 0], [1, 1], True), "ceil_mode"),
        ("aten.no_such_operation.default", ("x",), "no translation"),
    ],
)
def test_an_option_without_translation_is_refused_with_its_reason(target: str, args: tuple[object, ...], reason: str):
    made = program(value("x", 3, 5, 8, 8), call("y", target.removeprefix("aten."), *args, shape=(3, 5, 8, 8)))
    if not reason:
        assert function(made)
        return
    with pytest.raises(Untranslated, match=reason):
        function(made)


def test_large_examples_are_judged_at_smaller_sizes():
    large = program(
        value("x", "s0", 8192),
        value("w", 8192, 8192, kind="parameter"),
        call("y", "linear.default", "x", "w", shape=("s0", 8192)),
        call("z", "relu.default", "y", shape=("s0", 8192)),
        symbols={"s0": 4096},
    )
    size = judged_size(function(large))
    assert np.prod(list(size.values())) <= MOST_PRODUCT
    assert all(one >= 16 for one in size.values())


def test_the_longest_part_is_tried_first_and_never_ends_with_a_view():
    nodes = [
        call("a", "linear.default", "x", "w", shape=(4, 8)),
        call("b", "gelu.default", "a", shape=(4, 8)),
        call("c", "linear.default", "b", "w", shape=(4, 8)),
        call("d", "view.default", "c", [32], shape=(32,)),
    ]
    assert list(_ends(nodes)) == [3, 2, 1]


def test_references_to_values_are_found_in_nested_arguments():
    assert nodes_in([{"node": "a"}, [{"node": "b"}, 3], {"size": "s0"}]) == ["a", "b"]


def test_every_translation_is_of_an_operation_of_pytorch():
    assert all(name.startswith("aten.") and name.count(".") >= 2 for name in OPERATIONS)
    assert all(callable(one) for one in OPERATIONS.values())


def test_a_reference_file_is_python_and_has_each_helper_once():
    softmax = program(value("x", 8, 9), call("y", "softmax.int", "x", -1, shape=(8, 9)))
    one = function(softmax)
    text = reference_file([one, one], "Twice.")
    tree = ast.parse(text)
    assert [node.name for node in tree.body if isinstance(node, ast.FunctionDef)].count("softmax") == 1
