"""Finds assumptions stated to the compiler (such as `__builtin_assume`) that a size or an address violates.

A violated assumption is undefined behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmate.checks.case_records import CaseRecord
from kernelmate.checks.causes import size_text
from kernelmate.checks.condition_sizes import SizeLookup
from kernelmate.records import Contract, Finding, FindingCode, Severity
from kernelmate.source.conditions import Condition
from kernelmate.source.size_expressions import Lookup, SizeExpression
from kernelmate.source.tokens import lex


def find(
    contract: Contract, conditions: Sequence[Condition], records: Sequence[CaseRecord], text: str, *, compared: bool
) -> Iterator[Finding]:
    """Yields a finding for each assumption that fails at a size that must be right, or that cannot be evaluated.

    Args:
        contract: the contract of the version under judgement.
        conditions: conditions of its text that its baseline lacks.
        records: the sizes that were tried.
        text: the unit's text, in which findings are placed.
        compared: True with a baseline; without one only listed sizes must be right.
    """
    for condition in conditions:
        if condition.assumed:
            found = _broken(contract, condition, records, compared=compared)
            if found is not None:
                line, column = lex(text).position(condition.offset)
                yield Finding(FindingCode.WRONG_AT_SIZE, found[0], found[1], line=line, column=column)


def _broken(
    contract: Contract, condition: Condition, records: Sequence[CaseRecord], *, compared: bool
) -> tuple[Severity, str] | None:
    by_size, by_address = SizeLookup(contract, thread=False), SizeLookup(contract, thread=False, moved=True)
    last = SizeLookup(contract) if _of_threads(condition.expression) and not condition.guards else by_size
    must = [
        r for r in records if min(r.size.values(), default=1) > 0 and r.baseline_correct is not False and r.launched
    ]
    known = False
    for record in must:
        lookup = last.at(record.size)
        held = condition.holds(lookup)
        known |= held is not None
        if held is False and _reached(condition, lookup):
            return _said(condition, record, size_text(record.size), compared=compared)
    for record in must:
        if not any(s.outcome.shot.misalign and s.weight == "error" for s in record.seen):
            continue
        lookup = by_address.at(record.size)
        held = condition.holds(lookup)
        known |= held is not None
        if held is False and _reached(condition, lookup):
            where = "an address that `align` in the contract does not exclude"
            return _said(condition, record, where, compared=compared)
    if known or not must:
        return None
    return "note", f"the compiler may assume `{condition.text}`, which could be tested at no size"


def _said(condition: Condition, record: CaseRecord, where: str, *, compared: bool) -> tuple[Severity, str]:
    severity: Severity = "error" if compared or record.origin == "contract" else "warning"
    if any(expression is None for expression, _ in condition.guards):
        severity = "note"
    return (
        severity,
        f"the compiler may assume `{condition.text}`, which is false at {where}: its code may do anything there",
    )


def _reached(condition: Condition, lookup: Lookup) -> bool:
    return condition.reached(lookup) is not False


def _of_threads(expression: SizeExpression | None) -> bool:
    names = frozenset[str]() if expression is None else expression.names
    return bool(names) and all(name.startswith(("threadIdx.", "blockDim.")) for name in names)
