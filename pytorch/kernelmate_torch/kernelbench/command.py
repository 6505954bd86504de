"""`kernelmate kernelbench`: audits tasks in KernelBench's form, runs candidates of any author, reports fast_p."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import Output, output_of, output_options
from kernelmate.errors import UsageError

if TYPE_CHECKING:
    from kernelmate_torch.kernelbench.records import BenchmarkedTask
    from kernelmate_torch.kernelbench.results import ResultsFile
    from kernelmate_torch.kernelbench.running import BenchmarkSettings
    from kernelmate_torch.kernelbench.tasks import BenchmarkTask

TOLERANCE = "0.01"
"""Absolute and relative tolerance of KernelBench's first versions, and of its half precisions today."""
INTERRUPTED = 130


@click.command(
    epilog="""\b
Examples:
  kernelmate kernelbench KernelBench/KernelBench --level 1 --to audit.json
  kernelmate kernelbench tasks --tasks "*softmax*" --tolerance 1e-4
  kernelmate kernelbench tasks --candidates runs/mine --to results.json
  kernelmate kernelbench tasks --candidates runs/mine --shard 2/5 --to part2.json
  kernelmate kernelbench --merge part1.json part2.json

\b
A task is a file with Model, get_inputs and get_init_inputs. A candidate is a file with ModelNew: of the task's name in
--candidates DIR, with or without its folder, or TASK_new/model_new.py as `kernelmate port` writes it.
Exit codes: 0 every candidate is right, or without candidates no task is flagged; 1 a candidate is rejected or missing,
or a task is flagged; 2 a file or an option needs a change; 3 this machine lacks something (PyTorch: pip install
'kernelmate[torch]'); 130 interrupted: results up to then are kept by --to."""
)
@click.argument("paths", nargs=-1, required=True, metavar="FOLDER", type=click.Path(path_type=Path))
@click.option("--candidates", metavar="DIR", type=click.Path(path_type=Path), help="Run these candidates; without it tasks are audited alone.")  # fmt: skip
@click.option("--tasks", "patterns", metavar="GLOB", multiple=True, help='Only tasks of this name, as "level1/1*" or "*softmax*"; repeatable.')  # fmt: skip
@click.option("--level", "levels", type=int, metavar="N", multiple=True, help="Only tasks of the folder levelN; repeatable.")  # fmt: skip
@click.option("--shard", metavar="I/N", help="Only every N-th task, from the I-th on, as 2/5.")
@click.option("--to", "target", metavar="FILE", type=click.Path(path_type=Path), help="Keep results in this JSON file, or results.json of this folder; a second run continues.")  # fmt: skip
@click.option(
    "--merge", is_flag=True, help="Report the merged contents of results files, which are given in place of FOLDER."
)
@click.option("--budget", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="Begin no further task after this time.")  # fmt: skip
@click.option("--tolerance", default=TOLERANCE, show_default=True, metavar="A[,R]", help="Absolute and relative tolerance of the benchmark; one number for both.")  # fmt: skip
@click.option("--run-seconds", type=click.FloatRange(min=0), default=2.0, show_default=True, metavar="SECONDS", help="Compare answers also at larger sizes than the parts are tried at, up to the task's own, where a call takes no longer, as estimated.")  # fmt: skip
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=600.0, show_default=True, metavar="SECONDS", help="Seconds for one audit, run or timing.")  # fmt: skip
@click.option("--no-timing", is_flag=True, help="Do not time candidates on a GPU.")
@click.option("--seed", type=int, default=42, show_default=True, metavar="N", help="Seed of the parameters, as KernelBench has it.")  # fmt: skip
@output_options()
def kernelbench(
    paths: tuple[Path, ...], candidates: Path | None, patterns: tuple[str, ...], levels: tuple[int, ...], shard: str | None,
    target: Path | None, merge: bool, budget: float | None, tolerance: str, run_seconds: float, timeout: float, no_timing: bool,
    seed: int, **options: Any,
) -> int:  # fmt: skip
    """Audit tasks in KernelBench's form, run candidates of any author, and report fast_p raw and audited.

    A task is flagged where zeros, a constant or a part of the computation pass under the benchmark's tolerance, where the
    output does not depend on an input or on parameters, where the reference wastes work, and where launches take longer than
    the work. Candidates run in a confined process without the answers; another one compares with float64 on several seeds and
    distributions and looks for cheating. Times are measured on a GPU alone.
    """
    from kernelmate_torch.kernelbench.running import BenchmarkSettings

    output = output_of(options)
    if merge:
        return _merge(paths, target, output)
    if len(paths) != 1:
        raise UsageError("Several folders are given.", hint="Give one folder, or results files with --merge.")
    settings = BenchmarkSettings(_tolerance(tolerance), seed, run_seconds, timeout, not no_timing)
    asked = _chosen(paths[0], candidates, patterns, levels, shard, target)
    done, interrupted = _run(settings, asked, None if budget is None else time.monotonic() + budget, output)
    _report(done, len(asked.tasks), output, candidates=candidates is not None)
    if interrupted:
        return INTERRUPTED
    return _exit_code(done, candidates=candidates is not None)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The tasks of this run, the names of the tasks of all shards, the folder of candidates, and the results file."""

    tasks: list[BenchmarkTask]
    names: tuple[str, ...]
    candidates: Path | None
    kept: ResultsFile


def _chosen(
    folder: Path, candidates: Path | None, patterns: Sequence[str], levels: Sequence[int], shard: str | None, target: Path | None
) -> _Chosen:  # fmt: skip
    from kernelmate_torch.kernelbench.results import ResultsFile
    from kernelmate_torch.kernelbench.tasks import find_tasks, shard_of

    if candidates is not None and not candidates.is_dir():
        raise UsageError(
            f"--candidates {candidates} is not a folder.", hint="Give the folder with the candidates' files."
        )
    tasks = find_tasks(folder, patterns, levels)
    names = tuple(one.name for one in tasks)
    if shard is not None:
        number, count = _shard(shard)
        tasks = shard_of(tasks, number, count)
    return _Chosen(tasks, names, candidates, ResultsFile(target))


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)/(\d+)", text.strip())
    number, count = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= count:
        raise UsageError(f"--shard {text!r} is not a shard.", hint="Write 2/5 for the second of five.")
    return number, count


def _tolerance(text: str) -> tuple[float, float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(0 <= one < float("inf") for one in numbers) or not any(numbers):
        raise UsageError(f"--tolerance {text!r} is not a tolerance.", hint="Write 1e-2, or 1e-4,1e-3 for absolute and relative.")  # fmt: skip
    return numbers[0], numbers[-1]


def _run(
    settings: BenchmarkSettings, asked: _Chosen, until: float | None, output: Output
) -> tuple[list[BenchmarkedTask], bool]:
    """Returns the results, and True if the user interrupted the run."""
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate_torch.kernelbench.running import BenchmarkRunner, result_of
    from kernelmate_torch.kernelbench.tasks import candidate_of

    done: list[BenchmarkedTask] = []
    progress = TerminalProgress(output.stderr(), quiet=output.quiet or output.as_json)
    try:
        with BenchmarkRunner(settings) as runner, progress:
            for number, task in enumerate(asked.tasks):
                if until is not None and time.monotonic() > until:
                    break
                progress.kernel(task.name, number, len(asked.tasks))
                candidate = None if asked.candidates is None else candidate_of(task, asked.candidates)
                kept = asked.kept.get(task.name)
                result = result_of(runner, settings, task, candidate, kept, progress.step)
                done.append(result)
                if result is not kept:
                    asked.kept.keep(result, asked.names)
                if not output.as_json:
                    with progress.paused():
                        _tell(result, output)
    except KeyboardInterrupt:
        return done, True
    return done, False


def _tell(result: BenchmarkedTask, output: Output) -> None:
    from kernelmate_torch.kernelbench.rendering import task_lines

    console = output.stdout()
    for line in list(task_lines(result, notes=not output.quiet))[: 1 if output.quiet else None]:
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _report(done: Sequence[BenchmarkedTask], total: int, output: Output, *, candidates: bool) -> None:
    from kernelmate.report.json import SCHEMA
    from kernelmate_torch.kernelbench.rendering import document, summary_lines

    if output.as_json:
        output.document({"schema": SCHEMA, "kernelbench": document(done, total, candidates=candidates)})
        return
    console = output.stdout()
    for line in summary_lines(done, total, candidates=candidates):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _merge(paths: Sequence[Path], target: Path | None, output: Output) -> int:
    from kernelmate.files import write_atomically
    from kernelmate_torch.kernelbench.results import encoded, merged

    together = merged(paths)
    if target is not None:
        write_atomically(target, encoded(together), mode=0o644)
    results = sorted(together.results, key=lambda one: one.task)
    if not output.as_json:
        for one in results:
            _tell(one, output)
    candidates = any(one.candidate is not None for one in results)
    _report(results, len(together.tasks), output, candidates=candidates)
    return _exit_code(results, candidates=candidates)


def _exit_code(results: Sequence[BenchmarkedTask], *, candidates: bool) -> int:
    if candidates:
        return 0 if all(one.candidate is not None and one.candidate.right for one in results) else 1
    return 1 if any(one.audit.flagged for one in results) else 0
