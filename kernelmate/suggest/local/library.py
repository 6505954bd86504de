"""Library of the user's models: GGUF files, facts about each, and the selected one."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from kernelmate.errors import EnvironmentFailed, UsageError
from kernelmate.files import write_atomically

CHUNK = 1 << 20
OnBytes = Callable[[int, int], None]
"""Callback with the bytes done, and their total."""


@dataclass(frozen=True, slots=True)
class LocalModelFile:
    """One GGUF file.

    Attributes:
        name: the user's name for the model.
        path: the file's path.
        sha256: the file's hash when it was added.
        size: the file's size in bytes.
        modified_ns: modification time of the file, as the system reports it.
        architecture: such as `llama` or `qwen2`.
        context: context length in tokens that the model was trained for.
        parameters: number of weights.
        quantization: format of the weights.
        licence: the licence that the file or its repository states.
        source: the repository that the file was downloaded from; None for a local file.
        layers: number of layers.
        cache_bytes: bytes of the key-value cache per token of context.
        codec: name of its codec in `kernelmate.suggest.codec`; None for a chat model.
        offers: fingerprint of the rewrites that it was trained to choose among; None if it chooses none.
    """

    name: str
    path: str
    sha256: str
    size: int
    modified_ns: int
    architecture: str | None = None
    context: int | None = None
    parameters: int | None = None
    quantization: str | None = None
    licence: str | None = None
    source: str | None = None
    layers: int | None = None
    cache_bytes: int | None = None
    codec: str | None = None
    offers: str | None = None


def default_folder() -> Path:
    """Returns `models` in the user's data folder."""
    import platformdirs

    return platformdirs.user_data_path("kernelmate") / "models"


