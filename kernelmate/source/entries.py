"""Reads one entry of a contract's `[args]` or `[symbols]`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from kernelmate.records import Argument, Direction, Parameter
from kernelmate.source.distributions import parse_distribution, split_commas
from kernelmate.source.document import Document
from kernelmate.source.dtypes import ITEM_BYTES, dtype_hint
from kernelmate.source.expressions import ExpressionError, nearest_hint
from kernelmate.source.launch import NOT_FINITE
from kernelmate.source.structs import vector_example
from kernelmate.source.toml_positions import Path

DIRECTIONS: Mapping[str, Direction] = {"in": "in", "out": "out", "inout": "inout", "scratch": "scratch"}
"""Directions of arrays, as a contract writes them."""

_ENTRY = re.compile(r"\s*(?:(?P<direction>\w+)[ \t]+(?=\w)(?!(?:align|fixed)\b))?(?P<dtype>\w+)[ \t]*")
_EXTENT = re.compile(r"\s*\[(?P<before>(?:[ \t]*:[ \t]*,)*)[ \t]*:(?P<count>[^\]:]*)\]")
_UNORDERED = re.compile(r"\s*unordered\b(?:[ \t]+with\b[ \t]*(?P<paired>\w*))?")
_MASK = re.compile(r"\s*where\b[ \t]*(?P<mask>\w*)")
_ALIGN = re.compile(r"\s*align\b[ \t]*(?P<bytes>[^\s~]*)")
_ALIGN_LAST = re.compile(r"[^\s=]\s+(?P<align>align\b)[^'\")]*\Z")
_FIXED = re.compile(r"(?<=[^\s=])\s+fixed\s*\Z")
MOST_ALIGNED = 256
"""Bytes to which CUDA allocations are at least aligned (CUDA C++ Programming Guide, "Size and Alignment Requirement")."""

_RAW_STORAGE = ("float", "bfloat")


def read_entry(
    document: Document, parameter: Parameter, value: object, sizes: Sequence[str], path: Path | None = None,
    *, size: str | None = None,
) -> Argument:  # fmt: skip
    """Reads one entry such as `in float32[rows, cols] ~ normal`.

    Args:
        document: the block.
        parameter: the parameter, or what stands for a field or a variable.
        value: the entry.
        sizes: names of the sizes.
        path: the entry's key; the default is that of a parameter.
        size: the size whose value a scalar without a value takes; the default is its own name.

    Raises:
        ContractError: at the mistake.
    """
    return _EntryReader(
        document, parameter, value, sizes, path or ("args", parameter.name), parameter.name if size is None else size
    ).read()


class _EntryReader:
    """Reads one entry; see `read_entry`."""

    def __init__(
        self, document: Document, parameter: Parameter, value: object, sizes: Sequence[str], path: Path, size: str
    ) -> None:
        self.document = document
        self.parameter = parameter
        self.path = path
        self.sizes = sizes
        self.size = size
        if not isinstance(value, str):
            dtype = parameter.dtype or "float32"
            written = str(value).lower() if isinstance(value, int | float) else "1"
            hint = f'Write {parameter.name} = "{dtype} = {written}".'
            if parameter.pointer:
                hint = f'Write {parameter.name} = "in {dtype}[n]".'
            self.fail(f"The entry of {parameter.name} must be a string.", hint)
        self.text: str = value

    def fail(self, message: str, hint: str, offset: int | None = None) -> NoReturn:
        self.document.fail(self.path, message, hint, offset=offset)

    def read(self) -> Argument:
        match = _ENTRY.match(self.text)
        if match is None:
            self.fail(f"{self.text!r} has no dtype.", self.example())
        direction = self.direction(match)
        dtype = self.dtype(match)
        rest = self.text[match.end() :]
        if self.parameter.pointer:
            return self.array(direction, dtype, rest, match.end())
        return self.scalar(match, dtype, rest, match.end())

    def example(self) -> str:
        dtype = self.parameter.dtype or "float32"
        if self.parameter.pointer:
            direction = "in" if self.parameter.const else "out"
            return f'Write {self.parameter.name} = "{direction} {dtype}[{", ".join(list(self.sizes)[:2]) or 1}]".'
        if self.parameter.name in self.sizes:
            return f'Write {self.parameter.name} = "{dtype}".'
        return f'Write {self.parameter.name} = "{dtype} = 1".'

    def direction(self, match: re.Match[str]) -> Direction | None:
        word = match.group("direction")
        if word is None:
            return None
        if word not in DIRECTIONS:
            self.fail(f"{word!r} is not a direction.", nearest_hint(word, DIRECTIONS), match.start("direction"))
        return DIRECTIONS[word]

    def dtype(self, match: re.Match[str]) -> str:
        name = match.group("dtype")
        start = match.start("dtype")
        if name in DIRECTIONS:
            self.fail(f"A dtype must follow {name!r}.", self.example(), match.end("dtype"))
        if name not in ITEM_BYTES:
            self.fail(f"{name!r} is not a dtype.", dtype_hint(name), start)
        wanted = self.parameter.dtype
        if wanted is not None and not fits(name, wanted, self.parameter):
            vector = f" (elements of {self.parameter.base})" if self.parameter.vector > 1 else ""
            message = (
                f"{name} disagrees with {self.parameter.type} {self.parameter.name}, which holds {wanted}{vector}."
            )
            self.fail(message, f"Write {wanted}, or change the parameter's type.", start)
        return name

    def array(self, direction: Direction | None, dtype: str, rest: str, start: int) -> Argument:
        if not rest.startswith("["):
            self.fail(f"{self.parameter.name} is an array and has no shape.", self.example(), start if rest else None)
        if direction is None:
            self.fail(f"{self.parameter.name} has no direction.", self.example())
        if self.parameter.const and direction != "in":
            message = f"{self.parameter.name} is {self.parameter.type}: the kernel cannot write it."
            self.fail(message, f"Write in instead of {direction}, or drop const from the parameter.")
        end = _closing_bracket(rest)
        if end is None:
            self.fail("The shape's [ is not closed.", self.example(), start)
        shape = self.shape(rest[1:end], start + 1)
        made = Argument(self.parameter.name, direction, dtype, shape)
        made, at = self.words(made, rest, end + 1, start)
        return replace(made, distribution=self.distribution(direction, rest[at:], start + at))

    def words(self, made: Argument, rest: str, at: int, start: int) -> tuple[Argument, int]:
        """Returns the argument completed by the words between shape and distribution, and the offset after them."""
        extent = _EXTENT.match(rest, at)
        if extent is not None:
            self.output(made, "an extent", start + extent.start())
            made = replace(made, extent=(self.axis(made, extent, start), extent["count"].strip()))
            at = extent.end()
        while True:
            align, read = (None, 0) if made.align is not None else self.align(made.dtype, rest[at:], start + at)
            unordered = None if made.unordered else _UNORDERED.match(rest, at)
            mask = None if made.mask is not None else _MASK.match(rest, at)
            if align is not None:
                made, at = replace(made, align=align), at + read
            elif unordered is not None:
                self.output(made, "an order", start + unordered.start())
                if unordered["paired"] == "":
                    self.fail("After `with` an output must follow.", "Write unordered with keys.", start + at)
                made, at = replace(made, unordered=True, paired=unordered["paired"]), unordered.end()
            elif mask is not None:
                self.output(made, "a mask", start + mask.start())
                if not mask["mask"]:
                    self.fail("After `where` an array must follow.", "Write where valid.", start + at)
                made, at = replace(made, mask=mask["mask"]), mask.end()
            else:
                return made, at

    def output(self, made: Argument, what: str, at: int) -> None:
        """Refuses what only a compared array may have."""
        if made.direction not in ("out", "inout"):
            hint = "Remove it, or write out or inout."
            self.fail(f"{made.name} is {made.direction}, which is not compared, so {what} has no effect.", hint, at)

    def axis(self, made: Argument, extent: re.Match[str], start: int) -> int:
        """Returns the axis that an extent such as `[:, :count]` limits."""
        axis = extent["before"].count(":")
        if axis >= len(made.shape or ()):
            message = f"The extent of {made.name} has more axes than its shape."
            self.fail(message, f"Write one to {len(made.shape or ())} of them.", start + extent.start())
        if not extent["count"].strip():
            self.fail("The extent has no end.", "Write [:count].", start + extent.start())
        return axis

    def align(self, dtype: str, rest: str, start: int) -> tuple[int | None, int]:
        """Returns the promised alignment in bytes, and the length of its text: ` align 16` after the shape."""
        match = _ALIGN.match(rest)
        if match is None:
            return None, 0
        written = match.group("bytes") or ""
        number, itemsize = int(written) if written.isdecimal() else 0, ITEM_BYTES[dtype]
        at = start + match.start("bytes")
        good = f"Write align {max(16, itemsize)}: a power of two from {itemsize} to {MOST_ALIGNED}, in bytes."
        if not written.isdecimal():
            self.fail("align must be followed by a number of bytes.", good, at)
        if number < 1 or number & (number - 1) or number > MOST_ALIGNED:
            self.fail(f"align {written} is not a power of two of at most {MOST_ALIGNED}.", good, at)
        if number % itemsize:
            self.fail(f"align {written} is not a multiple of the {itemsize} bytes of {dtype}.", good, at)
        return number, match.end()

    def shape(self, text: str, start: int) -> tuple[str, ...]:
        if not text.strip():
            self.fail(f"{self.parameter.name} is an array and has no shape.", "Write [1] for a single element.", start)
        shape = []
        for axis, (offset, part) in enumerate(split_commas(text)):
            at = start + offset + len(part) - len(part.lstrip())
            self.document.expression(self.path, part.strip(), self.sizes, at)
            self.document.inner[("args", self.parameter.name, "shape", axis)] = at
            shape.append(part.strip())
        return tuple(shape)

    def distribution(self, direction: Direction, rest: str, start: int) -> str | None:
        text = rest.strip()
        if not text:
            return None
        at = start + len(rest) - len(rest.lstrip())
        if text.startswith("="):
            self.fail("An array takes no value.", "Draw its elements with ` ~ ones`, or give them by `inputs`.", at)
        if not text.startswith("~"):
            if re.match(r"fixed\b", text):
                self.fail("Only a scalar can be fixed.", "Remove it; an array's elements follow its distribution.", at)
            if re.search(r"\balign\b", text):
                self.fail(f"{text!r} does not belong here.", "Write align once, between the shape and the ~.", at)
            hint = "After the shape follow [:count], unordered, where, align, or a distribution after ~."
            self.fail(f"{text!r} does not belong here.", hint, at)
        if direction == "scratch" and text[1:].strip() not in ("zeros", "ones"):
            self.fail("A scratch array is poisoned, or filled by zeros or ones.", "Write ~ zeros, or nothing.", at)
        if direction == "out":
            self.fail(
                "An out array has no distribution: it is only written.", "Write inout, or remove the distribution.", at
            )
        late = _ALIGN_LAST.search(text)
        if late is not None:
            message = f"align stands after the distribution of {self.parameter.name}."
            self.fail(message, "Write it before the ~, after the shape.", at + late.start("align"))
        try:
            parse_distribution(text[1:], self.sizes)
        except ExpressionError as error:
            self.fail(error.message, error.hint or "", at + 1 + error.offset)
        return text[1:].strip()

    def scalar(self, match: re.Match[str], dtype: str, rest: str, start: int) -> Argument:
        name = self.parameter.name
        if match.group("direction") is not None or rest.startswith("["):
            offset = start if rest.startswith("[") else match.start("direction")
            self.fail(f"{name} is a scalar ({self.parameter.type}), not an array.", self.example(), offset)
        example = vector_example(self.parameter)
        if example is not None or "&" in self.parameter.type:
            message = f"{name} ({self.parameter.type}) is not a plain number."
            self.fail(message, f"Write {example}." if example is not None else "Pass it by value, or by pointer.")
        if re.match(r"fixed\s*\Z", rest):
            follows = f"takes the value of the size {self.size}" if self.size in self.sizes else "has no value"
            hint = "Remove fixed." if self.size in self.sizes else f'Write {name} = "{dtype} = 1 fixed".'
            self.fail(f"{name} {follows}, so it cannot be fixed.", hint, start)
        if not rest:
            if self.size not in self.sizes:
                hint = f'Write {self.size} = "{dtype} = 1", or add {self.size} to the sizes.'
                self.fail(f"{self.size} is not a size and has no value.", hint)
            return Argument(name, None, dtype, value=None if name in self.sizes else self.size)
        if not rest.startswith("="):
            hint = "A scalar has no distribution." if rest.startswith("~") else "A value follows the dtype after =."
            hint = "Only an array has an alignment." if rest.startswith("align") else hint
            self.fail(f"{rest!r} does not belong here.", f"{hint} {self.example()}", start)
        late = _ALIGN_LAST.search(rest)
        if late is not None:
            self.fail(f"{name} is a scalar, which has no alignment.", "Remove align.", start + late.start("align"))
        fixed = _FIXED.search(rest)
        value = rest[1 : fixed.start() if fixed is not None else None].strip()
        at = start + 1 + len(rest[1:]) - len(rest[1:].lstrip())
        if value not in NOT_FINITE or "float" not in dtype:
            self.document.expression(self.path, value, self.sizes, at)
        self.document.inner[("args", name, "value")] = at
        return Argument(name, None, dtype, value=value, fixed=fixed is not None)


def _closing_bracket(text: str) -> int | None:
    """Returns the index of the `]` that closes the `[` at the start."""
    end = text.find("]")
    return None if end < 0 else end


def fits(dtype: str, wanted: str, parameter: Parameter) -> bool:
    """Returns True if an array or scalar of `dtype` may stand for a parameter whose C type holds `wanted`.

    Byte types fit any dtype, unsigned integers of the same width may store a floating format without a C type, and two
    floats may form a complex number.
    """
    if dtype == wanted:
        return True
    if not parameter.pointer:
        return False
    if wanted in ("uint8", "int8") and parameter.base in ("char", "unsigned char", "signed char", "uint8_t", "byte"):
        return True
    if wanted.startswith("uint") and dtype.startswith(_RAW_STORAGE):
        return ITEM_BYTES[dtype] == ITEM_BYTES[wanted]
    return parameter.vector == 2 and (wanted, dtype) in (("float32", "complex64"), ("float64", "complex128"))
