"""Loading and calling the user's Python code: references and `inputs` functions. Used only inside the worker."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelmate.errors import ReferenceFailed

MOST_MESSAGE = 4000
"""Maximum number of characters of an exception's message."""


def load_function(where: str, directory: Path, line: int | None) -> Callable[..., Any]:
    """Returns the function that `path:function` names, relative to `directory`.

    A file is loaded once, and again after it or a module imported from its own folder has changed. No bytecode is
    written beside it.

    Raises:
        ReferenceFailed: the file does not exist, raised an exception when loaded, or has no such function.
    """
    name, _, function = where.rpartition(":")
    path = (directory / name).resolve()
    if not path.is_file():
        raise ReferenceFailed(
            f"There is no file {name} in {directory}.",
            line=line,
            hint="Give the path relative to the kernel's file, as in reference.py:softmax.",
        )
    module = _module(path)
    found = getattr(module, function, None)
    if not callable(found):
        raise ReferenceFailed(
            f"{name} holds no function {function}.", file=str(path), hint="Correct the name in the contract."
        )
    return found  # type: ignore[no-any-return]


def stamp(where: str | None, directory: Path) -> object:
    """Returns a value that changes with the file of `path:function` or a data file; None without a file.

    It also changes with the modules that the file imports from its folder.
    """
    if where is None:
        return None
    path = directory / (where.rpartition(":")[0] or where)
    try:
        return _stamps(path.resolve())
    except OSError:
        return None


def content(where: str | None, directory: Path) -> str | None:
    """Returns a digest of the file of `path:function` and of modules that it imports from its folder.

    The result is None without a file.
    """
    if where is None:
        return None
    path = (directory / (where.rpartition(":")[0] or where)).resolve()
    try:
        names = [Path(name) for name, _ in _stamps(path)]
        return hashlib.sha256(b"\0".join(name.read_bytes() for name in names if name.is_file())).hexdigest()
    except OSError:
        return None


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A loaded file: `stamps` are those of the file and of the modules that it imported from its folder."""

    module: ModuleType
    stamps: tuple[tuple[str, int], ...]


_LOADED: dict[Path, _Loaded] = {}
_HELPERS: dict[str, Path] = {}
"""Modules that users' files imported from their own folders, by their name in `sys.modules`."""


def note_helpers(where: str | None, directory: Path, helpers: Mapping[str, str]) -> None:
    """Records the modules that `path:function` imported from its folder when another process loaded it."""
    folder = (directory / (where or "").rpartition(":")[0]).resolve().parent
    _HELPERS.update({name: path for name, one in helpers.items() if folder in (path := Path(one)).parents})


def helpers_of(where: str | None, directory: Path) -> dict[str, str]:
    """Returns the modules that `path:function` imported from its folder, by name."""
    folder = (directory / (where or "").rpartition(":")[0]).resolve().parent
    return {name: str(path) for name, path in _HELPERS.items() if folder in path.parents}


def _stamps(path: Path) -> tuple[tuple[str, int], ...]:
    """Returns the modification times of a file and of the modules imported from its folder.

    Raises:
        OSError: the file no longer exists.
    """
    found = [(str(path), path.stat().st_mtime_ns)]
    for helper in sorted(set(_HELPERS.values())):
        if path.parent in helper.parents:
            found.append((str(helper), helper.stat().st_mtime_ns if helper.is_file() else 0))
    return tuple(found)


def _module(path: Path) -> ModuleType:
    known = _LOADED.get(path)
    if known is not None and known.stamps == _stamps(path):
        return known.module
    for name in [name for name, helper in _HELPERS.items() if path.parent in helper.parents]:
        del _HELPERS[name]
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    module = _load(path)
    _LOADED[path] = _Loaded(module, _stamps(path))
    return module


def _load(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"kernelmate_reference_{path.stem}", path)
    if specification is None or specification.loader is None:
        raise ReferenceFailed("This is not a Python file.", file=str(path), hint="Name a .py file.")
    module = importlib.util.module_from_spec(specification)
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(path.parent))
    try:
        with _quiet(), _helpers_noted(path.parent):
            specification.loader.exec_module(module)
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 -- SystemExit of a script is the user's mistake, too
        raise _failure(error, path, "This file raised while it was loaded") from None
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(str(path.parent))
        sys.dont_write_bytecode = before
    return module


@contextlib.contextmanager
def _helpers_noted(folder: Path) -> Iterator[None]:
    """Context manager that records imports from a folder; packages installed below it do not count."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in sys.modules.keys() - before:
            file = getattr(sys.modules[name], "__file__", None)
            path = None if file is None else Path(file).resolve()
            if path is not None and folder in path.parents and "site-packages" not in path.parts:
                _HELPERS[name] = path


def call_user(function: Callable[..., Any], keywords: Mapping[str, Any], where: str, directory: Path) -> Any:
    """Calls a user's function; its printed output is discarded.

    Raises:
        ReferenceFailed: it raised an exception; the message names it and the line.
    """
    try:
        with _quiet():
            return function(**keywords)
    except MemoryError:
        raise
    except BaseException as error:  # noqa: BLE001 -- see _module
        name = where.rpartition(":")[0]
        raise _failure(error, directory / name if name else None, f"The reference {where!r} raised") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Context manager that discards printed output.

    A reference is called many times, and its output would count as the kernel's.
    """
    with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
        yield


def _message(error: BaseException) -> str:
    """Returns the text of a user's exception, truncated, without characters that cannot be sent.

    User code may define `__str__`, so any exception in it is caught.
    """
    try:
        text = str(error)[:MOST_MESSAGE]
    except MemoryError:
        raise
    except BaseException as failed:  # noqa: BLE001 -- whatever it raises, the exception is the user's mistake
        return f"(its message cannot be had: {type(failed).__name__})"
    return text.encode("utf-8", "backslashreplace").decode()


def _failure(error: BaseException, path: Path | None, what: str) -> ReferenceFailed:
    if isinstance(error, ReferenceFailed):
        return error
    if isinstance(error, SyntaxError) and error.lineno:
        return ReferenceFailed(f"{what}: {error.msg}.", file=error.filename, line=error.lineno, hint="Correct it.")
    file = None if path is None else str(path.resolve())
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if file and frame.filename == file]
    text = f"{type(error).__name__}: {_message(error)}".rstrip(": ")
    hint = "Correct the function: it gets NumPy arrays, floats in float64, by the names of the arguments."
    if isinstance(error, ModuleNotFoundError) and error.name:
        hint = f"Install {error.name.partition('.')[0]} beside KernelMate, or do without it."
    return ReferenceFailed(
        f"{what} {text}.",
        file=file,
        line=own[-1].lineno if own else None,
        hint=hint,
    )
