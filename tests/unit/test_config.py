"""Settings: their sources, and names of GPUs in them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path, PurePath

import pytest
from hypothesis import HealthCheck, given, settings, strategies
from pydantic import ValidationError, create_model

from kernelmate import config
from kernelmate.config import load_settings
from kernelmate.errors import UsageError
from kernelmate.records import Device, parse_device


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A project's pyproject.toml (the current folder lies deep below it) and the user's file."""
    user = tmp_path / "user" / "kernelmate.toml"
    user.parent.mkdir()
    below = tmp_path / "project" / "src" / "kernels"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.setattr(config, "user_file", lambda: user)
    for name in config.Settings.model_fields:
        monkeypatch.delenv(f"KERNELMATE_{name.upper()}", raising=False)
    project = tmp_path / "project" / "pyproject.toml"
    project.write_text("[project]\nname = 'x'\n")
    return project, user


def test_without_any_source_the_defaults_hold(places: tuple[Path, Path]) -> None:
    settings = load_settings()
    assert (settings.backend, settings.target, settings.timeout_s, settings.std) == ("auto", None, 120.0, "c++17")
    assert settings.seed is None
    assert settings.defines == ()


def test_each_source_gives_way_to_the_one_above_it(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    project, user = places
    user.write_text("timeout_s = 1\n")
    assert load_settings().timeout_s == 1
    project.write_text("[tool.kernelmate]\ntimeout_s = 2\n")
    assert load_settings().timeout_s == 2
    monkeypatch.setenv("KERNELMATE_TIMEOUT_S", "3")
    assert load_settings().timeout_s == 3
    assert load_settings(timeout_s=4).timeout_s == 4
    assert load_settings(timeout_s=None).timeout_s == 3


def test_sources_are_joined_key_by_key(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    project, user = places
    user.write_text("seed = 5\nfast_math = true\n")
    project.write_text("[tool.kernelmate]\ntarget = 'L4'\n")
    monkeypatch.setenv("KERNELMATE_MAX_REGISTERS", "64")
    settings = load_settings(std="c++20")
    assert (settings.seed, settings.fast_math, settings.target) == (5, True, "L4")
    assert settings.compile_options.max_registers == 64
    assert settings.compile_options.std == "c++20"


def test_lists_in_the_environment_are_written_as_in_a_shell(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELMATE_DEFINES", "TILE=32 'NAME=a b'")
    monkeypatch.setenv("KERNELMATE_INCLUDE_PATHS", "/one:/two words")
    settings = load_settings()
    assert settings.defines == ("TILE=32", "NAME=a b")
    assert settings.include_paths == ("/one", "/two words")


def test_paths_of_a_file_are_relative_to_the_file(places: tuple[Path, Path]) -> None:
    project, _ = places
    project.write_text("[tool.kernelmate]\ninclude_paths = ['include', '/usr/include']\nbuild = 'out'\n")
    settings = load_settings()
    assert settings.include_paths == (str(project.parent / "include"), "/usr/include")
    assert settings.build == project.parent / "out"


def test_settings_do_not_change_and_do_not_take_unknown_names(places: tuple[Path, Path]) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        load_settings().timeout_s = 5.0  # type: ignore[misc]
    with pytest.raises(UsageError, match="'time_out'"):
        load_settings(time_out=3)


def test_a_misspelt_key_is_named_with_its_file_line_and_the_likely_one(places: tuple[Path, Path]) -> None:
    project, _ = places
    project.write_text("[project]\nname = 'x'\n[tool.kernelmate]\ntimeout = 2\n")
    with pytest.raises(UsageError) as caught:
        load_settings()
    assert (caught.value.file, caught.value.line) == (str(project), 4)
    assert "[tool.kernelmate]" in caught.value.message
    assert caught.value.hint == "Did you mean timeout_s?"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("backend = 'gpu'", "auto, cuda, emulator"),
        ("timeout_s = 0", "more than 0"),
        ("timeout_s = nan", "more than 0"),
        ("max_registers = 256", "1 to 255"),
        ("seed = -1", "0 to 2^63 - 1"),
        ("std = 'c++98'", "c++17"),
        ("fast_math = 'perhaps'", "true, false"),
    ],
)
def test_a_wrong_value_is_told_with_its_place_and_what_is_allowed(
    places: tuple[Path, Path], text: str, said: str
) -> None:
    project, _ = places
    project.write_text(f"[tool.kernelmate]\n{text}\n")
    with pytest.raises(UsageError) as caught:
        load_settings()
    assert (caught.value.file, caught.value.line) == (str(project), 2)
    assert text.split(" = ")[0] in caught.value.message
    assert said in (caught.value.hint or "")


def test_a_wrong_value_of_the_environment_names_the_variable(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELMATE_BACKEND", "tpu")
    with pytest.raises(UsageError, match="KERNELMATE_BACKEND"):
        load_settings()


def test_broken_toml_is_told_with_line_and_column(places: tuple[Path, Path]) -> None:
    _, user = places
    user.write_text("seed = 1\ntarget = \n")
    with pytest.raises(UsageError) as caught:
        load_settings()
    assert (caught.value.file, caught.value.line) == (str(user), 2)
    assert caught.value.column is not None


def test_a_file_that_is_no_text_and_a_table_that_is_none_are_told(places: tuple[Path, Path]) -> None:
    project, user = places
    user.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="UTF-8"):
        load_settings()
    user.unlink()
    project.write_text("[tool]\nkernelmate = 3\n")
    with pytest.raises(UsageError, match=r"\[tool.kernelmate\] must be a table"):
        load_settings()


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    values=strategies.fixed_dictionaries(
        {},
        optional={
            "timeout_s": strategies.floats(0.001, 1e6),
            "seed": strategies.integers(0, 2**63 - 1),
            "target": strategies.text(max_size=20),
            "defines": strategies.lists(strategies.text(max_size=5), max_size=3).map(tuple),
            "fast_math": strategies.booleans(),
        },
    )
)
def test_what_the_command_line_gives_is_what_holds(places: tuple[Path, Path], values: dict[str, object]) -> None:
    loaded = load_settings(**values)
    assert {name: getattr(loaded, name) for name in values} == values


