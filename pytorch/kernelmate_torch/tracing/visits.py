"""Names of a program that lead to kernels, with the counts of the functions that contain them, and findings about them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelmate_torch.tracing.bypasses import Executions, path_to
from kernelmate_torch.tracing.loading_records import TracedCode, TracedProcess
from kernelmate_torch.tracing.recording.sources import Scope, SourceFile, own_nodes, parse_source, position

_CAUSES = (
    (r"is_compiling|is_dynamo_compiling|is_tracing", "compilation is asked about"),
    (r"requires_grad|is_grad_enabled|needs_input_grad|grad_mode|is_inference", "gradients"),
    (r"autocast", "autocast"),
    (r"dtype|is_floating_point|bfloat16|float16|float32|float64|\bhalf\b", "dtype"),
    (r"contiguous|stride|data_ptr|memory_format", "strides or alignment"),
    (r"is_cuda|\.device|device_type|is_cpu|cuda\.is_available", "device"),
    (r"\.training\b", "training mode"),
    (r"environ|getenv|available|\bHAS_|\bUSE_|enabled|flag|config|args\.|opt", "a switch of the program"),
    (r"cache|memo|\bin [\w.]+$", "a cached result"),
    (r"isinstance|type\(|__class__", "a class that is asked about"),
    (r"shape|size\(|numel|ndim|dim\(|len\(|rows|cols|%", "shape"),
)
"""Causes by what a guard asks about, the most specific first."""


@dataclass(frozen=True, slots=True)
class TraceFinding:
    """A place where the program did not run a kernel that it could have run.

    Attributes:
        kind: `guard`, `except`, `graph-break`, `recompile-limit`, `eager-in-compiled`, `decomposed`, `replaced`, `rebound`, `cached`,
            `intercepted`, `not-swapped`, `not-called`, `no-backward`, `disabled`, `other-device` or `table`.
        kernels: names of the kernels.
        file: the user's file.
        line: line of the guard, break or registration.
        message: what happened, in a sentence without full stop.
        count: how often; 0 if that is not known.
        guard: text of the condition, handler or reason.
        cause: what the guard asks about.
        facts: the tensors of some of the calls.
        where: `forward`, `compiled` or empty.
    """

    kind: str
    kernels: tuple[str, ...]
    file: str
    line: int
    message: str
    count: int
    guard: str = ""
    cause: str = ""
    facts: tuple[tuple[str, ...], ...] = ()
    where: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """A name that leads to kernels, with the counts of the function that contains it."""

    code: TracedCode
    executions: Executions
    node: ast.expr | ast.ImportFrom
    reference: Mapping[str, Any]

    @property
    def line(self) -> int:
        """Returns the line of the name."""
        return self.node.lineno

    @property
    def executed(self) -> int:
        """Returns how often the interpreter came to the name."""
        return self.executions.count(self.node)

    @property
    def compiled(self) -> bool:
        """Returns True if torch.compile came to the name."""
        return self.executions.compiled(self.node)

    def names_only(self, key: str) -> bool:
        """Returns True if the name denotes one kernel directly and was not rebound."""
        reference = self.reference
        return bool(reference["direct"]) and list(reference["kernels"]) == [key] and not reference["rebound"]

    @property
    def call(self) -> ast.Call | None:
        """Returns the call whose function the name is, a launch with a grid included; None if it is not called here."""
        path = path_to(self.executions.scope, self.node)
        for parent, child in zip(reversed(path[:-1]), reversed(path), strict=False):
            if isinstance(parent, ast.Call):
                return parent if parent.func is child else None
            if not (isinstance(parent, ast.Subscript) and parent.value is child):
                return None
        return None


class TraceView:
    """A process's record, with the syntax trees of its files.

    Attributes:
        process: the record.
        expected: keys of the kernels that are expected.
        files: the user's files by name.
        visits: the names that lead to kernels.
        compiled: what torch.compile did.
    """

    def __init__(self, process: TracedProcess, expected: Iterable[str]) -> None:
        self.process, self.expected = process, set(expected)
        self.files = {name: parse_source(name, text) for name, text in process.sources.items()}
        self.visits = list(_visits(process, self.files))
        self.compiled: Mapping[str, Any] = process.document["compiled"]


def _visits(process: TracedProcess, files: Mapping[str, SourceFile]) -> Iterator[Visit]:
    for code in process.codes:
        file = files.get(code.file)
        scope = None if file is None else _scope(file, code)
        if scope is None:
            continue
        inner = [
            one
            for one in process.codes
            if one.file == code.file and one.qualified.startswith(f"{code.qualified}.<locals>.<")
        ]
        if code.qualified == "<module>":
            inner = [
                one
                for one in process.codes
                if one.file == code.file and re.fullmatch(r"<(?!module)\w+>", one.qualified)
            ]
        executions = Executions(scope, [code, *inner])
        nodes = {position(node): node for node in own_nodes(scope) if isinstance(node, ast.expr | ast.ImportFrom)}
        for reference in code.references:
            node = nodes.get(tuple(reference["position"]))
            if node is not None:
                yield Visit(code, executions, node, reference)


def _scope(file: SourceFile, code: TracedCode) -> Scope | None:
    name = code.qualified.rpartition(".")[2]
    return file.tree if name == "<module>" else file.scopes.get((code.line, name))


def cause_of(guard: str, facts: Sequence[Sequence[str]]) -> str:
    """Returns the property that a guard tests, such as `dtype` or `shape`."""
    found = next((cause for pattern, cause in _CAUSES if re.search(pattern, guard)), "a condition")
    if found == "dtype" and any("autocast: on" in one for one in facts):
        return "dtype, under autocast"
    return found


def file_name(name: str) -> str:
    """Returns the last component of a path."""
    return name.rpartition("/")[2]


def without_folders(text: str) -> str:
    """Returns a text with file names in place of paths."""
    return re.sub(r"/[^ ():]*/", "", text)
