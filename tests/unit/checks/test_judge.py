"""What the judge makes of kernels that are right, wrong, or only seem right; kernels are Python functions here."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from kernelmate.backends import room
from kernelmate.backends.base import EmulationTooLarge, UnsupportedInstruction
from kernelmate.checks.extent import needed_bytes
from kernelmate.checks.judge import judge
from kernelmate.checks.timed import Timed
from kernelmate.compiler import find_target
from kernelmate.errors import LaunchTooLarge, ReferenceFailed
from kernelmate.records import Finding, JudgeTask, Timing

DOUBLE = """
sizes = [{ n = 1000 }, { n = 33 }]
grid = "cdiv(n, 256)"
block = 256
reference = "2 * x"
[args]
x = "in float32[n]"
y = "out float32[n]"
n = "int32"
"""


def honest(x, y, n, schedule):
    y[:] = 2 * x


def body(function):
    """A kernel without memory of its own: every load gives the same function."""
    return lambda: function


@pytest.fixture
def verdict_on(python_backend, contract_of, tmp_path):
    """Judge a body, against `honest` where `against` says so."""

    def judged(make, block=DOUBLE, against=True, seed=7, **contract_arguments):
        contract = contract_of(block, **contract_arguments)
        baseline = python_backend.version(contract, body(honest), "baseline") if against else None
        task = JudgeTask(
            "emulator", find_target(None), python_backend.version(contract, make, "candidate"), baseline, None, (),
            seed, str(tmp_path),
        )  # fmt: skip
        return judge(task, python_backend, lambda *_: None, lambda *_: None)

    return judged


def errors(judgement):
    return [f.code for f in judgement.findings if f.severity == "error"]


def test_a_right_kernel_is_right_at_every_size(verdict_on) -> None:
    judgement = verdict_on(body(honest))
    assert judgement.correct is True
    assert judgement.findings == ()
    assert [c.size for c in judgement.cases if c.origin == "contract"] == [{"n": 1000}, {"n": 33}]
    assert sum(c.origin == "own" for c in judgement.cases) >= 4
    assert all(c.correct and c.baseline_correct and c.max_error <= 1 for c in judgement.cases)


def does_nothing(x, y, n, schedule):
    pass


def ignores_the_tail(x, y, n, schedule):
    y[: n // 4 * 4] = 2 * x[: n // 4 * 4]


def writes_zeros(x, y, n, schedule):
    y[:] = 0


def wrong_everywhere(x, y, n, schedule):
    y[:] = 3 * x


def wrong_at_odd_sizes(x, y, n, schedule):
    y[:] = 2 * x if n % 2 == 0 else 5 * x


def changes_its_input(x, y, n, schedule):
    y[:] = 2 * x
    x[:1] = 0


def swallows_nan(x, y, n, schedule):
    y[:] = np.nan_to_num(2 * x)


def loses_precision(x, y, n, schedule):
    with np.errstate(all="ignore"):
        y[:] = np.clip(2 * x, -60000, 60000).astype(np.float16) if np.isfinite(x).all() else 2 * x


def depends_on_the_order(x, y, n, schedule):
    y[:] = 2 * x
    y[0] += np.float32(schedule % 2)


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (does_nothing, "stale-output"),
        (ignores_the_tail, "stale-output"),
        (writes_zeros, "constant-output"),
        (wrong_everywhere, "wrong-values"),
        (wrong_at_odd_sizes, "wrong-at-size"),
        (changes_its_input, "input-mutated"),
        (swallows_nan, "nan-handling"),
        (loses_precision, "precision-loss"),
    ],
)
def test_each_kind_of_wrong_has_its_code_and_no_other(verdict_on, wrong, code) -> None:
    judgement = verdict_on(body(wrong))
    assert judgement.correct is False
    assert errors(judgement) == [code]


def test_a_kernel_that_remembers_is_stateful(verdict_on) -> None:
    def make():
        cache = {}

        def kernel(x, y, n, schedule):
            y[:] = 2 * cache.setdefault(n, x.copy())

        return kernel

    assert errors(verdict_on(make)) == ["stateful"]


def test_a_kernel_that_is_right_only_the_first_time_is_stateful(verdict_on) -> None:
    def make():
        calls = []

        def kernel(x, y, n, schedule):
            calls.append(n)
            y[:] = 2 * x if len(calls) == 1 else 7 * x

        return kernel

    assert errors(verdict_on(make)) == ["stateful"]


def test_a_kernel_whose_answer_depends_on_the_order_is_rejected(verdict_on) -> None:
    judgement = verdict_on(body(depends_on_the_order))
    assert judgement.correct is False


def test_the_first_wrong_element_is_named(verdict_on) -> None:
    def one_off(x, y, n, schedule):
        y[:] = 2 * x
        y[5:6] += 1

    case = verdict_on(body(one_off)).cases[0]
    assert case.correct is False
    assert case.first_wrong.argument == "y"
    assert case.first_wrong.index == (5,)
    assert case.first_wrong.got == pytest.approx(case.first_wrong.want + 1)


def test_sizes_of_our_own_only_warn_about_a_kernel_judged_alone(verdict_on) -> None:
    def needs_many(x, y, n, schedule):
        y[:] = 2 * x if n in (1000, 33) else 0

    judgement = verdict_on(body(needs_many), against=False)
    assert judgement.correct is True
    assert errors(judgement) == []
    assert judgement.findings
    assert all("size" in f.message for f in judgement.findings)


def test_without_reference_and_baseline_nothing_is_called_right(verdict_on) -> None:
    block = DOUBLE.replace('reference = "2 * x"\n', "")
    judgement = verdict_on(body(honest), block=block, against=False)
    assert judgement.correct is None
    assert all(case.correct is None for case in judgement.cases)


def test_without_reference_a_candidate_agrees_with_the_baseline(verdict_on) -> None:
    block = DOUBLE.replace('reference = "2 * x"\n', "")
    assert verdict_on(body(honest), block=block).correct is True
    assert verdict_on(body(wrong_everywhere), block=block).correct is False
    assert "agrees with the baseline; the contract names no reference" in verdict_on(body(honest), block=block).reasons


def test_how_much_was_looked_at_for_races_is_said(verdict_on) -> None:
    judgement = verdict_on(body(honest))
    (said,) = [reason for reason in judgement.reasons if "race" in reason]
    assert said.startswith("no race seen in ")
    assert said.endswith(f" schedules and {len(judgement.cases)} sizes")


def test_what_was_not_looked_at_for_races_is_said_once_with_its_size(verdict_on) -> None:
    def partly(x, y, n, schedule):
        honest(x, y, n, schedule)
        return {"unwatched": ("races were looked for in half of y",) if n >= 33 else ()}

    judgement = verdict_on(body(partly))
    assert judgement.correct is True
    assert "at n = 1000: races were looked for in half of y" in judgement.reasons
    assert sum("half of y" in reason for reason in judgement.reasons) == 1


def test_a_candidate_may_take_so_many_times_the_baselines_instructions(python_backend, contract_of, tmp_path) -> None:
    def takes(longest):
        def counted(x, y, n, schedule):
            honest(x, y, n, schedule)
            return {"longest_thread": longest}

        return counted

    contract = contract_of(DOUBLE)
    for longest, limit in ((7, 500_000), (3_000, 3_000_000), (10**6, 20_000_000)):
        baseline = python_backend.version(contract, body(takes(longest)), f"baseline{longest}")
        candidate = python_backend.version(contract, body(takes(1)), f"candidate{longest}")
        task = JudgeTask("emulator", find_target(None), candidate, baseline, None, (), longest, str(tmp_path))
        judge(task, python_backend, lambda *_: None, lambda *_: None)
        assert {run.step_limit for run in python_backend.runs[baseline.compiled.binary]} == {20_000_000}
        runs = python_backend.runs[candidate.compiled.binary]
        assert {run.step_limit for run in runs} == {limit}
        assert all((f"longest takes {longest}" in run.limited_by) is (limit < 20_000_000) for run in runs)


def test_sizes_of_our_own_are_left_out_when_half_the_time_is_gone(
    python_backend, contract_of, tmp_path, monkeypatch
) -> None:
    clock = itertools.count(0, 10)
    monkeypatch.setattr("kernelmate.checks.judge.time.monotonic", lambda: float(next(clock)))
    judged = {}
    for limit in (None, 59.0, 10_000.0):
        version = python_backend.version(contract_of(DOUBLE), body(honest), f"late{limit}")
        task = JudgeTask(
            "emulator", find_target(None), version, None, None, (), 7, str(tmp_path), timeout_s=limit
        )  # fmt: skip
        judged[limit] = judge(task, python_backend, lambda *_: None, lambda *_: None)
    listed = [case for case in judged[59.0].cases if case.origin == "contract"]
    assert len(listed) == 2
    assert all(case.correct for case in listed)
    assert len(judged[59.0].cases) == 4
    (said,) = [reason for reason in judged[59.0].reasons if "were not tried" in reason]
    assert "30 s of the 59 s" in said
    assert "--timeout" in said
    for limit in (None, 10_000.0):
        assert len(judged[limit].cases) > 5
        assert not any("were not tried" in reason for reason in judged[limit].reasons)


def too_large_from(limit, longest=None):
    def large(x, y, n, schedule):
        if n >= limit:
            raise EmulationTooLarge("the launch takes over 5 thread-instructions.", 5, longest_thread=longest)
        honest(x, y, n, schedule)

    return large


def test_a_kernel_too_large_for_the_emulator_is_refused_with_what_to_do(verdict_on) -> None:
    with pytest.raises(LaunchTooLarge, match=r"At n = 1000 the launch takes over 5 thread-instructions") as caught:
        verdict_on(body(too_large_from(1000)), against=False)
    assert "--size" in str(caught.value.hint)
    assert caught.value.exit_code == 3


def takes_ten(x, y, n, schedule):
    honest(x, y, n, schedule)
    return {"longest_thread": 10}


@pytest.fixture
def against_ten(python_backend, contract_of, tmp_path):
    """Judge a body against a baseline whose longest thread takes ten instructions."""

    def judged(make, block=DOUBLE):
        contract = contract_of(block)
        baseline = python_backend.version(contract, body(takes_ten), "ten")
        candidate = python_backend.version(contract, make, "large")
        task = JudgeTask("emulator", find_target(None), candidate, baseline, None, (), 7, str(tmp_path))
        return judge(task, python_backend, lambda *_: None, lambda *_: None)

    return judged


def test_a_candidate_too_large_whose_threads_go_on_and_on_hangs(against_ten) -> None:
    judgement = against_ten(body(too_large_from(1000, longest=10_001)))
    assert judgement.correct is False
    assert errors(judgement) == ["hang"]
    assert "longest thread had taken 10001 of them, the baseline's takes 10" in judgement.findings[0].message


@pytest.mark.parametrize("longest", [None, 10_000])
def test_a_candidate_too_large_for_the_emulator_is_not_judged_where_nothing_says_that_it_hangs(
    against_ten, longest
) -> None:
    judgement = against_ten(body(too_large_from(1000, longest)))
    assert judgement.correct is None
    assert errors(judgement) == ["time-limit"]
    for said in ("at n = 1000", "The baseline stays within it", "--size", "instruction_limit"):
        assert said in judgement.findings[0].message


def test_what_there_is_no_memory_to_judge_is_refused_before_anything_is_drawn(verdict_on, monkeypatch) -> None:
    monkeypatch.setattr(room, "_of_process", lambda: 1 << 20)
    block = DOUBLE.replace("{ n = 1000 }", "{ n = 1000000000 }")
    with pytest.raises(LaunchTooLarge, match=r"At n = 1000000000 judging takes about \d+ MiB") as caught:
        verdict_on(body(honest), block=block)
    assert "and 1 MiB this process may take" in str(caught.value)
    assert "memory_limit_mb" in str(caught.value.hint)


def test_memory_for_judging_counts_what_is_held_at_once(contract_of) -> None:
    one, other = (needed_bytes(contract_of(DOUBLE), {"n": n}) for n in (1 << 20, 1 << 21))
    assert other == 2 * one
    # An input and an output of float32: some twenty times their own bytes.
    assert 10 < one / (2 * 4 * (1 << 20)) < 25


def test_a_size_of_our_own_that_is_too_large_is_only_said(verdict_on) -> None:
    block = DOUBLE.replace("{ n = 1000 }, { n = 33 }", "{ n = 40 }")
    judgement = verdict_on(body(too_large_from(100)), block=block, against=False)
    assert judgement.correct is True
    assert any("not tried at n = 257: the launch takes over" in reason for reason in judgement.reasons)


def test_what_cannot_be_told_from_zero_counts_neither_way(verdict_on) -> None:
    block = DOUBLE.replace('"2 * x"', '"0 * x"').replace("in float32[n]", "in float32[n] ~ uniform(1, 2)")
    judgement = verdict_on(body(writes_zeros), block=block, against=False)
    assert all(case.degenerate for case in judgement.cases)
    assert judgement.correct is None


def test_equal_seeds_give_equal_judgements_and_other_seeds_other_inputs(verdict_on) -> None:
    one, two, other = (verdict_on(body(wrong_everywhere), seed=seed) for seed in (3, 3, 4))
    assert one == two
    assert one.cases[0].first_wrong != other.cases[0].first_wrong


@pytest.mark.parametrize(
    ("reference", "says"),
    [("x[:1]", "shape"), ("x, x", "2 arrays"), ("x.nothing", "AttributeError"), ("'text'", "no array")],
)
def test_a_reference_that_fails_says_what_is_wrong_with_it(verdict_on, reference, says) -> None:
    with pytest.raises(ReferenceFailed, match=says):
        verdict_on(body(honest), block=DOUBLE.replace("2 * x", reference))


def test_a_listed_size_that_require_excludes_counts_as_failed(python_backend, contract_of, tmp_path) -> None:
    contract = contract_of(DOUBLE)
    narrowed = replace(contract, require=("n % 2 == 0",))
    task = task_of(
        python_backend.version(narrowed, body(honest), "narrow"), python_backend.version(contract, body(honest), "base"),
        tmp_path,
    )  # fmt: skip
    judgement = judge(task, python_backend, lambda *_: None, lambda *_: None)
    assert judgement.correct is False
    assert errors(judgement) == ["wrong-at-size"]
    assert "shrinking the problem" in judgement.findings[0].message
    assert [case.correct for case in judgement.cases if case.origin == "contract"] == [True, False]
    assert all(case.size["n"] % 2 == 0 for case in judgement.cases if case.origin == "own")


def task_of(candidate, baseline, directory, **more):
    return JudgeTask("emulator", find_target(None), candidate, baseline, None, (), 7, str(directory), **more)


@pytest.fixture
def compared(python_backend, contract_of, tmp_path):
    """Judge one body against another."""

    def judged(candidate, baseline, block=DOUBLE):
        contract = contract_of(block)
        task = task_of(
            python_backend.version(contract, body(candidate), "candidate"),
            python_backend.version(contract, body(baseline), "baseline"), tmp_path,
        )  # fmt: skip
        return judge(task, python_backend, lambda *_: None, lambda *_: None)

    return judged


def needs_a_multiple_of_32(x, y, n):
    y[: n // 32 * 32] = 2 * x[: n // 32 * 32]


MULTIPLES = DOUBLE.replace("{ n = 33 }", "{ n = 64 }").replace("{ n = 1000 }", "{ n = 1024 }")


def test_what_the_baseline_gets_wrong_at_our_own_sizes_is_not_held_against_a_candidate(compared) -> None:
    judgement = compared(needs_a_multiple_of_32, needs_a_multiple_of_32, MULTIPLES)
    assert judgement.correct is True
    assert errors(judgement) == []
    wrong = [case for case in judgement.cases if case.correct is False]
    assert wrong
    assert all(case.baseline_correct is False and case.origin == "own" for case in wrong)
    assert any("the baseline itself is wrong at" in reason for reason in judgement.reasons)


def test_what_the_baseline_gets_right_at_our_own_sizes_is(compared) -> None:
    judgement = compared(needs_a_multiple_of_32, honest, MULTIPLES)
    assert judgement.correct is False
    assert errors(judgement) == ["stale-output"]


def test_a_listed_size_must_be_right_even_where_the_baseline_is_wrong(compared) -> None:
    judgement = compared(wrong_everywhere, wrong_everywhere)
    assert judgement.correct is False
    assert errors(judgement) == ["wrong-values"]
    fixed = compared(honest, wrong_everywhere)
    assert fixed.correct is True
    assert {case.baseline_correct for case in fixed.cases} == {False}


def test_nan_is_not_asked_of_a_candidate_where_the_baseline_swallows_it(compared) -> None:
    assert compared(swallows_nan, swallows_nan).correct is True


def test_a_kernel_judged_alone_is_only_told_about_nan_and_large_inputs(verdict_on) -> None:
    def overflows(x, y, n):
        y[:] = np.where(np.isfinite(x) & (np.abs(x) > 500), np.float32(np.inf), 2 * x)

    judgement = verdict_on(body(overflows), against=False)
    assert judgement.correct is True
    assert {(f.code, f.severity) for f in judgement.findings} == {("nan-handling", "warning")}
    assert "normal inputs times 1000" in judgement.findings[0].message


def test_pointers_off_by_one_element_are_held_against_a_candidate_only(compared, verdict_on) -> None:
    def wants_alignment(x, y, n, misalign):
        y[:] = 2 * x
        if misalign:
            return {"findings": (Finding("misaligned-access", "error", "a 16-byte load at 4", line=1),)}
        return None

    assert errors(compared(wants_alignment, honest)) == ["misaligned-access"]
    assert compared(wants_alignment, wants_alignment).correct is True
    alone = verdict_on(body(wants_alignment), against=False)
    assert (alone.correct, alone.findings) == (True, ())


def test_an_access_out_of_bounds_at_our_own_sizes_warns_a_kernel_judged_alone(compared, verdict_on) -> None:
    def reads_too_far(x, y, n):
        y[:] = 2 * x
        if n % 32:
            return {"findings": (Finding("out-of-bounds-read", "error", "reads x[n]", line=1, buffer="x"),)}
        return None

    alone = verdict_on(body(reads_too_far), against=False, block=MULTIPLES)
    assert alone.correct is True
    assert [(f.code, f.severity) for f in alone.findings] == [("out-of-bounds-read", "warning")]
    assert "`require`" in alone.findings[0].message
    assert errors(compared(reads_too_far, honest, MULTIPLES)) == ["out-of-bounds-read"]
    assert compared(reads_too_far, reads_too_far, MULTIPLES).correct is True


def test_findings_stand_at_the_line_of_the_users_file(compared) -> None:
    def traps(x, y, n):
        return {"findings": (Finding("trap", "error", "trapped", line=3, column=2),)}

    found = compared(traps, honest).findings
    assert [(f.code, f.file, f.line, f.column) for f in found] == [("trap", "kernel.cu", 3, 2)]


def test_after_a_hang_nothing_more_is_run(python_backend, contract_of, tmp_path) -> None:
    def hangs(x, y, n):
        return {"findings": (Finding("hang", "error", "over the step limit", line=1),)}

    version = python_backend.version(contract_of(DOUBLE), body(hangs), "hangs")
    judgement = judge(task_of(version, None, tmp_path), python_backend, lambda *_: None, lambda *_: None)
    assert errors(judgement) == ["hang"]
    assert len(python_backend.runs[version.compiled.binary]) == 1
    assert judgement.metrics == ()


def test_an_output_that_is_read_first_is_uninitialised(compared) -> None:
    def adds_to_it(x, y, n):
        y[:] = np.where(np.isnan(y), 2 * x, y)
        return {"reads": frozenset({"x", "y"})}

    assert errors(compared(adds_to_it, honest)) == ["uninitialised-global"]


def test_answers_that_differ_within_the_tolerance_only_warn(compared) -> None:
    def last_bit(x, y, n, schedule):
        y[:] = np.nextafter(2 * x, np.float32(np.inf)) if schedule % 2 else 2 * x

    judgement = compared(last_bit, honest)
    assert judgement.correct is True
    assert [(f.code, f.severity) for f in judgement.findings] == [("nondeterministic", "warning")]
    strict = DOUBLE.replace("[args]", "deterministic = true\n[args]")
    assert errors(compared(last_bit, honest, strict)) == ["nondeterministic"]


def test_answers_that_differ_beyond_it_are_an_error_of_that_name(compared) -> None:
    def lost_update(x, y, n, schedule):
        y[:] = 2 * x
        if schedule % 16 == 15:
            y[0] = 0

    judgement = compared(lost_update, honest)
    assert judgement.correct is False
    assert errors(judgement) == ["nondeterministic"]


INPLACE = """
sizes = [{ n = 1000 }, { n = 33 }]
grid = "cdiv(n, 256)"
block = 256
reference = "y + x"
[args]
x = "in float32[n]"
y = "inout float32[n]"
n = "int32"
"""


def adds(x, y, n):
    y += x
    return {"reads": frozenset({"x", "y"})}


def test_arrays_that_change_in_place_keep_their_contents(compared) -> None:
    def forgets(x, y, n):
        y[:] = x

    assert compared(adds, adds, INPLACE).correct is True
    assert errors(compared(forgets, adds, INPLACE)) == ["wrong-values"]
    assert errors(compared(does_nothing_here, adds, INPLACE)) == ["stale-output"]


def does_nothing_here(x, y, n):
    pass


def test_an_array_that_is_only_written_is_named(compared) -> None:
    def overwrites(x, y, n):
        y[:] = 2 * x
        return {"reads": frozenset({"x"})}

    block = INPLACE.replace("y + x", "2 * x")
    assert compared(overwrites, overwrites, block).only_written == ("y",)
    assert compared(adds, adds, INPLACE).only_written == ()


def test_listed_sizes_are_counted_once_and_timed(python_backend, contract_of, tmp_path) -> None:
    timing = Timing("predicted", 3.5, (3.0, 4.0), None, None, None, None, None)
    asked = []

    def timer(launch):
        asked.append((launch.shape.blocks, launch.headline, launch.sizes, launch.sound, launch.baseline))
        return Timed(timing)

    version = python_backend.version(contract_of(DOUBLE), body(honest), "timed")
    judgement = judge(task_of(version, None, tmp_path), python_backend, lambda *_: None, timer)
    assert [(m.size["n"], m.launch.blocks, m.timing) for m in judgement.metrics] == [(1000, 4, timing), (33, 1, timing)]
    assert asked == [(4, True, 2, True, None), (1, False, 2, True, None)]
    assert [case.median_us for case in judgement.cases[:3]] == [3.5, 3.5, None]
    assert sum(run.count for run in python_backend.runs[version.compiled.binary]) == 2


def timed_with(python_backend, contract_of, tmp_path, block, leave, candidate=honest, baseline=honest):
    """Judge with a timer whose launches leave what `leave` makes of the arguments."""
    contract = contract_of(block)
    launches = []

    def timer(launch):
        launches.append(launch)
        arrays = {item.name: item.data.copy() for item in launch.run().arguments if hasattr(item, "data")}
        leave(arrays)
        return Timed(Timing("measured", 3.5, (3.4, 3.6), None, None, 40, 1980, False), outputs=arrays)

    version = python_backend.version(contract, body(candidate), "candidate")
    other = None if baseline is None else python_backend.version(contract, body(baseline), "baseline")
    return judge(task_of(version, other, tmp_path), python_backend, lambda *_: None, timer), launches


def test_timed_launches_that_do_the_work_change_nothing(python_backend, contract_of, tmp_path) -> None:
    def works(arrays):
        arrays["y"][:] = 2 * arrays["x"]

    judgement, launches = timed_with(python_backend, contract_of, tmp_path, DOUBLE, works)
    assert judgement.correct is True
    assert [launch.baseline is not None for launch in launches] == [True, True]
    assert [launch.restored for launch in launches] == [frozenset(), frozenset()]


def test_timed_launches_that_leave_something_else_reject_the_version(python_backend, contract_of, tmp_path) -> None:
    def idles(arrays):
        arrays["y"][:] = 0

    judgement, _ = timed_with(python_backend, contract_of, tmp_path, DOUBLE, idles)
    assert judgement.correct is False
    found = [f for f in judgement.findings if f.severity == "error"]
    assert [(f.code, f.buffer) for f in found] == [("stateful", "y")]
    assert "n = 1000" in found[0].message
    assert "not each launch does the work" in found[0].message


def test_timed_launches_may_round_otherwise_within_the_tolerance(python_backend, contract_of, tmp_path) -> None:
    def rounds(arrays):
        arrays["y"][:] = np.nextafter(2 * arrays["x"], np.float32(np.inf))

    judgement, _ = timed_with(python_backend, contract_of, tmp_path, DOUBLE, rounds)
    assert judgement.correct is True


def test_what_is_wrong_is_handed_over_as_not_sound(python_backend, contract_of, tmp_path) -> None:
    def wrong(x, y, n, schedule):
        y[:] = 3 * x

    _, launches = timed_with(python_backend, contract_of, tmp_path, DOUBLE, lambda arrays: None, wrong)
    assert [launch.sound for launch in launches] == [False, False]


def test_arrays_that_are_read_and_written_are_to_be_restored(python_backend, contract_of, tmp_path) -> None:
    block = DOUBLE.replace('"out float32', '"inout float32').replace("2 * x", "y + x")

    def adds(x, y, n, schedule):
        y[:] = y + x

    def works(arrays):
        arrays["y"][:] = arrays["y"] + arrays["x"]

    judgement, launches = timed_with(python_backend, contract_of, tmp_path, block, works, adds, None)
    assert judgement.correct is True
    assert [(launch.restored, launch.baseline) for launch in launches] == [(frozenset({"y"}), None)] * 2


def test_a_launch_that_fails_when_it_is_timed_rejects_the_version(python_backend, contract_of, tmp_path) -> None:
    fault = Finding("illegal-address", "error", "the kernel accessed memory that nothing is mapped at")
    version = python_backend.version(contract_of(DOUBLE), body(honest), "faulty")
    judgement = judge(
        task_of(version, None, tmp_path), python_backend, lambda *_: None, lambda _: Timed(None, finding=fault)
    )
    assert judgement.correct is False
    assert "when it was timed" in judgement.findings[0].message
    assert judgement.metrics[0].timing is None


def test_the_baseline_runs_once_for_many_candidates(python_backend, contract_of, tmp_path) -> None:
    contract = contract_of(DOUBLE)
    baseline = python_backend.version(contract, body(honest), "kept baseline")
    for name in ("one", "two"):
        version = python_backend.version(contract, body(honest), name)
        judge(task_of(version, baseline, tmp_path), python_backend, lambda *_: None, lambda *_: None)
        runs = len(python_backend.runs[baseline.compiled.binary])
    assert runs == len(python_backend.runs[version.compiled.binary])


def test_outputs_are_poisoned_differently_and_schedules_vary(python_backend, contract_of, tmp_path) -> None:
    version = python_backend.version(contract_of(DOUBLE), body(honest), "watched")
    judge(task_of(version, None, tmp_path), python_backend, lambda *_: None, lambda *_: None)
    runs = [r for r in python_backend.runs[version.compiled.binary] if r.arguments[1].data.shape == (1000,)]
    assert len({r.arguments[1].data.tobytes() for r in runs}) == 2
    assert len({r.schedule_seed for r in runs}) >= 3
    assert {r.arguments[1].misalign for r in runs} == {0, 1}


def test_progress_tells_when_the_users_python_runs(python_backend, contract_of, tmp_path) -> None:
    told = []
    version = python_backend.version(contract_of(DOUBLE), body(honest), "told")
    judge(task_of(version, None, tmp_path), python_backend, lambda *step: told.append(step), lambda *_: None)
    assert {stage for stage, _, _ in told} == {"reference", "cases", "guards", "timing"}
    assert told[-1][1] == told[-1][2]


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
        return {"findings": (Finding("trap", "error", "trapped", line=1),)}

    contract = replace(contract_of(DOUBLE), reference="other", reference_kind="kernel")
    task = task_of(python_backend.version(contract, body(honest), "candidate"), None, tmp_path)
    task = replace(task, reference_version=python_backend.version(contract, body(traps), "reference"))
    with pytest.raises(ReferenceFailed, match="does not run cleanly: trapped"):
        judge(task, python_backend, lambda *_: None, lambda *_: None)


def test_code_that_the_backend_refuses_is_a_finding(python_backend, contract_of, tmp_path) -> None:
    def refuses():
        raise UnsupportedInstruction(Finding("unsupported-instruction", "error", "mma.sync", line=4))

    version = python_backend.version(contract_of(DOUBLE), refuses, "refused")
    judgement = judge(task_of(version, None, tmp_path), python_backend, lambda *_: None, lambda *_: None)
    assert judgement.correct is False
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
            return {"findings": (Finding("out-of-bounds-read", "error", "reads table[x]", line=1),)}
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
            return {"findings": (Finding("launch-failure", "error", "an earlier launch has cost the device"),)}
        if spoils(n, misalign):
            backend.poisoned = True
            return {"findings": (Finding(code, "error", "a bad access"),)}
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
