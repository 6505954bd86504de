"""Include paths, defines, standard and flags of a file from `compile_commands.json`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kernelmate.errors import UsageError
from kernelmate.records import CompileOptions

_VALUED = {"-I": "include", "-isystem": "include", "--include-path": "include", "-D": "define", "--define-macro": "define",
           "-std": "std", "--std": "std", "-maxrregcount": "registers", "--maxrregcount": "registers"}  # fmt: skip
_FAST = {"-use_fast_math", "--use_fast_math", "-ffast-math", "-fcuda-approx-transcendentals"}
_TAKEN = {"-fmad=true", "-fmad=false", "--fmad=true", "--fmad=false", "-ftz=true", "-ftz=false", "--ftz=true",
          "--ftz=false", "-prec-div=true", "-prec-div=false", "--prec-div=false", "-prec-sqrt=true", "-prec-sqrt=false",
          "--prec-sqrt=false", "--extra-device-vectorization", "-extra-device-vectorization"}  # fmt: skip


def read_build(build: Path, file: Path) -> CompileOptions:
    """How a file is compiled in a build; as `build` a folder with `compile_commands.json`, or that file.

    A file that is not in it gets the options of the first CUDA file there, or of the first file in its own folder.

    Raises:
        UsageError: the file cannot be read, is no compilation database, or has no command to go by.
    """
    path = build / "compile_commands.json" if build.is_dir() else build
    try:
        entries = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(
            f"the build's commands cannot be read: {error}.",
            file=str(path),
            hint="Configure with CMAKE_EXPORT_COMPILE_COMMANDS=ON, or name the folder that has compile_commands.json.",
        ) from None
    entry = _entry_for(entries, file.resolve()) if isinstance(entries, list) else None
    if entry is None:
        raise UsageError(
            f"no command there compiles {file.name} or another CUDA file.", file=str(path), hint="Build it first."
        )
    words = entry.get("arguments") or shlex.split(entry.get("command", ""))
    return _options(words, Path(entry.get("directory", path.parent)))


def _entry_for(entries: Sequence[Any], file: Path) -> dict[str, Any] | None:
    known = [entry for entry in entries if isinstance(entry, dict) and "file" in entry]
    places = [(Path(entry.get("directory", ".")) / entry["file"]).resolve() for entry in known]
    pairs = list(zip(places, known, strict=True))
    exact = [entry for place, entry in pairs if place == file]
    beside = [entry for place, entry in pairs if place.suffix == ".cu" and place.parent == file.parent]
    any_cuda = [entry for place, entry in pairs if place.suffix == ".cu"]
    return next(iter([*exact, *beside, *any_cuda]), None)


def _options(words: Sequence[str], directory: Path) -> CompileOptions:
    found: dict[str, list[str]] = {"include": [], "define": [], "std": [], "registers": []}
    for kind, value in _valued(words):
        found[kind].append(str((directory / value).resolve()) if kind == "include" else value)
    standard = found["std"][-1].replace("gnu++", "c++") if found["std"] else "c++17"
    return CompileOptions(
        std=standard,
        defines=tuple(found["define"]),
        include_paths=tuple(dict.fromkeys(found["include"])),
        fast_math=any(word in _FAST for word in words),
        max_registers=int(found["registers"][-1]) if found["registers"] and found["registers"][-1].isdigit() else None,
        flags=tuple(word for word in words if word in _TAKEN),
    )


def _valued(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Kind and value of each option that has one: joined, with `=`, or in the next word."""
    index = 1
    while index < len(words):
        word = words[index]
        index += 1
        name = next((n for n in sorted(_VALUED, key=len, reverse=True) if word == n or word.startswith(n)), None)
        if name is None:
            continue
        value = word[len(name) :].removeprefix("=")
        if not value and index < len(words):
            value = words[index]
            index += 1
        if value:
            yield _VALUED[name], value.strip('"')
