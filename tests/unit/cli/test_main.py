"""The command line as a whole: help, errors, exit codes, streams."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import kernelmate
from kernelmate import __version__, errors
from kernelmate.cli.main import COMMANDS, cli

HEAVY = ("numpy", "rich", "pydantic", "tree_sitter", "plotly", "msgspec", "cuda", "platformdirs", "pygments")
KERNELMATE = [sys.executable, "-m", "kernelmate"]


def fresh(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*KERNELMATE, *arguments], capture_output=True, text=True, check=False, **options)


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom kernelmate.cli.main import cli\n"
        "try:\n    cli.main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_every_command_has_examples_and_is_quick_to_load(command: str) -> None:
    result = CliRunner().invoke(cli, [command, "--help"])
    assert result.exit_code == 0
    assert "Examples:" in result.output
    assert f"kernelmate {command}" in result.output.split("Examples:")[1]


def test_the_help_lists_every_command_with_a_line(run: Callable[..., Result]) -> None:
    text = run("--help").output
    for name, (_, line) in COMMANDS.items():
        assert name in text
        assert line.split(";")[0].split(",")[0] in text


def test_the_version_is_printed(run: Callable[..., Result]) -> None:
    assert run("--version").output == f"kernelmate {__version__}\n"


def test_the_module_and_the_script_are_the_same_program() -> None:
    script = Path(sys.executable).parent / "kernelmate"
    shown = [
        subprocess.run([*one, "--help"], capture_output=True, text=True, check=True).stdout
        for one in ([str(script)], KERNELMATE)
    ]
    assert shown[0] == shown[1]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["optimise", "a.cu"], "Did you mean optimize?"),
        (["zzz"], "Commands are check"),
        (["check"], "Missing argument"),
        (["check", "a.cu", "--nope"], "--nope"),
        (["bench", "a.cu", "--backend", "tpu"], "tpu"),
        (["bench", "a.cu", "--size", "n=x"], "rows=37,cols=853"),
        (["optimize", "a.cu", "faster", "--max-candidates", "0"], "max-candidates"),
    ],
)
def test_mistakes_on_the_command_line_exit_with_2(
    arguments: list[str], says: str, run: Callable[..., Result], documents: Callable[[str], Any]
) -> None:
    told = run(*arguments)
    assert told.exit_code == 2
    assert told.stdout == ""
    assert says in told.stderr
    assert told.stderr.count("\n") <= 2
    as_json = run(*arguments, "--json")
    assert as_json.exit_code == 2
    assert says in documents(as_json.stdout)["error"]["message"]
    assert as_json.stderr == ""


def test_no_command_shows_the_help(run: Callable[..., Result]) -> None:
    result = run()
    assert result.exit_code == 2
    assert "Commands:" in result.output


@pytest.mark.parametrize(
    ("error", "code", "name"),
    [
        (errors.UsageError("off"), 2, "usage"),
        (errors.SourceError("off"), 2, "source"),
        (errors.ContractError("off"), 2, "contract"),
        (errors.ReferenceFailed("off"), 2, "reference"),
        (errors.CompilerUnavailable("off"), 3, "no-compiler"),
        (errors.BackendUnavailable("off"), 3, "no-backend"),
        (errors.WorkerUnavailable("off"), 3, "no-worker"),
        (errors.CompileTimeout("off"), 1, "compile-timeout"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(errno.ENOSPC, "No space left on device", "/x"), 3, "environment"),
        (MemoryError(), 3, "environment"),
        (ZeroDivisionError("division by zero"), 70, "defect"),
    ],
)
def test_each_error_has_its_exit_code_and_its_document(
    error: BaseException, code: int, name: str, script: Any, run: Callable[..., Result], documents: Callable[[str], Any]
) -> None:
    script.error = error
    told = run("bench", "twice.cu")
    assert told.exit_code == code
    assert told.stderr.strip().split("\n")[0].startswith("error: ")
    assert len(told.stderr.strip().split("\n")) <= 2
    assert "Traceback" not in told.stderr
    as_json = run("bench", "twice.cu", "--json")
    assert as_json.exit_code == code
    assert documents(as_json.stdout)["error"]["code"] == name
    assert script.closed == 2


def test_an_error_with_a_place_shows_the_line_and_a_caret(script: Any, run: Callable[..., Result]) -> None:
    script.error = errors.ContractError("block is too large.", file="twice.cu", line=4, column=4, hint="Set 256.")
    assert run("bench", "twice.cu").stderr == (
        "error: twice.cu:4:4: block is too large.\n    4 | // block = 256\n      |    ^\nhint: Set 256.\n"
    )


def test_an_error_cannot_steer_the_terminal(script: Any, run: Callable[..., Result]) -> None:
    script.error = errors.SourceError("bad \x1b[2J\nname", file="x\x1b]0;t\x07.cu", line=1, hint="see \x1b[0m")
    told = run("bench", "twice.cu")
    assert "\x1b" not in told.stderr
    assert told.stderr.count("\n") == 2


def test_a_defect_shows_its_traceback_when_asked(
    script: Any, run: Callable[..., Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    script.error = ZeroDivisionError("division by zero")
    assert "Traceback" in run("bench", "twice.cu", "--debug").stderr
    monkeypatch.setenv("KERNELMATE_DEBUG", "1")
    assert "Traceback" in run("bench", "twice.cu").stderr
    monkeypatch.setenv("KERNELMATE_DEBUG", "0")
    assert "Traceback" not in run("bench", "twice.cu").stderr


def test_json_after_two_dashes_is_no_option(script: Any, run: Callable[..., Result]) -> None:
    told = run("bench", "--", "--json")
    assert told.exit_code == 2
    assert told.stderr.startswith("error: ")


def test_a_reader_that_went_away_ends_it_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        done = subprocess.run([*KERNELMATE, "--help"], stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode != 0


@pytest.mark.skipif(sys.platform == "win32", reason="closes a file descriptor by a shell")
def test_closed_streams_are_no_error() -> None:
    line = f"'{sys.executable}' -m kernelmate --version >&-"
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*KERNELMATE, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("error: No space left on device")
    assert "Traceback" not in done.stderr


def test_an_ascii_locale_takes_any_name(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = fresh("bench", str(tmp_path / "größe.cu"), env=environment)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.isascii()


def test_the_shell_completes_commands_and_targets() -> None:
    def completed(words: str) -> str:
        environment = os.environ | {
            "_KERNELMATE_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)
        }  # fmt: skip
        script = str(Path(sys.executable).parent / "kernelmate")
        return subprocess.run([script], capture_output=True, text=True, env=environment, check=False).stdout

    assert "plain,optimize" in completed("kernelmate opt")
    assert "plain,H100 SXM" in completed("kernelmate check --target H1")
    assert "file," in completed("kernelmate check soft")


def test_click_is_told_nothing_when_used_as_a_library() -> None:
    with pytest.raises(click.UsageError):
        cli.main(["zzz"], standalone_mode=False)


INTERRUPTED_IMPORT = """
import sys
class Interrupting:
    def find_spec(self, name, *_):
        if name == "signal":
            raise KeyboardInterrupt
sys.modules.pop("signal", None)
sys.meta_path.insert(0, Interrupting())
import kernelmate.__main__
"""


def test_an_interrupt_before_there_is_a_handler_shows_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED_IMPORT], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (130, b"")


def test_little_is_imported_before_an_interrupt_is_handled() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import kernelmate.__main__; print(sorted({'re', 'typing'} & set(sys.modules)))"
    root = str(Path(kernelmate.__file__).parents[1])
    said = subprocess.run([sys.executable, "-S", "-c", code, root], capture_output=True, text=True, check=True).stdout
    assert said == "[]\n"
