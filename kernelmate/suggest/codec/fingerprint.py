"""Fingerprint of the variants' numbering: a hash of the installed rewrites' results on a few fixed kernels.

A model trained to choose by number needs the numbers to keep their meaning. The kernels are in the folder `fixed`; the
first lines of each give the objective (`// asked: METRIC`) or an error text (`// says: WORDS`), which need not be true.
Every recipe and repair applies to at least one of them, so a change of any of them changes the fingerprint.
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
"""Name of the cache file with the last hash and a hash of the files that determine it."""


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Returns the hash of the rewrites' names, their order, and their results on the fixed kernels.

    Computing it takes some tenths of a second, so it is cached in the user's cache folder until a relevant file
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
    """Computes the fingerprint without the cache."""
    digest = hashlib.sha256(" ".join(REWRITES).encode())
    for question in questions():
        for name, found in candidates(question):
            for number, candidate in enumerate(found):
                launch = launch_of(candidate.contract)
                digest.update(repr((name, number, candidate.kernel.unit.text, launch)).encode())
    return digest.hexdigest()[:16]


def questions() -> Iterator[Question]:
    """Yields the questions about the fixed kernels."""
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
    """Returns a message if a model was trained with rewrites other than the installed ones, else None.

    Args:
        model: the model's name.
        taught: the fingerprint in the model's file; None if the model chooses no rewrites.
    """
    if taught is None or taught == fingerprint():
        return None
    return (
        f"{model} was taught to choose among other recipes than those installed (fingerprint {taught}, here {fingerprint()}): "
        "it is asked all the same, but chooses worse. Take the model that this version comes with, or train it anew."
    )


def _known(kernel: str) -> Verdict:
    """Returns a verdict with assumed facts (many registers, bank conflicts), for rewrites that require such facts."""
    counters = Counters("emulated", 64, 512, 64, 512, 0, 16_384, 1024, 1024, 992, None, 0, None)
    return Verdict(
        kernel=kernel, instance=None, backend="emulator", target="H100 SXM", arch="sm_90", compiler="", binary=None, seed=0,
        compiled=True, diagnostics=(), resources=Resources(100, 0, 0, 0, 0, 1024, 0), occupancy=Occupancy(0.5, "registers", 4, 1.0),
        correct=None, cases=(), findings=(), timing=None, speedup=None, counters=counters, objective=None, accepted=None, reasons=(),
    )  # fmt: skip


def _files() -> str:
    """Returns a hash of the names, sizes and modification times of the files that determine the results of rewrites."""
    package = Path(__file__).resolve().parents[2]
    files = sorted([*FIXED.glob("*.cu"), *(path for name in MADE_BY for path in (package / name).rglob("*.py"))])
    told = [(str(path), status.st_size, status.st_mtime_ns) for path in files for status in [path.stat()]]
    return hashlib.sha256(repr(told).encode()).hexdigest()
