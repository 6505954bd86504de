"""Changes a kernel's launch: in its contract, in every `<<<>>>`, and in calls of a RawKernel."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernelmate.errors import SourceError
from kernelmate.records import Contract, Kernel, LaunchSite, Unit
from kernelmate.source.blocks import block_of
from kernelmate.source.contract import parse_contract
from kernelmate.source.contract_edits import write_contract
from kernelmate.source.expressions import names_in, parse_expression
from kernelmate.source.host_code import (
    DIVIDED,
    INTEGRAL,
    WIDE,
    Untranslatable,
    constant_edit,
    function_around,
    held_at,
    in_braces,
    in_own_cast,
    may_overflow,
    seen_at,
    side_declared,
    strip_parentheses,
    to_host,
)
from kernelmate.source.launch import launch_shape
from kernelmate.source.launch_style import COMMENT, in_style, limit_name
from kernelmate.source.launches import find_launches, launch_site
from kernelmate.source.python import PythonFile, with_python_file
from kernelmate.source.python_launches import PythonLaunch, find_python_launches, to_python
from kernelmate.source.rewrite import Edit, edited_text, same_kernel, with_text
from kernelmate.source.tokens import lex


def change_launch(
    kernel: Kernel,
    *,
    grid: Sequence[str] | str | None = None,
    block: Sequence[str] | str | None = None,
    shared: str | None = None,
    contract: Contract | None = None,
) -> Kernel:
    """Returns the kernel with another launch: in its contract block, and in every `<<<>>>` of it in the unit.

    Args:
        kernel: the kernel.
        grid: one to three contract expressions; None keeps the grid.
        block: likewise, in threads.
        shared: expression of the dynamic shared bytes; None keeps them.
        contract: the contract of a kernel without a block; by default the written one.

    Raises:
        ContractError: the block cannot be read, or the new launch is illegal at a listed size.
        SourceError: a launch in the file passes nothing from which its new configuration can be written; `line` is
            that launch's.
    """
    current = contract or parse_contract(kernel)
    if current is None:
        line, column = kernel.unit.locate(kernel.line, kernel.column)
        raise SourceError(
            f"{kernel.name} has no contract to change the launch of.",
            file=kernel.unit.path,
            line=line,
            column=column,
            hint="Write its contract first.",
        )
    changed = replace(
        current,
        grid=_texts(grid, current.grid),
        block=_texts(block, current.block),
        shared=current.shared if shared is None else str(shared),
    )
    text = _with_launches(kernel, current, changed)
    result = kernel if text == kernel.unit.text else same_kernel(kernel, with_text(kernel.unit, text))
    if block_of(result) is not None:
        result = write_contract(result, changed)
        parse_contract(result)
    return _change_calls(result, current, changed) if kernel.unit.language == "python" else result


def change_launches_in(text: str, path: str, kernel: Kernel, old: Contract, new: Contract) -> str:
    r"""Returns another file's text, in which each `<<<>>>` of the kernel follows a changed contract.

    Args:
        text: the file's text, with `\n` line ends; it has no definition of the kernel.
        path: the file, for errors.
        kernel: the kernel as it was.
        old: its contract.
        new: the changed contract.

    Raises:
        SourceError: a launch passes nothing from which its new configuration can be written; `line` is that launch's.
    """
    simple, lexed = kernel.name.rpartition("::")[2], lex(text)
    sites = tuple(
        launch_site(lexed, launch, kernel.name)
        for launch in find_launches(text)
        if launch.name.rpartition("::")[2] == simple and len(launch.configuration) >= 2
    )
    return _with_launches(replace(kernel, unit=Unit(path, text), start=0, end=0, launches=sites), old, new)


def _with_launches(kernel: Kernel, old: Contract, new: Contract) -> str:
    """Returns the text of the kernel's unit, in which each `<<<>>>` of it follows a changed contract."""
    text = kernel.unit.text
    edits = sorted({edit for site in kernel.launches for edit in _launch_edits(kernel, site, old, new)})
    if not edits:
        return text
    changed = in_style(text, edited_text(text, edits, kernel.unit.path))
    if kernel.unit.language == "python":
        return changed
    return _without_unused_sides(text, changed, {text[start:end] for start, end, _ in edits})


