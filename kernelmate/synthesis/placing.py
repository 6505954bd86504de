"""Places a generated kernel in the user's file: definition, helpers, contract and launches."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace

from kernelmate.errors import SourceError
from kernelmate.records import Contract, Kernel, LaunchSite
from kernelmate.source import apply_edits, change_launch, parse_contract, place_of_helpers
from kernelmate.source.folding import folded, width_of, without_contracts
from kernelmate.source.host_code import side_declared
from kernelmate.source.instances import template_arguments
from kernelmate.source.launch_style import with_launches_in_style
from kernelmate.source.template_parameters import template_parameters
from kernelmate.synthesis.file_style import FileStyle, in_file_style, parts_of
from kernelmate.synthesis.identities import always_equal
from kernelmate.synthesis.kept_text import file_constant, has_own_block, with_own_locals, with_warp_names
from kernelmate.synthesis.kernel_text import GUARD, WrittenKernel
from kernelmate.synthesis.names import without_comments
from kernelmate.synthesis.template_threads import definitions_of, threads_parameter, with_threads_parameter
from kernelmate.synthesis.wide_sizes import with_wide_indices


def placed(kernel: Kernel, contract: Contract, written: WrittenKernel) -> tuple[Kernel, Contract]:
    """Returns the user's file with the generated kernel in place of its own, and with launches and contract adapted.

    Raises:
        KernelmateError: a launch in the file cannot be adapted, or is invalid at a listed size.
    """
    definition, helpers = with_warp_names(kernel, written.definition, written.helpers, width_of(kernel.unit.text))
    definition, helpers = _with_shared_helpers(kernel, definition, _used_constants(definition, helpers))
    helpers = _without_needless_barriers(definition, helpers)
    definition, helpers = with_wide_indices(kernel, definition, helpers)
    block = _block_of(kernel, contract, written)
    parameter = threads_parameter(kernel, contract, block)
    if parameter:
        width = width_of(kernel.unit.text)
        definition, helpers = with_threads_parameter(parameter, block[0], definition, helpers, width)
    definition = with_own_locals(kernel, definition, helpers)
    definition, helpers = _with_launched_constants(kernel, written, definition, helpers)
    helpers, definition = in_file_style(FileStyle.of(kernel, replaced=True), helpers, definition)
    written = replace(written, definition=definition, helpers=helpers)
    edits = [(kernel.start, kernel.end, _in_own_comments(kernel, written.definition))]
    named = re.search(r"^constexpr int (\w+) = (\d+);  // threads per block$", written.helpers, re.MULTILINE)
    named_block = named[1] if named is not None and block == (named[2],) and _is_seen(kernel) else ""
    if named_block and has_own_block(kernel):
        edits += sorted({(*site.block_span, named_block) for site in kernel.launches})
    if written.helpers:
        text = kernel.unit.text
        above = _above_comment(text, place_of_helpers(kernel))
        before = text[:above].rstrip("\n")
        added = _in_own_comments(kernel, _linked_as_needed(kernel, written.helpers))
        edits.append((len(before), above, "\n\n" * bool(before) + f"{added}\n\n"))
    changed = _with_headers(apply_edits(kernel, edits))
    grid = _grid(contract, written, block)
    changed = change_launch(changed, contract=contract, grid=grid, block=block, shared=str(written.shared))
    changed = _with_named_block(changed, named_block, block)
    changed = _with_own_threads(changed, named)
    changed = _with_limit_comment(kernel, _with_grid_comment(changed, written, grid), written)
    changed = _with_named_numbers(changed, written)
    in_force = parse_contract(changed) if kernel.contract_span is not None else None
    fallback = replace(contract, grid=grid, block=block, shared=str(written.shared))
    return changed, fallback if in_force is None else replace(fallback, line=in_force.line)


def _block_of(kernel: Kernel, contract: Contract, written: WrittenKernel) -> tuple[str, ...]:
    """Returns the sides of the block, without those of 1 that the text does not use.

    Raises:
        SourceError: as `_block_of_instances`.
    """
    block = tuple(map(str, (written.block,) if isinstance(written.block, int) else written.block))
    if not re.search(r"\b(?:threadIdx|blockDim)\.[yz]\b", written.definition + written.helpers):
        block = tuple(side for number, side in enumerate(block) if number == 0 or side != "1")
    return _block_of_instances(kernel, contract, written, block)


_HEADERS = {"std::is_same_v": "type_traits", "__half2float": "cuda_fp16.h"}
"""Headers of names that generated kernels use even if no parameter has a type of the header."""


def _with_headers(kernel: Kernel) -> Kernel:
    """Returns the kernel with missing headers of names in `_HEADERS` added to its file."""
    for name, header in _HEADERS.items():
        if name in kernel.source and not re.search(rf"#\s*include\s*[<\"]{re.escape(header)}[>\"]", kernel.unit.text):
            kernel = _with_header(kernel, header)
    return kernel


def _with_header(kernel: Kernel, header: str) -> Kernel:
    """Returns the kernel with a header added to its file."""
    text = kernel.unit.text
    # Before the first one, which is above the kernel whatever conditions others stand under.
    included = re.search(r"^[ \t]*#[ \t]*include[ \t]*[<\"]", text, re.MULTILINE)
    above = included is not None and included.start() < kernel.start and "#if" not in text[: included.start()]
    line = f"#include <{header}>\n"
    if included is not None and above:
        return apply_edits(kernel, [(included.start(), included.start(), line)])
    # Below the comment on the file.
    head = re.match(r"\s*(?:(?://(?! ///)[^\n]*\n)+|/\*.*?\*/[ \t]*\n)", text, re.DOTALL)
    if head is not None:
        gap = "" if text[head.end() :].startswith("\n") else "\n"
        return apply_edits(kernel, [(head.end(), head.end(), f"\n{line}{gap}")])
    start = len(text) - len(text.lstrip())
    return apply_edits(kernel, [(start, start, f"{line}\n")])


def _without_needless_barriers(definition: str, helpers: str) -> str:
    """Returns the helpers without the first barrier of functions that a launch calls once: no earlier call reads."""
    pieces = definitions_of(helpers)
    lines = [line for line in helpers.split("\n") if line.strip() == GUARD]
    for number, piece in enumerate(pieces):
        name = re.search(r"^static __device__ [^\n(]*?\b(\w+)\(", piece, re.MULTILINE)
        if name is not None and lines and lines[0] in piece and _called_once(name[1], [*pieces, definition]):
            pieces[number] = piece.replace(f"{lines[0]}\n", "", 1)
    return "\n\n".join(pieces)


def _called_once(name: str, pieces: Sequence[str]) -> bool:
    """Returns True if a kernel calls a function at most once: outside of loops and other bodies, or in two branches of one test."""
    calls = [
        (piece, found)
        for piece in pieces
        for found in re.finditer(rf"\b{name}(?:<\w+>)?\(", piece)
        if not re.match(r"(?:static )?__device__ ", piece[piece.rfind("\n", 0, found.start()) + 1 :])
    ]
    callers = {piece for piece, _ in calls}
    if len(callers) != 1:
        return False
    (caller,) = callers
    lines = [caller[caller.rfind("\n", 0, found.start()) + 1 : found.start()] for _, found in calls]
    if any(re.match(r"\s*(?:for|while) \(", line) for line in lines):
        return False
    depths = [_open_bodies(caller[: found.start()]) for _, found in calls]
    if len(calls) == 2:
        between = caller[calls[0][1].end() : calls[1][1].start()]
        alternative = re.search(r"\}\s*else\s*\{[^{}]*$", between) is not None and between.count("}") == 1
        inner = [one and re.match(r"(?:if \(|\} else)", one[-1]) is not None and len(one) == 1 for one in depths]
        alone = alternative and all(inner)
    else:
        alone = len(calls) == 1 and not depths[0]
    if not alone:
        return False
    own = re.search(r"^static __device__ [^\n(]*?\b(\w+)\(", caller, re.MULTILINE)
    return own is None or _called_once(own[1], pieces)


def _open_bodies(text: str) -> list[str]:
    """Returns the heads of the bodies within a function that are open at the end of a text."""
    heads: list[str] = []
    for line in text.split("\n"):
        code = line.partition("//")[0].strip()
        if code.startswith("}") and heads:
            heads.pop()
        if code.count("{") > code.count("}") or re.fullmatch(r"\} else .*\{", code):
            heads.append(code)
    return heads[1:]


def _block_of_instances(
    kernel: Kernel, contract: Contract, written: WrittenKernel, block: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns the block; if template arguments give the old number of threads, the old one.

    Raises:
        SourceError: the text is written for another number of threads than the template arguments give.
    """
    old, new = (_product(one) if all(side.isdigit() for side in one) else 0 for one in (contract.block, block))
    numbers = {int(one) for text in contract.instances for one in re.findall(r"(?<![\w.])\d+(?![\w.])", text)}
    if kernel.signature.template_parameters and old in numbers and new != old:
        text = written.definition + written.helpers
        if len(block) == 1 and "blockDim.x" in text and not re.search(rf"\b{new}\b", text):
            return contract.block  # any number of threads serves
        raise SourceError(
            f"The instances of {kernel.name} give {old} threads as a template argument, and the new block has {new}.",
            file=kernel.unit.path,
            line=kernel.line,
            hint="List instances with other numbers of threads in the contract.",
        )
    return block


