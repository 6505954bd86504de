"""Pipelines as engineers write them are right, and wrong ones are rejected with the stage at fault, on the emulator."""

from __future__ import annotations

import json
import pickle
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.pipeline import Temporary, outer_run, pipeline_launch
from kernelmate.checks.case_launches import Bench, PlannedLaunch, inputs_for
from kernelmate.checks.styles import NORMAL
from kernelmate.config import load_settings
from kernelmate.errors import ContractError, ReferenceFailed, UsageError
from kernelmate.records import Finding, FindingCode, JudgeTask, Kernel, Verdict
from kernelmate.report.console import make_console, show
from kernelmate.report.json import verdict_json
from kernelmate.report.page import page
from kernelmate.report.stages import stage_parts, stage_table
from kernelmate.session import Session
from kernelmate.session.authors import SearchOptions, authors
from kernelmate.source import load_kernels, with_text
from kernelmate.source.blocks import find_pipelines

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RIGHT = sorted((HERE / "right").glob("*.cu"))


def pipeline(path: Path) -> Kernel:
    return next(one for one in load_kernels(path) if one.parts)


def changed(path: Path, old: str, new: str) -> Kernel:
    """Returns the pipeline of a file after one change of its text."""
    unit = pipeline(path).unit
    assert unit.text.count(old) == 1, old
    return find_pipelines(with_text(unit, unit.text.replace(old, new)))[0]


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=20261129, backend="emulator", timeout_s=300)) as opened:
        yield opened


def judged(session: Session, name: str) -> Verdict:
    return session.bench(pipeline(HERE / f"{name}.cu"))[0]


def error_of(verdict: Verdict) -> Finding:
    return next(one for one in verdict.findings if one.severity == "error")


@pytest.mark.parametrize("path", RIGHT, ids=lambda path: path.stem)
def test_a_right_pipeline_is_right_end_to_end_and_in_every_stage_that_is_compared(session: Session, path: Path) -> None:
    (verdict,) = session.bench(pipeline(path))
    assert [one for one in verdict.findings if one.severity == "error"] == []
    assert (verdict.correct, verdict.accepted) == (True, True), verdict.reasons
    assert any(case.origin == "own" and case.correct and not case.degenerate for case in verdict.cases)
    assert all(stage.correct is not False for stage in verdict.stages)
    assert all((stage.correct is None) == (stage.unjudged is not None) for stage in verdict.stages)
    assert verdict.timing.kind == "predicted"
    assert verdict.timing.median_us < sum(stage.timing.median_us for stage in verdict.stages)


def test_stages_are_counted_apart_and_in_total(session: Session) -> None:
    verdict = judged(session, "right/sum_in_two")
    first, second = verdict.stages
    assert (first.name, first.grid, first.block) == ("partial_sums", (20, 1, 1), (256, 1, 1))
    for counter in ("global_load_sectors", "global_store_sectors", "thread_instructions", "barriers"):
        counted = [getattr(one.counters, counter) for one in (first, second)]
        assert sum(counted) == getattr(verdict.counters, counter)
        assert min(counted) > 0
    assert (first.temporaries_written_bytes, first.temporaries_read_bytes) == (80, 0)
    assert (second.temporaries_written_bytes, second.temporaries_read_bytes) == (0, 80)
    assert verdict.resources.registers == max(one.resources.registers for one in verdict.stages)


def test_a_stage_is_compared_by_its_own_reference_or_by_that_of_its_kernel(session: Session) -> None:
    first, second = judged(session, "right/sum_in_two").stages
    assert first.correct
    assert second.correct  # by the contract of add_up, whose sizes have other names
    assert max(first.max_error, second.max_error) <= 1
    statistics, normalise = judged(session, "right/layernorm_statistics").stages
    assert statistics.correct
    assert (normalise.correct, normalise.max_error) == (None, None)
    assert "names a reference" in normalise.unjudged


def test_a_step_of_a_library_is_computed_and_its_bytes_are_counted(session: Session) -> None:
    product, gelu = judged(session, "right/bias_gelu").stages
    assert (product.expression, product.grid, product.counters) == ("a @ b", None, None)
    assert product.unjudged == "computed by NumPy"
    assert product.temporaries_written_bytes == gelu.temporaries_read_bytes == 48 * 96 * 4
    assert product.timing.kind == "predicted"


