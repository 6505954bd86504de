"""Messages that users see keep the rules of their kind; `python -m tests.messages` prints them all."""

from __future__ import annotations

import re

import pytest

from tests.messages import Message, messages

RIDDLES = re.compile(
    r"\b(dear lines|luckiest|apprentice|purse|foresight|glimpse|wishes|sieve|rig|desk|mend|mends|mended|"
    r"seen off|in no git|(?<![Tt]here )(?:is|are) no (?!longer\b)\w+)\b"
)
"""Words of the old texts that STYLE.md replaces by the field's terms, and the negation `is no X` for `is not an X`."""

VAGUE = re.compile(
    r"\bby (?:their |computed )?numbers?\b(?! of)|\bit meets (?!this prompt)|\b(?:from turn to turn|last turn|the turns of a)\b|"
    r"\bin between\b|\bplain to see\b|\btaken apart\b|\b[Mm]ake room\b|\bheld down\b"
)
"""Everyday words where the field has a term: by index, reads, iteration, intermediate values, decomposed, throttled."""


@pytest.fixture(scope="module")
def found() -> list[Message]:
    return messages()


def broken(found: list[Message], kinds: str, rule: str) -> list[str]:
    """Messages of some kinds that do not match a rule, with their places."""
    of_kind = [one for one in found if re.fullmatch(kinds, one.kind)]
    assert of_kind, kinds
    return [f"{one.path}:{one.line}: {one.text}" for one in of_kind if not re.search(rule, one.text)]


def test_messages_of_every_kind_are_found(found: list[Message]) -> None:
    kinds = {one.kind.split()[0] for one in found}
    assert kinds == {"error", "clause", "hint", "help", "why", "note", "finding", "text"}
    assert len(found) > 3000


def test_no_message_has_blanks_too_many(found: list[Message]) -> None:
    assert broken(found, "error|clause.*|hint|help|why|note|finding", r"^(?!.*\s\s)") == []


def test_names_stand_in_backquotes_or_plain(found: list[Message]) -> None:
    assert broken(found, ".*", r"^[^\u2018\u2019\u201c\u201d\u2026\u2013\u2014]*$") == []
    assert broken(found, ".*", r"^[^`]*(`[^`]*`[^`]*)*$") == []


def test_no_message_names_a_place_of_one_machine(found: list[Message]) -> None:
    assert broken(found, ".*", r"^(?!.*(?<![\w.])/(?:home|work|root|tmp|Users)/)") == []


def test_errors_and_hints_are_sentences(found: list[Message]) -> None:
    names = r"nvcc|nvdisasm|cuobjdump|git|calibrate|args|align|sizes|cluster|tolerance|weights|file|instances|block|shared|grid|reference|corpus|forward"
    assert broken(found, "error", rf"^(?:[A-Z{{\[-]|(?:{names})\b)") == []
    assert broken(found, "error", r"[.:?}\]]$") == []


def test_clauses_and_findings_begin_small_and_have_no_full_stop(found: list[Message]) -> None:
    clauses = "finding|clause (?:Refused|NotLifted|Untraceable|Unknown|Unsupported|Untraced|PtxError|LinkRefused)"
    assert broken(found, clauses, r"^(?![A-Z][a-z])(?!.*[^.]\.$)") == []


def test_help_of_commands_is_a_sentence(found: list[Message]) -> None:
    of_click = [one for one in found if "/cli/" in one.path or one.path.endswith("magics.py")]
    assert broken(of_click, "help", r"^[A-Z{].*[.}]$") == []


def test_no_message_speaks_in_riddles(found: list[Message]) -> None:
    said = [f"{one.path}:{one.line}: {one.text}" for one in found if RIDDLES.search(one.text)]
    assert said == []


def test_messages_use_the_terms_of_the_field(found: list[Message]) -> None:
    said = [f"{one.path}:{one.line}: {one.text}" for one in found if VAGUE.search(one.text)]
    assert said == []
