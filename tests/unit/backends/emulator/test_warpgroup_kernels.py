"""Kernels with `wgmma`: as CUDA engineers write them, and as Triton compiles `tl.dot` for sm_90."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.config import load_settings
from kernelmate.records import Compiled, FindingCode, LaunchShape, Target
from kernelmate.session import Session
from kernelmate.source import load_kernels

KERNELS = sorted((Path(__file__).resolve().parents[3] / "data" / "warpgroups").glob("*.cu"))


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_a_kernel_as_engineers_write_it_is_right_and_has_no_finding(path: Path) -> None:
    with Session(load_settings(seed=5, backend="emulator", target="sm_90a")) as session:
        (verdict,) = session.bench(load_kernels(path)[0])
    assert verdict.correct is True
    assert verdict.findings == ()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    while (!ptx::mbarrier_try_wait_parity(&full, step % 2)) {\n    }\n", "", "which the bulk copy of thread 0 has written"),
        ("\\n\\twgmma.wait_group.sync.aligned 0;", "", "writes left (byte 0 of shared memory), which wgmma.mma_async at line 49 may still read"),
    ],
    ids=["multiplied before the copies end", "copied before the products end"],
)  # fmt: skip
def test_tiles_of_tensor_maps_that_are_not_waited_for_are_found(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = (KERNELS[0].parent / "wgmma_tensor_maps.cu").read_text()
    assert old in text
    (tmp_path / "kernel.cu").write_text(text.replace(old, new))
    with Session(load_settings(seed=5, backend="emulator", target="sm_90a")) as session:
        (verdict,) = session.bench(load_kernels(tmp_path / "kernel.cu")[0])
    assert FindingCode.SHARED_RACE in {finding.code for finding in verdict.findings if finding.severity == "error"}
    assert any(said in finding.message for finding in verdict.findings)


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
    return pytest.importorskip("triton", reason="triton is not installed: pip install 'kernelmate[triton]'")


MATMUL = """
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TWICE: tl.constexpr, ACC: tl.constexpr):
    rows, columns = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=ACC)
    for start in range(0, k, BK):
        at = start + inner
        x = tl.load(a + rows[:, None] * k + at[None, :], mask=(rows[:, None] < m) & (at[None, :] < k), other=0.0)
        y = tl.load(b + at[:, None] * n + columns[None, :], mask=(at[:, None] < k) & (columns[None, :] < n), other=0.0)
        if TWICE:
            x = (x + x).to(x.dtype)
        total = tl.dot(x, y, total, out_dtype=ACC)
    tl.store(c + rows[:, None] * n + columns[None, :], total, mask=(rows[:, None] < m) & (columns[None, :] < n))
"""
TYPES = {
    "fp16": (np.float16, "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"),
    "bf16": (ml_dtypes.bfloat16, "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"),
    "fp32": (np.float32, "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32"),
    "fp8e4nv": (ml_dtypes.float8_e4m3fn, "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3"),
    "i8": (np.int8, "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8"),
}
M, N, K = 80, 96, 160


def compiled(triton: Any, folder: Path, kind: str, twice: bool) -> Any:
    """The function for sm_90, with pointers and sizes that are multiples of 16, as at a launch."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    path = folder / "matmul.py"
    path.write_text(MATMUL)
    scope: dict[str, Any] = {"__name__": "matmul", "__file__": str(path)}
    exec(compile(MATMUL, str(path), "exec"), scope)
    tl = triton.language
    integers = kind == "i8"
    constants = {"BM": 64, "BN": 64, "BK": 64, "TWICE": twice, "ACC": tl.int32 if integers else tl.float32}
    types = {"a": f"*{kind}", "b": f"*{kind}", "c": "*i32" if integers else "*fp32", "m": "i32", "n": "i32", "k": "i32"}
    attributes = {(place,): [["tt.divisibility", 16]] for place in range(6)}
    source = ASTSource(scope["matmul"], types | dict.fromkeys(constants, "constexpr"), constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 3})


@pytest.mark.skipif(os.name != "posix", reason="Triton has wheels for Linux alone")
@pytest.mark.parametrize(
    ("kind", "twice"),
    [(kind, twice) for kind in TYPES for twice in (False, True) if not (twice and kind == "fp8e4nv")],
    ids=lambda value: {True: "registers", False: "shared"}.get(value, value),
)
def test_tritons_product_for_sm_90_is_exact_and_has_no_finding(
    triton: Any, tmp_path: Path, rng: np.random.Generator, gpu: Target, kind: str, twice: bool
) -> None:
    made = compiled(triton, tmp_path, kind, twice)
    ptx = made.asm["ptx"]
    dtype, instruction = TYPES[kind]
    assert instruction in ptx
    a, b = (rng.integers(-8, 9, shape).astype(dtype) for shape in ((M, K), (K, N)))
    c = np.zeros((M, N), np.int32 if kind == "i8" else np.float32)
    scratch = np.zeros(1, np.uint64)
    arguments = (
        *(ArrayArgument(name, array, written=name == "c") for name, array in (("a", a), ("b", b), ("c", c))),
        *(ScalarArgument(name, np.int32(size)) for name, size in (("m", M), ("n", N), ("k", K))),
        *(ArrayArgument(name, scratch) for name in ("global", "profile")),
    )
    code = Compiled("matmul", None, made.metadata.name, "sm_90a", "Triton", True, (), ptx=ptx)
    shape = LaunchShape((-(-M // 64), -(-N // 64), 1), (128, 1, 1), made.metadata.shared)
    done = EmulatorBackend().load(code, gpu).run(Run(shape, arguments))
    assert done.findings == ()
    assert np.array_equal(done.arrays["c"], (1 + twice) * (a.astype(np.float64) @ b.astype(np.float64)))
