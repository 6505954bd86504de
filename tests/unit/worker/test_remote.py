"""A worker behind ssh: a real sshd on loopback, with keys of its own in a folder that is thrown away."""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernelmate.config import Settings, load_settings
from kernelmate.errors import BackendUnavailable, ReferenceFailed, WorkerUnavailable
from kernelmate.session import Session
from kernelmate.source import load_kernels

ROOT = Path(__file__).resolve().parents[3]
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")
HERE = f"env PYTHONPATH={ROOT} {sys.executable} -P -m kernelmate.worker.supervisor"
KERNEL = """// /// kernelmate
// sizes = [{ n = 100 }]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "checks/ref.py:twice"
// [args]
// x = "in float32[n] ~ file('data/x.npy')"
// z = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* x, const float* z, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i] + z[i];
}
"""
REFERENCE = """import helper
assert "kernelmate-worker-" in __file__, "read where it lies, and not where it was sent to"
def twice(x, z):
    return helper.FACTOR * x + z
"""
Make = Callable[..., Settings]


class Server:
    """An sshd of our own, and ways to take it down."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nPidFile none\nUsePAM no\n"
            f"AuthorizedKeysFile {folder}/user_key.pub\nStrictModes no\nPasswordAuthentication no\n"
            "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
        )
        self.know((folder / "host_key.pub").read_text())
        (folder / "ssh_config").write_text(
            f"Host gpubox\n  HostName 127.0.0.1\n  Port {self.port}\n  User {getpass.getuser()}\n"
            f"  IdentityFile {folder}/user_key\n  IdentitiesOnly yes\n  IdentityAgent none\n"
            f"  UserKnownHostsFile {folder}/known_hosts\n  GlobalKnownHostsFile none\n"
        )
        self.log = folder / "sshd.log"
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        assert SSHD is not None
        command = [SSHD, "-D", "-f", str(folder / "sshd_config"), "-E", str(self.log)]
        self.process = subprocess.Popen(command, start_new_session=True)
        until = time.monotonic() + 20
        while time.monotonic() < until and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        pytest.fail(f"sshd does not start: {self.log.read_text() if self.log.is_file() else ''}")

    def know(self, key: str | None) -> None:
        text = "" if key is None else f"[127.0.0.1]:{self.port} {' '.join(key.split()[:2])}\n"
        (self.folder / "known_hosts").write_text(text)

    def connections(self) -> list[int]:
        """Processes of the server that serve one connection each."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rpartition(")")[2].split()
                except (FileNotFoundError, ProcessLookupError):
                    continue
                if int(fields[1]) == self.process.pid and fields[0] != "Z":
                    found.append(int(entry.name))
        return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if SSHD is None or shutil.which("ssh") is None or not sys.platform.startswith("linux"):
        pytest.skip("NOT TESTED: --device ssh:HOST. There is no sshd here; install openssh-server")
    server = Server(tmp_path_factory.mktemp("sshd"))
    yield server
    os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()