def _used_constants(definition: str, helpers: str) -> str:
    """Returns the helpers without constants that nothing else uses; constants that a launch may use are kept."""
    lines = helpers.split("\n")
    kept = [line for line in lines if not _is_unused(line, definition + helpers)]
    return "\n".join(kept).strip("\n")


def _is_unused(line: str, text: str) -> bool:
    named = re.match(r"constexpr [\w ]+ (\w+) = ", line)
    return (
        named is not None
        and not line.endswith("// threads per block")
        and len(re.findall(rf"\b{named[1]}\b", text)) == 1
    )


def _with_launched_constants(kernel: Kernel, written: WrittenKernel, definition: str, helpers: str) -> tuple[str, str]:
    """Returns a kernel and its helpers, where launches see those of the kernel's constants that give their numbers.

    A constant becomes one of the file if the file has no other use for its name and no other constant has its value.
    """
    local = list(re.finditer(r"^[ \t]+constexpr int (\w+) = (\d+);((?:  //[^\n]*)?)\n", definition, re.MULTILINE))
    block = (written.block,) if isinstance(written.block, int) else written.block
    numbers = {*re.findall(r"(?<![\w.])\d+(?![\w.])", ", ".join([*written.grid, *map(str, block)]))}
    file = without_comments(kernel.unit.text)
    several = len(re.findall(r"\b__global__\b", file)) > 1
    if several or not kernel.launches or not _is_seen(kernel):
        return definition, helpers
    values = [*(one[2] for one in local), *re.findall(r"^constexpr int \w+ = (\d+);", helpers, re.MULTILINE)]
    moved: list[str] = []
    for one in local:
        used = re.search(rf"\b{one[1]}\b", file + helpers)
        if one[2] in numbers and one[2] != "1" and values.count(one[2]) == 1 and used is None and one[3]:
            definition = definition.replace(one[0], "", 1)
            moved.append(one[0].strip())
    if not moved:
        return definition, helpers
    definition = re.sub(r"(\{\n)\n+", r"\1", definition, count=1)
    first = re.match(r"(?:constexpr [^\n]*\n?)*", helpers)
    assert first is not None
    rest = helpers[first.end() :].lstrip("\n")
    return definition, "\n".join([*first[0].strip().split("\n"), *moved]).strip() + f"\n\n{rest}" * bool(rest)


