"""`kernelmate trace` on a GPU: a transformer's training steps, forward, backward, compiled and in a CUDA graph, against Kineto's totals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu

torch: Any = pytest.importorskip("torch", reason="operators need torch: pip install 'kernelmate[torch]'")
pytest.importorskip("triton", reason="the program's kernel is a Triton function")

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
]

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """\
import json
import sys

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, 0))
    tl.store(y + row * columns + at, values / tl.sum(values, 0), mask=at < columns)


@torch.library.triton_op("rows::softmax", mutates_args=())
def softmax(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    columns = x.shape[-1]
    torch.library.wrap_triton(softmax_rows)[(x.numel() // columns,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
    return y


def keep(ctx, inputs, output):
    ctx.save_for_backward(output)


softmax.register_autograd(lambda ctx, grad: ctx.saved_tensors[0] * (grad - (ctx.saved_tensors[0] * grad).sum(-1, keepdim=True)), setup_context=keep)


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).contiguous()
        x = x + self.out(softmax(scores) @ v)
        return x + self.mlp(x)


def step(model, x):
    model(x).square().mean().backward()


kind, steps = sys.argv[1], 20
model = Block(256).cuda()
x = torch.randn(8, 512, 256, device="cuda")
run = lambda: step(model, x)
if kind == "compiled":
    compiled = torch.compile(model, fullgraph=True)
    run = lambda: step(compiled, x)
for _ in range(5):
    run()
if kind == "graph":
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    model.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        run()
    run = graph.replay
torch.cuda.synchronize()
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]) as profile:
    for _ in range(steps):
        run()
    torch.cuda.synchronize()
events = [one for one in profile.events() if str(one.device_type).endswith("CUDA") and not getattr(one, "is_user_annotation", False)]
mine = [one for one in events if one.name.startswith("softmax_rows")]
for _ in range(3 * steps):
    run()
torch.cuda.synchronize()
print(json.dumps({"share": sum(one.device_time_total for one in mine) / sum(one.device_time_total for one in events), "count": len(mine)}))
"""


@pytest.mark.parametrize("kind", ["eager", "compiled", "graph"])
def test_shares_and_launches_are_those_of_kineto(kind: str, tmp_path: Path) -> None:
    program = tmp_path / "step.py"
    program.write_text(PROGRAM)
    paths = (str(ROOT), str(ROOT / "pytorch"), *filter(None, [os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    out = tmp_path / "trace.json"
    command = [
        sys.executable,
        "-m",
        "kernelmate",
        "trace",
        "--require",
        "softmax_rows",
        "--share",
        "0.001",
        "--out",
        str(out),
    ]
    done = subprocess.run([*command, "--", sys.executable, str(program), kind], cwd=tmp_path, env=environment, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    own = json.loads(done.stdout.splitlines()[-1])
    assert own["count"] == 20
    (process,) = json.loads(out.read_text())["traced"]["processes"]
    assert process["findings"] == [], done.stderr
    kernels = {one["name"]: one for one in process["kernels"]}
    triton = kernels["softmax_rows"]
    launched = sum(triton["launches"].values())
    assert triton["share"]["device"] == "gpu"
    assert triton["share"]["share"] == pytest.approx(own["share"], abs=0.02)
    assert triton["device_launches"] >= 80
    phases = {"eager": "forward", "compiled": "compiled forward", "graph": "forward"}
    assert triton["launches"][phases[kind]] >= 5
    assert (triton["device_launches"] > launched + 60) is (kind == "graph"), "replays are counted by the profiler alone"
