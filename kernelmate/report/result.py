"""The result view: HTML of a search's or a kernel's result for notebook, panel, editor and page.

From the top: the verdict in words, three charts side by side, the figures that changed beside the changed lines, and
everything else folded. All text of files and models is escaped here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import PurePath

from kernelmate.records import (
    WITH_VALUES,
    Candidate,
    Diagnostic,
    Finding,
    FindingCode,
    Judged,
    Kernel,
    Optimization,
    Verdict,
)
from kernelmate.report import words
from kernelmate.report.chart import BASELINE, ChartVersion, candidate_labels
from kernelmate.report.diff import diff_lines, line_kind, other_diffs, whole_text
from kernelmate.report.drawing import Scene, picture
from kernelmate.report.excerpt import SourceLines, sources_of
from kernelmate.report.figures import MOST_VERSIONS
from kernelmate.report.html import bullets, case_row, code_line, figure_rows, message, pairs, table, text, toned
from kernelmate.report.result_charts import NARROW, result_scenes
from kernelmate.report.stages import stage_parts
from kernelmate.report.tables import provenance
from kernelmate.report.versions import all_rows, changed_rows, why_first

NARROW_VERSIONS = 2
"""Number of versions in a narrow chart: the baseline and the candidate in view."""

MOST_ROWS = 9
"""Largest number of rows in the table of changed figures; the folded table of all figures has the rest."""

WIDTH = 120
"""Width in characters of a source excerpt; a narrow page scrolls it."""

MOST_LISTED = 40
"""Largest number of other candidates to list."""

MOST_LINES = 400
"""Largest number of changed lines to show."""

ALIKE = 0.005
"""Relative difference of the objective's figure below which two versions are listed as one."""

ALIKE_PREDICTED = 0.02
"""The same for predicted figures, whose errors are larger."""

CASE_HEADS = ("size", "from", "result", "max error", "time", "first wrong")
ROW_HEADS = ("", BASELINE, "candidate", "change")

Draw = Callable[[Scene], str]
"""Renders a chart as an element."""


@dataclass(frozen=True, slots=True)
class EqualCandidates:
    """Candidates with equal figures, or that were rejected for the same reason, represented by the first of them.

    Attributes:
        numbers: their numbers in the search's order, from 1.
        first: the first of them.
    """

    numbers: tuple[int, ...]
    first: Judged


def style() -> str:
    """Returns the style sheet of the view, for elements of class `kernelmate`."""
    return resources.files("kernelmate.report").joinpath("result.css").read_text(encoding="utf-8")


def view(parts: Iterable[str]) -> str:
    """Returns the parts with their style sheet as one element."""
    return "\n".join([f'<div class="kernelmate"><style>{style()}</style>', *parts, "</div>"])


# -------------------------------------------------------------------------------------------------- candidates


def grouped(candidates: Sequence[Judged]) -> list[EqualCandidates]:
    """Returns the candidates in their order, grouped with the first one that has the same figures."""
    groups: list[EqualCandidates] = []
    for number, judged in enumerate(candidates, 1):
        place = next((place for place, one in enumerate(groups) if _alike(one.first.verdict, judged.verdict)), None)
        if place is None:
            groups.append(EqualCandidates((number,), judged))
        else:
            groups[place] = replace(groups[place], numbers=(*groups[place].numbers, number))
    return groups


def _alike(one: Verdict, other: Verdict) -> bool:
    if words.standing_because(one) != words.standing_because(other):
        return False
    if one.accepted is False:
        return True  # for the same reason
    left, right = one.objective, other.objective
    if left is None or right is None or left.after is None or right.after is None:
        return False
    if one.resources is None or other.resources is None or one.occupancy is None or other.occupancy is None:
        return False
    near = ALIKE_PREDICTED if left.basis == right.basis == "predicted" else ALIKE
    return (
        abs(left.after - right.after) <= near * abs(left.after)
        and one.occupancy.theoretical == other.occupancy.theoretical
        and words.shared_bytes(one.resources) == words.shared_bytes(other.resources)
    )


