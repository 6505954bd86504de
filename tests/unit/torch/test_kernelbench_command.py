"""`kernelmate kernelbench`: choice of tasks, results that are kept and merged, fast_p, errors and exit codes."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kernelmate.cli.main import cli
from kernelmate.cli.stopping import report_error
from kernelmate.errors import UsageError
from kernelmate_torch.kernelbench.records import BenchmarkedTask, CandidateVerdict, Speed, TaskAudit, TaskFinding
from kernelmate_torch.kernelbench.rendering import FastShare, fast_shares
from kernelmate_torch.kernelbench.results import ResultsFile, StoredResults, encoded, merged, read_results
from kernelmate_torch.kernelbench.tasks import candidate_of, find_tasks, key_of, shard_of

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT / "tests" / "data" / "kernelbench"
CANDIDATES = ROOT / "tests" / "data" / "kernelbench_candidates"
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed: make train-tools")  # fmt: skip


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    monkeypatch.chdir(tmp_path)

    def invoke(*args: str) -> Result:
        result = CliRunner().invoke(cli, ["kernelbench", *args], standalone_mode=False)
        code = result.return_value if result.exception is None else report_error(result.exception, list(args))
        result.exit_code = int(code or 0)
        return result

    return invoke


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three quick tasks, one of them flawed, and candidates for two."""
    tasks = tmp_path / "tasks"
    for name in ("level1/2_gelu.py", "level1/4_row_sums.py", "flawed/16_tiny.py"):
        (tasks / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(DATA / name, tasks / name)
    mine = tmp_path / "mine"
    (mine / "level1").mkdir(parents=True)
    shutil.copy(CANDIDATES / "right.py", mine / "level1" / "2_gelu.py")
    shutil.copy(CANDIDATES / "constant.py", mine / "4_row_sums.py")
    return tmp_path


def test_tasks_are_chosen_by_level_and_name_in_the_order_of_their_numbers():
    names = [one.name for one in find_tasks(DATA, levels=[1])]
    assert names[:3] == ["level1/1_scaled_add.py", "level1/2_gelu.py", "level1/3_swish.py"]
    assert [one.name for one in find_tasks(DATA, ["*softmax*"])] == ["flawed/1_wide_softmax.py", "flawed/2_sum_of_softmax.py", "level1/13_log_softmax.py"]  # fmt: skip
    assert [one.name for one in find_tasks(DATA, ["2_gelu"])] == ["level1/2_gelu.py"]
    with pytest.raises(UsageError, match="No task"):
        find_tasks(DATA, ["nothing"])
    with pytest.raises(UsageError, match="is not a folder"):
        find_tasks(DATA / "nowhere")


def test_shards_have_every_task_once():
    tasks = find_tasks(DATA)
    parts = [shard_of(tasks, number, 5) for number in range(1, 6)]
    assert sorted(one.name for part in parts for one in part) == sorted(one.name for one in tasks)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    "place",
    ["level1/2_gelu.py", "2_gelu.py", "2_gelu_new/model_new.py", "level1/2_gelu_new/model_new.py", "level_1_problem_2_sample_0_kernel.py"],
)  # fmt: skip
def test_candidates_are_found_by_name(place: str, tmp_path: Path):
    (task,) = find_tasks(DATA, ["2_gelu"])
    assert candidate_of(task, tmp_path) is None
    path = tmp_path / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("class ModelNew: pass")
    assert candidate_of(task, tmp_path) == path


def test_a_key_depends_on_contents_and_settings(tmp_path: Path):
    path = tmp_path / "a.py"
    path.write_text("one")
    keys = [key_of([path], {"seed": 1}), key_of([path], {"seed": 2})]
    path.write_text("two")
    keys.append(key_of([path], {"seed": 1}))
    assert len(set(keys)) == 3


# ------------------------------------------------------------------------------------------------- results and scores


