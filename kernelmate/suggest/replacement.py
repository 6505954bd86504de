"""Consequences of replacing a kernel: comments that stay, code that becomes unused, and values that differ.

Comments remain if they give reasons or references, not the old method. Helpers and constants that only the replaced
kernel used are removed with the comments above them. Differences of values, such as doubles computed as floats and other
handling of NaN, are described.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator

from kernelmate.records import Kernel
from kernelmate.source import apply_edits
from kernelmate.source.folding import width_of
from kernelmate.suggest.accumulators import with_own_accumulators
from kernelmate.suggest.pieces import (
    INCLUDED,
    NAMESPACES,
    launch_numbers,
    names_of,
    own_headers,
    own_helpers,
    own_macros,
    pieces_of,
    without_kernel,
)
from kernelmate.suggest.recipes.arithmetic_kinds import DOUBLE_LITERAL, FLOAT_LITERAL, INTEGER_LITERAL
from kernelmate.suggest.recipes.comments import KEPT, Comment, code, comments
from kernelmate.suggest.recipes.sentences import SENTENCE, corrected
from kernelmate.suggest.recipes.techniques import REWRITTEN
from kernelmate.suggest.syntax import Edit, Node, Tree, read_tree
from kernelmate.synthesis.names import without_comments, words_of
from kernelmate.synthesis.own_reductions import warp_reductions
from kernelmate.synthesis.qualifiers import GENERATED, own_qualifiers, with_qualifiers

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
    """Returns the written kernel with the comments of the old one that still apply.

    A comment is put beside the number that it mentions, else at the top of the body.
    """
    before, after = read_tree(old), read_tree(new)
    body = None if after is None else after.function.child_by_field_name("body")
    if before is None or after is None or body is None:
        return new
    new = with_own_accumulators(old, new, [one for one in _inside(old, before) if _is_true_still(_plain(one), old)])
    after = read_tree(new)
    body = None if after is None else after.function.child_by_field_name("body")
    if after is None or body is None:
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


def _is_true_still(text: str, old: Kernel) -> bool:
    """Returns True if a comment describes a value, and neither the old kernel's method nor its code."""
    code = re.search(r"[;{}=]\s*(?:$|//)|^\s*#|\w\(", text) is not None
    if code or KEPT.search(text) or _METHOD.search(text):
        return False
    return corrected(text, REWRITTEN, (), old.name) == text


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


_NAMED = re.compile(
    r"\s*(?:static )?const(?:expr)? (?:float|double)\b|\s*(?:static )?__constant__\b"
    r"|\s*(?:static )?const(?:expr)? [\w ]*\w*(?:warp|mask|lane)\w* = (?:32|0xffffffff)u?\b",
    re.IGNORECASE,
)
"""Declarations of constants that a new kernel may use: floating-point numbers, constant memory, the warp's size and mask."""


def without_own_helpers(kernel: Kernel) -> Kernel:
    """Returns the file without code that only the kernel uses.

    The new kernel defines its own helpers, which may have the same names.
    """
    reductions = {*warp_reductions(kernel.unit.text).values()}
    own = {
        name: one
        for name, one in _own(kernel).items()
        if name not in reductions and not _NAMED.match(one[2]) and one[2][:1] != "#"
    }
    named = [name for name in own if _uses(kernel.source, name)]
    while more := [name for name in own if name not in named and any(_uses(own[one][2], name) for one in named)]:
        named += more
    return _without(kernel, [own[name][:2] for name in named if not _in_launches(kernel, name)])


def without_unused_numbers(old: Kernel, new: Kernel) -> Kernel:
    """Returns the changed file without constants and macros that the kernel or only launches used and that are now unused."""
    for _ in range(4):  # one may have used another
        before, text = _own(old), without_comments(new.unit.text)
        unused = [
            (start, end)
            for name, (start, end, words) in _own(new).items()
            if name in before and before[name][2] == words and len(re.findall(rf"\b{name}\b", text)) == 1
        ]
        unused = [span for span in unused if _was_used(old, new.unit.text[slice(*span)])]
        if not unused:
            break
        new = _without(new, unused)
    return new


