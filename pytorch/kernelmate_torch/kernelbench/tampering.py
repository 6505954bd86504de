"""Detects changes that a candidate made outside itself: to functions of PyTorch, timers and the judge, and to global settings; and finds code that reaches into its process.

A candidate could evade any check in its own process; results are therefore compared in another process.
"""

from __future__ import annotations

import ast
import builtins
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from kernelmate_torch.kernelbench.records import TaskFinding

REACHES = {
    "gc.get_objects": "all objects of its process",
    "gc.get_referrers": "all objects of its process",
    "sys._getframe": "its caller's frames",
    "inspect.stack": "its caller's frames",
    "inspect.currentframe": "its caller's frames",
    "ctypes.string_at": "its process's memory",
    "sys.settrace": "every call of its process",
    "sys.setprofile": "every call of its process",
}
"""Calls by which a candidate finds an answer, or the judge, in its process."""
TRUSTED = ("torch", "triton", "cupy", "numpy")
"""Packages that may replace functions of their own."""


def text_findings(path: Path, task: Path) -> list[TaskFinding]:
    """Returns the findings from a candidate's syntax tree: access to its process, patches, calls of the task's own `Model`."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return []  # loading it says so
    names = _imported_names(tree)
    found: list[TaskFinding] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = _dotted(node.func, names)
            if called in REACHES:
                found.append(TaskFinding("reads-process", "error", f"{called} gives the candidate {REACHES[called]}.", node.lineno))  # fmt: skip
            if called == "setattr" and node.args and _dotted(node.args[0], names).split(".")[0] in ("torch", "time"):
                found.append(TaskFinding("torch-patched", "error", f"It sets an attribute of {_dotted(node.args[0], names)}.", node.lineno))  # fmt: skip
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [one for target in targets for one in _assigned(target, names)]
    return [*found, *_reference_calls(tree, task)]


def _assigned(target: ast.expr, names: dict[str, str]) -> Iterator[TaskFinding]:
    dotted = _dotted(target, names) if isinstance(target, ast.Attribute) else ""
    if dotted.startswith("torch.backends."):
        yield TaskFinding("flags-changed", "error", f"It sets {dotted}, which holds for the reference as well.", target.lineno)  # fmt: skip
    elif dotted.split(".")[0] in ("torch", "time"):
        yield TaskFinding("torch-patched", "error", f"It replaces {dotted}.", target.lineno)


def _reference_calls(tree: ast.AST, task: Path) -> Iterator[TaskFinding]:
    """Yields a finding where the candidate imports `Model` from the task's file."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[-1] != task.stem:
            continue
        if any(one.name in ("Model", "*") for one in node.names):
            yield TaskFinding("calls-reference", "note", "It imports the task's own Model.", node.lineno)


def _imported_names(tree: ast.AST) -> dict[str, str]:
    """Returns the full names of what the file imports, by the names that it uses: `F` is `torch.nn.functional`."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {one.asname or one.name.split(".")[0]: one.name if one.asname else one.name.split(".")[0] for one in node.names}  # fmt: skip
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return found


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


class PytorchSnapshot:
    """Functions and settings at the time of its creation."""

    def __init__(self) -> None:
        self._functions = [(name, owner, _callables(owner)) for name, owner in _owners()]
        self._flags = {name: read() for name, read in _flags().items()}

    def findings(self) -> list[TaskFinding]:
        """Returns a finding for each change since then."""
        found = [
            TaskFinding("torch-patched", "error", f"{owner_name}.{name} was replaced.")
            for owner_name, owner, functions in self._functions
            for name, old in functions.items()
            if (new := _raw(owner, name)) is not old and not _by_a_library(new)
        ]
        for name, read in _flags().items():
            before, now = self._flags[name], read()
            if now != before:
                found.append(TaskFinding("flags-changed", "error", f"{name} was {before} and is {now}, for the reference as well."))  # fmt: skip
        return found


def _owners() -> list[tuple[str, Any]]:
    """Returns modules and classes whose functions the judging relies on, by name."""
    import torch
    import torch.nn.functional as functional

    owners: list[tuple[str, Any]] = [
        ("torch", torch), ("torch.nn.functional", functional), ("torch.Tensor", torch.Tensor), ("torch.cuda", torch.cuda),
        ("torch.cuda.Event", torch.cuda.Event), ("torch.cuda.Stream", torch.cuda.Stream), ("torch.nn.Module", torch.nn.Module),
        ("time", time), ("builtins", builtins),
    ]  # fmt: skip
    judging = [(name, module) for name, module in list(sys.modules.items()) if name.startswith("kernelmate_torch.")]
    return [*owners, *judging]


def _callables(owner: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(owner).items() if callable(value) or isinstance(value, staticmethod)}


def _raw(owner: Any, name: str) -> Any:
    return vars(owner).get(name)


def _by_a_library(value: Any) -> bool:
    """Returns True for a function whose code lies in a library that replaces functions of its own."""
    code = getattr(getattr(value, "__func__", value), "__code__", None)
    if code is None:
        return False
    roots = [Path(file).parent for name in TRUSTED if (file := getattr(sys.modules.get(name), "__file__", None))]
    return any(root in Path(code.co_filename).parents for root in roots)


def _flags() -> dict[str, Callable[[], Any]]:
    """Returns readers of PyTorch's global settings that change values or times, by name."""
    import torch

    backends = torch.backends
    return {
        "torch.get_default_dtype()": torch.get_default_dtype,
        "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision,
        "torch.backends.cuda.matmul.allow_tf32": lambda: backends.cuda.matmul.allow_tf32,
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": lambda: (
            backends.cuda.matmul.allow_fp16_reduced_precision_reduction
        ),
        "torch.backends.cudnn.allow_tf32": lambda: backends.cudnn.allow_tf32,
        "torch.backends.cudnn.benchmark": lambda: backends.cudnn.benchmark,
        "torch.backends.cudnn.enabled": lambda: backends.cudnn.enabled,
        "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled,
        "torch.is_grad_enabled()": torch.is_grad_enabled,
        "torch.get_default_device()": lambda: str(torch.get_default_device()),
        "torch.get_num_threads()": torch.get_num_threads,
    }
