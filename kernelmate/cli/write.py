"""`kernelmate write`: creates a kernel and its contract from a Python function and example arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import (
    Output,
    Size,
    compile_options,
    device_option,
    output_of,
    output_options,
    print_notices,
    settings_of,
)
from kernelmate.cli.search import remark
from kernelmate.errors import UsageError

if TYPE_CHECKING:
    from kernelmate.config import Settings
    from kernelmate.session.writing import WriteOutcome
    from kernelmate.synthesis.draft import KernelRequest

PROGRESS_AFTER_S = 0.5
"""Seconds of work before progress is shown."""


@click.command(
    epilog="""\b
Examples:
  kernelmate write reference.py:softmax --arrays "x=float32[rows=4096, cols=1024]"
  kernelmate write reference.py:rmsnorm --arrays "x=float16[rows=4096, cols=1024], w=float16[cols], eps=1e-5"
  kernelmate write reference.py:matmul --arrays "a=float32[m=512, k=256], b=float32[k, n=384]" --example
  kernelmate write reference.py:embed --arrays "table=float32[vocab=32000, dim=512], ids=int32[n=4096] ~ integers(0, vocab)"
  kernelmate write reference.py:norm --arrays "x=float32[n=4096, c=256]" --require "c % 32 == 0" --to kernels/norm.cu

