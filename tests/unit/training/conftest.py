"""Fixtures for tests of training: a tiny vocabulary, examples that can be learned, and one thread.

Corpus, exam, codecs and commands need no torch, so nothing here loads it: a module that trains asks for it by itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from kernelmate_training.encoded import Encoded
from kernelmate_training.shapes import Shape


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Threads of tiny products wait for each other longer than they work."""
    torch: Any = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def reversals() -> Encoded:
    """Prompts of a few tokens whose answers are the same tokens backwards."""
    random = np.random.default_rng(0)
    prompts = [random.integers(4, 40, random.integers(3, 8)) for _ in range(120)]
    texts = [np.concatenate([prompt, [2], prompt[::-1], [0]]).astype(np.uint16) for prompt in prompts]
    starts = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    cuts = np.array([len(prompt) + 1 for prompt in prompts], dtype=np.int64)
    tasks = np.arange(len(texts)) % 3
    return Encoded(np.concatenate(texts), starts, cuts, tasks.astype(np.uint8))


@pytest.fixture(scope="session")
def tiny() -> Shape:
    return Shape(48, hidden=32, layers=2, heads=2, kv_heads=1, feed_forward=64, context=32)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    pytest.importorskip("tokenizers", reason="vocabularies need the extra `train`")
    from kernelmate_training.vocabulary import train_tokenizer

    texts = ["float x = a[i] + b[i];\n  for (int i = 0; i < n; ++i) sum += x;\n<v1> = <v2>;"] * 4
    return train_tokenizer(texts, ["<v1>", "<v2>", "<|ask|>", "<|end|>"], "<|end|>", 512)
