"""Reads a kernel's launch from C++ host code: grid, block, shared bytes, sizes, scalars and arrays, each with its position in the text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelmate.errors import ContractError
from kernelmate.records import Kernel, Parameter, Unit
from kernelmate.source.cuda import active_alias
from kernelmate.source.dtypes import c_type_dtype
from kernelmate.source.expressions import RESERVED, evaluate_integer
from kernelmate.source.host_arrays import HostArray, HostArrays
from kernelmate.source.host_code import Untranslatable
from kernelmate.source.host_launches import HostLaunch, host_launches
from kernelmate.source.host_places import HostPlace, position_text
from kernelmate.source.host_reader import HostReader, HostTranslation, Names
from kernelmate.source.host_syntax import uncast, unspaced
from kernelmate.source.host_text import HostFiles, HostText
from kernelmate.source.host_values import type_value
from kernelmate.source.instances import template_arguments
from kernelmate.source.tidying import tidied
from kernelmate.source.tokens import closing

_MOST_FILES = 500
"""Maximum number of files of a project, the nearest first, in which launches, calls and constants are searched for."""

_MOST_LAUNCHES = 16
"""Maximum number of launches of one kernel that are read."""

_PRODUCT = re.compile(r"[A-Za-z_]\w*(?:\*[A-Za-z_]\w*)*\Z|[A-Za-z_]\w*(?:\.|->)\w+\(\d*\)\Z")
_QUOTIENT = re.compile(r"(\w+)/(\w+)\Z")


@dataclass(frozen=True, slots=True)
class Selection:
    """The condition under which a launch is reached, if it fixes a template argument: `case 64: k<64><<<...>>>`.

    Attributes:
        size: the size that decides.
        value: its value there.
        position: of the template argument that has the same value.
        known: True if the size is a parameter of the kernel.
    """

    size: str
    value: int
    position: int
    known: bool


@dataclass(slots=True)
class HostFacts:
    """Facts that the host code of one launch states; every text is a contract expression over the kernel's sizes and `more`.

    Attributes:
        grid, block: one to three sides; empty where they are not known.
        shared: bytes; None where they are not known.
        more: sizes beyond the kernel's parameters.
        values: numbers of sizes.
        derived: values of whole-number parameters that follow from other sizes, or are constants.
        scalars: values of other scalars.
        arrays: by parameter.
        selection: the condition under which it is reached, where that selects an instance.
        unread: number of launches of the same kernel that are not read.
        origins: where each comes from, by `grid`, `block`, `shared`, `sizes` and the names of parameters.
    """

    grid: tuple[str, ...] = ()
    block: tuple[str, ...] = ()
    shared: str | None = None
    more: tuple[str, ...] = ()
    values: dict[str, int] = field(default_factory=dict)
    derived: dict[str, str] = field(default_factory=dict)
    scalars: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, HostArray] = field(default_factory=dict)
    selection: Selection | None = None
    unread: int = 0
    origins: dict[str, str] = field(default_factory=dict)


def host_facts(
    kernel: Kernel, extents: Sequence[str], instance: str | None, is_size: Callable[[str], bool]
) -> Iterator[HostFacts]:
    """Yields the facts that each launch of a CUDA kernel shows, those in its own file first.

    Args:
        kernel: the kernel.
        extents: its parameters that are sizes by type and name.
        instance: the instance of a template whose arguments are bound.
        is_size: True for a whole-number parameter.
    """
    files = host_files(kernel.unit)
    launches = list(host_launches(kernel, files, instance))
    for launch in launches[:_MOST_LAUNCHES]:
        facts = _LaunchReader(kernel, extents, launch, files, is_size).facts()
        facts.unread = max(len(launches) - _MOST_LAUNCHES, 0)
        yield facts


def lambda_launch(kernel: Kernel) -> str | None:
    """Returns a phrase for a launch that passes a lambda: `its launch at line 40 passes a lambda as op`; None where none does."""
    files = host_files(kernel.unit)
    for launch in host_launches(kernel, files, None):
        for one, text in zip(kernel.signature.parameters, launch.arguments, strict=False):
            plain, host = text.strip(), launch.place.host
            if plain.startswith("[") or re.search(rf"\bauto\s+{re.escape(plain)}\s*=\s*\[", host.text):
                where = position_text(files, launch.place, kernel.unit.text, [launch.place.index])
                return f"its launch at {where} passes a lambda as {one.name}"
    return None


def host_files(unit: Unit) -> HostFiles:
    """Returns a unit's text and those of its project."""
    path = Path(unit.path)
    return HostFiles(unit.text, path if path.is_file() else None, most=_MOST_FILES)


