"""Launches a Triton function on PyTorch's tensors for a GPU."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + alpha * y, mask=mask)


torch.manual_seed(3)
for step in range(4):
    n = (1000, 777)[step % 2]
    x, y = torch.rand(n, device="cuda"), torch.rand(n).cuda()
    out = torch.empty_like(x)
    assert out.is_cuda
    add[lambda meta, n=n: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, 2.0, BLOCK=256)
    torch.cuda.synchronize()
    torch.testing.assert_close(out, x + 2 * y)
