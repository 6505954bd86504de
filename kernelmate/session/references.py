"""Contract keys that a candidate takes from its baseline, and replacement of reference and sizes by the user's."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kernelmate.errors import ContractError, ReferenceFailed, UsageError
from kernelmate.records import Contract, Kernel, Objective, Tolerance, Version
from kernelmate.session.preparing import KernelPreparer
from kernelmate.source import find_kernels, parse_contract, size_allowed

BASELINE_KEYS = (
    "sizes",
    "args",
    "reference",
    "tolerance",
    "instances",
    "options",
    "inputs",
    "accumulate",
    "deterministic",
    "cooperative",
    "cluster",
)
"""Parts of a contract that a candidate cannot change."""

_FUNCTION = re.compile(r"(?P<path>.+\.py):(?P<function>[^\W\d]\w*)\Z")


def with_reference(contract: Contract, kernel: Kernel, reference: str | None) -> Contract:
    """Returns the contract with another reference; the contract itself if `reference` is None.

    A path is first looked for from the current folder, as a path on the command line is, then from the kernel's file.

    Raises:
        UsageError: it is neither path:function, nor a kernel of the file, nor a Python expression.
    """
    if reference is None:
        return contract
    text = reference.strip()
    function = _FUNCTION.match(text)
    if function:
        here = Path(function["path"]).expanduser()
        path = here.resolve() if here.is_file() else Path(function["path"])
        return replace(contract, reference=f"{path}:{function['function']}", reference_kind="function")
    if _find(kernel, text) is not None:
        return replace(contract, reference=text, reference_kind="kernel")
    try:
        if ".py" in text:
            raise SyntaxError
        ast.parse(text, mode="eval")
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"{reference!r} cannot be used as a reference.",
            hint="Write reference.py:function, the name of another kernel in the file, or a NumPy expression.",
        ) from error
    return replace(contract, reference=text, reference_kind="expression")


def with_sizes(contract: Contract, sizes: tuple[Mapping[str, int], ...]) -> Contract:
    """Returns the contract with other sizes, in the contract's order of names; the contract itself if `sizes` is empty.

    Its weights, which are of the sizes that it lists, no longer apply.

    Raises:
        UsageError: a size does not have exactly the contract's names, a number is negative, or `require` excludes it.
    """
    if not sizes:
        return contract
    names = tuple(contract.sizes[0])
    for size in sizes:
        if set(size) != set(names):
            given = ", ".join(size) or "none"
            raise UsageError(
                f"A size must name {', '.join(names) or 'nothing'}; given: {given}.", hint=_example(contract)
            )
        for name, value in size.items():
            if value < 0:
                raise UsageError(f"The size {name} = {value} is negative.", hint=_example(contract))
        _check_required(contract, size)
    return replace(contract, sizes=tuple({name: size[name] for name in names} for size in sizes), weights=())


def reference_version(
    kernel: Kernel, contract: Contract, instance: str | None, preparer: KernelPreparer
) -> Version | None:
    """Returns the compiled kernel that the contract names as reference; None if it names none.

    The reference is launched by its own contract, or like the kernel if it has none. A template gets
    the template arguments of the judged instance.

    Raises:
        ReferenceFailed: the reference is not in the file or does not compile.
    """
    if contract.reference_kind != "kernel" or contract.reference is None:
        return None
    reference = _find(kernel, contract.reference)
    if reference is None:
        raise ReferenceFailed(
            f"There is no kernel {contract.reference!r} to serve as reference.",
            file=kernel.unit.path,
            line=contract.line,
        )
    own = parse_contract(reference)
    launch = replace(contract, kernel=reference.name) if own is None else own
    arguments = "" if instance is None else instance[instance.index("<") :]
    name = f"{reference.name}{arguments}" if reference.signature.template_parameters else None
    prepared = preparer.prepare(reference, replace(launch, sizes=contract.sizes), name)
    if prepared.findings:
        finding = prepared.findings[0]
        raise ReferenceFailed(
            f"The reference kernel {reference.name} cannot run: {finding.message}",
            file=finding.file,
            line=finding.line,
            column=finding.column,
        )
    return prepared.version


def _check_required(contract: Contract, size: Mapping[str, int]) -> None:
    for requirement in contract.require:
        if not size_allowed(replace(contract, require=(requirement,)), size):
            at = ", ".join(f"{name} = {value}" for name, value in size.items())
            raise UsageError(
                f"The contract requires {requirement}, which {at} does not satisfy.", hint=_example(contract)
            )


def _find(kernel: Kernel, name: str) -> Kernel | None:
    for other in find_kernels(kernel.unit):
        if other.start != kernel.start and (other.name == name or other.name.endswith(f"::{name}")):
            return other
    return None


def _example(contract: Contract) -> str:
    return f"Write for example {','.join(f'{name}={value}' for name, value in contract.sizes[0].items())}."


SAME_NAMES = {"row": "rows", "col": "cols", "column": "cols", "columns": "cols", "elements": "n"}
"""Everyday words for sizes, and the names that contracts use."""


def with_objective(contract: Contract, objective: Objective | None) -> Contract:
    """Returns the contract with the tolerance that an objective permits, and with the objective's sizes as deciding ones.

    Names that a prompt leaves open take the headline's value. Listed sizes are also checked, with weight 0.

    Raises:
        UsageError: a named size is none of the kernel's, or not allowed by the contract.
    """
    if objective is None or not objective.sizes:
        return _loosened(contract, objective)
    asked = [{**contract.sizes[0], **_known_names(contract, size)} for size in objective.sizes]
    asked = [size for place, size in enumerate(asked) if size not in asked[:place]]
    others = [size for size in contract.sizes if size not in asked]
    weights = (*(1.0 for _ in asked), *(0.0 for _ in others))
    made = with_sizes(contract, (*asked, *others))
    return _loosened(replace(made, weights=weights if others or len(asked) > 1 else ()), objective)


def _known_names(contract: Contract, size: Mapping[str, int]) -> dict[str, int]:
    known = {name.lower(): name for name in contract.sizes[0]}
    found = {}
    for name, value in size.items():
        called = name if name in contract.sizes[0] else known.get(SAME_NAMES.get(name.lower(), name.lower()))
        called = called or known.get(name.lower())
        if called is None:
            listed = ", ".join(contract.sizes[0]) or "none"
            raise UsageError(f"The prompt names the size {name}, which this kernel does not have; it has {listed}.", hint=_example(contract))  # fmt: skip
        found[called] = value
    return found


def _loosened(contract: Contract, objective: Objective | None) -> Contract:
    """Returns the contract with the objective's tolerance if that is larger than the contract's."""
    allowed = None if objective is None else objective.tolerance
    if allowed is None:
        return contract
    written = contract.tolerance
    tolerance = Tolerance(allowed, allowed / 1000)
    if written is not None:
        tolerance = Tolerance(max(written.rtol, allowed), max(written.atol, tolerance.atol))
    return replace(contract, tolerance=tolerance)


def ignored_keys(candidate: Kernel, contract: Contract) -> tuple[str, ...]:
    """Returns notes on keys of a candidate's own contract that are ignored because the baseline's apply."""
    try:
        own = parse_contract(candidate)
    except ContractError:
        return ()
    if own is None:
        return ()
    ignored = [key for key in BASELINE_KEYS if getattr(own, key) != getattr(contract, key)]
    if not ignored:
        return ()
    return (f"the baseline's contract is in force for {', '.join(ignored)}, which the candidate's states otherwise",)
