"""Buttons below and above the results of a cell.

Below a search's result: accept, another candidate, confirm on a GPU, explain, undo. Below a kernel that is not
accepted: fix. Above a result: the parts of the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets
from IPython.display import DisplayHandle

from kernelmate.errors import KernelmateError
from kernelmate.records import Judged, Optimization
from kernelmate.report.causes import causes_html
from kernelmate.report.excerpt import sources_of
from kernelmate.report.json import optimization_json
from kernelmate.report.result import grouped
from kernelmate.suggest.diagnosis import diagnose
from kernelmate_widgets.comms import handle_in_main_shell
from kernelmate_widgets.handle import KernelVersion, is_version, reason_not_to_take
from kernelmate_widgets.notebook_state import BoundKernel
from kernelmate_widgets.output import optimization_bundle

if TYPE_CHECKING:
    from kernelmate_widgets.magics import KernelmateMagics

_HERE = Path(__file__).parent

Sentences = list[str]

Chips = list[tuple[str, str]]
"""Words of buttons, each with the prompt that the button submits."""


class ActionButtons(anywidget.AnyWidget):
    """A row of buttons, and the result of the last click.

    Attributes:
        state: `buttons` (identifier, words, and the reason if it is disabled), `said`, `error`, and the `html` of an
            explanation.
    """

    _esm = _HERE / "actions.js"
    _css = _HERE / "actions.css"

    state: Any = traitlets.Dict().tag(sync=True)

    def __init__(self) -> None:
        super().__init__()
        handle_in_main_shell(self.comm)
        self.on_msg(self._message)

    def __repr__(self) -> str:
        """Returns the text that a saved notebook shows instead of the buttons."""
        return "Buttons for the result above: run the cell again to use them."

    def work(self) -> dict[str, Callable[[], None]]:
        """Returns the function that each button calls, by the button's identifier."""
        raise NotImplementedError

    def show(self, said: str = "", error: str = "", html: str = "") -> None:
        """Updates the buttons and the message below them."""
        raise NotImplementedError

    def _message(self, _widget: Any, content: dict[str, Any], _buffers: list[bytes]) -> None:
        work = self.work().get(str(content.get("do")))
        if work is None:
            return
        try:
            work()
        except (KernelmateError, OSError) as error:
            self.show(error=str(error))