def _texts(new: Sequence[str] | str | None, old: tuple[str, ...]) -> tuple[str, ...]:
    if new is None:
        return old
    return (str(new),) if isinstance(new, str | int) else tuple(str(side) for side in new)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Parts of a launch that the new contract changes and that contain numbers of the old block."""

    grid: bool
    block: bool
    shared: bool

    @classmethod
    def of(cls, old: Contract, new: Contract) -> _Parts:
        block = old.block != new.block
        return cls(
            grid=old.grid != new.grid or (block and _uses_block(new.grid)),
            block=block,
            shared=old.shared != new.shared or (block and _uses_block((new.shared,))),
        )


def _change_calls(kernel: Kernel, old: Contract, new: Contract) -> Kernel:
    """Changes calls of the RawKernel in the same Python file to the new contract."""
    parts = _Parts.of(old, new)
    file, launches = find_python_launches(kernel.unit, kernel.name)
    edits: list[Edit] = []
    for launch in launches:
        try:
            edits += _call_edits(file, launch, parts, new)
        except Untranslatable as error:
            raise _cannot_follow(kernel, launch.line, launch.column, error) from None
    if not edits:
        return kernel
    text = file.text
    for start, end, written in sorted(edits, reverse=True):
        text = text[:start] + written + text[end:]
    return same_kernel(kernel, with_python_file(kernel.unit, text))


def _call_edits(file: PythonFile, launch: PythonLaunch, parts: _Parts, new: Contract) -> list[Edit]:
    if not (parts.grid or parts.block or parts.shared):
        return []
    if launch.arguments is None or launch.grid is None or launch.block is None:
        raise Untranslatable("it does not give grid, block and arguments plainly")
    names = {
        a.name: w
        for a, w in zip(new.parameters, launch.arguments, strict=False)
        if a is not None and a.shape is None and a.value is None
    }
    sides = [to_python(side, names) for side in new.block]
    names |= block_names(sides)
    edits: list[Edit] = []
    if parts.block:
        edits.append((*file.span(launch.block), _tuple(_padded(sides, 3 if launch.pycuda else 1))))
    if parts.grid:
        grid = [to_python(side, names) for side in new.grid]
        edits.append((*file.span(launch.grid), _tuple(_padded(grid, 2 if launch.pycuda else 1))))
    if parts.shared:
        shared = to_python(new.shared, names)
        if launch.shared is not None:
            edits.append((*file.span(launch.shared), shared))
        elif new.shared != "0":
            comma = "" if file.text[: launch.end].rstrip().endswith(",") else ", "
            edits.append((launch.end, launch.end, f"{comma}{'shared' if launch.pycuda else 'shared_mem'}={shared}"))
    return edits


def _padded(sides: Sequence[str], least: int) -> list[str]:
    return [*sides, *["1"] * (least - len(sides))]


def _tuple(sides: Sequence[str]) -> str:
    return f"({sides[0]},)" if len(sides) == 1 else f"({', '.join(sides)})"


def _cannot_follow(kernel: Kernel, line: int, column: int | None, error: Untranslatable) -> SourceError:
    return SourceError(
        f"This launch of {kernel.name} cannot follow the changed contract: {error}.",
        file=kernel.unit.path,
        line=line,
        column=column,
        hint="Change the launch by hand, or pass the size as an argument of the kernel.",
    )


def _launch_edits(kernel: Kernel, site: LaunchSite, old: Contract, new: Contract) -> list[Edit]:
    """Returns edits of one launch for the new contract."""
    parts = _Parts.of(old, new)
    edits: list[Edit] = []
    try:
        names = {**_sides_by_size(kernel, site, old), **_host_names(kernel, site, new)}
        divides = re.match(DIVIDED.pattern + r"[^(),]*,[^(),]*\)$", _grid_text(_code(kernel.unit.text), site).strip())
        names |= {"cdiv": divides[0].partition("(")[0]} if divides is not None else {}
        names |= _wide_products(kernel, site, new, names)
        sides, constants = _named_sides(kernel, site, old, new)
        if sides:  # the named constants have the new numbers
            names = {**names, **block_names(sides)}
            edits += constants
        elif parts.block:
            edits.append(_sides_edit(kernel, site.block_span, _host_sides(new.block, names)))
        in_place = any(edit[:2] == site.block_span for edit in edits)
        if parts.grid and (in_place or not _follows(kernel, site, old, new, sides)):
            now = _by_name(kernel, site, old, new, sides)
            text = _host_grid(kernel.unit.text[slice(*site.grid_span)], old, now, names)
            edits += _grid_edits(kernel, site, new, text)
        if parts.shared:
            text = to_host(new.shared, names)
            if (
                site.shared_span is not None
                and text == "0"
                and kernel.unit.text[site.shared_span[1] :].lstrip().startswith(">>>")
            ):
                edits.append((site.block_span[1], site.shared_span[1], ""))
            elif site.shared_span is not None:
                edits.append((*site.shared_span, _in_elements(text, kernel.unit.text[slice(*site.shared_span)])))
            elif new.shared != "0":
                edits.append((site.block_span[1], site.block_span[1], f", {text}"))
    except Untranslatable as error:
        raise _cannot_follow(kernel, *kernel.unit.locate(site.line, site.column), error) from None
    return _merged(edits)


def _wide_products(kernel: Kernel, site: LaunchSite, contract: Contract, names: Mapping[str, str]) -> dict[str, str]:
    """Returns the conversion to `size_t` for the products of the new grid; none if the host code has them as `int`."""
    if any(one.shape is None and one.dtype.endswith("64") for one in contract.args):
        return {}
    text = _code(kernel.unit.text)
    start, end = function_around(text, site.start)
    host = re.sub(r"\s", "", text[start:end] if start <= site.start < end else text)
    quotients = [one for side in contract.grid for one in ast.walk(parse_expression(side)) if isinstance(one, ast.Call)]
    products = [one.args[0] for one in quotients if one.args and may_overflow(one.args[0])]
    if any(re.sub(r"\s", "", to_host(ast.unparse(one), names)) in host for one in products):
        return {}
    c_style = "static_cast<" not in text and re.search(r"\((?:size_t|int|long|float|double|unsigned)\)\s*[\w(]", text)
    return {WIDE: "(size_t){}" if c_style else "static_cast<size_t>({})"}


_LIMITED = re.compile(r"\((.+) < (.+) \? \1 : \2\)")
"""The lesser of two numbers in host code."""


def _grid_edits(kernel: Kernel, site: LaunchSite, contract: Contract, text: str) -> list[Edit]:
    """Returns the edits of a launch's grid; a computed number with a limit gets a variable before the launch."""
    edit = _sides_edit(kernel, site.grid_span, text)
    limited, code = _LIMITED.fullmatch(text), _code(kernel.unit.text)
    line = code.rfind("\n", 0, site.start) + 1
    start, end = function_around(code, site.start)
    alone = not code[line : site.start].strip() and code[:line].rstrip().endswith((";", "{", "}"))
    most = limit_name(code[start:end])
    taken = re.search(rf"\b(?:blocks|{most})\b", code[start:end]) is not None
    taken |= sum(start <= one.start < end for one in kernel.launches) > 1  # each would declare it
    if limited is None or edit[:2] != site.grid_span or not alone or taken or limited[1].isidentifier():
        return [edit]
    wide = any(one.shape is None and one.dtype.endswith("64") for one in contract.args)
    indent = code[line : site.start]
    declared = f"{indent}const {'auto' if wide else 'int'} blocks = {strip_parentheses(limited[1])};\n"
    declared += "" if limited[2].isidentifier() else f"{indent}const int {most} = {limited[2]};\n"
    limit = limited[2] if limited[2].isidentifier() else most
    return [(line, line, declared), (*site.grid_span, f"blocks < {limit} ? blocks : {limit}")]


