"""`kernelmate kernelbench` on the tasks of KernelBench: which of them can be passed without the work, and which waste it.

    python -m benchmarks.kernelbench_tasks fetch CACHE [FOLDER]   copies the tasks out of a bare git directory, or clones it
    python -m benchmarks.kernelbench_tasks run CACHE [--shard 1/2] [--run-seconds 2] [--to RESULTS.json]
    python -m benchmarks.kernelbench_tasks table RESULTS.json... [-o RESULT]

`CACHE` is a folder outside the repository, in which no text of the tasks is kept. `FOLDER` holds the git directory
`ScalingIntelligence+KernelBench/repo`; without it git clones the repository from GitHub. The table has numbers and codes alone.
The tasks of level 3 on Mamba need the package einops.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import io
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.machine import describe, print_or_write
from kernelmate_torch.kernelbench.records import BenchmarkedTask
from kernelmate_torch.kernelbench.results import merged
from kernelmate_torch.kernelbench.tasks import BenchmarkTask

REPOSITORY = "https://github.com/ScalingIntelligence/KernelBench"
COMMIT = "423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
LEVELS = (1, 2, 3)


def fetch(cache: Path, folder: Path | None) -> None:
    """Copies the tasks of `COMMIT` into the cache."""
    if Path(__file__).resolve().parents[1] in cache.resolve().parents:
        raise SystemExit(f"error: {cache} is in the repository. Give a folder outside it")
    git = cache / "git"
    if folder is not None:
        git = folder / "ScalingIntelligence+KernelBench" / "repo"
    elif not git.exists():
        subprocess.run(["git", "clone", "--quiet", "--bare", REPOSITORY, str(git)], check=True)
    archive = subprocess.run(
        ["git", "--git-dir", str(git), "archive", COMMIT, "KernelBench"], capture_output=True, check=True
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(cache, filter="data")
    print(f"{len(list((cache / 'KernelBench').rglob('*.py')))} tasks of commit {COMMIT[:7]}")


def run(cache: Path, shard: str | None, run_seconds: float, to: Path) -> int:
    """Audits the tasks by the command, and returns its exit code."""
    levels = [word for level in LEVELS for word in ("--level", str(level))]
    part = [] if shard is None else ["--shard", shard]
    command = [sys.executable, "-m", "kernelmate", "kernelbench", str(cache / "KernelBench"), *levels, *part]
    return subprocess.run(
        [*command, "--run-seconds", str(run_seconds), "--to", str(to), "--quiet"], check=False
    ).returncode


def table(results: Sequence[BenchmarkedTask], total: int) -> Iterator[str]:
    """Yields the lines of the table: counts, then level, number, sizes and codes of each task with findings.

    Args:
        results: of the tasks that were audited.
        total: number of all tasks.
    """
    yield f"# {describe()}, torch {importlib.metadata.version('torch')}"
    yield f"# {REPOSITORY} at {COMMIT}, levels 1 to 3, atol = rtol = {results[0].tolerance[0]:g}"
    yield f"# {len(results)} of {total} tasks, {sum(one.audit.flagged for one in results)} flagged"
    counts: Counter[tuple[str, int]] = Counter()
    for one in results:
        counts.update({(finding.code, level(one)) for finding in one.audit.findings if finding.severity == "error"})
    yield f"{'code':20}" + "".join(f"{f'level {number}':>9}" for number in LEVELS)
    for code in sorted({code for code, _ in counts}):
        yield f"{code:20}" + "".join(f"{counts[code, number]:9}" for number in LEVELS)
    failed = Counter(level(one) for one in results if one.audit.failed)
    yield f"{'not run':20}" + "".join(f"{failed[number]:9}" for number in LEVELS)
    yield ""
    yield f"{'level':>5} {'task':>4}  {'sizes':6}  codes; what only notes say in brackets"
    for one in sorted(results, key=lambda one: (level(one), named(one).number or 0)):
        codes = dict.fromkeys(finding.code for finding in one.audit.findings if finding.severity == "error")
        notes = dict.fromkeys(finding.code for finding in one.audit.findings if finding.severity == "note" and finding.code not in codes)  # fmt: skip
        words = [*(["not run"] if one.audit.failed else []), *codes, *([f"[{', '.join(notes)}]"] if notes else [])]
        if words:
            yield f"{level(one):5} {named(one).number:4}  {'own' if one.audit.full else 'halved':6}  {', '.join(words)}"


def named(result: BenchmarkedTask) -> BenchmarkTask:
    """Returns the task of a result."""
    return BenchmarkTask(Path(result.task), result.task)


def level(result: BenchmarkedTask) -> int:
    """Returns the level of a result's task."""
    return named(result).level or 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("fetch")
    one.add_argument("cache", type=Path)
    one.add_argument("folder", type=Path, nargs="?")
    one = commands.add_parser("run")
    one.add_argument("cache", type=Path)
    one.add_argument("--shard")
    one.add_argument("--run-seconds", type=float, default=2.0)
    one.add_argument("--to", type=Path, default=Path("kernelbench_audit.json"))
    one = commands.add_parser("table")
    one.add_argument("results", type=Path, nargs="+")
    one.add_argument("-o", "--output", type=Path)
    asked = parser.parse_args()
    if asked.command == "fetch":
        fetch(asked.cache, asked.folder)
        return 0
    if asked.command == "run":
        return run(asked.cache, asked.shard, asked.run_seconds, asked.to)
    together = merged(asked.results)
    print_or_write(table(together.results, len(together.tasks)), asked.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
