"""Device and number format of a run, and its other processes if torchrun started several."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class RunProcess:
    """One process of a run.

    Attributes:
        device: the process's device.
        rank: its number.
        processes: number of processes.
        bf16: True to compute products in bf16.
    """

    device: torch.device
    rank: int = 0
    processes: int = 1
    bf16: bool = False

    @property
    def name(self) -> str:
        """The GPU's name, or `cpu`."""
        return torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu"

    def precision(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context manager in which products use the run's number format."""
        inside: contextlib.AbstractContextManager[Any] = torch.autocast(
            self.device.type, torch.bfloat16, enabled=self.bf16
        )
        return inside

    def summed(self, gradients: list[Tensor]) -> None:
        """Sums gradients over all processes, in place, in one message."""
        if self.processes == 1:
            return
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        torch.distributed.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(gradients, [part.view_as(to) for part, to in zip(parts, gradients, strict=True)])

    def total(self, value: Tensor) -> Tensor:
        """Returns the sum of a value over all processes."""
        if self.processes > 1:
            torch.distributed.all_reduce(value)
        return value

    def agreed(self, value: float) -> float:
        """Returns the first process's value, in all processes."""
        if self.processes == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        torch.distributed.broadcast(shared, 0)
        return float(shared.item())

    def wait(self) -> None:
        """Waits until the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


@contextlib.contextmanager
def place(precision: Literal["auto", "bf16", "float32"]) -> Iterator[RunProcess]:
    """Yields the `RunProcess` of this process; joins the other processes if torchrun started it."""
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    rank, local = int(os.environ.get("RANK", "0")), int(os.environ.get("LOCAL_RANK", "0"))
    gpu = torch.cuda.is_available()
    device = torch.device("cuda", local) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
        torch.backends.cuda.matmul.allow_tf32 = True
    bf16 = precision == "bf16" or (precision == "auto" and gpu and torch.cuda.is_bf16_supported())
    if processes > 1:
        torch.distributed.init_process_group("nccl" if gpu else "gloo")
    try:
        yield RunProcess(device, rank, processes, bf16)
    finally:
        if processes > 1:
            torch.distributed.destroy_process_group()


def compile_layers(layers: nn.ModuleList) -> None:
    """Compiles the layers, whose common code is compiled once; code that cannot be compiled runs uncompiled."""
    import torch._dynamo

    torch._dynamo.config.suppress_errors = True
    for layer in layers:
        layer.compile()
