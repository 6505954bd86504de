"""The server beside clangd on one file: no diagnostic is listed twice. Skipped without clangd."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from lsprotocol import types

from tests.lsp.client import BROKEN, STORE_LINE, editor, run, until

CLANGD = shutil.which("clangd")
pytestmark = pytest.mark.skipif(CLANGD is None, reason="there is no clangd on PATH (apt-get install clangd)")

PRELUDE = """\
#define __global__ __attribute__((global))
struct Index { int x, y, z; };
extern const __attribute__((device)) Index blockIdx, blockDim, threadIdx;
"""
"""The names of CUDA's headers that the kernel uses: clangd does not need the toolkit with them."""

FLAGS = ("-xcuda", "--cuda-device-only", "--cuda-gpu-arch=sm_80", "-nocudainc", "-nocudalib", "-include", "prelude.h")


def at(problems: list[types.Diagnostic], line: int) -> list[str]:
    return [one.message for one in problems if one.range.start.line == line]


@pytest.mark.parametrize("ours", [True, False])
def test_with_the_compilers_problems_off_each_error_of_device_code_is_told_by_clangd_alone(
    tmp_path: Path, ours: bool
) -> None:
    (tmp_path / "prelude.h").write_text(PRELUDE)
    (tmp_path / "compile_flags.txt").write_text("\n".join(FLAGS) + "\n")
    (tmp_path / "scale.cu").write_text(BROKEN)
    unsound = BROKEN.replace("block = 256", "blocks = 256")
    mistake = unsound[: unsound.index("blocks = 256")].count("\n")

    async def scenario() -> None:
        assert CLANGD is not None
        settings = {"compilerProblems": ours}
        async with editor(tmp_path, settings=settings) as it, editor(tmp_path, command=[CLANGD]) as clangd:
            uri = it.open(tmp_path / "scale.cu", BROKEN)
            clangd.open(tmp_path / "scale.cu", BROKEN)
            await until(lambda: uri in clangd.published, "clangd's problems")
            theirs, mine = clangd.published[uri][1], await it.problems(uri)
            assert [message for message in at(theirs, STORE_LINE) if "'z'" in message]
            assert len(at(theirs, STORE_LINE)) == 1
            assert len(at(mine, STORE_LINE)) == ours
            assert at(theirs, mistake) == []
            it.change(uri, unsound)
            assert any("blocks" in one for one in at(await it.problems(uri), mistake)), "of contracts, ours tells"

    run(scenario())
