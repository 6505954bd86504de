"""Cache of results by text, bounded by the characters of the texts that it holds."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MOST_CHARACTERS = 600_000
"""Maximum number of characters of the texts in one cache: two versions of a file of 10,000 lines, or every version of a kernel."""


class TextCache(Generic[P, T]):
    """A function whose last results are kept; use it through `text_cache`.

    Results of the longest texts are some hundred times as large as those of most, so that a number of entries bounds
    nothing: an editor sends a new version of the whole file with every key.
    """

    def __init__(self, function: Callable[P, T], entries: int) -> None:
        update_wrapper(self, function)
        self._function, self._entries = function, entries
        self._kept: OrderedDict[tuple[Hashable, ...], tuple[T, int]] = OrderedDict()
        self._characters = 0
        self._turn = threading.Lock()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns the function's result for hashable arguments."""
        key = (*args, *sorted(kwargs.items()))
        with self._turn:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
        made = self._function(*args, **kwargs)
        with self._turn:
            if key not in self._kept:
                size = sum(_characters(value) for value in (*args, *kwargs.values()))
                self._kept[key] = made, size
                self._characters += size
            # The newest stays, however long its text is.
            while len(self._kept) > 1 and (len(self._kept) > self._entries or self._characters > MOST_CHARACTERS):
                self._characters -= self._kept.popitem(last=False)[1][1]
        return made


def text_cache(entries: int) -> Callable[[Callable[P, T]], TextCache[P, T]]:
    """Keeps the last results of a function of texts, units or kernels, like `functools.lru_cache`.

    Args:
        entries: maximum number of results; fewer are kept of texts that are `MOST_CHARACTERS` together.
    """
    return lambda function: TextCache(function, entries)


def _characters(value: object) -> int:
    """Characters of a text, of a unit's or of a kernel's."""
    text = getattr(getattr(value, "unit", value), "text", value)
    return len(text) if isinstance(text, str) else 0
