"""Modules ported to CUDA kernels on a GPU: how many are right, and their times beside eager and torch.compile.

    python -m benchmarks.gpu_port run TASKS WORK [--shard 1/4] [--jobs 8] [--port-limit 300] [--score-limit 600]
    python -m benchmarks.gpu_port table WORK... [-o RESULT]

`TASKS` is a folder in KernelBench's form, such as tests/data/kernelbench or what `benchmarks.kernelbench_tasks fetch` wrote, and
`WORK` a folder outside the repository that keeps everything: a run that was ended goes on where it was. `run` gives each task of its
shard to `kernelmate port` on the GPU, several at once, and then what was written to `kernelmate kernelbench`, which audits the task,
compares with float64 and measures alone on the GPU. With several GPUs, one run for each, with CUDA_VISIBLE_DEVICES and a shard.
`benchmarks.port_times` times the ports by themselves. `table` adds up the folders: by level the tasks that the audit does not flag, how many were ported and are right, how many are
faster than eager, and geometric means of the speed-ups over each baseline. A task of which every part stays with PyTorch is
counted as left.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.kernelbench_tasks import level, named
from benchmarks.machine import describe, print_or_write
from kernelmate_torch.kernelbench.records import BenchmarkedTask
from kernelmate_torch.kernelbench.results import merged
from kernelmate_torch.kernelbench.tasks import BenchmarkTask, find_tasks, shard_of

BASELINES = ("eager", "compile", "max-autotune")
LONGEST_S = 200
"""Seconds for porting one task."""


def run(asked: argparse.Namespace) -> int:
    """Ports the tasks of the shard, and scores them if there is time for it; the exit code of `kernelmate kernelbench`."""
    tasks = find_tasks(asked.tasks)
    if asked.shard is not None:
        number, count = map(int, asked.shard.split("/"))
        tasks = shard_of(tasks, number, count)
    (asked.work / "ports").mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + asked.port_limit
    with ThreadPoolExecutor(asked.jobs) as pool:
        list(pool.map(lambda task: port(task, asked.work, ends), tasks))
    if asked.score_limit <= 0:
        return 0
    folders = [str(asked.tasks), "--candidates", str(asked.work / "new"), "--to", str(asked.work / "results.json")]
    limits = ["--budget", str(asked.score_limit), "--run-seconds", "0.5"]
    (asked.work / "new").mkdir(exist_ok=True)
    part = [] if asked.shard is None else ["--shard", asked.shard]
    command = [sys.executable, "-m", "kernelmate", "kernelbench", *folders, *limits, *part, "--quiet"]
    return subprocess.run(command, check=False).returncode


def port(task: BenchmarkTask, work: Path, ends: float) -> None:
    """Ports a task, if it was not done before and time is left, and keeps the outcome."""
    name = task.name.removesuffix(".py")
    kept = work / "ports" / f"{name.replace('/', '_')}.json"
    left_s = min(ends - time.monotonic(), LONGEST_S)
    if kept.exists() or left_s <= 0:
        return
    began = time.monotonic()
    options = ["--to", str(work / "new" / f"{name}_new"), "--force", "--json", "--backend", "cuda"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "kernelmate", "port", str(task.path), *options],
            capture_output=True, text=True, check=False, timeout=left_s,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        if left_s < LONGEST_S:  # the run ends, and the next one tries again
            return
        outcome: dict[str, Any] = {"code": None, "why": f"over {LONGEST_S} s", "kernels": 0, "eager": []}
    else:
        parts = json.loads(done.stdout)["ported"]["parts"] if done.returncode in (0, 1) else []
        why = (done.stderr.strip() or done.stdout.strip())[-400:] if done.returncode else ""
        left = [f"{one['name']}: {one['eager']}" for one in parts if one["eager"] is not None]
        outcome = {"code": done.returncode, "why": why, "kernels": len(parts) - len(left), "eager": left}
    kept.write_text(json.dumps({"task": task.name, "s": round(time.monotonic() - began, 1), **outcome}))


def table(folders: Sequence[Path]) -> Iterator[str]:
    """Yields the lines of the table."""
    ports = {one["task"]: one for folder in folders for one in map(_read, sorted((folder / "ports").glob("*.json")))}
    files = [folder / "results.json" for folder in folders if (folder / "results.json").exists()]
    results = merged(files).results if files else ()
    sound = [one for one in results if not one.audit.flagged and one.task in ports]
    yield describe()
    yield f"{len(ports)} tasks given to port, {len(results)} audited, {sum(one.audit.flagged for one in results)} flagged by the audit and not counted"
    yield f"{'level':>5}{'sound':>7}{'left':>6}{'kernels':>9}{'right':>7}{'wrong':>7}{'timed':>7}{'faster':>8}" + "".join(f"{f'over {name}':>19}" for name in BASELINES)  # fmt: skip
    for number in (*sorted({level(one) for one in sound}), None):
        yield _line(number, [one for one in sound if number in (None, level(one))], ports)
    yield ""
    yield f"{'level':>5}{'task':>6}{'us':>10}" + "".join(f"{name:>14}" for name in BASELINES) + "  findings"
    for one in sorted(sound, key=lambda one: (level(one), named(one).number or 0)):
        verdict = one.candidate
        if verdict is not None and (verdict.time_us is not None or verdict.right is False):
            ratios = "".join(f"{verdict.speeds[name].ratio:>14.2f}" if name in verdict.speeds else f"{'-':>14}" for name in BASELINES)  # fmt: skip
            codes = ", ".join(dict.fromkeys(found.code for found in verdict.findings if found.severity == "error"))
            yield f"{level(one):>5}{named(one).number or 0:>6}{verdict.time_us or float('nan'):>10.1f}{ratios}  {codes}".rstrip()


def _line(number: int | None, tasks: Sequence[BenchmarkedTask], ports: dict[str, Any]) -> str:
    left = sum(ports[one.task]["kernels"] == 0 for one in tasks)
    written = [one for one in tasks if ports[one.task]["kernels"] and one.candidate is not None]
    verdicts = [one.candidate for one in written if one.candidate is not None]
    timed = [one for one in verdicts if one.right and one.speeds]
    right, wrong = (sum(one.right is state for one in verdicts) for state in (True, False))
    faster = sum("eager" in one.speeds and one.speeds["eager"].low > 1 for one in timed)
    means = []
    for name in BASELINES:
        ratios = [one.speeds[name].ratio for one in timed if name in one.speeds]
        means.append(f"{statistics.geometric_mean(ratios):.2f} ({len(ratios)})" if ratios else "-")
    head = f"{'all' if number is None else number:>5}{len(tasks):>7}{left:>6}{len(written):>9}{right:>7}{wrong:>7}{len(timed):>7}{faster:>8}"
    return head + "".join(f"{one:>19}" for one in means)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run")
    one.add_argument("tasks", type=Path)
    one.add_argument("work", type=Path)
    one.add_argument("--shard")
    one.add_argument("--jobs", type=int, default=8)
    one.add_argument("--port-limit", type=float, default=300.0)
    one.add_argument("--score-limit", type=float, default=600.0)
    one = commands.add_parser("table")
    one.add_argument("work", type=Path, nargs="+")
    one.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    if asked.command == "run":
        return run(asked)
    print_or_write(table(asked.work), asked.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
