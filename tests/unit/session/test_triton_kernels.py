"""Triton kernels by the emulator: right ones are right, seeded faults are found, constants are searched."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.errors import UsageError
from kernelmate.records import FindingCode, Kernel
from kernelmate.session import Session
from kernelmate.session.authors import SearchOptions, authors
from kernelmate.source import contract_for, load_kernel, load_kernels
from kernelmate.source.launch import argument_shapes
from kernelmate.source.triton import function_of, same_elsewhere
from kernelmate.source.triton_contract import values_of
from kernelmate.suggest.triton import TritonRecipes
from kernelmate.suggest.triton.settings import setting_changes

pytest.importorskip("triton", reason="triton is not installed: make train-tools")

SAMPLES = Path(__file__).parents[2] / "data" / "triton"
KERNELS = {kernel.name: kernel for path in sorted(SAMPLES.glob("*.py")) for kernel in load_kernels(path)}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=7, timeout_s=300, backend="emulator")) as session:
        yield session


def changed(tmp_path: Path, name: str, before: str, after: str) -> Kernel:
    """A sample with a change in its text, in a copy of its file."""
    path = Path(shutil.copy(KERNELS[name].unit.path, tmp_path))
    text = KERNELS[name].source
    assert text.count(before) == 1, f"{before!r} is not in {name} once"
    path.write_text(path.read_text().replace(text, text.replace(before, after)))
    return load_kernel(f"{path}::{name}")


@pytest.mark.exhaustive(share=0.2)
@pytest.mark.parametrize("name", KERNELS)
def test_a_right_kernel_is_right(name: str, session: Session) -> None:
    (verdict,) = session.bench(KERNELS[name])
    assert verdict.correct, (verdict.findings, verdict.diagnostics)
    assert not [one for one in verdict.findings if one.severity == "error"]
    assert not [one for one in verdict.findings if one.code == FindingCode.SHARED_RACE]
    assert verdict.resources is not None
    assert verdict.resources.registers > 0


FAULTS = {
    "no mask at a load and a store": ("add", "mask=mask) +", "mask=None) +", FindingCode.OUT_OF_BOUNDS_READ),
    "a store beyond the end": ("rope", "b * c + a * s, mask=i < half", "b * c + a * s", None),
    "a bound off by one": ("transpose", "(j[None, :] < columns))", "(j[None, :] <= columns))", FindingCode.OUT_OF_BOUNDS_READ),
    "the wrong neutral element": ("softmax", 'other=-float("inf")', "other=0.0", None),
    "the last tile left out": ("matmul", "tl.cdiv(K, BLOCK_K)):", "K // BLOCK_K):", None),
    "a tile's mask left out": ("matvec", "mask=inside, other=0.0", "mask=rows[:, None] < M, other=0.0", None),
    "a causal mask off by one": ("flash_attention", "rows[:, None] >= keys", "rows[:, None] > keys", None),
    "no rescaling of earlier sums": ("flash_attention", "total * factor + ", "total + ", None),
    "no atomic": ("histogram", "tl.atomic_add(counts + tl.arange(0, BINS), own)",
                  "tl.store(counts + tl.arange(0, BINS), tl.load(counts + tl.arange(0, BINS)) + own)", FindingCode.GLOBAL_RACE),
    "products of integers in float16": ("quantised_matmul", "x, y)", "x.to(tl.float16), y.to(tl.float16)).to(tl.int32) * 0", None),
    "a sum in float16": ("rms_norm", "tl.sum(v * v, axis=0)", "tl.sum((v * v).to(tl.float16), axis=0)", FindingCode.PRECISION_LOSS),
    "a mean over padded columns": ("layer_norm", "tl.sum(total, axis=0) / columns", "tl.sum(total, axis=0) / BLOCK", None),
    "variance by squares": ("layer_norm_backward", "tl.where(inside, value - mean, 0.0)", "value - mean", None),
    "a table read at the token": ("embedding", "row * width + i", "token * width + i", None),
    "a label left out": ("cross_entropy", "+ top - own", "+ top", None),
    "the last tile of a description left out": ("described_matmul", "range(0, K, BLOCK)", "range(0, K - BLOCK + 1, BLOCK)", None),
    "a description of too many rows": ("described_matmul", "(c, shape=[M, N]", "(c, shape=[M + 1, N]", FindingCode.OUT_OF_BOUNDS_WRITE),
    "a scan in another order": ("linear_recurrence", "(decay, value), 0, first_order", "(value, decay), 0, first_order", None),
    "a tap left out": ("max_pool", "tl.static_range(TAPS)", "tl.static_range(TAPS - 1)", None),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.2)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_found(fault: str, tmp_path: Path, session: Session) -> None:
    name, before, after, code = FAULTS[fault]
    (verdict,) = session.bench(changed(tmp_path, name, before, after))
    assert verdict.compiled, verdict.diagnostics
    assert verdict.correct is False
    if code is not None:
        assert code in {one.code for one in verdict.findings}


def test_a_kernel_that_does_not_compile_is_told_at_its_line(tmp_path: Path, session: Session) -> None:
    kernel = changed(tmp_path, "gelu", "tl.arange(0, BLOCK)", "tl.arange(0, BLOCK + 1)")
    (verdict,) = session.check(kernel)
    (error,) = [one for one in verdict.diagnostics if one.severity == "error"]
    assert error.message == "arange's range must be a power of 2"
    assert error.line is not None
    assert "tl.arange" in kernel.unit.text.split("\n")[error.line - 1]


def test_an_error_in_a_function_that_is_called_is_told_in_that_function(tmp_path: Path, session: Session) -> None:
    path = Path(shutil.copy(SAMPLES / "elements.py", tmp_path))
    path.write_text(path.read_text().replace("tl.exp2(-x * LOG2E)", "tl.exp2(-x * missing)"))
    (verdict,) = session.check(load_kernel(f"{path}::silu_and_mul"))
    (error,) = [one for one in verdict.diagnostics if one.severity == "error"]
    assert error.message == "missing is not defined"
    assert "missing" in path.read_text().split("\n")[(error.line or 0) - 1]


def test_an_error_far_down_a_chain_of_calls_is_told_soon(tmp_path: Path, session: Session) -> None:
    path = Path(shutil.copy(SAMPLES / "elements.py", tmp_path))
    calls = "".join(f"@triton.jit\ndef step{n}(x):\n    return step{n + 1}(x)\n\n\n" for n in range(40))
    last = '@triton.jit\ndef step40(x):\n    tl.static_assert(False, "never")\n    return x\n\n\n'
    text = path.read_text().replace("tl.exp2(-x * LOG2E)", "step0(-x * LOG2E)")
    path.write_text(text.replace("@triton.jit\n", f"{calls}{last}@triton.jit\n", 1))
    (verdict,) = session.check(load_kernel(f"{path}::silu_and_mul"))
    (error,) = [one for one in verdict.diagnostics if one.severity == "error"]
    assert error.message == "never"


IMPORTING = """import triton
import triton.language as tl

