"""Candidates that were promising in the emulator, judged again on a real GPU from the document alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.cli.main import cli

EXAMPLES = Path(__file__).parents[2] / "examples"
_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]


@pytest.fixture(scope="module")
def document(tmp_path_factory) -> Iterator[Path]:
    """A search without a GPU, its folder gone since."""
    folder = tmp_path_factory.mktemp("confirm")
    work = folder / "laptop"
    work.mkdir()
    for name in ("matmul.cu", "reference.py"):
        shutil.copy(EXAMPLES / name, work / name)
    arguments = [
        "optimize",
        "matmul.cu::matmul_naive",
        "make it faster",
        "--backend",
        "emulator",
        "--max-candidates",
        "4",
    ]
    path = folder / "promising.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(work)
        result = CliRunner().invoke(cli, [*arguments, "--json"], catch_exceptions=False)
        path.write_text(result.stdout)
        patch.chdir(folder)
        shutil.rmtree(work)
        yield path


def test_every_prediction_stands_beside_its_measurement(document) -> None:
    result = CliRunner().invoke(cli, ["confirm", str(document), "--all", "--json"], catch_exceptions=False)
    found = json.loads(result.stdout)
    assert found["baseline"]["timing"]["kind"] == "measured"
    assert found["baseline"]["predicted"]["kind"] == "predicted"
    assert found["baseline"]["roofline"]["kind"] == "measured"
    assert len(found["confirmations"]) == 4
    for one in found["confirmations"]:
        verdict = one["verdict"]
        assert verdict["correct"] is True, (one.get("author", one), verdict["findings"])
        assert verdict["timing"]["kind"] == verdict["speedup"]["kind"] == "measured"
        assert one["promised"]["timing"]["kind"] == "predicted"
        low, high = verdict["speedup"]["ci95"]
        assert (one["outcome"] == "confirmed") == (verdict["accepted"] is True)
        assert one["outcome"] != "confirmed" or low > 1
        assert one["outcome"] != "undecided" or low <= 1 <= high
    assert result.exit_code == (0 if any(one["outcome"] == "confirmed" for one in found["confirmations"]) else 1)


def test_a_fast_block_shape_of_the_naive_matmul_is_confirmed(document) -> None:
    result = CliRunner().invoke(cli, ["confirm", str(document)], catch_exceptions=False)
    print(result.stdout)
    assert result.exit_code == 0
    assert "confirmed" in result.stdout
    assert "borne out" in result.stdout
