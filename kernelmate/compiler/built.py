"""Code that another compiler has made of a kernel, in the form of this package's results."""

from __future__ import annotations

import hashlib

from kernelmate.compiler.resources import read_resources
from kernelmate.records import BuiltCode, Compiled, Diagnostic, Kernel, Target


def as_built(kernel: Kernel, code: BuiltCode, target: Target) -> Compiled:
    """Returns the compiled form of a kernel whose unit holds its code; for another architecture it has only a note."""
    if code.arch != target.arch:
        text = f"{code.compiler} compiled {kernel.name} for {code.arch} alone"
        note = Diagnostic("note", text, kernel.unit.path, kernel.line, kernel.column, "not-supported")
        return Compiled(kernel.name, None, "", target.arch, code.compiler, False, (note,))
    binary = "sha256:" + hashlib.sha256(code.cubin).hexdigest()
    resources = read_resources(code.cubin, code.symbol, "", target.capability)
    return Compiled(
        kernel.name, None, code.symbol, target.arch, code.compiler, True, (), code.ptx, code.cubin, binary, resources
    )
