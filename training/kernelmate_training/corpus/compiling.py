"""NVRTC in the worker's own process, where equal code is compiled once."""

from __future__ import annotations

import re

from kernelmate.compiler.frames import CompileJob, CompileOutput
from kernelmate.compiler.process import CompilerProcess

_COMMENT = re.compile(r"^[ \t]*//[^\n\\]*$", re.MULTILINE)
_NO_CODE = re.compile(r"^[ \t]*(?://[^\n]*|\.(?:loc|file)\b[^\n]*)?\n", re.MULTILINE)


class InProcess(CompilerProcess):
    """NVRTC in this very process, which is a worker that may be killed: no other child is needed.

    Versions that differ in their contract alone, as with another block size, are compiled once.
    """

    def __init__(self) -> None:
        super().__init__(children=1)
        self._known: dict[CompileJob, CompileOutput] = {}

    def forget(self) -> None:
        """Another group's texts are other ones."""
        self._known.clear()

    def compile(self, job: CompileJob, timeout_s: float) -> CompileOutput:
        """Compile; `timeout_s` is its owner's to keep."""
        from kernelmate.compiler.library import load_library

        # Whole lines of comment, the contract among them, are emptied: lines keep their numbers for what is said of them.
        bare = CompileJob(_COMMENT.sub("", job.text), job.name, job.headers, job.options, job.expressions)
        known = self._known.get(bare)
        if known is None:
            known = self._known[bare] = load_library().compile(bare)
        return known


def code_of(ptx: str) -> str:
    """PTX without its comments and line numbers: equal for versions that are the same to the GPU."""
    return _NO_CODE.sub("", ptx)
