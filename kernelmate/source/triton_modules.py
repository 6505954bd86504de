"""The text to compile for a Triton kernel: the kernel, and the definitions of its file and of imported files that it uses.

Imports are resolved by file names, as Python does from the file's folder and from the folders above it, up to the project's;
nothing is imported. Of each file, jitted functions and constants stay as far as the kernel uses them, so that defining them runs none of the user's
code. A name that refers to a function of triton is passed on by name, also if it is assigned: `exp = tl.exp`.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path

from kernelmate.caching import text_cache
from kernelmate.errors import SourceError
from kernelmate.records import Kernel
from kernelmate.source.line_ends import normal_text
from kernelmate.source.triton import dotted_name, jitted_functions, outside_functions, parsed
from kernelmate.source.triton_text import constant, constant_lines, function_lines, targets

MOST_FILES = 64
"""Maximum number of files from which one kernel's definitions are taken."""

MOST_BYTES = 4 << 20
"""Maximum size in bytes of one of these files."""

_PROJECT = (".git", "pyproject.toml", "setup.py", "setup.cfg")
_LEVELS = 6
"""Folders above a file that imports are looked for in, where none of them has a file of `_PROJECT`."""


@dataclass(frozen=True, slots=True)
class TritonModule:
    """Definitions of one file.

    Attributes:
        path: the file.
        text: Python text of the definitions, each line at its number in the file.
        library: names that stand for something of triton and are used: `tl` for `triton.language`. A name that several
            branches define, as for different versions of triton, has several meanings, of which the first that a version has
            counts.
        chosen: names of `library` to which the branches of a condition give several meanings, each with the line of the last.
        imported: names that another module defines, each with its number and the name there; an empty name is the module.
        missing: names of imports that give nothing to compile, each with the reason.
        ambiguous: names that several branches define, each with the line of the definition that is taken, the last.
    """

    path: str
    text: str
    library: Mapping[str, tuple[str, ...]]
    imported: Mapping[str, tuple[int, str]]
    missing: Mapping[str, str]
    ambiguous: Mapping[str, int]
    chosen: Mapping[str, int]


def triton_modules(kernel: Kernel) -> tuple[TritonModule, ...]:
    """Returns the definitions that a kernel's compilation needs, those of its own file first.

    Raises:
        SourceError: the kernel uses a name that compilations may not, or its file is not Python.
    """
    tree = parsed(kernel.unit.text)
    if tree is None:
        raise SourceError("This is not Python.", file=kernel.unit.path)
    files = [_File(kernel.unit.path, kernel.unit.text, tree)]
    waiting = [(0, kernel.name)]
    while waiting:
        number, name = waiting.pop()
        waiting += _want(files, number, name)
    return tuple(one.module() for one in files)


def module_text(kernel: Kernel) -> str:
    """Returns the definitions of a kernel's own file; see `TritonModule.text`."""
    return triton_modules(kernel)[0].text


def library_names(kernel: Kernel) -> dict[str, tuple[str, ...]]:
    """Returns the names of triton to which names of a kernel's file refer by its imports; see `TritonModule.library`."""
    tree = parsed(kernel.unit.text)
    return {} if tree is None else _File(kernel.unit.path, kernel.unit.text, tree).library


