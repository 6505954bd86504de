"""JSON Schema of everything that `--json` prints, built from the records and from the types of its documents."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from functools import cache
from inspect import cleandoc
from typing import Any, TypeAlias

from kernelmate import records
from kernelmate.records import FindingCode
from kernelmate.report import judged_documents, other_documents

TYPES = vars(records) | vars(judged_documents) | vars(other_documents)

DOCUMENTS = tuple(
    kind for name, kind in TYPES.items() if name.endswith("Document") and "schema" in kind.__annotations__
)
"""Types of whole documents; `CandidateDocument` and its like are parts, and hold no version of the schema."""

NEVER_NEGATIVE = frozenset(
    {
        "Resources", "Occupancy", "Counters", "CacheEstimate", "LineCounters", "InstructionMix", "OpcodeCount",
        "HardwareProfile", "Timing", "Speedup", "Roofs", "Roofline", "Work", "Calibration", "Live", "Listing", "CodeTotals",
        "ClassCounts", "Cause", "OptimizationDocument", "GateResult",
    }
)  # fmt: skip
"""Definitions in which every number is 0 or more."""

SHARES = (
    "theoretical", "l1_sector_hit_rate", "l1_load_hit_rate", "l2_sector_hit_rate", "l1_hit_rate", "l2_hit_rate",
)  # fmt: skip
"""Properties that are fractions from 0 to 1."""

FIELDS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"minimum": 1} for name in ("line", "column", "ptx_line")},
    **{name: {"minimum": 0, "maximum": 1} for name in SHARES},
    **{name: {"minItems": 1} for name in ("Contract.sizes", "Listing.files", "CodeTotals.files")},
    **{name: {"minItems": 1, "maxItems": 3} for name in ("Contract.grid", "Contract.block")},
    "Contract.slowdown": {"minimum": 0},
    "SassInstruction.address": {"minimum": 0},
    "arch": {"pattern": "^sm_[0-9]+[a-z]?$"},
    "binary": {"pattern": "^sha256:"},
}
"""Further keywords of properties, by their name or `Class.name`."""

MAY_BE_INFINITE = frozenset({"Timing", "Speedup"})
"""Records in which a number that is not finite becomes null."""

Definition: TypeAlias = dict[str, Any]


@cache
def schema() -> Definition:
    """Returns the JSON Schema (draft 2020-12) of every document."""
    import msgspec

    _, components = msgspec.json.schema_components(DOCUMENTS, ref_template="#/$defs/{name}")
    definitions = {_key(name): _finished(name, definition) for name, definition in components.items()}
    peak = {
        "description": "The most general registers that are live at once.",
        "anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}],
    }
    _add(definitions["listing"], peak=peak)
    instructions = {"description": "The number of SASS instructions.", "type": "integer", "minimum": 0}
    _add(definitions["code_totals"], peak=peak, instructions=instructions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "urn:kernelmate:schema:1",
        "title": "Documents that kernelmate --json prints",
        "oneOf": [{"$ref": f"#/$defs/{_key(document.__name__)}"} for document in DOCUMENTS],
        "$defs": definitions,
    }


def _key(name: str) -> str:
    """Converts a class name to a key: `OpcodeCount` to `opcode_count`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _add(definition: Definition, **properties: Definition) -> None:
    """Adds required properties to a definition."""
    definition["properties"] |= properties
    definition["required"] += properties


def _finished(name: str, definition: Definition) -> Definition:
    """Completes a record's definition; a document has exactly its keys."""
    if name == FindingCode.__name__:
        codes = [{"const": code.value, "description": code.meaning} for code in FindingCode]
        return {"description": "The code of a finding; of several that fit one cause, the first.", "oneOf": codes}
    kind = TYPES[name]
    described: dict[str, str] = {}
    bases = [base.__doc__ or "" for base in reversed(kind.__mro__[1:]) if dataclasses.is_dataclass(base)]
    for docstring in (*bases, definition.get("description", "")):
        described |= _described(cleandoc(docstring), definition["properties"])
    properties = {
        key: _property(name, key, _referring(value), described.get(key))
        for key in _fields(kind)
        if (value := definition["properties"][key]).get("contentEncoding") != "base64"
    }
    required = properties if dataclasses.is_dataclass(kind) else definition["required"]
    return {
        "description": described[""],
        "type": "object",
        "properties": properties,
        "required": [key for key in properties if key in required],
        "additionalProperties": False,
    }


def _fields(kind: type) -> Iterable[str]:
    """Returns the names of a record's fields, or of a document's keys."""
    return (
        [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind.__annotations__
    )


def _property(owner: str, name: str, value: Definition, description: str | None) -> Definition:
    value.pop("default", None)
    for one in (value, *value.get("anyOf", ()), *value.get("prefixItems", ())):
        if one.get("type") in ("integer", "number") and owner in NEVER_NEGATIVE:
            one["minimum"] = 0
        if one.get("type") in ("integer", "number", "string", "array"):
            one.update(FIELDS.get(f"{owner}.{name}", FIELDS.get(name, {})))
        if one.get("type") == "number" and owner in MAY_BE_INFINITE:
            one["type"] = ["number", "null"]
    return value if description is None else {"description": description, **value}


def _referring(value: Any) -> Any:
    """Returns a schema's value with its references to definitions by their keys."""
    if isinstance(value, dict):
        return {
            key: re.sub(r"\w+$", lambda found: _key(found[0]), item) if key == "$ref" else _referring(item)
            for key, item in value.items()
        }
    return [_referring(item) for item in value] if isinstance(value, list) else value


def _described(docstring: str, fields: Iterable[str]) -> dict[str, str]:
    """Returns a class docstring's text under the key "", and the text of each field in its section `Attributes`."""
    text, _, attributes = docstring.partition("Attributes:\n")
    attributes = " ".join(attributes.split())
    starts = [
        (found.start(), found.end(), field)
        for field in fields
        if (found := re.search(rf"(?:^|(?<=[.;] ))`?{field}`?: ", attributes))
    ]
    starts.sort()
    ends = [start for start, _, _ in starts[1:]] + [len(attributes)] * bool(starts)
    told = {field: attributes[after:end] for (_, after, field), end in zip(starts, ends, strict=True)}
    return {key: _json_words(words) for key, words in {"": text, **told}.items()}


def _json_words(text: str) -> str:
    words = re.sub(r"\bNone\b", "null", " ".join(text.split())).rstrip("; ")
    return words[:1].upper() + words[1:]
