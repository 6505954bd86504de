r"""Line ends and byte order mark: texts use `\n` internally, and files keep their own."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

MARK = "\ufeff"


def normal_text(file_text: str) -> str:
    r"""Returns a file's text with `\n` line ends and without a byte order mark."""
    return file_text.removeprefix(MARK).replace("\r\n", "\n")


def restored(file_text: str, text: str) -> str:
    """Returns a changed text with the line ends and the byte order mark of its file.

    Lines that did not change keep their own line end; changed and new ones get the file's more frequent one.
    """
    mark = MARK if file_text.startswith(MARK) else ""
    if "\r\n" not in file_text:
        return mark + text
    old = [line + "\n" for line in file_text.removeprefix(MARK).split("\n")]
    new = [line + "\n" for line in text.split("\n")]
    carriage = sum(line.endswith("\r\n") for line in old)
    usual = "\r\n" if carriage * 2 >= len(old) - 1 else "\n"
    plain = [line.replace("\r\n", "\n") for line in old]
    result: list[str] = []
    for kind, first, last, new_first, new_last in line_changes(plain, new):
        if kind == "equal":
            result += old[first:last]
        else:
            result += [line[:-1] + usual for line in new[new_first:new_last]]
    if result and old and result[-1] is not old[-1]:
        result[-1] = result[-1].removesuffix("\n").removesuffix("\r")
    else:
        result[-1] = result[-1].removesuffix("\n")
    return mark + "".join(_ended(result, usual))


def _ended(lines: list[str], usual: str) -> list[str]:
    """Adds a line end to the file's old last line if it is no longer the last."""
    return [line if line.endswith("\n") else line + usual for line in lines[:-1]] + lines[-1:]


def line_changes(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """Returns `SequenceMatcher`'s opcodes of lines, computed after removing equal ones at both ends for speed."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    middle = SequenceMatcher(None, old[head : len(old) - tail], new[head : len(new) - tail], autojunk=False)
    inner = [(kind, a + head, b + head, c + head, d + head) for kind, a, b, c, d in middle.get_opcodes()]
    return [
        ("equal", 0, head, 0, head),
        *inner,
        ("equal", len(old) - tail, len(old), len(new) - tail, len(new)),
    ]
