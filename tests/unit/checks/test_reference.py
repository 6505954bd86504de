"""References of contracts: functions and expressions that compute the expected output."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import numpy as np
import pytest

from kernelmate.checks.reference import python_reference
from kernelmate.checks.userfiles import load_function, stamp
from kernelmate.errors import ReferenceFailed

BLOCK = """
sizes = [{ n = 4 }]
grid = 1
block = 32
reference = "REFERENCE"
[args]
x = "in float32[n]"
in = "in bfloat16[n]"
k = "in int32[n]"
y = "out float32[n]"
t = "inout float32[n]"
n = "int32"
scale = "float32 = 0.1"
"""
PARAMETERS = "const float* x, const __nv_bfloat16* in, const int* k, float* y, float* t, int n, float scale"

USER = '''
"""A user's references."""
import os
import numpy as np

def both(x, in_, k, t, n, scale):
    assert x.dtype == in_.dtype == t.dtype == np.float64, "floats are widened"
    assert k.dtype == np.int32
    assert isinstance(n, int)
    print("chatter")
    old = t.copy()
    t += 1e9
    x[:] = -1
    return in_ * scale, old + k

def everything(**given):
    assert {"x", "in_", "k", "y", "t", "n", "scale"} == set(given)
    return given["x"], given["t"]

def optional(x, t, gain=2.0):
    return gain * x, t

def one(x):
    return x

def wrong_shape(x, t):
    return x[:2], t

def objects(x, t):
    return np.array([object()] * 4), t

def nothing(x, t):
    return None, t

def unknown(x, cols):
    return x, x

def raises(x):
    deeper(x)

def deeper(x):
    raise ValueError("no such thing")

def leaves(x):
    raise SystemExit(3)

def where(x, t):
    return np.full(4, float(len(os.getcwd()))), t