def with_own_qualifiers(old: Kernel, new: Kernel) -> Kernel:
    """Returns the changed file whose new device functions have the qualifiers that all functions of the old one have."""
    own = own_qualifiers(old.unit.text)
    if not own or own == GENERATED or GENERATED in old.unit.text:
        return new
    text = with_qualifiers(new.unit.text, own, width_of(old.unit.text))
    return apply_edits(new, [(0, len(new.unit.text), text)]) if text != new.unit.text else new


def with_helper_comments(old: Kernel, new: Kernel) -> Kernel:
    """Returns the changed file whose new helpers have the comments of the old ones of the same names, if these are true still.

    A comment stays if it names no parameter that the new helper lacks, and does not say how the old one worked.
    """
    text, known = new.unit.text, set(old.unit.text.split("\n"))
    edits: list[Edit] = []
    for comment in comments(old.unit.text):
        head = re.match(
            r"[ \t]*\n((?:[\w ]*__device__[\w ]*|template[^\n]*\n[^\n]*)\b(\w+)\(([^)]*)\))",
            old.unit.text[comment.end :],
        )
        if head is None or comment.trailing or comment.text in text or _STEPS.search(comment.text):
            continue
        now = re.search(rf"^[\w ]*__device__[\w ]* {head[2]}\(([^)]*)\)", text, re.MULTILINE)
        if now is None or now[0] in known or text[: now.start()].endswith(("*/\n", ">\n")):
            continue
        before = text[: now.start()].rstrip("\n").rpartition("\n")[2]
        gone = {*re.findall(r"(\w+)(?=,|$)", head[3])} - {*re.findall(r"(\w+)(?=,|$)", now[1])}
        if not (before.startswith("//") and text[: now.start()].endswith(f"{before}\n")) and not gone & words_of(
            comment.text
        ):
            edits.append((now.start(), now.start(), f"{comment.text}\n"))
    return apply_edits(new, edits) if edits else new


_STEPS = re.compile(r"\b(?:shared|tree|halv\w*|stride\w*|shuffl\w*|atomic\w*|lane\w*|loop\w*)\b", re.IGNORECASE)
"""Words of comments on the steps of a reduction."""


def with_freed_names(old: Kernel, new: Kernel) -> Kernel:
    """Returns the changed file with plain names in place of numbered ones whose plain name it no longer has."""
    was, words = words_of(old.unit.text), words_of(without_comments(new.unit.text))
    text = new.unit.text
    for name in sorted(words - was):
        plain = re.sub(r"_2$", "", name)
        if plain != name and plain not in words:
            text = re.sub(rf"\b{name}\b", plain, text)
    return apply_edits(new, [(0, len(new.unit.text), text)]) if text != new.unit.text else new


def _was_used(old: Kernel, text: str) -> bool:
    """Returns True for a declaration, and for a macro that the old file used."""
    macro = re.match(r"#[ \t]*define[ \t]+(\w+)", text)
    return macro is None or len(re.findall(rf"\b{macro[1]}\b", without_comments(old.unit.text))) > 1


def without_unused_headers(old: Kernel, new: Kernel) -> Kernel:
    """Returns the changed file without headers of numeric limits that only the old kernel used."""
    unit = new.unit
    if unit.language == "python" or unit.path.endswith(INCLUDED):
        return new
    own = own_headers(list(pieces_of(without_kernel(old), NAMESPACES)))
    headers = {"".join(words[3:-1]): names for words, names in own.items()}
    edits: list[Edit] = []
    for line in re.finditer(r"^#[ \t]*include[ \t]*<([\w.]+)>[^\n]*\n", unit.text, re.MULTILINE):
        names = headers.get(line[1])
        if (
            names is not None
            and names.search(without_comments(old.unit.text))
            and not names.search(without_comments(new.unit.text))
        ):
            alone = unit.text[: line.start()].endswith("\n\n") and unit.text[line.end() :].startswith("\n")
            edits.append((line.start(), line.end() + alone, ""))
    return apply_edits(new, edits) if edits else new