@pytest.fixture
def settings(server: Server) -> Make:
    def make(**changes: object) -> Settings:
        given = {
            "backend": "emulator",
            "device": "ssh:gpubox",
            "ssh_options": ("-F", str(server.folder / "ssh_config")),
            "remote_worker": HERE,
            "seed": 3,
        }
        return load_settings(**{**given, **changes})

    return make


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A kernel with a reference that imports a module beside it, and inputs from a file."""
    import numpy as np

    for name in ("checks", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "checks" / "ref.py").write_text(REFERENCE)
    (tmp_path / "checks" / "helper.py").write_text("FACTOR = 2\n")
    np.save(tmp_path / "data" / "x.npy", np.arange(1.0, 101.0, dtype=np.float32))
    (tmp_path / "twice.cu").write_text(KERNEL)
    return tmp_path / "twice.cu"


def test_a_verdict_from_there_is_right_and_the_users_files_go_along(settings: Make, file: Path) -> None:
    with Session(settings()) as session:
        (right,) = session.bench(load_kernels(file)[0])
        assert right.correct is True, right
        file.write_text(KERNEL.replace("2 * x", "3 * x"))
        (wrong,) = session.bench(load_kernels(file)[0])
        assert wrong.correct is False


def test_what_is_wrong_with_a_reference_is_told_at_its_place_at_home(settings: Make, file: Path) -> None:
    reference = file.parent / "checks" / "ref.py"
    reference.write_text("def twice(x):\n    raise ValueError('no')\n")
    with Session(settings()) as session, pytest.raises(ReferenceFailed) as caught:
        session.bench(load_kernels(file)[0])
    assert (caught.value.file, caught.value.line) == (str(reference), 2)
    assert "kernelmate-worker-" not in str(caught.value)
    reference.unlink()
    with (
        Session(settings()) as session,
        pytest.raises(ReferenceFailed, match=rf"no file checks/ref\.py in {file.parent}\."),
    ):
        session.bench(load_kernels(file)[0])


def failure(settings: Settings, file: Path) -> WorkerUnavailable:
    with Session(settings) as session, pytest.raises(WorkerUnavailable) as caught:
        session.bench(load_kernels(file)[0])
    return caught.value


def test_an_unknown_and_a_changed_host_key_are_told_apart(server: Server, settings: Make, file: Path) -> None:
    try:
        server.know(None)
        unknown = failure(settings(), file)
        server.know((server.folder / "user_key.pub").read_text())
        changed = failure(settings(), file)
    finally:
        server.know((server.folder / "host_key.pub").read_text())
    assert "host key of gpubox is not known" in unknown.message
    assert "Run `ssh gpubox` once" in str(unknown.hint)
    assert "another host key than before" in changed.message
    assert "ssh-keygen -R gpubox" in str(changed.hint)


def test_nobody_there_nobody_let_in_and_nothing_installed(server: Server, settings: Make, file: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = str(closed.getsockname()[1])
    options = ("-F", str(server.folder / "ssh_config"))
    refused = failure(settings(ssh_options=(*options, "-p", port)), file)
    assert "nothing listens for ssh on gpubox" in refused.message
    denied = failure(settings(ssh_options=("-o", "IdentityFile=/dev/null", *options, "-o", "IdentitiesOnly=yes",
                                           "-o", "PubkeyAuthentication=no")), file)  # fmt: skip
    assert "does not let this user in without a password" in denied.message
    unnamed = failure(settings(device="ssh:no-such-machine.invalid"), file)
    assert "there is no machine named no-such-machine.invalid" in unnamed.message
    missing = failure(settings(remote_worker="no-such-kernelmate-worker"), file)
    assert "'no-such-kernelmate-worker' cannot be run there" in missing.message
    assert "pip install" in str(missing.hint)
    no_package = failure(
        settings(remote_worker=f"cd / && {sys.executable} -I -S -m kernelmate.worker.supervisor"), file
    )
    assert "cannot be run there" in no_package.message


def test_another_version_there_is_said_with_what_to_do(settings: Make, file: Path, tmp_path: Path) -> None:
    script = tmp_path / "other.py"
    script.write_text(
        "import sys\nfrom kernelmate.worker import protocol\n"
        "sys.stdout.buffer.write(protocol.frame(protocol.ReadyMessage('1/0.0.9'))); sys.stdout.flush(); sys.stdin.read()"
    )
    error = failure(settings(remote_worker=f"env PYTHONPATH={ROOT} {sys.executable} {script}"), file)
    assert "The worker on gpubox speaks 1/0.0.9" in error.message
    assert "same version of kernelmate on both sides" in str(error.hint)


def test_a_shell_that_greets_is_told_as_that(settings: Make, file: Path) -> None:
    error = failure(settings(remote_worker=f"echo Welcome to gpubox; {HERE}"), file)
    assert "Something other than the worker answers on gpubox" in error.message
    assert "it must print nothing" in str(error.hint)


@pytest.fixture
def note() -> Iterator[Path]:
    """A file that a reference may write to, as none in its own folder."""
    path = Path("/dev/shm", f"kernelmate-test-{os.getpid()}")
    path.unlink(missing_ok=True)
    yield path
    path.unlink(missing_ok=True)


def test_a_connection_lost_while_judging_is_not_held_against_the_kernel(
    server: Server, settings: Make, file: Path, note: Path, gone: Callable[[int], bool]
) -> None:
    (file.parent / "checks" / "ref.py").write_text(
        f"import os, time\ndef twice(x):\n    open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(1000)\n"
    )
    cut = False

    def cut_once(stage: str, done: int, total: int) -> None:
        nonlocal cut
        if note.is_file() and note.read_text() and not cut:
            cut = True
            for process in server.connections():
                os.kill(process, signal.SIGKILL)

    import threading

    stopper = threading.Event()

    def watch() -> None:
        while not stopper.wait(0.1) and not cut:
            cut_once("", 0, 0)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        with Session(settings()) as session:
            with pytest.raises(WorkerUnavailable, match="connection to gpubox was lost while judging"):
                session.bench(load_kernels(file)[0])
            (file.parent / "checks" / "ref.py").write_text(REFERENCE)
            (verdict,) = session.bench(load_kernels(file)[0])
            assert verdict.correct is True
    finally:
        stopper.set()
        thread.join()
    assert gone(int(note.read_text()))


def test_a_worker_stuck_in_c_is_killed_there_when_the_session_gives_it_up(
    settings: Make, file: Path, note: Path, gone: Callable[[int], bool]
) -> None:
    (file.parent / "checks" / "ref.py").write_text(
        "import ctypes, os\ndef twice(x):\n"
        f"    open({str(note)!r}, 'w').write(str(os.getpid()))\n    ctypes.PyDLL(None).sleep(1000)\n"
    )
    with Session(settings(reference_timeout_s=1.0)) as session:
        with pytest.raises(ReferenceFailed, match=r"did not return in 1 s"):
            session.bench(load_kernels(file)[0])
        assert gone(int(note.read_text()))


def test_a_gpu_is_asked_for_there_and_its_absence_told(settings: Make, file: Path) -> None:
    from kernelmate.backends.cuda.driver import missing_for_gpu

    if missing_for_gpu() is None:
        pytest.skip("this machine has a GPU")
    for backend in ("auto", "cuda"):
        with (
            Session(settings(backend=backend)) as session,
            pytest.raises(BackendUnavailable, match=r"On gpubox: .*cannot run"),
        ):
            session.bench(load_kernels(file)[0])


def test_doctor_looks_there(settings: Make, server: Server) -> None:
    from kernelmate.session.machine import remote_machine

    there = remote_machine(settings())
    assert (there.status, "a worker there is ready in" in there.detail) == ("ok", True)
    missing = remote_machine(settings(remote_worker="no-such-kernelmate-worker"))
    assert missing.status == "missing"
    assert "cannot be run there" in missing.detail


def test_ssh_lends_nothing_of_this_machine_and_never_asks() -> None:
    from kernelmate.worker.remote import Remote

    command = " ".join(Remote("box", ("-p", "22")).command)
    for option in ("BatchMode=yes", "ForwardAgent=no", "-x", "-a", "ClearAllForwardings=yes", "ServerAliveInterval"):
        assert option in command
    assert command.endswith("-p 22 -- box kernelmate-worker")
