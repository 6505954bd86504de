"""Products on tensor cores: right in every layout and type, whole rows and ragged ones, with conflict-free fragments and no spills."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.compiler.listing import read_listing
from kernelmate.records import CompileOptions, Contract, Kernel
from kernelmate.session import Session
from kernelmate.source import argument_shapes, launch_shape, numpy_dtype
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.kernel_text import WrittenKernel
from kernelmate.synthesis.placing import placed as place
from kernelmate.synthesis.schedules import contraction
from kernelmate.synthesis.tensor_products import TILES, ranked
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

LEFT, RIGHT = ("M, K", "K, M"), ("K, N", "N, K")
SIZES = "{ M = 40, N = 48, K = 72 }, { M = 37, N = 29, K = 53 }, { M = 1, N = 1, K = 1 }"
WHOLE, RAGGED, SINGLE = ({"M": 40, "N": 48, "K": 72}, {"M": 37, "N": 29, "K": 53}, {"M": 1, "N": 1, "K": 1})
BYTES = "(a.astype(np.int32) @ b.T.astype(np.int32)) * scale"


def product(make: Any, left: str = "M, K", right: str = "K, N", dtype: str = "float16", *, reference: str = "", **beside: str) -> tuple[Kernel, Contract]:  # fmt: skip
    """A product of matrices in some layout, without a body."""
    texts = [f"{name}.T" if shape in ("K, M", "N, K") else name for name, shape in (("a", left), ("b", right))]
    args = {name: f"in {dtype}[{shape}] ~ normal" for name, shape in (("a", left), ("b", right))}
    sizes = {"M": "int32", "N": "int32", "K": "int32"}
    return make(
        {**args, **beside, "y": "out float32[M, N]", **sizes},
        reference or f"{texts[0]}.astype(np.float32) @ {texts[1]}.astype(np.float32)", sizes=SIZES, grid="cdiv(M * N, 128)",
        above="#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n",
    )  # fmt: skip


def texts_of(kernel: Kernel, contract: Contract, folder: Path, kind: str = "tensor-") -> dict[str, WrittenKernel]:
    """The texts of one kind, those for tensor cores, by their schedules."""
    found = kernels_for(trace(contract, folder), kernel, contract)
    return {one.schedule: one for one in found if one.schedule.startswith(kind)}


def result(kernel: Kernel, contract: Contract, written: WrittenKernel, size: dict[str, int], given: dict[str, Any], misalign: int = 0) -> Any:  # fmt: skip
    """Returns the contents of `y` after a launch of a text; a launch with a finding fails the test."""
    placed, launched = place(kernel, contract, written)
    target = find_target("H100 SXM")
    compiled = compile_kernel(placed, (), instance=None, target=target, options=CompileOptions())
    assert compiled.ok, compiled.diagnostics
    arguments: list[Any] = []
    for one in contract.args:
        if one.shape is None:
            arguments.append(ScalarArgument(one.name, np.int32(size[one.name])))
        else:
            shape = argument_shapes(contract, size)[one.name]
            array = given.get(one.name, np.full(shape, 7, numpy_dtype(one.dtype)))
            arguments.append(ArrayArgument(one.name, array, misalign, one.direction == "out"))
    done = EmulatorBackend().load(compiled, target).run(Run(launch_shape(launched, size), tuple(arguments)))
    assert [one.message for one in done.findings] == []
    return done.arrays["y"]


def drawn(contract: Contract, size: dict[str, int]) -> dict[str, Any]:
    """Small whole numbers, whose products every type here adds up exactly."""
    rng = np.random.default_rng(5)
    shapes = argument_shapes(contract, size)
    ins = [one for one in contract.args if one.direction == "in" and one.shape is not None]
    return {one.name: rng.integers(-8, 9, shapes[one.name]).astype(numpy_dtype(one.dtype)) for one in ins}


@pytest.fixture(autouse=True)
def _numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches this small are done before native code would be made."""
    monkeypatch.setenv("KERNELMATE_EMULATOR_JIT", "never")


