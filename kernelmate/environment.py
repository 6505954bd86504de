"""What of the environment children may see: not what its name says to be a key, a token or a password."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"(^|_)(api_?key|key|tokens?|secrets?|(pg|my)?password|passwd|passphrase|credentials?)(_|$)", re.IGNORECASE
)


def looks_secret(name: str) -> bool:
    """An environment variable of this name holds a key, a token or a password, as far as its name tells."""
    return _SECRET.search(name) is not None


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without those variables whose names say that they hold secrets."""
    return {name: value for name, value in environment.items() if not looks_secret(name)}
