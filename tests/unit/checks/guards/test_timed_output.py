from __future__ import annotations

import numpy as np

from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.guards.timed_output import find
from kernelmate.checks.tolerances import Allowed
from kernelmate.records import Argument, Contract

CONTRACT = Contract(
    "k", ({"n": 4},), ("1",), ("32",), (Argument("x", "in", "float32", ("n",)), Argument("y", "out", "float32", ("n",)))
)
WANT = np.array([1.0, 2.0, 3.0, 4.0])
JUDGED = {"y": WANT.astype(np.float32)}
ANSWER = ExpectedOutputs({"y": WANT}, Allowed({"y": np.full(4, 1e-5)}, {"y": np.full(4, 1e-2)}))


def test_an_output_that_stays_spoilt_is_found_with_its_first_place() -> None:
    left = WANT.astype(np.float32)
    left[2] = -2.0
    assert find(CONTRACT, JUDGED, ANSWER, {"y": left}) == (
        "y",
        "timed launches leave another y than judged ones (element [2]: -2.0, not 3.0): not each launch does the work",
    )


def test_another_order_of_adding_is_within_the_tolerance() -> None:
    left = WANT.astype(np.float32)
    left[2] = np.nextafter(left[2], np.float32(4))
    assert find(CONTRACT, JUDGED, ANSWER, {"y": left}) is None


def test_equal_outputs_and_an_unknown_answer_say_nothing() -> None:
    assert find(CONTRACT, JUDGED, ANSWER, {"y": WANT.astype(np.float32)}) is None
    assert find(CONTRACT, JUDGED, None, {"y": np.zeros(4, np.float32)}) is None
