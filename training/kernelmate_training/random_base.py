"""A tiny Qwen2 with random weights and a vocabulary learned on the spot: the whole way of a fine-tune without a download."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kernelmate.suggest.codec import codec_named
from kernelmate_training.examples import Example
from kernelmate_training.settings import FineTuneSection
from kernelmate_training.vocabulary import PAD, train_tokenizer

END, BEGIN = "<|im_end|>", "<|im_start|>"
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""The chat template of Qwen's models, without their default system message."""
VOCABULARY = 1024
SHAPE = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}  # fmt: skip


def random_base(section: FineTuneSection, seed: int, examples: Sequence[Example]) -> tuple[Any, Any]:
    """A model and its tokenizer, of the kind of `base` but a ten-thousandth of its size.

    Args:
        section: its context is the model's.
        seed: of the weights.
        examples: what the vocabulary is learned from.
    """
    import torch
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    specials = [BEGIN, *codec_named(section.codec).vocabulary()]
    texts = [text for example in examples[:2000] for text in (example.prompt, example.answer, *(part for _, part in example.messages))]  # fmt: skip
    learned = train_tokenizer(texts, [one for one in specials if one != END], END, VOCABULARY + len(specials))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=learned, eos_token=END, bos_token=END, pad_token=PAD)
    tokenizer.chat_template = CHATML
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=learned.get_vocab_size(),
        max_position_embeddings=section.context,
        tie_word_embeddings=True,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=1,
        **SHAPE,
    )
    return Qwen2ForCausalLM(config), tokenizer
