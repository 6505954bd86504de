"""Terminal view of `ci`: the effect of a change on kernels."""

from __future__ import annotations

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernelmate.records import Gate, GatedKernel, GateMetric, MetricChange
from kernelmate.report.console import findings_view, heading, indented, lines, table, toned
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.words import Tone, byte_words, number, plural, printable, time_words

COLUMNS: dict[GateMetric, str] = {
    "registers": "regs",
    "spill_bytes": "spills",
    "shared_bytes": "shared",
    "sectors": "sectors",
    "findings": "findings",
    "time": "time",
}
"""Column heads of the metrics, in display order."""

WORDS: dict[GateMetric, str] = {
    "registers": "registers per thread",
    "spill_bytes": "bytes spilled per thread",
    "shared_bytes": "bytes of shared memory per block",
    "sectors": "sectors of global memory",
    "findings": "findings",
    "time": "time",
}
OUTCOMES: dict[str, tuple[str, Tone]] = {
    "passed": ("passed", "good"),
    "failed": ("FAILED", "bad"),
    "moved": ("moved", "plain"),
    "removed": ("removed", "plain"),
}
CHANGES = {"added": "new", "removed": "removed", "changed": "changed", "moved": "moved"}


def gate_view(gate: Gate, sources: SourceLines) -> list[RenderableType]:
    """Shows the table of kernels, then reasons of failures, then remarks."""
    parts: list[RenderableType] = [heading(summary(gate), ("passed", "good") if gate.passed else ("FAILED", "bad"))]
    parts.append(indented(Text(provenance(gate), style="dim")))
    if gate.kernels:
        parts += ["", gate_table(gate)]
    for one in gate.kernels:
        parts += _why(one, sources)
    if gate.notes:
        parts += ["", lines(gate.notes, "note: ")]
    return parts


def summary(gate: Gate) -> str:
    """Returns a summary: `2 kernels differ from main: 1 fails`."""
    judged = [one for one in gate.kernels if one.outcome in {"passed", "failed"}]
    failed = sum(one.outcome == "failed" for one in judged)
    if not gate.kernels:
        return f"no kernel differs from {gate.base}"
    differ = (
        f"{plural(len(gate.kernels), 'kernel')} {'differs' if len(gate.kernels) == 1 else 'differ'} from {gate.base}"
    )
    if not judged:
        return f"{differ}: none had to be judged"
    return f"{differ}: {failed} of {len(judged)} judged {'fails' if failed == 1 else 'fail'}" if failed else f"{differ}: all {len(judged)} judged pass" if len(judged) > 1 else f"{differ}: it passes"  # fmt: skip


def provenance(gate: Gate) -> str:
    """Returns the sources of the figures, and omissions."""
    where = "" if gate.backend == "cuda" else "emulated for "
    left = f", {plural(gate.unchanged, 'kernel')} of touched files unchanged" if gate.unchanged else ""
    times = "; without a GPU no time is gated" if gate.backend == "emulator" and gate.kernels else ""
    return f"{where}{gate.target}, against {gate.commit[:12]}{left}{times}"


def gate_table(gate: Gate) -> Table:
    """Shows each kernel on two lines with its location, figures and result; a figure beyond its limit is marked."""
    shown = columns(gate)
    made = table("kernel", *(COLUMNS[metric] for metric in shown), "result", right=range(1, 1 + len(shown)))
    for column in made.columns[1:]:
        column.no_wrap = True
    for one in gate.kernels:
        figures = {figure.metric: figure for figure in one.figures}
        cells = [_cell(figures.get(metric)) for metric in shown]
        word, tone = OUTCOMES[one.outcome]
        name = Text(printable(one.instance or one.kernel))
        fate = f", {CHANGES[one.change]}" if one.change == "added" else ""
        name.append(f"\n{printable(one.path)}{fate}", style="dim")
        made.add_row(name, *cells, toned(word, tone))
    return made


def columns(gate: Gate) -> list[GateMetric]:
    """Returns the metrics that get a column: those that are nonzero for any kernel, and gated times."""
    figures = [figure for one in gate.kernels for figure in one.figures]
    told = {figure.metric for figure in figures if figure.before or figure.after or figure.metric == "findings"}
    if not any(figure.metric == "time" and figure.most is not None for figure in figures):
        told.discard("time")
    return [metric for metric in COLUMNS if metric in told]


def name_of(one: GatedKernel) -> str:
    """Returns the kernel's file and name: `ops/softmax.cu::softmax<float>`."""
    return f"{one.path}::{one.instance or one.kernel}"


def _cell(figure: MetricChange | None) -> Text:
    """Shows the present value; the earlier one above it, if it differs."""
    if figure is None:
        return Text("-", style="dim")
    words = figure_words(figure, "\n->")
    text = Text(f"{words} !" if figure.worse else words, style="red" if figure.worse else "")
    if figure.metric == "time" and figure.note is not None and figure.note.startswith("predicted"):
        text.stylize("italic")
    return text


def figure_words(figure: MetricChange, arrow: str = "->") -> str:
    """Formats `32 -> 40`, or `32` if unchanged; a predicted time gets its mark."""
    before, after = (None if value is None else value_words(figure, value) for value in (figure.before, figure.after))
    if after is None:
        return f"{before} {arrow} ?" if before is not None else "?"
    return after if before is None or before == after else f"{before} {arrow} {after}".replace(" \n", "\n")


def value_words(figure: MetricChange, value: float) -> str:
    """Formats one side of a figure with its unit."""
    if figure.metric == "time":
        predicted = figure.note is not None and figure.note.startswith("predicted")
        return f"{'~' if predicted else ''}{time_words(value)}"
    return byte_words(value) if figure.metric in {"spill_bytes", "shared_bytes"} else number(value)


def figure_sentence(figure: MetricChange) -> str:
    """Returns the sentence that explains why a figure does not pass."""
    if figure.metric == "time":
        return f"slower: {figure.note}"
    assert figure.before is not None
    assert figure.after is not None
    allowed = "" if figure.most in (None, figure.before) else f", at most {number(figure.most or 0)} allowed"
    return f"more {WORDS[figure.metric]}: {number(figure.before)} before, {number(figure.after)} now{allowed}"


def _why(one: GatedKernel, sources: SourceLines) -> list[RenderableType]:
    """Returns earlier place, reasons of failure, and remarks; empty without any."""
    remarks = ([f"was {one.was}"] if one.was is not None else []) + list(one.notes)
    if one.outcome != "failed" and not remarks:
        return []
    word, tone = OUTCOMES[one.outcome]
    place = name_of(one) if one.line is None else f"{one.path}:{one.line}: {one.instance or one.kernel}"
    parts: list[RenderableType] = ["", heading(printable(place), (word, tone))]
    told = {f"{finding.severity} {finding.code}: {finding.message}" for finding in one.fresh}
    if one.fresh and one.outcome == "failed":
        parts.append(indented(findings_view(one.fresh, sources)))
    parts.append(indented(lines([failure for failure in one.failures if failure not in told])))
    parts.append(indented(lines(remarks, "note: ")))
    return parts


def gate_line(one: GatedKernel) -> Text:
    """Formats one kernel in a line, for `--quiet`."""
    line = heading(name_of(one), OUTCOMES[one.outcome])
    if one.failures:
        line.append(f", {printable(one.failures[0], keep='')}")
    return line