class ModelLibrary:
    """The list of models in one folder; a list that cannot be read is empty.

    Args:
        folder: folder of the list and of downloaded models; None for the user's own.
        starter: the shipped model, used if the user has chosen none; None if there is none.
    """

    def __init__(self, folder: Path | None = None, starter: LocalModelFile | None = None) -> None:
        self.folder = folder or default_folder()
        self.starter = starter

    @property
    def list_file(self) -> Path:
        """Path of the list file."""
        return self.folder / "models.json"

    def models(self) -> list[LocalModelFile]:
        """Returns all models by name; the starter is last, unless a model of the user has its name."""
        listed = self._listed()
        known = {model.name for model in listed}
        return listed + ([self.starter] if self.starter is not None and self.starter.name not in known else [])

    def _listed(self) -> list[LocalModelFile]:
        entries = self._read().get("models", [])
        found = []
        for entry in entries if isinstance(entries, list) else []:
            with contextlib.suppress(TypeError):
                found.append(LocalModelFile(**entry))
        return sorted(found, key=lambda model: model.name)

    def current(self) -> LocalModelFile | None:
        """Returns the model in use: the user's choice, else the starter."""
        name = self._read().get("use")
        return next((model for model in self.models() if model.name == name), self.starter)

    def find(self, name: str) -> LocalModelFile:
        """Returns the model of a name, or of a file path, listed or not.

        Raises:
            UsageError: there is no such model, or the file is not a GGUF file.
        """
        for model in self.models():
            if model.name == name:
                return model
        if name.endswith(".gguf") and Path(name).is_file():
            return _described(Path(name), Path(name).stem)
        known = ", ".join(model.name for model in self.models()) or "none yet"
        raise UsageError(
            f"There is no model {name!r}.", hint=f"Models are: {known}. Add one with `kernelmate model add FILE.gguf`."
        )

    def add(self, path: Path, name: str | None = None, *, source: str | None = None, licence: str | None = None, sha256: str | None = None, on_bytes: OnBytes | None = None) -> LocalModelFile:  # fmt: skip
        """Adds a file at its present path, and select it if no model is selected; `sha256` is its hash if known.

        Raises:
            UsageError: the file is not a GGUF file.
            EnvironmentFailed: the list cannot be written.
        """
        model = _described(path, name or path.stem, sha256, on_bytes)
        model = replace(model, source=source, licence=licence or model.licence)
        others = [other for other in self._listed() if other.name != model.name]
        use = self._read().get("use")
        self._write([*others, model], use if any(other.name == use for other in others) else model.name)
        return model

    def use(self, name: str) -> LocalModelFile:
        """Selects a model.

        Raises:
            UsageError: there is no model of this name.
            EnvironmentFailed: the list cannot be written.
        """
        model = self.find(name)
        self._write(self._listed(), model.name)
        return model

    def remove(self, name: str) -> bool:
        """Removes a model from the list; a file downloaded into the library's folder is deleted.

        Returns:
            True if the file was deleted.

        Raises:
            UsageError: there is no model of this name.
            EnvironmentFailed: the list cannot be written.
        """
        model = self.find(name)
        if model == self.starter:
            raise UsageError(
                f"The model {name} comes with KernelMate.",
                file=model.path,
                hint="Use another one with `kernelmate model use`, or none with the setting starter = false.",
            )
        rest = [other for other in self._listed() if other.name != name]
        use = self._read().get("use")
        self._write(rest, None if use == name else use)
        ours = self.folder.resolve() in Path(model.path).resolve().parents
        if ours:
            with contextlib.suppress(OSError):
                Path(model.path).unlink()
        return ours

    def check(self, model: LocalModelFile) -> None:
        """Checks that the file has not changed since it was added; it is hashed only if its size or time differs.

        Raises:
            UsageError: the file is missing or has changed.
        """
        try:
            status = Path(model.path).stat()
        except OSError:
            raise UsageError(
                f"The file of the model {model.name} is gone.",
                file=model.path,
                hint=f"Put it back, or `kernelmate model remove {model.name}`.",
            ) from None
        if (status.st_size, status.st_mtime_ns) == (model.size, model.modified_ns):
            return
        if sha256_of(Path(model.path)) != model.sha256:
            raise UsageError(
                f"The file of the model {model.name} is not the one that was added.",
                file=model.path,
                hint=f"If that is meant, add it again: `kernelmate model add {model.path} --name {model.name}`.",
            )

    def _read(self) -> dict[str, Any]:
        try:
            document = json.loads(self.list_file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def _write(self, models: list[LocalModelFile], use: str | None) -> None:
        document = {"use": use, "models": [asdict(model) for model in sorted(models, key=lambda model: model.name)]}
        try:
            write_atomically(self.list_file, json.dumps(document, indent=1))
        except OSError as error:
            raise EnvironmentFailed(
                f"The list of models cannot be written: {error.strerror or error}.",
                file=str(self.list_file),
                hint="Make the folder writable, or name another one in the setting models_dir.",
            ) from error


def read_facts(path: Path) -> dict[str, Any]:
    """Reads a GGUF file's metadata: architecture, context, parameters, quantization, licence, codec.

    Raises:
        UsageError: the file cannot be read, or is not a GGUF file.
        EnvironmentFailed: the gguf package is missing.
    """
    try:
        from gguf import GGUFReader, LlamaFileType
    except ImportError:
        raise EnvironmentFailed("Models need the gguf package.", hint="pip install 'kernelmate[local]'") from None
    hint = "Give a .gguf file, or the name of a repository that holds one."
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise UsageError("This is not a GGUF file.", file=str(path), hint=hint)
        reader = GGUFReader(path)
        fields = {name: _value(field) for name, field in reader.fields.items()}
        parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
    except OSError as error:
        raise UsageError(f"The file cannot be read: {error.strerror or error}.", file=str(path), hint=hint) from None
    except (ValueError, KeyError, IndexError, OverflowError, MemoryError, TypeError) as error:
        raise UsageError(f"The GGUF file is damaged: {str(error)[:200]}.", file=str(path), hint=hint) from None
    architecture = str(fields.get("general.architecture") or "") or None
    kind = fields.get("general.file_type")
    known = {int(one) for one in LlamaFileType}
    licence = fields.get("general.license")
    context = fields.get(f"{architecture}.context_length")
    return {
        "architecture": architecture,
        "context": int(context) if isinstance(context, int) else None,
        "parameters": parameters,
        "quantization": LlamaFileType(kind).name.removeprefix("MOSTLY_") if kind in known else None,
        "licence": str(licence) if licence else None,
        "layers": _count(fields, f"{architecture}.block_count"),
        "cache_bytes": _cache_bytes(fields, architecture),
        "codec": str(fields.get("kernelmate.codec") or "") or None,
        "offers": str(fields.get("kernelmate.offers") or "") or None,
    }


def _count(fields: dict[str, object], name: str) -> int | None:
    value = fields.get(name)
    return value if isinstance(value, int) and value > 0 else None


def _cache_bytes(fields: dict[str, object], architecture: str | None) -> int | None:
    """Returns the key-value cache's bytes per token over all layers, in half precision.

    The result is None if the file lacks the shape.
    """
    layers, heads, width = (
        _count(fields, f"{architecture}.{name}") for name in ("block_count", "attention.head_count", "embedding_length")
    )
    if layers is None or heads is None or width is None:
        return None
    groups = _count(fields, f"{architecture}.attention.head_count_kv") or heads
    keys = _count(fields, f"{architecture}.attention.key_length") or width // heads
    values = _count(fields, f"{architecture}.attention.value_length") or width // heads
    return layers * groups * (keys + values) * 2


def _value(field: Any) -> object:
    """Returns a field's value if it is one number or text; lists, such as the vocabulary, give None."""
    if len(field.data) != 1:
        return None
    value = field.contents()
    return value if isinstance(value, (int, float, str, bool)) else None


def sha256_of(path: Path, on_bytes: OnBytes | None = None) -> str:
    """Returns the hash of a file, in hexadecimal; `on_bytes` gets the bytes read so far and the file's size.

    Raises:
        UsageError: the file cannot be read.
    """
    digest, done = hashlib.sha256(), 0
    try:
        total = path.stat().st_size
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                done += len(chunk)
                if on_bytes is not None:
                    on_bytes(done, total)
    except OSError as error:
        raise UsageError(f"The file cannot be read: {error.strerror or error}.", file=str(path)) from None
    return digest.hexdigest()


def _described(path: Path, name: str, sha256: str | None = None, on_bytes: OnBytes | None = None) -> LocalModelFile:
    """Returns a file as a model; computes the hash if unknown.

    Raises:
        UsageError: the file is not a GGUF file.
    """
    facts, status = read_facts(path), path.stat()
    digest = sha256 or sha256_of(path, on_bytes)
    return LocalModelFile(name, str(path.resolve()), digest, status.st_size, status.st_mtime_ns, **facts)
