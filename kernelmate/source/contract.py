"""Parser of the contract block: from comment to `Contract`, each error with its place and the fix."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from kernelmate.config import project_folder
from kernelmate.errors import ContractError
from kernelmate.flags import RefusedOption, allowed
from kernelmate.records import SLOWDOWN, Argument, Contract, Kernel, Size, Tolerance
from kernelmate.source.arguments import read_arguments
from kernelmate.source.blocks import ContractBlock, block_of, find_blocks, find_kernels, owner_of
from kernelmate.source.document import KEYS, Document, read_expression, read_sides
from kernelmate.source.dtypes import ITEM_BYTES, dtype_hint
from kernelmate.source.expressions import BLOCK_NAMES, RESERVED, ExpressionError, check_names, nearest_hint
from kernelmate.source.instances import check_instances
from kernelmate.source.launch import (
    CLUSTER_LIMIT,
    SizeError,
    alias_start,
    argument_shape,
    check_shown,
    launch_shape,
    meets_requirements,
    scalar_value,
)
from kernelmate.source.pipelines import read_pipeline_arguments, read_stages, with_stages
from kernelmate.source.reference import read_reference, with_functions
from kernelmate.source.triton_contract import completed, is_triton, read_options, refuse_keys, with_entries


def parse_contract(kernel: Kernel, baseline: Contract | None = None) -> Contract | None:
    """Returns the contract written for a kernel, or None if there is none.

    Args:
        kernel: the kernel.
        baseline: the baseline's contract, for a candidate: it supplies missing keys, and overrides all keys but grid,
            block, shared and require.

    Raises:
        ContractError: with file, line and column of the mistake, and the fix.
    """
    block = block_of(kernel) if kernel.parts else _own_block(kernel)
    if block is None:
        return None
    if not block.closed:
        _fail_unclosed(block)
    document = Document.read(block)
    _check_keys(document)
    if kernel.parts:
        contract = _pipeline(document, kernel)
        return contract if baseline is None else with_stages(document, baseline, contract)
    contract = _whole(document, kernel) if baseline is None else _partial(document, baseline, kernel)
    _check_at_sizes(document, contract)
    return contract


def merge_contract(baseline: Contract, own: Contract | None) -> Contract:
    """Returns a candidate's contract: the baseline's, with grid, block, shared and require of the candidate's own block.

    A Triton kernel has its own constants too.

    Raises:
        ContractError: the candidate's expressions use a size that the baseline does not have.
    """
    if own is None or own.inferred:
        return baseline
    names = set(baseline.sizes[0])
    for key, texts, known in (
        ("grid", own.grid, names | set(BLOCK_NAMES)),
        ("block", own.block, names),
        ("shared", (own.shared,), names | set(BLOCK_NAMES)),
        ("require", own.require, names),
    ):
        for text in texts:
            try:
                check_names(text, known)
            except ExpressionError as error:
                message = f"The candidate's {key} = {text!r}: {error.message}"
                raise ContractError(message, line=own.line, hint=error.hint) from None
    options = own.options if is_triton(own) else baseline.options
    return replace(
        baseline, grid=own.grid, block=own.block, shared=own.shared, require=own.require, options=options,
        stages=own.stages, temporaries=own.temporaries,
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------ which block


def _own_block(kernel: Kernel) -> ContractBlock | None:
    """Returns the kernel's only block.

    A block that belongs to no kernel of the unit is reported as an error for any of them.
    """
    kernels = find_kernels(kernel.unit)
    own: list[ContractBlock] = []
    for block in find_blocks(kernel.unit):
        owner = owner_of(block, kernels)
        if block.pipeline_key is not None:
            continue
        if not block.closed and (owner is None or owner.start == kernel.start):
            _fail_unclosed(block)
        if owner is None:
            _fail_unattached(block, [other.name for other in kernels])
        if owner.start == kernel.start:
            own.append(block)
    if len(own) > 1:
        line, _ = own[0].file_position(own[0].opening.line, None)
        _fail_at_opening(
            own[1],
            f"{kernel.name} already has a contract at line {line}.",
            "Remove one of the two, or say with `kernel` whose it is.",
        )
    return own[0] if own else None


def _fail_unclosed(block: ContractBlock) -> NoReturn:
    _fail_at_opening(block, "This contract block is never closed.", "End it with a line `// ///`.")


def _fail_unattached(block: ContractBlock, names: Sequence[str]) -> NoReturn:
    named = block.kernel_key
    if named is None:
        _fail_at_opening(
            block, "This contract block has no kernel below it.", "Move it above its kernel, or name it with `kernel`."
        )
    line = next((n for n, text in enumerate(block.lines, 1) if re.match(r"\s*kernel\s*=", text.content)), 1)
    content = block.lines[line - 1].content
    place = block.place(line, content.index("=") + 2 + _leading(content[content.index("=") + 1 :]))
    raise ContractError(
        f"There is no kernel {named!r} in this file.",
        file=block.unit.path,
        line=place[0],
        column=place[1],
        hint=nearest_hint(named, names),
    )


def _leading(text: str) -> int:
    return len(text) - len(text.lstrip())


def _fail_at_opening(block: ContractBlock, message: str, hint: str) -> NoReturn:
    marker = 3 if block.span is not None else 2
    line, column = block.file_position(block.opening.line, max(block.opening.column - marker, 1))
    raise ContractError(message, file=block.unit.path, line=line, column=column, hint=hint)


def _check_keys(document: Document) -> None:
    for key in document.data:
        if key not in KEYS:
            document.fail((key,), f"{key!r} is not a key of a contract.", nearest_hint(key, KEYS), key=True)
    if "pipeline" in document.data and document.block.pipeline_key is None:
        document.fail(
            ("pipeline",), "The name of a pipeline must be in quotes.", 'Write pipeline = "softmax_in_two_kernels".'
        )
    if "stages" in document.data and "pipeline" not in document.data:
        document.fail(("stages",), "Only a pipeline has stages.", 'Add pipeline = "name" as the first key.', key=True)


# --------------------------------------------------------------------------------------------- the whole block


def _whole(document: Document, kernel: Kernel) -> Contract:
    sizes = _sizes(document)
    names = tuple(sizes[0])
    triton = kernel.unit.language == "triton"
    options = _launch_options(document, kernel)
    with_block = _grid_names(names, options)
    if triton:
        kernel = with_entries(kernel, document.data.get("args"), options)
    args, passing = read_arguments(document, kernel, names)
    contract = Contract(
        kernel=kernel.name,
        sizes=sizes,
        grid=_sides(document, "grid", with_block),
        block=() if triton else _sides(document, "block", names),
        args=args,
        shared=_expression(document, "shared", with_block) or "0",
        tolerance=_tolerance(document),
        instances=_strings(document, "instances"),
        options=options,
        require=_require(document, names),
        accumulate=_accumulate(document),
        deterministic=_flag(document, "deterministic"),
        cooperative=_flag(document, "cooperative"),
        cluster=_cluster(document),
        weights=_weights(document, sizes),
        slowdown=_slowdown(document),
        line=document.block.file_position(document.block.opening.line, None)[0],
        passing=passing,
    )
    if triton:
        contract = completed(contract)
    check_instances(document, kernel, contract)
    reference, kind = read_reference(document, kernel, args, names)
    return with_functions(document, replace(contract, reference=reference, reference_kind=kind))


def _pipeline(document: Document, kernel: Kernel) -> Contract:
    sizes = _sizes(document)
    args, temporaries = read_pipeline_arguments(document, tuple(sizes[0]))
    contract = Contract(
        kernel=kernel.name,
        sizes=sizes,
        grid=(),
        block=(),
        args=args,
        tolerance=_tolerance(document),
        options=_options(document),
        require=_require(document, tuple(sizes[0])),
        accumulate=_accumulate(document),
        deterministic=_flag(document, "deterministic"),
        weights=_weights(document, sizes),
        slowdown=_slowdown(document),
        line=document.block.file_position(document.block.opening.line, None)[0],
        temporaries=temporaries,
    )
    contract = replace(contract, stages=read_stages(document, kernel, contract, _contract_of_stage))
    _check_at_sizes(document, contract)
    reference, kind = read_reference(document, kernel, args, tuple(sizes[0]))
    return with_functions(document, replace(contract, reference=reference, reference_kind=kind))


def _contract_of_stage(kernel: Kernel) -> Contract | None:
    """Returns a kernel's own contract; mistakes in it are reported where that kernel is judged."""
    try:
        return parse_contract(kernel)
    except ContractError:
        return None


