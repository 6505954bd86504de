"""Families of problems: each draws a problem with all the ways in which its kernel may be written."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmate_training.corpus.drafting import Family


def registry() -> Mapping[str, Family]:
    """All families by name."""
    from kernelmate_training.corpus.families.catalogue import FAMILIES

    return {family.name: family for family in FAMILIES}