def charted_versions(optimization: Optimization, shown: int | None = None) -> list[ChartVersion]:
    """Returns the versions of the charts: the baseline, the shown candidate, and the next different ones.

    Args:
        optimization: the search's result.
        shown: number of the candidate in view, from 1; None for the first.
    """
    versions = [ChartVersion(BASELINE, optimization.baseline)]
    numbers = [one.numbers[0] for one in grouped(optimization.candidates)]
    if shown is not None:
        numbers = [shown, *(number for number in numbers if number != shown)]
    labels = candidate_labels(optimization.candidates)
    for number in numbers[: MOST_VERSIONS - 1]:
        versions.append(ChartVersion(labels[number - 1], optimization.candidates[number - 1].verdict))
    return versions


# ----------------------------------------------------------------------------------------------------- answer


def optimization_parts(
    optimization: Optimization,
    baseline: Kernel,
    *,
    shown: int | None = None,
    accepted: int | None = None,
    draw: Draw = picture,
    more: Sequence[str] = (),
) -> list[str]:
    """Returns the view of a search's result.

    Args:
        optimization: the result.
        baseline: the original kernel.
        shown: number of the candidate in view, from 1; None for the best one, or for none if none is worth taking.
        accepted: number of the candidate that a person has accepted; None if there is none.
        draw: renders a chart.
        more: parts that are folded below the figures.
    """
    number = shown if shown is not None else None if optimization.best is None else optimization.best + 1
    parts = _headline(optimization, number, accepted)
    if not optimization.candidates:
        return [*parts, *_findings_of(optimization.baseline, baseline), *bullets(optimization.notes)]
    versions = charted_versions(optimization, number)
    drawn = [*charts(versions, draw), *narrow_charts(versions if number is None else versions[:NARROW_VERSIONS], draw)]
    if number is None:
        tried = [one.verdict for one in optimization.candidates]
        wrong = all(verdict.correct is False or not verdict.compiled for verdict in tried)
        answer = (
            [*_others(optimization, None, opened=True), *folded("charts", "Charts", drawn)]
            if wrong
            else [*drawn, *_others(optimization, None, opened=True)]
        )
        notes = [_provenance(optimization.baseline), *bullets(optimization.notes), *more]
        return [*parts, *answer, *folded("notes", "Notes", notes)]
    parts += drawn
    judged = optimization.candidates[number - 1]
    changed = changed_table(optimization.baseline, judged.verdict)
    why = [
        f'<p class="why">{text(judged.candidate.why)}</p>',
        *_trade_offs(judged.verdict),
        *_alternatives(judged.verdict),
    ]
    why += _why_first(optimization, number)
    parts += ['<div class="columns"><div>', *changed, *why, *_others(optimization, number), "</div>"]
    parts += [*changes(baseline, judged.candidate), "</div>"]
    return [*parts, *_everything(optimization, judged, more)]


def _headline(optimization: Optimization, number: int | None, accepted: int | None) -> list[str]:
    """Returns the verdict in words, and how the prompt was read.

    The attribute `data-candidate` has the number of the candidate in view.
    """
    objective, baseline = optimization.objective, optimization.baseline
    named = ""
    if number is None:
        tried = len(optimization.candidates)
        said = "No candidate is worth taking" if tried else "Nothing was changed"
        head = f"{toned(said, 'doubt')} ({tried} tried)" if tried else toned(said, "doubt")
    else:
        judged = optimization.candidates[number - 1]
        name = candidate_labels(optimization.candidates)[number - 1]
        head = headline(judged.verdict, name, accepted=number == accepted)
        named = _marked(number, judged)
    asked = f"“{text(objective.prompt)}”: {text(objective.reading)}"
    of_kernel = f'<span class="of"><strong>{text(words.kernel_words(baseline))}</strong>, </span>'
    return [f'<p class="verdict"{named}>{head}</p>', f'<p class="faint asked">{of_kernel}{asked}</p>']


def _marked(number: int, judged: Judged) -> str:
    """Returns the attribute that gives an element's candidate number; empty for a candidate that did not compile."""
    return f' data-candidate="{number}"' if judged.verdict.compiled else ""


