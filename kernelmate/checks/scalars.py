"""Variation of scalar arguments around the contract's values."""

from __future__ import annotations

import ast
import inspect
import math
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.checks.precision import Array, is_float
from kernelmate.checks.userfiles import load_function
from kernelmate.errors import KernelmateError
from kernelmate.records import Argument, Contract, Size
from kernelmate.source import numpy_dtype, scalar_value

LEAST_FACTOR, MOST_FACTOR = 0.5, 2.0
"""Bounds of the factor for a floating scalar."""

UNMOVED = 0.8, 1.25
"""Interval of factors that are avoided, since their effect would be too small to notice."""

FOR_ZERO = 0.25, 0.9
"""Bounds of the replacement for a floating scalar that is 0 in the contract."""


def varied_names(contract: Contract, directory: Path) -> tuple[str, ...]:
    """Returns scalars that may be varied.

    These are scalars with a literal value that are not `fixed`; with a Python reference, only those that it takes as
    arguments.

    Raises:
        ReferenceFailed: the reference's file cannot be loaded.
    """
    return tuple(a.name for a in _free(contract) if _takes(contract, a.name, directory))


def untaken_names(contract: Contract, directory: Path) -> frozenset[str]:
    """Returns floating-point scalars with a literal value that are not `fixed` and that the Python reference does not take.

    It has their values as numbers, such as `1e-5` for `eps`, so that other values cannot be compared.

    Raises:
        ReferenceFailed: the reference's file cannot be loaded.
    """
    floats = [a.name for a in _free(contract) if is_float(numpy_dtype(a.dtype))]
    return frozenset(name for name in floats if not _takes(contract, name, directory))


def _free(contract: Contract) -> list[Argument]:
    return [a for a in contract.args if a.shape is None and not a.fixed and _literal(a)]


def has_switches(contract: Contract, names: Iterable[str]) -> bool:
    """Returns True if one of the named integer scalars is 1 or -1, which are typical values of flags."""
    wanted = frozenset(names)
    some = [a for a in contract.args if a.name in wanted and not is_float(numpy_dtype(a.dtype))]
    return any(abs(scalar_value(a, {})) == 1 for a in some)


def _literal(argument: Argument) -> bool:
    """Returns True if a value is a finite number that does not depend on sizes."""
    if argument.value is None:
        return False
    try:
        value = scalar_value(argument, {})
    except KernelmateError:
        return False
    return math.isfinite(value)


def _takes(contract: Contract, name: str, directory: Path) -> bool:
    if contract.reference_kind == "function":
        named = inspect.signature(load_function(contract.reference or "", directory, contract.line)).parameters
        return any(p.kind is p.VAR_KEYWORD or p.name.rstrip("_") == name.rstrip("_") for p in named.values())
    if contract.reference_kind == "expression":
        tree = ast.parse(contract.reference or "", mode="eval")
        return any(isinstance(node, ast.Name) and node.id in (name, f"{name}_") for node in ast.walk(tree))
    return True


COUNTING = frozenset(
    {"arange", "bincount", "empty", "eye", "full", "histogram", "ones", "range", "repeat", "tile", "zeros"}
)
"""Functions whose run time and memory grow with the values of their arguments."""


def loops(contract: Contract, directory: Path) -> bool:
    """Returns True if a Python reference loops or calls a function of `COUNTING`, so that large integers would be expensive.

    Raises:
        ReferenceFailed: the reference's file cannot be loaded.
    """
    if contract.reference_kind not in ("function", "expression"):
        return False
    tree = _reference_tree(contract, directory)
    return tree is None or any(True for _ in _counts(tree))


def counted_names(contract: Contract, directory: Path, names: Iterable[str]) -> frozenset[str]:
    """Returns those of the named scalars whose value may decide how often a reference loops, or how much it allocates.

    All of them, if the reference is a kernel or its text is unknown.

    Raises:
        ReferenceFailed: the reference's file cannot be loaded.
    """
    tree = _reference_tree(contract, directory) if contract.reference_kind in ("function", "expression") else None
    if tree is None:
        return frozenset(names) if contract.reference_kind is not None else frozenset()
    counts = frozenset[str]().union(*(_names_in(one) for one in _counts(tree)))
    assignments = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.NamedExpr
    assigned = [(_names_in(n, ast.Store), _names_in(n)) for n in ast.walk(tree) if isinstance(n, assignments)]
    while True:
        more = counts.union(*(read for written, read in assigned if written & counts))
        if more == counts:
            return frozenset(name for name in names if {name, f"{name}_"} & counts)
        counts = more


