"""Settings: one frozen object, merged from the command line, the environment, the project's file and the user's file."""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal, get_args

import platformdirs
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from kernelmate.errors import UsageError
from kernelmate.flags import allowed
from kernelmate.records import AlternativeName, CompileOptions, Device, parse_device

_USERS_OWN = frozenset({"ssh_options", "remote_worker", "model_url", "model_key_variable"})
"""Settings that start commands or reach other machines.

A project's file must not set them, since whoever clones the project has not read it. The same holds for a `device` of
another machine, and for every path setting outside `_READ_BY_COMPILER`.
"""

_READ_BY_COMPILER = frozenset({"include_paths", "build"})
"""Path settings that a project may set, because the files are only read.

All other path settings name files that are written.
"""

ENVIRONMENT_PREFIX = "KERNELMATE_"
"""Prefix of environment variables: each setting can be given as this prefix and its name in capitals."""


def _split(value: object) -> object:
    """Splits a list given as one string, as a shell would."""
    return tuple(shlex.split(value)) if isinstance(value, str) else value


def _split_paths(value: object) -> object:
    """Splits a list of folders given as one string, as in PATH."""
    return tuple(part for part in value.split(os.pathsep) if part) if isinstance(value, str) else value


def _device(value: object) -> object:
    """Validates a device and returns it as text; a bare number means a GPU of this machine."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return str(parse_device(text)) if isinstance(text, str) else text


def _flags(value: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the compiler options unchanged if all of them are on the allow-list."""
    allowed(value)
    return value


DeviceName = Annotated[str, BeforeValidator(_device)]
Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
_FOLDERS = BeforeValidator(_split_paths)
Folders = Annotated[tuple[str, ...], NoDecode, _FOLDERS]


