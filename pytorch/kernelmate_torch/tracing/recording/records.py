"""The record of a process as plain data."""

from __future__ import annotations

import ast
import functools
import gc
import sys
from collections.abc import Iterator
from dataclasses import asdict
from types import FunctionType, ModuleType
from typing import Any

from .branches import FOLLOWING, FollowedCode
from .compiling import COMPILATIONS, Compilations
from .kernels import REGISTRY, LaunchableKernel, is_user_file
from .operators import DEFINITIONS, user_function
from .references import described, functions_of, is_user_class, reached_by_scope, reached_by_value
from .sources import definitions, source_file
from .timing import TIMES, Times


def record_of(compilations: Compilations, times: Times, *, ended: bool) -> dict[str, Any]:
    """Returns the record so far, for `json.dumps`; it includes caches and methods once the program has ended."""
    for one in list(FOLLOWING.codes.values()):
        one.refresh()
    codes = [_code(one) for one in list(FOLLOWING.codes.values()) if one.followed and _is_told(one)]
    _note_inner_kernels()
    files = {one["file"] for one in codes} | {one.file for one in list(REGISTRY.kernels.values()) if one.user}
    return {
        "kernels": [asdict(one) for one in list(REGISTRY.kernels.values()) if one.user or one.launches or one.errors],
        "codes": codes,
        "sources": {name: source_file(name).text for name in sorted(files) if name},
        "compiled": {
            "graphs": compilations.graphs, "breaks": compilations.breaks, "in_graphs": compilations.in_graphs,
            "limits": compilations.limits, "decompositions": _decompositions(),
        },
        "caches": list(_caches()) if ended else [],
        "rebound": [*_rebound(), *_rebound_in_objects()] if ended else [],
        "times": vars(times),
    }  # fmt: skip


def _note_inner_kernels() -> None:
    """Notes for each operator of `torch.library.custom_op` and `triton_op` the kernels that its implementations launch."""
    for key, definition in list(DEFINITIONS.items()):
        functions = map(user_function, (definition._init_fn, *definition._backend_fns.values()))
        REGISTRY.kernels[key].inner = sorted({one for each in functions for one in reached_by_value(each)} - {key})


def forget() -> None:
    """Sets all counts to zero, in a process that was forked."""
    for kernel in REGISTRY.kernels.values():
        for table in (kernel.launches, kernel.sites, kernel.errors, kernel.devices):
            table.clear()
        kernel.eager_in_compiled = kernel.needed_gradient = kernel.disabled = 0
    FOLLOWING.codes.clear()
    COMPILATIONS.__init__()  # type: ignore[misc]
    TIMES.__init__()  # type: ignore[misc]


def _is_told(one: FollowedCode) -> bool:
    return bool(one.entries or any(one.counts) or any(one.traced) or one.references)


def _code(one: FollowedCode) -> dict[str, Any]:
    code = one.code
    return {
        "file": code.co_filename, "name": code.co_name, "qualified": code.co_qualname, "line": code.co_firstlineno, "entries": one.entries,
        "positions": one.positions, "counts": list(one.counts), "traced": list(one.traced), "truncated": one.truncated,
        "references": [asdict(reference) for reference in one.references],
        "paths": [
            {"executed": [at for at, hit in enumerate(key) if hit], "calls": calls, "facts": facts, "empty": empty}
            for key, (calls, facts, empty) in list(one.paths.items())
        ],
        "exceptions": [
            {"index": each["what"][0], "type": each["what"][1], "message": each["what"][2], **{name: each[name] for name in ("count", "origin", "identity")}}
            for each in one.exceptions
        ],
    }  # fmt: skip


def _user_modules() -> Iterator[Any]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and is_user_file(file):
            yield module


