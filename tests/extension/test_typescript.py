"""The extension's own unit tests and its type check, run by node; skipped, and said so, where its tools are not installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

EXTENSION = Path(__file__).resolve().parents[2] / "extension"


@pytest.mark.parametrize("script", ["check", "test"])
def test_the_extension_passes_its(script: str) -> None:
    npm = shutil.which("npm")
    if npm is None or not (EXTENSION / "node_modules").is_dir():
        pytest.skip("the extension's tools are not installed; `make extension-test` installs them")
    done = subprocess.run(
        [npm, "run", "--silent", script],
        cwd=EXTENSION,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
