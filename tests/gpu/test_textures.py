"""Textures and surfaces on a GPU give the same results as in the emulator."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.launch_objects import Texture
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.config import load_settings
from kernelmate.records import CompileOptions, LaunchShape, TextureView
from kernelmate.session import Session
from kernelmate.source import find_kernels, load_kernel, text_unit

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]

FETCH = """
__global__ void k(cudaTextureObject_t image, const float* at, {type}* out, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float* p = at + 3 * i;
  if (i < n) out[i] = {call};
}}
"""
SHAPES = {1: (13,), 2: (5, 7), 3: (3, 4, 6)}
COPY = """\
// /// kernelmate
// sizes = [{ h = 64, w = 80 }, { h = 7, w = 5 }]
// grid = ["cdiv(w, block_x)", "cdiv(h, block_y)"]
// block = [16, 8]
// reference = "2 * image"
// [args]
// image = "in float32[h, w] texture ~ normal"
// out = "out float32[h, w] surface"
// w = "int32"
// h = "int32"
// ///
__global__ void twice(cudaTextureObject_t image, cudaSurfaceObject_t out, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) surf2Dwrite(2 * tex2D<float>(image, x + 0.5f, y + 0.5f), out, 4 * x, y);
}
"""


def both(
    backend, text: str, array: np.ndarray, view: TextureView, at: np.ndarray, out: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    compiled = compile_kernel(
        find_kernels(text_unit(text, "k.cu"))[0], (), instance=None, target=find_target(None), options=CompileOptions()
    )
    assert compiled.ok, compiled.diagnostics
    arguments = (
        ArrayArgument("image", array, written=False, passed=False),
        ScalarArgument("image", np.uint64(0), texture=Texture("image", array.dtype.name, array.shape, view)),
        ArrayArgument("at", at, written=False), ArrayArgument("out", out), ScalarArgument("n", np.int32(len(out))),
    )  # fmt: skip
    run = Run(LaunchShape((-(-len(out) // 64), 1, 1), (64, 1, 1)), arguments)
    there, here = (one.load(compiled, find_target(None)).run(run) for one in (backend, EmulatorBackend()))
    assert not there.findings
    assert not here.findings
    return there.arrays["out"], here.arrays["out"]


@pytest.mark.parametrize("mode", ["clamp", "border", "wrap", "mirror"])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_emulator_fetches_as_the_gpu_does(backend, rank: int, linear: bool, mode: str) -> None:
    """In two and three dimensions an H200 rounds the products of weights, too: each differs by up to 1/512 and 0.003."""
    random = np.random.default_rng(rank)
    array = random.normal(size=SHAPES[rank]).astype(np.float32)
    normalized = mode in ("wrap", "mirror")
    view = TextureView(addresses=(mode,) * rank, linear=linear, normalized=normalized)
    at = random.uniform(-1.5, 2.5, (500, 3)) if normalized else random.uniform(-4, 16, (500, 3))
    call = f"tex{rank}D<float>(image, {', '.join(f'p[{axis}]' for axis in range(rank))})"
    text = FETCH.format(type="float", call=call)
    there, here = both(backend, text, array, view, at.astype(np.float32), np.zeros(500, np.float32))
    if not linear or rank == 1:
        # A coordinate next to the middle between two weights may be rounded to either.
        assert np.mean(np.isclose(there, here, rtol=1e-5, atol=1e-5)) > 0.97
    assert np.allclose(there, here, rtol=0, atol=3 / 256 * np.ptp(array) if linear else 0)


@pytest.mark.parametrize(
    ("dtype", "channels", "fraction", "result"),
    [
        ("uint8", 4, False, "uchar4"),
        ("int16", 2, True, "float2"),
        ("uint8", 4, True, "float4"),
        ("float16", 2, False, "float2"),
    ],
)
def test_elements_are_converted_as_on_the_gpu(backend, dtype: str, channels: int, fraction: bool, result: str) -> None:
    array = np.random.default_rng(3).integers(-300, 300, (6, 5, channels)).astype(dtype)
    view = TextureView(channels=True, fraction=fraction, addresses=("clamp", "clamp"))
    at = np.random.default_rng(4).uniform(0, 6, (64, 3)).astype(np.float32)
    out = np.zeros((64, channels), np.float32 if result.startswith("float") else dtype)
    there, here = both(
        backend, FETCH.format(type=result, call=f"tex2D<{result}>(image, p[0], p[1])"), array, view, at, out
    )
    assert np.allclose(there, here, rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "type_", "view"),
    [
        ("tex1Dfetch<float>(image, (int)p[0])", "float", TextureView(buffer=True)),
        (
            "tex2DLayered<float>(image, p[0], p[1], (int)p[2])",
            "float",
            TextureView(layered=True, addresses=("clamp", "clamp")),
        ),
        ("tex2Dgather<float4>(image, p[0], p[1])", "float4", TextureView(addresses=("clamp", "clamp"))),
    ],
)
def test_other_fetches_are_those_of_the_gpu(backend, call: str, type_: str, view: TextureView) -> None:
    shape = (30,) if view.buffer else (2, 5, 7) if view.layered else (5, 7)
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    at = np.random.default_rng(5).uniform(-3, 40, (64, 3)).astype(np.float32)
    out = np.zeros((64, 4) if type_ == "float4" else 64, np.float32)
    there, here = both(backend, FETCH.format(type=type_, call=call), array, view, at, out)
    assert there.tolist() == here.tolist()


def test_a_kernel_with_a_texture_and_a_surface_is_judged_and_timed(tmp_path) -> None:
    (tmp_path / "twice.cu").write_text(COPY)
    with Session(load_settings(seed=5, backend="cuda", timeout_s=300)) as session:
        (verdict,) = session.bench(load_kernel(str(tmp_path / "twice.cu")))
    assert verdict.correct is True
    assert not [finding for finding in verdict.findings if finding.severity == "error"]
    assert verdict.timing is not None
    assert verdict.timing.kind == "measured"