def headline(verdict: Verdict, name: str, *, accepted: bool = False) -> str:
    """Returns a candidate's verdict as one line: `Ready to accept: 1.42x [1.40, 1.44] faster, right on 14 cases`."""
    standing: tuple[str, words.Tone] = ("accepted", "good") if accepted else words.standing_because(verdict)
    word, tone = standing
    gain, right = words.gain_sentence(verdict), words.cases_sentence(verdict)
    facts = [text(gain)] if gain and tone != "bad" else []
    facts.append(toned(*right) if right[1] == "bad" else text(right[0]))
    return f'{toned(word[:1].upper() + word[1:], tone)}: {", ".join(facts)} <span class="faint">(<code>{text(name)}</code>)</span>'


def charts(versions: Sequence[ChartVersion], draw: Draw = picture) -> list[str]:
    """Returns the charts of versions: side by side from a page width of 860 pixels, stacked below 480 pixels."""
    return _figures('class="charts"', result_scenes(versions), draw)


def narrow_charts(versions: Sequence[ChartVersion], draw: Draw = picture) -> list[str]:
    """Returns the charts for page widths of 480 to 860 pixels, which are shown in place of the wide ones.

    They are hidden on pages without the style sheet, such as untrusted notebooks. Such notebooks also drop a `hidden`
    attribute without a value.
    """
    return _figures('class="charts narrow" hidden="hidden"', result_scenes(versions, NARROW), draw)


def _figures(attributes: str, scenes: Sequence[Scene], draw: Draw) -> list[str]:
    drawn = (f"<figure><figcaption>{text(scene.title)}</figcaption>{draw(scene)}</figure>" for scene in scenes)
    return [f"<div {attributes}>", *drawn, "</div>"] if scenes else []


def changed_table(before: Verdict, after: Verdict) -> list[str]:
    """Returns a table of the figures that changed, the most important first."""
    rows = changed_rows(before, after)
    if not rows:
        return ['<p class="faint">No figure changed.</p>']
    return _rows(rows[:MOST_ROWS])


def _rows(rows: Iterable[Sequence[str]]) -> list[str]:
    cells = ([f'<span class="predicted">{text(one)}</span>' if "predicted" in row[0] else text(one) for one in row] for row in rows)  # fmt: skip
    return table(ROW_HEADS, cells)


def changes(before: Kernel, candidate: Candidate) -> list[str]:
    """Returns the changed lines; about thirty are in view, the rest scrolls."""
    lines = diff_lines(whole_text(before), whole_text(candidate.kernel), before.unit.path)[2:]
    others = other_diffs(candidate)
    if not lines and not others:
        return ['<p class="faint">The text is the same; only the launch differs.</p>']
    for one in others:
        lines += [f"@@ {PurePath(one.path).name} @@", *diff_lines(one.before, one.after, one.path)[2:]]
    spans = [code_line(line, line_kind(line, index + 2)) for index, line in enumerate(lines[:MOST_LINES])]
    if len(lines) > MOST_LINES:
        spans.append(f'<span class="hunk">{text(words.plural(len(lines) - MOST_LINES, "more line"))}</span>')
    return [f'<pre class="diff" tabindex="0" aria-label="What it changes">{"".join(spans)}</pre>']


def _why_first(optimization: Optimization, number: int) -> list[str]:
    """Returns the reason that the candidate in view is first if it is the best and others have shorter times; else empty."""
    said = why_first(optimization) if number - 1 == optimization.best else None
    return [] if said is None else [f'<p class="faint">{text(said)}</p>']


def _alternatives(verdict: Verdict) -> list[str]:
    """Returns a line for each library that computes the same."""
    return [f'<p class="against">{text(name)}: {text(said)}</p>' for name, said in words.alternative_rows(verdict)]


def _trade_offs(verdict: Verdict) -> list[str]:
    said = "; ".join(verdict.trade_offs)
    return [f'<p class="trade">Worse for it: {text(said)}.</p>'] if said else []


# ------------------------------------------------------------------------------------------- everything else


