"""A Llama-style decoder; its tensors have their Hugging Face names.

RMSNorm (Zhang and Sennrich), rotary positions by halves (Su et al.), gated feed-forward by SiLU (Shazeer), no biases,
and the embedding tied to the head. It computes the same as `transformers.LlamaForCausalLM` with the same tensors.

Several texts are packed into a row, and a token attends only to its own text. Two implementations of attention give the
same results. `varlen` passes the bounds of the texts to FlashAttention and needs an NVIDIA GPU and 16-bit types;
`masked` passes a mask on any device. `best_way` compares the first with the second on a small case before it uses it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernelmate_training.shapes import Shape

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


class RMSNorm(nn.Module):
    """Scales to a mean square of one, then by a learned weight; computes in float32 for every input type."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Returns the normalised input, in the same shape and type."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * self.weight).to(x.dtype)


class Attention(nn.Module):
    """Projections of attention; the attention itself is a function chosen by the caller."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        kv = shape.kv_heads * shape.head
        self.q_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)
        self.k_proj = nn.Linear(shape.hidden, kv, bias=False)
        self.v_proj = nn.Linear(shape.hidden, kv, bias=False)
        self.o_proj = nn.Linear(shape.hidden, shape.hidden, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns queries, keys and values [rows, tokens, heads, width], with rotary positions applied."""
        rows, tokens, _ = x.shape
        query = self.q_proj(x).view(rows, tokens, -1, self.shape.head)
        key = self.k_proj(x).view(rows, tokens, -1, self.shape.head)
        value = self.v_proj(x).view(rows, tokens, -1, self.shape.head)
        return _turned(query, cos, sin), _turned(key, cos, sin), value

    def out(self, attended: Tensor) -> Tensor:
        """Projects back to the width of the stream."""
        result: Tensor = self.o_proj(attended.reshape(*attended.shape[:2], -1))
        return result


class FeedForward(nn.Module):
    """Gated feed-forward: down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.feed_forward, bias=False)
        self.down_proj = nn.Linear(shape.feed_forward, shape.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Returns the result in the shape of the input."""
        result: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return result


class Block(nn.Module):
    """One layer: attention, then feed-forward, each on the normalised stream and added to it."""

    def __init__(self, shape: Shape, attend: Attend) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(shape.hidden, shape.norm_eps)
        self.self_attn = Attention(shape)
        self.post_attention_layernorm = RMSNorm(shape.hidden, shape.norm_eps)
        self.mlp = FeedForward(shape)
        self.attend = attend
        self.longest = shape.context
        self.dropout = 0.0

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, layout: Tensor) -> Tensor:
        """Returns the stream after this layer [rows, tokens, hidden]."""
        query, key, value = self.self_attn.project(self.input_layernorm(x), cos, sin)
        x = x + self._dropped(self.self_attn.out(self.attend(query, key, value, layout, self.longest)))
        return self.fed(x)

    def fed(self, x: Tensor) -> Tensor:
        """Returns the stream after the feed-forward part, which processes each token by itself."""
        result: Tensor = x + self._dropped(self.mlp(self.post_attention_layernorm(x)))
        return result

    def _dropped(self, added: Tensor) -> Tensor:
        return functional.dropout(added, self.dropout, self.training) if self.dropout else added


class Decoder(nn.Module):
    """Embedding, layers and final norm: the part that Hugging Face calls `model`."""

    def __init__(self, shape: Shape, attend: Attend) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocabulary, shape.hidden)
        self.layers = nn.ModuleList(Block(shape, attend) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.hidden, shape.norm_eps)


class Llama(nn.Module):
    """A Llama language model.

    Args:
        shape: its size.
        attend: implementation of attention over packed rows.
    """

    def __init__(self, shape: Shape, attend: Attend = masked) -> None:
        super().__init__()
        self.shape = shape
        self.model = Decoder(shape, attend)
        cos, sin = _angles(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.apply(self._start)
        for name, parameter in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                # The sum of all layers' outputs has the initial standard deviation of one layer's output (GPT-2).
                nn.init.normal_(parameter, std=0.02 / (2 * shape.layers) ** 0.5)

    def drop(self, share: float) -> None:
        """Set the dropout of what each layer adds to the residual stream, in training (Srivastava et al.)."""
        for layer in self.model.layers:
            layer.dropout = share

    @property
    def head(self) -> Tensor:
        """Weights from the stream to the logits, [vocabulary, hidden]: those of the embedding."""
        weight: Tensor = self.model.embed_tokens.weight
        return weight

    def forward(self, tokens: Tensor, positions: Tensor, layout: Tensor) -> Tensor:
        """Returns the normalised stream [rows, tokens, hidden] of packed rows; `logits` converts it to logits.

        Args:
            tokens: [rows, tokens].
            positions: position of each token in its own text.
            layout: the layout for the implementation of attention.
        """
        x = self.entered(tokens)
        cos, sin = self.turns(positions)
        for layer in self.model.layers:
            x = layer(x, cos, sin, layout)
        result: Tensor = self.model.norm(x)
        return result

    def entered(self, tokens: Tensor) -> Tensor:
        """Returns the embedded tokens, in the number format of products."""
        x: Tensor = self.model.embed_tokens(tokens)
        kind = x.device.type
        return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x

    def turns(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Returns cosine and sine of each token's rotary angles [rows, tokens, 1, width of a head]."""
        return self.cos[positions][:, :, None], self.sin[positions][:, :, None]

    def logits(self, stream: Tensor) -> Tensor:
        """Returns the logits of each position [..., vocabulary]."""
        return functional.linear(stream, self.head.to(stream.dtype))

    @staticmethod
    def _start(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)


def answer_loss(stream: Tensor, head: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Returns the sum over tokens of weight times negative log likelihood.

    Args:
        stream: [rows, tokens, hidden].
        head: [vocabulary, hidden].
        targets: the next token of each [rows, tokens].
        weights: float32; 0 for tokens that are not learned.
    """
    logits = functional.linear(stream, head.to(stream.dtype)).float().flatten(0, 1)
    return (functional.cross_entropy(logits, targets.flatten(), reduction="none") * weights.flatten()).sum()


def _angles(shape: Shape) -> tuple[Tensor, Tensor]:
    rates = shape.rope_theta ** -(torch.arange(0, shape.head, 2, dtype=torch.float64) / shape.head)
    angles = torch.outer(torch.arange(shape.context, dtype=torch.float64), rates)
    both = torch.cat([angles, angles], dim=1)
    return both.cos().float(), both.sin().float()


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Applies rotary positions: rotates the first half of a head's width against its second half."""
    first, second = x.chunk(2, dim=-1)
    turned: Any = x * cos + torch.cat([-second, first], dim=-1) * sin
    result: Tensor = turned.to(x.dtype)
    return result
