"""ARCHITECTURE.md, README.md and the project file agree with the code."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.records import FindingCode

ROOT = Path(__file__).resolve().parents[1]


def architecture() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text()


def table_rows(heading: str) -> list[list[str]]:
    """The cells of the table rows below a heading of ARCHITECTURE.md, without the table's head."""
    section = architecture().split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    return rows[2:]


def layers() -> list[tuple[int, str]]:
    """Layer and package of each row of the table of packages."""
    return [(int(number), package.split("`")[1]) for number, package, _ in table_rows("Layers and packages")]


def test_architecture_is_one_read() -> None:
    assert len(architecture().splitlines()) <= 250


def test_every_path_in_architecture_exists() -> None:
    named = re.findall(r"`([\w./]+/[\w./]*)`", architecture()) + re.findall(r"docs/\w+\.md", architecture())
    assert len(named) > 80
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_package_has_a_row_in_architecture() -> None:
    found = {
        file.parent.relative_to(ROOT / root).as_posix().replace("/", ".")
        for root in ("", "lsp", "widgets", "pytorch", "training")
        for file in (ROOT / root).glob("kernelmate*/**/__init__.py")
    }
    assert {package for _, package in layers()} >= found - {"kernelmate"}


def test_layers_of_architecture_are_those_of_import_linter() -> None:
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    wanted = [set(layer.split(" | ")) for layer in contract["layers"]]
    packages = {package: number for number, package in layers()}
    top = {package: number for package, number in packages.items() if package.rpartition(".")[0] not in packages}
    assert [{one for one in top if top[one] == number} for number in sorted(set(top.values()))] == wanted
    assert all(
        number == packages[package.rpartition(".")[0]] for package, number in packages.items() if package not in top
    )


def test_every_finding_code_is_explained_in_the_order_of_precedence() -> None:
    rows = [(code.strip("`"), meaning) for code, meaning in table_rows("Finding codes")]
    assert rows == [(code, code.meaning) for code in FindingCode]


@pytest.mark.parametrize(
    "package", ["kernelmate", "lsp/kernelmate_lsp", "widgets/kernelmate_widgets", "pytorch/kernelmate_torch"]
)
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


def test_no_two_classes_of_the_packages_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for package in ("kernelmate", "lsp/kernelmate_lsp", "widgets/kernelmate_widgets", "pytorch/kernelmate_torch"):
        for file in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(f"{file.relative_to(ROOT)}:{node.lineno}")
    assert len(places) > 800
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def docstrings() -> Iterator[tuple[str, str]]:
    """The docstrings of the packages, with their places."""
    for folder in ("kernelmate", "lsp/kernelmate_lsp", "widgets/kernelmate_widgets", "pytorch/kernelmate_torch", "training/kernelmate_training"):  # fmt: skip
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    line = getattr(node, "lineno", 1)
                    yield f"{file.relative_to(ROOT)}:{line}", ast.get_docstring(node) or ""


def test_docstrings_name_their_subject_instead_of_alluding_to_it() -> None:
    vague = (
        r"\A(?:As|That of|What|Where|Whether) |\bso many\b|\b(?:it|they|that|which|what|one) stands?\b(?! for|-in)"
        r"|\bbehind (?:it|them|the (?:last|first|loop|type|token|barrier))\b"
    )
    assert [place for place, text in docstrings() if "/exam/" not in place and re.search(vague, text)] == []


def test_docstrings_return_in_the_third_person_and_have_one_entry_per_line() -> None:
    imperative = r"\A(?:Return|Yield) "
    joined = r"^ +\w[\w, *]*: [^\n]*[.)] (?:[a-z_]+|[A-Z]\w+(?:Failed|Error|Unavailable|Timeout)): "
    assert [place for place, text in docstrings() if re.search(f"{imperative}|{joined}", text, re.MULTILINE)] == []
