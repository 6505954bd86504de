"""Finds kernels and their contracts in the user's files, and writes changed ones back.

Everything here works on text: nothing is compiled and no user code is executed.
"""

from __future__ import annotations

from kernelmate.records import Contract, Kernel
from kernelmate.source.blocks import find_kernels
from kernelmate.source.contract import merge_contract, parse_contract
from kernelmate.source.contract_edits import write_contract
from kernelmate.source.distributions import Distribution, parse_distribution
from kernelmate.source.dtypes import c_type_dtype, numpy_dtype
from kernelmate.source.expressions import evaluate
from kernelmate.source.files import load_kernel, load_kernels, load_single_kernel, read_units, text_unit
from kernelmate.source.infer import Inference, infer_contract, inference
from kernelmate.source.launch import (
    alias_start,
    argument_shapes,
    is_first_use,
    launch_shape,
    scalar_value,
    scalar_values,
    size_allowed,
)
from kernelmate.source.launch_edits import change_launch
from kernelmate.source.render import render_contract
from kernelmate.source.rewrite import Edit, apply_edits, file_text, helpers_offset, same_kernel, with_text
from kernelmate.source.write import check_writable, clear_leftovers, write_back

__all__ = [
    "Distribution",
    "Edit",
    "Inference",
    "alias_start",
    "apply_edits",
    "argument_shapes",
    "c_type_dtype",
    "change_launch",
    "check_writable",
    "clear_leftovers",
    "contract_for",
    "evaluate",
    "file_text",
    "find_kernels",
    "helpers_offset",
    "infer_contract",
    "inference",
    "is_first_use",
    "launch_shape",
    "load_kernel",
    "load_kernels",
    "load_single_kernel",
    "merge_contract",
    "numpy_dtype",
    "parse_contract",
    "parse_distribution",
    "read_units",
    "render_contract",
    "same_kernel",
    "scalar_value",
    "scalar_values",
    "size_allowed",
    "text_unit",
    "with_text",
    "write_back",
    "write_contract",
]


def contract_for(kernel: Kernel) -> Contract:
    """Returns the contract written for a kernel, else one inferred from its signature.

    Raises:
        ContractError: the written one is wrong, or none can be inferred.
    """
    return parse_contract(kernel) or infer_contract(kernel)
