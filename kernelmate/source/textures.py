"""Texture and surface objects in contracts: parameters of type `cudaTextureObject_t` and `cudaSurfaceObject_t`.

The limits are those of `cudaCreateTextureObject` (CUDA Runtime API, Texture Object Management); the largest extents are in the
table of technical specifications per compute capability of the CUDA C++ Programming Guide.
"""

from __future__ import annotations

import re
from typing import NoReturn, get_args

from kernelmate.records import AddressMode, Argument, Parameter, TextureView
from kernelmate.source.document import Document
from kernelmate.source.expressions import nearest_hint
from kernelmate.source.toml_positions import Path

_TYPES = {
    "cudaTextureObject_t": "texture", "CUtexObject": "texture", "cudaSurfaceObject_t": "surface", "CUsurfObject": "surface",
}  # fmt: skip
"""Types of the objects, and the word that their entries have."""
_OBJECT = re.compile(
    r"\b(?P<kind>texture|surface)\b(?:[ \t]+of\b[ \t]*(?P<of>\w*))?(?P<words>.*?)(?=[ \t]*(?:~|\balign\b|\Z))"
)
_TOKEN = re.compile(r"\[[^\]]*\]?|[^\s\[]+")
SURFACE_WORDS = ("layered", "channels")
TEXTURE_WORDS = ("buffer", *SURFACE_WORDS, "filter", "address", "normalized", "fraction")
"""Words that may follow `surface` and `texture`."""
_VALUED = {"filter": "linear", "address": "clamp"}
"""Words that a value follows, with an example of one."""
_MODES: tuple[AddressMode, ...] = get_args(AddressMode)
_FLOATS, _FRACTIONS = ("float32", "float16"), ("int8", "uint8", "int16", "uint16")
SHOWN_DTYPES = (*_FLOATS, "int32", "uint32", *_FRACTIONS)
"""Element types that textures and surfaces can show."""


def object_kind(parameter: Parameter) -> str | None:
    """Returns `texture` or `surface` for a parameter that is such an object, else None."""
    return None if parameter.pointer else object_type(parameter.base)


def object_type(name: str) -> str | None:
    """Returns `texture` or `surface` for the name of such an object's type, else None."""
    return _TYPES.get(name.rpartition("::")[2])


def example_entry(name: str, kind: str) -> str:
    """Returns an entry of a contract for a texture or a surface."""
    return f'{name} = "{"in" if kind == "texture" else "out"} float32[height, width] {kind}"'


def split_object(document: Document, path: Path, name: str, entry: str, kind: str) -> tuple[str, re.Match[str]]:
    """Returns an entry with blanks in place of what makes it an object, so that positions stay, and that part.

    Raises:
        ContractError: the entry does not say that it is a texture, or a surface.
    """
    match = _OBJECT.search(entry)
    if match is None or match["kind"] != kind:
        said = "does not say so" if match is None else f"says {match['kind']}"
        document.fail(path, f"{name} is a {kind} object, and its entry {said}.", f"Write {example_entry(name, kind)}.")
    return entry[: match.start()] + " " * (match.end() - match.start()) + entry[match.end() :], match


def read_view(document: Document, path: Path, array: Argument, match: re.Match[str]) -> TextureView:
    """Returns how an object shows `array`.

    Raises:
        ContractError: the entry is invalid; the error points at the invalid part.
    """
    return _ViewReader(document, path, array, match).read()


