"""Terminal views of `targets`, `doctor` and `model list`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from rich.console import Group
from rich.table import Table
from rich.text import Text

from kernelmate.records import Target
from kernelmate.report.console import table, toned
from kernelmate.report.words import Tone, byte_words, number, printable


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
    broken = [check.name for check in checks if check.status == "broken"]
    last = toned(f"not usable: {', '.join(broken)}", "bad") if broken else toned("ready", "good")
    return Group(grid, "", last)


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
