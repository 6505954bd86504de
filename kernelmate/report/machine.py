"""Views of `targets`, `doctor`, `model list` and `calibrate` for terminals, and of `doctor` for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelmate.records import Calibration, Roofs, Target
from kernelmate.report import html
from kernelmate.report.console import heading, indented, lines, table, toned
from kernelmate.report.roofline import PRECISION_WORDS
from kernelmate.report.words import Tone, byte_words, number, percent, printable, time_words


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check of this machine.

    Attributes:
        status: `broken` prevents every verdict; `missing` concerns an optional part.
        detail: the observation.
        advice: the remedy; None if none is needed.
    """

    name: str
    status: Literal["ok", "missing", "broken"]
    detail: str
    advice: str | None = None


TONES: dict[str, Tone] = {"ok": "good", "missing": "doubt", "broken": "bad"}


def targets_view(targets: Sequence[Target]) -> Table:
    """Returns the table of GPUs, one line each."""
    made = table("name", "arch", "SMs", "clock", "memory", "bandwidth", "L2", "fp32", right=range(2, 8))
    for target in targets:
        made.add_row(
            Text(printable(target.name), style="bold"),
            target.arch,
            number(target.sms),
            f"{target.clock_mhz} MHz",
            f"{target.memory_bytes / 2**30:.0f} GiB",
            f"{target.memory_gbps:,.0f} GB/s",
            byte_words(target.l2_bytes),
            f"{target.fp32_tflops:.3g} TFLOPS",
        )
    return made


def doctor_view(checks: Sequence[Check]) -> Group:
    """Shows each check with its status, and the advice below it."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for check in checks:
        detail = toned(check.detail)
        if check.advice is not None:
            detail.append("\n-> ", style="bold")
            detail.append(printable(check.advice))
        grid.add_row(toned(check.status, TONES[check.status]), Text(check.name, style="bold"), detail)
    said, tone = _usable(checks)
    return Group(grid, "", toned(said, tone))


def doctor_parts(checks: Sequence[Check]) -> list[str]:
    """Returns the contents of `doctor_view` as HTML."""
    rows = [
        (html.text(one.name), html.toned(one.status, TONES[one.status]), _found(one.detail, one.advice))
        for one in checks
    ]
    said, tone = _usable(checks)
    return [*html.table(("part", "status", "found"), rows), f"<p>{html.toned(said, tone)}</p>"]


def _found(detail: str, advice: str | None) -> str:
    lines = [detail, *([] if advice is None else [f"-> {advice}"])]
    return "<br>".join(html.text(one).replace("\n", "<br>") for one in lines)


def _usable(checks: Sequence[Check]) -> tuple[str, Tone]:
    broken = [check.name for check in checks if check.status == "broken"]
    return (f"not usable: {', '.join(broken)}", "bad") if broken else ("ready", "good")


class ModelFacts(Protocol):
    """Facts about a model that views show."""

    @property
    def name(self) -> str:
        """The name by which the user refers to it."""
        ...

    @property
    def path(self) -> str:
        """Path of its file."""
        ...

    @property
    def size(self) -> int:
        """Size in bytes."""
        ...

    @property
    def architecture(self) -> str | None:
        """Architecture: `llama`, `qwen2`, ..."""
        ...

    @property
    def context(self) -> int | None:
        """Context length in tokens that it was trained for."""
        ...

    @property
    def parameters(self) -> int | None:
        """Number of weights."""
        ...

    @property
    def quantization(self) -> str | None:
        """Quantization of the weights."""
        ...

    @property
    def licence(self) -> str | None:
        """Licence, as stated by its file or repository."""
        ...


def model_words(model: ModelFacts) -> str:
    """Formats facts: `7.6 B parameters, Q4_K_M, 4.4 GiB, qwen2, context 32,768, licence apache-2.0`."""
    parts = [] if model.parameters is None else [f"{_parameters(model.parameters)} parameters"]
    parts += [part for part in (model.quantization, byte_words(model.size), model.architecture) if part]
    parts += [] if model.context is None else [f"context {number(model.context)}"]
    return printable(", ".join([*parts, f"licence {model.licence or 'not stated'}"]), keep="")


def _parameters(count: int) -> str:
    for unit, size in (("B", 1e9), ("M", 1e6), ("K", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return str(count)


def models_view(models: Sequence[ModelFacts], current: ModelFacts | None) -> Table:
    """Lists the models, one line each; a star marks the one in use."""
    made = table("", "name", "what", "file")
    for model in models:
        used = current is not None and model.name == current.name
        mark = Text("*" if used else "", style="bold green")
        made.add_row(mark, Text(printable(model.name), style="bold"), model_words(model), printable(model.path))
    return made


def calibration_view(measured: Calibration, sheet: Roofs | None) -> list[RenderableType]:
    """Shows every peak rate as stated by the data sheet and as measured.

    Args:
        measured: rates measured on the GPU.
        sheet: rates of the target table; None for a GPU that is not in it.
    """
    made = table("roof", "stated", "measured", "reached", right=(1, 2, 3))
    for name, stated, found, unit in _rows(measured.roofs, sheet):
        share = percent(found / stated) if stated else "-"
        made.add_row(name, f"{number(stated)} {unit}" if stated else "-", f"{number(found)} {unit}", share)
    made.add_row("empty launch, in a graph", "", time_words(measured.replay_us), "")
    made.add_row("empty launch, on a stream", "", time_words(measured.submit_us), "")
    stamp = f"{measured.uuid}, driver for CUDA {measured.driver}, {measured.measured_at}"
    parts: list[RenderableType] = [heading(measured.gpu), indented(stamp), "", indented(made)]
    if measured.notes:
        parts += ["", indented(lines(measured.notes))]
    return parts


def calibration_words(measured: Calibration) -> str:
    """Returns a GPU's measurement as a line: `NVIDIA H100 80GB HBM3, 2026-11-21: DRAM 2,950 GB/s, fp32 59.1 TFLOPS`."""
    roofs = measured.roofs
    rates = ", ".join(f"{PRECISION_WORDS.get(name, name)} {value:.3g} TFLOPS" for name, value in roofs.tflops.items())
    return f"{measured.gpu}, {measured.measured_at[:10]}: DRAM {number(roofs.dram_gbps)} GB/s, {rates}"


def _rows(roofs: Roofs, sheet: Roofs | None) -> Iterator[tuple[str, float | None, float, str]]:
    for name, key in (("DRAM", "dram_gbps"), ("L2", "l2_gbps"), ("L1", "l1_gbps")):
        # No document states L2's bandwidth; the table's figure is the model's own.
        yield name, None if sheet is None or name == "L2" else getattr(sheet, key), getattr(roofs, key), "GB/s"
    for name, found in roofs.tflops.items():
        stated = None if sheet is None else sheet.tflops.get(name)
        shown = PRECISION_WORDS.get(name, name) + (", by mma.sync" if name == "tensor" else "")
        yield shown, stated, found, "TFLOPS"
