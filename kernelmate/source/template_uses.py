"""Instances of a template that a project's host code uses: named, launched, instantiated, or passed through functions and macros."""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from kernelmate.records import Kernel
from kernelmate.source.host_text import HostFiles, HostText, project_state
from kernelmate.source.template_parameters import InferredInstance, TemplateParameter, index_types, template_parameters
from kernelmate.source.template_values import FLOATING, HIDDEN, MOST_VALUES, HostValues, Place, named_in, substituted
from kernelmate.source.tokens import closing_angle

MOST_INSTANCES = 3
"""Maximum number of instances that are judged if the contract names none: the most used ones."""

_MOST_USES = 24
_NUMBERS = frozenset(["int", "unsigned", "unsigned int", "size_t", "std::size_t", "int64_t", "long"])
_FLOATS = frozenset([*FLOATING, "half", "__half", "__nv_bfloat16", "nv_bfloat16", "at::BFloat16", "c10::Half"])


def inferred_instances(kernel: Kernel) -> tuple[InferredInstance, ...]:
    """Returns the instances of a template that its file, else its project, uses, the most used first.

    All of them are compiled before any is reported. Runs nothing.
    """
    if not kernel.signature.template_parameters:
        return ()
    unit = kernel.unit
    path = Path(unit.path) if unit.language == "cuda" and not unit.path.startswith("<") else None
    return _instances_of(kernel, path, 0 if path is None else project_state(path))


@lru_cache(maxsize=256)
def _instances_of(kernel: Kernel, path: Path | None, state: int) -> tuple[InferredInstance, ...]:  # noqa: ARG001 -- `state` makes the cache see edits
    unit, parameters = kernel.unit, template_parameters(kernel)
    for wide in (False, True) if path is not None else (False,):
        found = _InstanceSearch(kernel, parameters, HostFiles(unit.text, path, wide)).instances()
        if found:
            return found
    if parameters and all(one.default is not None or one.kind == "pack" for one in parameters):
        return (InferredInstance(f"{kernel.name}<>", "its default template arguments"),)
    return ()