def _caches() -> Iterator[dict[str, Any]]:
    """Yields the caches of `functools` around functions that lead to kernels."""
    for module in _user_modules():
        values = list(vars(module).items())
        for kind in [value for _, value in values if isinstance(value, type) and is_user_class(value)]:
            values += list(vars(kind).items())
        for name, value in values:
            if isinstance(value, functools._lru_cache_wrapper):
                keys = sorted(reached_by_value(value.__wrapped__))
                code = getattr(value.__wrapped__, "__code__", None)
                if keys and code is not None:
                    info = value.cache_info()
                    yield {
                        "kernels": keys,
                        "name": name,
                        "file": code.co_filename,
                        "line": code.co_firstlineno,
                        "hits": info.hits,
                        "misses": info.misses,
                    }


def _rebound() -> Iterator[dict[str, Any]]:
    """Yields functions of modules and classes that lead to kernels and whose names were rebound to others that do not."""
    for module in _user_modules():
        for owner, node, above in definitions(source_file(module.__file__).tree):
            space = vars(module).get(owner) if owner else module
            value = vars(space).get(node.name) if isinstance(space, type | ModuleType) else None
            functions = list(functions_of(value)) if isinstance(value, FunctionType) else []
            lines = range(min([node.lineno, *(one.lineno for one in node.decorator_list)]), node.lineno + 1)
            if not functions and not callable(value):
                continue
            if any(
                one.__code__.co_filename == module.__file__ and one.__code__.co_firstlineno in lines
                for one in functions
            ):
                continue
            keys = reached_by_scope(node, vars(module)) - reached_by_value(value)
            if keys and REGISTRY.bound(value) is None:
                guards = [one for one in above if isinstance(one, ast.If)]
                yield {"kernels": sorted(keys), "name": f"{owner}.{node.name}".lstrip("."), "file": module.__file__, "line": node.lineno,
                       "stands_for": described(value), "guard": ast.unparse(guards[-1].test) if guards else "",
                       "guard_line": guards[-1].lineno if guards else 0}  # fmt: skip


def _rebound_in_objects() -> Iterator[dict[str, Any]]:
    """Yields methods that lead to kernels and that single objects of the program replaced by others that do not."""
    kinds: dict[type, dict[str, FunctionType]] = {}
    found: dict[tuple[type, str, str], dict[str, Any]] = {}
    for one in gc.get_objects():
        kind = type(one)
        if kind not in kinds:
            kinds[kind] = dict(_methods(kind))
        own: Any = getattr(one, "__dict__", None) if kinds[kind] else None
        for name in kinds[kind].keys() & own.keys() if isinstance(own, dict) else ():
            method, value = kinds[kind][name], own[name]
            keys = reached_by_value(method) - reached_by_value(value) if callable(value) else set()
            if keys and REGISTRY.bound(value) is None:
                code = method.__code__
                told = found.setdefault((kind, name, described(value)), {
                    "kernels": sorted(keys), "name": f"{kind.__name__}.{name}", "file": code.co_filename, "line": code.co_firstlineno,
                    "stands_for": described(value), "guard": "", "guard_line": 0, "objects": 0,
                })  # fmt: skip
                told["objects"] += 1
    yield from found.values()


def _methods(kind: type) -> Iterator[tuple[str, FunctionType]]:
    """Yields the methods of a class that are functions of the program."""
    for above in reversed(kind.__mro__ if any(map(is_user_class, kind.__mro__)) else ()):
        for name, value in list(vars(above).items()):
            if isinstance(value, FunctionType) and is_user_file(value.__code__.co_filename):
                yield name, value


def _decompositions() -> dict[str, list[Any]]:
    """Returns the functions that stand for kernels in compiled code, as the program registered them: file and line by kernel."""
    found: dict[str, list[Any]] = {}
    inductor: Any = sys.modules.get("torch._inductor.decomposition")
    plain: Any = sys.modules.get("torch._decomp")
    tables = [getattr(inductor, "decompositions", {})]
    tables += [getattr(plain, "decomposition_table", {})]
    for table in tables:
        for operator, function in list(table.items()):
            key = f"operator:{getattr(getattr(operator, '_schema', None), 'name', '')}"
            code = getattr(function, "__code__", None)
            if key in REGISTRY.kernels and code is not None:
                found[key] = [code.co_filename, code.co_firstlineno]
    return found


__all__ = ["LaunchableKernel", "forget", "record_of"]
