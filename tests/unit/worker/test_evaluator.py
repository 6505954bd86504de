"""Hostile references: none makes a wrong kernel right, reaches the session's files, or costs more than its time limit."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kernelmate.checks import reference_process as frames
from kernelmate.checks.reference_process import ReferenceProcess
from kernelmate.config import load_settings
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Argument, Contract, Verdict
from kernelmate.session import Session
from kernelmate.source import load_kernel
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.worker.client import Worker
from tests.unit.worker.test_confinement import needs_landlock, needs_seccomp

KERNEL = """// /// kernelmate
// sizes = [{ n = 100 }]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "ref.py:twice"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = FACTOR * x[i];
}
"""

FORGE = """
import os
from kernelmate.records import Case, Judgement
from kernelmate.worker import protocol

def twice(x):
    case = Case({"n": 100}, "contract", True, None, False, 0.0, None, None)
    forged = b"".join(protocol.frame(protocol.TaskResult(n, Judgement(True, (case,), (), ()))) for n in range(1, 9))
    for descriptor in range(64):
        try:
            os.write(descriptor, forged)
        except OSError:
            pass
    return 2 * x
"""

REPLACE = """
import gc, sys
def twice(x):
    from kernelmate.checks import compare, judge
    from kernelmate.worker import task_server
    for module in (compare, judge, task_server):
        for name, value in vars(module).items():
            if callable(value):
                setattr(module, name, lambda *_, **__: None)
    for one in gc.get_objects():
        if isinstance(one, dict) and "right" in one:
            one["right"] = True
    return 2 * x
"""

REACH = """
import ctypes, os, signal
def tried(call):
    try:
        return call()
    except OSError:
        return None
def twice(x):
    worker = os.getppid()
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(8)
    reached = [
        tried(lambda: os.kill(worker, signal.SIGSTOP) or "signal"),
        library.ptrace(16, worker, 0, 0) == 0,
        tried(lambda: open(f"/proc/{worker}/mem", "r+b")),
        *(tried(lambda: open(f"/proc/{worker}/fd/{n}", "wb")) for n in range(64)),
        tried(lambda: os.setsid() or "session"),
        tried(lambda: os.kill(0, signal.SIGSTOP) or "group"),
    ]
    assert not any(reached), reached
    return 2 * x
"""

LEAVE = """
import os, time
def twice(x):
    if not os.path.exists(os.path.join(os.environ["TMPDIR"], "once")):
        open(os.path.join(os.environ["TMPDIR"], "once"), "w").close()
        if not os.fork():
            try:
                os.setsid()
            except OSError:
                pass
            if not os.fork():
                with open(NOTE, "w") as note:
                    note.write(str(os.getpid()))
                time.sleep(1000)
            os._exit(0)
    return 2 * x
"""

Judge = Callable[..., Verdict]


@pytest.fixture(scope="module")
def shared() -> Iterator[Session]:
    with Session(load_settings(backend="emulator", reference_timeout_s=5.0)) as session:
        yield session


@pytest.fixture
def session() -> Iterator[Session]:
    """A session whose worker no other test has used."""
    with Session(load_settings(backend="emulator", reference_timeout_s=5.0)) as session:
        yield session


@pytest.fixture
def judge(shared: Session, tmp_path: Path) -> Judge:
    """The verdict on a kernel that is right or wrong, held against a reference's text."""

    def judged(reference: str, *, right: bool = True, session: Session = shared) -> Verdict:
        (tmp_path / "ref.py").write_text(reference)
        (tmp_path / "k.cu").write_text(KERNEL.replace("FACTOR", "2" if right else "3"))
        (verdict,) = session.bench(load_kernel(tmp_path / "k.cu"))
        return verdict

    return judged


@pytest.fixture
def note() -> Iterator[Path]:
    path = Path("/dev/shm", f"kernelmate-note-{os.getpid()}")
    path.unlink(missing_ok=True)
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("right", [True, False])
def test_a_forged_frame_on_any_descriptor_is_an_error(judge: Judge, right: bool) -> None:
    with pytest.raises(ReferenceFailed, match=r"The process of the reference 'ref.py:twice' sent "):
        judge(FORGE, right=right)
    assert judge("def twice(x):\n    return 2 * x\n", right=right).correct is right


