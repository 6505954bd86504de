"""Judges kernels that are written from references."""

from __future__ import annotations

from kernelmate.records import Kernel
from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis


def judged_right(session: Session, kernel: Kernel) -> list[str]:
    """Judge all kernels written for a kernel, and return their authors; each has to be right and free of warnings."""
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for judged in found.candidates:
        verdict = judged.verdict
        assert verdict.correct, (judged.candidate.author, verdict.findings, judged.candidate.kernel.source)
        assert verdict.diagnostics == ()
    return [one.candidate.author for one in found.candidates]
