"""Starts the module's process, asks it, and ends it. Nothing of the user's module runs in the caller's process."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from kernelmate.environment import allowed
from kernelmate.errors import EnvironmentFailed, InputError, SourceError
from kernelmate_torch.program import (
    Agreement,
    DerivedGraph,
    ModelProgram,
    ModuleFailure,
    PartTimes,
    PartToCheck,
    PartToDifferentiate,
    PartToTime,
)

LAST_PRINTED = 400
"""Characters of what the process printed last that its end is reported with."""

_Answer = TypeVar("_Answer")


class ModuleProcess:
    """The process in which modules of one folder run; a context manager that ends it. It knows one module at a time.

    Args:
        folder: of the module's file, from which it imports.
        timeout_s: seconds that one request may take.
        server: which requests it answers, a key of `kernelmate_torch.child.SERVERS`.
        gpu: it uses a GPU.
    """

    def __init__(self, folder: Path, timeout_s: float, server: str = "port", *, gpu: bool = False) -> None:
        self._timeout_s = timeout_s
        self._path = folder
        self._scratch = tempfile.TemporaryDirectory(prefix="kernelmate-module-", ignore_cleanup_errors=True)
        self._printed = Path(self._scratch.name) / "printed.txt"
        command = [
            sys.executable,
            "-P",
            "-m",
            "kernelmate_torch.child",
            self._scratch.name,
            str(folder.resolve()),
            server,
            *(["gpu"] if gpu else []),
        ]
        package = str(Path(__file__).resolve().parents[1])
        environment = allowed(os.environ)
        paths = [one for one in environment.get("PYTHONPATH", "").split(os.pathsep) if one]
        environment["PYTHONPATH"] = os.pathsep.join([*paths, package])
        with self._printed.open("wb") as printed:
            self._process = subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=printed,
                start_new_session=True,
            )  # fmt: skip
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True, name="kernelmate-module").start()

    def __enter__(self) -> ModuleProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ends the process and all that it started."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        self._scratch.cleanup()

    @property
    def scratch(self) -> Path:
        """Returns the folder that the process may write to."""
        return Path(self._scratch.name)

    def export(
        self, path: Path, name: str, inputs: str, seed: int, *, real_sizes: bool = False, backward: bool = False
    ) -> ModelProgram:
        """Loads the module and exports it.

        Args:
            path: its file.
            name: the class or function.
            inputs: example inputs as text; empty for those of `get_inputs`.
            seed: of the parameters and inputs.
            real_sizes: keep the sizes of large inputs as long as they fit into memory.
            backward: refuse a module without gradients.

        Raises:
            InputError: the file, the module or its inputs need a change.
            EnvironmentFailed: PyTorch is missing.
        """
        self._path = path
        request = {"do": "export", "path": str(path), "name": name, "inputs": inputs, "seed": seed}
        return self.ask(request | {"real_sizes": real_sizes, "backward": backward}, ModelProgram)

    def differentiate(self, part: PartToDifferentiate) -> DerivedGraph:
        """Derives the backward graph of a part of the exported module.

        Raises:
            SourceError: it would repeat work of the forward pass that is not cheap; the message continues "PART: ".
        """
        return self.ask({"do": "differentiate", "part": part}, DerivedGraph)

    def check(self, reference: Path, parts: list[PartToCheck], seed: int, graph: int | None = None) -> list[Agreement]:
        """Compares reference functions in NumPy with the module's own values, in float64, part by part.

        Args:
            reference: the file of the functions.
            parts: what they compute.
            seed: of the inputs.
            graph: the number of the backward graph that they are parts of; None for the module's own.

        Raises:
            InputError: the module fails at all of the inputs.
        """
        request = {"do": "check", "reference": str(reference), "parts": parts, "seed": seed, "graph": graph}
        return self.ask(request, list[Agreement])

    def time(self, part: PartToTime) -> PartTimes:
        """Times a part's kernel beside PyTorch's operations, on the GPU that the process was started with."""
        return self.ask({"do": "time", "part": part}, PartTimes)

    def verify(self, folder: Path, seed: int, *, backward: bool = False) -> Agreement:
        """Compares the new module, with its kernels in the emulator, with the old one in float64.

        Args:
            folder: of the new module.
            seed: of the inputs.
            backward: compare gradients of parameters and inputs, too.

        Raises:
            InputError: the new module cannot be loaded, or does not keep the state dict.
        """
        return self.ask({"do": "verify", "folder": str(folder), "seed": seed, "backward": backward}, Agreement)

    def ask(self, request: dict[str, Any], kind: type[_Answer]) -> _Answer:
        """Sends one request, and returns the answer.

        Args:
            request: its `do` names what is asked for.
            kind: of the answer.

        Raises:
            InputError: the request failed for a reason of the user's files, took too long, or ended the process.
            EnvironmentFailed: PyTorch is missing.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(msgspec.json.encode(request) + b"\n")
            self._process.stdin.flush()
            line = self._answers.get(timeout=self._timeout_s)
        except OSError:
            line = b""
        except queue.Empty:
            raise InputError(
                f"The module did not finish within {self._timeout_s:g} s.",
                file=str(self._path),
                hint="Give smaller example inputs by --inputs, or more seconds by --module-timeout.",
            ) from None
        if not line and self._process.wait() == -signal.SIGKILL:
            raise SourceError(
                "The module's process was killed, most likely because memory ran out.",
                file=str(self._path),
                hint="Give smaller example inputs by --inputs.",
            )
        if not line:
            raise SourceError(
                f"The module ended its process. {self._last_printed()}".strip(),
                file=str(self._path),
                hint="Run the file by itself with these inputs.",
            )
        document = msgspec.json.decode(line)
        if "failure" in document:
            failure = msgspec.convert(document["failure"], ModuleFailure)
            raised = EnvironmentFailed if failure.kind == "environment" else SourceError
            raise raised(failure.message, file=failure.file, line=failure.line, hint=failure.hint)
        return msgspec.convert(document["answer"], kind)

    def _last_printed(self) -> str:
        with contextlib.suppress(OSError):
            return " ".join(self._printed.read_text(encoding="utf-8", errors="replace")[-LAST_PRINTED:].split())
        return ""

    def _read(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError):
            for line in self._process.stdout:
                self._answers.put(line)
        self._answers.put(b"")
