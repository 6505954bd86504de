"""The stand-alone page of one optimisation: charts, diffs, verdicts, in one file that asks the network for nothing.

Kernel text, reasons and names come from files and models, so all of it is escaped, and the page's own policy lets no
script run but the two that it was written with.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from kernelmate.errors import EnvironmentFailed
from kernelmate.records import Case, Finding, Judged, Kernel, Optimization, Verdict
from kernelmate.report import words
from kernelmate.report.diff import diff_lines, line_kind, whole_text
from kernelmate.report.figures import MOST_VERSIONS, figures, template, versions_of
from kernelmate.report.hardware import hardware_rows
from kernelmate.report.roofline import roofline_words
from kernelmate.version import VERSION


def write_page(path: Path, optimization: Optimization, baseline: Kernel) -> None:
    """Write the page, all of it or nothing.

    Raises:
        EnvironmentFailed: plotly is not installed.
        OSError: the file cannot be written.
    """
    text = page(optimization, baseline)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def page(optimization: Optimization, baseline: Kernel) -> str:
    """The page's HTML.

    Raises:
        EnvironmentFailed: plotly is not installed.
    """
    charts = figures(versions_of(optimization))
    library, own = _plotly_js(), _resource("page.js")
    name = words.kernel_words(optimization.baseline)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(library, own)}">',
        f"<title>{_text(name)}: {_text(optimization.objective.prompt)}</title>",
        f"<style>{_resource('page.css')}</style></head><body>",
        *_head(optimization, baseline),
        *_candidates(optimization),
        *_charts(charts, optimization),
        "<h2>Every version</h2>",
        *_version("baseline", optimization.baseline, None, opened=False),
        *(
            line
            for index, judged in enumerate(optimization.candidates)
            for line in _candidate(index, judged, optimization, baseline)
        ),
        f"<footer>KernelMate {_text(VERSION)}. Predicted is not measured: a predicted time is to be confirmed on a "
        "GPU.</footer>",
        f'<script type="application/json" id="templates">{_data({"light": template(dark=False), "dark": template(dark=True)})}</script>',
        f"<script>{library}</script><script>{own}</script>",
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _text(text: object) -> str:
    """Text as it may stand anywhere in the page, attributes included."""
    return escape(words.printable(str(text)), quote=True)


def _data(value: object) -> str:
    """JSON that cannot end the script element it stands in."""
    shown = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
    return shown.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    # Plotly sets styles on the elements that it makes, and draws its exported picture from a blob.
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"


def _plotly_js() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise EnvironmentFailed(
            "The page needs plotly, which is not installed.", hint="pip install 'kernelmate[report]'"
        ) from error
    library: str = get_plotlyjs()
    return library


def _resource(name: str) -> str:
    return resources.files("kernelmate.report").joinpath(name).read_text(encoding="utf-8")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ------------------------------------------------------------------------------------------------------- parts


def _toned(text: str, tone: words.Tone) -> str:
    return f'<span class="{tone}">{_text(text)}</span>'


def _list(items: Iterable[str]) -> list[str]:
    entries = [f"<li>{_text(item)}</li>" for item in items]
    return ["<ul>", *entries, "</ul>"] if entries else []


def _pairs(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Names and values; the values are HTML already."""
    return ["<dl>", *(f"<dt>{_text(name)}</dt><dd>{value}</dd>" for name, value in rows), "</dl>"]


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table; its cells are HTML already."""
    head = "".join(f"<th>{_text(one)}</th>" for one in heads)
    body = ("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return ['<div class="scroll"><table>', f"<thead><tr>{head}</tr></thead><tbody>", *body, "</tbody></table></div>"]


def _head(optimization: Optimization, baseline: Kernel) -> list[str]:
    objective, verdict = optimization.objective, optimization.baseline
    parts = [
        f"<h1>{_text(words.kernel_words(verdict))}: “{_text(objective.prompt)}”</h1>",
        f'<p class="faint">{_text(objective.reading)}</p>',
        *_pairs(
            [
                ("file", f"<code>{_text(baseline.unit.path)}</code>"),
                ("target", _text(f"{verdict.target} ({verdict.arch})")),
                ("backend", _text(verdict.backend)),
                ("compiler", f"<code>{_text(verdict.compiler)}</code>"),
                ("seed", f"<code>{verdict.seed}</code>"),
                ("baseline", _toned(*words.correctness_words(verdict))),
            ]
        ),
    ]
    if verdict.backend == "emulator":
        parts.append(
            '<div class="box notice"><p>There was no GPU: kernels ran in the emulator. What is counted (registers, shared '
            f"bytes, sectors, findings) holds; every time is predicted for {_text(verdict.target)} and must be confirmed on a "
            "GPU.</p></div>"
        )
    return [*parts, *_best(optimization), *_list(optimization.notes)]


def _best(optimization: Optimization) -> list[str]:
    if optimization.best is None:
        tried = len(optimization.candidates)
        return [f'<div class="box"><p>{_toned("No candidate is worth taking", "bad")} ({tried} tried).</p></div>']
    best = optimization.candidates[optimization.best]
    return [
        '<div class="box">',
        f"<p>{_toned(*words.standing(best.verdict))}: <code>{_text(best.candidate.author)}</code>, {_asked(best.verdict)}</p>",
        f"<p>{_text(best.candidate.why)}</p>",
        "</div>",
    ]


def _asked(verdict: Verdict) -> str:
    """The asked-for figure before and after, in HTML."""
    result = verdict.objective
    if result is None:
        return "-"
    basis = "" if result.basis == "predicted" else f" ({_text(result.basis)})"
    kind = ' class="predicted"' if result.basis == "predicted" else ""
    return f"<span{kind}>{_text(words.METRIC_WORDS[result.name])} {_text(words.objective_words(result))}{basis}</span>"


def _candidates(optimization: Optimization) -> list[str]:
    if not optimization.candidates:
        return []
    rows = []
    for index, judged in enumerate(optimization.candidates):
        whys = [
            f'<span class="faint">{_text(judged.candidate.why)}</span>',
            *map(_text, words.telling_reasons(judged.verdict)),
        ]
        mark = " (best)" if index == optimization.best else ""
        word, tone = words.standing(judged.verdict)
        author = f'<a href="#version-{index + 1}"><code>{_text(judged.candidate.author)}</code></a>'
        rows.append([str(index + 1), author, _asked(judged.verdict), _toned(word + mark, tone), "<br>".join(whys)])
    return ["<h2>Candidates</h2>", *_table(["#", "author", "asked for", "verdict", "why"], rows)]


def _charts(charts: dict[str, Any], optimization: Optimization) -> list[str]:
    parts = ["<h2>Side by side</h2>"]
    rest = len(optimization.candidates) - (MOST_VERSIONS - 1)
    if rest > 0:
        parts.append(f'<p class="faint">The first {MOST_VERSIONS - 1} candidates; {rest} more stand below.</p>')
    for title, figure in charts.items():
        parts += [
            f"<figure><figcaption>{_text(title)}</figcaption>",
            f'<div class="chart" style="height:{int(figure.layout.height)}px"></div>',
            f'<script type="application/json">{_data(figure.to_json())}</script></figure>',
        ]
    return parts


def _candidate(index: int, judged: Judged, optimization: Optimization, baseline: Kernel) -> list[str]:
    candidate = judged.candidate
    changes = _diff(whole_text(baseline), whole_text(candidate.kernel), baseline.unit.path)
    extra = [f"<p>{_text(candidate.why)}</p>", *changes]
    best = index == optimization.best
    return _version(
        f"{index + 1} {candidate.author}", judged.verdict, extra, opened=best, anchor=f"version-{index + 1}"
    )


def _version(
    title: str, verdict: Verdict, extra: Sequence[str] | None, *, opened: bool, anchor: str = "version-0"
) -> list[str]:
    """Everything known of one version, folded."""
    standing = _toned(*(words.standing(verdict) if extra is not None else words.correctness_words(verdict)))
    parts = [
        f'<details id="{anchor}"{" open" if opened else ""}><summary><code>{_text(title)}</code> {standing}</summary>'
    ]
    parts += extra or []
    reasons = words.further_reasons(verdict)
    if reasons:
        parts += ["<h3>Reasons</h3>", *_list(reasons)]
    messages = [_message(d.severity, d.code or "", d.message, d.file, d.line, d.column) for d in verdict.diagnostics]
    messages += [_finding(finding) for finding in verdict.findings]
    if messages:
        parts += ["<h3>Findings</h3>", *_table(["", "code", "where", "what"], messages)]
    if verdict.compiled:
        parts += ["<h3>Figures</h3>", *_pairs(_figures(verdict))]
    if verdict.cases:
        rows = [_case(case, verdict) for case in verdict.cases]
        parts += ["<h3>Sizes</h3>", *_table(["size", "from", "result", "max error", "time", "first wrong"], rows)]
    return [*parts, "</details>"]


def _message(severity: str, code: str, text: str, file: str | None, line: int | None, column: int | None) -> list[str]:
    where = ":".join(str(part) for part in (file, line, column) if part is not None)
    tones: dict[str, words.Tone] = {"error": "bad", "warning": "doubt"}
    return [
        _toned(severity, tones.get(severity, "plain")),
        f"<code>{_text(code)}</code>",
        f"<code>{_text(where)}</code>",
        _text(text),
    ]


def _finding(finding: Finding) -> list[str]:
    return _message(finding.severity, finding.code, finding.message, finding.file, finding.line, finding.column)


def _case(case: Case, verdict: Verdict) -> list[str]:
    time = _text(words.case_time_words(case.median_us, verdict.timing))
    predicted = case.median_us is not None and (verdict.timing is None or verdict.timing.kind == "predicted")
    return [
        f"<code>{_text(words.size_words(case.size))}</code>",
        _text(case.origin),
        _toned(*words.case_words(case)),
        _text(words.error_words(case)),
        f'<span class="predicted">{time} predicted</span>' if predicted else time,
        f"<code>{_text(words.wrong_words(case.first_wrong))}</code>",
    ]


def _figures(verdict: Verdict) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []

    def predicted(text: str, kind: str) -> str:
        return f'<span class="predicted">{_text(text)}</span>' if kind == "predicted" else _text(text)

    if verdict.timing is not None:
        rows.append(("time", predicted(words.timing_words(verdict.timing), verdict.timing.kind)))
        if verdict.predicted is not None:
            rows.append(
                ("time, predicted", predicted(words.beside_words(verdict.timing, verdict.predicted), "predicted"))
            )
    if verdict.speedup is not None:
        rows.append(("against the baseline", predicted(words.speedup_words(verdict.speedup), verdict.speedup.kind)))
    resources_ = verdict.resources
    if resources_ is not None:
        rows += [
            ("registers", _text(f"{resources_.registers} per thread")),
            ("shared memory", _text(f"{words.shared_words(resources_)} per block")),
            ("local memory", _text(f"{words.byte_words(resources_.local_bytes)} per thread")),
            ("spills", _text(words.byte_words(resources_.spill_bytes))),
        ]
    if verdict.occupancy is not None:
        rows.append(("occupancy", _text(words.occupancy_words(verdict.occupancy))))
        rows.append(("waves", _text(words.wave_words(verdict.occupancy))))
    if verdict.roofline is not None:
        rows.append(("roofline", predicted(roofline_words(verdict.roofline), verdict.roofline.kind or "")))
    rows += _counted(verdict)
    rows.append(("binary", f"<code>{_text(verdict.binary or 'none')}</code>"))
    return rows


def _counted(verdict: Verdict) -> list[tuple[str, str]]:
    """What was emulated of the headline launch, and what hardware counters alone know of it."""
    rows: list[tuple[str, str]] = []
    if verdict.counters is not None:
        moved = words.global_bytes(verdict.counters)
        if moved is not None:
            rows.append(("global memory moved", _text(f"{words.byte_words(moved)} ({verdict.counters.source})")))
        for name, label in words.COUNTER_WORDS.items():
            value = getattr(verdict.counters, name)
            if value is not None:
                rows.append((label, _text(words.number(value))))
    if verdict.hardware is not None:
        rows += [
            (f"{label}, {verdict.hardware.tool}", _text(value)) for label, value in hardware_rows(verdict.hardware)
        ]
    return rows


def _diff(before: str, after: str, path: str) -> list[str]:
    lines = diff_lines(before, after, path)
    if not lines:
        return ['<p class="faint">The text of the file is the same; only the launch differs.</p>']
    spans = (f'<span class="{line_kind(line, index)}">{_text(line) or " "}</span>' for index, line in enumerate(lines))
    # No line break between the spans: each is a block of its own, and a break would stand as an empty line.
    return ["<pre>" + "".join(spans) + "</pre>"]
