"""docs/security.md: no promise without a test, and no test named that does not exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def rows() -> list[list[str]]:
    """The rows of the tables of promises, by column."""
    text = (ROOT / "docs" / "security.md").read_text().split("## Promises", 1)[1].split("## Not isolated", 1)[0]
    lines = [
        line for line in text.splitlines() if line.startswith("| ") and not line.startswith(("| promise", "| ---"))
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_promise_names_a_test_that_exists() -> None:
    assert len(rows()) > 15
    for promise, _, named in rows():
        match = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", named)
        assert match is not None, f"no test is named for: {promise}"
        path, function = match.groups()
        tree = ast.parse((ROOT / path).read_text())
        found = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function), None)
        assert found is not None, named
        assert any(asserts(node) for node in ast.walk(found)), f"{named} asserts nothing"
        assert not any("skip" in ast.unparse(mark).split("(")[0].split(".") for mark in found.decorator_list), named


def asserts(node: ast.AST) -> bool:
    """An assertion, or a call of `raises` or of a function named for what it asserts."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func).rpartition(".")[2].startswith(("raises", "assert"))
    return isinstance(node, ast.Assert)


def test_every_restriction_that_doctor_tells_is_on_the_page() -> None:
    text = (ROOT / "docs" / "security.md").read_text()
    for mechanism in ("PR_SET_DUMPABLE", "no_new_privs", "PR_SET_CHILD_SUBREAPER", "landlock", "seccomp"):
        assert mechanism in text
