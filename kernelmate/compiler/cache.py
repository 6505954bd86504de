"""Content-addressed disk cache of compilations.

A damaged entry is compiled again. If the folder is not writable, nothing is stored.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import time
from pathlib import Path

import msgspec

from kernelmate.compiler.frames import CompileOutput
from kernelmate.files import write_atomically

MOST_BYTES = 512 << 20
"""Maximum size in bytes of a cache; above it, the least recently used entries are removed."""

_SUFFIX = ".compiled"
_PART = "new-"
_ABANDONED_S = 3600.0
"""Age in seconds above which a partial entry counts as abandoned; writing one takes milliseconds."""
_VERSION = 2
_LOOK_AFTER = 64
"""Number of stored entries between two checks of the cache's size."""


def default_directory() -> Path:
    """Returns `KERNELMATE_CACHE_DIR`, else the user's cache folder."""
    named = os.environ.get("KERNELMATE_CACHE_DIR")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_cache_dir("kernelmate"))


def key_of(*parts: object) -> str:
    """Returns a hash of everything a result depends on; parts are distinguished by their `repr`."""
    digest = hashlib.sha256()
    for part in (_VERSION, *parts):
        text = repr(part).encode(errors="surrogatepass")
        digest.update(len(text).to_bytes(8, "big") + text)
    return digest.hexdigest()


class Cache:
    """The compilation results stored in one folder.

    Attributes:
        writable: False after the first failed write.
    """

    def __init__(self, directory: Path, most_bytes: int = MOST_BYTES) -> None:
        self.directory = directory
        self.writable = True
        self._most_bytes = most_bytes
        self._stored = 0

    def load(self, key: str) -> CompileOutput | None:
        """Returns the result for a key; None if there is none or it is damaged."""
        path = self.directory / (key + _SUFFIX)
        try:
            raw = path.read_bytes()
            if hashlib.sha256(raw[32:]).digest() != raw[:32]:
                return None
            product = msgspec.msgpack.decode(raw[32:], type=CompileOutput)
        except (OSError, msgspec.MsgspecError):
            return None
        with contextlib.suppress(OSError):
            # Renews the time of use, because the least recently used entries are removed first.
            os.utime(path)
        return product

    def store(self, key: str, product: CompileOutput) -> bool:
        """Stores a result atomically; returns False if it could not be written."""
        body = msgspec.msgpack.encode(product)
        try:
            write_atomically(self.directory / (key + _SUFFIX), hashlib.sha256(body).digest() + body, prefix=_PART)
        except OSError:
            self.writable = False
            return False
        if self._stored % _LOOK_AFTER == 0:
            self.prune()
        self._stored += 1
        return True

    def prune(self) -> None:
        """Removes least recently used entries down to three quarters of the limit, and abandoned partial files."""
        with contextlib.suppress(OSError):
            for left in self.directory.glob(f"{_PART}*"):
                if time.time() - left.stat().st_mtime > _ABANDONED_S:
                    left.unlink(missing_ok=True)
            entries = [(status.st_mtime, status.st_size, path) for path, status in self._entries()]
            total = sum(size for _, size, _ in entries)
            if total <= self._most_bytes:
                return
            for _, size, path in sorted(entries):
                path.unlink(missing_ok=True)
                total -= size
                if total <= self._most_bytes * 3 // 4:
                    return

    def _entries(self) -> list[tuple[Path, os.stat_result]]:
        found = []
        with os.scandir(self.directory) as listing:
            for entry in listing:
                if entry.name.endswith(_SUFFIX):
                    with contextlib.suppress(OSError):
                        found.append((Path(entry.path), entry.stat()))
        return found


def cache_in(directory: Path | None) -> Cache:
    """Returns this process's cache in a folder; None selects the default folder."""
    return _cache(directory or default_directory())


@functools.lru_cache(maxsize=16)
def _cache(directory: Path) -> Cache:
    return Cache(directory)