def project_type(unit: Unit, name: str, files: HostFiles | None = None) -> str:
    """Returns the type that branches of a file, or other files of its project, define a name as; an empty text if none does."""
    base = active_alias(unit.text, name) or ""
    return base if base or unit.language != "cuda" else type_value(files or host_files(unit), name) or ""


def with_project_types(kernel: Kernel) -> Kernel:
    """Returns a kernel whose parameters have the types that branches of its file, or other files of the project, define their names as."""
    parameters = list(kernel.signature.parameters)
    for number, one in enumerate(parameters):
        named = one.base.isidentifier() and one.base not in ("void", *kernel.signature.template_parameters)
        if one.dtype is not None or not named:
            continue
        base = project_type(kernel.unit, one.base)
        dtype, vector = c_type_dtype(base)
        if dtype is not None:
            parameters[number] = replace(one, base=base, dtype=dtype, vector=vector)
    if parameters == list(kernel.signature.parameters):
        return kernel
    return replace(kernel, signature=replace(kernel.signature, parameters=tuple(parameters)))


class _LaunchReader:
    """Reads one launch."""

    def __init__(
        self, kernel: Kernel, extents: Sequence[str], launch: HostLaunch, files: HostFiles, is_size: Callable[[str], bool]
    ) -> None:  # fmt: skip
        self.kernel, self.extents, self.launch, self.files, self.is_size = kernel, extents, launch, files, is_size
        taken = frozenset(parameter.name for parameter in kernel.signature.parameters)
        self.reading = HostTranslation(files, launch.types, taken=taken)
        self.arrays = HostArrays(self.reading)
        self.found = HostFacts()
        pairs = zip(kernel.signature.parameters, launch.arguments, strict=False)
        self.passed: dict[str, tuple[Parameter, str]] = {
            one.name: (one, text if one.pointer else uncast(text)) for one, text in pairs
        }
        self.values = {name: value for name, value in launch.types.items() if _is_literal(value)}

    def facts(self) -> HostFacts:
        """Returns all that is found."""
        self._derive()
        names = self._names((*self.extents_left(), *self._others()))
        self.found.selection = self._selection(names)
        if self.found.selection is not None and not self.found.selection.known:
            names[self.found.selection.size] = self.found.selection.size
        self._shape(names)
        self._size_values()
        self._scalar_values(names)
        self._array_facts(names)
        return self.found

    def extents_left(self) -> tuple[str, ...]:
        """Returns the sizes that do not follow from others."""
        return tuple(name for name in self.extents if name not in self.found.derived)

    def _others(self) -> list[str]:
        """Whole-number parameters that are not sizes by their names, and may be by their use in the launch."""
        return [
            name
            for name, (parameter, text) in self.passed.items()
            if not parameter.pointer and name not in self.extents and self.is_size(name) and name not in RESERVED
            and self._number(text) is None
        ]  # fmt: skip

    # ------------------------------------------------------------------------------------------------------- names

    def _names(self, extents: Sequence[str]) -> dict[str, str | None]:
        """Returns the host expressions that stand for sizes."""
        names: dict[str, str | None] = dict(self.values)
        for name in extents:
            if name not in self.passed:
                continue
            text = unspaced(self.passed[name][1])
            if not _is_literal(text):
                names[text] = None if text in names else name
        return {**self._defined(names), **names}

    def _defined(self, names: Names) -> dict[str, str | None]:
        """Returns the known definitions of the variables from which a size is computed: `N = T`, `N = B * T`, and `d = C / NH`, which gives `C`."""
        found: dict[str, str | None] = {}
        reader = self._reader(names)
        for text, name in names.items():
            value = reader.value(text) if text.isidentifier() else None
            written = unspaced("".join(token.text for token in value)) if value is not None else text
            if written != text and name is not None and _PRODUCT.match(written) and written not in names:
                found[written] = name
            quotient = _QUOTIENT.match(written)
            if quotient is not None and names.get(quotient[2]) is not None and quotient[1] not in names:
                found[quotient[1]] = f"({name} * {names[quotient[2]]})"
        return found

    def _reader(self, names: Names, *, block: str = "", most_free: int = 0) -> HostReader:
        self.reading.used.clear()
        return HostReader(
            self.launch.place, names, self.reading, block=block, most_free=most_free, expanded=self.launch.expanded
        )

    def _note(self, key: str, places: Sequence[tuple[HostPlace, int]] = ()) -> None:
        """Records where something comes from: the launch, or the definitions that were followed, in the launch's file first."""
        place = self.launch.place
        of_launch = [at for where, at in places if where.host is place.host]
        others = [(where, at) for where, at in places if where.host is not place.host]
        if not places or of_launch:
            indices = sorted(
                {
                    place.line_of(at): at
                    for at in (*of_launch[-3:], *([] if places and key not in _OF_LAUNCH else [place.index]))
                }.values()
            )
            self.found.origins[key] = position_text(self.files, place, self.kernel.unit.text, indices)
        else:
            where, at = others[0]
            self.found.origins[key] = position_text(self.files, where, self.kernel.unit.text, [at])

    # ----------------------------------------------------------------------------------------------------- instance

    def _selection(self, names: Names) -> Selection | None:
        """Returns the condition around the launch that fixes one of its template arguments."""
        parsed = template_arguments(f"k{self.launch.template}") if self.launch.template else None
        if parsed is None:
            return None
        given = [self._number(argument) for argument in parsed[1]]
        for written, text in conditions_around(self.launch.place, self.launch.expanded):
            value = self._number(text)
            if value is None or value not in given:
                continue
            size = self._tried(written, names)
            known = size in (*self.extents_left(), *self._others())
            if not known and written.isidentifier() and not written.isupper() and written not in RESERVED:
                size = written
            if size is not None and size.isidentifier():
                return Selection(size, value, given.index(value), known)
        return None

    # ------------------------------------------------------------------------------------------------------ launch

    def _shape(self, names: Names) -> None:
        block_name = unspaced(self.launch.block)
        try:
            self.found.block = _trimmed(_tidy(side, None) for side in self._reader(names).sides(self.launch.block))
            self._note("block", self.reading.used)
        except Untranslatable:
            pass
        block = self.found.block
        threads = int(block[0]) if len(block) == 1 and block[0].isdigit() else None
        try:
            reader = self._reader(names, block=block_name if block_name.isidentifier() else "", most_free=1)
            grid = reader.sides(self.launch.grid)
            self.found.grid = _trimmed(_tidy(side, threads) for side in grid)
            self._note("grid", self.reading.used)
            words = set(re.findall(r"\w+", " ".join((*self.found.grid, *self.found.block))))
            others = [name for name in self._others() if name in words]
            chosen = self.found.selection
            more = [chosen.size] if chosen is not None and chosen.size not in (*self.extents_left(), *others) else []
            self.found.more = (*self.reading.free, *others, *more)
        except Untranslatable:
            self.reading.free.clear()
        try:
            reader = self._reader(names, block=block_name if block_name.isidentifier() else "")
            shared = "0" if self.launch.shared is None else reader.expression(self.launch.shared)
            self.found.shared = _tidy(shared, threads)
            self._note("shared", self.reading.used)
        except Untranslatable:
            pass

    # ------------------------------------------------------------------------------------------------------- sizes

    def _derive(self) -> None:
        """Finds the sizes that follow from others: `total` passed as `rows * cols`."""
        for name in self.extents:
            if name not in self.passed:
                continue
            others = [other for other in self.extents_left() if other != name]
            text = self.passed[name][1]
            names = self._names(others)
            value = self._tried(text, names)
            if value in others:
                continue  # it has the same value there, and need not have it
            fixed = value is not None and re.search(r"\b\d+ (?://|%)", value)
            if value is not None and not fixed and any(re.search(rf"\b{re.escape(one)}\b", value) for one in others):
                self.found.derived[name] = _tidy(value, None)
                self._note(name, self.reading.used)

    def _size_values(self) -> None:
        lines: list[tuple[HostPlace, int]] = []
        for name in self.extents_left():
            value = self._number(self.passed[name][1]) if name in self.passed else None
            if value is not None and value > 0:
                self.found.values[name] = value
                lines += self.reading.used
        if self.found.values:
            self._note("sizes", lines)

    def _number(self, text: str) -> int | None:
        """Returns the numeric value of an argument if it follows from constants only; else None."""
        value = self._tried(text, self.values)
        return None if value is None else whole_number(value)

    def _tried(self, text: str, names: Names) -> str | None:
        try:
            return self._reader(names).expression(text)
        except Untranslatable:
            return None

    def _scalar_values(self, names: Names) -> None:
        for name, (parameter, text) in self.passed.items():
            if parameter.pointer or name in self.extents or name in self.found.more:
                continue
            names = {written: size for written, size in names.items() if size != name}
            value = self._tried(text, names) if self.is_size(name) else self._floating(text)
            if value is not None:
                self.found.scalars[name] = value if not self.is_size(name) else _tidy(value, None)
                self._note(name, self.reading.used)

    def _floating(self, text: str) -> str | None:
        """Returns the value of a floating-point or boolean argument that is a constant."""
        reader = self._reader({})
        for _ in range(4):
            plain = unspaced(text)
            if plain in ("true", "false"):
                return str(int(plain == "true"))
            number = re.fullmatch(r"(-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)[fF]?", plain)
            if number is not None and math.isfinite(float(number[1])):
                return repr(float(number[1]))
            value = reader.value(plain) if plain.isidentifier() else None
            if value is None:
                return None
            text = "".join(token.text for token in value)
        return None

    # ------------------------------------------------------------------------------------------------------ arrays

    def _array_facts(self, names: Names) -> None:
        for name, (parameter, text) in self.passed.items():
            if not parameter.pointer:
                continue
            found = self.arrays.array(text, self._reader(names))
            self.found.arrays[name] = found
            if found.lines:
                self._note(name, list(found.lines))


