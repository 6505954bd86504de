"""The record of a module's operations: the same results again, changes of one operation, and what is needed for the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed: make train-tools")

from kernelmate_torch.kernelbench.audited_task import tolerance_units  # noqa: E402 -- it needs torch
from kernelmate_torch.kernelbench.tape import Tape, record  # noqa: E402
from kernelmate_torch.kernelbench.timing import Rotation, sets_needed  # noqa: E402
from kernelmate_torch.kernelbench.waste import static_findings  # noqa: E402


class Chain(torch.nn.Module):
    """Views, operations in place, a result that is not used, and a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(1.0, 9.0).reshape(2, 4))

    def forward(self, x: Any) -> Any:
        y = x @ self.weight.T
        y[:, 0] += 1.0
        torch.exp(y)
        return torch.relu(y.reshape(-1))


def recorded() -> tuple[Tape, Any, Any]:
    inputs = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    tape, returned = record(Chain(), [inputs.clone()], Path(__file__))
    return tape, inputs, returned


def place(tape: Tape, name: str) -> int:
    return next(one.place for one in tape.operations if one.name == name)


def test_a_tape_gives_the_results_of_the_module_for_other_inputs() -> None:
    tape, inputs, returned = recorded()
    assert torch.equal(tape.run([inputs])[0], returned)
    assert torch.equal(tape.run([2 * inputs])[0], Chain()(2 * inputs).detach())


def test_an_operation_in_place_can_be_left_out() -> None:
    tape, inputs, returned = recorded()
    added = place(tape, "add")
    made = tape.run([inputs], {added: lambda one, args, kwargs: args[0]})[0]
    without = torch.relu((inputs @ Chain().weight.T).reshape(-1)).detach()
    assert torch.equal(made, without)
    assert not torch.equal(made, returned)


def test_what_changes_memory_is_needed_and_what_nobody_reads_is_not() -> None:
    tape, _, _ = recorded()
    live = tape.live()
    assert {place(tape, "mm"), place(tape, "add"), place(tape, "relu")} <= live
    assert place(tape, "exp") not in live
    assert tape.live({place(tape, "relu"): ()}) == {place(tape, "relu")}


def test_lines_are_those_of_the_file() -> None:
    tape, _, _ = recorded()
    text = Path(__file__).read_text().splitlines()
    assert "x @ self.weight.T" in text[tape.operations[place(tape, "mm")].line - 1]
    assert "torch.exp(y)" in text[tape.operations[place(tape, "exp")].line - 1]


def test_operations_that_one_call_is_made_of_are_inner() -> None:
    class Cosine(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.nn.functional.cosine_similarity(torch.tanh(x), x.abs(), dim=1)

    tape, _ = record(Cosine(), [torch.randn(4, 8)], Path(__file__))
    inner = tape.inner()
    assert place(tape, "clamp_min") in inner
    assert place(tape, "tanh") not in inner


@pytest.mark.parametrize(
    ("made", "want", "miss"),
    [([0.0, 2.0], [0.0, 2.0], 0.0), ([0.02], [0.01], 0.01 / 0.0101), ([float("nan")], [1.0], float("inf")), ([float("inf")], [float("inf")], 0.0)],
)  # fmt: skip
def test_deviations_are_those_of_allclose(made: list[float], want: list[float], miss: float) -> None:
    assert tolerance_units((torch.tensor(made),), (torch.tensor(want),), (1e-2, 1e-2)) == pytest.approx(miss, rel=1e-3)


def test_results_of_another_shape_or_number_never_pass() -> None:
    one = torch.ones(2, 3)
    assert tolerance_units((one,), (one.T,), (1e-2, 1e-2)) == float("inf")
    assert tolerance_units((one,), (one, one), (1e-2, 1e-2)) == float("inf")


def test_timed_calls_have_inputs_beyond_l2_and_within_the_memory() -> None:
    mebibyte = 1 << 20
    assert sets_needed(mebibyte, 50 * mebibyte, 80 << 30, 1000.0) == 64
    assert sets_needed(100 * mebibyte, 50 * mebibyte, 80 << 30, 1000.0) == 4
    assert sets_needed(30 << 30, 50 * mebibyte, 80 << 30, 1e5) == 1


def test_contents_of_inputs_change_between_legs() -> None:
    rotation = Rotation([[torch.zeros(3), 7], [torch.ones(3), 7]], 3)
    addresses = [one[0].data_ptr() for one in rotation.sets]
    rotation.refresh(0)
    assert [one[0][0].item() for one in rotation.sets] == [0.0, 1.0, 0.0]
    rotation.refresh(1)
    assert [one[0][0].item() for one in rotation.sets] == [1.0, 0.0, 1.0]
    assert [one[0].data_ptr() for one in rotation.sets] == addresses
    assert len(set(addresses)) == 3


class Chosen(torch.nn.Module):
    """A choice in Python by the values of a tensor."""

    def forward(self, x: Any) -> Any:
        return x * 2 if x.sum() > 0 else x * int(x.max().item())


def test_a_value_that_python_code_reads_is_used() -> None:
    for sign in (1, -1):
        tape, _ = record(Chosen(), [sign * torch.ones(3, 4)], Path(__file__))
        assert {"sum", "gt"} <= {one.name for one in tape.operations}
        assert [one.code for one in static_findings(tape) if one.code == "unused-work"] == []
