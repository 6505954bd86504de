"""Compiles kernels with NVRTC to PTX and CUBIN, and reads resources and diagnostics from the log."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from kernelmate.compiler.cache import Cache, cache_in, key_of
from kernelmate.compiler.cuda_toolkit import compiler_version, header_versions
from kernelmate.compiler.device_part import MISSING_MARK, MissingHeader
from kernelmate.compiler.diagnostics import (
    UNIT_NAME,
    Sources,
    error_lines,
    inactive_under,
    read_log,
    with_conditions,
    with_device_launches,
    with_missing,
    with_removed_references,
    with_standin,
)
from kernelmate.compiler.frames import CompileJob, CompileOutput
from kernelmate.compiler.name_expressions import AMBIGUOUS
from kernelmate.compiler.nvrtc_input import NvrtcInput, Request, nvrtc_input, words_of
from kernelmate.compiler.options import INT128
from kernelmate.compiler.preprocessor import cuda_switches, is_library
from kernelmate.compiler.process import COMPILER, CompilerProcess
from kernelmate.compiler.project import texts_before
from kernelmate.compiler.project_headers import SUPPLIERS, header_templates, include_folder
from kernelmate.compiler.resources import read_resources
from kernelmate.compiler.standins import is_torch
from kernelmate.errors import CompileTimeout
from kernelmate.records import Compiled, CompileOptions, Diagnostic, Kernel, Target
from kernelmate.source.template_parameters import example_instance
from kernelmate.source.template_uses import inferred_instances

T = TypeVar("T")
K = TypeVar("K")

MISSING_HEADER = "missing-header"
"""Code of the diagnostic for headers that were not found; its message begins with their names (`missing_names`)."""

GUESSED_HEADER = "guessed-header"
"""Code of the diagnostic for headers that no include path leads to and that were read from the project."""

GUESSED_DEFINE = "guessed-define"
"""Code of the note on macros such as `HAVE_CUDA` that a kernel is compiled with since its project's build defines them."""


def compile_kernel(
    kernel: Kernel,
    contract_options: Sequence[str],
    *,
    instance: str | None,
    target: Target,
    options: CompileOptions,
    timeout_s: float = 60,
    use_cache: bool = True,
    cache_dir: Path | None = None,
    compiler: CompilerProcess = COMPILER,
) -> Compiled:
    """Compiles one kernel, or one instance of a template, for a target's architecture.

    Args:
        kernel: the kernel, with its unit; relative includes start at the unit's folder.
        contract_options: options from the contract in NVRTC's syntax, which follow all others.
        instance: a template instance such as `name<float, 256>`.
        target: the GPU, whose `arch` is used.
        options: standard, defines, include paths and flags.
        timeout_s: seconds until the compiler is killed.
        use_cache: True to read and write the disk cache.
        cache_dir: the cache's folder; None for `KERNELMATE_CACHE_DIR`, else the user's cache folder.
        compiler: the compiler's child process.

    Raises:
        CompileTimeout: the compiler was killed at the time limit.
        CompilerUnavailable: NVRTC is not installed.
    """
    request = Request(kernel, tuple(contract_options), instance)
    cache = cache_in(cache_dir) if use_cache else None
    until = time.monotonic() + _RETRIES_WITHIN * timeout_s
    attempts = _Attempts(request, target, options, compiler, timeout_s, cache, until)
    prepared = attempts.prepare()
    if kernel.signature.template_parameters and instance is None:
        return _without_instance(prepared)
    product = attempts.compile(prepared)
    if not product.ok:
        prepared, product = attempts.otherwise(prepared, product)
    if AMBIGUOUS in product.log and instance is None:
        prepared = attempts.prepare(guess=bool(prepared.part.guessed), typed=True)
        product = attempts.compile(prepared)
    if not product.ok and not attempts.late:
        enabled = attempts.with_switches(prepared)
        if enabled is not None:
            return enabled
    if not product.ok and _is_inactive(prepared, compiler, timeout_s):
        return _noted(
            prepared, f"{kernel.name} is inactive: {inactive_under(kernel.unit.text, kernel.line)}", "inactive"
        )
    return _compiled(prepared, product)


_MOST_ROUNDS = 4
_RETRIES_WITHIN = 0.5
"""Fraction of the time limit of a compilation after which no other text of a kernel that does not compile is tried."""

_BEHIND = "it does not compile alone: it is compiled behind the lines of {} before its #include"


def _with_enabled(options: CompileOptions, switches: Sequence[str]) -> CompileOptions:
    return replace(options, defines=(*options.defines, *(f"{one}=1" for one in switches)))


