"""Samples of exhaustive tests. `make test` runs a part of every sweep, drawn by a seed that pytest's header names.

A sweep is a test that carries `@pytest.mark.exhaustive`, or takes a fixture that a folder's conftest names by `sweep_of`, or that
slow.txt lists (`benchmarks.slow_tests` writes it), with all of its cases where shares are not reduced. Its
`share` is the part of its cases that a sample holds, times `--shares`. With `together=True` the tests of a module are drawn as
one, since they share an expensive fixture. A test that the command line names by its identifier (`FILE::TEST`) always runs.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

SHARE = 0.1
"""Part of a sweep's cases in a sample where its mark names none."""
ALL, RANDOM = "all", "random"
SLOW = Path(__file__).with_name("slow.txt")
"""Seconds and name of each test function that takes long."""


@dataclass(frozen=True, slots=True)
class Case:
    """A test of a sweep: its identifier, the share of its mark, and whether its module is drawn as one."""

    name: str
    share: float = SHARE
    together: bool = False

    @property
    def sweep(self) -> str:
        """The set of cases that one sample is drawn from: the module, or the test function."""
        return self.name.split("::")[0] if self.together else self.name.split("[")[0]


def left_out(cases: Sequence[Case], seed: str, named: Iterable[str] = (), factor: float = 1) -> set[str]:
    """The identifiers of the cases that a sample does not hold.

    Of each function's n cases it holds `share * n`, rounded down or up by chance, so that every case has a chance of `share`
    and a run's length hardly depends on the seed. The same cases, seed and shares give the same sample.

    Args:
        cases: of all sweeps.
        seed: of the sample.
        named: identifiers of tests, or of functions and classes that hold them, which are in every sample.
        factor: by which every share is multiplied, up to 1.
    """
    always = tuple(named)
    sweeps: defaultdict[str, list[Case]] = defaultdict(list)
    for case in cases:
        if not any(case.name == one or case.name.startswith((f"{one}[", f"{one}::")) for one in always):
            sweeps[case.sweep].append(case)
    out: set[str] = set()
    for sweep, group in sweeps.items():
        chance, share = _chance(seed, sweep), min(1, factor * group[0].share)
        kept = (len(group) if chance < share else 0) if group[0].together else math.floor(share * len(group) + chance)
        drawn = sorted(group, key=lambda case: _chance(seed, case.name))
        out.update(case.name for case in drawn[kept:])
    return out


def sweep_of(*fixtures: str, share: float) -> Callable[[pytest.Item], None]:
    """A folder's `pytest_itemcollected`: tests that take one of the fixtures are a sweep, unless they have a mark of their own."""

    def mark(item: pytest.Item) -> None:
        if not set(fixtures).isdisjoint(getattr(item, "fixturenames", ())) and not item.get_closest_marker(
            "exhaustive"
        ):
            item.add_marker(pytest.mark.exhaustive(share=share))

    return mark


def _chance(seed: str, name: str) -> float:
    """A number in [0, 1) that seed and name determine."""
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode()).digest()[:7]) / 2**56


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--sample",
        metavar="SEED|random|all",
        default=ALL,
        help="run a sample of the exhaustive tests, drawn by SEED or by a random one, which the header names (default: all of them)",
    )
    parser.addoption(
        "--shares",
        metavar="FACTOR",
        type=float,
        default=1.0,
        help="multiply the share of its cases that a sample holds of each exhaustive test (default: 1)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if given := getattr(config, "workerinput", None):
        config.option.sample = given["sample"]
    elif config.option.sample == RANDOM:
        config.option.sample = str(secrets.randbelow(1_000_000))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Give a worker of pytest-xdist the seed: it parses the command line anew, and all have to draw the same sample."""
    node.workerinput["sample"] = node.config.option.sample


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.option.sample
    if seed == ALL:
        return "exhaustive tests: all of them"
    again = f"SAMPLE={seed}" + (f" SHARES={factor:g}" if (factor := config.option.shares) != 1 else "")
    return f"exhaustive tests: a sample. The same again: make test {again}; all of them: make test SAMPLE=all"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.sample == ALL:
        return
    slow = {line.split(maxsplit=1)[1] for line in SLOW.read_text(encoding="utf-8").splitlines()}
    for item in items:
        if item.nodeid.split("[")[0] in slow and item.get_closest_marker("exhaustive") is None:
            item.add_marker(pytest.mark.exhaustive(share=1))
    marked = ((item, item.get_closest_marker("exhaustive")) for item in items)
    cases = [Case(item.nodeid, **mark.kwargs) for item, mark in marked if mark is not None]
    root = f"{config.rootpath}/"
    named = [str(argument).removeprefix(root) for argument in config.args if "::" in str(argument)]
    out = left_out(cases, config.option.sample, named, config.option.shares)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
    items[:] = [item for item in items if item.nodeid not in out]
