"""`kernelmate sass`: a kernel's PTX and SASS with source lines, and differences between two versions."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import (
    KernelSpec,
    Output,
    TargetName,
    compile_options,
    output_of,
    output_options,
    settings_of,
)
from kernelmate.cli.search import remark
from kernelmate.errors import UsageError
from kernelmate.records import FindingCode
from kernelmate.records.compiled import INFERRED

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kernelmate.compiler.code_diff import CodeDiff
    from kernelmate.config import Settings
    from kernelmate.records import Compiled, Diagnostic, Kernel, Listing
    from kernelmate.session import Session


class LineRange(click.ParamType[tuple[int, int]]):
    """Lines of the kernel's file: `20`, `20-40`, `20-`."""

    name = "N[-M]"
    _FORM = re.compile(r"\s*(\d+)\s*(?:(-)\s*(\d*)\s*)?\Z")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        """Returns the first and the last line of a range."""
        match = self._FORM.match(str(value))
        if match is None:
            self.fail(f"{value!r} is not a range of lines; write it like 20, 20-40 or 20-.", param, ctx)
        first = int(match[1])
        last = first if match[2] is None else int(match[3]) if match[3] else sys.maxsize
        if last < first:
            self.fail(f"{value!r} ends before it begins.", param, ctx)
        return first, last


@click.command(
    epilog="""\b
Examples:
  kernelmate sass softmax.cu                        PTX and SASS below each source line
  kernelmate sass ops.cu::rope --line 42            what line 42 became
  kernelmate sass softmax.cu --sass --order address --control --arch sm_80
  kernelmate sass --diff softmax.cu softmax_new.cu  what changed, renamed registers aside
  kernelmate sass --diff 11 softmax.cu              from version 11 of the history to the file
  kernelmate sass softmax.cu --object build/app     what the build has made of it, and what differs
  kernelmate sass softmax.cu --json

\b
Numbers at the right of SASS are live general-purpose registers, as nvdisasm counts them; the most is marked."""
)
@click.argument("files", type=KernelSpec(), metavar="FILE[::KERNEL]...", nargs=-1, required=True)
@click.option(
    "--diff",
    "difference",
    is_flag=True,
    help="Compare the SASS of two files, kernels, or versions of the history: OLD NEW.",
)
@click.option(
    "--object",
    "built",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Compare with the kernel's code in this program, library, object file, fatbin or CUBIN.",
)
@click.option("--kernel", "name", metavar="NAME", help="This kernel of FILE; the same as FILE::NAME.")
@click.option(
    "--instance", metavar="TEXT", help="This template instance, as name<float, 256>, in place of the contract's."
)
@click.option("--arch", type=TargetName(), help="Compile for this architecture (sm_80); the same as --target.")
@click.option(
    "--line",
    "--lines",
    "ranges",
    type=LineRange(),
    multiple=True,
    help="Only the code of these lines, inlined code included: 20 or 20-40; repeatable.",
)
@click.option("--ptx", "only_ptx", is_flag=True, help="PTX only.")
@click.option("--sass", "only_sass", is_flag=True, help="SASS only.")
@click.option(
    "--order",
    type=click.Choice(["source", "address"]),
    default="source",
    show_default=True,
    help="By source line, or by address.",
)
@click.option(
    "--control", is_flag=True, help="Also show stalls and scoreboards, with the instruction that each waits for."
)
@click.option(
    "--pager/--no-pager", default=None, help="Show it in a pager; by default if it is longer than the terminal."
)
@compile_options
@output_options(quiet=False)
def sass(
    files: tuple[str, ...],
    difference: bool,
    built: Path | None,
    name: str | None,
    instance: str | None,
    arch: str | None,
    **options: Any,
) -> int:
    """Show each source line of a kernel with its PTX, its SASS, and the number of live registers.

    Runs nothing of the file and needs no GPU. Every kernel of FILE is shown unless one is named, every template
    instance that its contract lists. A number in the place of FILE is a version of the history.
    """
    output = output_of(options)
    view = {key: options.pop(key) for key in ("ranges", "only_ptx", "only_sass", "order", "control", "pager")}
    if arch is not None and options.get("target") is not None:
        raise UsageError("--arch and --target are the same option.", hint="Give one of them.")
    settings = settings_of(options | ({"target": arch} if arch is not None else {}))
    _check(files, difference, view)
    if difference and built is not None:
        raise UsageError("--diff and --object are two comparisons.", hint="Give one of them.")
    from kernelmate.session import Session

    with Session(settings) as session:
        if difference:
            return _diff(_two(files, name, settings), instance, session, output, view["pager"])
        kernels = _kernels(files[0], name, settings)
        if built is not None:
            return _against_build(kernels, built, instance, session, output, view["pager"])
        listings, failed, inferred = _listings(kernels, instance, session)
    for text in inferred:
        remark(f"note: {text}", output)
    if output.as_json:
        return _as_json(listings, failed, output)
    _show(listings, {kernel.unit.path: kernel.unit.file_text or kernel.unit.text for kernel in kernels}, output, view)
    return _tell_failed(failed, output)


