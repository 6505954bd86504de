"""The test that goes along with an exported kernel: `exported_test.txt` beside this module, filled in."""

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
    """The text of a test module that judges a kernel again.

    Args:
        name: the kernel's.
        file: where it is, from the test's folder.
        baseline: `FILE::KERNEL` of what it was made from, from the same folder; None without one.
        prompt: what it is held to beside being right.
        settings: for `kernelmate.bench` and `compare`.
        includes: folders of headers, from the same folder.
        verdict: the file with the verdict that it was exported with.
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
