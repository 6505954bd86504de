"""Checks of versions against a prompt's constraints, and of authors against its preferences."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from kernelmate.decide.metrics import bounded_metric, format_value, metric_value, violates
from kernelmate.decide.objective import NOT_MEASURED, direction_of, names_a_metric
from kernelmate.decide.spelling import fold
from kernelmate.errors import ContractError
from kernelmate.records import (
    Compiled,
    Contract,
    FindingCode,
    LaunchShape,
    MetricName,
    Objective,
    Verdict,
)
from kernelmate.source import launch_shape

_ENTRY = re.compile(r"^(?=(?:\.(?:visible|weak|extern) +)?\.entry\s+([\w$]+))", re.MULTILINE)
_ATOMIC = re.compile(r"^\s*(?:@!?%\w+\s+)?(?:atom|red)\.(?!async)[\w.:]+", re.MULTILINE)
_FLOATS = re.compile(r"\.add[\w.:]*\.b?f(?:16|32|64)|\.b?f(?:16|32|64)[\w.:]*\.add")


def broken_by(
    objective: Objective,
    verdict: Verdict,
    compiled: Compiled,
    contract: Contract | None = None,
    before: Contract | None = None,
) -> tuple[str, ...]:
    """Returns the constraints that a version violates, as text; an unknown figure violates none.

    Args:
        objective: the objective with its constraints.
        verdict: the version's verdict.
        compiled: the compiled version.
        contract: the version's contract, for constraints of its launch.
        before: the baseline's contract.
    """
    reasons: list[str] = []
    if contract is not None and before is not None:
        reasons += launch_broken(objective, contract, before)
    for one in objective.constraints:
        metric = bounded_metric(one)
        if metric is not None:
            if violates(one, verdict):
                reasons.append(f"asked for {one.words}, has {format_value(metric, metric_value(metric, verdict))}")
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


def launch_broken(objective: Objective, contract: Contract, before: Contract) -> tuple[str, ...]:
    """Returns the constraints of block and launch that a version violates, as text; of a pipeline, none.

    Args:
        objective: the objective with its constraints.
        contract: the version's contract.
        before: the baseline's contract, whose first size is used for both.
    """
    asked = [one for one in objective.constraints if one.kind in ("block", "launch")]
    if not asked or contract.stages or before.stages:
        return ()
    size = before.sizes[0]
    try:
        new, old = launch_shape(contract, size), launch_shape(before, size)
    except ContractError:
        return ()  # the verdict reports the fault of the launch
    reasons: list[str] = []
    for one in asked:
        if one.kind == "launch":
            if new != old:
                reasons.append(f"asked for {one.words}, has {_launch_words(new)} instead of {_launch_words(old)}")
        elif new.block != old.block if one.bound is None else new.threads != one.bound:
            reasons.append(f"asked for {one.words}, has {new.threads} threads per block")
    return tuple(reasons)


def _launch_words(shape: LaunchShape) -> str:
    grid, block = (
        "x".join(map(str, sides)).removesuffix("x1").removesuffix("x1") for sides in (shape.grid, shape.block)
    )
    shared = f" and {shape.shared_bytes} dynamic shared bytes" if shape.shared_bytes else ""
    return f"{grid} blocks of {block} threads{shared}"


def holds_already(objective: Objective, baseline: Verdict, compiled: Compiled, contract: Contract) -> bool:
    """Returns True if the objective has only constraints and the baseline already meets them."""
    only = objective.keep and bool(objective.constraints) and not objective.preferences
    measured = not objective.reading.startswith(NOT_MEASURED)
    return only and measured and not broken_by(objective, baseline, compiled, contract, contract)


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
        metric = bounded_metric(one)
        if metric is not None and metric in metrics and violates(one, verdict):
            return replace(objective, metric=metric, direction=direction_of(metric))
    return objective if objective.metric in metrics else None


def _own_ptx(compiled: Compiled) -> str:
    """Returns a version's PTX without the other kernels of its file."""
    parts = _ENTRY.split(compiled.ptx)
    own = [parts[0]]
    own += [text for name, text in zip(parts[1::2], parts[2::2], strict=True) if name == compiled.lowered_name]
    return "".join(own)
