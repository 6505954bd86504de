"""Names of constants in the launches of a generated kernel: its own, those of the file, and template parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import permutations

from kernelmate.records import Kernel, LaunchSite
from kernelmate.source import apply_edits
from kernelmate.source.folding import folded, width_of
from kernelmate.source.host_code import side_declared
from kernelmate.source.instances import template_arguments
from kernelmate.source.launch_style import with_launches_in_style
from kernelmate.source.template_parameters import template_parameters
from kernelmate.synthesis.file_style import parts_of
from kernelmate.synthesis.kept_text import file_constant
from kernelmate.synthesis.kernel_text import WrittenKernel
from kernelmate.synthesis.names import without_comments

_SCOPES = re.compile(r"(?:namespace\s*)?\{|\}")


def with_named_numbers(kernel: Kernel, written: WrittenKernel) -> Kernel:
    """Returns the kernel with launches that use its constants for tiles and packs instead of literals."""
    scope = scope_in_launches(kernel)
    if scope is None:
        return kernel
    named = re.findall(r"^constexpr int (\w+) = (\d+);  // (?!threads)", written.helpers, re.MULTILINE)
    sides = re.findall(r"^constexpr int (\w+) = (\d+);  // threads of", written.helpers, re.MULTILINE)
    named = [(f"{scope}{name}", value) for name, value in [*named, *sides]]
    text, edits = kernel.unit.text, list[tuple[int, int, str]]()
    for site in kernel.launches:
        start, end = _initialiser_of(kernel, site.grid_span)
        block = text[slice(*site.block_span)].strip()
        if re.search(rf"^constexpr int {re.escape(block)} = \d+;", written.helpers, re.MULTILINE) is None:
            block = text[slice(*_initialiser_of(kernel, site.block_span))].strip()
        threads = re.search(
            rf"^constexpr int {re.escape(block.removeprefix(scope))} = (\d+);", written.helpers, re.MULTILINE
        )
        constants = [(name, value) for name, value in [*named, *_of_template(kernel, site, written)] if int(value) > 1]
        spans = _initialiser_of(kernel, site.block_span)
        lengths = text[slice(*spans)]
        if re.fullmatch(r"\s*(?:dim3\()?\d+, \d+(?:, \d+)?\)?\s*", lengths):
            own = {value: name for name, value in constants if sum(other == value for _, other in constants) == 1}
            found = re.findall(r"\b(?!dim3)\d+\b", lengths)
            if all(one in own for one in found):
                edits.append((*spans, _with_names(lengths, own)))
        grid = _by_own_sides(text[start:end], constants, written.definition)
        grid = _by_names(grid, constants, block, threads[1] if threads is not None else block, written.definition)
        if grid == text[start:end]:
            continue
        edits.append((start, end, grid))
    return _with_short_sides(kernel, apply_edits(kernel, sorted(set(edits)))) if edits else kernel


def with_named_lanes(kernel: Kernel, written: WrittenKernel) -> Kernel:
    """Returns the kernel with launches that divide their number of threads by the name of the warp size.

    A launch outside of the kernel's namespace qualifies the name as it does the kernel's.
    """
    lanes = re.search(r"^constexpr int (\w+) = 32;$", written.helpers, re.MULTILINE)
    text, edits = kernel.unit.text, list[tuple[int, int, str]]()
    for site in kernel.launches if lanes is not None and kernel.unit.language == "cuda" else ():
        assert lanes is not None
        block, span = text[slice(*site.block_span)].strip(), _initialiser_of(kernel, site.grid_span)
        qualified = re.match(r"(?:\w+::)+(?=\w)", text[site.start :])
        if not block.isidentifier() or (qualified is None and not is_seen(kernel)):
            continue
        name = f"{'' if qualified is None else qualified[0]}{lanes[1]}"
        grid = re.sub(rf"\b{block} / 32\b", f"{block} / {name}", text[slice(*span)])
        edits += [(*span, grid)] if grid != text[slice(*span)] else []
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
            if name.rpartition("::")[2] in uses and grid.count(sides[number]) == 1:
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
        both = int(values.get(first, 0)) * int(values.get(second, 0))
        if both and not any(value == str(both) for _, value in named):
            grid = re.sub(rf"\+ {both - 1}\) / {both}\b", f"+ {first} * {second} - 1) / ({first} * {second})", grid)
    for first, second in permutations(values, 2):  # the threads along a side, each with several elements
        both = int(values[first]) * int(values[second])
        used = re.search(rf"\([^;()]*\b{first} \+ threadIdx\.\w\) \* {second}\b", definition) is not None
        if used and not any(value == str(both) for _, value in named):
            grid = re.sub(rf"\+ {both - 1}\) / {both}\b", f"+ {first} * {second} - 1) / ({first} * {second})", grid)
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
        whole = name if re.fullmatch(r"[\w:]+", name) else f"({name})"
        grid = re.sub(rf"\+ {int(found) - 1}\) / {found}\b", f"+ {name} - 1) / {whole}", grid, count=1)
    divided = re.fullmatch(r"\w+\(.*, (\d+)\)", grid)
    for name, value in left if divided is not None else ():
        grid = re.sub(rf", {value}\)$", f", {name})", grid)
    for name, value in named:
        grid = re.sub(rf"\* {value}\b", f"* {name}", grid)
    if block.isidentifier() and threads.isdigit():
        grid = re.sub(rf"\b{threads} \* (?=[A-Za-z_])", f"{block} * ", grid)
    return grid


def with_named_block(kernel: Kernel, name: str, block: tuple[str, ...]) -> Kernel:
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
            lanes = file_constant(kernel, number, "warp|lanes")
            lanes = number if lanes is None else name.removesuffix(name.rpartition("::")[2]) + lanes
            shared_out = re.sub(rf"{threads} / {number}\b", rf"\1 / {lanes}", shared_out)
        edits += [(*grid_span, shared_out)] if shared_out != grid else []
    edits += [(*span, name) for span in spans]
    if not edits:
        return kernel
    return with_launches_in_style(kernel, apply_edits(kernel, sorted(set(edits))))


def _with_names(text: str, names: Mapping[str, str]) -> str:
    """Returns a text with names in place of numbers."""
    return re.sub(r"\b\d+\b", lambda number: names.get(number[0], number[0]), text)


def _initialiser_of(kernel: Kernel, span: tuple[int, int]) -> tuple[int, int]:
    """Returns the offsets of a launch side: of the initialiser if the side is a variable, else of its own text."""
    side = kernel.unit.text[slice(*span)].strip()
    limited = re.fullmatch(r"(\w+) < (\w+) \? \1 : \2", side)
    declared = side_declared(kernel.unit.text, side if limited is None else limited[1], span[0])
    return span if declared is None else (declared.start, declared.end)


def with_own_threads(kernel: Kernel, named: re.Match[str] | None) -> Kernel:
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


def is_seen(kernel: Kernel) -> bool:
    """Returns True if a constant above the kernel is visible at all launches: no named namespace ends in between."""
    text = kernel.unit.text
    return kernel.unit.language == "cuda" and all(
        site.start > kernel.end and _stays_open(text[: kernel.start], text[kernel.end : site.start])
        for site in kernel.launches
    )


def scope_in_launches(kernel: Kernel) -> str | None:
    """Returns the scope by which launches have to qualify a constant above the kernel, such as `detail::`; None if they cannot."""
    if is_seen(kernel):
        return ""
    text = kernel.unit.text
    if kernel.unit.language != "cuda" or any(site.start < kernel.end for site in kernel.launches):
        return None
    scopes = {re.match(r"(?:\w+::)*", text[site.start :]) for site in kernel.launches}
    written = {found[0] for found in scopes if found is not None}
    return written.pop() or None if len(written) == 1 else None


def open_scopes(before: str) -> list[str]:
    """Returns the heads of the scopes that are open at the end of a text, after an empty one."""
    opened = [""]
    for scope in _SCOPES.finditer(without_comments(before)):
        opened = opened[:-1] if scope[0] == "}" else [*opened, scope[0]]
    return opened


def _stays_open(before: str, between: str) -> bool:
    """Returns True if `between` closes none of the scopes that `before` opens, except unnamed namespaces."""
    opened = open_scopes(before)
    depth = 0
    for letter in re.findall(r"[{}]", without_comments(between)):
        depth += 1 if letter == "{" else -1
        if depth < 0:
            if not re.fullmatch(r"namespace\s*\{", opened.pop() if opened else ""):
                return False
            depth = 0
    return True
