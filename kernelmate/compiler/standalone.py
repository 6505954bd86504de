"""Writes a kernel's device code as one text that NVRTC compiles with CUDA's own headers alone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmate.compiler.cuda_toolkit import system_includes
from kernelmate.compiler.device_part import MISSING_MARK
from kernelmate.compiler.frames import CompileJob
from kernelmate.compiler.name_expressions import AMBIGUOUS, by_type
from kernelmate.compiler.nvrtc import compile_job
from kernelmate.compiler.options import ALWAYS, SEED
from kernelmate.compiler.prelude import PRELUDE_NAME
from kernelmate.compiler.process import COMPILER, CompilerProcess
from kernelmate.errors import UsageError
from kernelmate.records import Compiled, CompileOptions, Kernel, Target

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">\n]+)[">][^\n]*\n?', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b[^\n]*\n?", re.MULTILINE)
_PATHS = re.compile(r"-I|--include-path|--pre-include|--gpu-architecture")
_COMMENT_LINE = re.compile(r"\s*//.*|\s*/\*(?:(?!\*/).)*\*/\s*")
_TRAILING_COMMENT = re.compile(r"\s*//.*|\s*/\*(?:(?!\*/).)*\*/\s*")


@dataclass(frozen=True, slots=True)
class StandaloneText:
    """Device code without includes of the user's headers.

    Attributes:
        text: the code.
        builtins: declarations that nvcc adds to every file and NVRTC lacks, compiled before the text.
        expression: the name by which NVRTC finds the kernel, `scale<float, 256>` for an instance of a template.
        options: compiler options, without the architecture.
    """

    text: str
    builtins: str
    expression: str
    options: tuple[str, ...]

    @property
    def unit(self) -> str:
        """Returns the complete text for the compiler; line numbers in its messages are those of `text`."""
        return f"{self.builtins}#line 1\n{self.text}"


def standalone_text(
    kernel: Kernel,
    contract_options: Sequence[str],
    *,
    instance: str | None,
    target: Target,
    options: CompileOptions,
    judged: Compiled,
    timeout_s: float,
    compiler: CompilerProcess = COMPILER,
) -> StandaloneText:
    """Returns a kernel's device code as one text, which compiles to the PTX of the judged code.

    Comments within the device code, and directly above it, are kept.

    Args:
        kernel: the kernel, with its unit.
        contract_options: options from the contract, which follow all others.
        instance: the template instance, or None.
        target: the GPU that the kernel was judged for.
        options: the options that the kernel was judged with.
        judged: the compiled kernel that was judged.
        timeout_s: seconds until the compiler is killed.
        compiler: the compiler's child process.

    Raises:
        UsageError: the code includes a library's headers, or does not compile to the judged code.
        CompileTimeout: the compiler was killed at the time limit.
        CompilerUnavailable: NVRTC is not installed.
    """
    job = compile_job(kernel, contract_options, instance=instance, target=target, options=options, judged=judged)
    headers = dict(job.headers)
    prelude = headers.pop(PRELUDE_NAME)
    before = "".join(f'#include "{name}"\n' for name in headers if f"--pre-include={name}" in job.options)
    text = _pasted(before + _with_comments(job.text, kernel.unit.text), headers, set())
    text = re.sub(rf"{MISSING_MARK}.*", "", text)
    _refuse_libraries(text, kernel)
    flags = tuple(flag for flag in job.options if not _PATHS.match(flag) and flag not in (*ALWAYS, SEED))
    made = StandaloneText(_squeezed(text), _squeezed(prelude), job.expressions[0], flags)
    again = compiler.compile(_job(made, target, seed=SEED in job.options), timeout_s)
    if AMBIGUOUS in again.log and instance is None:
        made = replace(made, expression=by_type(kernel))
        again = compiler.compile(_job(made, target, seed=SEED in job.options), timeout_s)
    if not again.ok or _instructions(again.ptx) != _instructions(judged.ptx):
        reason = again.log.strip().splitlines()[0] if not again.ok else "its code differs from the judged code"
        raise UsageError(
            f"The device code of {kernel.name} cannot be written as one text: {reason}.",
            file=kernel.unit.path,
            hint="Put the kernel and what it needs into one file.",
        )
    return made


def _pasted(text: str, headers: Mapping[str, str], done: set[str]) -> str:
    """Returns a text whose `#include` lines of the given headers are replaced by their contents."""

    def paste(match: re.Match[str]) -> str:
        name = match[1]
        if name not in headers:
            return match[0]
        content = headers[name]
        if _ONCE.search(content):
            if name in done:
                return ""
            done.add(name)
            content = _ONCE.sub("", content)
        return _pasted(content, headers, done) + "\n" if content.strip() else ""

    return _INCLUDE.sub(paste, text)


def _refuse_libraries(text: str, kernel: Kernel) -> None:
    """Checks that a text includes only CUDA's own headers.

    Raises:
        UsageError: it includes another header.
    """
    for match in _INCLUDE.finditer(text):
        if not any((Path(folder) / match[1]).is_file() for folder in system_includes()):
            raise UsageError(
                f"{kernel.name} includes {match[1]}, which is neither CUDA's nor of its project, so it cannot go along.",
                file=kernel.unit.path,
                hint="Copy what it needs of that header into the project.",
            )


def _with_comments(device: str, original: str) -> str:
    """Returns device code with the comments that the original file has in it or directly above it.

    Line numbers are equal in both texts up to the end of the original; removed code is blank.
    """
    lines, before = device.split("\n"), original.split("\n")
    followed = False
    for index in reversed(range(min(len(lines), len(before)))):
        mine, theirs = lines[index], before[index]
        if mine.strip():
            if theirs.startswith(mine) and _TRAILING_COMMENT.fullmatch(theirs[len(mine) :]):
                lines[index] = theirs
            followed = True
        elif _COMMENT_LINE.fullmatch(theirs) and followed:
            lines[index] = theirs
        else:
            followed = followed and not theirs.strip() and index > 0 and bool(lines[index - 1].strip())
    return "\n".join(lines)


def _squeezed(text: str) -> str:
    """Returns a text without consecutive blank lines."""
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def _instructions(ptx: str) -> list[str]:
    """Returns the lines of a PTX text without comments and source positions."""
    code = ptx.partition("\t.section\t.debug")[0].partition("\t.file\t")[0]
    return [
        line for line in code.splitlines() if line.strip() and not line.lstrip().startswith(("//", ".loc", ".file"))
    ]


def compile_standalone(
    text: StandaloneText, target: Target, *, timeout_s: float, compiler: CompilerProcess = COMPILER
) -> Compiled:
    """Compiles a stand-alone text for a target.

    Raises:
        UsageError: the compiler rejects it.
        CompileTimeout: the compiler was killed at the time limit.
        CompilerUnavailable: NVRTC is not installed.
    """
    product = compiler.compile(_job(text, target, seed=False), timeout_s)
    if not product.ok:
        raise UsageError(f"{text.expression} does not compile: {product.log.strip()}")
    made = Compiled(text.expression, None, product.lowered[0], target.arch, "NVRTC", True, ())
    return replace(made, ptx=product.ptx, cubin=product.cubin)


def _job(text: StandaloneText, target: Target, *, seed: bool) -> CompileJob:
    """Returns the compiler's input; `seed` makes names with internal linkage reproducible."""
    folders = (f"--include-path={path}" for path in system_includes())
    options = (f"--gpu-architecture={target.arch}", *text.options, *ALWAYS, *folders, *((SEED,) if seed else ()))
    return CompileJob(text.unit, "kernel.cu", (), options, (text.expression,))
