"""Environment variables of child processes: an allow-list for workers, and a check for names of secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"(^|_)(api_?key|key|tokens?|secrets?|(pg|my)?password|passwd|passphrase|credentials?)(_|$)", re.IGNORECASE
)
_NAMES = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TERM", "NO_COLOR", "TMPDIR", "TEMP",
        "TMP", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH",
        "TOKENIZERS_PARALLELISM", "SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "OS", "USERNAME",
        "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES",
        "PROGRAMFILES(X86)", "COMMONPROGRAMFILES", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE",
    }
)  # fmt: skip
"""Variables of the system, the account, the loader and the locale."""
_FAMILIES = (
    "LC_", "XDG_", "PYTHON", "CONDA_", "KERNELMATE_", "CUDA_", "CUPY_", "NVIDIA_", "NV_", "OMP_", "KMP_", "GOMP_", "MKL_",
    "OPENBLAS_", "BLIS_", "VECLIB_", "NUMEXPR_", "NUMBA_", "NPY_", "TORCH_", "TRITON_", "JAX_", "XLA_",
)  # fmt: skip
"""Prefixes of variables that configure Python, CUDA and array libraries."""


def looks_secret(name: str) -> bool:
    """Returns True if the name of an environment variable suggests a key, a token or a password."""
    return _SECRET.search(name) is not None


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without variables whose names suggest secrets."""
    return {name: value for name, value in environment.items() if not looks_secret(name)}


def allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that a worker and a reference may see: those on the allow-list whose names do not suggest secrets."""
    return {
        name: value
        for name, value in without_secrets(environment).items()
        if name.upper() in _NAMES or name.upper().startswith(_FAMILIES)
    }
