"""Checkpoints of a run: written atomically, verified when read; the newest valid one is used.

A checkpoint is `step-N.pt`, tensors and plain values by `torch.save`, beside `step-N.json` with its hash.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

KEPT = 2
"""Number of checkpoints to keep: the newest, and the one before it in case the newest is damaged."""
_NAME = re.compile(r"step-(\d{9})\.pt\Z")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A loaded checkpoint.

    Attributes:
        state: the saved values.
        path: the file.
        damaged: newer files that could not be used, with the reason.
    """

    state: dict[str, Any]
    path: Path
    damaged: tuple[str, ...] = ()


class NotSaved(Exception):
    """A checkpoint could not be written; earlier ones are unchanged. The message gives the reason."""


def save(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write a checkpoint; older ones are deleted after that.

    Raises:
        NotSaved: the disk is full, or the folder cannot be written.
    """
    target = folder / f"step-{step:09d}.pt"
    partial = target.with_suffix(".partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        facts = {"step": step, "bytes": partial.stat().st_size, "sha256": _sha256(partial)}
        _write(target.with_suffix(".json"), json.dumps(facts))
        partial.replace(target)
    except (OSError, RuntimeError) as error:
        # torch reports errors of the disk as RuntimeError.
        for leftover in (partial, target.with_suffix(".json")):
            if not target.exists() or leftover == partial:
                leftover.unlink(missing_ok=True)
        raise NotSaved(f"The checkpoint of step {step} cannot be written to {folder}: {error}") from error
    for old in _all(folder)[KEPT:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".json").unlink(missing_ok=True)
    return target


def newest(folder: Path, device: torch.device | str = "cpu") -> Loaded | None:
    """Returns the newest valid checkpoint; None if there is none.

    Args:
        folder: folder of the run.
        device: device for its tensors.
    """
    damaged: list[str] = []
    for path in _all(folder):
        try:
            _check(path)
            # Only tensors and plain values are loaded, so a checkpoint cannot execute code.
            state = torch.load(path, map_location=device, weights_only=True)
        except (OSError, ValueError, KeyError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
            damaged.append(f"{path.name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
            continue
        return Loaded(state, path, tuple(damaged))
    return Loaded({}, folder, tuple(damaged)) if damaged else None


def _all(folder: Path) -> list[Path]:
    """Returns the checkpoints, the newest first."""
    found = [path for path in folder.glob("step-*.pt") if _NAME.match(path.name)] if folder.is_dir() else []
    return sorted(found, reverse=True)


def _check(path: Path) -> None:
    facts = json.loads(path.with_suffix(".json").read_text())
    if path.stat().st_size != facts["bytes"]:
        raise ValueError(f"it has {path.stat().st_size} bytes, {facts['bytes']} were written")
    if _sha256(path) != facts["sha256"]:
        raise ValueError("its content is not what was written")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
