"""The panel: an interactive view of one kernel in the browser, with candidates, a prompt, and acceptance.

All state is in the widget's traits, so that a reloaded page shows the same. Plotly's library is not part of it: charts
are SVG images until the pointer enters one, and the page then requests the library once.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets
from IPython.display import DisplayHandle, display

from kernelmate.decide.intent import SUGGESTED, Intent, read_intent, removable
from kernelmate.errors import EnvironmentFailed, KernelmateError, UsageError
from kernelmate.records import Judged, Optimization
from kernelmate.report.answers import answers
from kernelmate.report.causes import causes_html
from kernelmate.report.chart import templates
from kernelmate.report.excerpt import sources_of
from kernelmate.session.authors import BUILT_IN, OutgoingText
from kernelmate.suggest.diagnosis import diagnose
from kernelmate_widgets import panel_state
from kernelmate_widgets.comms import handle_in_page_subshell
from kernelmate_widgets.handle import KernelHandle, is_version
from kernelmate_widgets.notebook_state import NotebookState
from kernelmate_widgets.output import panel_bundle
from kernelmate_widgets.panel_state import VersionList
from kernelmate_widgets.searches import BackgroundSearch, SearchArguments, SearchQuery

CHARTS_EVERY_S = 1.5
"""Seconds between two updates of the charts while candidates arrive."""

STAGES_EVERY_S = 0.1
MOST_TEXT = 20_000
"""Maximum number of characters of a model's text that are kept."""

_HERE = Path(__file__).parent


