"""Client settings: KernelMate's, with names in the editor's camel case, and the server's own."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from kernelmate.config import Settings, load_settings, path_settings, project_file, settings_of_project, user_file
from kernelmate.errors import KernelmateError

SECTION = "kernelmate"
"""Configuration section under which the client stores the settings."""

TRUSTED_ONLY = path_settings() | frozenset(
    {
        "flags",
        "reference",
        "device",
        "ssh_options",
        "remote_worker",
        "model_url",
        "model_key_variable",
        "claude",
        "claude_may_write",
        "claude_budget_usd",
    }
)
"""Settings that name files or machines, or that permit expenses; an untrusted workspace cannot set them."""

_CLIENT_ONLY = frozenset({"interpreter", "importStrategy", "path", "logLevel", "trace", "enable", "showSyntaxErrors"})
"""Keys of the section that only the client reads."""


@dataclass(frozen=True, slots=True)
class EditorSettings:
    """The server's own settings.

    Attributes:
        check_on_type: compile while typing; otherwise only on opening and saving.
        debounce_ms: delay in milliseconds from the last change to compilation.
        benchmark_on_save: judge a file's kernels each time it is saved.
        code_lens: show code lenses above kernels.
        inlay_hints: show counters beside memory accesses.
        inline_completion: let the local model complete code; each completion is judged before it is shown.
        other_targets: further GPUs whose occupancy a hover shows.
        compiler_problems: publish NVRTC's errors and warnings; another server, such as clangd, may have its own.
    """

    check_on_type: bool = True
    debounce_ms: int = 200
    benchmark_on_save: bool = False
    code_lens: bool = True
    inlay_hints: bool = True
    inline_completion: bool = False
    other_targets: tuple[str, ...] = ("A100 80GB SXM", "L4", "RTX 4090")
    compiler_problems: bool = True


@dataclass(frozen=True, slots=True)
class Configuration:
    """All settings that one client sent.

    Attributes:
        own: settings of the server.
        given: settings of KernelMate, by name.
        trusted: True if the user trusts the workspace, so that its code may run.
        problems: errors in the sent settings, one sentence each.
    """

    own: EditorSettings = EditorSettings()
    given: Mapping[str, Any] = field(default_factory=dict)
    trusted: bool = True
    problems: tuple[str, ...] = ()

    def including(self, folder: str) -> Configuration:
        """Returns the configuration with one more folder on the include path."""
        present = tuple(self.given.get("include_paths", ()))
        return replace(self, given={**self.given, "include_paths": (*present, folder)})

    def settings(self, folder: Path | None, **overrides: Any) -> Settings:
        """Returns the settings that apply to documents in a folder.

        Args:
            folder: the folder whose nearest `pyproject.toml` applies if the workspace is trusted; None for none.
            **overrides: settings that override the client's.

        Raises:
            UsageError: a value, a key or a settings file is invalid.
        """
        with settings_of_project(folder if self.trusted else None):
            return load_settings(**{**self.given, **overrides})

    def stamp(self, folder: Path) -> tuple[object, ...]:
        """Returns a value that changes when a settings file that applies to documents in a folder changes."""
        paths = (user_file(), project_file(folder) if self.trusted else None)
        return tuple((path, *_stamp(path)) for path in paths if path is not None)


def _stamp(path: Path) -> tuple[int, int]:
    """Returns the time of a file's last change in nanoseconds, and its size in bytes; zeros for an absent one."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


def read_configuration(sent: object, *, trusted: bool) -> Configuration:
    """Reads a client's configuration section; invalid keys and values are left out and reported.

    Args:
        sent: the section as sent.
        trusted: True if the user trusts the workspace.
    """
    if not isinstance(sent, Mapping):
        return Configuration(trusted=trusted)
    changed: dict[str, Any] = {}
    given: dict[str, Any] = {}
    problems: list[str] = []
    known = {one.name: one for one in fields(EditorSettings)}
    for key, value in sent.items():
        name = snake(str(key))
        if key in _CLIENT_ONLY or value is None or value in ("", []):
            continue
        if name in known:
            default = getattr(EditorSettings(), name)
            if _fits(value, default):
                changed[name] = tuple(value) if isinstance(value, list) else value
            else:
                problems.append(f"{SECTION}.{key} must be {_kind(default)}, not {value!r}.")
        elif name not in Settings.model_fields:
            problems.append(f"There is no setting {SECTION}.{key}.")
        elif trusted or name not in TRUSTED_ONLY:
            given[name] = value
    problems += _drop_wrong(given)
    return Configuration(replace(EditorSettings(), **changed), given, trusted, tuple(problems))


def snake(name: str) -> str:
    """Converts a name to snake case: `includePaths` to `include_paths`."""
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _drop_wrong(given: dict[str, Any]) -> list[str]:
    """Removes invalid values and returns a message for each; each value is checked separately."""
    problems = []
    for name in tuple(given):
        try:
            with settings_of_project(None):
                load_settings(**{name: given[name]})
        except KernelmateError as error:
            problems.append(str(error))
            del given[name]
    return problems


def _fits(value: object, default: object) -> bool:
    if isinstance(default, bool):
        return isinstance(value, bool)
    if isinstance(default, int):
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _kind(default: object) -> str:
    if isinstance(default, bool):
        return "true or false"
    return "a whole number" if isinstance(default, int) else "a list of texts"
