"""Which CUDA compiles, and whose headers it sees."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator

import pytest

from kernelmate.compiler import places
from kernelmate.errors import CompilerUnavailable


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, str]], None]]:
    """Pretend that these distributions, and no others, are installed."""
    caches = (places.cuda_major, places.compiler_version, places.header_versions)

    def pretend(wheels: dict[str, str]) -> None:
        def version(name: str) -> str:
            if name not in wheels:
                raise importlib.metadata.PackageNotFoundError(name)
            return wheels[name]

        monkeypatch.setattr(importlib.metadata, "version", version)
        for cache in caches:
            cache.cache_clear()

    yield pretend
    for cache in caches:
        cache.cache_clear()


BASE = {"nvidia-cuda-nvrtc": "13.5.37", "nvidia-cuda-runtime": "13.5.37", "nvidia-cuda-cccl": "13.3.5"}
TWELVE = {"cupy-cuda12x": "14.2.0", "nvidia-cuda-nvrtc-cu12": "12.9.86", "nvidia-cuda-runtime-cu12": "12.9.79"}


@pytest.mark.parametrize(
    ("wheels", "major", "version"),
    [
        (BASE, 13, "13.5.37"),
        (BASE | {"cupy-cuda13x": "14.2.0"}, 13, "13.5.37"),
        (BASE | TWELVE, 12, "12.9.86"),
        (BASE | {"cupy-cuda12x": "14.2.0"}, 12, "of cupy-cuda12x 14.2.0"),
        (BASE | TWELVE | {"cupy-cuda13x": "14.2.0"}, 13, "13.5.37"),
    ],
)
def test_the_compiler_is_the_one_whose_code_cupy_can_load(
    installed: Callable[[dict[str, str]], None], wheels: dict[str, str], major: int, version: str
) -> None:
    installed(wheels)
    assert places.cuda_major() == major
    assert places.compiler_version() == version
    assert all(("cu12" in name) == (major == 12) for name in places.header_versions() if not name.startswith("cupy"))


def test_no_compiler_is_said_with_what_to_install(installed: Callable[[dict[str, str]], None]) -> None:
    installed({})
    with pytest.raises(CompilerUnavailable, match="pip install cuda-bindings nvidia-cuda-nvrtc"):
        places.compiler_version()