from .scaling import scaled

# /// kernelmate
# sizes = [{ n = 100 }]
# grid = ["cdiv(n, BLOCK)"]
# options = ["BLOCK=128"]
# reference = "np.exp(2 * x)"
# [args]
# x = "in float32[n]"
# y = "out float32[n]"
# n = "int32"
# ///


def grow(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, scaled(tl.load(x + i, mask=i < n)), mask=i < n)


grow = triton.jit(grow)
"""
SCALING = """import triton
import triton.language as tl

from .numbers import FACTOR

raise SystemExit("this file is run")

if FAST:
    exp = tl.no_such_function
else:
    exp = tl.exp


@triton.jit
def scaled(v):
    return exp(v * FACTOR)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A kernel with a function of another file, which has a constant of a third one."""
    (tmp_path / "grow.py").write_text(IMPORTING)
    (tmp_path / "scaling.py").write_text(SCALING)
    (tmp_path / "numbers.py").write_text("import triton.language as tl\nFACTOR = tl.constexpr(2)\n")
    return tmp_path


def test_functions_of_other_files_are_compiled_and_their_faults_found(project: Path, session: Session) -> None:
    (verdict,) = session.bench(load_kernel(project / "grow.py"))
    assert verdict.correct, (verdict.findings, verdict.diagnostics)
    (project / "numbers.py").write_text("import triton.language as tl\nFACTOR = tl.constexpr(3)\n")
    (verdict,) = session.bench(load_kernel(project / "grow.py"))
    assert verdict.correct is False


def test_code_has_the_present_values_of_names_of_other_files(project: Path) -> None:
    text = IMPORTING.replace(".scaling import scaled", ". import scaling").replace("scaled(", "scaling.F * (")
    (project / "grow.py").write_text(text)
    codes = []
    with Session(load_settings(backend="emulator", cache_dir=project / "cache")) as uncached:
        for value in (3.5, 4.5, 5.5):
            (project / "scaling.py").write_text(f"F = {value}\n")
            codes.append(uncached.prepare(load_kernel(project / "grow.py"))[0].compiled.ptx)
    assert all(codes)
    assert len(set(codes)) == 3


@pytest.mark.parametrize(
    "statement",
    [
        "len = tl.load.__globals__",
        "from triton.language.load import __globals__ as len",
        "from .numbers import __builtins__ as len",
        "from .numbers import *\nfrom .numbers import __dict__ as len",
    ],
)
def test_no_name_leads_to_pythons_own_objects(project: Path, session: Session, statement: str) -> None:
    text = IMPORTING.replace("from .scaling import scaled", statement).replace("scaled(", "len['warnings'] + (")
    (project / "grow.py").write_text(text)
    (verdict,) = session.check(load_kernel(project / "grow.py"))
    (error,) = [one for one in verdict.diagnostics if one.severity == "error"]
    assert error.message == "'builtin_function_or_method' object is not subscriptable"


def test_the_meaning_that_is_compiled_of_several_is_told(project: Path, session: Session) -> None:
    (project / "scaling.py").write_text(SCALING.replace("no_such_function", "exp2"))
    (verdict,) = session.bench(load_kernel(project / "grow.py"))
    assert verdict.correct
    (note,) = [one for one in verdict.diagnostics if one.code == "branches"]
    assert note.message == "exp is defined in several branches, and is compiled as triton.language.exp"
    assert (Path(note.file or "").name, note.line) == ("scaling.py", 11)


def test_an_error_is_told_in_the_file_of_its_function_also_if_another_has_its_name(
    project: Path, session: Session
) -> None:
    (project / "scaling.py").write_text(SCALING.replace("exp(v * FACTOR)", "v + missing"))
    text = IMPORTING.replace("import scaled\n", "import scaled as other\n").replace("scaled(", "scaled(other(", 1)
    text = text.replace("mask=i < n)), mask", "mask=i < n))), mask").replace(
        "\n\ndef grow", "\n\n@triton.jit\ndef scaled(v):\n    return v\n\n\ndef grow"
    )
    (project / "grow.py").write_text(text)
    (verdict,) = session.check(load_kernel(project / "grow.py"))
    (error,) = [one for one in verdict.diagnostics if one.severity == "error"]
    assert (Path(error.file or "").name, error.line) == ("scaling.py", 16)


def test_a_kernel_of_a_branch_is_judged_and_changed_in_place(tmp_path: Path, session: Session) -> None:
    text = IMPORTING.replace("from .scaling import scaled\n", "").replace("scaled(", "tl.exp(2 * ")
    text = text.replace("def grow", "@triton.jit\ndef grow").replace("\n\ngrow = triton.jit(grow)\n", "")
    inner = "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))
    (tmp_path / "grow.py").write_text(f"if has_triton():\n{inner}else:\n    grow = None\n")
    kernel = load_kernel(tmp_path / "grow.py")
    found = session.optimize(kernel, "make it faster", max_candidates=3)
    assert found.baseline.correct, (found.baseline.findings, found.baseline.diagnostics)
    changed = next(one.candidate.kernel for one in found.candidates if "num_warps" in one.candidate.author)
    options = re.search(r"\n    # options = \[.*\]", changed.unit.text)
    assert options is not None
    assert "num_warps=" in options[0]
    assert same_elsewhere(kernel, changed)


def test_errors_in_other_files_are_told_there(project: Path, session: Session) -> None:
    (project / "scaling.py").write_text(SCALING.replace("exp(v * FACTOR)", "exp(v * FACTOR, v, v, v)"))
    (verdict,) = session.check(load_kernel(project / "grow.py"))
    (error,) = [one for one in verdict.diagnostics if one.severity == "error"]
    assert (Path(error.file or "").name, error.line) == ("scaling.py", 16)
    (project / "scaling.py").unlink()
    (verdict,) = session.check(load_kernel(project / "grow.py"))
    (error,) = [one for one in verdict.diagnostics if one.severity == "error"]
    assert error.message.startswith("scaled is not defined: it is imported from .scaling, of which no file was found")


def test_a_parameter_that_the_baseline_does_not_pass_is_named(tmp_path: Path, session: Session) -> None:
    other = changed(tmp_path, "add", "x_ptr, y_ptr, out_ptr, n,", "x_ptr, y_ptr, out_ptr, n, more,")
    text = (
        Path(other.unit.path)
        .read_text()
        .replace(
            '# n = "int32"\n# ///\n@triton.jit\ndef add(',
            '# n = "int32"\n# more = "int32 = 2"\n# ///\n@triton.jit\ndef add(',
        )
    )
    Path(other.unit.path).write_text(text)
    (verdict,) = session.compare(KERNELS["add"], load_kernel(f"{other.unit.path}::add")).candidate
    assert not verdict.compiled
    assert "add takes more, which the contract neither passes nor gives a value" in verdict.findings[0].message


def test_compiling_reaches_nothing_but_tritons_functions(tmp_path: Path, session: Session) -> None:
    mark = tmp_path / "run"
    kernel = changed(tmp_path, "gelu", "v = tl.load", f"tl.core.os.system('touch {mark}')\n    v = tl.load")
    (verdict,) = session.check(kernel)
    assert not verdict.compiled
    assert not mark.exists()


FP8 = """import triton
import triton.language as tl


