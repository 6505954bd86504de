"""Verdicts and the texts that they are of: accepted candidates, undone ones, and kernels that nothing proves right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lsp.client import ROOT, SCALE, editor, run

pytestmark = pytest.mark.exhaustive(share=0.4)

WITHOUT_REFERENCE = SCALE.replace('// reference = "a * x"\n', "")
WITHOUT_CONTRACT = SCALE.split("// ///\n")[1]
_EXAMPLE = (ROOT / "extension/src/example.ts").read_text()
WASTEFUL = _EXAMPLE.split("const EXAMPLE = `\\\n")[1].split("`;")[0]
"""The walkthrough's kernel, which takes more shared memory than it needs."""


@pytest.mark.parametrize(
    ("text", "told", "untold"),
    [
        (SCALE, (), ("NOT VERIFIED", "guessed")),
        (WITHOUT_REFERENCE, ("NOT VERIFIED: no reference",), ("guessed",)),
        (WITHOUT_CONTRACT, ("NOT VERIFIED: no reference, guessed contract",), ()),
    ],
)
def test_a_benchmark_that_proves_nothing_says_so_in_the_lens(
    tmp_path: Path, text: str, told: tuple[str, ...], untold: tuple[str, ...]
) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", text)
            await it.problems(uri)
            await it.command("kernelmate.benchmark", uri=uri)
            lens = (await it.lenses(uri))[0]
            assert "predicted just now" in lens
            assert all(one in lens for one in told), lens
            assert not any(one in lens for one in untold), lens

    run(scenario())


def test_an_accepted_candidate_has_its_own_verdict_and_an_undone_one_the_baselines(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "sum.cu", WASTEFUL)
            await it.problems(uri)
            found = await it.command("kernelmate.optimize", uri=uri, prompt="reduce memory usage", author="recipes")
            assert found["best"] is not None
            before = (await it.lenses(uri))[0]
            accepted = it.after(it.applied[-1].edit, uri)
            it.change(uri, accepted)
            await it.problems(uri)
            after = (await it.lenses(uri))[0]
            wanted = found["candidates"][found["best"]]["verdict"]["timing"]["median_us"]
            assert "before the last change" not in after
            assert f"{wanted:.3g}"[:3] in after, (wanted, after)
            results = await it.command("kernelmate.results", uri=uri)
            assert results["search"]["stale"] is False
            assert results["search"]["taken"] == found["best"]
            assert results["benchmark"]["stale"] is False
            hints = await it.hints(uri)
            assert hints
            assert not any("stale" in str(hint.label) for hint in hints)

            it.change(uri, WASTEFUL)
            await it.problems(uri)
            assert (await it.lenses(uri))[0] == before
            assert (await it.command("kernelmate.results", uri=uri))["search"]["taken"] is None

            it.change(uri, accepted.replace("// ///\n__global__", "// ///\n// another text\n__global__"))
            assert "before the last change" in (await it.lenses(uri))[0], "at the first key"

    run(scenario())


def test_a_repair_that_is_not_found_ends_by_its_limit(tmp_path: Path) -> None:
    broken = SCALE.replace("y[i] = a * x[i];", "y[i] = a * x[i] + n;")

    async def scenario() -> None:
        async with editor(tmp_path) as it:
            uri = it.open(tmp_path / "scale.cu", broken)
            await it.problems(uri)
            await it.command("kernelmate.benchmark", uri=uri)
            found = await it.command("kernelmate.fix", uri=uri, budgetS=0.001)
            assert found["best"] is None
            assert any("time" in note or "limit" in note or "budget" in note for note in found["notes"]), found["notes"]

    run(scenario())
