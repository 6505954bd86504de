"""The table of a pipeline's stages, for the terminal and for pages: one line for each stage, and one for their sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import RenderableType
from rich.table import Table

from kernelmate.records import StageVerdict, Verdict
from kernelmate.report import html
from kernelmate.report.console import indented, lines, table, toned
from kernelmate.report.words import (
    Tone,
    byte_words,
    case_time_words,
    global_bytes,
    number,
    percent,
    shared_bytes,
)

NONE = "-"

_LAUNCH, _TIME = "blocks x threads", "predicted time"
JUDGED = ("stage", _LAUNCH, "result", "moved", "written", "read", _TIME)
COMPILED = ("stage", _LAUNCH, "regs", "shared", "occupancy")
_LEFT = ("stage", _LAUNCH, "result")

LEGEND = "written, read: bytes of temporaries between stages; time: of a stage launched alone, which costs more than in a sequence"

TOTAL = "in total"


def stage_table(verdict: Verdict) -> list[RenderableType]:
    """Returns the stages of a pipeline for the terminal; nothing for a kernel."""
    heads, rows = stage_rows(verdict)
    if not rows:
        return []
    made: Table = table(*heads, right=[place for place, head in enumerate(heads) if head not in _LEFT])
    for row in rows:
        cells = []
        for head, (word, tone) in zip(heads, row, strict=True):
            cell = toned(word, tone)
            if head == _TIME:
                cell.stylize("italic")
            cells.append(cell)
        made.add_row(*cells)
    said = [*([LEGEND] if verdict.cases else []), *unjudged(verdict)]
    return [indented(made), *([indented(lines(said))] if said else [])]


def stage_parts(verdict: Verdict) -> list[str]:
    """Returns the stages of a pipeline as HTML; nothing for a kernel."""
    heads, rows = stage_rows(verdict)
    if not rows:
        return []
    cells = [[_html_cell(head, word, tone) for head, (word, tone) in zip(heads, row, strict=True)] for row in rows]
    return [*html.table(heads, cells), *html.bullets([*([LEGEND] if verdict.cases else []), *unjudged(verdict)])]


def _html_cell(head: str, word: str, tone: Tone) -> str:
    if head == "stage" and word != TOTAL:
        return f"<code>{html.text(word)}</code>"
    word = word if head in _LEFT else word.replace(" ", "\N{NO-BREAK SPACE}")
    if head == _TIME and word != NONE:
        return f'<span class="predicted">{html.text(word)}</span>'
    return html.text(word) if tone == "plain" else html.toned(word, tone)


def unjudged(verdict: Verdict) -> list[str]:
    """Returns a sentence for each kernel that was not compared by itself, with the reason."""
    return [
        f"{one.name} was not judged by itself: {one.unjudged}"
        for one in verdict.stages or ()
        if one.unjudged is not None and one.expression is None
    ]


def stage_rows(verdict: Verdict) -> tuple[Sequence[str], list[list[tuple[str, Tone]]]]:
    """Returns the heads and rows of the table; no rows for a kernel."""
    stages = verdict.stages or ()
    if not verdict.cases:
        return COMPILED, [_compiled_row(one) for one in stages]
    return JUDGED, [_judged_row(one) for one in stages] + ([_total(verdict, stages)] if stages else [])


def _launch(stage: StageVerdict) -> str:
    """Returns the blocks and threads of a launch, or what a library computes."""
    if stage.expression is not None:
        return stage.expression
    if stage.grid is None or stage.block is None:
        return NONE
    return f"{number(math.prod(stage.grid))} x {number(math.prod(stage.block))}"


def _compiled_row(stage: StageVerdict) -> list[tuple[str, Tone]]:
    resources, occupancy = stage.resources, stage.occupancy
    return _plain(
        [
            stage.name,
            _launch(stage),
            NONE if resources is None else number(resources.registers),
            NONE if resources is None else byte_words(shared_bytes(resources)),
            NONE if occupancy is None else percent(occupancy.theoretical),
        ]
    )


def _judged_row(stage: StageVerdict) -> list[tuple[str, Tone]]:
    results: dict[bool | None, tuple[str, Tone]] = {
        True: ("right", "good"),
        False: ("WRONG", "bad"),
        None: ("not judged", "plain"),
    }
    figures = [
        _bytes(global_bytes(stage.counters)),
        _bytes(stage.temporaries_written_bytes),
        _bytes(stage.temporaries_read_bytes),
        NONE if stage.timing is None else case_time_words(stage.timing.median_us, stage.timing),
    ]
    return [*_plain([stage.name, _launch(stage)]), results[stage.correct], *_plain(figures)]


def _total(verdict: Verdict, stages: Sequence[StageVerdict]) -> list[tuple[str, Tone]]:
    predicted, time = verdict.predicted or verdict.timing, NONE
    if predicted is not None and predicted.kind == "predicted":
        time = case_time_words(predicted.median_us, predicted)
    figures = [
        _bytes(global_bytes(verdict.counters)),
        _bytes(_sum([one.temporaries_written_bytes for one in stages])),
        _bytes(_sum([one.temporaries_read_bytes for one in stages])),
        time,
    ]
    return _plain([TOTAL, "", "", *figures])


def _sum(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _bytes(value: int | None) -> str:
    return NONE if value is None else byte_words(value)


def _plain(texts: Sequence[str]) -> list[tuple[str, Tone]]:
    return [(text, "plain") for text in texts]
