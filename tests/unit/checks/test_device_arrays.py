"""A reference on a GPU means what it means to NumPy, or is refused; NumPy stands in for CuPy here."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.checks.array_modules import with_array_module
from kernelmate.checks.device_arrays import DeviceArray, NotAvailable, unwrapped

X = np.random.default_rng(3).standard_normal((6, 8))


@pytest.fixture(autouse=True)
def _numpy_for_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceArray, "library", np)


def on_device(function, *arrays, working=None, directory=None):
    from pathlib import Path

    made = with_array_module(function, directory or Path(__file__).parent, device=True, working=working)
    return unwrapped(made(*(DeviceArray(array.copy(), working) for array in arrays)))


def shifted_in_place(x):
    x[1:] += x[:-1]
    return x


def border_kept(x):
    after = x.copy()
    after[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return after


def masked(x):
    out = np.zeros(x.shape)
    out[x > 0] = 1.5
    return np.where(x < -1, -x, out)


def reduced(x):
    return np.exp(x - x.max(axis=-1, keepdims=True, initial=-np.inf)).sum(axis=-1)


def contracted(x):
    return np.einsum("ij,kj->ik", x, x) / np.sqrt(x.shape[1])


def gathered(x):
    return x[np.arange(6)[::-1]][:, np.array([0, 0, 7])]


def repeated(x):
    return np.repeat(x[:, 0], np.arange(6))


def counted(x):
    return np.bincount((np.abs(x) * 2).astype(np.int64).reshape(-1), minlength=16)


def looped(x):
    out = np.empty_like(x)
    for row in range(len(x)):
        out[row] = x[row] * row + np.add.reduce(x[row])
    return out


SAME = [shifted_in_place, border_kept, masked, reduced, contracted, gathered, repeated, counted, looped]


@pytest.mark.parametrize("function", SAME)
def test_answers_are_numpys(function) -> None:
    assert np.array_equal(on_device(function, X), function(X.copy()))


@pytest.mark.parametrize("function", [border_kept, reduced, contracted])
def test_float32_stays_float32(function) -> None:
    got = on_device(function, X.astype(np.float32), working=np.dtype(np.float32))
    assert got.dtype == np.float32
    assert np.allclose(got, function(X), rtol=1e-5, atol=1e-5)


def scaled(x):
    return 0.5 * x * (1.0 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def test_numbers_reach_the_gpu_as_pythons_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """CuPy refuses types that are derived from float, as the numbers of a pass in float32 are."""

    def refusing(name):
        own = getattr(np, name)

        def function(*arguments, **keywords):
            for one in arguments:
                if not isinstance(one, np.ndarray) and type(one) not in (int, float, bool):
                    raise TypeError(f"Unsupported type {type(one)}")
            return own(*arguments, **keywords)

        return function

    import types

    names = ("multiply", "add", "power", "tanh")
    strict = types.SimpleNamespace(**{**vars(np), **{name: refusing(name) for name in names}})
    monkeypatch.setattr(DeviceArray, "library", strict)
    monkeypatch.setattr("kernelmate.checks.device_arrays._module", lambda name: strict)
    got = on_device(scaled, X.astype(np.float32), working=np.dtype(np.float32))
    assert got.dtype == np.float32
    assert np.allclose(got, scaled(X), rtol=1e-4, atol=1e-6)


def scattered(x):
    out = np.zeros(4)
    np.add.at(out, (np.abs(x) * 2).astype(int) % 4, 1)
    return out


def written_through_positions(x):
    out = np.zeros(8)
    out[np.argsort(x[0])] = np.arange(8)
    return out


def cast_of_nan(x):
    return np.sqrt(x).astype(np.int32)


def cast_of_too_much(x):
    return (x * 1e30).astype(np.int32)


def vectorized(x):
    return np.vectorize(lambda v: v + 1)(x)


def drawn(x):
    return x + np.random.standard_normal(x.shape)


REFUSED = [scattered, written_through_positions, cast_of_nan, cast_of_too_much, vectorized, drawn]


@pytest.mark.parametrize("function", REFUSED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_what_a_gpu_may_do_otherwise_is_refused(function) -> None:
    with pytest.raises(NotAvailable):
        on_device(function, X)


@pytest.mark.parametrize("place", [6, -7])
def test_positions_out_of_range_are_an_error(place) -> None:
    def taken(x):
        return x[np.array([0, place])]

    with pytest.raises(IndexError):
        on_device(taken, X)


def test_nothing_goes_to_the_host_unseen() -> None:
    with pytest.raises(NotAvailable):
        np.linalg.norm(np.array(DeviceArray(X, None)))
