"""NVRTC's log as diagnostics in the user's file."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kernelmate.records import Diagnostic, Severity, Unit

_HEAD = re.compile(
    r"^(?P<file>[^\n]*?)\((?P<line>\d+)\): (?P<kind>catastrophic error|error|warning|remark|note)"
    r"(?: #(?P<code>[\w-]+))?: (?P<message>.*)$"
)
_ASSEMBLER = re.compile(r"^ptxas (?P<kind>error|warning|fatal)\s*:\s*(?P<message>.*)$")
_SEVERITIES: Mapping[str, Severity] = {
    "catastrophic error": "error", "error": "error", "fatal": "error", "warning": "warning", "remark": "note",
    "note": "note",
}  # fmt: skip


def read_log(log: str, unit: Unit, headers: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Diagnostics of a compilation, each once, in the log's order.

    Args:
        log: what NVRTC and ptxas printed.
        unit: the text that was compiled, under its `path`; positions in it become positions in the user's file.
        headers: for each in-memory header, the file that it came from.
    """
    found: list[Diagnostic] = []
    lines = log.splitlines()
    for index, line in enumerate(lines):
        assembler = _ASSEMBLER.match(line)
        if assembler is not None and not assembler["message"].startswith("Compiling"):
            found.append(Diagnostic(_SEVERITIES[assembler["kind"]], assembler["message"], unit.path, None, None))
        head = _HEAD.match(line)
        if head is None:
            continue
        body: list[str] = []
        for follower in lines[index + 1 :]:
            if _HEAD.match(follower) or not follower.strip() or not follower.startswith(" "):
                break
            body.append(follower)
        found.append(_diagnostic(head, body, unit, headers))
    return tuple(dict.fromkeys(found))


def _diagnostic(head: re.Match[str], body: list[str], unit: Unit, headers: Mapping[str, str]) -> Diagnostic:
    caret = next((i for i, line in enumerate(body) if line.strip() == "^"), None)
    column = None
    message = [head["message"]]
    if caret is not None:
        # The source line above the caret is indented by two, and its tabs and characters are the user's own.
        column = body[caret].index("^") - 1
        message += [line.strip() for line in body[: max(caret - 1, 0)]]
        message += [line.strip() for line in body[caret + 1 :]]
    else:
        message += [line.strip() for line in body]
    line: int | None = int(head["line"])
    file: str | None = head["file"]
    if file == unit.path:
        line, column = unit.locate(int(head["line"]), column)
    else:
        file = headers.get(head["file"], head["file"])
    return Diagnostic(_SEVERITIES[head["kind"]], "\n".join(message), file, line, column, head["code"])
