"""Triton functions in an editor."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.lsp.client import editor, place, run

pytest.importorskip("triton", reason="triton is not installed: make train-tools")

TEXT = (Path(__file__).parents[1] / "data" / "triton" / "scattered.py").read_text(encoding="utf-8")


def test_a_triton_function_has_a_lens_and_its_error_stands_at_its_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scattered.py", TEXT, "python")
            problems = await it.problems(uri)
            assert not [one for one in problems if one.severity == 1]
            for _ in range(600):
                lenses = await it.lenses(uri)
                if "compiling..." not in lenses:
                    break
                await asyncio.sleep(0.1)
            assert len([lens for lens in lenses if "regs" in lens]) == TEXT.count("# /// kernelmate")
            broken = TEXT.replace("tl.static_range(TAPS)", "tl.static_range(missing)")
            it.change(uri, broken)
            for _ in range(600):
                errors = [one for one in await it.problems(uri) if one.severity == 1]
                if errors:
                    break
                await asyncio.sleep(0.1)
            (problem,) = errors
            assert "missing is not defined" in problem.message
            assert problem.source == "triton"
            assert problem.range.start.line == place(broken, "missing")[0]

    run(scenario())
