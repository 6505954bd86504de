"""`--against`: the computations that a kernel is timed beside, from the contract's function of PyTorch or from its reference."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from kernelmate.checks.torch_reference import IN_TORCH
from kernelmate.errors import BackendUnavailable, EnvironmentFailed, ReferenceFailed, UsageError
from kernelmate.records import AlternativeName, Computation, Contract, Kernel
from kernelmate.session.judging import JudgingContext, instances_of
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.torch_text import product_text, torch_text
from kernelmate.synthesis.torch_views import NotCarried

TF32_RTOL = 2.0**-10
"""Relative tolerance of a contract from which products may round to TF32: twice the unit roundoff of its 11 bits."""

_LIBRARY = {"torch": "PyTorch", "compile": "PyTorch", "cublas": "cuBLAS"}


def with_alternatives(context: JudgingContext, names: Sequence[AlternativeName], *, remote: bool) -> JudgingContext:
    """Returns a judging context that also times the given library computations; the same context if there are none.

    Args:
        context: the kernel's.
        names: the computations asked for.
        remote: True if versions run on another machine, which may have what this one lacks.

    Raises:
        BackendUnavailable: there is no GPU.
        EnvironmentFailed: PyTorch is missing here.
        UsageError: the kernel's computation cannot be made of the contract.
    """
    if not names:
        return context
    if context.backend != "cuda":
        message = (
            "--against needs a GPU: without one nothing is timed, and a predicted time is no match for a measured one."
        )
        raise BackendUnavailable(
            message, hint="Leave --against out, or name a GPU of another machine by --device ssh:HOST."
        )
    if not remote and importlib.util.find_spec("torch") is None:
        raise EnvironmentFailed(
            "PyTorch is not installed, and --against times it.", hint="Run: pip install 'kernelmate[torch]'"
        )
    return replace(context, against=computations(context.kernel, context.contract, names, lambda: _traced(context)))


def computations(
    kernel: Kernel, contract: Contract, names: Sequence[AlternativeName], trace: Callable[[], Graph | None]
) -> tuple[Computation, ...]:
    """Returns the computations of a kernel's contract by these libraries, each once.

    Args:
        kernel: the kernel.
        contract: the contract in force.
        names: the libraries.
        trace: returns the graph of the reference; called where it is needed. None for a kernel that does not compile.

    Raises:
        UsageError: the contract says too little, or the reference has no exact counterpart.
    """
    asked = tuple(dict.fromkeys(names))
    if contract.stages:
        raise _refused(kernel, contract, "--against is for single kernels, and this is a pipeline", "Leave it out.")
    if contract.torch is None and "cublas" not in asked and _is_of_torch(kernel, contract):
        contract = replace(contract, torch=contract.reference)
    graph = None
    if contract.torch is None or "cublas" in asked:
        if contract.reference_kind not in ("function", "expression"):
            what = f"--against {' and '.join(asked)} needs a reference in Python or a function of PyTorch, which the contract lacks"
            raise _refused(kernel, contract, what, _hint(kernel))
        try:
            graph = trace()
        except ReferenceFailed as error:
            if IN_TORCH in error.message and "cublas" not in asked:
                return computations(kernel, replace(contract, torch=contract.reference), names, trace)
            hint = _hint(kernel) if contract.torch is None else "Use --against torch."
            raise UsageError(f"--against: {error.message}", file=error.file, line=error.line, hint=hint) from None
    return tuple(_computation(kernel, contract, name, graph) for name in asked)


def _is_of_torch(kernel: Kernel, contract: Contract) -> bool:
    """Returns True if the reference is a function whose text names what its file imports from torch; nothing is executed."""
    file, _, name = (contract.reference or "").rpartition(":")
    if contract.reference_kind != "function":
        return False
    try:
        tree = ast.parse((Path(kernel.unit.path).parent / file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return False  # the trace says so
    imported: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            base = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            imported |= {
                (one.asname or one.name).partition(".")[0]
                for one in node.names
                if f"{base}{one.name}".partition(".")[0] == "torch"
            }
    functions = (node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)
    return any(isinstance(part, ast.Name) and part.id in imported for node in functions for part in ast.walk(node))


def _traced(context: JudgingContext) -> Graph | None:
    """Returns the graph of the reference; None if the kernel does not compile, which its verdict says."""
    contract = context.contract
    prepared = context.preparer.prepare(context.kernel, contract, instances_of(contract)[0])
    return None if prepared.findings else Graph.of(context.trace(prepared))


def _computation(kernel: Kernel, contract: Contract, name: AlternativeName, graph: Graph | None) -> Computation:
    tf32 = contract.tolerance is not None and contract.tolerance.rtol >= TF32_RTOL
    if name != "cublas" and contract.torch is not None:
        return Computation(name, f"{contract.torch} of the contract", None, contract.torch, tf32)
    if graph is None:
        return Computation(name, "", "", None, tf32)
    make = product_text if name == "cublas" else torch_text
    try:
        text = make(graph, contract, contract.sizes[0])
    except NotCarried as reason:
        what = f"--against {name}: the reference {contract.reference} cannot be computed by {_LIBRARY[name]}: {reason}"
        hint = "Use --against torch." if name == "cublas" else _hint(kernel)
        raise _refused(kernel, contract, what, hint) from None
    called = "the product by cuBLAS" if name == "cublas" else ", ".join(text.calls)
    return Computation(name, f"{called}, from {contract.reference}", text.source, None, tf32)


def _hint(kernel: Kernel) -> str:
    """Returns how a contract names a function of PyTorch."""
    return f'Add torch = "reference.py:{kernel.name}_torch" to the contract: a function of PyTorch that takes the arguments as tensors.'


def _refused(kernel: Kernel, contract: Contract, what: str, hint: str) -> UsageError:
    return UsageError(f"{what}.", file=kernel.unit.path, line=contract.line, hint=hint)
