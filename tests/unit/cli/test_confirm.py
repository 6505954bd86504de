"""`kernelmate confirm`, from a real document; where its GPU is needed the emulator stands in, which confirms nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.cli.main import cli


@pytest.fixture
def document(run: Callable[..., Result], folder: Path, documents: Callable[[str], Any]) -> Path:
    """Writes the output of `optimize --json` without a GPU to a file."""
    result = run("optimize", "twice.cu", "make it faster", "--max-candidates", "2", "--backend", "emulator", "--json")
    documents(result.stdout)
    path = folder / "promising.json"
    path.write_text(result.stdout)
    return path


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions use the emulator whatever they are asked for."""
    monkeypatch.setattr("kernelmate.session.session.choose_backend", lambda *asked: "emulator")


@pytest.mark.skipif(missing_for_gpu() is None, reason="there is a GPU here")
def test_without_a_gpu_it_says_what_to_do(run, document) -> None:
    result = run("confirm", str(document))
    assert result.exit_code == 3
    assert result.stdout == ""
    assert len(result.stderr.strip().splitlines()) == 2
    assert "--device ssh:HOST" in result.stderr
    assert "emulator" not in result.stderr


def test_another_machines_gpu_can_be_asked(run, document) -> None:
    wrong = run("confirm", "promising.json", "--device", "tcp:box")
    assert wrong.exit_code == 2
    assert "tcp:box" in wrong.stderr


def test_versions_are_judged_again_by_what_the_document_carries(run, document, emulated, folder) -> None:
    (folder / "twice.cu").write_text("// gone\n")
    result = run("confirm", "promising.json", "--all")
    assert result.exit_code == 1, result.stderr
    assert 'twice: "make it faster"' in result.stdout
    assert "block-size" in result.stdout
    assert "right at all" in result.stdout


def test_json_obeys_the_schema(run, document, emulated, documents) -> None:
    result = run("confirm", "promising.json", "--all", "--json")
    found = documents(result.stdout)
    carried = json.loads(document.read_text())
    assert len(found["confirmations"]) == len(carried["candidates"])
    assert found["predicted"] == carried["baseline"]["timing"]
    assert {one["outcome"] for one in found["confirmations"]} <= {"refuted", "undecided"}


def test_it_reads_standard_input(document, emulated, folder) -> None:
    result = CliRunner().invoke(cli, ["confirm", "-", "--quiet"], input=document.read_text(), catch_exceptions=False)
    assert result.exit_code in (0, 1), result.stderr
    assert "synthesis:pointwise" in result.stdout or "block-size" in result.stdout


def test_nothing_is_written_that_was_not_confirmed(run, document, emulated, folder) -> None:
    before = (folder / "twice.cu").read_text()
    result = run("confirm", "promising.json", "--accept")
    assert "nothing was written: nothing was confirmed" in result.stdout
    assert (folder / "twice.cu").read_text() == before


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not text"),
        (b'{"schema": 1}', "does not contain the kernel"),
    ],
)
def test_a_document_that_is_none_is_told(run, folder, content, said) -> None:
    if content is not None:
        (folder / "x.json").write_bytes(content)
    result = run("confirm", "x.json")
    assert result.exit_code == 2
    assert said in result.stderr


def test_what_compare_prints_can_be_confirmed_too(run, folder, emulated, documents) -> None:
    (folder / "new.cu").write_text((folder / "twice.cu").read_text().replace("tile[512]", "tile[256]"))
    printed = run("compare", "twice.cu", "new.cu", "--for", "less shared memory", "--backend", "emulator", "--json")
    documents(printed.stdout)
    (folder / "compared.json").write_text(printed.stdout)
    result = run("confirm", "compared.json", "--all", "--json")
    assert result.exit_code == 0, result.stderr
    (one,) = documents(result.stdout)["confirmations"]
    assert (one["outcome"], one["author"]) == ("confirmed", "user")
    accepted = run("confirm", "compared.json", "--all", "--accept")
    assert "user written to" in accepted.stdout
    assert "tile[256]" in (folder / "twice.cu").read_text()
    again = run("confirm", "compared.json", "--all", "--accept")
    assert "is not what it was when the version was made" in again.stdout.replace("\n", " ")
