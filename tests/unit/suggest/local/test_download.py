"""Models from a repository, with the hub's real client against a loopback server."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hub_server import COMMIT, REPOSITORY, Hub
from tiny_gguf import Shape, write_tiny_gguf

from kernelmate.errors import EnvironmentFailed, UsageError
from kernelmate.suggest.local.download import DownloadOffer, download, look_up
from kernelmate.suggest.local.library import ModelLibrary

pytest.importorskip("huggingface_hub")

NAME = "tiny-q8.gguf"


@pytest.fixture
def hub(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub({NAME: tiny.read_bytes(), "README.md": b"hello"}) as hub:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", hub.url)
        template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        # The client waits a second before it goes on after a cut; what is tested is that it does.
        monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
        # What has come is written in pieces of this size, of which the last is lost when the connection is cut.
        monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 1000)
        yield hub


def parts(library: ModelLibrary) -> list[Path]:
    return list(library.folder.rglob("*.part"))


def test_what_would_come_is_known_before_it_does(hub: Hub, tiny: Path) -> None:
    offer = look_up(REPOSITORY)
    body = tiny.read_bytes()
    assert offer == DownloadOffer(REPOSITORY, NAME, COMMIT, len(body), hashlib.sha256(body).hexdigest(), "apache-2.0")
    assert hub.ranges == []


def test_a_download_tells_of_its_progress_and_pins_its_hash(hub: Hub, tiny: Path, library: ModelLibrary) -> None:
    told: list[tuple[str, int, int]] = []
    model = download(library, look_up(REPOSITORY), on_bytes=lambda *what: told.append(what))
    size = tiny.stat().st_size
    assert (model.name, model.licence, model.source) == ("tiny-q8", "apache-2.0", REPOSITORY)
    assert model.sha256 == hashlib.sha256(tiny.read_bytes()).hexdigest()
    assert Path(model.path).read_bytes() == tiny.read_bytes()
    assert [told[-1], ("downloading", size, size) in told] == [("checking", size, size), True]
    assert parts(library) == []
    assert library.current() == model


def test_a_connection_that_is_cut_is_taken_up_again(hub: Hub, tiny: Path, library: ModelLibrary) -> None:
    hub.cuts = [1000, 5000]
    model = download(library, look_up(REPOSITORY))
    assert hub.ranges == [None, "bytes=1000-", "bytes=6000-"]
    assert Path(model.path).read_bytes() == tiny.read_bytes()


def test_a_download_that_was_broken_off_goes_on_the_next_time(hub: Hub, tiny: Path, library: ModelLibrary) -> None:
    offer = look_up(REPOSITORY)
    hub.cuts = [4000, 0, 0, 0, 0, 0, 0]
    with pytest.raises(EnvironmentFailed) as caught:
        download(library, offer)
    assert "continues where it stopped" in (caught.value.hint or "")
    (part,) = parts(library)
    assert part.read_bytes() == tiny.read_bytes()[:4000]
    hub.cuts, hub.ranges = [], []
    model = download(library, offer)
    assert hub.ranges == ["bytes=4000-"]
    assert Path(model.path).read_bytes() == tiny.read_bytes()


def test_a_file_that_is_not_the_announced_one_is_deleted_and_both_hashes_are_said(
    hub: Hub, tiny: Path, library: ModelLibrary
) -> None:
    hub.announced[NAME] = "f" * 64
    with pytest.raises(UsageError, match="differs from the one that the hub announced") as caught:
        download(library, look_up(REPOSITORY))
    assert "f" * 64 in str(caught.value)
    assert hashlib.sha256(tiny.read_bytes()).hexdigest() in str(caught.value)
    assert parts(library) == []
    assert library.models() == []
    assert list(library.folder.rglob("*.gguf")) == []


def test_a_part_of_another_version_is_not_gone_on_with(hub: Hub, tiny: Path, library: ModelLibrary) -> None:
    hub.cuts = [4000, 0, 0, 0, 0, 0, 0]
    with pytest.raises(EnvironmentFailed):
        download(library, look_up(REPOSITORY))
    other = tiny.read_bytes()[:-1] + b"\x07"
    hub.files[NAME], hub.cuts, hub.ranges = other, [], []
    model = download(library, look_up(REPOSITORY))
    assert hub.ranges == [None]
    assert Path(model.path).read_bytes() == other


def test_a_disk_that_is_full_is_said_and_what_has_come_is_kept(hub: Hub, tiny: Path, library: ModelLibrary) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    offer = look_up(REPOSITORY)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(EnvironmentFailed, match="File too large") as caught:
            download(library, offer)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "Free disk space" in (caught.value.hint or "")
    (part,) = parts(library)
    assert part.read_bytes() == tiny.read_bytes()[: part.stat().st_size]
    assert Path(download(library, offer).path).read_bytes() == tiny.read_bytes()


def test_too_little_room_is_said_before_anything_comes(
    hub: Hub, library: ModelLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer = look_up(REPOSITORY)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=5))
    with pytest.raises(EnvironmentFailed, match="GiB more of disk"):
        download(library, offer)
    assert hub.ranges == []


def test_no_network_is_said(library: ModelLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = "http://127.0.0.1:9"
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", nowhere)
    monkeypatch.setattr(
        "huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", nowhere + "/{repo_id}/{revision}/{filename}"
    )
    monkeypatch.setattr("huggingface_hub.file_download.time.sleep", lambda seconds: None)
    with pytest.raises(EnvironmentFailed, match="cannot be reached"):
        look_up(REPOSITORY)
    offer = DownloadOffer(REPOSITORY, NAME, COMMIT, 10, None, None)
    with pytest.raises(EnvironmentFailed) as caught:
        download(library, offer)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("owner/nothing", "no repository"),
        ("not a name", "no repository"),
        (f"{REPOSITORY}:other.gguf", "has no file 'other.gguf'"),
    ],
)
def test_a_name_that_is_not_there_is_said(hub: Hub, name: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        look_up(name)


def test_of_several_files_one_must_be_named_and_a_part_of_one_is_refused(hub: Hub) -> None:
    hub.files["sub/big.gguf"] = hub.files[NAME]
    hub.files["huge-00001-of-00003.gguf"] = b"GGUF"
    with pytest.raises(UsageError, match="holds 3 models") as caught:
        look_up(REPOSITORY)
    assert f"{REPOSITORY}:FILE" in (caught.value.hint or "")
    assert look_up(f"{REPOSITORY}:sub/big.gguf").file == "sub/big.gguf"
    with pytest.raises(UsageError, match="one of several parts"):
        look_up(f"{REPOSITORY}:huge-00001-of-00003.gguf")


def test_a_strangers_file_name_leads_nowhere_else(hub: Hub, library: ModelLibrary, tmp_path: Path) -> None:
    hub.files = {"../../../escaped.gguf": hub.files[NAME]}
    try:
        model = download(library, look_up(REPOSITORY))
    except (EnvironmentFailed, UsageError):
        assert list(tmp_path.rglob("escaped.gguf")) == []
    else:
        assert library.folder.resolve() in Path(model.path).parents


def test_ctrl_c_keeps_what_has_come_and_the_same_command_goes_on(
    hub: Hub, tmp_path: Path, clean: Callable[[], dict[str, str]]
) -> None:
    chunk = 10 << 20  # the client's own
    body = write_tiny_gguf(tmp_path / "big.gguf", shape=Shape(256, 6, 4, 1024)).read_bytes()
    hub.files[NAME] = body
    hub.cuts, hub.stall = [chunk + 1000], True
    command = [sys.executable, "-m", "kernelmate", "model", "add", REPOSITORY, "--yes"]
    environment = clean() | {"HF_ENDPOINT": hub.url, "KERNELMATE_MODELS_DIR": str(tmp_path / "models")}
    first = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    assert hub.stalled.wait(60)
    (part,) = (tmp_path / "models").rglob("*.part")
    while part.stat().st_size < chunk:
        assert first.poll() is None
        time.sleep(0.02)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate()
    assert first.returncode == 130, said
    assert "run the same command again to resume it" in said
    assert "Traceback" not in said
    hub.stall, hub.ranges = False, []
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert hub.ranges == [f"bytes={chunk}-"]
    assert f"sha256 {hashlib.sha256(body).hexdigest()}" in second.stderr
    assert "licence apache-2.0" in second.stderr


@pytest.fixture
def clean(tmp_path: Path) -> Callable[[], dict[str, str]]:
    """An environment whose home is the test's."""
    return lambda: (
        os.environ | {"HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    )