STRANGE = {
    "a stream that raises": (
        "class O:\n    def __getattr__(self, n): raise RuntimeError\ndef twice(x):\n"
        "    import sys\n    sys.stdout = sys.stderr = O()\n    return 2 * x\n", None),
    "a message that ends the process": (
        "class E(Exception):\n    def __str__(self): raise SystemExit(0)\ndef twice(x): raise E\n", "raised E: .its message"),
    "a message of 64 MB": ("def twice(x): raise ValueError('a' * (1 << 26))\n", "raised ValueError: aaaa"),
    "half a character": ("def twice(x): raise ValueError('\\ud800')\n", r"raised ValueError: \\ud800"),
    "an interrupt": ("def twice(x): raise KeyboardInterrupt\n", "raised KeyboardInterrupt"),
    "an array that ends the process": (
        "import numpy as np\nclass A(np.ndarray):\n    def astype(self, *a, **k): raise SystemExit(0)\n"
        "def twice(x): return (2 * x).view(A)\n", None),
    "objects": ("import numpy as np\ndef twice(x): return np.array([object()] * 100)\n", "an array of objects"),
    "bytes in every pipe": (
        "import os\ndef twice(x):\n    for d in range(3, 64):\n        try: os.write(d, b'\\xff' * 4096)\n"
        "        except OSError: pass\n    return 2 * x\n", "sent something that is not an answer"),
    "a child that goes on writing": (
        "import os\ndef twice(x):\n    if not os.fork():\n        while True:\n            for d in range(3, 64):\n"
        "                try: os.write(d, b'\\0\\0\\0\\4abcd')\n                except OSError: pass\n    return 2 * x\n",
        "The process of the reference"),
    "its pipes replaced": (
        "import os\ndef twice(x):\n    for d in range(3, 64):\n        try: os.dup2(1, d)\n        except OSError: pass\n"
        "    return 2 * x\n", "The process of the reference"),
    "modules taken away": (
        "import sys\nsys.modules['kernelmate.checks.judge'] = sys.modules['multiprocessing'] = None\n"
        "def twice(x): return 2 * x\n", None),
}  # fmt: skip


@pytest.mark.parametrize("what", STRANGE)
def test_a_strange_reference_makes_no_wrong_kernel_right(judge: Judge, session: Session, what: str) -> None:
    text, said = STRANGE[what]
    if said is None:
        # References of one session share a process, in which these leave their traces.
        assert judge(text, right=False, session=session).correct is False
        return
    with pytest.raises(ReferenceFailed, match=said) as failed:
        judge(text, right=False)
    assert len(str(failed.value)) < 6000


def test_replaced_functions_of_the_judge_do_not_reach_it(judge: Judge) -> None:
    assert judge(REPLACE, right=False).correct is False
    assert judge(REPLACE).correct is True


@needs_landlock
@needs_seccomp
def test_the_worker_is_neither_stopped_nor_traced_nor_read(judge: Judge) -> None:
    assert judge(REACH).correct is True
    assert judge(REACH, right=False).correct is False


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("os._exit(3)", "ended with exit status 3"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        ("os.closerange(3, 64); time.sleep(1000)", "closed its channel"),
        ("os.kill(os.getpid(), signal.SIGSTOP)", "did not return in 5 s"),
        ("time.sleep(1000)", "did not return in 5 s"),
    ],
)
def test_a_reference_that_ends_or_stops_its_process_costs_its_time_limit_at_most(
    judge: Judge, body: str, said: str
) -> None:
    began = time.monotonic()
    with pytest.raises(ReferenceFailed, match=said):
        judge(f"import os, signal, time\ndef twice(x):\n    {body}\n")
    assert time.monotonic() - began < 60
    assert judge("def twice(x):\n    return 2 * x\n").correct is True


def test_a_process_that_a_reference_leaves_behind_ends_with_the_session(
    judge: Judge, session: Session, note: Path, gone: Callable[[int], bool]
) -> None:
    assert judge(LEAVE.replace("NOTE", repr(str(note))), session=session).correct is True
    left = int(note.read_text())
    assert Path(f"/proc/{left}").exists()
    session.close()
    assert gone(left)


@needs_landlock
@needs_seccomp
@pytest.mark.parametrize(
    "what", ["open(FILE, 'w')", "os.unlink(FILE)", "os.rename(FILE, FILE + '~')", "os.chmod(FILE, 0)"]
)
def test_a_reference_cannot_change_the_users_files(judge: Judge, tmp_path: Path, what: str) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("as it was")
    code = f"import os\ndef twice(x):\n    {what.replace('FILE', repr(str(other)))}\n    return 2 * x\n"
    with pytest.raises(ReferenceFailed, match="PermissionError"):
        judge(code)
    assert other.read_text() == "as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.cu", "notes.txt", "ref.py"]


