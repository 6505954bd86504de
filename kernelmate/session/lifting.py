"""Derives a NumPy function from a kernel's text, and offers it as reference after judging the kernel with it."""

from __future__ import annotations

import ast
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmate.errors import ReferenceFailed, UsageError
from kernelmate.records import Contract, Kernel, Verdict
from kernelmate.session.session import Session
from kernelmate.source import contract_for
from kernelmate.synthesis.lift.function import Lifted, lift, new_file
from kernelmate.synthesis.lift.polynomials import NotLifted

FILE = "reference.py"
"""The default file for functions, beside the kernel."""


@dataclass(frozen=True, slots=True)
class LiftOutcome:
    """Result of reading a kernel.

    Attributes:
        function: the function; None if the kernel cannot be lifted.
        agrees: True if the kernel was judged right with it at every size.
        cases: number of sizes judged.
        reason: the reason for offering nothing.
        line: line of the unit's text that the reason refers to.
        note: the reason why `synthesis` cannot use the function, if any.
    """

    contract: Contract
    function: Lifted | None
    agrees: bool = False
    cases: int = 0
    reason: str | None = None
    line: int | None = None
    verdicts: tuple[Verdict, ...] = ()
    note: str | None = None


def lift_and_judge(session: Session, kernel: Kernel, contract: Contract | None = None) -> LiftOutcome:
    """Lift a kernel and judge it with the lifted function; no file is changed.

    Args:
        session: judges.
        kernel: what is read.
        contract: in place of the kernel's own.

    Raises:
        InputError: the contract needs a change.
        EnvironmentFailed: the compiler or the worker is unavailable.
    """
    contract = contract or contract_for(kernel)
    found = _tried(session, kernel, contract, exact=False)
    return found if found.agrees or found.function is None else _tried(session, kernel, contract, exact=True)


def _tried(session: Session, kernel: Kernel, contract: Contract, *, exact: bool) -> LiftOutcome:
    try:
        function = lift(kernel, contract, exact=exact)
    except NotLifted as refused:
        return LiftOutcome(contract, None, reason=f"{refused.reason}.", line=refused.line)
    with tempfile.TemporaryDirectory(prefix="kernelmate-lift-") as folder:
        path = Path(folder) / FILE
        path.write_text(file_text(None, function))
        judged = replace(contract, reference=f"{path}:{function.name}", reference_kind="function")
        try:
            verdicts = session.bench(kernel, contract=judged)
        except ReferenceFailed as error:
            return LiftOutcome(contract, function, reason=f"the function that was read fails: {error.message}")
        reason = _disagreement(verdicts)
        note = None if reason is not None else _untraceable(session, kernel, judged)
    cases = sum(len(verdict.cases) for verdict in verdicts)
    return LiftOutcome(contract, function, reason is None, cases, reason, None, verdicts, note)


def _untraceable(session: Session, kernel: Kernel, contract: Contract) -> str | None:
    try:
        session.trace(kernel, contract)
    except ReferenceFailed as error:
        return error.message
    return None


def _disagreement(verdicts: tuple[Verdict, ...]) -> str | None:
    """Returns the first difference of kernel and function, or the reason for no comparison.

    The result is None if they agree everywhere.
    """
    for verdict in verdicts:
        for case in verdict.cases:
            if case.correct is False:
                wrong = case.first_wrong
                where = (
                    ""
                    if wrong is None
                    else f", first at {wrong.argument}{list(wrong.index)}: the kernel has {wrong.got}, the function {wrong.want}"
                )
                size = ", ".join(f"{name}={value}" for name, value in case.size.items())
                return f"the function that was read disagrees with the kernel at {size}{where}."
        if verdict.correct is not True or any(one.severity == "error" for one in verdict.findings):
            said = [one.message for one in verdict.findings if one.severity == "error"]
            why = next(iter([*said, *verdict.reasons]), "it could not be judged").rstrip(".")
            return f"the kernel was not judged right with the function that was read: {why}."
    return None


def file_text(before: str | None, function: Lifted) -> str:
    """Returns the text of a Python file with the function appended.

    Raises:
        UsageError: the file cannot be read, or already defines the name.
    """
    if before is None or not before.strip():
        return new_file(function)
    try:
        module = ast.parse(before)
    except SyntaxError as error:
        raise UsageError(f"The file is not Python: {error.msg}.", hint="Name another one with --to.") from None
    if function.name in _bound(module):
        raise UsageError(
            f"There is a {function.name} already; nothing was written.", hint="Name another file with --to."
        )
    wanted = ["import numpy as np"] if "np" not in _bound(module) else []
    wanted += ["from scipy import special"] if function.special and "special" not in _bound(module) else []
    lines = before.rstrip("\n").split("\n")
    if wanted:
        place = _after_imports(module)
        lines[place:place] = wanted if place else [*wanted, ""]
    return "\n".join(lines) + f"\n\n\n{function.text}"


def _bound(module: ast.Module) -> set[str]:
    """Returns the names that a file defines or imports."""
    found: set[str] = set()
    for node in module.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return found


def _after_imports(module: ast.Module) -> int:
    """Returns the line after a file's leading imports, or after its docstring."""
    last = 0
    for node in module.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node is module.body[0]
        if not docstring and not isinstance(node, ast.Import | ast.ImportFrom):
            break
        last = node.end_lineno or last
    return last