@dataclass(frozen=True, slots=True)
class _Attempts:
    """Compilations of one kernel with different texts.

    Attributes:
        until: moment, in seconds of the monotonic clock, after which no other text is tried.
    """

    request: Request
    target: Target
    options: CompileOptions
    compiler: CompilerProcess
    timeout_s: float
    cache: Cache | None
    until: float

    @property
    def late(self) -> bool:
        """Returns True if no other text is tried any more."""
        return time.monotonic() > self.until

    def prepare(self, **changes: Any) -> NvrtcInput:
        """Returns the compiler's input, with further arguments of `nvrtc_input`."""
        return nvrtc_input(self.request, self.target, self.options, **changes)

    def compile(self, prepared: NvrtcInput) -> CompileOutput:
        """Returns the compiler's output, from the cache if it is there; raises `CompileTimeout` at the kernel."""
        kernel, cache = prepared.request.kernel, self.cache
        key = key_of(compiler_version(), header_versions(), prepared.job.text, prepared.job.headers, prepared.flags,
                     prepared.job.expressions, prepared.part.default_device, INT128 in prepared.job.options,
                     prepared.part.raw_digest)  # fmt: skip
        product = cache.load(key) if cache is not None else None
        if product is None:
            try:
                product = self.compiler.compile(prepared.job, self.timeout_s)
            except CompileTimeout as error:
                error.file = kernel.unit.path
                error.line, error.column = kernel.unit.locate(kernel.line, kernel.column)
                raise
            if cache is not None and (product.ok or "error" in product.log):
                cache.store(key, product)
        return product

    def otherwise(self, prepared: NvrtcInput, product: CompileOutput) -> tuple[NvrtcInput, CompileOutput]:
        """Returns the first other text that compiles, and its output; those given if none does."""
        found = ((one, output) for one, output in self._others(prepared, product.log) if output.ok)
        return next(found, (prepared, product))

    def _others(self, prepared: NvrtcInput, log: str) -> Iterator[tuple[NvrtcInput, CompileOutput]]:
        guessed = bool(prepared.part.guessed)
        if guessed and not self.late:
            # A header that the build would find elsewhere, or configure, must not break a kernel that needs nothing of it.
            without = self.prepare(guess=False)
            yield without, self.compile(without)
        rejected: frozenset[tuple[str | None, int]] = frozenset()
        last = prepared
        for _ in range(_MOST_ROUNDS):  # without the types of host code that the compiler rejects
            rejected |= error_lines(log)
            without = self.prepare(guess=guessed, rejected=rejected)
            if self.late or without.job == last.job:
                break
            output = self.compile(without)
            yield without, output
            last, log = without, output.log
        for before in texts_before(Path(self.request.kernel.unit.path)):
            if self.late:
                break
            behind = self.prepare(before=before)
            yield behind, self.compile(behind)

    def with_switches(self, prepared: NvrtcInput) -> Compiled | None:
        """Returns the kernel compiled with macros that enable the project's CUDA code; None if it has none, or still fails."""
        switches = cuda_switches(_texts(prepared).values(), words_of(prepared.flags))
        if not switches:
            return None
        enabled = nvrtc_input(self.request, self.target, _with_enabled(self.options, switches))
        product = self.compile(enabled)
        if not product.ok:
            return None
        named = " ".join(f"-D{one}=1" for one in switches)
        text = f"compiled with {named}, since conditions ask for it and nothing defines it: give -D as the build does"
        note = replace(_at_kernel(enabled, text), severity="note", code=GUESSED_DEFINE)
        compiled = _compiled(enabled, product)
        return replace(compiled, diagnostics=(*compiled.diagnostics, note), enabled=switches)


def compile_many(
    requests: Sequence[Request],
    *,
    target: Target,
    options: CompileOptions,
    timeout_s: float = 60,
    use_cache: bool = True,
    cache_dir: Path | None = None,
) -> tuple[Compiled, ...]:
    """Compiles several kernels or instances, each by itself, so that its code and hash do not depend on the others.

    Args:
        requests: the kernels or instances.
        target: the GPU.
        options: options for all of them.
        timeout_s: seconds for each compilation.
        use_cache: True to read and write the disk cache.
        cache_dir: the cache's folder; None for the default.

    Raises:
        CompileTimeout: the compiler was killed at the time limit.
        CompilerUnavailable: NVRTC is not installed.
    """
    return tuple(
        compile_kernel(
            request.kernel, request.contract_options, instance=request.instance, target=target, options=options,
            timeout_s=timeout_s, use_cache=use_cache, cache_dir=cache_dir,
        )
        for request in requests
    )  # fmt: skip


