"""Tokenizers for models trained from scratch: byte-level BPE that does not split a codec's special tokens.

Texts are split before merging like llama.cpp does for `tokenizer.ggml.pre = "qwen2"`, so that both give the same
tokens.
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
"""llama.cpp's name of this way of splitting texts."""
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Regular expression of the pieces, from llama.cpp's `llama-vocab.cpp`, `LLAMA_VOCAB_PRE_TYPE_QWEN2`."""
PAD = "<|pad|>"
"""Padding token; it occurs in no text."""
LONGEST = 24
"""Largest number of bytes of a learned token; llama-cpp-python 0.3.36 drops tokens longer than 32 bytes from text."""


def train_tokenizer(texts: Iterable[str], specials: Sequence[str], end: str, size: int) -> Tokenizer:
    """Learn a vocabulary.

    Args:
        texts: texts that models will read and write.
        specials: tokens that are not split, as the codec lists them.
        end: the token that ends answers, with id 0; `PAD` gets id 1.
        size: total number of tokens; fewer if the texts do not give that many.

    Raises:
        UsageError: `size` is too small for the required tokens.
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
        # Special tokens are left out of decoded text, so only these two are marked as special.
        token["special"] = token["content"] in (end, PAD)
    return Tokenizer.from_str(json.dumps(learned))


def _without(texts: Iterable[str], specials: Sequence[str]) -> Iterable[str]:
    """Yields the texts without special tokens, split at them, so that no merge crosses one."""
    at = re.compile(pattern_of(specials))
    for text in texts:
        yield from filter(None, at.split(text))


def pattern_of(words: Iterable[str]) -> str:
    """Returns a pattern for any of the words, the longest first.

    It is a tree of letters: trying a thousand words one after the other at each position takes a minute for a corpus.
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
    """Returns a tokenizer from its file.

    Raises:
        UsageError: the file cannot be read.
    """
    require_packages(["tokenizers"], "A tokenizer")
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 -- the package raises plain Exception
        raise UsageError(f"The tokenizer cannot be read: {error}.", file=str(path)) from None
