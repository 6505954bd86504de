"""The operator raises, and a handler computes the result."""

import torch


@torch.library.custom_op("strict::norm", mutates_args=())
def norm(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] > 16:
        raise RuntimeError("the kernel takes up to 16 rows")
    return x / x.norm(dim=-1, keepdim=True)


def normalise(x):
    try:
        return norm(x)
    except Exception:  # HERE
        pass
    return torch.nn.functional.normalize(x, dim=-1)


for rows in (4, 32, 64):
    normalise(torch.randn(rows, 8))
