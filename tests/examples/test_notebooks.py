"""The example notebooks run from the first cell to the last, and their outputs need no running kernel."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: pip install nbclient")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: pip install nbclient")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install 'kernelmate[notebook]'")

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
WIDGET = "application/vnd.jupyter.widget-view+json"
LARGEST = 300_000


@pytest.fixture(autouse=True)
def own_environment(tmp_path, monkeypatch) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "widgets"), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("KERNELMATE_BACKEND", "emulator")
    monkeypatch.setenv("KERNELMATE_HISTORY_FILE", str(tmp_path / "history.db"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))


def ran(notebook: Any, folder: Path) -> Any:
    resources = {"metadata": {"path": str(folder)}}
    return nbclient.NotebookClient(notebook, timeout=400, kernel_name="python3", resources=resources).execute()


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Any:
    """An example after its run; each is run once."""
    kept: dict[str, Any] = {}

    def run(name: str) -> Any:
        if name not in kept:
            notebook = nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)
            assert outputs_of(notebook) == [], "examples are kept without outputs"
            kept[name] = ran(notebook, tmp_path_factory.mktemp(name))
        return kept[name]

    return run


def outputs_of(notebook: Any) -> list[Any]:
    return [one for cell in notebook.cells if cell.cell_type == "code" for one in cell.outputs]


@pytest.mark.exhaustive(share=0.3)
def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["diffusion_step", "first_steps", "softmax_by_prompts"]


@pytest.mark.exhaustive(share=0.3)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_example_runs_and_its_outputs_need_nothing(path, done) -> None:
    bundles = [one.data for one in outputs_of(done(path.stem)) if "data" in one]
    assert sum('alt="Correctness"' in one.get("text/html", "") for one in bundles) >= 1
    for bundle in bundles:
        if bundle.pop(WIDGET, None) is not None:
            assert bundle["text/plain"].startswith("Buttons for the result above"), "no output is a widget's alone"
        assert set(bundle) <= {"text/plain", "text/html", "image/png"}
        assert "text/plain" in bundle
        assert sum(len(str(value).encode()) for value in bundle.values()) < LARGEST
        assert not re.search(r"<script|<iframe|<link|src=\"(?!data:)|url\(", bundle.get("text/html", ""))


@pytest.mark.exhaustive(share=0.3)
def test_a_failing_kernel_fails_the_run(tmp_path) -> None:
    notebook = nbformat.read(ROOT / "examples" / "first_steps.ipynb", as_version=4)
    for cell in notebook.cells:
        cell.metadata.pop("tags", None)
    with pytest.raises(nbclient.exceptions.CellExecutionError) as caught:
        ran(notebook, tmp_path)
    assert "KernelFailed" in str(caught.value)
    assert "shared-race" in str(caught.value)
    last = next(cell for cell in notebook.cells if 'assert "reverse"' in cell.source)
    assert last.execution_count is None, "nothing ran after it"


@pytest.mark.exhaustive(share=0.3)
def test_a_page_made_of_a_run_shows_charts_and_asks_for_nothing(done) -> None:
    nbconvert = pytest.importorskip("nbconvert", reason="nbconvert is not installed: pip install nbconvert")
    exporter = nbconvert.HTMLExporter(template_name="basic")
    page, _ = exporter.from_notebook_node(done("first_steps"))
    assert 'alt="Correctness"' in page
    assert "shared-race" in page
    assert not re.search(r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(?!data:)", page)
