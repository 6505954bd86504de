"""Answers beside a GPU: where they are computed, and what is said where they cannot be had. NumPy stands in for CuPy."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest

from kernelmate.checks import large_references, oracle, reference_facts
from kernelmate.checks.case_launches import FIRST, PlannedLaunch
from kernelmate.checks.oracle import Oracle
from kernelmate.checks.styles import NORMAL

SIZE = {"n": 1 << 20}
SHOT = PlannedLaunch(FIRST, NORMAL, 0, 0)
CUPY = SimpleNamespace(
    asarray=np.asarray, zeros=np.zeros, full=np.full, ascontiguousarray=np.ascontiguousarray,
    random=SimpleNamespace(Generator=np.random.Generator, Philox4x3210=np.random.Philox),
    cuda=SimpleNamespace(runtime=SimpleNamespace(memGetInfo=lambda: (1 << 30, 1 << 34))),
    get_default_memory_pool=lambda: SimpleNamespace(free_all_blocks=lambda: None),
)  # fmt: skip


class Gpu:
    """A GPU whose arrays are NumPy's; `refusals` counts draws that find too little memory."""

    def __init__(self, refusals: int = 0) -> None:
        self.refusals, self.entered = refusals, 0

    @contextlib.contextmanager
    def computing(self):
        self.entered += 1
        yield CUPY


@pytest.fixture(autouse=True)
def _nothing_learnt(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(oracle, "_LEARNT", {})
    monkeypatch.setattr(oracle, "_SECONDS", {})


@pytest.fixture
def beside(contract_of, tmp_path):
    def made(text, gpu):
        (tmp_path / "reference.py").write_text(text)
        block = f'sizes = [{{ n = {SIZE["n"]} }}]\ngrid = 1\nblock = 32\nreference = "reference.py:f"\n[args]\nx = "in float32[n]"\ny = "out float32[n]"\nn = "int32"\n'
        version = SimpleNamespace(contract=contract_of(block), compiled=SimpleNamespace(binary="b", lowered_name="k"))
        task = SimpleNamespace(
            baseline=None, candidate=version, directory=str(tmp_path), backend="cuda", seed=11,
            target=SimpleNamespace(arch="sm_90"),
        )  # fmt: skip
        return Oracle(task, None, None, lambda *_: None, gpu)

    return made


def test_inputs_and_answers_of_a_large_size_come_from_the_gpu(beside) -> None:
    gpu = Gpu()
    one = beside("def f(x):\n    return 2 * x\n", gpu)
    given = one.inputs(SIZE, SHOT)
    answer = one.answer(SIZE, SHOT, given, None)
    assert gpu.entered >= 2
    assert np.array_equal(answer.want["y"], 2.0 * given["x"])
    assert (answer.origin, answer.against) == ("carried", "reference")
    assert one.lacking == {}


def test_a_reference_that_would_take_too_long_is_not_waited_for(beside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_references, "LONGEST_REFERENCE_S", 1e-9)
    monkeypatch.setattr(reference_facts, "_same_on_device", lambda *_: False)
    one = beside("def f(x):\n    return 2 * x\n", Gpu())
    assert one.answer(SIZE, SHOT, one.inputs(SIZE, SHOT), None) is None
    ((size, why),) = one.lacking.items()
    assert dict(size) == SIZE
    assert "would take about" in why


@pytest.mark.parametrize("device", [Gpu(), None], ids=["beside a GPU", "without one"])
def test_a_reference_without_memory_at_a_large_size_is_done_without(beside, device: Gpu | None) -> None:
    text = "def f(x):\n    if x.size > 10_000:\n        raise MemoryError\n    return 2 * x\n"
    one = beside(text, device)
    assert one.answer(SIZE, SHOT, one.inputs(SIZE, SHOT), None) is None
    ((size, why),) = one.lacking.items()
    assert dict(size) == SIZE
    assert "memory" in why
    small = {"n": 100}
    assert one.answer(small, SHOT, one.inputs(small, SHOT), None) is not None


def test_without_room_on_the_gpu_inputs_are_drawn_on_the_host(beside, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_):
        raise MemoryError

    monkeypatch.setattr(oracle, "DeviceRandom", refuse)
    one = beside("def f(x):\n    return 2 * x\n", Gpu())
    given = one.inputs(SIZE, SHOT)
    assert given["x"].shape == (SIZE["n"],)
    assert not given["x"].flags.writeable
