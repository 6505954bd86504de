"""`%kernelmate write`: a kernel for a function of the notebook, which the next cell then holds."""

from __future__ import annotations

import numpy as np
import pytest
from IPython.core.error import UsageError

SETUP = """\
import numpy as np

def scaled(x, w, alpha=0.5):
    '''Scales columns.'''
    return alpha * x * w

def ordered(x):
    return np.sort(x)

x = np.ones((40, 32), np.float32)
w = np.arange(32, dtype=np.float32)
"""


def test_the_next_cell_holds_a_kernel_that_is_judged_by_the_function(notebook) -> None:
    notebook.run(SETUP)
    ran = notebook.run("%kernelmate write scaled(x, w)")
    assert "clean" in ran.text
    cell = notebook.shell.rl_next_input
    assert cell.startswith("%%kernelmate scaled_kernel --ref scaled\n// Scales columns.\n")
    assert "reference =" not in cell
    notebook.run(cell)
    handle = notebook.names["scaled_kernel"]
    assert handle.verdict.correct is True
    notebook.run("out = np.zeros_like(x)\nscaled_kernel(x, w, out, 40, 32, 0.5)")
    np.testing.assert_allclose(notebook.names["out"], 0.5 * notebook.names["x"] * notebook.names["w"])


def test_a_function_that_cannot_be_traced_is_told_with_its_operation(notebook) -> None:
    notebook.run(SETUP)
    ran = notebook.run("%kernelmate write ordered(x)")
    assert "np.sort" in ran.text
    assert "No kernel was written." in ran.text


@pytest.mark.parametrize(
    ("call", "says"),
    [
        ("scaled", "is not a call"),
        ("scaled(x)", "missing a required argument: 'w'"),
        ("absent(x)", "cannot be called"),
        ("scaled(x, [1, 2])", "w is a list"),
    ],
)
def test_a_call_that_cannot_be_read_is_refused_in_words(notebook, call: str, says: str) -> None:
    notebook.run(SETUP)
    ran = notebook.run(f"%kernelmate write {call}", fails=True)
    assert isinstance(ran.error, UsageError)
    assert says in ran.text
