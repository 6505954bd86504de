"""Records of launches: one folder for each launch, which other processes see complete or not at all.

A capture's folder `launches` holds, for each recorded launch, a folder `PID-NUMBER` with `launch.json` and, for each buffer
that a parameter points to, its bytes before the launch (`P.before`) and, if the launch changed them, after it (`P.after`), P
being the parameter's number. The folder is written under a name that begins with a dot and then renamed, so that a program that
is killed leaves no partial record. `PID.log` has a line for each launch of the kernel, recorded or not, with the key of its
shape and its `Outcome`; `PID.names` lists all kernels that the process launched. `injection.c` writes the same files.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from kernelmate.records import Kernel

FORMAT = 1
"""Version of `launch.json`."""

FOLDER_VARIABLE = "KERNELMATE_CAPTURE_FOLDER"
KERNEL_VARIABLE = "KERNELMATE_CAPTURE_KERNEL"
LIMIT_VARIABLE = "KERNELMATE_CAPTURE_LIMIT"
EVERY_VARIABLE = "KERNELMATE_CAPTURE_EVERY"
SHAPES_VARIABLE = "KERNELMATE_CAPTURE_SHAPES"

Language = Literal["cuda", "triton", "numba"]

Outcome = Literal["recorded", "sampled", "enough", "large", "graph", "failed"]
"""Result of a launch: recorded; left out by `--every`; its shape has enough records; its buffers exceed the limit; launched
inside a CUDA graph, where nothing can be copied; the copies failed."""

GRAPH = "(a CUDA graph)"
"""Name under which launches of whole graphs are listed."""

LIMIT = 1 << 26
"""Bytes of the buffers of one launch that are recorded by default."""

SHAPES = 4
"""Launches of one shape that are recorded by default."""

LARGEST_KEYED = 1 << 24
"""Whole numbers from here on are not part of a shape's key: the library cannot distinguish them from the bits of a float."""


@dataclass(frozen=True, slots=True)
class CaptureSettings:
    """Settings by which a process records launches of a kernel.

    Attributes:
        folder: where records are written.
        kernel: the kernel's name, without namespaces and template arguments.
        limit: largest sum of the bytes of a launch's buffers that is copied.
        every: record every Nth launch.
        shapes: most launches recorded of each distinct shape.
    """

    folder: Path
    kernel: str
    limit: int = LIMIT
    every: int = 1
    shapes: int = SHAPES

    def environment(self) -> dict[str, str]:
        """Returns the settings as environment variables."""
        return {
            FOLDER_VARIABLE: str(self.folder),
            KERNEL_VARIABLE: self.kernel,
            LIMIT_VARIABLE: str(self.limit),
            EVERY_VARIABLE: str(self.every),
            SHAPES_VARIABLE: str(self.shapes),
        }


def settings_from(environment: Mapping[str, str]) -> CaptureSettings | None:
    """Returns the settings of a process; None if it is not captured."""
    if FOLDER_VARIABLE not in environment:
        return None
    numbers = (int(environment[name]) for name in (LIMIT_VARIABLE, EVERY_VARIABLE, SHAPES_VARIABLE))
    return CaptureSettings(Path(environment[FOLDER_VARIABLE]), environment[KERNEL_VARIABLE], *numbers)


@dataclass(frozen=True, slots=True)
class CapturedBuffer:
    """The memory that a pointer parameter points to, from its address to the end of its allocation.

    Attributes:
        extent: its bytes.
        bytes: how many of them, from its address on, were recorded.
        address: its address on the device.
        shape: the shape of the program's array; None where only the allocation is known.
        read: the launch loaded bytes that it had not stored itself; None if that was not observed.
        written: the launch stored every element; None if that was not observed.
        before, after: files with its contents; the same file if the launch changed nothing.
    """

    extent: int
    bytes: int
    address: int
    shape: tuple[int, ...] | None
    read: bool | None
    written: bool | None
    before: Path
    after: Path

    @property
    def changed(self) -> bool:
        """True if the launch changed its contents."""
        return self.before != self.after

    @property
    def clipped(self) -> bool:
        """True if only a part was recorded, because the limit is smaller."""
        return self.bytes < self.extent


@dataclass(frozen=True, slots=True)
class CapturedParameter:
    """One parameter of a launch.

    Attributes:
        passed: its bytes.
        dtype: NumPy's or ml_dtypes' name of the scalar or of the array's elements, where the program states it.
        buffer: the memory, if the bytes are an address of device memory.
    """

    passed: bytes
    dtype: str | None
    buffer: CapturedBuffer | None


