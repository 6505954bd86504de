"""Options that a project's own build gives a file: its `compile_commands.json`, or the calls of torch's extension builders.

The files are read, never run. They belong to the project, which may be anybody's: only options of the allow-list are taken,
and of include paths only those within the project.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from kernelmate.compiler.build import build_options, read_build
from kernelmate.config import marked_folder
from kernelmate.errors import UsageError
from kernelmate.flags import RefusedOption, allowed
from kernelmate.records import CompileOptions

_DATABASES = ("compile_commands.json", "build/compile_commands.json", "out/compile_commands.json")
_BUILDERS = frozenset({"load", "CUDAExtension"})
_FLAGS = ("extra_cuda_cflags", "extra_compile_args", "define_macros", "extra_include_paths", "include_dirs")
_MENTIONED = re.compile("|".join(_FLAGS))
_MOST_CHARACTERS = 1 << 20
_MOST_FILES = 200
"""Maximum number of Python files of a folder that are read."""
_MOST_NAMES = 200
"""Maximum number of names that one call's options are followed through."""


@dataclass(frozen=True, slots=True)
class BuilderCall:
    """A call of torch's `load` or `CUDAExtension` with constant options.

    Attributes:
        file: the Python file.
        sources: files that it builds, as far as their names are constant.
        words: options in nvcc's spelling.
    """

    file: Path
    sources: tuple[Path, ...]
    words: tuple[str, ...]


def project_build(file: Path) -> CompileOptions | None:
    """Returns the options that the project's build gives a file; None if no build is found that compiles it.

    A `compile_commands.json` is sought in the file's folder and above it, up to the project's root, and in their folders `build`
    and `out`; then, in the Python files of the same folders, a call of torch's `load` or `CUDAExtension` with the file among its
    sources, else with a file of its folder, else the only one of a `setup.py`.

    Args:
        file: a CUDA file.
    """
    root = marked_folder(file.parent)
    if root is None:
        return None
    found = _of_database(file.resolve(), root) or _of_builder(file.resolve(), root)
    if found is None:
        return None
    kept = tuple(one for one in found.include_paths if Path(one).resolve().is_relative_to(root))
    # Nobody asked for an older standard than libcu++, whose types device code gets, can be compiled with.
    std = "c++17" if found.std in ("c++11", "c++14") else found.std
    return replace(found, std=std, include_paths=kept, flags=tuple(one for one in found.flags if _is_allowed(one)))


def _of_database(file: Path, root: Path) -> CompileOptions | None:
    folders = [one for one in file.parents if one.is_relative_to(root)]
    database = next((folder / name for folder in folders for name in _DATABASES if (folder / name).is_file()), None)
    if database is None:
        return None
    try:
        return read_build(database, file, elsewhere=False)
    except UsageError:
        return None


def _is_allowed(flag: str) -> bool:
    try:
        allowed([flag])
    except RefusedOption:
        return False
    return True


# ------------------------------------------------------------------------------------------------- torch's builders


def _of_builder(file: Path, root: Path) -> CompileOptions | None:
    calls = [call for call in _calls(file, root) if call.words]
    exact = [call for call in calls if file in call.sources]
    beside = [call for call in calls if any(one.parent == file.parent for one in call.sources)]
    setups = {folder / "setup.py" for folder in file.parents}
    above = [call for call in calls if call.file in setups]
    call = next((some[0] for some in (exact, beside) if some), above[0] if len(above) == 1 else None)
    try:
        return None if call is None else build_options(["nvcc", *call.words], call.file.parent)
    except RefusedOption:
        return None


def _calls(file: Path, root: Path) -> Iterator[BuilderCall]:
    """Yields the builders' calls in the Python files of the folders above a file, the nearest folder first."""
    for folder in (one for one in file.parents if one.is_relative_to(root)):
        for path in sorted(folder.glob("*.py"))[:_MOST_FILES]:
            with contextlib.suppress(OSError):
                status = path.stat()
                if status.st_size <= _MOST_CHARACTERS:
                    yield from _calls_in(path, status.st_mtime_ns)