def compile_job(
    kernel: Kernel, contract_options: Sequence[str], *, instance: str | None, target: Target, options: CompileOptions,
    judged: Compiled,
) -> CompileJob:  # fmt: skip
    """Returns the compiler's input for a kernel: its text, headers in memory, options, and name expression.

    Arguments are those of `compile_kernel`, and what that returned for them; nothing is compiled.
    """
    said = " ".join(one.message for one in judged.diagnostics if one.code == GUESSED_HEADER)
    others = texts_before(Path(kernel.unit.path)) if said else ()
    before = next((one for one in others if _BEHIND.format(one.path) in said), None)
    options = _with_enabled(options, judged.enabled)
    request = Request(kernel, tuple(contract_options), instance)
    return nvrtc_input(
        request, target, options, guess=bool(said), rejected=frozenset(judged.rejected), before=before
    ).job


# --------------------------------------------------------------------------------------------------------- before


def _compiled(prepared: NvrtcInput, product: CompileOutput) -> Compiled:
    kernel, instance = prepared.request.kernel, prepared.request.instance
    sources = prepared.sources
    sources = Sources(sources.unit, sources.headers, sources.host_functions, product.ptx, sources.place)
    missing = _reached_missing(prepared, product.log)
    said = tuple(one for one in read_log(product.log, sources) if MISSING_MARK.split(" ", 1)[1] not in one.message)
    found = (*_missing_headers(prepared, missing), *_guessed(prepared), *_left_out(prepared), *said)
    if product.ok:
        symbol = product.lowered[0]
        resources = read_resources(product.cubin, symbol, product.log, prepared.target.capability)
        binary = "sha256:" + hashlib.sha256(product.cubin).hexdigest()
        if product.after_crash:
            found += (replace(_at_kernel(prepared, product.after_crash), severity="warning", code="compiler-crash"),)
        return Compiled(
            kernel.name, instance, symbol, prepared.target.arch, prepared.compiler, True, found, product.ptx,
            product.cubin, binary, resources, prepared.part.paths, tuple(prepared.rejected),
        )  # fmt: skip
    if any(is_torch(one.name) for one in prepared.part.left_out):
        found = with_standin(found)
    texts = _texts(prepared)
    found = with_conditions(with_removed_references(found, texts.values()), texts)
    if missing:
        found = with_missing(found, [one.name for one in missing])
    if not any(one.severity == "error" for one in found):
        found += (_at_kernel(prepared, product.log.strip() or "The compiler gave no reason."),)
    found = with_device_launches(found, kernel.name)
    return Compiled(kernel.name, instance, "", prepared.target.arch, prepared.compiler, False, found)


def _texts(prepared: NvrtcInput) -> dict[str, str]:
    """Returns the texts of the unit and of its project headers by path, host code included."""
    paths = [Path(path) for _, path in prepared.part.paths]
    headers = {str(path): path.read_text(encoding="utf-8", errors="replace") for path in paths if path.is_file()}
    return {prepared.request.kernel.unit.path: prepared.request.kernel.unit.text, **headers}


def _reached_missing(prepared: NvrtcInput, log: str) -> list[MissingHeader]:
    """Returns the headers that were not found, without those whose `#include` the preprocessor skipped."""
    if any(flag in ("-w", "--disable-warnings") for flag in prepared.flags):
        return list(prepared.part.missing)
    reached = {int(number) for number in re.findall(rf"{MISSING_MARK.split(' ', 1)[1]} (\d+)", log)}
    return [one for number, one in enumerate(prepared.part.missing) if number in reached]


def _missing_headers(prepared: NvrtcInput, missing: Sequence[MissingHeader]) -> tuple[Diagnostic, ...]:
    """Returns a warning for each file that includes headers that were not found."""
    sought = f" nor in {', '.join(prepared.includes)}" if prepared.includes else ""
    found = []
    for including, headers in _by(missing, lambda one: one.included_by):
        names = list(dict.fromkeys(one.name for one in headers))
        was, is_, folder, it = (
            ("were", "are", "their folders", "them") if len(names) > 1 else ("was", "is", "its folder", "it")
        )
        said = (
            f"{', '.join(names)} {was} not found beside the file{sought}, and {is_} left out; "
            f"add {folder} to the include path if device code needs {it}"
        )
        suppliers = dict.fromkeys(
            text
            for name in names
            for start, text in SUPPLIERS.items()
            if name.startswith(start) and (start != "cuda/" or is_library(name))
        ) | dict.fromkeys(header_templates(names, Path(prepared.request.kernel.unit.path)))
        said = f"{said} ({'; '.join(suppliers)})" if suppliers else said
        found.append(Diagnostic("warning", said, *_place(prepared, including, headers[0]), MISSING_HEADER))
    return tuple(found)


