"""References that are functions of PyTorch: recognised, and called with tensors of the evaluation's type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.checks.reference import python_reference
from kernelmate.checks.torch_reference import uses_torch
from kernelmate.checks.userfiles import load_function
from kernelmate.errors import ReferenceFailed

FILE = """\
import numpy as np

TORCH


def softmax(x):
    return torch.softmax(x, dim=1)


def helped(x):
    return softmax(x)


def converting(x):
    return torch.softmax(torch.from_numpy(x.astype(x.dtype)), dim=1).numpy()


def inner(x):
    import torch as t

    return t.relu(x)


def plain(x):
    return np.exp(x)


def made(x):
    return x + torch.ones(x.shape[1]) / 3, x > 0


def narrow(x):
    return x.to(torch.bfloat16)
"""
CONTRACT = """
sizes = [{ rows = 3, cols = 5 }]
grid = "rows"
block = 32
reference = "reference.py:FUNCTION"
[args]
x = "in DTYPE[rows, cols]"
y = "out DTYPE[rows, cols]"
rows = "int32"
cols = "int32"
"""


@pytest.mark.parametrize(("name", "found"), [("softmax", True), ("helped", True), ("inner", True), ("plain", False)])
def test_functions_of_torch_are_told_from_others(name: str, found: bool, tmp_path: Path) -> None:
    # The module need not be PyTorch itself for that.
    (tmp_path / "reference.py").write_text(FILE.replace("TORCH", "import types\n\ntorch = types.ModuleType('torch')"))
    assert uses_torch(load_function("reference.py:" + name, tmp_path, None)) is found


@pytest.fixture
def reference(contract_of: Any, tmp_path: Path) -> Any:
    pytest.importorskip("torch")
    (tmp_path / "reference.py").write_text(FILE.replace("TORCH", "import torch"))

    def made(function: str, dtype: str = "float32", more: str = "", parameters: str = "") -> Any:
        text = CONTRACT.replace("FUNCTION", function).replace("DTYPE", dtype)
        real = "double" if dtype == "float64" else "float"
        text = text.replace('rows = "int32"', more + 'rows = "int32"')
        contract = contract_of(text, f"const {real}* x, {real}* y, {parameters}int rows, int cols")
        return python_reference(contract, tmp_path)

    return made


SIZE = {"rows": 3, "cols": 5}
X = np.linspace(-2, 2, 15, dtype=np.float32).reshape(3, 5)
ARRAYS = {"x": X, "y": np.zeros_like(X)}


def test_it_is_evaluated_in_float64_and_in_the_working_type(reference: Any) -> None:
    import torch

    wide = np.exp(X.astype(np.float64))
    want = wide / wide.sum(axis=1, keepdims=True)
    for name in ("softmax", "helped", "converting"):
        got = reference(name)(ARRAYS, SIZE)["y"]
        assert got.dtype == np.float64
        np.testing.assert_allclose(got, want, rtol=1e-14)
        rounded = reference(name)(ARRAYS, SIZE, np.dtype(np.float32))["y"]
        assert 0 < np.abs(rounded - want).max() < 1e-6
    assert torch.get_default_dtype() == torch.float32


def test_new_tensors_have_the_type_of_the_evaluation_and_results_become_arrays(reference: Any) -> None:
    of = reference("made", more='above = "out bool[rows, cols]"\n', parameters="bool* above, ")
    found = of(ARRAYS | {"above": np.zeros((3, 5), bool)}, SIZE)
    np.testing.assert_array_equal(found["y"], X.astype(np.float64) + np.float64(1) / 3)
    np.testing.assert_array_equal(found["above"], X > 0)
    assert reference("narrow")(ARRAYS, SIZE)["y"].dtype == np.float64


def test_a_float64_kernel_needs_a_reference_in_numpy(reference: Any) -> None:
    arrays = {name: array.astype(np.float64) for name, array in ARRAYS.items()}
    of = reference("softmax", "float64")
    assert of(arrays, SIZE)["y"].shape == (3, 5)
    with pytest.raises(ReferenceFailed, match="no type wider than float64"):
        of(arrays, SIZE, np.dtype(np.longdouble))


def test_a_module_that_is_missing_is_named_with_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text("import no_such_library.inner\n\n\ndef softmax(x):\n    return x\n")
    with pytest.raises(ReferenceFailed, match="No module named 'no_such_library'") as failed:
        load_function("reference.py:softmax", tmp_path, None)
    assert (failed.value.hint or "").startswith("Install no_such_library ")
    assert failed.value.line == 1
