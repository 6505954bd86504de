"""Traced functions of PyTorch mean what PyTorch computes, at sizes that were not traced."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelmate.checks.torch_reference import uses_torch
from kernelmate.checks.userfiles import load_function
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Argument, Contract
from kernelmate.session import Session
from kernelmate.session.writing import write_kernel
from kernelmate.source import argument_shapes
from kernelmate.source.examples import load_python_function, read_examples
from kernelmate.synthesis.draft import KernelRequest
from kernelmate.synthesis.graph import evaluate
from kernelmate.synthesis.trace import trace

torch = pytest.importorskip("torch")

SIZES = ({"rows": 6, "cols": 8}, {"rows": 4, "cols": 12}, {"rows": 10, "cols": 6})
OTHER = {"rows": 8, "cols": 10}
MATRIX, ROW, COLUMN = ("rows", "cols"), ("cols",), ("rows",)

FUNCTIONS = {
    "activations": (MATRIX, "F.silu(x) + F.gelu(x) * x.sigmoid() - F.relu(x).tanh() + F.softplus(x) + torch.nn.functional.mish(x)"),
    "gelu by tanh": (MATRIX, "F.gelu(x, approximate='tanh') + F.leaky_relu(x, 0.2) + F.elu(x) + F.hardswish(x) + F.logsigmoid(x)"),
    "methods": (MATRIX, "x.exp().log1p().sqrt().abs().clamp(min=0.3, max=1.5).pow(2).rsqrt()"),
    "operators": (MATRIX, "(2 - x) / (1 + x * x) ** 0.5 - -x @ torch.eye(x.shape[1]) * 3 + (x > 0.5) * 1.0"),
    "sums": (COLUMN, "x.sum(dim=1) + x.mean(-1) + torch.sum(x, 1) * x.amax(dim=-1) - x.prod(1)"),
    "variances": (COLUMN, "x.var(dim=1) + x.std(-1) + x.var(1, unbiased=False) + torch.var(x, dim=1, correction=0)"),
    "extremes": (COLUMN, "x.max(dim=1).values + x.min(1)[0] + x.max() + torch.max(x, x * x).sum(1) + x.argmax(dim=1)"),
    "norms": (COLUMN, "x.norm(dim=1) + torch.linalg.vector_norm(x, dim=-1) + torch.norm(x, p=1, dim=1)"),
    "softmax": (MATRIX, "torch.softmax(x, dim=-1) + x.log_softmax(1) + F.softmax(x, dim=0) + x.logsumexp(dim=1, keepdim=True)"),
    "layer norm": (MATRIX, "F.layer_norm(x, (x.size(-1),), w, w * 2, 1e-5) + F.rms_norm(x, (x.shape[1],), w, 1e-6)"),
    "normalised": (MATRIX, "F.normalize(x, dim=1) + F.normalize(x, p=1, dim=-1)"),
    "shapes": (MATRIX, "x.t().contiguous().view(x.size(1), -1).permute(1, 0).reshape(x.shape).unsqueeze(0).squeeze(0)"),
    "flat": (MATRIX, "x.flatten().view_as(x) + x.unsqueeze(1).expand(-1, 2, -1).sum(1) + w.expand_as(x) + x.transpose(0, 1).mT"),
    "parts": (MATRIX, "torch.cat([x[:, 1:], x[:, :1]], dim=1) + torch.stack((x, x * 2)).sum(0) + x.roll(1, 1) + x.flip(1)"),
    "halves": (MATRIX, "torch.cat([-x.chunk(2, dim=-1)[1], x.chunk(2, dim=-1)[0]], -1) + torch.cat(x.split(x.shape[1] // 2, 1), 1)"),
    "gates": (MATRIX, "torch.cat((F.glu(x, dim=-1), F.glu(x, -1)), -1)"),
    "masks": (MATRIX, "x.masked_fill(x < 0.3, -1.0) + torch.where(x > 0.6, x, torch.zeros_like(x)) + x.tril() + torch.triu(x, 1)"),
    "positions": (MATRIX, "torch.where(torch.arange(x.shape[1]) > 2, x, 0.0) + torch.arange(x.size(0)).float()[:, None]"),
    "types": (MATRIX, "x.to(torch.float64).double() * (x > 0.5).to(x.dtype) + x.type_as(w)"),
    "products": (MATRIX, "F.linear(x @ x.T, x.T) + torch.einsum('ij,kj,kl->il', x, x, x) + torch.addmm(x, x @ x.t(), x) + torch.mm(x, w[:, None])"),
    "scans": (MATRIX, "x.cumsum(dim=1) + torch.cumsum(x, 0) + x.cumprod(1)"),
    "attention": (MATRIX, "F.scaled_dot_product_attention(x[None], x[None] * 2, x[None] - 1)[0]"),
    "causal attention": (MATRIX, "F.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True, scale=0.5)[0]"),
    "losses": (COLUMN, "F.mse_loss(x, w.expand_as(x)) + F.l1_loss(x, x * x, reduction='none').sum(1) + F.smooth_l1_loss(x, x * 3) + F.huber_loss(x, x * 4, delta=0.5)"),
    "binary losses": (COLUMN, "F.binary_cross_entropy_with_logits(x, w.expand_as(x), reduction='none').mean(1) + F.binary_cross_entropy(x.sigmoid(), (x > 0.5).double())"),
    "indices": (MATRIX, "F.embedding(ids, x) * 2 + x[ids] + x.index_select(0, ids)"),
    "classes": (COLUMN, "F.cross_entropy(x, ids % 4, reduction='none') + x.gather(1, (ids % 4)[:, None]).squeeze(1)"),
    "change of a copy": (MATRIX, "x.clone().mul_(0.0) + x"),
    "in place": (MATRIX, "torch.zeros(x.shape).add_(x).mul_(2).clamp_(0, 1)"),
    "loop": (MATRIX, "sum(x * power for power in range(1, 4)) + F.dropout(x, 0.5, training=False)"),
    "from arrays": (MATRIX, "torch.as_tensor(x) + torch.tensor(2.0) * torch.full_like(x, 3) + math.sqrt(x.shape[1])"),
}  # fmt: skip


def of(shape: tuple[str, ...], body: str, folder: Path) -> Contract:
    text = f"import math\n\nimport torch\nimport torch.nn.functional as F\n\n\ndef reference(x, w, ids):\n    return {body}\n"
    (folder / "reference.py").write_text(text)
    args = (
        Argument("x", "in", "float32", MATRIX), Argument("w", "in", "float32", ROW),
        Argument("ids", "in", "int32", COLUMN), Argument("y", "out", "float32", shape),
    )  # fmt: skip
    return Contract(
        "k",
        SIZES,
        ("1",),
        ("1",),
        args,
        require=("cols % 2 == 0",),
        reference="reference.py:reference",
        reference_kind="function",
    )


@pytest.mark.parametrize(("shape", "body"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_graph_means_what_torch_computes(shape: tuple[str, ...], body: str, tmp_path: Path) -> None:
    contract = of(shape, body, tmp_path)
    graph = trace(contract, tmp_path)
    rng = np.random.default_rng(5)
    shapes = argument_shapes(contract, OTHER)
    values = {
        "x": rng.uniform(0.1, 1.2, shapes["x"]),
        "w": rng.uniform(0.1, 0.9, shapes["w"]),
        "ids": rng.integers(0, OTHER["rows"], shapes["ids"]),
    }
    (found,) = evaluate(graph, values, OTHER)
    function = load_function("reference.py:reference", tmp_path, None)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        wanted = function(**{name: torch.from_numpy(one) for name, one in values.items()}).numpy()
    finally:
        torch.set_default_dtype(before)
    np.testing.assert_allclose(found, np.broadcast_to(wanted, shapes["y"]), rtol=1e-6)


REFUSED = {
    "random numbers": ("F.dropout(x)", "random numbers"),
    "a layer that is not known": ("F.conv1d(x[None], x[None])[0]", "conv1d"),
    "a value in Python": ("torch.exp(x) * x.sum().item()", "the tensor method item"),
    "a loop over a size": ("sum(x[:, c].exp() for c in range(x.shape[1]))[:, None] + x", "a loop over a size in a function of torch"),
    "NumPy": ("torch.exp(x) + math.exp(x)", "a value taken out of an array as a Python number"),
}  # fmt: skip


@pytest.mark.parametrize(("body", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_traced_is_named_with_its_line(body: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ReferenceFailed, match=r"reference\.py:8.*cannot be traced") as refused:
        trace(of(MATRIX, body, tmp_path), tmp_path)
    assert reason in refused.value.message
    assert "`kernelmate port`" in refused.value.message


def test_a_kernel_is_written_for_a_function_of_torch(tmp_path: Path, session: Session) -> None:
    (tmp_path / "scaled.py").write_text(
        "import torch\n\n\ndef scaled(x: 'float32[rows=37, cols=96]', w: 'float32[cols]'):\n"
        "    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * w\n"
    )
    function = load_python_function(f"{tmp_path}/scaled.py:scaled")
    outcome = write_kernel(
        session, KernelRequest(function, read_examples(function, "", {}), tmp_path / "scaled.cu", "scaled"), most=1
    )
    assert outcome.best is not None, outcome.notes
    assert outcome.best.right
    assert "sqrtf(" in outcome.best.kernel.unit.text


def test_a_helper_with_the_name_of_a_method_makes_no_function_of_torch(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(
        "import numpy\nimport torch\n\n\ndef softmax(x):\n    return numpy.exp(x)\n\n\n"
        "def reference(x):\n    return softmax(x) + 1\n\n\ndef tensors(x):\n    return x.log_softmax(-1)\n"
    )
    assert not uses_torch(load_function("reference.py:reference", tmp_path, None))
    assert uses_torch(load_function("reference.py:tensors", tmp_path, None))
