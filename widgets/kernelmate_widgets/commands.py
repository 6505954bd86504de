"""Subcommands of `%kernelmate`; each takes the magics object and its arguments, and displays its result."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from IPython.display import display

from kernelmate.decide.intent import read_intent, refusal
from kernelmate.errors import UsageError
from kernelmate.records import Kernel, Optimization
from kernelmate.report.excerpt import sources_of
from kernelmate_widgets.cell_search import ShownResult, repair, search, show_chips
from kernelmate_widgets.handle import USER, KernelHandle
from kernelmate_widgets.notebook_state import MagicResult, handle_named
from kernelmate_widgets.output import checks_bundle, views_bundle
from kernelmate_widgets.searches import SearchArguments

if TYPE_CHECKING:
    from kernelmate_widgets.magics import KernelmateMagics


def run(magics: KernelmateMagics, options: argparse.Namespace) -> Any:
    """Run the command of a magic line.

    Raises:
        UsageError: the command does not exist, or does not take these arguments.
    """
    if options.command is None:
        listed = [line for usage, purpose in USAGE.values() for line in (f"%kernelmate {usage}", f"    {purpose}")]
        _show(views_bundle(*listed, "", "%kernelmate COMMAND --help tells more; %%kernelmate? lists a cell's options."), options)  # fmt: skip
        return None
    if options.command not in COMMANDS:
        import difflib

        near = difflib.get_close_matches(options.command, COMMANDS, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Commands are {', '.join(COMMANDS)}."
        if options.command in magics.notebook.known:  # a prompt to a kernel, without the command
            hint = f'To search, say %kernelmate optimize {options.command} "{" ".join(options.words) or "make it faster"}".'
        raise UsageError(f"There is no command {options.command!r}.", hint=hint)
    if options.help:
        display(views_bundle(*help_lines(options.command)), raw=True)
        return None
    return COMMANDS[options.command](magics, options)


def help_lines(command: str) -> list[str]:
    """Returns the help of a command: its purpose, its syntax, and its options."""
    usage, purpose = USAGE[command]
    options = OPTIONS_OF.get(command, ())
    return [purpose, "", f"  %kernelmate {usage}", *(f"    {one}" for one in (*options, *COMMON_OPTIONS))]


def _words(options: argparse.Namespace, least: int, most: int) -> list[str]:
    if not least <= len(options.words) <= most:
        usage = USAGE[options.command][0]
        raise UsageError(f"The arguments of {options.command} are wrong.", hint=f"Write %kernelmate {usage}.")
    words: list[str] = options.words
    return words


def _show(bundle: dict[str, Any], options: argparse.Namespace) -> None:
    if not options.quiet:
        display(bundle, raw=True)


# ---------------------------------------------------------------------------------------------------- searching


def _fix(magics: KernelmateMagics, options: argparse.Namespace) -> Any:
    names = _words(options, 0, 1)
    known = {**magics.notebook.known, **magics.notebook.failed}
    name = names[0] if names else next(reversed(magics.notebook.failed), None)
    if name is None or name not in known:
        hint = f"Kernels here are {', '.join(known)}." if known else "Run a cell that begins with %%kernelmate first."
        raise UsageError("There is no kernel to fix." if name is None else f"There is no kernel {name!r}.", hint=hint)
    found = repair(magics, name, known[name], quiet=options.quiet)
    return magics.give(MagicResult((known[name].verdict,), found), options)


def run_prompt(
    magics: KernelmateMagics, name: str, handle: KernelHandle, prompt: str, wanted: SearchArguments
) -> Optimization | None:
    """Executes a prompt: searches, explains, accepts or reverts; returns a search's result.

    Raises:
        UsageError: the prompt is none of these; nothing is executed.
    """
    before = None if handle.optimization is None else handle.optimization.objective
    intent = read_intent(prompt, handle.verdict, earlier=before, name=wanted.objective)
    shown = ShownResult()
    chips = show_chips(magics, name, handle, intent, wanted, shown)
    if intent.kind == "search":
        try:
            return search(magics, name, handle, intent.prompt, wanted, shown)
        finally:
            if chips is not None:
                chips.answered()
    if intent.kind == "explain":
        show_explanation(handle, prompt, quiet=wanted.quiet)
    elif intent.kind == "accept":
        accept_candidate(magics, name, handle, intent.number, quiet=wanted.quiet)
    elif intent.kind == "undo":
        revert(magics, name, handle, quiet=wanted.quiet)
    else:
        raise refusal(intent)
    return None


def _optimize(magics: KernelmateMagics, options: argparse.Namespace) -> Any:
    name, prompt = _words(options, 2, 2)
    handle = handle_named(magics.shell.user_ns, name)
    wanted = SearchArguments(
        options.author, options.max_candidates, options.budget, options.samples, options.rounds, options.objective,
        options.quiet,
    )  # fmt: skip
    found = run_prompt(magics, name, handle, prompt, wanted)
    return magics.give(MagicResult((handle.verdict if found is None else found.baseline,), found), options)


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
    shown = magics.notebook.panels.get(name)
    if not isinstance(shown, Panel) or shown.handle is not handle:
        shown = Panel(magics.notebook, name, handle, lambda: magics.write_cell(name, handle, running=False))
        magics.notebook.panels[name] = shown
    shown.show()


def _panel(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    panel(magics, *_words(options, 1, 1))


def _write(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    words = _words(options, 1, 99)
    from kernelmate_widgets.writing import write

    write(magics, " ".join(words), quiet=options.quiet)


def _judge(magics: KernelmateMagics, options: argparse.Namespace) -> Any:
    _words(options, 1, 999)
    from kernelmate_widgets.notebook_kernels import judge_existing

    return magics.give(judge_existing(magics, options), options)


# ----------------------------------------------------------------------------------------------------- deciding


def accept_candidate(
    magics: KernelmateMagics, name: str, handle: KernelHandle, number: int | None, *, quiet: bool
) -> None:
    """Puts a candidate in force, writes it into the notebook, and shows the change.

    Raises:
        UsageError: there is no such candidate, or it cannot be accepted.
    """
    before = handle.version.kernel
    version = handle.accept(number)
    from kernelmate.report.diff import Diff

    said = [f"{name} is now the version of {version.author}; %kernelmate undo {name} takes it back."]
    if version.verdict.accepted is None:
        said.append("Its gain is predicted, not measured: confirm it on a GPU.")
    said += magics.write_cell(name, handle)
    change = Diff(before.unit.text, version.source, before.unit.path)
    if not quiet:
        display(views_bundle(" ".join(said), *([change] if change.lines() else [])), raw=True)


def revert(magics: KernelmateMagics, name: str, handle: KernelHandle, *, quiet: bool) -> None:
    """Puts the previous version in force, and writes it into the notebook.

    Raises:
        UsageError: nothing was accepted since the cell was run.
    """
    version = handle.revert()
    whose = "the cell's own version" if version.author == USER else f"the version of {version.author}"
    said = [f"{name} is {whose} again.", *magics.write_cell(name, handle)]
    if not quiet:
        display(views_bundle(" ".join(said)), raw=True)


def _accept(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    name, *number = _words(options, 1, 2)
    if number and not number[0].isdigit():
        raise UsageError(
            f"{number[0]!r} is not the number of a candidate.", hint="Give the number that the table shows."
        )
    if name in magics.notebook.failed and name in magics.notebook.repairs:
        found = magics.notebook.repairs[name]
        taken = int(number[0]) if number else (found.best or 0) + 1
        _show(views_bundle(" ".join(magics.adopt(name, magics.notebook.failed[name], found, taken))), options)
        return
    handle = handle_named(magics.shell.user_ns, name)
    accept_candidate(magics, name, handle, int(number[0]) if number else None, quiet=options.quiet)


def _revert(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    (name,) = _words(options, 1, 1)
    revert(magics, name, handle_named(magics.shell.user_ns, name), quiet=options.quiet)


# ------------------------------------------------------------------------------------------------------ looking


def _compare(magics: KernelmateMagics, options: argparse.Namespace) -> Any:
    """Compares two kernels, or two versions of one: `A B`, `A:1 A:2`, `A A:2`."""
    first, second = _words(options, 2, 2)
    from kernelmate.report.versions import comparison_view

    handle = handle_named(magics.shell.user_ns, first.partition(":")[0])
    before, contract = _version(magics, first)
    after, launch = _version(magics, second)
    session = magics.notebook.session(magics.notebook.known[handle.name].options)
    with magics.progress(quiet=options.quiet) as progress:
        with magics.notebook.listening(progress.stage):
            found = session.compare(before, after, contract=contract, launch=launch)
        progress.result(views_bundle(comparison_view(found.baseline, found.candidate, sources_of(after))))
    return magics.give(MagicResult(found.candidate), options)


def _version(magics: KernelmateMagics, text: str) -> tuple[Kernel, Any]:
    """Returns the kernel and the contract that an argument names.

    `NAME` is the version in force, `NAME:0` the cell's own, `NAME:2` a candidate of the last search.
    """
    name, colon, number = text.partition(":")
    handle = handle_named(magics.shell.user_ns, name)
    if not colon:
        return handle.version.kernel, handle.contract
    if not number.isdigit() or not 0 <= int(number) <= len(handle.candidates):
        raise UsageError(f"{name} has no version {number!r}.", hint=f"0 is the cell's own. {handle.numbers}")
    if int(number) == 0:
        return handle.first.kernel, handle.first.contract
    candidate = handle.candidates[int(number) - 1].candidate
    return candidate.kernel, candidate.contract


def show_explanation(handle: KernelHandle, question: str = "", *, quiet: bool) -> None:
    """Shows the answer to a question, and the limiters of the version in force from its verdict; nothing is run."""
    from kernelmate.report.answers import answers, causes_for
    from kernelmate.report.causes import causes_html, causes_view
    from kernelmate.suggest.diagnosis import diagnose

    kernel, verdict = handle.version.kernel, handle.verdict
    if not quiet:
        said, causes = answers(question, verdict, handle.optimization), diagnose(verdict, kernel.unit.text)
        path, sources = kernel.unit.path, sources_of(kernel)
        shown = causes_view(verdict, causes_for(question, said, causes), path, sources, said)
        html = causes_html(verdict, causes, path, sources, question, said)
        display({**views_bundle(shown), "text/html": html}, raw=True)


def _explain(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    (name,) = _words(options, 1, 1)
    show_explanation(handle_named(magics.shell.user_ns, name), quiet=options.quiet)


def _history(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    names = _words(options, 0, 1)
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
    _words(options, 0, 0)
    from kernelmate.session.machine import run_checks

    _show(checks_bundle(run_checks(magics.notebook.settings())), options)


def _config(magics: KernelmateMagics, options: argparse.Namespace) -> None:
    words = _words(options, 0, 99)
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


SEARCH_OPTIONS = (
    "--author NAME          the suggester: auto, synthesis, recipes, local, claude, or a package's",
    "--max-candidates N     judge at most this many candidates",
    "--budget SECONDS       end within this time",
    "--samples N --rounds N answers of the local model per round, and rounds",
    "--objective METRIC     the metric that the prompt means, if it was misread",
)
JUDGE_OPTIONS = (
    "--grid BLOCKS --block THREADS --shared BYTES   the launch; left out, the last one in the cells",
    "--ref FUNCTION         what the kernel must compute (or --reference)",
    "--bind NEW             bind it to a new name, so that optimize, explain, fix and panel know it",
    "--target GPU --backend BACKEND --seed N        as of %%kernelmate",
)
OPTIONS_OF = {"optimize": SEARCH_OPTIONS, "judge": JUDGE_OPTIONS}
COMMON_OPTIONS = ("-q  show nothing    -o  return the result    -v VAR  keep the result in a variable",)

USAGE: dict[str, tuple[str, str]] = {
    "write": ("write FUNCTION(ARRAYS)", "Writes a kernel for a Python function, and puts it into the next cell."),
    "judge": ("judge NAME [ARGUMENTS ...]", "Judges a cupy.RawKernel, a function of a cupy.RawModule (MODULE.NAME) or a Numba kernel on live arrays."),
    "optimize": ('optimize NAME "PROMPT"', "Searches for a version that meets the prompt; a question is answered instead."),
    "fix": ("fix [NAME]", "Searches for a right version of a kernel that is not good; without NAME, of the last one."),
    "accept": ("accept NAME [NUMBER]", "Puts a candidate of the last search in use and writes it into its cell; without NUMBER, the best."),
    "undo": ("undo NAME", "Returns to the previous version, also in its cell."),
    "revert": ("revert NAME", "The same as undo."),
    "compare": ("compare A B, or compare NAME:1 NAME:2", "Judges two kernels, or two versions of one, side by side; NAME:0 is the cell's own."),
    "explain": ("explain NAME", "Shows what limits a kernel, by line, and what would help."),
    "panel": ("panel NAME", "Shows prompts, candidates and charts of a kernel with buttons."),
    "history": ("history [NAME]", "Lists the versions that were judged; without NAME, the kernels."),
    "config": ("config [SETTING=VALUE ...]", "Shows or sets settings of this notebook."),
    "doctor": ("doctor", "Checks what this machine has."),
}  # fmt: skip
"""Usage and purpose of each command."""

COMMANDS: dict[str, Callable[[Any, argparse.Namespace], Any]] = {
    "write": _write,
    "judge": _judge,
    "optimize": _optimize,
    "fix": _fix,
    "accept": _accept,
    "undo": _revert,
    "revert": _revert,
    "compare": _compare,
    "explain": _explain,
    "panel": _panel,
    "history": _history,
    "config": _config,
    "doctor": _doctor,
}
