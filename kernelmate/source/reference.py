"""Reads the names of references and `inputs` functions in a contract; runs none of them."""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from kernelmate.records import Argument, Contract, Kernel
from kernelmate.source.blocks import find_kernels
from kernelmate.source.document import Document
from kernelmate.source.expressions import nearest_hint
from kernelmate.source.toml_positions import Path

_FUNCTION = re.compile(r"(?P<path>[^\x00-\x1f]*\.py):(?P<function>[^\W\d]\w*)\Z")


def read_reference(
    document: Document, kernel: Kernel, args: Sequence[Argument], names: Sequence[str], path: Path = ("reference",)
) -> tuple[str | None, Literal["function", "kernel", "expression"] | None]:
    """Returns the value of the key `reference` and its kind; a pair of None if it is absent.

    Args:
        document: the block.
        kernel: the kernel, which cannot be its own reference.
        args: arguments that an expression may use.
        names: names of the sizes.
        path: the reference's key, if it is not at the top.

    Raises:
        ContractError: it is neither path:function, nor another kernel, nor an expression over arguments and sizes.
    """
    value = document.value(path)
    if value is None:
        return None, None
    if not isinstance(value, str) or not value.strip():
        hint = 'Write reference = "reference.py:function".'
        document.fail(path, "reference must be a string that is not empty.", hint)
    text = value.strip()
    if _FUNCTION.match(text):
        return text, "function"
    others = [other.name for other in find_kernels(kernel.unit) if other.start != kernel.start]
    if text in others or any(other.endswith(f"::{text}") for other in others):
        return text, "kernel"
    if text == kernel.name:
        document.fail(path, f"{text} cannot be its own reference.", "Name another kernel or a Python function.")
    if ".py" in text:
        document.fail(path, f"{text!r} is not path:function.", 'Write "reference.py:function".')
    check_array_expression(document, path, text, args, names, others)
    return text, "expression"


def check_array_expression(
    document: Document,
    path: Path,
    text: str,
    args: Sequence[Argument],
    names: Sequence[str],
    kernels: Sequence[str] = (),
) -> frozenset[str]:
    """Checks a NumPy expression over arguments and sizes, and returns the names that it uses, as the contract writes them.

    Raises:
        ContractError: it is not an expression, or uses another name.
    """
    spelled = {f"{a.name}_" if keyword.iskeyword(a.name) else a.name for a in args}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        keywords = [a.name for a in args if keyword.iskeyword(a.name)]
        hint = 'Write "reference.py:function", the name of a kernel in this file, or a NumPy expression.'
        if keywords:
            hint = f"{keywords[0]} is a word of Python: write {keywords[0]}_ for the argument."
        document.fail(path, f"{text!r} is neither path:function, nor a kernel, nor an expression.", hint)
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    known = spelled | set(names) | {"np"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id not in known | bound:
            hint = nearest_hint(node.id, known | set(kernels))
            message = f"{node.id!r} is neither an argument, nor a size, nor np."
            document.fail(path, message, hint, offset=node.col_offset)
    used = frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name)) - bound
    return frozenset(name[:-1] if keyword.iskeyword(name[:-1]) else name for name in used)


def with_functions(document: Document, contract: Contract) -> Contract:
    """Returns a contract with the Python functions of its keys `inputs` and `torch`.

    Raises:
        ContractError: one of them is not path:function.
    """
    made, torch = _function(document, "inputs", "make"), _function(document, "torch", "softmax_torch")
    return replace(contract, inputs=made, torch=torch)


def _function(document: Document, key: str, example: str) -> str | None:
    value = document.data.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not _FUNCTION.match(value.strip()):
        document.fail((key,), f"{value!r} is not path:function.", f'Write {key} = "reference.py:{example}".')
    return value.strip()
