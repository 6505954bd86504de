"""`kernelmate-lsp`: the language server on standard input and output, or on a loopback port."""

from __future__ import annotations

import argparse
import gc
import ipaddress
import logging
import sys
from collections.abc import Sequence

from kernelmate.version import VERSION

COLLECT_AFTER = 100_000
"""Number of new objects after which garbage is collected.

A long text has as many tokens, none of them garbage; with Python's default of 700, collection took half of the time of
reading it.
"""
LEVELS = ("error", "warning", "info", "debug")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the server until the client ends it; returns the exit code."""
    given = _parser().parse_args(arguments)
    # Standard output belongs to the protocol.
    logging.basicConfig(level=given.log_level.upper(), stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    if given.log_level != "debug":
        logging.getLogger("pygls").setLevel(logging.WARNING)
    try:
        from kernelmate_lsp.app import make_server
    except ImportError as error:
        print(f"error: the language server needs pygls ({error}). Run: pip install 'kernelmate[lsp]'", file=sys.stderr)
        return 3
    server = make_server()
    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 20, 50)
    try:
        if given.tcp is None:
            server.start_io()
        else:
            server.start_tcp(*given.tcp)
    except OSError as error:
        print(f"error: {given.tcp[0]}:{given.tcp[1]} cannot be listened on: {error.strerror}.", file=sys.stderr)
        return 3
    finally:
        server.end()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernelmate-lsp",
        description="KernelMate's language server, for editors. It speaks on standard input and output.",
        epilog="Examples:\n  kernelmate-lsp\n  kernelmate-lsp --tcp 127.0.0.1:2087 --log-level debug",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--stdio", action="store_true", help="speak on standard input and output (the default)")
    parser.add_argument(
        "--tcp", type=loopback, metavar="HOST:PORT", help="listen on a loopback address, for one client"
    )
    parser.add_argument(
        "--log-level", choices=LEVELS, default="warning", help="level of the messages logged to standard error"
    )
    parser.add_argument("--version", action="version", version=f"kernelmate-lsp {VERSION}")
    return parser


def loopback(text: str) -> tuple[str, int]:
    """Parses host and port of a loopback address.

    Raises:
        ArgumentTypeError: the address is not a loopback address, or the port is invalid.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    address = "127.0.0.1" if host == "localhost" else host
    try:
        local = ipaddress.ip_address(address).is_loopback
    except ValueError:
        local = False
    if not local:
        raise argparse.ArgumentTypeError(f"{host} is not this machine alone; give 127.0.0.1:PORT")
    if not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{port!r} is no port; give 127.0.0.1:PORT, as in 127.0.0.1:2087")
    return address, int(port)


if __name__ == "__main__":
    sys.exit(main())