class CiSettings(BaseModel):
    """Settings of `kernelmate ci`.

    Attributes:
        base: the revision to compare with.
        allow: how much worse metrics may get, by name: `"+2"`, `"+5%"`, `"any"`.
        exclude: files and folders to leave out, relative to the repository's root.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str | None = None
    allow: dict[str, str | int | float] = Field(default_factory=dict)
    exclude: tuple[str, ...] = ()


def _table(value: object) -> object:
    """Parses a table given as TOML text, as in an environment variable."""
    if not isinstance(value, str):
        return value
    try:
        return tomllib.loads(value)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not TOML: {error}") from None


class Settings(BaseSettings):
    """Settings of compilation and judging. Create them with `load_settings`, which reports the origin of a wrong value.

    Attributes:
        backend: the backend that runs kernels; `auto` uses a GPU if there is one.
        device: the GPU: its CUDA number on this machine, or `ssh:HOST` or `ssh:HOST:N` for one of another machine.
        target: the GPU for compilation, occupancy and prediction; None for this machine's, else H100 SXM.
        timeout_s: seconds for one verdict, without compilation.
        compile_timeout_s: seconds for one compilation.
        reference_timeout_s: seconds for one call of the user's reference function.
        memory_limit_mb: MiB that judging may take beyond the idle worker.
        step_limit: instructions that one thread of an emulated launch may take before it counts as hung.
        device_memory_mb: MiB of the GPU's memory that judging may take; None for 80% of the memory that is free at its
            start.
        ssh_options: further options of ssh for a device of another machine, as in "-p 2222".
        remote_worker: the command that starts the worker on the other machine, for its shell.
        instruction_limit: instructions that all threads of one emulated launch may take together.
        timing_budget_s: seconds for timing one version on a GPU; 0 disables timing.
        sanitize: run compute-sanitizer around each version's listed launches (GPU).
        profile: read hardware counters of each version's headline launch by ncu (GPU).
        against: libraries whose time for the same computation is shown beside a verdict's (GPU): `torch`, `compile`, `cublas`.
        seed: seed of the inputs; None draws one for each verdict, which records it.
        std: the C++ standard.
        defines: `NAME` or `NAME=VALUE`.
        include_paths: folders searched for headers.
        fast_math: compile with `-use_fast_math`.
        max_registers: upper limit of registers per thread.
        flags: further compiler options, in the spelling of NVRTC or nvcc.
        build: a `compile_commands.json`, or the folder that holds one.
        cache_dir: the folder of compiled kernels; None for the user's cache folder.
        reference: replaces the reference of every contract.
        history: keep every judged version in the history.
        history_file: the history's file; None for `history.db` in the user's data folder.
        model: the local model's name; None for the one in use (`kernelmate model use`).
        starter: ask the model that is installed with KernelMate if no other one is in use.
        model_url: another server that speaks OpenAI's chat protocol, as in http://127.0.0.1:8080/v1; a text for one on
            another machine is shown before it is sent.
        model_codec: the codec of the model at `model_url`, as its file names it under `kernelmate.codec`; None for a
            chat model.
        model_key_variable: the environment variable that holds that server's key.
        models_dir: the folder of models; None for the user's data folder.
        model_context: tokens of one conversation; None for the model's own, up to 16,384 and the available memory.
        model_gpu_layers: layers on a GPU, or `auto` for as many as leave a quarter of its free memory to kernels; 0
            keeps the model on the CPU. A model on a GPU is not asked while a kernel is timed there.
        model_threads: threads of the CPU; None for all cores.
        model_answer_s: seconds for one whole answer of a model, Claude included.
        model_idle_s: seconds without a request after which a model is unloaded.
        samples: answers of the local model per round.
        claude: ask Claude if neither recipes nor the local model succeeded; the text is shown before it is sent.
        claude_model: the model's name in Anthropic's API.
        claude_budget_usd: US dollars that one search may spend at most; searches of one notebook or editor share them.
        claude_may_write: let Claude write a kernel itself if its review did not help.
        accept_into: where a notebook writes an accepted version: the kernel's `cell`, a new cell `below`, or `nowhere`.
        offer_judging: offer to judge a new `cupy.RawKernel` of a notebook, in one line after the cell that made it.
        ci: the conditions of `kernelmate ci`.
        calibration_file: the file of measured roofs; None for `calibration.json` in the user's data folder.
    """

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix=ENVIRONMENT_PREFIX, validate_default=False
    )

    backend: Literal["auto", "cuda", "emulator"] = "auto"
    device: DeviceName | None = None
    target: str | None = None
    timeout_s: float = Field(default=120.0, gt=0, allow_inf_nan=False)
    compile_timeout_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    reference_timeout_s: float = Field(default=60.0, gt=0, allow_inf_nan=False)
    memory_limit_mb: int = Field(default=8192, ge=1)
    step_limit: int = Field(default=20_000_000, ge=1)
    device_memory_mb: int | None = Field(default=None, ge=64)
    ssh_options: Words = ()
    remote_worker: str = Field(default="kernelmate-worker", min_length=1)
    instruction_limit: int = Field(default=20_000_000_000, ge=1)
    timing_budget_s: float = Field(default=0.2, ge=0, allow_inf_nan=False)
    sanitize: bool = False
    profile: bool = False
    against: Annotated[tuple[AlternativeName, ...], NoDecode, BeforeValidator(_split)] = ()
    seed: int | None = Field(default=None, ge=0, lt=2**63)
    std: Literal["c++11", "c++14", "c++17", "c++20", "c++23"] = "c++17"
    defines: Words = ()
    include_paths: Folders = ()
    fast_math: bool = False
    max_registers: int | None = Field(default=None, ge=1, le=255)
    flags: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split), AfterValidator(_flags)] = ()
    build: Path | None = None
    cache_dir: Path | None = None
    reference: str | None = None
    history: bool = True
    history_file: Path | None = None
    model: str | None = None
    starter: bool = True
    model_url: str | None = Field(default=None, pattern=r"^https?://")
    model_codec: str | None = Field(default=None, min_length=1)
    model_key_variable: str = "KERNELMATE_MODEL_KEY"
    models_dir: Path | None = None
    model_context: int | None = Field(default=None, ge=512)
    model_gpu_layers: Annotated[int, Field(ge=0)] | Literal["auto"] = 0
    model_threads: int | None = Field(default=None, ge=1)
    model_answer_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    model_idle_s: float = Field(default=600.0, gt=0, allow_inf_nan=False)
    samples: int = Field(default=4, ge=1, le=64)
    claude: bool = False
    claude_model: str = Field(default="claude-opus-5-5", min_length=1)
    claude_budget_usd: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    claude_may_write: bool = False
    calibration_file: Path | None = None
    accept_into: Literal["cell", "below", "nowhere"] = "cell"
    offer_judging: bool = True
    ci: Annotated[CiSettings, NoDecode, BeforeValidator(_table)] = CiSettings()

    @property
    def place(self) -> Device:
        """Returns the device that kernels run on: the GPU that `device` names, else the first one of this machine."""
        return Device() if self.device is None else parse_device(self.device)

    @property
    def compile_options(self) -> CompileOptions:
        """Returns the settings that concern the compiler."""
        return CompileOptions(
            std=self.std,
            defines=self.defines,
            include_paths=self.include_paths,
            fast_math=self.fast_math,
            max_registers=self.max_registers,
            flags=self.flags,
        )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- the library's signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Returns the sources in order of precedence: command line, environment, project file, user file."""
        return init_settings, env_settings, *(TomlSource(settings_cls, path, table) for path, table in _files())


