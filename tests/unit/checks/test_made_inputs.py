"""Arrays of an `inputs` function, as styles of inputs change them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelmate.checks.inputs import draw
from kernelmate.checks.made_inputs import adapted, is_open
from kernelmate.checks.styles import MADE_STYLES, InputStyle, styles_of
from kernelmate.records import Argument, Contract

CONTRACT = Contract(
    "k", ({"n": 640},), ("1",), ("64",),
    (Argument("x", "in", "float32", ("n",)), Argument("s", "in", "float32", ("n",)),
     Argument("v", "in", "int32", ("n",)), Argument("y", "out", "float32", ("n",)),
     Argument("a", None, "float32", value="1.5")),
    inputs="made.py:make",
)  # fmt: skip
SIZE = {"n": 640}
RNG = np.random.default_rng(3)
NORMAL = RNG.standard_normal(640).astype(np.float32)
SQUARE = NORMAL[:64].reshape(8, 8)
MADE = {"x": NORMAL, "s": np.sort(NORMAL), "v": np.arange(640, dtype=np.int32) % 50, "y": np.zeros(640, np.float32)}


def changed(style: InputStyle) -> dict[str, np.ndarray]:
    found = adapted(CONTRACT, SIZE, MADE, style, np.random.default_rng(1))
    assert all((found[name] == MADE[name]).all() for name in ("s", "y"))  # sorted, or an output
    return found


def test_styles_scale_and_clear_floating_arrays_without_structure() -> None:
    assert styles_of(CONTRACT) == MADE_STYLES
    scaled, cleared = map(changed, MADE_STYLES)
    assert (scaled["x"] == NORMAL * np.float32(1e3)).all()
    assert (cleared["x"] == 0).all()
    assert all((one["v"] == MADE["v"]).all() for one in (scaled, cleared))


def test_planted_constants_stay_within_the_drawn_range_of_integers() -> None:
    found = changed(InputStyle("normal", constants=(("x", (77.5,)), ("s", (77.5,)), ("v", (40, 1000)))))
    assert (found["x"] == 77.5).any()
    assert (found["v"] == 40).sum() > (MADE["v"] == 40).sum()
    assert found["v"].max() < 50


def test_equal_elements_and_largest_ones_apart_are_made_within_rows() -> None:
    repeated = changed(InputStyle("repeated"))["x"]
    assert np.unique(repeated).size < 640
    apart = changed(InputStyle("strided", strides=(32,)))["x"]
    assert sorted(apart) == sorted(NORMAL)


@pytest.mark.parametrize(
    ("values", "constants", "kept"),
    [(np.abs(NORMAL) + 2, (-5.0, 77.5), True), (np.abs(NORMAL) / 8, (77.5,), False), (NORMAL, (-5.0,), True)],
)
def test_arrays_of_one_sign_keep_it_and_fractions_stay_below_one(values, constants, kept) -> None:
    style = InputStyle("normal", constants=(("x", constants),))
    found = adapted(CONTRACT, SIZE, {**MADE, "x": values.astype(np.float32)}, style, np.random.default_rng(1))["x"]
    assert any((np.abs(found) == abs(value)).any() for value in constants) == kept
    assert values.min() < 0 or found.min() >= values.min()


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (NORMAL, True),
        (SQUARE, True),
        (NORMAL[:3], False),  # too few to tell
        (np.sort(NORMAL), False),
        (-np.sort(SQUARE), False),
        (SQUARE + SQUARE.T, False),
        (np.tril(SQUARE), False),
        (np.exp(SQUARE) / np.exp(SQUARE).sum(axis=1, keepdims=True), False),
        (SQUARE / np.linalg.norm(SQUARE, axis=1, keepdims=True), False),
        (np.where(np.arange(640) == 5, np.inf, NORMAL), False),
    ],
)
def test_structure_binds_values(array, expected) -> None:
    assert is_open(array) == expected


def test_a_declared_distribution_binds_a_made_array() -> None:
    declared = replace(CONTRACT, args=(replace(CONTRACT.args[0], distribution="normal"), *CONTRACT.args[1:]))
    assert styles_of(replace(declared, args=declared.args[:1])) == ()
    found = adapted(declared, SIZE, MADE, MADE_STYLES[0], np.random.default_rng(1))
    assert (found["x"] == NORMAL).all()


def test_scalars_have_given_values_beside_made_arrays(tmp_path) -> None:
    (tmp_path / "made.py").write_text(
        "import numpy as np\ndef make(n, seed):\n    x = np.random.default_rng(seed).normal(size=n)\n"
        "    return {'x': x, 's': x, 'v': np.zeros(n)}\n"
    )
    style = InputStyle("normal", given=(("a", 6.0),), constants=(("x", (77.5,)),))
    drawn = draw(CONTRACT, SIZE, (1, 2), style, tmp_path)
    assert float(drawn["a"]) == 6.0
    assert (drawn["x"] == 77.5).any()
    assert not (drawn["s"] == 77.5).any()
