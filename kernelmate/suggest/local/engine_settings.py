"""Settings with which llama.cpp serves a model."""

from __future__ import annotations

from dataclasses import dataclass

BATCH = 512
"""Prompt tokens evaluated per batch."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings for serving a model.

    Attributes:
        model: the GGUF file.
        alias: its name in answers.
        key: what clients must show.
        context: tokens of one conversation.
        parallel: conversations at once.
        gpu_layers: layers held on a GPU; 0 keeps it on the CPU, where it disturbs no kernel that is timed.
        threads: the threads of the CPU; None for as many as there are cores.
    """

    model: str
    alias: str
    key: str
    context: int
    parallel: int = 2
    gpu_layers: int = 0
    threads: int | None = None
