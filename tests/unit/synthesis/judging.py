"""Judges kernels that are written from references."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from kernelmate.records import Contract, Kernel
from kernelmate.session import Session
from kernelmate.source.examples import load_python_function, read_examples
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.draft import KernelRequest
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for


def assert_judged_right(session: Session, kernel: Kernel) -> list[str]:
    """Judge all kernels written for a kernel, and return their authors; each has to be right and free of warnings."""
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for judged in found.candidates:
        verdict = judged.verdict
        assert verdict.correct, (judged.candidate.author, verdict.findings, judged.candidate.kernel.source)
        assert verdict.diagnostics == ()
    return [one.candidate.author for one in found.candidates]


def schedules_for(kernel: Kernel, contract: Contract, folder: Path) -> list[str]:
    """Return the names of the schedules that a kernel's reference has, without their numbers; none if it is refused."""
    try:
        found = list(kernels_for(trace(contract, folder), kernel, contract))
    except Refused:
        return []
    return list(dict.fromkeys(re.sub(r"(-\d\w*)*$", "", one.schedule) for one in found))


def annotated(args: Mapping[str, str], reference: str, sizes: str, folder: Path) -> KernelRequest:
    """Return the request to write a kernel for a contract's reference at its first size, without a kernel to replace."""
    size = dict(re.findall(r"(\w+) = (\d+)", sizes.partition("}")[0]))
    given = {name: re.sub(r"^(?:in|inout) ", "", entry) for name, entry in args.items() if not entry.startswith("out ")}
    for name, value in size.items():  # a size's value stands where it is first named
        holder = next((one for one, entry in given.items() if re.search(rf"\[.*\b{name}\b.*\]", entry)), "")
        if holder:
            given[holder] = re.sub(rf"\b{name}\b(?=[^\[]*\])", f"{name}={value}", given[holder], count=1)
    named = re.search(r"def reference\((.*?)\):", reference)
    used = [one.strip() for one in (named[1] if named else "").split(",")]
    signature = ", ".join(one if one in size else f'{one}: "{given[one]}"' for one in used)
    path = folder / "written.py"
    path.write_text(
        f"import numpy as np\n\n\n{re.sub(r'def reference.*?:', f'def reference({signature}):', reference, count=1)}\n"
    )
    function = load_python_function(f"{path}:reference")
    return KernelRequest(function, read_examples(function, "", {}), folder / "written.cu", "reference")
