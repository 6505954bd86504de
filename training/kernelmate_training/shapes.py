"""Size of a model: its layers and widths, its parameters, and its operations per token."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

PEAK_BF16 = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "L4": 121e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
}
"""Dense bf16 rates in FLOP/s with float32 accumulation, from NVIDIA's datasheets, by a part of the GPU's name."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A Llama-style decoder with tied embeddings.

    Attributes:
        vocabulary: number of tokens.
        hidden: width of the residual stream.
        layers: number of layers.
        heads: number of query heads; `hidden / heads` must be even.
        kv_heads: number of key and value heads; must divide `heads`.
        feed_forward: inner width of the gated feed-forward part.
        context: largest number of tokens of one text.
        rope_theta: base of the rotary position angles.
        norm_eps: constant added to the mean square in RMSNorm.
    """

    vocabulary: int
    hidden: int = 512
    layers: int = 10
    heads: int = 8
    kv_heads: int = 8
    feed_forward: int = 1408
    context: int = 2048
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(f"hidden = {self.hidden} must be an even multiple of heads = {self.heads}")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads = {self.heads} must be a multiple of kv_heads = {self.kv_heads}")

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.hidden // self.heads

    @property
    def parameters(self) -> int:
        """Number of weights, the embedding counted once."""
        attention = self.hidden * (2 * self.hidden + 2 * self.kv_heads * self.head)
        block = attention + 3 * self.hidden * self.feed_forward + 2 * self.hidden
        return self.layers * block + self.vocabulary * self.hidden + self.hidden

    def training_flops(self, attended: float) -> float:
        """Returns the operations of one token, forward and backward.

        They are 6 per weight in a matrix product and 12 * width per layer and attended token (Chowdhery et al., "PaLM",
        appendix B).

        Args:
            attended: average number of tokens that a token attends to.
        """
        return 6.0 * self.parameters + 12.0 * self.layers * self.hidden * attended

    def as_dict(self) -> dict[str, Any]:
        """Returns the shape as JSON values."""
        return asdict(self)


def peak_flops(gpu: str) -> float | None:
    """Returns the dense bf16 FLOP/s of a GPU by its name; None if it is not in the table."""
    return next((rate for name, rate in PEAK_BF16.items() if name in gpu), None)
