"""The shipped model: a GGUF file in this folder, with a model card and a description.

`python -m kernelmate.suggest.local.starter FILE.gguf EXAM.json...` installs the file here, checks its size, and writes
its description. If rewrites or the fixed kernels have changed and every number still has the meaning of the training,
`python -m kernelmate.suggest.local.starter --stamp "WHY"` updates the fingerprint in the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from kernelmate.errors import SourceError, UsageError
from kernelmate.suggest.local.library import LocalModelFile, read_facts, sha256_of

NAME = "starter"
FOLDER = Path(__file__).resolve().parent
MOST_BYTES = 40_000_000
"""Largest size of the file in bytes; every installation contains it."""
MISSING = "This build comes without the starter model."

_CARD_KEY = "kernelmate.card"
_HEAD = "| exam of | entrant | judged on | right | better | met |\n| --- | --- | --- | --- | --- | --- |\n"


def shipped(folder: Path = FOLDER) -> LocalModelFile | None:
    """Returns the shipped model; None if there is none, or if its description is damaged."""
    file = folder / f"{NAME}.gguf"
    try:
        known = json.loads((folder / f"{NAME}.json").read_text(encoding="utf-8"))
        if not file.is_file():
            return None
        return LocalModelFile(name=NAME, path=str(file), modified_ns=0, **known)
    except (OSError, ValueError, TypeError):
        return None


def install(file: Path, folder: Path = FOLDER, exams: Sequence[Path] = ()) -> LocalModelFile:
    """Install a file as the shipped model, with `starter.json` and `CARD.md` beside it.

    Args:
        file: the model.
        folder: the destination.
        exams: exam results for the card's table: those of the model first, then those to compare with.

    Raises:
        UsageError: the file is not a GGUF file, too large, or lacks its codec or its card.
        SourceError: a file is not the result of an exam.
        EnvironmentFailed: the gguf package is missing.
    """
    figures = "".join(line for exam in exams for line in _figures(exam))
    card_figures = f"\n\n## Figures\n\n{_HEAD}{figures}".rstrip() if figures else ""
    size = file.stat().st_size if file.is_file() else 0
    if size > MOST_BYTES:
        raise UsageError(
            f"The file has {size:,} bytes; the starter has at most {MOST_BYTES:,}.",
            file=str(file),
            hint="Quantize it, or train a smaller one.",
        )
    facts, card = read_facts(file), _card(file)
    if facts["codec"] is None or not card:
        lacking = "kernelmate.codec" if facts["codec"] is None else _CARD_KEY
        raise UsageError(
            f"The file's metadata lack {lacking}.", file=str(file), hint="Export it with `kernelmate upskill export`."
        )
    place = folder / f"{NAME}.gguf"
    data = file.read_bytes()
    place.write_bytes(data)
    model = LocalModelFile(NAME, str(place), sha256_of(place), len(data), 0, **facts)
    _describe(model, folder)
    end = f"sha256 of `{NAME}.gguf`: `{model.sha256}`"
    (folder / "CARD.md").write_text(f"{card.rstrip()}{card_figures}\n\n{end}\n", encoding="utf-8")
    return model


def stamp(why: str, folder: Path = FOLDER) -> LocalModelFile:
    """Update the fingerprint of the installed rewrites in the model's file and description; nothing else changes.

    Args:
        why: the reason that all numbers still have the same meaning, as one sentence for the card.
        folder: the model's folder.

    Raises:
        UsageError: there is no shipped model, or it does not choose among offers.
        EnvironmentFailed: the gguf package is missing.
    """
    from kernelmate.suggest.codec.fingerprint import computed

    model, fresh = shipped(folder), computed()
    if model is None or model.offers is None:
        raise UsageError(
            MISSING if model is None else "The present starter model cannot choose among offers.", file=str(folder)
        )
    file, old = Path(model.path), model.offers.encode()
    before = file.read_bytes()
    # In the value and in the card, and as long as before: no offset in the file changes.
    file.write_bytes(before.replace(old, fresh.encode()))
    changed = replace(model, sha256=sha256_of(file), offers=read_facts(file)["offers"])
    if changed.offers != fresh:
        file.write_bytes(before)
        raise UsageError("The fingerprint of the model's file could not be changed.", file=str(file))
    _describe(changed, folder)
    card = folder / "CARD.md"
    text = card.read_text(encoding="utf-8").replace(model.offers, fresh).replace(model.sha256, changed.sha256)
    note = f"Stamped anew, `{fresh}` instead of `{model.offers}`, the weights as they were (`{model.sha256}` before): {why}"
    card.write_text(f"{text.rstrip()}\n\n{note}\n", encoding="utf-8")
    return changed


def _describe(model: LocalModelFile, folder: Path) -> None:
    known = {key: value for key, value in asdict(model).items() if key not in {"name", "path", "modified_ns"}}
    (folder / f"{NAME}.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def _figures(exam: Path) -> Iterator[str]:
    """Yields a line of the card's table for each entrant of an exam.

    Raises:
        SourceError: the file is not the result of an exam.
    """
    try:
        document = json.loads(exam.read_text(encoding="utf-8"))
        who = (document["model"] or {}).get("name", "recipes alone")
        where = f"{document['backend']}, {document['target']}"
        for one in document["figures"]:
            shares = " | ".join(f"{one[name]} of {one['goals']}" for name in ("right", "better", "met"))
            yield f"| {who} | {one['entrant']} | {where} | {shares} |\n"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{exam} is not the result of an exam: {error}") from None


def _card(file: Path) -> str:
    from gguf import GGUFReader

    found = GGUFReader(file).get_field(_CARD_KEY)
    return "" if found is None else str(found.contents())
