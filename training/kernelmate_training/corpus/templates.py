"""Kernels from templates: CUDA text in which flaws and styles are conditions, rendered as one version of a problem.

A template (`families/templates/NAME.cu`) is rendered by Jinja2: `$name` and `${expression}` are values, lines that
begin with `%` are statements, flaws are boolean names, and a style's roles are names too (`$row`, `$acc`). The rendered
text is read line by line:

- `@grid a | b`, `@block 32, 8`, `@shared bytes` and `@top text` give the launch, and a line above the contract;
  `@head text` precedes the name. `@const always` or `restrict` declares inputs `const` in every version, or if pointers
  are `__restrict__`; the default is that of `Code.drafted`.
- `@for i = 0 .. n` or `@for i = t .. n by 32` is a loop in the style's form. `@guard i < n, j < m` excludes threads out
  of range; `@leave i < n` does so by a return in any style. `@if condition` puts statements in braces if the style
  does.
- `@end` or `}` ends a block, and a line that ends in `{` begins one; blocks still open at the end are closed. All other
  lines are statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from jinja2.ext import Extension

from kernelmate_training.corpus.drafting import Code, Draft, Flaws, Style, load, store
from kernelmate_training.corpus.expressions import Emitter, Expr, Real
from kernelmate_training.corpus.flaws import FLAWS
from kernelmate_training.corpus.reducing import Op, ReducingThreads, grown, joined, neutral

FOLDER = Path(__file__).parent / "families" / "templates"

_FOR = re.compile(r"@for (\w+) = (.+?) \.\. (.+?)(?: by (.+))?$")
_HOISTED = re.compile(r"\x02(.*?)\x03")


class _Dollars(Extension):
    """Jinja2 extension that reads `$name` as `${name}`."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        """Replaces `$name`; Jinja2 calls it before parsing a template."""
        return re.sub(r"\$(\w+)", r"${\1}", source)


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=FileSystemLoader(FOLDER), undefined=StrictUndefined, autoescape=False, extensions=[_Dollars],  # noqa: S701  # CUDA, not HTML
        variable_start_string="${", variable_end_string="}", line_statement_prefix="%", line_comment_prefix="%%",
    )  # fmt: skip
    return environment.get_template(f"{name}.cu")


def _hoisting(emitter: Emitter, write: Callable[[Emitter], str]) -> str:
    """Returns an expression for a template, with its statements marked to be written above the expression's line."""
    text = write(emitter)
    return "".join(f"\x02{statement}\x03" for statement in emitter.statements) + text


def drafts(template: str, style: Style, *, real: Real = "float", inverts: bool = False, **values: Any) -> Callable[[Flaws], Draft]:  # fmt: skip
    """Returns a function that writes the version of a problem with given flaws.

    Args:
        template: name of the template.
        style: the author's style; its roles and helpers are available in the template.
        real: the type of the computation; the flaw `wide_type` replaces float by double.
        inverts: True to multiply by inverses of literals unless the flaw `divides` is set.
        values: further values for the template.
    """
    return partial(_draft, template, style, real, inverts, values)


def _draft(template: str, style: Style, real: Real, inverts: bool, values: dict[str, Any], flaws: Flaws) -> Draft:  # fmt: skip
    kind: Real = "double" if real == "float" and "wide_type" in flaws else real

    def emitter(names: Mapping[str, str], prefix: str = "t") -> Emitter:
        divides = not inverts or "divides" in flaws
        return Emitter(kind, "double_literals" in flaws, "powers" in flaws, divides, names, prefix, style.const_word)

    def bracket(expr: Expr, names: Mapping[str, str]) -> str:
        return _hoisting(emitter(names), lambda one: one.bracketed(expr))

    own = {
        "gid": style.gid, "at": style.at, "const": style.const_word, "turned": style.turned, "early": style.early, "named": style.named != "none", "names_of": style.names, "real": kind,
        "emit": lambda expr, names=(), prefix="t": _hoisting(emitter(dict(names), prefix), lambda one: one.text(expr)), "literal": emitter({}).literal,
        "load": partial(load, real=real), "store": store, "bracket": bracket, "team": partial(_team, style, flaws), "grown": partial(grown, real=kind), "neutral": partial(neutral, real=kind), "joined": joined,
    }  # fmt: skip
    known = dict.fromkeys(FLAWS, False) | dict.fromkeys(flaws, True)
    text = _template(template).render({**style.names, **known, **own, **values})
    writer = _Writer(style)
    for line in text.split("\n"):
        writer.read(line.strip())
    made = writer.code.drafted(
        flaws, writer.grid, writer.block, top=tuple(writer.top), head=writer.head, shared=writer.shared
    )
    return replace(made, constant=made.restrict or writer.constant == "always") if writer.constant else made


class _Team(ReducingThreads):
    """A team whose reductions are returned as text."""

    def reduced(self, op: Op, value: str, buffer: str, *, again: bool = False) -> str:
        """Returns the text that `Team.reduce` writes."""
        code = Code(self.style)
        self.reduce(code, op, value, buffer, again=again)
        return "\n".join(code.lines)

    def shuffles(self, op: Op, value: str) -> str:
        """Returns the text that `Team.shuffled` writes."""
        code = Code(self.style)
        self.shuffled(code, op, value)
        return "\n".join(code.lines)


def _team(style: Style, flaws: Flaws, threads: int, tid: str, real: str = "float") -> _Team:
    return _Team(style, threads, tid, flaws, real)


class _Writer:
    """Reader of a rendered template, line by line."""

    def __init__(self, style: Style) -> None:
        self.code = Code(style)
        self.grid: tuple[str, ...] = ()
        self.block: tuple[int, ...] = ()
        self.shared, self.constant, self.head, self.top = "0", "", "", list[str]()
        self._when: tuple[str, list[str]] | None = None

    def read(self, line: str) -> None:
        """Processes one line."""
        for statement in _HOISTED.findall(line):
            self.read(statement)
        line = _HOISTED.sub("", line)
        word, _, rest = line.partition(" ")
        if self._when is not None and word == "@end":
            condition, statements = self._when
            self._when = None
            self.code.when(condition, *statements)
        elif self._when is not None and line:
            self._when[1].append(line)
        elif word == "@grid":
            self.grid = tuple(rest.split(" | "))
        elif word == "@block":
            self.block = tuple(int(side) for side in rest.split(", "))
        elif word == "@shared":
            self.shared = rest
        elif word == "@head":
            self.head = rest
        elif word == "@const":
            self.constant = rest
        elif word == "@top":
            self.top.append(rest)
        elif word == "@if":
            self._when = (rest, [])
        elif line:
            self._statement(word, rest, line)

    def _statement(self, word: str, rest: str, line: str) -> None:
        if word in ("@guard", "@leave"):
            pairs = [pair.split(" < ") for pair in rest.split(", ")]
            self.code.guard(*((index, bound) for index, bound in pairs), early=True if word == "@leave" else None)
        elif word == "@for":
            loop = _FOR.match(line)
            assert loop is not None, line
            self.code.loop(*loop.groups())
        elif word == "#pragma":
            self.code.lines.append(line)
        elif word in ("@end", "}"):
            self.code.close()
        elif line.endswith(" {"):
            self.code.open(line.removesuffix(" {"))
        else:
            self.code(line)
