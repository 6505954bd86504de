"""Selection of the CUDA installation that compiles, and of the headers that it includes."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmate.compiler import cuda_toolkit
from kernelmate.errors import CompilerUnavailable


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[dict[str, str]], None]]:
    """Pretend that these distributions, and no others, are installed."""
    caches = (cuda_toolkit.cuda_major, cuda_toolkit.compiler_version, cuda_toolkit.header_versions)

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
    assert cuda_toolkit.cuda_major() == major
    assert cuda_toolkit.compiler_version() == version
    assert all(
        ("cu12" in name) == (major == 12) for name in cuda_toolkit.header_versions() if name.startswith("nvidia")
    )


def test_no_compiler_is_said_with_what_to_install(
    installed: Callable[[dict[str, str]], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed({})
    monkeypatch.setattr(cuda_toolkit, "library_version", lambda: None)
    with pytest.raises(CompilerUnavailable, match="pip install cuda-bindings nvidia-cuda-nvrtc"):
        cuda_toolkit.compiler_version()


ROOT = Path(__file__).resolve().parents[3]
SITE = Path(sysconfig.get_paths()["purelib"])
INCLUDING = """#include <cuda_fp16.h>
#include <cuda/std/array>
__global__ void twice(__half* y, int n) {
  cuda::std::array<int, 2> a = {0, 1};
  if (threadIdx.x < n) y[threadIdx.x] = __hmul(y[threadIdx.x], __int2half_rn(a[1] + 1));
}
"""


@pytest.fixture
def without_wheels(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `kernelmate` where every package but NVIDIA's wheels is installed, beside a toolkit made of their files."""
    wheels = SITE / "nvidia" / "cu13"
    if sys.platform == "win32" or not (wheels / "lib").is_dir():
        pytest.skip("needs the Linux wheels of CUDA 13, out of which the toolkit is made")
    packages, toolkit = tmp_path / "site-packages", tmp_path / "toolkit"
    packages.mkdir()
    for entry in SITE.iterdir():
        if not entry.name.startswith("nvidia"):
            (packages / entry.name).symlink_to(entry)
    (toolkit / "lib64").mkdir(parents=True)
    (toolkit / "include").symlink_to(wheels / "include")
    for library in (wheels / "lib").glob("libnvrtc*"):
        (toolkit / "lib64" / library.name).symlink_to(library)

    def run(*arguments: str, toolkit: Path | None = toolkit) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "KERNELMATE"))
        }
        environment |= {"PYTHONPATH": f"{ROOT}:{packages}", "KERNELMATE_CACHE_DIR": str(tmp_path / "cache")}
        if toolkit is not None:
            environment["CUDA_HOME"] = str(toolkit)
        command = [os.path.realpath(sys.executable), "-S", "-m", "kernelmate", *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_a_toolkit_compiles_where_there_are_no_wheels(without_wheels, tmp_path: Path) -> None:
    (tmp_path / "twice.cu").write_text(INCLUDING)
    done = without_wheels("check", "twice.cu", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f'"compiler": "NVRTC {importlib.metadata.version("nvidia-cuda-nvrtc").rpartition(".")[0]}' in done.stdout
    told = without_wheels("doctor")
    assert re.search(r"of the toolkit .* in ", " ".join(told.stdout.split()))


def test_neither_wheels_nor_a_toolkit_is_said_with_what_to_install(without_wheels, tmp_path: Path) -> None:
    (tmp_path / "twice.cu").write_text(INCLUDING)
    done = without_wheels("check", "twice.cu", toolkit=tmp_path / "nowhere")
    if done.returncode == 0:
        pytest.skip("the system's own linker finds an NVRTC here")
    assert done.returncode == 3
    assert "pip install cuda-bindings nvidia-cuda-nvrtc" in done.stderr


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int, str], Path]]:
    """Make a toolkit's folder and name it by `CUDA_HOME`; a header can be left out."""
    caches = (cuda_toolkit.header_root, cuda_toolkit.header_versions, cuda_toolkit.system_includes)

    def make(version: int, lacking: str = "") -> Path:
        for name in ("cuda_runtime.h", "cuda_runtime_api.h", *cuda_toolkit._WHOLE):
            if name != lacking:
                file = tmp_path / "include" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"#define CUDART_VERSION {version}\n")
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        monkeypatch.delenv(cuda_toolkit.ROOT_VARIABLE, raising=False)
        for cache in caches:
            cache.cache_clear()
        return tmp_path

    yield make
    for cache in caches:
        cache.cache_clear()


def test_headers_come_from_the_toolkit_alone(toolkit: Callable[..., Path]) -> None:
    folder = toolkit(cuda_toolkit.cuda_major() * 1000 + 20)
    assert cuda_toolkit.header_root().toolkit == folder
    assert cuda_toolkit.system_includes() == (str(folder / "include"),)
    assert cuda_toolkit.header_versions() == (f"toolkit {cuda_toolkit.cuda_major()}.2 {folder}",)


@pytest.mark.parametrize(
    ("major", "lacking", "says"), [(0, "cub/cub.cuh", "it lacks cub/cub.cuh"), (-1, "", "NVRTC here is of CUDA")]
)
def test_headers_come_from_the_wheels_alone_where_the_toolkit_does_not_fit(
    toolkit: Callable[..., Path], major: int, lacking: str, says: str
) -> None:
    folder = toolkit((cuda_toolkit.cuda_major() + major) * 1000, lacking)
    root = cuda_toolkit.header_root()
    assert root.toolkit is None
    assert says in root.reason
    assert cuda_toolkit.system_includes()
    assert not any(Path(path).is_relative_to(folder) for path in cuda_toolkit.system_includes())


def test_the_place_of_headers_can_be_named(toolkit: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    folder = toolkit(cuda_toolkit.cuda_major() * 1000)
    monkeypatch.setenv(cuda_toolkit.ROOT_VARIABLE, "wheels")
    cuda_toolkit.header_root.cache_clear()
    assert cuda_toolkit.header_root().toolkit is None
    monkeypatch.setenv(cuda_toolkit.ROOT_VARIABLE, str(folder))
    cuda_toolkit.header_root.cache_clear()
    assert cuda_toolkit.header_root().toolkit == folder
