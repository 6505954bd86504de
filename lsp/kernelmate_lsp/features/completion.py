"""Completion inside contract blocks: keys, argument names, dtypes, directions, sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lsprotocol import types

from kernelmate.records import Kernel
from kernelmate.source.blocks import ContractBlock, find_blocks, find_kernels, owner_of
from kernelmate.source.document import KEYS
from kernelmate.source.dtypes import c_type_dtype
from kernelmate.source.pipelines import NOT_OF_PIPELINES
from kernelmate.source.textures import SURFACE_WORDS, TEXTURE_WORDS, example_entry, object_kind
from kernelmate_lsp.reading import DocumentKernels
from kernelmate_lsp.server import KernelmateServer

KEY_HELP: dict[str, tuple[str, str]] = {
    "kernel": ('kernel = "$1"', "The kernel that this block belongs to, if the block is not directly above it."),
    "sizes": ("sizes = [{ ${1:n} = ${2:65536} }]", "The sizes that are judged and timed; the first is the headline."),
    "grid": (
        'grid = "${1:(n + block - 1) // block}"',
        "Blocks of the launch: one to three expressions over sizes and `block`.",
    ),
    "block": ("block = ${1:256}", "Threads of a block: one to three numbers or expressions."),
    "shared": ('shared = "${1:block * 4}"', "Dynamic shared memory of a block, in bytes."),
    "reference": (
        'reference = "${1:reference.py:function}"',
        "What the kernel must compute: a Python function, another kernel, or a NumPy expression.",
    ),
    "tolerance": (
        "tolerance = { rtol = ${1:1e-5}, atol = ${2:1e-6} }",
        "A fixed tolerance, in place of the derived one.",
    ),
    "instances": ('instances = ["${1:kernel<float>}"]', "The instances of a template that are compiled and judged."),
    "options": ('options = ["${1:-use_fast_math}"]', "Further options of NVRTC."),
    "require": ('require = ["${1:n % 4 == 0}"]', "What sizes must fulfil; others are not judged."),
    "inputs": ('inputs = "${1:inputs.py:function}"', "A function that makes the input arrays."),
    "torch": (
        'torch = "${1:reference.py:function_torch}"',
        "A function of PyTorch that computes the same; `--against torch` times it beside the kernel.",
    ),
    "accumulate": ('accumulate = "${1:float32}"', "The dtype that sums are kept in, for the derived tolerance."),
    "deterministic": ("deterministic = true", "Two equal launches must give equal bits."),
    "cooperative": ("cooperative = true", "The launch is cooperative: all blocks are resident, grid sync is allowed."),
    "cluster": ("cluster = [${1:2}]", "Blocks of a cluster, from compute capability 9.0 on."),
    "weights": (
        "weights = [${1:1}]",
        "One number per size: their weighted geometric mean decides on speed. Without it the first size decides alone.",
    ),
    "slowdown": ("slowdown = ${1:0.1}", "The fraction by which a listed size's time may rise in an accepted version."),
    "args": ("[args]\n// $0", "One entry for each parameter, in the kernel's order."),
    "symbols": (
        '[symbols]\n// ${1:variable} = "${2:in float32[n]}"',
        "The `__constant__` and `__device__` variables that the kernel reads or writes.",
    ),
}

KEY_HELP["pipeline"] = (
    'pipeline = "${1:name}"',
    "Several launches as one contract: each has a `[[stages]]`, and their temporaries are `scratch` arrays.",
)
KEY_HELP["stages"] = (
    '[[stages]]\n// kernel = "${1:kernel}"\n// grid = "${2:cdiv(n, block)}"\n// block = ${3:256}',
    "One step of a pipeline: the launch of a kernel, or an array by a NumPy expression.",
)

STAGE_HELP: dict[str, tuple[str, str]] = {
    "kernel": (
        'kernel = "$1"',
        "The kernel that the stage launches; of a template an instance, such as `reduce<256>`.",
    ),
    "grid": KEY_HELP["grid"],
    "block": KEY_HELP["block"],
    "shared": KEY_HELP["shared"],
    "args": (
        'args = { ${1:parameter} = "${2:array}" }',
        "What parameters get where that has another name: an array, a scalar or an expression over sizes.",
    ),
    "cooperative": KEY_HELP["cooperative"],
    "reference": (
        'reference = "${1:np.sum(x)}"',
        "What the stage must compute of what it gets: an expression over the kernel's parameters, or a Python function.",
    ),
}

DTYPES = ("float32", "float16", "bfloat16", "float64", "int32", "int64", "uint8", "int8", "uint32", "bool")
DIRECTIONS = ("in", "out", "inout", "scratch", "alias")
_PROMISES = {
    "align 16": "The array's address is a multiple of so many bytes: versions may rely on it.",
    "unordered": "The order of the elements does not matter; `unordered with keys` shares the order of another output.",
    "where": "Only elements at which the named integer array is not zero are compared.",
}
_VARIABLE = re.compile(
    r"__(?P<space>constant|device)__\s+(?:(?:static|volatile|const)\s+)*(?P<type>[\w:]+(?:\s+(?:int|long|char|short))*)\s+"
    r"(?P<name>\w+)\s*(?:\[(?P<extent>[^\]]*)\])?\s*[;={]"
)
_KEY = re.compile(r"\s*(?P<written>\w*)\Z")
_TABLE = re.compile(r"\s*\[{1,2}\s*(?P<name>args|symbols|stages)\b[\w.\s]*\]")
_ENTRY = re.compile(r"\s*(?P<name>\w+)\s*=\s*\"(?P<text>[^\"]*)\"")


def complete(reading: DocumentKernels, line: int, column: int, *, snippets: bool) -> list[types.CompletionItem]:
    """Returns completions at a position; none outside contract blocks.

    Args:
        reading: the document.
        line: from 1.
        column: from 1.
        snippets: True if the client supports snippets.
    """
    place = _block_at(reading, line)
    if place is None:
        return []
    block, row = place
    content = block.lines[row].content
    written = content[: max(column - block.lines[row].column, 0)]
    owner = owner_of(block, find_kernels(block.unit))
    tables = [match for one in block.lines[:row] if (match := _TABLE.match(one.content))]
    if tables and tables[-1]["name"] == "stages":
        return list(_in_stage(block, row, written, snippets=snippets))
    if _KEY.match(written):
        if not tables:
            return list(_keys(block, snippets=snippets))
        if block.pipeline_key is not None:
            return [_key("stages", *KEY_HELP["stages"], snippets=snippets)]
        return list(_arguments(block, owner) if tables[-1]["name"] == "args" else _variables(owner))
    if tables:
        return list(_values(written, block))
    return list(_sizes(block)) if _inside_text(written) else []


def _block_at(reading: DocumentKernels, line: int) -> tuple[ContractBlock, int] | None:
    """Returns the block whose TOML contains a line, and the index of the line in it."""
    for unit in dict.fromkeys(spot.kernel.unit for spot in reading.spots):
        for block in find_blocks(unit):
            for row, one in enumerate(block.lines):
                if block.file_position(one.line, 1)[0] == line:
                    return block, row
    return None


def _keys(block: ContractBlock, *, snippets: bool) -> Iterator[types.CompletionItem]:
    taken = {match[1] for one in block.lines if (match := re.match(r"\s*\[?\s*(\w+)", one.content))}
    without = NOT_OF_PIPELINES if block.pipeline_key is not None else ("stages",)
    for key in KEYS:
        if (key not in taken or key == block.kernel_key) and key not in without:
            yield _key(key, *KEY_HELP[key], snippets=snippets)


def _key(key: str, text: str, said: str, *, snippets: bool) -> types.CompletionItem:
    return types.CompletionItem(
        key,
        kind=types.CompletionItemKind.Property,
        documentation=said,
        insert_text=text if snippets else re.sub(r"\$\{\d+:([^}]*)\}|\$\d+", r"\1", text),
        insert_text_format=types.InsertTextFormat.Snippet if snippets else types.InsertTextFormat.PlainText,
    )


def _in_stage(block: ContractBlock, row: int, written: str, *, snippets: bool) -> Iterator[types.CompletionItem]:
    """Completes a stage: its keys, the file's kernels, sizes in the launch, and arrays in its table and expressions."""
    if _KEY.match(written):
        first = max(at for at in range(row) if _TABLE.match(block.lines[at].content))
        taken = {match[1] for one in block.lines[first + 1 : row] if (match := re.match(r"\s*(\w+)", one.content))}
        for key, (text, said) in STAGE_HELP.items():
            if key not in taken:
                yield _key(key, text, said, snippets=snippets)
        yield _key("stages", *KEY_HELP["stages"], snippets=snippets)
        return
    if not _inside_text(written):
        return
    key = written.partition("=")[0].strip()
    if key == "kernel":
        for kernel in find_kernels(block.unit):
            yield types.CompletionItem(kernel.name, kind=types.CompletionItemKind.Function)
    elif key in ("grid", "block", "shared"):
        yield from _sizes(block)
    else:
        entries = (match for one in block.lines if (match := _ENTRY.match(one.content)))
        for match in entries:
            if match["text"].split(" ")[0] in DIRECTIONS:
                yield types.CompletionItem(match["name"], kind=types.CompletionItemKind.Variable, detail=match["text"])