def _with_shared_helpers(kernel: Kernel, definition: str, helpers: str) -> tuple[str, str]:
    """Returns a kernel and its helpers without helpers that the file has from an earlier generated kernel."""
    above = kernel.unit.text[: kernel.start]
    for piece in helpers.split("\n\n"):
        numbered = re.search(r"^(?:static )?__device__ [^\n(]*?\b((\w+?)_\d+)\(", piece, re.MULTILINE)
        if numbered is None or not piece.endswith("\n}"):
            continue
        plain = re.sub(rf"\b{numbered[1]}\b", numbered[2], piece)
        if _in_own_comments(kernel, _linked_as_needed(kernel, plain)) in above:
            helpers = "\n\n".join(one for one in helpers.split("\n\n") if one != piece)
            definition, helpers = (re.sub(rf"\b{numbered[1]}\b", numbered[2], one) for one in (definition, helpers))
    return definition, helpers


def _linked_as_needed(kernel: Kernel, helpers: str) -> str:
    """Returns the helpers without `static` if they are placed in an unnamed namespace, which has the same effect."""
    unnamed = any(re.fullmatch(r"namespace\s*\{", one) for one in _open_scopes(kernel.unit.text[: kernel.start]))
    return re.sub(r"^static (?=__device__ )", "", helpers, flags=re.MULTILINE) if unnamed else helpers


