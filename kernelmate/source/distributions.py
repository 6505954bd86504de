"""Distributions of array elements, written after `~` in a contract."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from kernelmate.source.expressions import ExpressionError, check_names, names_in, nearest_hint

_ARGUMENTS: dict[str, tuple[int, ...]] = {
    "normal": (0, 2),
    "uniform": (2,),
    "integers": (2,),
    "ascending": (2,),
    "zeros": (0,),
    "ones": (0,),
    "file": (1,),
}
LIVE = "live"
_FORMS = "normal, normal(mean, std), uniform(low, high), integers(low, high), ascending(low, high), zeros, ones, file('x.npz')"


@dataclass(frozen=True, slots=True)
class Distribution:
    """A distribution: `name` is one of normal, uniform, integers, ascending, zeros, ones, file.

    `arguments` are expressions over the sizes, as text; `path` is the file's, as written, for `file` and `live`.
    `integers(low, high)` leaves `high` out, as NumPy does. `ascending(low, high)` sorts such numbers, or
    uniform ones where the dtype is a floating-point type, along the last axis. `live('x.npz')` is a copy of a notebook's array at the time
    of judging; the distribution after `|` draws sizes that the array does not have.
    """

    name: str
    arguments: tuple[str, ...] = ()
    path: str | None = None
    otherwise: str | None = None


def parse_distribution(text: str, names: Iterable[str] | None = None) -> Distribution:
    """Reads a distribution such as `uniform(-1, 1)`.

    Args:
        text: the text after `~`.
        names: the sizes that its expressions may use; None skips the check of names.

    Raises:
        ContractError: unknown name, wrong number of arguments, or an argument that is not an expression.
    """
    known = None if names is None else tuple(names)
    stripped = text.strip()
    if stripped.startswith(f"{LIVE}("):
        shown, _, otherwise = stripped.partition(" | ")
        return Distribution(LIVE, path=_quoted(shown[len(LIVE) + 1 : -1], 0), otherwise=otherwise or None)
    shift = len(text) - len(text.lstrip())
    name, opening, rest = stripped.partition("(")
    name = name.strip()
    if name not in _ARGUMENTS:
        hint = nearest_hint(name, _ARGUMENTS) if name.isidentifier() else f"Write one of: {_FORMS}."
        raise ExpressionError(f"{name!r} is not a distribution.", offset=shift, hint=hint)
    if opening and not rest.endswith(")"):
        raise ExpressionError("The distribution's parenthesis is not closed.", offset=shift, hint=f"Forms: {_FORMS}.")
    inner = rest[:-1]
    if name == "file":
        return Distribution(name, (), _quoted(inner, shift))
    parts = split_commas(inner) if inner.strip() else []
    if len(parts) not in _ARGUMENTS[name]:
        raise ExpressionError(f"{name} does not take {len(parts)} arguments.", offset=shift, hint=f"Forms: {_FORMS}.")
    for offset, part in parts:
        start = shift + stripped.index("(") + 1 + offset
        try:
            check_names(part, known if known is not None else [name for name, _ in names_in(part)])
        except ExpressionError as error:
            raise ExpressionError(error.message, offset=start + error.offset, hint=error.hint) from None
    return Distribution(name, tuple(part.strip() for _, part in parts))


def _quoted(text: str, shift: int) -> str:
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, str) or not value.lower().endswith((".npz", ".npy")):
        raise ExpressionError(
            "file takes one quoted path of a .npz or .npy file.", offset=shift, hint="Write file('inputs.npz')."
        )
    return value


def split_commas(text: str) -> list[tuple[int, str]]:
    """Returns the parts between commas outside parentheses, each with its offset in characters."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append((start, text[start:index]))
            start = index + 1
    parts.append((start, text[start:]))
    return parts