def _code(text: str) -> str:
    """Returns a text with blanks in place of its comments."""
    return COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def _sides_edit(kernel: Kernel, span: tuple[int, int], sides: str) -> Edit:
    """Returns the edit of a launch's dimensions.

    In the declaration of a `dim3` or an integer used by this kernel's launches alone, else in place.
    """
    text = _code(kernel.unit.text)
    name = text[slice(*span)].strip()
    declared = side_declared(text, name, span[0])
    block = any(span == site.block_span for site in kernel.launches)  # an integer that holds it may hold more
    if declared is None or (not declared.vector and (block or sides.startswith("dim3("))):
        return (*span, sides)
    start, end = declared.start, declared.end
    own = [place for site in kernel.launches for place in (site.grid_span, site.block_span)]
    own += [(kernel.start, kernel.end), (declared.head, start)]
    for grid in {text[slice(*site.grid_span)].strip() for site in kernel.launches} - {name}:  # it follows the block
        side = side_declared(text, grid, span[0])
        own += [(side.start, side.end)] if side is not None else []
    around = function_around(text, span[0])
    around = around if around[0] <= declared.head < around[1] else (0, len(text))
    uses = [match.start() for match in re.finditer(rf"\b{name}\b", text) if around[0] <= match.start() < around[1]]
    inner = sides[5:-1] if sides.startswith("dim3(") else strip_parentheses(sides)
    inner = in_braces(text[start:end], inner) if text[start - 1] == "{" else inner
    inner = inner if declared.vector else in_own_cast(text[start:end], inner)
    names_before, names_now = (
        {"static_cast", "size_t", "uint32_t", "unsigned"} | set(re.findall(r"[A-Za-z_]\w*", one))
        for one in (text[start:end], inner)
    )
    alone = all(any(first <= use < last for first, last in own) for use in uses)
    return (start, end, inner) if alone and names_now <= names_before | seen_at(text, declared.head) else (*span, sides)


