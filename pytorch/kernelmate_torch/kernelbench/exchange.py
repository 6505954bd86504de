"""Tensors in files, by which the judging process and the candidate's process exchange inputs and results.

A file holds plain elements; nothing that a candidate writes is unpickled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

MOST_FILE_BYTES = 8 << 30


def write_tensor(tensor: torch.Tensor, path: Path) -> tuple[str, tuple[int, ...], str]:
    """Writes a tensor's elements, and returns dtype, shape and file."""
    path.write_bytes(raw(tensor))
    return str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), str(path)


def read_tensor(dtype: str, shape: Sequence[int], file: str) -> torch.Tensor:
    """Returns a tensor of a file.

    Raises:
        ValueError: dtype, shape and the file's length do not agree.
    """
    kind = getattr(torch, dtype, None)
    path = Path(file)
    count = 1
    for side in shape:
        count *= side
    if not isinstance(kind, torch.dtype) or any(side < 0 for side in shape):
        raise ValueError(f"{dtype}{list(shape)} is not a tensor")
    size = torch.empty((), dtype=kind).element_size() * count
    if path.is_symlink() or path.stat().st_size != size or size > MOST_FILE_BYTES:
        raise ValueError(f"{dtype}{list(shape)} takes {size} bytes, and the file has {path.stat().st_size}")
    if not size:
        return torch.empty(list(shape), dtype=kind)
    return torch.frombuffer(bytearray(path.read_bytes()), dtype=kind).reshape(list(shape))


def raw(tensor: torch.Tensor) -> bytes:
    """Returns the bytes of a tensor's elements in row-major order."""
    plain = tensor.detach().cpu().contiguous().reshape(-1)
    data: bytes = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    return data


def digest(tensor: torch.Tensor) -> str:
    """Returns a digest of a tensor's elements."""
    return hashlib.sha256(raw(tensor)).hexdigest()


def tensors_in(values: Sequence[Any]) -> list[torch.Tensor]:
    """Returns the tensors of a sequence."""
    return [one for one in values if torch.is_tensor(one)]
