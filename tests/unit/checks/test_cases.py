"""References that are kernels, kinds of numbers, the user's mistakes, and lost devices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernelmate.backends.base import UnsupportedInstruction
from kernelmate.checks.case_launches import Bench, PlannedLaunch, inputs_for
from kernelmate.checks.judge import judge
from kernelmate.checks.styles import NORMAL
from kernelmate.compiler import find_target
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Finding, FindingCode, JudgeTask
from tests.unit.checks.judging import DOUBLE, body, errors, honest, task_of, writes_zeros, wrong_everywhere


def test_a_reference_that_fails_at_an_odd_size_of_our_own_is_no_error(verdict_on) -> None:
    reference = "2 * x.reshape(-1, 1 + (n not in (1000, 33)) * 7).reshape(-1)"
    judgement = verdict_on(body(honest), block=DOUBLE.replace("2 * x", reference))
    assert judgement.correct is True
    assert any("where the reference fails" in reason for reason in judgement.reasons)


def test_a_reference_kernel_says_what_is_right(python_backend, contract_of, tmp_path) -> None:
    contract = replace(contract_of(DOUBLE), reference="other", reference_kind="kernel")
    reference = python_backend.version(contract, body(honest), "reference")

    def verdict(candidate):
        task = task_of(python_backend.version(contract, body(candidate), "candidate"), None, tmp_path)
        return judge(replace(task, reference_version=reference), python_backend, lambda *_: None, lambda *_: None)

    assert verdict(honest).correct is True
    assert errors(verdict(wrong_everywhere)) == ["wrong-values"]


def test_a_reference_kernel_that_fails_is_the_references_fault(python_backend, contract_of, tmp_path) -> None:
    def traps(x, y, n):
        return {"findings": (Finding(FindingCode.TRAP, "error", "trapped", line=1),)}

    contract = replace(contract_of(DOUBLE), reference="other", reference_kind="kernel")
    task = task_of(python_backend.version(contract, body(honest), "candidate"), None, tmp_path)
    task = replace(task, reference_version=python_backend.version(contract, body(traps), "reference"))
    with pytest.raises(ReferenceFailed, match="does not run cleanly: trapped"):
        judge(task, python_backend, lambda *_: None, lambda *_: None)


def test_code_that_the_backend_refuses_is_a_finding(python_backend, contract_of, tmp_path) -> None:
    def refuses():
        raise UnsupportedInstruction(Finding(FindingCode.UNSUPPORTED_INSTRUCTION, "error", "mma.sync", line=4))

    version = python_backend.version(contract_of(DOUBLE), refuses, "refused")
    judgement = judge(task_of(version, None, tmp_path), python_backend, lambda *_: None, lambda *_: None)
    assert judgement.correct is None
    assert [(f.code, f.file, f.line) for f in judgement.findings] == [("unsupported-instruction", "kernel.cu", 4)]


def test_zeros_elsewhere_are_the_sizes_fault_and_zeros_everywhere_a_constant(compared) -> None:
    def headline_only(x, y, n):
        y[:] = 2 * x if n == 1000 else 0

    assert errors(compared(headline_only, honest)) == ["wrong-at-size"]
    assert errors(compared(writes_zeros, honest)) == ["constant-output"]


def test_a_half_precision_result_is_lost_precision_and_not_the_sizes_fault(compared) -> None:
    def half(x, y, n):
        y[:] = 2 * x.astype(np.float16) if n > 1 else 2 * x

    found = compared(half, honest, DOUBLE.replace("in float32[n]", "in float32[n] ~ normal")).findings
    assert [f.code for f in found] == ["precision-loss"]
    assert "`accumulate`" in found[0].message


@pytest.mark.parametrize(
    ("dtype", "c_type"),
    [("float16", "__half"), ("bfloat16", "__nv_bfloat16"), ("float64", "double"), ("int32", "int"), ("uint8", "unsigned char"),
     ("complex64", "cuComplex")],
)  # fmt: skip
def test_every_kind_of_number_is_judged(verdict_on, dtype, c_type) -> None:
    block = DOUBLE.replace("float32", dtype).replace("2 * x", "x + x")
    arguments = {"block": block, "against": False, "parameters": f"const {c_type}* x, {c_type}* y, int n"}

    def twice(x, y, n):
        y[:] = x + x

    def off(x, y, n):
        y[:] = x + x
        y[-1:] += y.dtype.type(1)

    assert verdict_on(body(twice), **arguments).correct is True
    assert errors(verdict_on(body(off), **arguments)) == ["wrong-values"]


def test_the_users_mistake_names_file_and_line(verdict_on, tmp_path) -> None:
    (tmp_path / "mine.py").write_text("def f(x):\n    return x[:1]\n")
    with pytest.raises(ReferenceFailed) as caught:
        verdict_on(body(honest), block=DOUBLE.replace("2 * x", "mine.py:f"))
    assert caught.value.file == "kernel.cu"
    assert caught.value.line == 1
    assert "shape [1]" in str(caught.value)


def test_undeclared_integers_of_either_sign_are_tried_only_where_the_baseline_bears_them(verdict_on, compared) -> None:
    def gathers(x, y, n):
        if (x < 0).any() or (x >= n).any():
            return {"findings": (Finding(FindingCode.OUT_OF_BOUNDS_READ, "error", "reads table[x]", line=1),)}
        y[:] = 2 * x
        return None

    def no_negatives(x, y, n):
        y[:] = 2 * np.abs(x)

    block = DOUBLE.replace("float32", "int32")
    alone = verdict_on(body(gathers), against=False, block=block, parameters="const int* x, int* y, int n")
    assert (alone.correct, alone.findings) == (True, ())
    against_honest = {"block": block, "parameters": "const int* x, int* y, int n"}
    assert errors(verdict_on(body(no_negatives), **against_honest)) == ["wrong-values"]


def test_the_contracts_own_inputs_are_the_only_ones(python_backend, contract_of, tmp_path) -> None:
    (tmp_path / "make.py").write_text(
        "import numpy as np\ndef make(n, seed):\n    return {'x': np.random.default_rng(seed).uniform(5, 6, n)}\n"
    )
    contract = contract_of(DOUBLE.replace("[args]", 'inputs = "make.py:make"\n[args]'))
    version = python_backend.version(contract, body(honest), "made")
    judgement = judge(task_of(version, None, tmp_path), python_backend, lambda *_: None, lambda *_: None)
    assert judgement.correct is True
    drawn = [r.arguments[0].data for r in python_backend.runs[version.compiled.binary]]
    assert all(((x >= 5) & (x <= 6)).all() for x in drawn)
    assert len({x.tobytes() for x in drawn if x.size == 1000}) == 2


def costs_the_device(backend, spoils, code="illegal-address"):
    """A kernel that loses the backend its device where `spoils(n, misalign)`, and can do nothing afterwards."""

    def kernel(x, y, n, misalign):
        if backend.poisoned:
            return {
                "findings": (Finding(FindingCode.LAUNCH_FAILURE, "error", "an earlier launch has cost the device"),)
            }
        if spoils(n, misalign):
            backend.poisoned = True
            return {"findings": (Finding(FindingCode(code), "error", "a bad access"),)}
        y[:] = 2 * x
        return None

    return body(kernel)


@pytest.mark.parametrize("against", [True, False])
def test_nothing_is_launched_or_said_after_the_device_is_lost(verdict_on, python_backend, against) -> None:
    make = costs_the_device(python_backend, lambda n, misalign: n == 33)
    judgement = verdict_on(make, against=against)
    assert judgement.correct is False
    assert [finding.code for finding in judgement.findings] == ["illegal-address"]
    assert len(judgement.cases) == 2


def test_a_device_lost_at_a_size_of_our_own_is_a_warning_and_the_listed_sizes_stand(verdict_on, python_backend) -> None:
    make = costs_the_device(python_backend, lambda n, misalign: n not in (1000, 33))
    judgement = verdict_on(make, against=False)
    assert judgement.correct is True
    assert [(finding.code, finding.severity) for finding in judgement.findings] == [("illegal-address", "warning")]
    assert any("sizes of our own after" in reason for reason in judgement.reasons)


def test_listed_sizes_that_a_lost_device_leaves_unjudged_are_not_called_right(verdict_on, python_backend) -> None:
    make = costs_the_device(python_backend, lambda n, misalign: misalign > 0)
    judgement = verdict_on(make, against=False)
    assert judgement.correct is None
    assert any("the GPU's context was lost" in reason for reason in judgement.reasons)


def test_a_baseline_that_costs_the_device_is_not_held_against_the_candidate(
    python_backend, contract_of, tmp_path
) -> None:
    contract = contract_of(DOUBLE)
    baseline = python_backend.version(
        contract, costs_the_device(python_backend, lambda n, misalign: n == 33), "baseline"
    )
    candidate = python_backend.version(
        contract, costs_the_device(python_backend, lambda n, misalign: False), "candidate"
    )
    task = JudgeTask("emulator", find_target(None), candidate, baseline, None, (), 7, str(tmp_path))
    judgement = judge(task, python_backend, lambda *_: None, lambda *_: None)
    assert errors(judgement) == []
    assert judgement.correct is None
    assert any("the GPU's context was lost" in reason for reason in judgement.reasons)


@pytest.fixture
def judged_after(python_backend, contract_of, tmp_path):
    """Judge a kernel by itself, then a candidate of it; how many launches of the kernel each took, and both judgements."""

    def judged(candidate, block=DOUBLE, **task_arguments):
        contract = contract_of(block)
        launches = []

        def counted(x, y, n, schedule):
            launches.append(n)
            honest(x, y, n, schedule)

        kernel = python_backend.version(contract, body(counted), "the kernel itself")
        task = JudgeTask("emulator", find_target(None), kernel, None, None, (), 99, str(tmp_path))
        alone = judge(task, python_backend, lambda *_: None, lambda *_: None)
        before = len(launches)
        other = python_backend.version(contract, body(candidate), "its candidate")
        task = replace(task, candidate=other, baseline=kernel, **task_arguments)
        beside = judge(task, python_backend, lambda *_: None, lambda *_: None)
        return before, len(launches) - before, alone, beside

    return judged


def test_what_a_kernel_made_of_its_launches_is_not_found_out_again_for_its_candidates(judged_after) -> None:
    before, again, alone, beside = judged_after(honest)
    assert before > len(alone.cases)
    assert again == 0
    assert alone.correct is beside.correct is True
    assert all(case.baseline_correct for case in beside.cases)


def test_what_a_kernel_without_a_reference_made_is_what_its_candidates_are_held_against(judged_after) -> None:
    unreferenced = DOUBLE.replace('reference = "2 * x"\n', "")
    before, _, alone, beside = judged_after(honest, unreferenced)
    assert before > 0
    assert alone.correct is None
    assert beside.correct is True
    # What a tolerance is derived from takes launches of its own.
    _, _, _, wrong = judged_after(lambda x, y, n, schedule: np.copyto(y, 3 * x), unreferenced)
    assert wrong.correct is False


def test_a_glance_makes_one_launch_of_a_size_and_sees_what_is_wrong_there(judged_after) -> None:
    launches = []

    def watched(x, y, n, schedule):
        launches.append(n)
        y[:] = 2 * x

    glanced = {"sizes": ({"n": 1000},), "own_sizes": False, "glance": True}
    *_, beside = judged_after(watched, **glanced)
    assert launches == [1000]
    assert beside.correct is True
    *_, wrong = judged_after(lambda x, y, n, schedule: np.copyto(y, 3 * x), **glanced)
    assert wrong.correct is False


def test_a_glance_times_the_headline_alone_and_not_where_the_small_case_is_wrong(
    python_backend, contract_of, tmp_path
) -> None:
    contract = contract_of(DOUBLE)
    timed = []

    def timer(launch):
        timed.append((launch.sound, launch.headline, len(launch.run().arguments[0].data)))

    for wrong_from in (0, 10):

        def candidate(x, y, n, schedule, least=wrong_from):
            y[:] = 2 * x if n >= least else 3 * x

        kernel, version = (
            python_backend.version(contract, body(one), name) for one, name in ((honest, "k"), (candidate, "c"))
        )
        sizes = ({"n": 1000}, {"n": 4})
        task = JudgeTask(
            "emulator", find_target(None), version, kernel, None, sizes, 99, str(tmp_path), own_sizes=False, glance=True
        )
        judgement = judge(task, python_backend, lambda *_: None, timer)
        assert judgement.correct is (wrong_from == 0)
        assert [one.size for one in judgement.metrics] == [{"n": 1000}]
    assert timed == [(True, True, 1000), (False, True, 1000)]


def test_a_task_without_counting_asks_no_launch_for_counters(python_backend, contract_of, tmp_path) -> None:
    version = python_backend.version(contract_of(DOUBLE), body(honest), "k")
    task = JudgeTask("emulator", find_target(None), version, None, None, (), 99, str(tmp_path))
    for count in (True, False):
        bench = Bench(python_backend, replace(task, count=count), version)
        given = inputs_for(version.contract, {"n": 4}, PlannedLaunch(0, NORMAL, 0, 0), 7, tmp_path)
        assert bench.launch({"n": 4}, PlannedLaunch(0, NORMAL, 0, 0), given, count=True).count is count


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (DOUBLE, ("derived", "reference")),
        (DOUBLE.replace("{ n = 1000 }", "{ n = 200000 }"), ("carried", "reference")),
        ("tolerance = { rtol = 0.5 }\n" + DOUBLE, ("contract", "reference")),
        (DOUBLE.replace('reference = "2 * x"\n', ""), ("derived", "baseline")),
    ],
)
def test_a_case_says_what_it_was_held_to(compared, block, said) -> None:
    headline = compared(honest, honest, block).cases[0]
    assert (headline.tolerance_origin, headline.held_against) == said
