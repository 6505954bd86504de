"""State file by which processes of one user find the model server, and keep it running."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kernelmate.files import write_atomically


@dataclass(frozen=True, slots=True)
class ServerState:
    """A running server.

    Attributes:
        pid: its process id.
        url: its address.
        key: the key that requests must send.
        identity: hash of the model and the settings; another identity needs another server.
        alias: the model's name in requests.
        context: context length in tokens of one conversation.
        gpu_layers: number of the model's layers on a GPU.
    """

    pid: int
    url: str
    key: str = field(repr=False)
    identity: str
    alias: str
    context: int
    gpu_layers: int = 0


def default_file() -> Path:
    """Returns `model-server.json` in the user's runtime folder, which is emptied when the machine starts."""
    import platformdirs

    with warnings.catch_warnings():
        # If the named folder cannot be trusted another one is used, which suffices here.
        warnings.simplefilter("ignore")
        return platformdirs.user_runtime_path("kernelmate", ensure_exists=False) / "model-server.json"


def read_state(file: Path) -> ServerState | None:
    """Returns the server that the file describes; None if there is none, or if other users can access the file."""
    try:
        if hasattr(os, "getuid") and file.stat().st_uid != os.getuid():
            return None
        return ServerState(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_state(file: Path, state: ServerState) -> None:
    """Writes the state file atomically, readable only by the user."""
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(file, json.dumps(asdict(state)))


def touch(file: Path) -> None:
    """Marks the server as in use."""
    with contextlib.suppress(OSError):
        os.utime(file)


def touched(file: Path) -> float:
    """Returns the time of the last use, in seconds since 1970."""
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