def result(name: str, *, flagged: bool = False, passes: bool = True, right: bool = True, ratio: float | None = None) -> BenchmarkedTask:  # fmt: skip
    findings = (TaskFinding("zeros-pass", "error", "Zeros pass."),) if flagged else ()
    speeds = {} if ratio is None else {"eager": Speed(ratio, ratio / 1.01, ratio * 1.01, 10.0)}
    return BenchmarkedTask(
        name, "key", TaskAudit(findings), CandidateVerdict("c.py", passes, right, speeds=speeds), "ckey"
    )


def share(shares: list[FastShare], p: float, *, audited: bool) -> FastShare:
    return next(one for one in shares if one.p == p and one.audited is audited)


def test_the_audited_score_leaves_flagged_tasks_out_and_counts_only_what_agrees_with_float64():
    results = [result("a", ratio=3.0), result("b", flagged=True, ratio=50.0), result("c", right=False, ratio=1.2), result("d", passes=False, right=False)]  # fmt: skip
    shares = fast_shares(results)
    assert (share(shares, 0.0, audited=False).share, share(shares, 0.0, audited=False).tasks) == (0.75, 4)
    assert share(shares, 0.0, audited=True).share == pytest.approx(1 / 3)
    assert share(shares, 1.0, audited=False).share == 0.75
    assert share(shares, 2.0, audited=False).share == 0.5
    assert share(shares, 2.0, audited=True).share == pytest.approx(1 / 3)
    for one in shares:
        assert 0 <= one.low <= one.share <= one.high <= 1


def test_without_times_there_is_no_share_over_zero():
    shares = fast_shares([result("a"), BenchmarkedTask("b", "key", TaskAudit())])
    assert [(one.p, one.baseline, one.share) for one in shares] == [(0.0, None, 0.5), (0.0, None, 0.5)]


def test_a_speedup_near_the_threshold_widens_the_interval():
    sharp = [result(str(number), ratio=1.5) for number in range(20)]
    near = [BenchmarkedTask(str(number), "key", TaskAudit(), CandidateVerdict("c.py", True, True, speeds={"eager": Speed(1.01, 0.9, 1.13, 10.0)})) for number in range(20)]  # fmt: skip
    assert (share(fast_shares(sharp), 1.0, audited=False).low, share(fast_shares(sharp), 1.0, audited=False).share) == (
        1.0,
        1.0,
    )
    assert share(fast_shares(near), 1.0, audited=False).low < 0.8


def test_what_was_not_judged_is_left_out_and_no_task_gives_no_number():
    unjudged = BenchmarkedTask("a", "key", TaskAudit(), CandidateVerdict("c.py"))
    shares = fast_shares([unjudged])
    assert [one.tasks for one in shares] == [0, 0]
    assert all(math.isnan(one.share) for one in shares)


def test_results_are_kept_and_read_again(tmp_path: Path):
    kept = ResultsFile(tmp_path / "out" / "results.json")
    kept.keep(result("a"), ["a", "b"])
    kept.keep(result("b"), ["a", "b"])
    again = ResultsFile(tmp_path / "out")
    assert again.get("a") == result("a")
    assert read_results(tmp_path / "out" / "results.json").tasks == ("a", "b")


def test_two_processes_may_add_to_one_file(tmp_path: Path):
    one, other = (ResultsFile(tmp_path / "results.json") for _ in range(2))
    one.keep(result("a"), ["a", "b"])
    other.keep(result("b"), ["a", "b"])
    assert {item.task for item in read_results(tmp_path / "results.json").results} == {"a", "b"}


def test_merged_files_add_up_and_conflicts_are_refused(tmp_path: Path):
    bare = BenchmarkedTask("a", "key", TaskAudit())
    (tmp_path / "1.json").write_bytes(encoded(StoredResults(1, ("a", "b"), (result("a"),))))
    (tmp_path / "2.json").write_bytes(encoded(StoredResults(1, ("a", "b"), (result("b"), bare))))
    together = merged([tmp_path / "1.json", tmp_path / "2.json"])
    assert {one.task: one.candidate is not None for one in together.results} == {"a": True, "b": True}
    (tmp_path / "3.json").write_bytes(
        encoded(StoredResults(1, ("a",), (BenchmarkedTask("a", "another", TaskAudit()),)))
    )
    with pytest.raises(UsageError, match="another content"):
        merged([tmp_path / "1.json", tmp_path / "3.json"])


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 9}', "[1]"])
def test_what_is_no_results_file_is_refused(text: str, run: Callable[..., Result], tmp_path: Path):
    (tmp_path / "bad.json").write_text(text)
    assert run("--merge", "bad.json").exit_code == 2


