"""Writes a tiny GGUF for tests: random weights, a real byte-level BPE vocabulary, a chat template.

Run as a program it writes one: `python tests/unit/suggest/local/tiny_gguf.py OUT.gguf [CONTEXT]`.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from kernelmate.suggest.codec import codec_named

WORDS = ("__global__", " void", " float", " int", "threadIdx", ".x", "return", " if", " for", "analysis", "kernel")
SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_symbols() -> list[str]:
    """The printable character that stands for each byte in GPT-2's vocabulary."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges: every byte, and some words built up letter by letter."""
    symbols = byte_symbols()
    tokens, merges = list(symbols), []
    for word in WORDS:
        letters = [symbols[byte] for byte in word.encode()]
        begun = letters[0]
        for letter in letters[1:]:
            if begun + letter not in tokens:
                merges.append(f"{begun} {letter}")
                tokens.append(begun + letter)
            begun += letter
    return tokens, merges


@dataclass(frozen=True)
class Shape:
    """Size of a model; `hidden` is a multiple of `heads`."""

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    feed_forward: int = 128


DEEP = Shape(256, 4, 4, 512)
"""Large enough for a prompt of some thousand tokens to take a good part of a second."""


def write_tiny_gguf(
    path: Path,
    context: int = 4096,
    seed: int = 0,
    *,
    shape: Shape = Shape(),
    template: str = TEMPLATE,
    codec: str | None = None,
    offers: str | None = None,
) -> Path:
    """Write the file, half a megabyte in the shape that is not asked for; equal arguments give equal files.

    With a codec its special tokens are in the vocabulary, and the metadata say its name; `offers` is the fingerprint in them.
    """
    tokens, merges = vocabulary()
    marks = (
        [] if codec is None else [mark for mark in codec_named(codec).vocabulary() if mark != codec_named(codec).end]
    )
    specials = SPECIALS if codec is None else (*SPECIALS[:2], codec_named(codec).end)
    plain, size = len(tokens), len(tokens) + len(specials) + len(marks)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_license("Apache-2.0")
    writer.add_context_length(context)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(shape.hidden // shape.heads)
    writer.add_vocab_size(size)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *specials, *marks])
    types = gguf.TokenType
    writer.add_token_types([types.NORMAL] * plain + [types.CONTROL] * len(specials) + [types.USER_DEFINED] * len(marks))
    if codec is not None:
        writer.add_string("kernelmate.codec", codec)
        writer.add_string("kernelmate.card", "# Tiny\n\nRandom weights.\n")
    if offers is not None:
        writer.add_string("kernelmate.offers", offers)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(plain)
    writer.add_eos_token_id(plain + 2)
    writer.add_pad_token_id(plain)
    writer.add_add_bos_token(False)
    writer.add_chat_template(template)
    _add_weights(writer, size, shape, np.random.default_rng(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_weights(writer: gguf.GGUFWriter, vocabulary_size: int, shape: Shape, random: np.random.Generator) -> None:
    hidden, feed_forward = shape.hidden, shape.feed_forward

    def weights(name: str, *sizes: int) -> None:
        writer.add_tensor(name, (random.standard_normal(sizes) * 0.2).astype(np.float32))

    weights("token_embd.weight", vocabulary_size, hidden)
    weights("output.weight", vocabulary_size, hidden)
    writer.add_tensor("output_norm.weight", np.ones(hidden, np.float32))
    for layer in range(shape.layers):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"blk.{layer}.{name}.weight", hidden, hidden)
        weights(f"blk.{layer}.ffn_gate.weight", feed_forward, hidden)
        weights(f"blk.{layer}.ffn_up.weight", feed_forward, hidden)
        weights(f"blk.{layer}.ffn_down.weight", hidden, feed_forward)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(hidden, np.float32))


if __name__ == "__main__":
    write_tiny_gguf(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
