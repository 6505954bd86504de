"""What a cell shows: the same in a notebook that is reopened without a kernel, as HTML and as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelmate.records import Kernel, Optimization, Verdict
from kernelmate.report.excerpt import SourceLines
from kernelmate_widgets.cells import file_lines
from kernelmate_widgets.rendering import as_html, as_text

if TYPE_CHECKING:
    from kernelmate_widgets.handle import KernelHandle


def sources_of(kernel: Kernel) -> SourceLines:
    """Lines of a cell as messages about it name them."""
    return SourceLines({kernel.unit.path: file_lines(kernel.unit)})


def views_bundle(*views: Any) -> dict[str, Any]:
    """Views of the terminal as an output."""
    return {"text/plain": as_text(*views), "text/html": as_html(*views)}


def verdict_bundle(verdicts: tuple[Verdict, ...], kernel: Kernel, remarks: tuple[str, ...] = ()) -> dict[str, Any]:
    """The verdicts on a cell's kernel, one per instance."""
    from kernelmate.report.console import lines
    from kernelmate.report.tables import verdict_view

    views: list[Any] = []
    for verdict in verdicts:
        views += [*([""] if views else []), verdict_view(verdict, sources_of(kernel))]
    return views_bundle(*views, *([lines(remarks)] if remarks else []))


def optimization_bundle(optimization: Optimization, baseline: Kernel) -> dict[str, Any]:
    """What a prompt led to."""
    from kernelmate.report.versions import optimization_view

    return views_bundle(*optimization_view(optimization, baseline, sources_of(baseline)))


def handle_bundle(handle: KernelHandle) -> dict[str, Any]:
    """A kernel and how it stands."""
    bundle = verdict_bundle((handle.verdict,), handle.version.kernel)
    return {**bundle, "text/plain": repr(handle)}
