"""Kernels and verdicts as small as the history needs them."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmate.history import History
from kernelmate.records import JudgementEntry, Kernel
from kernelmate.source import find_kernels, load_kernels, text_unit

SCALE = "__global__ void scale(float *x, int n)\n{\n    int i = threadIdx.x;\n    if (i < n) x[i] *= 2.0f;\n}\n"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "kept" / "history.db") as kept:
        yield kept


@pytest.fixture
def in_file(tmp_path: Path) -> Callable[..., Kernel]:
    """A kernel of a file with this text; the first one unless named."""

    def make(text: str = SCALE, name: str = "scale.cu", kernel: str | None = None) -> Kernel:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        found = load_kernels(path)
        return next(one for one in found if kernel in (None, one.name))

    return make


@pytest.fixture
def frozen() -> Callable[..., str]:
    """`frozen(folder, *arguments)`: what Python prints where nothing in a folder can be written, not even by root."""

    def run(folder: Path, *arguments: str) -> str:
        folder.chmod(0o555)
        try:
            done = subprocess.run(
                [sys.executable, *arguments], capture_output=True, text=True, check=False, preexec_fn=_without_override
            )
        finally:
            folder.chmod(0o755)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def _without_override() -> None:
    """Take from root what lets it write where permissions forbid it (prctl(2), capabilities(7))."""
    if os.geteuid() == 0:
        drop, override = 24, 1
        assert ctypes.CDLL(None, use_errno=True).prctl(drop, override, 0, 0, 0) == 0


@pytest.fixture
def cell() -> Callable[[str], Kernel]:
    """A kernel of text without a file."""
    return lambda text: find_kernels(text_unit(text))[0]


@pytest.fixture
def judged() -> Callable[..., JudgementEntry]:
    """A judgement; named fields replace those of a clean one by the user."""

    def make(**changes: Any) -> JudgementEntry:
        verdict = {"kernel": "scale", "accepted": changes.pop("accepted", True), "findings": [], "cases": []}
        given: dict[str, Any] = {"command": "bench", "author": "user", "verdict": verdict}
        return JudgementEntry(**given | changes)

    return make
