"""Large arrays pass between processes through memory that they share, small ones and fills as what they are."""

from __future__ import annotations

import os
import sys

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.cuda.exchange import (
    LARGE_BYTES,
    ArrayPlace,
    Exchange,
    FilledArray,
    fill_byte,
    filled_array,
    is_large,
    layout_of,
    with_shared_arrays,
)
from kernelmate.records import LaunchShape

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is shared on Linux only")

SHAPE = LaunchShape((1, 1, 1), (32, 1, 1))
COUNT = LARGE_BYTES // 4 + 1


def run_of(count: int) -> Run:
    x = np.arange(count, dtype=np.float32)
    arguments = (
        ArrayArgument("x", x, written=False),
        ArrayArgument("y", filled_array(0xA5, np.dtype(np.int32), (count,)), output=True),
        ScalarArgument("n", np.int32(count)),
    )
    return Run(SHAPE, arguments, key="first")


def test_launches_are_large_by_the_bytes_of_all_their_arrays() -> None:
    assert is_large(run_of(COUNT))
    assert is_large(run_of(COUNT // 2 + 1))
    assert not is_large(run_of(COUNT // 4))


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int32, np.float64, np.complex64])
def test_a_fill_takes_the_memory_of_one_element_and_reads_as_all_of_them(dtype) -> None:
    array = filled_array(0x5A, np.dtype(dtype), (3, 5))
    assert array.nbytes == 15 * np.dtype(dtype).itemsize
    assert set(array.tobytes()) == {0x5A}
    assert fill_byte(array) == 0x5A
    assert fill_byte(np.ones(15)) is None
    assert fill_byte(np.ones((3, 5))[:, :1].T) is None


def test_what_is_sent_is_places_and_fills_and_is_read_back_as_arrays() -> None:
    run, exchange = run_of(COUNT), Exchange(1 << 28)
    layout = layout_of(run, copies=2)
    assert set(layout.inputs) == {"x"}
    assert set(layout.outputs) == {"x/0", "y/0", "x/1", "y/1"}
    ends = [place.offset + place.nbytes for place in (*layout.inputs.values(), *layout.outputs.values())]
    starts = [place.offset for place in (*layout.inputs.values(), *layout.outputs.values())]
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    assert layout.middle == starts[1]
    assert ends[-1] <= layout.end
    np.copyto(exchange.view(layout.inputs["x"]), run.arguments[0].data)
    light = with_shared_arrays(run, layout)
    assert isinstance(light.arguments[0].data, ArrayPlace)
    assert light.arguments[1].data == FilledArray(0xA5, np.dtype(np.int32), (COUNT,))
    assert light.arguments[2] is run.arguments[2]
    for whole in (False, True):
        back = exchange.resolved(light, whole=whole)
        assert np.array_equal(back.arguments[0].data, run.arguments[0].data)
        assert np.array_equal(back.arguments[1].data, run.arguments[1].data)
        assert (fill_byte(back.arguments[1].data) is None) == whole


def test_another_process_reads_what_was_written_and_clearing_takes_it_away() -> None:
    exchange = Exchange(1 << 24)
    place = ArrayPlace(4096, np.dtype(np.int64), (1000,))
    exchange.view(place)[:] = 7
    pid = os.fork()
    if not pid:
        seen = int(exchange.view(place).sum())
        exchange.view(place)[:] = 9
        os._exit(0 if seen == 7000 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert int(exchange.view(place).sum()) == 9000
    exchange.clear(4096, 4096 + place.nbytes)
    assert not exchange.view(place).any()
