"""Tokenizers for models from scratch: byte-level BPE that keeps a codec's special tokens whole.

Texts are cut before merging as llama.cpp cuts them for `tokenizer.ggml.pre = "qwen2"`, so that both give the same tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelmate.errors import UsageError
from kernelmate_training.requirements import require_packages

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PRE = "qwen2"
"""llama.cpp's name for how texts are cut."""
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""The cuts, from llama.cpp's `llama-vocab.cpp`, `LLAMA_VOCAB_PRE_TYPE_QWEN2`."""
PAD = "<|pad|>"
"""Fills rows; no text holds it."""
LONGEST = 24
"""Bytes of a learned token at most: llama-cpp-python 0.3.36 loses tokens longer than 32 when it writes text."""


def train_tokenizer(texts: Iterable[str], specials: Sequence[str], end: str, size: int) -> Tokenizer:
    """Learn a vocabulary.

    Args:
        texts: what models will read and write.
        specials: tokens that stay whole, as the codec lists them.
        end: the one that ends answers; id 0. `PAD` gets id 1.
        size: tokens in all; fewer where the texts do not give so many.

    Raises:
        UsageError: more tokens must be in than fit.
        EnvironmentFailed: the package tokenizers is missing.
    """
    require_packages(["tokenizers"], "A tokenizer")
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    kept = [end, PAD, *(token for token in specials if token != end)]
    if len(kept) + 256 > size:
        raise UsageError(
            f"A vocabulary of {size} has no room for {len(kept)} special tokens and 256 bytes.",
            hint=f"Set vocabulary to {len(kept) + 512} or more.",
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[AddedToken(token, normalized=False) for token in kept],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        max_token_length=LONGEST,
    )
    tokenizer.train_from_iterator(_without(texts, kept), trainer)
    learned = json.loads(tokenizer.to_str())
    for token in learned["added_tokens"]:
        # What is special is left out when text is written; only these two say nothing.
        token["special"] = token["content"] in (end, PAD)
    return Tokenizer.from_str(json.dumps(learned))


def _without(texts: Iterable[str], specials: Sequence[str]) -> Iterable[str]:
    """Texts as merging will see them: cut at special tokens, which are no one's neighbours."""
    at = re.compile(pattern_of(specials))
    for text in texts:
        yield from filter(None, at.split(text))


def pattern_of(words: Iterable[str]) -> str:
    """A pattern for any of the words, the longest that fits.

    It follows their letters as a tree: to try a thousand words one after the other at each place takes a minute for a corpus.
    """
    tree: dict[str, Any] = {}
    for word in words:
        place = tree
        for letter in word:
            place = place.setdefault(letter, {})
        place[""] = {}
    return _branches(tree)


def _branches(tree: dict[str, Any]) -> str:
    ways = [re.escape(letter) + _branches(below) for letter, below in sorted(tree.items()) if letter]
    if not ways:
        return ""
    joined = ways[0] if len(ways) == 1 and "" not in tree else f"(?:{'|'.join(ways)})"
    return f"{joined}?" if "" in tree else joined


def load_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer from its file.

    Raises:
        UsageError: it cannot be read.
    """
    require_packages(["tokenizers"], "A tokenizer")
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 -- the package raises plain Exception
        raise UsageError(f"The tokenizer cannot be read: {error}.", file=str(path)) from None