@needs_seccomp
@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_UNIX"])
def test_a_reference_opens_no_socket(judge: Judge, family: str) -> None:
    with pytest.raises(ReferenceFailed, match="PermissionError"):
        judge(f"import socket\ndef twice(x):\n    socket.socket(socket.{family})\n    return 2 * x\n")


def test_a_reference_sees_no_variable_outside_the_allow_list(
    judge: Judge, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "SSH_AUTH_SOCK", "DATABASE_URL", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "s3cret")
    code = "import os\ndef twice(x):\n    raise ValueError(sorted(os.environ.items()))\n"
    with pytest.raises(ReferenceFailed, match="PATH") as failed:
        judge(code, session=session)
    assert "s3cret" not in str(failed.value)


def test_a_reference_holds_no_descriptor_of_the_worker(judge: Judge) -> None:
    code = """
import os
def twice(x):
    links = {os.readlink(f"/proc/self/fd/{n}") for n in range(64) if os.path.exists(f"/proc/self/fd/{n}")}
    raise ValueError(sorted(links))
"""
    with pytest.raises(ReferenceFailed) as failed:
        judge(code)
    # The pipe that is printed to, which the session only drains, and the reference's own two.
    assert str(failed.value).count("pipe:") == 3
    assert "socket:" not in str(failed.value)


def test_a_reference_reads_files_and_writes_temporary_ones_that_go_with_the_worker(
    judge: Judge, session: Session, tmp_path: Path, note: Path
) -> None:
    np.save(tmp_path / "factor.npy", np.full(1, 2.0))
    code = f"""
import tempfile
import numpy as np
def twice(x):
    with tempfile.NamedTemporaryFile(delete=False) as file:
        np.save(file, x)
    open({str(note)!r}, "a").write(file.name + "\\n")  # the next verdict's answers are worked ahead for meanwhile
    return np.load({str(tmp_path / "factor.npy")!r}) * np.load(file.name)
"""
    assert judge(code, session=session).correct is True
    written = Path(note.read_text().split("\n")[0])
    assert written.exists()
    session.close()
    assert not written.parent.exists()


