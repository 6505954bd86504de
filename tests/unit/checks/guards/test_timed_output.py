from __future__ import annotations

import numpy as np

from kernelmate.checks.guards.timed_output import find
from kernelmate.checks.oracle import Answer
from kernelmate.checks.tolerances import Allowed
from kernelmate.records import Argument, Contract

CONTRACT = Contract(
    "k", ({"n": 4},), ("1",), ("32",), (Argument("x", "in", "float32", ("n",)), Argument("y", "out", "float32", ("n",)))
)
WANT = np.array([1.0, 2.0, 3.0, 4.0])
ANSWER = Answer({"y": WANT}, Allowed({"y": np.full(4, 1e-5)}, {"y": np.full(4, 1e-2)}))


def test_an_output_that_stays_spoilt_is_found_with_its_first_place() -> None:
    left = WANT.astype(np.float32)
    left[2] = -2.87e-16
    assert find(CONTRACT, {"y": left}, ANSWER) == (
        "y",
        "y is right in a first launch and wrong at [2]: -2.87e-16 in place of 3 after many equal ones",
    )


def test_a_right_output_and_an_unknown_answer_say_nothing() -> None:
    assert find(CONTRACT, {"y": WANT.astype(np.float32)}, ANSWER) is None
    assert find(CONTRACT, {"y": np.zeros(4, np.float32)}, None) is None
