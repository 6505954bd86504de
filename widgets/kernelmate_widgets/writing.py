"""`%kernelmate write f(x, w)`: creates a kernel for a function of the notebook, in the next cell."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmate.errors import UsageError
from kernelmate.report.words import printable
from kernelmate.source import write_contract
from kernelmate.source.examples import PythonFunction, described_function, read_examples
from kernelmate_widgets.arrays import live_array
from kernelmate_widgets.cells import is_name
from kernelmate_widgets.live_contracts import Evaluate, carried_function
from kernelmate_widgets.output import verdict_bundle, views_bundle

if TYPE_CHECKING:
    from kernelmate.session.writing import WriteOutcome
    from kernelmate_widgets.magics import KernelmateMagics

_USE = "Write %kernelmate write f(x, w) with a function of this notebook and the arrays that it is called with."


def write(magics: KernelmateMagics, call: str, *, quiet: bool) -> None:
    """Writes a kernel for the function of a call, show its verdict, and offer its text as the next cell.

    Raises:
        UsageError: the text is not a call of a Python function on arrays and numbers.
        ReferenceFailed: the function raises an exception.
    """
    from kernelmate.session.writing import write_kernel
    from kernelmate.synthesis.draft import KernelRequest

    name, function, values = _called(call, magics.shell.ev)
    folder = magics.notebook.folder()
    try:
        with magics.progress(quiet=quiet) as progress:
            spec = carried_function(function, name, folder, f"%kernelmate write {name}")
            described = _described(function, name, spec)
            entries = ", ".join(f"{one}={_example(one, value)}" for one, value in values.items())
            path = folder / f"{described.name}.cu"
            asked = KernelRequest(described, read_examples(described, entries, {}), path, f"{described.name}_kernel")
            session = magics.notebook.session()
            with magics.notebook.listening(progress.stage):
                made = write_kernel(session, asked, on_trying=progress.step)
            _offer(magics, name, made, progress)
    finally:
        magics.notebook.drop(folder)


def _called(call: str, evaluate: Evaluate) -> tuple[str, Callable[..., Any], Mapping[str, object]]:
    """Returns the function's name, the function, and its arguments by parameter name."""
    try:
        node = ast.parse(call.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        node = None
    if not isinstance(node, ast.Call):
        raise UsageError(f"{call!r} is not a call.", hint=_USE)
    name = ast.unparse(node.func)
    try:
        function = evaluate(name)
        given = [evaluate(ast.unparse(one)) for one in node.args]
        named = {one.arg: evaluate(ast.unparse(one.value)) for one in node.keywords if one.arg is not None}
        bound = inspect.signature(function).bind(*given, **named)
    except (TypeError, ValueError, NameError, AttributeError, SyntaxError) as error:
        raise UsageError(f"{call} cannot be called: {type(error).__name__}: {error}.", hint=_USE) from None
    return name, function, bound.arguments


def _described(function: Callable[..., Any], name: str, spec: str) -> PythonFunction:
    """Returns the function as its source declares it; without source, only its parameters."""
    path = Path(spec.rpartition(":")[0])
    own = spec.rpartition(":")[2]
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        tree = None
    if isinstance(tree, ast.FunctionDef):
        return replace(described_function(tree, spec, path), name=own)
    parameters = inspect.signature(function).parameters
    defaults = {one.name: ... if one.default is None else one.default for one in parameters.values() if one.default is not one.empty}  # fmt: skip
    return PythonFunction(spec, path, own, 1, tuple(parameters), defaults, {}, f"Computes {name} of a notebook.")


def _example(name: str, value: object) -> str:
    """Returns an entry of `--arrays` for a live object.

    Raises:
        UsageError: the value is neither an array nor a number.
    """
    array = live_array(value)
    if array is not None and array.shape:
        return f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if isinstance(value, np.generic) and value.dtype.kind in "iuf":
        return f"{value.dtype.name}({value.item()!r})"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return repr(value)
    raise UsageError(f"{name} is a {type(value).__name__}.", hint="Give arrays of NumPy, CuPy or torch, and numbers.")


def _offer(magics: KernelmateMagics, name: str, made: WriteOutcome, progress: Any) -> None:
    """Shows the new kernel, and puts its text into the next cell."""
    best = made.best
    if best is None:
        progress.result(views_bundle(*map(printable, made.notes), "No kernel was written."))
        return
    kernel = write_contract(best.kernel, replace(best.contract, reference=None, reference_kind=None))
    bound = best.contract.kernel if is_name(best.contract.kernel) else "kernel"
    magics.shell.set_next_input(f"%%kernelmate {bound} --ref {name}\n{kernel.unit.text}")
    progress.result(verdict_bundle((best.verdict,), best.kernel, made.notes, charts=False))
