"""Headers of a project that no include path leads to, found by their names in the project's folders."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path, PurePath

from kernelmate.config import marked_folder
from kernelmate.files import walked

HEADERS = frozenset(
    {".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".cu", ".inl", ".inc", ".ipp", ".tpp", ".tcc", ".def", ".in"}
)
"""File name suffixes of headers."""

_KEPT_S = 60.0
"""Seconds after which a project's folders are read again."""

_LISTED: dict[Path, tuple[float, dict[str, list[Path]]]] = {}
"""Of each project, the time when its folders were read, and the folders that have a header, by the header's last part."""


def nearest_header(name: str, beside: Path) -> Path | None:
    """Return the header of this name in the project of a folder that is nearest to the folder.

    Distance is the number of steps from folder to folder. Without a mark of a project (`.git`, `pyproject.toml`) above the
    folder nothing is searched, since the search would read a home folder or a whole disk.

    Args:
        name: the name as an `#include` gives it, such as `common/helper.cuh`.
        beside: folder of the including file.

    Returns:
        The header; None if there is none, or if two are equally near.
    """
    root = marked_folder(beside)
    wanted = PurePath(name)
    if root is None or wanted.is_absolute() or ".." in wanted.parts or wanted.suffix.lower() not in HEADERS:
        return None
    above = len(wanted.parts) - 1
    found: list[tuple[int, Path]] = []
    for folder in _listed(root).get(wanted.name, ()):
        if folder.parts[len(folder.parts) - above :] == wanted.parts[:-1] and (folder / wanted.name).is_file():
            start = folder.parents[above - 1] if above else folder
            found.append((distance(beside.resolve(), start), folder / wanted.name))
    found.sort()
    if not found or (len(found) > 1 and found[0][0] == found[1][0]):
        return None
    return found[0][1]


def folders_of(headers: Iterable[tuple[str, str]], directory: Path) -> list[Path]:
    """Return the folders that an include path needs so that other machines find the headers as this one did.

    Args:
        headers: names, as their `#include` gives them, and files.
        directory: the including file's folder; headers in it and below need no include path.
    """
    found = [
        Path(path).parents[name.count("/")]
        for name, path in headers
        if Path(path).match(name) and not Path(path).is_relative_to(directory)
    ]
    return list(dict.fromkeys(found))


def distance(one: Path, other: Path) -> int:
    """Returns the number of steps, up and down, from one folder to another; both paths are absolute."""
    common = Path(os.path.commonpath([one, other]))
    return len(one.parts) + len(other.parts) - 2 * len(common.parts)


def _listed(root: Path) -> dict[str, list[Path]]:
    """Returns the folders of a project that have a header, by the header's last part."""
    read, headers = _LISTED.get(root, (-_KEPT_S, {}))
    if time.monotonic() - read < _KEPT_S:
        return headers
    headers = {}
    for folder, files in walked(root):
        for file in files:
            if os.path.splitext(file)[1].lower() in HEADERS:
                headers.setdefault(file, []).append(folder)
    _LISTED[root] = (time.monotonic(), headers)
    return headers
