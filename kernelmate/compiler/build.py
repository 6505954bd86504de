"""Reads a file's include paths, defines, standard and flags from `compile_commands.json`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from kernelmate.errors import UsageError
from kernelmate.flags import RefusedOption, allowed
from kernelmate.records import CompileOptions

_REMOVE = "Include the header in the file, and leave options out that name outputs, traces or other files."

_JOINED = {"-I": "include", "-D": "define", "-U": "undefine"}
"""Options whose value may follow without a space or `=`."""

_VALUED = {
    "-isystem": "include", "--include-path": "include", "--define-macro": "define", "--undefine-macro": "undefine",
    "-std": "std", "--std": "std", "-maxrregcount": "registers", "--maxrregcount": "registers",
    "-Xptxas": "ptxas", "--ptxas-options": "ptxas", "-include": "forced", "--pre-include": "forced",
    "-idirafter": "include", "-iquote": "include",
}  # fmt: skip
"""Options whose value follows `=` or is the next word."""

_SKIPPED = frozenset({"-o", "-MF", "-MT", "-MQ", "-ccbin", "--compiler-bindir", "-Xcompiler", "--compiler-options",
                      "-Xlinker", "-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "-x", "-Xclang",
                      "-L", "-l", "-include-pch", "--options-file", "-optf"})  # fmt: skip
"""Options whose value is the next word and does not concern the device compiler."""

_FAST = frozenset({"-use_fast_math", "--use_fast_math", "-ffast-math", "-fcuda-approx-transcendentals"})
_TAKEN = re.compile(
    r"--?(?:fmad|ftz|prec-div|prec-sqrt)=(?:true|false)|--?extra-device-vectorization|--?default-stream=\S+"
)
_MEANS = {"-ffp-contract=off": "--fmad=false", "-fgpu-flush-denormals-to-zero": "--ftz=true",
          "-fcuda-flush-denormals-to-zero": "--ftz=true"}  # fmt: skip
"""NVRTC's equivalents of clang's options."""


class _Entry(msgspec.Struct):
    """A command of a compilation database (Clang, "JSON Compilation Database Format Specification")."""

    file: str
    directory: str = ""
    command: str = ""
    arguments: list[str] = []


def read_build(build: Path, file: Path, *, elsewhere: bool = True) -> CompileOptions:
    """Returns a file's options in a build; `build` is `compile_commands.json`, or its folder.

    A file without an entry gets the options of the first CUDA file in its own folder, else, with `elsewhere`, those of the
    first CUDA file in the build.

    Response files (`@file`, `--options-file`) are not followed.

    Raises:
        UsageError: the file cannot be read, is not a compilation database, or has no usable command.
    """
    path = build / "compile_commands.json" if build.is_dir() else build
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=list[_Entry])
        entry = _entry_for(entries, path.parent, file.resolve(), elsewhere=elsewhere)
    except (OSError, ValueError, msgspec.DecodeError, RecursionError) as error:
        raise UsageError(
            f"The build's commands cannot be read: {error}.",
            file=str(path),
            hint="Configure with CMAKE_EXPORT_COMPILE_COMMANDS=ON, or name the folder that has compile_commands.json.",
        ) from None
    if entry is None:
        raise UsageError(
            f"No command there compiles {file.name} or another CUDA file.", file=str(path), hint="Build it first."
        )
    try:
        options = build_options(entry.arguments or shlex.split(entry.command), path.parent / entry.directory)
        allowed(options.flags)
    except RefusedOption as error:
        raise UsageError(f"The command for {entry.file}: {error}", file=str(path), hint=_REMOVE) from None
    except ValueError as error:
        raise UsageError(
            f"The command for {entry.file} is not a command line: {error}.", file=str(path), hint="Configure again."
        ) from None
    return options


def _entry_for(entries: Sequence[_Entry], folder: Path, file: Path, *, elsewhere: bool) -> _Entry | None:
    pairs = [((folder / entry.directory / entry.file).resolve(), entry) for entry in entries]
    exact = [entry for place, entry in pairs if place == file]
    beside = [entry for place, entry in pairs if place.suffix == ".cu" and place.parent == file.parent]
    any_cuda = [entry for place, entry in pairs if place.suffix == ".cu" and elsewhere]
    return next(iter([*exact, *beside, *any_cuda]), None)


def build_options(words: Sequence[str], directory: Path) -> CompileOptions:
    """Returns the options of a command in nvcc's or clang's syntax, run in a folder.

    Raises:
        RefusedOption: it forces a header in front of the unit.
    """
    found: dict[str, list[str]] = {}
    for kind, value in _read_words(words):
        found.setdefault(kind, []).append(value)
    if "forced" in found:
        raise RefusedOption(
            f"-include {found['forced'][0]} forces a header in front of the unit, which is not supported."
        )
    standard = found.get("std", ["c++17"])[-1].replace("gnu++", "c++")
    registers = [value for value in found.get("registers", ()) if value.isdigit()]
    includes = [str((directory / value).resolve()) for value in found.get("include", ())]
    return CompileOptions(
        std=standard if standard in _STANDARDS else "c++17",
        defines=tuple(found.get("define", ())),
        include_paths=tuple(dict.fromkeys(includes)),
        fast_math="fast" in found,
        max_registers=int(registers[-1]) if registers else None,
        flags=(
            *(f"--undefine-macro={value}" for value in found.get("undefine", ())),
            *(f"--ptxas-options={value}" for value in found.get("ptxas", ()) if value not in ("-v", "--verbose")),
            *found.get("flag", ()),
        ),
    )


_STANDARDS = frozenset({"c++11", "c++14", "c++17", "c++20", "c++23"})


def _read_words(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields kind and value of each option that concerns the device compiler, in nvcc's or clang's syntax."""
    waiting = iter(words[1:])
    for word in waiting:
        name, equals, value = word.partition("=")
        if word in _SKIPPED:
            next(waiting, None)
        elif name in _VALUED:
            yield _VALUED[name], value if equals else next(waiting, "")
        elif word[:2] in _JOINED:
            yield _JOINED[word[:2]], word[2:].removeprefix("=") or next(waiting, "")
        elif word in _FAST:
            yield "fast", word
        elif word in _MEANS or _TAKEN.fullmatch(word):
            yield "flag", _MEANS.get(word, word)
