"""Markdown view of `ci`, for a comment on a pull request."""

from __future__ import annotations

import re

from kernelmate.records import Gate, GatedKernel, MetricChange
from kernelmate.report.gate import CHANGES, COLUMNS, columns, figure_words, name_of, provenance, summary
from kernelmate.report.words import printable

MOST = 60_000
"""Maximum of characters; GitHub accepts 65,536 in one comment."""
_RESULTS = {"passed": "passed", "failed": "**failed**", "removed": "removed", "moved": "moved, unchanged"}
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@-])")


def markdown(gate: Gate) -> str:
    """Returns the comment: a table, reasons of failures, and folded remarks; truncated if too long to post."""
    parts = [
        f"### {'Kernels pass' if gate.passed else 'Kernels fail'}: {_plain(summary(gate))}",
        _plain(provenance(gate)),
    ]
    if gate.kernels:
        parts.append(_table(gate))
    failures = [_failures(one) for one in gate.kernels if one.failures]
    parts += failures
    remarks = [*(f"- {_code(name_of(one))}: {_plain(note)}" for one in gate.kernels for note in _notes(one)), *(f"- {_plain(note)}" for note in gate.notes)]  # fmt: skip
    if remarks:
        parts.append("\n".join(["<details><summary>Notes</summary>", "", *remarks, "", "</details>"]))
    return _cut("\n\n".join(parts) + "\n")


def _table(gate: Gate) -> str:
    shown = columns(gate)
    heads = ["kernel", "change", *(COLUMNS[metric] for metric in shown), "result"]
    rows = [f"| {' | '.join(heads)} |", f"|{'|'.join([' --- ', ' --- ', *(' ---: ' for _ in shown), ' --- '])}|"]
    for one in gate.kernels:
        figures = {figure.metric: figure for figure in one.figures}
        cells = [_cell(figures.get(metric)) for metric in shown]
        rows.append(f"| {' | '.join([_code(name_of(one)), CHANGES[one.change], *cells, _RESULTS[one.outcome]])} |")
    return "\n".join(rows)


def _cell(figure: MetricChange | None) -> str:
    if figure is None:
        return ""
    words = _plain(figure_words(figure, "→"))
    return f"**{words}**" if figure.worse else words


def _failures(one: GatedKernel) -> str:
    place = f"{one.path}:{one.line}" if one.line is not None else one.path
    return "\n".join(
        [f"{_code(one.instance or one.kernel)} in {_code(place)}:", *(f"- {_plain(text)}" for text in one.failures)]
    )


def _notes(one: GatedKernel) -> list[str]:
    return ([f"was {one.was}"] if one.was is not None else []) + list(one.notes)


def _plain(text: str) -> str:
    """Escapes text for Markdown: no links, mentions or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(printable(text, keep="").split())).replace("\\@", "@\N{ZERO WIDTH SPACE}")


def _code(text: str) -> str:
    """Formats a name as code; escapes backticks and bars."""
    shown = printable(text, keep="").replace("|", "\\|")
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 1)
    return f"{fence} {shown} {fence}" if "`" in shown else f"{fence}{shown}{fence}"


def _cut(text: str) -> str:
    if len(text) <= MOST:
        return text
    whole = text[:MOST].rpartition("\n")[0]
    return f"{whole}\n\n... cut: the whole is in the terminal's output.\n"
