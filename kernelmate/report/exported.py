"""Test of an exported kernel, from the template `exported_test.txt` beside this module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources

from kernelmate.version import VERSION


def exported_test(
    *,
    name: str,
    file: str,
    baseline: str | None,
    prompt: str | None,
    settings: Mapping[str, object],
    includes: Sequence[str],
    verdict: str,
) -> str:
    """Return the text of a test module that judges a kernel again.

    Args:
        name: the kernel's name.
        file: its file, relative to the test's folder.
        baseline: `FILE::KERNEL` of its baseline, likewise; None without one.
        prompt: the objective that it must meet beside being right.
        settings: settings for `kernelmate.bench` and `compare`.
        includes: header folders, likewise.
        verdict: the file with its verdict at export.
    """
    text = resources.files("kernelmate.report").joinpath("exported_test.txt").read_text(encoding="utf-8")
    values = {
        "NAME": name,
        "VERSION": VERSION,
        "TARGET": str(settings["target"]),
        "FILE": repr(file),
        "BASELINE": "None" if baseline is None else f"str(HERE / {baseline!r})",
        "PROMPT": repr(prompt),
        "SETTINGS": repr(dict(settings)),
        "INCLUDES": repr(list(includes)),
        "VERDICT": repr(verdict),
    }
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text
