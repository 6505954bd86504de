"""Charts: what is drawn for which verdict, and how predicted differs from measured."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kernelmate.records import Optimization, Timing, Verdict
from kernelmate.report.chart import CLEAR, ChartVersion, template
from kernelmate.report.figures import (
    MOST_VERSIONS,
    correctness_figure,
    counters_figure,
    figures,
    occupancy_figure,
    resources_figure,
    timing_figure,
    versions_of,
)
from tests.plotly_schema import taken


@pytest.fixture
def versions(optimization: Optimization) -> list[ChartVersion]:
    return versions_of(optimization)


def test_versions_are_numbered_as_in_the_tables(versions: list[ChartVersion]) -> None:
    assert [one.label for one in versions] == [
        "baseline", "1 shrink-shared-tile", "2 block-size", "3 drop-barrier",
    ]  # fmt: skip


def test_a_chart_holds_no_more_versions_than_can_be_read(optimization: Optimization) -> None:
    many = replace(optimization, candidates=optimization.candidates * 10)
    assert len(versions_of(many)) == MOST_VERSIONS


def test_errors_stand_on_a_log_axis_with_wrong_sizes_apart_and_named(versions: list[ChartVersion]) -> None:
    figure = taken(correctness_figure(versions))
    assert figure.layout.xaxis.type == "log"
    good, wrong = figure.data[0], figure.data[3]
    assert list(good.x) == [0.021] * 4, "a degenerate size has no error"
    assert set(good.marker.symbol) == {"circle"}
    assert [symbol for symbol in wrong.marker.symbol if symbol == "diamond"] == ["diamond"]
    assert "want 0.0011, got nan" in wrong.customdata[1]
    assert figure.layout.xaxis.title.text.endswith("<br>wrong at: rows=37 cols=853")


def test_predicted_times_are_hollow_and_hatched_and_measured_ones_solid(make: SimpleNamespace) -> None:
    measured = make.verdict(timing=Timing("measured", 10.0, (9.9, 10.2), None, None, 400, 1980, False))
    figure = taken(timing_figure([ChartVersion("baseline", measured), ChartVersion("1 x", make.verdict())]))
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
    figure = taken(timing_figure([ChartVersion("baseline", verdict)]))
    solid, text, beside = figure.data
    assert solid.marker.pattern.shape is None
    assert text.text == (" 10 us measured, 0.826x the predicted",)
    assert beside.marker.symbol == "diamond-open"
    assert "predicted" in beside.name
    assert list(beside.x) == [12.1]
    assert text.x[0] >= 24.2


def test_an_interval_without_an_end_can_be_drawn(make: SimpleNamespace) -> None:
    timing = Timing("predicted", 5.0, (1.0, float("inf")), None, None, None, None, None)
    figure = taken(timing_figure([ChartVersion("baseline", make.verdict(timing=timing))]))
    assert "Infinity" not in figure.to_json()
    assert figure.data[0].error_x.array == (0.0,)


def test_occupancy_names_its_limiter(versions: list[ChartVersion]) -> None:
    figure = taken(occupancy_figure(versions))
    assert figure.data[0].text[:2] == ("75%, limited by registers", "100%, limited by threads per SM")
    assert len(figure.data[0].y) == 4


def test_versions_that_did_not_compile_are_left_out_of_bars(versions: list[ChartVersion]) -> None:
    broken = ChartVersion("broken", replace(versions[1].verdict, compiled=False, resources=None, counters=None))
    for maker in (resources_figure, counters_figure):
        figure = taken(maker([*versions, broken]))
        assert all("broken" not in trace.y for trace in figure.data)


def test_there_is_no_chart_of_nothing(broken: Verdict) -> None:
    assert figures([ChartVersion("baseline", broken)]) == {}


def test_labels_are_no_markup(make: SimpleNamespace) -> None:
    evil = make.verdict(cases=(make.case({"<a href='http://x'>n</a>": 1}),))
    figure = taken(correctness_figure([ChartVersion("<b>evil</b>", evil)]))
    assert figure.data[0].y == ("&lt;b&gt;evil&lt;/b&gt;",)
    assert "<a" not in figure.data[0].customdata[0]


def test_light_and_dark_differ_in_ink_and_share_a_clear_ground() -> None:
    light, dark = template(dark=False)["layout"], template(dark=True)["layout"]
    assert light["font"]["color"] != dark["font"]["color"]
    assert light["paper_bgcolor"] == dark["paper_bgcolor"] == CLEAR


def test_every_chart_is_of_plotlys_schema(optimization: Optimization) -> None:
    drawn = figures(versions_of(optimization))
    assert len(drawn) == 5
    for figure in drawn.values():
        assert taken(figure).data


def test_small_charts_stand_three_in_a_row_and_share_the_names_before_them(versions: list[ChartVersion]) -> None:
    layout = taken(counters_figure(versions)).layout
    assert layout.xaxis.domain[0] == 0
    assert layout.xaxis3.domain[1] == pytest.approx(1)
    assert layout.xaxis.domain[1] < layout.xaxis2.domain[0]
    assert layout.yaxis.domain[1] == pytest.approx(1)
    assert layout.yaxis4.domain[0] == pytest.approx(0)
    assert layout.yaxis.domain[0] > layout.yaxis4.domain[1]
    assert [layout[f"yaxis{place}"].matches for place in ("", 2, 3, 4, 5)] == [None, "y", "y", None, "y4"]
    heads = layout.annotations
    assert [head.text for head in heads][:2] == ["global bytes moved", "global load sectors"]
    assert heads[3].y == layout.yaxis4.domain[1]


def test_charts_need_no_plotly_to_be_made(versions: list[ChartVersion], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "plotly", None)
    assert len(figures(versions)) == 5