@functools.cache
def path_settings() -> frozenset[str]:
    """Returns the names of all settings of a path type; in a file they are relative to the file's folder."""
    return frozenset(
        name
        for name, info in Settings.model_fields.items()
        if _names_path(info.annotation) or _FOLDERS in info.metadata
    )


def _names_path(annotation: Any) -> bool:
    """Returns True if a type is a path or contains one (optional, container or table)."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return any(_names_path(info.annotation) for info in annotation.model_fields.values())
    if isinstance(annotation, type) and issubclass(annotation, PurePath):
        return True
    return any(map(_names_path, get_args(annotation)))


class TomlSource(PydanticBaseSettingsSource):
    """Settings source that reads one table of a TOML file.

    Args:
        settings_cls: the settings' class.
        path: the file; an absent one holds no settings.
        table: the keys that lead to the table; empty for the whole file.

    Raises:
        UsageError: the file cannot be read, is not TOML, or is a project's and holds a setting that only the user may
        set.
    """

    def __init__(self, settings_cls: type[BaseSettings], path: Path, table: tuple[str, ...]) -> None:
        super().__init__(settings_cls)
        self.path = path
        self.table = table
        self.values = {key: _from_folder(path.parent, key, value) for key, value in _read_table(path, table).items()}
        if table:
            _refuse_users_own(path, self.values)

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Returns the value of one setting; None if the file does not contain it."""
        return self.values.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        """Returns the whole table; unknown keys stay in it, so that validation reports them."""
        return self.values


def load_settings(**overrides: Any) -> Settings:
    """Loads the settings in force, from overrides, `KERNELMATE_*` variables, the project's `pyproject.toml` and the user's file.

    Args:
        **overrides: settings by name, as given on the command line; None values are ignored.

    Raises:
        UsageError: a value, a key or a file is invalid; the message gives its place and the allowed values.
    """
    given = {key: value for key, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise _usage_error(error, given) from error


_PROJECT: ContextVar[Path | None] = ContextVar("_PROJECT", default=None)
"""Folder in which the search for the project's file starts; None for the current folder, `NO_PROJECT` for no search."""

NO_PROJECT = Path(os.devnull)


@contextlib.contextmanager
def settings_of_project(folder: Path | None) -> Iterator[None]:
    """Context manager: `load_settings` searches for `pyproject.toml` from the given folder instead of the current one.

    Args:
        folder: the folder in which the upward search starts; None for an untrusted project, whose file is not read.
    """
    token = _PROJECT.set(NO_PROJECT if folder is None else folder)
    try:
        yield
    finally:
        _PROJECT.reset(token)


def user_file() -> Path:
    """Returns the path of the user's settings file, whether or not it exists."""
    return platformdirs.user_config_path() / "kernelmate.toml"


def project_file(start: Path | None = None) -> Path | None:
    """Returns the nearest `pyproject.toml` in `start` (default: the current folder) or above it; None if there is none."""
    start = start or _PROJECT.get()
    if start == NO_PROJECT:
        return None
    folder = (start or Path.cwd()).resolve()
    for candidate in (folder, *folder.parents):
        if (candidate / "pyproject.toml").is_file():
            return candidate / "pyproject.toml"
    return None


def project_folder(start: Path) -> Path:
    """Returns the nearest folder, from the file's folder upward, that has a `pyproject.toml` or `.git`.

    Without such a folder, it returns the file's own folder.
    """
    return marked_folder(start) or start.resolve()


def marked_folder(start: Path) -> Path | None:
    """Returns the nearest folder, from the file's folder upward, that has a `pyproject.toml` or `.git`, if any."""
    folder = start.resolve()
    return next(
        (one for one in (folder, *folder.parents) if (one / "pyproject.toml").is_file() or (one / ".git").exists()),
        None,
    )


def _files() -> list[tuple[Path, tuple[str, ...]]]:
    """Returns the settings files, each with the table to read, in order of precedence."""
    project = project_file()
    return [*([(project, ("tool", "kernelmate"))] if project else []), (user_file(), ())]


@functools.lru_cache(maxsize=8)
def _parsed(text: str) -> dict[str, Any]:
    """Returns the tables of a TOML text, which must not be changed; an editor reads its settings at each key."""
    return tomllib.loads(text)


def _read_table(path: Path, table: tuple[str, ...]) -> dict[str, Any]:
    try:
        values: Any = _parsed(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"The settings file cannot be read: {reason}.", file=str(path)) from error
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"^(.*) \(at line (\d+), column (\d+)\)$", str(error))
        message, line, column = place.groups() if place else (str(error), None, None)
        raise UsageError(
            f"The settings file is not valid TOML: {message}.",
            file=str(path),
            line=int(line) if line else None,
            column=int(column) if column else None,
        ) from error
    for key in table:
        values = values.get(key, {})
        if not isinstance(values, dict):
            raise UsageError(f"[{'.'.join(table)}] must be a table.", file=str(path), line=_line_of(path, key))
    return dict(values)


