"""Detects matrix instructions of lower precision than the contract allows, in the SASS.

Only a few inputs are compared with the reference, while the instructions hold for all inputs. A sum in float16
overflows at 65504 and loses digits with every term, and products of tf32 or bfloat16 have 11 or 8 bits, whatever the
types of the arrays are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernelmate.checks.precision import is_float, unit_roundoff
from kernelmate.checks.tolerances import accumulating_dtype
from kernelmate.compiler.diagnostics import UNIT_NAME
from kernelmate.records import Contract, Finding, FindingCode, Severity
from kernelmate.source import numpy_dtype

PTX_MATRIX = re.compile(r"\b(?:mma|wgmma|wmma|tcgen05)\.")
"""PTX without a match has no matrix instructions, because ptxas does not introduce them."""

_FILE = re.compile(r'^\s*//## File "(?P<file>[^"]*)", line (?P<line>\d+)')
_CODE = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?(?P<opcode>(?:[HQO]G?MMA|UTC[HQO]MMA)(?:\.\w+)*)", re.MULTILINE
)

_PRODUCTS = {"BF16": 8, "TF32": 11, "E4M3": 4, "E5M2": 3, "E2M3": 4, "E3M2": 3, "E2M1": 2}
"""Significant bits of the multiplied type, implicit bit included.

HMMA and HGMMA multiply float16 unless their opcode names a type.
"""

_FLOAT16_BITS = 11


@dataclass(frozen=True, slots=True)
class MatrixInstruction:
    """One SASS instruction that multiplies matrices.

    Attributes:
        opcode: as nvdisasm prints it: `HMMA.16816.F32.BF16`.
        line: line of the unit's text; None for code from elsewhere.
        product_bits: significant bits of the multiplied numbers; None if the opcode does not determine it.
        float16_sum: True if the accumulator is float16.
    """

    opcode: str
    line: int | None
    product_bits: int | None
    float16_sum: bool


def instructions(sass: str) -> Iterator[MatrixInstruction]:
    """Yields the matrix instructions of a disassembly with line information (opcodes: CUDA Binary Utilities, Hopper)."""
    line: int | None = None
    for text in sass.splitlines():
        place = _FILE.match(text)
        if place is not None:
            ours = place["file"].endswith(UNIT_NAME)
            line = int(place["line"]) if ours and int(place["line"]) > 0 else None
            continue
        code = _CODE.match(text)
        if code is not None:
            parts = code["opcode"].split(".")
            named = [_PRODUCTS[part] for part in parts if part in _PRODUCTS]
            plain = _FLOAT16_BITS if parts[0] in ("HMMA", "HGMMA") else None
            yield MatrixInstruction(
                code["opcode"], line, min(named, default=plain), "F16" in parts and "F32" not in parts
            )


def find(contract: Contract, sass: str, baseline_sass: str | None) -> tuple[Finding, ...]:
    """Returns a finding for each line with matrix instructions below the precision that the contract requires.

    A sum in float16 is an error where the contract's accumulator is wider, unless the contract fixes the tolerance.
    Narrow products are a warning, because three of them can be combined into a wide product. Instructions that the
    baseline has too are a note.

    Args:
        contract: the contract in force; its `accumulate` and array dtypes define the required precision.
        sass: the version's code from `compiler.disassembly.sass`.
        baseline_sass: the baseline's code.
    """
    theirs = {(i.product_bits, i.float16_sum) for i in instructions(baseline_sass or "")}
    sum_dtype, bits = _accumulator(contract), _promised_bits(contract)
    found: dict[tuple[int | None, str], Finding] = {}
    for one in instructions(sass):
        known = (one.product_bits, one.float16_sum) in theirs
        if one.float16_sum and sum_dtype is not None and unit_roundoff(sum_dtype) < unit_roundoff(np.dtype(np.float16)):
            excused = contract.tolerance is not None and contract.accumulate is None
            severity: Severity = "note" if known else "warning" if excused else "error"
            text = f"{one.opcode} adds up in float16, and the contract's sums are {sum_dtype}"
            text += "" if known else "; if it is meant, say so with `accumulate` in the contract"
            found.setdefault((one.line, "sum"), _finding(severity, text, one.line, known))
        elif bits is not None and one.product_bits is not None and one.product_bits < bits:
            text = (
                f"{one.opcode} multiplies numbers of {one.product_bits} significant bits, and the inputs have {bits}; "
                "only sums of several such products can be as exact"
            )
            found.setdefault((one.line, "product"), _finding("note" if known else "warning", text, one.line, known))
    return tuple(found.values())


def _finding(severity: Severity, text: str, line: int | None, known: bool) -> Finding:
    return Finding(FindingCode.PRECISION_LOSS, severity, text + " (the baseline does it too)" * known, line=line)


def _accumulator(contract: Contract) -> np.dtype[np.generic] | None:
    """Returns the widest accumulating dtype of the floating outputs; None without any."""
    outputs = [a.dtype for a in contract.args if a.direction in ("out", "inout") and is_float(numpy_dtype(a.dtype))]
    dtypes = [accumulating_dtype(contract, output) for output in outputs]
    return min(dtypes, key=unit_roundoff, default=None)


def _promised_bits(contract: Contract) -> int | None:
    """Returns the significant bits of the narrowest floating input array, the lowest precision allowed for products."""
    dtypes = [numpy_dtype(a.dtype) for a in contract.args if a.direction in ("in", "inout")]
    roundoffs = [unit_roundoff(dtype) for dtype in dtypes if is_float(dtype)]
    return round(-np.log2(max(roundoffs))) if roundoffs else None
