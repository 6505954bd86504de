"""The entry point of the `kernelmate` script and of `python -m kernelmate`: a Ctrl-C while it starts ends it quietly."""

import os
import signal
import sys
from typing import Any, NoReturn

INTERRUPTED = 130


def leave(*_: Any) -> NoReturn:
    """End this process at once, as a handler of SIGINT where there is nothing to clean up."""
    os._exit(INTERRUPTED)


def main() -> NoReturn:
    """Load and run the command line."""
    # A signal that is ignored, as in a shell's background jobs, stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    from kernelmate.cli.main import main as run

    run()


if __name__ == "__main__":
    sys.exit(main())
