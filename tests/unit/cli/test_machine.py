"""doctor: what it finds, what it advises, and that no driver can hang or crash it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kernelmate.config import load_settings
from kernelmate.session import machine


def test_doctor_reports_everything_with_advice(run: Callable[..., Result], documents: Callable[[str], Any]) -> None:
    done = run("doctor", "--json")
    checks = {check["name"]: check for check in documents(done.stdout)["checks"]}
    assert set(checks) == {
        "python", "compiler", "headers", "disassembler", "gpu", "cupy", "isolation", "roofs", "cache", "charts", "triton", "model",
        "claude",
    }  # fmt: skip
    assert all(check["advice"] for check in checks.values() if check["status"] == "broken")
    assert done.exit_code == (3 if checks["compiler"]["status"] == "broken" else 0)


def test_the_key_is_never_shown(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "very-secret-value")
    for arguments in (["doctor"], ["doctor", "--json"]):
        text = run(*arguments).output
        assert "very-secret-value" not in text
        assert "ANTHROPIC_API_KEY is present" in " ".join(text.split())


def test_a_missing_compiler_exits_with_3(run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "NVRTC_PROBE", "raise ImportError('libnvrtc.so.13: cannot open')")
    done = run("doctor")
    assert done.exit_code == 3
    text = " ".join(done.output.split())
    assert "libnvrtc.so.13: cannot open" in text
    assert "pip install" in text
    assert "not usable: compiler" in text


def program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)


@pytest.mark.skipif(sys.platform == "win32", reason="puts a script in place of nvidia-smi")
@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        ("print('NVIDIA H100 80GB HBM3, 81559 MiB, 580.1, 9.0')", "ok", "1 GPU: NVIDIA H100 80GB HBM3"),
        ("import sys; print('Driver/library version mismatch', file=sys.stderr); sys.exit(18)", "missing", "mismatch"),
        ("print()", "missing", "lists no GPU"),
        ("import os; os.kill(os.getpid(), 9)", "missing", "failed"),
        ("import time; time.sleep(600)", "missing", "no answer"),
    ],
)
def test_the_driver_may_answer_fail_crash_or_hang(
    body: str, status: str, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "nvidia-smi", body)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    if "sleep" in body:
        monkeypatch.setattr(machine, "PROBE_S", 0.5)
    check = machine.gpu()
    assert check.status == status
    assert part in check.detail


def test_the_cache_is_measured_and_tried(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    (cache / "ab").mkdir(parents=True)
    (cache / "ab" / "one").write_bytes(b"0" * 1000)
    check = machine.cache(load_settings(cache_dir=cache))
    assert check.status == "ok"
    assert "1 file, 1,000 B" in check.detail
    new = machine.cache(load_settings(cache_dir=tmp_path / "not" / "yet"))
    assert new.status == "ok"
    assert not (tmp_path / "not").exists()


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check = machine.cache(load_settings(cache_dir=tmp_path / "file"))
    assert check.status == "missing"
    assert "KERNELMATE_CACHE_DIR" in (check.advice or "")


def test_a_look_that_fails_is_reported_and_not_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Any:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(machine, "charts", fails)
    check = next(one for one in machine.run_checks(load_settings()) if one.name == "charts")
    assert check.status == "missing"
    assert "RuntimeError: no such thing" in check.detail
