"""The packages that training takes, asked for by name so that what is missing is said with what installs it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from kernelmate.errors import EnvironmentFailed

EXTRAS = {"bitsandbytes": "qlora", "xllamacpp": "local", "llama_cpp": "llama-cpp-python"}
"""Packages that do not come with the extra `train`."""


def need(packages: Iterable[str], what: str) -> None:
    """See that packages are installed, without loading them.

    Args:
        packages: as they are imported.
        what: what needs them, as the beginning of a sentence: `Training`.

    Raises:
        EnvironmentFailed: one is missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        extras = sorted({EXTRAS.get(name, "train") for name in missing})
        raise EnvironmentFailed(
            f"{what} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed.",
            hint=f"pip install 'kernelmate[{','.join(extras)}]'",
        )