@dataclass(slots=True)
class _File:
    """A file that definitions are taken from.

    Attributes:
        definitions: statements that define a name and may be kept, by name.
        library: see `TritonModule`.
        imports: names that are imported from elsewhere: levels of a relative import, module, and name there (empty for a module).
        stars: modules of `from module import *`, each with the levels of a relative import.
        kept: definitions that the kernel uses.
        modules: dotted names that are modules of the project.
        last_counts: for statements of a condition's branches, by `id`, True unless the condition asks for a version.
        used: names of `library` that the kernel uses.
        computed: names that are assigned anything else than a literal or a name, with the line.
        imported, missing, chosen: see `TritonModule`.
    """

    path: str
    source: str
    tree: ast.Module
    jitted: frozenset[str] = frozenset()
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    library: dict[str, tuple[str, ...]] = field(default_factory=dict)
    imports: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    stars: list[tuple[int, str]] = field(default_factory=list)
    kept: dict[str, ast.stmt] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)
    last_counts: dict[int, bool] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    imported: dict[str, tuple[int, str]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)
    chosen: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.jitted = frozenset(one.name for one in jitted_functions(self.tree, self.source))
        certain = {id(one) for one in self.tree.body}
        for top in (one for one in self.tree.body if isinstance(one, ast.If)):
            last = re.search("version|hasattr", ast.unparse(top.test), re.IGNORECASE) is None
            self.last_counts |= {id(one): last for one in outside_functions(top)}
        for node in outside_functions(self.tree):
            if id(node) in certain:
                self._forget(node)
            if isinstance(node, ast.FunctionDef):
                if node.name in self.jitted:
                    self.definitions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                self._import(node)
            else:
                self._assign(node)
        for inner in (one for one in jitted_functions(self.tree, self.source) if not self.gives(one.name)):
            self.definitions[inner.name] = [inner]
            self._enclose(inner)

    def _enclose(self, inner: ast.FunctionDef) -> None:
        """Adds the definitions that the enclosing functions give a jitted one, if their file does not define the same names."""
        for outer in (one for one in ast.walk(self.tree) if isinstance(one, ast.FunctionDef) and one is not inner):
            if any(one is inner for one in ast.walk(outer)):
                self.computed |= {name: outer.lineno for name in _parameters(outer) if not self.gives(name)}
                for statement in outer.body:
                    if not any(self.gives(name) for name in targets(statement)):
                        self._assign(statement)

    def gives(self, name: str) -> bool:
        """Returns True if a name of the file may stand for something that is compiled."""
        return any(name in names for names in (self.definitions, self.library, self.imports))

    def _forget(self, node: ast.stmt) -> None:
        """Drops earlier definitions of names that an unconditional statement defines again."""
        names = targets(node)
        if isinstance(node, ast.FunctionDef):
            names = [node.name]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [one.asname or one.name.partition(".")[0] for one in node.names]
        elif isinstance(node, ast.Assign) and self.jitted.intersection(names):
            names = []  # f = triton.jit(f)
        for name in names:
            for meanings in (self.definitions, self.library, self.imports, self.chosen):
                meanings.pop(name, None)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        module = "" if isinstance(node, ast.Import) else node.module or ""
        level = 0 if isinstance(node, ast.Import) else node.level
        for one in node.names:
            path = ".".join(part for part in (module, one.name) if part)
            name = one.asname or one.name
            if not level and path.partition(".")[0] == "triton":
                whole = isinstance(node, ast.Import) and one.asname is None
                self._mean("triton" if whole else name, "triton" if whole else path, node)
            elif one.name == "*":
                self.stars.append((level, module))
            elif isinstance(node, ast.ImportFrom):
                self.imports[name] = (level, module, one.name)
            else:
                whole = one.asname is None
                self.imports[name.partition(".")[0] if whole else name] = (
                    0,
                    name.partition(".")[0] if whole else one.name,
                    "",
                )

    def _mean(self, name: str, meaning: str, node: ast.stmt) -> None:
        """Stores the meaning of a name: the last one of several in the branches of a condition, the first one of those in a `try` or a test of versions."""
        before, last = self.library.get(name, ()), self.last_counts.get(id(node))
        self.library[name] = tuple(dict.fromkeys((meaning, *before) if last else (*before, meaning)))
        if last is not None and len(self.library[name]) > 1:
            self.chosen[name] = node.lineno

    def _assign(self, node: ast.stmt) -> None:
        """Takes in a constant, or another name of a function."""
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        other = dotted_name(value)
        for name in targets(node):
            made = self._made(value)
            if constant(value) is not None:
                self.definitions.setdefault(name, []).append(node)
            elif made:  # one of its own name is found as that function
                self.imports |= {name: (-1, "", made)} if made != name else {}
            elif value is not None and not other and name not in self.jitted:
                self.computed[name] = node.lineno
            elif other and other != name:
                head, dot, rest = other.partition(".")
                for meaning in self.library.get(head, ()):
                    self._mean(name, meaning + dot + rest, node)
                if head not in self.library and not rest:
                    self.imports[name] = (-1, "", other)

    def _made(self, value: ast.expr | None) -> str:
        """Returns the jitted function that a call such as `make_activation()` returns; empty for another value."""
        called = dotted_name(value.func) if isinstance(value, ast.Call) else ""
        maker = next((one for one in self.tree.body if isinstance(one, ast.FunctionDef) and one.name == called), None)
        last = None if maker is None else maker.body[-1]
        name = dotted_name(last.value) if isinstance(last, ast.Return) else ""
        inner = maker is not None and any(isinstance(one, ast.FunctionDef) and one.name == name for one in maker.body)
        return name if inner and name in self.jitted else ""

    def module(self) -> TritonModule:
        """Returns the definitions that were found to be used."""
        _check_names(list(self.kept.values()), self.modules, self.path)
        source = self.source.split("\n")
        lines: dict[int, str] = {}
        wrapped = []
        for node in sorted({id(one): one for one in self.kept.values()}.values(), key=lambda one: one.lineno):
            kept = function_lines(node, source) if isinstance(node, ast.FunctionDef) else constant_lines(node)
            for number, line in kept.items():
                lines[number] = f"{lines[number]}; {line}" if number in lines else line
            if isinstance(node, ast.FunctionDef) and not node.decorator_list:
                wrapped.append(f"{node.name} = _kernelmate_jit({node.name})")
        text = "\n".join([*(lines.get(number, "") for number in range(1, len(source) + 1)), *wrapped]) + "\n"
        several = {name: node.lineno for name, node in self.kept.items() if len(self.definitions[name]) > 1}
        library = {name: meanings for name, meanings in self.library.items() if name in self.used}
        chosen = {name: line for name, line in self.chosen.items() if name in self.used}
        return TritonModule(self.path, text, library, self.imported, self.missing, several, chosen)