@dataclass(frozen=True, slots=True)
class CapturedLaunch:
    """One recorded launch.

    Attributes:
        folder: its record.
        kernel: the name that was launched, mangled if it is a C++ name of the driver.
        key: equal for launches of one shape in one process.
        number: how many launches of the kernel its process had made before.
        grid, block, shared, cooperative: the launch.
        cluster: blocks of a cluster along x, y and z; None without clusters.
        parameters: in the kernel's order.
        emulated: True if the emulator ran it in place of a GPU.
        source: CUDA text of the kernel, or None.
        options: compiler options of that text; constants of a Triton function as `NAME=value`.
        language: of the kernel: `cuda`, `triton` or `numba`.
        file: the Python file of a Triton or Numba function, or None.
    """

    folder: Path
    kernel: str
    key: str
    number: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    cooperative: bool
    cluster: tuple[int, int, int] | None
    parameters: tuple[CapturedParameter, ...]
    emulated: bool
    source: str | None
    options: tuple[str, ...]
    language: Language
    file: str | None


@dataclass(frozen=True, slots=True)
class Capture:
    """All that the processes of a program recorded.

    Attributes:
        launches: recorded launches in the order of their processes and numbers, at most as many of a shape as were asked for.
        counts: by key of a shape, the number of launches with each outcome.
        names: every kernel that was launched, with the name that the program or the driver has for it.
        damaged: records that cannot be read.
    """

    launches: tuple[CapturedLaunch, ...]
    counts: Mapping[str, Counter[str]]
    names: tuple[str, ...]
    damaged: tuple[str, ...] = ()

    @property
    def outcomes(self) -> Counter[str]:
        """Returns the number of launches by outcome."""
        return sum(self.counts.values(), Counter())


# ----------------------------------------------------------------------------------------------------- reading


def read_capture(folder: Path, shapes: int) -> Capture:
    """Reads the records of a capture, which processes may still be writing.

    Args:
        folder: the folder `launches`.
        shapes: most launches of each shape, over all processes.
    """
    found: list[CapturedLaunch] = []
    damaged: list[str] = []
    kept: Counter[str] = Counter()
    for place in sorted(folder.glob("[!.]*/launch.json"), key=_order):
        try:
            launch = _read_launch(place.parent)
        except (OSError, ValueError, KeyError, TypeError) as error:
            damaged.append(f"{place.parent.name}: {error}")
            continue
        kept[launch.key] += 1
        if kept[launch.key] <= shapes:
            found.append(launch)
    return Capture(tuple(found), _counts(folder), _names(folder), tuple(damaged))


def _order(place: Path) -> tuple[str, int]:
    process, _, number = place.parent.name.partition("-")
    return process, int(number) if number.isdigit() else 0


def _read_launch(folder: Path) -> CapturedLaunch:
    held = json.loads((folder / "launch.json").read_text("utf-8"))
    if held["format"] != FORMAT:
        raise ValueError(f"its format is {held['format']}, and this version reads {FORMAT}")
    source = held.get("source")
    return CapturedLaunch(
        folder, held["kernel"], held["key"], held["number"], _three(held["grid"]), _three(held["block"]), held["shared"],
        held["cooperative"], _three(held["cluster"]) if "cluster" in held else None, tuple(_parameter(folder, number, one) for number, one in enumerate(held["parameters"])),
        held["emulated"], None if source is None else (folder.parent / source).read_text("utf-8"),
        tuple(held.get("options", ())), held.get("language", "cuda"), held.get("file"),
    )  # fmt: skip


def _three(sides: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = map(int, sides)
    return x, y, z


def _parameter(folder: Path, number: int, held: Mapping[str, Any]) -> CapturedParameter:
    passed = bytes.fromhex(held["passed"])
    one, dtype = held.get("buffer"), held.get("dtype")
    if one is None:
        return CapturedParameter(passed, dtype, None)
    before, after = folder / f"{number}.before", folder / f"{number}.after"
    after = after if after.exists() else before
    for file in {before, after}:
        if file.stat().st_size != one["bytes"]:
            raise ValueError(f"{file.name} has {file.stat().st_size} bytes of {one['bytes']}")
    shape = one.get("shape")
    buffer = CapturedBuffer(
        one["extent"], one["bytes"], one["address"], None if shape is None else tuple(shape), one.get("read"), one.get("written"),
        before, after,
    )  # fmt: skip
    return CapturedParameter(passed, dtype, buffer)


def _counts(folder: Path) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for line in _lines(folder, "*.log"):
        key, _, outcome = line.partition(" ")
        counts.setdefault(key, Counter())[outcome] += 1
    return counts


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_lines(folder, "*.names")))


def _lines(folder: Path, pattern: str) -> Iterator[str]:
    for file in sorted(folder.glob(pattern)):
        # A process that was killed may have left the last line without its end.
        yield from file.read_text("utf-8", errors="replace").split("\n")[:-1]


# ----------------------------------------------------------------------------------------------------- writing


@dataclass(frozen=True, slots=True)
class RecordedArgument:
    """An argument of a launch that a stand-in makes.

    Attributes:
        passed: the bytes that the kernel gets; an address for an array.
        dtype: of the scalar, or of the array's elements.
        shape: of the array; None for a scalar.
        before, after: contents of the array.
        read, written: as for `CapturedBuffer`.
    """

    passed: bytes
    dtype: str
    shape: tuple[int, ...] | None = None
    before: bytes = b""
    after: bytes = b""
    read: bool | None = None
    written: bool | None = None


