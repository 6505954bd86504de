"""Comparison of a GGUF file with the torch model that it was made from: tokens and logits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kernelmate_training.requirements import require_packages


@dataclass(frozen=True, slots=True)
class Parity:
    """Agreement of llama.cpp with torch.

    Attributes:
        same_tokens: True if both tokenise the text equally.
        largest: largest difference of two logits.
        spread: standard deviation of torch's logits.
        agree: fraction of positions with the same most probable token.
    """

    same_tokens: bool
    largest: float
    spread: float
    agree: float


def compare(gguf: Path, folder: Path, text: str) -> Parity:
    """Evaluate one text by both.

    Args:
        gguf: the exported file.
        folder: the model that it was made from.
        text: the text; special tokens in it are recognised.

    Raises:
        EnvironmentFailed: llama-cpp-python is missing; xllamacpp provides no logits.
        UsageError: the model cannot be read.
    """
    require_packages(("torch", "tokenizers"), "Comparing logits")
    import torch
    from tokenizers import Tokenizer

    from kernelmate_training.torch_folders import load_folder

    found = load_folder(folder)
    ids = Tokenizer.from_str(found.tokenizer).encode(text, add_special_tokens=False).ids
    theirs_ids, theirs = llama_cpp_logits(gguf, text)
    with torch.no_grad():
        ours = reference_logits(found, ids)
    if ids != theirs_ids:
        return Parity(False, float("inf"), float(ours.std()), 0.0)
    agree = float((ours.argmax(-1) == theirs.argmax(-1)).mean())
    return Parity(True, float(np.abs(ours - theirs).max()), float(ours.std()), agree)


def reference_logits(found: Any, ids: list[int]) -> np.ndarray[Any, Any]:
    """Returns torch's logits [tokens, vocabulary] of a model's folder.

    Other architectures are evaluated by transformers.
    """
    import torch

    from kernelmate_training.torch_folders import load_llama
    from kernelmate_training.torch_llama import mask_of

    tokens = torch.tensor([ids])
    if found.config.get("model_type") == "llama" and found.config.get("tie_word_embeddings"):
        model = load_llama(found).eval()
        stream = model(tokens, torch.arange(len(ids))[None], mask_of(torch.zeros_like(tokens)))
        result: np.ndarray[Any, Any] = model.logits(stream)[0].numpy()
        return result
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**found.config)
    other = AutoModelForCausalLM.from_config(config).eval()
    other.load_state_dict({name: tensor.float() for name, tensor in found.tensors.items()}, strict=False)
    given: np.ndarray[Any, Any] = other(tokens).logits[0].numpy()
    return given


def llama_cpp_logits(gguf: Path, text: str) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Returns a text's tokens and logits [tokens, vocabulary] by llama-cpp-python.

    Raises:
        EnvironmentFailed: the package is missing.
    """
    require_packages(("llama_cpp",), "Comparing logits")
    import llama_cpp

    model = llama_cpp.Llama(str(gguf), n_ctx=max(len(text.encode()), 8), logits_all=True, verbose=False)
    ids = model.tokenize(text.encode(), add_bos=False, special=True)
    model.eval(ids)
    return list(ids), np.array(model.scores[: len(ids)], dtype=np.float32)
