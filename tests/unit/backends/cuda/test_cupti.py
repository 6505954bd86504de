"""Records of CUPTI as bytes: which launch each belongs to, and when they are not to be believed."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.backends.cuda.cupti import (
    CONCURRENT_KERNEL,
    FIELDS,
    READ_BYTES,
    concatenated_records,
    copied_fields,
    durations_of,
    record_dtype,
)
from kernelmate.backends.timed import CuptiUnavailable
from kernelmate.records import LaunchShape

SMALL, LARGE = LaunchShape((1, 1, 1), (32, 1, 1)), LaunchShape((132, 2, 1), (16, 16, 1))


def records(*launches: tuple[LaunchShape, int, int], stride: int = 216) -> np.ndarray:
    """Records as CUPTI 13.0 lays them out, with everything that is not read set to noise."""
    raw = np.random.default_rng(0).integers(0, 256, stride * len(launches), dtype=np.uint8)
    view = raw.view(record_dtype(stride))
    for place, (shape, start, end) in zip(view, launches, strict=True):
        place["kind"], place["start"], place["end"] = CONCURRENT_KERNEL, start, end
        place["grid"], place["block"] = shape.grid, shape.block
    return view


@pytest.mark.parametrize("stride", [208, 216, 248])
def test_durations_come_in_the_order_of_the_launches(stride: int) -> None:
    seen = records((LARGE, 5_000, 12_016), (SMALL, 1_000, 2_504), stride=stride)
    assert durations_of(seen, [SMALL, LARGE]).tolist() == [1.504, 7.016]
    assert durations_of(copied_fields(seen), [SMALL, LARGE]).tolist() == [1.504, 7.016]


def test_records_of_several_buffers_are_put_together() -> None:
    parts = [copied_fields(records((SMALL, 10, 20))), copied_fields(records((LARGE, 30, 50), stride=248))]
    assert durations_of(concatenated_records(parts), [SMALL, LARGE]).tolist() == [0.01, 0.02]
    assert len(concatenated_records([])) == 0


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        (records((SMALL, 10, 20)), "1 kernels, but 2 were launched"),
        (records((SMALL, 10, 20), (SMALL, 30, 40)), "not those of the launches"),
        (records((SMALL, 10, 20), (LARGE, 0, 0)), "not those of the launches"),
        (records((SMALL, 10, 20), (LARGE, 40, 40)), "no time stamps"),
    ],
)
def test_records_that_do_not_fit_the_launches_are_refused(seen: np.ndarray, words: str) -> None:
    with pytest.raises(CuptiUnavailable, match=words):
        durations_of(seen, [SMALL, LARGE])


def test_what_is_read_lies_in_the_part_that_all_releases_share() -> None:
    sizes = {name: np.dtype(form).itemsize for name, (form, _) in FIELDS.items()}
    assert max(offset + sizes[name] for name, (_, offset) in FIELDS.items()) == READ_BYTES