def _launch_options(document: Document, kernel: Kernel) -> tuple[str, ...]:
    """Returns compiler options, or for a Triton kernel the values of its constants."""
    if kernel.unit.language != "triton":
        return _options(document)
    refuse_keys(document)
    return read_options(document, kernel)


def _grid_names(names: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """Returns the names that a grid's expressions may use: sizes, and the block's sides or a Triton kernel's constants."""
    constants = [option.partition("=")[0] for option in options if not option.startswith("-")]
    return (*names, *(constants or BLOCK_NAMES))


def _partial(document: Document, baseline: Contract, kernel: Kernel) -> Contract:
    names = tuple(baseline.sizes[0])
    with_block = (*names, *BLOCK_NAMES)
    has = document.data
    if kernel.unit.language == "triton":
        return merge_contract(baseline, _whole(document, kernel))
    line = document.block.file_position(document.block.opening.line, None)[0]
    no_shared = "0" if "args" in has and uses_no_dynamic_shared(kernel) else ""
    return replace(
        baseline,
        kernel=kernel.name,
        grid=_sides(document, "grid", with_block) if "grid" in has else baseline.grid,
        block=_sides(document, "block", names) if "block" in has else baseline.block,
        shared=_expression(document, "shared", with_block) or no_shared or baseline.shared,
        require=_require(document, names) if "require" in has else baseline.require,
        line=line,
        stages=(),
        temporaries=(),
    )


def uses_no_dynamic_shared(kernel: Kernel) -> bool:
    """Returns True for a CUDA kernel whose file declares no shared array of dynamic length."""
    return "__global__" in kernel.source and re.search(r"\bextern\b[^;{}]*__shared__", kernel.unit.text) is None


def _sizes(document: Document) -> tuple[Mapping[str, int], ...]:
    value = document.required("sizes", "Add sizes = [{ n = 65536 }].")
    if not isinstance(value, list) or not value:
        document.fail(("sizes",), "sizes must be a list of at least one table.", "Write sizes = [{ n = 65536 }].")
    every: list[str] = []
    for index, size in enumerate(value):
        if not isinstance(size, dict):
            document.fail(("sizes", index), "A size must be a table.", "Write { n = 65536 }.")
        for name, number in size.items():
            _check_size(document, index, name, number)
            if name not in every:
                every.append(name)
    for index, size in enumerate(value):
        missing = [name for name in every if name not in size]
        if missing:
            document.fail(
                ("sizes", index),
                f"This size lacks {', '.join(missing)}, which other sizes have.",
                "Give every size the same names.",
            )
    return tuple({name: size[name] for name in every} for size in value)


def _check_size(document: Document, index: int, name: str, number: object) -> None:
    path = ("sizes", index, name)
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name):
        document.fail(path, f"{name!r} cannot be the name of a size.", "Use letters, digits and _.", key=True)
    if name in RESERVED:
        document.fail(
            path, f"{name!r} already means something in expressions.", "Give the size another name.", key=True
        )
    if isinstance(number, bool) or not isinstance(number, int):
        document.fail(path, f"The size {name} must be a whole number.", "Write it without quotes or a point.")
    if number < 0:
        document.fail(path, f"The size {name} = {number} is negative.", "Write a size of at least 0.")
    if number > 2**63 - 1:
        document.fail(path, f"The size {name} = {number} is over 2^63 - 1.", "Write a smaller size.")


