"""Loads a module's file and makes the module and its example inputs, smaller where they would not fit into memory.

Used only in the module's own process.
"""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelmate_torch.nesting import PLAIN, Parameters, leaf_texts, leaves, parameters_of
from kernelmate_torch.program import ModelProgram, ModuleFailure

MOST_BYTES = 64 << 20
"""Bytes of example inputs where kernels run in the emulator, which takes them at much smaller sizes."""

SHARE = 16
"""Part of the available memory, as its divisor, that example inputs may take on a GPU: copies in float64 are twice as large."""

MOST_GPU_BYTES = 1 << 30
"""Bytes that they may take there: kernels are judged at smaller sizes, and serve larger ones."""

SMALLEST = 16
"""Smallest number that a size is halved to."""


def made_smaller(
    file: Any, limit: int, kept: frozenset[str] = frozenset(), *, together: bool = False
) -> dict[str, Any]:
    """Halves numbers of a module's file, the largest first, until the inputs of its `get_inputs` are small enough.

    Args:
        file: the imported file, whose numbers are replaced. First come those that only `get_inputs` uses, since sizes of the
            module's parameters follow from the others.
        limit: bytes that the inputs may take.
        kept: numbers that are not replaced.
        together: halve equal numbers together, those in tuples of the file too, for a module that needs equal sizes.

    Returns:
        The replaced numbers, by name; empty where the inputs fit, or their size cannot be determined without creating them.
    """
    make = getattr(file, "get_inputs", None)
    size = _bytes(make)
    if not callable(make) or size is None or size <= limit:
        return {}
    used = _numbers(file, make, tuples=together) - kept
    others = _numbers(file, getattr(file, "get_init_inputs", None), tuples=together)
    before = {name: getattr(file, name) for name in sorted(used)}
    for names in (used - others, used):
        while size is not None and size > limit:
            largest = max((one for name in names for one in _several(getattr(file, name))), default=0)
            if largest < 2 * SMALLEST:
                break
            chosen = [name for name in sorted(names) if largest in _several(getattr(file, name))]
            for name in chosen if together else chosen[:1]:
                setattr(file, name, _scaled(getattr(file, name), largest, largest // 2))
            size = _bytes(make)
    return {name: getattr(file, name) for name, value in before.items() if getattr(file, name) != value}


def numbers_of_fixed_sizes(loaded: LoadedModule, program: ModelProgram) -> frozenset[str]:
    """Returns the numbers that were made smaller and determine a size for which the program allows a single value.

    A kernel for such a size would not take the file's own inputs.
    """
    file = sys.modules[MODULE_NAME]
    make = getattr(file, "get_inputs", None)
    fixed = {
        one.target: {axis: side for axis, side in enumerate(one.tensor.shape) if isinstance(side, int)}
        for one in program.nodes
        if one.kind == "input" and one.tensor is not None
    }
    found = set()
    for name, value in loaded.smaller.items():
        setattr(file, name, tuple(2 * one for one in value) if isinstance(value, tuple) else 2 * value)
        shapes = _shapes(make) or ()
        setattr(file, name, value)
        for held, shape in zip(program.inputs, shapes, strict=False):
            if any(shape[axis] != side for axis, side in fixed.get(held, {}).items() if axis < len(shape)):
                found.add(name)
    return frozenset(found)


def _several(value: int | tuple[int, ...]) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


def _scaled(value: int | tuple[int, ...], before: int, after: int) -> int | tuple[int, ...]:
    """Returns a number, or a tuple of numbers, with one number replaced."""
    if isinstance(value, tuple):
        return tuple(after if one == before else one for one in value)
    return after


def _numbers(file: Any, function: Any, *, tuples: bool) -> set[str]:
    """Returns the names of the file's whole numbers, and of its tuples of whole numbers, that a function uses."""
    code = getattr(function, "__code__", None)
    held = {name: vars(file).get(name) for name in (() if code is None else code.co_names)}
    return {
        name
        for name, value in held.items()
        if type(value) is int or (tuples and type(value) is tuple and value and all(type(one) is int for one in value))
    }


def _bytes(make: Callable[[], Any] | None) -> int | None:
    """Returns the bytes of the inputs, which are not created; None if that cannot be determined."""
    given = _fakes(make)
    if given is None:
        return None
    sizes: list[int] = [int(one.element_size()) * math.prod(one.shape) for one in leaves(given) if torch.is_tensor(one)]
    return sum(sizes)


def _shapes(make: Callable[[], Any] | None) -> list[tuple[int, ...]] | None:
    """Returns the shapes of the inputs, () for an input that is not a tensor; None if they cannot be determined."""
    given = _fakes(make)
    return None if given is None else [tuple(one.shape) if torch.is_tensor(one) else () for one in leaves(given)]


def _fakes(make: Callable[[], Any] | None) -> list[Any] | None:
    """Returns the inputs without contents; None where they cannot be made so."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            return list(make()) if make is not None else []
    except Exception:  # noqa: BLE001 -- making them for real says what is wrong
        return None


def most_bytes(*, real_sizes: bool) -> int:
    """Returns the bytes that example inputs may take: with `real_sizes`, as on a GPU, a part of the available memory."""
    if not real_sizes:
        return MOST_BYTES
    try:
        return min(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // SHARE, MOST_GPU_BYTES)
    except (ValueError, OSError):
        return 16 * MOST_BYTES


MODULE_NAME = "kernelmate_ported_file"


class Refusal(Exception):
    """A request that fails for a reason that the user can act on."""

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None, hint: str | None = None):
        super().__init__(message)
        self.failure = ModuleFailure(message, file, line, hint)


@dataclass(frozen=True, slots=True)
class LoadedModule:
    """A module with its example inputs.

    Attributes:
        path: its file.
        model: the module, in eval mode; a function is wrapped.
        inputs: example inputs, positional.
        parameters: those of forward.
        initial: arguments of its class.
        smaller: numbers of the file that were made smaller, so that the inputs fit into memory.
    """

    path: Path
    model: torch.nn.Module
    inputs: tuple[Any, ...]
    parameters: Parameters
    initial: tuple[Any, ...]
    smaller: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Returns the texts of forward's parameters that the inputs are for."""
        return self.parameters.names


class FunctionModule(torch.nn.Module):
    """A module without state that calls a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: Any) -> Any:
        """Returns the function's result."""
        return self._function(*inputs)


def load(
    path: Path,
    name: str,
    inputs: str,
    seed: int,
    *,
    real_sizes: bool = False,
    limit: int | None = None,
    kept: frozenset[str] = frozenset(),
    together: bool = False,
) -> LoadedModule:
    """Loads a file and makes its module and example inputs.

    Args:
        path: the file.
        name: of the class or function.
        inputs: as of the option `--inputs`; empty for those of `get_inputs`.
        seed: set before the module is made, and before its inputs are.
        real_sizes: keep the sizes of large inputs as long as they fit into memory.
        limit: bytes that the inputs may take, in place of what `real_sizes` says.
        kept: numbers of the file that are not made smaller.
        together: make equal numbers smaller together.

    Raises:
        Refusal: the file, the module or its inputs need a change.
    """
    file = _imported(path)
    found = getattr(file, name, None)
    if found is None or not callable(found):
        known = [one for one, value in vars(file).items() if _portable(value)]
        near = difflib.get_close_matches(name, known, n=1)
        there = f"There is {', '.join(known)}." if known else "It defines no module and no function."
        raise Refusal(
            f"There is no {name} here.",
            file=str(path),
            hint=f"Did you mean {path}:{near[0]}?" if near else there,
        )
    most = most_bytes(real_sizes=real_sizes) if limit is None else limit
    smaller = {} if inputs else made_smaller(file, most, kept, together=together)
    torch.manual_seed(seed)
    initial: tuple[Any, ...] = ()
    if isinstance(found, type):
        made_by = getattr(file, "get_init_inputs", None)
        initial = tuple(_called(path, "get_init_inputs", made_by)) if callable(made_by) else ()
        model = _called(path, name, found, *initial)
    else:
        model = FunctionModule(found)
    if not isinstance(model, torch.nn.Module):
        raise Refusal(f"{name} is not a torch.nn.Module.", file=str(path), hint="Give a module's class, or a function.")
    forward = getattr(found, "forward", found)
    names = [
        one.name
        for one in inspect.signature(forward).parameters.values()
        if one.name != "self" and one.kind is not one.VAR_KEYWORD
    ]
    torch.manual_seed(seed)
    given = _inputs(path, file, names, inputs)
    parameters = parameters_of(forward, len(given))
    if len(given) > len(parameters.names):
        raise Refusal(
            f"{name} takes {len(parameters.names)} positional inputs, and {len(given)} are given.",
            file=str(path),
            hint="Correct get_inputs or --inputs.",
        )
    model.eval()
    _detach(model)
    _check_tensors(path, model, leaves(given), leaf_texts(parameters.names, given))
    return LoadedModule(path, model, given, parameters, initial, smaller)


def _portable(value: Any) -> bool:
    own = getattr(value, "__module__", "") == MODULE_NAME
    return own and (inspect.isfunction(value) or (isinstance(value, type) and issubclass(value, torch.nn.Module)))


def module_of(path: Path, name: str) -> Any:
    """Imports a Python file as the module of a name, in place of an earlier one; what the file raises is passed on."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _imported(path: Path) -> Any:
    try:
        return module_of(path, MODULE_NAME)
    except FileNotFoundError:
        raise Refusal(f"There is no file {path}.", hint="Give the path of a Python file.") from None
    except BaseException as error:  # noqa: BLE001 -- also sys.exit of the user's file
        raise refusal_of(error, path, "The file cannot be imported") from None


def _called(path: Path, name: str, function: Callable[..., Any], *args: Any) -> Any:
    try:
        return function(*args)
    except Exception as error:  # noqa: BLE001 -- whatever the user's code raises is reported
        raise refusal_of(error, path, f"{name} failed") from None


def refusal_of(error: BaseException, path: Path, what: str) -> Refusal:
    """Returns the refusal for an exception of the user's code, at the innermost line of the user's file."""
    frames = [
        one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).resolve() == path.resolve()
    ]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    text = next((one.strip() for one in str(error).splitlines() if one.strip()), "")
    message = f"{what}: {type(error).__name__}{f': {text}' if text else ''}"
    return Refusal(message if message.endswith(".") else f"{message}.", file=str(path), line=line)


def _inputs(path: Path, file: Any, names: Sequence[str], described: str) -> tuple[Any, ...]:
    if described:
        return described_inputs(described, names)
    made_by = getattr(file, "get_inputs", None)
    if not callable(made_by):
        raise Refusal(
            "The file has no get_inputs, so there are no example inputs.",
            file=str(path),
            hint=f'Add --inputs "{", ".join(f"{name}=float32[64, 128]" for name in names) or "x=float32[64, 128]"}".',
        )
    made = _called(path, "get_inputs", made_by)
    if isinstance(made, dict) or torch.is_tensor(made):
        raise Refusal(
            f"get_inputs returns a {'dictionary' if isinstance(made, dict) else 'tensor'}.",
            file=str(path),
            hint="Return a list of forward's positional inputs, as [x] or [batch].",
        )
    return tuple(made)


def described_inputs(text: str, names: Sequence[str]) -> tuple[Any, ...]:
    """Returns inputs that `x=float32[64, 128], p=float32[8] ~ uniform(0, 1), scale=0.5` describes, in order of `names`.

    Raises:
        Refusal: an entry is invalid, or an input is missing.
    """
    import re

    from kernelmate.source.examples import split_entries

    found: dict[str, Any] = {}
    for entry in split_entries(text):
        name, _, value = (one.strip() for one in entry.partition("="))
        decimal = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
        drawn_by = rf"(?:integers\(\s*(-?\d+)\s*,\s*(-?\d+)\s*\)|uniform\(\s*({decimal})\s*,\s*({decimal})\s*\)|normal)"
        array = re.fullmatch(rf"(\w+)\s*\[([\d\s,]*)\]\s*(?:~\s*{drawn_by})?", value)
        number = re.fullmatch(decimal, value)
        dtype = getattr(torch, array[1], None) if array else None
        if name not in names or not (isinstance(dtype, torch.dtype) or number):
            takes = f"It takes {', '.join(names)}; " if name not in names else ""
            raise Refusal(
                f"--inputs {entry!r} describes no input.",
                hint=f"{takes}write x=float32[64, 128] for a tensor, with ~ integers(0, 100) or ~ uniform(0, 1) behind it for other "
                "values than normal ones, and scale=0.5 for a number.",
            )
        if array is None or not isinstance(dtype, torch.dtype):
            found[name] = float(value) if re.search(r"[.eE]", value) else int(value)
            continue
        shape = [int(one) for one in array[2].replace(" ", "").split(",") if one]
        low, high = (int(array[3]), int(array[4])) if array[3] else (0, 2)
        normal = dtype.is_floating_point and array[3] is None
        drawn = torch.randn(shape) if normal else torch.randint(low, max(high, low + 1), shape)
        if array[5]:
            drawn = torch.empty(shape).uniform_(*sorted((float(array[5]), float(array[6]))))
        found[name] = drawn.to(dtype)
    last = max((names.index(name) for name in found), default=-1)
    missing = [name for name in names[: last + 1] if name not in found]
    if missing:
        raise Refusal(f"--inputs lacks {', '.join(missing)}.", hint="Describe every input up to the last one.")
    return tuple(found[name] for name in names[: last + 1])


def _detach(model: torch.nn.Module) -> None:
    """Detaches tensors that a module computed from its parameters, as in `torch.nn.utils.weight_norm`, so that it can be copied."""
    for module in model.modules():
        for name, held in vars(module).items():
            if torch.is_tensor(held) and not held.is_leaf:
                vars(module)[name] = held.detach()


def _check_tensors(path: Path, model: torch.nn.Module, given: Sequence[Any], names: Sequence[str]) -> None:
    """Refuses tensors for which there are no kernels.

    Raises:
        Refusal: one is sparse, nested, quantized or empty, they are on several devices, or another input is not a number.
    """
    for name, one in zip(names, given, strict=True):
        if not (torch.is_tensor(one) or isinstance(one, PLAIN)):
            raise Refusal(
                f"The input {name} is of type {type(one).__name__}.",
                file=str(path),
                hint="Give tensors, numbers and texts, in tuples, lists and dictionaries.",
            )
    tensors = [(f"the input {name}", one) for name, one in zip(names, given, strict=True) if torch.is_tensor(one)]
    if not tensors:
        raise Refusal(
            "None of the inputs is a tensor.", file=str(path), hint="Give at least one tensor as example input."
        )
    tensors += [(f"the parameter {name}", one) for name, one in model.named_parameters()]
    tensors += [(f"the buffer {name}", one) for name, one in model.named_buffers()]
    for what, one in tensors:
        kind = "nested" if one.is_nested else "quantized" if one.is_quantized else None
        if kind is not None:
            hint = (
                "Pass it padded (torch.nested.to_padded_tensor)."
                if kind == "nested"
                else "Pass it dequantized (Tensor.dequantize)."
            )
            raise Refusal(f"{_capital(what)} is {kind}.", file=str(path), hint=hint)
        if one.layout != torch.strided:
            raise Refusal(f"{_capital(what)} is sparse.", file=str(path), hint="Pass it dense (Tensor.to_dense).")
        if one.numel() == 0 and what.startswith("the input"):
            raise Refusal(
                f"{_capital(what)} has no elements: its shape is {list(one.shape)}.",
                file=str(path),
                hint="Give example inputs with at least one element; a kernel is never launched without elements.",
            )
    places = {one.device: what for what, one in tensors}
    if len(places) > 1:
        text = ", ".join(f"{what} is on {device}" for device, what in places.items())
        raise Refusal(f"The tensors are on several devices: {text}.", file=str(path), hint="Move them to one device.")


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
