"""The papers about the house say what the house is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "kernelmate",
    "lsp/kernelmate_lsp",
    "widgets/kernelmate_widgets",
    "training/kernelmate_training",
    "benchmarks",
)
CODES = [
    "forbidden-source",
    "compile-error",
    "unsupported-instruction",
    "launch-failure",
    "hang",
    "time-limit",
    "trap",
    "worker-crash",
    "out-of-memory",
    "output-flood",
    "illegal-address",
    "out-of-bounds-write",
    "out-of-bounds-read",
    "misaligned-access",
    "index-overflow",
    "shared-race",
    "global-race",
    "divergent-barrier",
    "shuffle-mask",
    "uninitialised-shared",
    "uninitialised-local",
    "uninitialised-global",
    "input-mutated",
    "stateful",
    "aliasing",
    "stale-output",
    "constant-output",
    "wrong-at-size",
    "nan-handling",
    "precision-loss",
    "wrong-values",
    "nondeterministic",
    "sub-physical-time",
    "suspicious-speedup",
]


def table_rows(heading: str) -> dict[str, str]:
    """The two-column table rows below a heading of ARCHITECTURE.md."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.+?) \|$", section, flags=re.MULTILINE))


def modules() -> set[str]:
    return {path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


def test_architecture_names_every_module_and_no_other() -> None:
    assert set(table_rows("Modules")) == modules()


def test_every_module_has_a_sentence_of_its_own() -> None:
    rows = table_rows("Modules")
    assert all(len(sentence) > 15 for sentence in rows.values())
    assert len(set(rows.values())) == len(rows)


def test_every_finding_code_is_explained_in_the_order_in_which_they_win() -> None:
    assert list(table_rows("Finding codes")) == CODES


@pytest.mark.parametrize("package", ["kernelmate", "lsp/kernelmate_lsp", "widgets/kernelmate_widgets"])
def test_the_wheel_takes_exactly_the_import_packages(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert package in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert (ROOT / package / "__init__.py").is_file()
    assert not (ROOT / package).parent.joinpath("__init__.py").exists()


def test_the_version_is_written_once_in_each_place_it_must_stand() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    version = project["project"]["version"]
    assert f'VERSION = "{version}"' in (ROOT / "kernelmate" / "version.py").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_target_the_readme_names_is_in_the_makefile() -> None:
    named = set(
        re.findall(r"`make ([a-z-]+)`", (ROOT / "README.md").read_text() + (ROOT / "CONTRIBUTING.md").read_text())
    )
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    assert {"demo", "test"} <= named <= made
