"""Settings with which llama.cpp serves a model."""

from __future__ import annotations

from dataclasses import dataclass

BATCH = 512
"""Prompt tokens evaluated per batch."""


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings for serving a model.

    Attributes:
        model: path of the GGUF file.
        alias: the model's name in answers.
        key: the key that clients must send.
        context: context length in tokens of one conversation.
        parallel: number of simultaneous conversations.
        gpu_layers: number of layers on a GPU; 0 keeps the model on the CPU, where it does not disturb kernels being
            timed.
        threads: number of CPU threads; None for as many as there are cores.
    """

    model: str
    alias: str
    key: str
    context: int
    parallel: int = 2
    gpu_layers: int = 0
    threads: int | None = None