class ResultActions(ActionButtons):
    """The buttons of one search's result.

    Args:
        magics: the notebook's magics.
        name: the kernel's name.
        optimization: the result.
        baseline: the version that the search started from.
        output: the output that shows the result.
        accept: accepts a candidate by its number; returns sentences for the user.
        undo: reverts the last acceptance; None if that is impossible.
    """

    def __init__(
        self, magics: KernelmateMagics, name: str, optimization: Optimization, baseline: KernelVersion,
        output: DisplayHandle, accept: Callable[[int], Sentences], undo: Callable[[], Sentences] | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._magics, self._name, self._output = magics, name, output
        self.renew(optimization, baseline, accept, undo)

    def renew(
        self, optimization: Optimization, baseline: KernelVersion, accept: Callable[[int], Sentences],
        undo: Callable[[], Sentences] | None,
    ) -> None:  # fmt: skip
        """Replaces the result with another one, which is shown in the same output."""
        self._found, self._baseline = optimization, baseline
        self._take, self._take_back = accept, undo
        self._order = [one.numbers[0] for one in grouped(optimization.candidates)]
        best = optimization.best
        self._shown: int | None = None if best is None else best + 1
        self._taken: int | None = None
        self.show()

    def follow(self, version: KernelVersion) -> None:
        """Updates the buttons if the version in force was changed elsewhere; earlier messages are removed."""
        numbered = enumerate(self._found.candidates, 1)
        taken = next((number for number, one in numbered if is_version(one.candidate, version)), None)
        if taken != self._taken:
            self._taken = taken
            self._draw()
            self.show()

    def work(self) -> dict[str, Callable[[], None]]:
        """Returns the function that each button calls, by the button's identifier."""
        return {
            "accept": self._accept,
            "another": self._another,
            "confirm": self._confirm,
            "explain": self._explain,
            "undo": self._undo,
        }

    def _accept(self) -> None:
        if self._shown is None:
            return
        said = self._take(self._shown)
        self._taken = self._shown
        self._draw()
        self.show(said=" ".join(["Accepted.", *said]))

    def _undo(self) -> None:
        if self._take_back is None:
            return
        said = self._take_back()
        self._taken = None
        self._draw()
        self.show(said=" ".join(["The version before is back.", *said]))

    def _another(self) -> None:
        place = self._order.index(self._shown) if self._shown in self._order else -1
        self._shown = self._order[(place + 1) % len(self._order)]
        self._draw()
        self.show()

    def _explain(self) -> None:
        kernel, verdict = self._baseline.kernel, self._found.baseline
        if self._shown is not None:
            judged = self._found.candidates[self._shown - 1]
            kernel, verdict = judged.candidate.kernel, judged.verdict
        self.show(html=causes_html(verdict, diagnose(verdict), kernel.unit.path, sources_of(kernel)))

    def _confirm(self) -> None:
        """Writes the document that `kernelmate confirm` judges on a machine with a GPU."""
        known = self._magics.notebook.known[self._name]
        session = self._magics.notebook.session(known.options)
        given = session.given(self._baseline.kernel, contract=self._baseline.contract)
        path = Path(f"{self._name}.promising.json")
        path.write_text(json.dumps(optimization_json(self._found, given)), encoding="utf-8")
        self.show(said=f"Written to {path}. On a machine with a GPU: kernelmate confirm {path}")

    def _draw(self) -> None:
        bundle = optimization_bundle(self._found, self._baseline.kernel, self._shown, accepted=self._taken)
        self._output.update(bundle, raw=True)

    def show(self, said: str = "", error: str = "", html: str = "") -> None:
        """Updates the buttons that apply to the displayed candidate."""
        buttons = []
        if self._shown is not None and self._taken != self._shown:
            refused = reason_not_to_take(self._found.candidates[self._shown - 1])
            buttons.append(_button("accept", f"Accept {self._shown}", refused))
        elif self._shown is not None and self._take_back is not None:
            buttons.append(_button("undo", "Undo"))
        if self._shown is None:
            buttons.append(_button("another", f"Show {self._order[0]}"))
        elif len(self._order) > 1:
            buttons.append(_button("another", "Try another"))
        if any(map(_is_open, self._in_view())):
            buttons.append(_button("confirm", "Confirm on a GPU"))
        buttons.append(_button("explain", "Explain"))
        self.state = {"buttons": buttons, "said": said, "error": error, "html": html}

    def _in_view(self) -> Sequence[Judged]:
        """Returns the displayed candidate; all candidates if the result shows their list."""
        found = self._found.candidates
        return found if self._shown is None else found[self._shown - 1 : self._shown]


def _is_open(judged: Judged) -> bool:
    """Returns True for a candidate whose acceptance needs measurements on a GPU."""
    verdict = judged.verdict
    return verdict.accepted is None and verdict.backend == "emulator" and reason_not_to_take(judged) is None


class RepairActions(ActionButtons):
    """The button of a rejected kernel: it searches for a repair, and then accepts it.

    Args:
        magics: the notebook's magics.
        name: the name that the kernel would be bound to.
        failed: the rejected kernel.
        place: the output that shows the repair.
        repair: searches for a repair and shows it in `place`.
    """

    def __init__(
        self, magics: KernelmateMagics, name: str, failed: BoundKernel, place: DisplayHandle,
        repair: Callable[[], Optimization],
    ) -> None:  # fmt: skip
        super().__init__()
        self._repair = repair
        self._magics, self._name, self._failed, self._place = magics, name, failed, place
        self._found: Optimization | None = None
        self._taken = False
        self.show()

    def work(self) -> dict[str, Callable[[], None]]:
        """Returns the function that each button calls, by the button's identifier."""
        return {"fix": self._fix, "accept": self._accept}

    def _fix(self) -> None:
        self.state = {**self.state, "buttons": [_button("fix", "Fixing ...", "the search is running")], "error": ""}
        self._found = self._repair()
        self.show()

    def _accept(self) -> None:
        found = self._found
        if found is not None and found.best is not None:
            said = self._magics.adopt(self._name, self._failed, found, found.best + 1, running=False)
            self._taken = True
            bundle = optimization_bundle(found, self._failed.kernel, accepted=found.best + 1)
            self._place.update(bundle, raw=True)
            self.show(said=" ".join(said))

    def show(self, said: str = "", error: str = "", html: str = "") -> None:
        """Updates the button: fix, or accept the repair that was found."""
        best = None if self._found is None else self._found.best
        if self._taken:
            buttons = []
        elif best is not None and self._found is not None:
            buttons = [_button("accept", "Accept the repair", reason_not_to_take(self._found.candidates[best]))]
        else:
            buttons = [_button("fix", "Fix" if self._found is None else "Fix again")]
        self.state = {"buttons": buttons, "said": said, "error": error, "html": html}


class PromptChips(ActionButtons):
    """The parts of a prompt, each with a button that searches without it; or prompts to choose from.

    A click submits the prompt immediately, or after the search that the cell runs. The new result replaces the earlier
    one.

    Args:
        reading: the interpretation of the prompt, in words.
        chips: words of each button, and the prompt that it submits.
        ask: submits a prompt; returns the chips of its interpretation.
    """

    def __init__(self, reading: str, chips: Chips, ask: Callable[[str], Chips]) -> None:
        super().__init__()
        self._reading, self._chips, self._ask = reading, chips, ask
        self.show()

    def work(self) -> dict[str, Callable[[], None]]:
        """Returns the function that each button calls, by the button's identifier."""
        return {f"chip-{index}": partial(self._asked, prompt) for index, (_, prompt) in enumerate(self._chips)}

    def _asked(self, prompt: str) -> None:
        self.state = {**self.state, "buttons": [{**one, "refused": "searching"} for one in self.state["buttons"]]}
        try:
            self._chips = self._ask(prompt)
        finally:  # a search that is interrupted leaves buttons that work
            self.answered()

    def answered(self) -> None:
        """Removes the interpretation, which the result shows as well."""
        self._reading = "Ask again without:" if self._chips else ""
        self.show()

    def show(self, said: str = "", error: str = "", html: str = "") -> None:
        """Updates the interpretation and its buttons."""
        buttons = [_button(f"chip-{index}", words) for index, (words, _) in enumerate(self._chips)]
        self.state = {
            "buttons": buttons, "said": said or self._reading, "error": error, "html": html, "above": True,
        }  # fmt: skip


def _button(do: str, words: str, refused: str | None = None) -> dict[str, Any]:
    return {"do": do, "words": words, "refused": refused}
