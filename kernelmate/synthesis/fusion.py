"""The place of a fused kernel beside the pipeline that it replaces: an empty kernel with a contract, in the pipeline's file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from kernelmate.records import Argument, Contract, Kernel, StageVerdict
from kernelmate.source import find_kernels, render_contract, with_text
from kernelmate.synthesis.draft import declared

BLOCK = "256"
"""Threads of the empty kernel; every schedule sets its own."""


def fusion_draft(pipeline: Kernel, contract: Contract) -> tuple[Kernel, Contract]:
    """Return an empty kernel with the pipeline's outer parameters, below the kernels that the pipeline launches.

    Sizes that are no parameters of the pipeline become parameters, since a kernel needs them.

    Args:
        pipeline: the pipeline, whose file gets the kernel and a contract above it.
        contract: its contract; the kernel's is the same without stages and temporaries.

    Raises:
        SourceError: the file is a Python string that cannot hold the text.
    """
    text = pipeline.unit.text
    given = {one.name for one in contract.args}
    sizes = tuple(Argument(name, None, "int32") for name in contract.sizes[0] if name not in given)
    own = replace(
        contract, kernel=_free_name(pipeline), grid=("1",), block=(BLOCK,), args=(*contract.args, *sizes), stages=(),
        temporaries=(), inferred=False,
    )  # fmt: skip
    parameters = ", ".join(declared(one) for one in own.args)
    place = max(end for _, end in pipeline.parts)
    below = f"\n\n{render_contract(own)}__global__ void {own.kernel}({parameters}) {{\n}}"
    unit = with_text(pipeline.unit, text[:place].rstrip() + below + text[place:])
    kernel = next(one for one in find_kernels(unit) if one.name == own.kernel)
    return kernel, own


def _free_name(pipeline: Kernel) -> str:
    """Returns a name for the kernel that does not occur in the file."""
    name, number = f"{pipeline.name}_fused", 1
    while re.search(rf"\b{name}\b", pipeline.unit.text):
        number += 1
        name = f"{pipeline.name}_fused_{number}"
    return name


def fusion_words(stages: Sequence[StageVerdict]) -> str:
    """Returns two sentences on what a fused kernel saves, and on what is left to its user."""
    written = sum(one.temporaries_written_bytes or 0 for one in stages)
    read = sum(one.temporaries_read_bytes or 0 for one in stages)
    return (
        f"One kernel in place of {len(stages)} stages: {written:,} bytes of temporaries are no longer written and {read:,} "
        "no longer read at the headline size. It stands beside the pipeline with a contract of its own; the host's launches are not changed."
    )
