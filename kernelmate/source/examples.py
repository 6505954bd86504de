"""Reads a Python function and example arrays as text: its parameters with dtype, shape and sizes. Runs nothing."""

from __future__ import annotations

import ast
import difflib
import keyword
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmate.errors import ContractError, SourceError, UsageError
from kernelmate.records import Argument
from kernelmate.source.distributions import parse_distribution
from kernelmate.source.dtypes import dtype_hint, numpy_dtype
from kernelmate.source.expressions import BLOCK_NAMES, RESERVED, names_in
from kernelmate.source.files import read_text

_ARRAY = re.compile(
    r"(?P<dtype>\w+)\s*\[(?P<shape>.*?)\]\s*(?:align\s+(?P<align>\d+)\s*)?(?:~\s*(?P<drawn>.+))?\Z", re.S
)
_SCALAR = re.compile(r"(?:(?P<dtype>\w+)\s*\(\s*)?(?P<value>[-+]?(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*\)?\Z")
_SIZE = re.compile(r"(?P<name>[^\W\d]\w*)\s*=\s*(?P<value>\d[\d_]*)\Z")
_OF_DOCSTRING = re.compile(r"^\s*(?P<name>\w+)\s*(?::|=)\s*(?P<array>\w+\[[^\]\n]*\])", re.M)

UNNAMED = {1: ("n",), 2: ("rows", "cols"), 3: ("batch", "rows", "cols"), 4: ("batch", "channels", "rows", "cols")}
"""Names of an array's dimensions if its sizes were given as numbers, by rank."""

LITERAL = 4
"""Dimensions up to this, given as numbers, stay constant: three colour channels are not a size that varies.

Where any dimension has a name, all numbers stay constant: who names the sizes that vary has said which do."""

ALIGNMENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
"""Allowed values of `align` (docs/contract.md)."""


@dataclass(frozen=True, slots=True)
class PythonFunction:
    """A function of a Python file, as declared in its text.

    Attributes:
        spec: `path.py:function`, as written.
        path: its file.
        line: line of its `def`.
        parameters: names in order.
        defaults: literal defaults; `...` for one that is not a number.
        described: examples from annotations and the docstring, by parameter.
        summary: the docstring's first line, possibly empty.
        results: names that it returns, if all are plain names.
    """

    spec: str
    path: Path
    name: str
    line: int
    parameters: tuple[str, ...]
    defaults: Mapping[str, object]
    described: Mapping[str, str]
    summary: str = ""
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Examples:
    """Arguments of a function in order, and the headline values of the sizes that their shapes name."""

    arguments: tuple[Argument, ...]
    size: Mapping[str, int]


def load_python_function(spec: str) -> PythonFunction:
    """Returns the function that `path.py:function` names.

    Raises:
        UsageError: `spec` has another form.
        SourceError: the file or function does not exist, or the file is not
        Python.
    """
    path, colon, name = spec.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise UsageError(f"{spec!r} names no function.", hint="Write path.py:function, as in reference.py:softmax.")
    text = read_text(Path(path))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None)
        raise SourceError(f"This is not Python: {error}.", file=path, line=line, hint="Correct the file.") from None
    functions = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef)}
    if name not in functions:
        near = difflib.get_close_matches(name, functions, n=1)
        there = f"There is {', '.join(functions)}." if functions else "It has no function at its outermost level."
        hint = f"Did you mean {path}:{near[0]}?" if near else there
        raise SourceError(f"There is no function {name} here.", file=path, hint=hint)
    return described_function(functions[name], spec, Path(path))


def described_function(found: ast.FunctionDef, spec: str, path: Path) -> PythonFunction:
    """Reads a function's declaration from its syntax tree."""
    several = [*found.args.posonlyargs, *found.args.args, *found.args.kwonlyargs]
    positional = several[: len(several) - len(found.args.kwonlyargs)]
    pairs = list(zip(positional[len(positional) - len(found.args.defaults) :], found.args.defaults, strict=True))
    pairs += [(one, value) for one, value in zip(found.args.kwonlyargs, found.args.kw_defaults, strict=True) if value]
    docstring = ast.get_docstring(found) or ""
    names = {one.arg for one in several}
    described = {one["name"]: one["array"] for one in _OF_DOCSTRING.finditer(docstring) if one["name"] in names}
    for one in several:
        match one.annotation:
            case ast.Constant(value=str() as text) if _ARRAY.match(text.strip()):
                described[one.arg] = text.strip()
    summary = docstring.strip().split("\n")[0].strip()
    defaults = {one.arg: _number(value) for one, value in pairs}
    return PythonFunction(
        spec, path, found.name, found.lineno, tuple(one.arg for one in several), defaults, described, summary, _results(found)
    )  # fmt: skip


def _number(node: ast.expr) -> object:
    try:
        value = ast.literal_eval(node)
    except (ValueError, SyntaxError):
        return ...
    return value if isinstance(value, int | float) and not isinstance(value, bool) else ...


