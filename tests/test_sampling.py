"""A sample of a sweep is drawn by its seed alone, has its share, and holds what the command line names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from tests.conftest import __all__ as HOOKS
from tests.sampling import SLOW, Case, left_out

ROOT = Path(__file__).parents[1]

SWEEP = [Case(f"tests/t.py::test_it[{number}]", 0.25) for number in range(42)]


def kept(cases: list[Case], seed: object, named: tuple[str, ...] = ()) -> set[str]:
    return {case.name for case in cases} - left_out(cases, str(seed), named)


def test_equal_seeds_draw_the_same_and_others_something_else() -> None:
    assert kept(SWEEP, 1) == kept(SWEEP, 1)
    assert kept(SWEEP, 1) != kept(SWEEP, 2)


def test_a_sample_has_its_share_of_each_function_and_every_case_its_chance() -> None:
    drawn = [kept(SWEEP, seed) for seed in range(400)]
    assert {len(one) for one in drawn} == {10, 11}
    times = Counter(name for one in drawn for name in one)
    assert len(times) == len(SWEEP)
    assert all(60 < count < 140 for count in times.values())


def test_a_test_without_cases_is_drawn_as_often_as_its_share_says() -> None:
    alone = [Case("tests/t.py::test_alone", 0.5)]
    assert 150 < sum(len(kept(alone, seed)) for seed in range(400)) < 250


def test_the_tests_of_a_module_that_are_drawn_together_are_all_there_or_none() -> None:
    module = [Case(f"tests/m.py::test_{name}", 0.5, together=True) for name in "abc"]
    drawn = Counter(len(kept(module, seed)) for seed in range(400))
    assert set(drawn) == {0, 3}
    assert 150 < drawn[3] < 250


def test_what_is_named_runs_with_every_seed_and_nothing_else_that_begins_alike() -> None:
    cases = [Case("tests/t.py::test_a[x]", 0), Case("tests/t.py::test_a[y]", 0), Case("tests/t.py::test_ab[x]", 0)]
    assert kept(cases, 1, ("tests/t.py::test_a[x]",)) == {"tests/t.py::test_a[x]"}
    assert kept(cases, 1, ("tests/t.py::test_a",)) == {"tests/t.py::test_a[x]", "tests/t.py::test_a[y]"}
    assert kept(cases, 1) == set()


def test_a_factor_multiplies_every_share_up_to_all_cases() -> None:
    for factor, most in ((2, 21), (4, 42), (9, 42)):
        assert len(SWEEP) - len(left_out(SWEEP, "1", factor=factor)) == most


def test_workers_draw_the_sample_that_the_header_names(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(f"from tests.conftest import {', '.join(HOOKS)}\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = exhaustive\n")
    (tmp_path / "test_sweep.py").write_text(
        "import pytest\n@pytest.mark.exhaustive(share=0.5)\n@pytest.mark.parametrize('case', range(64))\ndef test_it(case): pass\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        tmp_path,
        tmp_path,
        "--sample",
    ]
    environment = {"PYTHONPATH": str(ROOT)}

    def ran(*arguments: str) -> tuple[str, set[str]]:
        done = subprocess.run(
            [*command, *arguments],
            env=os.environ | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout, set(re.findall(r"test_it\[\d+\]", done.stdout))

    output, drawn = ran("random", "-n", "2")
    seed = re.search(r"SAMPLE=(\d+)", output)
    assert seed
    assert len(drawn) == 32
    assert ran(seed[1])[1] == drawn


def test_tests_that_are_listed_as_slow_exist() -> None:
    lines = SLOW.read_text(encoding="utf-8").splitlines()
    assert lines == sorted(lines, key=lambda line: line.split()[1])
    for line in lines:
        path, *names = line.split()[1].split("::")
        text = (SLOW.parents[1] / path).read_text(encoding="utf-8")
        assert all(f"def {name}(" in text or f"class {name}" in text for name in names), line


def test_slow_tests_all_run_unless_shares_are_reduced(tmp_path: Path) -> None:
    cases = [Case(f"test_it.py::test_it[{number}]", 1) for number in range(40)]
    assert not left_out(cases, "1", factor=1)
    assert len(left_out(cases, "1", factor=0.1)) == 36
