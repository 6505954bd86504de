"""Generates the pages of recipes, repairs and guards from the docstrings of their modules."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from kernelmate.checks import guards
from kernelmate.records import FindingCode
from kernelmate.suggest.recipes import ALL
from kernelmate.suggest.repairs import ALL as REPAIRS

METRICS = {
    "time": "time",
    "shared_bytes": "shared memory",
    "registers": "registers",
    "local_bytes": "local memory",
    "global_bytes": "global memory traffic",
    "occupancy": "occupancy",
    "accuracy": "accuracy",
    "spills": "spills",
    "correct": "correctness",
}
"""Names of the metrics on the pages."""
FINDING_CODES = """## Finding codes

Of several codes that fit one cause, the first in this list is reported. A finding of severity `error` rejects a version; a
`warning` or `note` does not."""


def pages() -> dict[str, str]:
    """The pages, by path."""
    return {"recipe-catalogue.md": _recipes(), "repair-catalogue.md": _repairs(), "guard-catalogue.md": _guards()}


def _recipes() -> str:
    entries = []
    for recipe in ALL:
        facts = [f"**Improves:** {_words(recipe.metrics)}."]
        if recipe.costs:
            facts.append(f"**May cost:** {_words(recipe.costs)}.")
        entries.append(_entry(recipe.name, _module(recipe.rewrites), facts))
    return (
        "# Recipes one by one\n\nThe recipes in the order in which they are tried. [Recipes](recipes.md) explains how they are "
        "combined and judged.\n\n" + "\n".join(entries)
    )


def _repairs() -> str:
    entries = [
        _entry(
            one.name, _module(one.rewrites), [f"**Findings:** {', '.join(f'`{code}`' for code in sorted(one.codes))}."]
        )
        for one in REPAIRS
    ]
    return (
        "# Repairs one by one\n\nThe repairs in the order in which they are tried. [Repairs](repairs.md) explains when "
        "each of them applies.\n\n" + "\n".join(entries)
    )


def _guards() -> str:
    modules = [
        importlib.import_module(f"{guards.__name__}.{one.name}") for one in pkgutil.iter_modules(guards.__path__)
    ]
    entries = [_entry(module.__name__.rpartition(".")[2].replace("_", "-"), module, []) for module in modules]
    codes = "\n".join(f"| `{code}` | {code.meaning} |" for code in FindingCode)
    return (
        "# Guards one by one\n\nThe modules of `kernelmate.checks.guards`. [Guards](guards.md) lists the ways of being falsely "
        "right or falsely fast that they detect, with the finding codes.\n\n"
        f"{FINDING_CODES}\n\n| code | meaning |\n| --- | --- |\n{codes}\n\n" + "\n".join(entries)
    )


def _entry(name: str, module: ModuleType, facts: Iterable[str]) -> str:
    source = f"Module: `{module.__name__}`."
    return "\n\n".join([f"## {name}", inspect.cleandoc(module.__doc__ or ""), " ".join([*facts, source])]) + "\n"


def _module(function: Callable[..., Any]) -> ModuleType:
    return sys.modules[getattr(function, "func", function).__module__]


def _words(metrics: Iterable[str]) -> str:
    return ", ".join(METRICS[metric] for metric in metrics)
