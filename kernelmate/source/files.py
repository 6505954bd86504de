"""Reads the user's files, or text without a file, and finds the kernel that a command names."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from kernelmate.errors import SourceError
from kernelmate.records import Kernel, Unit
from kernelmate.source.blocks import block_of, find_kernels, find_pipelines
from kernelmate.source.cuda import macros_with_kernels, read_source, refuse_unclosed
from kernelmate.source.host_text import project_texts
from kernelmate.source.launches import find_launches
from kernelmate.source.line_ends import normal_text
from kernelmate.source.python import RefusedString, read_python, refused_strings
from kernelmate.source.triton import triton_unit
from kernelmate.source.write import clear_leftovers


def text_unit(text: str, path: str = "<cell>") -> Unit:
    """Returns a unit of plain text; positions in it are those of the cell.

    Args:
        text: CUDA text without the cell's magic line.
        path: its name in error messages.
    """
    return Unit(path=path, text=normal_text(text), language="text", file_text=text)


LARGEST_FILE = 5_000_000
"""Maximum bytes of a file: generated headers are longer, kernels are not."""


def read_units(path: Path) -> tuple[Unit, ...]:
    """Returns the CUDA text of a file.

    One unit for .cu and the like; for a .py file one per RawKernel or RawModule string, and the file itself if it has Triton
    functions.

    Raises:
        SourceError: the file is missing, a directory, empty, over 5 MB, binary, not UTF-8, or not Python.
    """
    text = read_text(path)
    if path.suffix == ".py":
        found = triton_unit(str(path), text)
        return (*read_python(str(path), text), *([] if found is None else [found]))
    return (Unit(path=str(path), text=normal_text(text), language="cuda", file_text=text),)


def read_text(path: Path) -> str:
    """Returns a file's text with its own line ends and byte order mark.

    Raises:
        SourceError: as `read_units`.
    """
    name = str(path)
    if path.suffix == ".ipynb":
        raise SourceError(
            "This is a notebook, whose cells are not read from its file.",
            file=name,
            hint="Use the %%kernelmate magic in it, or move the kernel to a .cu file.",
        )
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)  # a device may have no end
        if len(data) > LARGEST_FILE:
            hint = "Move the kernel to a file of its own."
            raise SourceError("The file is over the limit of 5 MB.", file=name, hint=hint)
    except FileNotFoundError:
        raise SourceError("There is no such file.", file=name, hint=_near_file(path)) from None
    except IsADirectoryError:
        raise SourceError("This is a directory.", file=name, hint="Name a .cu, .cuh or .py file in it.") from None
    except OSError as error:
        hint = "Check the path and its permissions."
        raise SourceError(f"The file cannot be read: {error.strerror}.", file=name, hint=hint) from None
    except ValueError:
        raise SourceError("This is not a path.", file=name, hint="Name a .cu, .cuh or .py file.") from None
    return _decoded(name, data)


def _near_file(path: Path) -> str:
    try:
        names = [other.name for other in path.parent.iterdir() if other.suffix in (".cu", ".cuh", ".py")]
    except OSError:
        return f"Check the directory {path.parent}."
    near = difflib.get_close_matches(path.name, names, n=1)
    return f"Did you mean {path.parent / near[0]}?" if near else "Check the path."


def _empty(name: str) -> SourceError:
    content = (
        "a kernel, or the function or module that is asked for," if name.endswith(".py") else "a __global__ function"
    )
    return SourceError("The file is empty.", file=name, hint=f"Write {content} into it.")


def _decoded(name: str, data: bytes) -> str:
    if not data.strip():
        raise _empty(name)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SourceError("The file is UTF-16.", file=name, hint="Save it as UTF-8.")
    if b"\0" in data:
        offset = data.index(b"\0")
        hint = "Name a file of CUDA or Python text."
        raise SourceError(f"The file is binary: byte {offset} is zero.", file=name, hint=hint)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
        raise SourceError(
            f"The file is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}.",
            file=name,
            line=line,
            column=column,
            hint="Save it as UTF-8, for instance with iconv -f latin1 -t utf-8.",
        ) from None
    if not text.strip("\ufeff \t\r\n"):
        raise _empty(name)
    return text


def load_kernels(path: Path | str) -> tuple[Kernel, ...]:
    """Returns every kernel of a file in order, then its pipelines; kernels of the same name (overloads, `#if`) are distinguished.

    Raises:
        SourceError: the file cannot be used or has no kernel.
    """
    path = Path(path)
    units = read_units(path)
    clear_leftovers(path)
    kernels = tuple(kernel for unit in units for kernel in find_kernels(unit))
    if not kernels:
        _fail_without_kernel(path)
    return (*_told_apart(kernels), *(pipeline for unit in units for pipeline in find_pipelines(unit)))


def _told_apart(kernels: tuple[Kernel, ...]) -> tuple[Kernel, ...]:
    """Returns the kernels; those that share a name get their parameter types as a distinction, or else their line."""
    names = Counter(kernel.name for kernel in kernels)
    typed = Counter((kernel.name, _types(kernel)) for kernel in kernels)
    found = []
    for kernel in kernels:
        if names[kernel.name] > 1:
            line = kernel.unit.locate(kernel.line, kernel.column)[0]
            unique = typed[kernel.name, _types(kernel)] == 1
            kernel = replace(kernel, distinction=_types(kernel) if unique else f":{line}")
        found.append(kernel)
    return tuple(found)


def _types(kernel: Kernel) -> str:
    return f"({', '.join(parameter.type for parameter in kernel.signature.parameters)})"


def load_kernel(spec: str) -> Kernel:
    """Returns the kernel or pipeline that `FILE` or `FILE::KERNEL` names.

    `FILE` alone means its only kernel, or the only one, or pipeline, that has a contract. `KERNEL` may leave namespaces out.

    Raises:
        SourceError: the file cannot be used, has no such kernel, or has several that fit; the hint lists them.
    """
    path, name = _split(spec)
    if name is None:
        return _only(path, load_kernels(path))
    refused = _refused(path)
    try:
        kernels = load_kernels(path)
    except SourceError:
        _fail_if_refused(path, name, refused)
        raise
    found = next(filter(None, (_named(kernels, name, of) for of in (_label, _name))), [])
    if len(found) == 1:
        return found[0]
    _fail_if_refused(path, name, refused)
    names = [kernel.name for kernel in kernels]
    if found:
        hint = f"Write one of {', '.join(kernel.label for kernel in found)}."
        raise SourceError(f"Several kernels are called {name}.", file=str(path), hint=hint)
    near = difflib.get_close_matches(name, names, n=1)
    meant = f"Did you mean {near[0]}? " if near else ""
    raise SourceError(f"There is no kernel {name} here.", file=str(path), hint=f"{meant}There is {', '.join(names)}.")


def load_single_kernel(spec: str, command: str) -> Kernel:
    """Returns the kernel that `FILE` or `FILE::KERNEL` names, for a command that takes no pipeline.

    Raises:
        SourceError: as `load_kernel`, or it is a pipeline.
    """
    kernel = load_kernel(spec)
    if kernel.parts:
        inside = [one for one in find_kernels(kernel.unit) if (one.start, one.end) in kernel.parts]
        raise SourceError(
            f"{kernel.name} is a pipeline, and {command} takes one kernel.",
            file=kernel.unit.path,
            line=kernel.unit.locate(kernel.line, kernel.column)[0],
            hint=f"Name one of its kernels: {', '.join(one.name for one in inside) or 'it has none'}.",
        )
    return kernel


def _label(kernel: Kernel) -> str:
    return "".join(kernel.label.split())


def _name(kernel: Kernel) -> str:
    return kernel.name


def _named(kernels: tuple[Kernel, ...], name: str, of: Callable[[Kernel], str]) -> list[Kernel]:
    """Returns the kernels of a name, else those whose name ends with it after a namespace; blanks do not count."""
    wanted = "".join(name.split())
    return [k for k in kernels if of(k) == wanted] or [k for k in kernels if of(k).endswith(f"::{wanted}")]


def _split(spec: str) -> tuple[Path, str | None]:
    if Path(spec).is_file() or "::" not in spec:
        return Path(spec), None
    path, _, name = spec.partition("::")
    return Path(path), name.strip() or None


def _only(path: Path, kernels: tuple[Kernel, ...]) -> Kernel:
    with_contract = [kernel for kernel in kernels if block_of(kernel) is not None]
    chosen = kernels if len(kernels) == 1 else tuple(with_contract)
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(kernel.label for kernel in kernels)
    raise SourceError(
        f"The file has {len(kernels)} kernels: {names}.", file=str(path), hint=f"Name one: {path}::{kernels[0].label}."
    )


def unread_kernels(path: Path) -> tuple[str, ...]:
    """Returns one sentence, with its place, for each computed string and each macro that has kernels which are not read.

    Raises:
        SourceError: the file cannot be read.
    """
    strings = tuple(
        f"{path}:{one.line}:{one.column}: the code of {one.kernel or 'this call'} is not read: {one.what}"
        for one in _refused(path)
    )
    macros = () if path.suffix == ".py" else macros_with_kernels(normal_text(read_text(path)))
    return (
        *strings,
        *(f"{path}:{line}:1: the kernels that the macro {name} defines are not read" for name, line in macros),
    )


def _refused(path: Path) -> tuple[RefusedString, ...]:
    return refused_strings(str(path), read_text(path)) if path.suffix == ".py" else ()


def _fail_if_refused(path: Path, name: str | None, refused: tuple[RefusedString, ...]) -> None:
    for string in refused:
        if name is None or string.kernel == name:
            raise SourceError(
                f"The code of {string.kernel or 'this kernel'} is not a plain string: {string.what}.",
                file=str(path),
                line=string.line,
                column=string.column,
                hint="Pass a string literal, and what varies by options, such as options=('-DNAME=value',).",
            )


def _fail_without_kernel(path: Path) -> None:
    if path.suffix == ".py":
        _fail_if_refused(path, None, _refused(path))
        hint = (
            "Kernels are read from functions with @triton.jit, and from string literals given to cupy.RawKernel, "
            "cupy.RawModule, torch's load_inline or PyCUDA's SourceModule."
        )
        if "triton.jit" in read_text(path):
            hint += (
                " Functions with @triton.jit that return a value are called by kernels, which may be in other files."
            )
        if "cuda.jit" in read_text(path):
            hint += (
                " Numba compiles its kernels itself: `kernelmate capture` runs the program and records their launches."
            )
        raise SourceError("There is no kernel in this Python file.", file=str(path), hint=hint)
    text = normal_text(read_text(path))
    macros = macros_with_kernels(text)
    if macros:
        name, line = macros[0]
        hint = f"Write the kernels that the macro {name} defines as functions, one for each call of the macro."
        names = ", ".join(name for name, _ in macros)
        message = f"The kernels of this file are defined by macros, which are not read: {names}."
        raise SourceError(message, file=str(path), line=line, hint=hint)
    refuse_unclosed(Unit(str(path), text))
    hint = "A kernel is a __global__ function with a body."
    if "__global__" in text and re.match(r'\s*R"[^"()\s]*\(', text):
        hint = "The file is one raw string literal, for a program that compiles it: remove its delimiters in a copy to judge its kernels."
    for kernel, file in _launched_elsewhere(path, text):
        hint += f" This file launches {kernel}: kernelmate check {file}"
        break
    raise SourceError("There is no kernel in this file.", file=str(path), hint=hint)


def _launched_elsewhere(path: Path, text: str) -> Iterator[tuple[str, Path]]:
    """Yields the kernels that a text launches and other files of its project define, with these files."""
    names = {launch.name.rpartition("::")[2] for launch in find_launches(text)}
    for file, other in project_texts(path) if names else ():
        if "__global__" in other and any(name in other for name in names):
            for definition in read_source(other).definitions:
                if definition.name.rpartition("::")[2] in names:
                    yield definition.name, file
