"""Compiled programs: kept, rebuilt, given up, and done without."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import ArrayArgument, Run, RunResult
from kernelmate.backends.emulator import EmulatorBackend, llvm
from kernelmate.backends.emulator.jit import native_choice, program, store
from kernelmate.backends.emulator.jit.refine import refine
from kernelmate.records import Compiled, LaunchShape, Target

Launch = Callable[..., RunResult]


def doubling(addend: int = 0) -> str:
    return f""".version 8.6\n.target sm_90\n.address_size 64
.visible .entry k(.param .u64 p) {{
.reg .b32 %r<4>; .reg .b64 %d<4>;
ld.param.u64 %d0, [p]; mov.u32 %r0, %tid.x; mul.wide.u32 %d1, %r0, 4; add.s64 %d2, %d0, %d1;
ld.global.u32 %r1, [%d2]; add.u32 %r1, %r1, %r1; add.u32 %r1, %r1, {addend}; st.global.u32 [%d2], %r1; ret;
}}"""


@pytest.fixture(autouse=True)
def _jit() -> None:
    """Each test here says by itself how kernels are run."""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(tmp_path))
    program.forget()
    return tmp_path / "emulator"


@pytest.fixture
def double(compiled: Callable[..., Compiled], gpu: Target) -> Launch:
    def run(addend: int = 0, jit: native_choice.Mode = "always", elements: int = 64) -> RunResult:
        data = np.arange(64, dtype=np.uint32)[:elements]
        launch = Run(LaunchShape((1, 1, 1), (64, 1, 1)), (ArrayArgument("a", data),), check=False)
        return EmulatorBackend(jit).load(compiled(doubling(addend), "k"), gpu).run(launch)

    return run


def right(result: RunResult, addend: int = 0) -> bool:
    return bool((result.arrays["a"] == 2 * np.arange(64, dtype=np.uint32) + addend).all())


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    compile_text = llvm.compile_text

    def counted(text: str, *, quick: bool) -> bytes:
        seen.append(text)
        return compile_text(text, quick=quick)

    monkeypatch.setattr(llvm, "compile_text", counted)
    return seen


def test_a_program_is_compiled_once_and_read_from_disk_after(
    cache: Path, double: Launch, compilations: list[str]
) -> None:
    for _ in range(2):
        assert right(double())
        program.forget()
    assert len(compilations) == 1
    assert len(list(cache.glob("*.bin"))) == 1
    assert not list(cache.glob("*.part"))


@pytest.mark.parametrize("damage", [lambda raw: raw[:-7], lambda raw: raw[:60] + b"\0\1\2" + raw[63:], lambda raw: b""])
def test_a_damaged_file_is_made_again(
    damage: Callable[[bytes], bytes], cache: Path, double: Launch, compilations: list[str]
) -> None:
    double()
    (path,) = cache.glob("*.bin")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    program.forget()
    assert right(double())
    assert len(compilations) == 2
    assert len(path.read_bytes()) == len(whole)


def test_a_cache_that_cannot_be_written_is_no_error(
    cache: Path, double: Launch, caplog: pytest.LogCaptureFixture
) -> None:
    cache.parent.mkdir(exist_ok=True)
    cache.write_text("a file where the folder should be")
    assert right(double())
    assert not caplog.records


def test_a_full_disk_is_no_error(cache: Path, double: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "replace", full)
    assert right(double())
    assert not list(cache.glob("*"))


def test_old_files_make_room(cache: Path, double: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    double(1)
    (first,) = cache.glob("*.bin")
    os.utime(first, (1, 1))
    monkeypatch.setattr(store, "MOST_BYTES", first.stat().st_size * 3 // 2)
    double(2)
    assert not first.exists()
    assert len(list(cache.glob("*.bin"))) == 1


def test_what_a_killed_writer_left_is_removed_and_what_another_is_writing_is_not(cache: Path, double: Launch) -> None:
    cache.mkdir(parents=True)
    abandoned, fresh = cache / "abandoned.part", cache / "fresh.part"
    for path in (abandoned, fresh):
        path.write_bytes(b"half")
    os.utime(abandoned, (1, 1))
    assert right(double(1), 1)
    assert not abandoned.exists()
    assert fresh.exists()


def test_whoever_waited_for_another_process_reads_what_it_made(
    cache: Path, double: Launch, compilations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    double()
    (path,) = cache.glob("*.bin")
    made = path.read_bytes()
    path.unlink()
    program.forget()

    @contextmanager
    def late(key: str) -> Iterator[None]:
        path.write_bytes(made)
        yield

    monkeypatch.setattr(store, "compile_lock", late)
    assert right(double())
    assert len(compilations) == 1


def test_a_process_that_never_ends_holds_nobody_up(
    cache: Path, double: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PATIENCE_S", 0.05)
    monkeypatch.setattr(store, "LOCKS", 1)
    code = "import pathlib, sys; from kernelmate.backends.emulator.jit import store\nwith store.compile_lock('0' * 64): print('in', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"in\n"
    assert right(double())
    holder.kill()
    holder.communicate()


def test_processes_that_compile_at_once_leave_one_whole_file(cache: Path, double: Launch) -> None:
    code = f"""