def _own(kernel: Kernel) -> dict[str, tuple[int, int, str]]:
    """Returns the parts that only the kernel or a launch uses, by name: offsets and text.

    The result is empty for a Python file and for a header.
    """
    unit = kernel.unit
    if unit.language == "python" or unit.path.endswith(INCLUDED):
        return {}
    text = unit.text
    for start, end in filter(None, [(kernel.start, kernel.end), kernel.contract_span]):
        blank = re.sub(r"[^\n]", " ", text[start:end])
        text = text[:start] + (";" + blank[1:] if start == kernel.start else blank) + text[end:]
    pieces = list(pieces_of(text, NAMESPACES, launch_numbers(text)))
    own, raw = own_helpers(pieces), text.encode("utf-8", "surrogatepass")
    found = {}
    for piece in pieces:
        if piece.words in own:
            ends = (piece.node.start_byte, piece.node.end_byte)
            start, end = (len(raw[:offset].decode("utf-8", "surrogatepass")) for offset in ends)
            found[next(iter(names_of(piece.node)))[1]] = start, end, piece.text
    for name, piece in own_macros(pieces).items():
        start = len(raw[: piece.node.start_byte].decode("utf-8", "surrogatepass"))
        found[name] = start, start + len(piece.text.rstrip()), piece.text.rstrip()
    return found


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _in_launches(kernel: Kernel, name: str) -> bool:
    """Returns True if launches in the file use the name, so that its value may change later."""
    return any(_uses(launch, name) for launch in re.findall(r"<<<.*?>>>|\bdim3\b[^;]*;", kernel.unit.text, re.DOTALL))


_EMPTY = re.compile(r"^[ \t]*namespace\b[^\n{};]*\{\s*\}[^\n]*\n", re.MULTILINE)


def _without(kernel: Kernel, spans: list[tuple[int, int]]) -> Kernel:
    text = kernel.unit.text
    gone: list[tuple[int, int, bool]] = []
    for start, end in sorted(spans):
        line = text.rfind("\n", 0, start) + 1
        if text[line:start].strip():
            continue
        first = line
        while first > 0 and re.match(r"\s*//", text[(above := text.rfind("\n", 0, first - 1) + 1) : first]):
            first = above
        header = not text[:first].strip()
        if header or _tells_of(kernel, text[first:line]):  # the file's comment, or the kernel's
            first = line
        after = text.find("\n", end) + 1 or len(text)
        if text[end:after].strip() and not text[end:after].lstrip().startswith("//"):
            continue
        if gone and gone[-1][1] == first:
            first, _, header = gone.pop()
        gone.append((first, after, header))
    edits: list[Edit] = []
    for first, after, header in gone:
        blank = text[after : after + 1] == "\n" and (header or text[max(first - 2, 0) : first] in ("\n\n", "{\n"))
        edits.append((first, after + blank, ""))
    return _without_empty_namespaces(kernel, apply_edits(kernel, edits)) if edits else kernel


def _without_empty_namespaces(old: Kernel, new: Kernel) -> Kernel:
    """Returns the changed file without namespaces that have lost all their parts."""
    edits: list[Edit] = []
    for found in _EMPTY.finditer(new.unit.text):
        start, end = found.span()
        blank = new.unit.text[max(start - 2, 0) : start] == "\n\n" and new.unit.text[end : end + 1] == "\n"
        edits += [(start, end + blank, "")] * (found[0] not in old.unit.text)
    return apply_edits(new, edits) if edits else new


def _tells_of(kernel: Kernel, comment: str) -> bool:
    """Returns True if a comment names several parameters of the kernel."""
    words = set(re.findall(r"\w+", comment))
    return sum(one.name in words for one in kernel.signature.parameters) > 1


_LITERAL = re.compile(
    rf"[-+]?(?:{FLOAT_LITERAL.pattern}|{DOUBLE_LITERAL.pattern}|{INTEGER_LITERAL.pattern}|INFINITY|[A-Z]+_MAX)"
)
_DROPPING = re.compile(r"\b(?:fmaxf?|fminf?|__hmax2?|__hmin2?)\s*\(")
_ORDER = frozenset({"<", ">", "<=", ">="})


