"""Graphs of what a kernel has to compute: of its reference, or, where that cannot be traced, of its own text."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

from kernelmate.errors import ReferenceFailed
from kernelmate.session.judging import JudgingContext
from kernelmate.session.preparing import PreparedVersion


def graph_text(context: JudgingContext, prepared: PreparedVersion) -> tuple[str, str]:
    """Returns the graph that new kernels are written from, as text, and a note if it is not that of the reference, else "".

    A kernel written from another kernel's text is judged with the reference, like any other.

    Args:
        context: of the judgement.
        prepared: the kernel.

    Raises:
        ReferenceFailed: the reference cannot be traced, and the kernel's text cannot be read either.
    """
    try:
        return context.trace(prepared), ""
    except ReferenceFailed as error:
        if context.contract.stages:
            raise
        # It loads the tree-sitter grammar, which checking and judging do not need.
        from kernelmate.synthesis.lift.function import lift, new_file
        from kernelmate.synthesis.lift.polynomials import NotLifted

        try:
            function = lift(context.kernel, context.contract)
            with tempfile.TemporaryDirectory(prefix="kernelmate-lift-") as folder:
                path = Path(folder) / "reference.py"
                path.write_text(new_file(function))
                contract = replace(
                    context.contract, reference=f"{path}:{function.name}", reference_kind="function", inputs=None
                )
                text = replace(context, contract=contract).trace(replace(prepared, contract=contract))
        except (NotLifted, ReferenceFailed):
            raise error from None
        return text, f"New kernels were written from what the kernel computes. {error.message}"
