"""Outputs of cells in a saved notebook: self-contained, small, escaped, with the report's own figures."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from kernelmate.records import Candidate, Judged
from kernelmate.report.chart import ChartVersion
from kernelmate.report.drawing import INK, LineShape, Mark, Rect, Scene, TextShape, hatches, png, svg, text_width
from kernelmate.report.figures import figures, versions_of
from kernelmate.report.machine import Check
from kernelmate.report.result_charts import WIDE
from kernelmate_widgets.charts import scene_of
from kernelmate_widgets.output import (
    LARGEST,
    checks_bundle,
    optimization_bundle,
    panel_bundle,
    verdict_bundle,
    views_bundle,
)


@pytest.fixture
def searched(notebook, arrays):
    arrays(notebook)
    notebook.run("%%kernelmate -q --args x,y,rows,cols --grid rows --block 128 --ref reference\n" + notebook.ROW_SUM)
    notebook.run('%kernelmate optimize row_sum "reduce memory usage" --max-candidates 3 -q')
    return notebook.names["row_sum"]


def size_of(bundle) -> int:
    return sum(len(str(value).encode()) for value in bundle.values())


def asks_the_network(page: str) -> list[str]:
    return [
        one
        for one in re.findall(
            r"(?:src|href|url|import|action)\s*[=(]\s*[\"']?[^\"')>\s]*|<script|<iframe|<link|\bon\w+=", page
        )
        if "data:" not in one
    ]


def test_an_output_is_html_picture_and_text_without_scripts_or_requests(searched) -> None:
    bundle = optimization_bundle(searched.optimization, searched.first.kernel)
    assert set(bundle) == {"text/plain", "text/html", "image/png"}
    assert asks_the_network(bundle["text/html"]) == []
    assert "recipe:" in bundle["text/plain"]
    for words in ("Correctness", "Time", "Occupancy", "Roofline", "reduce memory usage", 'class="added"'):
        assert words in bundle["text/html"]
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(bundle["image/png"])))
    assert picture.width > WIDE.width
    assert len(picture.getcolors()) > 5


def test_in_a_narrow_page_sentences_wrap_between_words_and_tables_scroll() -> None:
    from kernelmate.report.console import pairs

    page = views_bundle("a sentence", "", pairs([("name", "value")]))["text/html"]
    (block,) = ElementTree.fromstring(f"<div>{page}</div>")
    assert "word-break:normal" in block.attrib["style"]
    assert "overflow-x:auto" in block.attrib["style"]
    assert block.text == "a sentence\n\n"
    (table,) = block
    assert table.attrib["style"] == "white-space:pre"
    assert re.fullmatch(r"name +value", "".join(table.itertext()).strip())


def test_an_output_stays_small_however_many_candidates_there_are(searched) -> None:
    found = searched.optimization
    first = found.candidates[0]
    long = replace(
        first.candidate.kernel.unit, text=first.candidate.kernel.unit.text + "// filler of the text\n" * 8000
    )
    big = Judged(replace(first.candidate, kernel=replace(first.candidate.kernel, unit=long)), first.verdict)
    many = replace(found, candidates=(big,) * 60)
    bundle = optimization_bundle(many, searched.first.kernel)
    assert size_of(bundle) < LARGEST
    assert "Ready to accept" in bundle["text/html"]
    assert "more lines" in bundle["text/html"]


def test_what_models_and_files_say_is_shown_and_never_run(searched) -> None:
    found = searched.optimization
    first = found.candidates[0]
    hostile = "<img src=x onerror=alert(1)></div><script>alert(2)</script>"
    candidate: Candidate = replace(first.candidate, why=hostile, author=f"local:{hostile}")
    page = optimization_bundle(replace(found, candidates=(Judged(candidate, first.verdict),)), searched.first.kernel)[
        "text/html"
    ]
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "alert(1)" in page


def test_charts_hold_the_reports_figures(searched) -> None:
    versions = versions_of(searched.optimization)
    drawn = {title: scene_of(title, figure) for title, figure in figures(versions).items()}
    assert len(drawn) >= 5
    for scene in drawn.values():
        ElementTree.fromstring(svg(scene))
        for shape in scene.shapes:
            points = [(shape.x, shape.y)] if isinstance(shape, TextShape | Mark | Rect) else list(shape.points)
            assert all(-1 <= x <= scene.width + 1 and -1 <= y <= scene.height + 1 for x, y in points), shape
    # Bars of shared memory are as long as what they stand for.
    words = {shape.text: shape for shape in drawn["Resources"].shapes if isinstance(shape, TextShape)}
    bars = [shape for shape in drawn["Resources"].shapes if isinstance(shape, Rect)]
    before, after = (
        next(
            bar.width
            for bar in bars
            if abs(bar.x + bar.width + 5 - text.x) < 0.1 and abs(bar.y + bar.height / 2 - text.y) < 1
        )
        for text in (
            words["512 B"],
            next(one for name, one in words.items() if name.endswith(" B") and name not in {"512 B", "0 B"}),
        )
    )
    resources = [version.verdict.resources for version in versions[:2]]
    assert before / after == pytest.approx(resources[0].shared_bytes / resources[1].shared_bytes)


def test_what_is_predicted_is_hatched_and_said_to_be_so(searched) -> None:
    figure = figures([ChartVersion("baseline", searched.verdict)])["Time at the headline size"]
    scene = scene_of("Time", figure)
    assert all(shape.hollow for shape in scene.shapes if isinstance(shape, Rect))
    assert any("predicted" in shape.text for shape in scene.shapes if isinstance(shape, TextShape))


def test_a_wrong_size_is_named_with_its_first_wrong_element(notebook, arrays) -> None:
    arrays(notebook)
    wrong = notebook.ROW_SUM.replace("= part[0]", "= part[0] + (cols == 96)")
    ran = notebook.run(
        "%%kernelmate --args x,y,rows,cols --grid rows --block 128 --ref reference\n" + wrong, fails=True
    )
    page = ran.outputs[0]["text/html"]
    assert "sizes are wrong" in page
    assert "wrong on" not in page  # nor is the number of sizes
    assert "at rows = 37, cols = 96 y[0] is" in page
    assert "y[0]: want" not in page.partition("<details")[0]  # the values are said once
    assert page.index("y[blockIdx.x] = part[0]") < page.index("<details")  # with the line that stores them
    assert page.index("<details") < page.index('alt="Correctness"')


def test_without_pillow_there_is_no_png_and_everything_else(searched, monkeypatch) -> None:
    import sys

    for name in [name for name in sys.modules if name.split(".")[0] == "PIL"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "PIL", None)
    bundle = verdict_bundle((searched.verdict,), searched.version.kernel)
    assert "image/png" not in bundle
    assert "registers" in bundle["text/html"]
    assert 'alt="Roofline"' in bundle["text/html"]


def test_hatches_stay_in_their_box() -> None:
    box = Rect(10, 20, 50, 8, "#000000", hollow=True)
    lines = hatches(box)
    assert lines
    for line in lines:
        for x, y in line:
            assert 10 <= x <= 60
            assert 20 <= y <= 28


def test_every_shape_is_painted() -> None:
    shapes = (
        Rect(0, 0, 30, 10, "#0072B2"), Rect(40, 0, 30, 10, "#D55E00", hollow=True), LineShape(((0, 30), (60, 30)), "#009E73", 2, (4, 2)),
        Mark(10, 50, "diamond-open", "#CC79A7"), Mark(30, 50, "circle", "#E69F00"), TextShape(0, 70, "text", color=INK),
    )  # fmt: skip
    from PIL import Image

    painted = Image.open(io.BytesIO(png([Scene("all", 100, 80, shapes)]))).convert("RGB")
    colors = {color for _, color in painted.getcolors(10_000)}

    def near(wanted: str) -> bool:
        parts = [int(wanted[place : place + 2], 16) for place in (1, 3, 5)]
        return any(all(abs(a - b) < 24 for a, b in zip(color, parts, strict=True)) for color in colors)

    assert all(near(color) for color in ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#1f1f1f"))


def test_no_words_stick_out_of_a_chart(searched) -> None:
    for title, figure in figures(versions_of(searched.optimization)).items():
        scene = scene_of(title, figure)
        for one in scene.shapes:
            if isinstance(one, TextShape) and one.anchor == "start":
                assert one.x + text_width(one.text, one.size) <= scene.width, (title, one.text)


def test_what_is_kept_of_a_panel_says_which_version_is_in_force(searched) -> None:
    kept = panel_bundle(searched, searched.optimization, "km-kept-1")
    assert kept["text/html"].startswith('<div class="km-kept-1">')
    assert "In use: the cell&#x27;s own version." in kept["text/html"]
    searched.accept()
    kept = panel_bundle(searched, searched.optimization, "km-kept-1")
    assert f"In use: the version of {searched.version.author}, accepted." in kept["text/plain"]
    assert asks_the_network(kept["text/html"]) == []
    assert size_of(kept) < 300_000


def test_the_checks_of_doctor_are_rows_that_wrap_with_their_advice() -> None:
    found = checks_bundle(
        [
            Check("compiler", "ok", "NVRTC 13.0"),
            Check("gpu <0>", "broken", "no driver\nno device", "pip install x"),
        ]
    )
    page = found["text/html"]
    assert (
        '<td data-label="part">gpu &lt;0&gt;</td><td data-label="status"><span class="bad">broken</span></td>' in page
    )
    assert "no driver<br>no device<br>-&gt; pip install x" in page
    assert "not usable: gpu &lt;0&gt;" in page
    assert "<pre" not in page, "nothing scrolls in a narrow notebook"
    assert "-> pip install x" in found["text/plain"]
