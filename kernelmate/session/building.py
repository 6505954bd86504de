"""Compiler options for a file's device code: the settings' options, combined with those of the build system."""

from __future__ import annotations

from pathlib import Path

from kernelmate.compiler import read_build
from kernelmate.config import Settings
from kernelmate.records import CompileOptions


def options_for(settings: Settings, file: Path) -> CompileOptions:
    """Return the compiler options in force for a file.

    Raises:
        UsageError: the build's commands cannot be read.
    """
    options = settings.compile_options
    if settings.build is None:
        return options
    return _joined(options, read_build(settings.build, file), "std" in settings.model_fields_set)


def _joined(own: CompileOptions, build: CompileOptions, explicit_std: bool) -> CompileOptions:
    """Combines a build's options with the settings': the settings' folders are searched first, their defines come last."""
    return CompileOptions(
        std=own.std if explicit_std else build.std,
        defines=build.defines + own.defines,
        include_paths=own.include_paths + build.include_paths,
        fast_math=own.fast_math or build.fast_math,
        max_registers=own.max_registers if own.max_registers is not None else build.max_registers,
        flags=build.flags + own.flags,
    )
