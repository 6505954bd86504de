"""Generates a CUDA file with several versions of one kernel, and a host function that launches the one for a size."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.errors import SourceError
from kernelmate.records import Contract, DispatchRule, Kernel
from kernelmate.source.expressions import names_in
from kernelmate.source.host_code import Untranslatable, to_host
from kernelmate.source.launch_edits import block_names

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DispatchedVersion:
    """One version: its namespace, its device code without contract blocks, and its launch."""

    namespace: str
    text: str
    contract: Contract


def dispatch_text(kernel: Kernel, versions: Sequence[DispatchedVersion], rule: DispatchRule, heading: str) -> str:
    """Returns the file's text.

    Args:
        kernel: the baseline, whose parameters the host function takes, followed by sizes that are none of them, and a
            stream.
        versions: the versions that the rule refers to by position.
        rule: selects the version for a size.
        heading: comment above the host function, one line.

    Raises:
        SourceError: the kernel is a template, or a launch has no counterpart in host code.
    """
    if kernel.signature.template_parameters:
        raise SourceError(
            f"{kernel.name} is a template, for which no dispatch is written.",
            file=kernel.unit.path,
            hint="Launch the chosen versions from your own code; the table says which.",
        )
    includes = dict.fromkeys(line.strip() for one in versions for line in _INCLUDE.findall(one.text))
    parts = ["\n".join(["#include <cuda_runtime.h>", *includes])]
    for one in versions:
        body = re.sub(r"\n{3,}", "\n\n", _INCLUDE.sub("", one.text)).strip()
        parts.append(f"namespace {one.namespace} {{\n\n{body}\n\n}}  // namespace {one.namespace}")
    parts.append(_launcher(kernel, versions, rule, heading))
    return "\n\n".join(parts) + "\n"


def _launcher(kernel: Kernel, versions: Sequence[DispatchedVersion], rule: DispatchRule, heading: str) -> str:
    name = kernel.name.rpartition("::")[2]
    parameters = [f"{p.type.replace(' *', '*')} {p.name}" for p in kernel.signature.parameters]
    parameters += [f"int {size}" for size in _missing(kernel, versions, rule)]
    first, *factors = rule.measure.split(" * ")
    measure = f"(long long){first} * {' * '.join(factors)}" if factors else first
    lines = [
        f"/// {heading}",
        f"inline cudaError_t launch_{name}({', '.join([*parameters, 'cudaStream_t stream'])}) {{",
    ]
    if len(rule.versions) == 1:
        lines.append(f"  {_launch(kernel, versions[rule.versions[0]])}")
    else:
        for number, version in enumerate(rule.versions):
            bound = f"if ({measure} < {rule.bounds[number]}) " if number < len(rule.bounds) else ""
            lines.append(f"  {'} else ' if number else ''}{bound}{{")
            lines.append(f"    {_launch(kernel, versions[version])}")
        lines.append("  }")
    return "\n".join([*lines, "  return cudaGetLastError();", "}"])


def _launch(kernel: Kernel, version: DispatchedVersion) -> str:
    contract, names = version.contract, {size: size for size in version.contract.sizes[0]}
    try:
        names |= block_names([to_host(side, names) for side in contract.block])
        grid, block = (
            f"dim3({', '.join(to_host(side, names) for side in sides)})" for sides in (contract.grid, contract.block)
        )
        shared = to_host(contract.shared, names)
    except Untranslatable as error:
        raise SourceError(
            f"The launch of {version.namespace} cannot be written in host code: {error}.",
            file=kernel.unit.path,
            hint="Launch the chosen versions from your own code; the table says which.",
        ) from None
    arguments = ", ".join(p.name for p in kernel.signature.parameters)
    return f"{version.namespace}::{kernel.name}<<<{grid}, {block}, {shared}, stream>>>({arguments});"


def _missing(kernel: Kernel, versions: Sequence[DispatchedVersion], rule: DispatchRule) -> list[str]:
    """Returns sizes that the host function needs and the kernel does not take as parameters, in the contract's order."""
    contracts = [one.contract for one in versions]
    texts = [text for c in contracts for text in (*c.grid, *c.block, c.shared)]
    used = {name for text in texts for name, _ in names_in(text)} | set(rule.measure.split(" * "))
    taken = {parameter.name for parameter in kernel.signature.parameters}
    return [size for size in contracts[0].sizes[0] if size in used and size not in taken]
