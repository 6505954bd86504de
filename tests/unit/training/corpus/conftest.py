"""Fixtures for tests of the corpus: a judge on the emulator, and the rows of problems."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from kernelmate.compiler import find_target
from kernelmate_training.corpus.families import registry
from kernelmate_training.corpus.group_processing import study
from kernelmate_training.corpus.judging import Judge
from tests.sampling import sweep_of

pytest_itemcollected = sweep_of("judge", share=0.1)


@pytest.fixture(scope="module")
def judge() -> Judge:
    """It predicts times of an H100, and runs nothing on a GPU."""
    return Judge(find_target("H100 SXM"))


@pytest.fixture(scope="module")
def studied(judge: Judge) -> Callable[..., list[dict[str, Any]]]:
    """`studied(families, count, seed)`: all rows of the first so many problems of each family."""

    def rows(families: tuple[str, ...], count: int, seed: int) -> list[dict[str, Any]]:
        groups = [study(judge, registry()[name], number, seed) for name in families for number in range(count)]
        return [json.loads(row.line) for group in groups for row in group.rows]

    return rows
