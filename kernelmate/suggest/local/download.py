"""A model from a repository of the Hugging Face hub: shown first, then downloaded, and held to its hash."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmate.errors import EnvironmentFailed, UsageError
from kernelmate.suggest.local.library import Library, Model, OnBytes, sha256_of

SUFFIX = ".gguf"


@dataclass(frozen=True, slots=True)
class Offer:
    """What would be downloaded.

    Attributes:
        repository: `owner/name`. file: in it. revision: the commit, so that what is shown is what comes.
        size: in bytes, None where the hub does not say. sha256: as the hub says. licence: of the repository.
    """

    repository: str
    file: str
    revision: str
    size: int | None
    sha256: str | None
    licence: str | None


def look_up(name: str) -> Offer:
    """What a repository offers under a name: `owner/name`, or `owner/name:file.gguf`.

    Raises:
        UsageError: there is no such repository or file in it, or there are several and none is named.
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
    card = info.card_data
    licence = card.get("license") if card is not None else None
    sha256 = one.lfs.sha256 if one.lfs is not None else None
    return Offer(
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
        if type(error).__module__.split(".")[0] not in {"httpx", "httpx2", "requests"}:
            raise
        raise EnvironmentFailed(
            f"The hub cannot be reached ({type(error).__name__}).", hint="Check the network."
        ) from None


def download(library: Library, offer: Offer, name: str | None = None, on_bytes: OnBytes | None = None) -> Model:
    """Download an offer into the library's folder, going on where an earlier try was broken off, and add it.

    Raises:
        UsageError: what came is not what was offered, or no GGUF file.
        EnvironmentFailed: the hub cannot be reached, or the disk cannot be written.
    """
    from huggingface_hub import hf_hub_download

    folder = library.folder / offer.repository.replace("/", "--")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = Path(hf_hub_download(offer.repository, offer.file, revision=offer.revision, local_dir=folder))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise EnvironmentFailed(
            f"The model cannot be downloaded: {reason}.",
            hint="Make room or check the network, and run it again: it goes on.",
        ) from None
    except Exception as error:
        if type(error).__module__.split(".")[0] not in {"httpx", "httpx2", "requests", "huggingface_hub"}:
            raise
        raise EnvironmentFailed(
            f"The download broke off ({type(error).__name__}).", hint="Run it again: it goes on where it stopped."
        ) from None
    if offer.sha256 is not None and sha256_of(path, on_bytes) != offer.sha256:
        path.unlink(missing_ok=True)
        raise UsageError("What was downloaded is not what the hub had announced; it was deleted.", hint="Try again.")
    return library.add(path, name, source=offer.repository, licence=offer.licence, on_bytes=on_bytes)
