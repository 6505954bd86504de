"""Causes for which a program did not launch its kernels: the branches and handlers that it took, and what else the record shows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelmate_torch.tracing.bypasses import Bypass, bypasses, path_to
from kernelmate_torch.tracing.loading_records import TracedProcess
from kernelmate_torch.tracing.recorded_findings import breaks, not_reached, recorded
from kernelmate_torch.tracing.recording.sources import own_nodes, position
from kernelmate_torch.tracing.visits import TraceFinding, TraceView, Visit, cause_of, file_name


def find(process: TracedProcess, expected: Iterable[str]) -> list[TraceFinding]:
    """Return what sent a process past its kernels.

    Args:
        process: the record.
        expected: keys of the kernels that are expected.
    """
    wanted = [one for one in expected if one in process.kernels]
    view = TraceView(process, wanted)
    seeker = _Seeker(view)
    found = [one for key in wanted for one in seeker.of(key)]
    found += list(breaks(view))
    return _merged(found)


def _merged(found: Sequence[TraceFinding]) -> list[TraceFinding]:
    """Joins findings of one place for several kernels."""
    by_place: dict[tuple[Any, ...], TraceFinding] = {}
    for one in found:
        place = (one.kind, one.file, one.line, one.guard, one.where)
        known = by_place.get(place)
        kernels = one.kernels if known is None else tuple(dict.fromkeys((*known.kernels, *one.kernels)))
        by_place[place] = replace(one if known is None else known, kernels=kernels)
    return list(by_place.values())


class _Seeker:
    """Looks for what sent one process past its kernels."""

    def __init__(self, view: TraceView) -> None:
        self.view, self.process, self.expected, self.files = view, view.process, view.expected, view.files

    def of(self, key: str) -> list[TraceFinding]:
        """Returns the findings of one kernel."""
        kernel = self.process.kernels[key]
        visits = [one for one in self.view.visits if key in one.reference["kernels"]]
        ran = sum(kernel["launches"].values())
        found = [one for visit in visits if visit.reference["direct"] for one in self._past(key, visit, ran)]
        direct = bool(found)
        if not (direct and ran == 0):
            found += [one for visit in visits if not visit.reference["direct"] for one in self._past(key, visit, ran)]
        found += recorded(self.view, key)
        if not found and not ran:
            found += not_reached(self.view, key)
        return found

    def _past(self, key: str, visit: Visit, ran: int) -> Iterator[TraceFinding]:
        """Yields the ways past a name that count as fallbacks."""
        for one in bypasses(visit.executions, visit.node):
            if self._is_fallback(one, visit, ran):
                yield self._of_bypass(key, visit, one)

    def _is_fallback(self, one: Bypass, visit: Visit, ran: int) -> bool:
        if self._runs_another(one, visit) or "needs_input_grad" in one.guard or (one.count and one.empty >= one.count):
            return False
        direct = visit.reference["direct"]
        if one.kind == "except":
            return self._raised(visit, one) is not None and (one.computes or ran == 0)
        if direct:
            return one.computes or (ran == 0 and not re.search(r"\.training\b|numel\(\)", one.guard))
        if ran == 0:
            never = visit.executed == 0 and not visit.compiled
            return (
                never and not re.search(r"\.training\b", one.guard) and (one.computes or one.kind in ("skip", "loop"))
            )
        return one.computes and one.in_place

    def _runs_another(self, one: Bypass, visit: Visit) -> bool:
        """Returns True if what ran in place of the name leads to a kernel, too."""
        inside = {
            position(node) for statement in one.statements for node in ast.walk(statement) if isinstance(node, ast.expr)
        }
        others = [other for other in visit.code.references if tuple(other["position"]) in inside]
        return any(set(other["kernels"]) & self.expected for other in others)

    def _of_bypass(self, key: str, visit: Visit, one: Bypass) -> TraceFinding:
        name = self.process.kernels[key]["name"]
        raised = self._raised(visit, one) if one.kind == "except" else None
        function = visit.code.qualified
        if raised is not None:
            message = f"{function} caught {raised['type']} ({raised['message']}) and went on at line {one.target}"
            return TraceFinding(
                "except",
                (name,),
                visit.code.file,
                one.line,
                message,
                one.count,
                one.guard,
                "an error that is caught",
                one.facts,
            )
        asked = self._explained(visit, one.guard)
        shown = one.guard + (f", where {asked}" if asked else "")
        verb = {"loop": "had nothing to run", "skip": "went past it", "case": "took another case"}.get(
            one.kind, f"went to line {one.target}"
        )
        message = f"{function} {verb} by `{shown}`"
        cause = "a cached result" if _is_lookup(one) else cause_of(shown, one.facts)
        return TraceFinding(
            "guard", (name,), visit.code.file, one.line, message, one.count, one.guard, cause, one.facts,
            "compiled" if one.compiled and not one.count else "forward",
        )  # fmt: skip

    def _raised(self, visit: Visit, one: Bypass) -> Mapping[str, Any] | None:
        """Returns the exception that a name's call raised and the program caught."""
        statement = next(
            (each for each in reversed(path_to(visit.executions.scope, visit.node)) if isinstance(each, ast.stmt)),
            visit.node,
        )
        first, last = statement.lineno, statement.end_lineno or statement.lineno
        for code in visit.executions.codes:
            for error in code.exceptions:
                line = code.positions[error["index"]][0]
                if first <= line <= last and error["identity"] != self.process.document["uncaught"]:
                    return error
        return None

    def _explained(self, visit: Visit, guard: str) -> str:
        """Returns what the names in a guard stand for: the value that the program gives them, or what a function returns."""
        file = self.files[visit.code.file]
        for name in dict.fromkeys(re.findall(r"(?<![.\w])[A-Za-z_]\w*(?![\w.])", guard)):
            for scope in dict.fromkeys((visit.executions.scope, file.tree)):
                given = [
                    one
                    for one in own_nodes(scope)
                    if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == name
                ]
                if len(given) == 1 and not isinstance(given[0].value, ast.Constant):
                    return f"{name} = {ast.unparse(given[0].value)} (line {given[0].lineno})"
        return self._returned(guard)

    def _returned(self, guard: str) -> str:
        for name in re.findall(r"\b(\w+)\(", guard):
            for file in self.files.values():
                for (line, known), scope in file.scopes.items():
                    if known == name and not isinstance(scope, ast.Module):
                        values = [one.value for one in own_nodes(scope) if isinstance(one, ast.Return)]
                        given = [ast.unparse(one) for one in values if one is not None]
                        if given:
                            return f"{name} ({file_name(file.name)}:{line}) returns {' or '.join(given[:3])}"
        return ""


def _is_lookup(one: Bypass) -> bool:
    """Returns True if what ran in place of the kernel returns an entry of a table."""
    last = one.statements[-1] if one.statements else None
    return isinstance(last, ast.Return) and isinstance(last.value, ast.Subscript)
