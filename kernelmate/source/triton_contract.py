"""Constants and launch arguments of a Triton kernel, read from its contract."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kernelmate.errors import ContractError
from kernelmate.records import Argument, Contract, Kernel, Member, Passed
from kernelmate.source.document import Document
from kernelmate.source.expressions import evaluate, nearest_hint
from kernelmate.source.triton import DEFAULTS, SETTINGS, function_of

WARP = 32

ALIGNED = 16
"""Bytes that arrays are aligned to and whole numbers are divided by where Triton specialises code for them
(triton/runtime/jit.py, `tt.divisibility`); allocations of PyTorch and CuPy are aligned to more."""

_OPTION = re.compile(r"(?P<name>[^\W\d]\w*)[ \t]*=[ \t]*(?P<value>.+)")
_VALUE = re.compile(r"-?\d+|-?\d*\.\d+(?:e[+-]?\d+)?|True|False|None|'[^'\\]*'|\"[^\"\\]*\"|tl\.\w+")
_DIVISIBLE = re.compile(r"\s*(\w+)\s*%\s*(\d+)\s*==\s*0\s*")


def is_triton(contract: Contract) -> bool:
    """Returns True for a contract of a Triton kernel, whose options are values of constants."""
    return any(not option.startswith("-") for option in contract.options)


def values_of(contract: Contract) -> dict[str, str]:
    """Returns the values of constexpr parameters and settings, as Python text."""
    return dict(option.split("=", 1) for option in contract.options)


def read_options(document: Document, kernel: Kernel) -> tuple[str, ...]:
    """Returns `NAME=value` for every constexpr parameter, for `num_warps` and `num_stages`, and for parameters that are None.

    Values come from the contract's `options`, else from the first configuration of an `autotune` decorator, else from the
    parameter's default, else from a `heuristics` decorator that asks if a parameter is None, or computes it from other constants.

    Raises:
        ContractError: an entry is not a value of a constant, or a constant has none.
    """
    function = function_of(kernel)
    names = [one.name for one in function.parameters if one.constexpr]
    others = [one.name for one in function.parameters if not one.constexpr]
    found = DEFAULTS | function.defaults()
    for index, text in enumerate(document.data.get("options", ())):
        path = ("options", index)
        match = _OPTION.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            document.fail(
                path, f"{text!r} is not a value of a constant.", 'Write options = ["BLOCK=1024", "num_warps=4"].'
            )
        if match["name"] in others and match["value"].strip() == "None":
            names.append(match["name"])
        if match["name"] not in (*names, *SETTINGS):
            message = f"{match['name']} is not a constexpr parameter of {kernel.name}."
            document.fail(path, message, nearest_hint(match["name"], (*names, *SETTINGS)))
        if not _VALUE.fullmatch(match["value"].strip()):
            message = f"{match['value']!r} is not a number, text, truth value or type of triton.language."
            document.fail(path, message, f"Write {match['name']}=128, or {match['name']}=tl.float32.")
        found[match["name"]] = match["value"].strip()
    for name, text in function.derived:
        value = _derived(text, found) if name in names and name not in found else None
        found |= {} if value is None else {name: value}
    missing = next((name for name in names if name not in found), None)
    text = dict(function.derived).get(missing or "")
    if text is not None:
        message = (
            f"The constant {missing} of {kernel.name} is {text} at each launch, and the contract judges one value."
        )
        example = "False" if re.search(r"==|<|>|!=|\bnot\b|\bin\b", text) else "128"
        hint = f'Write it: options = ["{missing}={example}"], and what it demands of the sizes in require.'
        document.fail(("options",), message, hint, key=True)
    if missing is not None:
        hint = f'Add it to the contract: options = ["{missing}=128"].'
        document.fail(("options",), f"The constant {missing} of {kernel.name} has no value.", hint, key=True)
    _check_settings(document, found)
    return tuple(f"{name}={found[name]}" for name in (*names, *SETTINGS) if name in found)


def _derived(text: str, values: Mapping[str, str]) -> str | None:
    """Returns the value of an expression of a `heuristics` decorator at given constants; None if it needs other values."""
    asked = re.fullmatch(r"(\w+) is (not )?None", text)
    if asked is not None:
        return str(bool(asked[2]) is (values.get(asked[1]) != "None"))
    numbers = {name: int(value) for name, value in values.items() if re.fullmatch(r"-?\d+", value)}
    try:
        return str(evaluate(text, numbers))
    except ContractError:
        return None


def _check_settings(document: Document, found: Mapping[str, str]) -> None:
    warps = found["num_warps"]
    if warps not in ("1", "2", "4", "8", "16", "32"):
        document.fail(
            ("options",),
            f"The setting num_warps is {warps}, which is not a power of two up to 32.",
            "Write num_warps=4.",
            key=True,
        )


def with_entries(kernel: Kernel, entries: object, options: Sequence[str]) -> Kernel:
    """Returns a kernel with the parameters that a launch passes, which are arrays where a contract's `[args]` say so.

    Those that `options` sets to None are not passed.
    """
    given = entries if isinstance(entries, dict) else {}
    constant = {option.partition("=")[0] for option in options}
    parameters = tuple(
        replace(one, pointer="[" in given[one.name]) if isinstance(given.get(one.name), str) else one
        for one in kernel.signature.parameters
        if one.name not in constant
    )
    return replace(kernel, signature=replace(kernel.signature, parameters=parameters))


def skeleton(kernel: Kernel) -> str:
    """Returns the lines of a contract for a kernel without one, to be completed: dtypes, shapes and sizes are placeholders.

    Directions are those of the loads and stores in its text; constants are those without a default.
    """
    function = function_of(kernel)
    scalars = [one.name for one in kernel.signature.parameters if not one.pointer]
    fractions = [name for name in scalars if _FRACTION.search(name)]
    strides = [name for name in scalars if "stride" in name.lower()]
    sizes = [name for name in scalars if name not in (*fractions, *strides)] or ["n"]
    defaults = function.defaults()
    known = {one.name: "128" for one in function.parameters if one.constexpr}
    derived = {name for name, text in function.derived if _derived(text, known) is not None}
    constants = [one.name for one in function.parameters if one.constexpr and one.name not in {*defaults, *derived}]
    blocks = [name for name in (*constants, *defaults) if "BLOCK" in name.upper()]
    lines = [
        "sizes = [{ " + ", ".join(f"{name} = 1024" for name in sizes) + " }]",
        f'grid = ["cdiv({sizes[0]}, {blocks[0]})"]' if blocks else f'grid = ["{sizes[0]}"]',
        *(
            [
                "options = ["
                + ", ".join(f'"{name}={False if name in function.flags else 128}"' for name in constants)
                + "]"
            ]
            if constants
            else []
        ),
        'reference = "reference.py:reference"',
        "[args]",
    ]
    for one in kernel.signature.parameters:
        ways = {way for name, way in function.accesses if name == one.name}
        direction = "inout" if len(ways) == 2 else "out" if ways == {"written"} else "in"
        scalar = "float32 = 1" if one.name in fractions else f"int32 = {sizes[0]}" if one.name in strides else "int32"
        entry = f"{direction} float32[{sizes[0]}]" if one.pointer else scalar
        lines.append(f'{one.name} = "{entry}"')
    return "\n".join(f"# {line}" for line in ("/// kernelmate", *lines, "///")) + "\n"


_FRACTION = re.compile(r"eps|scale|alpha|beta|temperature|factor|prob|delta", re.IGNORECASE)


def refuse_keys(document: Document) -> None:
    """Refuses the keys of a launch that Triton decides.

    Raises:
        ContractError: at the key.
    """
    for key in ("block", "shared", "instances", "cluster", "cooperative", "symbols"):
        if key in document.data:
            hint = "Remove it; num_warps in options gives the threads of a block." if key == "block" else "Remove it."
            document.fail((key,), f"{key} does not belong to a Triton kernel: its compiler decides it.", hint, key=True)


def completed(contract: Contract) -> Contract:
    """Returns a Triton kernel's contract with the block of its `num_warps`, constants in its grid, and aligned arrays.

    A scalar that is always 1 is not a parameter of the compiled code (triton/runtime/jit.py, specialisation of 1).
    """
    values = values_of(contract)
    grid = tuple(_with_values(side, values) for side in contract.grid)
    args = tuple(
        one if one.shape is None or one.align is not None else replace(one, align=ALIGNED) for one in contract.args
    )
    passing = tuple(Passed(one.name, "argument", (Member(one.name, 0),)) for one in args if not is_one(one))
    return replace(contract, grid=grid, block=(str(WARP * int(values["num_warps"])),), args=args, passing=passing)


def _with_values(expression: str, values: Mapping[str, str]) -> str:
    return re.sub(r"[^\W\d]\w*", lambda found: values.get(found[0], found[0]), expression)


def is_one(argument: Argument) -> bool:
    """Returns True for a scalar that Triton makes a constant: a whole number that is always 1."""
    return argument.shape is None and "int" in argument.dtype and argument.value == "1"


def is_divisible(argument: Argument, contract: Contract) -> bool:
    """Returns True if every launch passes a multiple of 16, or an address that is one, so that code may rely on it."""
    if argument.shape is not None:
        return argument.align is not None and argument.align % ALIGNED == 0
    value = argument.value or argument.name
    if value.isdigit():
        return "int" in argument.dtype and int(value) % ALIGNED == 0
    required = [_DIVISIBLE.fullmatch(one) for one in contract.require]
    return any(one is not None and one[1] == value and int(one[2]) % ALIGNED == 0 for one in required)