class Panel(anywidget.AnyWidget):
    """One kernel's panel.

    Args:
        notebook: the notebook's state.
        name: the kernel's name.
        handle: the kernel.
        write: writes the version in force into the notebook; returns sentences for the user.

    Attributes:
        handle: the kernel.
        state: `busy`, `stage`, `text`, `error`, `notes`, `question`, `inForce` and the like.
        versions: the present kernel and the candidates.
        detail: details of the selected version.
        result: title and drawing of the three charts of every result.
        charts: title, drawing and Plotly figure of each further chart.
    """

    _esm = _HERE / "panel.js"
    _css = _HERE / "panel.css"

    state: Any = traitlets.Dict().tag(sync=True)
    versions: Any = traitlets.List().tag(sync=True)
    detail: Any = traitlets.Dict().tag(sync=True)
    result: Any = traitlets.List().tag(sync=True)
    charts: Any = traitlets.List().tag(sync=True)
    fixed: Any = traitlets.Dict().tag(sync=True)

    def __init__(
        self, notebook: NotebookState, name: str, handle: KernelHandle, write: Callable[[], list[str]] = list
    ) -> None:
        super().__init__()
        handle_in_page_subshell(self.comm)
        self.handle, self._write = handle, write
        self.fixed = {
            "name": name,
            "chips": list(SUGGESTED),
            "authors": list(BUILT_IN),
            "templates": templates(),
            "kept": f"km-kept-{secrets.token_hex(8)}",
        }
        self._kept: list[DisplayHandle] = []
        self._notebook, self._name, self._handle = notebook, name, handle
        self._search: BackgroundSearch | None = None
        self._base = handle.version
        self._shown: Optimization | None = None
        self._listing = VersionList()
        self._asked = ""
        self._showing = threading.RLock()  # a search and the page's requests use two threads
        self._answer: threading.Event | None = None
        self._agreed = False
        self._drawn_at = self._staged_at = self._began_at = 0.0
        self.state = {
            "busy": False,
            "stage": "",
            "elapsedS": 0,
            "text": "",
            "error": "",
            "notes": [],
            "question": None,
            "prompt": "",
            "wishes": [],
            "html": "",
            "inForce": None,
        }
        self.on_msg(self._message)
        handle.watch(self._changed)
        self._changed()

    def show(self) -> None:
        """Displays the panel, preceded by the output that a notebook shows without a running kernel.

        A second call displays the same panel in another place.
        """
        kept = DisplayHandle()
        kept.display(panel_bundle(self._handle, self._shown, self.fixed["kept"]), raw=True)
        self._kept.append(kept)
        display(self)

    def _keep(self) -> None:
        if self._kept:
            bundle = panel_bundle(self._handle, self._shown, self.fixed["kept"])
            for kept in self._kept:
                kept.update(bundle, raw=True)

    # --------------------------------------------------------------------------------------- what the page asks for

    def _message(self, _widget: Any, content: dict[str, Any], _buffers: list[bytes]) -> None:
        """Handles one request of the page; errors are shown in the panel."""
        work = {
            "ask": self._ask,
            "read": self._read,
            "cancel": self._cancel,
            "accept": self._accept,
            "reject": self._reject,
            "revert": self._revert,
            "select": self._select,
            "answer": self._answered,
            "plotly": self._send_plotly,
        }.get(str(content.get("do")))
        if work is None:
            return
        try:
            work(content)
        except KernelmateError as error:
            self._say(error=str(error))

    def _ask(self, content: dict[str, Any]) -> None:
        prompt = str(content.get("prompt", "")).strip()
        if not prompt or self._search is not None:
            return
        intent = self._intent(prompt)
        if intent.kind != "search":
            self._answer_at_once(intent)
            return
        author = content.get("author")
        options = SearchArguments(author=author if author in BUILT_IN else "auto")
        prompt = intent.prompt
        self._begin(prompt)
        self._say(stage=intent.reading)
        self._search = BackgroundSearch(self._notebook, self._name, self._handle, SearchQuery(prompt, options), self)
        self._search.start()

    def _intent(self, prompt: str) -> Intent:
        before = self._handle.optimization
        earlier = None if before is None else before.objective
        return read_intent(prompt, self._handle.verdict, earlier=earlier)

    def _read(self, content: dict[str, Any]) -> None:
        """Shows the interpretation of a prompt, with a button for each part that can be removed."""
        prompt = str(content.get("prompt", "")).strip()
        if self._search is not None:
            return
        intent = self._intent(prompt) if prompt else None
        objective = None if intent is None else intent.objective
        wishes = (
            [] if objective is None else [{"words": words, "without": prompt} for words, prompt in removable(objective)]
        )
        known = None if self._shown is None else self._shown.objective.reading  # which the notes say
        self._say(wishes=wishes, reading="" if intent is None or intent.reading == known else intent.reading)

    def _answer_at_once(self, intent: Intent) -> None:
        """Executes a prompt that is not a search; if it cannot be executed, shows an error."""
        self._say(wishes=[], reading="")
        if intent.kind == "explain":
            kernel, verdict = self._handle.version.kernel, self._handle.verdict
            said = answers(intent.prompt, verdict, self._handle.optimization)
            html = causes_html(verdict, diagnose(verdict), kernel.unit.path, sources_of(kernel), intent.prompt, said)
            self._say(error="", notes=[intent.reading], html=html)
        elif intent.kind == "accept":
            self._handle.accept(intent.number)
            self._say(error="", html="", notes=["Accepted.", *self._write()])
        elif intent.kind == "undo":
            self._handle.revert()
            self._say(error="", html="", notes=self._write())
        else:
            self._say(error=f"{intent.reading} Choose one of the prompts above.", html="", notes=[])

    def _begin(self, prompt: str) -> None:
        self._began_at = time.monotonic()
        self._base = self._handle.version
        self._listing.begin()
        self._say(
            busy=True, stage="starting", elapsedS=0, text="", error="", notes=[], prompt=prompt, html="", wishes=[], reading="",
            inForce=self._listing.selected.key,
        )  # fmt: skip
        self._show_versions()
        self._show_detail()
        self._draw()

    def _cancel(self, _: dict[str, Any]) -> None:
        if self._search is not None:
            self._say(stage="stopping")
            self._release(agreed=False)
            self._search.cancel()

    def _accept(self, content: dict[str, Any]) -> None:
        if self._search is not None:
            raise UsageError("The search is still running.", hint="Wait until it ends, or cancel it.")
        number = self._listing.number(_key(content))
        if number is None or not self._listing.shows(self._handle.candidates):
            raise UsageError("This version is no longer in the list.", hint="Choose a version of the list.")
        self._handle.accept(number)
        self._say(error="", html="", notes=["Accepted.", *self._write()])

    def _reject(self, content: dict[str, Any]) -> None:
        """Hides a version, or shows it again."""
        self._listing.reject(_key(content))
        self._show_versions()
        self._draw()

    def _revert(self, _: dict[str, Any]) -> None:
        self._handle.revert()
        self._say(error="", html="", notes=self._write())

    def _select(self, content: dict[str, Any]) -> None:
        """Shows a version; the reply has the page's request id."""
        with self._showing:
            self._listing.select(_key(content))
            self._asked = str(content.get("asked", ""))
            self._show_detail()
        if self._search is None:
            self._draw_result()

    def _send_plotly(self, _: dict[str, Any]) -> None:
        try:
            from plotly.offline import get_plotlyjs
        except ImportError:
            raise EnvironmentFailed("Charts need plotly.", hint="pip install 'kernelmate[notebook]'") from None
        self.send({"plotly": True}, buffers=[get_plotlyjs().encode()])

    def _answered(self, content: dict[str, Any]) -> None:
        self._release(agreed=content.get("agreed") is True)

    def _release(self, *, agreed: bool) -> None:
        self._agreed = agreed
        if self._answer is not None:
            self._answer.set()

    # ---------------------------------------------------------------------------------------- what the search tells

    def on_stage(self, stage: str, done: int, total: int) -> None:
        """Shows the progress of judging."""
        from kernelmate.report.words import STAGES

        count = f" {min(done + 1, total)} of {total}" if total > 1 else ""
        self._stage(f"{STAGES.get(stage, stage)}{count}")

    def on_step(self, text: str) -> None:
        """Shows a step that begins, without delay, since the next message may come late."""
        self._staged_at = time.monotonic()
        # The page counts on from here: a page that was loaded anew does not know when the search began.
        self._say(stage=text, elapsedS=round(self._staged_at - self._began_at))

    def on_text(self, text: str) -> None:
        """Appends text of a model, as it arrives."""
        self._say(text=(self.state["text"] + text)[-MOST_TEXT:])

    def on_judged(self, found: Judged) -> None:
        """Adds a judged candidate, and shows it."""
        self._listing.add(found)
        self._show_versions()
        if time.monotonic() - self._drawn_at > CHARTS_EVERY_S:
            self._draw()

    def ask(self, outgoing: OutgoingText) -> bool:
        """Shows all the text that would be sent to another machine, and waits for the user's consent."""
        self._answer = threading.Event()
        price = None if outgoing.most_usd is None else f"{outgoing.most_usd:.2f}"
        self._say(question={"text": outgoing.text, "host": outgoing.host, "model": outgoing.model, "usd": price})
        self._answer.wait()
        self._answer = None
        self._say(question=None)
        return self._agreed

    def on_end(self, optimization: Optimization | None, error: str | None) -> None:
        """Shows the end of a search."""
        self._search = None
        notes = panel_state.notes_of(optimization)
        if optimization is not None and self._handle.optimization is optimization:
            self._shown = optimization
            self._listing.arrange(optimization.candidates, optimization.best)
            self._refresh()
        elif self._handle.version is not self._base:
            notes.append("The kernel was changed meanwhile, so what was found for its old version is gone.")
            self._adopt()
            self._refresh()
        self._say(busy=False, stage="", error=error or "", notes=notes)
        self._keep()

    # ------------------------------------------------------------------------------------------------------ showing

    def _changed(self) -> None:
        """Updates the panel after another version is in force, or a search outside the panel has ended."""
        handle = self._handle
        if self._search is None and (handle.optimization is None or handle.optimization is not self._shown):
            self._adopt()
        # Notes are on the version before; who has changed it says what is to be said of the new one.
        self._say(inForce=self._in_force(), source=handle.version.author, canRevert=handle.can_revert, notes=[])
        if self._search is None:
            self._refresh()
            self._keep()

    def _adopt(self) -> None:
        """Resets the panel to the handle's state after a new cell text or another search."""
        self._shown = self._handle.optimization
        # Candidates stand beside the version that their search began with, which may be out of force.
        self._base = self._handle.version if self._shown is None else self._handle.searched
        self._listing.begin()
        if self._shown is not None:
            self._listing.arrange(self._shown.candidates, self._shown.best)

    def _refresh(self) -> None:
        self._show_versions()
        self._show_detail()
        self._draw()

    def _in_force(self) -> int | None:
        """Returns the key of the version in force, by text, kernel and launch; None if it is not listed."""
        version = self._handle.version
        first, *others = self._listing.versions
        if version is self._base:
            return first.key
        return next((one.key for one in others if one.found and is_version(one.found.candidate, version)), None)

    def _show_versions(self) -> None:
        found = self._handle.optimization
        with self._showing:
            best = found.best if found is not None and self._listing.shows(found.candidates) else None
            self.versions = [
                panel_state.row(one, self._base, best=best is not None and one.number == best + 1)
                for one in self._listing.versions
            ]

    def _show_detail(self) -> None:
        with self._showing:
            selected = self._listing.selected
            accepted = selected.found is not None and selected.key == self._in_force()
            self.detail = {
                "asked": self._asked,
                **panel_state.detail(selected, self._base, accepted=accepted),
            }

    def _draw(self) -> None:
        self._draw_result()
        self.charts = panel_state.charts(panel_state.shown_versions(self._base, self._listing))
        self._drawn_at = time.monotonic()

    def _draw_result(self) -> None:
        self.result = panel_state.drawings(self._base, self._listing)

    def _stage(self, text: str) -> None:
        if time.monotonic() - self._staged_at > STAGES_EVERY_S:
            self.on_step(text)

    def _say(self, **changes: Any) -> None:
        with self._showing:
            self.state = {**self.state, **changes}


def _key(content: dict[str, Any]) -> int:
    """Returns the version key in a request; -1, which no version has, without one."""
    return int(content.get("key", -1))