def _arguments(block: ContractBlock, owner: Kernel | None) -> Iterator[types.CompletionItem]:
    """Completes `[args]` with the missing parameters, as far as the signature determines their entries."""
    if owner is None:
        return
    taken = {match[1] for one in block.lines if (match := re.match(r"\s*(\w+)\s*=", one.content))}
    for parameter in owner.signature.parameters:
        if parameter.name in taken:
            continue
        dtype = parameter.dtype or "float32"
        shown = object_kind(parameter)
        direction = ("in " if parameter.const else "out ") if parameter.pointer else ""
        shape = "[n]" if parameter.pointer else ""
        yield types.CompletionItem(
            parameter.name,
            kind=types.CompletionItemKind.Field,
            detail=parameter.type,
            insert_text=example_entry(parameter.name, shown)
            if shown is not None
            else f'{parameter.name} = "{direction}{dtype}{shape}"',
        )


def _variables(owner: Kernel | None) -> Iterator[types.CompletionItem]:
    """Completes `[symbols]` with the variables that the file declares."""
    if owner is None:
        return
    for match in _VARIABLE.finditer(owner.unit.text):
        dtype = c_type_dtype(match["type"])[0] or "float32"
        direction = "in" if match["space"] == "constant" else "inout"
        extent = match["extent"]
        array = f"{direction} {dtype}[{extent.strip() if extent else 1}]"
        entry = array if extent or direction == "inout" else f"{dtype} = 1"
        yield types.CompletionItem(
            match["name"],
            kind=types.CompletionItemKind.Variable,
            detail=match[0].rstrip(" ;={"),
            insert_text=f'{match["name"]} = "{entry}"',
        )