class _ViewReader:
    """Reads the words `texture filter linear address [clamp, wrap] normalized`."""

    def __init__(self, document: Document, path: Path, array: Argument, match: re.Match[str]) -> None:
        self.document, self.path, self.array = document, path, array
        self.kind, self.text, self.start = match["kind"], match["words"], match.start()

    def fail(self, message: str, hint: str) -> NoReturn:
        self.document.fail(self.path, message, hint, offset=self.start)

    def read(self) -> TextureView:
        words = self.words()
        name, dtype, shape = self.array.name, self.array.dtype, self.array.shape or ()
        if dtype not in SHOWN_DTYPES:
            self.fail(f"A {self.kind} cannot show {dtype}.", f"Write one of {', '.join(SHOWN_DTYPES)}.")
        if self.kind == "texture" and self.array.direction not in ("in", "inout"):
            self.fail(f"{name} is {self.array.direction}, and a kernel cannot write a texture.", "Write in.")
        channels, layered, buffer = ("channels" in words, "layered" in words, "buffer" in words)
        if channels and (not shape or shape[-1] not in ("1", "2", "4")):
            self.fail(f"The last dimension of {name} is not a number of channels.", "Write 1, 2 or 4 there.")
        rank = len(shape) - channels - layered
        if rank not in ((2,) if layered else (1, 2, 3)):
            hint = "Write one to three dimensions, or layers of two; `channels` if the last one counts channels."
            self.fail(f"A {self.kind} of {name}[{', '.join(shape)}] would have {rank} coordinates.", hint)
        if buffer and (rank > 1 or set(words) - {"buffer", "channels", "fraction"}):
            hint = "Write one dimension, with no word but `channels` and `fraction`, for tex1Dfetch; else leave `buffer` out."
            self.fail("Linear memory has one dimension, and no filter.", hint)
        linear, normalized, fraction = self.linear(words), "normalized" in words, "fraction" in words
        if fraction and dtype not in _FRACTIONS:
            self.fail(
                f"{dtype} cannot be read as a fraction.", "Leave `fraction` out: it is for integers of 8 and 16 bits."
            )
        if linear and not (fraction or dtype in _FLOATS):
            self.fail(
                f"{dtype} cannot be filtered linearly.", "Write filter point, or add `fraction` to 8 and 16 bits."
            )
        addresses = () if buffer or self.kind == "surface" else self.addresses(words.get("address", "clamp"), rank)
        periodic = next((mode for mode in addresses if mode in ("wrap", "mirror")), None)
        if periodic is not None and not normalized:
            self.fail(
                f"Address mode {periodic} needs normalized coordinates.", "Add `normalized`, or write clamp or border."
            )
        surface = self.kind == "surface"
        return TextureView(surface, channels, layered, buffer, addresses, linear, normalized, fraction)

    def words(self) -> dict[str, str]:
        """Returns the words, each with its value, or with an empty text if it takes none."""
        words: dict[str, str] = {}
        known = SURFACE_WORDS if self.kind == "surface" else TEXTURE_WORDS
        tokens = _TOKEN.findall(self.text)
        while tokens:
            word = tokens.pop(0)
            if word not in known:
                self.fail(f"{word!r} does not apply to a {self.kind}.", nearest_hint(word, known))
            if word in words:
                self.fail(f"{word} is given twice.", "Leave one of them out.")
            if word in _VALUED and (not tokens or tokens[0] in known):
                self.fail(f"{word} has no value.", f"Write {word} {_VALUED[word]}.")
            words[word] = tokens.pop(0) if word in _VALUED else ""
        return words

    def linear(self, words: dict[str, str]) -> bool:
        filtered = words.get("filter", "point")
        if filtered not in ("point", "linear"):
            self.fail(f"{filtered!r} is not a filter.", "Write filter point or filter linear.")
        return filtered == "linear"

    def addresses(self, text: str, rank: int) -> tuple[AddressMode, ...]:
        if text.startswith("[") and not text.endswith("]"):
            self.fail("The list of address modes is not closed.", "Write it as in address [clamp, border].")
        parts = [part.strip() for part in text.strip("[]").split(",")]
        known = [mode for part in parts for mode in _MODES if mode == part]
        if len(known) != len(parts):
            wrong = next(part for part in parts if part not in _MODES)
            self.fail(f"{wrong!r} is not an address mode.", nearest_hint(wrong, _MODES))
        if len(known) not in (1, rank):
            self.fail(
                f"{self.array.name} has {rank} coordinates.", "Write one address mode, or one for each coordinate."
            )
        return tuple(known * rank if len(known) == 1 else known)


def view_text(view: TextureView) -> str:
    """Returns an object as contracts write it: `texture filter linear address wrap normalized`."""
    text = "surface" if view.surface else "texture"
    for word in ("buffer", *SURFACE_WORDS):
        text += f" {word}" * getattr(view, word)
    text += " filter linear" * view.linear
    modes = view.addresses if len(set(view.addresses)) > 1 else view.addresses[:1]
    if len(modes) > 1:
        text += f" address [{', '.join(modes)}]"
    elif modes and modes[0] != "clamp":
        text += f" address {modes[0]}"
    return text + " normalized" * view.normalized + " fraction" * view.fraction
