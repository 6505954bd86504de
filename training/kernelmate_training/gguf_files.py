"""Models as GGUF files for llama.cpp: Llama and Qwen2, with tokenizer and codec.

Tensors are given by their Hugging Face names. For the Llama architecture, llama.cpp applies rotary positions to
neighbouring pairs, Hugging Face to the two halves of a head, so the rows of q and k are reordered; for Qwen2 both use
halves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from kernelmate.errors import EnvironmentFailed, UsageError
from kernelmate_training.requirements import require_packages
from kernelmate_training.vocabulary import PRE

Kind = Literal["f32", "f16", "q8_0", "q5_0", "q4_0"]
ARCHITECTURES = ("llama", "qwen2")
CODEC_KEY, CARD_KEY, HASH_KEY, OFFERS_KEY = (
    "kernelmate.codec",
    "kernelmate.card",
    "kernelmate.corpus",
    "kernelmate.offers",
)
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Label:
    """Description of the model inside a GGUF file.

    Attributes:
        name: the model's name.
        codec: the codec that it was trained for.
        licence: an SPDX identifier.
        card: the model card in Markdown.
        corpus: hash of the training data.
        chat_template: Jinja text; None for models with plain text prompts.
        more: further text values by key.
    """

    name: str
    codec: str
    licence: str
    card: str = ""
    corpus: str = ""
    chat_template: str | None = None
    more: Mapping[str, str] = field(default_factory=dict)


def write_gguf(path: Path, config: Mapping[str, Any], tensors: Mapping[str, Array], tokenizer: str, label: Label, kind: Kind = "q8_0") -> int:  # fmt: skip
    """Write a model; returns the file's size in bytes.

    Matrices are stored as `kind`, or in f16 if a row's length is not a multiple of that format's blocks of 32; vectors
    in float32.

    Args:
        path: the file, which is written atomically.
        config: Hugging Face's `config.json`.
        tensors: floating-point tensors by their Hugging Face names.
        tokenizer: the text of `tokenizer.json`, a byte-level BPE.
        label: the description to store.
        kind: storage format of the matrices.

    Raises:
        UsageError: the architecture or a tensor is unknown, or the tokenizer has another type.
        EnvironmentFailed: the gguf package is missing, or the file cannot be written.
    """
    require_packages(["gguf"], "Exporting a model")
    import gguf

    architecture = str(config.get("model_type"))
    if architecture not in ARCHITECTURES:
        raise UsageError(f"A model of the kind {architecture!r} cannot be exported; {' and '.join(ARCHITECTURES)} can.")
    partial = path.with_name(path.name + ".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        writer = gguf.GGUFWriter(str(partial), architecture)
        _describe(writer, config, label, kind)
        _put_vocabulary(writer, config, json.loads(tokenizer))
        _put_tensors(writer, architecture, config, tensors, kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise EnvironmentFailed(f"The model cannot be written: {error.strerror or error}.", file=str(path)) from error
    return path.stat().st_size


def _describe(writer: Any, config: Mapping[str, Any], label: Label, kind: Kind) -> None:
    import gguf

    heads = int(config["num_attention_heads"])
    theta = (config.get("rope_parameters") or {}).get("rope_theta") or config.get("rope_theta") or 10_000.0
    writer.add_name(label.name)
    writer.add_license(label.licence)
    writer.add_context_length(int(config["max_position_embeddings"]))
    writer.add_embedding_length(int(config["hidden_size"]))
    writer.add_block_count(int(config["num_hidden_layers"]))
    writer.add_feed_forward_length(int(config["intermediate_size"]))
    writer.add_head_count(heads)
    writer.add_head_count_kv(int(config.get("num_key_value_heads") or heads))
    writer.add_layer_norm_rms_eps(float(config["rms_norm_eps"]))
    writer.add_rope_freq_base(float(theta))
    writer.add_rope_dimension_count(int(config.get("head_dim") or int(config["hidden_size"]) // heads))
    writer.add_vocab_size(int(config["vocab_size"]))
    kinds = gguf.LlamaFileType
    writer.add_file_type(kinds.ALL_F32 if kind == "f32" else kinds[f"MOSTLY_{kind.upper()}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for key, value in {CODEC_KEY: label.codec, CARD_KEY: label.card, HASH_KEY: label.corpus, **label.more}.items():
        if value:
            writer.add_string(key, value)
    if label.chat_template:
        writer.add_chat_template(label.chat_template)


def _put_vocabulary(writer: Any, config: Mapping[str, Any], tokenizer: dict[str, Any]) -> None:
    import gguf

    if tokenizer.get("model", {}).get("type") != "BPE":
        raise UsageError(
            "The tokenizer is not a byte-level BPE.", hint="Llama-3, Qwen2 and this trainer's models have one."
        )
    size = int(config["vocab_size"])
    ids = {number: token for token, number in tokenizer["model"]["vocab"].items()}
    added = {entry["id"]: entry for entry in tokenizer["added_tokens"]}
    ids |= {number: entry["content"] for number, entry in added.items()}
    types = gguf.TokenType
    kinds = []
    for number in range(size):
        entry = added.get(number)
        if number not in ids:
            kinds.append(types.UNUSED)
        elif entry is None:
            kinds.append(types.NORMAL)
        else:
            # Placeholders must be readable in answers, and llama.cpp does not print control tokens.
            kinds.append(types.CONTROL if entry["special"] else types.USER_DEFINED)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(PRE)
    writer.add_token_list([ids.get(number, f"[unused {number}]") for number in range(size)])
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    for name, put in (
        ("eos", writer.add_eos_token_id),
        ("bos", writer.add_bos_token_id),
        ("pad", writer.add_pad_token_id),
    ):
        token = config.get(f"{name}_token_id")
        if token is not None:
            put(int(token[0] if isinstance(token, list) else token))
    writer.add_add_bos_token(False)


def _put_tensors(writer: Any, architecture: str, config: Mapping[str, Any], tensors: Mapping[str, Array], kind: Kind) -> None:  # fmt: skip
    import gguf

    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], int(config["num_hidden_layers"]))
    heads = int(config["num_attention_heads"])
    kv_heads = int(config.get("num_key_value_heads") or heads)
    for name, given in tensors.items():
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise UsageError(f"The tensor {name} has no place in a GGUF file of the kind {architecture}.")
        array = np.asarray(given, dtype=np.float32)
        if architecture == "llama" and (".q_proj." in name or ".k_proj." in name):
            array = paired(array, heads if ".q_proj." in name else kv_heads)
        stored, kind_stored = quantised(array, kind)
        writer.add_tensor(target, stored, raw_dtype=kind_stored)


def paired(rows: Array, heads: int) -> Array:
    """Returns the rows of each head, reordered from rotation of halves to rotation of neighbouring pairs."""
    width = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, width, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def quantised(array: Array, kind: Kind) -> tuple[Array, Any]:
    """Returns an array in its storage format, and ggml's type of that format.

    Vectors stay float32; arrays whose rows are not a multiple of 32 elements, the length of ggml's blocks, become float16 unless `kind` is f32.
    """
    import gguf

    types = gguf.GGMLQuantizationType
    array = np.ascontiguousarray(array)
    if array.ndim == 1 or kind == "f32":
        return array.astype(np.float32), types.F32
    if kind == "f16" or array.shape[-1] % 32:
        return array.astype(np.float16), types.F16
    stored = types[kind.upper()]
    return gguf.quants.quantize(array, stored), stored
