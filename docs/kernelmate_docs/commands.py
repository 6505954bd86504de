"""Generates one page per command from the command's help."""

from __future__ import annotations

import html
import inspect
import re

import click

from kernelmate.cli.main import added, cli
from kernelmate_docs.project import ROOT

MOST_GUIDES = 5
"""Maximum of guides that a command's page links to."""

_SPECIAL = re.compile(r"([\\*_`])")


def names() -> list[str]:
    """Returns the commands in the order of the help; those of installed packages come last."""
    return cli.list_commands(click.Context(cli))


def navigation() -> list[dict[str, str] | str]:
    """The entries of the section "Commands"."""
    return ["commands/index.md", *({f"kernelmate {name}": f"commands/{name}.md"} for name in names())]


def pages() -> dict[str, str]:
    """The page of every command and the list of them."""
    context = click.Context(cli, info_name="kernelmate", **cli.context_settings)
    result = {"commands/index.md": _index(context)}
    for name in names():
        command = cli.get_command(context, name)
        assert command is not None
        result[f"commands/{name}.md"] = _page(name, command, context)
    return result


def _index(context: click.Context) -> str:
    from kernelmate.cli.main import COMMANDS

    summaries = {name: summary for name, (_, summary) in COMMANDS.items()}
    summaries |= {name: str(one.dist.metadata["Summary"]) for name, one in added().items() if one.dist is not None}
    rows = [f"| [`{name}`]({name}.md) | {_plain(summaries[name])} |" for name in names()]
    table = "\n".join(["| command | |", "| --- | --- |", *rows])
    return f"# Commands\n\n{_text(cli.help or '')}\n\n{table}\n\n{_epilog(cli)}\n\n{_options(cli, context)}"


def _page(name: str, command: click.Command, parent: click.Context) -> str:
    parts = [f"# kernelmate {name}", *_parts(command, click.Context(command, info_name=name, parent=parent), 2)]
    found = ", ".join(f"[{title}](../{page})" for page, title in guides(name))
    return "\n\n".join([*parts, *([f"See also: {found}."] if found else [])]) + "\n"


def guides(name: str) -> list[tuple[str, str]]:
    """Returns the guides that mention a command most often, with their titles."""
    texts = {file.name: file.read_text(encoding="utf-8") for file in sorted((ROOT / "docs").glob("*.md"))}
    counts = {page: len(re.findall(rf"\bkernelmate {name}\b", text)) for page, text in texts.items()}
    pages = sorted((page for page in texts if counts[page]), key=lambda page: -counts[page])[:MOST_GUIDES]
    return [(page, texts[page].split("\n", 1)[0].removeprefix("# ")) for page in pages]


def _parts(command: click.Command, context: click.Context, level: int) -> list[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    parts = [_text(command.help or ""), f"```text\n{usage}\n```", _epilog(command), _options(command, context, level)]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            inner = click.Context(child, info_name=name, parent=context)
            parts += [f"{'#' * level} {inner.command_path}", *_parts(child, inner, level + 1)]
    return [part for part in parts if part]


def _options(command: click.Command, context: click.Context, level: int = 2) -> str:
    options = [one for one in command.get_params(context) if isinstance(one, click.Option)]
    records = [record for one in options if (record := one.get_help_record(context)) is not None]
    if not records:
        return ""
    lines = [f"`{left}`\n:   {_plain(right)}\n" for left, right in records]
    return f"{'#' * level} Options\n\n" + "\n".join(lines)


def _text(text: str) -> str:
    """Returns the paragraphs of a help text; paragraphs with click's no-wrap mark keep their lines."""
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text))
    return "\n\n".join(_paragraph(one) for one in paragraphs if one.strip())


def _epilog(command: click.Command) -> str:
    return _text(command.epilog) if command.epilog else ""


def _paragraph(text: str) -> str:
    if not text.lstrip().startswith("\b"):
        return _plain(" ".join(text.split()))
    head, _, rest = text.lstrip().removeprefix("\b").lstrip("\n").partition("\n")
    if head.rstrip().endswith(":") and rest:
        return f"{_plain(head)}\n\n```text\n{inspect.cleandoc(rest)}\n```"
    lines = inspect.cleandoc(f"{head}\n{rest}")
    return f"```text\n{lines}\n```" if re.search(r"^ +", lines, re.MULTILINE) else _plain(" ".join(lines.split()))


def _plain(text: str) -> str:
    """Text without characters that Markdown reads; words in backquotes stay code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        one if one.startswith("`") else html.escape(_SPECIAL.sub(r"\\\1", one), quote=False) for one in pieces
    )
