"""Fingerprint of the meaning of variant numbers: a hash of the installed rewrites' results on a few fixed kernels.

A model trained to choose by number needs the numbers to keep their meaning. The kernels are in `fixed`, each with its
objective (`// asked: METRIC`) or an error text (`// says: WORDS`, true or not) in the first lines. Every recipe and
repair applies to at least one of them, so any change is detected.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import cast

from kernelmate.compiler.cache import default_directory
from kernelmate.records import Counters, MetricName, Occupancy, Resources, Verdict
from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.suggest.codec.applicable import REWRITES, candidates
from kernelmate.suggest.codec.base import Question, Task
from kernelmate.suggest.codec.requests import launch_of

FIXED = Path(__file__).resolve().parent / "fixed"
MADE_BY = ("suggest", "source", "compiler", "records")
"""Packages whose files determine the results of rewrites."""
KEPT = "offers-fingerprint"
"""Cache file with the last hash, and the files that it belongs to."""


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Return the hash of the rewrites' names, their order, and all results on the kernels.

    It takes some tenths of a second, so it is cached in the user's cache folder until one of the relevant files
    changes.
    """
    place, key = default_directory() / KEPT, _files()
    with contextlib.suppress(OSError, ValueError):
        known, found = place.read_text(encoding="ascii").split()
        if known == key:
            return found
    found = computed()
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_name(f"{KEPT}.{os.getpid()}")
        partial.write_text(f"{key} {found}\n", encoding="ascii")
        partial.replace(place)
    return found


def computed() -> str:
    """Computes the hash of `fingerprint` without the cache."""
    digest = hashlib.sha256(" ".join(REWRITES).encode())
    for question in questions():
        for name, found in candidates(question):
            for number, candidate in enumerate(found):
                launch = launch_of(candidate.contract)
                digest.update(repr((name, number, candidate.kernel.unit.text, launch)).encode())
    return digest.hexdigest()[:16]


def questions() -> Iterator[Question]:
    """Returns the questions about the fixed kernels."""
    for path in sorted(FIXED.glob("*.cu")):
        heads, lines = [], path.read_text(encoding="utf-8").splitlines(keepends=True)
        while lines[0].startswith(("// asked: ", "// says: ")):
            heads.append(lines.pop(0).rstrip("\n"))
        text = "".join(lines)
        kernel = find_kernels(text_unit(text))[0]
        contract = contract_for(kernel)
        for head in heads:
            kind, words = head.removeprefix("// ").split(": ", 1)
            asked = cast("MetricName", words) if kind == "asked" else "correct"
            broken = words if kind == "says" else None
            task: Task = "debug" if broken else "generate"
            known = None if broken else _known(kernel.name)
            yield Question(text, kernel.name, launch_of(contract), asked, task=task, contract=contract, verdict=known, broken=broken)  # fmt: skip


def differing(model: str, taught: str | None) -> str | None:
    """Return one line if a model was trained with other rewrites than those installed.

    The result is None if the rewrites are the same, or if the model chooses no rewrites.

    Args:
        model: the model's name.
        taught: the fingerprint of rewrites in the model's file.
    """
    if taught is None or taught == fingerprint():
        return None
    return (
        f"{model} was taught to choose among other recipes than those installed (fingerprint {taught}, here {fingerprint()}): "
        "it is asked all the same, but chooses worse. Take the model that this version comes with, or train it anew."
    )


def _known(kernel: str) -> Verdict:
    """Returns assumed facts about each kernel, so that rewrites which need them apply.

    Many registers, and bank conflicts.
    """
    counters = Counters("emulated", 64, 512, 64, 512, 0, 16_384, 1024, 1024, 992, None, 0, None)
    return Verdict(
        kernel=kernel, instance=None, backend="emulator", target="H100 SXM", arch="sm_90", compiler="", binary=None, seed=0,
        compiled=True, diagnostics=(), resources=Resources(100, 0, 0, 0, 0, 1024, 0), occupancy=Occupancy(0.5, "registers", 4, 1.0),
        correct=None, cases=(), findings=(), timing=None, speedup=None, counters=counters, objective=None, accepted=None, reasons=(),
    )  # fmt: skip


def _files() -> str:
    """Returns a hash of names, sizes and dates of the files that determine the results of rewrites."""
    package = Path(__file__).resolve().parents[2]
    files = sorted([*FIXED.glob("*.cu"), *(path for name in MADE_BY for path in (package / name).rglob("*.py"))])
    told = [(str(path), status.st_size, status.st_mtime_ns) for path in files for status in [path.stat()]]
    return hashlib.sha256(repr(told).encode()).hexdigest()
