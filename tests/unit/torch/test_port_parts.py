"""Parts of a program as reference functions: names, sizes, conditions, and where a program is cut."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from kernelmate_torch.cutting import connected_count, part_lengths, untiled, views_late
from kernelmate_torch.numpy_text import Untranslated
from kernelmate_torch.operations import OPERATIONS
from kernelmate_torch.parts import MOST_PRODUCT, PartFunction, judged_size, part_function, reference_file, structure
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
        ("aten.__rshift__.Scalar", ("x", 32), "all bits"),
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
    assert list(part_lengths(program(*nodes), nodes)) == [3, 2, 1]


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


INTEGERS = np.array([[-7, 0, 5], [90, -128, 127]])
OF_BITS = {
    "and of a number": ("bitwise_and.Scalar", INTEGERS, 15),
    "or of a number": ("__or__.Scalar", INTEGERS, 8),
    "exclusive or": ("bitwise_xor.Tensor", INTEGERS, INTEGERS[::-1].copy()),
    "exclusive or of a number": ("__xor__.Scalar", INTEGERS, -1),
    "shift to the right": ("__rshift__.Scalar", INTEGERS, 4),
    "shift to the left": ("bitwise_left_shift.Tensor_Scalar", INTEGERS, 3),
    "a remainder with the dividend's sign": ("fmod.Scalar", INTEGERS / 3, 0.7),
    "a length": ("hypot.default", INTEGERS / 3, INTEGERS[::-1] / 7),
    "a sign": ("copysign.Scalar", INTEGERS / 3, -1.0),
    "finite numbers": ("isfinite.default", np.array([[1.0, np.inf, np.nan]])),
}


@pytest.mark.parametrize("name", OF_BITS)
def test_operations_on_bits_and_remainders_compute_what_pytorch_does(name: str):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: make train-tools")
    target, *given = OF_BITS[name]
    arrays = [one for one in given if isinstance(one, np.ndarray)]
    wanted = operation_of(torch, str(target))(*(torch.tensor(one) if isinstance(one, np.ndarray) else one for one in given))  # fmt: skip
    names = [f"x{place}" for place in range(len(arrays))]
    args = [{"node": one} for one in names] + [one for one in given if not isinstance(one, np.ndarray)]
    kinds = [str(one.dtype) for one in arrays]
    node = GraphNode("y", "call", f"aten.{target}", tuple(args), {}, TensorSpec(tuple(wanted.shape), str(wanted.dtype).removeprefix("torch.")))  # fmt: skip
    inputs = [value(one, *array.shape, dtype=kind) for one, array, kind in zip(names, arrays, kinds, strict=True)]
    found = loaded(function(program(*inputs, node), literal=True))(*arrays)
    np.testing.assert_array_equal(found, wanted.numpy())


OPERATIONS_OF_WINDOWS = {
    "nearest by 3": ("upsample_nearest2d.vec", ((2, 3, 4, 5),), (None, [3.0, 3.0])),
    "nearest by 2, one axis": ("upsample_nearest1d.vec", ((2, 3, 7),), ([14], None)),
    "linear": ("upsample_linear1d.vec", ((2, 3, 7),), ([11], False, None)),
    "bilinear": ("upsample_bilinear2d.vec", ((2, 3, 4, 5),), (None, False, [2.0, 3.0])),
    "bilinear to a smaller size": ("upsample_bilinear2d.vec", ((2, 3, 9, 8),), ([4, 5], False, None)),
    "bilinear, aligned": ("upsample_bilinear2d.vec", ((2, 3, 4, 5),), ([7, 11], True, None)),
    "trilinear, aligned": ("upsample_trilinear3d.vec", ((1, 2, 3, 4, 5),), ([6, 7, 8], True, None)),
    "groups of channels": ("conv2d.default", ((2, 6, 7, 8), (9, 2, 3, 3)), (None, [2, 1], [1, 1], [1, 1], 3)),
    "groups in one dimension": ("conv1d.default", ((2, 4, 9), (4, 2, 3)), (None, [1], [1], [2], 2)),
    "an average without its padding": ("avg_pool2d.default", ((2, 3, 7, 8),), ([3, 3], [2, 2], [1, 1], False, False)),
    "adaptive average": ("adaptive_avg_pool2d.default", ((2, 3, 12, 8),), ([3, 4],)),
    "attention of groups of heads": (
        "scaled_dot_product_attention.default",
        ((2, 6, 5, 4), (2, 2, 7, 4), (2, 2, 7, 4)),
        (),
    ),
}


@pytest.mark.parametrize("name", OPERATIONS_OF_WINDOWS)
def test_a_translation_computes_what_pytorch_does(name: str):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed: make train-tools")
    target, shapes, more = OPERATIONS_OF_WINDOWS[name]
    given = {"enable_gqa": True} if "attention" in target else {}
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(shape) for shape in shapes]
    wanted = operation_of(torch, target)(*map(torch.from_numpy, arrays), *more, **given).numpy()
    names = [f"x{place}" for place in range(len(shapes))]
    node = GraphNode("y", "call", f"aten.{target}", (*({"node": one} for one in names), *more), given, TensorSpec(wanted.shape, "float32"))  # fmt: skip
    made = function(
        program(*(value(one, *shape) for one, shape in zip(names, shapes, strict=True)), node), literal=True
    )
    found = loaded(made)(*arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def operation_of(torch: Any, target: str) -> Any:
    name, form = target.split(".")
    return getattr(getattr(torch.ops.aten, name), form)


def loaded(made: PartFunction) -> Any:
    """Returns a part's function, defined."""
    space: dict[str, Any] = {}
    exec(compile(reference_file([made], "A part."), "reference.py", "exec"), space)
    return space[made.name]