def _reference_tree(contract: Contract, directory: Path) -> ast.AST | None:
    """Returns the syntax tree of a Python reference; None if its text is unknown."""
    if contract.reference_kind == "expression":
        return ast.parse(contract.reference or "", mode="eval")
    function = load_function(contract.reference or "", directory, contract.line)
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None


def _counts(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields the expressions that determine the number of a loop's iterations, and functions of `COUNTING`, with their arguments if they are called."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.comprehension):
            yield node.iter
        elif isinstance(node, ast.While) or _name_of(node.func if isinstance(node, ast.Call) else node) in COUNTING:
            yield node


def _name_of(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _names_in(tree: ast.AST, use: type[ast.expr_context] = ast.expr_context) -> frozenset[str]:
    return frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, use))


def varied(
    contract: Contract, size: Size, names: Iterable[str], seed: tuple[int, ...], *, zeros: bool = False
) -> dict[str, Array]:
    """Draws other values for some scalars, each as an array without dimensions.

    Args:
        contract: the contract with the usual values.
        size: the size at which the contract's expressions are evaluated.
        names: the names of the scalars.
        seed: the seed of the random values.
        zeros: True allows 0 as a replacement of 1 and -1, which are often flags.
    """
    wanted = frozenset(names)
    rng = np.random.default_rng(np.random.SeedSequence((*seed, 0x5CA1A)))
    made: dict[str, Array] = {}
    for argument in contract.args:
        if argument.name in wanted:
            dtype, value = numpy_dtype(argument.dtype), scalar_value(argument, size, contract.line)
            other = _fraction(value, rng) if is_float(dtype) else _whole(int(value), dtype, rng, zeros=zeros)
            made[argument.name] = np.asarray(other).astype(dtype)
    return made


def _fraction(value: float, rng: np.random.Generator) -> float:
    """Draws another floating value: a positive fraction for 0, else the value times a factor."""
    return _factor(value, rng) * value if value else float(rng.uniform(*FOR_ZERO))


def _factor(value: float, rng: np.random.Generator) -> float:
    """Draws a factor; values below 1 stay below 1, since many are rates, fractions or probabilities."""
    most = min(MOST_FACTOR, (1 + abs(value)) / 2 / abs(value)) if abs(value) < 1 else MOST_FACTOR
    if most < UNMOVED[1] or rng.integers(0, 2):
        return float(rng.uniform(LEAST_FACTOR, UNMOVED[0]))
    return float(rng.uniform(UNMOVED[1], most))


def nearby(value: int) -> set[int]:
    """Returns the integers that may replace a given one."""
    return {value - 1, value + 1, 2 * value, value // 2}


def _whole(value: int, dtype: np.dtype[Any], rng: np.random.Generator, *, zeros: bool) -> int:
    """Draws another integer near a value and of its sign; booleans and 0 are negated, `zeros` allows 0 for 1 and -1."""
    if dtype.kind == "b" or value == 0:
        return int(not value)
    info = np.iinfo(dtype)
    fitting = sorted(one for one in nearby(value) if one * value > 0 and one != value and info.min <= one <= info.max)
    if zeros and abs(value) == 1:
        fitting.append(0)
    return int(rng.choice(fitting)) if fitting else value


def varied_scalar_values(contract: Contract, size: Size, given: dict[str, Array]) -> dict[str, tuple[float, float]]:
    """Returns, for each scalar that the inputs of a launch varied, its value and the contract's."""
    found = {}
    for argument in contract.args:
        if argument.shape is None and argument.name in given:
            found[argument.name] = float(given[argument.name]), float(scalar_value(argument, size))
    return found
