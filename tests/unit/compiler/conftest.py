"""Compiling text as a user's file would be."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Compiled, CompileOptions
from kernelmate.source import load_kernels


@pytest.fixture
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test's own."""
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def compiled(tmp_path: Path, cache_dir: Path) -> Callable[..., Compiled]:
    """Compile the first kernel of a text."""

    def compile_text(
        text: str, *flags: str, instance: str | None = None, target: str | None = None, timeout_s: float = 60,
        name: str = "kernel.cu", **options: object,
    ) -> Compiled:  # fmt: skip
        path = tmp_path / name
        path.write_text(text)
        return compile_kernel(
            load_kernels(path)[0], flags, instance=instance, target=find_target(target),
            options=CompileOptions(**options), timeout_s=timeout_s,  # type: ignore[arg-type]
        )  # fmt: skip

    return compile_text
