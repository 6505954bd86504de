"""Generates the page of all settings from the settings class."""

from __future__ import annotations

import inspect
import re

from kernelmate.config import ENVIRONMENT_PREFIX, Settings

HEAD = f"""# Settings

A setting is read from the command line, then from the environment (`{ENVIRONMENT_PREFIX}` and its name in capitals), then from the
table `[tool.kernelmate]` of the project's `pyproject.toml`, then from the user's settings file; the first source that names it decides.
`kernelmate doctor` shows the files that are read. Settings that start commands, reach other machines or name written files are never
read from a project.

"""


def pages() -> dict[str, str]:
    """The page, by its path."""
    return {"settings.md": HEAD + "\n".join(_entry(name, meaning) for name, meaning in meanings().items())}


def meanings() -> dict[str, str]:
    """Returns the description of each setting from the class docstring."""
    section = inspect.cleandoc(Settings.__doc__ or "").split("Attributes:\n", 1)[1]
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _entry(name: str, meaning: str) -> str:
    default = Settings.model_fields[name].get_default(call_default_factory=True)
    shown = "none" if default in (None, ()) else str(default).lower() if isinstance(default, bool) else str(default)
    shown = "no table" if name == "ci" else shown
    return f"`{name}`\n:   {meaning[:1].upper()}{meaning[1:]} Default: {shown}.\n"
