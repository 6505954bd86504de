"""The mix is found the same way whether PTX runs natively or not: these tests run once."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _jit(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("KERNELMATE_EMULATOR_JIT", "never")
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "emulator-cache"))
