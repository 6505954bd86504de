"""The extension in a real Jupyter kernel, a process of its own: interrupted, restarted, ended."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

jupyter_client = pytest.importorskip("jupyter_client", reason="jupyter_client is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: pip install 'kernelmate[notebook]'")

ROOT = Path(__file__).resolve().parents[3]

ENDLESS = """%%kernelmate slow
// /// kernelmate
// sizes = [{ n = 262144 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "x + 1"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void slow(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = 0.0f;
    for (int k = 0; k < 4000; ++k) v = v * 0.5f + x[(i + k) % n];
    if (i < n) y[i] = x[i] + 1.0f + (v > 1e30f);
}
"""


def runs(process: psutil.Process) -> bool:
    """True if a process has not ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def works(process: psutil.Process) -> bool:
    """True if a process is a worker."""
    try:
        return "kernelmate.worker.child" in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


class Kernel:
    """A running kernel and its client."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.manager, self.client = jupyter_client.manager.start_new_kernel(
            kernel_name="python3", env=environment, startup_timeout=120
        )

    @property
    def pid(self) -> int:
        return int(self.manager.provisioner.pid)

    def children(self) -> list[psutil.Process]:
        """The processes that it has started and that still run: one that has ended may wait to be reaped."""
        return [one for one in psutil.Process(self.pid).children(recursive=True) if runs(one)]

    def run(self, code: str) -> tuple[str, str]:
        """Status (`ok`, or the exception's name) and what was printed."""
        return self.ended(self.client.execute(code))

    def shown(self, request: str) -> Iterator[str]:
        """The texts that a request displays, or puts in place of displayed ones, until it ends."""
        while True:
            message = self.client.get_iopub_msg(timeout=300)
            if message["parent_header"].get("msg_id") != request:
                continue
            if message["msg_type"] in ("display_data", "update_display_data"):
                yield message["content"]["data"].get("text/plain", "")
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return

    def subshell(self, what: str, subshell: str | None = None) -> str:
        """Makes a subshell, or deletes one; gives its identifier."""
        content = {} if subshell is None else {"subshell_id": subshell}
        message = self.client.session.msg(f"{what}_subshell_request", content)
        self.client.control_channel.send(message)
        while True:
            reply = self.client.get_control_msg(timeout=60)
            if reply["parent_header"].get("msg_id") == message["header"]["msg_id"]:
                return str(reply["content"].get("subshell_id"))

    def request(self, comm: str, subshell: str, content: dict[str, str]) -> str:
        """Sends a widget what a page sends; gives the request's identifier."""
        message = self.client.session.msg(
            "comm_msg", {"comm_id": comm, "data": {"method": "custom", "content": content}}
        )
        message["header"]["subshell_id"] = subshell
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def ended(self, request: str) -> tuple[str, str]:
        printed: list[str] = []
        name = "ok"
        while True:
            message = self.client.get_iopub_msg(timeout=300)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            if message["msg_type"] == "stream":
                printed.append(content["text"])
            if message["msg_type"] == "error":
                name = content["ename"]
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return name, "".join(printed)


@pytest.fixture
def kernel(tmp_path) -> Iterator[Kernel]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "widgets"), os.environ.get("PYTHONPATH", "")])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "KERNELMATE_HISTORY_FILE": str(tmp_path / "h.db"),
        "KERNELMATE_BACKEND": "emulator",
        "IPYTHONDIR": str(tmp_path),
    }
    kernel = Kernel(environment)
    yield kernel
    kernel.client.stop_channels()
    kernel.manager.shutdown_kernel(now=True)