def _values(written: str, block: ContractBlock) -> Iterator[types.CompletionItem]:
    value = written.partition("=")[2].strip().removeprefix('"')
    if "[" in value and "]" not in value:
        yield from _sizes(block)
        return
    if "]" in value or "=" in value:
        yield from _promises(value)
        return
    for direction in () if " " in value else DIRECTIONS:
        yield types.CompletionItem(direction, kind=types.CompletionItemKind.Keyword)
    for dtype in DTYPES:
        yield types.CompletionItem(dtype, kind=types.CompletionItemKind.TypeParameter)


def _promises(value: str) -> Iterator[types.CompletionItem]:
    """Completes the words that may follow an array's shape or a scalar's value."""
    if "=" in value and "]" not in value:
        documentation = "The scalar is never given another value."
        yield types.CompletionItem("fixed", kind=types.CompletionItemKind.Keyword, documentation=documentation)
    elif "~" not in value:
        shown = re.search(r"\b(texture|surface)\b", value)
        for word in () if shown is None else TEXTURE_WORDS if shown[1] == "texture" else SURFACE_WORDS:
            if not re.search(rf"\b{word}\b", value):
                yield types.CompletionItem(word, kind=types.CompletionItemKind.Keyword)
        for word, documentation in _PROMISES.items():
            if word.split()[0] not in value and (word == "align 16" or value.startswith(("out", "inout"))):
                yield types.CompletionItem(word, kind=types.CompletionItemKind.Keyword, documentation=documentation)


def _sizes(block: ContractBlock) -> Iterator[types.CompletionItem]:
    names = dict.fromkeys(re.findall(r"(\w+)\s*=", " ".join(
        one.content.partition("=")[2] for one in block.lines if re.match(r"\s*sizes\s*=", one.content)
    )))  # fmt: skip
    for name in (*names, "block", "block_x", "block_y", "block_z"):
        yield types.CompletionItem(name, kind=types.CompletionItemKind.Variable)


def _inside_text(written: str) -> bool:
    return written.count('"') % 2 == 1


def register(server: KernelmateServer) -> None:
    """Registers completion."""

    @server.feature(types.TEXT_DOCUMENT_COMPLETION, types.CompletionOptions(trigger_characters=['"', "["]))
    async def on_completion(params: types.CompletionParams) -> list[types.CompletionItem]:
        reading = await server.reading(params.text_document.uri)
        if reading is None:
            return []
        line, column = reading.positions.place(params.position)
        document = server.client_capabilities.text_document
        completion = None if document is None else document.completion
        item = None if completion is None else completion.completion_item
        snippets = item is not None and bool(item.snippet_support)
        return complete(reading, line, column, snippets=snippets)
