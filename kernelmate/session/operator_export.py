"""Export of judged kernels as a torch operator: a package with the operator, its kernel and its guards, and a test."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

import numpy as np

from kernelmate.backends.base import EmulationTooLarge, UnsupportedInstruction
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.checks.case_launches import FIRST, Bench, PlannedLaunch
from kernelmate.checks.styles import NORMAL
from kernelmate.compiler.standalone import StandaloneText, standalone_text
from kernelmate.config import Settings
from kernelmate.errors import ContractError, UsageError
from kernelmate.records import Compiled, Contract, FindingCode, JudgeTask, Kernel, Size, Target, Verdict, Version
from kernelmate.session.exporting import Export, ExportSelection, carried_files, judged_again
from kernelmate.session.operator_plan import BackwardPlan, OperatorPlan, operator_name, plan_backward, plan_operator
from kernelmate.session.preparing import options_for
from kernelmate.session.session import Session
from kernelmate.session.torch_operator import OperatorCode, operator_module
from kernelmate.source import argument_shapes, contract_for, launch_shape, numpy_dtype, size_allowed
from kernelmate.version import VERSION

WIDEST = 16
"""Bytes of the widest access of a thread."""

SHIFTED_ELEMENTS = 1 << 17
"""Elements of all arrays up to which a listed size is launched to find out which alignment a kernel needs."""

SMALL = (3, 5, 4, 2)
"""Values of sizes for tests that launch a kernel for every element."""


def export_operator(session: Session, settings: Settings, chosen: ExportSelection, backward: Kernel | None) -> Export:
    """Judges a kernel, and its backward kernel, and writes them as a torch operator unless one is rejected.

    Raises:
        InputError: a contract or the reference needs a change, or the kernel cannot be an operator.
        CompileTimeout: the compiler did not end.
        EnvironmentFailed: the compiler or the worker is unavailable.
    """
    kernel = chosen.kernel
    plan = plan_operator(kernel, contract_for(kernel))
    if backward is not None and plan_backward(plan, backward, contract_for(backward)).plan.name == plan.name:
        raise UsageError(f"Both kernels are called {plan.name}.", file=backward.unit.path, hint="Rename the backward kernel.")  # fmt: skip
    judged = judged_again(session, chosen)
    if backward is not None:
        judged = replace(judged, backward=session.bench(backward))
    return replace(judged, files=_files(session, settings, judged, backward)) if judged.accepted else judged


def operator_folder(kernel: Kernel) -> str:
    """Returns the name of the folder for a kernel's operator where none is given."""
    return f"{operator_name(kernel)}_torch"


@dataclass(frozen=True, slots=True)
class _OperatorPart:
    """A kernel to write: its plan, and its device code as one text."""

    plan: OperatorPlan
    text: StandaloneText
    compiled: Compiled


def _files(session: Session, settings: Settings, judged: Export, backward: Kernel | None) -> dict[str, str]:
    kernel = judged.chosen.kernel
    part = _part(session, settings, kernel, judged.verdicts)
    plan, folder = part.plan, f"{part.plan.name}_op"
    carried = carried_files(session, settings, judged)
    files = {f"judged/{path}": text for path, text in carried.files.items()}
    files[f"{plan.name}.cu"] = _device_file(part)
    second: BackwardPlan | None = None
    if backward is not None:
        other = _part(session, settings, backward, judged.backward)
        second = plan_backward(plan, backward, other.plan.contract, other.plan.alignments)
        files[f"{second.plan.name}.cu"] = _device_file(other)
        theirs = carried_files(session, settings, Export(ExportSelection(backward, None), judged.backward, ()))
        files |= {f"judged_backward/{path}": text for path, text in theirs.files.items()}
        files["backward.py"] = operator_module(
            second.plan, _code(session, other), Path(backward.unit.path).name, folder="judged_backward"
        )
    files["__init__.py"] = operator_module(plan, _code(session, part), Path(kernel.unit.path).name, second)
    files["launching.py"] = _template("torch_launching.txt")
    files["nvcc_builtins.h"] = part.text.builtins
    packed = {f"{folder}/{path}": text for path, text in sorted(files.items())}
    return {**packed, f"test_{folder}.py": _test(plan, carried.place, second, judged.verdicts)}


