"""The stand-alone page: complete, closed to the network, and safe with hostile text."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import stat
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelmate.errors import EnvironmentFailed
from kernelmate.records import Finding, FindingCode, HardwareProfile, Kernel, Optimization, Verdict
from kernelmate.report.page import page, write_page

EVIL = "</script></pre><img src=x onerror=alert(1)><script>alert(2)</script>\"'&"


class Elements(HTMLParser):
    """Every start tag with its attributes, and the text of each script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            attributes, text = self.scripts[-1]
            self.scripts[-1] = (attributes, text + data)


@pytest.fixture
def text(optimization: Optimization, kernel: Kernel) -> str:
    return page(optimization, kernel)


def own_part(text: str) -> str:
    """The page without Plotly's own script."""
    return re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)


def test_it_holds_verdicts_reasons_diffs_and_charts(text: str) -> None:
    own = own_part(text)
    for part in (
        "reduce memory usage", "Memory means shared memory per block.", "recipe:shrink-shared-tile", "ready to accept",
        "promising", "rejected", "does not compile", "tile[4096]", "tile[2048]", "wrong-at-size", "sha256:",
        "Correctness per size", "Time at the headline size", "Theoretical occupancy", "Resources", "Memory traffic",
    ):  # fmt: skip
        assert part in own


def test_every_chart_is_json_that_parses(text: str) -> None:
    data = [json.loads(script) for attributes, script in Elements(text).scripts if attributes.get("type")]
    assert sum("data" in one for one in data) == 5


def test_it_asks_the_network_for_nothing(text: str) -> None:
    for _, attributes in Elements(text).tags:
        for name in ("src", "srcset", "action", "data", "poster"):
            assert name not in attributes
        assert (attributes.get("href") or "#").startswith("#")
    assert "url(" not in own_part(text)
    assert "@import" not in own_part(text)


def test_its_policy_allows_exactly_the_scripts_it_was_written_with(text: str) -> None:
    elements = Elements(text)
    policy = next(a["content"] for tag, a in elements.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    # Not by the parser, which takes "<!--" within Plotly's strings for something.
    run = re.findall(r"<script>(.*?)</script>", text, flags=re.DOTALL)
    digests = {base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in run}
    assert set(re.findall(r"'sha256-([^']+)'", policy)) == digests
    assert len(run) == 2


def test_both_colour_schemes_are_styled(text: str) -> None:
    assert "prefers-color-scheme: dark" in own_part(text)
    assert '"dark"' in own_part(text)


def test_predicted_times_carry_the_notice(text: str) -> None:
    assert "There was no GPU" in text
    assert "faster" not in own_part(text)


def test_hostile_text_is_escaped_everywhere(optimization: Optimization, make: SimpleNamespace) -> None:
    kernel = make.kernel(make.source + f"// {EVIL}\n")
    kernel = replace(kernel, unit=replace(kernel.unit, path=f"{EVIL}.cu"))
    verdict = replace(
        optimization.candidates[2].verdict,
        kernel=EVIL,
        compiler=EVIL,
        reasons=(EVIL,),
        findings=(Finding(FindingCode.TRAP, "error", EVIL, EVIL, 1, 1, EVIL),),
        cases=(make.case({EVIL: 3}),),
    )
    first = optimization.candidates[0]
    candidate = replace(first.candidate, author=EVIL, why=EVIL, kernel=make.kernel(make.source + EVIL))
    hostile = replace(
        optimization,
        objective=replace(optimization.objective, prompt=EVIL, reading=EVIL),
        baseline=verdict,
        candidates=(replace(first, candidate=candidate, verdict=verdict),),
        notes=(EVIL,),
    )
    elements = Elements(page(hostile, kernel))
    assert "img" not in {tag for tag, _ in elements.tags}
    assert all("onerror" not in attributes for _, attributes in elements.tags)
    scripts = [script for attributes, script in elements.scripts if not attributes.get("type")]
    assert len(scripts) == 2
    assert all("alert(" not in script for script in scripts[1:])


def test_writing_leaves_one_readable_file(optimization: Optimization, kernel: Kernel, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    out.write_text("old")
    write_page(out, optimization, kernel)
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]
    assert out.stat().st_mode & stat.S_IRUSR


def test_a_page_that_cannot_be_written_leaves_nothing(
    optimization: Optimization, kernel: Kernel, tmp_path: Path
) -> None:
    target = tmp_path / "folder.html"
    target.mkdir()
    with pytest.raises(OSError, match="irectory"):
        write_page(target, optimization, kernel)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.html"]


def test_without_plotly_it_says_what_to_install(
    optimization: Optimization, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(EnvironmentFailed) as caught:
        page(optimization, kernel)
    assert "kernelmate[report]" in str(caught.value)
    assert caught.value.exit_code == 3


def test_hardware_counters_stand_among_the_figures(verdict: Verdict) -> None:
    from kernelmate.report.html import figure_rows

    assert verdict.counters is not None
    counters = replace(verdict.counters, source="hardware")
    profile = HardwareProfile("ncu 2025.3", counters, 14.2, 1_048_576, None, 0.25, None, 0.7, 0.3, None)
    rows = dict(figure_rows(replace(verdict, hardware=profile)))
    assert rows["L1 hits, ncu 2025.3"] == "25%"
    assert rows["duration, caches empty, ncu 2025.3"] == "14.2 us"
    assert not any("L2 hits" in name for name in rows)
