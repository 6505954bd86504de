"""Messages about a missing driver, GPU or CuPy, each with a remedy."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable

import pytest

from kernelmate.backends.cuda import driver
from kernelmate.backends.cuda.driver import Driver, Gpu, read_driver
from kernelmate.errors import BackendUnavailable

GPUS = (Gpu("NVIDIA H100 80GB HBM3", (9, 0)),)
Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Pretend a driver and these distributions of CuPy."""

    def pretend(found: Driver | None, *wheels: str) -> None:
        def version(name: str) -> str:
            if name not in wheels:
                raise importlib.metadata.PackageNotFoundError(name)
            return "14.2.0"

        monkeypatch.setattr(driver, "read_driver", lambda: found)
        monkeypatch.setattr(importlib.metadata, "version", version)

    return pretend


@pytest.mark.parametrize(
    ("found", "wheels", "what", "todo"),
    [
        (None, ("cupy-cuda13x",), "there is no NVIDIA driver", "Install the driver"),
        (Driver((13, 0), ()), ("cupy-cuda13x",), "the driver sees no GPU", "CUDA_VISIBLE_DEVICES"),
        (Driver((13, 0), GPUS), (), "CuPy is not installed", "pip install cupy-cuda13x"),
        (Driver((12, 4), GPUS), (), "CuPy is not installed", "pip install cupy-cuda12x"),
        (Driver((11, 8), GPUS), (), "knows CUDA 11.8 only", "Install a driver"),
        (Driver((12, 4), GPUS), ("cupy-cuda13x",), "CUDA 12.4, and cupy-cuda13x needs CUDA 13", "pip install cupy-cuda12x"),
        (Driver((13, 0), GPUS), ("cupy-cuda12x", "cupy-cuda13x"), "both installed", "pip uninstall cupy-cuda12x"),
        (Driver((12, 4), GPUS), ("cupy-cuda12x", "cupy-cuda13x"), "both installed", "pip uninstall cupy-cuda13x"),
    ],
)  # fmt: skip
def test_what_is_missing_is_said_with_what_to_do(
    machine: Machine, found: Driver | None, wheels: tuple[str, ...], what: str, todo: str
) -> None:
    machine(found, *wheels)
    with pytest.raises(BackendUnavailable) as caught:
        driver.require_gpu()
    assert what in caught.value.message
    assert todo in str(caught.value.hint)
    assert "--backend emulator" in str(caught.value.hint)


@pytest.mark.parametrize("wheel", ["cupy-cuda12x", "cupy-cuda13x"])
def test_a_driver_with_a_gpu_and_a_cupy_it_can_serve_is_enough(machine: Machine, wheel: str) -> None:
    machine(Driver((13, 0), GPUS), wheel)
    assert driver.missing_for_gpu() is None


def test_reading_the_driver_never_raises() -> None:
    driver = read_driver()
    assert driver is None or driver.cuda >= (11, 0)