def _check(files: Sequence[str], difference: bool, view: dict[str, Any]) -> None:
    """Checks that the options can be combined.

    Raises:
        UsageError: two options contradict each other.
    """
    if difference and len(files) != 2:
        raise UsageError(f"--diff compares two files, not {len(files)}.", hint="kernelmate sass --diff OLD.cu NEW.cu")
    if not difference and len(files) != 1:
        raise UsageError(f"{len(files)} files were named.", hint="Name one, or compare two with --diff.")
    if view["only_ptx"] and view["only_sass"]:
        raise UsageError("--ptx and --sass each show that alone.", hint="Leave out both options to see both.")
    if view["only_ptx"] and view["order"] == "address":
        raise UsageError("PTX has no addresses.", hint="Leave out --order address or --ptx.")


def _kernels(spec: str, name: str | None, settings: Settings) -> tuple[Kernel, ...]:
    from kernelmate.source import load_kernels, load_single_kernel

    kept = _kept(spec, settings)
    if kept is not None:
        return (kept,)
    if name is not None:
        if "::" in spec and not Path(spec).is_file():
            raise UsageError("--kernel and FILE::KERNEL name the kernel twice.", hint="Give one of them.")
        spec = f"{spec}::{name}"
    named = "::" in spec and not Path(spec).is_file()
    if named:
        return (load_single_kernel(spec, "sass"),)
    return tuple(one for one in load_kernels(Path(spec)) if not one.parts)


def _listings(
    kernels: Sequence[Kernel], instance: str | None, session: Session
) -> tuple[list[Listing], list[Compiled], list[str]]:
    """Returns listings of all instances, instances that do not compile, and notes on inferred instances."""
    from kernelmate.compiler.listing import read_listing

    listings: list[Listing] = []
    failed: list[Compiled] = []
    inferred: list[str] = []
    for kernel in kernels:
        for prepared in session.prepare(kernel, instance):
            compiled = prepared.compiled
            inferred += [one.message for one in compiled.diagnostics if one.code == INFERRED]
            if compiled.ok:
                listings.append(read_listing(compiled, kernel.unit))
            else:
                failed.append(compiled)
    return listings, failed, inferred


def _as_json(listings: Sequence[Listing], failed: Sequence[Compiled], output: Output) -> int:
    from kernelmate.report.json import error_document, listings_json

    if not failed:
        output.document(listings_json(listings))
        return 0
    first = _first_error(failed[0])
    place = (None, None, None) if first is None else (first.file, first.line, first.column)
    message = f"{failed[0].name} does not compile" + ("" if first is None else f": {first.message}")
    output.document(
        error_document(FindingCode.COMPILE_ERROR, message, *place, hint="`kernelmate check --json` has every message.")
    )
    return 1


def _first_error(compiled: Compiled) -> Diagnostic | None:
    return next((one for one in compiled.diagnostics if one.severity == "error"), None)


def _tell_failed(failed: Sequence[Compiled], output: Output) -> int:
    if not failed:
        return 0
    from kernelmate.report.console import diagnostics_view, heading, show
    from kernelmate.report.excerpt import SourceLines

    sources = SourceLines()
    for compiled in failed:
        title = heading(compiled.instance or compiled.name, ("does not compile", "bad"))
        show(output.stdout(), title, diagnostics_view(compiled.diagnostics, sources))
    if any("is a template" in one.message for compiled in failed for one in compiled.diagnostics):
        show(output.stdout(), "", f'or give one here: --instance "{failed[0].name}<...>"')
    return 1


def _show(listings: Sequence[Listing], texts: Mapping[str, str], output: Output, view: dict[str, Any]) -> None:
    from rich.text import Text

    from kernelmate.report.code import CONTROL_HEAD, ListingView, code_view, listing_head
    from kernelmate.report.console import indented
    from kernelmate.report.excerpt import SourceLines

    sources = SourceLines(texts)
    parts: list[RenderableType] = []
    for listing in listings:
        shown = ListingView(
            ptx=not view["only_sass"],
            sass=not view["only_ptx"],
            wanted=_wanted(view["ranges"]),
            by_address=view["order"] == "address",
            control=view["control"],
            width=output.stdout().width,
        )
        code = code_view(listing, sources, shown)
        if not code.lines and shown.wanted is not None:
            parts += [listing_head(listing), "", "  no code was made from these lines", ""]
        else:
            parts += [listing_head(listing), *([indented(Text(CONTROL_HEAD))] if view["control"] else []), "", code]
    _page(parts, output, view["pager"])


