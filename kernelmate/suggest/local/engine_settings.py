"""Settings with which llama.cpp serves a model, and presets of them for the available memory.

A preset sets context length, parallel conversations, and layers on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelmate.suggest.local.library import LocalModelFile

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


CONTEXTS = (16_384, 8_192, 4_096, 2_048)
"""Context lengths in tokens, largest first. A kernel with its verdict takes about 2000 tokens, an answer as many."""
CACHE_SHARE = 0.15
"""Fraction of a file's size assumed for the cache of `CONTEXTS[0]` tokens if the file lacks the shape."""
OVERHEAD = 1.1
"""Factor on the memory of weights and cache to include evaluation buffers."""
GPU_PART = 0.75
"""Fraction of a GPU's free memory that a model may use; the rest is for judged kernels."""


@dataclass(frozen=True, slots=True)
class Preset:
    """Settings for serving a model.

    Attributes:
        context: context length in tokens of one conversation.
        parallel: number of simultaneous conversations.
        gpu_layers: number of layers on a GPU.
        memory: estimate of the main memory needed, in bytes.
    """

    context: int
    parallel: int
    gpu_layers: int
    memory: int


def choose(
    model: LocalModelFile,
    *,
    context: int | None = None,
    parallel: int = 2,
    gpu_layers: int | None = 0,
    free: int | None = None,
    gpu_free: int | None = None,
) -> Preset:
    """Chooses the largest context that fits, with the desired number of conversations, else with one.

    Args:
        model: the model to serve.
        context: context length in tokens if the user has set it; None for the model's own, as far as it fits.
        parallel: desired number of simultaneous conversations.
        gpu_layers: number of layers on a GPU; None for as many as fit there.
        free: free main memory in bytes; None if unknown, which is treated as sufficient.
        gpu_free: free GPU memory in bytes; None without a GPU.

    Raises:
        AuthorFailed: the model does not fit at all.
    """
    smallest: Preset | None = None
    for tokens in _contexts(model, context):
        for conversations in sorted({parallel, 1}, reverse=True):
            cache = _cache(model, tokens * conversations)
            on_gpu = _layers(model, cache, gpu_layers, gpu_free)
            left = 1.0 - min(on_gpu / model.layers, 1.0) if model.layers else float(on_gpu == 0)
            smallest = Preset(tokens, conversations, on_gpu, int((model.size + cache) * OVERHEAD * left))
            if free is None or smallest.memory <= free:
                return smallest
    assert smallest is not None
    assert free is not None
    from kernelmate.suggest.base import AuthorFailed  # not loaded in the server, which only takes settings

    raise AuthorFailed(
        "missing",
        f"The model {model.name} takes about {smallest.memory / 2**30:.1f} GiB of memory, and {free / 2**30:.1f} are "
        "free. Use a smaller one, or one of coarser quantization.",
    )


def _contexts(model: LocalModelFile, context: int | None) -> tuple[int, ...]:
    if context is not None:
        return (context,)
    most = model.context or CONTEXTS[0]
    return tuple(tokens for tokens in CONTEXTS if tokens <= most) or (most,)


def _cache(model: LocalModelFile, tokens: int) -> int:
    """Returns the bytes of the key-value cache for a number of tokens."""
    if model.cache_bytes is not None:
        return model.cache_bytes * tokens
    return int(model.size * CACHE_SHARE * tokens / CONTEXTS[0])


def _layers(model: LocalModelFile, cache: int, wanted: int | None, gpu_free: int | None) -> int:
    if wanted is not None:
        return wanted
    if gpu_free is None or not model.layers:
        return 0
    each = (model.size + cache) * OVERHEAD / model.layers
    return min(int(gpu_free * GPU_PART / each), model.layers)
