"""The kill runs of the benchmarks, a few of each: `python -m benchmarks.kill_runs` makes three hundred."""

from __future__ import annotations

import multiprocessing
import os
import random
import subprocess
import sys
from multiprocessing import shared_memory
from pathlib import Path

import pytest

from benchmarks import kill_runs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")


def test_a_killed_write_leaves_the_old_text_or_the_new_one_and_nothing_else() -> None:
    tally = kill_runs.killed_writes(12, random.Random(3))
    assert (tally.runs, tally.problems) == (12, {})
    assert tally.killed


def test_a_killed_bench_leaves_a_history_and_a_cache_that_work() -> None:
    tally = kill_runs.killed_runs("bench", 1, random.Random(5))
    assert (tally.runs, tally.problems) == (1, {})


def test_what_is_not_as_it_should_be_is_found() -> None:
    with kill_runs.place() as where:
        where.reset(2)
        assert list(kill_runs.wrong_with_file(where, 2, "new")) == []
        where.file.write_text(kill_runs.KERNEL[:100])
        where.file.chmod(0o600)
        found = list(kill_runs.wrong_with_file(where, 1, "new"))
        assert [sentence.split()[0] for sentence in found] == ["the", "its", "it"]
        where.file.with_name(".k.cu.kernelmate-new").touch()
        assert kill_runs.beside(where) == [".k.cu.kernelmate-new"]
        with where.begin([sys.executable, "-c", "import time; print(flush=True); time.sleep(600)"]) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert where.processes() == [process.pid]
            kill_runs.kill(process)


def test_only_shared_memory_that_no_process_has_mapped_counts_as_left() -> None:
    name = f"kernelmate-test-{os.getpid()}"
    held = multiprocessing.get_context("spawn").Semaphore()
    mapped = shared_memory.SharedMemory(name=name, create=True, size=64)
    left = Path("/dev/shm") / f"{name}-left"
    left.touch()
    try:
        found = kill_runs.segments()
        assert left.name in found
        assert {name, f"sem.{held._semlock.name.lstrip('/')}"}.isdisjoint(found)  # type: ignore[attr-defined]
    finally:
        mapped.close()
        mapped.unlink()
        left.unlink()


def test_its_help_has_examples() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "benchmarks.kill_runs", "--help"], capture_output=True, text=True, check=True
    ).stdout
    assert "--command full" in said
    assert "300 runs of each command" in said