# /// kernelmate
# sizes = [{ n = 128 }]
# require = ["n == 128"]
# grid = ["1"]
# [args]
# a = "in float8_e4m3fn[128, 128]"
# c = "out float32[128, 128]"
# ///
@triton.jit
def square(a, c):
    i = tl.arange(0, 128)
    at = i[:, None] * 128 + i
    x = tl.load(a + at)
    tl.store(c + at, tl.dot(x, x))
"""


def test_code_without_an_older_form_is_compiled_for_the_target_and_a_note_says_what_is_missing(
    tmp_path: Path, session: Session
) -> None:
    (tmp_path / "square.py").write_text(FP8)
    (verdict,) = session.check(load_kernel(tmp_path / "square.py"))
    assert verdict.compiled, verdict.diagnostics
    (note,) = [one for one in verdict.diagnostics if one.code == "emulated-arch"]
    assert "Triton has no code for sm_80" in note.message
    assert "fp8e4nv" in note.message


def test_code_for_new_instructions_is_emulated_as_older_code(tmp_path: Path, session: Session) -> None:
    path = Path(shutil.copy(SAMPLES / "matrices.py", tmp_path))
    small, large = (f'"BLOCK_M={n}", "BLOCK_N={n}", "BLOCK_K=32", "GROUP=4"' for n in (32, 64))
    assert small in path.read_text()
    path.write_text(path.read_text().replace(small, large))
    (verdict,) = session.check(load_kernel(f"{path}::matmul"))
    assert verdict.compiled
    assert any("code for sm_80 runs instead" in one.message for one in verdict.diagnostics)


def test_data_that_the_compiler_keeps_for_each_block_get_memory(session: Session) -> None:
    """Hopper's code for a description makes a map of 128 bytes in each block; sm_80's loads by addresses."""
    prepared = session.prepare(KERNELS["described_matmul"])[0]
    assert prepared.compiled.scratch_bytes == 3 * 128
    assert prepared.contract is not None
    own = prepared.contract.args[-1]
    assert (own.direction, own.align) == ("scratch", 128)
    assert argument_shapes(prepared.contract, prepared.contract.sizes[0])[own.name] == (3 * 128 * 4,)


def test_constants_and_configurations_are_searched(session: Session) -> None:
    kernel = KERNELS["silu_and_mul"]
    found = session.optimize(kernel, "make it faster", suggesters=(TritonRecipes(),))
    tried = {judged.candidate.author: judged for judged in found.candidates}
    assert "triton:BLOCK=1024,num_warps=8" in tried, "the second configuration of its autotune decorator"
    judged = tried["triton:BLOCK=1024,num_warps=8"]
    assert judged.verdict.correct
    assert judged.candidate.contract.block == ("256",)
    assert '# options = ["BLOCK=1024", "num_warps=8"]' in judged.candidate.kernel.unit.text
    assert {one.candidate.kernel.source for one in found.candidates} == {kernel.source}


@pytest.mark.parametrize(("name", "offered"), [("matmul", True), ("flash_attention", True), ("max_pool", False)])
def test_stages_are_tried_where_a_loop_has_products(name: str, offered: bool) -> None:
    kernel = KERNELS[name]
    changes = list(setting_changes(kernel, values_of(contract_for(kernel))))
    configured = [dict(one) for one in function_of(kernel).configurations]
    assert any(set(one) == {"num_stages"} for one in changes if one not in configured) is offered


def test_a_kernel_of_a_branch_may_have_lines_that_begin_before_it(tmp_path: Path) -> None:
    text = Path(KERNELS["matmul"].unit.path).read_text()
    inner = "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))
    (tmp_path / "k.py").write_text("if True:\n" + inner.replace("tl.dot(", "tl.dot(  # products\n# of blocks\n"))
    kernel = next(one for one in load_kernels(tmp_path / "k.py") if one.name == KERNELS["matmul"].name)
    assert any(set(one) == {"num_stages"} for one in setting_changes(kernel, values_of(contract_for(kernel))))


def test_authors_of_cuda_are_refused_by_name() -> None:
    settings = load_settings(backend="emulator")
    assert [one.name for one in authors(settings, KERNELS["add"], SearchOptions())] == ["triton"]
    with pytest.raises(UsageError, match="writes CUDA"):
        authors(settings, KERNELS["add"], SearchOptions(author="claude"))
