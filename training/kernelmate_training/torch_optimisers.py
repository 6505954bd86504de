"""Optimisers: AdamW throughout, or Muon for the matrices of the layers and AdamW for the rest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

Name = Literal["adamw", "muon"]
QUINTIC = (3.4445, -4.7750, 2.0315)
"""Coefficients of the Newton-Schulz iteration, from Jordan et al., "Muon: an optimizer for hidden layers"."""
ITERATIONS = 5
MATCHED = 0.2
"""Root mean square of an AdamW step, to which Muon's steps are scaled (Liu et al., "Muon is scalable", 2.2)."""


class Muon(torch.optim.Optimizer):
    """Steps along the orthogonalised momentum; matrices of one shape are processed together.

    Args:
        parameters: matrices only.
        lr: learning rate, as for AdamW, since steps are scaled alike.
        momentum: Nesterov momentum.
        weight_decay: decoupled weight decay.
    """

    def __init__(self, parameters: Iterable[Tensor], lr: float, momentum: float = 0.95, weight_decay: float = 0.1) -> None:  # fmt: skip
        super().__init__(list(parameters), {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Takes one step of every matrix that has a gradient."""
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for parameter in group["params"]:
                if parameter.grad is not None:
                    alike[parameter.shape].append(parameter)
            for shape, members in alike.items():
                self._together(members, group, MATCHED * max(shape) ** 0.5)

    def _together(self, members: list[Tensor], group: dict[str, Any], scale: float) -> None:
        gradients = [member.grad for member in members]
        momenta = [self.state[member].setdefault("momentum", torch.zeros_like(member)) for member in members]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        looked_ahead = torch._foreach_lerp(gradients, momenta, group["momentum"])
        updates = orthogonal(torch.stack(looked_ahead)).to(members[0].dtype)
        torch._foreach_mul_(members, 1 - group["lr"] * group["weight_decay"])
        torch._foreach_add_(members, list(updates.unbind()), alpha=-group["lr"] * scale)


def orthogonal(matrices: Tensor) -> Tensor:
    """Returns approximately the nearest matrices with orthonormal rows or columns.

    [count, rows, columns], bf16 on a GPU.
    """
    a, b, c = QUINTIC
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def optimisers(model: nn.Module, name: Name, rate: float, weight_decay: float) -> list[torch.optim.Optimizer]:
    """Returns the optimisers of a model; norms and the embedding have no weight decay."""
    matrices: list[Tensor] = []
    decayed: list[Tensor] = []
    plain: list[Tensor] = []
    for where, parameter in model.named_parameters():
        if parameter.ndim == 2 and "embed" not in where:
            (matrices if name == "muon" else decayed).append(parameter)
        else:
            plain.append(parameter)
    fused = next(model.parameters()).is_cuda
    groups = [{"params": group, "weight_decay": decay} for group, decay in ((decayed, weight_decay), (plain, 0.0)) if group]  # fmt: skip
    found: list[torch.optim.Optimizer] = [torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-8, fused=fused)]
    return [*found, Muon(matrices, rate, weight_decay=weight_decay)] if matrices else found