def until(condition, seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def test_interrupting_stops_the_worker_and_leaves_the_namespace_as_it_was(kernel) -> None:
    assert kernel.run("%load_ext kernelmate")[0] == "ok"
    before = kernel.run("print(sorted(k for k in globals() if not k.startswith('_')))")[1]
    request = kernel.client.execute(ENDLESS)
    workers = []

    def working() -> bool:
        workers[:] = [one for one in kernel.children() if works(one)]
        return bool(workers) and workers[0].cpu_times().user > 2.0

    assert until(working), "the worker is at work"
    kernel.manager.interrupt_kernel()
    assert kernel.ended(request)[0] == "KeyboardInterrupt"
    assert until(lambda: not any(runs(one) for one in workers))
    assert kernel.run("print(sorted(k for k in globals() if not k.startswith('_')))")[1] == before
    # And the notebook goes on.
    assert kernel.run(ENDLESS.replace("k < 4000", "k < 1").replace("262144", "64"))[0] == "ok"
    assert kernel.run("assert slow.verdict.correct")[0] == "ok"


WAITING = """import time
import numpy as np
x = np.ones((4096, 4096), np.float32)
y, (rows, cols) = np.zeros(4096, np.float32), x.shape
def total(x):
    while waits:
        time.sleep(0.1)
    return x.sum(axis=1)
"""
"""A large array and, while `waits` is true, a reference that never returns."""

HEAVY = """%%kernelmate heavy --args x,y,rows,cols --grid rows --block 32 --ref total
__global__ void heavy(const float* x, float* y, int rows, int cols) {
    __shared__ float part[32];
    float sum = 0.0f;
    for (int c = threadIdx.x; c < cols; c += 32) sum += x[blockIdx.x * cols + c];
    part[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) { for (int k = 1; k < 32; ++k) sum += part[k]; y[blockIdx.x] = sum; }
}
"""


def test_progress_of_a_heavy_kernel_is_shown_before_its_reference_was_evaluated(kernel) -> None:
    assert kernel.run("%load_ext kernelmate")[0] == "ok"
    assert kernel.run("waits = True\n" + WAITING)[0] == "ok"
    request = kernel.client.execute(HEAVY)
    # The reference never returns, so what is shown does not wait for it.
    assert any(" | 0 s ..." in text for text in kernel.shown(request))
    kernel.manager.interrupt_kernel()
    kernel.ended(request)
    assert kernel.run("waits, x, y = False, x[:64, :96].copy(), y[:64].copy(); rows, cols = x.shape")[0] == "ok"
    assert kernel.run(HEAVY)[0] == "ok"
    prompt = kernel.client.execute('%kernelmate optimize heavy "make it faster"')
    assert any(" | 0 s ..." in text for text in kernel.shown(prompt))
    kernel.manager.interrupt_kernel()
    kernel.ended(prompt)


SMALL = ENDLESS.replace("k < 4000", "k < 1").replace("262144", "64")

MADE = """from kernelmate_widgets.panel import Panel
made = Panel(get_ipython()._kernelmate_magics.notebook, 'slow', slow)
print(made.comm.comm_id, end='')
"""

ANSWERS = """import threading, time
from kernelmate_widgets.panel import Panel
threading.Thread(target=lambda: made._say(notes=['of a search'])).start()
for _ in range(200):
    if made.state['error']: break
    time.sleep(0.05)
print(made.state['error'] or 'nothing arrived', end='')
"""
"""A cell that runs until the panel has handled a request; a thread updates the panel as a search does."""


def test_a_panel_hears_a_page_after_another_page_has_gone_and_while_a_cell_runs(kernel) -> None:
    features = kernel.client.kernel_info(reply=True, timeout=60)["content"].get("supported_features", [])
    if "kernel subshells" not in features:
        pytest.skip("this kernel has no subshells: pip install 'ipykernel>=7'")
    assert kernel.run("%load_ext kernelmate")[0] == "ok"
    assert kernel.run(SMALL)[0] == "ok"
    comm = kernel.run(MADE)[1]
    gone, page = kernel.subshell("create"), kernel.subshell("create")
    kernel.ended(kernel.request(comm, gone, {"do": "read", "prompt": "make it faster"}))
    kernel.subshell("delete", gone)
    cell = kernel.client.execute(ANSWERS)
    kernel.request(comm, page, {"do": "ask", "prompt": "make it nice"})
    assert "Nothing in the prompt was understood" in kernel.ended(cell)[1]


@pytest.mark.parametrize("how", ["shutdown", "restart", "killed"])
def test_no_process_outlives_the_kernel(kernel, how) -> None:
    assert kernel.run("%load_ext kernelmate")[0] == "ok"
    assert kernel.run(ENDLESS.replace("k < 4000", "k < 1").replace("262144", "64"))[0] == "ok"
    children = kernel.children()
    assert children, "a warm worker is kept"
    if how == "killed":
        psutil.Process(kernel.pid).kill()
    elif how == "restart":
        kernel.manager.restart_kernel()
    else:
        kernel.manager.shutdown_kernel()
    gone = until(lambda: not any(runs(one) for one in children))
    assert gone, [one.cmdline() for one in children if runs(one)]
