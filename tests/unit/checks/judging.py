"""A contract, a right kernel for it, and what judging needs, for tests of the judge."""

from __future__ import annotations

import numpy as np

from kernelmate.compiler import find_target
from kernelmate.records import JudgeTask

DOUBLE = """
sizes = [{ n = 1000 }, { n = 33 }]
grid = "cdiv(n, 256)"
block = 256
reference = "2 * x"
[args]
x = "in float32[n]"
y = "out float32[n]"
n = "int32"
"""


def honest(x, y, n, schedule):
    y[:] = 2 * x


def body(function):
    """A kernel without memory of its own: every load gives the same function."""
    return lambda: function


def errors(judgement):
    return [f.code for f in judgement.findings if f.severity == "error"]


def writes_zeros(x, y, n, schedule):
    y[:] = 0


def wrong_everywhere(x, y, n, schedule):
    y[:] = 3 * x


def swallows_nan(x, y, n, schedule):
    y[:] = np.nan_to_num(2 * x)


def task_of(candidate, baseline, directory, **more):
    return JudgeTask("emulator", find_target(None), candidate, baseline, None, (), 7, str(directory), **more)
