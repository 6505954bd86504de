from __future__ import annotations

from kernelmate.records import Anchor, Unit
from kernelmate.suggest.repairs.base import unit_place


def test_a_place_of_a_file_is_its_own_offset() -> None:
    unit = Unit("k.cu", "ab\ncdef\n")
    assert unit_place(unit, 2, 3) == (5, 2)
    assert unit_place(unit, 2, 90) == (7, 2)
    assert unit_place(unit, 9, 1) is None
    assert unit_place(unit, None, None) is None


def test_a_place_in_a_python_string_is_found_through_its_anchors() -> None:
    unit = Unit("k.py", "ab\ncdef\n", "python", (Anchor(1, 1, 7, 12), Anchor(2, 1, 8, 1)))
    assert unit_place(unit, 7, 13) == (1, 1)
    assert unit_place(unit, 8, 2) == (4, 2)
    assert unit_place(unit, 3, 1) is None
