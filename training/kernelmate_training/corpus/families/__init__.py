"""Families of problems: each draws a problem with all the ways in which its kernel may be written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random

from kernelmate_training.corpus.drafting import Kind, Problem


@dataclass(frozen=True, slots=True)
class Family:
    """Problems of one kind.

    Attributes:
        draw: one of them, by chance.
        held_out: none of its rows is trained on.
    """

    name: str
    kind: Kind
    draw: Callable[[Random], Problem]
    held_out: bool = False


def registry() -> Mapping[str, Family]:
    """All families by name."""
    from kernelmate_training.corpus.families.catalogue import FAMILIES

    return {family.name: family for family in FAMILIES}