import numpy as np
from kernelmate.backends.base import ArrayArgument, Run
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import find_target
from kernelmate.records import Compiled, LaunchShape
code = Compiled('k', None, 'k', 'sm_90', 'by hand', True, (), ptx={doubling()!r})
data = np.arange(64, dtype=np.uint32)
run = Run(LaunchShape((1, 1, 1), (64, 1, 1)), (ArrayArgument('a', data),), check=False)
done = EmulatorBackend('always').load(code, find_target('H100 SXM')).run(run)
assert (done.arrays['a'] == 2 * data).all()
"""
    children = [subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) for _ in range(3)]
    assert [(child.communicate()[1], child.returncode) for child in children] == [(b"", 0)] * 3
    assert [path.suffix for path in cache.iterdir()] == [".bin"]
    assert right(double())


def test_a_kernel_is_compiled_for_speed_once_its_launches_take_longer_than_that(
    cache: Path, compiled: Callable[..., Compiled], gpu: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    efforts: list[bool] = []
    compile_text = llvm.compile_text

    def noted(text: str, *, quick: bool) -> bytes:
        efforts.append(quick)
        return compile_text(text, quick=quick)

    monkeypatch.setattr(llvm, "compile_text", noted)
    module = EmulatorBackend("always").load(compiled(doubling(), "k"), gpu)
    run = Run(LaunchShape((1, 1, 1), (64, 1, 1)), (ArrayArgument("a", np.arange(64, dtype=np.uint32)),), check=False)
    assert right(module.run(run))
    assert efforts == [True]
    monkeypatch.setattr(native_choice.NativeCodeDecision, "is_soon_done", lambda *_: False)
    assert right(module.run(run))
    assert efforts == [True, False]
    monkeypatch.undo()
    program.forget()
    monkeypatch.setattr(llvm, "compile_text", noted)
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", str(cache.parent))
    assert right(module.run(run))
    assert efforts == [True, False], "the faster one is taken where it is there"


def test_another_kernel_or_another_cpu_is_another_program(
    cache: Path, double: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert right(double(1), 1)
    assert right(double(2), 2)
    monkeypatch.setattr(llvm, "describe", lambda: "another machine")
    assert right(double(2), 2)
    assert len(list(cache.glob("*.bin"))) == 3


@pytest.mark.parametrize("name", ["exp2", "log2"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
def test_functions_of_the_c_library_are_applied_to_arrays_of_any_shape(name: str, shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(3).uniform(0.25, 40, shape)
    function, exactly = llvm.array_function(name)
    assert exactly
    found = function(np.asarray(values))
    assert found.shape == shape
    np.testing.assert_allclose(found, getattr(np, name)(values), rtol=1e-15)


@pytest.mark.parametrize("name", ["ex2", "lg2"])
def test_exponentials_and_logarithms_have_a_native_form(
    name: str, compiled: Callable[..., Compiled], gpu: Target
) -> None:
    ptx = doubling().replace(".reg .b32 %r<4>;", ".reg .b32 %r<4>; .reg .f32 %f<3>;")
    ptx = ptx.replace(
        "add.u32 %r1, %r1, %r1;", f"cvt.rn.f32.u32 %f0, %r1; {name}.approx.f32 %f1, %f0; mov.b32 %r1, %f1;"
    )
    module = EmulatorBackend("always").load(compiled(ptx, "k"), gpu)
    pieces = refine(module.decoded, module._facts.single)
    assert all(pieces.native)


def test_without_llvmlite_numpy_does_it_all(
    cache: Path, double: Launch, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(text: str, *, quick: bool) -> bytes:
        raise RuntimeError("LLVM ERROR: no such target")

    monkeypatch.setattr(llvm, "compile_text", broken)
    with caplog.at_level(logging.WARNING):
        assert right(double())
    assert "goes on without native code" in caplog.text


def test_llvmlite_is_neither_needed_nor_loaded_for_small_launches(tmp_path: Path) -> None:
    code = f"""
import sys
sys.modules['llvmlite'] = None
import numpy as np
from kernelmate.backends.base import ArrayArgument, Run
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import find_target
from kernelmate.records import Compiled, LaunchShape
code = Compiled('k', None, 'k', 'sm_90', 'by hand', True, (), ptx={doubling()!r})
for jit in ('auto', 'always'):
    run = Run(LaunchShape((1, 1, 1), (64, 1, 1)), (ArrayArgument('a', np.arange(64, dtype=np.uint32)),), check=False)
    done = EmulatorBackend(jit).load(code, find_target('H100 SXM')).run(run)
    assert (done.arrays['a'] == 2 * np.arange(64)).all()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("goes on without native code") == 1


def test_a_wrong_access_is_reported_as_without_native_code(double: Launch, cache: Path) -> None:
    numpy, native = (double(jit=jit, elements=40) for jit in ("never", "always"))
    assert [finding.code for finding in numpy.findings] == ["out-of-bounds-read", "out-of-bounds-write"]
    assert native.findings == numpy.findings
    np.testing.assert_array_equal(native.arrays["a"], numpy.arrays["a"])


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/statm")
def test_memory_does_not_grow_with_the_number_of_kernels(
    cache: Path, double: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "MOST_LOADED", 4)
    for addend in range(12):
        double(addend)
    gc.collect()
    before = _resident()
    # Programs from disk, so that what is measured is what is loaded and not what LLVM keeps of compiling.
    for _ in range(25):
        for addend in range(12):
            assert right(double(addend), addend)
    gc.collect()
    assert len(program.loaded_keys()) <= 4
    # 300 programs of over 64 KiB each would be about 20 MiB.
    assert _resident() - before < 6 << 20
