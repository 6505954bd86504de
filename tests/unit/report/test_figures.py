"""Charts: what is drawn for which verdict, and how predicted differs from measured."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernelmate.records import Optimization, Timing, Verdict
from kernelmate.report.figures import (
    CLEAR,
    MOST_VERSIONS,
    Shown,
    correctness_figure,
    counters_figure,
    figures,
    occupancy_figure,
    resources_figure,
    template,
    versions_of,
)
from kernelmate.report.time_chart import timing_figure


@pytest.fixture
def versions(optimization: Optimization) -> list[Shown]:
    return versions_of(optimization)


def test_versions_are_numbered_as_in_the_tables(versions: list[Shown]) -> None:
    assert [one.label for one in versions] == [
        "baseline", "1 shrink-shared-tile (best)", "2 block-size", "3 drop-barrier", "4 local:some-model",
    ]  # fmt: skip


def test_a_chart_holds_no_more_versions_than_can_be_read(optimization: Optimization) -> None:
    many = replace(optimization, candidates=optimization.candidates * 10)
    assert len(versions_of(many)) == MOST_VERSIONS


def test_the_heat_map_tells_right_from_wrong_and_names_the_failing_size(versions: list[Shown]) -> None:
    figure = correctness_figure(versions)
    assert figure is not None
    cells = figure.data[0]
    row = cells.y.index("rows=37 cols=853")
    assert list(cells.text[row]) == ["right", "right", "right", "WRONG", "not run"]
    assert list(cells.z[row]) == [3, 3, 3, 0, 1]
    assert figure.layout.annotations[0].text == "wrong at: rows=37 cols=853"


def test_predicted_times_are_hollow_and_hatched_and_measured_ones_solid(make: SimpleNamespace) -> None:
    measured = make.verdict(timing=Timing("measured", 10.0, (9.9, 10.2), None, None, 400, 1980, False))
    figure = timing_figure([Shown("baseline", measured), Shown("1 x", make.verdict())])
    assert figure is not None
    solid, _, hollow, _ = figure.data
    assert solid.name == "measured"
    assert solid.marker.pattern.shape is None
    assert CLEAR not in solid.marker.color
    assert "predicted, not measured" in hollow.name
    assert hollow.marker.color == CLEAR
    assert hollow.marker.pattern.shape == "/"
    assert figure.data[1].text == (" 10 us measured",)
    assert figure.data[3].text == (" ~12.1 us predicted",)


def test_what_was_predicted_of_a_measured_time_stands_beside_it_hollow(make: SimpleNamespace) -> None:
    measured = Timing("measured", 10.0, (9.9, 10.2), None, None, 400, 1980, False)
    verdict = make.verdict(timing=measured, predicted=make.verdict().timing)
    figure = timing_figure([Shown("baseline", verdict)])
    assert figure is not None
    solid, text, beside = figure.data
    assert solid.marker.pattern.shape is None
    assert text.text == (" 10 us measured, 0.826x the predicted",)
    assert beside.marker.symbol == "diamond-open"
    assert "predicted" in beside.name
    assert list(beside.x) == [12.1]
    assert text.x[0] >= 24.2


def test_an_interval_without_an_end_can_be_drawn(make: SimpleNamespace) -> None:
    timing = Timing("predicted", 5.0, (1.0, float("inf")), None, None, None, None, None)
    figure = timing_figure([Shown("baseline", make.verdict(timing=timing))])
    assert figure is not None
    assert "Infinity" not in figure.to_json()
    assert figure.data[0].error_x.array == (0.0,)


def test_occupancy_names_its_limiter(versions: list[Shown]) -> None:
    figure = occupancy_figure(versions)
    assert figure is not None
    assert figure.data[0].text[:2] == ("75%, limited by registers", "100%, limited by threads per SM")
    assert len(figure.data[0].y) == 4


def test_versions_that_did_not_compile_are_left_out_of_bars(versions: list[Shown]) -> None:
    for maker in (resources_figure, counters_figure):
        figure = maker(versions)
        assert figure is not None
        assert all("4 local:some-model" not in trace.y for trace in figure.data)


def test_there_is_no_chart_of_nothing(broken: Verdict) -> None:
    assert figures([Shown("baseline", broken)]) == {}


def test_labels_are_no_markup(make: SimpleNamespace) -> None:
    evil = make.verdict(cases=(make.case({"<a href='http://x'>n</a>": 1}),))
    figure = correctness_figure([Shown("<b>evil</b>", evil)])
    assert figure is not None
    assert figure.data[0].x == ("&lt;b&gt;evil&lt;/b&gt;",)
    assert "<a" not in figure.data[0].y[0]


def test_light_and_dark_differ_in_ink_and_share_a_clear_ground() -> None:
    light, dark = template(dark=False)["layout"], template(dark=True)["layout"]
    assert light["font"]["color"] != dark["font"]["color"]
    assert light["paper_bgcolor"] == dark["paper_bgcolor"] == CLEAR
