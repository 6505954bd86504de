"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.cli.options import Output, Size, output_of

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)


@given(st.dictionaries(NAMES, st.integers(-(2**40), 2**40), min_size=1, max_size=5))
def test_a_size_reads_back_as_written(size: dict[str, int]) -> None:
    text = ", ".join(f"{name} = {value}" for name, value in size.items())
    assert list(Size().convert(text, None, None).items()) == list(size.items())


@pytest.mark.parametrize(
    "text", ["", "rows", "rows=", "=3", "rows=1.5", "rows=1,,cols=2", "rows=1,rows=2", "3=rows", "a=_"]
)
def test_a_size_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        Size().convert(text, None, None)


def test_sizes_reach_the_session_in_order(script: Any, run: Callable[..., Result]) -> None:
    run("bench", "twice.cu", "--size", "rows=37,cols=853", "--size", "rows=1,cols=1", "--reference", "x + x")
    assert script.asked[0][1][1:] == (({"rows": 37, "cols": 853}, {"rows": 1, "cols": 1}), "x + x")


def test_compiler_options_reach_the_settings(script: Any, run: Callable[..., Result]) -> None:
    done = run(
        "bench", "twice.cu", "-I", "inc", "-I", "more", "-D", "A=1", "-DB", "--std", "c++20", "--fast-math",
        "--max-registers", "64", "--target", "H100 SXM", "--seed", "7", "--timeout", "9", "--backend", "emulator",
        "--build", "out", "--timing-budget", "1.5",
    )  # fmt: skip
    assert done.exit_code == 0, done.stderr
    settings = script.settings
    assert settings.include_paths == ("inc", "more")
    assert settings.defines == ("A=1", "B")
    assert (settings.std, settings.fast_math, settings.max_registers) == ("c++20", True, 64)
    assert (settings.target, settings.seed, settings.backend, settings.build) == (
        "H100 SXM",
        7,
        "emulator",
        Path("out"),
    )
    assert (settings.timeout_s, settings.compile_timeout_s) == (9.0, 9.0)
    assert settings.timing_budget_s == 1.5


def test_options_that_are_not_given_leave_the_settings_alone(
    script: Any, run: Callable[..., Result], folder: Path
) -> None:
    (folder / "pyproject.toml").write_text('[tool.kernelmate]\nfast_math = true\ndefines = ["A"]\nseed = 3\n')
    run("bench", "twice.cu")
    assert (script.settings.fast_math, script.settings.defines, script.settings.seed) == (True, ("A",), 3)
    run("bench", "twice.cu", "--no-fast-math", "--seed", "4")
    assert (script.settings.fast_math, script.settings.seed) == (False, 4)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--std", "c++98"),
        ("--max-registers", "0"),
        ("--timeout", "-1"),
        ("--seed", "-1"),
        ("--timeout", "nan"),
        ("--timing-budget", "-1"),
    ],
)
def test_values_that_settings_refuse_exit_with_2(
    arguments: tuple[str, str], script: Any, run: Callable[..., Result]
) -> None:
    done = run("bench", "twice.cu", *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert script.asked == []


def test_no_color_comes_from_the_option_and_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output_of({}) == Output(False, False, None)
    assert output_of({"no_color": True, "as_json": True, "quiet": True}) == Output(True, True, False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert output_of({}).color is False
