"""The thread of the kernel in which the requests of a page are handled.

A kernel has a main shell, which runs the cells, and may have subshells: threads that handle messages while a cell runs
(Jupyter Enhancement Proposal 91). JupyterLab 4.4 and later make one per page for the messages of widgets, and a short-lived one
when a reloaded page requests the state of all widgets. ipykernel 7.4 does not send a widget's message to the subshell that
the page named, but to that of the request during which the kernel last used the widget. To messages from a thread of
ours it assigns the most recent request of any page, whose subshell may have been deleted since; every further request of
the page is then answered with `UnknownSubshellError`, and lost. Other versions of ipykernel, and kernels without
subshells, need no correction.
"""

from __future__ import annotations

from typing import Any

_ROUTE = "_reply_subshell_for"
"""The method of ipykernel 7.4's comms that gives the subshell of a message, `None` for the main shell."""


def handle_in_page_subshell(comm: Any) -> None:
    """Makes the kernel handle a widget's requests in the subshell of the page that sent them, also while a cell runs."""
    if hasattr(comm, _ROUTE):
        setattr(comm, _ROUTE, lambda _data, named: named)


def handle_in_main_shell(comm: Any) -> None:
    """Makes the kernel handle a widget's requests in the main shell, where an interrupt of the kernel reaches them."""
    if hasattr(comm, _ROUTE):
        setattr(comm, _ROUTE, lambda _data, _named: None)
