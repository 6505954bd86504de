"""Head and body of the kernel among a unit's shown lines: answers change the head by tokens and the body by lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.suggest.codec.base import NotEncodable
from kernelmate.suggest.codec.lines import CanonicalLine


@dataclass(frozen=True, slots=True)
class Regions:
    """Indices into the shown lines, from 0.

    Attributes:
        head: the line that ends with the kernel's opening brace.
        start, stop: the lines of the body, without a last line that is only its closing brace.
    """

    head: int
    start: int
    stop: int


def regions(shown: Sequence[CanonicalLine], kernel: str) -> Regions:
    """Return the regions of a unit's shown lines.

    Raises:
        NotEncodable: the kernel is not among them.
    """
    heads = [number for number, line in enumerate(shown) if "__global__" in line.texts]
    opened = [number for number in heads if shown[number].texts[-1] == "{"]
    if not heads:
        raise NotEncodable(f"The kernel {kernel} is not in the text.")
    head = (opened or heads)[0]
    return Regions(head, head + 1, _end(shown, head))


def _end(shown: Sequence[CanonicalLine], head: int) -> int:
    """Returns the line that closes the body; one past the last line if there is none."""
    depth = 0
    for number in range(head, len(shown)):
        texts = shown[number].texts
        depth += texts.count("{") - texts.count("}")
        if depth <= 0 and number > head:
            return number if texts == ["}"] else number + 1
    return len(shown)
