"""Suggesters of other packages, by the entry point group `kernelmate.suggesters`.

An entry point names a callable without arguments that returns a suggester: a class, or a function.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from kernelmate.errors import UsageError
from kernelmate.suggest.base import Suggester

GROUP = "kernelmate.suggesters"


def plugin_names() -> list[str]:
    """Returns the names of all installed suggesters."""
    return sorted({point.name for point in entry_points(group=GROUP)})


def load_plugin(name: str) -> Suggester:
    """Creates a suggester.

    Raises:
        UsageError: there is no suggester of this name, or it cannot be created.
    """
    for point in entry_points(group=GROUP):
        if point.name == name:
            try:
                suggester: Suggester = point.load()()
            except Exception as error:
                what = f"The suggester {name} ({point.value}) cannot be made: {type(error).__name__}: {error}."
                raise UsageError(what, hint="Repair or remove the package that provides it.") from error
            return suggester
    known = ", ".join(plugin_names()) or "none is installed"
    raise UsageError(f"There is no suggester {name!r}.", hint=f"Suggesters of other packages: {known}.")
