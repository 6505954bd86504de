"""Resolves the names in a function: to kernels, other functions of the program, or neither. Calls nothing of the program."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

from .kernels import REGISTRY, is_user_file
from .launchers import triton_kernel
from .operators import named_operator
from .sources import Position, assigned_to_self, chains, imports, position, scope_of, source_file

_DEPTH = 8
"""Calls between a function and the kernel that it reaches."""

_ENTRIES = 64
"""Maximum number of entries of a table of functions that are examined."""

_MISSING = object()

_Search = dict[int, frozenset[str]]
"""Functions that one search has come to, by identity of their code, with the kernels that they lead to as far as is known."""


@dataclass(frozen=True, slots=True)
class KernelReference:
    """A name in a function that leads to a kernel.

    Attributes:
        position: its position.
        kernels: keys of the kernels that it leads to.
        direct: True if the name is a kernel itself; otherwise a function or a class that leads to one.
        table: True if it names a table, of which one entry is a kernel.
        rebound: the name's present value, if its definition was a kernel's and it has been given another value.
    """

    position: Position
    kernels: tuple[str, ...]
    direct: bool
    table: bool = False
    rebound: str = ""


@dataclass(frozen=True, slots=True)
class ScopeNames:
    """Values of the names in a function: its locals as far as they are known, its globals, and those of its closure."""

    variables: Mapping[str, Any]
    module: Mapping[str, Any]


def references_of(code: CodeType, names: ScopeNames) -> list[KernelReference]:
    """Returns the names in a function that lead to kernels."""
    return _references(code, names, 0, {})


def _references(code: CodeType, names: ScopeNames, depth: int, seen: _Search) -> list[KernelReference]:
    scope = scope_of(code)
    if scope is None or depth > _DEPTH:
        return []
    found = []
    for node, parts in chains(scope):
        if len(parts) == 1 and parts[0] == code.co_name:
            continue
        made = _reference(node, parts, code, names, depth, seen)
        if made is not None:
            found.append(made)
    for statement, module, name in imports(scope):
        value = _imported(module, name, names)
        keys = _reached_by(value, depth, seen) if value is not _MISSING else set()
        if keys:
            found.append(KernelReference(position(statement), tuple(sorted(keys)), direct=False))
    return found


def _imported(module: str, name: str, names: ScopeNames) -> Any:
    """Returns the object that `from MODULE import NAME` gives, if the module is imported."""
    level = len(module) - len(module.lstrip("."))
    plain = module.lstrip(".")
    if level:
        package = str(names.module.get("__package__") or "").split(".")
        plain = ".".join([*package[: len(package) - level + 1], *([plain] if plain else [])])
    return vars(sys.modules[plain]).get(name, _MISSING) if plain in sys.modules else _MISSING


def reached_by_scope(scope: ast.AST, module: Mapping[str, Any]) -> set[str]:
    """Returns the kernels that the global names in a function lead to; for a function that the program has replaced."""
    found: set[str] = set()
    for _, parts in chains(scope):
        value = _lookup(parts, ScopeNames({}, module))
        if value is not _MISSING:
            found |= _reached_by(value, 0, {})
    return found


def _reference(
    node: ast.expr, parts: list[str], code: CodeType, names: ScopeNames, depth: int, seen: _Search
) -> KernelReference | None:
    rebound = _rebound(parts, names)
    if rebound is not None:
        return KernelReference(position(node), (rebound[0],), direct=True, rebound=rebound[1])
    values = _values(parts, code, names)
    direct = {key for value in values if (key := _kernel(value)) is not None}
    if direct:
        return KernelReference(position(node), tuple(sorted(direct)), direct=True)
    looked_up = _values(parts[:-1], code, names) if len(parts) > 1 and parts[-1] == "get" else []
    tables = [
        made for value in (*values, *(one for one in looked_up if isinstance(one, dict))) if (made := _entries(value))
    ]
    if tables:
        entries = [one for table in tables for one in table]
        held = {key for one in entries for key in _reached_by(one, depth, seen)}
        return KernelReference(position(node), tuple(sorted(held)), direct=False, table=True) if held else None
    reached = {key for value in values for key in _reached_by(value, depth, seen)}
    return KernelReference(position(node), tuple(sorted(reached)), direct=False) if reached else None


def _entries(value: Any) -> list[Any]:
    """Returns the functions of a table: of a container, or of a `functools.singledispatch` with several of them."""
    registry = getattr(value, "registry", None) if isinstance(value, FunctionType) else None
    if isinstance(registry, MappingProxyType):
        return list(registry.values()) if len(registry) > 1 else []
    if not isinstance(value, dict | list | tuple) or not 0 < len(value) <= _ENTRIES:
        return []
    return list(value.values() if isinstance(value, dict) else value)


def _rebound(parts: list[str], names: ScopeNames) -> tuple[str, str] | None:
    """Returns the kernel that a name was defined as, and the value that the program gave to it later."""
    owner = names.module
    module = str(owner.get("__name__", ""))
    if len(parts) > 1:
        held = _lookup(parts[:-1], names)
        if not isinstance(held, ModuleType):
            return None
        owner, module = vars(held), held.__name__
    elif parts[0] in names.variables:
        return None
    value = owner.get(parts[-1], _MISSING)
    kernel = REGISTRY.by_scope().get(f"{module}:{parts[-1]}")
    if kernel is None or value is _MISSING or kernel.key in _keys(value):
        return None
    return kernel.key, described(value)


def _keys(value: Any) -> set[str]:
    found = {_kernel(value)}
    scope = getattr(value, "__wrapped__", None)
    return {one for one in (*found, None if scope is None else _kernel(scope)) if one is not None} | _reached_by(
        value, 0, {}
    )


def described(value: Any) -> str:
    """Returns a function's name and place."""
    code = getattr(_unwrapped(value), "__code__", None)
    name = getattr(value, "__qualname__", getattr(value, "__name__", type(value).__name__))
    module = getattr(value, "__module__", None) or ""
    place = (
        f" ({code.co_filename}:{code.co_firstlineno})" if code is not None and is_user_file(code.co_filename) else ""
    )
    return f"{module}.{name}{place}".lstrip(".") if not place else f"{name}{place}"


