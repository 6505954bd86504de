"""`kernelmate trace`: which kernels a program really launched, and why the others were bypassed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelmate.cli.options import Output, output_of, output_options
from kernelmate.errors import UsageError

if TYPE_CHECKING:
    from kernelmate.cli.programs import FinishedProgram
    from kernelmate_torch.tracing.loading_records import TracedProcess
    from kernelmate_torch.tracing.report import ProcessReport, RequiredKernel


@click.command(
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
    epilog="""\b
Examples:
  kernelmate trace -- python train.py --steps 20
  kernelmate trace --require softmax --share 0.1 -- python train.py
  kernelmate trace --require "my::*" --out trace.json -- torchrun --nproc-per-node 2 train.py
  kernelmate trace --json -- pytest tests/test_model.py

\b
The program runs as it does without: its output, input and exit status are its own, and the report follows on
standard error. With --json the document alone is on standard output, and the program's output on standard error.
Exit codes: the program's own if that is not 0; else 1 if a kernel of --require did not run or has too small a
share; else 0. 2 an option needs a change, or there is no such program.""",
)
@click.option("--require", "required", multiple=True, metavar="NAME", help="Fail if this kernel does not run: softmax, my::softmax, or a pattern as my::*; repeatable.")  # fmt: skip
@click.option("--share", type=click.FloatRange(0, 1), metavar="PART", help="Fail if a required kernel has less than this part of the time, from 0 to 1.")  # fmt: skip
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Also write the JSON document to this file.")  # fmt: skip
@output_options()
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- PROGRAM [ARGUMENTS]...")
def trace(
    required: tuple[str, ...], share: float | None, out: Path | None, command: tuple[str, ...], **options: Any
) -> int:
    """Trace a program: which kernels it launched, and why the others were bypassed.

    Custom operators of torch.library, Triton functions and CuPy kernels are counted in forward, backward and compiled runs. For
    each that did not run, the guard, handler, graph break or registration that took another way is named, with file and line.
    Times come from PyTorch's profiler: of the GPU where there is one, else of the CPU's operators.
    """
    output = output_of(options)
    if share is not None and not required:
        raise UsageError("--share needs --require.", hint="Name the kernel: --require softmax --share 0.1")
    from kernelmate.cli.programs import run_program
    from kernelmate_torch.tracing.loading_records import read_records
    from kernelmate_torch.tracing.report import check_required, reports
    from kernelmate_torch.tracing.running import traced_environment

    with tempfile.TemporaryDirectory(prefix="kernelmate-trace-", ignore_cleanup_errors=True) as held:
        folder = Path(held)
        ended = run_program(
            command,
            traced_environment(folder, os.environ),
            example="kernelmate trace -- python train.py",
            output=sys.stderr.fileno() if output.as_json else None,
        )
        processes = read_records(folder)
    made = reports(processes, required)
    checked = check_required(made, required, share or 0.0)
    _show(command, ended, processes, made, checked, out, output)
    if ended.status:
        return ended.status
    return 0 if all(one.met for one in checked) else 1


def _show(
    command: Sequence[str], ended: FinishedProgram, processes: Sequence[TracedProcess], made: Sequence[ProcessReport],
    checked: Sequence[RequiredKernel], out: Path | None, output: Output,
) -> None:  # fmt: skip
    from kernelmate.cli.programs import program_name
    from kernelmate.report.json import SCHEMA
    from kernelmate_torch.tracing.report import document, lines

    notes = list(_notes(ended, processes))
    program = {
        "command": list(command),
        "status": ended.status,
        "signal": ended.signal or None,
        "interrupted": ended.interrupted,
    }
    made_document = {"schema": SCHEMA, **document(made, checked, program, notes)}
    if out is not None:
        _write(out, made_document)
    if output.as_json:
        output.document(made_document)
        return
    how = f"ended by {ended.signal}" if ended.signal else f"exit status {ended.status}"
    console = output.stderr()
    for line in lines(made, checked, f"{program_name(command)}, {how}", notes, quiet=output.quiet):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _notes(ended: FinishedProgram, processes: Sequence[TracedProcess]) -> list[str]:
    """Returns the notes on the program's run that a reader of the report needs."""
    notes = []
    own = [one for one in processes if one.pid == ended.pid]
    if ended.interrupted:
        notes.append("the program was interrupted; what it ran until then is counted")
    if not processes:
        notes.append(
            "no Python process of the program was recorded: Python ignores PYTHONPATH with -I and -E, and -S loads no hooks"
        )
    elif not any(one.torch or one.kernels for one in processes):
        notes.append("the program never imported PyTorch or CuPy, so that there is nothing to trace")
    for one in processes:
        if one.complete or not (one.torch or one in own):
            continue
        if ended.pid != one.pid and _runs(one.pid):
            notes.append(f"process {one.pid} still runs; what it ran until some seconds ago is counted")
        else:
            by = f" by {ended.signal}" if one in own and ended.signal else ""
            notes.append(f"process {one.pid} was killed{by}: what it ran until some seconds before is counted")
    for one in processes:
        if one.torch and not one.lines and "another tool" not in " ".join(one.document["notes"]):
            notes.append(f"process {one.pid}: another tool took the trace function, so that branches are known in part")
    return notes


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _write(out: Path, made: dict[str, Any]) -> None:
    from kernelmate.files import write_atomically

    try:
        write_atomically(out, json.dumps(made, indent=2) + "\n")
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}.", hint="Give another file with --out.") from None
