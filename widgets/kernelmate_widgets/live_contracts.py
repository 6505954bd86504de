"""Contracts from live objects: `--args`, `--grid`, `--block`, `--shared` and `--ref` name objects of the notebook.

Arrays are copied to files that the worker reads; a reference function is serialised by value. No memory of the notebook
is shared.
"""

from __future__ import annotations

import ast
import base64
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate.errors import UsageError
from kernelmate.records import Argument, Contract, Kernel, Parameter
from kernelmate.source import infer_contract, parse_contract
from kernelmate.source.expressions import BLOCK_NAMES, RESERVED, ExpressionError, names_in
from kernelmate.source.infer_accesses import array_accesses
from kernelmate_widgets.arguments import CallArgument, check_against, read_arguments, scalar_of, solve_size
from kernelmate_widgets.arrays import LiveArray, live_array
from kernelmate_widgets.cells import is_name, short_name

Evaluate = Callable[[str], Any]
"""Function that evaluates an expression in the user's namespace; it does not catch exceptions."""

AMBIGUOUS_BELOW = 2
"""Extents below this are not matched with size names, since they are ambiguous."""


@dataclass(frozen=True, slots=True)
class LineArguments:
    """Expressions in a magic's line, as typed; None for an absent one."""

    args: str | None = None
    grid: str | None = None
    block: str | None = None
    shared: str | None = None
    ref: str | None = None

    @property
    def anything(self) -> bool:
        """True if the line names any live object."""
        return any(text is not None for text in (self.args, self.grid, self.block, self.shared, self.ref))


def live_contract(kernel: Kernel, wanted: LineArguments, evaluate: Evaluate, folder: Path) -> Contract | None:
    """Returns the contract for live objects; None if the line names none, so that the cell's own applies.

    Args:
        kernel: the cell's kernel.
        wanted: objects named in the magic line.
        evaluate: evaluates an expression in the user's namespace.
        folder: folder of copies for the worker; it must live as long as the contract.

    Raises:
        UsageError: a name, an array or a launch does not fit the kernel.
        ContractError: the cell's own contract is invalid.
    """
    if not wanted.anything:
        return None
    if kernel.parts:
        raise UsageError(
            "A pipeline is judged by its contract, which names the arrays and launches of its stages.",
            hint="Leave out --args, --grid, --block, --shared and --ref.",
        )
    written = parse_contract(kernel)
    if kernel.unit.language == "triton" and (wanted.args or wanted.block or wanted.shared or written is None):
        raise UsageError(
            "A Triton kernel is judged by the contract above its function.",
            hint="Write one in # comments (see docs/triton.md); a launch here may only add a grid and a reference.",
        )
    names: Mapping[str, str] = {}
    if wanted.args is not None:
        contract, names = _with_arrays(kernel, written, wanted.args, evaluate, folder)
    else:
        contract = written or infer_contract(kernel)
    contract = _with_launch(contract, wanted, names, evaluate)
    if wanted.ref is not None:
        contract = _with_reference(contract, wanted.ref, evaluate, folder)
    return contract


# ------------------------------------------------------------------------------------------------------ arrays


def _with_arrays(
    kernel: Kernel, written: Contract | None, text: str, evaluate: Evaluate, folder: Path
) -> tuple[Contract, Mapping[str, str]]:
    """Returns the contract for live arrays, and the kernel's parameter name for each name of the user's."""
    texts = split(text)
    parameters = kernel.signature.parameters
    if len(texts) != len(parameters):
        takes = ", ".join(parameter.name for parameter in parameters)
        raise UsageError(
            f"{short_name(kernel)} takes {len(parameters)} arguments ({takes}); --args names {len(texts)}.",
            hint="Name them in the kernel's order, separated by commas.",
        )
    values = [value_of(one, evaluate, "--args") for one in texts]
    base = written if written is not None else _described(kernel, values)
    given = read_arguments(kernel, base, values, "emulator" if _all_host(values) else "cuda")
    size = solve_size(base, given)
    if size is None:
        open_names = ", ".join(base.sizes[0])
        raise UsageError(
            f"The arrays and scalars of --args do not determine {open_names}.",
            hint="Pass arrays of the contract's shapes, dimension for dimension.",
        )
    check_against(base, size, given)
    stored = _store(given, folder)
    args = tuple(_live_argument(one, stored, written is not None) for one in given)
    others = tuple(one for one in base.sizes if dict(one) != dict(size)) if written is not None else ()
    renamed = {one: parameter.name for one, parameter in zip(texts, parameters, strict=True) if is_name(one)}
    return replace(base, args=args, sizes=(size, *others), weights=()), renamed


