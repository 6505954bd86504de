"""Entry point of the `kernelmate` script and of `python -m kernelmate`.

Ctrl-C during start-up ends it without a traceback.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130

try:
    import signal
except KeyboardInterrupt:  # the longest step before there is a signal handler
    os._exit(INTERRUPTED)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


def leave(*_: Any) -> NoReturn:
    """Signal handler for SIGINT during start-up: ends the process at once, as there is nothing to clean up yet."""
    os._exit(INTERRUPTED)


def main() -> NoReturn:
    """Loads and runs the command line."""
    # A shell's background jobs start with SIGINT ignored; that setting is kept.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    from kernelmate.cli.main import main as run

    run()


if __name__ == "__main__":
    sys.exit(main())
