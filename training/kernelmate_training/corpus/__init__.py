"""Verified pairs that a model can be taught with: generated, judged, and kept as JSON Lines.

`build` generates and judges, `collect` takes what the history has. The package's modules are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmate_training.corpus.assemble import Manifest
    from kernelmate_training.corpus.building import Progress, Settings, build
    from kernelmate_training.corpus.collecting import collect

__all__ = ["Manifest", "Progress", "Settings", "build", "collect"]

_HOMES = {
    "Manifest": "assemble",
    "Progress": "building",
    "Settings": "building",
    "build": "building",
    "collect": "collecting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
