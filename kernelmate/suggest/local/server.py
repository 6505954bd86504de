"""The model server's own process: `python -m kernelmate.suggest.local.server`, one per user, on loopback.

What it needs comes as one line of JSON on standard input, the key among it: arguments and the environment of a process
can be read by others. Where it listens, and the key, go into a file that only the user can read. It ends when nobody
has asked for anything for a while, when another server has taken its place, and when it is told to.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from kernelmate.suggest.local.engines import EngineSettings, start_engine
from kernelmate.suggest.local.state import ServerState, read_state, touched, write_state

LOOK_S = 0.5
"""Seconds between two looks at whether the server is still wanted."""


def main() -> None:
    """Serve one model until it is no longer wanted."""
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
    # The engine's threads may be in the middle of a sentence that nobody reads any more.
    os._exit(0)


def _wanted(file: Path, state: ServerState, idle_s: float) -> bool:
    return read_state(file) == state and time.time() - touched(file) < idle_s


if __name__ == "__main__":
    main()