\b
The function's annotations ("float32[rows=4096, cols=1024]") and lines of its docstring ("x: float32[rows, cols]")
do in place of --arrays; floating defaults become the kernel's scalars.
Exit codes: 0 the kernel was judged right and written; 1 the function cannot be traced, or no kernel was right: nothing
was written; 2 the function, an example or an option needs a change; 3 this machine lacks something."""
)
@click.argument("reference", metavar="FILE.py:FUNCTION")
@click.option("--arrays", default="", metavar="EXAMPLES", help='Dtypes, shapes and numbers, such as "x=float32[rows=4096, cols=1024], scale=0.5".')  # fmt: skip
@click.option(
    "--size", "sizes", type=Size(), multiple=True, help="Sizes for the contract, the headline first; repeatable."
)
@click.option("--require", multiple=True, metavar="CONDITION", help='A condition that sizes must meet, such as "cols % 4 == 0"; repeatable.')  # fmt: skip
@click.option("--results", default="", metavar="NAME=DTYPE,...", help="Dtypes of results, in place of the inferred ones.")  # fmt: skip
@click.option("--to", "path", metavar="FILE.cu", help="The kernel's file; by default FUNCTION.cu beside FILE.py.")
@click.option("--example", is_flag=True, help="Also write FUNCTION_example.py, which launches the kernel by CuPy.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@click.option("--backend", type=click.Choice(["auto", "cuda", "emulator"]), help="The backend that judges kernels.")
@device_option
@click.option("--seed", type=int, metavar="N", help="Seed of the inputs; drawn and reported if not given.")
@compile_options
@output_options()
def write(
    reference: str, arrays: str, sizes: tuple[Mapping[str, int], ...], require: tuple[str, ...], results: str,
    path: str | None, example: bool, force: bool, **options: Any,
) -> int:  # fmt: skip
    """Write a CUDA kernel that computes a function in NumPy or PyTorch, with a contract that names the function as reference.

    The function is traced in the confined process in which references run, and several kernels are written and
    judged: right at every size of the contract, then by time. The best one is written to a new file.
    """
    output = output_of(options)
    settings = settings_of(options)
    asked = _asked(reference, arrays, sizes, require, results, path)
    _refuse_taken(asked, example=example, force=force)
    made = _judged(settings, asked, output)
    files = _files(made, asked, example=example)
    written: list[Path] = []
    if files:
        from kernelmate.session.exporting import write_all

        written = write_all(asked.path.parent, files, force=force)
    _show(made, written, output)
    return 1 if made.best is None else 0


def _asked(
    reference: str, arrays: str, sizes: tuple[Mapping[str, int], ...], require: tuple[str, ...], results: str, path: str | None
) -> KernelRequest:  # fmt: skip
    """Converts the options to a request.

    Raises:
        InputError: the function or an example needs a change.
    """
    from kernelmate.source.examples import load_python_function, read_examples
    from kernelmate.synthesis.draft import KernelRequest, result_dtypes

    function = load_python_function(reference)
    examples = read_examples(function, arrays, sizes[0] if sizes else {})
    target = function.path.with_name(f"{function.name}.cu") if path is None else Path(path)
    if target.suffix not in (".cu", ".cuh"):
        raise UsageError(f"--to {target}: a kernel's file ends in .cu.", hint=f"Give {target.with_suffix('.cu')}.")
    unknown = next((name for one in sizes for name in one if name not in examples.size), None)
    if unknown is not None:
        raise UsageError(f"--size {unknown}: no shape has this size.", hint=f"Sizes are {', '.join(examples.size)}.")
    several = tuple({**examples.size, **one} for one in sizes)
    return KernelRequest(function, examples, target, function.name, several, require, result_dtypes(results))


def _refuse_taken(asked: KernelRequest, *, example: bool, force: bool) -> None:
    """Check that the new files can be written, before any kernel is judged.

    Raises:
        UsageError: a file exists already, or its folder does not exist.
    """
    if not asked.path.parent.is_dir():
        raise UsageError(f"There is no folder {asked.path.parent}.", hint="Give --to a file in a folder that exists.")
    taken = [one for one in (asked.path, *([_example_path(asked)] if example else [])) if one.exists()]
    if taken and not force:
        raise UsageError(
            f"{taken[0]} is there already; nothing was written.",
            hint="Give another file with --to, or --force to overwrite.",
        )


def _judged(settings: Settings, asked: KernelRequest, output: Output) -> WriteOutcome:
    from kernelmate.cli.progress import TerminalProgress
    from kernelmate.session import Session
    from kernelmate.session.writing import write_kernel

    progress = TerminalProgress(output.stderr(), quiet=output.quiet, after_s=PROGRESS_AFTER_S)
    with progress, Session(settings, progress.stage) as session:
        made = write_kernel(session, asked, on_trying=progress.schedule)
    print_notices(session)
    return made


def _files(made: WriteOutcome, asked: KernelRequest, *, example: bool) -> dict[str, str]:
    """Returns the texts to be written, by file name; none if no kernel is right."""
    if made.best is None:
        return {}
    files = {asked.path.name: made.best.kernel.unit.text}
    if example:
        from kernelmate.synthesis.example import example_text

        files[_example_path(asked).name] = example_text(made.best.contract, asked.path, asked.function.parameters)
    return files


def _example_path(asked: KernelRequest) -> Path:
    return asked.path.with_name(f"{asked.path.stem}_example.py")


def _show(made: WriteOutcome, written: list[Path], output: Output) -> None:
    best = made.best
    if output.as_json:
        from kernelmate.report.json import written_json

        output.document(written_json(made.kernels, [str(path) for path in written], made.notes))
        return
    from kernelmate.report.console import show, show_lines
    from kernelmate.report.excerpt import SourceLines
    from kernelmate.report.tables import verdict_line, verdict_view

    if best is not None and output.quiet:
        show_lines(output.stdout(), verdict_line(best.verdict))
        return
    if best is not None:
        show(output.stdout(), verdict_view(best.verdict, SourceLines()))
        remark(f"{best.schedule}: {best.why}", output)
    for text in made.notes:
        output.stdout().print(text, soft_wrap=True, markup=False)
    if best is None:
        output.stdout().print("nothing was written: there is no kernel that was judged right", soft_wrap=True)
    for path in written:
        remark(f"written: {path}", output)
    if written:
        remark(f'next: kernelmate bench {written[0]}, or kernelmate optimize {written[0]} "make it faster"', output)