def missing_names(warning: str) -> list[str]:
    """Returns the names of the headers that a warning with the code `MISSING_HEADER` is about."""
    return re.split(" was not found| were not found", warning)[0].split(", ")


def _guessed(prepared: NvrtcInput) -> tuple[Diagnostic, ...]:
    """Returns a note for each folder whose headers were found by their names alone, and for a file that includes this one."""
    found = []
    if prepared.before is not None:
        place = prepared.sources.locate(UNIT_NAME, 1, 1)
        found.append(Diagnostic("note", _BEHIND.format(prepared.before.path), *place, GUESSED_HEADER))
    for folder, guessed in _by(prepared.part.guessed, lambda one: include_folder(one[0].name, one[1])):
        names = ", ".join(dict.fromkeys(header.name for header, _ in guessed))
        said = (
            f"{names}: read from {folder}, the nearest folder of the project that has "
            f"{'them' if ', ' in names else 'it'}, since no include path leads to it"
        )
        first = guessed[0][0]
        found.append(Diagnostic("note", said, *_place(prepared, first.included_by, first), GUESSED_HEADER))
    return tuple(found)


def _by(several: Iterable[T], key: Callable[[T], K]) -> Iterable[tuple[K, list[T]]]:
    """Returns the groups of equal keys, in the order of their first members."""
    groups: dict[K, list[T]] = {}
    for one in several:
        groups.setdefault(key(one), []).append(one)
    return groups.items()


def _place(prepared: NvrtcInput, including: str | None, header: MissingHeader) -> tuple[str, int, int | None]:
    return prepared.sources.locate(including or UNIT_NAME, header.line, header.column)


def _left_out(prepared: NvrtcInput) -> tuple[Diagnostic, ...]:
    """Returns a note that names the host libraries' headers that were left out; empty without any."""
    found = prepared.part.left_out
    if not found:
        return ()
    names = ", ".join(dict.fromkeys(one.name for one in found))
    text = f"headers of host libraries are left out: {names}"
    if any(is_torch(one.name) for one in found):
        text += "; device code gets KernelMate's own declarations of torch's types"
    return (Diagnostic("note", text, *_place(prepared, found[0].included_by, found[0]), "host-header"),)


_CONDITION = re.compile(r"^[ \t]*#[ \t]*(if\w*|endif)\b", re.MULTILINE)


def _is_inactive(prepared: NvrtcInput, compiler: CompilerProcess, timeout_s: float) -> bool:
    """Returns True if the preprocessor skips the kernel's definition.

    Only a kernel inside an `#if` is tested: the unit is compiled with an `#error` before the definition, which is
    reported unless the preprocessor skips it.
    """
    kernel, text = prepared.request.kernel, prepared.job.text
    conditions = _CONDITION.findall(kernel.unit.text[: kernel.start])
    if len([word for word in conditions if word != "endif"]) == conditions.count("endif"):
        return False
    lines = text.split("\n")
    first = kernel.unit.text.count("\n", 0, kernel.start)
    asked = "\n".join((*lines[:first], f"#error {_ACTIVE}", *lines[first:]))
    try:
        job = CompileJob(asked, prepared.job.name, prepared.job.headers, prepared.job.options, ())
        answer = compiler.compile(job, timeout_s)
    except CompileTimeout:
        return False
    return _ACTIVE not in answer.log


_ACTIVE = "kernelmate: this text is active"


def _without_instance(prepared: NvrtcInput) -> Compiled:
    kernel = prepared.request.kernel
    example, needed = example_instance(kernel)
    unknown = "that nothing here uses"
    if kernel.launches:
        line, _ = kernel.unit.locate(kernel.launches[0].line, None)
        unknown = f"whose launch at line {line} does not say which instance it is"
    used = inferred_instances(kernel)
    if used and not used[0].text.endswith("<>"):
        unknown = f"of which {used[0].origin} makes {used[0].text}, whose names are not all known here"
    text = f'{kernel.name} is a template {unknown}: name the instances to compile in its contract, as in instances = ["{example}"]'
    if needed:
        text += f", with a class that can be called as the kernel does: {needed}"
    return _noted(prepared, text, "no-instance")


def _noted(prepared: NvrtcInput, text: str, code: str) -> Compiled:
    """Returns a kernel that is not compiled, with a note (not an error) that gives the reason."""
    note = replace(_at_kernel(prepared, text), severity="note", code=code)
    name, instance = prepared.request.kernel.name, prepared.request.instance
    return Compiled(name, instance, "", prepared.target.arch, prepared.compiler, False, (note,))


def _at_kernel(prepared: NvrtcInput, text: str) -> Diagnostic:
    return Diagnostic("error", text, *prepared.sources.locate(UNIT_NAME, *prepared.sources.place))
