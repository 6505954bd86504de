"""Download of a model from the Hugging Face hub: first shown to the user, then downloaded, and verified by its hash."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmate.errors import EnvironmentFailed, UsageError
from kernelmate.suggest.local.library import LocalModelFile, ModelLibrary, OnBytes, sha256_of

SUFFIX = ".gguf"
GOES_ON = "Free disk space or check the network, and give the same command again: it continues where it stopped."
_ONE_OF_SEVERAL = re.compile(r"-\d{5}-of-\d{5}\.gguf\Z", re.IGNORECASE)

OnStage = Callable[[str, int, int], None]
"""Callback with the stage (`downloading`, `checking`), bytes done, and total."""


@dataclass(frozen=True, slots=True)
class DownloadOffer:
    """A download to confirm.

    Attributes:
        repository: `owner/name`.
        file: name of the file in the repository.
        revision: the commit, which fixes the downloaded file.
        size: in bytes; None if the hub does not state it.
        sha256: hash of the file by the hub; None if it does not state it.
        licence: the licence of the repository.
    """

    repository: str
    file: str
    revision: str
    size: int | None
    sha256: str | None
    licence: str | None


def look_up(name: str) -> DownloadOffer:
    """Look up a repository's file: `owner/name`, or `owner/name:file.gguf`.

    Raises:
        UsageError: there is no such repository or file, or there are several files and none is named.
        EnvironmentFailed: huggingface_hub is missing, or the hub cannot be reached.
    """
    repository, _, wanted = name.partition(":")
    info = _info(repository)
    files = [one for one in info.siblings or () if one.rfilename.lower().endswith(SUFFIX)]
    if not files:
        raise UsageError(f"{repository} holds no .gguf file.", hint="Choose a repository with GGUF files.")
    chosen = [one for one in files if wanted in {"", one.rfilename}]
    if len(chosen) != 1:
        names = ", ".join(one.rfilename for one in files[:12])
        what = f"{repository} has no file {wanted!r}." if not chosen else f"{repository} holds {len(files)} models."
        raise UsageError(what, hint=f"Name one as {repository}:FILE. Files: {names}.")
    (one,) = chosen
    if _ONE_OF_SEVERAL.search(one.rfilename):
        raise UsageError(
            f"{one.rfilename} is one of several parts of a model, and only models of one file are served.",
            hint="Choose a coarser quantization; those of up to 50 GB come in one file.",
        )
    card = info.card_data
    licence = card.get("license") if card is not None else None
    sha256 = one.lfs.sha256 if one.lfs is not None else None
    return DownloadOffer(
        repository, one.rfilename, info.sha or "main", one.size, sha256, None if licence is None else str(licence)
    )


def _info(repository: str) -> Any:
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
    except ImportError:
        hint = "pip install 'kernelmate[local]'"
        raise EnvironmentFailed("Downloading models needs the huggingface_hub package.", hint=hint) from None
    try:
        return HfApi().model_info(repository, files_metadata=True, timeout=30)
    except (RepositoryNotFoundError, HFValidationError):
        hint = "Names are OWNER/NAME. A private one needs a token of the hub's own tool (hf auth login)."
        raise UsageError(f"There is no repository {repository!r} that you may read.", hint=hint) from None
    except (HfHubHTTPError, OSError) as error:
        raise EnvironmentFailed(
            f"The hub cannot be reached ({type(error).__name__}).", hint="Check the network."
        ) from None
    except Exception as error:
        if not _of_the_client(error):
            raise
        raise EnvironmentFailed(
            f"The hub cannot be reached ({type(error).__name__}).", hint="Check the network."
        ) from None


def download(
    library: ModelLibrary, offer: DownloadOffer, name: str | None = None, on_bytes: OnStage | None = None
) -> LocalModelFile:
    """Download an offer into the library's folder, resuming an interrupted download, and add it.

    Data stays in a `.part` file until it is complete and its hash is verified.

    Args:
        library: the library that the model is added to.
        offer: from `look_up`.
        name: the model's name; None for the file's name.
        on_bytes: called with the stage, the bytes done, and the total.

    Raises:
        UsageError: the file differs from the offer, or is not a GGUF file.
        EnvironmentFailed: the hub cannot be reached, or the disk cannot be written.
    """
    told = on_bytes or (lambda stage, done, total: None)
    path = library.folder / _plain(offer.repository) / _plain(offer.file)
    part = path.with_name(f"{path.name}.{(offer.sha256 or offer.revision)[:16]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _check_room(part, offer.size)
        _fetch(offer, part, lambda done, total: told("downloading", done, total))
    except OSError as error:
        reason = error.strerror or str(error) or type(error).__name__
        raise EnvironmentFailed(f"The model cannot be downloaded: {reason}.", file=str(part), hint=GOES_ON) from None
    except Exception as error:
        if not _of_the_client(error):
            raise
        raise EnvironmentFailed(f"The download broke off ({type(error).__name__}).", hint=GOES_ON) from None
    sha256 = sha256_of(part, lambda done, total: told("checking", done, total))
    if offer.sha256 is not None and sha256 != offer.sha256:
        part.unlink(missing_ok=True)
        raise UsageError(
            f"The downloaded file differs from the one that the hub announced, and was deleted: its SHA-256 is {sha256}, "
            f"the announced one is {offer.sha256}.",
            hint="Try again; if it happens again, do not trust the repository.",
        )
    part.replace(path)
    return library.add(
        path, name or Path(offer.file).stem, source=offer.repository, licence=offer.licence, sha256=sha256
    )


def _plain(name: str) -> str:
    """Returns a name of the hub as the name of one file or folder, so that a remote path cannot leave the library."""
    return re.sub(r"[^\w.+-]", "_", name.replace("/", "--")).lstrip(".-") or "model"


def _check_room(part: Path, size: int | None) -> None:
    """Refuses a download for which disk space does not suffice.

    Raises:
        EnvironmentFailed: the disk has less room than is needed.
    """
    here = part.stat().st_size if part.exists() else 0
    needed, free = (size or 0) - here, shutil.disk_usage(part.parent).free
    if needed > free:
        raise EnvironmentFailed(
            f"The model needs {needed / 2**30:.2f} GiB more of disk, and {free / 2**30:.2f} are free.",
            file=str(part.parent),
            hint="Free disk space, or keep models elsewhere by the setting models_dir.",
        )


def _fetch(offer: DownloadOffer, part: Path, told: OnBytes) -> None:
    """Downloads the missing rest of a file; `hf_hub_download` would start again after an interruption."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils._headers import build_hf_headers
    from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    url = hf_hub_url(offer.repository, offer.file, revision=offer.revision)
    part.touch()
    here = part.stat().st_size
    if offer.size is not None and here > offer.size:
        part.unlink()
        part.touch()
        here = 0
    silent = are_progress_bars_disabled()
    disable_progress_bars()
    try:
        with _GrowingFile(part, lambda done: told(done, offer.size or 0)) as file:
            http_get(url, file, resume_size=here, headers=build_hf_headers(), expected_size=offer.size)
    finally:
        if not silent:
            enable_progress_bars()


class _GrowingFile(io.FileIO):
    """A file opened for appending that reports its length after each write."""

    def __init__(self, path: Path, told: Callable[[int], None]) -> None:
        super().__init__(path, "r+")
        self.seek(0, io.SEEK_END)
        self._told = told

    def write(self, data: Any) -> int:
        """Writes all data and returns their length."""
        view = memoryview(data)
        done = 0
        while done < len(view):
            done += super().write(view[done:])
        self._told(self.tell())
        return done


def _of_the_client(error: Exception) -> bool:
    """Returns True for an error of the hub's client or its HTTP library."""
    return type(error).__module__.split(".")[0] in {"httpx", "httpx2", "requests", "huggingface_hub"}
