"""One version of a kernel the usual way: `load_inline`, five correctness trials, 100 timed ones. Needs torch, nvcc and ninja."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CORRECTNESS_TRIALS, TIMED_TRIALS, WARM_UPS = 5, 100, 3


@dataclass(frozen=True, slots=True)
class Usual:
    """An example as an extension of torch.

    Attributes:
        file: of the example. kernel: its name. declaration: of the C++ function `run`. launch: its body.
        inputs: makes the arguments. reference: the same computation in torch.
    """

    file: str
    kernel: str
    declaration: str
    launch: str
    inputs: Callable[[Any], tuple[Any, ...]]
    reference: Callable[..., Any]


def _swiglu(gate: Any, up: Any) -> Any:
    return gate * gate.sigmoid() * up


def _softmax(x: Any) -> Any:
    return x.softmax(dim=-1)


USUAL = {
    "swiglu": Usual(
        "swiglu.cu", "swiglu", "torch::Tensor run(torch::Tensor gate, torch::Tensor up)",
        "auto out = torch::empty_like(gate); int n = gate.numel();"
        "swiglu<<<(n + 255) / 256, 256>>>(gate.data_ptr<float>(), up.data_ptr<float>(), out.data_ptr<float>(), n); return out;",
        lambda torch: tuple(torch.randn(131072, device="cuda") for _ in range(2)), _swiglu,
    ),
    "softmax": Usual(
        "softmax.cu", "softmax", "torch::Tensor run(torch::Tensor x)",
        "auto y = torch::empty_like(x);"
        "softmax<<<x.size(0), 256, 256 * 4>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(1)); return y;",
        lambda torch: (torch.randn(256, 1024, device="cuda"),), _softmax,
    ),
}  # fmt: skip
"""By name. The sizes are the headlines of the examples' contracts."""


def usual_seconds(name: str, examples: Path) -> dict[str, float]:
    """Seconds of each part, and of all of it, from the kernel's text to a checked and timed version."""
    import torch
    from torch.utils.cpp_extension import load_inline

    usual = USUAL[name]
    text = (examples / usual.file).read_text()
    torch.zeros(1, device="cuda")
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        module = load_inline(
            name=f"usual_{name}_{time.time_ns()}",
            cpp_sources=f"{usual.declaration};",
            cuda_sources=f"{text}\n{usual.declaration} {{ {usual.launch} }}",
            functions=["run"],
            build_directory=folder,
        )
        built = time.perf_counter()
        for seed in range(CORRECTNESS_TRIALS):
            torch.manual_seed(seed)
            inputs = usual.inputs(torch)
            assert torch.allclose(module.run(*inputs), usual.reference(*inputs), rtol=1e-2, atol=1e-2)
        torch.cuda.synchronize()
        checked = time.perf_counter()
        _timed(torch, module.run, usual.inputs(torch))
        timed = time.perf_counter()
    return {"compile": built - began, "correctness": checked - built, "timing": timed - checked, "total": timed - began}


def _timed(torch: Any, run: Callable[..., Any], inputs: tuple[Any, ...]) -> float:
    """Milliseconds of a launch by events, the mean over the trials."""
    for _ in range(WARM_UPS):
        run(*inputs)
    torch.cuda.synchronize()
    times = []
    for _ in range(TIMED_TRIALS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run(*inputs)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.mean(times)
