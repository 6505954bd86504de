"""The code of docs/extending.md and docs/api.md works as the pages say."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "examples" / "suggester"


def test_the_page_shows_the_files_of_the_template() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    for file, language in (("pyproject.toml", "toml"), ("kernelmate_example.py", "python")):
        (shown,) = re.findall(rf"## The package\n.*?```{language}\n(.*?)```", page, re.DOTALL)
        assert shown == (TEMPLATE / file).read_text()


@pytest.mark.slow
def test_the_template_proposes_a_candidate_that_is_accepted(tmp_path: Path) -> None:
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text())["project"]
    (group,) = project["entry-points"].items()
    installed = tmp_path / "installed"
    information = installed / "kernelmate_example-0.1.0.dist-info"
    information.mkdir(parents=True)
    shutil.copy(TEMPLATE / "kernelmate_example.py", installed)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n")
    points = "\n".join(f"{name} = {value}" for name, value in group[1].items())
    (information / "entry_points.txt").write_text(f"[{group[0]}]\n{points}\n")
    for file in ("softmax.cu", "reference.py"):
        shutil.copy(ROOT / "examples" / file, tmp_path)
    page = (ROOT / "docs" / "extending.md").read_text()
    (search,) = re.findall(r"^kernelmate (optimize .* --author example .*)$", page, re.MULTILINE)
    run = subprocess.run(
        [sys.executable, "-m", "kernelmate", *shlex.split(search), "--backend", "emulator", "--seed", "7", "--json"],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    found = json.loads(run.stdout)
    best = found["candidates"][found["best"]]
    assert best["author"] == "recipe:halve-block"
    assert best["verdict"]["accepted"] is True
    assert best["verdict"]["resources"]["dynamic_shared_bytes"] == 512


@pytest.mark.slow
def test_the_example_of_the_api_page_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.DOTALL)
    for file in ("softmax.cu", "reference.py"):
        shutil.copy(ROOT / "examples" / file, tmp_path)
    run = subprocess.run(
        [sys.executable, "-c", example],
        cwd=tmp_path,
        env={
            **os.environ,
            "KERNELMATE_BACKEND": "emulator",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    correct, why = run.stdout.splitlines()
    assert correct.startswith("True ")
    assert "bytes of shared memory per block less" in why
