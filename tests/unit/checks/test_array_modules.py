"""A reference that is evaluated in float32 stays there, whatever scalars and arrays it makes itself."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.checks.array_modules import narrow_type, with_array_module
from kernelmate.checks.reference import python_reference
from kernelmate.checks.userfiles import load_function

BLOCK = """
sizes = [{ n = 64 }]
grid = 1
block = 64
reference = "REFERENCE"
[args]
x = "in float32[n]"
y = "out float32[n]"
n = "int32"
"""

SCALE = "import numpy as np\nSCALE = np.sqrt(2 / np.pi)\n"
GELU = "    return 0.5 * x * (1 + np.tanh(FACTOR * (x + 0.044715 * x**3)))\n"

REFERENCES = {
    "a scalar of NumPy's functions": SCALE + "def f(x):\n" + GELU.replace("FACTOR", "np.sqrt(2 / np.pi)"),
    "a scalar of the module": SCALE + "def f(x):\n" + GELU.replace("FACTOR", "SCALE"),
    "a scalar of another function": SCALE + "def g():\n    return np.float64(0.8)\ndef f(x):\n" + GELU.replace("FACTOR", "g()"),
    "an array of ones": "import numpy as np\ndef f(x):\n    return x / (np.ones(x.size) * 3) * 0.7\n",
    "an array filled in place": "import numpy as np\ndef f(x):\n    out = np.zeros(x.shape)\n    out += x / 3\n    out *= 0.7\n    return out\n",
    "integers that are divided": "import numpy as np\ndef f(x):\n    return x + np.arange(x.size) / 7\n",
    "angles": "import numpy as np\ndef f(x):\n    return x * np.cos(np.arange(x.size) * 1e3 ** (-1 / 3))\n",
    "float64 by name": "import numpy as np\ndef f(x):\n    return x.astype(np.float64) / 3 + np.full(x.size, 0.1, np.float64)\n",
    "functions by name": "from numpy import exp, float64, linspace\ndef f(x):\n    return exp(x) * float64(0.1) + linspace(0, 1, x.size)\n",
    "a mean of integers": "import numpy as np\ndef f(x):\n    return x * 0.7 / np.mean(np.arange(7))\n",
}  # fmt: skip


@pytest.fixture
def evaluate(contract_of, tmp_path):
    """Returns a function that evaluates a reference's text for 64 numbers, in float64 and in float32."""

    def evaluated(text):
        (tmp_path / "reference.py").write_text(text)
        contract = contract_of(BLOCK.replace("REFERENCE", "reference.py:f"))
        reference = python_reference(contract, tmp_path)
        x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
        wide = reference({"x": x}, {"n": 64})["y"]
        return wide, reference({"x": x}, {"n": 64}, np.dtype(np.float32))["y"]

    return evaluated


@pytest.mark.parametrize("text", REFERENCES.values(), ids=REFERENCES)
def test_every_operation_rounds_to_float32(evaluate, text) -> None:
    wide, narrow = evaluate(text)
    assert np.array_equal(narrow, narrow.astype(np.float32)), "a result has digits that float32 has not"
    # Computed in float64 and rounded once at the end, nearly all would be the nearest number.
    assert (narrow != wide.astype(np.float32)).mean() > 0.1
    assert np.abs(narrow - wide).max() < 1e-4


def test_a_reference_in_float64_is_left_as_it_is(evaluate) -> None:
    wide, _ = evaluate(REFERENCES["integers that are divided"])
    x = np.random.default_rng(1).standard_normal(64).astype(np.float32)
    assert np.array_equal(wide, x.astype(np.float64) + np.arange(64) / 7)


def test_modules_of_the_users_own_folder_are_followed(evaluate, tmp_path) -> None:
    (tmp_path / "mine.py").write_text("import numpy as np\ndef third(x):\n    return x * (np.float64(1) / 3)\n")
    _, narrow = evaluate("import mine\ndef f(x):\n    return mine.third(x)\n")
    assert np.array_equal(narrow, narrow.astype(np.float32))


def test_a_function_that_bears_no_subclass_is_evaluated_all_the_same(evaluate) -> None:
    wide, narrow = evaluate("import numpy as np\ndef f(x):\n    assert type(x) is np.ndarray\n    return x * 2\n")
    assert np.array_equal(narrow, wide)


def test_numbers_of_the_text_are_rounded_in_a_pass_in_float32(tmp_path) -> None:
    path = tmp_path / "reference.py"
    path.write_text("STEP = 0.1\n\n\ndef f(x, t):\n    return x / (1 - 0.999**t) + STEP\n")
    function = load_function("reference.py:f", tmp_path, None)
    narrow = with_array_module(function, tmp_path, device=False, working=np.dtype(np.float32))
    one = np.float32(1)
    expected = np.float32(one / (one - np.float32(np.float64(np.float32(0.999)) ** 10))) + np.float32(0.1)
    got = narrow(np.ones(1, np.float32).view(narrow_type(np.dtype(np.float32))), 10)[0]
    assert got.dtype == np.float32
    assert abs(got - expected) <= np.spacing(expected)
    assert abs(got - function(np.ones(1), 10)[0]) > 50 * np.spacing(expected)


def test_functions_made_by_vectorize_give_the_type_of_the_pass(tmp_path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(
        "import math\nimport numpy as np\n\nerf = np.vectorize(math.erf)\n\n\ndef f(x):\n    return 1 + erf(x)\n"
    )
    narrow = with_array_module(
        load_function("reference.py:f", tmp_path, None), tmp_path, device=False, working=np.dtype(np.float32)
    )
    assert narrow(np.ones(3, np.float32)).dtype == np.float32