@pytest.mark.parametrize(("left", "right"), list(itertools.product(LEFT, RIGHT)))
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_products_are_exact_in_every_layout(left: str, right: str, dtype: str, make: Any, tmp_path: Path) -> None:
    kernel, contract = product(make, left, right, dtype)
    written = next(iter(texts_of(kernel, contract, tmp_path).values()))
    for size in (WHOLE, RAGGED):
        given = drawn(contract, size)
        a, b = (given[name].astype(np.int64) for name in ("a", "b"))
        want = (a if left == "M, K" else a.T) @ (b if right == "K, N" else b.T)
        assert np.array_equal(result(kernel, contract, written, size, given), want)


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.name)
def test_every_tile_is_exact(tile: Any, make: Any, tmp_path: Path) -> None:
    kernel, contract = product(make, "M, K", "K, N")
    written = texts_of(kernel, contract, tmp_path)[f"tensor-{tile.name}"]
    given = drawn(contract, RAGGED)
    want = given["a"].astype(np.int64) @ given["b"].astype(np.int64)
    assert np.array_equal(result(kernel, contract, written, RAGGED, given), want)


def test_moved_pointers_and_single_elements_are_exact(make: Any, tmp_path: Path) -> None:
    kernel, contract = product(make, "K, M", "N, K")
    written = next(iter(texts_of(kernel, contract, tmp_path).values()))
    for size, misalign in ((WHOLE, 4), (SINGLE, 0)):
        given = drawn(contract, size)
        want = given["a"].astype(np.int64).T @ given["b"].astype(np.int64).T
        assert np.array_equal(result(kernel, contract, written, size, given, misalign), want)


def test_bytes_are_added_up_in_int_and_scaled(make: Any, tmp_path: Path) -> None:
    kernel, contract = product(make, "M, K", "N, K", "int8", reference=BYTES, scale="in float32[N] ~ normal")
    written = next(iter(texts_of(kernel, contract, tmp_path).values()))
    for size in (WHOLE, RAGGED):
        given = drawn(contract, size) | {"scale": np.linspace(0.5, 1, size["N"], dtype=np.float32)}
        given["a"], given["b"] = (np.where(given[name] < 0, -128, 127).astype(np.int8) for name in ("a", "b"))
        want = (given["a"].astype(np.int64) @ given["b"].T.astype(np.int64)).astype(np.float32) * given["scale"]
        assert np.array_equal(result(kernel, contract, written, size, given), want)


def test_what_is_the_same_for_all_terms_is_multiplied_after_the_sum(make: Any, tmp_path: Path) -> None:
    reference = "(a.astype(np.float32) * scale[:, None]) @ b.astype(np.float32) + bias"
    kernel, contract = product(make, reference=reference, scale="in float32[M] ~ normal", bias="in float32[N] ~ normal")
    written = next(iter(texts_of(kernel, contract, tmp_path).values()))
    given = drawn(contract, RAGGED)
    want = (given["a"].astype(np.float64) * given["scale"][:, None]) @ given["b"].astype(np.float64) + given["bias"]
    assert np.array_equal(result(kernel, contract, written, RAGGED, given), want)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(LEFT, RIGHT)))
def test_floats_that_are_copied_asynchronously_are_exact(left: str, right: str, make: Any, tmp_path: Path) -> None:
    kernel, contract = product(make, left, right, "float32")
    found = texts_of(kernel, contract, tmp_path, "contraction-async-")
    for written, size, misalign in ((found["contraction-async-64x64"], WHOLE, 0), (found["contraction-async-64x64"], RAGGED, 4)):  # fmt: skip
        given = drawn(contract, size)
        a, b = (given[name].astype(np.int64) for name in ("a", "b"))
        want = (a if left == "M, K" else a.T) @ (b if right == "K, N" else b.T)
        assert np.array_equal(result(kernel, contract, written, size, given, misalign), want)


