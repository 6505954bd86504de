"""A Llama-style decoder; its tensors have their Hugging Face names.

RMSNorm (Zhang and Sennrich), rotary positions by halves (Su et al.), gated feed-forward by SiLU (Shazeer), no biases,
and the embedding tied to the head. It computes the same as `transformers.LlamaForCausalLM` with the same tensors.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernelmate_training.shapes import Shape
from kernelmate_training.torch_attention import Attend, masked


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
        """Returns the stream after the feed-forward part, which processes each token alone."""
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
        """Weights from the stream to the logits: those of the embedding."""
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
