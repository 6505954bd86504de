"""The cache never costs a result: damaged, full, read-only, too large."""

from __future__ import annotations

import os
from pathlib import Path

from kernelmate.compiler.cache import Cache, key_of
from kernelmate.compiler.frames import CompileOutput

PRODUCT = CompileOutput(True, "log", "ptx", b"\x7fELF", ("k",))


def test_what_is_stored_is_found_again(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "a" / "b")
    assert cache.load("k") is None
    assert cache.store("k", PRODUCT)
    assert cache.load("k") == PRODUCT


def test_a_damaged_entry_is_as_good_as_none(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.store("k", PRODUCT)
    (entry,) = tmp_path.iterdir()
    whole = entry.read_bytes()
    for damaged in (b"", whole[:-1], whole[:40], whole[:33] + b"x" + whole[34:], b"\0" * 100):
        entry.write_bytes(damaged)
        assert cache.load("k") is None


def test_a_disk_that_takes_nothing_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file" / "below")
    assert cache.writable
    assert not cache.store("k", PRODUCT)
    assert not cache.writable
    assert cache.load("k") is None


def test_a_disk_that_fills_up_leaves_nothing_half_written(tmp_path: Path, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert not Cache(tmp_path).store("k", PRODUCT)
    assert list(tmp_path.iterdir()) == []


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = Cache(tmp_path, most_bytes=10_000)
    for number in range(8):
        cache.store(f"k{number}", CompileOutput(True, "x" * 2000))
        os.utime(tmp_path / f"k{number}.compiled", (number, number))
    assert cache.load("k0") is not None
    cache.prune()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 7500
    assert cache.load("k0") is not None
    assert cache.load("k1") is None
    assert cache.load("k7") is not None


def test_keys_depend_on_every_part_and_on_where_parts_end() -> None:
    assert len({key_of("a", "b"), key_of("ab"), key_of("a", "b", ""), key_of("b", "a"), key_of(("a", "b"))}) == 5


def test_what_a_killed_process_left_of_an_entry_is_removed_once_it_is_old(tmp_path: Path) -> None:
    old, young = tmp_path / "new-old", tmp_path / "new-young"
    for part in (old, young):
        part.write_bytes(b"half")
    os.utime(old, (0, 0))
    Cache(tmp_path).prune()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new-young"]