def _wanted(ranges: Sequence[tuple[int, int]]) -> Callable[[int], bool] | None:
    if not ranges:
        return None
    return lambda line: any(first <= line <= last for first, last in ranges)


def _page(parts: Sequence[RenderableType], output: Output, pager: bool | None) -> None:
    """Prints the listing; uses a pager if it is longer than the terminal."""
    from kernelmate.report.console import show

    console = output.stdout()
    if pager is False or (pager is None and not (console.is_terminal and sys.stdin.isatty())):
        show(console, *parts)
        return
    with console.capture() as captured:
        show(console, *parts)
    text = captured.get()
    if pager is None and text.count("\n") < shutil.get_terminal_size().lines:
        sys.stdout.write(text)
    else:
        click.echo_via_pager(text)


def _kept(spec: str, settings: Settings) -> Kernel | None:
    """Returns the kernel of a history version, given by its number; None if the argument is a file.

    Raises:
        UsageError: there is no such version.
        HistoryUnavailable: the history cannot be read.
    """
    if not spec.isdecimal() or Path(spec).is_file():
        return None
    from kernelmate.history import History
    from kernelmate.records import Unit
    from kernelmate.source import find_kernels

    with History(settings.history_file) as history:
        recorded = history.version(int(spec))
    text = recorded.text
    # Of a Python file only the string with the kernel is kept; its lines are counted from there.
    language: Any = recorded.language if recorded.language in ("python", "triton") else "cuda"
    unit = Unit(recorded.path, text, language, file_text=text)
    return next(kernel for kernel in find_kernels(unit) if kernel.name == recorded.name)


def _two(files: Sequence[str], name: str | None, settings: Settings) -> tuple[Kernel, Kernel]:
    """Returns the kernels to compare; each argument names a file or a version of the history."""
    from kernelmate.source import load_kernel

    old, new = (_kept(spec, settings) for spec in files)
    named = name or (new.name if new is not None else None)
    if old is None:
        old = load_kernel(files[0] if named is None or "::" in files[0] else _namesake(files[0], named))
    return old, new or load_kernel(_namesake(files[1], name or old.name))


def _diff(
    kernels: tuple[Kernel, Kernel], instance: str | None, session: Session, output: Output, pager: bool | None
) -> int:
    from kernelmate.compiler.code_diff import compare_code

    before, failed, _ = _listings(kernels[:1], instance, session)
    after, failed_after, _ = _listings(kernels[1:], instance, session)
    failed += failed_after
    if failed:
        return _as_json((), failed, output) if output.as_json else _tell_failed(failed, output)
    _show_diffs([compare_code(one, _partner(one, index, after)) for index, one in enumerate(before)], output, pager)
    return 0


def _show_diffs(diffs: Sequence[CodeDiff], output: Output, pager: bool | None) -> None:
    from kernelmate.report.code import diff_view

    if output.as_json:
        from kernelmate.report.json import code_diffs_json

        output.document(code_diffs_json(diffs))
        return
    parts: list[RenderableType] = []
    for diff in diffs:
        parts += [*diff_view(diff), ""]
    _page(parts, output, pager)


def _against_build(
    kernels: Sequence[Kernel],
    path: Path,
    instance: str | None,
    session: Session,
    output: Output,
    pager: bool | None,
) -> int:
    """Compares kernels of a file with their machine code in a build's output.

    Raises:
        UsageError: the output has no code of any of them.
    """
    from kernelmate.compiler.code_diff import compare_code
    from kernelmate.compiler.listing import read_listing
    from kernelmate.compiler.object_code import built_code

    pairs: list[CodeDiff] = []
    failed: list[Compiled] = []
    missing: list[UsageError] = []
    for kernel in kernels:
        for prepared in session.prepare(kernel, instance):
            compiled = prepared.compiled
            if not compiled.ok:
                failed.append(compiled)
                continue
            try:
                there = read_listing(built_code(path, compiled, session.target), kernel.unit)
            except UsageError as error:
                missing.append(error)
                continue
            pairs.append(compare_code(replace(there, files=(str(path),)), read_listing(compiled, kernel.unit)))
    if failed:
        return _as_json((), failed, output) if output.as_json else _tell_failed(failed, output)
    if not pairs:
        raise missing[0]
    for reason in missing:
        remark(f"note: {reason.message}", output)
    _show_diffs(pairs, output, pager)
    return 0


def _namesake(spec: str, name: str) -> str:
    """Returns the second file's kernel: the named one, else the one with the first kernel's name, else the only one."""
    from kernelmate.source import load_kernels

    if "::" in spec and not Path(spec).is_file():
        return spec
    return f"{spec}::{name}" if any(kernel.name == name for kernel in load_kernels(Path(spec))) else spec


def _partner(old: Listing, index: int, new: Sequence[Listing]) -> Listing:
    same = next((one for one in new if one.instance == old.instance), None)
    return same or new[min(index, len(new) - 1)]