_LINE_COMMENTS = re.compile(r"^[ \t]*// [^\n]*(?:\n[ \t]*// [^\n]*)*$|(?<=\S)[ \t]+// [^\n]*$", re.MULTILINE)


def _in_own_comments(kernel: Kernel, text: str) -> str:
    """Returns a generated text with its comments between `/*` and `*/` if the file has no others outside of contracts."""
    file = without_contracts(kernel.unit.text)
    if "/*" not in file or re.search(r"(?<!:)//", re.sub(r"/\*.*?\*/", "", file, flags=re.DOTALL)):
        return text
    width = width_of(kernel.unit.text)

    def between(found: re.Match[str]) -> str:
        lines = [one.strip().removeprefix("//").strip() for one in found[0].strip().split("\n")]
        lead = found[0][: len(found[0]) - len(found[0].lstrip())]
        if not found[0].startswith(("\t", " ", "//")) or text[text.rfind("\n", 0, found.start()) + 1 : found.start()].strip():
            return f"{lead}/* {lines[0]} */"
        filled = textwrap.wrap(" ".join(lines), width - len(lead) - 6, break_long_words=False, break_on_hyphens=False)
        return f"{lead}/* " + f"\n{lead}   ".join(filled) + " */"

    return _LINE_COMMENTS.sub(between, text)


def _with_named_numbers(kernel: Kernel, written: WrittenKernel) -> Kernel:
    """Returns the kernel with launches that use its constants for tiles and packs instead of literals."""
    if not _is_seen(kernel):
        return kernel
    named = re.findall(r"^constexpr int (\w+) = (\d+);  // (?!threads)", written.helpers, re.MULTILINE)
    sides = re.findall(r"^constexpr int (\w+) = (\d+);  // threads of", written.helpers, re.MULTILINE)
    named += sides
    text, edits = kernel.unit.text, list[tuple[int, int, str]]()
    for site in kernel.launches:
        start, end = _initialiser_of(kernel, site.grid_span)
        block = text[slice(*site.block_span)].strip()
        if re.search(rf"^constexpr int {re.escape(block)} = \d+;", written.helpers, re.MULTILINE) is None:
            block = text[slice(*_initialiser_of(kernel, site.block_span))].strip()
        threads = re.search(rf"^constexpr int {re.escape(block)} = (\d+);", written.helpers, re.MULTILINE)
        constants = [(name, value) for name, value in [*named, *_of_template(kernel, site, written)] if int(value) > 1]
        spans = _initialiser_of(kernel, site.block_span)
        lengths = text[slice(*spans)]
        if re.fullmatch(r"\s*(?:dim3\()?\d+, \d+(?:, \d+)?\)?\s*", lengths):
            own = {value: name for name, value in constants if sum(other == value for _, other in constants) == 1}
            found = re.findall(r"\b(?!dim3)\d+\b", lengths)
            if all(one in own for one in found):
                edits.append((*spans, re.sub(r"\b(?!dim3)\d+\b", lambda one, own=own: own[one[0]], lengths)))
        grid = _by_own_sides(text[start:end], constants, written.definition)
        grid = _by_names(
            grid, constants, block, threads[1] if threads is not None else block, written.definition
        )
        if grid == text[start:end]:
            continue
        edits.append((start, end, grid))
    return _with_short_sides(kernel, apply_edits(kernel, sorted(set(edits)))) if edits else kernel


