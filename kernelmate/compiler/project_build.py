"""Options that a project's own build gives a file: its `compile_commands.json`, or the calls of torch's extension builders.

The files are read, never run. They belong to the project, which may be anybody's: only options of the allow-list are taken,
and of include paths only those within the project.
"""

from __future__ import annotations

import ast
import contextlib
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
"""Python files of a folder that are read."""


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
    """Return the options that the project's build gives a file; None if no build is found that compiles it.

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
        return read_build(database, file, only=True)
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
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    values = _assigned(tree)
    return tuple(
        _call(path, node, values)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _name(node.func) in _BUILDERS
    )


def _call(path: Path, node: ast.Call, values: Mapping[str, ast.expr]) -> BuilderCall:
    given = {one.arg: one.value for one in node.keywords if one.arg is not None}
    positional = dict(zip(("name", "sources"), node.args, strict=False))
    sources = _strings(given.get("sources") or positional.get("sources"), values)
    return BuilderCall(path, tuple(path.parent.joinpath(one) for one in sources), tuple(_words(given, values)))


def _name(function: ast.expr) -> str:
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _words(given: Mapping[str, ast.expr], values: Mapping[str, ast.expr]) -> Iterator[str]:
    for key in ("extra_include_paths", "include_dirs"):
        yield from (f"-I{one}" for one in _strings(given.get(key), values))
    arguments = _resolved(given.get("extra_compile_args"), values)
    if isinstance(arguments, ast.Dict):
        pairs = zip(arguments.keys, arguments.values, strict=True)
        yield from (word for key, value in pairs if _string(key, values) == "nvcc" for word in _strings(value, values))
    yield from (part for one in _strings(given.get("extra_cuda_cflags"), values) for part in one.split())
    macros = _resolved(given.get("define_macros"), values)
    for one in macros.elts if isinstance(macros, ast.List | ast.Tuple) else ():
        pair = [_string(part, values) for part in one.elts] if isinstance(one, ast.Tuple) else []
        if len(pair) == 2 and pair[0] is not None:
            yield f"-D{pair[0]}" if pair[1] in (None, "None") else f"-D{pair[0]}={pair[1]}"


def _assigned(tree: ast.Module) -> dict[str, ast.expr]:
    """Returns the values that names are assigned in a file: of several the last constant, without one none."""
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    last = {name: [one for one in values if isinstance(one, ast.Constant)][-1:] for name, values in found.items()}
    return {name: values[0] for name in found for values in (last[name] or found[name],) if len(values) == 1}


def _resolved(node: ast.expr | None, values: Mapping[str, ast.expr], depth: int = 0) -> ast.expr | None:
    if isinstance(node, ast.Name) and depth < 4:
        return _resolved(values.get(node.id), values, depth + 1)
    return node


def _strings(node: ast.expr | None, values: Mapping[str, ast.expr]) -> Sequence[str]:
    """Returns the constant strings of a list; those that are not constant are left out."""
    node = _resolved(node, values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_strings(node.left, values), *_strings(node.right, values)]
    if not isinstance(node, ast.List | ast.Tuple):
        return []
    inner = [
        _strings(one.value, values) if isinstance(one, ast.Starred) else [_string(one, values)] for one in node.elts
    ]
    return [one for several in inner for one in several if one is not None]


def _string(node: ast.expr | None, values: Mapping[str, ast.expr]) -> str | None:
    """Returns a constant as text, with formatted names filled in; None if it is not constant."""
    node = _resolved(node, values)
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.FormattedValue):
        return _string(node.value, values)
    if isinstance(node, ast.JoinedStr):
        parts = [_string(part, values) for part in node.values]
        return None if None in parts else "".join(part for part in parts if part is not None)
    return None
