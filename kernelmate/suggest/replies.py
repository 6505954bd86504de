"""Forms of models' answers as JSON Schema, and parsing of answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

MOST_REPLY = 512 * 1024
"""Characters of one answer that are read."""

_Sentence = Annotated[str, Meta(max_length=20_000)]
_Few = Meta(max_length=50)


class Problem(msgspec.Struct, frozen=True):
    """A fault that a reviewer finds in a version.

    Attributes:
        kind: its kind. where: a line or an expression. what: its effect, and the inputs that show it.
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
        analysis: what limits the kernel, and why the version under review fell short.
        problems: what is wrong with that version.
        optimizations: what to do next, the most useful first.
        estimated_speedup: over the baseline, if it were done well; None where speed is not what is asked for.
    """

    analysis: _Sentence
    problems: Annotated[tuple[Problem, ...], _Few]
    optimizations: Annotated[tuple[Step, ...], _Few]
    estimated_speedup: float | None = None


class Proposal(msgspec.Struct, frozen=True):
    """A changed kernel.

    Attributes:
        analysis: what limits the kernel as it is.
        changes: what was changed.
        estimated_speedup: over the baseline; None where speed is not what is asked for.
        kernel: CUDA text with one definition of the kernel, and helpers that it needs.
        grid, block, shared: the launch as a contract writes it; None where it stays.
    """

    analysis: _Sentence
    changes: Annotated[tuple[Step, ...], _Few]
    kernel: Annotated[str, Meta(max_length=MOST_REPLY)]
    estimated_speedup: float | None = None
    grid: Annotated[tuple[str, ...], Meta(max_length=3)] | None = None
    block: Annotated[tuple[str, ...], Meta(max_length=3)] | None = None
    shared: str | None = None


class Audit(msgspec.Struct, frozen=True):
    """An adversarial reader's answer on a candidate that was found right and fast.

    Attributes:
        computes_the_contract: it does what the contract asks for at every size and input.
        honestly_fast: its speed comes from doing the work better and not from leaving some out.
        doubts: what speaks against either.
    """

    computes_the_contract: bool
    honestly_fast: bool
    doubts: Annotated[tuple[Problem, ...], _Few]


Form = TypeVar("Form", Review, Proposal, Audit)


class Malformed(Exception):
    """The answer is not in the requested form; the message is one sentence for people."""


def read_reply(text: str, form: type[Form]) -> Form:
    """Parses an answer.

    Models without a schema wrap their JSON in words or fences, so that the outermost object is read.

    Raises:
        Malformed: there is no such object in it, or it is too long.
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
    """Returns a schema with references replaced by their targets, without limits of length, which structured output lacks."""
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
