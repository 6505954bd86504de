"""The input of NVRTC for one kernel: the device part of its unit, headers in memory, options and name expression."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernelmate.compiler.cuda_toolkit import compiler_version, system_includes
from kernelmate.compiler.device_part import DevicePart, device_part
from kernelmate.compiler.diagnostics import UNIT_NAME, Sources
from kernelmate.compiler.frames import CompileJob
from kernelmate.compiler.name_expressions import by_type, name_expression
from kernelmate.compiler.options import flags_for, recorded_options, unseen_flags
from kernelmate.compiler.prelude import PRELUDE_NAME, prelude_for
from kernelmate.compiler.preprocessor import STANDARD_HEADERS
from kernelmate.compiler.project import TextBefore
from kernelmate.records import CompileOptions, Kernel, Target
from kernelmate.source.tokens import line_starts

_WIDE = re.compile(r"\b__u?int128")
_INTERNAL = re.compile(r"\bstatic\b|\bnamespace\s*\{")
_HOST_CODE = re.compile(r"<<<|#\s*include\s*[<\"](?:torch|ATen|c10)/")
"""Pattern of code in a Python string that nvcc compiles, not NVRTC: it launches kernels or includes torch's headers."""


@dataclass(frozen=True, slots=True)
class Request:
    """One of several kernels to compile, with its contract's options and its template instance, or None."""

    kernel: Kernel
    contract_options: tuple[str, ...] = ()
    instance: str | None = None


@dataclass(frozen=True, slots=True)
class NvrtcInput:
    """A kernel's text, headers and options for NVRTC, and the part of the unit that they were made of."""

    request: Request
    target: Target
    part: DevicePart
    flags: tuple[str, ...]
    job: CompileJob
    includes: tuple[str, ...]
    """Folders in which the user's headers are sought."""
    rejected: frozenset[tuple[str | None, int]]
    before: TextBefore | None = None

    @property
    def compiler(self) -> str:
        """Returns the compiler's version and options, as results name them."""
        return f"NVRTC {compiler_version()} {recorded_options(self.flags)}"

    @property
    def sources(self) -> Sources:
        """Returns what positions in the compiler's log refer to."""
        kernel = self.request.kernel
        return Sources(
            unit=kernel.unit,
            headers=dict(self.part.paths),
            host_functions=self.part.host_functions,
            place=(kernel.line, kernel.column),
        )


def nvrtc_input(
    request: Request, target: Target, options: CompileOptions, *, guess: bool = True, typed: bool = False,
    rejected: frozenset[tuple[str | None, int]] = frozenset(), before: TextBefore | None = None,
) -> NvrtcInput:  # fmt: skip
    """Returns the compiler's input.

    With `guess`, headers that no include path leads to come from the project; with `typed`, the kernel is selected by its
    type too.
    """
    kernel, unit = request.kernel, request.kernel.unit
    beside = Path(unit.path).resolve().parent
    own = [f"-I{beside / option[2:]}" if option.startswith("-I") else option for option in request.contract_options]
    flags = flags_for(target, options, own)
    includes = tuple(flag[2:] for flag in flags if flag.startswith("-I"))
    user = tuple(str(Path(path).resolve()) for path in (*options.include_paths, *includes))
    flags = tuple(flag for flag in flags if not flag.startswith("-I"))
    expression, aliases = (by_type(kernel), "") if typed else name_expression(kernel, request.instance)
    named = (expression, request.instance or "", *(flag for flag in flags if flag.startswith(("-D", "--define"))))
    system = system_includes()
    part = device_part(
        unit.text,
        beside,
        tuple(map(Path, user)),
        kernel=kernel.name,
        place=line_starts(unit.text)[kernel.line - 1] + kernel.column - 1,
        named=words_of(named),
        system=tuple(map(Path, system)),
        everything=unit.language == "python" and not _HOST_CODE.search(unit.text),
        guess=guess,
        mark_missing=True,
        rejected=rejected,
        before=before,
    )
    texts = (part.text, *(text for _, text in part.headers))
    seeded = any(("static" in text or "namespace" in text) and _INTERNAL.search(text) for text in texts)
    int128 = any("int128" in text and _WIDE.search(text) for text in texts)
    folders = (*user, *map(str, part.guessed_folders))
    hidden = unseen_flags(folders, system, default_device=part.default_device, seeded=seeded, int128=int128)
    prelude = (PRELUDE_NAME, prelude_for(part.std_names))
    job = CompileJob(
        text=part.text + aliases,
        name=UNIT_NAME,
        headers=(*part.headers, prelude, *((name, "") for name in STANDARD_HEADERS if name not in dict(part.headers))),
        options=(*flags, *hidden, *([f"--pre-include={before.path.name}"] if before is not None else [])),
        expressions=(expression,),
    )
    return NvrtcInput(request, target, part, flags, job, user, rejected, before)


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """Returns the identifiers of several texts."""
    return frozenset(word for text in texts for word in re.findall(r"[^\W\d]\w*", text))
