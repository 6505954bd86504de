"""The compiler's process: killed, replaced, and gone with its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kernelmate.compiler import process
from kernelmate.compiler.frames import CompileJob
from kernelmate.compiler.process import CompilationAbandoned, CompilerProcess
from kernelmate.errors import CompileTimeout

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks processes up in /proc")

GOOD = CompileJob("__global__ void k(int* x) { *x = 1; }", "kernel.cu", (), ("--gpu-architecture=sm_90",), ("k",))
ENDLESS = CompileJob(
    "template <int D, unsigned long long P> struct N { static __device__ int v() "
    "{ return N<D - 1, 2 * P>::v() + N<D - 1, 2 * P + 1>::v(); } };\n"
    "template <unsigned long long P> struct N<0, P> { static __device__ int v() { return P; } };\n"
    "__global__ void k(int* x) { *x = N<50, 1>::v(); }",
    "kernel.cu", (), ("--gpu-architecture=sm_90",), ("k",),
)  # fmt: skip

PARENT = """
import sys, threading, time
from kernelmate.compiler.process import COMPILER
import tests_job
COMPILER.start()
print(COMPILER.pid, flush=True)
COMPILER.compile(tests_job.JOB, 600)
"""


@pytest.fixture
def compiler():
    process = CompilerProcess()
    yield process
    process.close()


def gone(pid: int) -> bool:
    """Waits until a process has ended; false if it still runs after ten seconds. A zombie counts as ended."""
    for _ in range(400):
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except OSError:
            return True
        time.sleep(0.025)
    return False


def test_the_child_is_kept_from_one_compilation_to_the_next(compiler) -> None:
    assert compiler.compile(GOOD, 60).ok
    first = compiler.pid
    assert compiler.compile(GOOD, 60).lowered == ("_Z1kPi",)
    assert compiler.pid == first


def test_errors_of_a_text_whose_template_s_name_crashes_the_compiler_are_reported(compiler) -> None:
    text = "template <int n> __global__ void __launch_bounds__(32 * n) k(missing *x) { x[0] = n; }"
    product = compiler.compile(CompileJob(text, "kernel.cu", (), ("--gpu-architecture=sm_90",), ("k<1>",)), 60)
    assert not product.ok
    assert 'identifier "missing" is undefined' in product.log
    assert compiler.compile(GOOD, 60).ok


CRASHING = """
import os, sys
from kernelmate.compiler import child
library = child.load_library()
def compile_job(job):
    if "always" in job.text or "once" in job.text and "--Ofast-compile=min" not in job.options:
        os.abort()
    return library.compile(job)
child.serve(compile_job)
"""
"""A compiler that crashes as NVRTC 13.5 does in an optimisation of some kernels, too long to show here."""


@pytest.mark.parametrize(("name", "ok"), [("once", True), ("always", False)])
def test_a_kernel_whose_optimisation_crashes_the_compiler_is_compiled_with_less(
    tmp_path: Path, monkeypatch, name: str, ok: bool
) -> None:
    (tmp_path / "crashing.py").write_text(CRASHING)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setattr(process, "NVRTC_CHILD", "crashing")
    compiler = CompilerProcess(1, module="crashing")
    try:
        job = CompileJob(f"__global__ void {name}(int* x) {{ *x = 1; }}", "k.cu", (), GOOD.options, (name,))
        product = compiler.compile(job, 60)
    finally:
        compiler.close()
    assert product.ok is ok
    assert "NVRTC crashed while it" in (product.after_crash if ok else product.log)
    assert product.lowered == ((f"_Z4{name}Pi",) if ok else ())


def test_at_the_time_limit_it_is_killed_and_the_next_compiles(compiler) -> None:
    compiler.start()
    first = compiler.pid
    with pytest.raises(CompileTimeout, match="killed"):
        compiler.compile(ENDLESS, 1)
    assert gone(first)
    assert compiler.compile(GOOD, 60).ok


def test_closing_leaves_no_process(compiler) -> None:
    compiler.start()
    pid = compiler.pid
    compiler.close()
    assert gone(pid)
    assert compiler.pid is None


def test_several_threads_get_their_own_answers(compiler) -> None:
    answers: dict[int, str] = {}

    def work(number: int) -> None:
        text = GOOD.text.replace("k(", f"k{number}(")
        answers[number] = compiler.compile(
            CompileJob(text, "kernel.cu", (), GOOD.options, (f"k{number}",)), 60
        ).lowered[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {number: f"_Z2k{number}Pi" for number in range(6)}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_it_goes_with_its_parent_in_the_middle_of_a_compilation(tmp_path, how) -> None:
    (tmp_path / "tests_job.py").write_text(
        "from kernelmate.compiler.frames import CompileJob\n"
        f"JOB = CompileJob({ENDLESS.text!r}, 'kernel.cu', (), {ENDLESS.options!r}, ('k',))\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.send_signal(how)
    parent.wait()
    assert gone(child)


def test_a_compilation_that_nobody_wants_any_more_is_killed_and_the_next_one_begins_at_once(compiler) -> None:
    compiler.start()
    first = compiler.pid
    threading.Timer(0.3, compiler.abandon).start()
    with pytest.raises(CompilationAbandoned):
        compiler.compile(ENDLESS, 600)
    assert compiler.pid not in {first, None}
    assert gone(first)
    assert compiler.compile(GOOD, 60).ok


def test_abandoning_while_nothing_is_compiled_leaves_the_child_as_it_is(compiler) -> None:
    compiler.compile(GOOD, 60)
    child = compiler.pid
    compiler.abandon()
    assert compiler.compile(GOOD, 60).ok
    assert compiler.pid == child


def test_texts_compile_side_by_side_and_one_thread_s_can_be_abandoned_alone() -> None:
    compiler = CompilerProcess(children=3)
    ended: dict[str, BaseException] = {}
    threads: dict[str, threading.Thread] = {}

    def work(name: str) -> None:
        try:
            compiler.compile(ENDLESS, 600)
        except CompilationAbandoned as error:
            ended[name] = error

    try:
        for name in ("one", "other"):
            threads[name] = threading.Thread(target=work, args=(name,))
            threads[name].start()
        assert compiler.compile(GOOD, 60).ok  # while both are busy
        one, other = (threads[name].ident for name in ("one", "other"))
        assert one is not None
        assert other is not None
        compiler.abandon({one})
        threads["one"].join(60)
        assert set(ended) == {"one"}
        assert threads["other"].is_alive()
        compiler.abandon({other})
        threads["other"].join(60)
        assert set(ended) == {"one", "other"}
    finally:
        compiler.abandon()
        compiler.close()


def test_one_text_after_another_takes_one_child(compiler) -> None:
    before = {compiler.compile(GOOD, 60).ok and compiler.pid for _ in range(3)}
    assert len(before) == 1
    assert [seat.child is not None for seat in compiler._seats].count(True) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="the environment of a process is read from /proc")
def test_a_child_that_evaluates_text_gets_no_keys(monkeypatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "very-secret-value")
    compiler = CompilerProcess(1, "kernelmate.compiler.triton_child")
    try:
        compiler.start()
        place = Path(f"/proc/{compiler.pid}/environ")
        while not (
            environment := place.read_bytes()
        ):  # the kernel fills it in after the call that starts a program returns
            time.sleep(0.01)
    finally:
        compiler.close()
    assert b"PATH=" in environment
    assert b"very-secret-value" not in environment