def _others(optimization: Optimization, number: int | None, *, opened: bool = False) -> list[str]:
    """Returns a list of the candidates that are not in view, one line for each group of equal ones."""
    groups = [one for one in grouped(optimization.candidates) if number not in one.numbers]
    twins = [one for one in grouped(optimization.candidates) if number in one.numbers and len(one.numbers) > 1]
    shown = (groups + twins)[:MOST_LISTED]
    if not shown:
        return []
    count = sum(len(one.numbers) for one in groups) + sum(len(one.numbers) - 1 for one in twins)
    labels = candidate_labels(optimization.candidates)
    lines = [_line(one, number, labels) for one in shown]
    inside = ['<ul class="others">', *lines, "</ul>"]
    title = words.plural(count, "candidate" if number is None else "other candidate")
    return folded("others", title, inside, opened=opened)


def _line(one: EqualCandidates, number: int | None, labels: Sequence[str]) -> str:
    verdict = one.first.verdict
    numbers = [other for other in one.numbers if other != number]
    (word, tone), said = words.standing(verdict), words.standing_because(verdict)[0]
    gain = words.gain_sentence(verdict, concluded=not verdict.undecided) if tone != "bad" else ""
    same = ", ".join(f"<span{_marked(other, one.first)}>{other}</span>" for other in numbers[1:])
    alike = f" (alike: {same})" if same else ""
    facts = f"{text(gain)}, " if gain else ""
    name = f"<code{_marked(numbers[0], one.first)}>{text(labels[numbers[0] - 1])}</code>"
    return f"<li>{name}{alike} {facts}{toned(word, tone)}{text(said.removeprefix(word))}</li>"


def _everything(optimization: Optimization, judged: Judged, more: Sequence[str]) -> list[str]:
    """Returns all figures, all sizes, reasons and notes, folded."""
    verdict = judged.verdict
    inside = [_provenance(optimization.baseline), *_rows(all_rows(optimization.baseline, verdict))]
    inside += stage_parts(verdict) or stage_parts(optimization.baseline)
    inside += table(CASE_HEADS, [case_row(case, verdict) for case in verdict.cases]) if verdict.cases else []
    inside += [*bullets(words.further_reasons(verdict)), *bullets(optimization.notes), *more]
    return folded("all", "All figures, sizes and notes", inside)


def folded(key: str, title: str, inside: Sequence[str], *, opened: bool = False) -> list[str]:
    """Returns a collapsible section; its key identifies it when the page is drawn again, as the title may change."""
    head = f'<details data-fold="{key}"{" open" if opened else ""}><summary>{text(title)}</summary>'
    return [head, *inside, "</details>"]


def _provenance(verdict: Verdict) -> str:
    return f'<p class="faint">{text(provenance(verdict))}</p>'


# --------------------------------------------------------------------------------------------- one kernel alone


def verdict_parts(
    verdict: Verdict,
    sources: SourceLines,
    *,
    draw: Draw = picture,
    more: Sequence[str] = (),
    before: ChartVersion | None = None,
) -> list[str]:
    """Returns the view of a kernel judged by itself.

    A kernel that is not good shows its first finding with its line, and everything else folded.

    Args:
        verdict: the verdict.
        sources: the lines that findings refer to.
        draw: renders a chart.
        more: parts that are folded below the figures.
        before: an earlier version to compare with; None if there is none.
    """
    name = words.kernel_words(verdict)
    versions = [*([] if before is None else [before]), ChartVersion(name, verdict)]
    drawn = [*charts(versions, draw), *narrow_charts(versions, draw)] if verdict.compiled else []
    drawn += changed_table(before.verdict, verdict) if before is not None else []
    figures = [_provenance(verdict), *(pairs(figure_rows(verdict)) if verdict.compiled else [])]
    stages = stage_parts(verdict)
    figures += table(CASE_HEADS, [case_row(case, verdict) for case in verdict.cases]) if verdict.cases else []
    figures += [*bullets(words.further_reasons(verdict)), *more]
    found = _findings(verdict, sources)
    error = next((one for one in verdict.findings if one.severity == "error"), None)
    said = standing_alone(verdict, counted=error is None or error.stage is not None or error.code not in WITH_VALUES)
    head = [f'<p class="verdict"><strong>{text(name)}</strong> {said}</p>']
    if verdict.accepted is False:
        more_findings = words.plural(len(found) - 1, "more finding")
        rest = folded("findings", more_findings, _flat(found[1:])) if len(found) > 1 else []
        return [
            *head,
            *_flat(found[:1]),
            *rest,
            *stages,
            *folded("all", "Charts, figures and sizes", [*drawn, *figures]),
        ]
    return [
        *head,
        *_flat(found),
        *_alternatives(verdict),
        *stages,
        *drawn,
        *folded("all", "All figures and sizes", figures),
    ]