'''


@pytest.fixture
def reference(contract_of, tmp_path):
    """The reference named in a contract, ready to be called on small inputs."""
    (tmp_path / "user.py").write_text(USER)

    def make(text):
        contract = contract_of(BLOCK.replace("REFERENCE", text), PARAMETERS)
        return python_reference(contract, tmp_path)

    return make


@pytest.fixture
def arrays():
    import ml_dtypes

    return {
        "x": np.array([1, 2, 3, 4], np.float32),
        "in": np.array([1, 2, 3, 4], ml_dtypes.bfloat16),
        "k": np.array([1, 0, 0, 7], np.int32),
        "y": np.zeros(4, np.float32),
        "t": np.array([10, 20, 30, 40], np.float32),
    }


SIZE = {"n": 4}


def test_a_function_gets_what_it_names_widened_and_may_write_to_it(reference, arrays, capsys, tmp_path) -> None:
    got = reference("user.py:both")(arrays, SIZE)
    assert got["y"].tolist() == [float(np.float32(0.1)) * v for v in (1, 2, 3, 4)]
    assert got["t"].tolist() == [11, 20, 30, 47]
    assert arrays["t"].tolist() == [10, 20, 30, 40]
    assert arrays["x"].tolist() == [1, 2, 3, 4]
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "__pycache__").exists()


def test_a_function_may_take_all_or_leave_defaults(reference, arrays) -> None:
    assert reference("user.py:everything")(arrays, SIZE)["y"].tolist() == [1, 2, 3, 4]
    assert reference("user.py:optional")(arrays, SIZE)["y"].tolist() == [2, 4, 6, 8]


def test_the_current_folder_stays(reference, arrays) -> None:
    assert reference("user.py:where")(arrays, SIZE)["y"][0] == len(os.getcwd())


def test_the_working_type_can_be_narrower(reference, arrays) -> None:
    narrow = reference("x / 3, t")(arrays, SIZE, np.dtype(np.float32))["y"]
    assert narrow.tolist() == (arrays["x"] / np.float32(3)).astype(np.float64).tolist()


def test_an_expression_is_evaluated_with_numpy_and_the_arguments(reference, arrays) -> None:
    got = reference("np.array([v if v > 2 else in_[0] - 1 for v in x]), t + k.astype(np.float64).sum() * n")(
        arrays, SIZE
    )
    assert got["y"].tolist() == [0, 0, 3, 4]
    assert got["t"].tolist() == [42, 52, 62, 72]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("user.py:one", "1 arrays.*2 out and inout"),
        ("user.py:wrong_shape", r"shape \[2\] for y.*\[4\] at n=4"),
        ("user.py:objects", "no array of numbers for y"),
        ("user.py:nothing", "no array of numbers for y"),
        ("user.py:unknown", "takes cols, and the kernel has no such argument"),
        ("user.py:raises", "ValueError: no such thing"),
        ("user.py:leaves", "SystemExit"),
        ("x.shape[7], t", "IndexError"),
    ],
)
def test_what_a_reference_does_wrong_is_said(reference, arrays, text, says) -> None:
    with pytest.raises(ReferenceFailed, match=says) as caught:
        reference(text)(arrays, SIZE)
    assert caught.value.hint


def test_a_contract_without_outputs_has_a_hint_for_them(contract_of, arrays, tmp_path) -> None:
    block = BLOCK.replace("REFERENCE", "x").replace("inout float32", "in float32").replace("out float32", "in float32")
    with pytest.raises(ReferenceFailed, match=r"1 arrays.*0 out and inout") as caught:
        python_reference(contract_of(block, PARAMETERS), tmp_path)(arrays, SIZE)
    assert caught.value.hint == "Write out or inout for the arrays that the kernel writes."


def test_the_users_last_line_is_named(reference, arrays) -> None:
    with pytest.raises(ReferenceFailed) as caught:
        reference("user.py:raises")(arrays, SIZE)
    assert caught.value.line == USER[: USER.index("raise ValueError")].count("\n") + 1


@pytest.mark.parametrize("text", ["absent.py:one", "user.py:absent"])
def test_a_missing_file_or_function_is_named(reference, text) -> None:
    with pytest.raises(ReferenceFailed, match="absent"):
        reference(text)


@pytest.mark.parametrize(("text", "says"), [("def f(:\n", "syntax"), ("import nowhere_to_be_found\n", "nowhere_to")])
def test_a_file_that_cannot_be_loaded_says_why(contract_of, tmp_path, text, says) -> None:
    (tmp_path / "broken.py").write_text("\n" + text)
    with pytest.raises(ReferenceFailed, match=f"(?i){says}") as caught:
        python_reference(contract_of(BLOCK.replace("REFERENCE", "broken.py:f"), PARAMETERS), tmp_path)
    assert caught.value.line == 2


def test_a_changed_file_is_loaded_again(contract_of, tmp_path, arrays) -> None:
    path = tmp_path / "mine.py"
    contract = contract_of(BLOCK.replace("REFERENCE", "mine.py:f"), PARAMETERS)
    for turn, factor in enumerate((2, 3)):
        path.write_text(f"def f(x, t):\n    return {factor} * x, t\n")
        os.utime(path, ns=(turn, turn))
        assert python_reference(contract, tmp_path)(arrays, SIZE)["y"][0] == factor


@pytest.mark.parametrize(
    "text",
    [
        "x.__class__, t",
        "np.load('x.npy'), t",
        "x.tofile('x'), t",
        "__import__('os').getcwd(), t",
        "f'{x}', t",
        "open('x'), t",
        "np.ctypeslib.load_library('x', '.'), t",
    ],
)
def test_an_expression_cannot_reach_beyond_arrays(contract_of, tmp_path, text) -> None:
    contract = replace(contract_of(BLOCK.replace("REFERENCE", "x, t"), PARAMETERS), reference=text)
    with pytest.raises(ReferenceFailed, match="array functions"):
        python_reference(contract, tmp_path)


def test_a_contract_without_reference_has_none(contract_of, tmp_path) -> None:
    assert python_reference(contract_of(BLOCK.replace('reference = "REFERENCE"\n', ""), PARAMETERS), tmp_path) is None


HELPED = """
from helper_of_a_reference import FACTOR
import helper_of_a_reference.part

def scaled(x, t):
    return FACTOR * helper_of_a_reference.part.MORE * x, t
"""


def test_modules_that_a_reference_imports_from_its_folder_are_loaded_again_with_it(tmp_path) -> None:
    package = tmp_path / "helper_of_a_reference"
    package.mkdir()
    (tmp_path / "reference.py").write_text(HELPED)
    (package / "__init__.py").write_text("FACTOR = 2.0\n")
    (package / "part.py").write_text("MORE = 1.0\n")
    x = np.ones(4, np.float32)

    def scaled() -> float:
        function = load_function("reference.py:scaled", tmp_path, None)
        return float(function(x=x, t=x)[0][0])

    def rewrite(name: str, text: str) -> None:
        old = (package / name).stat().st_mtime_ns
        (package / name).write_text(text)
        os.utime(package / name, ns=(old + 1_000_000_000,) * 2)

    seen = [stamp("reference.py:scaled", tmp_path)]
    assert scaled() == 2.0
    seen.append(stamp("reference.py:scaled", tmp_path))
    rewrite("__init__.py", "FACTOR = 3.0\n")
    seen.append(stamp("reference.py:scaled", tmp_path))
    assert scaled() == 3.0
    assert scaled() == 3.0
    rewrite("part.py", "MORE = 10.0\n")
    seen.append(stamp("reference.py:scaled", tmp_path))
    assert scaled() == 30.0
    assert len(set(seen)) == 4, "answers of the old helper are not taken for the new one's"
    assert load_function("reference.py:scaled", tmp_path, None) is load_function("reference.py:scaled", tmp_path, None)


def test_modules_from_elsewhere_are_left_alone(tmp_path) -> None:
    elsewhere = tmp_path / "elsewhere"
    installed = tmp_path / "project" / "lib" / "site-packages"
    for folder in (elsewhere, installed):
        folder.mkdir(parents=True)
    (elsewhere / "elsewhere_of_a_reference.py").write_text("VALUE = 1\n")
    (installed / "installed_of_a_reference.py").write_text("VALUE = 1\n")
    reference = tmp_path / "project" / "reference.py"
    reference.write_text(
        f"import sys\nsys.path[:0] = [{str(elsewhere)!r}, {str(installed)!r}]\n"
        "import elsewhere_of_a_reference, installed_of_a_reference, json\ndef f(x): return x\n"
    )
    path = list(sys.path)
    try:
        load_function("reference.py:f", reference.parent, None)
        modules = [sys.modules[f"{name}_of_a_reference"] for name in ("elsewhere", "installed")]
        os.utime(reference, ns=(reference.stat().st_mtime_ns + 1_000_000_000,) * 2)
        load_function("reference.py:f", reference.parent, None)
        assert [sys.modules[f"{name}_of_a_reference"] for name in ("elsewhere", "installed")] == modules
    finally:
        sys.path[:] = path