def _described(kernel: Kernel, values: Sequence[object]) -> Contract:
    """Returns a contract from the kernel's signature and the live arrays: dtypes, and shapes in terms of size names.

    If the names of any shape are ambiguous or missing, all shapes are numbers and no size is varied.
    """
    pairs = list(zip(kernel.signature.parameters, values, strict=True))
    extents = {p.name: int(value) for p, value in pairs if isinstance(value, int | np.integer) and _is_size(p, value)}
    shapes = {p.name: array.shape for p, value in pairs if (array := live_array(value)) is not None}
    held = [array.dtype for _, value in pairs if (array := live_array(value)) is not None]
    named = {name: _named_shape(shape, extents) for name, shape in shapes.items()}
    varied = all(one is not None for one in named.values()) and all("float" in dtype for dtype in held)
    args = []
    used = array_accesses(kernel, tuple(extents), ())
    for parameter, value in pairs:
        array = live_array(value)
        if array is not None:
            shape = (named[parameter.name] if varied else tuple(map(str, array.shape))) or ()
            argument = _array_argument(parameter, array, shape)
            seen = used.get(parameter.name)
            # What an earlier launch left in an array that is written whole is no input: it may be the answer.
            whole = seen is not None and seen.direction == "out" and seen.shape == shape
            args.append(replace(argument, direction="out") if whole else argument)
        else:
            args.append(_scalar_argument(parameter, value, varied and parameter.name in extents))
    sizes = (extents if varied else {},)
    return Contract(short_name(kernel) if "::" not in kernel.name else kernel.name, sizes, (), (), tuple(args))


def _is_size(parameter: Parameter, value: int | np.integer[Any]) -> bool:
    whole = not isinstance(value, bool) and int(value) >= 0
    usable = parameter.name.isascii() and is_name(parameter.name) and parameter.name not in RESERVED
    return not parameter.pointer and whole and usable


def _named_shape(shape: Sequence[int], extents: Mapping[str, int]) -> tuple[str, ...] | None:
    """Returns a shape in terms of size names; None if a dimension matches no name or several."""
    named = []
    for extent in shape:
        found = list(_expressions(extent, extents))
        if extent < AMBIGUOUS_BELOW or len(found) != 1:
            return None
        named.append(found[0])
    return tuple(named)


def _expressions(extent: int, extents: Mapping[str, int]) -> Iterator[str]:
    """Yields the size names that equal an extent; without any, products of two or three names that do."""
    alone = [name for name, value in extents.items() if value == extent]
    if alone:
        yield from alone
        return
    for count in (2, 3):
        for names in combinations([name for name, value in extents.items() if value >= AMBIGUOUS_BELOW], count):
            if int(np.prod([extents[name] for name in names], dtype=object)) == extent:
                yield " * ".join(names)


def _array_argument(parameter: Parameter, array: LiveArray, shape: tuple[str, ...]) -> Argument:
    if not parameter.pointer:
        raise UsageError(
            f"{parameter.name} is a scalar ({parameter.type}); --args gives {array.where}.",
            hint="Name the arguments in the kernel's order.",
        )
    if parameter.dtype is not None and parameter.dtype != array.dtype:
        raise UsageError(
            f"{parameter.name} is {parameter.type}, so it takes {parameter.dtype}; --args gives {array.where} of {array.dtype}.",
            hint="Convert the array, or change the kernel.",
        )
    return Argument(parameter.name, "in" if parameter.const else "inout", array.dtype, shape)


def _scalar_argument(parameter: Parameter, value: object, size: bool) -> Argument:
    if parameter.pointer or parameter.dtype is None:
        kind = type(value).__name__
        raise UsageError(
            f"{parameter.name} is {parameter.type}; --args gives a {kind}, which cannot be passed for it.",
            hint="Give an array of NumPy, CuPy or torch for a pointer, a plain number for a scalar.",
        )
    argument = Argument(parameter.name, None, parameter.dtype)
    if size:
        return argument
    number = scalar_of(argument, value).item()
    return replace(argument, value=_number_text(number))


