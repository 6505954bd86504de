"""Restores a version of the history in the user's file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kernelmate.errors import SourceError
from kernelmate.records import Kernel, Recorded
from kernelmate.source import apply_edits, load_kernels, same_kernel, text_unit, with_text


@dataclass(frozen=True, slots=True)
class RestoredVersion:
    """A version back in its file's text; nothing is written yet.

    Attributes:
        before: the kernel in the present file.
        after: the restored kernel.
        whole: True if the rest of the file equals that version's; else only the kernel and its contract are restored.
    """

    before: Kernel
    after: Kernel
    whole: bool


def restored(recorded: Recorded, file: Path | None = None) -> RestoredVersion:
    """Return a version of the history within the present file.

    Args:
        recorded: the version.
        file: another file to restore into.

    Raises:
        SourceError: the file is gone, or no longer holds the kernel.
    """
    if file is None and recorded.language == "text":
        raise SourceError(
            f"Version {recorded.version} of {recorded.name} is text without a file.",
            hint=f"Print it with `kernelmate history show {recorded.version} --source`, or name a file with --to.",
        )
    path = file or Path(recorded.path)
    hint = f"Print it with `kernelmate history show {recorded.version} --source` and copy it."
    try:
        before = next((kernel for kernel in load_kernels(path) if kernel.name == recorded.name), None)
    except SourceError as error:
        raise SourceError(error.message, file=str(path), hint=hint) from error
    if before is None:
        what = f"There is no kernel {recorded.name} any more to put version {recorded.version} in the place of."
        raise SourceError(what, file=str(path), hint=hint)
    return restored_in(before, recorded)


def restored_in(before: Kernel, recorded: Recorded) -> RestoredVersion:
    """Return a version of the history within the text of a kernel that it is put in the place of.

    Raises:
        SourceError: the version's text does not hold a kernel of this name.
    """
    old = same_kernel(before, text_unit(recorded.text))
    if _rest(old) == _rest(before):
        return RestoredVersion(before, same_kernel(before, with_text(before.unit, recorded.text)), whole=True)
    return RestoredVersion(before, _spliced(before, old), whole=False)


def _rest(kernel: Kernel) -> str:
    """Returns the unit's text without the kernel and its contract."""
    text = kernel.unit.text
    spans = sorted(filter(None, [kernel.contract_span, (kernel.start, kernel.end)]), reverse=True)
    for start, end in spans:
        text = text[:start] + "\0" + text[end:]
    return text


def _spliced(before: Kernel, old: Kernel) -> Kernel:
    edits = [(before.start, before.end, old.source)]
    if before.contract_span is not None and old.contract_span is not None:
        start, end = old.contract_span
        edits.append((*before.contract_span, old.unit.text[start:end]))
    return apply_edits(before, edits)