def _values(parts: list[str], code: CodeType, names: ScopeNames) -> list[Any]:
    """Returns the possible values of a dotted name: its value, and for an attribute of `self` all values that the class assigns to it."""
    value = _lookup(parts, names)
    found = [] if value is _MISSING else [value]
    if len(parts) != 2 or not code.co_argcount or parts[0] != code.co_varnames[0]:
        return found
    scope = scope_of(code)
    if scope is None:
        return found
    given = assigned_to_self(source_file(code.co_filename), scope, parts[1])
    inner = [_lookup(one, ScopeNames({}, names.module)) for expression in given for _, one in chains(expression)]
    return found + [one for one in inner if one is not _MISSING and one is not value]


def _lookup(parts: list[str], names: ScopeNames) -> Any:
    first = parts[0]
    value = names.variables.get(first, names.module.get(first, vars(builtins).get(first, _MISSING)))
    for part in parts[1:]:
        if value is _MISSING:
            return value
        value = _attribute(value, part)
    return value


def _attribute(value: Any, name: str) -> Any:
    """Returns an attribute as it is stored: properties and `__getattr__` are not called, but those of `torch.ops`."""
    if type(value).__module__ == "torch._ops":
        try:
            return getattr(value, name)
        except AttributeError:
            return _MISSING
    try:
        held = vars(value)
    except TypeError:
        held = {}
    if name in held:
        return held[name]
    modules = held.get("_modules")
    if isinstance(modules, dict) and name in modules:
        return modules[name]
    kind = value if isinstance(value, type) else type(value)
    for one in kind.__mro__:
        if name in vars(one):
            found = vars(one)[name]
            if (
                name == "apply"
                and isinstance(value, type)
                and any(base.__name__ == "Function" for base in kind.__mro__)
            ):
                return value
            return _MISSING if isinstance(found, property) else found
    return _MISSING