def _results(found: ast.FunctionDef) -> tuple[str, ...]:
    """Returns the names in the function's last `return`; empty if one is an expression."""
    returns = [one.value for one in ast.walk(found) if isinstance(one, ast.Return)]
    last = returns[-1] if len(returns) == 1 else None
    several = last.elts if isinstance(last, ast.Tuple) else [last]
    return tuple(one.id for one in several if isinstance(one, ast.Name)) if all(isinstance(one, ast.Name) for one in several) else ()  # fmt: skip


def read_examples(function: PythonFunction, arrays: str, size: Mapping[str, int]) -> Examples:
    """Reads a function's arguments from `--arrays`, its annotations and docstring, and its defaults.

    Args:
        function: the function.
        arrays: `x=float32[rows=4096, cols=1024], scale=0.5`; it has precedence over the function's text.
        size: known sizes, which have precedence too.

    Raises:
        UsageError: an entry cannot be read, or something is missing; the hint shows the option to add.
    """
    given = dict(_entry(function, part) for part in split_entries(arrays))
    texts = {**function.described, **given}
    reader = _ExampleReader(function, {**_sizes_given(texts), **size}, literal=_names_sizes(texts.values()))
    found = {name: reader.argument(name, texts[name]) for name in function.parameters if name in texts}
    found |= reader.defaults(found)
    missing = [
        name for name in function.parameters
        if name not in found and name not in reader.size and name not in function.defaults
    ]  # fmt: skip
    if missing or not any(one.shape is not None for one in found.values()):
        raise _missing(function, missing, texts)
    reader.check_sizes(found.values())
    clash = next((one.name for one in found.values() if one.shape is not None and one.name in reader.size), None)
    if clash is not None:
        raise UsageError(f"{clash} is an array and a size.", hint="Give the size another name.")
    arguments = tuple(found[name] for name in function.parameters if name in found)
    used = {name for one in arguments for side in one.shape or () for name, _ in names_in(side)}
    kept = {name: value for name, value in reader.size.items() if name in used or name in function.parameters}
    return Examples(arguments, kept)