def _of_template(kernel: Kernel, site: LaunchSite, written: WrittenKernel) -> list[tuple[str, str]]:
    """Returns the kernel's constants that depend on a template parameter, as a launch writes them, with their values."""
    heads = re.findall(r"^[ \t]+constexpr int \w+ = (?:(2) \* (\w+)|(\w+) / (2)|([A-Za-z_]\w*));", written.definition, re.MULTILINE)  # fmt: skip
    names = [one.name for one in template_parameters(kernel)] if heads else []
    parsed = template_arguments(re.sub(r"\s", "", kernel.unit.text[site.start :].partition("<<<")[0]))
    given = {} if parsed is None else dict(zip(names, parsed[1], strict=False))
    found: dict[str, str] = {}
    for twice, doubled, halved, half, same in heads:
        name = given.get(doubled or halved or same, "")
        text = kernel.unit.text
        value = re.search(rf"\b{name} = (\d+);|^#[ \t]*define[ \t]+{name}[ \t]+(\d+)$", text, re.MULTILINE) if name.isidentifier() else None  # fmt: skip
        if value is None:
            continue
        number = int(value[1] or value[2])
        if twice:
            found[f"2 * {name}"] = str(2 * number)
        elif half:
            found[f"{name} / 2"] = str(number // 2)
        else:
            found[name] = str(number)
    return [*found.items()]


def _with_short_sides(old: Kernel, new: Kernel) -> Kernel:
    """Returns the kernel with changed declarations of its launches' sides wrapped to the file's width."""
    width = width_of(old.unit.text)
    known = set(old.unit.text.split("\n"))
    edits: list[tuple[int, int, str]] = []
    for site in new.launches:
        for span in (site.grid_span, site.block_span):
            start, _ = _initialiser_of(new, span)
            line = new.unit.text.rfind("\n", 0, start) + 1
            end = new.unit.text.find("\n", start)
            whole = new.unit.text[line:end]
            if whole not in known and len(whole) > width and start != span[0] and whole.endswith(";"):
                edits.append((line, end, "\n".join(folded(whole, width))))
    new = apply_edits(new, sorted(set(edits))) if edits else new
    return with_launches_in_style(old, new)


def _by_own_sides(grid: str, named: Sequence[tuple[str, str]], definition: str) -> str:
    """Returns a launch's grid in whose sides the number that the kernel multiplies the block's number by has its name."""
    sides = parts_of(grid)
    if len(sides) < 2:
        return grid
    for number, letter in enumerate("xyz"[: len(sides)]):
        uses = {*re.findall(rf"\bblockIdx\.{letter} \* (\w+)", definition)}
        for name, value in named if len(uses) == 1 else ():
            quotient = rf"\+ {int(value) - 1}\) / {value}\b"
            if name in uses and grid.count(sides[number]) == 1:
                side = re.sub(quotient, f"+ {name} - 1) / {name}", sides[number])
                grid, sides[number] = grid.replace(sides[number], side), side
    return grid


def _by_names(grid: str, named: Sequence[tuple[str, str]], block: str, threads: str, definition: str) -> str:
    """Returns a launch's grid with literals, or products of the block and a constant, replaced by names, in order.

    `block` is the text of the block, and `threads` its number of threads, if that is known. Products of two constants are
    those that occur in `definition`, the kernel's text.
    """
    left = list(named)
    values = dict(named)
    for first, second in re.findall(r"\b(\w+) \* (\w+)\b", definition):
        product = int(values.get(first, 0)) * int(values.get(second, 0))
        if product and not any(value == str(product) for _, value in named):
            grid = re.sub(
                rf"\+ {product - 1}\) / {product}\b", f"+ {first} * {second} - 1) / ({first} * {second})", grid
            )
    for constant, value in named:
        taken = int(threads) * int(value) if threads.isdigit() else 0
        if not any(other == str(taken) for _, other in named):
            product = f"{block} * {constant}"
            grid = re.sub(rf"\+ {taken - 1}\) / {taken}\b", f"+ {product} - 1) / ({product})", grid)
    for found in re.findall(r"\+ \d+\) / (\d+)\b", grid):
        name = next((name for name, value in left if value == found), None)
        if name is None:
            continue
        left = [one for one in left if one[0] != name] if sum(value == found for _, value in left) > 1 else left
        whole = name if name.isidentifier() else f"({name})"
        grid = re.sub(rf"\+ {int(found) - 1}\) / {found}\b", f"+ {name} - 1) / {whole}", grid, count=1)
    divided = re.fullmatch(r"\w+\(.*, (\d+)\)", grid)
    for name, value in left if divided is not None else ():
        grid = re.sub(rf", {value}\)$", f", {name})", grid)
    for name, value in named:
        grid = re.sub(rf"\* {value}\b", f"* {name}", grid)
    if block.isidentifier() and threads.isdigit():
        grid = re.sub(rf"\b{threads} \* (?=[A-Za-z_])", f"{block} * ", grid)
    return grid


def _with_grid_comment(kernel: Kernel, written: WrittenKernel, grid: tuple[str, ...]) -> Kernel:
    """Adds a comment on what the grid counts to the contract: after the grid, or above it if the line is too long."""
    if not written.grid_comment or kernel.contract_span is None or len(grid) != 1:
        return kernel
    start, end = kernel.contract_span
    line = re.search(rf'^//\s*grid = "{re.escape(grid[0])}"$', kernel.unit.text[start:end], re.MULTILINE)
    if line is None:
        return kernel
    if len(line[0]) + len(f"  # {written.grid_comment}") > width_of(kernel.unit.text):
        place, comment = start + line.start(), f"// # {written.grid_comment}\n"
    else:
        place, comment = start + line.end(), f"  # {written.grid_comment}"
    return apply_edits(kernel, [(place, place, comment)])


def _with_limit_comment(old: Kernel, kernel: Kernel, written: WrittenKernel) -> Kernel:
    """Adds the reason for the largest number of blocks to its new declaration in the host code: beside it, or above it."""
    comment = written.grid_comment.rpartition("; ")[2]
    found = re.search(r"^([ \t]*)const int (?:max_blocks|maxBlocks) = [^;\n]*;$", kernel.unit.text, re.MULTILINE)
    if not comment or found is None or found[0] in old.unit.text:
        return kernel
    line = "\n".join(folded(f"{found[0]}  // {comment}", width_of(old.unit.text)))
    return apply_edits(kernel, [(*found.span(), _in_own_comments(old, line))])


def _grid(contract: Contract, written: WrittenKernel, block: tuple[str, ...]) -> tuple[str, ...]:
    """Returns the grid without redundant parentheses, or the contract's grid if it is always equal."""
    sides = tuple(ast.unparse(ast.parse(one, mode="eval")) for one in written.grid)
    if block == contract.block and len(sides) == len(contract.grid):
        length = dict(zip(("block_x", "block_y", "block_z"), [*block, "1", "1"], strict=False))
        length["block"] = str(_product(block)) if all(side.isdigit() for side in block) else "block"
        if all(
            always_equal(contract, _filled(old, length), _filled(new, length))
            for old, new in zip(contract.grid, sides, strict=True)
        ):
            return contract.grid
    return sides


def _product(sides: tuple[str, ...]) -> int:
    result = 1
    for side in sides:
        result *= int(side)
    return result


def _filled(expression: str, names: dict[str, str]) -> str:
    return re.sub(r"\bblock(?:_[xyz])?\b", lambda name: names[name[0]], expression)


def _is_seen(kernel: Kernel) -> bool:
    """Returns True if a constant above the kernel is visible at all launches: no named namespace ends in between."""
    text = kernel.unit.text
    return kernel.unit.language == "cuda" and all(
        site.start > kernel.end and _stays_open(text[: kernel.start], text[kernel.end : site.start])
        for site in kernel.launches
    )


def _open_scopes(before: str) -> list[str]:
    """Returns the heads of the scopes that are open at the end of a text, after an empty one."""
    opened = [""]
    for scope in _SCOPES.finditer(without_comments(before)):
        opened = opened[:-1] if scope[0] == "}" else [*opened, scope[0]]
    return opened


def _stays_open(before: str, between: str) -> bool:
    """Returns True if `between` closes none of the scopes that `before` opens, except unnamed namespaces."""
    opened = _open_scopes(before)
    depth = 0
    for letter in re.findall(r"[{}]", without_comments(between)):
        depth += 1 if letter == "{" else -1
        if depth < 0:
            if not re.fullmatch(r"namespace\s*\{", opened.pop() if opened else ""):
                return False
            depth = 0
    return True


_SCOPES = re.compile(r"(?:namespace\s*)?\{|\}")


def _with_named_block(kernel: Kernel, name: str, block: tuple[str, ...]) -> Kernel:
    """Returns the kernel with launches that use its constant for the threads per block."""
    text = kernel.unit.text
    spans, edits = set[tuple[int, int]](), list[tuple[int, int, str]]()
    for site in kernel.launches if name else ():
        given = text[slice(*site.block_span)].strip()
        grid_span = site.grid_span
        if given == block[0]:
            spans.add(site.block_span)
        elif given.isidentifier():
            form = rf"\b(?:int|unsigned|auto)[ \t]+{given}[ \t]*=[ \t]*({block[0]})[ \t]*[;,]"
            numbers = re.finditer(
                rf"{form}|\bdim3[ \t]+(?:const[ \t]+)?(?:\w+\([^;]*, )?{given}[({{]({block[0]})[)}}]", text
            )
            spans |= {found.span(found.lastindex or 0) for found in numbers if found.start() > kernel.end}
            grid_span = _initialiser_of(kernel, site.grid_span)
        grid = text[slice(*grid_span)]
        shared_out = re.sub(rf"\({block[0]} / (\d+)\)", rf"({name} / \1)", grid)  # rows of a block
        shared_out = re.sub(r"\+ \((\w+ / \d+)\) - 1\)", r"+ \1 - 1)", shared_out)
        threads = rf"\b({name}|{given})" if given.isidentifier() else rf"\b({name})"
        for number in {found[1] for found in re.findall(rf"{threads} / (\d+)\b", shared_out)}:
            lanes = file_constant(kernel, number, "warp|lanes") or number
            shared_out = re.sub(rf"{threads} / {number}\b", rf"\1 / {lanes}", shared_out)
        edits += [(*grid_span, shared_out)] if shared_out != grid else []
    edits += [(*span, name) for span in spans]
    if not edits:
        return kernel
    return with_launches_in_style(kernel, apply_edits(kernel, sorted(set(edits))))


def _initialiser_of(kernel: Kernel, span: tuple[int, int]) -> tuple[int, int]:
    """Returns the offsets of a launch side: of the initialiser if the side is a variable, else of its own text."""
    side = kernel.unit.text[slice(*span)].strip()
    limited = re.fullmatch(r"(\w+) < (\w+) \? \1 : \2", side)
    declared = side_declared(kernel.unit.text, side if limited is None else limited[1], span[0])
    return span if declared is None else (declared.start, declared.end)


def _with_own_threads(kernel: Kernel, named: re.Match[str] | None) -> Kernel:
    """Returns the kernel with the file's constant for its block in place of the written one of the same value.

    The file's is an integer constant or a macro above the kernel, which every launch has as its block.
    """
    text = kernel.unit.text
    names = set[str]()
    for site in kernel.launches:
        side, initial = (
            text[slice(*one)].strip() for one in (site.block_span, _initialiser_of(kernel, site.block_span))
        )
        names.add(initial if initial.isidentifier() else side)
    if named is None or len(names) != 1 or not (own := names.pop()).isidentifier() or own == named[1]:
        return kernel
    head = r"^(?:(?:static )?const(?:expr)? int|#define) "
    given = list(re.finditer(rf"{head}{own}(?: = |[ \t]+)\(?(\d+)\)?;?[ \t]*(?://.*)?$", text, re.MULTILINE))
    line = re.search(rf"^constexpr int {named[1]} = {named[2]};[^\n]*\n", text, re.MULTILINE)
    if len(given) != 1 or given[0][1] != named[2] or line is None or given[0].start() > line.start():
        return kernel
    end = line.end() + (text[line.end() :].startswith("\n") and text[: line.start()].endswith("\n\n"))
    edits = [(line.start(), end, "")]
    for use in re.finditer(rf"^[^\n]*\b{named[1]}\b[^\n]*$", text, re.MULTILINE):
        changed = re.sub(rf"\b{named[1]}\b", own, use[0])
        edits += [(*use.span(), "\n".join(folded(changed, width_of(text))))] if use.start() != line.start() else []
    return apply_edits(kernel, sorted(edits))


_LICENCE = re.compile(r"copyright|licen[cs]e|SPDX|all rights reserved|@file", re.IGNORECASE)


def _above_comment(text: str, start: int) -> int:
    """Returns the offset above the comments directly before an offset; a licence at the file's start is skipped."""
    place = start
    while place > 0:
        before = text.rfind("\n", 0, place - 1) + 1
        line = text[before:place].strip()
        if line.endswith("*/"):
            before = text.rfind("\n", 0, text.rfind("/*", 0, place) + 1) + 1
            line = text[before:place].strip()
        if not line.startswith(("//", "/*")):
            return place
        place = before
    return start if _LICENCE.search(text[:start]) else 0
