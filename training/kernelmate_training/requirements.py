"""The packages that training takes, asked for by name so that what is missing is said with what installs it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from kernelmate.errors import EnvironmentFailed

EXTRAS = {"bitsandbytes": "qlora", "xllamacpp": "local", "llama_cpp": "llama-cpp-python"}
"""Packages that do not come with the extra `train`, and the extras that bring them."""

OWN = {"train", "qlora"}
"""Extras of kernelmate-training; the others are kernelmate's."""


def require_packages(packages: Iterable[str], what: str) -> None:
    """See that packages are installed, without loading them.

    Args:
        packages: as they are imported.
        what: what needs them, as the beginning of a sentence: `Training`.

    Raises:
        EnvironmentFailed: one is missing.
    """
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        extras = {EXTRAS.get(name, "train") for name in missing}
        own, users = sorted(extras & OWN), sorted(extras - OWN)
        named = [f"'kernelmate-training[{','.join(own)}]'"] * bool(own) + [f"'kernelmate[{','.join(users)}]'"] * bool(
            users
        )
        raise EnvironmentFailed(
            f"{what} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed.",
            hint=f"pip install {' '.join(named)}",
        )