@dataclass(frozen=True, slots=True)
class LaunchHeader:
    """A launch as its record states it: see `CapturedLaunch`."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0
    cooperative: bool = False
    source: str | None = None
    options: tuple[str, ...] = ()
    language: Language = "cuda"
    file: str | None = None


@dataclass(slots=True)
class LaunchRecorder:
    """Decides which launches of this process are recorded, and writes them.

    Args:
        settings: which launches and arrays are recorded.
    """

    settings: CaptureSettings
    _seen: int = 0
    _names: set[str] = field(default_factory=set)
    _taken: Counter[str] = field(default_factory=Counter)

    def wanted(self, name: str) -> bool:
        """Notes that a kernel is launched; returns True if it is the one that is captured."""
        if name not in self._names:
            self._names.add(name)
            self._append("names", name)
        return base_name(name) == base_name(self.settings.kernel)

    def admit(self, key: str, array_bytes: int) -> int | None:
        """Decides about the next launch, before it is made; returns its number if it is to be recorded.

        Args:
            key: the key of its shape.
            array_bytes: bytes of all its arrays together.
        """
        number, self._seen = self._seen, self._seen + 1
        outcome: Outcome | None = None
        if number % self.settings.every:
            outcome = "sampled"
        elif self._taken[key] >= self.settings.shapes:
            outcome = "enough"
        elif array_bytes > self.settings.limit:
            outcome = "large"
        if outcome is None:
            return number
        self._append("log", f"{key} {outcome}")
        return None

    def fail(self, key: str) -> None:
        """Notes that an admitted launch failed."""
        self._append("log", f"{key} failed")

    def record(self, number: int, key: str, facts: LaunchHeader, arguments: Sequence[RecordedArgument]) -> None:
        """Writes the record of an admitted launch.

        Raises:
            OSError: it cannot be written.
        """
        folder = self.settings.folder
        part = folder / f".{os.getpid()}-{number}"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        parameters: list[dict[str, Any]] = []
        for place, one in enumerate(arguments):
            entry: dict[str, Any] = {"passed": one.passed.hex(), "dtype": one.dtype}
            if one.shape is not None:
                (part / f"{place}.before").write_bytes(one.before)
                if one.after != one.before:
                    (part / f"{place}.after").write_bytes(one.after)
                entry["buffer"] = {
                    "extent": len(one.before),
                    "bytes": len(one.before), "address": int.from_bytes(one.passed, "little"),
                    "shape": one.shape, "read": one.read, "written": one.written,
                }  # fmt: skip
            parameters.append(entry)
        held = {
            "format": FORMAT, "kernel": facts.kernel, "key": key, "number": number, "grid": facts.grid, "block": facts.block,
            "shared": facts.shared, "cooperative": facts.cooperative, "emulated": True, "parameters": parameters,
            "source": self._stored(facts.source), "options": facts.options, "language": facts.language, "file": facts.file,
        }  # fmt: skip
        (part / "launch.json").write_text(json.dumps(held), "utf-8")
        part.rename(folder / f"{os.getpid()}-{number}")
        self._taken[key] += 1
        self._append("log", f"{key} recorded")

    def _stored(self, source: str | None) -> str | None:
        """Stores a kernel's text once, and returns the name of its file."""
        if source is None:
            return None
        from kernelmate.files import write_atomically

        file = self.settings.folder / f"{hashlib.sha256(source.encode()).hexdigest()[:16]}.cu"
        if not file.exists():
            write_atomically(file, source)
        return file.name

    def _append(self, kind: str, line: str) -> None:
        with (self.settings.folder / f"{os.getpid()}.{kind}").open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")


def shape_key(facts: LaunchHeader, arguments: Sequence[int | tuple[int, ...] | None]) -> str:
    """Returns the key of a launch's shape.

    Args:
        facts: the launch.
        arguments: for each parameter the shape of its array, or its value if it is a whole number; None for other values.
    """
    keyed = [one if not isinstance(one, int) or 0 <= one < LARGEST_KEYED else None for one in arguments]
    text = repr((facts.kernel, facts.grid, facts.block, facts.shared, keyed))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def kernel_in_text(source: str, name: str) -> Kernel | None:
    """Returns the kernel that a program launches by a name, plain or of an instance, from its text; None if that lacks it."""
    from kernelmate.source import find_kernels, text_unit

    base = base_name(name)
    kernels = find_kernels(text_unit(source, f"<{base}>"))
    return next((one for one in kernels if base_name(one.name) == base), None)


def base_name(name: str) -> str:
    """Returns a kernel's name without namespaces, template arguments and parameters; of mangled names too.

    In a mangled name (Itanium C++ ABI, section 5.1) each part of a nested name is preceded by its length.
    """
    if name.startswith("_Z"):
        rest, last = name[2:].lstrip("NKL"), ""
        while rest[:1].isdigit():
            digits = len(rest) - len(rest.lstrip("0123456789"))
            length = int(rest[:digits])
            last, rest = rest[digits : digits + length], rest[digits + length :]
        return last or name
    return name.partition("<")[0].partition("(")[0].rpartition("::")[2].strip()
