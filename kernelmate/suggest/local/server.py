"""The model server process, `python -m kernelmate.suggest.local.server`: one per user, on the loopback interface.

Its settings, including the key, arrive as one line of JSON on standard input, since other users can read a process's
arguments. Address and key are written to a file that only the user can read. The process ends after an idle period,
when another server replaces it, or on request.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from kernelmate.suggest.local.engine_settings import EngineSettings
from kernelmate.suggest.local.engines import start_engine
from kernelmate.suggest.local.state import ServerState, read_state, touched, write_state

LOOK_S = 0.5
"""Seconds between two checks of whether the server is still needed."""


def main() -> None:
    """Serves one model until it is no longer needed."""
    wanted: dict[str, Any] = json.loads(sys.stdin.readline())
    file, idle_s = Path(wanted.pop("state")), float(wanted.pop("idle_s"))
    identity, engine = wanted.pop("identity"), wanted.pop("engine")
    settings = EngineSettings(**wanted)
    url = start_engine(settings, engine)
    state = ServerState(os.getpid(), url, settings.key, identity, settings.alias, settings.context, settings.gpu_layers)
    write_state(file, state)
    print("ready", flush=True)
    while _wanted(file, state, idle_s):
        time.sleep(LOOK_S)
    if read_state(file) == state:
        file.unlink(missing_ok=True)
    # The engine's threads may still be generating an answer that nobody reads.
    os._exit(0)


def _wanted(file: Path, state: ServerState, idle_s: float) -> bool:
    return read_state(file) == state and time.time() - touched(file) < idle_s


if __name__ == "__main__":
    main()
