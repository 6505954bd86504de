"""Writes the files of a capture: the reference that returns captured outputs, and the kernel with its contract above it."""

from __future__ import annotations

import json
import pprint
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelmate.capture.contract import CapturedContract
from kernelmate.capture.records import Capture, base_name, kernel_in_text
from kernelmate.errors import UsageError
from kernelmate.files import write_atomically
from kernelmate.records import Contract, Kernel
from kernelmate.source import apply_edits, file_text, load_kernel, render_contract, write_contract
from kernelmate.source.blocks import block_of

REFERENCE = "reference.py"
DESCRIPTION = "capture.json"
LAUNCHES = "launches"

_REFERENCE_TEXT = '''"""Inputs and expected outputs of {kernel}, captured while this program ran: {program}."""

from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent / "{launches}"

ARRAYS = {arrays}
"""By name: the number of the parameter, the dtype, and the direction as in the contract."""

CASES = {cases}
"""Sizes, shapes at them, and the records of their launches."""


def inputs(seed, **size):
    """Returns the arrays before one of the launches of a size: the first for even seeds, any of the others for odd ones."""
    shapes, records = _case(size)
    place = 0 if seed % 2 == 0 or len(records) == 1 else 1 + seed // 2 % (len(records) - 1)
    return {{name: _array(records[place], name, shape, "before") for name, shape in shapes.items()}}


def expected(**given):
    """Returns what the kernel left in its outputs in the launch that had the given inputs."""
    shapes, records = _case(given)
    record = max(records, key=lambda one: _agreement(one, shapes, given))
    found = [_array(record, name, shapes[name], "after") for name, (_, _, way) in ARRAYS.items() if way != "in"]
    return found[0] if len(found) == 1 else tuple(found)


def _case(given):
    for size, shapes, records in CASES:
        if all(given[name] == value for name, value in size.items()):
            return shapes, records
    raise ValueError("no launch of this size was captured")


def _agreement(record, shapes, given):
    """Returns how many elements of the given arrays that the kernel reads are those of a record."""
    return sum(
        int(np.sum(_array(record, name, shape, "before").astype(given[name].dtype) == given[name]))
        for name, shape in shapes.items()
        if name in given and ARRAYS[name][2] != "out"
    )


def _array(record, name, shape, when):
    number, dtype, _ = ARRAYS[name]
    file = FOLDER / record / f"{{number}}.{{when}}"
    if when == "after" and not file.exists():  # this launch changed nothing
        file = FOLDER / record / f"{{number}}.before"
    return np.fromfile(file, _dtype(dtype), int(np.prod(shape, dtype=np.int64))).reshape(shape)


def _dtype(name):
    if hasattr(np, name):
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))
'''


def reference_text(captured: CapturedContract, program: str) -> str:
    """Returns the Python file with `inputs` and `expected`, which read the records in the folder beside it."""
    arrays = {
        one.name: (captured.parameters[one.name], one.dtype, one.direction)
        for one in captured.contract.args
        if one.shape is not None
    }
    cases = [
        (dict(case.size), dict(case.shapes), [launch.folder.name for launch in case.launches])
        for case in captured.cases
    ]
    return _REFERENCE_TEXT.format(
        kernel=captured.contract.kernel, program=program.replace("\\", "/").replace('"', "'"), launches=LAUNCHES,
        arrays=pprint.pformat(arrays, sort_dicts=False, width=120),
        cases=pprint.pformat(cases, sort_dicts=False, width=120, compact=True),
    )  # fmt: skip


def finished_contract(captured: CapturedContract, folder: Path, beside: Path) -> Contract:
    """Returns the contract with its reference and inputs, as a file in the folder `beside` names them."""
    file = folder.resolve() / REFERENCE
    near = beside.resolve()
    name = file.relative_to(near).as_posix() if file.is_relative_to(near) else str(file)
    return replace(captured.contract, reference=f"{name}:expected", reference_kind="function", inputs=f"{name}:inputs")


def with_contract(kernel: Kernel, contract: Contract) -> Kernel:
    """Returns the kernel with the contract above it, within its changed unit.

    Raises:
        UsageError: a Triton kernel has a contract already.
    """
    if kernel.unit.language != "triton":
        return write_contract(kernel, replace(contract, kernel=kernel.name))
    if block_of(kernel) is not None:
        raise UsageError(
            f"{kernel.name} has a contract.", file=kernel.unit.path, hint="Remove it to have the captured one written."
        )
    return apply_edits(kernel, [(kernel.start, kernel.start, contract_text(kernel, contract))])


def contract_text(kernel: Kernel, contract: Contract) -> str:
    """Returns the contract's block as it is written above the kernel."""
    if kernel.unit.language != "triton":
        return render_contract(contract)
    lines = render_contract(contract, "python").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# block ="))


def captured_kernel(capture: Capture) -> Kernel | None:
    """Returns the kernel of the first recorded launch from its own text or file; None if the program has neither.

    Raises:
        SourceError: the file of a Triton function cannot be read any more.
    """
    launch = capture.launches[0]
    if launch.language == "triton" and launch.file is not None:
        return load_kernel(f"{launch.file}::{launch.kernel}")
    return None if launch.source is None else kernel_in_text(launch.source, launch.kernel)


def write_files(
    folder: Path, captured: CapturedContract, kernel: Kernel, program: str, document: Mapping[str, Any]
) -> list[str]:
    """Writes the files of a capture beside its records; returns their names.

    Args:
        folder: the capture's folder, with `launches`.
        captured: its contract.
        kernel: the kernel; its text is written, too, where it has no file of its own.
        program: the command line that ran.
        document: the capture's description, for `capture.json`.

    Raises:
        OSError: a file cannot be written.
    """
    contents = {REFERENCE: reference_text(captured, program), DESCRIPTION: json.dumps(document, indent=2) + "\n"}
    if kernel.unit.language == "text":
        contents[f"{base_name(kernel.name)}.cu"] = file_text(
            with_contract(kernel, finished_contract(captured, folder, folder))
        )
    for name, text in contents.items():
        write_atomically(folder / name, text, mode=0o644)
    return list(contents)