def standing_alone(verdict: Verdict, *, counted: bool = True) -> str:
    """Returns the standing of a kernel judged by itself, with its cases and its time.

    Args:
        verdict: the verdict.
        counted: False to leave out the cases, if a finding below states the number of wrong sizes.
    """
    facts = [toned(*words.standing(verdict, candidate=False))]
    if verdict.compiled and counted:
        word, tone = words.cases_sentence(verdict)
        facts.append(toned(word, tone) if tone == "bad" else text(word))
    if verdict.timing is not None and verdict.accepted is not False:
        said = text(words.timing_words(verdict.timing))
        facts.append(f'<span class="predicted">{said}</span>' if verdict.timing.kind == "predicted" else said)
    return ", ".join(facts)


def _findings_of(verdict: Verdict, kernel: Kernel) -> list[str]:
    """Returns the first finding of the kernel, for a search without candidates."""
    return _flat(_findings(verdict, sources_of(kernel))[:1])


def _flat(parts: Iterable[Sequence[str]]) -> list[str]:
    return [line for part in parts for line in part]


def _findings(verdict: Verdict, sources: SourceLines) -> list[list[str]]:
    """Returns diagnostics and findings with their source lines; the first wrong one also has the wrong values."""
    told = not verdict.diagnostics
    shown: list[Diagnostic | Finding] = [*verdict.diagnostics]
    shown += [one for one in verdict.findings if told or one.code != FindingCode.COMPILE_ERROR]
    # Errors first: they say why the kernel is not good.
    shown.sort(key=lambda one: one.severity != "error")
    wrong = next((case for case in verdict.cases if case.correct is False and case.first_wrong is not None), None)
    blocks = []
    for place, one in enumerate(shown):
        # The file that the page is about needs no folder.
        given = one.file is not None and sources.given(one.file)
        file = one.file if one.file is None or not given else PurePath(one.file).name if one.line is not None else None
        severity, code, where, what = message(one.severity, one.code or "", one.message, file, one.line, one.column)
        where = f"<span{_at(sources, one.file, one.line)}>{where}</span>" if file is not None else ""
        lines = [f'<div class="finding of-{one.severity}">{severity} {code} {where}<div>{what}</div>']
        excerpt = sources.excerpt(one.file, one.line, one.column, WIDTH)
        by_stage = isinstance(one, Finding) and one.stage is not None and one.code == FindingCode.WRONG_VALUES
        if isinstance(one, Finding) and (one.line is None or by_stage) and one.buffer is not None:
            kernel = verdict.kernel if one.stage is None else one.stage.partition(" #")[0]
            stored = sources.last_store(one.file, kernel, one.buffer)
            if stored is not None:
                excerpt, store = sources.excerpt(one.file, *stored, WIDTH), f"line {stored[0]}"
                store = f"<span{_at(sources, one.file, stored[0])}>{store}</span>"
                lines.append(f'<p class="faint">the last store to <code>{text(one.buffer)}</code>, {store}:</p>')
        if excerpt:
            lines.append(f"<pre>{''.join(map(code_line, excerpt))}</pre>")
        if place == 0 and wrong is not None and one.code not in WITH_VALUES:
            lines.append(
                f"<p>at {text(words.size_words(wrong.size) if wrong.size else 'its only size')}: <code>{text(words.wrong_words(wrong.first_wrong))}</code></p>"
            )
        blocks.append([*lines, "</div>"])
    return blocks


def _at(sources: SourceLines, file: str | None, line: int | None) -> str:
    """Returns the attribute that links an element to a line of the page's text; empty if the line has changed."""
    present = sources.present(file, line)
    return "" if present is None else f' data-line="{present}"'
