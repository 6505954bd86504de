"""Stand-alone HTML page of one optimisation: charts, diffs and verdicts in one file without network access.

Kernel text, reasons and names come from files and models, so all of it is escaped, and the page's content security
policy allows only its own two scripts.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

from kernelmate.errors import EnvironmentFailed
from kernelmate.files import write_atomically
from kernelmate.records import Kernel, Optimization, Verdict
from kernelmate.report import words
from kernelmate.report.chart import Figure, candidate_names, template
from kernelmate.report.diff import other_diffs, whole_text
from kernelmate.report.drawing import svg
from kernelmate.report.figures import MOST_VERSIONS, figures, versions_of
from kernelmate.report.html import bullets, case_row, diff, figure_rows, finding_row, message, pairs, table, text, toned
from kernelmate.report.result import optimization_parts, view
from kernelmate.report.stages import stage_parts
from kernelmate.version import VERSION


def write_page(path: Path, optimization: Optimization, baseline: Kernel) -> None:
    """Writes the page, atomically.

    Raises:
        EnvironmentFailed: plotly is not installed.
        OSError: the file cannot be written.
    """
    save(path, page(optimization, baseline))


def save(path: Path, text: str) -> None:
    """Writes a page's text, atomically.

    Raises:
        OSError: the file cannot be written.
    """
    write_atomically(path, text, mode=0o666 & ~_umask())


def page(optimization: Optimization, baseline: Kernel) -> str:
    """Returns the page's HTML.

    Raises:
        EnvironmentFailed: plotly is not installed.
    """
    drawn = figures(versions_of(optimization))
    names = candidate_names(optimization.candidates, whole=True)
    parts = [
        f"<h1>{text(words.kernel_words(optimization.baseline))}: “{text(optimization.objective.prompt)}”</h1>",
        f'<div class="auto">{view(optimization_parts(optimization, baseline, draw=svg))}</div>',
        *_provenance(optimization, baseline),
        *_charts(drawn, optimization),
        "<h2>Every version</h2>",
        *_version("baseline", optimization.baseline, None, opened=False),
        *(line for index, name in enumerate(names) for line in _candidate(index, name, optimization, baseline)),
    ]
    return document(f"{words.kernel_words(optimization.baseline)}: {optimization.objective.prompt}", parts)


def document(title: str, parts: Sequence[str]) -> str:
    """Returns a complete page with the given HTML in its body: style, policy, Plotly's library, and the drawing script.

    Raises:
        EnvironmentFailed: plotly is not installed.
    """
    library, own = _plotly_js(), _resource("page.js")
    whole = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(library, own)}">',
        f"<title>{text(title)}</title>",
        f"<style>{_resource('page.css')}</style></head><body>",
        *parts,
        f"<footer>KernelMate {text(VERSION)}. Predicted is not measured: a predicted time is to be confirmed on a "
        "GPU.</footer>",
        f'<script type="application/json" id="templates">{_data({"light": template(dark=False), "dark": template(dark=True)})}</script>',
        f"<script>{library}</script><script>{own}</script>",
        "</body></html>",
    ]
    return "\n".join(whole) + "\n"


def chart(title: str, figure: Figure) -> list[str]:
    """Returns the HTML of one chart."""
    return [
        f'<figure class="plot"><figcaption>{text(title)}</figcaption>',
        f'<div class="chart" style="height:{figure.height}px"></div>',
        f'<script type="application/json">{_data(figure.to_json())}</script></figure>',
    ]


def _data(value: object) -> str:
    """Serialises to JSON without characters that could end its script element."""
    shown = value if isinstance(value, str) else json.dumps(value, allow_nan=False)
    return shown.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _policy(*scripts: str) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    # Plotly sets styles on its elements, and renders exported pictures from a blob.
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


def _provenance(optimization: Optimization, baseline: Kernel) -> list[str]:
    """Returns the kernel's file and the conditions of its judgement."""
    verdict = optimization.baseline
    parts = ["<h2>How it was judged</h2>"]
    parts += pairs(
        [
            ("file", f"<code>{text(baseline.unit.path)}</code>"),
            ("target", text(f"{verdict.target} ({verdict.arch})")),
            ("backend", text(verdict.backend)),
            ("compiler", f"<code>{text(verdict.compiler)}</code>"),
            ("seed", f"<code>{verdict.seed}</code>"),
            ("baseline", toned(*words.correctness_words(verdict))),
        ]
    )
    if verdict.backend == "emulator":
        parts.append(
            '<div class="box notice"><p>There was no GPU: kernels ran in the emulator. What is counted (registers, shared '
            f"bytes, sectors, findings) holds; every time is predicted for {text(verdict.target)} and must be confirmed on a "
            "GPU.</p></div>"
        )
    return parts


def _charts(charts: dict[str, Figure], optimization: Optimization) -> list[str]:
    parts = ["<h2>Side by side</h2>"]
    rest = len(optimization.candidates) - (MOST_VERSIONS - 1)
    if rest > 0:
        parts.append(f'<p class="faint">The first {MOST_VERSIONS - 1} candidates; {rest} more stand below.</p>')
    for title, figure in charts.items():
        parts += chart(title, figure)
    return parts


def _candidate(index: int, name: str, optimization: Optimization, baseline: Kernel) -> list[str]:
    judged = optimization.candidates[index]
    candidate = judged.candidate
    changes = diff(whole_text(baseline), whole_text(candidate.kernel), baseline.unit.path)
    for one in other_diffs(candidate):
        changes += diff(one.before, one.after, one.path)
    extra = [f"<p>{text(candidate.why)}</p>", *changes]
    return _version(f"{index + 1} {name}", judged.verdict, extra, opened=False, anchor=f"version-{index + 1}")


def _version(
    title: str, verdict: Verdict, extra: Sequence[str] | None, *, opened: bool, anchor: str = "version-0"
) -> list[str]:
    """Returns a collapsible section with all details of one version."""
    standing = toned(*(words.standing(verdict) if extra is not None else words.correctness_words(verdict)))
    parts = [
        f'<details id="{anchor}"{" open" if opened else ""}><summary><code>{text(title)}</code> {standing}</summary>'
    ]
    parts += extra or []
    reasons = words.further_reasons(verdict)
    if reasons:
        parts += ["<h3>Reasons</h3>", *bullets(reasons)]
    messages = [message(d.severity, d.code or "", d.message, d.file, d.line, d.column) for d in verdict.diagnostics]
    messages += [finding_row(finding) for finding in verdict.findings]
    if messages:
        parts += ["<h3>Findings</h3>", *table(["", "code", "where", "what"], messages)]
    if verdict.compiled:
        parts += ["<h3>Figures</h3>", *pairs(figure_rows(verdict))]
    stages = stage_parts(verdict)
    parts += ["<h3>Stages</h3>", *stages] if stages else []
    if verdict.cases:
        rows = [case_row(case, verdict) for case in verdict.cases]
        parts += ["<h3>Sizes</h3>", *table(["size", "from", "result", "max error", "time", "first wrong"], rows)]
    return [*parts, "</details>"]
