"""Recognises parts of a graph that torch has one function for: activations, softmax, normalisations of rows.

A part is evaluated on small random arrays in float64, and is the function whose values it has there. How the reference spells it does not
matter. A time of the parts would not be the time of what people use. The formulas are those of torch.nn.functional's documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, TypeAlias

import numpy as np

from kernelmate.records import Contract, Size
from kernelmate.source import evaluate as evaluate_expression
from kernelmate.synthesis.graph import Graph, Node, evaluate, pruned

Array = np.ndarray[Any, np.dtype[np.float64]]

MOST_CUTS = 12
"""Maximum number of parts that are tried for each result; the smallest are left out."""

MOST_ELEMENTS, FEWEST_ELEMENTS = 1 << 16, 8
"""Elements of the largest and smallest results by which parts are recognised."""

EQUAL = 1e-11
"""Largest difference of two equal functions, relative to the value or to one; float64 gives about 1e-15 per operation."""

LARGEST = 6.0
"""Values are drawn from -LARGEST to LARGEST, where all functions here differ from each other."""

NUMBERS = frozenset({"constant", "scalar", "size"})

_erf = np.vectorize(math.erf, otypes=[float])

ACTIVATIONS: Mapping[str, tuple[Callable[[Array], Array], str]] = {
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ""),
    "nn.functional.silu": (lambda x: x / (1 + np.exp(-x)), ""),
    "nn.functional.gelu": (lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), ""),
    "nn.functional.gelu tanh": (
        lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        ', approximate="tanh"',
    ),
    "nn.functional.softplus": (lambda x: np.log1p(np.exp(x)), ""),
    "nn.functional.mish": (lambda x: x * np.tanh(np.log1p(np.exp(x))), ""),
    "nn.functional.relu": (lambda x: np.maximum(x, 0), ""),
}
"""By name in torch: the formula, and further arguments as text."""


@dataclass(frozen=True, slots=True)
class KnownFunction:
    """A part of a graph that one function of torch computes.

    Attributes:
        name: the function, without `torch.`.
        source: the node that it is computed from.
        weights: nodes of its weight and bias, as far as it has them.
        arguments: its further arguments as text; empty for a normalisation, which takes the length of the last axis.
        eps: the node of its epsilon; None if there is none.
    """

    name: str
    source: int
    weights: tuple[int, ...]
    arguments: str
    eps: int | None = None


def known_function(graph: Graph, index: int, size: Size) -> KnownFunction | None:
    """Returns the function of torch that gives a node's value; None if there is none. `size` is one of `small_size`."""
    node = graph.nodes[index]
    if node.op != "map" or not node.shape or not node.dtype.startswith("float"):
        return None
    for source, weights, between in _cuts(graph, index):
        found = _of_cut(graph, index, (source, weights, between), size)
        if found is not None:
            return found
    return None


def small_size(contract: Contract) -> Size:
    """Returns a size to evaluate parts at: the smallest listed one of usual arrays, else a size with different values."""
    listed = sorted(contract.sizes, key=lambda one: math.prod(one.values()))
    small = (one for one in listed if one and min(one.values()) > 1 and math.prod(one.values()) <= MOST_ELEMENTS)
    return next(small, {name: 8 + 3 * place for place, name in enumerate(contract.sizes[0])})


Cut: TypeAlias = tuple[int, tuple[int, ...], tuple[int, ...]]
"""A part: the node that it begins with, its vectors, and the numbers in it."""


def _cuts(graph: Graph, index: int) -> Iterator[Cut]:
    """Yields parts that end in a node, the largest first.

    A part has one array of the result's shape, and at most two vectors as long as its last axis.
    """
    nodes = graph.nodes
    frontier, numbers, found = {*nodes[index].args}, set[int](), []
    while True:
        numbers |= {one for one in frontier if nodes[one].op in NUMBERS and not nodes[one].shape}
        frontier -= numbers
        alike = [one for one in frontier if nodes[one].shape == nodes[index].shape]
        others = tuple(sorted(frontier.difference(alike)))
        if len(alike) == 1 and len(others) <= 2 and all(_is_vector(nodes[one], nodes[index]) for one in others):
            found.append((alike[0], others, tuple(sorted(numbers))))
        inner = [one for one in frontier if nodes[one].args]
        if not inner:
            break
        frontier = frontier - {max(inner)} | {*nodes[max(inner)].args}
    yield from reversed(found[-MOST_CUTS:])


