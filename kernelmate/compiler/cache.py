"""Compiled results on disk, by content. A damaged entry is made again; a disk that cannot be written is done without."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path

import msgspec

from kernelmate.records import Compiled

MOST_ENTRIES = 2000
_SUFFIX = ".compiled"


def default_directory() -> Path:
    """`KERNELMATE_CACHE_DIR`, else the user's cache folder."""
    named = os.environ.get("KERNELMATE_CACHE_DIR")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_cache_dir("kernelmate"))


def key_of(*parts: object) -> str:
    """A name for a result from everything that it depends on."""
    digest = hashlib.sha256()
    for part in parts:
        text = repr(part).encode()
        digest.update(len(text).to_bytes(8, "big") + text)
    return digest.hexdigest()


def load(directory: Path, key: str) -> Compiled | None:
    """The result kept under a key; None where there is none that can be read whole."""
    try:
        raw = (directory / (key + _SUFFIX)).read_bytes()
        if hashlib.sha256(raw[32:]).digest() != raw[:32]:
            return None
        return msgspec.msgpack.decode(raw[32:], type=Compiled)
    except (OSError, msgspec.MsgspecError):
        return None


def store(directory: Path, key: str, compiled: Compiled) -> bool:
    """Keep a result, whole or not at all; False where the disk would not take it."""
    body = msgspec.msgpack.encode(compiled)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=directory)
    except OSError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(body).digest() + body)
        os.replace(name, directory / (key + _SUFFIX))
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        return False
    _prune(directory)
    return True


def _prune(directory: Path) -> None:
    """Drop the oldest tenth once there are too many."""
    with contextlib.suppress(OSError):
        entries = list(directory.glob("*" + _SUFFIX))
        if len(entries) > MOST_ENTRIES:
            entries.sort(key=lambda path: path.stat().st_mtime)
            for path in entries[: MOST_ENTRIES // 10]:
                path.unlink(missing_ok=True)
