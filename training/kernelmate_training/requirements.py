"""Checks for the packages that training needs; an error names the extra that installs a missing one."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from kernelmate.errors import EnvironmentFailed

EXTRAS = {"bitsandbytes": "qlora", "xllamacpp": "local", "llama_cpp": "llama-cpp-python"}
"""Packages that are not part of the extra `train`, with the extras that install them."""

OWN = {"train", "qlora"}
"""Extras of kernelmate-training; the others are those of kernelmate."""


def require_packages(packages: Iterable[str], what: str) -> None:
    """Check that packages are installed, without importing them.

    Args:
        packages: import names.
        what: the feature that needs them, as the beginning of a sentence: `Training`.

    Raises:
        EnvironmentFailed: a package is missing.
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
