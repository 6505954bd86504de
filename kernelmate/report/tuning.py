"""Views of `tune`: the table of versions by size, the dispatch rule as a sentence, and the chart."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType
from rich.text import Text

from kernelmate.records import Kernel, Tuned, TunedVersion
from kernelmate.report.chart import Figure, Trace, safe, with_layout
from kernelmate.report.console import lines, table
from kernelmate.report.html import bullets, text
from kernelmate.report.html import table as html_table
from kernelmate.report.words import number, plural, size_words, time_words

COLORS = ("#6E6E6E", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")
"""Colours of Okabe and Ito; the kernel itself is grey."""


def tuned_view(tuned: Tuned) -> list[RenderableType]:
    """Shows the table, its legend, the rule and the notes."""
    mark = "~" if tuned.kind == "predicted" else ""
    letters = [_letter(index) for index in range(len(tuned.versions))]
    made = table("size", *letters, "launch", "gain", right=range(1, len(letters) + 1))
    for index, size in enumerate(tuned.sizes):
        chosen, times = tuned.chosen[index], [version.times_us[index] for version in tuned.versions]
        cells = [
            Text("-" if time is None else f"{mark}{time_words(time)}", style="bold green" if n == chosen else "")
            for n, time in enumerate(times)
        ]
        best = None if chosen is None else times[chosen]
        gain = "-" if times[0] is None or best is None else f"{mark}{number(times[0] / best)}x"
        made.add_row(size_words(size), *cells, "-" if chosen is None else letters[chosen], gain)
    names = [f"{letters[index]}  {label(version)}" for index, version in enumerate(tuned.versions)]
    shown: list[RenderableType] = [made, "", lines(names, bullet="  "), ""]
    shown.append(lines([rule_words(tuned), f"Times are {tuned.kind} for {tuned.target}.", *tuned.notes]))
    return shown


def rule_words(tuned: Tuned) -> str:
    """Describes the sizes at which the choice changes, in one sentence."""
    rule, letters = tuned.rule, [_letter(index) for index in range(len(tuned.versions))]
    if rule is None:
        return "No single size, and no product of sizes, separates the versions."
    if len(rule.versions) == 1:
        return f"{letters[rule.versions[0]]} is the best, or within 3 % of it, at every size."
    parts = [f"{letters[rule.versions[0]]} below {rule.measure} = {rule.bounds[0]}"]
    for index, version in enumerate(rule.versions[1:]):
        last = index == len(rule.bounds) - 1
        parts.append(
            f"{letters[version]} from {rule.bounds[index]}" + ("" if last else f" to {rule.bounds[index + 1] - 1}")
        )
    crossings = plural(len(rule.bounds), "crossover")
    return f"Launch {', '.join(parts)}: {crossings}; no size between those of the table was timed."


def label(version: TunedVersion) -> str:
    """Returns a version's display name."""
    return "the kernel itself" if version.author is None else version.author


def tuned_figure(tuned: Tuned) -> Figure:
    """Returns the time of each version over the sizes; time is logarithmic, sizes too if a single size name varies."""
    names = [name for name in tuned.sizes[0] if len({size[name] for size in tuned.sizes}) > 1]
    alone = names[0] if len(names) == 1 else None
    places: Sequence[int | str] = [size[alone] if alone else size_words(size) for size in tuned.sizes]
    dash = "dot" if tuned.kind == "predicted" else "solid"
    data: list[Trace] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": safe(f"{_letter(index)} {label(version)}"),
            "x": list(places),
            "y": list(version.times_us),
            "line": {"dash": dash, "color": COLORS[index % len(COLORS)]},
            "marker": {"size": 7, "symbol": "circle-open" if tuned.kind == "predicted" else "circle"},
        }
        for index, version in enumerate(tuned.versions)
    ]
    axis = {
        "title": {"text": safe(alone or "size")},
        **({"type": "log", "tickvals": list(places), "ticktext": [f"{place:,}" for place in places]} if alone else {}),
    }
    return with_layout(
        data, 420, xaxis=axis, yaxis={"title": {"text": f"us, {tuned.kind}"}, "type": "log"},
        legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 0}, showlegend=True,
    )  # fmt: skip


def tuned_page(tuned: Tuned, kernel: Kernel) -> str:
    """Returns the page's HTML: chart, rule, and the text of every version.

    Raises:
        EnvironmentFailed: plotly is not installed.
    """
    from kernelmate.report.page import chart, document

    letters = [_letter(index) for index in range(len(tuned.versions))]
    mark = "~" if tuned.kind == "predicted" else ""
    rows = []
    for index, (size, chosen) in enumerate(zip(tuned.sizes, tuned.chosen, strict=True)):
        times = [version.times_us[index] for version in tuned.versions]
        cells = ["-" if time is None else f"{mark}{time_words(time)}" for time in times]
        rows.append([text(size_words(size)), *cells, "-" if chosen is None else letters[chosen]])
    parts = [
        f"<h1>{text(kernel.name)} by size</h1>",
        f'<p class="faint">Times are {tuned.kind} for {text(tuned.target)}.</p>',
        f"<p>{text(rule_words(tuned))}</p>",
        *chart("Time by size", tuned_figure(tuned)),
        *html_table(["size", *letters, "launch"], rows),
    ]
    for index, version in enumerate(tuned.versions):
        parts += [f"<h2>{letters[index]} {text(label(version))}</h2>", f"<p>{text(version.why)}</p>"]
        parts.append(f'<div class="scroll"><pre>{text(version.kernel.source)}</pre></div>')
    return document(f"{kernel.name} by size", [*parts, *bullets(tuned.notes)])


def _letter(index: int) -> str:
    return chr(ord("A") + index)
