"""Headers of a project that no include path leads to, found by their names in the project's folders."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path, PurePath

from kernelmate.config import marked_folder
from kernelmate.files import project_folders

HEADERS = frozenset(
    {".h", ".hh", ".hpp", ".hxx", ".h++", ".cuh", ".cu", ".inl", ".inc", ".ipp", ".tpp", ".tcc", ".def", ".in"}
)
"""File name suffixes of headers."""

TEMPLATES = (".in", ".cmakein", ".cmake", ".in.cmake", ".meson", ".tmpl")
"""Suffixes that projects add to the name of a header for the template from which their build makes it."""

SUPPLIERS = {
    "curand": "the package nvidia-curand or a CUDA toolkit has it",
    "cutlass/": "it is in the folder include of github.com/NVIDIA/cutlass",
    "cute/": "it is in the folder include of github.com/NVIDIA/cutlass",
    "cub/": "the package nvidia-cuda-cccl or a CUDA toolkit has it",
    "thrust/": "the package nvidia-cuda-cccl or a CUDA toolkit has it",
    "cuda/": "the package nvidia-cuda-cccl or a CUDA toolkit has it",
    "cooperative_groups": "the package nvidia-cuda-runtime or a CUDA toolkit has it",
    "glm/": "it belongs to GLM, github.com/g-truc/glm",
    "Eigen/": "it belongs to Eigen, gitlab.com/libeigen/eigen",
    "opencv2/": "it belongs to OpenCV's installation",
    "raft/": "it is in the folder cpp/include of github.com/rapidsai/raft",
    "rmm/": "it is in the folder include of github.com/rapidsai/rmm",
}
"""Origins of headers that device code often includes, by the beginning of the name."""

_KEPT = 50
"""Ratio of the time for which a project's list is kept to the time that reading it took.

Reading 5,000 folders takes about a second, a small project's some milliseconds, so that an editor soon finds a new header there.
"""

_LISTED: dict[Path, tuple[float, dict[str, list[Path]]]] = {}
"""For each project, the time after which its folders are read again, and the folders that contain a header of each name."""


def nearest_header(name: str, beside: Path) -> Path | None:
    """Returns the header of this name in the project of a folder that is nearest to the folder.

    Distance is the number of steps from folder to folder. The project of a git submodule is the repository around it, where
    the headers of sibling submodules are. Without a mark of a project (`.git`, `pyproject.toml`) above the
    folder nothing is searched, since the search would read a home folder or a whole disk.

    Args:
        name: the name as an `#include` gives it, such as `common/helper.cuh`.
        beside: folder of the including file.

    Returns:
        The header; None if there is none, or if two are equally near.
    """
    return _nearest(name, beside) if PurePath(name).suffix.lower() in HEADERS else None


def _nearest(name: str, beside: Path) -> Path | None:
    """Returns the nearest header or template of a header that has this name; None as `nearest_header` does."""
    root = _searched_folder(beside)
    wanted = PurePath(name)
    if root is None or wanted.is_absolute() or ".." in wanted.parts:
        return None
    headers = [folder / wanted.name for folder in _listed(root).get(wanted.name, ())]
    found = sorted(
        (distance(beside.resolve(), include_folder(name, header)), header)
        for header in headers
        if header.parts[-len(wanted.parts) :] == wanted.parts and header.is_file()
    )
    if not found or (len(found) > 1 and found[0][0] == found[1][0]):
        return None
    return found[0][1]


def header_templates(names: Iterable[str], unit: Path) -> list[str]:
    """Returns a phrase for each header that the project's build makes from a template: `config.h` from `config.h.in`."""
    beside = unit.resolve().parent
    found = [
        (name, next(filter(None, (_nearest(f"{PurePath(name).name}{suffix}", beside) for suffix in TEMPLATES)), None))
        for name in names
    ]
    return [
        f"the build makes {name} from {template}: build the project, and add the folder with the header"
        for name, template in found
        if template is not None
    ]


def _searched_folder(beside: Path) -> Path | None:
    """Returns the project's folder; for a git submodule, that of the outermost repository that has it.

    None if that is the user's home folder, as where settings are kept by git.
    """
    root = marked_folder(beside)
    while root is not None and _is_submodule(root):
        around = marked_folder(root.parent)
        if around is None or _is_home(around):
            break
        root = around
    return None if root is None or _is_home(root) else root


def _is_home(folder: Path) -> bool:
    return folder == Path(os.path.expanduser("~")).resolve()


def _is_submodule(folder: Path) -> bool:
    """Returns True if `.git` is a submodule's file, which names a folder of the repository around it.

    Such are `.git/modules/NAME`, and `.git/worktrees/TREE/modules/NAME` in a worktree. A worktree of a submodule,
    `.git/modules/NAME/worktrees/TREE`, may be anywhere.
    """
    try:
        named = (folder / ".git").read_text(errors="replace").removeprefix("gitdir:").strip()
    except OSError:
        return False
    return (
        re.search(r"/\.git/(?:worktrees/[^/]+/)?modules/(?!.*/worktrees/)", "/" + named.replace("\\", "/")) is not None
    )


def include_folder(name: str, header: Path) -> Path:
    """Returns the folder from which an include path finds a header by the name in its `#include`."""
    return header.parents[len(PurePath(name).parts) - 1]


def folders_of(headers: Iterable[tuple[str, str]], directory: Path) -> list[Path]:
    """Returns the folders to add to the include path, so that other machines find the same headers.

    Args:
        headers: names, as their `#include` gives them, and files.
        directory: the including file's folder; headers in it and below need no include path.
    """
    found = [
        include_folder(name, Path(path))
        for name, path in headers
        if Path(path).match(name) and not Path(path).is_relative_to(directory)
    ]
    return list(dict.fromkeys(found))


def distance(one: Path, other: Path) -> int:
    """Returns the number of steps, up and down, from one folder to another; both paths are absolute."""
    common = Path(os.path.commonpath([one, other]))
    return len(one.parts) + len(other.parts) - 2 * len(common.parts)


def _listed(root: Path) -> dict[str, list[Path]]:
    """Returns the folders of a project that have a header, by the header's file name."""
    begun = time.monotonic()
    expires, headers = _LISTED.get(root, (begun, {}))
    if begun < expires:
        return headers
    headers = {}
    for folder, files in project_folders(root):
        for file in files:
            if os.path.splitext(file)[1].lower() in HEADERS or file.endswith(TEMPLATES):
                headers.setdefault(file, []).append(folder)
    ended = time.monotonic()
    _LISTED[root] = (ended + _KEPT * (ended - begun), headers)
    return headers
