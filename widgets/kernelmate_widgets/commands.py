"""Subcommands of `%kernelmate`: each takes the magics object and its arguments, and displays something."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.core.error import StdinNotImplementedError
from IPython.display import display

from kernelmate.errors import UsageError
from kernelmate.records import Kernel, Optimization
from kernelmate.report.words import printable
from kernelmate_widgets.handle import KernelHandle
from kernelmate_widgets.notebook_state import MagicResult, handle_named
from kernelmate_widgets.output import optimization_bundle, sources_of, views_bundle
from kernelmate_widgets.searches import SearchArguments

if TYPE_CHECKING:
    from kernelmate.session.authors import Outgoing
    from kernelmate_widgets.magics import KernelmateMagics


def run(magics: KernelmateMagics, options: argparse.Namespace) -> Any:
    """Run the command of a line.

    Raises:
        UsageError: the command does not exist, or does not take these arguments.
    """
    if options.command not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(options.command, COMMANDS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Commands are {', '.join(COMMANDS)}."
        raise UsageError(f"There is no command {options.command!r}.", hint=hint)
    return COMMANDS[options.command](magics, options)


def _words(options: argparse.Namespace, usage: str, least: int, most: int) -> list[str]:
    if not least <= len(options.words) <= most:
        raise UsageError(f"The arguments of {options.command} are wrong.", hint=f"Write %kernelmate {usage}.")
    words: list[str] = options.words
    return words


def _show(bundle: dict[str, Any], options: argparse.Namespace) -> None:
    if not options.quiet:
        display(bundle, raw=True)


# ---------------------------------------------------------------------------------------------------- searching


def agrees(outgoing: Outgoing) -> bool:
    """Shows the complete text that would go to another machine, and asks for consent.

    Without a user to answer, nothing is sent.
    """
    price = "an unknown price" if outgoing.most_usd is None else f"at most {outgoing.most_usd:.2f} USD"
    display({"text/plain": printable(outgoing.text)}, raw=True)
    question = f"Send the text above to {outgoing.model} at {outgoing.host}, for {price}? It holds for {outgoing.workspace} from now on [y/N] "
    try:
        return input(question).strip().lower() in {"y", "yes"}
    except (EOFError, StdinNotImplementedError):
        return False


def search(
    magics: KernelmateMagics, name: str, handle: KernelHandle, prompt: str, wanted: SearchArguments
) -> Optimization:
    """Searches for a better version of a kernel, shows the result, and stores it with the kernel."""
    from kernelmate.session.authors import SearchOptions, authors

    known = magics.notebook.known[name]
    version = handle.version
    session = magics.notebook.session(known.options)
    progress = magics.progress(quiet=wanted.quiet)
    asked = SearchOptions(
        wanted.author, wanted.samples, wanted.rounds, agrees, progress.step, progress.text,
        spending=magics.notebook.spending(session.settings),
    )  # fmt: skip
    try:
        with magics.notebook.listening(progress.stage):
            found = session.optimize(
                version.kernel,
                prompt,
                (),
                wanted.max_candidates,
                progress.judged,
                budget_s=wanted.budget,
                suggesters=authors(session.settings, version.kernel, asked),
                objective=wanted.objective,
                contract=version.contract,
                on_trying=progress.trying,
                on_read=lambda aim: progress.step(aim.reading),
            )
    except BaseException:
        progress.gone()
        raise
    handle.found(found)
    progress.result(optimization_bundle(found, version.kernel))
    return found


def _optimize(magics: KernelmateMagics, options: argparse.Namespace) -> Any:

    name, prompt = _words(options, 'optimize NAME "PROMPT"', 2, 2)
    handle = handle_named(magics.shell.user_ns, name)
    wanted = SearchArguments(
        options.author, options.max_candidates, options.budget, options.samples, options.rounds, options.objective,
        options.quiet,
    )  # fmt: skip
    found = search(magics, name, handle, prompt, wanted)
    return magics.give(MagicResult((found.baseline,), found), options)


def panel(magics: KernelmateMagics, name: str) -> None:
    """Show the panel of a kernel, with its last result.

    Raises:
        UsageError: the packages for panels are not installed.
    """
    handle = handle_named(magics.shell.user_ns, name)
    try:
        from kernelmate_widgets.panel import Panel
    except ImportError as error:
        raise UsageError(f"The panel needs {error.name}.", hint="pip install 'kernelmate[notebook]'") from None
    Panel(magics.notebook, name, handle).show()


def _panel(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    panel(magics, *_words(options, "panel NAME", 1, 1))


def _write(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    words = _words(options, "write FUNCTION(ARRAYS)", 1, 99)
    from kernelmate_widgets.writing import write

    write(magics, " ".join(words), quiet=options.quiet)


# ----------------------------------------------------------------------------------------------------- deciding


def _accept(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    name, *number = _words(options, "accept NAME [NUMBER]", 1, 2)
    handle = handle_named(magics.shell.user_ns, name)
    if number and not number[0].isdigit():
        raise UsageError(
            f"{number[0]!r} is not the number of a candidate.", hint="Give the number that the table shows."
        )
    before = handle.version.kernel
    version = handle.accept(int(number[0]) if number else None)
    from kernelmate.report.diff import Diff

    said = f"{name} is now the version of {version.author}; %kernelmate revert {name} takes it back."
    if version.verdict.accepted is None:
        said += " Its gain is predicted, not measured: confirm it on a GPU."
    change = Diff(before.unit.text, version.source, before.unit.path)
    _show(views_bundle(said, *([change] if change.lines() else [])), options)


def _revert(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    (name,) = _words(options, "revert NAME", 1, 1)
    version = handle_named(magics.shell.user_ns, name).revert()
    _show(views_bundle(f"{name} is the version of {version.author} again."), options)


# ------------------------------------------------------------------------------------------------------ looking


def _compare(magics: KernelmateMagics, options: argparse.Namespace) -> Any:
    """Two kernels, or two versions of one: `A B`, `A:1 A:2`, `A A:2`."""
    first, second = _words(options, "compare A B, or compare NAME:1 NAME:2", 2, 2)
    from kernelmate.report.versions import comparison_view

    handle = handle_named(magics.shell.user_ns, first.partition(":")[0])
    before, contract = _version(magics, first)
    after, _ = _version(magics, second)
    session = magics.notebook.session(magics.notebook.known[handle.name].options)
    progress = magics.progress(quiet=options.quiet)
    with magics.notebook.listening(progress.stage):
        found = session.compare(before, after, contract=contract)
    progress.result(views_bundle(comparison_view(found.baseline, found.candidate, sources_of(after))))
    return magics.give(MagicResult(found.candidate), options)


def _version(magics: KernelmateMagics, text: str) -> tuple[Kernel, Any]:
    """`NAME` is the version in force, `NAME:0` the cell's own, `NAME:2` a candidate of the last search."""
    name, colon, number = text.partition(":")
    handle = handle_named(magics.shell.user_ns, name)
    if not colon:
        return handle.version.kernel, handle.contract
    if not number.isdigit() or not 0 <= int(number) <= len(handle.candidates):
        raise UsageError(
            f"{name} has no version {number!r}.",
            hint=f"0 is the cell's own; candidates are 1 to {len(handle.candidates)}.",
        )
    if int(number) == 0:
        return handle.first.kernel, handle.first.contract
    candidate = handle.candidates[int(number) - 1].candidate
    return candidate.kernel, candidate.contract