def _number_text(number: Any) -> str:
    return repr(float(number)) if isinstance(number, float) else str(int(number))


def _live_argument(one: CallArgument, stored: Path, written: bool) -> Argument:
    if one.array is None:
        if one.scalar is not None and one.argument.value is not None and _is_number(one.argument.value):
            return replace(one.argument, value=_number_text(one.scalar.item()))
        return one.argument
    if one.argument.direction == "out":
        return one.argument
    rest = f" | {one.argument.distribution}" if written and one.argument.distribution is not None else ""
    return replace(one.argument, distribution=f"live('{stored}'){rest}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _all_host(values: Sequence[object]) -> bool:
    arrays = [array for value in values if (array := live_array(value)) is not None]
    return all(array.device is None for array in arrays)


def _store(given: Sequence[CallArgument], folder: Path) -> Path:
    """Stores copies of all arrays in one file, as bytes and shapes, since NumPy's format lacks bfloat16."""
    held: dict[str, np.ndarray[Any, Any]] = {}
    for one in given:
        if one.array is not None and one.argument.direction != "out":
            contents = one.array.copied()
            held[one.argument.name] = np.frombuffer(contents.tobytes(), np.uint8)
            held[f"{one.argument.name}.shape"] = np.asarray(contents.shape, np.int64)
    path = folder / "live.npz"
    np.savez(path, **held)  # type: ignore[arg-type]
    return path


# ------------------------------------------------------------------------------------------------------ launch


def _with_launch(contract: Contract, wanted: LineArguments, names: Mapping[str, str], evaluate: Evaluate) -> Contract:
    """Returns the contract with the launch options of the line.

    Raises:
        UsageError: grid or block is neither named nor in the contract.
    """
    sizes = set(contract.sizes[0])
    if wanted.block is not None:
        contract = replace(contract, block=_sides(wanted.block, "--block", sizes, names, evaluate))
    if wanted.grid is not None:
        contract = replace(contract, grid=_sides(wanted.grid, "--grid", sizes | set(BLOCK_NAMES), names, evaluate))
    if wanted.shared is not None:
        known = sizes | set(BLOCK_NAMES)
        contract = replace(contract, shared=_sides(wanted.shared, "--shared", known, names, evaluate)[0])
    missing = [f"--{name}" for name in ("grid", "block") if not getattr(contract, name)]
    if missing:
        raise UsageError(
            f"The launch of {contract.kernel} is not known: {' and '.join(missing)} is missing.",
            hint="Give --grid and --block, or a contract block above the kernel.",
        )
    return contract


def _sides(text: str, option: str, known: set[str], names: Mapping[str, str], evaluate: Evaluate) -> tuple[str, ...]:
    """Returns one to three grid or block expressions over the contract's sizes, or values evaluated in Python."""
    parts = split(text)
    try:
        sides: tuple[str, ...] = tuple(_over_sizes(part, option, known, names, evaluate) for part in parts)
    except ExpressionError:
        value = value_of(text, evaluate, option)
        several = value if isinstance(value, tuple | list) else (value,)
        if not all(isinstance(side, int | np.integer) and not isinstance(side, bool) for side in several):
            hint = "Give whole numbers or expressions over the kernel's sizes, as in cdiv(n, block)."
            raise UsageError(f"{option} {text} is not a launch.", hint=hint) from None
        sides = tuple(str(int(side)) for side in several)
    if not 1 <= len(sides) <= 3:
        raise UsageError(f"{option} {text} has {len(sides)} sides.", hint="Give one to three.")
    return sides


def _over_sizes(text: str, option: str, known: set[str], names: Mapping[str, str], evaluate: Evaluate) -> str:
    """Returns an expression over the contract's sizes; any other name is replaced by the whole number that it holds.

    Raises:
        ExpressionError: it is not an expression of contracts, or another name holds something else.
        UsageError: another name is not defined.
    """
    others = {name for name, _ in names_in(text) if names.get(name, name) not in known}
    values = {name: value_of(name, evaluate, option) for name in sorted(others)}
    if not all(isinstance(one, int | np.integer) and not isinstance(one, bool) for one in values.values()):
        raise ExpressionError(f"{text!r} is not an expression over sizes.")
    tree = ast.parse(text.strip(), mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = str(int(values[node.id])) if node.id in values else names.get(node.id, node.id)
    return ast.unparse(tree)


# --------------------------------------------------------------------------------------------------- reference


def _with_reference(contract: Contract, text: str, evaluate: Evaluate, folder: Path) -> Contract:
    """Returns the contract with a function of the notebook, serialised by value, as reference."""
    function = value_of(text, evaluate, "--ref")
    if not callable(function):
        raise UsageError(
            f"--ref {text} is a {type(function).__name__}, not a function.",
            hint="Name a Python function that returns the expected arrays.",
        )
    _check_parameters(contract, function, text)
    where = carried_function(function, text, folder, f"--ref {text}")
    return replace(contract, reference=where, reference_kind="function")


def carried_function(function: Callable[..., Any], text: str, folder: Path, asked: str) -> str:
    """Serialise a function of the notebook by value, to a file that the worker can load; returns `path:function`.

    Args:
        function: the function.
        text: the user's expression for it.
        folder: folder of the file.
        asked: the option or command that names it, for errors.

    Raises:
        UsageError: the function cannot be serialised, or cloudpickle is not installed.
    """
    try:
        import cloudpickle
    except ImportError:
        raise UsageError(
            f"{asked} needs cloudpickle, which is not installed.", hint="pip install 'kernelmate[notebook]'"
        ) from None
    try:
        carried = cloudpickle.dumps(function)
    except Exception as error:
        raise UsageError(
            f"{asked} cannot be sent to the worker: {type(error).__name__}: {error}.",
            hint="Let it use its arguments and modules only, or put it in a file and name it in the contract.",
        ) from error
    name = text if is_name(text) else "reference"
    path = folder / f"{name}.py"
    encoded = base64.b64encode(carried).decode()
    path.write_text(_SHIM.format(name=name, path=[one for one in sys.path if one], carried=encoded))
    return f"{path}:{name}"


_SHIM = '''"""A function of a notebook, for the worker."""
import base64
import pickle
import sys

sys.path += [one for one in {path!r} if one not in sys.path]
{name} = pickle.loads(base64.b64decode("{carried}"))
'''


def _check_parameters(contract: Contract, function: Callable[..., Any], text: str) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        hint = f"Wrap it: lambda {contract.args[0].name}: {text}(...)."
        raise UsageError(f"The parameters of --ref {text} cannot be inspected.", hint=hint) from None
    names = {*contract.sizes[0], *(argument.name for argument in contract.args)}
    known = {f"{name}_" if not is_name(name) else name for name in names}
    needed = [
        one.name
        for one in parameters
        if one.default is one.empty and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]
    unknown = [name for name in needed if name not in known]
    if unknown:
        raise UsageError(
            f"--ref {text} takes {', '.join(unknown)}, and the kernel has no such argument.",
            hint=f"Its parameters may be {', '.join(sorted(known))}; it gets NumPy arrays by these names.",
        )


# ----------------------------------------------------------------------------------------------------- reading


def split(text: str) -> list[str]:
    """Returns the elements of a Python tuple, as text.

    Raises:
        UsageError: the text is not a Python expression.
    """
    try:
        tree = ast.parse(f"({text.strip().rstrip(',')},)", mode="eval").body
    except (SyntaxError, ValueError):
        raise UsageError(f"{text!r} cannot be read.", hint="Write Python expressions separated by commas.") from None
    if not isinstance(tree, ast.Tuple):
        return [text]
    # A tuple in its own parentheses, as Python users write a grid.
    if len(tree.elts) == 1 and isinstance(tree.elts[0], ast.Tuple):
        tree = tree.elts[0]
    return [ast.unparse(one) for one in tree.elts]


def value_of(text: str, evaluate: Evaluate, option: str) -> Any:
    """Returns the value of an expression in an option or a command.

    Raises:
        UsageError: the evaluation raised an exception, which the message gives.
    """
    try:
        return evaluate(text)
    except Exception as error:
        raise UsageError(
            f"{option}: {text} has no value: {type(error).__name__}: {error}.",
            hint="Run the cell that defines it first.",
        ) from error
