"""Folders of a model: checkpoints of a run, and the trained model with the files of Hugging Face's libraries and our own.

A checkpoint is `step-N.pt`, tensors and plain values by `torch.save`, beside `step-N.json` with its hash. It is written
atomically and verified when read; the newest valid one is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernelmate.errors import UsageError
from kernelmate_training.shapes import Shape
from kernelmate_training.torch_llama import Llama

KEPT = 2
"""Number of checkpoints to keep: the newest, and the one before it in case the newest is damaged."""
_NAME = re.compile(r"step-(\d{9})\.pt\Z")


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """A loaded checkpoint.

    Attributes:
        state: the saved values.
        path: the file.
        damaged: newer files that could not be used, with the reason.
    """

    state: dict[str, Any]
    path: Path
    damaged: tuple[str, ...] = ()


class NotSaved(Exception):
    """A checkpoint could not be written; earlier ones are unchanged. The message gives the reason."""


def save(folder: Path, step: int, state: dict[str, Any]) -> Path:
    """Write a checkpoint; older ones are deleted after that.

    Raises:
        NotSaved: the disk is full, or the folder cannot be written.
    """
    target = folder / f"step-{step:09d}.pt"
    partial = target.with_suffix(".partial")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        facts = {"step": step, "bytes": partial.stat().st_size, "sha256": _sha256(partial)}
        _write(target.with_suffix(".json"), json.dumps(facts))
        partial.replace(target)
    except (OSError, RuntimeError) as error:
        # torch reports errors of the disk as RuntimeError.
        for leftover in (partial, target.with_suffix(".json")):
            if not target.exists() or leftover == partial:
                leftover.unlink(missing_ok=True)
        raise NotSaved(f"The checkpoint of step {step} cannot be written to {folder}: {error}") from error
    for old in _all(folder)[KEPT:]:
        old.unlink(missing_ok=True)
        old.with_suffix(".json").unlink(missing_ok=True)
    return target


def newest(folder: Path, device: torch.device | str = "cpu") -> LoadedCheckpoint | None:
    """Returns the newest valid checkpoint; None if there is none.

    Args:
        folder: folder of the run.
        device: device for its tensors.
    """
    damaged: list[str] = []
    for path in _all(folder):
        try:
            _check(path)
            # Only tensors and plain values are loaded, so a checkpoint cannot execute code.
            state = torch.load(path, map_location=device, weights_only=True)
        except (OSError, ValueError, KeyError, EOFError, RuntimeError, pickle.UnpicklingError) as error:
            damaged.append(f"{path.name}: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
            continue
        return LoadedCheckpoint(state, path, tuple(damaged))
    return LoadedCheckpoint({}, folder, tuple(damaged)) if damaged else None


def _all(folder: Path) -> list[Path]:
    """Returns the checkpoints, the newest first."""
    found = [path for path in folder.glob("step-*.pt") if _NAME.match(path.name)] if folder.is_dir() else []
    return sorted(found, reverse=True)


def _check(path: Path) -> None:
    facts = json.loads(path.with_suffix(".json").read_text())
    if path.stat().st_size != facts["bytes"]:
        raise ValueError(f"it has {path.stat().st_size} bytes, {facts['bytes']} were written")
    if _sha256(path) != facts["sha256"]:
        raise ValueError("its content is not what was written")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


OWN = "kernelmate.json"
"""Name of the file with codec, data and training of the model."""


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """Contents of a model's folder.

    Attributes:
        config: Hugging Face's `config.json`.
        tensors: tensors by their Hugging Face names.
        tokenizer: the text of `tokenizer.json`.
        facts: contents of `kernelmate.json`: codec, licence, and facts about training.
    """

    config: dict[str, Any]
    tensors: dict[str, Tensor]
    tokenizer: str
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def codec(self) -> str:
        """Name of the codec that the model was trained for; empty if unknown."""
        return str(self.facts.get("codec") or "")


def llama_config(shape: Shape) -> dict[str, Any]:
    """Returns the `config.json` of a model trained from scratch; token id 0 ends texts, id 1 is padding."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": shape.vocabulary,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.feed_forward,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.rope_theta},
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "pad_token_id": 1,
        "torch_dtype": "float32",
    }


def shape_of(config: dict[str, Any]) -> Shape:
    """Returns the shape in a Llama model's `config.json`.

    Raises:
        UsageError: the model has another architecture, which transformers samples instead.
    """
    if config.get("model_type") != "llama" or not config.get("tie_word_embeddings"):
        raise UsageError(f"A model of the kind {config.get('model_type')!r} with these weights is not this trainer's.")
    theta = (config.get("rope_parameters") or {}).get("rope_theta") or config.get("rope_theta") or 10_000.0
    heads = int(config["num_attention_heads"])
    return Shape(
        vocabulary=int(config["vocab_size"]),
        hidden=int(config["hidden_size"]),
        layers=int(config["num_hidden_layers"]),
        heads=heads,
        kv_heads=int(config.get("num_key_value_heads") or heads),
        feed_forward=int(config["intermediate_size"]),
        context=int(config["max_position_embeddings"]),
        rope_theta=float(theta),
        norm_eps=float(config["rms_norm_eps"]),
    )


def save_folder(folder: Path, model: Llama, tokenizer: str, facts: dict[str, Any]) -> None:
    """Write a model that was trained from scratch; each file is written atomically.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().float().cpu().contiguous() for name, tensor in model.state_dict().items()}
    partial = folder / "model.safetensors.partial"
    save_file(tensors, partial, metadata={"format": "pt"})
    partial.replace(folder / "model.safetensors")
    special = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": facts["end"], "bos_token": facts["end"], "pad_token": facts["pad"], "clean_up_tokenization_spaces": False, "model_max_length": model.shape.context}  # fmt: skip
    for name, text in (
        ("config.json", json.dumps(llama_config(model.shape), indent=1)),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", json.dumps(special, indent=1)),
        (OWN, json.dumps(facts, indent=1)),
    ):
        part = folder / (name + ".partial")
        part.write_text(text, encoding="utf-8")
        part.replace(folder / name)


def load_folder(folder: Path) -> ModelFolder:
    """Returns a model's files.

    Raises:
        UsageError: a file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
        own = folder / OWN
        facts = json.loads(own.read_text(encoding="utf-8")) if own.is_file() else {}
        tensors: dict[str, Tensor] = {}
        for part in sorted(folder.glob("model*.safetensors")):
            tensors |= load_file(part)
    except (OSError, ValueError, SafetensorError) as error:
        raise UsageError(f"The model cannot be read: {error}.", file=str(folder)) from None
    if not tensors:
        raise UsageError("There are no weights (model.safetensors).", file=str(folder))
    return ModelFolder(config, tensors, tokenizer, facts)


def load_llama(found: ModelFolder) -> Llama:
    """Returns a folder's model as `Llama`, on the CPU.

    Raises:
        UsageError: the model has another architecture, or tensors are missing.
    """
    model = Llama(shape_of(found.config))
    try:
        model.load_state_dict({name: value for name, value in found.tensors.items() if name != "lm_head.weight"})
    except RuntimeError as error:
        raise UsageError(f"The weights do not fit their configuration: {str(error).splitlines()[0]}") from None
    return model
