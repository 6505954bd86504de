"""Tensor maps in contracts: parameters of type `CUtensorMap`, and the box of an array that each stands for.

The limits are those of `cuTensorMapEncodeTiled` (CUDA Driver API, Tensor Map Object Management).
"""

from __future__ import annotations

import re
from typing import NoReturn

from kernelmate.records import Argument, Parameter, TensorBox
from kernelmate.source.document import Document
from kernelmate.source.dtypes import ITEM_BYTES
from kernelmate.source.launch import MAP_ALIGNMENT
from kernelmate.source.toml_positions import Path

TYPES = frozenset({"CUtensorMap", "CUtensorMap_st"})
OF = re.compile(r"\s*tensormap\b[ \t]*(?:of[ \t]+)?(?P<of>\w*)")
"""Beginning of an entry for a map of an array that has an entry of its own."""
_WORDS = "swizzle|step|fill"
_VALUE = rf"(?!(?:{_WORDS})\b)(?:\[[^\]]*\]?|\w+)"
_BOX = re.compile(rf"\s+box\b[ \t]*(?P<box>\[[^\]]*\]?)?(?P<words>(?:[ \t]+(?:{_WORDS})\b(?:[ \t]*{_VALUE})?)*)")
_WORD = re.compile(rf"({_WORDS})\b(?:[ \t]*({_VALUE}))?")
_SWIZZLES = {"none": 0, "32B": 32, "64B": 64, "128B": 128}
_MOST_DIMENSIONS, _MOST_BOX, _MOST_STEP = 5, 256, 8


def is_tensor_map(parameter: Parameter) -> bool:
    """Returns True for a parameter that is a tensor map."""
    return parameter.base.rpartition("::")[2] in TYPES and not parameter.pointer


def example_map(name: str) -> str:
    """Returns an entry of a contract for a tensor map."""
    return f'{name} = "in float16[m, k] box [64, 64]"'


def split_entry(document: Document, path: Path, name: str, entry: str) -> tuple[str, re.Match[str]]:
    """Returns an entry with blanks in place of its box, so that positions stay, and the box.

    Raises:
        ContractError: there is none.
    """
    match = _BOX.search(entry)
    if match is None:
        hint = f"Write {example_map(name)}: the array, and the box that one copy moves."
        document.fail(path, f"{name} is a tensor map, and its entry has no box.", hint)
    return entry[: match.start()] + " " * (match.end() - match.start()) + entry[match.end() :], match


def read_box(document: Document, path: Path, array: Argument, match: re.Match[str]) -> TensorBox:
    """Returns the box of a map of `array`.

    Raises:
        ContractError: the entry is invalid; the error points at the invalid part.
    """
    return _BoxReader(document, path, array, match).read()


class _BoxReader:
    """Reads the words `box [64, 64] swizzle 128B step [2, 1] fill nan`."""

    def __init__(self, document: Document, path: Path, array: Argument, match: re.Match[str]) -> None:
        self.document, self.path, self.array, self.match = document, path, array, match
        self.rank = len(array.shape or ())
        self.item = ITEM_BYTES[array.dtype]

    def fail(self, message: str, hint: str) -> NoReturn:
        self.document.fail(self.path, message, hint, offset=self.match.start("words" if self.match["box"] else 0))

    def read(self) -> TensorBox:
        if not 1 <= self.rank <= _MOST_DIMENSIONS or self.array.dtype.startswith("complex"):
            self.fail(
                f"A tensor map of {self.array.name} is not possible.",
                "Write an array of real numbers of one to five dimensions.",
            )
        words = dict.fromkeys(("swizzle", "step", "fill"), "")
        for word, value in _WORD.findall(self.match["words"]):
            words[word] = value or "nothing"
        box = self.numbers("box", self.match["box"] or "", _MOST_BOX)
        step = self.numbers("step", words["step"], _MOST_STEP) if words["step"] else (1,) * self.rank
        if step[-1] != 1:
            self.fail(
                "The step of the last dimension must be 1.",
                f"Write step [{', '.join(['2'] * (self.rank - 1) + ['1'])}].",
            )
        swizzle = self.swizzle(words["swizzle"] or "none", box[-1] * self.item)
        if words["fill"] not in ("", "zero", "nan"):
            self.fail(f"{words['fill']!r} is not a fill value.", "Write fill zero or fill nan.")
        if words["fill"] == "nan" and "float" not in self.array.dtype:
            self.fail(f"{self.array.dtype} has no NaN.", "Write fill zero.")
        return TensorBox(box, step, swizzle, words["fill"] == "nan")

    def numbers(self, word: str, text: str, most: int) -> tuple[int, ...]:
        parts = [part.strip() for part in text[1:-1].split(",")] if text.endswith("]") else []
        found = tuple(int(part) for part in parts if part.isdecimal() and len(part) < 4)
        if len(found) != self.rank or len(parts) != self.rank or not all(1 <= one <= most for one in found):
            example = ", ".join(["64" if word == "box" else "1"] * self.rank)
            dimensions = "one number" if self.rank == 1 else f"{self.rank} numbers"
            self.fail(
                f"{word} {text} does not fit {self.array.name}[{', '.join(self.array.shape or ())}].",
                f"Write {word} [{example}]: {dimensions} from 1 to {most}, in the order of the shape.",
            )
        return found

    def swizzle(self, text: str, inner: int) -> int:
        """Returns the swizzle of a box whose rows have `inner` bytes."""
        if text not in _SWIZZLES:
            self.fail(f"{text!r} is not a swizzle.", f"Write one of {', '.join(_SWIZZLES)}.")
        if inner % MAP_ALIGNMENT:
            self.fail(f"A row of the box has {inner} bytes.", f"Make it a multiple of {MAP_ALIGNMENT} bytes.")
        if _SWIZZLES[text] and inner > _SWIZZLES[text]:
            hint = f"Write a box of at most {_SWIZZLES[text] // self.item} elements in the last dimension, or a wider swizzle."
            self.fail(f"A row of the box has {inner} bytes, more than the swizzle's {_SWIZZLES[text]}.", hint)
        return _SWIZZLES[text]


def box_text(box: TensorBox) -> str:
    """Returns a box as contracts write it: `box [64, 64] swizzle 128B`."""
    text = f"box [{', '.join(map(str, box.extents))}]"
    if box.swizzle:
        text += f" swizzle {box.swizzle}B"
    if set(box.steps) != {1}:
        text += f" step [{', '.join(map(str, box.steps))}]"
    return text + " fill nan" * box.nan_fill