def _part(session: Session, settings: Settings, kernel: Kernel, verdicts: Sequence[Verdict]) -> _OperatorPart:
    contract = contract_for(kernel)
    assumed = (text for verdict in verdicts for text in verdict.assumes if text not in contract.require)
    contract = replace(contract, require=(*contract.require, *dict.fromkeys(assumed)))
    prepared = session.prepare(kernel)[0]
    text = standalone_text(
        kernel, contract.options, instance=contract.instances[0] if contract.instances else None,
        target=session.target, options=options_for(settings, Path(kernel.unit.path)), judged=prepared.compiled,
        timeout_s=settings.compile_timeout_s,
    )  # fmt: skip
    needed = needed_alignments(prepared.version, session.target)
    return _OperatorPart(plan_operator(kernel, contract, needed), text, prepared.compiled)


def _device_file(part: _OperatorPart) -> str:
    return f"// Device code of {Path(part.plan.kernel.unit.path).name}, as it was judged.\n{part.text.text}"


def _code(session: Session, part: _OperatorPart) -> OperatorCode:
    return OperatorCode(part.text.expression, f"{part.plan.name}.cu", part.text.options, session.target.name)


def _template(name: str) -> str:
    return resources.files("kernelmate.session").joinpath(name).read_text(encoding="utf-8")


# -------------------------------------------------------------------------------------------------------- alignment


def needed_alignments(version: Version, target: Target) -> dict[str, int]:
    """Returns the alignment in bytes that a kernel needs of each array beyond that of its elements.

    The emulator launches it at the listed sizes with each array moved off its alignment. Without an entry, an array may
    begin anywhere. All arrays hold zeros.

    Args:
        version: the compiled kernel and its contract.
        target: the GPU that it was compiled for.
    """
    contract = version.contract
    arrays = {a.name: numpy_dtype(a.dtype).itemsize for a in contract.args if a.shape is not None}
    task = JudgeTask("emulator", target, version, None, None, (), 0, ".")
    needed: dict[str, int] = {}
    try:
        bench = Bench(EmulatorBackend(), task, version)
        for size in contract.sizes:
            if not size_allowed(contract, size) or _elements(contract, size) > SHIFTED_ELEMENTS:
                continue
            if not _is_misaligned(bench, size, arrays):
                continue
            for name, item in arrays.items():
                offsets = [1 << bit for bit in range(WIDEST.bit_length() - 1) if (1 << bit) >= item]
                wrong = [offset for offset in offsets if _is_misaligned(bench, size, {name: offset})]
                if wrong:
                    needed[name] = max(needed.get(name, 1), 2 * max(wrong))
    except (UnsupportedInstruction, EmulationTooLarge):
        return dict.fromkeys(arrays, WIDEST)
    return needed


def _is_misaligned(bench: Bench, size: Size, offsets: Mapping[str, int]) -> bool:
    """Returns True if a launch with arrays moved by these bytes accesses memory off its alignment."""
    shapes = argument_shapes(bench.version.contract, size)
    given = {
        a.name: np.zeros(shapes[a.name], numpy_dtype(a.dtype)) for a in bench.version.contract.args if a.name in shapes
    }
    outcome = bench.run(size, PlannedLaunch(FIRST, NORMAL, 0, 0, misalign=tuple(offsets.items())), given)
    return any(finding.code == FindingCode.MISALIGNED_ACCESS for finding in outcome.result.findings)


def _elements(contract: Contract, size: Size) -> int:
    return sum(map(math.prod, argument_shapes(contract, size).values()))


# ------------------------------------------------------------------------------------------------------------- test


def _test(plan: OperatorPlan, place: str, backward: BackwardPlan | None, verdicts: Sequence[Verdict]) -> str:
    """Returns the text of the test module."""
    extra = repr(plan.size_parameters)
    kernel = plan.kernel.name
    values = {
        "SMALL_IMPORT": "",
        "ALIGNED": _aligned_test(plan),
        "NO_GRADIENT": _gradient_refusal(plan, backward),
        "GRADCHECK": "",
        "NAME": plan.name,
        "KERNEL": kernel,
        "VERSION": VERSION,
        "PLACE": repr(place),
        "EXTRA": extra,
        "TENSORS": repr([plan.names[a.name] for a in plan.tensors]),
    }
    if backward is not None:
        values["SMALL_IMPORT"] = ", small_case"
        values["GRADCHECK"] = _gradcheck(plan, backward, verdicts)
    text = _template("torch_test.txt")
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def _aligned_test(plan: OperatorPlan) -> str:
    aligned = [(i, plan.names[a.name]) for i, a in enumerate(plan.tensors) if a.name in plan.alignments]
    if not aligned:
        return ""
    return f"""

@pytest.mark.parametrize(("index", "name"), {aligned!r})
def test_an_address_off_its_alignment_is_refused(index, name, device):
    arguments = list(CASES[0].arguments(device))
    arguments[index] = moved(arguments[index])
    with pytest.raises(ValueError, match=f"{{name}} begins at an address"):
        run(@NAME@, arguments)

"""