def test_outputs_in_double_precision_are_held_to_finer_arithmetic(shared: Session, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(
        KERNEL.replace("float", "double").replace("FACTOR", "2").replace("double32", "float64")
    )
    (tmp_path / "ref.py").write_text("def twice(x):\n    return 2 * x\n")
    (verdict,) = shared.bench(load_kernel(tmp_path / "k.cu"))
    assert verdict.correct is True


def test_a_reference_is_traced_there_too(shared: Session, tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(KERNEL.replace("FACTOR", "2"))
    # A fork has its parent's command line; the worker itself does not have the session's.
    (tmp_path / "ref.py").write_text(
        "import os\n\n\ndef twice(x):\n"
        "    command = open(f'/proc/{os.getppid()}/cmdline', 'rb').read()\n"
        "    assert command == open('/proc/self/cmdline', 'rb').read(), command\n    return 2 * x\n"
    )
    found = shared.optimize(load_kernel(tmp_path / "k.cu"), "make it faster", suggesters=(Synthesis(),))
    assert [one.candidate.author for one in found.candidates] == ["synthesis:pointwise"], found.notes
    assert found.candidates[0].verdict.correct


def test_a_maker_of_inputs_runs_there_too(shared: Session, tmp_path: Path) -> None:
    kernel = KERNEL.replace("// [args]", '// inputs = "ref.py:make"\n// [args]').replace("FACTOR", "2")
    (tmp_path / "k.cu").write_text(kernel)
    code = "import numpy as np, os\ndef twice(x):\n    return 2 * x\ndef make(n, seed):\n    {}\n    return np.random.default_rng(seed).standard_normal(n, np.float32)\n"
    (tmp_path / "ref.py").write_text(code.format("assert 'kernelmate-scratch' in os.environ['TMPDIR']"))
    (verdict,) = shared.bench(load_kernel(tmp_path / "k.cu"))
    assert verdict.correct is True
    (tmp_path / "ref.py").write_text(code.format("os._exit(4)"))
    with pytest.raises(ReferenceFailed, match="exit status 4"):
        shared.bench(load_kernel(tmp_path / "k.cu"))


def test_memory_that_a_reference_asks_for_is_limited(tmp_path: Path) -> None:
    (tmp_path / "ref.py").write_text("def twice(x):\n    return bytearray(1 << 33)\n")
    (tmp_path / "k.cu").write_text(KERNEL.replace("FACTOR", "2"))
    worker = Worker(memory_limit_mb=1500)
    with Session(load_settings(backend="emulator"), worker=worker) as session, pytest.raises(ReferenceFailed) as failed:
        session.bench(load_kernel(tmp_path / "k.cu"))
    assert "out-of-memory" in failed.value.message


def test_a_reference_that_ends_its_process_while_nobody_asks_costs_no_verdict(judge: Judge, session: Session) -> None:
    later = "import os\ndef twice(x):\n    if os.path.exists(NOTE): os._exit(3)\n    return 2 * x\n"
    folder = Path("/dev/shm", f"kernelmate-ahead-{os.getpid()}")
    assert judge(later.replace("NOTE", repr(str(folder))), session=session).correct is True
    folder.mkdir()
    try:
        time.sleep(1.0)
    finally:
        folder.rmdir()
    assert judge("def twice(x):\n    return 2 * x\n", session=session).correct is True


CONTRACT = Contract(
    "k",
    ({"n": 2},),
    ("1",),
    ("1",),
    (Argument("y", "out", "float32", ("n",)),),
    reference="r.py:f",
    reference_kind="function",
)


def header(message: object) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


def made(number: int = 1, name: str = "0:y", dtype: str = "float64", shape: tuple[int, ...] = (2,)) -> bytes:
    return header(frames.ArraysMade(number, ((name, dtype, shape),)))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (made(shape=(1 << 40,)) + bytes(16), "of shape"),
        (made(dtype="object") + bytes(16), "sent object"),
        (made(dtype="float32") + bytes(8), "sent float32"),
        (made(name="0:z") + bytes(16), "other arrays"),
        (made(number=7) + bytes(16), "another request"),
        (header(frames.ReferenceLoaded(1, {})), "other arrays"),
        (b"\xff\xff\xff\xff", "a header of 4294967295 bytes"),
        (b"\x00\x00\x00\x03abc", "not an answer"),
        (header({"type": "Result", "correct": True}), "not an answer"),
        (made() + bytes(15), "ended with exit status 0"),
        (b"", "ended with exit status 0"),
    ],
)
def test_whatever_is_not_the_arrays_asked_for_is_an_error(answer: bytes, said: str) -> None:
    process = answering(answer)
    with pytest.raises(ReferenceFailed, match=said):
        process.evaluate(0, CONTRACT, [({}, None)], {"n": 2})
    with pytest.raises(ReferenceFailed, match=said):
        process.evaluate(0, CONTRACT, [({}, None)], {"n": 2})


@pytest.mark.parametrize("area", [1, mmap.PAGESIZE])
def test_the_arrays_asked_for_are_taken(area: int) -> None:
    values = np.array([1.5, -2.0])
    after, before = (values.tobytes(), b"") if area == 1 else (b"", values.tobytes())
    (found,) = answering(made() + after, before, area).evaluate(0, CONTRACT, [({}, None)], {"n": 2})
    assert found["y"].dtype == np.float64
    assert (found["y"] == values).all()


def test_an_answer_to_fewer_calls_than_were_made_is_an_error() -> None:
    with pytest.raises(ReferenceFailed, match="other arrays"):
        answering(made() + bytes(16)).evaluate(0, CONTRACT, [({}, None), ({}, None)], {"n": 2})


def test_arrays_that_were_taken_do_not_change_afterwards() -> None:
    process = answering(made(), np.array([1.5, -2.0]).tobytes(), mmap.PAGESIZE)
    (found,) = process.evaluate(0, CONTRACT, [({}, None)], {"n": 2})
    process._answers.area[:16] = bytes(16)
    assert found["y"].tolist() == [1.5, -2.0]


def answering(answer: bytes, held: bytes = b"", area: int = 1) -> ReferenceProcess:
    """A process that reads one request and sends these bytes, whatever was asked; `held` is in the area of so many bytes."""
    shared = mmap.mmap(-1, area)
    shared[: len(held)] = held
    their_requests, our_requests = os.pipe()
    our_answers, their_answers = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(our_requests)
        os.close(our_answers)
        frames.read_header(their_requests)
        os.write(their_answers, answer)
        os._exit(0)
    os.close(their_requests)
    os.close(their_answers)
    return ReferenceProcess(frames.Channel(our_requests, shared), frames.Channel(our_answers, shared), pid)
