"""Checks of versions against a prompt's constraints, and of authors against its preferences."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from kernelmate.decide.metrics import metric_value
from kernelmate.decide.objective import NOT_MEASURED, fold, names_a_metric
from kernelmate.records import Compiled, FindingCode, MetricName, Objective, Verdict

_ENTRY = re.compile(r"^(?=(?:\.(?:visible|weak|extern) +)?\.entry\s+([\w$]+))", re.MULTILINE)
_ATOMIC = re.compile(r"^\s*(?:@!?%\w+\s+)?(?:atom|red)\.(?!async)[\w.:]+", re.MULTILINE)
_FLOATS = re.compile(r"\.add[\w.:]*\.b?f(?:16|32|64)|\.b?f(?:16|32|64)[\w.:]*\.add")


def broken_by(objective: Objective, verdict: Verdict, compiled: Compiled) -> tuple[str, ...]:
    """Returns the constraints that a version violates, as text; an unknown figure violates none.

    Args:
        objective: the objective with its constraints.
        verdict: the version's verdict.
        compiled: the compiled version.
    """
    reasons: list[str] = []
    for one in objective.constraints:
        if one.kind == "registers" or one.kind == "shared_bytes":
            value = metric_value(one.kind, verdict)
            if value is not None and one.most is not None and value > one.most:
                unit = " bytes" if one.kind == "shared_bytes" else ""
                reasons.append(f"asked for {one.words}, has {value:.0f}{unit}")
            continue
        atomics = _ATOMIC.findall(_own_ptx(compiled))
        if one.kind == "atomics" and atomics:
            reasons.append(f"asked for {one.words}, has {len(atomics)} in its PTX")
        elif one.kind == "deterministic" and any(_FLOATS.search(atomic) for atomic in atomics):
            reasons.append(f"asked for {one.words}, adds floats by atomics, in any order")
        elif one.kind == "deterministic" and any(
            finding.code == FindingCode.NONDETERMINISTIC for finding in verdict.findings
        ):
            reasons.append(f"asked for {one.words}, equal launches gave different answers")
    return tuple(reasons)


def holds_already(objective: Objective, baseline: Verdict, compiled: Compiled) -> bool:
    """Returns True if the objective has only constraints and the baseline already meets them."""
    only = objective.keep and bool(objective.constraints) and not objective.preferences
    return only and not objective.reading.startswith(NOT_MEASURED) and not broken_by(objective, baseline, compiled)


def suits(objective: Objective, author: str) -> int:
    """Returns how many preferred structures an author's versions have; minus the number of avoided ones, if any."""
    named = [one for one in objective.preferences if re.search(one.authors, author)]
    avoided = sum(one.avoid for one in named)
    return -avoided if avoided else len(named)


def only_structure(objective: Objective) -> bool:
    """Returns True if a prompt names structure and nothing else: only versions that have it answer such a prompt."""
    wanted = any(not one.avoid for one in objective.preferences)
    alone = not (objective.constraints or objective.sizes or objective.limits or objective.keep)
    return wanted and alone and not names_a_metric(fold(objective.prompt))


def aimed_at(objective: Objective, metrics: Collection[MetricName], verdict: Verdict) -> Objective | None:
    """Returns the objective to give to a recipe that improves the given metrics.

    An exceeded constraint becomes the objective.

    Returns None if the recipe serves neither the objective nor an exceeded constraint.
    """
    for one in objective.constraints:
        if one.kind == "registers" or one.kind == "shared_bytes":
            value = metric_value(one.kind, verdict)
            if one.kind in metrics and value is not None and one.most is not None and value > one.most:
                return replace(objective, metric=one.kind, direction="decrease")
    return objective if objective.metric in metrics else None


def _own_ptx(compiled: Compiled) -> str:
    """Returns a version's PTX without the other kernels of its file."""
    parts = _ENTRY.split(compiled.ptx)
    own = [parts[0]]
    own += [text for name, text in zip(parts[1::2], parts[2::2], strict=True) if name == compiled.lowered_name]
    return "".join(own)
