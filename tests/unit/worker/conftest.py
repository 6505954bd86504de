"""A worker whose judge does what the test says: the task's `directory` is Python, run in the child."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmate.records import Compiled, Contract, JudgeTask, Target, Unit, Version
from kernelmate.worker.client import Worker

CHILD = '''
"""The real child with a judge that runs the task's `directory` as Python."""
import sys
import types

from kernelmate.errors import *
from kernelmate.records import Case, Judgement
from kernelmate.worker import child


def judge(task, backend, progress, *_):
    scope = {"task": task, "progress": progress}
    exec(task.directory, globals(), scope)
    case = Case({"n": task.seed}, "contract", True, None, False, 0.0, None, None)
    return Judgement(True, (case,), (), (), printed=str(scope.get("printed", "")))


for name, parts in {
    "kernelmate.checks.judge": {"judge": judge},
    "kernelmate.worker.timers": {"timer_for": lambda *_: None, "model_for": lambda *_: None},
    "kernelmate.backends.emulator": {"EmulatorBackend": type("Backend", (), {"name": "emulator", "poisoned": False})},
    "kernelmate.backends.emulator_pool": dict.fromkeys(("EmulatorPool", "process_count", "warm_up"), None) | {"helper_count": lambda: 0},
}.items():
    module = types.ModuleType(name)
    module.__dict__.update(parts)
    sys.modules[name] = module
    package, _, attribute = name.rpartition(".")
    setattr(__import__(package, fromlist=["x"]), attribute, module)
if __name__ == "__main__":
    child.main()
'''


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    script = tmp_path_factory.mktemp("child") / "scripted_child.py"
    script.write_text(CHILD)
    return (sys.executable, "-P", str(script))


@pytest.fixture
def worker(command: tuple[str, ...]) -> Iterator[Worker]:
    with Worker(command, memory_limit_mb=300, output_limit_bytes=1_000_000) as worker:
        yield worker


@pytest.fixture
def task() -> Callable[..., JudgeTask]:
    """A task that makes the child run `code`."""

    def make(code: str = "pass", seed: int = 1, reference_timeout_s: float = 60.0) -> JudgeTask:
        target = Target("H100 SXM", "sm_90", (9, 0), 132, 1980, 1, 3350.0, 1, 67.0, 34.0, 134.0, "data sheet")
        contract = Contract("k", ({"n": 3},), ("n",), ("256",), ())
        version = Version(Compiled("k", None, "k", "sm_90", "NVRTC", True, ()), contract, Unit("k.cu", ""))
        return JudgeTask(
            "emulator", target, version, None, None, (), seed, code, reference_timeout_s=reference_timeout_s
        )

    return make


@pytest.fixture
def gone() -> Callable[[int], bool]:
    """Returns a function that waits for a process to end; false if it still runs. A zombie counts as ended."""

    def check(pid: int, patience_s: float = 20.0) -> bool:
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except (FileNotFoundError, ProcessLookupError):
                return True
            if state in {"Z", "X"}:
                return True
            time.sleep(0.05)
        return False

    return check


@pytest.fixture
def group_members() -> Callable[[int], list[int]]:
    """Living processes of a process group."""

    def members(group: int) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(fields[2]) == group and fields[0] not in {"Z", "X"}:
                    found.append(int(entry.name))
        return found

    return members


@pytest.fixture(autouse=True)
def linux_only() -> None:
    if not os.path.isdir("/proc/self"):
        pytest.skip("looks at /proc to see which processes live")
