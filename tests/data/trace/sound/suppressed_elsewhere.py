"""Errors are suppressed around the operator, and it raises none."""

import contextlib

import torch


@torch.library.custom_op("calm::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def doubled(x, log):
    with contextlib.suppress(KeyError):
        result = scale(x)
        log["rows"] += 1
    return result + 1


for rows in (4, 32, 64):
    doubled(torch.randn(rows, 8), {})
