"""Finding the model server, starting it when there is none, and stopping it: one per user, shared by all processes."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from kernelmate.environment import without_secrets
from kernelmate.files import locked
from kernelmate.suggest.base import AuthorFailed
from kernelmate.suggest.local.engine_settings import EngineSettings
from kernelmate.suggest.local.engines import engine_name
from kernelmate.suggest.local.library import LocalModelFile, ModelLibrary
from kernelmate.suggest.local.presets import Preset, choose
from kernelmate.suggest.local.state import ServerState, default_file, read_state, touch

START_S = 180.0
"""Maximum seconds for loading a model: gigabytes from a slow disk."""

ALIVE_S = 5.0
"""Seconds for a server to answer a liveness check."""

SPOKEN = 2
"""Version of the server's features, raised with each extension, so that older servers are replaced."""

_CAUSE = re.compile(
    r"error loading model: .+|chat template parsing error: .+|.*(?:out of memory|failed to allocate).*", re.I
)
"""Causes in llama.cpp's log, as opposed to consequences."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of a model.

    Attributes:
        url: the server's address up to `/v1`.
        key: the API key that requests must show, or None.
        model: the model's name on the server.
        context: maximum tokens of a conversation; None if unknown.
        state: the file to touch while the model is used; None for a server that KernelMate did not start.
        gpu: the UUID of the GPU that part of the model is on, so that it is not asked while a kernel is timed there.
    """

    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    context: int | None = None
    state: Path | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings for serving models; `threads` None for all cores, `context` None for the model's own.

    `gpu_layers` None for as many as fit. `parallel` is how many conversations may go on at once, where the engine can do
    several and memory allows it.
    """

    context: int | None = None
    gpu_layers: int | None = 0
    threads: int | None = None
    idle_s: float = 600.0
    engine: str | None = None
    parallel: int = 2


class ModelServer:
    """The user's model server.

    Args:
        settings: how models are served.
        file: by which it is found; None for the user's own.
        library: whose models are served.
    """

    def __init__(self, settings: ServerSettings | None = None, file: Path | None = None, library: ModelLibrary | None = None) -> None:  # fmt: skip
        self.settings = settings or ServerSettings()
        self.file = file or default_file()
        self.library = library or ModelLibrary()

    def ensure(self, model: LocalModelFile, stop: Callable[[], bool] = lambda: False) -> Endpoint:
        """Return a server of this model: the running one, else a new one.

        Args:
            model: what is to be served; a server of another one is ended first.
            stop: True once the user cancelled.

        Raises:
            AuthorFailed: it cannot be served here.
        """
        self.library.check(model)
        engine = self.settings.engine or engine_name()
        if engine is None:
            raise AuthorFailed("missing", "No llama.cpp is installed: pip install 'kernelmate[local]'")
        identity = _identity(self.settings, model, engine)
        with _lock(self.file):
            state = read_state(self.file)
            if state is not None and state.identity == identity and _alive(state):
                touch(self.file)
                return self._endpoint(state)
            if state is not None:
                self._end(state)
            return self._endpoint(self._start(self._engine_settings(model), identity, engine, stop))

    def running(self) -> ServerState | None:
        """Returns the running server; None without one."""
        state = read_state(self.file)
        return state if state is not None and _alive(state) else None

    def stop(self) -> bool:
        """Stops the server; returns False if none ran."""
        with _lock(self.file):
            state = read_state(self.file)
            if state is None:
                return False
            alive = _alive(state)
            self._end(state)
            return alive

    def preset(self, model: LocalModelFile) -> Preset:
        """Return the settings with which a model would be served now, given the free memory.

        Raises:
            AuthorFailed: it does not fit.
        """
        wanted = self.settings
        gpu_free = _free_gpu_memory() if wanted.gpu_layers is None else None
        return choose(
            model,
            context=wanted.context,
            parallel=wanted.parallel,
            gpu_layers=wanted.gpu_layers,
            free=_free_memory(),
            gpu_free=gpu_free,
        )

    def _endpoint(self, state: ServerState) -> Endpoint:
        gpu = _gpu() if state.gpu_layers else None
        return Endpoint(f"{state.url}/v1", state.alias, state.key, state.context, self.file, gpu)

    def _engine_settings(self, model: LocalModelFile) -> EngineSettings:
        preset = self.preset(model)
        return EngineSettings(
            model=model.path,
            alias=model.name,
            key=secrets.token_urlsafe(32),
            context=preset.context,
            gpu_layers=preset.gpu_layers,
            threads=self.settings.threads,
            parallel=preset.parallel,
        )

    def _start(self, wanted: EngineSettings, identity: str, engine: str, stop: Callable[[], bool]) -> ServerState:
        command = [sys.executable, "-P", "-m", "kernelmate.suggest.local.server"]
        message = asdict(wanted) | {
            "state": str(self.file),
            "idle_s": self.settings.idle_s,
            "identity": identity,
            "engine": engine,
        }
        with tempfile.TemporaryFile() as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                env=without_secrets(os.environ),
            )
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(message).encode() + b"\n")
                process.stdin.close()
            return self._loaded(process, wanted.alias, log, stop)

    def _loaded(
        self, process: subprocess.Popen[bytes], name: str, log: IO[bytes], stop: Callable[[], bool]
    ) -> ServerState:
        """Waits until the process reports its address."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and not stop():
            state = read_state(self.file)
            if state is not None and state.pid == process.pid:
                return state
            if process.poll() is not None:
                raise AuthorFailed("server", _why(log, name, process.returncode))
            time.sleep(0.05)
        process.kill()
        process.wait()
        if stop():
            raise AuthorFailed("cancelled", "Starting the model was interrupted.")
        raise AuthorFailed("timeout", f"The model {name} was not loaded within {START_S:.0f} s.")

    def _end(self, state: ServerState) -> None:
        self.file.unlink(missing_ok=True)
        if not _alive(state):
            return
        with contextlib.suppress(OSError):
            os.kill(state.pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and _is_process(state.pid):
            time.sleep(0.02)
            with contextlib.suppress(ChildProcessError, OSError):
                os.waitpid(state.pid, os.WNOHANG)
        with contextlib.suppress(OSError):
            os.kill(state.pid, signal.SIGKILL)


def _identity(wanted: ServerSettings, model: LocalModelFile, engine: str) -> str:
    """Returns the identity of servers with equal answers: the request, not the memory that was free at the start."""
    parts = (
        model.sha256, model.name, wanted.context, wanted.parallel, wanted.gpu_layers, wanted.threads, engine, SPOKEN,
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _alive(state: ServerState) -> bool:
    """Returns True if the server accepts its key; a process that reused its process id does not."""
    place = re.fullmatch(r"http://127\.0\.0\.1:(\d{1,5})", state.url)
    if place is None:
        return False
    connection = http.client.HTTPConnection("127.0.0.1", int(place[1]), timeout=ALIVE_S)
    try:
        connection.connect()
        held: socket.socket = connection.sock
        expired = threading.Event()

        def give_up() -> None:
            # Set first: a header cut off by the shutdown reads as a whole answer.
            expired.set()
            held.shutdown(socket.SHUT_RDWR)

        # A time limit of the connection starts again with every byte.
        end = threading.Timer(ALIVE_S, give_up)
        end.daemon = True
        end.start()
        try:
            connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {state.key}"})
            status = connection.getresponse().status
            return status == 200 and not expired.is_set()
        finally:
            end.cancel()
    except (OSError, http.client.HTTPException, OverflowError):
        return False
    finally:
        connection.close()


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _why(log: IO[bytes], name: str, code: int | None) -> str:
    """Returns llama.cpp's reason for a failure: the first cause, else the last error line."""
    log.seek(0)
    text = log.read()[-40_000:].decode("utf-8", "replace")
    cause = _CAUSE.search(text)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower() or "fail" in line.lower()]
    said = cause[0] if cause is not None else (telling or lines or [f"exit status {code}"])[-1]
    return f"The model {name} cannot be loaded: {said[:300]}"


def _free_memory() -> int | None:
    """Returns the memory available without swapping; None if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None


def _gpu() -> str | None:
    """Returns the UUID of CUDA's first GPU, which gets the layers; None without one."""
    from kernelmate.backends.cuda.driver import read_driver

    driver = read_driver()
    return driver.gpus[0].uuid if driver is not None and driver.gpus else None


def _free_gpu_memory() -> int | None:
    """Returns the free memory of that GPU; None without one, or without NVML."""
    uuid = _gpu()
    if uuid is None:
        return None
    try:
        import pynvml

        pynvml.nvmlInit()
        return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid.encode())).free)
    except Exception:  # noqa: BLE001 -- whatever NVML lacks here, the CPU does it
        return None


@contextlib.contextmanager
def _lock(file: Path) -> Iterator[None]:
    """Context manager: only one process at a time starts or ends servers. The lock ends with the process."""
    with contextlib.ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(locked(Path(f"{file}.lock")))
        except OSError as error:
            raise AuthorFailed("missing", f"{file.parent} cannot be written: {error.strerror or error}.") from None
        yield
