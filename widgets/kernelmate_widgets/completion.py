"""Completion in magic lines: commands, options, kernels, and names of live objects as option values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kernelmate.decide.intent import SUGGESTED
from kernelmate_widgets import commands
from kernelmate_widgets.arrays import live_array
from kernelmate_widgets.cells import quoted
from kernelmate_widgets.handle import KernelHandle
from kernelmate_widgets.notebook_kernels import existing_names

if TYPE_CHECKING:
    from kernelmate_widgets.magics import KernelmateMagics

OPTIONS_OF_CELL = (
    "--args", "--grid", "--block", "--shared", "--ref", "--target", "--backend", "--seed", "--prompt", "--panel",
    "--replace", "--quiet", "--output", "--variable",
)  # fmt: skip
OPTIONS_OF_LINE = (
    "--author", "--max-candidates", "--budget", "--samples", "--rounds", "--objective", "--grid", "--block",
    "--shared", "--ref", "--target", "--backend", "--seed", "--bind", "--help", "--quiet", "--output", "--variable",
)  # fmt: skip


def complete_with(shell: Any, magics: KernelmateMagics) -> None:
    """Registers completion for the lines of both magics with a shell."""
    shell.set_hook("complete_command", lambda _, event: complete_cell(magics, event), str_key="%%kernelmate")
    shell.set_hook("complete_command", lambda _, event: complete_line(magics, event), str_key="%kernelmate")


def complete_cell(magics: KernelmateMagics, event: Any) -> list[str]:
    """Returns completions in a line that begins with `%%kernelmate`."""
    before = _before(event)
    option = _open_option(before)
    namespace = magics.shell.user_ns
    word = event.symbol
    values = _values_of(option, namespace)
    if values is not None:
        return _beginning(word, values)
    return _beginning(word, [*OPTIONS_OF_CELL, *_kernels(namespace)])


def _values_of(option: str | None, namespace: dict[str, Any]) -> Iterable[str] | None:
    """Returns the possible values of an option; None for an option without known values."""
    if option == "--args":
        return _live(namespace)
    if option in {"--ref", "--reference"}:
        return [name for name, value in _own(namespace) if callable(value)]
    if option == "--target":
        from kernelmate.compiler import TARGETS

        return [quoted(target.name) if " " in target.name else target.name for target in TARGETS]
    if option == "--backend":
        return ["auto", "cuda", "emulator"]
    if option == "--prompt":
        return map(quoted, SUGGESTED)
    if option in {"--grid", "--block", "--shared"}:
        return [name for name, value in _own(namespace) if _number(value)]
    return None


def complete_line(magics: KernelmateMagics, event: Any) -> list[str]:
    """Returns completions in a line that begins with `%kernelmate`."""
    words = _before(event)
    namespace = magics.shell.user_ns
    if not words:
        return _beginning(event.symbol, commands.COMMANDS)
    if _open_option(words) == "--author":
        from kernelmate.session.authors import BUILT_IN

        return _beginning(event.symbol, BUILT_IN)
    values = _values_of(_open_option(words), namespace)
    if values is not None:
        return _beginning(event.symbol, values)
    if words[0] == "config":
        from kernelmate.config import Settings

        return _beginning(event.symbol, [f"{name}=" for name in Settings.model_fields])
    if event.symbol.startswith("-"):
        return _beginning(event.symbol, OPTIONS_OF_LINE)
    if words[0] == "write":
        return _beginning(event.symbol, [name for name, value in _own(namespace) if callable(value)])
    if words[0] == "judge" and len(words) == 1:
        return _beginning(event.symbol, [*_kernels(namespace), *existing_names(namespace)])
    if words[0] == "judge":
        return _beginning(event.symbol, _live(namespace))
    if words[0] == "fix":
        return _beginning(event.symbol, [*_kernels(namespace), *magics.notebook.failed])
    if words[0] == "optimize" and len(words) >= 2:
        return _beginning(event.symbol, map(quoted, SUGGESTED))
    return _beginning(event.symbol, _kernels(namespace))


def _before(event: Any) -> list[str]:
    """Returns the words between the magic and the word under the cursor."""
    words: list[str] = event.line[: len(event.line)].split()
    return words[1:-1] if event.symbol and words and words[-1].endswith(event.symbol) else words[1:]


def _open_option(words: list[str]) -> str | None:
    """Returns the option whose value is being typed; None if there is none."""
    return words[-1] if words and words[-1].startswith("--") else None


def _own(namespace: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, value) for name, value in namespace.items() if not name.startswith("_")]


def _live(namespace: dict[str, Any]) -> list[str]:
    return [name for name, value in _own(namespace) if live_array(value) is not None or _number(value)]


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _kernels(namespace: dict[str, Any]) -> list[str]:
    return [name for name, value in _own(namespace) if isinstance(value, KernelHandle)]


def _beginning(word: str, choices: Iterable[str]) -> list[str]:
    return sorted(choice for choice in choices if choice.startswith(word))