@lru_cache(maxsize=1024)
def _calls_in(path: Path, changed: int) -> tuple[BuilderCall, ...]:  # noqa: ARG001 -- `changed` makes the cache see edits
    text = path.read_text(encoding="utf-8", errors="replace")
    if not _MENTIONED.search(text):
        return ()
    try:
        tree = ast.parse(text)
        values = _assigned(tree)
        return tuple(
            _call(path, node, _Constants(values))
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _name(node.func) in _BUILDERS
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()


def _call(path: Path, node: ast.Call, constants: _Constants) -> BuilderCall:
    given = {one.arg: one.value for one in node.keywords if one.arg is not None}
    positional = dict(zip(("name", "sources"), node.args, strict=False))
    sources = constants.strings(given.get("sources") or positional.get("sources"))
    files = tuple(Path(os.path.normpath(path.parent / one)) for one in sources)
    return BuilderCall(path, files, tuple(_words(given, constants)))


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _words(given: Mapping[str, ast.expr], constants: _Constants) -> Iterator[str]:
    for key in ("extra_include_paths", "include_dirs"):
        yield from (f"-I{one}" for one in constants.strings(given.get(key)))
    arguments = constants.resolved(given.get("extra_compile_args"))
    if isinstance(arguments, ast.Dict):
        pairs = zip(arguments.keys, arguments.values, strict=True)
        yield from (
            word for key, value in pairs if constants.string(key) == "nvcc" for word in constants.strings(value)
        )
    yield from (part for one in constants.strings(given.get("extra_cuda_cflags")) for part in one.split())
    macros = constants.resolved(given.get("define_macros"))
    for one in macros.elts if isinstance(macros, ast.List | ast.Tuple) else ():
        pair = [constants.string(part) for part in one.elts] if isinstance(one, ast.Tuple) else []
        if len(pair) == 2 and None not in pair:
            yield f"-D{pair[0]}" if pair[1] == "None" else f"-D{pair[0]}={pair[1]}"


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Returns the value of each name assigned in a file: the last constant one; names without a constant are left out."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    last = {name: [one for one in values if isinstance(one, ast.Constant)][-1:] for name, values in found.items()}
    return {name: values[0] for name in found for values in (last[name] or found[name],) if len(values) == 1}


class _Constants:
    """Constant expressions of one call.

    The number of names that are followed is limited, since values may contain themselves or double with each name.

    Args:
        values: values of names, as `_assigned` returns them.
    """

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self._values, self._left = values, _MOST_NAMES

    def resolved(self, node: ast.expr | None) -> ast.expr | None:
        """Returns the value of a name, and other expressions unchanged; None for a name without a value."""
        while isinstance(node, ast.Name):
            self._left -= 1
            node = self._values.get(node.id) if self._left >= 0 else None
        return node

    def strings(self, node: ast.expr | None) -> Sequence[str]:
        """Returns the constant strings of a list; those that are not constant are left out."""
        node = self.resolved(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return [*self.strings(node.left), *self.strings(node.right)]
        if not isinstance(node, ast.List | ast.Tuple):
            return []
        inner = [self.strings(one.value) if isinstance(one, ast.Starred) else [self.string(one)] for one in node.elts]
        return [one for several in inner for one in several if one is not None]

    def string(self, node: ast.expr | None) -> str | None:
        """Returns a constant as text, with formatted names filled in; None if it is not constant, or cannot occur in an option."""
        node = self.resolved(node)
        match node:
            case ast.Constant(value=value):
                return str(value) if str(value).isprintable() else None
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                return self.string(value)
            case ast.JoinedStr(values=values):
                parts = [self.string(part) for part in values]
                return None if None in parts else "".join(part for part in parts if part is not None)
        return None