def test_the_package_itself_does_not_load_the_settings() -> None:
    code = "import sys, kernelmate, kernelmate.errors; print('pydantic' in sys.modules, 'numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_reference_of_a_file_is_looked_for_beside_the_file(places: tuple[Path, Path]) -> None:
    project, _ = places
    (project.parent / "ref.py").write_text("def f(x): return x\n")
    project.write_text("[tool.kernelmate]\nreference = 'ref.py:f'\n")
    assert load_settings().reference == f"{project.parent / 'ref.py'}:f"
    project.write_text("[tool.kernelmate]\nreference = 'x * 2'\n")
    assert load_settings().reference == "x * 2"


@pytest.mark.parametrize(
    "line",
    [
        'ssh_options = "-o ProxyCommand=anything"',
        'remote_worker = "anything"',
        'device = "ssh:elsewhere"',
        'model_url = "http://elsewhere/v1"',
        'model_key_variable = "AWS_SECRET_ACCESS_KEY"',
        'history_file = "/home/user/.ssh/config"',
    ],
)
def test_a_project_cannot_set_what_would_run_or_send_or_write_at_its_choice(
    places: tuple[Path, Path], line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, user = places
    project.write_text(f"[tool.kernelmate]\nseed = 1\n{line}\n")
    with pytest.raises(UsageError, match="cannot be set by a project") as refused:
        load_settings()
    assert (refused.value.file, refused.value.line) == (str(project), 3)
    assert str(user) in (refused.value.hint or "")
    project.write_text("[tool.kernelmate]\ndevice = 0\n")
    user.write_text(f"{line}\n")
    settings = load_settings()
    assert settings.device in {"0", "ssh:elsewhere"}


def test_no_path_but_those_the_compiler_reads_is_taken_from_a_project(places: tuple[Path, Path]) -> None:
    """Every setting with a path in its type or its name, those added later included."""
    project, _ = places
    by_name = re.compile(r"(^|_)(dirs?|files?|folders?|paths?|cache)$")
    named = {name for name in config.Settings.model_fields if by_name.search(name)}
    assert config.path_settings() >= named | {"cache_dir", "build"}
    read_only = {"include_paths", "build"}
    for name in config.path_settings() - read_only:
        project.write_text(f"[tool.kernelmate]\n{name} = 'here'\n")
        with pytest.raises(UsageError, match=f"{name} cannot be set by a project"):
            load_settings()
    project.write_text("[tool.kernelmate]\ninclude_paths = ['here']\nbuild = 'here'\n")
    assert load_settings().build == project.parent / "here"


def test_the_cache_folder_comes_from_the_users_file_and_the_environment(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, user = places
    user.write_text("cache_dir = 'kept'\n")
    assert load_settings().cache_dir == user.parent / "kept"
    monkeypatch.setenv("KERNELMATE_CACHE_DIR", "/elsewhere")
    assert load_settings().cache_dir == Path("/elsewhere")


@pytest.mark.parametrize("kind", [Path | None, list[Path], dict[str, Path], tuple[Path, ...] | None, PurePath])
def test_a_path_in_a_setting_is_found_wherever_it_stands_in_the_type(kind: object) -> None:
    holder = create_model("Holder", inner=(kind, None))
    assert config._names_path(kind)
    assert config._names_path(holder)
    assert not config._names_path(str | None)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("0", Device(None, 0)),
        ("3", Device(None, 3)),
        ("ssh:gpubox", Device("gpubox", 0)),
        ("ssh:me@gpu.example.org:2", Device("me@gpu.example.org", 2)),
    ],
)
def test_a_device_is_read_and_written_alike(text: str, device: Device) -> None:
    assert parse_device(text) == device
    assert parse_device(str(device)) == device


@pytest.mark.parametrize(
    "text", ["", "-1", "cuda:0", "ssh:", "ssh:-oProxyCommand=x", "ssh:a b", "ssh:host:x", "ssh:h:1:2"]
)
def test_what_is_no_device_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither the number of a GPU nor ssh:HOST"):
        parse_device(text)
    with pytest.raises(UsageError, match="device = ") as caught:
        load_settings(device=text)
    assert "ssh:HOST:N" in str(caught.value.hint)


def test_a_device_may_stand_in_the_environment_and_be_a_bare_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMATE_DEVICE", "ssh:box:1")
    assert load_settings().place == Device("box", 1)
    assert load_settings(device="2").place == Device(None, 2)
    monkeypatch.delenv("KERNELMATE_DEVICE")
    assert load_settings().place == Device()
    assert load_settings(device=1).place == Device(None, 1)
