"""Comments of a kernel that remain true after a rewrite: they give reasons or references, not the old method."""

from __future__ import annotations

import re
import textwrap

from kernelmate.records import Kernel
from kernelmate.source import apply_edits
from kernelmate.suggest.recipes.comments import KEPT, Comment, comments
from kernelmate.suggest.recipes.sentences import SENTENCE, corrected
from kernelmate.suggest.recipes.techniques import REWRITTEN
from kernelmate.suggest.syntax import Edit, Tree, read_tree

_REASON = re.compile(
    r"https?://|#\d+|\b(?:TODO|FIXME|XXX|HACK|NOTE|NB|RFC|IEEE|ONNX|PyTorch|NumPy|JAX|paper|spec|specification|checkpoint"
    r"|sections?|appendix|equation|eqs?\.|issue|ticket|must|because|so that|as in|unlike|match(?:es)?|guarantee[sd]?"
    r"|assum(?:es?|ed|ing)|convention|never|always)",
    re.IGNORECASE,
)
"""Words of comments that give information which the code does not contain."""
_METHOD = re.compile(
    r"\b(?:here|above|below|next|loops?|turns?|iterations?|steps?|index|indices|offsets?|strid\w*|pointers?|registers?|cach\w*"
    r"|loads?|stores?|sync\w*|threads?|warps?|blocks?|lanes?|grid|shared|tiles?|reduc\w*|fast\w*|slow\w*|optimi\w*|branch\w*"
    r"|diverg\w*|padd\w*|pass(?:es)?|atomic\w*|serial\w*|parallel\w*|race\w*|barriers?)\b",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+|\d+(?=e))(?:e[-+]?\d+)?", re.IGNORECASE)


def with_kept_comments(old: Kernel, new: Kernel) -> Kernel:
    """Returns the written kernel with such comments of the old one.

    A comment is put beside the number that it mentions, else at the top of the body.
    """
    before, after = read_tree(old), read_tree(new)
    body = None if after is None else after.function.child_by_field_name("body")
    if before is None or after is None or body is None:
        return new
    there = " ".join(_plain(one) for one in comments(new.unit.text))
    top = new.unit.text.find("\n", after.span(body)[0]) + 1
    edits: dict[int, str] = {}
    for comment in _inside(old, before):
        plain = _plain(comment)
        sentences = SENTENCE.split(plain)
        kept = [one for one in sentences if one not in there and _stays(one, before, after)]
        if not kept:
            continue
        place = _beside_number(old, new, " ".join(kept)) or top
        text = comment.text if kept == sentences else f"// {' '.join(kept)}"
        edits[place] = edits.get(place, "") + _placed(new, text, place)
    found: list[Edit] = [(place, place, text) for place, text in sorted(edits.items())]
    return apply_edits(new, found) if found else new


def _inside(kernel: Kernel, tree: Tree) -> list[Comment]:
    """Returns the comments of a kernel's body."""
    body = tree.function.child_by_field_name("body")
    start = kernel.end if body is None else tree.span(body)[0]
    return [one for one in comments(kernel.unit.text) if start < one.start < kernel.end]


def _stays(text: str, before: Tree, after: Tree) -> bool:
    """Returns True if a comment gives a reason or a reference, without the old kernel's method or names."""
    code = re.search(r"[;{}]\s*(?:$|//)|^\s*#", text) is not None
    if code or KEPT.search(text) or not _REASON.search(text) or _METHOD.search(text):
        return False
    names = {name for name in before.variables if not re.search(rf"\b{re.escape(name)}\b", after.kernel.source)}
    return corrected(text, REWRITTEN, (), before.kernel.name) == text and not names & set(re.findall(r"\w+", text))


def _beside_number(old: Kernel, new: Kernel, text: str) -> int | None:
    """Returns the offset of the first new line of the kernel that contains a number of the comment.

    The result is None if there is none.
    """
    known = set(old.unit.text.split("\n"))
    numbers = [re.escape(one) for one in _NUMBER.findall(text)]
    place = 0
    for line in new.unit.text.split("\n"):
        code = line.partition("//")[0]
        if (
            line not in known
            and code.startswith((" ", "\t"))
            and any(re.search(rf"(?<![\w.]){one}f?(?![\w.])", code) for one in numbers)
        ):
            return place
        place += len(line) + 1
    return None


def _placed(kernel: Kernel, text: str, place: int) -> str:
    """Returns the comment's lines with the indentation of the line below them."""
    indent = re.match(r"[ \t]*", kernel.unit.text[place:])
    front = "" if indent is None else indent[0]
    lines = [one.strip() for one in text.split("\n")]
    if len(lines) == 1 and text.startswith("//"):
        width = max(map(len, kernel.unit.text.split("\n")))
        lines = textwrap.wrap(text[2:].strip(), max(width - len(front) - 3, 40), break_long_words=False)
        return "".join(f"{front}// {line}\n" for line in lines)
    return "".join(f"{front}{line if line.startswith(('//', '/*')) else f' {line}'}\n" for line in lines)


def _plain(comment: Comment) -> str:
    """Returns a comment's words without comment markers."""
    return " ".join(re.sub(r"^\s*(?:/{2,}[!<]?|/\*+!?|\*+/?)|\*+/\s*$", "", comment.text, flags=re.MULTILINE).split())
