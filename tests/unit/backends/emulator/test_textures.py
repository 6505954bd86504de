"""Textures and surfaces against a model, texel by texel, by the formulas of the CUDA C++ Programming Guide."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult, ScalarArgument, UnsupportedInstruction
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.launch_objects import Texture
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import Compiled, CompileOptions, LaunchShape, TextureView
from kernelmate.source import find_kernels, text_unit

FETCH = """
__global__ void k(cudaTextureObject_t image, const float* at, {type}* out, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  const float* p = at + 3 * i;
  if (i < n) out[i] = {call};
}}
"""
KINDS = {"float": "float32", "uchar4": "uint8", "short2": "int16", "unsigned": "uint32", "float2": "float16"}


@pytest.fixture(scope="module")
def code() -> Callable[[str], Compiled]:
    def make(text: str) -> Compiled:
        kernel = find_kernels(text_unit(text, "k.cu"))[0]
        done = compile_kernel(kernel, (), instance=None, target=find_target(None), options=CompileOptions())
        assert done.ok, done.diagnostics
        return done

    return make


def launched(compiled: Compiled, *arguments: Any, threads: int = 64, blocks: int = 1) -> RunResult:
    shape = LaunchShape((blocks, 1, 1), (threads, 1, 1))
    return EmulatorBackend().load(compiled, find_target(None)).run(Run(shape, arguments, count=True))


def shown(array: np.ndarray, **view: Any) -> tuple[ArrayArgument, ScalarArgument]:
    view.setdefault("addresses", ("clamp",) * (array.ndim - view.get("channels", 0) - view.get("layered", 0)))
    texture = Texture("image", array.dtype.name, array.shape, TextureView(**view))
    written = view.get("surface", False)
    return ArrayArgument("image", array, written=written, passed=False), ScalarArgument(
        "image", np.uint64(0), texture=texture
    )


class Model:
    """A texture by the formulas of the guide, for one fetch at a time."""

    def __init__(self, array: np.ndarray, **view: Any) -> None:
        self.array, self.view = array, view
        self.texels = array if view.get("channels") else array[..., None]

    def texel(self, index: tuple[int, ...]) -> np.ndarray:
        """`index` in the order of the shape."""
        at = []
        for one, extent, mode in zip(index, self.texels.shape, self.view["addresses"], strict=False):
            if mode == "border" and not 0 <= one < extent:
                return np.zeros(self.texels.shape[-1])
            if mode == "wrap":
                one %= extent
            if mode == "mirror" and (one // extent) % 2:
                one = extent - 1 - one % extent
            elif mode == "mirror":
                one %= extent
            at.append(min(max(one, 0), extent - 1))
        raw = self.texels[tuple(at)]
        return np.maximum(raw / np.iinfo(raw.dtype).max, -1) if self.view.get("fraction") else raw.astype(np.float64)

    def fetch(self, coordinates: tuple[float, ...]) -> np.ndarray:
        """`coordinates` in the order of the shape."""
        extents = self.texels.shape[:-1]
        scale = extents if self.view.get("normalized") else (1,) * len(extents)
        x = [float(c) * s for c, s in zip(coordinates, scale, strict=True)]
        if not self.view.get("linear"):
            return self.texel(tuple(math.floor(one) for one in x))
        first = [math.floor(one - 0.5) for one in x]
        weights = [round((one - 0.5 - at) * 256) / 256 for one, at in zip(x, first, strict=True)]
        total = np.zeros(self.texels.shape[-1])
        for corner in itertools.product((0, 1), repeat=len(x)):
            weight = math.prod(w if side else 1 - w for w, side in zip(weights, corner, strict=True))
            total = total + weight * self.texel(tuple(a + side for a, side in zip(first, corner, strict=True)))
        return total


SHAPES = {1: (13,), 2: (5, 7), 3: (3, 4, 6)}


@pytest.mark.instruction("tex")
@pytest.mark.parametrize("mode", ["clamp", "border", "wrap", "mirror"])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_floats_are_fetched_as_the_guide_defines(code: Any, rank: int, linear: bool, mode: str) -> None:
    random = np.random.default_rng(rank)
    array = random.normal(size=SHAPES[rank]).astype(np.float32)
    normalized = mode in ("wrap", "mirror")
    view = {"addresses": (mode,) * rank, "linear": linear, "normalized": normalized}
    at = random.uniform(-1.5, 2.5, (200, 3)) if normalized else random.uniform(-4, 16, (200, 3))
    at = at.astype(np.float32)
    call = f"tex{rank}D<float>(image, {', '.join(f'p[{axis}]' for axis in range(rank))})"
    done = launched(
        code(FETCH.format(type="float", call=call)),
        *_passed(shown(array, **view), at, np.zeros(200, np.float32)),
        blocks=4,
    )
    assert not done.findings
    model = Model(array, **view)
    wanted = [model.fetch(tuple(one[:rank][::-1]))[0] for one in at]
    assert np.allclose(done.arrays["out"], wanted, rtol=1e-6, atol=1e-6)


def _passed(pair: tuple[ArrayArgument, ScalarArgument], at: np.ndarray, out: np.ndarray) -> tuple[Any, ...]:
    return (
        *pair, ArrayArgument("at", at, written=False), ArrayArgument("out", out), ScalarArgument("n", np.int32(len(out)))
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "fraction"),
    [("uchar4", False), ("short2", False), ("unsigned", False), ("float2", False), ("uchar4", True), ("short2", True)],
)
def test_channels_of_every_width_are_converted(code: Any, kind: str, fraction: bool) -> None:
    channels = int(kind[-1]) if kind[-1].isdigit() else 1
    dtype = np.dtype(KINDS[kind])
    random = np.random.default_rng(3)
    array = random.integers(-300, 300, (6, 5, channels)).astype(dtype)
    if dtype.kind == "i":
        array[0, 0] = np.iinfo(dtype).min
    view = {"channels": True, "fraction": fraction, "linear": fraction, "addresses": ("clamp", "clamp")}
    result = (f"float{channels}" if channels > 1 else "float") if fraction or dtype.kind == "f" else kind
    at = random.uniform(0, 6, (64, 3)).astype(np.float32)
    at[0] = 0.5
    out = np.zeros((64, channels), np.float32 if result.startswith("float") else dtype)
    call = f"tex2D<{result}>(image, p[0], p[1])"
    done = launched(code(FETCH.format(type=result, call=call)), *_passed(shown(array, **view), at, out))
    assert not done.findings
    model = Model(array, **view)
    wanted = np.array([model.fetch((y, x)) for x, y, _ in at])
    assert np.allclose(done.arrays["out"], wanted.astype(out.dtype), rtol=1e-6, atol=1e-6)


def test_each_coordinate_has_its_own_address_mode(code: Any) -> None:
    array = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    view = {"addresses": ("border", "wrap"), "normalized": True}
    at = np.array([[1.2, 0.2, 0], [0.2, 1.2, 0]], np.float32)
    done = launched(
        code(FETCH.format(type="float", call="tex2D<float>(image, p[0], p[1])")),
        *_passed(shown(array, **view), at, np.ones(2, np.float32)),
    )
    assert done.arrays["out"].tolist() == [1.0, 0.0]


def test_an_infinite_texel_without_weight_does_not_count(code: Any) -> None:
    array = np.array([1, np.inf, 3], np.float32)
    at = np.array([[0.5, 0, 0], [1.0, 0, 0], [2.5, 0, 0]], np.float32)
    done = launched(
        code(FETCH.format(type="float", call="tex1D<float>(image, p[0])")),
        *_passed(shown(array, linear=True), at, np.zeros(3, np.float32)),
    )
    assert done.arrays["out"].tolist() == [1.0, np.inf, 3.0]


def test_linear_memory_is_fetched_by_number_and_is_zero_outside(code: Any) -> None:
    array = np.arange(1, 21, dtype=np.float32)
    at = np.zeros((64, 3), np.float32)
    at[:, 0] = np.arange(64) - 10
    call = "tex1Dfetch<float>(image, (int)p[0])"
    done = launched(
        code(FETCH.format(type="float", call=call)), *_passed(shown(array, buffer=True), at, np.ones(64, np.float32))
    )
    assert not done.findings
    assert done.arrays["out"].tolist() == [0.0] * 10 + array.tolist() + [0.0] * 34


def test_layers_are_chosen_and_clamped(code: Any) -> None:
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    at = np.array([[1, 1, 0], [1, 1, 1], [1, 1, 8]], np.float32)
    call = "tex2DLayered<float>(image, p[0], p[1], (int)p[2])"
    done = launched(
        code(FETCH.format(type="float", call=call)), *_passed(shown(array, layered=True), at, np.zeros(3, np.float32))
    )
    assert done.arrays["out"].tolist() == [5.0, 17.0, 17.0]


@pytest.mark.instruction("tld4")
def test_four_texels_are_gathered_counter_clockwise_from_the_lower_left(code: Any) -> None:
    array = np.arange(20, dtype=np.float32).reshape(4, 5)
    at = np.array([[2, 2, 0]], np.float32)
    call = "tex2Dgather<float4>(image, p[0], p[1])"
    done = launched(
        code(FETCH.format(type="float4", call=call)), *_passed(shown(array), at, np.zeros((1, 4), np.float32))
    )  # fmt: skip
    assert done.arrays["out"].tolist() == [[11.0, 12.0, 7.0, 6.0]]


def test_coordinates_that_are_not_finite_are_no_error(code: Any) -> None:
    array = np.arange(4, dtype=np.float32)
    at = np.array([[np.nan, 0, 0], [np.inf, 0, 0], [-np.inf, 0, 0], [3e38, 0, 0]], np.float32)
    done = launched(
        code(FETCH.format(type="float", call="tex1D<float>(image, p[0])")),
        *_passed(shown(array), at, np.ones(4, np.float32)),
    )
    assert not done.findings
    assert done.arrays["out"].tolist() == [0.0, 3.0, 0.0, 3.0]


@pytest.mark.parametrize(
    ("call", "view", "says"),
    [
        ("tex1D<float>(image, p[0])", {}, "with 1 coordinates; it has 2"),
        ("tex2D<int>(image, p[0], p[1])", {}, "of float32 as .u32"),
        ("tex2D<float>(image + 5, p[0], p[1])", {}, "no texture or surface object has"),
        ("tex2D<float>(image, p[0], p[1])", {"surface": True}, "by the handle of a surface object"),
    ],
)
def test_a_fetch_that_does_not_fit_is_reported(code: Any, call: str, view: dict[str, Any], says: str) -> None:
    array = np.zeros((4, 4), np.float32)
    done = launched(
        code(FETCH.format(type="float", call=call)), *_passed(shown(array, **view), np.zeros((8, 3), np.float32), np.zeros(8, np.float32))
    )  # fmt: skip
    (finding,) = done.findings
    assert finding.code == "illegal-address"
    assert says in finding.message.replace(".s32", ".u32")
    assert finding.line == 5


COPY = """
__global__ void k(cudaSurfaceObject_t image, const {type}* in, {type}* out, const int* at, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int x = at[2 * i] * (int)sizeof({type}), y = at[2 * i + 1];
  out[i] = surf2Dread<{type}>(image, x, y, cudaBoundaryMode{mode});
  surf2Dwrite<{type}>(in[i], image, x, y, cudaBoundaryMode{mode});
}}
"""


def _surface(code: Any, kind: str, mode: str, at: np.ndarray, array: np.ndarray, values: np.ndarray) -> RunResult:
    numbers = np.ascontiguousarray(at, np.int32)
    return launched(
        code(COPY.format(type=kind, mode=mode)), *shown(array, surface=True, channels=array.ndim > 2),
        ArrayArgument("in", values, written=False), ArrayArgument("out", np.full_like(values, 77)),
        ArrayArgument("at", numbers, written=False), ScalarArgument("n", np.int32(len(values))),
    )  # fmt: skip


@pytest.mark.instruction("suld", "sust")
@pytest.mark.parametrize(
    ("kind", "channels", "dtype"), [("float", 0, "float32"), ("float4", 4, "float32"), ("uchar2", 2, "uint8")]
)
def test_surfaces_are_read_and_written_by_bytes(code: Any, kind: str, channels: int, dtype: str) -> None:
    shape = (4, 6, *([channels] if channels else []))
    array = np.arange(math.prod(shape)).astype(dtype).reshape(shape)
    values = (100 + np.arange(math.prod(shape))).astype(dtype).reshape(24, *shape[2:])
    at = np.stack([np.arange(24) % 6, np.arange(24) // 6], axis=1)
    done = _surface(code, kind, "Trap", at, array, values)
    assert not done.findings
    assert done.arrays["out"].tolist() == array.reshape(values.shape).tolist()
    assert done.arrays["image"].tolist() == values.reshape(shape).tolist()


def test_accesses_outside_of_a_surface_follow_the_boundary_mode(code: Any) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    at, values = np.array([[-1, 0], [3, 1], [1, 1]]), np.array([50.0, 60.0, 70.0], np.float32)
    zero = _surface(code, "float", "Zero", at, array, values)
    assert zero.arrays["out"].tolist() == [0.0, 0.0, 4.0]
    assert zero.arrays["image"].tolist() == [[0.0, 1.0, 2.0], [3.0, 70.0, 5.0]]
    clamp = _surface(code, "float", "Clamp", at, array, values)
    assert clamp.arrays["out"].tolist() == [0.0, 5.0, 4.0]
    assert clamp.arrays["image"].tolist() == [[50.0, 1.0, 2.0], [3.0, 70.0, 60.0]]
    trap = _surface(code, "float", "Trap", at, array, values)
    assert [one.code for one in trap.findings] == ["out-of-bounds-read", "out-of-bounds-write"]
    assert "at (-4, 0), whose rows have 12 bytes" in trap.findings[0].message


def test_an_x_that_is_not_in_bytes_is_reported(code: Any) -> None:
    text = COPY.format(type="float", mode="Trap").replace("* (int)sizeof(float)", "")
    array, values = np.zeros((2, 16), np.float32), np.zeros(4, np.float32)
    at = np.array([[0, 0], [1, 0], [2, 0], [4, 0]], np.int32)
    done = launched(
        code(text), *shown(array, surface=True), ArrayArgument("in", values, written=False), ArrayArgument("out", values.copy()),
        ArrayArgument("at", at, written=False), ScalarArgument("n", np.int32(4)),
    )  # fmt: skip
    assert done.findings[0].code == "misaligned-access"
    assert "x = 1, which counts bytes" in done.findings[0].message


def test_two_threads_that_write_one_element_of_a_surface_race(code: Any) -> None:
    array, values = np.zeros((2, 3), np.float32), np.arange(4, dtype=np.float32)
    done = _surface(code, "float", "Trap", np.array([[0, 0], [1, 0], [1, 0], [2, 0]]), array, values)
    assert "global-race" in [one.code for one in done.findings]


@pytest.mark.parametrize("call", ["texCubemap<float>(image, p[0], p[1], p[2])", "tex1DLayered<float>(image, p[0], 1)"])
def test_other_geometries_are_refused(code: Any, call: str) -> None:
    compiled = code(FETCH.format(type="float", call=call))
    with pytest.raises(UnsupportedInstruction) as caught:
        EmulatorBackend().load(compiled, find_target(None))
    assert "textures of one to three dimensions and layers of two" in caught.value.finding.message
    assert caught.value.finding.line == 5


def test_a_fetch_of_what_the_same_launch_writes_is_reported(code: Any) -> None:
    text = """
    __global__ void k(cudaTextureObject_t image, cudaSurfaceObject_t target) {
      float seen = tex2D<float>(image, threadIdx.x + 0.5f, 0.5f);
      surf2Dwrite(seen + 1, target, 4 * threadIdx.x, 0);
    }
    """
    array, showing = shown(np.zeros((2, 64), np.float32))
    target = Texture("image", "float32", (2, 64), TextureView(surface=True))
    done = launched(
        code(text), replace(array, written=True), showing, ScalarArgument("target", np.uint64(0), texture=target)
    )
    assert [one.code for one in done.findings] == ["global-race"]