def _gradient_refusal(plan: OperatorPlan, backward: BackwardPlan | None) -> str:
    """Returns the end of the test that requests a gradient which the operator does not have."""
    if plan.mutated:
        return """    with pytest.raises(RuntimeError, match="has no gradient"):
        @NAME@(*[one.clone() if isinstance(one, torch.Tensor) else one for one in arguments])

"""
    lines = [
        "    returned = @NAME@(*arguments)",
        "    outputs = [one for one in (returned if isinstance(returned, tuple) else (returned,)) if one.requires_grad]",
        "    if not outputs:",
        '        pytest.skip("no output has a gradient")',
    ]
    floats = [plan.names[a.name] for a in plan.tensors if "float" in a.dtype]
    if backward is None:
        raising, reason = True, "has no backward kernel"
    else:
        raising, reason = not set(floats) <= set(backward.gradients), "gives no gradient of"
    call = "sum(one.float().sum() for one in outputs).backward()"
    if raising:
        lines += [f"    with pytest.raises(RuntimeError, match={reason!r}):", f"        {call}"]
    else:
        lines += [f"    {call}", "    assert all(one.grad is not None for one in arguments if is_float(one))"]
    return "\n".join(lines) + "\n"


def _gradcheck(plan: OperatorPlan, backward: BackwardPlan, verdicts: Sequence[Verdict]) -> str:
    """Returns the test of the gradients against finite differences."""
    dtypes = {plan.names[a.name]: a.dtype for a in plan.tensors}
    if not {dtypes[name] for name in backward.gradients} <= {"float32", "float64"}:
        return ""  # differences of float16 are mostly rounding
    exact = all(dtypes[name] == "float64" for name in backward.gradients)
    how = "" if exact else ", eps=1e-2, atol=1e-2, rtol=1e-2"
    places = [index for index, name in enumerate(plan.arguments) if name in backward.gradients]
    return f"""

@pytest.mark.filterwarnings("ignore:Input #")  # the kernel takes no float64, for which the defaults are meant
def test_gradients_are_those_of_finite_differences(device):
    case = small_case(KERNEL, {plan.size_parameters!r}, {dict(_small_size(plan, verdicts))!r})
    arguments = case.arguments(device)
    for index in {places}:
        arguments[index].requires_grad_()
    assert torch.autograd.gradcheck(@NAME@, arguments{how}, nondet_tol=1e-4)
    torch.library.opcheck(@NAME@, arguments)


def test_compiled_gradients_are_the_same(device):
    case = small_case(KERNEL, {plan.size_parameters!r}, {dict(_small_size(plan, verdicts))!r})
    found = []
    for operator in (@NAME@, torch.compile(@NAME@, fullgraph=True, dynamic=True, backend="aot_eager")):
        arguments = case.arguments(device)
        for index in {places}:
            arguments[index].requires_grad_()
        returned = operator(*arguments)
        sum(one.square().sum() for one in (returned if isinstance(returned, tuple) else (returned,))).backward()
        found.append([arguments[index].grad for index in {places}])
    torch.testing.assert_close(found[1], found[0])

"""


def _small_size(plan: OperatorPlan, verdicts: Sequence[Verdict]) -> Size:
    """Returns a size of a few elements: one of small numbers if `require` allows it, else the smallest that was right."""
    contract = plan.contract
    small = {name: min(SMALL[i % len(SMALL)], value) for i, (name, value) in enumerate(contract.sizes[0].items())}
    right = [
        case.size for verdict in verdicts for case in verdict.cases if case.correct and min(case.size.values()) > 0
    ]
    for size in (small, *sorted(right, key=lambda size: _elements(contract, size))):
        try:
            if size_allowed(contract, size):
                launch_shape(contract, size)
                return size
        except ContractError:
            continue
    return contract.sizes[-1]
