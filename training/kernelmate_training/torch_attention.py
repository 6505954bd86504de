"""Attention over rows into which several texts are packed: a token attends only to its own text.

Two implementations give the same results. `varlen` passes the bounds of the texts to FlashAttention and needs an NVIDIA
GPU and 16-bit types; `masked` passes a mask on any device. `best_way` compares the first with the second on a small
case before it uses it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

Attend = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""Attention of queries, keys and values [rows, tokens, heads, width], given the rows' layout and longest text."""

AGREES = 2e-2
"""Largest allowed difference between the two implementations, in bf16, on values of magnitude one."""


def masked(query: Tensor, key: Tensor, value: Tensor, layout: Tensor, longest: int) -> Tensor:  # noqa: ARG001 -- as `Attend`
    """Returns attention by a mask: `layout` [rows, 1, tokens, tokens] is True if a token may attend to another."""
    groups = query.shape[2] // key.shape[2]
    query, key, value = (part.transpose(1, 2) for part in (query, *_repeated(key, value, groups)))
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=layout).transpose(1, 2)


def varlen(query: Tensor, key: Tensor, value: Tensor, layout: Tensor, longest: int) -> Tensor:
    """Returns attention by FlashAttention.

    `layout` (int32) holds each text's start in the flattened rows, then the end.
    """
    rows, tokens, heads, width = query.shape
    key, value = _repeated(key, value, heads // key.shape[2])
    flat = [part.reshape(rows * tokens, heads, width) for part in (query, key, value)]
    return _flash(flat[0], flat[1], flat[2], layout, longest).view(rows, tokens, heads, width)


def mask_of(documents: Tensor) -> Tensor:
    """Returns the layout for `masked`, from the number of each token's text [rows, tokens]."""
    tokens = documents.shape[1]
    past = torch.ones(tokens, tokens, dtype=torch.bool, device=documents.device).tril()
    return (past & (documents[:, :, None] == documents[:, None, :]))[:, None]


def best_way(device: torch.device) -> Attend:
    """Returns the faster implementation that works on a device."""
    if device.type != "cuda":
        return masked
    try:
        return varlen if _agrees(device) else masked
    except (ImportError, RuntimeError, TypeError, AttributeError, NotImplementedError):
        return masked


def _repeated(key: Tensor, value: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    if groups == 1:
        return key, value
    return key.repeat_interleave(groups, 2), value.repeat_interleave(groups, 2)


def _flash(query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, longest: int) -> Tensor:
    """Calls FlashAttention by torch's public function, whose parameter for causal masks differs between versions."""
    # The import loads torch's compiler, which takes seconds and is useless without a GPU.
    from torch.nn.attention.varlen import varlen_attn

    result: Tensor = varlen_attn(query, key, value, bounds, bounds, longest, longest, **_causal())
    return result


@cache
def _causal() -> dict[str, object]:
    from torch.nn.attention.varlen import varlen_attn

    known = inspect.signature(varlen_attn).parameters
    return {"window_size": (-1, 0)} if "window_size" in known else {"is_causal": True}


def _agrees(device: torch.device) -> bool:
    """Returns True if both implementations agree on three packed texts, forward and backward."""
    lengths = [5, 40, 19]
    torch.manual_seed(0)
    parts = [torch.randn(1, 64, 2, 64, device=device, dtype=torch.bfloat16) for _ in range(3)]
    documents = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))[None].to(device)
    # The last bound is repeated as in training, where the layout has a fixed length.
    bounds = torch.tensor([0, 5, 45, 64, 64, 64], dtype=torch.int32, device=device)
    found = []
    for way, layout in ((varlen, bounds), (masked, mask_of(documents))):
        inputs = [part.clone().requires_grad_() for part in parts]
        out = way(inputs[0], inputs[1], inputs[2], layout, 64)
        out.float().square().sum().backward()
        found.append([out.detach(), *(one.grad for one in inputs)])
    return all(bool((one.float() - other.float()).abs().max() < AGREES * 8) for one, other in zip(*found, strict=True))
