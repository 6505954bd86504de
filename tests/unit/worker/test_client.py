"""Whatever a task does to its process, the session gets an answer, and the next task a right one."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmate.errors import InputError, ReferenceFailed, WorkerUnavailable
from kernelmate.records import Judgement, JudgeTask
from kernelmate.worker import protocol
from kernelmate.worker.client import TaskDeath, Worker, WorkerState

MakeTask = Callable[..., JudgeTask]

DEATHS = {
    "loop": ("while True: pass", "hang", "No verdict within"),
    "sleep in C": ("import time; time.sleep(1000)", "hang", "No verdict within"),
    "abort": ("import os; os.abort()", "worker-crash", "SIGABRT"),
    "segfault": ("import ctypes; ctypes.string_at(8)", "worker-crash", "SIGSEGV"),
    "illegal instruction": ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "worker-crash", "SIGILL"),
    "killed from outside": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "worker-crash", "SIGKILL"),
    "quiet exit": ("import os; os._exit(3)", "worker-crash", "exit status 3"),
    "sys.exit": ("import sys; sys.exit(0)", "worker-crash", "SystemExit"),
    "unforeseen exception": ("raise KeyError('what')", "worker-crash", "KeyError: 'what'"),
    "memory in Python": ("x = bytearray(1 << 31)", "out-of-memory", "300 MB"),
    "memory in NumPy": ("import numpy; numpy.ones((1 << 31,))", "out-of-memory", "300 MB"),
    "memory bit by bit": ("x = []\nwhile True: x.append(bytes(1 << 20))", "out-of-memory", "300 MB"),
    "memory for a library": (
        "raise ImportError('x.so: failed to map segment from shared object')",
        "out-of-memory",
        "x.so",
    ),
    "memory of the system": ("raise OSError(12, 'Cannot allocate memory')", "out-of-memory", "300 MB"),
    "endless print": ("while True: print('x' * 100)", "output-flood", "1000000 bytes"),
    "endless C output": ("import os\nwhile True: os.write(2, b'y' * 4096)", "output-flood", "1000000 bytes"),
    "endless write to descriptor 1": ("import os\nwhile True: os.write(1, b'z' * 4096)", "output-flood", "bytes"),
    "garbage in the protocol": (
        "import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'\\x00\\x00\\x00\\x03abc')\n  except OSError: pass\n"
        "import time; time.sleep(1000)",
        "worker-crash",
        "not the protocol",
    ),
    "a frame of 4 GB": (
        "import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'\\xff\\xff\\xff\\xff')\n  except OSError: pass\n"
        "import time; time.sleep(1000)",
        "worker-crash",
        "claims 4294967295 bytes",
    ),
    "closed streams": ("import os; os.closerange(3, 64); import time; time.sleep(1000)", "worker-crash", "was killed"),
    "half a frame": (
        "import os\nfor fd in range(3, 64):\n  try: os.write(fd, b'\\x00\\x00')\n  except OSError: pass\n"
        "import time; time.sleep(1000)",
        "hang",
        "No verdict",
    ),
    "endless progress": ("n = 0\nwhile True:\n  n += 1; progress(str(n % 2), n, n)", "hang", "No verdict"),
    "stopped": ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "hang", "No verdict"),
}


@pytest.mark.parametrize(("code", "kind", "said"), DEATHS.values(), ids=DEATHS)
def test_each_way_to_die_is_told_and_the_next_task_is_judged(
    worker: Worker, task: MakeTask, gone: Callable[[int], bool], code: str, kind: str, said: str
) -> None:
    assert isinstance(worker.judge(task(seed=1)), Judgement)
    first = worker.pid
    assert first is not None
    death = worker.judge(task(code), timeout_s=2.0)
    assert isinstance(death, TaskDeath)
    assert death.kind == kind
    assert said in death.detail
    assert gone(first)
    following = worker.judge(task(seed=77))
    assert isinstance(following, Judgement)
    assert following.cases[0].size == {"n": 77}
    assert worker.pid != first


def test_a_death_names_its_stage_and_shows_the_last_lines_that_were_printed(worker: Worker, task: MakeTask) -> None:
    code = "progress('kernel', 2, 9)\nfor i in range(50): print('line', i)\nimport os; os._exit(1)"
    death = worker.judge(task(code))
    assert isinstance(death, TaskDeath)
    assert death.stage == "kernel"
    assert death.output.splitlines()[-1] == "line 49"
    assert "line 20" not in death.output


def test_a_task_that_takes_too_long_says_how_far_it_came(worker: Worker, task: MakeTask) -> None:
    death = worker.judge(task("progress('cases', 2, 9)\nprogress('other', 0, 1)\nwhile True: pass"), timeout_s=1.0)
    assert isinstance(death, TaskDeath)
    assert death.detail == "No verdict within 1 s; the last stage was other (2 of 9 done)."


def test_a_fault_of_the_judge_is_told_apart_from_a_fault_of_the_kernel(worker: Worker, task: MakeTask) -> None:
    for code, judge_failed in (("raise KeyError('what')", True), ("import os; os.abort()", False)):
        death = worker.judge(task(code))
        assert isinstance(death, TaskDeath)
        assert (death.kind, death.judge_failed) == ("worker-crash", judge_failed)


def test_a_crash_in_native_code_shows_the_python_line_it_came_from(worker: Worker, task: MakeTask) -> None:
    death = worker.judge(task("def softmax():\n  import ctypes; ctypes.string_at(8)\nsoftmax()"))
    assert isinstance(death, TaskDeath)
    assert "Segmentation fault" in death.output
    assert "in softmax" in death.output


def test_control_characters_of_the_child_do_not_reach_the_terminal(worker: Worker, task: MakeTask) -> None:
    death = worker.judge(task("print('\\x1b]0;title\\x07\\x1b[2J'); import os; os._exit(1)"))
    assert isinstance(death, TaskDeath)
    assert "title" in death.output
    assert all(c.isprintable() or c == "\n" for c in death.output)


def test_printing_reaches_neither_the_protocol_nor_the_answer(
    worker: Worker, task: MakeTask, capfd: pytest.CaptureFixture[str]
) -> None:
    code = (
        "import os, sys\nprint('python'); sys.stdout.write('more'); os.write(1, b'raw'); os.system('echo shell')\n"
        "import ctypes; ctypes.CDLL(None).puts(b'libc'); ctypes.CDLL(None).fflush(None)"
    )
    assert isinstance(worker.judge(task(code, seed=5)), Judgement)
    assert capfd.readouterr() == ("", "")


def test_what_is_printed_is_counted_for_each_task_alone(worker: Worker, task: MakeTask) -> None:
    for _ in range(4):
        assert isinstance(worker.judge(task("print('x' * 400_000)")), Judgement)


def test_reading_standard_input_gives_its_end(worker: Worker, task: MakeTask) -> None:
    answer = worker.judge(task("import sys; printed = repr(sys.stdin.read())"))
    assert isinstance(answer, Judgement)
    assert answer.printed == "''"


@pytest.mark.parametrize("kind", ["ContractError", "ReferenceFailed", "SourceError"])
def test_an_error_about_the_users_input_comes_out_as_itself(worker: Worker, task: MakeTask, kind: str) -> None:
    code = f"raise {kind}('No such size.', file='a.cu', line=3, column=9, hint='Add it.')"
    worker.judge(task())
    before = worker.pid
    with pytest.raises(InputError) as caught:
        worker.judge(task(code))
    error = caught.value
    assert type(error).__name__ == kind
    assert (error.message, error.file, error.line, error.column, error.hint) == (
        "No such size.",
        "a.cu",
        3,
        9,
        "Add it.",
    )
    assert isinstance(worker.judge(task()), Judgement)
    assert worker.pid == before


def test_a_reference_that_never_returns_is_the_references_fault(worker: Worker, task: MakeTask) -> None:
    code = "progress('reference', 0, 1)\nwhile True: pass"
    with pytest.raises(ReferenceFailed, match=r"did not return in 0\.5 s"):
        worker.judge(task(code, reference_timeout_s=0.5), timeout_s=60.0)
    assert isinstance(worker.judge(task()), Judgement)


def test_the_references_limit_is_for_each_step_and_ends_with_its_stage(worker: Worker, task: MakeTask) -> None:
    code = (
        "import time\nfor i in range(6):\n  progress('reference', i, 6); time.sleep(0.2)\n"
        "progress('kernel', 0, 1); time.sleep(1.2)"
    )
    assert isinstance(worker.judge(task(code, reference_timeout_s=0.8), timeout_s=60.0), Judgement)


def test_every_stage_is_told_in_order(worker: Worker, task: MakeTask) -> None:
    told: list[tuple[str, int, int]] = []
    code = "progress('inputs', 0, 2); progress('kernel', 1, 2); progress('kernel', 2, 2); progress('compare', 2, 2)"
    worker.judge(task(code), on_progress=lambda *step: told.append(step))
    assert [stage for stage, _, _ in told] == ["inputs", "kernel", "compare"]


def test_the_child_sees_only_the_variables_of_the_allow_list(command: tuple[str, ...], task: MakeTask) -> None:
    secrets = ["ANTHROPIC_API_KEY", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "db_password", "GITHUB_TOKEN", "OPENAI_APIKEY"]
    environment = {**os.environ, **dict.fromkeys(secrets, "s3cret"), "TOKENIZERS_PARALLELISM": "0"}
    environment |= {"MY_DATABASE": "s3cret", "SSH_AUTH_SOCK": "s3cret", "KERNELMATE_TOKEN": "s3cret"}
    code = (
        "import os; printed = repr(dict(os.environ))\n"
        "if os.access('/proc/self/environ', os.R_OK): printed += open('/proc/self/environ').read()"
    )
    with Worker(command, environment=environment) as worker:
        answer = worker.judge(task(code))
    assert isinstance(answer, Judgement)
    assert "s3cret" not in answer.printed
    assert "'PATH'" in answer.printed
    assert "TOKENIZERS_PARALLELISM" in answer.printed


def test_the_child_leaves_no_core_files(worker: Worker, task: MakeTask) -> None:
    answer = worker.judge(task("import resource; printed = resource.getrlimit(resource.RLIMIT_CORE)"))
    assert isinstance(answer, Judgement)
    assert answer.printed == "(0, 0)"


def test_a_users_file_named_like_a_module_is_not_imported(
    tmp_path: Path, task: MakeTask, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    for name in ("random", "numpy", "queue", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported the wrong one')")
    monkeypatch.chdir(tmp_path)
    with Worker(command) as worker:
        assert isinstance(worker.judge(task("import random, numpy")), Judgement)


def test_closing_ends_the_child_and_what_it_started(
    worker: Worker, task: MakeTask, group_members: Callable[[int], list[int]], gone: Callable[[int], bool]
) -> None:
    worker.judge(task("import subprocess; subprocess.Popen(['sleep', '1000'])"))
    group = worker.pid
    assert group is not None
    # The worker, the process of references, and what was started.
    assert len(group_members(group)) == 3
    worker.close()
    # What is killed may be scheduled once more before it is gone.
    assert all(gone(pid) for pid in group_members(group))
    worker.close()
    assert worker.state is WorkerState.CLOSED
    with pytest.raises(WorkerUnavailable, match="closed"):
        worker.judge(task())


def test_a_death_takes_along_what_the_child_started(
    worker: Worker, task: MakeTask, group_members: Callable[[int], list[int]]
) -> None:
    worker.judge(task())
    group = worker.pid
    assert group is not None
    death = worker.judge(task("import subprocess, os; subprocess.Popen(['sleep', '1000']); os._exit(1)"))
    assert isinstance(death, TaskDeath)
    assert group_members(group) == []


def test_closing_from_another_thread_ends_a_task_at_once(worker: Worker, task: MakeTask) -> None:
    worker.judge(task())
    begun = threading.Event()

    def close() -> None:
        begun.wait()
        worker.close()

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(WorkerUnavailable):
        worker.judge(task("progress('kernel', 0, 1)\nwhile True: pass"), on_progress=lambda *_: begun.set())
    closer.join()
    assert worker.pid is None


def test_what_progress_raises_ends_the_task(worker: Worker, task: MakeTask, gone: Callable[[int], bool]) -> None:
    def refuse(*_: object) -> None:
        raise KeyboardInterrupt

    worker.judge(task())
    first = worker.pid
    assert first is not None
    with pytest.raises(KeyboardInterrupt):
        worker.judge(task("progress('kernel', 0, 1)\nwhile True: pass"), on_progress=refuse)
    assert gone(first)
    assert isinstance(worker.judge(task()), Judgement)


def test_a_child_that_went_away_between_tasks_is_replaced_in_silence(
    worker: Worker, task: MakeTask, gone: Callable[[int], bool]
) -> None:
    worker.judge(task())
    first = worker.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert gone(first)
    time.sleep(0.2)
    assert isinstance(worker.judge(task()), Judgement)
    assert worker.pid != first


def test_two_threads_take_turns(worker: Worker, task: MakeTask) -> None:
    answers: dict[int, object] = {}

    def judge(seed: int) -> None:
        answer = worker.judge(task("import time; time.sleep(0.05)", seed=seed))
        assert isinstance(answer, Judgement)
        answers[seed] = answer.cases[0].size["n"]

    threads = [threading.Thread(target=judge, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {seed: seed for seed in range(6)}


def test_a_worker_outlives_the_thread_that_started_it(worker: Worker, command: tuple[str, ...], task: MakeTask) -> None:
    with Worker(command) as other:
        thread = threading.Thread(target=lambda: other.judge(task()))
        thread.start()
        thread.join()
        first = other.pid
        assert isinstance(other.judge(task("import time; time.sleep(0.3)")), Judgement)
        assert other.pid == first


def test_a_worker_that_cannot_start_says_why(task: MakeTask, tmp_path: Path) -> None:
    with pytest.raises(WorkerUnavailable, match="cannot be started with '/no/such/python'"):
        Worker(("/no/such/python",)).judge(task())
    with pytest.raises(WorkerUnavailable, match=r"ended with exit status 4 before its first task\. no numpy here"):
        Worker((sys.executable, "-c", "import sys; sys.stderr.write('no numpy here'); sys.exit(4)")).judge(task())
    with pytest.raises(WorkerUnavailable, match="was not ready within 1 s"):
        Worker((sys.executable, "-c", "import time; time.sleep(100)"), start_timeout_s=1).judge(task())


def test_a_worker_of_another_version_is_refused(task: MakeTask) -> None:
    code = (
        "import sys\nfrom kernelmate.worker import protocol\n"
        "sys.stdout.buffer.write(protocol.frame(protocol.ReadyMessage('0/0.0.1'))); sys.stdout.flush(); sys.stdin.read()"
    )
    with pytest.raises(WorkerUnavailable, match=r"speaks 0/0\.0\.1, this session 3/") as caught:
        Worker((sys.executable, "-c", code)).judge(task())
    assert "same version" in (caught.value.hint or "")


def test_a_child_that_stops_reading_does_not_block_the_session(task: MakeTask) -> None:
    code = (
        "import sys, time\nfrom kernelmate.worker import protocol\n"
        "protocol.read_to_child(sys.stdin.buffer)\n"
        "sys.stdout.buffer.write(protocol.frame(protocol.ReadyMessage(protocol.VERSION))); sys.stdout.flush(); time.sleep(1000)"
    )
    large = task("#" * 10_000_000)
    with Worker((sys.executable, "-c", code)) as worker:
        death = worker.judge(large, timeout_s=1.0)
    assert isinstance(death, TaskDeath)
    assert death.kind == "hang"


def test_a_task_too_large_for_a_frame_is_told_before_it_is_sent(
    worker: Worker, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.judge(task())
    monkeypatch.setattr(protocol, "MAX_FRAME", 100)
    with pytest.raises(WorkerUnavailable, match="over the 100"):
        worker.judge(task("pass"))


def test_states_follow_what_happens(command: tuple[str, ...], task: MakeTask) -> None:
    worker = Worker(command)
    states = [worker.state]
    worker.start()
    states.append(worker.state)
    worker.judge(task("progress('kernel', 0, 1)"), on_progress=lambda *_: states.append(worker.state))
    states.append(worker.state)
    worker.close()
    states.append(worker.state)
    assert states == [WorkerState.IDLE, WorkerState.STARTED, WorkerState.BUSY, WorkerState.READY, WorkerState.CLOSED]


def test_messages_that_follow_each_other_closely_arrive_whole_and_in_order(worker: Worker, task: MakeTask) -> None:
    assert isinstance(worker.judge(task()), Judgement)
    large = task("pass  #" + 1_000_000 * "x")
    for _ in range(8):
        worker.ahead(large)
        answer = worker.judge(task(seed=5))
        assert isinstance(answer, Judgement)
        assert answer.cases[0].size == {"n": 5}


LOSES_ITS_DEVICE = "import kernelmate.backends.emulator as e; e.EmulatorBackend.poisoned = True"


@pytest.mark.parametrize("ending", ["", "; raise ReferenceFailed('no')"], ids=["judged", "refused"])
def test_a_task_that_costs_the_device_is_answered_and_the_next_one_meets_a_new_process(
    worker: Worker, task: MakeTask, gone: Callable[[int], bool], ending: str
) -> None:
    for seed in range(6):
        assert isinstance(worker.judge(task(seed=1)), Judgement)
        first = worker.pid
        assert first is not None
        if ending:
            with pytest.raises(ReferenceFailed):
                worker.judge(task(LOSES_ITS_DEVICE + ending))
        else:
            assert isinstance(worker.judge(task(LOSES_ITS_DEVICE)), Judgement)
        following = worker.judge(task(seed=seed))
        assert isinstance(following, Judgement), following
        assert following.cases[0].size == {"n": seed}
        assert worker.pid != first
        assert gone(first)
