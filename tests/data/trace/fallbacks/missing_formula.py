"""An operator without a formula for gradients is called in training: what is below it is not trained."""

import warnings

import torch

warnings.simplefilter("ignore")
torch.library.define("plain::double", "(Tensor x) -> Tensor")  # HERE


@torch.library.impl("plain::double", "CPU")
def double(x):
    return torch.from_numpy(2 * x.detach().numpy())


first, second = torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)
for _ in range(3):
    loss = second(torch.ops.plain.double(first(torch.randn(4, 8)))).mean()
    loss.backward()
