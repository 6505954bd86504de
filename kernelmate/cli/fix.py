"""`kernelmate fix`: repairs a kernel that does not compile or is wrong, and proves the repair."""

from __future__ import annotations

from typing import Any

import click

from kernelmate.cli.options import KernelSpec
from kernelmate.cli.search import remark, search, search_options, write_best

PROMPT = "fix the kernel"


@click.command(
    epilog="""\b
Examples:
  kernelmate fix softmax.cu                        what is wrong, what was tried, and the diff of what is right
  kernelmate fix softmax.cu --accept               and write it into the file; the version before is kept
  kernelmate fix ops.cu::rope --author local --samples 8
  kernelmate fix softmax.cu --json

\b
Exit codes: 0 it is right now, or was before; 1 nothing that was tried makes it right (each attempt is listed
with why it failed); 2 the file, its contract or an option needs a change; 3 this machine lacks something."""
)
@click.argument("file", type=KernelSpec(), metavar="FILE[::KERNEL]")
@click.option("--accept", is_flag=True, help="Write the repair into FILE if it was proved right; keeps a backup.")
@click.option(
    "--accept-unproven",
    is_flag=True,
    help="Like --accept, also if it runs without findings but no reference or own contract proves that it is right.",
)
@search_options(page="diffs and verdicts", most=48, first="the repairs that need no model")
def fix(file: str, accept: bool, accept_unproven: bool, **options: Any) -> int:
    """Repair a kernel that does not compile, or that a verdict rejects.

    Repairs follow the messages of the compiler and the findings of the verdict (a missing ; or header, a misspelt
    name, a missing guard or barrier, ...), one after another. Every repair that is shown was judged right at every
    size; FILE is changed only with --accept.
    """
    searched = search(file, PROMPT, options, "correct", writes=accept or accept_unproven)
    found, output = searched.found, searched.output
    from kernelmate.report.versions import nothing_wrong

    if nothing_wrong(found):
        return 0
    if accept or accept_unproven:
        write_best(searched, unproven=accept_unproven)
    elif found.best is not None and not output.as_json:
        remark(f"nothing was written; --accept writes it into {searched.kernel.unit.path}", output)
    return 1 if found.best is None else 0
