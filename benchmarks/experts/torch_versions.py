"""The computations of the expert versions in torch, and their times in eager mode and compiled."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch.nn import functional

Function = Callable[..., Any]
"""Takes a kernel's input arrays by name, as tensors in the contract's shapes; returns its result or a tuple of them."""

WARM_UPS = 5
RUNS = 31
FLUSHED_BYTES = 256 << 20
"""Filled between runs: five times the L2 cache of an H100. The host queues the next run meanwhile."""


def _gray(rgb: Any) -> Any:
    r, g, b = rgb.int().unbind(1)
    return ((77 * r + 150 * g + 29 * b + 128) >> 8).to(torch.uint8)


def _complex_multiply(a: Any, b: Any) -> Any:
    return torch.view_as_real(torch.view_as_complex(a) * torch.view_as_complex(b))


def _csr_row_mean(values: Any, row_ptr: Any) -> Any:
    return torch.segment_reduce(values, "sum", offsets=row_ptr) / row_ptr.diff().clamp(min=1)


def _decode_attention(q: Any, keys: Any, values: Any, filled: Any) -> Any:
    k, v = (cache.transpose(0, 1)[None] for cache in (keys, values))
    mask = torch.arange(keys.shape[0], device=keys.device) < filled
    return functional.scaled_dot_product_attention(q[None, :, None], k, v, attn_mask=mask[None, None, None])[0, :, 0]


def _residual_rmsnorm(x: Any, residual: Any, weight: Any) -> Any:
    total = x + residual
    return total, functional.rms_norm(total, weight.shape, weight, 1e-5)


VERSIONS: Mapping[str, Function] = {
    "avgpool": lambda x: functional.avg_pool2d(x[:, None], 2)[:, 0],
    "batched_matmul": lambda a, b: a @ b,
    "byte_histogram": lambda x, counts: torch.bincount(x, minlength=256),
    "column_cumsum": lambda x: x.cumsum(0),
    "column_max": lambda x: x.amax(0),
    "complex_multiply": _complex_multiply,
    "conv_line": lambda x, w: functional.conv1d(x, w, padding=3),
    "csr_row_mean": _csr_row_mean,
    "decode_attention": _decode_attention,
    "exclusive_scan": lambda x: x.cumsum(1) - x,
    "gray": _gray,
    "heads_first": lambda x: x.transpose(1, 2).contiguous(),
    "instance_norm": lambda x: functional.instance_norm(x, eps=1e-5),
    "linear_relu": lambda x, weight, bias: functional.linear(x, weight, bias).relu(),
    "log_softmax": lambda x: x.log_softmax(1),
    "matvec": lambda a, x: a @ x,
    "nchw_to_nhwc": lambda x: x.transpose(1, 2).contiguous(),
    "residual_rmsnorm": _residual_rmsnorm,
    "row_argmax": lambda x: x.argmax(1).int(),
    "silu_mul": lambda gate, up: functional.silu(gate) * up,
}
"""By kernel."""


def times(name: str, arrays: Mapping[str, Any]) -> dict[str, float]:
    """Median microseconds on the GPU, `torch_us` in eager mode and `compiled_us` by `torch.compile`; float32 without tf32.

    Args:
        name: the kernel's.
        arrays: NumPy arrays of the inputs, by argument.

    Raises:
        Exception: of any kind, from torch or its compiler.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    given = {key: torch.from_numpy(array).cuda() for key, array in arrays.items()}
    torch.compiler.reset()  # else functions of the same code would count against the limit of recompilations
    versions = {"torch_us": VERSIONS[name], "compiled_us": torch.compile(VERSIONS[name])}
    with torch.no_grad():
        return {key: _median_us(partial(run, **given)) for key, run in versions.items()}


def _median_us(run: Callable[[], Any]) -> float:
    """Median of `RUNS` runs between two events, each after the L2 cache was flushed."""
    for _ in range(WARM_UPS):
        run()
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.uint8, device="cuda")
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(RUNS)]
    for first, last in events:
        flushed.zero_()
        first.record()
        run()
        last.record()
    torch.cuda.synchronize()
    return 1e3 * statistics.median(float(first.elapsed_time(last)) for first, last in events)
