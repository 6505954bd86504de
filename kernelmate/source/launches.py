"""Finds kernel launches in CUDA text: every `<<<...>>>`, also in macros, with the places of its parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernelmate.caching import text_cache
from kernelmate.records import LaunchSite
from kernelmate.source.tokens import LexedText, Token, closing, lex, live_text, name_before, split_list


@dataclass(frozen=True, slots=True)
class ParsedLaunch:
    """One `<<<...>>>`: the name it is written with, its template arguments, spans of its parts."""

    name: str
    template_arguments: str
    start: int
    end: int
    configuration: tuple[tuple[int, int], ...]
    arguments: tuple[tuple[int, int], ...]


@text_cache(32)
def find_launches(text: str) -> tuple[ParsedLaunch, ...]:
    """Returns every `name<<<grid, block, ...>>>(...)` of the text, also in macros and as `<< <...>> >`; spans are offsets.

    Code that `#if 0` leaves out has none.
    """
    if "<<" not in text:
        return ()
    tokens = lex(live_text(text)).tokens
    found = []
    for index, token in enumerate(tokens):
        if token.text == "<<<" or (
            token.text == "<<" and tokens[index + 1 : index + 2] and tokens[index + 1].text == "<"
        ):
            launch = _read_launch(text, tokens, index)
            if launch is not None:
                found.append(launch)
    return tuple(found)


def _read_launch(text: str, tokens: Sequence[Token], index: int) -> ParsedLaunch | None:
    named, with_arguments = name_before(tokens, index)
    first = index + (1 if tokens[index].text == "<<<" else 2)
    end = _configuration_end(tokens, first, spaced=first > index + 1)
    if named is None or end is None or end + 3 >= len(tokens) or tokens[end + 3].text != "(":
        return None
    last = closing(tokens, end + 3)
    if last is None:
        return None
    start = named
    while start >= 1 and tokens[start - 1].text == "::":
        start -= 2 if start >= 2 and tokens[start - 2].kind == "word" else 1
    name = "".join(token.text for token in tokens[start : named + 1])
    return ParsedLaunch(
        name=name.removeprefix("::"),
        template_arguments=text[tokens[named].end : tokens[index - 1].end].strip() if with_arguments else "",
        start=tokens[start].start,
        end=tokens[last].end,
        configuration=_spans(tokens, first, end),
        arguments=_spans(tokens, end + 4, last),
    )


def _configuration_end(tokens: Sequence[Token], start: int, *, spaced: bool) -> int | None:
    """Returns the index of the first `>` of the `>>>` that closes a launch configuration; `spaced` takes `>> >` too."""
    index = start
    while index + 2 < len(tokens):
        token = tokens[index]
        if token.text in "([{" and token.kind == "symbol":
            end = closing(tokens, index)
            if end is None:
                return None
            index = end
        elif token.text in (";", "}", "<<<"):
            return None
        elif (
            token.text == ">"
            and tokens[index + 1].text == tokens[index + 2].text == ">"
            and (spaced or tokens[index + 2].end == token.start + 3)
        ):
            return index
        index += 1
    return None


def _spans(tokens: Sequence[Token], start: int, end: int) -> tuple[tuple[int, int], ...]:
    parts = split_list(tokens, start, end)
    return tuple((tokens[first].start, tokens[last - 1].end) for first, last in parts if last > first)


def launches_by_kernel(text: str, names: Iterable[str]) -> dict[str, list[ParsedLaunch]]:
    """Returns the launches of each of the kernels `names`, matched by the whole name, else by its last part."""
    by_last: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        by_last.setdefault(name.rpartition("::")[2], []).append(name)
    found: dict[str, list[ParsedLaunch]] = {}
    for launch in find_launches(text):
        others = by_last.get(launch.name.rpartition("::")[2], [])
        exact = [name for name in others if name == launch.name]
        for name in exact or [name for name in others if name.endswith(f"::{launch.name}")]:
            if len(launch.configuration) >= 2:
                found.setdefault(name, []).append(launch)
    return found


def launch_site(lexed: LexedText, launch: ParsedLaunch, name: str) -> LaunchSite:
    """Converts a launch to its record; `name` is its kernel's."""
    spans = launch.configuration
    line, column = lexed.position(launch.start)
    return LaunchSite(
        kernel=name,
        start=launch.start,
        end=launch.end,
        grid=lexed.text[slice(*spans[0])],
        block=lexed.text[slice(*spans[1])],
        shared=lexed.text[slice(*spans[2])] if len(spans) > 2 else None,
        grid_span=spans[0],
        block_span=spans[1],
        shared_span=spans[2] if len(spans) > 2 else None,
        line=line,
        column=column,
    )
