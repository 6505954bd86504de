"""Takes out of text what nobody outside is to see: keys, tokens, passwords, and where the user's home is."""

from __future__ import annotations

import re
from pathlib import Path

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
    """The text with secrets replaced and the user's home written as `~`.

    Args:
        text: anything.
        home: the home folder; None for this user's.
    """
    for pattern in _SECRETS:
        text = pattern.sub(REMOVED, text)
    text = _ASSIGNED.sub(_assigned, text)
    text = _IN_URL.sub(lambda match: f"{match['scheme']}{REMOVED}@", text)
    folder = str(home or Path.home())
    return text.replace(folder, "~") if len(folder) > 1 else text


def _assigned(match: re.Match[str]) -> str:
    """A value in quotes, or one that is no expression; code that computes or looks up says nothing."""
    secret = match["name"][-1] in "\"'" or _PLAIN.match(match["value"])
    return match["name"] + REMOVED if secret else match.group()
