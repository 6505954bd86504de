"""References as functions of PyTorch: the values are NumPy's, torch's own functions are found, everything else is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.checks.inputs import draw
from kernelmate.checks.reference import python_reference, spelled
from kernelmate.checks.styles import NORMAL
from kernelmate.records import Contract, Size
from kernelmate.source import contract_for, load_kernels, numpy_dtype, scalar_values
from kernelmate.synthesis.torch_text import product_text, torch_text
from kernelmate.synthesis.torch_views import NotCarried
from kernelmate.synthesis.trace import trace

torch = pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[3]

CALLS = {
    "naive/maps.cu::axpby_clip": ("multiply", "add", "clamp"),
    "naive/maps.cu::silu_mul": ("silu", "multiply"),
    "naive/maps.cu::masked_fill": ("not_equal", "where"),
    "naive/maps.cu::complex_multiply": ("multiply", "add", "subtract", "full", "copy_"),
    "naive/layouts.cu::nchw_to_nhwc": ("clone",),
    "naive/layouts.cu::interleave": ("full", "copy_", "clone"),
    "naive/matrices.cu::half_matmul": ("matmul",),
    "naive/matrices.cu::half_weight_grad": ("mm",),
    "naive/matrices.cu::brain_linear_gelu": ("mm", "add", "gelu"),
    "naive/products.cu::matvec": ("matmul",),
    "naive/products.cu::batched_matmul": ("matmul",),
    "naive/products.cu::linear_relu": ("matmul", "add", "relu"),
    "naive/rows.cu::row_argmax": ("argmax",),
    "naive/rows.cu::log_softmax": ("log_softmax",),
    "naive/rows.cu::masked_softmax": ("equal", "where", "softmax"),
    "naive/rows.cu::residual_rmsnorm": ("add", "rms_norm"),
    "naive/rows.cu::instance_norm": ("layer_norm",),
    "naive/scans.cu::exclusive_scan": ("cumsum", "subtract"),
    "naive/scatter.cu::bag_mean": ("index", "sum", "divide"),
    "large/cross_entropy.cu::cross_entropy": ("amax", "subtract", "exp", "sum", "log", "take_along_dim"),
    "large/gelu.cu::gelu": ("gelu",),
    "large/histogram.cu::histogram": ("ones_like", "zeros", "index_add"),
    "large/layernorm.cu::layernorm": ("layer_norm",),
    "large/scatter_add.cu::scatter_add": ("zeros", "index_add", "add"),
    "large/softmax.cu::softmax": ("softmax",),
    "large/stencil.cu::jacobi": ("add", "multiply", "subtract", "copy_"),
    "large/upsample.cu::upsample_bilinear": (
        "arange", "add", "divide", "subtract", "relu", "floor", "index", "multiply", "clamp",
    ),
}  # fmt: skip
"""The functions of torch that each reference becomes, in order."""

REFUSED = {
    "naive/attention.cu::causal_attention": "it is attention",
    "naive/products.cu::conv_line": "it is a convolution",
    "large/conv2d.cu::conv2d": "it is a convolution",
    "naive/matrices.cu::byte_linear": "no matrices of integers",
    "naive/rows.cu::row_parity": "uint32",
    "naive/scans.cu::running_average": "`recur`",
    "large/spmv.cu::spmv": "`segment`",
}
PRODUCTS = {
    "large/matmul.cu::matmul": True,
    "naive/matrices.cu::half_matmul": True,
    "naive/products.cu::matvec": True,
    "naive/products.cu::linear_relu": "more than one matrix product",
    "large/attention.cu::attention": "more than one matrix product",
    "large/softmax.cu::softmax": "no matrix product",
}


def _loaded(name: str) -> tuple[Contract, Path, Size]:
    """A contract of the benchmarks, its folder, and its smallest listed size with more than two of everything."""
    file, _, kernel = name.partition("::")
    path = ROOT / "benchmarks" / file
    contract = contract_for(next(one for one in load_kernels(path) if one.name == kernel))
    listed = sorted(
        (dict(size) for size in contract.sizes if all(size.values())), key=lambda size: math.prod(size.values())
    )
    return contract, path.parent, next((size for size in listed if min(size.values()) > 2), listed[0])


def _function(source: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"torch": torch, "math": math}
    exec(source, space)
    return space["computation"]  # type: ignore[no-any-return]


def _tensor(array: np.ndarray[Any, Any]) -> Any:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(np.ascontiguousarray(array).copy())


def _arguments(contract: Contract, size: Size, drawn: Mapping[str, Any]) -> dict[str, Any]:
    scalars = scalar_values(contract, size)
    given = {
        one.name: _tensor(drawn[one.name]) if one.shape is not None else scalars[one.name] for one in contract.args
    }
    return {spelled(name): value for name, value in given.items()}


@pytest.mark.parametrize("name", CALLS)
def test_a_reference_becomes_a_function_of_torch_with_its_values(name: str) -> None:
    contract, folder, size = _loaded(name)
    text = torch_text(trace(contract, folder), contract, size)
    assert text.calls == CALLS[name]
    drawn = draw(contract, size, (7,), NORMAL, folder)
    made = _function(text.source)(**_arguments(contract, size, drawn))
    reference = python_reference(contract, folder)
    assert reference is not None
    wanted = reference(drawn, size)
    dtypes = {one.name: one.dtype for one in contract.args}
    assert len(made) == len(wanted)
    for (output, want), result in zip(wanted.items(), made, strict=True):
        assert str(result.dtype) == f"torch.{dtypes[output]}"
        assert tuple(result.shape) == want.shape
        narrow = numpy_dtype(dtypes[output]).itemsize < 4
        scale = np.abs(want).max()
        np.testing.assert_allclose(
            result.double().numpy(), want, rtol=4e-3 if narrow else 2e-5, atol=(1e-3 if narrow else 2e-6) * scale
        )


@pytest.mark.parametrize("name", REFUSED)
def test_a_reference_without_an_exact_counterpart_is_refused_by_name(name: str) -> None:
    contract, folder, size = _loaded(name)
    with pytest.raises(NotCarried, match=REFUSED[name]):
        torch_text(trace(contract, folder), contract, size)


@pytest.mark.parametrize("name", PRODUCTS)
def test_only_one_matrix_product_of_two_arguments_is_of_cublas(name: str) -> None:
    contract, folder, size = _loaded(name)
    expected = PRODUCTS[name]
    if expected is True:
        assert product_text(trace(contract, folder), contract, size).calls == ("matmul",)
        return
    with pytest.raises(NotCarried, match=str(expected)):
        product_text(trace(contract, folder), contract, size)


def test_an_argument_named_like_the_module_is_refused(make: Callable[..., Any]) -> None:
    kernel, contract = make({"torch": "in float32[rows, cols]", "y": "out float32[rows, cols]"}, "torch + 1")
    with pytest.raises(NotCarried, match="the name torch"):
        torch_text(trace(contract, Path(kernel.unit.path).parent), contract, contract.sizes[0])


@pytest.mark.parametrize(
    ("dtype", "reference"),
    [
        ("float32", "(-2.0) ** np.floor(x)"),
        ("float64", "np.where(x > 0, 0.1, 0.3)"),
        ("float32", "np.where(a > 1, x, -x)"),
    ],
)
def test_numbers_have_the_sign_and_the_type_that_they_have_in_numpy(
    make: Callable[..., Any], dtype: str, reference: str
) -> None:
    arguments = {"x": f"in {dtype}[rows, cols]", "a": "float32 = 1.5", "y": f"out {dtype}[rows, cols]"}
    kernel, contract = make(arguments, reference)
    size, folder = contract.sizes[0], Path(kernel.unit.path).parent
    drawn = draw(contract, size, (7,), NORMAL, folder)
    (made,) = _function(torch_text(trace(contract, folder), contract, size).source)(**_arguments(contract, size, drawn))
    python = python_reference(contract, folder)
    assert python is not None
    assert str(made.dtype) == f"torch.{dtype}"
    np.testing.assert_allclose(made.double().numpy(), python(drawn, size)["y"], rtol=1e-6 if dtype == "float32" else 0)
