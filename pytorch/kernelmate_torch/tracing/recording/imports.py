"""Calls functions once modules have been imported; at once if they already are."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType
from typing import Any

from .kernels import is_user_file
from .stepping import STEPPER

WhenImported = Callable[[ModuleType], None]


class ImportWatcher(MetaPathFinder):
    """Finder that lets the others find a module and calls a function after its import."""

    def __init__(self) -> None:
        self._wanted: dict[str, WhenImported] = {}
        self._searching: set[str] = set()

    def when(self, name: str, function: WhenImported) -> None:
        """Calls a function with a module once it is imported; errors of the function are printed, not raised."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            _called(function, module)
        else:
            self._wanted[name] = function

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Returns the spec that another finder has, with a loader that calls the function afterwards.

        The stepper pauses while a library is imported, which calls millions of functions of which none is followed.
        """
        if name in self._searching or not (name in self._wanted or STEPPER.costs):
            return None
        self._searching.add(name)
        try:
            spec = next(
                (found for one in sys.meta_path if one is not self and (found := _spec_of(one, name, path, target))),
                None,
            )
        finally:
            self._searching.discard(name)
        loader: Any = None if spec is None else spec.loader
        if type(loader) is not SourceFileLoader:
            return spec
        of_library = not is_user_file(loader.path)
        function = self._wanted.pop(name, None)
        if function is not None or of_library:
            setattr(loader, "exec_module", _watched(loader.exec_module, function))  # noqa: B010 -- the type checker takes it for a method
        return spec


def _watched(execute: WhenImported, function: WhenImported | None) -> WhenImported:
    def exec_module(module: ModuleType) -> None:
        with STEPPER.paused():
            execute(module)
        if function is not None:
            _called(function, module)

    return exec_module


def _spec_of(finder: Any, name: str, path: Sequence[str] | None, target: ModuleType | None) -> ModuleSpec | None:
    find = getattr(finder, "find_spec", None)
    return None if find is None else find(name, path, target)


def _called(function: WhenImported, module: ModuleType) -> None:
    try:
        function(module)
    except Exception as error:  # noqa: BLE001 -- the program goes on without this part of the record
        print(f"kernelmate trace: {module.__name__} is not followed: {type(error).__name__}: {error}", file=sys.stderr)
