"""Reasons why a program did not launch its kernels: the branches and handlers that it took, and other recorded facts.

Apart from branches, these are graph breaks, replaced implementations, names and modules, decompositions, and caches.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelmate_torch.tracing.bypasses import Bypass, bypasses, path_to
from kernelmate_torch.tracing.loading_records import TracedCode, TracedProcess
from kernelmate_torch.tracing.recording.sources import own_nodes, position
from kernelmate_torch.tracing.visits import TraceFinding, TraceView, Visit, cause_of, file_name, without_folders

_SETTERS = ("setattr", "patch", "object")
"""Functions that give a name another value: `setattr`, and those of `unittest.mock`."""


def breaks(view: TraceView) -> Iterator[TraceFinding]:
    """Yields graph breaks and reached limits in functions that lead to kernels."""
    followed = {(one.file, one.qualified.rpartition(".")[2]): one for one in view.process.codes if one.references}
    for one in view.compiled["breaks"]:
        codes = [followed[file, name] for file, _, name in one["frames"] if (file, name) in followed]
        kernels = _names(view, codes)
        if kernels:
            file, line, name = one["frames"][-1]
            explained = f" ({one['explained'].removeprefix('Explanation: ')})" if one["explained"] else ""
            message = f"torch.compile broke the graph in {name}: {one['reason']}{explained}"
            yield TraceFinding("graph-break", kernels, file, line, message, 0, one["reason"], "a graph break", where="compiled")  # fmt: skip
    for one in view.compiled["limits"]:
        code = followed.get((one["file"], one["name"]))
        kernels = () if code is None else _names(view, [code])
        if kernels:
            message = f"torch.compile reached its limit of recompilations of {one['name']}, which runs without it from then on"
            yield TraceFinding("recompile-limit", kernels, one["file"], one["line"], message, one["count"], where="compiled")  # fmt: skip


def _names(view: TraceView, codes: Iterable[TracedCode]) -> tuple[str, ...]:
    keys = {key for code in codes for one in code.references for key in one["kernels"] if key in view.expected}
    return tuple(sorted(view.process.kernels[key]["name"] for key in keys))


def recorded(view: TraceView, key: str) -> Iterator[TraceFinding]:
    """Yields the findings about a kernel that were recorded, apart from branches."""
    kernel = view.process.kernels[key]
    yield from _replaced(kernel)
    yield from _of_launches(view, kernel)
    yield from _decomposed(view, key, kernel)
    yield from _eager(view, kernel)
    yield from _of_modules(view, key, kernel)
    yield from _renamed(view, key, kernel)
    yield from _given_away(view, key, kernel)
    yield from _intercepted(view, key, kernel)


def _of_launches(view: TraceView, kernel: Mapping[str, Any]) -> Iterator[TraceFinding]:
    name, file, line = (kernel["name"],), kernel["file"], kernel["line"]
    if kernel["needed_gradient"] and view.process.document["backwards"]:
        message = "it has no formula for gradients, so that none passes through it to inputs that require one"
        yield TraceFinding("no-backward", name, file, line, message, kernel["needed_gradient"], cause="gradients", where="backward")  # fmt: skip
    if kernel["disabled"]:
        message = "its kernel was disabled by set_kernel_enabled, and the default implementation ran"
        yield TraceFinding("disabled", name, file, line, message, kernel["disabled"])
    on_cpu, on_gpu = kernel["devices"].get("cpu", 0), kernel["devices"].get("cuda", 0)
    if on_cpu and on_gpu:
        message = f"its CPU implementation ran for tensors on the CPU; {on_gpu} launches were on the GPU"
        yield TraceFinding("other-device", name, file, line, message, on_cpu, cause="device")


def _decomposed(view: TraceView, key: str, kernel: Mapping[str, Any]) -> Iterator[TraceFinding]:
    graphs = view.compiled["in_graphs"].get(key)
    if graphs is None or any(phase.startswith("compiled") for phase in view.process.launches(key)):
        return
    place = view.compiled["decompositions"].get(key)
    does = "the backend removed or replaced it" if place is None else "a registered decomposition took its place"
    message = f"torch.compile had it in {graphs['graphs']} graph(s), and the compiled code never launched it: {does}"
    file, line = place or (kernel["file"], kernel["line"])
    yield TraceFinding("decomposed", (kernel["name"],), file, line, message, graphs["graphs"], cause="a decomposition", where="compiled")  # fmt: skip


def _eager(view: TraceView, kernel: Mapping[str, Any]) -> Iterator[TraceFinding]:
    count = kernel["eager_in_compiled"]
    if not count or any(kernel["name"] in one.kernels for one in breaks(view)):
        return
    message = "it was launched from plain Python inside a function that torch.compile was to compile"
    file, _, line = next(iter(kernel["sites"]), f"{kernel['file']}:{kernel['line']}").rpartition(":")
    yield TraceFinding("eager-in-compiled", (kernel["name"],), file, int(line), message, count, where="compiled")


def _of_modules(view: TraceView, key: str, kernel: Mapping[str, Any]) -> Iterator[TraceFinding]:
    """Yields cached results, and modules that `kernelmate_torch.replace` did not replace."""
    name = (kernel["name"],)
    for one in view.process.document["caches"]:
        if key in one["kernels"] and one["hits"]:
            message = f"{one['name']} gave a cached result in {one['hits']} of {one['hits'] + one['misses']} calls"
            yield TraceFinding("cached", name, one["file"], one["line"], message, one["hits"], cause="a cached result")
    for one in view.process.document["replacements"]:
        if key in one["kernels"] and one["left"]:
            left = "; ".join(f"{module}: {reason}" for module, reason in list(one["left"].items())[:5])
            message = f"replace left {len(one['left'])} module(s) alone: {left}"
            yield TraceFinding("not-swapped", name, one["file"], one["line"], message, len(one["left"]), cause="a module that was not swapped")  # fmt: skip


def _renamed(view: TraceView, key: str, kernel: Mapping[str, Any]) -> Iterator[TraceFinding]:
    """Yields names of the kernel that the program gave to another function."""
    for visit in view.visits:
        value = visit.reference["rebound"]
        if value and key in visit.reference["kernels"] and (visit.executed or visit.compiled):
            text = ast.unparse(visit.node)
            file, line = _assignment(view, text.rpartition(".")[2]) or (visit.code.file, visit.line)
            message = f"`{text}` stands for {without_folders(value)} since the program assigned to it"
            yield TraceFinding("rebound", (kernel["name"],), file, line, message, visit.executed, cause="a name with another value")  # fmt: skip


def _given_away(view: TraceView, key: str, kernel: Mapping[str, Any]) -> Iterator[TraceFinding]:
    """Yields functions around the kernel whose names the program gave to others."""
    for one in view.process.document["rebound"]:
        if key not in one["kernels"]:
            continue
        guard = one["guard"]
        own = one["file"], one["guard_line"] or one["line"]
        file, line = own if guard else _assignment(view, one["name"].rpartition(".")[2]) or own
        by = f" by `{guard}`" if guard else ""
        if one.get("objects"):
            by = f" in {one['objects']} object{'' if one['objects'] == 1 else 's'} of the class"
        message = f"{one['name']} ({file_name(one['file'])}:{one['line']}) stands for {without_folders(one['stands_for'])}{by}"
        cause = cause_of(guard, ()) if guard else "a name with another value"
        yield TraceFinding("rebound", (kernel["name"],), file, line, message, 0, guard, cause)


def _assignment(view: TraceView, name: str) -> tuple[str, int] | None:
    """Returns file and line of the first assignment to an attribute of this name outside its class, or of a `setattr` with it."""
    for file in view.files.values():
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Assign) and any(_gives(one, name) for one in node.targets):
                return file.name, node.lineno
            if isinstance(node, ast.Call) and _called_name(node) in _SETTERS:
                texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
                if any(str(one).rpartition(".")[2] == name for one in texts):
                    return file.name, node.lineno
    return None


def _gives(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == name and ast.unparse(target.value) not in ("self", "cls")  # fmt: skip


def _called_name(node: ast.Call) -> str:
    return str(getattr(node.func, "id", getattr(node.func, "attr", "")))


def _intercepted(view: TraceView, key: str, kernel: Mapping[str, Any]) -> Iterator[TraceFinding]:
    """Yields calls that returned although no implementation was entered that counts."""
    if not kernel["exact"] or any(one.truncated for one in view.process.codes):
        return
    returned = {visit: max(_returned_calls(visit), 0) for visit in view.visits if visit.names_only(key)}
    calls = sum(returned.values())
    eager = sum(count for phase, count in kernel["launches"].items() if not phase.startswith("compiled"))
    if calls <= eager:
        return
    place = next(visit for visit, count in returned.items() if count)
    message = f"{calls - eager} of {calls} calls reached no implementation of it: a mode, a subclass or another registration took them"  # fmt: skip
    yield TraceFinding("intercepted", (kernel["name"],), place.code.file, place.line, message, calls - eager, cause="the dispatcher")  # fmt: skip


def _returned_calls(visit: Visit) -> int:
    """Returns how often the call of a name returned."""
    if visit.call is None:
        return 0
    errors = [one for code in visit.executions.codes for one in code.exceptions if code.positions[one["index"]][0] == visit.line]  # fmt: skip
    failed: int = sum(one["count"] for one in errors)
    return visit.executions.calls(visit.call) - failed


def not_reached(view: TraceView, key: str) -> Iterator[TraceFinding]:
    """Yields why a kernel never ran that no branch and nothing else explains."""
    name = (view.process.kernels[key]["name"],)
    visits = [one for one in view.visits if key in one.reference["kernels"]]
    for visit in visits:
        # Where that function ran, another kernel's way through it was taken, or a branch is reported.
        entered = any(
            one.reference["direct"] and (one.executed or (one.code is not visit.code and any(one.code.counts)))
            for one in visits
        )
        text = ast.unparse(visit.node)
        if visit.reference["table"] and visit.executed:
            message = f"`{text}` holds it, and another entry was taken"
            yield TraceFinding("table", name, visit.code.file, visit.line, message, visit.executed, cause="a table of functions")  # fmt: skip
        elif not visit.reference["direct"] and visit.executed and visit.call is not None and not entered:
            message = f"`{text}` was called here, and the function that launches the kernel never was"
            yield TraceFinding("not-called", name, visit.code.file, visit.line, message, visit.executed)


def _replaced(kernel: Mapping[str, Any]) -> Iterator[TraceFinding]:
    """Yields implementations that a later registration took the place of."""
    first: dict[str, list[Any]] = {}
    for key, file, line, function in kernel["registrations"]:
        known = first.get(key)
        if known is None and key not in ("", "default") and file != kernel["file"]:
            known = first.get("default")
        if known is not None and known != [file, line]:
            shown = key if key != "default" else "all devices"
            message = f"{function} was registered for {shown} in place of the implementation of {file_name(known[0])}:{known[1]}"
            yield TraceFinding("replaced", (kernel["name"],), file, line, message, sum(kernel["launches"].values()), cause="a later registration")  # fmt: skip
        first[key] = [file, line]


def find(process: TracedProcess, expected: Iterable[str]) -> list[TraceFinding]:
    """Returns the causes for which a process bypassed its kernels.

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
    """Merges findings at the same position for several kernels."""
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
        visits = [one for one in self.view.visits if key in one.reference["kernels"]]
        ran = sum(self.process.launches(key).values())
        found = [one for visit in visits if visit.reference["direct"] for one in self._past(key, visit, ran)]
        direct = bool(found)
        if not (direct and ran == 0):
            found += [one for visit in visits if not visit.reference["direct"] for one in self._past(key, visit, ran)]
        found += recorded(self.view, key)
        if not found and not ran:
            found += not_reached(self.view, key)
        return found

    def _past(self, key: str, visit: Visit, ran: int) -> Iterator[TraceFinding]:
        """Yields a finding for each path bypassing a name that counts as a fallback."""
        for one in bypasses(visit.executions, visit.node):
            if self._is_fallback(one, visit, ran):
                yield self._of_bypass(key, visit, one)

    def _is_fallback(self, one: Bypass, visit: Visit, ran: int) -> bool:
        if self._runs_another(one, visit) or "needs_input_grad" in one.guard or (one.count and one.empty >= one.count):
            return False
        direct = visit.reference["direct"]
        if one.kind in ("except", "suppress"):
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
        raised = self._raised(visit, one) if one.kind in ("except", "suppress") else None
        function = visit.code.qualified
        if raised is not None:
            message = f"{function} caught {raised['type']} ({raised['message']}) and went on at line {one.target}"
            return TraceFinding(
                "except",
                (name,),
                visit.code.file,
                one.line,
                message,
                one.count if one.kind == "except" else min(one.count, raised["count"]),
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
        """Returns the meanings of the names in a guard: the value that the program assigns, or the expression that a function returns."""
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
