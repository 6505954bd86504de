"""Reading a git repository by plumbing alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from kernelmate.errors import UsageError
from kernelmate.session.revisions import Blob, Repository, blob_name

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in (("GIT_CONFIG_GLOBAL", os.devnull), ("GIT_CONFIG_NOSYSTEM", "1")):
        monkeypatch.setenv(name, value)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "a")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@example.org")
    git(tmp_path, "init", "-q", "-b", "main", ".")
    return tmp_path


def git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


def commit(root: Path) -> str:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x")
    return git(root, "rev-parse", "HEAD")


def test_files_have_the_names_and_sizes_that_git_gives_them(root: Path) -> None:
    (root / "a b\n\té.cu").write_bytes(b"one\r\n")
    (root / "empty.h").write_bytes(b"")
    (root / "link.cu").symlink_to("empty.h")
    files = Repository(root).files(commit(root))
    assert files == {
        "a b\n\té.cu": Blob(blob_name(b"one\r\n", "0" * 40), 5),
        "empty.h": Blob(blob_name(b"", "0" * 40), 0),
    }
    assert blob_name(b"one\r\n", "0" * 40) == git(root, "hash-object", "--no-filters", "a b\n\té.cu")


def test_names_that_are_not_utf_8_come_and_go_unharmed(root: Path) -> None:
    name = os.fsdecode(b"k\xff.cu")
    (root / name).write_bytes(b"x")
    repository = Repository(root)
    assert set(repository.files(commit(root))) == {name}
    assert repository.working_files() == [name]


def test_many_objects_are_read_in_order_whatever_their_size(root: Path) -> None:
    texts = {f"{number:04}.h": os.urandom(1) * (number * 37) for number in range(600)}
    texts["large.h"] = b"\n" * 3_000_000
    for name, data in texts.items():
        (root / name).write_bytes(data)
    repository = Repository(root)
    files = repository.files(commit(root))
    read = [data for _, data in repository.contents(files.values())]
    assert dict(zip(files, read, strict=True)) == texts


def test_an_object_that_is_not_there_is_told(root: Path) -> None:
    (root / "a.h").write_text("x")
    commit(root)
    with pytest.raises(UsageError, match="cannot read the object"):
        list(Repository(root).contents([Blob("1" * 40, 1)]))


def test_working_files_are_tracked_or_new_and_there(root: Path) -> None:
    for name in ("kept.cu", "gone.cu"):
        (root / name).write_text("x")
    commit(root)
    (root / "gone.cu").unlink()
    (root / "new.cu").write_text("x")
    (root / ".gitignore").write_text("ignored.cu\n")
    (root / "ignored.cu").write_text("x")
    assert Repository(root).working_files() == [".gitignore", "kept.cu", "new.cu"]


def test_a_folder_below_the_root_finds_it_and_variables_of_a_hook_lead_nowhere_else(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "-q", ".")
    (root / "deep").mkdir()
    (root / "deep" / "k.cu").write_text("x")
    head = commit(root)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / "nothing"))
    repository = Repository(root / "deep")
    assert repository.root == root.resolve()
    assert repository.resolve("main") == head
    assert repository.working_files() == ["deep/k.cu"]


def test_a_tag_of_a_commit_is_a_revision_and_a_blob_is_none(root: Path) -> None:
    (root / "a.h").write_text("x")
    head = commit(root)
    git(root, "tag", "-a", "-m", "t", "v1")
    repository = Repository(root)
    assert repository.resolve("v1") == repository.resolve("HEAD") == head
    with pytest.raises(UsageError, match="no revision"):
        repository.resolve("HEAD:a.h")
