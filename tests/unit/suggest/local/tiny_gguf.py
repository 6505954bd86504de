"""Writes a tiny GGUF for tests: random weights, a real byte-level BPE vocabulary, a chat template.

Run as a program it writes one: `python tests/unit/suggest/local/tiny_gguf.py OUT.gguf [CONTEXT]`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gguf
import numpy as np

HIDDEN, LAYERS, HEADS, FEED_FORWARD = 64, 2, 4, 128
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


def write_tiny_gguf(path: Path, context: int = 4096, seed: int = 0) -> Path:
    """Write the file, half a megabyte; equal arguments give equal files."""
    tokens, merges = vocabulary()
    plain = len(tokens)
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_license("Apache-2.0")
    writer.add_context_length(context)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_vocab_size(plain + len(SPECIALS))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *SPECIALS])
    writer.add_token_types([gguf.TokenType.NORMAL] * plain + [gguf.TokenType.CONTROL] * len(SPECIALS))
    writer.add_token_merges(merges)
    writer.add_bos_token_id(plain)
    writer.add_eos_token_id(plain + 2)
    writer.add_pad_token_id(plain)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    _add_weights(writer, plain + len(SPECIALS), np.random.default_rng(seed))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_weights(writer: gguf.GGUFWriter, vocabulary_size: int, random: np.random.Generator) -> None:
    def weights(name: str, *shape: int) -> None:
        writer.add_tensor(name, (random.standard_normal(shape) * 0.2).astype(np.float32))

    weights("token_embd.weight", vocabulary_size, HIDDEN)
    weights("output.weight", vocabulary_size, HIDDEN)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"blk.{layer}.{name}.weight", HIDDEN, HIDDEN)
        weights(f"blk.{layer}.ffn_gate.weight", FEED_FORWARD, HIDDEN)
        weights(f"blk.{layer}.ffn_up.weight", FEED_FORWARD, HIDDEN)
        weights(f"blk.{layer}.ffn_down.weight", HIDDEN, FEED_FORWARD)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(HIDDEN, np.float32))


if __name__ == "__main__":
    write_tiny_gguf(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