def test_large_asynchronous_tiles_of_floats_use_wide_copies_and_two_blocks_fit(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(contraction, "ENOUGH_BLOCKS", 1)
    kernel, contract = product(make, dtype="float32")
    written = texts_of(kernel, contract, tmp_path, "contraction-async-")["contraction-async-128x128"]
    placed, _ = place(kernel, contract, written)
    compiled = compile_kernel(placed, (), instance=None, target=find_target("H100 SXM"), options=CompileOptions())
    listing = read_listing(compiled, placed.unit)
    assert compiled.diagnostics == ()
    assert listing.registers <= 128
    assert not listing.spill_bytes
    opcodes = {line.opcode for line in listing.sass}
    for wanted in ("LDGSTS.E.BYPASS.128", "LDGSTS.E", "LDS.128", "STG.E.128"):
        assert any(wanted in one for one in opcodes), wanted
    given = drawn(contract, RAGGED)
    want = given["a"].astype(np.int64) @ given["b"].astype(np.int64)
    assert np.array_equal(result(kernel, contract, written, RAGGED, given), want)


@pytest.mark.parametrize(
    ("dtype", "reference"),
    [
        ("float32", "a @ b"),
        ("int8", "a.astype(np.float32) @ b.astype(np.float32)"),
        ("float16", "np.abs(a.astype(np.float32)) @ b.astype(np.float32)"),
        ("int8", "a.astype(np.int32) @ b.astype(np.int32)"),
    ],
)
def test_other_sums_are_left_to_other_schedules(dtype: str, reference: str, make: Any, tmp_path: Path) -> None:
    kernel, contract = product(make, dtype=dtype, reference=reference)
    assert not texts_of(kernel, contract, tmp_path)


def test_large_tiles_copy_asynchronously_multiply_on_tensor_cores_and_do_not_spill(make: Any, tmp_path: Path) -> None:
    kernel, contract = product(make)
    target = find_target("H100 SXM")
    for name in ("tensor-256x128-w8s3k128", "tensor-128x128-w4s3k64"):
        placed, _ = place(kernel, contract, texts_of(kernel, contract, tmp_path)[name])
        compiled = compile_kernel(placed, (), instance=None, target=target, options=CompileOptions())
        listing = read_listing(compiled, placed.unit)
        opcodes = {line.opcode for line in listing.sass}
        assert not listing.spill_bytes
        for wanted in ("LDGSTS.E.BYPASS.128", "LDSM.16.M88.4", "LDSM.16.MT88.4", "HMMA.16816.F32", "STG.E.128"):
            assert any(wanted in one for one in opcodes), wanted


def test_both_operands_are_copied_by_one_function_and_no_position_is_always_zero(make: Any, tmp_path: Path) -> None:
    kernel, contract = product(make)
    texts = texts_of(kernel, contract, tmp_path)
    for name, text in texts.items():
        if not name.startswith("tensor-"):
            continue
        assert text.definition.count("copy_tile<kThreads>(tiles[stage].") == 2
        assert "held" not in text.definition
        assert " = 0;\n" not in text.definition.partition("for (int step = 0;")[0]
    assert any("inner = warp * kStep" in text.definition for text in texts.values()), "warps that share sums"


def test_tiles_follow_the_shape() -> None:
    def first(m: int, n: int, k: int, *, fixed: bool = False) -> tuple[int, int]:
        tile = ranked(m, n, k, 1, 2, fixed=fixed)[0]
        return tile.m, tile.n

    assert {*first(4096, 4096, 4096)} == {256, 128}
    assert first(1, 8192, 4096) == first(16, 8192, 4096)
    assert first(16, 8192, 4096)[0] == 16
    assert first(64, 8192, 4096)[0] == 64
    assert all(tile.shared_bytes <= 48 * 1024 for tile in ranked(4096, 4096, 4096, 1, 2, fixed=True))


def _body(names: Sequence[str]) -> str:
    loads = [f"__half2float({one})" for one in names]
    return f"""  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= M * N) return;
  float s = 0;
  for (int k = 0; k < K; ++k) s += {" * ".join(loads)};
  y[i] = s;"""


def test_the_judge_finds_the_first_one_right(make: Any, session: Session) -> None:
    kernel, _ = make(
        {"a": "in float16[M, K] ~ normal", "b": "in float16[K, N] ~ normal", "y": "out float32[M, N]", "M": "int32", "N": "int32", "K": "int32"},
        "a.astype(np.float32) @ b.astype(np.float32)", sizes="{ M = 17, N = 24, K = 33 }", grid="cdiv(M * N, 128)",
        body=_body(["a[i / N * K + k]", "b[k * N + i % N]"]), above="#include <cuda_fp16.h>\n",
    )  # fmt: skip
    found = session.optimize(kernel, "use tensor cores", suggesters=(Synthesis(most=1),))
    assert [one.candidate.author for one in found.candidates] == ["synthesis:tensor-16x32-w4s4k256"], found.notes
    for one in found.candidates:
        assert one.verdict.correct, one.verdict.findings
        assert one.verdict.diagnostics == ()
