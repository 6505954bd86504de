"""Forms of models' answers as JSON Schema, and parsing of answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

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
