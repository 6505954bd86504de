"""Answers of models are read in their form or not at all."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.suggest.replies import MOST_REPLY, Audit, Malformed, Proposal, Review, read_reply, schema_of

REVIEW = {"analysis": "a", "problems": [], "optimizations": [{"what": "w", "why": "y"}], "estimated_speedup": 1.5}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(REVIEW),
        f"Here it is:\n```json\n{json.dumps(REVIEW, indent=2)}\n```\nI hope that it helps.",
        json.dumps(REVIEW | {"more": [1, 2]}),
    ],
)
def test_json_is_found_among_words(text: str) -> None:
    review = read_reply(text, Review)
    assert (review.analysis, review.estimated_speedup) == ("a", 1.5)
    assert review.optimizations[0].why == "y"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "}{",
        "[]",
        "null",
        '{"analysis": 1}',
        json.dumps(REVIEW | {"problems": [{"kind": "odd", "where": "", "what": ""}]}),
        json.dumps(REVIEW | {"optimizations": [{"what": "w", "why": "y"}] * 51}),
        json.dumps(REVIEW | {"analysis": "x" * 20_001}),
        json.dumps(REVIEW) + " " * MOST_REPLY,
        "{" * 100_000 + "}" * 100_000,
        '{"analysis": "\ud800"}',
    ],
)
def test_anything_else_is_malformed(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        read_reply(text, Review)
    assert len(str(caught.value)) < 400


@given(st.text())
def test_no_text_does_anything_but_be_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        read_reply(text, Audit)


@pytest.mark.parametrize("form", [Review, Proposal, Audit])
def test_the_schema_is_plain_and_closed(form: type) -> None:
    schema = schema_of(form)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "$ref" not in json.dumps(schema)
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            if node.get("type") == "object":
                assert node["additionalProperties"] is False
                assert sorted(node["required"]) == sorted(node["properties"])
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def test_what_obeys_the_schema_can_be_read() -> None:
    jsonschema.validate(REVIEW, schema_of(Review))
    assert read_reply(json.dumps(REVIEW), Review).analysis == REVIEW["analysis"]