def changed_values(old: Kernel, new: Kernel, ptx: str) -> str:
    """Returns sentences on the differences, each with a leading blank; empty if there are none.

    Args:
        old: the baseline.
        new: the file with the written kernel; its helpers are in the same unit.
        ptx: the baseline's PTX, which has double arithmetic only if the compiler did not fold it.
    """
    before, after = read_tree(old), read_tree(new)
    if before is None or after is None:
        return ""
    return "".join(f" {one}" for one in (*_doubles(before, after, ptx), *_nans(before, after, old, new)))


def _doubles(before: Tree, after: Tree, ptx: str) -> Iterator[str]:
    written = code(after)
    if not re.search(r"\.f64\b", ptx) or re.search(r"\bdouble\b", written + code(before)):
        return
    literals = dict.fromkeys(
        text
        for node in before.walk("number_literal")
        if DOUBLE_LITERAL.fullmatch(text := before.text(node)) and not FLOAT_LITERAL.fullmatch(text)
    )
    if literals:
        shown = ", ".join([*literals][:3])
        yield f"The double literal{'s' * (len(literals) > 1)} {shown} made the old kernel compute in double; this one computes in float."
    else:
        yield "The old kernel computed in double in part; this one computes in float."


def _nans(before: Tree, after: Tree, old: Kernel, new: Kernel) -> Iterator[str]:
    known = set(old.unit.text.split("\n"))
    fresh = "\n".join(line.partition("//")[0] for line in new.unit.text.split("\n") if line not in known)
    was, now = _kinds(before, code(before)), _kinds(after, fresh)
    if was == {"drops"} and now == {"keeps"}:
        yield "NaN that the old kernel dropped in a maximum or minimum now reaches the result, as in the reference."
    elif was == {"keeps"} and now == {"drops"}:
        yield "NaN that the old kernel passed on through a maximum or minimum is dropped now."


def _kinds(tree: Tree, text: str) -> set[str]:
    """Returns how a kernel's maxima and minima treat NaN: a set of `drops` and `keeps`, empty without any."""
    found = {"drops"} if _DROPPING.search(text) else set()
    if re.search(r"\bisnan\s*\(", text):
        return {*found, "keeps"}
    for node in tree.walk("conditional_expression", "if_statement"):
        kind = _kind(tree, node)
        found |= {kind} if kind else set()
    return found


def _kind(tree: Tree, node: Node) -> str:
    """Returns how a maximum or minimum by comparison treats NaN: `drops` or `keeps`; empty for other statements."""
    condition = node.child_by_field_name("condition")
    while condition is not None and condition.type in ("parenthesized_expression", "condition_clause"):
        condition = next(iter(condition.named_children), None)
    if condition is None or condition.type != "binary_expression" or len(condition.named_children) != 2:
        return ""
    operator = condition.child_by_field_name("operator")
    sides = [_plain_text(tree, one) for one in condition.named_children]
    if operator is None or tree.text(operator) not in _ORDER or all(map(_LITERAL.fullmatch, sides)):
        return ""
    for taken, left in _choices(tree, node):
        if sorted((taken, left)) == sorted(sides):
            return "keeps" if _LITERAL.fullmatch(taken) else "drops"
    return ""


def _choices(tree: Tree, node: Node) -> Iterator[tuple[str, str]]:
    """Yields pairs of the value chosen if the condition holds, and the value kept if it does not."""
    if node.type == "conditional_expression":
        sides = [node.child_by_field_name(one) for one in ("consequence", "alternative")]
        if sides[0] is not None and sides[1] is not None:
            yield _plain_text(tree, sides[0]), _plain_text(tree, sides[1])
        return
    consequence = node.child_by_field_name("consequence")
    if consequence is None or node.child_by_field_name("alternative") is not None:
        return
    for one in tree.walk("assignment_expression", under=consequence):
        left, right = one.child_by_field_name("left"), one.child_by_field_name("right")
        if left is not None and right is not None:
            yield _plain_text(tree, right), _plain_text(tree, left)


def _plain_text(tree: Tree, node: Node) -> str:
    return re.sub(r"\s+", "", tree.text(node))