def _sides(document: Document, key: str, names: Sequence[str]) -> tuple[str, ...]:
    first = names[0] if names and names[0] not in BLOCK_NAMES else "1"
    example = f'grid = "cdiv({first}, block)"' if key == "grid" else "block = 256"
    value = document.required(key, f"Add {example}.")
    return read_sides(document, (key,), value, names, example)


def _expression(document: Document, key: str, names: Iterable[str]) -> str | None:
    if key not in document.data:
        return None
    return read_expression(document, (key,), document.data[key], names)


def _require(document: Document, names: Sequence[str]) -> tuple[str, ...]:
    texts = _strings(document, "require")
    for index in range(len(texts)):
        read_expression(document, ("require", index), document.data["require"][index], names)
    return texts


def _strings(document: Document, key: str) -> tuple[str, ...]:
    value = document.data.get(key, [])
    if isinstance(value, str):
        document.fail((key,), f"{key} must be a list.", f'Write {key} = ["{value}"].')
    if not isinstance(value, list):
        document.fail((key,), f"{key} must be a list of strings.", f'Write {key} = ["..."].')
    for index, entry in enumerate(value):
        if not isinstance(entry, str) or not entry.strip():
            document.fail((key, index), f"An entry of {key} must be a string that is not empty.", "Put it in quotes.")
    return tuple(entry.strip() for entry in value)


def _options(document: Document) -> tuple[str, ...]:
    options = _strings(document, "options")
    for index, option in enumerate(options):
        if not option.startswith("-"):
            document.fail(
                ("options", index), f"{option!r} is not a compiler option.", f"Write -D{option} to define it."
            )
        try:
            taken = allowed((option,))
        except RefusedOption as error:
            document.fail(("options", index), str(error), "Docs: docs/contract.md, Compiler options.")
        for folder in (one[2:] for one in taken if one.startswith("-I")):
            _check_folder(document, index, folder)
    return options


def _check_folder(document: Document, index: int, folder: str) -> None:
    """Checks that a contract names folders of its own project only, since opening an untrusted file must not read others."""
    beside = Path(document.block.unit.path).parent
    project = project_folder(beside)
    if not (beside / folder).resolve().is_relative_to(project):
        document.fail(
            ("options", index), f"-I{folder} is outside of the project, {project}.",
            "Name it by the option -I, or by include_paths in your own settings.",
        )  # fmt: skip


