"""Starts the recording in a process that Python begins with this folder on PYTHONPATH, then runs the user's own `sitecustomize`."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent / "recording"
NAME = "kernelmate_torch_recording"
"""Name of the recording package in the traced program, which may not have KernelMate installed."""
COMPILERS = "torch/_inductor/compile_worker/"
"""In the command line of the processes in which inductor compiles, and which run no part of the program."""


def _load(name: str, file: Path, folder: Path | None = None) -> ModuleType:
    places = None if folder is None else [str(folder)]
    spec = importlib.util.spec_from_file_location(name, file, submodule_search_locations=places)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _record() -> None:
    """Begins to record; a failure is printed and does not affect the program."""
    folder = os.environ.get("KERNELMATE_TRACE")
    if not folder or NAME in sys.modules or any(COMPILERS in one for one in sys.orig_argv):
        return
    try:
        _load(NAME, PACKAGE / "__init__.py", PACKAGE)
        importlib.import_module(f"{NAME}.process").start(Path(folder))
    except Exception as error:  # noqa: BLE001 -- the program runs without a record
        print(f"kernelmate trace: this process is not recorded: {type(error).__name__}: {error}", file=sys.stderr)


def _run_the_next() -> None:
    """Runs the program's own `sitecustomize`, which this one hides."""
    path = [one for one in sys.path if one and Path(one).resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_record()
_run_the_next()