def test_a_temporary_that_the_host_clears_is_read_before_a_kernel_writes_it(session: Session) -> None:
    histogram, scan = judged(session, "right/histogram_scan").stages
    assert histogram.correct
    assert histogram.temporaries_read_bytes == scan.temporaries_read_bytes == 64 * 4


WRONG = {
    "out_of_bounds": (FindingCode.OUT_OF_BOUNDS_WRITE, "partial_sums", "of partial, which has 80 bytes"),
    "race_in_stage_2": (FindingCode.SHARED_RACE, "add_up", "nothing orders the two"),
    "hang_in_stage_2": (FindingCode.HANG, "add_up", "loops for ever"),
    "partly_written": (FindingCode.UNINITIALISED_GLOBAL, "add_up", "1 of its 20 elements"),
    "never_cleared": (FindingCode.UNINITIALISED_GLOBAL, "histogram", "reads counts, and no stage before it writes it"),
    "stale_statistics": (FindingCode.UNINITIALISED_GLOBAL, "normalise", "what the last one left there"),
    "wrong_stage": (FindingCode.WRONG_VALUES, "statistics", "rstd[0] is"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_pipeline_is_rejected_with_the_stage_at_fault(session: Session, name: str) -> None:
    verdict = judged(session, f"wrong/{name}")
    code, stage, said = WRONG[name]
    found = error_of(verdict)
    assert (found.code, found.stage) == (code, stage), found
    assert said in found.message
    assert f"stage {stage}: " in found.message
    assert found.line is not None
    assert (verdict.correct, verdict.accepted) == (False, False)


def test_a_stage_that_is_wrong_is_found_at_its_line_in_the_contract(session: Session) -> None:
    lines = pipeline(HERE / "wrong" / "wrong_stage.cu").unit.text.splitlines()
    assert lines[error_of(judged(session, "wrong/wrong_stage")).line - 1] == '// kernel = "statistics<128>"'


@pytest.mark.parametrize(
    ("prompt", "said"), [("make it faster", "Repair it first, by hand. at"), ("fix the kernel", "Only single kernels")]
)
def test_a_wrong_pipeline_is_neither_changed_nor_repaired(session: Session, prompt: str, said: str) -> None:
    found = session.optimize(pipeline(HERE / "wrong" / "wrong_stage.cu"), prompt)
    assert found.candidates == ()
    assert said in found.notes[0]


def test_a_stage_that_writes_an_input_of_the_pipeline_is_found(session: Session) -> None:
    found = judged(session, "wrong/input_written").findings
    assert ("blur", "from") in {(one.stage, one.buffer) for one in found if one.code == FindingCode.INPUT_MUTATED}


def test_stages_in_the_wrong_order_are_a_mistake_of_the_contract() -> None:
    with (
        Session(load_settings(backend="emulator")) as opened,
        pytest.raises(ContractError, match="reads mean, which no"),
    ):
        opened.check(pipeline(HERE / "wrong" / "wrong_order.cu"))


def test_stages_that_share_a_variable_are_refused_before_they_run(session: Session) -> None:
    verdict = session.check(pipeline(HERE / "wrong" / "shared_variable.cu"))[0]
    assert error_of(verdict).code == FindingCode.LAUNCH_FAILURE
    assert "variable blocks" in error_of(verdict).message


def test_elements_that_are_read_and_not_used_are_no_mistake(session: Session) -> None:
    kernel = changed(HERE / "wrong" / "partly_written.cu", "value += sums[i];", "value += i == count - 1 ? 0.0f * (sums[i] > 0.0f) : sums[i];")  # fmt: skip
    found = session.bench(kernel)[0].findings
    assert all(one.code != FindingCode.UNINITIALISED_GLOBAL for one in found), found


def test_a_stage_that_cannot_be_launched_is_named(session: Session) -> None:
    kernel = changed(HERE / "right" / "sum_in_two.cu", '// args = { sums = "partial"', '// shared = 300000\n// args = { sums = "partial"')  # fmt: skip
    found = error_of(session.check(kernel)[0])
    assert (found.code, found.stage) == (FindingCode.LAUNCH_FAILURE, "add_up")
    assert "300000" in found.message


def test_an_error_of_one_kernel_rejects_the_pipeline(session: Session) -> None:
    kernel = changed(HERE / "right" / "sum_in_two.cu", "*total = value;", "*total = valeu;")
    verdict = session.check(kernel)[0]
    assert (verdict.compiled, error_of(verdict).code, error_of(verdict).stage) == (
        False,
        FindingCode.COMPILE_ERROR,
        "add_up",
    )


def test_a_step_that_fails_is_an_error_of_the_contract_with_its_stage(session: Session) -> None:
    kernel = changed(HERE / "right" / "bias_gelu.cu", 'product = "a @ b"', 'product = "b @ a"')
    with pytest.raises(ReferenceFailed, match="The stage product = 'b @ a' fails"):
        session.bench(kernel)


def test_a_version_with_an_earlier_stage_changed_is_compared_on_its_own_inputs(session: Session) -> None:
    """Expected outputs of a stage are cached, and depend on what the stages before it give."""
    path = HERE / "right" / "sum_in_two.cu"
    assert session.bench(pipeline(path))[0].stages[1].correct
    twice = changed(path, "partial[blockIdx.x] = value;", "partial[blockIdx.x] = 2.0f * value;")
    verdict = session.bench(twice)[0]
    assert (verdict.correct, verdict.stages[0].correct, verdict.stages[1].correct) == (False, False, True)
    assert error_of(verdict).stage == "partial_sums"


def test_the_document_of_a_verdict_has_its_stages(session: Session) -> None:
    verdict = judged(session, "right/sum_in_two")
    stages = json.loads(json.dumps(verdict_json(verdict)))["stages"]
    assert [one["name"] for one in stages] == ["partial_sums", "add_up"]
    assert stages[0]["grid"] == [20, 1, 1]
    kernel = next(one for one in load_kernels(HERE / "right" / "sum_in_two.cu") if one.name == "add_up")
    assert verdict_json(session.bench(kernel)[0])["stages"] is None


def test_a_page_shows_one_row_for_each_stage(session: Session) -> None:
    verdict = judged(session, "right/bias_gelu")
    page = "".join(stage_parts(verdict))
    assert page.count("<tr>") == 4
    assert "a @ b" in page
    assert stage_parts(replace(verdict, stages=None)) == []


def test_the_page_of_a_search_has_the_pipelines_stages(session: Session) -> None:
    wrong = pipeline(HERE / "wrong" / "wrong_stage.cu")
    text = page(session.optimize(wrong, "fix the kernel"), wrong)
    assert "<h3>Stages</h3>" in text
    assert text.count("<code>statistics</code>") == 1


def test_the_table_in_the_documentation_is_that_of_the_example(session: Session, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text()
    path = ROOT / "examples" / "pipelines" / "softmax_pipeline.cu"
    block = re.search(r"```cuda\n(.*?)```", page, re.DOTALL)
    assert block is not None
    assert block[1] in path.read_text()
    verdict = session.bench(pipeline(path))[0]
    with (tmp_path / "table.txt").open("w", encoding="utf-8") as file:
        show(make_console(file, color=False, width=100), *stage_table(verdict))
    written = (tmp_path / "table.txt").read_text().splitlines()
    shown = re.search(r"```text\n(.*?)```", page, re.DOTALL)
    assert shown is not None
    assert [line.rstrip() for line in written[: len(shown[1].splitlines())]] == shown[1].splitlines()


# --------------------------------------------------------------------------------------------- compared and fused


def fewer_stages() -> Kernel:
    """Returns the softmax of the examples with its last two kernels as one."""
    unit = pipeline(ROOT / "examples" / "pipelines" / "softmax_pipeline.cu").unit
    text = unit.text.replace('// total = "scratch float32[rows]"\n', "")
    first, last = text.index('// [[stages]]\n// kernel = "row_exp_sum"'), text.index("// ///\n")
    text = (
        text[:first] + '// [[stages]]\n// kernel = "sum_and_divide"\n// grid = "rows"\n// block = 256\n' + text[last:]
    )
    fused = """__global__ void sum_and_divide(const float* x, const float* largest, float* y, int cols) {
  __shared__ float total;
  const float* row = x + (size_t)blockIdx.x * cols;
  float value = 0.0f;
  for (int c = threadIdx.x; c < cols; c += blockDim.x) value += expf(row[c] - largest[blockIdx.x]);
  value = block_reduce(value, Sum());
  if (threadIdx.x == 0) total = value;
  __syncthreads();
  for (int c = threadIdx.x; c < cols; c += blockDim.x)
    y[(size_t)blockIdx.x * cols + c] = expf(row[c] - largest[blockIdx.x]) / total;
}
"""
    return find_pipelines(with_text(unit, text[: text.index("__global__ void row_exp_sum")] + fused))[0]


def test_a_candidate_with_fewer_stages_is_compared_by_the_baselines_contract(session: Session) -> None:
    found = session.compare(pipeline(ROOT / "examples" / "pipelines" / "softmax_pipeline.cu"), fewer_stages())
    before, after = found.baseline[0], found.candidate[0]
    assert (len(before.stages), len(after.stages), after.correct) == (3, 2, True)
    said = "2,048 written and 3,072 read before, 1,024 written and 1,024 read now"
    assert any(said in reason for reason in after.reasons), after.reasons
    assert after.speedup.kind == "predicted"
    assert after.speedup.median > 1


def test_a_kernel_may_stand_against_a_pipeline(session: Session) -> None:
    kernel = load_kernels(ROOT / "examples" / "softmax.cu")[0]
    after = session.compare(pipeline(ROOT / "examples" / "pipelines" / "softmax_pipeline.cu"), kernel).candidate[0]
    assert (after.correct, after.stages) == (True, None)
    assert any("0 written and 0 read now" in reason for reason in after.reasons)


def test_a_wrong_candidate_is_rejected_with_its_stage(session: Session) -> None:
    path = HERE / "right" / "sum_in_two.cu"
    worse = changed(path, "i < count; i += blockDim.x", "i + 1 < count; i += blockDim.x")
    after = session.compare(pipeline(path), worse).candidate[0]
    assert (after.correct, after.accepted) == (False, False)
    assert error_of(after).stage == "add_up"


def test_a_pipeline_whose_reference_traces_is_written_as_one_kernel_beside_it(session: Session) -> None:
    kernel = pipeline(HERE / "right" / "layernorm_statistics.cu")
    found = session.optimize(kernel, "make it faster", max_candidates=1)
    assert found.candidates, found.notes
    judged = found.candidates[0]
    assert judged.candidate.author.startswith("synthesis:")
    assert judged.candidate.kernel.name == "layernorm_in_two_fused"
    assert "320 bytes of temporaries are no longer written and 320 no longer read" in judged.candidate.why
    assert "the host's launches are not changed" in judged.candidate.why
    assert (judged.verdict.correct, judged.verdict.stages) == (True, None)
    text = judged.candidate.kernel.unit.text
    assert text.startswith(kernel.unit.text[:40])
    assert all(kernel.unit.text[start:end] in text for start, end in kernel.parts)
    own = session.bench(judged.candidate.kernel)[0]
    assert (own.correct, own.accepted) == (True, True), own.reasons


def test_only_synthesis_writes_for_a_pipeline() -> None:
    kernel = pipeline(HERE / "right" / "sum_in_two.cu")
    settings = load_settings(backend="emulator")
    assert [one.name for one in authors(settings, kernel, SearchOptions())] == ["synthesis"]
    with pytest.raises(UsageError, match="sum_in_two is a pipeline"):
        authors(settings, kernel, SearchOptions(author="recipes"))


def test_a_run_is_handed_to_another_process_as_data(session: Session) -> None:
    """A GPU's process gets stages without functions, and temporaries by shape and fill."""
    kernel = pipeline(HERE / "right" / "histogram_scan.cu")
    version = session.prepare(kernel)[0].version
    task = JudgeTask("emulator", session.target, version, None, None, (), 1, str(HERE / "right"))
    size, shot = version.contract.sizes[0], PlannedLaunch(0, NORMAL, 0, 0)
    run = Bench(EmulatorBackend(), task, version).launch(size, shot, inputs_for(version.contract, size, shot, 1, HERE))
    sent = pickle.loads(pickle.dumps(pipeline_launch(run, [1, 2])))
    assert [one.name for one in sent.stages] == ["histogram", "exclusive_scan"]
    assert sent.temporaries == (Temporary("counts", (64,), "int32", 0),)
    assert sent.temporaries[0].nbytes == 256
    assert [one.name for one in outer_run(run).arguments] == ["keys", "starts", "n", "bins"]
    assert outer_run(run).stages == ()