@pytest.mark.parametrize(
    ("target", "shape", "out", "args", "reason"),
    [
        (
            "upsample_nearest2d.vec",
            (2, 3, 4, 5),
            (2, 3, 6, 7),
            (None, [1.5, 1.5]),
            "by a factor that is not an integer",
        ),
        (
            "upsample_bilinear2d.vec",
            (2, 3, 4, 5),
            (2, 3, 6, 7),
            (None, False, [1.5, 1.5]),
            "a factor that is not an integer",
        ),
        ("upsample_bilinear2d.vec", (2, 3, 4, 5), (2, 3, 1, 1), ([1, 1], True, None), "to one element"),
        ("adaptive_avg_pool2d.default", (2, 3, 7, 5), (2, 3, 3, 2), ([3, 2],), "windows that are not all of one size"),
    ],
)
def test_windows_of_other_kinds_are_refused_with_their_reason(
    target: str, shape: tuple[int, ...], out: tuple[int, ...], args: tuple[object, ...], reason: str
):
    with pytest.raises(Untranslated, match=reason):
        function(program(value("x", *shape), call("y", target, "x", *args, shape=out)))


def test_free_sizes_are_upsampled_by_the_factor_between_them():
    made = function(
        program(
            value("x", "s0", 3, "2*s1", 8),
            call("y", "upsample_nearest2d.vec", "x", None, [2.0, 2.0], shape=("s0", 3, "4*s1", 16)),
            symbols={"s0": 2, "s1": 5, "2*s1": 10, "4*s1": 20},
        )
    )
    assert "np.repeat(np.repeat(x, 2, axis=2), 2, axis=3)" in made.text


def layers(last: int) -> ModelProgram:
    """Returns a program of two layers, the second of which has so many results."""
    return program(
        value("x", 4, 8),
        value("w0", 8, 8, kind="parameter"),
        value("w1", last, 8, kind="parameter"),
        call("a", "linear.default", "x", "w0", shape=(4, 8)),
        call("b", "gelu.default", "a", shape=(4, 8)),
        call("c", "linear.default", "b", "w1", shape=(4, last)),
        call("d", "gelu.default", "c", shape=(4, last)),
    )


def test_layers_of_one_kind_have_one_structure_and_others_another():
    alike, others = layers(8), layers(6)
    assert structure(alike, alike.nodes[3:5]) == structure(alike, alike.nodes[5:7])
    assert structure(others, others.nodes[3:5]) != structure(others, others.nodes[5:7])
    assert structure(alike, alike.nodes[3:4]) != structure(alike, alike.nodes[4:5])
    inner = structs.replace(alike, outputs=("d", "c"))  # the product is used outside of the part, too
    assert structure(inner, inner.nodes[3:5]) != structure(inner, inner.nodes[5:7])


def test_of_the_shorter_parts_those_with_one_result_come_first():
    nodes = [
        value("x", 4, 8),
        value("w", 8, 8, kind="parameter"),
        call("a", "linear.default", "x", "w", shape=(4, 8)),
        call("b", "add.Tensor", "a", "x", shape=(4, 8)),
        call("c", "pow.Tensor_Scalar", "b", 2, shape=(4, 8)),
        call("d", "mul.Tensor", "b", "c", shape=(4, 8)),
        call("e", "linear.default", "d", "w", shape=(4, 8)),
        call("f", "mul.Tensor", "e", "b", shape=(4, 8)),
    ]
    assert list(part_lengths(program(*nodes), nodes[2:])) == [6, 2, 4, 3, 1]


def test_computations_that_have_nothing_to_do_with_each_other_are_parts_of_their_own():
    nodes = [
        value("x", 4, 8),
        value("y", 4, 8),
        call("a", "exp.default", "x", shape=(4, 8)),
        call("b", "mul.Tensor", "a", "a", shape=(4, 8)),
        call("c", "exp.default", "y", shape=(4, 8)),
    ]
    assert connected_count(program(*nodes), nodes[2:]) == 2
    joined = [*nodes, call("d", "add.Tensor", "b", "c", shape=(4, 8))]
    assert connected_count(program(*joined), joined[2:]) == 4


def test_products_beside_interleaved_slices_are_left_to_a_library():
    gates = [
        call("a", "linear.default", "x", "w", shape=(4, 48)),
        call("b", "slice.Tensor", "a", 1, 0, 16, shape=(4, 16)),
        call("c", "sigmoid.default", "b", shape=(4, 16)),
    ]
    convolution = [call("a", "conv2d.default", "x", "w", shape=(4, 8, 5, 5)), gates[2]]
    assert "interleaved-4".startswith(untiled(gates))
    assert not "interleaved-4".startswith(untiled(convolution))


def test_views_come_before_the_operation_that_takes_them():
    nodes = [
        call("a", "slice.Tensor", "x", 1, 0, 4, shape=(4, 4)),
        call("b", "exp.default", "x", shape=(4, 8)),
        call("c", "unsqueeze.default", "a", 0, shape=(1, 4, 4)),
        call("d", "exp.default", "c", shape=(1, 4, 4)),
    ]
    assert [one.name for one in views_late(nodes)] == ["b", "a", "c", "d"]
