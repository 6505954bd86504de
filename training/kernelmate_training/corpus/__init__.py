"""Corpora of verified pairs for training: generated, judged, and stored as JSON Lines.

`build` generates and judges; `collect` reads the history. The package's modules are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmate_training.corpus.assemble import Manifest
    from kernelmate_training.corpus.building import Progress, Settings, build, collect

__all__ = ["Manifest", "Progress", "Settings", "build", "collect"]

_HOMES = {
    "Manifest": "assemble",
    "Progress": "building",
    "Settings": "building",
    "build": "building",
    "collect": "building",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