def _is_vector(node: Node, result: Node) -> bool:
    return node.op == "input" and node.shape == result.shape[-1:]


def _of_cut(graph: Graph, index: int, cut: Cut, size: Size) -> KnownFunction | None:
    source, weights, _ = cut
    try:
        given, values, result = _evaluated(graph, index, cut, size)
    except (ValueError, TypeError, IndexError, KeyError, ArithmeticError, MemoryError):
        return None  # a part that has no value at this size
    if result.size < FEWEST_ELEMENTS:
        return None
    vectors = {one: given[place + 1] for place, one in enumerate(weights)}
    found = None if vectors else _of_one(given[0], source, result)
    return found or _of_rows(given[0], source, vectors, ((None, 0.0), *values.items()), result)


def _of_one(x: Array, source: int, result: Array) -> KnownFunction | None:
    """Returns the activation, softmax or log-softmax of an array that a result is."""
    for name, (formula, arguments) in ACTIVATIONS.items():
        if _same(formula(x), result):
            return KnownFunction(name.partition(" ")[0], source, (), arguments)
    for axis in range(x.ndim):
        shifted = x - x.max(axis, keepdims=True)
        total = np.exp(shifted).sum(axis, keepdims=True)
        for name, value in (("softmax", np.exp(shifted) / total), ("log_softmax", shifted - np.log(total))):
            if _same(value, result):
                return KnownFunction(name, source, (), f", dim={axis}")
    return None


def _of_rows(
    x: Array, source: int, vectors: Mapping[int, Array], numbers: Sequence[tuple[int | None, float]], result: Array
) -> KnownFunction | None:
    """Returns the normalisation of an array's rows that gives a result; `vectors` are weight and bias in either order."""
    for eps, number in numbers:
        for name, value in _normalised(x, number):
            for order in permutations(vectors) if name == "layer_norm" or len(vectors) < 2 else ():
                if _same(_affine(value, [vectors[one] for one in order]), result):
                    return KnownFunction(f"nn.functional.{name}", source, order, "", eps)
    return None


def _normalised(x: Array, eps: float) -> Iterator[tuple[str, Array]]:
    """Yields both normalisations of the last axis: `layer_norm` and `rms_norm`."""
    centred = x - x.mean(-1, keepdims=True)
    with np.errstate(all="ignore"):
        yield "layer_norm", centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
        yield "rms_norm", x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)


def _affine(value: Array, vectors: Sequence[Array]) -> Array:
    for place, vector in enumerate(vectors):
        value = value + vector if place else value * vector
    return value


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and bool(np.all(np.abs(one - other) <= EQUAL * np.maximum(np.abs(one), 1.0)))


def _evaluated(graph: Graph, index: int, cut: Cut, size: Size) -> tuple[list[Array], dict[int, float], Array]:
    """Evaluates a part on random arrays: returns these, the values of its numbers, and its result.

    Raises:
        ValueError: the shapes do not fit together at this size.
    """
    source, weights, numbers = cut
    draw = np.random.default_rng(0)
    nodes, arrays = list(graph.nodes), []
    values: dict[str, Any] = {str(one.data[0]): draw.uniform(0.1, 1.0) for one in nodes if one.op == "scalar"}
    for one in (source, *weights):
        name = f"cut {one}"
        nodes[one] = replace(nodes[one], op="input", args=(), data=(name,), dtype="float64")
        shape = tuple(int(evaluate_expression(side, size)) for side in nodes[one].shape)
        values[name] = draw.uniform(-LARGEST, LARGEST, shape)
        arrays.append(values[name])
    with np.errstate(all="ignore"):
        result, *held = evaluate(pruned(nodes, (index, *numbers)), values, size)
    return arrays, dict(zip(numbers, map(float, held), strict=True)), np.asarray(result)
