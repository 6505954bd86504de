"""Families of problems: each draws a problem with all versions in which its kernel may be written."""

from __future__ import annotations

from collections.abc import Mapping

from kernelmate_training.corpus.drafting import Family


def registry() -> Mapping[str, Family]:
    """Returns all families by name."""
    from kernelmate_training.corpus.families.catalogue import FAMILIES

    return {family.name: family for family in FAMILIES}