def _want(files: list[_File], number: int, name: str) -> list[tuple[int, str]]:
    """Keeps the definition of a name in a file; returns the names that it uses, each with the number of its file."""
    file = files[number]
    if name in file.kept or name in file.imported:
        return []
    if name in file.library:
        file.used.add(name)
    if name in file.definitions:
        # A branch without Triton may set the name to None.
        functions = [one for one in file.definitions[name] if isinstance(one, ast.FunctionDef)]
        node = file.kept[name] = (functions or file.definitions[name])[-1]
        return _used(files, number, node)
    if name in file.library:
        return []
    if name not in file.imports:
        starred = _starred(files, number, name)
        if starred is not None:
            file.imported[name] = (starred, name)
            return [(starred, name)]
        if name in file.computed:
            file.missing[name] = f"its value of line {file.computed[name]} is not a literal, and the file is not run"
        return []
    level, module, original = file.imports[name]
    if level < 0:
        file.imported[name] = (number, original)
        return [(number, original)]
    found = _imported_file(Path(file.path), level, module, original)
    if found is None:
        origin = "." * level + module
        file.missing[name] = (
            f"it is imported from {origin}, of which no file was found in the file's folder and above, in its project"
        )
        return []
    path, original = found
    place = _place(files, path)
    if place is None:
        file.missing[name] = f"{path} was not read: it is not Python text, is too long, or one of too many"
        return []
    file.imported[name] = (place, original)
    if original and not files[place].gives(original) and _starred(files, place, original) is None:
        file.missing[name] = f"{path} defines it, if at all, as no jitted function, constant or function of triton"
    return [(place, original)] if original else []


def _used(files: list[_File], number: int, definition: ast.stmt) -> list[tuple[int, str]]:
    """Returns the names that a definition of a file uses, each with the number of its file; for a module, the attributes that it uses."""
    nodes = list(_compiled_nodes(definition))
    used = [(number, one.id) for one in nodes if isinstance(one, ast.Name)]
    for one in (each for each in nodes if isinstance(each, ast.Attribute)):
        place = _module_of(files, number, one.value, used)
        if place is not None:
            files[number].modules.add(dotted_name(one.value))
            used.append((place, one.attr))
    return used


def _module_of(files: list[_File], number: int, node: ast.expr, used: list[tuple[int, str]]) -> int | None:
    """Returns the number of the file whose module an expression is, as in `helpers.f`; None if it is not a module of the project.

    Adds what the names on the way use.
    """
    if isinstance(node, ast.Attribute):
        package, name = _module_of(files, number, node.value, used), node.attr
    else:
        package, name = number, node.id if isinstance(node, ast.Name) else ""
    seen: set[tuple[int, str]] = set()
    while name and package is not None and (package, name) not in seen:
        seen.add((package, name))
        file = files[package]
        if isinstance(node, ast.Attribute) and not file.gives(name) and Path(file.path).name == "__init__.py":
            file.imports[name] = (1, "", name)  # a module of the package, by `import package.name`
        used += _want(files, package, name) if name in file.imports else []
        package, name = file.imported.get(name, (None, ""))
    return None if name else package


def _compiled_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yields the nodes of a definition that the compiler evaluates: of a function its body, but not decorators, defaults and annotations."""
    for part in statement.body if isinstance(statement, ast.FunctionDef) else [statement]:
        yield from ast.walk(part)


def _starred(files: list[_File], number: int, name: str) -> int | None:
    """Returns the file that gives a name by `from module import *`, directly or by a further one; None if there is none."""
    waiting, seen = [(number, *star) for star in reversed(files[number].stars)], {number}
    while waiting and not name.startswith("_"):
        origin, level, module = waiting.pop(0)
        found = _imported_file(Path(files[origin].path), level, module, "")
        place = None if found is None else _place(files, found[0])
        if place is None or place in seen:
            continue
        seen.add(place)
        if files[place].gives(name):
            return place
        waiting += [(place, *star) for star in reversed(files[place].stars)]
    return None


def _place(files: list[_File], path: Path) -> int | None:
    """Returns the number of a file and reads it at the first request; None if it cannot be read."""
    known = [one.path for one in files]
    if str(path) in known:
        return known.index(str(path))
    opened = _opened(path) if len(files) < MOST_FILES else None
    if opened is None:
        return None
    files.append(opened)
    return len(files) - 1


def _opened(path: Path) -> _File | None:
    """Returns a file; None if it cannot be read, is too long, or is not Python."""
    try:
        if path.stat().st_size > MOST_BYTES:
            return None
        text = normal_text(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return None
    tree = _tree(text)
    return None if tree is None else _File(str(path), text, tree)


@text_cache(32)
def _tree(text: str) -> ast.Module | None:
    """Returns a file's tree, which nothing changes: all versions of a kernel import the same files."""
    return parsed(text)


