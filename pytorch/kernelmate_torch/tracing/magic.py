"""`%%kernelmate_trace`: which kernels a notebook's cell launched, and why the others were bypassed."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class, no_var_expand
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from kernelmate_torch.tracing.in_process import recorded_here
from kernelmate_torch.tracing.report import check_required, lines, reports


@magics_class
class TraceMagics(Magics):
    """The magic; `%load_ext kernelmate_torch` adds it."""

    @no_var_expand
    @magic_arguments("%%kernelmate_trace")
    @argument("--require", action="append", default=[], metavar="NAME", help="Say whether this kernel ran; repeatable.")
    @argument("--share", type=float, default=0.0, metavar="PART", help="The least part of the time of a required kernel, from 0 to 1.")  # fmt: skip
    @argument("-q", "--quiet", action="store_true", help="Show only the bypasses of the cell's kernels.")
    @cell_magic
    def kernelmate_trace(self, line: str, cell: str) -> None:
        """Run a cell, and show which kernels it launched, and why the others were bypassed."""
        given: Any = parse_argstring(self.kernelmate_trace, line)
        with recorded_here() as processes:
            ended = self.shell.run_cell(cell, store_history=False)  # type: ignore[union-attr, unused-ignore]
        made = reports(processes, given.require)
        checked = check_required(made, given.require, given.share)
        how = "the cell" if ended.success else "the cell, which raised an error"
        notes = [] if made else ["the cell's process has not imported PyTorch, so that there is nothing to trace"]
        print("\n".join(lines(made, checked, how, notes, quiet=given.quiet)))
