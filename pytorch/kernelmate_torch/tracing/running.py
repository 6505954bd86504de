"""Environment by which a program's Python processes write records of their launches."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kernelmate_torch.tracing.recording.kernels import LIBRARIES

FOLDER = "KERNELMATE_TRACE"
"""Environment variable with the folder for records."""

HOOK = Path(__file__).parent / "hook"


def traced_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns an environment in which Python processes write records to a folder."""
    path = [str(HOOK), *filter(None, [environment.get("PYTHONPATH")])]
    return {
        **environment, FOLDER: str(folder), "PYTHONPATH": os.pathsep.join(path),
        LIBRARIES: library_folders(),
    }  # fmt: skip


def library_folders() -> str:
    """Returns KernelMate's own folders, whose files are not part of the traced program."""
    import kernelmate

    assert kernelmate.__file__ is not None
    return os.pathsep.join(f"{one}{os.sep}" for one in (Path(kernelmate.__file__).parent, Path(__file__).parents[1]))
