"""Answers of models: their forms as JSON Schema, parsing, conversion to candidates, and a check of their claims.

A candidate has its kernel in the user's file and its launch in the contract. Claims about figures, in the stated reason,
must agree with the verdicts.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from kernelmate.decide.metrics import metric_value
from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Claim, Cost, Verdict
from kernelmate.source import change_launch, parse_contract
from kernelmate.suggest.allowed_tokens import ForbiddenText
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.untrusted import as_written, screen, spliced, without_contracts

MOST_REPLY = 512 * 1024
"""Largest number of characters of an answer."""

_Sentence = Annotated[str, Meta(max_length=20_000)]
_Few = Meta(max_length=50)


class Problem(msgspec.Struct, frozen=True):
    """A fault that a reviewer finds in a version.

    Attributes:
        kind: the kind of fault.
        where: a line or an expression.
        what: its effect, and the inputs that show it.
    """

    kind: Literal["wrong", "unsafe", "cheating", "slow", "other"]
    where: _Sentence
    what: _Sentence


class Step(msgspec.Struct, frozen=True):
    """One change, and its expected benefit."""

    what: _Sentence
    why: _Sentence


class Review(msgspec.Struct, frozen=True):
    """A reviewer's answer.

    Attributes:
        analysis: the factors that limit the kernel, and the reason that the version under review was rejected.
        problems: faults of that version.
        optimizations: advised changes, the most useful first.
        estimated_speedup: expected ratio to the baseline after these changes; None if time is not the objective.
    """

    analysis: _Sentence
    problems: Annotated[tuple[Problem, ...], _Few]
    optimizations: Annotated[tuple[Step, ...], _Few]
    estimated_speedup: float | None = None


class Proposal(msgspec.Struct, frozen=True):
    """A changed kernel.

    Attributes:
        analysis: the factors that limit the original kernel.
        changes: the changes made.
        estimated_speedup: expected ratio to the baseline; None if time is not the objective.
        kernel: CUDA text with one definition of the kernel, and the helpers that it needs.
        grid, block, shared: the launch, as a contract writes it; None if unchanged.
    """

    analysis: _Sentence
    changes: Annotated[tuple[Step, ...], _Few]
    kernel: Annotated[str, Meta(max_length=MOST_REPLY)]
    estimated_speedup: float | None = None
    grid: Annotated[tuple[str, ...], Meta(max_length=3)] | None = None
    block: Annotated[tuple[str, ...], Meta(max_length=3)] | None = None
    shared: str | None = None


class Audit(msgspec.Struct, frozen=True):
    """An auditor's answer on a candidate that was found correct and fast.

    Attributes:
        computes_the_contract: True if it computes what the contract requires at every size and input.
        honestly_fast: True if its speed does not come from omitted work.
        doubts: reasons against either.
    """

    computes_the_contract: bool
    honestly_fast: bool
    doubts: Annotated[tuple[Problem, ...], _Few]


Form = TypeVar("Form", Review, Proposal, Audit)


class Malformed(Exception):
    """The answer is not in the requested form; the message is one sentence for the user."""


def read_reply(text: str, form: type[Form]) -> Form:
    """Parses an answer.

    Models without schema support surround JSON with text or fences, so the outermost object is parsed.

    Raises:
        Malformed: the text contains no such object, or is too long.
    """
    if len(text) > MOST_REPLY:
        raise Malformed(f"The answer has {len(text):,} characters; at most {MOST_REPLY:,} are read.")
    start, end = text.find("{"), text.rfind("}")
    if start < 0 or end < start:
        raise Malformed("The answer holds no JSON object.")
    try:
        return msgspec.json.decode(text[start : end + 1].encode("utf-8", "replace"), type=form)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"The answer is not a {form.__name__.lower()}: {str(error)[:200]}.") from None


def schema_of(form: type[Form]) -> dict[str, Any]:
    """Returns the form as a JSON Schema without references, with every property required and no others allowed."""
    (document,), components = msgspec.json.schema_components([form], ref_template="{name}")
    plain: dict[str, Any] = _resolved(document, components)
    return plain


def _resolved(schema: Any, components: dict[str, Any]) -> Any:
    """Returns a schema with references replaced, without length limits, which structured output does not support."""
    if isinstance(schema, list):
        return [_resolved(item, components) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _resolved(components[schema["$ref"]], components)
    kept = {
        key: _resolved(value, components)
        for key, value in schema.items()
        if key not in {"maxLength", "maxItems", "minItems", "title", "default", "description"}
    }
    if kept.get("type") == "object":
        kept["additionalProperties"] = False
        kept["required"] = list(kept.get("properties", {}))
    return kept


MOST_WHY = 2000


def proposed(
    request: SuggestRequest, proposal: Proposal | Candidate, author: str, cost: Cost | None = None
) -> Candidate:
    """Returns a proposal as a candidate; a proposal that is a candidate already gets its cost.

    Text that is forbidden but contains the kernel also becomes a candidate. It is rejected with a finding that the
    user, the history and repair prompts show.

    Args:
        request: the search's request.
        proposal: the parsed answer.
        author: the candidate's author, also named in messages.
        cost: the cost of the author's model.

    Raises:
        AuthorFailed: the text does not contain the kernel, or the launch cannot be written.
    """
    if isinstance(proposal, Candidate):
        return replace(proposal, cost=cost)
    why = " ".join(("; ".join(step.what for step in proposal.changes) or proposal.analysis).split())[:MOST_WHY]
    said = (proposal.analysis, *(f"{step.what} {step.why}" for step in proposal.changes))
    steps = tuple(" ".join(text.split())[:MOST_WHY] for text in said if text.strip())
    if without_contracts(proposal.kernel) != proposal.kernel:
        steps = (*steps, "A contract block in the answer was left out: what the kernel is held to is yours to say.")
    contract = request.contract
    wanted = {"grid": proposal.grid, "block": proposal.block, "shared": proposal.shared}
    changed = {key: value for key, value in wanted.items() if value and value != getattr(contract, key)}
    try:
        kernel = spliced(request.kernel, proposal.kernel)
        if changed:
            kernel = change_launch(kernel, **changed, contract=contract)  # type: ignore[arg-type]
            contract = parse_contract(kernel) or replace(contract, **changed)  # type: ignore[arg-type]
    except ForbiddenText as error:
        written = as_written(request.kernel, proposal.kernel)
        if written is not None and screen(request.kernel, written) is not None:
            return Candidate(author, why, written, contract, cost, steps=steps)
        raise AuthorFailed("malformed", f"{author} wrote code that may not be compiled: {error}") from None
    except KernelmateError as error:
        raise AuthorFailed(
            "malformed", f"{author} wrote code that cannot be inserted into the file: {error.message}"
        ) from None
    return Candidate(author, why, kernel, contract, cost, steps=steps)


def borne_out(candidate: Candidate, before: Verdict, after: Verdict) -> Candidate:
    """Returns the candidate without the claims that its figures contradict; an unknown figure contradicts none.

    Args:
        candidate: the candidate.
        before: the baseline's verdict.
        after: the candidate's verdict.
    """
    why = candidate.why
    for claim in candidate.claims:
        if not _holds(claim, before, after):
            why = re.sub(claim.words, claim.instead, why)
    return candidate if why == candidate.why else replace(candidate, why=why)


def _holds(claim: Claim, before: Verdict, after: Verdict) -> bool:
    was, now = _figure(claim, before), _figure(claim, after)
    if claim.change == "present":
        return was is None or was > 0
    if was is None or now is None:
        return True
    return now < was if claim.change == "falls" else now > was


def _figure(claim: Claim, verdict: Verdict) -> float | None:
    counters = verdict.counters
    match claim.figure:
        case "bank_conflicts":
            return None if counters is None else counters.bank_conflicts
        case "load_requests":
            return None if counters is None else counters.global_load_requests
        case "atomic_requests":
            return None if counters is None else counters.global_atomic_requests
        case metric:
            return metric_value(metric, verdict)
