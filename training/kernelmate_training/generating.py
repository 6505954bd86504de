"""The corpus of a configuration: generated and judged on this machine, with the user's own accepted versions where wanted."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernelmate.errors import EnvironmentFailed
from kernelmate_training.finished_steps import FinishedSteps, key_of
from kernelmate_training.settings import Upskill

OnLine = Callable[[str], None]


def generate(settings: Upskill, *, gpus: tuple[int, ...], seconds: float | None = None, whole: bool = True, told: OnLine = lambda line: None) -> dict[str, Any]:  # fmt: skip
    """Generate and judge the pairs that the configuration asks for; gives the corpus' figures.

    Args:
        settings: all of the file.
        gpus: that may be used.
        seconds: after which what there is is taken; the configuration's own limit holds, too.
        whole: what there is when the seconds are over is all that is wanted of it, for whatever is made from it.
        told: lines about how far it is.

    Raises:
        UsageError: the folder holds another corpus. EnvironmentFailed: a GPU is requested and there is none.
    """
    from kernelmate_training.corpus import Progress, build
    from kernelmate_training.corpus import Settings as Wanted

    section = settings.corpus
    if section.backend == "cuda" and not gpus:
        raise EnvironmentFailed(
            "corpus.backend asks for a GPU, and there is none.", hint='Set corpus.backend = "auto".'
        )
    limits = [limit for limit in (seconds, section.seconds) if limit is not None]
    wanted = Wanted(
        folder=settings.corpus_folder,
        count=section.pairs,
        seed=settings.seed,
        backend="cuda" if gpus and section.backend != "emulator" else "emulator",
        workers=section.workers,
        devices=gpus or (0,),
        families=section.families,
        limit_s=min(limits) if limits else None,
    )
    last = 0.0

    def line(at: Progress) -> None:
        nonlocal last
        if at.seconds - last >= 5.0:
            last = at.seconds
            told(f"{at.rows} of {at.wanted} pairs, {at.groups} problems, {at.seconds:.0f} s")

    build(wanted, line)
    if whole:
        FinishedSteps(settings.folder).mark("corpus", corpus_key(settings))
    return read_manifest(settings.corpus_folder)


def corpus_key(settings: Upskill) -> str:
    """What a corpus is made from."""
    return key_of(settings.seed, settings.corpus.model_dump(exclude={"workers"}))


def read_manifest(folder: Path) -> dict[str, Any]:
    """A corpus' figures as it keeps them; empty if there are none."""
    try:
        found = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
