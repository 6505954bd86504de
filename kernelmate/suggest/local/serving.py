"""Client side of the model server, one per user and shared by all processes: finds, starts and stops it."""

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
from kernelmate.suggest.local.engine_settings import EngineSettings, Preset, choose
from kernelmate.suggest.local.engines import engine_name
from kernelmate.suggest.local.library import LocalModelFile, ModelLibrary
from kernelmate.suggest.local.state import ServerState, default_file, read_state, touch

START_S = 180.0
"""Largest time in seconds for loading a model, which may be gigabytes on a slow disk."""

ALIVE_S = 5.0
"""Seconds within which a running server must answer a check."""

SPOKEN = 2
"""Version of the server's features; raised with each extension, so that older servers are replaced."""

_CAUSE = re.compile(
    r"error loading model: .+|chat template parsing error: .+|.*(?:out of memory|failed to allocate).*", re.I
)
"""Lines of llama.cpp's log that state the cause of a failure, not its consequences."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Address of a model.

    Attributes:
        url: the server's address up to `/v1`.
        model: the model's name on the server.
        key: the API key that requests must send, or None.
        context: context length in tokens; None if unknown.
        state: the state file, touched while the model is used; None for a server that KernelMate did not start.
        gpu: UUID of the GPU that holds part of the model; no request is sent while a kernel is timed there.
    """

    url: str
    model: str
    key: str | None = field(default=None, repr=False)
    context: int | None = None
    state: Path | None = None
    gpu: str | None = None


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """Settings for serving models.

    Attributes:
        context: context length in tokens; None for the model's own.
        gpu_layers: number of layers on a GPU; None for as many as fit.
        threads: number of CPU threads; None for all cores.
        idle_s: idle time in seconds after which the server ends.
        engine: the llama.cpp package; None for the first that is installed.
        parallel: largest number of simultaneous conversations, if the engine supports several and memory suffices.
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
        settings: settings for serving.
        file: the state file; None for the user's own.
        library: the library whose models are served; None for the user's own.
    """

    def __init__(self, settings: ServerSettings | None = None, file: Path | None = None, library: ModelLibrary | None = None) -> None:  # fmt: skip
        self.settings = settings or ServerSettings()
        self.file = file or default_file()
        self.library = library or ModelLibrary()

    def ensure(self, model: LocalModelFile, stop: Callable[[], bool] = lambda: False) -> Endpoint:
        """Returns the endpoint of a model: the running server's, else a new one's.

        Args:
            model: the model; a server of another model is stopped first.
            stop: returns True once the user has cancelled.

        Raises:
            AuthorFailed: the model cannot be served on this machine.
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
        """Returns the running server; None if there is none."""
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
        """Returns the settings with which a model would be served now, given the free memory.

        Raises:
            AuthorFailed: the model does not fit.
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
        """Waits until the process has written its state file, and returns the state."""
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
    """Returns a key that is equal for servers with equal answers.

    It depends on the settings, not on the free memory.
    """
    parts = (
        model.sha256, model.name, wanted.context, wanted.parallel, wanted.gpu_layers, wanted.threads, engine, SPOKEN,
    )  # fmt: skip
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _alive(state: ServerState) -> bool:
    """Returns True if the server accepts its key, which excludes another process that reuses its address."""
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
    """Returns the bytes of memory available without swapping; None if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, ValueError, KeyError):
        return None


def _gpu() -> str | None:
    """Returns the UUID of CUDA's first GPU, which gets the layers; None if there is none."""
    from kernelmate.backends.cuda.driver import read_driver

    driver = read_driver()
    return driver.gpus[0].uuid if driver is not None and driver.gpus else None


def _free_gpu_memory() -> int | None:
    """Returns the free memory of CUDA's first GPU in bytes; None if there is none, or without NVML."""
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
    """Context manager that lets only one process at a time start or stop servers; the lock ends with the process."""
    with contextlib.ExitStack() as stack:
        try:
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            stack.enter_context(locked(Path(f"{file}.lock")))
        except OSError as error:
            raise AuthorFailed("missing", f"{file.parent} cannot be written: {error.strerror or error}.") from None
        yield