class _InstanceSearch:
    """One search for the instances of one kernel in a set of texts."""

    def __init__(self, kernel: Kernel, parameters: Sequence[TemplateParameter], files: HostFiles) -> None:
        self.kernel = kernel
        self.parameters = parameters
        self.files = files
        self.simple = kernel.name.rpartition("::")[2]
        self.values = HostValues(files)

    def instances(self) -> tuple[InferredInstance, ...]:
        """Returns the instances that are used, ordered by the number of uses, then by position."""
        counted: Counter[str] = Counter()
        origins: dict[str, str] = {}
        uses = itertools.islice(self._uses(), _MOST_USES)
        for host, index, opening in uses:
            for arguments in self._arguments(host, index, opening):
                text = f"{self.kernel.name}<{', '.join(arguments)}>".replace(HIDDEN, "")
                counted[text] += 1
                line = host.text.count("\n", 0, host.tokens[index].start) + 1
                origins.setdefault(text, self._place(host, line))
        ordered = sorted((text for text in counted if not self._contradicts(text)), key=lambda text: -counted[text])
        return tuple(InferredInstance(text, origins[text]) for text in ordered)

    def _place(self, host: HostText, line: int) -> str:
        """Returns the words that name the place of a use: its line, and its file if it is another one."""
        path = self.files.path_of(host)
        if path is None or self.files.path is None:
            return f"its use at line {line}"
        return f"its use at line {line} of {os.path.relpath(path, self.files.path.parent.resolve())}"

    def _contradicts(self, instance: str) -> bool:
        """Returns True if an instance is impossible: a floating-point type for an integral one, or a truth value for a type or number."""
        indexing = index_types(self.kernel)
        arguments = instance.partition("<")[2].removesuffix(">").split(", ")
        pairs = list(zip(self.parameters, arguments, strict=False))
        return any(one.name in indexing and argument in _FLOATS for one, argument in pairs) or any(
            (one.kind == "type" or one.type in _NUMBERS) and argument in ("true", "false") for one, argument in pairs
        )

    def _uses(self) -> Iterator[tuple[HostText, int, int]]:
        """Yields every token that names the kernel with template arguments, or launches it."""
        for host in self.files.mentioning(self.simple):
            own = host.text == self.kernel.unit.text
            for index in host.words.get(self.simple, ()):
                if own and self.kernel.start <= host.tokens[index].start < self.kernel.end:
                    continue
                following = host.tokens[index + 1].text if index + 1 < len(host.tokens) else ""
                if following in ("<", "<<<") or (following == "," and _is_passed_on(host, index)):
                    yield host, index, index + 1

    def _arguments(self, host: HostText, index: int, opening: int) -> Iterator[tuple[str, ...]]:
        """Yields the template arguments of one use, completed by defaults and by deduction, each word resolved."""
        written: list[str] = []
        after = opening
        if host.tokens[opening].text == "<":
            end = closing_angle(host.tokens, opening)
            if end is None:
                return
            written = host.arguments(opening)
            after = end + 1
        missing = self.parameters[len(written) :]
        if any(one.kind == "pack" for one in self.parameters):
            missing = ()
        macro = host.macro_of(index) if missing else None
        for place in self.values.calls(*macro) if macro is not None else [(host, index, {})]:
            deduced = self._deductions(missing, host, after, place)
            if deduced is None:
                continue
            texts = [substituted(text, place[2]) for text in written]
            for given in self.values.resolved(texts, place[0], place[1]):
                rests = itertools.islice(itertools.product(*deduced), MOST_VALUES)
                yield from ((*given, *rest) for rest in rests)

    def _deductions(
        self, missing: Sequence[TemplateParameter], host: HostText, launch: int, place: Place
    ) -> list[list[str]] | None:
        """Returns the values of parameters up to the last that a launch tells; None if it does not tell one without a default."""
        deduced: list[list[str]] = []
        used = 0
        for parameter in missing:
            found = self._deduced(parameter.name, host, launch, place)
            if not found and parameter.default is None:
                return None
            deduced.append(found or [parameter.default or ""])
            used = len(deduced) if found else used
        return deduced[:used]

    def _deduced(self, name: str, host: HostText, launch: int, place: Place) -> list[str]:
        """Returns the type that a launch's arguments give a template parameter, where a macro that has the launch is called."""
        passed = self._passed(host, launch) if launch < len(host.tokens) else []
        for parameter, argument in zip(self.kernel.signature.parameters, passed, strict=False):
            if re.search(rf"\b{re.escape(name)}\b", parameter.base):
                types = self.values.type_of(substituted(argument, place[2]), place[0], place[1], 0)
                if not types and place[0].tokens[place[1]].directive != host.tokens[launch].directive:
                    types = self.values.type_of(argument, host, launch, 0)
                found = named_in(name, parameter.base, types)
                if found:
                    return found
        return []

    def _passed(self, host: HostText, launch: int) -> list[str]:
        """Returns the kernel's arguments in a launch, or in a call that passes the kernel and then its arguments."""
        if host.tokens[launch].text == "," and host.parents[launch] >= 0:
            return host.arguments(host.parents[launch])[-len(self.kernel.signature.parameters) :]
        if host.tokens[launch].text != "<<<":
            return []
        opening = next(
            (at + 1 for at in range(launch, min(launch + 400, len(host.tokens) - 1))
             if host.tokens[at].text == ">" and host.tokens[at + 1].text == "(" and host.tokens[at - 1].text == ">"
             and host.parents[at] == host.parents[launch]),
            None,
        )  # fmt: skip
        return host.arguments(opening) if opening is not None else []


def _is_passed_on(host: HostText, index: int) -> bool:
    """Returns True for an argument of a call or a macro, other than the first argument of a template's list."""
    opening = host.parents[index]
    return opening > 0 and host.tokens[opening].text == "(" and host.tokens[opening - 1].kind == "word"
