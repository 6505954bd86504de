"""When a cause in a version's environment replaces what shows by chance."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kernelmate.checks import environment_launches
from kernelmate.records import Finding, FindingCode

CAUSE = Finding(FindingCode.NONDETERMINISTIC, "error", "its outputs depend on %smid")


def codes(monkeypatch: pytest.MonkeyPatch, *found: FindingCode, on_hardware: bool) -> list[FindingCode]:
    monkeypatch.setattr(environment_launches, "_environment_findings", lambda *_: iter([CAUSE]))
    unused: Any = None
    bench: Any = SimpleNamespace(on_hardware=on_hardware)
    records: Any = [SimpleNamespace(correct=not found)]
    findings = [Finding(code, "error", "as it showed") for code in found]
    return [
        f.code for f in environment_launches.with_environment_findings(findings, unused, bench, None, unused, records)
    ]


@pytest.mark.parametrize(
    "shown",
    [(), (FindingCode.STATEFUL,), (FindingCode.STATEFUL, FindingCode.WRONG_AT_SIZE), (FindingCode.WRONG_VALUES,)],
)
def test_on_a_gpu_the_cause_replaces_wrong_values(
    monkeypatch: pytest.MonkeyPatch, shown: tuple[FindingCode, ...]
) -> None:
    assert codes(monkeypatch, *shown, on_hardware=True) == [FindingCode.NONDETERMINISTIC]


def test_in_the_emulator_wrong_values_have_their_own_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    assert codes(monkeypatch, FindingCode.WRONG_VALUES, on_hardware=False) == [FindingCode.WRONG_VALUES]
    assert codes(monkeypatch, FindingCode.STATEFUL, on_hardware=False) == [FindingCode.NONDETERMINISTIC]


def test_a_certain_error_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = (FindingCode.OUT_OF_BOUNDS_READ, FindingCode.WRONG_VALUES)
    assert codes(monkeypatch, *shown, on_hardware=True) == list(shown)
