"""Searches of a cell or a command in the foreground: progress, consent, the result and its buttons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial as partial_of
from typing import TYPE_CHECKING, Any

from IPython.core.error import StdinNotImplementedError
from IPython.display import DisplayHandle, display

from kernelmate.decide.intent import Intent, chips_of, read_intent
from kernelmate.errors import UsageError
from kernelmate.records import Optimization
from kernelmate.report.words import printable
from kernelmate.source import contract_for
from kernelmate_widgets.handle import KernelHandle, KernelVersion
from kernelmate_widgets.notebook_state import BoundKernel
from kernelmate_widgets.output import optimization_bundle
from kernelmate_widgets.progress import CellProgress
from kernelmate_widgets.searches import SearchArguments, partial

if TYPE_CHECKING:
    from kernelmate.session.authors import OutgoingText
    from kernelmate_widgets.actions import PromptChips
    from kernelmate_widgets.magics import KernelmateMagics


def ask_consent(outgoing: OutgoingText) -> bool:
    """Shows the complete text that would go to another machine, and asks for consent.

    The result is False if no user can answer.
    """
    price = "an unknown price" if outgoing.most_usd is None else f"at most {outgoing.most_usd:.2f} USD"
    display({"text/plain": printable(outgoing.text)}, raw=True)
    question = f"Send the text above to {outgoing.model} at {outgoing.host}, for {price}? It holds for {outgoing.workspace} from now on [y/N] "
    try:
        return input(question).strip().lower() in {"y", "yes"}
    except (EOFError, StdinNotImplementedError):
        return False


def search(
    magics: KernelmateMagics, name: str, handle: KernelHandle, prompt: str, wanted: SearchArguments,
    shown: ShownResult,
) -> Optimization:  # fmt: skip
    """Searches for a better version of a kernel, shows the result, and stores it with the kernel.

    Args:
        magics: the notebook's magics.
        name: the kernel's name.
        handle: the kernel.
        prompt: the prompt in its interpreted form.
        wanted: the search's options.
        shown: the outputs to show the result in; an earlier result in them is replaced.
    """
    version = handle.version
    with magics.progress(quiet=wanted.quiet, place=shown.output) as progress:
        found = _find(magics, magics.notebook.known[name], version, prompt, wanted, progress)
        handle.found(found)
        shown.output = progress.result(optimization_bundle(found, version.kernel))

    def accept(number: int) -> list[str]:
        if handle.optimization is not found:
            raise UsageError("Another search or another text of the cell has replaced this result.")
        handle.accept(number)
        return magics.write_cell(name, handle, running=False)

    def undo() -> list[str]:
        handle.revert()
        return magics.write_cell(name, handle, running=False)

    if shown.actions is not None and found.candidates:
        shown.actions.renew(found, version, accept, undo)
    elif shown.actions is None:
        shown.actions = actions = _buttons(magics, name, found, version, shown.output, accept, undo, shown.place)
        if actions is not None:
            handle.watch(lambda: actions.follow(handle.version))
    return found


@dataclass
class ShownResult:
    """Outputs of a search's result: the result, the buttons below it, and their output; None before they exist."""

    output: DisplayHandle | None = None
    actions: Any = None
    place: DisplayHandle | None = None


def _find(
    magics: KernelmateMagics, known: BoundKernel, version: KernelVersion, prompt: str, wanted: SearchArguments,
    progress: CellProgress,
) -> Optimization:  # fmt: skip
    """Searches; an interrupted search returns the candidates judged so far."""
    from kernelmate.session.authors import SearchOptions, authors

    session = magics.notebook.session(known.options)
    asked = SearchOptions(
        wanted.author, wanted.samples, wanted.rounds, ask_consent, progress.step, progress.text,
        spending=magics.notebook.spending(session.settings),
    )  # fmt: skip
    try:
        with magics.notebook.listening(progress.stage):
            return session.optimize(
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
                on_begun=lambda begun: progress.step(begun.objective.reading),
            )
    except KeyboardInterrupt:
        return partial(prompt, wanted.objective, version, progress.found)


def _buttons(
    magics: KernelmateMagics, name: str, found: Optimization, version: KernelVersion, output: Any,
    accept: Callable[[int], list[str]], undo: Callable[[], list[str]] | None,
    place: DisplayHandle | None = None,
) -> Any:  # fmt: skip
    """Shows buttons below a result, if the front end has widgets; commands have the same functions."""
    if output is None or not found.candidates:
        return None
    try:
        from kernelmate_widgets.actions import ResultActions
    except ImportError:
        return None
    actions = ResultActions(magics, name, found, version, output, accept, undo)
    if place is None:
        display(actions)
    else:  # made by a click, whose own output would go nowhere
        place.update(actions)
    return actions


def show_chips(
    magics: KernelmateMagics, name: str, handle: KernelHandle, intent: Intent, wanted: SearchArguments,
    shown: ShownResult,
) -> PromptChips | None:  # fmt: skip
    """Shows the interpretation of a prompt before its search; None without parts, or without widgets."""
    chips = chips_of(intent)
    if not chips or wanted.quiet or not hasattr(magics.shell, "kernel"):
        return None
    try:
        from kernelmate_widgets.actions import PromptChips
    except ImportError:
        return None

    def ask(prompt: str) -> list[tuple[str, str]]:
        read = read_intent(prompt, handle.verdict)
        search(magics, name, handle, read.prompt, wanted, shown)
        return chips_of(read)

    shows = PromptChips(intent.reading if intent.kind == "search" else "Ask instead:", chips, ask)
    display(shows)
    if shown.output is None:
        shown.output = DisplayHandle()
        shown.output.display({"text/plain": ""}, raw=True)
        shown.place = DisplayHandle()
        shown.place.display({"text/plain": ""}, raw=True)
    return shows


FIX = "fix the kernel"


def repair(
    magics: KernelmateMagics, name: str, failed: BoundKernel, *, quiet: bool, place: DisplayHandle | None = None
) -> Optimization:
    """Searches for a correct version of a rejected kernel, and shows it with its change and verdict.

    Args:
        magics: the notebook's magics.
        name: the name that the kernel would be bound to.
        failed: the rejected kernel, with its verdict.
        quiet: True to show nothing.
        place: the output for the result; None for the running cell's.
    """
    contract = failed.contract if failed.contract is not None else contract_for(failed.kernel)
    version = KernelVersion(failed.kernel, contract, failed.verdict)
    with magics.progress(quiet=quiet, place=place) as progress:
        found = _find(magics, failed, version, FIX, SearchArguments(max_candidates=48, objective="correct"), progress)
        output = progress.result(optimization_bundle(found, failed.kernel))
    magics.notebook.repairs[name] = found
    if place is None:
        accept = partial_of(magics.adopt, name, failed, found, running=False)
        _buttons(magics, name, found, version, output, accept, None)
    return found


def offer_repair(magics: KernelmateMagics, name: str, failed: BoundKernel) -> None:
    """Shows a button that repairs a rejected kernel, if the front end has widgets."""
    if not hasattr(magics.shell, "kernel"):
        return
    try:
        from kernelmate_widgets.actions import RepairActions
    except ImportError:
        return
    place = DisplayHandle()
    search = partial_of(repair, magics, name, failed, quiet=False, place=place)
    display(RepairActions(magics, name, failed, place, search))
    place.display({"text/plain": ""}, raw=True)