def _from_folder(folder: Path, key: str, value: object) -> object:
    """Resolves a path setting relative to the file's folder; a reference only if the folder contains its file."""
    if key == "reference" and isinstance(value, str) and (folder / value.rpartition(":")[0]).is_file():
        return str(folder / value)
    if key not in path_settings():
        return value
    if isinstance(value, str):
        return str(folder / Path(value).expanduser())
    if isinstance(value, list):
        return [str(folder / Path(item).expanduser()) if isinstance(item, str) else item for item in value]
    return value


def _refuse_users_own(path: Path, values: Mapping[str, Any]) -> None:
    """Refuses settings in a project's file that would run commands or write files.

    Raises:
        UsageError: the file contains such a setting.
    """
    for key, value in values.items():
        elsewhere = key == "device" and isinstance(value, str) and not value.isdigit()
        if key in _USERS_OWN or key in path_settings() - _READ_BY_COMPILER or elsewhere:
            raise UsageError(
                f"{key} cannot be set by a project: whoever opens the project would run or write what it says.",
                file=str(path),
                line=_line_of(path, key),
                hint=f"Put it into {user_file()}, or set {ENVIRONMENT_PREFIX}{key.upper()}.",
            )


def _usage_error(error: ValidationError, given: dict[str, Any]) -> UsageError:
    """Returns an error for the first validation failure, with the place of the value."""
    first = error.errors(include_url=False)[0]
    key = str(first["loc"][0]) if first["loc"] else "settings"
    where, file, line = _origin(key, given)
    if key == "ci" and len(first["loc"]) > 1:
        return _ci_error(".".join(map(str, first["loc"])), first, where, file, line)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, Settings.model_fields, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Settings are: {', '.join(Settings.model_fields)}."
        return UsageError(f"There is no setting {key!r}{where}.", file=file, line=line, hint=hint)
    value = first["input"]
    what = first["msg"][0].lower() + first["msg"][1:]
    return UsageError(f"{key} = {value!r}{where} cannot be used: {what}.", file=file, line=line, hint=_allowed(key))


def _ci_error(key: str, first: Any, where: str, file: str | None, line: int | None) -> UsageError:
    """Returns an error for an invalid value inside the `ci` table."""
    hint = f"[tool.kernelmate.ci] has {', '.join(CiSettings.model_fields)}."
    if first["type"] == "extra_forbidden":
        return UsageError(f"There is no setting {key!r}{where}.", file=file, line=line, hint=hint)
    what = first["msg"][0].lower() + first["msg"][1:]
    return UsageError(f"{key} = {first['input']!r}{where} cannot be used: {what}.", file=file, line=line, hint=hint)


def _origin(key: str, given: dict[str, Any]) -> tuple[str, str | None, int | None]:
    """Returns the origin of the value in force: text for the message, file and line."""
    variable = f"{ENVIRONMENT_PREFIX}{key.upper()}"
    if key in given:
        return "", None, None
    if variable in {name.upper() for name in os.environ}:
        return f" in the environment ({variable})", None, None
    for path, table in _files():
        if key in _read_table(path, table):
            return f" in [{'.'.join(table)}]" if table else "", str(path), _line_of(path, key)
    return "", None, None


def _line_of(path: Path, key: str) -> int | None:
    pattern = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*=""")
    lines = path.read_text(encoding="utf-8").splitlines()
    matches = [number for number, text in enumerate(lines, 1) if pattern.match(text)]
    return matches[0] if len(matches) == 1 else None


_ALLOWED: dict[str, str] = {
    "backend": "Allowed: auto, cuda, emulator.",
    "device": "Give the number of a GPU here, or ssh:HOST or ssh:HOST:N for one of another machine.",
    "device_memory_mb": "Give a whole number of MiB, at least 64.",
    "std": "Allowed: c++11, c++14, c++17, c++20, c++23.",
    "timeout_s": "Give seconds, more than 0.",
    "compile_timeout_s": "Give seconds, more than 0.",
    "reference_timeout_s": "Give seconds, more than 0.",
    "step_limit": "Give a whole number, at least 1.",
    "instruction_limit": "Give a whole number, at least 1.",
    "memory_limit_mb": "Give a whole number of MiB, at least 1.",
    "timing_budget_s": "Give seconds, 0 or more.",
    "seed": "Give a whole number from 0 to 2^63 - 1.",
    "max_registers": "Give a whole number from 1 to 255.",
    "fast_math": "Allowed: true, false.",
    "model_gpu_layers": "Give a number of layers, 0 for none, or auto.",
    "history": "Allowed: true, false.",
}


def _allowed(key: str) -> str | None:
    return _ALLOWED.get(key)
