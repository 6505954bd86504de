"""The extension's manifest and what the server and the library take say the same."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from kernelmate.config import Settings, path_settings
from kernelmate_lsp.app import make_server
from kernelmate_lsp.configuration import TRUSTED_ONLY, EditorSettings, read_configuration, snake

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "extension"
MANIFEST: dict[str, Any] = json.loads((EXTENSION / "package.json").read_text())
CONTRIBUTED = MANIFEST["contributes"]
PROPERTIES: dict[str, dict[str, Any]] = {
    name.removeprefix("kernelmate."): value
    for group in CONTRIBUTED["configuration"]
    for name, value in group["properties"].items()
}
CLIENT_ONLY = {"interpreter", "importStrategy", "path", "logLevel", "trace.server"}
NOT_OF_THE_EDITOR = {"against", "ci", "accept_into", "offer_judging"}
"""Settings of commands and of notebooks, which no editor has."""


def test_every_setting_of_the_server_and_the_library_can_be_set_and_no_other() -> None:
    offered = {snake(name) for name in PROPERTIES if name not in CLIENT_ONLY}
    own = {field.name for field in dataclasses.fields(EditorSettings)}
    assert offered == (set(Settings.model_fields) - NOT_OF_THE_EDITOR) | own


def test_settings_are_named_below_the_extension_and_described() -> None:
    names = [name for group in CONTRIBUTED["configuration"] for name in group["properties"]]
    assert all(name.startswith("kernelmate.") for name in names)
    assert len(set(names)) == len(names)
    assert all(len(one["markdownDescription"]) > 10 for one in PROPERTIES.values())


@pytest.mark.parametrize("name", sorted(set(PROPERTIES) - CLIENT_ONLY))
def test_the_default_that_the_editor_shows_is_the_one_in_force(name: str) -> None:
    own = {field.name: getattr(EditorSettings(), field.name) for field in dataclasses.fields(EditorSettings)}
    shown, key = PROPERTIES[name]["default"], snake(name)
    real = own[key] if key in own else Settings.model_fields[key].default
    assert shown == (list(real) if isinstance(real, tuple) else real)


def test_the_server_takes_every_default_without_a_complaint() -> None:
    section = {name: value["default"] for name, value in PROPERTIES.items() if name not in CLIENT_ONLY}
    assert read_configuration(section, trusted=True).problems == ()


def test_no_setting_that_names_programs_paths_machines_or_money_is_taken_from_an_untrusted_workspace() -> None:
    trust = MANIFEST["capabilities"]["untrustedWorkspaces"]
    restricted = {name.removeprefix("kernelmate.") for name in trust["restrictedConfigurations"]}
    assert trust["supported"] == "limited"
    assert restricted <= set(PROPERTIES)
    assert {"interpreter", "importStrategy", "path"} <= restricted
    # flags, build and the like are the server's to refuse too; the two lists must agree.
    assert set(TRUSTED_ONLY) <= {snake(name) for name in restricted}


def test_no_workspace_can_set_a_path_that_is_written() -> None:
    scopes = {snake(name): value["scope"] for name, value in PROPERTIES.items()}
    written = path_settings() - {"include_paths", "build"}
    assert "cache_dir" in written
    assert {scopes[name] for name in written} == {"machine"}


def test_every_command_in_menus_keys_and_walkthroughs_exists() -> None:
    known = {one["command"] for one in CONTRIBUTED["commands"]}
    used = {one["command"] for menu in CONTRIBUTED["menus"].values() for one in menu}
    used |= {one["command"] for one in CONTRIBUTED["keybindings"]}
    steps = [step for one in CONTRIBUTED["walkthroughs"] for step in one["steps"]]
    used |= {name for step in steps for name in re.findall(r"command:(kernelmate\.\w+)", step["description"])}
    assert used <= known
    sources = "".join(path.read_text() for path in (EXTENSION / "src").glob("*.ts"))
    served = set(make_server().protocol.fm.commands)
    assert {name for name in known if f'"{name}"' not in sources} <= served


def test_keys_are_taken_only_while_a_suggestion_is_open_but_for_the_prompt_in_cuda_files() -> None:
    prompt, *others = CONTRIBUTED["keybindings"]
    assert prompt["command"] == "kernelmate.optimize"
    assert "resourceExtname" in prompt["when"]
    assert others
    for one in others:
        assert "kernelmate.suggestionOpen" in one["when"]
        assert "resourceScheme == kernelmate-after" in one["when"]


def test_files_that_the_manifest_names_are_there() -> None:
    steps = [step for one in CONTRIBUTED["walkthroughs"] for step in one["steps"]]
    named = [MANIFEST["icon"], *(step["media"]["markdown"] for step in steps)]
    assert all((EXTENSION / name).is_file() for name in named)


def test_versions_are_those_of_the_package_and_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert MANIFEST["version"] == project["project"]["version"]
    pinned = {**MANIFEST["dependencies"], **MANIFEST["devDependencies"]}
    locked = json.loads((EXTENSION / "package-lock.json").read_text())["packages"]
    for name, version in pinned.items():
        assert re.fullmatch(r"\d+\.\d+\.\d+", version), name
        assert locked[f"node_modules/{name}"]["version"] == version
