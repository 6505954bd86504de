"""A worker on another machine: the ssh command that starts it, and diagnosis of failed connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelmate.errors import WorkerUnavailable
from kernelmate.records import JudgeTask

PROGRAM = "kernelmate-worker"
"""Command that is started on the other machine: a script of this package."""

SSH_OPTIONS = (
    "-T", "-x", "-a",
    "-o", "BatchMode=yes",
    "-o", "ForwardAgent=no",
    "-o", "ClearAllForwardings=yes",
    "-o", "PermitLocalCommand=no",
    "-o", "EscapeChar=none",
    "-o", "ConnectTimeout=10",
    "-o", "ServerAliveInterval=5",
    "-o", "ServerAliveCountMax=3",
    "-o", "LogLevel=ERROR",
)  # fmt: skip
"""Nobody can type a password; nothing of this machine (agent, display, ports) is forwarded.

A lost connection is noticed after 15 s.
"""

CONNECTION_FAILED = 255
"""ssh's own exit status; all others come from the command that it ran."""

_COMMAND_NOT_FOUND = 127

_TROUBLES = (
    (
        "has changed and you have requested strict checking",
        "{host} shows another host key than before",
        "Find out why; if that is right, run ssh-keygen -R {name} and connect once by hand.",
    ),
    (
        "Host key verification failed",
        "the host key of {host} is not known here",
        "Run `ssh {host}` once and check the key.",
    ),
    (
        "Permission denied",
        "{host} does not let this user in without a password",
        "Set up a key (ssh-copy-id {host}) that needs no typing, or an agent. Check with: ssh -o BatchMode=yes {host} true",
    ),
    ("Could not resolve", "there is no machine named {name}", "Check the name, and the Host entries of ~/.ssh/config."),
    (
        "Connection refused",
        "nothing listens for ssh on {host}",
        "Check the port (Port in ~/.ssh/config) and sshd there.",
    ),
    ("timed out", "{host} does not answer", "Check the network, and that the machine is on."),
    ("No route to host", "{host} cannot be reached", "Check the network, and that the machine is on."),
    ("Network is unreachable", "{host} cannot be reached", "Check the network."),
)
"""Phrases of ssh's messages (OpenSSH, sshconnect.c and readconf.c), with the meaning and the advice for each."""


def _no_files(_: JudgeTask) -> Mapping[str, bytes]:
    return {}


@dataclass(frozen=True, slots=True)
class Remote:
    """Location of a remote worker.

    Attributes:
        host: as ssh takes it: a name of `~/.ssh/config`, a host, or user@host.
        options: further options of ssh, before the host.
        program: what starts the worker there; words for the shell of the other machine.
        gather: returns the user's files that a task needs, by path without its root, because the other machine does not
            have them.
    """

    host: str
    options: tuple[str, ...] = ()
    program: str = PROGRAM
    gather: Callable[[JudgeTask], Mapping[str, bytes]] = _no_files

    @property
    def command(self) -> tuple[str, ...]:
        """Returns the local command that starts the worker."""
        return ("ssh", *SSH_OPTIONS, *self.options, "--", self.host, self.program)

    def lost(self, status: int | None) -> bool:
        """Returns True if this exit status means that the connection was lost, which says nothing about the worker."""
        return status == CONNECTION_FAILED

    def unavailable(
        self, status: int | None, printed: str, *, began: bool, garbage: str | None = None
    ) -> WorkerUnavailable:
        """Returns the error that explains why there is no worker.

        Args:
            status: ssh's exit status; None if it did not end by itself.
            printed: the last lines that ssh, or the remote program, printed.
            began: True if the worker had answered before.
            garbage: description of an invalid reply, if there was one.
        """
        if garbage is not None:
            return WorkerUnavailable(
                _with(f"Something other than the worker answers on {self.host}: {garbage}", printed),
                hint=f"Run `ssh {self.host} true`: it must print nothing. Often a shell's start-up file (~/.bashrc) does, and "
                "should do so for interactive shells only.",
            )
        words = {"host": self.host, "name": self.host.rpartition("@")[2]}
        if status == CONNECTION_FAILED:
            for sign, what, hint in _TROUBLES:
                if sign in printed and not (began and sign == "timed out"):
                    return WorkerUnavailable(
                        f"No worker on {self.host}: {what.format(**words)}.", hint=hint.format(**words)
                    )
            what = f"The connection to {self.host} was lost while judging." if began else f"ssh {self.host} failed."
            return WorkerUnavailable(_with(what, printed), hint="Check the network and run it again.")
        if status == _COMMAND_NOT_FOUND or "No module named" in printed:
            return WorkerUnavailable(
                _with(f"No worker on {self.host}: {self.program!r} cannot be run there.", printed),
                hint="Install the same version of kernelmate there (pip install 'kernelmate[cuda13]'), or name its place: "
                'remote_worker = "/path/to/venv/bin/kernelmate-worker" in the settings.',
            )
        ended = "did not answer" if status is None else f"ended with exit status {status}"
        return WorkerUnavailable(
            _with(f"The worker on {self.host} {ended} before its first task.", printed),
            hint=f"Run `ssh {self.host} {self.program}` by hand and see what it prints, or `kernelmate doctor` there.",
        )


def _with(sentence: str, printed: str) -> str:
    said = " | ".join(line.strip() for line in printed.splitlines() if line.strip())
    return f"{sentence} It printed: {said}" if said else sentence
