"""Writes a contract as the text of its block."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from kernelmate.records import SLOWDOWN, Argument, Contract, Passed, TensorBox, TextureView
from kernelmate.source.launch import is_first_use
from kernelmate.source.tensor_maps import box_text
from kernelmate.source.textures import view_text

_WIDTH = 110
_MARKERS = {"cuda": "//", "python": "#"}
_PLAIN = re.compile(r'\w+ = "\w+"')
_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def render_contract(
    contract: Contract,
    language: Literal["cuda", "python"] = "cuda",
    *,
    named: bool = False,
    indent: str = "",
    origins: Mapping[str, str] | None = None,
) -> str:
    """Returns the block's text, each line terminated; parsing it gives the contract again.

    Args:
        contract: the contract.
        language: `cuda` gives `//` comments, `python` `#`.
        named: also write the key `kernel`, for a block that is not directly above its kernel.
        indent: blanks before every line.
        origins: of an inferred contract, by key or argument: each line then ends with a comment on where it comes from.
    """
    marker = _MARKERS[language]
    body = toml_lines(contract, named=named)
    lines = ["/// kernelmate", *(body if origins is None else _with_origins(body, origins)), "///"]
    return "".join(f"{indent}{marker} {line}".rstrip() + "\n" for line in lines)


def _with_origins(lines: Sequence[str], origins: Mapping[str, str]) -> list[str]:
    """Returns the lines with the origin of each as a comment; a line without one is a guess."""
    found = []
    for line in lines:
        key = re.match(r"(\w+) =", line)
        if key is None:
            found.append(line)
        elif key[1] in origins:
            found.append(f"{line}  # inferred: {origins[key[1]]}")
        else:
            found.append(line if _PLAIN.fullmatch(line) and key[1] not in ("grid", "block") else f"{line}  # a guess")
    return found


def toml_lines(contract: Contract, *, named: bool = False) -> list[str]:
    """Returns the TOML lines of a contract, without defaults."""
    lines = [f"kernel = {quoted(contract.kernel)}"] if named else []
    lines += _sizes(contract.sizes)
    lines.append(f"grid = {side_list(contract.grid)}")
    lines.append(f"block = {side_list(contract.block)}")
    if contract.shared != "0":
        lines.append(f"shared = {number_or_text(contract.shared)}")
    for key in ("reference", "inputs", "torch", "accumulate"):
        value = getattr(contract, key)
        if value is not None:
            lines.append(f"{key} = {quoted(value)}")
    if contract.tolerance is not None:
        lines.append(f"tolerance = {{ rtol = {contract.tolerance.rtol!r}, atol = {contract.tolerance.atol!r} }}")
    for key in ("instances", "options", "require"):
        if getattr(contract, key):
            lines.append(f"{key} = {string_list(getattr(contract, key))}")
    lines += [f"{key} = true" for key in ("deterministic", "cooperative") if getattr(contract, key)]
    if contract.cluster is not None:
        lines.append(f"cluster = [{', '.join(map(str, contract.cluster))}]")
    if contract.weights:
        lines.append(f"weights = [{', '.join(f'{weight!r}'.removesuffix('.0') for weight in contract.weights)}]")
    if contract.slowdown != SLOWDOWN:
        lines.append(f"slowdown = {contract.slowdown!r}")
    if contract.args and not contract.passing:
        lines.append("[args]")
        lines += [f"{_key(argument.name)} = {quoted(argument_text(argument))}" for argument in contract.args]
    for variable, table in ((False, "[args]"), (True, "[symbols]")):
        passed = [one for one in contract.passing if one.variable == variable]
        lines += [table] if passed else []
        lines += [f"{_key(one.name)} = {_passed_text(one, contract)}" for one in passed]
    return lines


def _passed_text(passed: Passed, contract: Contract) -> str:
    """Returns the text of a parameter or a variable in a contract: an entry in quotes, or a table of fields."""
    texts = {argument.name: argument_text(argument) for argument in contract.args}
    if passed.kind == "alias":
        start = "" if passed.start == "0" else f"[{passed.start}]"
        return quoted(f"alias {passed.members[0].argument}{start}")
    if passed.kind == "pointers":
        head, _, rest = texts[passed.name].partition("[")
        count, _, rest = rest.partition(", ")
        return quoted(f"{head}*[{count}][{rest}")
    if passed.box is not None:
        return quoted(_map_text(passed, passed.box, contract, texts))
    if passed.view is not None:
        return quoted(_object_text(passed, passed.view, contract))
    if passed.kind == "argument":
        return quoted(texts[passed.members[0].argument])
    return _fields([(one.keys, quoted(texts[one.argument])) for one in passed.members])


def _object_text(passed: Passed, view: TextureView, contract: Contract) -> str:
    (member,) = passed.members
    kind, _, words = view_text(view).partition(" ")
    if not is_first_use(contract, passed):
        return f"{kind} of {member.argument} {words}".rstrip()
    argument = next(one for one in contract.args if one.name == member.argument)
    head, tilde, distribution = argument_text(replace(argument, align=None)).partition(" ~ ")
    return f"{head} {view_text(view)}{tilde}{distribution}"


def _map_text(passed: Passed, box: TensorBox, contract: Contract, texts: Mapping[str, str]) -> str:
    (member,) = passed.members
    if not is_first_use(contract, passed):
        return f"tensormap of {member.argument} {box_text(box)}"
    head, tilde, distribution = texts[member.argument].partition(" ~ ")
    return f"{head} {box_text(box)}{tilde}{distribution}"


def _fields(entries: Sequence[tuple[tuple[str | int, ...], str]]) -> str:
    """Returns entries by the keys that lead to them as nested tables and lists."""
    if not entries[0][0]:
        return entries[0][1]
    groups: dict[str | int, list[tuple[tuple[str | int, ...], str]]] = {}
    for keys, text in entries:
        groups.setdefault(keys[0], []).append((keys[1:], text))
    if isinstance(entries[0][0][0], int):
        return f"[{', '.join(_fields(group) for group in groups.values())}]"
    return f"{{ {', '.join(f'{_key(str(key))} = {_fields(group)}' for key, group in groups.items())} }}"


def _sizes(sizes: Iterable[Mapping[str, int]]) -> list[str]:
    tables = ["{ " + ", ".join(f"{_key(n)} = {v}" for n, v in size.items()) + " }" if size else "{}" for size in sizes]
    line = f"sizes = [{', '.join(tables)}]"
    if len(line) <= _WIDTH:
        return [line]
    return ["sizes = [", *(f"  {table}," for table in tables), "]"]


def argument_text(argument: Argument) -> str:
    """Returns one entry of `[args]`: `in float32[rows, cols] align 16 ~ normal`, `float32 = 0.5 fixed`."""
    if argument.shape is None:
        text = argument.dtype if argument.value is None else f"{argument.dtype} = {argument.value}"
        return f"{text} fixed" if argument.fixed else text
    text = f"{argument.direction} {argument.dtype}[{', '.join(argument.shape)}]"
    if argument.extent is not None:
        text += f"[{':, ' * argument.extent[0]}:{argument.extent[1]}]"
    if argument.unordered:
        text += " unordered" if argument.paired is None else f" unordered with {argument.paired}"
    if argument.mask is not None:
        text += f" where {argument.mask}"
    if argument.align is not None:
        text = f"{text} align {argument.align}"
    return text if argument.distribution is None else f"{text} ~ {argument.distribution}"


def side_list(sides: tuple[str, ...]) -> str:
    """Returns grid or block as TOML: a number, a string, or a list of them."""
    if len(sides) == 1:
        return number_or_text(sides[0])
    return f"[{', '.join(number_or_text(side) for side in sides)}]"


def string_list(texts: tuple[str, ...]) -> str:
    """Returns strings as a TOML list."""
    return f"[{', '.join(quoted(text) for text in texts)}]"


def number_or_text(text: str) -> str:
    """Returns an integer unchanged, any other expression in quotes."""
    return text if re.fullmatch(r"0|-?[1-9][0-9]{0,18}", text) else quoted(text)


def quoted(text: str) -> str:
    """Returns a TOML basic string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f\x80-\x9f]", lambda match: f"\\u{ord(match.group()):04x}", escaped) + '"'


def _key(name: str) -> str:
    return name if _BARE.match(name) else quoted(name)
