"""Consent: text leaves the machine only after the user has seen it and agreed, once for each workspace and host."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernelmate.files import write_atomically

REMOVED = "[removed]"

_SECRETS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"),
    re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}"),
    re.compile(r"\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bglpat-[\w-]{16,}"),
    re.compile(r"\bhf_[A-Za-z0-9]{16,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}"),
    re.compile(r"\bxox[abeoprs]-[\w-]{10,}"),
    re.compile(r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}"),
)
_ASSIGNED = re.compile(
    r"""(?ix)(?P<name>["']?[\w.-]*(?:api[_-]?key|secret|token|passw(?:or)?d|passphrase|credential|authorization)[\w.-]*["']?
    \s*[:=]\s*(?:bearer\s+)?["']?)(?P<value>[^\s"',;)}\]]{8,})"""
)
_IN_URL = re.compile(r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)[^\s/@:]+:[^\s/@]+@")
_PLAIN = re.compile(r"(?=.*\d)[\w/+=~-]+\Z")


def redacted(text: str, home: Path | None = None) -> str:
    """Returns the text with secrets replaced and the user's home folder written as `~`.

    Args:
        text: any text.
        home: the home folder; None for this user's.
    """
    for pattern in _SECRETS:
        text = pattern.sub(REMOVED, text)
    text = _ASSIGNED.sub(_assigned, text)
    text = _IN_URL.sub(lambda match: f"{match['scheme']}{REMOVED}@", text)
    folder = str(home or Path.home())
    return text.replace(folder, "~") if len(folder) > 1 else text


def _assigned(match: re.Match[str]) -> str:
    """Returns an assignment with its value removed if that is quoted or a plain value.

    Code that computes a value stays.
    """
    secret = match["name"][-1] in "\"'" or _PLAIN.match(match["value"])
    return match["name"] + REMOVED if secret else match.group()


_ROOTS = (".git", ".hg", "pyproject.toml")


_LATEST = 253_402_300_800
"""Seconds from 1970 to the year 10000; dates after it cannot be shown, and no program wrote them."""


@dataclass(frozen=True, slots=True)
class OutgoingText:
    """Text that would be sent.

    Attributes:
        text: the complete text.
        host: the destination.
        model: the model that would read it.
        most_usd: the most that the call can cost; None if no price is known.
        workspace: the folder that an agreement would hold for.
    """

    text: str
    host: str
    model: str
    most_usd: float | None
    workspace: Path


Ask = Callable[[OutgoingText], bool]
"""Function that shows outgoing text to the user and returns True if they consent."""


def default_path() -> Path:
    """Returns `consent.json` in the user's data folder."""
    import platformdirs

    return platformdirs.user_data_path("kernelmate") / "consent.json"


def workspace_of(file: Path) -> Path:
    """Returns a file's workspace: the nearest folder with a repository or a pyproject.toml, else the file's folder."""
    folder = file.resolve().parent
    for candidate in (folder, *folder.parents):
        if any((candidate / name).exists() for name in _ROOTS):
            return candidate
    return folder


class Consents:
    """Consents, stored in one file; an unreadable file contains none."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or default_path()

    def given(self, workspace: Path, host: str) -> bool:
        """Returns True if the user has agreed for this workspace and this host."""
        return host in self.of(workspace)

    def of(self, workspace: Path) -> dict[str, int]:
        """Returns the hosts that the user has agreed to for a workspace, with the seconds since 1970 when they did."""
        hosts = self._read().get(str(workspace), {})
        return {host: moment for host, moment in hosts.items() if isinstance(moment, int) and 0 < moment < _LATEST}

    def give(self, workspace: Path, host: str) -> bool:
        """Stores a consent; returns False if it cannot be stored, in which case the user is asked again."""
        agreed = self._read()
        agreed.setdefault(str(workspace), {})[host] = int(time.time())
        return self._write(agreed)

    def withdraw(self, workspace: Path) -> bool:
        """Deletes a workspace's consents; returns False if the file cannot be written."""
        agreed = self._read()
        return agreed.pop(str(workspace), None) is None or self._write(agreed)

    def _read(self) -> dict[str, dict[str, int]]:
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(document, dict):
            return {}
        return {place: hosts for place, hosts in document.items() if isinstance(hosts, dict)}

    def _write(self, agreed: dict[str, dict[str, int]]) -> bool:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(self.path, json.dumps(agreed, indent=1))
        except OSError:
            return False
        return True