def conditions_around(place: HostPlace, expanded: HostPlace | None) -> Iterator[tuple[str, str]]:
    """Yields the expressions that are equal wherever a token is executed: of `switch (n) { case 64: ...`, and of `if (n == 64) ...`.

    Args:
        place: the place.
        expanded: the same place in the expansion of a macro.
    """
    host = place.host
    before = "" if expanded is None else expanded.host.text[: expanded.host.tokens[expanded.index].start]
    for opening in (place.index, *(at for at in host.around(place.index) if host.tokens[at].text == "{")):
        head = _head_before(host, opening)
        if head is None:
            continue
        keyword, condition = head
        if keyword == "if" and condition.count("==") == 1 and "&" not in condition:
            left, _, right = condition.partition("==")
            yield left.strip(), right.strip()
        elif keyword == "switch":
            within = host.text[host.tokens[opening].end : host.tokens[place.index].start] + before
            cases = re.findall(r"\bcase\s+([\w:]+)\s*:", within)
            if cases:
                yield condition.strip(), cases[-1]


def _head_before(host: HostText, at: int) -> tuple[str, str] | None:
    """Returns the keyword and the condition in the parentheses that end before a token."""
    if not at or host.tokens[at - 1].text != ")":
        return None
    for opening in range(at - 2, max(at - 40, 0), -1):
        if host.tokens[opening].text == "(" and closing(host.tokens, opening) == at - 1:
            return host.tokens[opening - 1].text, host.between(opening, at - 1)
    return None


_OF_LAUNCH = frozenset({"grid", "block", "shared"})


def _is_literal(text: str) -> bool:
    return re.fullmatch(r"-?[\d']+[uUlL]*|0[xX][\da-fA-F]+", text) is not None


def _trimmed(sides: Iterable[str]) -> tuple[str, ...]:
    """Returns the sides of a grid or block without ones at their end."""
    found = tuple(sides)
    return found[: max((at + 1 for at, side in enumerate(found) if side != "1"), default=1)]


def _tidy(expression: str, threads: int | None) -> str:
    text = tidied(expression, threads)
    number = whole_number(text)
    return text if number is None else str(number)


def whole_number(expression: str) -> int | None:
    """Returns the value of an expression without names; None if it has some, or no whole number as its value."""
    try:
        return evaluate_integer(expression, {}, "value")
    except ContractError:
        return None