def split_entries(text: str) -> list[str]:
    """Returns the non-empty parts between commas outside brackets and parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _sizes_given(texts: Mapping[str, str]) -> dict[str, int]:
    """Returns numbers given for names that a shape uses: `x=float32[n], n=1000`."""
    words = {word for text in texts.values() if _ARRAY.match(text) for word in re.findall(r"\w+", text)}
    return {name: int(text) for name, text in texts.items() if name in words and text.isdigit()}


def _names_sizes(texts: Iterable[str]) -> bool:
    """Returns True if a shape has a dimension with a name: `x=float32[rows=64, 512]`."""
    shapes = (found["shape"] for found in map(_ARRAY.match, texts) if found is not None)
    return any(re.search(r"[^\W\d]", shape) for shape in shapes)


def _entry(function: PythonFunction, part: str) -> tuple[str, str]:
    name, equals, text = part.partition("=")
    name = name.strip()
    if not equals or not name.isidentifier():
        hint = 'Write it as in --arrays "x=float32[rows=4096, cols=1024], scale=0.5".'
        raise UsageError(f"--arrays {part!r} is not NAME=DTYPE[SHAPE] or NAME=NUMBER.", hint=hint)
    if name not in function.parameters:
        near = difflib.get_close_matches(name, function.parameters, n=1)
        hint = f"Did you mean {near[0]}? " if near else ""
        raise UsageError(
            f"{function.name} takes no {name}.", hint=f"{hint}It takes {', '.join(function.parameters) or 'nothing'}."
        )
    return name, text.strip()


def _missing(function: PythonFunction, missing: Sequence[str], known: Mapping[str, str]) -> UsageError:
    """Returns the error for arguments without an example, with the option that supplies them."""
    texts = [f"{name}={known.get(name, 'float32[rows=4096, cols=1024]')}" for name in (*known, *missing)]
    what = f"No example of {' and '.join(missing)} is given." if missing else f"{function.name} takes no array."
    option = ", ".join(texts) or "x=float32[rows=4096, cols=1024]"
    return UsageError(
        f"{what}",
        file=str(function.path),
        line=function.line,
        hint=f'Add --arrays "{option}" with the dtypes and shapes that {function.name} gets; a number is written name=0.5.',
    )


class _ExampleReader:
    """Reads the entries of one function, and collects the sizes that they define."""

    def __init__(self, function: PythonFunction, size: Mapping[str, int], *, literal: bool) -> None:
        self.function = function
        self.literal = literal
        self.size: dict[str, int] = dict(size)
        self._given = frozenset(size)
        self._unnamed: dict[int, str] = {}

    def argument(self, name: str, text: str) -> Argument:
        """Returns the argument that an entry describes.

        Raises:
            UsageError: the entry is invalid.
        """
        if not name.isascii() or keyword.iskeyword(name):
            raise UsageError(f"{name} cannot be the name of a kernel's parameter.", hint="Rename it in the function.")
        array, scalar = _ARRAY.match(text), _SCALAR.match(text)
        if array is not None:
            return self._array(name, array)
        if scalar is None or (scalar["dtype"] is None) == text.rstrip().endswith(")"):
            raise self._unreadable(name, text)
        value = scalar["value"].replace("_", "")
        whole = value.lstrip("+-").isdigit()
        dtype = self._dtype(name, scalar["dtype"] or ("int32" if whole else "float32"))
        if whole and name in self.size:
            return Argument(name, None, dtype)
        return Argument(name, None, dtype, value=value.lstrip("+"))

    def defaults(self, found: Mapping[str, Argument]) -> dict[str, Argument]:
        """Returns arguments for floating-point defaults; other defaults stay constants of the function."""
        double = any(one.dtype == "float64" for one in found.values())
        dtype = "float64" if double else "float32"
        defaults = self.function.defaults
        names = [
            name for name in self.function.parameters if name not in found and isinstance(defaults.get(name), float)
        ]
        return {name: Argument(name, None, dtype, value=repr(defaults[name])) for name in names}

    def check_sizes(self, arguments: Iterable[Argument]) -> None:
        """Refuses shapes over sizes without a number.

        Raises:
            UsageError: a size has no number; the hint shows how to give it.
        """
        for one in arguments:
            for side in one.shape or ():
                unknown = next((name for name, _ in names_in(side) if name not in self.size), None)
                if unknown is not None:
                    raise UsageError(
                        f"The size {unknown} of {one.name} has no number.",
                        hint=f'Write it once in --arrays, as in {one.name}={one.dtype}[{unknown}=1024], or add --size "{unknown}=1024".',
                    )

    def _array(self, name: str, match: re.Match[str]) -> Argument:
        dtype = self._dtype(name, match["dtype"])
        sides = split_entries(match["shape"])
        if not sides:
            raise UsageError(f"{name} is an array and has no shape.", hint="Write [1] for a single element.")
        shape = tuple(self._side(name, side, sides, axis) for axis, side in enumerate(sides))
        align = None if match["align"] is None else int(match["align"])
        if align is not None and align not in ALIGNMENTS:
            raise UsageError(f"align {align} of {name} is not a power of two up to 256.", hint="Write align 16.")
        argument = Argument(name, "in", dtype, shape, align=align)
        if match["drawn"] is None:
            return argument
        try:
            parse_distribution(match["drawn"].strip())
        except ContractError as error:
            raise UsageError(f"{name}: {error.message}", hint=error.hint) from None
        return replace(argument, distribution=match["drawn"].strip())

    def _side(self, name: str, text: str, sides: Sequence[str], axis: int) -> str:
        named = _SIZE.match(text)
        if named is not None:
            return self._named(name, named["name"], int(named["value"]))
        if text.isdigit():
            return self._of_number(int(text), sides, axis)
        try:
            names_in(text)
        except ContractError as error:
            raise UsageError(f"{name}[{', '.join(sides)}]: {error.message}", hint=error.hint) from None
        return text

    def _named(self, name: str, size: str, value: int) -> str:
        if not size.isascii() or keyword.iskeyword(size) or size in RESERVED or size in BLOCK_NAMES:
            raise UsageError(f"{size} cannot be the name of a size.", hint="Give it another name, such as rows.")
        if self.size.get(size, value) != value and size not in self._given:
            hint = "Give different sizes different names."
            raise UsageError(f"{size} is {self.size[size]} and, of {name}, {value}.", hint=hint)
        if value < 1:
            raise UsageError(f"{size} of {name} is {value}.", hint="Give an example with elements.")
        self.size.setdefault(size, value)
        return size

    def _of_number(self, value: int, sides: Sequence[str], axis: int) -> str:
        """Returns a name for a dimension given as a number: the size with this value, else a new one with a usual name."""
        if self.literal or value <= LITERAL:
            return str(value)
        if value not in self._unnamed:
            usual = UNNAMED.get(len(sides), ())
            wanted = [usual[axis]] if usual else []
            wanted += [*UNNAMED[2], "n", "depth", "width", *(f"n{number}" for number in range(2, 99))]
            taken = {*self.size, *self.function.parameters}
            self._unnamed[value] = self._named("", next(one for one in wanted if one not in taken), value)
        return self._unnamed[value]

    def _dtype(self, name: str, dtype: str) -> str:
        try:
            numpy_dtype(dtype)
        except ContractError as error:
            raise UsageError(f"{name}: {error.message}", hint=error.hint or dtype_hint(dtype)) from None
        return dtype

    def _unreadable(self, name: str, text: str) -> UsageError:
        hint = f'Write --arrays "{name}=float32[rows=4096, cols=1024]" for an array, "{name}=0.5" for a number.'
        return UsageError(f"{name}={text} describes neither an array nor a number.", hint=hint)
