"""Number of kernels whose lifted NumPy functions agree with them, with the contracts' references left out.

    python -m benchmarks.lift_table                  # the examples, benchmarks/large and benchmarks/naive, on the emulator
    python -m benchmarks.lift_table FILE.cu ...      # other kernels

Each kernel is judged at those of its contract's sizes that have at most `MOST` elements in the product of all size names. A line per
kernel: in how many cases the function agrees, and whether it is traced, or why nothing is offered. The end counts them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kernelmate.config import load_settings
from kernelmate.errors import KernelmateError
from kernelmate.records import Kernel
from kernelmate.session import Session
from kernelmate.session.lifting import LiftOutcome, lift_and_judge
from kernelmate.source import contract_for, load_kernels

ROOT = Path(__file__).resolve().parents[1]
MOST = 1_000_000


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    files = parser.parse_args(arguments).files
    files = files or sorted(
        file for folder in ("examples", "benchmarks/large", "benchmarks/naive") for file in (ROOT / folder).glob("*.cu")
    )
    agreed = traced = read = total = 0
    with Session(load_settings(seed=7)) as session:
        for file in files:
            for kernel in load_kernels(file):
                found = _lifted(session, kernel)
                total += 1
                if isinstance(found, str):
                    print(f"{file.parent.name}/{kernel.name:28} {found}", flush=True)
                    continue
                read += found.function is not None
                agreed += found.agrees
                traced += found.agrees and found.note is None
                print(f"{file.parent.name}/{kernel.name:28} {_told(found)}", flush=True)
    print(f"{total} kernels: {read} lifted, {agreed} agree in all cases, {traced} of them traced for synthesis")


def _lifted(session: Session, kernel: Kernel) -> LiftOutcome | str:
    """The note for a kernel whose contract names no reference."""
    try:
        contract = contract_for(kernel)
        sizes = tuple(one for one in contract.sizes if math.prod(one.values()) <= MOST) or contract.sizes[-1:]
        bare = replace(contract, reference=None, reference_kind=None, sizes=sizes, weights=())
        return lift_and_judge(session, kernel, bare)
    except KernelmateError as error:
        return error.message


def _told(found: LiftOutcome) -> str:
    if not found.agrees:
        return f"{'' if found.line is None else f'line {found.line}: '}{found.reason}"
    return f"agrees in {found.cases} cases{'' if found.note is None else f'; {found.note}'}"


if __name__ == "__main__":
    main()