def _explain(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    (name,) = _words(options, "explain NAME", 1, 1)
    from kernelmate.report.causes import causes_view
    from kernelmate.suggest.diagnosis import diagnose

    handle = handle_named(magics.shell.user_ns, name)
    kernel, verdict = handle.version.kernel, handle.verdict
    _show(views_bundle(causes_view(verdict, diagnose(verdict), kernel.unit.path, sources_of(kernel))), options)


def _history(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    names = _words(options, "history [NAME]", 0, 1)
    from kernelmate.history import History
    from kernelmate.report.history import kernels_view, versions_view

    with History(magics.notebook.settings().history_file) as history:
        if not names:
            _show(views_bundle(kernels_view(history.kernels())), options)
            return
        number = history.find(handle_named(magics.shell.user_ns, names[0]).version.kernel)
        recorded = [] if number is None else list(history.judgements(number))
    view = versions_view(recorded) if recorded else f"Nothing is kept of {names[0]}: the setting history is off."
    _show(views_bundle(view), options)


def _doctor(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    _words(options, "doctor", 0, 0)
    from kernelmate.report.machine import doctor_view
    from kernelmate.session.machine import look

    _show(views_bundle(doctor_view(look(magics.notebook.settings()))), options)


def _config(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    words = _words(options, "config [SETTING=VALUE ...]", 0, 99)
    from kernelmate.report.console import pairs

    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is not a setting with a value.", hint="Write %kernelmate config SETTING=VALUE.")
        magics.notebook.set(name.strip(), value)
    settings = magics.notebook.settings()
    given = magics.notebook.settings_given
    rows = [
        (f"{name} *" if name in given else name, str(value))
        for name, value in settings.model_dump().items()
        if not words or name in given
    ]
    note = "* set in this notebook" if given else "Nothing is set in this notebook alone."
    _show(views_bundle(pairs(rows), "", note), options)


COMMANDS: dict[str, Callable[[Any, argparse.Namespace], Any]] = {
    "write": _write,
    "optimize": _optimize,
    "accept": _accept,
    "revert": _revert,
    "compare": _compare,
    "explain": _explain,
    "panel": _panel,
    "history": _history,
    "config": _config,
    "doctor": _doctor,
}