@pytest.mark.parametrize(
    "options",
    [["nowhere"], ["tasks", "--shard", "3/2"], ["tasks", "--tolerance", "much"], ["tasks", "--candidates", "nowhere"], ["tasks", "--level", "7"], ["tasks", "mine"]],
)  # fmt: skip
def test_options_that_need_a_change(options: list[str], run: Callable[..., Result], folder: Path):
    assert run(*options).exit_code == 2


# ------------------------------------------------------------------------------------------------------- whole runs


@needs_torch
def test_a_run_continues_and_shards_add_up(run: Callable[..., Result], folder: Path):
    parts, codes = [], []
    for number in (1, 2):
        done = run("tasks", "--candidates", "mine", "--shard", f"{number}/2", "--to", f"part{number}.json", "--json")
        codes.append(done.exit_code)
        parts.append(json.loads(done.stdout)["kernelbench"])
    assert [part["done"] for part in parts] == [2, 1]
    assert codes == [1, 0], "the second shard has the one right candidate"
    result = run("--merge", "part1.json", "part2.json", "--to", "all.json", "--json")
    document = json.loads(result.stdout)["kernelbench"]
    assert (document["tasks"], document["done"], document["flagged"]) == (3, 3, ["flawed/16_tiny.py"])
    verdicts = {one["task"]: one["candidate"] and one["candidate"]["right"] for one in document["results"]}
    assert verdicts == {"flawed/16_tiny.py": None, "level1/2_gelu.py": True, "level1/4_row_sums.py": False}
    assert [(one["audited"], one["tasks"]) for one in document["fast_p"]] == [(False, 3), (True, 2)]
    assert [one["share"] for one in document["fast_p"]] == pytest.approx([1 / 3, 1 / 2])
    began = time.monotonic()
    again = run("tasks", "--candidates", "mine", "--to", "all.json", "--json")
    assert json.loads(again.stdout)["kernelbench"]["results"] == document["results"]
    assert time.monotonic() - began < 60
    changed = folder / "mine" / "4_row_sums.py"
    changed.write_text(changed.read_text().replace("torch.full_like(x, 0.3)", "x.sum(dim=1)"))
    assert run("tasks", "--candidates", "mine", "--to", "all.json", "--level", "1", "--quiet").exit_code == 0


@needs_torch
def test_the_text_says_what_there_is_and_that_no_time_was_measured(run: Callable[..., Result], folder: Path):
    result = run("tasks", "--candidates", "mine", "--tasks", "*gelu*", "--tasks", "16_tiny")
    assert result.exit_code == 1
    assert "level1/2_gelu.py: sound" in result.stdout
    assert "2_gelu.py: right; 9 comparisons" in result.stdout
    assert "launch-bound: An H100 needs" in result.stdout
    assert "fast_0 raw: 0.500" in result.stdout
    assert "fast_0 audited: 1.000 [1.000, 1.000] of 1 tasks" in result.stdout
    assert "No times and no fast_p over p = 0" in result.stdout


@needs_torch
@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130)])
def test_a_run_that_is_stopped_leaves_a_file_that_the_next_one_continues(sent: int, code: int, folder: Path):
    command = [sys.executable, "-m", "kernelmate", "kernelbench", "tasks", "--to", "kept.json"]
    kept = folder / "kept.json"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "pytorch")))}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 200
    while not kept.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
    process.send_signal(sent)
    assert process.wait() == code
    first = read_results(kept)
    assert 1 <= len(first.results) <= 3
    done = subprocess.run(
        [*command, "--json"], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["kernelbench"]["done"] == 3
    assert all(one in read_results(kept).results for one in first.results)