def _flag(document: Document, key: str) -> bool:
    value = document.data.get(key, False)
    if not isinstance(value, bool):
        document.fail((key,), f"{key} must be true or false.", f"Write {key} = true.")
    return value


def _cluster(document: Document) -> tuple[int, ...] | None:
    if "cluster" not in document.data:
        return None
    value = document.data["cluster"]
    sides = value if isinstance(value, list) else [value]
    if not 1 <= len(sides) <= 3 or any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in sides):
        document.fail(("cluster",), "cluster must be one to three whole numbers of at least 1.", "Write cluster = [2].")
    if math.prod(sides) > CLUSTER_LIMIT:
        message = f"A cluster of {math.prod(sides)} blocks is over the {CLUSTER_LIMIT} that any GPU allows."
        document.fail(("cluster",), message, "Use at most 8; 16 needs a kernel that allows non-portable cluster sizes.")
    return tuple(sides)


def _accumulate(document: Document) -> str | None:
    value = document.data.get("accumulate")
    if value is not None and (not isinstance(value, str) or value not in ITEM_BYTES):
        document.fail(("accumulate",), f"{value!r} is not a dtype.", dtype_hint(str(value)))
    return value


def _tolerance(document: Document) -> Tolerance | None:
    value = document.data.get("tolerance")
    if value is None:
        return None
    example = "Write tolerance = { rtol = 1e-5, atol = 1e-6 }."
    if not isinstance(value, dict) or not value:
        document.fail(("tolerance",), "tolerance must be a table with rtol, atol or both.", example)
    for name, number in value.items():
        if name not in ("rtol", "atol"):
            document.fail(("tolerance", name), f"{name!r} is not part of a tolerance.", example, key=True)
        if isinstance(number, bool) or not isinstance(number, int | float):
            document.fail(("tolerance", name), f"{name} must be a number.", example)
        if not math.isfinite(number) or number < 0:
            document.fail(("tolerance", name), f"{name} must be finite and at least 0.", example)
    return Tolerance(rtol=float(value.get("rtol", 0.0)), atol=float(value.get("atol", 0.0)))


def _weights(document: Document, sizes: Sequence[Mapping[str, int]]) -> tuple[float, ...]:
    value = document.data.get("weights")
    if value is None:
        return ()
    example = f"Write weights = [{', '.join(['1'] * len(sizes))}], or leave it out: then the first size decides alone."
    if not isinstance(value, list):
        document.fail(("weights",), "weights must be a list of numbers, one for each size.", example)
    for index, number in enumerate(value):
        if not _not_negative(number):
            document.fail(("weights", index), "A weight must be a finite number of at least 0.", example)
    if len(value) != len(sizes):
        message = f"There {_are(len(value), 'weight')} for {_count(len(sizes), 'size')}."
        document.fail(("weights",), message, "Give every size one weight, in the order of sizes.")
    if not any(value):
        document.fail(
            ("weights",), "No weight is positive, so no size decides.", "Give one size at least a weight over 0."
        )
    return tuple(float(number) for number in value)


def _slowdown(document: Document) -> float:
    value = document.data.get("slowdown", SLOWDOWN)
    if not _not_negative(value):
        message = "slowdown must be a finite number of at least 0: the fraction by which a listed size may get slower."
        document.fail(("slowdown",), message, f"Write slowdown = {SLOWDOWN} for ten per cent.")
    return float(value)


def _not_negative(number: object) -> bool:
    return not isinstance(number, bool) and isinstance(number, int | float) and math.isfinite(number) and number >= 0


def _are(number: int, name: str) -> str:
    return f"{'is' if number == 1 else 'are'} {_count(number, name)}"


def _count(number: int, name: str) -> str:
    return f"{number} {name}{'' if number == 1 else 's'}"


# -------------------------------------------------------------------------------------------------- at sizes


def _check_at_sizes(document: Document, contract: Contract) -> None:
    """Checks that every listed size that `require` allows has a valid launch, shapes and scalars."""
    for size in contract.sizes:
        try:
            if not meets_requirements(contract, size):
                continue
            for argument in (*contract.args, *contract.temporaries):
                _check_argument(argument, size)
            for passed in contract.passing:
                alias_start(contract, passed, size)
            check_shown(contract, size)
            if not contract.stages:
                launch_shape(contract, size)
        except SizeError as error:
            document.fail_at(error)
        for number, stage in enumerate(contract.stages):
            try:
                for argument in stage.contract.args:
                    _check_argument(argument, size)
                launch_shape(stage.contract, size)
            except SizeError as error:
                error.path = ("stages", number, *error.path)
                document.fail_at(error)


def _check_argument(argument: Argument, size: Size) -> None:
    if argument.shape is not None:
        argument_shape(argument, size)
    else:
        scalar_value(argument, size)