def _without_unused_sides(before: str, after: str, replaced: set[str]) -> str:
    """Returns the changed text without numbers in its host code that only the replaced parts of launches used."""
    names = {name for text in replaced for name in re.findall(r"[A-Za-z_]\w*", text)}
    was = COMMENT.sub("", before)
    while True:
        text = _code(after)
        for found in re.finditer(
            rf"^[ \t]+(?:const(?:expr)? )?(?:{INTEGRAL}[ \t]+(?:const[ \t]+)?(\w+)[ \t]*=|dim3[ \t]+(?:const[ \t]+)?(\w+)[({{]|dim3[ \t]+(\w+)[ \t]*=)([^;]*);[ \t]*\n",
            text,
            re.MULTILINE,
        ):
            name = found[1] or found[2] or found[3]
            start, end = function_around(text, found.start())
            once = len(re.findall(rf"\b{name}\b", text[start:end])) == 1
            called = re.search(r"\b(?!dim3\b)\w+\s*\(|\+\+|--|[^<>=!]=[^=]", DIVIDED.sub("(", found[4])) is not None
            if name in names and once and not called and len(re.findall(rf"\b{name}\b", was)) > 1:
                names |= set(re.findall(r"[A-Za-z_]\w*", found[4]))
                after = after[: found.start()] + after[found.end() :]
                break
        else:
            return after


def _named_sides(kernel: Kernel, site: LaunchSite, old: Contract, new: Contract) -> tuple[list[str], list[Edit]]:
    """Returns the sides of a launch's block, and the edits of the constants that name them, `const int threads = 256;`.

    There are no edits if the constants are already right. There are no sides unless one has a name, and each name is a
    constant that is defined once and, if it changes, is used by this kernel alone.
    """
    text = _code(kernel.unit.text)
    (start, end), declared = site.block_span, side_declared(text, text[slice(*site.block_span)].strip(), site.start)
    if declared is not None and declared.vector:
        start, end = declared.start, declared.end
    elif (inline := re.match(r"\s*dim3\s*\((.*)\)\s*$", text[start:end], re.DOTALL)) is not None:
        start, end = start + inline.start(1), start + inline.end(1)
    sides = [one.strip() for one in text[start:end].split(",")]
    named = [one for one in sides if not one.isdigit()]
    if not named or len(sides) != len(new.block) or len(old.block) != len(new.block):
        return [], []
    own = [(start, end), site.block_span, site.grid_span, (kernel.start, kernel.end)]
    own += [site.shared_span] if site.shared_span is not None else []
    grid = side_declared(text, text[slice(*site.grid_span)].strip(), site.start)
    own += [(grid.start, grid.end)] if grid is not None else []
    edits = set[Edit]()
    for name, was, now in zip(sides, old.block, new.block, strict=True):
        found = constant_edit(text, site.start, name, was, now, own)
        if found is None:
            return [], []
        edits |= {*found}
    return ([], []) if len({edit[:2] for edit in edits}) < len(edits) else (sides, sorted(edits))


def _by_name(kernel: Kernel, site: LaunchSite, old: Contract, new: Contract, sides: Sequence[str]) -> Contract:
    """Returns the contract, in whose grid the number of threads has its name if it has that in the old launch's grid."""
    grid = _grid_text(_code(kernel.unit.text), site)
    if (
        len(sides) != 1
        or not re.search(rf"\b{sides[0]}\b", grid)
        or not any(re.search(r"\b\d+\b", one) for one in old.grid)
    ):
        return new
    count = int(new.block[0])

    def named(number: re.Match[str]) -> str:
        times, rest = divmod(int(number[0]), count)
        return number[0] if rest or not times else "block" if times == 1 else f"block * {times}"

    return replace(new, grid=tuple(re.sub(r"(?<=, )\d+(?=\)$)", named, one) for one in new.grid))


def _grid_text(text: str, site: LaunchSite) -> str:
    """Returns the text of a launch's grid: the expression, or the initialiser of the variable that holds it."""
    grid = text[slice(*site.grid_span)]
    declared = side_declared(text, grid.strip(), site.start)
    return grid if declared is None else text[declared.start : declared.end]


