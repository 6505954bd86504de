"""A session compiles versions, has the worker judge them, and returns verdicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import kernelmate
from kernelmate.errors import (
    BackendUnavailable,
    CompileTimeout,
    ContractError,
    ReferenceFailed,
    UsageError,
    WorkerUnavailable,
)
from kernelmate.records import Finding, FindingCode, Judgement, JudgeTask, Kernel
from kernelmate.worker.client import TaskDeath, WorkerState

Load = Callable[..., Kernel]
Make = Callable[..., Any]


def test_check_compiles_and_runs_nothing(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted()
    (verdict,) = session.check(load(scale))
    assert verdict.compiled
    assert verdict.resources is not None
    assert verdict.resources.registers > 0
    assert verdict.occupancy is not None
    assert 0 < verdict.occupancy.theoretical <= 1
    assert (verdict.correct, verdict.accepted, verdict.cases, verdict.findings) == (None, None, (), ())
    assert (verdict.backend, verdict.target, verdict.arch) == ("emulator", "H100 SXM", "sm_90")
    assert worker.tasks == []
    assert worker.state is WorkerState.IDLE


def test_check_needs_no_contract_and_no_reference(load: Load, scripted: Make) -> None:
    session, _ = scripted()
    (verdict,) = session.check(
        load("struct S { int a[3]; };\n__global__ void k(S s, float* out) { out[0] = s.a[1]; }\n")
    )
    assert verdict.compiled


def test_a_compile_error_is_a_finding_at_its_line(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted()
    broken = load(scale.replace("a * x[i]", "a * z[i]"))
    (checked,) = session.check(broken)
    (benched,) = session.bench(broken)
    for verdict in (checked, benched):
        assert not verdict.compiled
        assert verdict.accepted is False
        (finding,) = verdict.findings
        assert (finding.code, finding.line) == ("compile-error", 14)
        assert "z" in finding.message
    assert worker.tasks == []


def test_a_wrong_contract_is_the_users_error(load: Load, scale: str, scripted: Make) -> None:
    session, _ = scripted()
    kernel = load(scale.replace("in float32[n]", "in float33[n]"))
    for judge in (session.check, session.bench):
        with pytest.raises(ContractError) as caught:
            judge(kernel)
        assert caught.value.line == 7


def test_bench_sends_the_version_and_the_settings_to_the_worker(load: Load, scale: str, scripted: Make) -> None:
    steps: list[tuple[str, int, int]] = []
    session, worker = scripted(on_progress=lambda *step: steps.append(step), timeout_s=33, reference_timeout_s=5)
    kernel = load(scale)
    (verdict,) = session.bench(kernel)
    (task,) = worker.tasks
    assert (task.backend, task.target, task.seed, task.baseline) == ("emulator", session.target, 7, None)
    assert task.reference_timeout_s == 5
    assert worker.timeouts == [33]
    assert Path(task.directory) == Path(kernel.unit.path).parent
    assert task.candidate.contract.sizes == ({"n": 1024}, {"n": 1})
    assert task.candidate.compiled.binary == verdict.binary
    assert (verdict.correct, verdict.accepted, verdict.seed) == (True, True, 7)
    assert verdict.timing is not None
    assert verdict.counters is not None
    assert steps[0] == ("compile", 0, 1)
    assert steps[-1] == ("kernel", 1, 2)


def test_a_seed_is_drawn_and_recorded_where_none_is_set(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted(seed=None)
    kernel = load(scale)
    seeds = {session.bench(kernel)[0].seed for _ in range(3)}
    assert len(seeds) > 1
    assert {task.seed for task in worker.tasks} == seeds


def test_an_unlisted_headline_that_did_not_run_has_no_figures(
    load: Load, scale: str, scripted: Make, judgement: Callable[..., Judgement]
) -> None:
    def second_size_only(task: JudgeTask) -> Judgement:
        whole = judgement(task, correct=False)
        return replace(whole, metrics=whole.metrics[1:])

    session, _ = scripted(second_size_only)
    (verdict,) = session.bench(load(scale))
    assert verdict.timing is None
    assert verdict.counters is None
    assert verdict.accepted is False


DEATHS = ["hang", "worker-crash", "out-of-memory", "output-flood"]


@pytest.mark.parametrize("kind", ["worker-crash", "output-flood", "out-of-memory"])
def test_a_death_of_the_worker_on_a_gpu_is_a_finding_at_the_kernels_line(
    load: Load, scale: str, scripted: Make, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    answer = TaskDeath(kind, "kernel", "The worker process was killed by SIGSEGV.")
    session, _ = scripted(lambda task: answer, backend="emulator")
    monkeypatch.setattr(session, "_backend", "cuda")
    (verdict,) = session.bench(load(scale))
    (finding,) = verdict.findings
    assert (finding.code, finding.severity, finding.line, finding.column) == (kind, "error", 12, 17)
    assert "SIGSEGV" in finding.message
    assert (verdict.correct, verdict.accepted, verdict.compiled) == (False, False, True)


@pytest.mark.parametrize(
    ("kind", "code", "setting"),
    [
        ("hang", "time-limit", "timeout_s"),
        ("out-of-memory", "out-of-memory", "memory_limit_mb"),
        ("worker-crash", "worker-crash", "Judge it again"),
    ],
)
def test_what_the_emulator_had_no_time_or_memory_for_is_rejected_but_not_called_wrong(
    load: Load, scale: str, scripted: Make, kind: Any, code: str, setting: str
) -> None:
    session, _ = scripted(lambda task: TaskDeath(kind, "cases", "The limit was passed."), backend="emulator")
    (verdict,) = session.bench(load(scale))
    (finding,) = verdict.findings
    assert (finding.code, finding.line, verdict.correct, verdict.accepted) == (code, 12, None, False)
    for said in ("The limit was passed.", "says nothing about the kernel", setting):
        assert said in finding.message


def test_time_that_runs_out_on_a_gpu_is_a_hang(
    load: Load, scale: str, scripted: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, _ = scripted(lambda task: TaskDeath("hang", "cases", "No verdict within 1 s."), backend="emulator")
    monkeypatch.setattr(session, "_backend", "cuda")
    (verdict,) = session.bench(load(scale))
    assert (verdict.findings[0].code, verdict.correct, verdict.accepted) == ("hang", False, False)


def test_the_limits_of_the_settings_reach_the_judge(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted(step_limit=1234, instruction_limit=98765, timeout_s=33)
    session.bench(load(scale))
    (task,) = worker.tasks
    assert (task.step_limit, task.instruction_limit, task.timeout_s) == (1234, 98765, 33)


def test_what_a_dead_worker_printed_is_quoted_in_one_line(load: Load, scale: str, scripted: Make) -> None:
    session, _ = scripted(lambda task: TaskDeath("worker-crash", "cases", "It was killed by SIGABRT.", "one\n  two"))
    (verdict,) = session.bench(load(scale))
    assert verdict.findings[0].message.startswith("It was killed by SIGABRT. It printed: one | two")


@pytest.mark.parametrize("stage", ["cases", "reference"])
def test_a_fault_of_our_own_judge_rejects_but_calls_nothing_wrong(
    load: Load, scale: str, scripted: Make, stage: str
) -> None:
    session, _ = scripted(lambda task: TaskDeath("worker-crash", stage, "KeyError: 3.", judge_failed=True))
    (verdict,) = session.bench(load(scale))
    assert (verdict.correct, verdict.accepted) == (None, False)
    assert "fault of KernelMate" in verdict.findings[0].message


@pytest.mark.parametrize("kind", DEATHS)
def test_a_death_inside_the_reference_is_not_held_against_the_kernel(
    load: Load, scale: str, scripted: Make, kind: Any
) -> None:
    session, _ = scripted(lambda task: TaskDeath(kind, "reference", "It was killed by SIGSEGV."))
    with pytest.raises(ReferenceFailed, match=r"reference\.py:scale ended the worker") as caught:
        session.bench(load(scale))
    assert "SIGSEGV" in caught.value.message


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("block = 256", "block = 1024"), "allows"),
        (("block = 256", 'block = 256\n// shared = "300000"'), "300000 dynamic"),
        (("block = 256", "block = 256\n// cooperative = true\n//"), "cooperative"),
    ],
    ids=["threads", "shared memory", "cooperative"],
)
def test_a_launch_that_the_target_refuses_is_found_before_anything_runs(
    load: Load, scale: str, scripted: Make, change: tuple[str, str], said: str
) -> None:
    session, worker = scripted()
    text = scale.replace(*change).replace("void scale", "void __launch_bounds__(512) scale")
    text = text.replace("n = 1024", "n = 100000000").replace("\n//\n", "\n")
    (verdict,) = session.bench(load(text))
    (finding,) = verdict.findings
    assert (finding.code, verdict.accepted) == ("launch-failure", False)
    assert said in finding.message
    assert worker.tasks == []


def test_clusters_need_an_architecture_that_has_them(load: Load, scale: str, scripted: Make) -> None:
    text = scale.replace("block = 256", "block = 256\n// cluster = [1]")
    session, _ = scripted(target="A100")
    (verdict,) = session.bench(load(text))
    assert [finding.code for finding in verdict.findings] == ["launch-failure"]
    session, _ = scripted(target="H100 SXM")
    assert session.bench(load(text))[0].findings == ()


def test_the_clusters_that_a_kernel_is_compiled_for_are_launched(load: Load, scale: str, scripted: Make) -> None:
    text = scale.replace("void scale", "void __cluster_dims__(2, 1, 1) scale").replace("{ n = 1 }", "{ n = 300 }")
    session, worker = scripted()
    assert session.bench(load(text))[0].findings == ()
    assert worker.tasks[0].candidate.contract.cluster == (2, 1, 1)
    for before, after, said in (
        ("n = 300", "n = 1", "grid.x is 1, which"), ("block = 256", "block = 256\n// cluster = [1]", "__cluster_dims__"),
    ):  # fmt: skip
        session, worker = scripted()
        (finding,) = session.bench(load(text.replace(before, after)))[0].findings
        assert (finding.code, worker.tasks) == ("launch-failure", [])
        assert said in finding.message


def test_dynamic_shared_memory_of_the_headline_is_in_the_resources(load: Load, scale: str, scripted: Make) -> None:
    session, _ = scripted()
    (verdict,) = session.bench(load(scale.replace("block = 256", 'block = 256\n// shared = "block * 4"')))
    assert verdict.resources is not None
    assert verdict.resources.dynamic_shared_bytes == 1024


def test_each_instance_is_judged_by_itself(load: Load, scale: str, scripted: Make) -> None:
    text = scale.replace("__global__", "template <int N> __global__")
    text = text.replace("block = 256", 'block = 256\n// instances = ["scale<1>", "scale<2>"]').replace(
        "a * x", "N * a * x"
    )
    session, worker = scripted()
    verdicts = session.bench(load(text))
    assert [verdict.instance for verdict in verdicts] == ["scale<1>", "scale<2>"]
    assert len({verdict.binary for verdict in verdicts}) == 2
    assert [task.candidate.compiled.instance for task in worker.tasks] == ["scale<1>", "scale<2>"]
    comparison = session.compare(load(text), load(text.replace("if (i < n)", "if (n > i)"), "other.cu"))
    pairs = [(task.candidate.compiled.instance, task.baseline.compiled.instance) for task in worker.tasks[4:]]
    assert pairs == [("scale<1>", "scale<1>"), ("scale<2>", "scale<2>")]
    assert [verdict.instance for verdict in comparison.candidate] == ["scale<1>", "scale<2>"]


def test_other_sizes_take_the_place_of_the_contracts(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted()
    session.bench(load(scale), sizes=({"n": 5},))
    assert worker.tasks[0].candidate.contract.sizes == ({"n": 5},)


def test_weights_are_of_the_contracts_sizes_and_not_of_others(load: Load, scale: str, scripted: Make) -> None:
    weighted = scale.replace("// block = 256", "// block = 256\n// weights = [3, 1]")
    session, worker = scripted()
    (verdict,) = session.bench(load(weighted))
    assert [case.weight for case in verdict.cases] == [3.0, 1.0]
    (verdict,) = session.bench(load(weighted), sizes=({"n": 5}, {"n": 6}))
    assert worker.tasks[-1].candidate.contract.weights == ()
    assert [case.weight for case in verdict.cases] == [None, None]


def test_a_case_says_how_its_time_compares(load: Load, scale: str, scripted: Make) -> None:
    session, _ = scripted()
    other = scale.replace("if (i < n)", "if (n > i)")
    (case, *_) = session.bench(load(scale))[0].cases
    assert case.speedup is None
    (case, *_) = session.compare(load(scale), load(other, "other.cu")).candidate[0].cases
    assert case.speedup is not None
    assert (case.speedup.kind, case.speedup.median) == ("predicted", 1.0)


def test_by_weights_the_verdicts_ratio_and_objective_are_the_means(
    load: Load, scale: str, scripted: Make, judgement: Callable[..., Judgement]
) -> None:
    def answer(task: JudgeTask) -> Judgement:
        made = judgement(task)
        faster = "n > i" in task.candidate.unit.text
        sizes = [
            replace(one, timing=replace(one.timing, median_us=10 / factor))
            for one, factor in zip(made.metrics, (1, 16), strict=True)
        ]
        return replace(made, metrics=tuple(sizes)) if faster else made

    weighted = scale.replace("// block = 256", "// block = 256\n// weights = [1, 3]")
    session, _ = scripted(answer)
    changed = load(weighted.replace("if (i < n)", "if (n > i)"), "other.cu")
    (verdict,) = session.compare(load(weighted), changed, "make it faster").candidate
    assert verdict.objective is not None
    assert verdict.speedup is not None
    assert (verdict.objective.weighted, verdict.speedup.weighted) == (True, True)
    assert verdict.speedup.median == pytest.approx(8.0)
    assert verdict.objective.before == pytest.approx(10.0)
    assert verdict.objective.after == pytest.approx(1.25)
    assert [one.speedup.median for one in verdict.cases if one.speedup] == pytest.approx([1.0, 16.0])


@pytest.mark.parametrize("size", [{}, {"m": 3}, {"n": 3, "m": 3}, {"n": -1}])
def test_a_size_that_is_not_the_contracts_is_refused(
    load: Load, scale: str, scripted: Make, size: dict[str, int]
) -> None:
    session, _ = scripted()
    with pytest.raises(UsageError) as caught:
        session.bench(load(scale), sizes=(size,))
    assert "n=1024" in (caught.value.hint or "")


def test_a_size_that_the_contract_does_not_allow_is_refused(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted()
    kernel = load(scale.replace("block = 256", 'block = 256\n// require = ["n > 0", "n % 1 == 0", "n != 6"]'))
    with pytest.raises(UsageError, match="requires n != 6, which n = 6"):
        session.bench(kernel, sizes=({"n": 5}, {"n": 6}))
    assert worker.tasks == []


def test_another_reference_takes_the_place_of_the_contracts(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted()
    kernel = load(
        scale + "__global__ void naive(const float* x, float* y, float a, int n) { y[0] = x[0]; }\n", kernel="scale"
    )
    elsewhere = Path.cwd() / "sub"
    elsewhere.mkdir()
    (elsewhere / "ref.py").write_text("def f(x): return x\n")
    session.bench(kernel, reference="sub/ref.py:f")
    session.bench(kernel, reference="naive")
    session.bench(kernel, reference="2 * x")
    references = [(task.candidate.contract.reference, task.candidate.contract.reference_kind) for task in worker.tasks]
    assert references == [(f"{elsewhere / 'ref.py'}:f", "function"), ("naive", "kernel"), ("2 * x", "expression")]
    compiled = [task.reference_version for task in worker.tasks]
    assert [version and version.compiled.name for version in compiled] == [None, "naive", None]
    for wrong in ("ref.py", "2 *", "ref.py:not a name"):
        with pytest.raises(UsageError, match="cannot be used as a reference"):
            session.bench(kernel, reference=wrong)


def test_the_settings_reference_gives_way_to_the_calls(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted(reference="3 * x")
    session.bench(load(scale))
    session.bench(load(scale), reference="4 * x")
    assert [task.candidate.contract.reference for task in worker.tasks] == ["3 * x", "4 * x"]


def test_a_reference_kernel_that_does_not_compile_is_told_as_such(load: Load, scale: str, scripted: Make) -> None:
    session, _ = scripted()
    text = scale.replace("reference.py:scale", "naive")
    kernel = load(text + "#ifdef __CUDACC__\n__global__ void naive(float* y) { y[0] = 1; }\n#endif\n", kernel="scale")
    session.bench(kernel)
    bounded = (
        text + "__global__ void __launch_bounds__(32) naive(const float* x, float* y, float a, int n) { y[0] = 1; }\n"
    )
    with pytest.raises(ReferenceFailed, match="reference kernel naive cannot run"):
        session.bench(load(bounded, kernel="scale"))


def test_a_guessed_contract_accepts_nothing_and_says_so(load: Load, scripted: Make) -> None:
    session, _ = scripted()
    (verdict,) = session.bench(
        load("__global__ void k(const float* x, float* y, int n) { y[threadIdx.x] = x[threadIdx.x]; }")
    )
    assert verdict.accepted is None
    assert any("guess" in reason for reason in verdict.reasons)


def test_compare_judges_the_candidate_against_the_baseline(
    load: Load, scale: str, scripted: Make, judgement: Callable[..., Judgement]
) -> None:
    session, worker = scripted(lambda task: judgement(task, us=10.0 if task.baseline is None else 5.0))
    comparison = session.compare(load(scale), load(scale.replace("a * x[i]", "x[i] * a"), "faster.cu"))
    first, second = worker.tasks
    assert first.baseline is None
    assert second.baseline == first.candidate
    assert second.seed == first.seed
    (verdict,) = comparison.candidate
    assert verdict.speedup is not None
    assert (verdict.speedup.kind, verdict.speedup.median) == ("predicted", 2.0)
    assert verdict.accepted is True
    assert comparison.baseline[0].speedup is None


def test_a_candidates_own_contract_decides_the_launch_and_nothing_else(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted()
    own = (
        scale.replace("block = 256", "block = 128")
        .replace("n = 1024", "n = 8")
        .replace("float32 = 2.0", "float32 = 9.0")
    )
    (verdict,) = session.compare(load(scale), load(own, "candidate.cu")).candidate
    contract = worker.tasks[1].candidate.contract
    assert contract.block == ("128",)
    assert contract.sizes == ({"n": 1024}, {"n": 1})
    assert contract.args == worker.tasks[0].candidate.contract.args
    assert any("sizes, args" in reason for reason in verdict.reasons)


def test_a_candidate_without_a_contract_has_the_baselines(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted()
    bare = scale[scale.index("__global__") :]
    (verdict,) = session.compare(load(scale), load(bare, "candidate.cu")).candidate
    assert worker.tasks[1].candidate.contract == worker.tasks[0].candidate.contract
    assert verdict.accepted is True
    assert verdict.reasons == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("float a, int n", "float a, int n, int m", "takes 5 arguments"),
        ("const float* x", "float x", "as a scalar"),
        ("float* y", "double* y", "as float64"),
    ],
)
def test_a_candidate_that_takes_other_arguments_is_rejected(
    load: Load, scale: str, scripted: Make, old: str, new: str, said: str
) -> None:
    session, worker = scripted()
    bare = scale[scale.index("__global__") :].replace(old, new).replace("a * x[i]", "a")
    (verdict,) = session.compare(load(scale), load(bare, "candidate.cu")).candidate
    (finding,) = verdict.findings
    assert (finding.code, finding.file) == ("launch-failure", str(Path.cwd() / "candidate.cu"))
    assert said in finding.message
    assert len(worker.tasks) == 1


def test_a_candidate_that_does_not_compile_is_rejected(load: Load, scale: str, scripted: Make) -> None:
    session, _ = scripted()
    broken = load(scale.replace("a * x[i]", "a * q[i]"), "candidate.cu")
    (verdict,) = session.compare(load(scale), broken).candidate
    assert (verdict.compiled, verdict.accepted) == (False, False)
    assert [finding.code for finding in verdict.findings] == ["compile-error"]


def test_a_compiler_that_never_ends_stops_check_and_rejects_a_candidate(
    load: Load, scale: str, scripted: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelmate.session import preparing

    real = preparing.compile_kernel

    def compile_kernel(kernel: Kernel, *args: Any, **more: Any) -> Any:
        if "EXPLODES" in kernel.unit.text:
            raise CompileTimeout("The compiler was killed after 1 s.")
        return real(kernel, *args, **more)

    monkeypatch.setattr(preparing, "compile_kernel", compile_kernel)
    session, _ = scripted()
    endless = load(scale + "// EXPLODES\n", "endless.cu")
    with pytest.raises(CompileTimeout):
        session.check(endless)
    (verdict,) = session.compare(load(scale), endless).candidate
    assert verdict.accepted is False
    assert [(finding.code, finding.message) for finding in verdict.findings] == [
        ("compile-error", "The compiler was killed after 1 s.")
    ]


def test_a_baseline_that_cannot_run_is_left_out_of_the_candidates_task(
    load: Load, scale: str, scripted: Make, judgement: Callable[..., Judgement]
) -> None:
    deaths = iter([TaskDeath("hang", "kernel", "No verdict within 1 s.")])
    session, worker = scripted(lambda task: next(deaths, None) or judgement(task))
    comparison = session.compare(load(scale), load(scale.replace("a * x", "x[i] * a; // "), "candidate.cu"))
    assert comparison.baseline[0].findings[0].code == "time-limit"
    assert worker.tasks[1].baseline is None
    assert comparison.candidate[0].speedup is None


@pytest.mark.parametrize("code", ["illegal-address", "misaligned-access", "trap"])
def test_a_baseline_that_ends_a_gpus_context_is_left_out_on_a_gpu_alone(
    load: Load, scale: str, scripted: Make, judgement: Callable[..., Judgement], monkeypatch: pytest.MonkeyPatch,
    code: str,
) -> None:  # fmt: skip
    fault = Finding(FindingCode(code), "error", "a fault")
    kernel, candidate = load(scale), load(scale.replace("a * x", "x[i] * a; // "), "candidate.cu")
    for backend, given in (("cuda", False), ("emulator", True)):
        answers = iter([{"correct": False, "findings": (fault,)}])
        session, worker = scripted(
            lambda task, answers=answers: judgement(task, **next(answers, {})), backend="emulator"
        )
        monkeypatch.setattr(session, "_backend", backend)
        session.compare(kernel, candidate)
        assert (worker.tasks[1].baseline is not None) is given


def test_a_prompt_decides_what_is_accepted(
    load: Load, scale: str, scripted: Make, judgement: Callable[..., Judgement]
) -> None:
    session, _ = scripted(lambda task: judgement(task, sectors=100 if task.baseline is None else 50))
    other = load(scale.replace("a * x[i]", "x[i] * a"), "candidate.cu")
    (less,) = session.compare(load(scale), other, prompt="reduce global memory traffic").candidate
    assert less.objective is not None
    assert (less.objective.name, less.objective.before, less.objective.after) == ("global_bytes", 3200.0, 1600.0)
    assert less.accepted is True
    (shared,) = session.compare(load(scale), other, prompt="use less shared memory").candidate
    assert shared.accepted is False


def test_an_error_finding_rejects_and_a_warning_does_not(
    load: Load, scale: str, scripted: Make, judgement: Callable[..., Judgement]
) -> None:
    for severity, accepted in (("error", False), ("warning", True)):
        finding = Finding(FindingCode.SHARED_RACE, severity, "Two threads write one word.")  # type: ignore[arg-type]
        session, _ = scripted(lambda task, finding=finding: judgement(task, findings=(finding,)))
        assert session.bench(load(scale))[0].accepted is accepted


def test_backend_cuda_is_refused_with_what_works(scripted: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelmate.backends.cuda.driver.read_driver", lambda: None)
    with pytest.raises(BackendUnavailable, match="cannot run here") as caught:
        scripted(backend="cuda")
    assert "--backend emulator" in (caught.value.hint or "")


def test_an_unknown_target_is_refused(scripted: Make) -> None:
    with pytest.raises(UsageError):
        scripted(target="H9000")


def test_a_build_gives_options_and_the_settings_come_on_top(load: Load, scale: str, scripted: Make) -> None:
    kernel = load("#include <factor.h>\n" + scale.replace("a * x", "FACTOR * EXTRA * a * x"))
    headers = Path.cwd() / "headers"
    headers.mkdir()
    (headers / "factor.h").write_text("#define FACTOR 3\n")
    command = "nvcc -Iheaders -DEXTRA=2 -std=c++14 -c scale.cu"
    entry = {"directory": str(Path.cwd()), "file": "scale.cu", "command": command}
    (Path.cwd() / "compile_commands.json").write_text(json.dumps([entry]))
    session, _ = scripted()
    assert not session.check(kernel)[0].compiled
    session, _ = scripted(build=Path.cwd() / "compile_commands.json")
    assert session.check(kernel)[0].compiled
    assert "c++14" in session.check(kernel)[0].compiler
    session, _ = scripted(build=Path.cwd() / "compile_commands.json", std="c++20")
    assert "c++20" in session.check(kernel)[0].compiler


def test_what_the_worker_raises_about_the_user_comes_out(load: Load, scale: str, scripted: Make) -> None:
    def fail(task: JudgeTask) -> Judgement:
        raise WorkerUnavailable("No process.")

    session, _ = scripted(fail)
    with pytest.raises(WorkerUnavailable, match="No process"):
        session.bench(load(scale))


def test_a_failure_of_the_reference_stands_at_the_contract_that_names_it(
    load: Load, scale: str, scripted: Make
) -> None:
    def fail(task: JudgeTask) -> Judgement:
        raise ReferenceFailed("The reference did not return in 2 s.")

    session, _ = scripted(fail)
    kernel = load(scale)
    with pytest.raises(ReferenceFailed) as caught:
        session.bench(kernel)
    assert (caught.value.file, caught.value.line) == (kernel.unit.path, 1)


def test_leaving_a_session_closes_its_worker(scripted: Make) -> None:
    session, worker = scripted()
    with session:
        pass
    assert worker.state is WorkerState.CLOSED


def test_the_packages_functions_open_and_close_a_session(load: Load, scale: str) -> None:
    kernel = load(scale)
    (by_path,) = kernelmate.check(kernel.unit.path, target="A100", seed=3)
    (by_kernel,) = kernelmate.check(kernel, target="A100", seed=3)
    assert by_path == by_kernel
    assert (by_path.arch, by_path.seed) == ("sm_80", 3)


def test_compiled_code_is_kept_where_the_settings_say(load: Load, scale: str, scripted: Make) -> None:
    kept = Path.cwd() / "kept"
    session, _ = scripted(cache_dir=kept)
    session.check(load(scale))
    assert any(path.is_file() for path in kept.rglob("*"))


def test_tools_that_need_a_gpu_are_told_to_be_left_out_on_the_emulator(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted(sanitize=True, profile=True)
    (verdict,) = session.bench(load(scale))
    assert "--sanitize needs a GPU; the emulator's own checks were made" in verdict.reasons
    assert "--profile needs a GPU; the counters shown are the emulator's" in verdict.reasons
    assert (worker.tasks[0].sanitize, worker.tasks[0].profile) == (True, True)


def test_without_being_asked_for_no_tool_is_run_or_mentioned(load: Load, scale: str, scripted: Make) -> None:
    session, worker = scripted()
    (verdict,) = session.bench(load(scale))
    assert not any("needs a GPU" in reason for reason in verdict.reasons)
    assert (worker.tasks[0].sanitize, worker.tasks[0].profile) == (False, False)


PRODUCTS = """\
// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "cdiv(n, block)"
// block = 256
// [args]
// a = "in complex64[n]"
// y = "out bfloat16[n]"
// n = "int32"
// ///
__global__ void norms(const float2* a, unsigned short* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float_as_uint(a[i].x * a[i].x + a[i].y * a[i].y) >> 16;
}
"""


def test_a_candidate_takes_arrays_of_every_type_that_the_contract_may_give_them(load: Load, scripted: Make) -> None:
    session, worker = scripted()
    (candidate,) = session.compare(load(PRODUCTS), load(PRODUCTS[PRODUCTS.index("__global__") :])).candidate
    assert [one.message for one in candidate.findings if one.severity == "error"] == []
    assert [task.candidate.contract.args[0].dtype for task in worker.tasks if task.baseline] == ["complex64"]
    (other,) = session.compare(
        load(PRODUCTS), load(PRODUCTS[PRODUCTS.index("__global__") :].replace("float2", "double2"))
    ).candidate
    assert "takes a as float64; the baseline's contract passes complex64 (a)." in other.findings[0].message