def _kernel(value: Any) -> str | None:
    """Returns the key of the kernel that an object is."""
    bound = REGISTRY.bound(value)
    if bound is not None:
        return bound
    named = named_operator(value)
    if named is not None:
        return named
    if type(value).__name__ in ("JITFunction", "InterpretedFunction") and hasattr(value.fn, "__code__"):
        made = triton_kernel(value, value.fn)  # it is older than the recording
        REGISTRY.bind(value, made)
        return made.key
    inner = getattr(value, "fn", None) if type(value).__module__.startswith("triton.") else None
    if inner is not None and not isinstance(inner, FunctionType):
        return _kernel(inner)
    if type(value).__name__ == "partial":
        return _kernel(value.func)
    return None


def _unwrapped(value: Any) -> Any:
    for _ in range(_DEPTH):
        if isinstance(value, staticmethod | classmethod | MethodType):
            value = value.__func__
            continue
        held = vars(value) if hasattr(value, "__dict__") else {}
        inner = held.get("_torchdynamo_orig_callable") or held.get("__wrapped__")
        if type(value).__name__ == "partial":
            inner = value.func
        if inner is None:
            return value
        value = inner
    return value


def _reached_by(value: Any, depth: int, seen: _Search) -> set[str]:
    """Returns the kernels that a function, class or module leads to."""
    direct = _kernel(value)
    if direct is not None:
        return {direct}
    found: set[str] = set()
    for function in functions_of(value):
        found |= _reached_by_function(function, depth, seen)
    return found


def functions_of(value: Any) -> Iterator[FunctionType]:
    """Yields the functions of the user's program that a call of a value may run."""
    value = _unwrapped(value)
    if isinstance(value, FunctionType):
        inner = [] if value.__closure__ is None else list(_closure(value).values())
        candidates = [value] if is_user_file(value.__code__.co_filename) else inner
    else:
        candidates = [
            held
            for kind in _classes_of(value)
            for one in kind.__mro__
            if is_user_class(one)
            for held in list(vars(one).values())
        ]
    for one in candidates:
        function = _unwrapped(one)
        if isinstance(function, FunctionType) and is_user_file(function.__code__.co_filename):
            yield function


def _classes_of(value: Any) -> list[type]:
    """Returns the classes whose methods a call of a class, a module or an object may run."""
    if isinstance(value, type):
        return [value]
    held = vars(value).get("_modules", {}) if hasattr(value, "__dict__") else {}
    if not isinstance(held, dict):
        return []
    if type(value).__name__ == "OptimizedModule":
        return _classes_of(held.get("_orig_mod"))
    kinds = [type(value)] if is_user_class(type(value)) else []
    if type(value).__module__.startswith("torch.nn"):  # a container, such as Sequential
        kinds += [kind for inner in held.values() if inner is not None for kind in _classes_of(inner)]
    return kinds


def is_user_class(kind: type) -> bool:
    """Returns True for a class of the user's program."""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if file is None:
        return kind.__module__ == "__main__"
    return is_user_file(file)


_REACHED: dict[int, tuple[int, CodeType, frozenset[str]]] = {}
"""Kernels that a function leads to, by identity of its code, with the registry's version and the code itself."""


def _reached_by_function(function: FunctionType, depth: int, seen: _Search) -> frozenset[str]:
    code = function.__code__
    known = _REACHED.get(id(code))
    if known is not None and known[0] == REGISTRY.version:
        return known[2]
    if id(code) in seen or depth > _DEPTH:
        return seen.get(id(code), frozenset())
    seen[id(code)] = frozenset()
    made = _references(code, ScopeNames(_closure(function), function.__globals__), depth + 1, seen)
    seen[id(code)] = keys = frozenset(key for one in made for key in one.kernels)
    if depth == 0 or keys:
        _REACHED[id(code)] = REGISTRY.version, code, keys
    return keys


def _closure(function: FunctionType) -> dict[str, Any]:
    cells = function.__closure__ or ()
    found = {}
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    return found


def reached_by_value(value: Any) -> set[str]:
    """Returns the kernels that a value is or leads to."""
    return _reached_by(value, 0, {})
