"""Models with random weights that read and write a tokenizer's texts, small enough to be asked in milliseconds. Needs torch."""

from __future__ import annotations

from typing import Any

import torch

from kernelmate_training.shapes import Shape
from kernelmate_training.torch_llama import Llama


def shaken(model: Any, spread: float = 0.2, seed: int | None = None) -> Any:
    """With weights of all kinds: a fresh model is nearly indifferent to what it reads, and its norms and biases would hide a mistake.

    Args:
        model: whose weights change, in place.
        spread: standard deviation of what is added. seed: of it; None goes on with torch's generator as it is.
    """
    if seed is not None:
        torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * spread)
    return model.eval()


def small_model(tokenizer: Any, seed: int, spread: float) -> Llama:
    """A shaken model of two layers with a tokenizer's vocabulary and a context of 64 tokens; the same for the same seed."""
    shape = Shape(tokenizer.get_vocab_size(), hidden=32, layers=2, heads=4, kv_heads=2, feed_forward=64, context=64)
    torch.manual_seed(seed)
    made: Llama = shaken(Llama(shape), spread)
    return made