def _follows(kernel: Kernel, site: LaunchSite, old: Contract, new: Contract, sides: Sequence[str]) -> bool:
    """Returns True if the grid changes only with the block, through its name in the launch or the names of its sides."""
    text = _code(kernel.unit.text)
    name, words = text[slice(*site.block_span)].strip(), {*re.findall(r"[A-Za-z_]\w*", _grid_text(text, site))}
    values = block_names(old.block)
    before, after = (
        [re.sub(r"\bblock(?:_[xyz])?\b", lambda found: values[found[0]], one) for one in contract.grid]
        for contract in (old, new)
    )
    return before == after and ({name} <= words or (bool(sides) and {*sides} <= words))


_CAPPED = re.compile(r"min\((.+), (\d+)\)")


def _host_grid(text: str, old: Contract, new: Contract, names: Mapping[str, str]) -> str:
    """Returns the new grid of a launch.

    A launch that spelled out the limit of `min(cdiv(n, block), 64)` keeps a number: that of the headline size if it reached the
    old limit, else the new limit.
    """
    was, now = (_CAPPED.fullmatch(contract.grid[0]) if len(contract.grid) == 1 else None for contract in (old, new))
    if was is not None and now is not None and text.strip() == was[2]:
        at_limit = launch_shape(old, old.sizes[0]).grid[0] == int(was[2])
        return str(launch_shape(new, new.sizes[0]).grid[0]) if at_limit else now[2]
    return _host_sides(new.grid, names)


def _in_elements(text: str, old: str) -> str:
    """Writes bytes like the old launch: with `sizeof(float)` instead of 4 if that used it."""
    written = re.search(r"\bsizeof\((\w+)\)", old)
    size = None if written is None else {"float": "4", "int": "4", "unsigned": "4", "double": "8"}.get(written[1])
    if written is None or size is None or not re.search(rf"\* {size}$", text):
        return text
    return f"{text[: -len(size)]}{written[0]}"


def _merged(edits: Sequence[Edit]) -> list[Edit]:
    """Joins an insertion with the replacement that ends at its position."""
    merged: list[Edit] = []
    for start, end, new in sorted(edits):
        if merged and start == end == merged[-1][1]:
            merged[-1] = (merged[-1][0], end, merged[-1][2] + new)
        else:
            merged.append((start, end, new))
    return merged


def _uses_block(texts: Sequence[str]) -> bool:
    return any(name.startswith("block") for text in texts for name, _ in names_in(text))


def _host_names(kernel: Kernel, site: LaunchSite, contract: Contract) -> Mapping[str, str]:
    """Returns host code for each size (the launch's own argument) and for the new block."""
    launch = next(launch for launch in find_launches(kernel.unit.text) if launch.start == site.start)
    names: dict[str, str] = {}
    for argument, (start, end) in zip(contract.parameters, launch.arguments, strict=False):
        if argument is not None and argument.shape is None and argument.value is None:
            names[argument.name] = kernel.unit.text[start:end]
    names |= held_at(_code(kernel.unit.text), site.start)
    return names | block_names([to_host(side, names) for side in contract.block])


def _sides_by_size(kernel: Kernel, site: LaunchSite, old: Contract) -> dict[str, str]:
    """Returns the host's variables by the sizes that are whole sides of the old grid."""
    text = kernel.unit.text
    grid = _grid_text(text, site)
    sides = [one.strip() for one in re.sub(r"^\s*dim3\((.*)\)\s*$", r"\1", grid, flags=re.DOTALL).split(",")]
    if len(sides) != len(old.grid):
        return {}
    return {
        size: side for size, side in zip(old.grid, sides, strict=True) if size.isidentifier() and side.isidentifier()
    }


def block_names(sides: Sequence[str]) -> dict[str, str]:
    """Returns the texts of `block` and its components, from the texts of the dimensions."""
    each = {f"block_{axis}": side for axis, side in zip("xyz", [*sides, "1", "1"], strict=False)}
    return {**each, "block": _product(sides)}


def _product(sides: Sequence[str]) -> str:
    if all(side.isdigit() for side in sides):
        result = 1
        for side in sides:
            result *= int(side)
        return str(result)
    return sides[0] if len(sides) == 1 else " * ".join(side if side.isalnum() else f"({side})" for side in sides)


def _host_sides(texts: Sequence[str], names: Mapping[str, str]) -> str:
    sides = [to_host(text, names) for text in texts]
    return sides[0] if len(sides) == 1 else f"dim3({', '.join(sides)})"