def _imported_file(path: Path, level: int, module: str, name: str) -> tuple[Path, str] | None:
    """Returns the file that `from module import name` reads, and the name in it, which is empty if the name is a module."""
    if not path.is_absolute() and not path.is_file():
        return None  # text of a cell, or of a document that was never saved
    folder = path.absolute().parent
    parts = module.split(".") if module else []
    roots = _folders(folder)
    top = roots[-1].resolve()
    for root in roots[level - 1 : level] if level else roots:
        own = _file_of(root, parts, top)
        inner = _file_of(root, [*parts, name], top) if name else None
        # A package's own file may import a module of the package: it then defines the name by this import alone.
        if inner is not None and (own is None or own == path.absolute() or not _defines(own, name)):
            return inner, ""
        if own is not None:
            return own, name
    return None


def _folders(folder: Path) -> list[Path]:
    """Returns a folder and those above it, up to the project's.

    Without a project they end below the user's home folder and the file system's root.
    """
    above = [folder, *folder.parents][:_LEVELS]
    last = next((index for index, one in enumerate(above) if any((one / mark).exists() for mark in _PROJECT)), None)
    if last is not None:
        return above[: last + 1]
    home = Path(os.path.expanduser("~"))
    return [one for one in above if one == folder or not (one == home or one in home.parents)]


def _file_of(root: Path, parts: Sequence[str], top: Path) -> Path | None:
    """Returns the file of a module in the folder `top`, which links do not lead out of; None if there is none."""
    whole = root.joinpath(*parts)
    choices = [whole / "__init__.py"] if not parts else [whole.parent / f"{parts[-1]}.py", whole / "__init__.py"]
    return next((one for one in choices if one.is_file() and one.resolve().is_relative_to(top)), None)


def _defines(path: Path, name: str) -> bool:
    file = _opened(path)
    return file is not None and file.gives(name)


def _parameters(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    several = [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *several)]


_REFUSED_NAMES = frozenset(
    {
        "open", "eval", "exec", "compile", "getattr", "setattr", "delattr", "globals", "locals", "vars", "input", "breakpoint",
        "help", "memoryview", "object", "type", "super", "dir",
    }
)  # fmt: skip


_LOCAL_NAMES = frozenset({"input", "object", "type", "dir", "help"})
"""Names of these that a kernel may assign: Triton looks none of them up among Python's own where they have no value."""


def _check_names(nodes: Sequence[ast.stmt], modules: AbstractSet[str], path: str) -> None:
    """Refuses names that lead from values to Python's own objects: the compiler evaluates attributes and calls.

    A function's parameters, and some local variables, may have such names, for example `input`, and a function of an imported module may begin with an underscore.

    Args:
        nodes: the definitions.
        modules: dotted names of the file that are modules of the project.
        path: the file.

    Raises:
        SourceError: at the name.
    """
    for statement in nodes:
        own: set[str] = set()
        if isinstance(statement, ast.FunctionDef):
            own = set(_parameters(statement))
        found = list(_compiled_nodes(statement))
        stored = {one.id for one in found if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load)}
        known = {one for one in modules if one.partition(".")[0] not in own | stored}
        for node in found:
            if _is_refused(node, _REFUSED_NAMES - own - (_LOCAL_NAMES & stored), known):
                assert isinstance(node, ast.Attribute | ast.Name)
                raise SourceError(
                    f"{node.attr if isinstance(node, ast.Attribute) else node.id} may not be used by a kernel that is compiled here.",
                    file=path,
                    line=node.lineno,
                    column=node.col_offset + 1,
                    hint="Use functions of triton.language and jitted functions.",
                )


def _is_refused(node: ast.AST, refused: AbstractSet[str], modules: AbstractSet[str]) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr.startswith("__" if dotted_name(node.value) in modules else "_")
    return isinstance(node, ast.Name) and (node.id in refused or node.id.startswith("__"))
