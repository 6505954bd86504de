"""Parses NVRTC's log into diagnostics in the user's files."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

from kernelmate.compiler.prelude import PRELUDE_NAME
from kernelmate.records import Diagnostic, Severity, Unit

UNIT_NAME = "kernel.cu"
"""File name of the unit's text in the compiler; it is fixed, so that code does not depend on the user's file name."""

_HEAD = re.compile(
    r"^(?:(?P<file>[^\n]*?)\((?P<line>\d+)\)|(?P<end>At end of source)): "
    r"(?P<kind>catastrophic error|internal error|error|warning|remark|note)(?: #(?P<code>[\w-]+))?: (?P<message>.*)$"
)
_NVRTC = re.compile(r"^nvrtc: (?P<kind>error|warning): (?P<message>.*)$")
_ASSEMBLER = re.compile(
    r"^\s*ptxas (?:application ptx input, line (?P<line>\d+); )?(?P<kind>error|warning|fatal)\s*:\s*(?P<message>.*)$"
)
_SUMMARY = re.compile(
    r"^(?:\d+ (?:catastrophic )?errors? detected| and \d+ catastrophic|Compilation terminated|Remark: The warnings can"
    r"|ptxas (?:info|         \.)|ptxas fatal   : Ptx assembly aborted)"
)
_PLACE = re.compile(r"\bat line (?P<line>\d+)(?: of (?P<file>[^\s)]+))?")
_UNDEFINED = re.compile(r'identifier "(?:\w+::)*(\w+)" is undefined|has no member "(\w+)"')
_SEVERITIES: Mapping[str, Severity] = {
    "catastrophic error": "error", "internal error": "error", "error": "error", "fatal": "error",
    "warning": "warning", "remark": "note", "note": "note",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sources:
    """Mapping from the compiler's source positions to positions in the user's files.

    Attributes:
        unit: the compiled text, called `UNIT_NAME`.
        headers: the file of each in-memory header.
        host_functions: host functions that were left out.
        ptx: the PTX given to ptxas, or empty.
        place: line and column in the unit for messages that have no position.
    """

    unit: Unit
    headers: Mapping[str, str]
    host_functions: Collection[str] = ()
    ptx: str = ""
    place: tuple[int, int] = (1, 1)

    def locate(self, file: str, line: int, column: int | None) -> tuple[str, int, int | None]:
        """Converts file, line and column in the compiler's messages to those of the user's file."""
        if file == UNIT_NAME:
            return (self.unit.path, *self.unit.locate(line, column))
        return self.headers.get(file, file), line, column


def read_log(log: str, sources: Sources) -> tuple[Diagnostic, ...]:
    """Returns each diagnostic of a compilation once, in the log's order; notes are appended to their message."""
    found: list[Diagnostic] = []
    for lines in _messages(log):
        message = _read_message(lines, sources)
        if message is None:
            continue
        if message.severity == "note" and found and _HEAD.match(lines[0]):
            found[-1] = _explained(found[-1], message, sources)
        else:
            found.append(message)
    # Redefinitions by headers of declarations in the prelude do not concern the user.
    return tuple(d for d in dict.fromkeys(found) if PRELUDE_NAME not in d.message or d.severity == "error")


def _messages(log: str) -> Iterator[list[str]]:
    """Yields groups of the log's lines, each starting with the message line."""
    group: list[str] = []
    for line in log.replace("\0", "").splitlines():
        idle = not line.strip() or _SUMMARY.match(line)
        starts = not idle and (_HEAD.match(line) or _NVRTC.match(line) or _ASSEMBLER.match(line))
        if starts or idle:
            if group:
                yield group
            group = [line] if starts else []
        elif group:
            group.append(line)
    if group:
        yield group


def _read_message(lines: Sequence[str], sources: Sources) -> Diagnostic | None:
    head = _HEAD.match(lines[0])
    if head is not None:
        return _from_front_end(head, lines[1:], sources)
    option = _NVRTC.match(lines[0])
    if option is not None:
        text = f"NVRTC: {option['message']}"
        return Diagnostic(_SEVERITIES[option["kind"]], text, *sources.locate(UNIT_NAME, *sources.place))
    assembler = _ASSEMBLER.match(lines[0])
    return None if assembler is None else _from_assembler(assembler, sources)


def _from_front_end(head: re.Match[str], body: Sequence[str], sources: Sources) -> Diagnostic:
    column: int | None = None
    extra: list[str] = []
    for index, line in enumerate(body):
        if line.strip() == "^" and index and column is None:
            column = _column(body[index - 1], line)
            extra.pop()
        else:
            extra.append(line)
    name = UNIT_NAME if head["end"] else head["file"]
    text = "\n".join([head["message"], *(_indent(line) for line in extra)])
    text = _with_places(text, name, sources) + _host_hint(head["message"], sources)
    severity = _SEVERITIES[head["kind"]]
    if head["end"]:
        last = sources.unit.text.rstrip().count("\n") + 1
        return Diagnostic(severity, text, *sources.locate(UNIT_NAME, last, None), head["code"])
    return Diagnostic(severity, text, *sources.locate(name, int(head["line"]), column), head["code"])


_SYMBOL = re.compile(r"\b_Z\w+")
_NAME_LENGTH = re.compile(r"[KVrLO]*(\d+)")


def demangled(symbol: str) -> str:
    """Returns the qualified name that a mangled name encodes (Itanium C++ ABI, 5.1), without parameters.

    A variable of a function is described with it: `tile of matmul`. Other symbols are returned unchanged.
    """
    inner = symbol.startswith("_ZZ") and "E" in symbol
    outer, _ = _nested_name(symbol, 3 if inner else 2)
    if not outer:
        return symbol
    local = _nested_name(symbol, symbol.rindex("E") + 1)[0] if inner else ""
    return f"{local} of {outer}" if local else outer


def _nested_name(symbol: str, at: int) -> tuple[str, int]:
    names = []
    nested = symbol[at : at + 1] == "N"
    at += nested
    while (length := _NAME_LENGTH.match(symbol, at)) is not None:
        end = length.end() + int(length[1])
        name = symbol[length.end() : end]
        names.append("(anonymous namespace)" if name.startswith("_GLOBAL__N_") else name)
        at = end
        if not nested:
            break
    return "::".join(names), at


def _column(shown: str, caret: str) -> int:
    """Returns the column, in characters, that a caret points at.

    Both lines are indented by two, and the caret's offset counts bytes.
    """
    before = shown[2:].encode()[: max(caret.index("^") - 2, 0)]
    return len(before.decode(errors="ignore")) + 1


def _indent(line: str) -> str:
    return "  " + line.strip()


def _with_places(text: str, file: str, sources: Sources) -> str:
    """Returns the lines of a message with the user's line numbers."""

    def user_place(match: re.Match[str]) -> str:
        named = match["file"] or file
        path, line, _ = sources.locate(named, int(match["line"]), None)
        return f"at line {line}" if match["file"] is None else f"at line {line} of {path}"

    return _PLACE.sub(user_place, text)


def _host_hint(message: str, sources: Sources) -> str:
    undefined = _UNDEFINED.search(message)
    name = (undefined[1] or undefined[2]) if undefined else None
    if name not in sources.host_functions:
        return ""
    return f"\n  {name} is a host function; declare it __device__ to call it from a kernel"


def _explained(found: Diagnostic, note: Diagnostic, sources: Sources) -> Diagnostic:
    """Returns a diagnostic with a note appended.

    A diagnostic that has no column takes the note's position if both are in the unit.
    """
    file = "" if note.file == found.file else f" of {note.file}"
    text = f"{found.message}\n  note: {note.message} (line {note.line}{file})"
    at_end = found.column is None and found.file == sources.unit.path and note.column is not None
    if at_end and note.file == found.file:
        return replace(found, message=text, line=note.line, column=note.column)
    return replace(found, message=text)


# -------------------------------------------------------------------------------------------------------- ptxas


_SPECIFIC = re.compile(r"Instruction 'wgmma.*not supported on \.target 'sm_90'")
"""Messages about Hopper's matrix instructions in code for sm_90, which later GPUs must run too."""


def _from_assembler(match: re.Match[str], sources: Sources) -> Diagnostic:
    severity, message = _SEVERITIES[match["kind"]], match["message"].strip()
    message = _SYMBOL.sub(lambda symbol: demangled(symbol[0]), message)
    place = sources.locate(UNIT_NAME, *sources.place)
    if match["line"] is not None:
        source = _source_of_ptx(sources.ptx, int(match["line"]), (UNIT_NAME, *sources.headers))
        message = f"ptxas: {message}"
        if _SPECIFIC.search(message):
            message += "; this needs code for that GPU alone: --target sm_90a"
        if source is not None:
            place = sources.locate(*source)
    return Diagnostic(severity, message, *place)


def _source_of_ptx(ptx: str, line: int, known_names: Iterable[str]) -> tuple[str, int, int | None] | None:
    """Returns file, line and None for the column of a PTX line, from the preceding `.loc` directive."""
    locations = [(number, m) for number, m in _matches(ptx, r"\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")]
    index = bisect_right([number for number, _ in locations], line) - 1
    if index < 0:
        return None
    files = {m[1]: m[2] for _, m in _matches(ptx, r'\s*\.file\s+(\d+)\s+"([^"]*)"')}
    found = locations[index][1]
    named = files.get(found[1], UNIT_NAME)
    name = next((known for known in known_names if named == known or named.endswith(f"/{known}")), named)
    return name, int(found[2]), None


def _matches(text: str, pattern: str) -> Iterator[tuple[int, re.Match[str]]]:
    compiled = re.compile(pattern)
    for number, line in enumerate(text.splitlines(), 1):
        match = compiled.match(line)
        if match is not None:
            yield number, match


def error_lines(log: str) -> frozenset[tuple[str | None, int]]:
    """Returns the lines at which the compiler reports errors, each with the name of its header, or None for the unit."""
    matches = (_HEAD.match(line) for line in log.splitlines())
    return frozenset(
        (None if match["file"] == UNIT_NAME else match["file"], int(match["line"]))
        for match in matches
        if match is not None and match["kind"] == "error" and match["line"] is not None
    )


REMOVED = ", which CUDA 12 removed"
"""End of a message about something that CUDA no longer has."""

_REFERENCE = re.compile(r"\b(texture|surface)\s*<[^<>;]*>\s*([^\W\d]\w*)\s*[;=]")


def with_removed_references(found: tuple[Diagnostic, ...], texts: Iterable[str]) -> tuple[Diagnostic, ...]:
    """Appends to errors about texture and surface references that CUDA no longer has them.

    Args:
        found: what the compiler said.
        texts: the source texts that may declare references, such as `texture<float, 2> image;`.
    """
    kinds = {name: kind for text in texts for kind, name in _REFERENCE.findall(text)}
    told = []
    for one in found:
        name = re.match(r'identifier "(\w+)" is undefined', one.message)
        template = re.match(r"(texture|surface) is not a template", one.message)
        if name is not None and name[1] in kinds and one.severity == "error":
            kind = kinds[name[1]]
            text = f"{one.message}\n  {name[1]} is a {kind} reference{REMOVED}: pass a {kind} object"
            one = replace(one, message=text)
        elif template is not None and one.severity == "error":
            text = f"{one.message}\n  This declares a {template[1]} reference{REMOVED}: pass a {template[1]} object"
            one = replace(one, message=text)
        told.append(one)
    return tuple(told)


def with_conditions(found: tuple[Diagnostic, ...], texts: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """Appends to errors the conditions of the preprocessor that cause them.

    To errors about undefined names these are the conditions around their definition, one of which does not hold; to those of
    an `#error` line the conditions around it, which hold.

    Args:
        found: what the compiler said.
        texts: the source texts by path.
    """
    told = []
    for one in found:
        name = re.match(r'identifier "(\w+)" is undefined', one.message)
        said = _conditional(name[1], texts) if name is not None and one.severity == "error" else None
        if one.message.startswith("#error directive") and one.line is not None:
            said = _reached(texts.get(one.file or "", ""), one.line)
        told.append(one if said is None else replace(one, message=f"{one.message}\n  {said}"))
    return tuple(told)


_BRANCH = re.compile(r"[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b")
_GUARD = re.compile(r"#[ \t]*(?:ifndef[ \t]+|if[ \t]*![ \t]*defined[ \t(]*)(\w+)")


def _conditional(name: str, texts: Mapping[str, str]) -> str | None:
    """Returns a sentence on the first definition of a name that a preprocessor condition guards; None if none does."""
    defined = re.compile(
        rf"[ \t]*(?:#[ \t]*define[ \t]+{name}\b|(?:typedef\b.*[\s*]|using[ \t]+){name}[ \t]*[;=]|(?:struct|class|enum)[ \t]+{name}\b[^;]*$)"
    )
    for path, text in texts.items():
        for number, line, around in _under_conditions(text) if name in text else ():
            if around and defined.match(line):
                named = " and ".join(f"`{one}`" for one in around)
                said = "which does not hold" if len(around) == 1 else "which do not all hold"
                return f"{PurePath(path).name}:{number} defines it under {named}, {said}: give -D as the build does"
    return None


def inactive_under(text: str, line: int) -> str:
    """Returns a clause on the conditions of the preprocessor around a line, counted from 1, one of which does not hold."""
    around = next((around for number, _, around in _under_conditions(text) if number == line), [])
    if not around:
        return "a condition around it does not hold with these options"
    named = " and ".join(f"`{one}`" for one in around)
    verb = "does not" if len(around) == 1 else "do not all"
    return f"{named} around it {verb} hold with these options: give {_options(text, line)} as the build does"


def _reached(text: str, line: int) -> str | None:
    """Returns a sentence on the conditions around a line, all of which hold; None without any."""
    around = next((around for number, _, around in _under_conditions(text) if number == line), [])
    named = " and ".join(f"`{one}`" for one in around)
    return f"it is reached under {named}: give {_options(text, line)} as the build does" if named else None


def _options(text: str, line: int) -> str:
    """Returns the options that may change which branch of the conditions around a line is taken; `-D` if none is known.

    They define the macros that the text itself does not, with the values that conditions compare them with.
    """
    chains: list[list[str]] = []
    for one in text.split("\n")[: line - 1]:
        branch = _BRANCH.match(one)
        if branch is not None and branch[1] == "endif":
            del chains[-1:]
        elif branch is not None and branch[1] in ("if", "ifdef", "ifndef"):
            chains.append([one.strip()])
        elif branch is not None and chains:
            chains[-1].append(one.strip())
    is_error = text.split("\n")[line - 1].lstrip().startswith("#")
    found: dict[str, None] = {}
    for chain in reversed(chains):
        # In the only branch of `#ifdef NAME` an `#error` is reached since NAME is defined, and a kernel in that of `#ifndef` is not.
        alone = len(chain) == 1
        for one in chain:
            if not alone or is_error == (_GUARD.match(one) is not None):
                found |= dict.fromkeys(option for option in _defining(one) if not _is_defined_in(text, option))
        if found:
            break
    return " or ".join(list(found)[:3]) or "-D"


def _defining(condition: str) -> Iterator[str]:
    """Yields options for the macros of a condition, those with a known value first."""
    compared = re.findall(r"\b([^\W\d]\w*)\s*==\s*(\w+)", condition)
    yield from (f"-D{name}={value}" for name, value in compared)
    rest = re.sub(r"#[ \t]*\w+|//.*|/\*.*?\*/|\bdefined\b", " ", condition)
    for name in re.findall(r"(?<![\w\"'<])[^\W\d]\w*(?!\s*\()", rest):
        negated = re.search(rf"!\s*defined[ \t(]*{name}\b", condition) is not None and not _GUARD.match(condition)
        if name not in dict(compared) and not name.startswith("__") and not negated:
            asked = re.search(rf"#[ \t]*ifdef\b|(?<!!)\bdefined[ \t(]*{name}\b", condition)
            value = "" if asked else "=1" if re.search(rf"#[ \t]*(?:el)?if[ \t]+{name}\s*\Z", condition) else "=..."
            yield f"-D{name}{value}"


def _is_defined_in(text: str, option: str) -> bool:
    name = option[2:].partition("=")[0]
    return re.search(rf"#[ \t]*define[ \t]+{name}\b", text) is not None


def _under_conditions(text: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yields each line that is no condition with its number and the conditions around it, without the guard of a header."""
    conditions: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        word = _BRANCH.match(line)
        if word is not None:
            conditions = _branches(conditions, word[1], " ".join(line.split()))
        else:
            yield number, line, [one for one in conditions if not _is_guard(one, text)]


def _is_guard(condition: str, text: str) -> bool:
    guard = _GUARD.fullmatch(condition.rstrip(")"))
    return guard is not None and re.search(rf"^[ \t]*#[ \t]*define[ \t]+{guard[1]}\b", text, re.MULTILINE) is not None


def _branches(conditions: list[str], word: str, line: str) -> list[str]:
    """Returns the conditions that are open after a line of the preprocessor."""
    if word in ("if", "ifdef", "ifndef"):
        return [*conditions, line]
    if word == "endif":
        return conditions[:-1]
    *outer, last = conditions or [""]
    return [*outer, f"#else of {last}" if word == "else" else line]


_LACKING = re.compile(r'(?:namespace "(?:at|c10|torch)\b[^"]*"|class "(?:at|c10)::[^"]*") has no member')


def with_standin(found: tuple[Diagnostic, ...]) -> tuple[Diagnostic, ...]:
    """Appends to errors about torch's names that KernelMate's own declarations of torch's types lack them."""
    text = "\n  KernelMate's own declarations of torch's types lack it"
    return tuple(
        replace(one, message=one.message + text) if one.severity == "error" and _LACKING.search(one.message) else one
        for one in found
    )


_NAMED = 4
"""Number of headers that an error names."""


def with_missing(found: tuple[Diagnostic, ...], names: Sequence[str]) -> tuple[Diagnostic, ...]:
    """Appends the first few names of headers that were not found, the probable cause, to the first error."""
    errors = [index for index, one in enumerate(found) if one.severity == "error" and REMOVED not in one.message]
    if not errors:
        return found
    first = errors[0]
    several = list(dict.fromkeys(names))
    more = f" and {len(several) - _NAMED} others" if len(several) > _NAMED + 1 else ""
    named = ", ".join(several[:_NAMED] if more else several)
    text = f"{found[first].message}\n  possible cause: headers that were not found: {named}{more}"
    return (*found[:first], replace(found[first], message=text), *found[first + 1 :])


_DEVICE_LAUNCHES = re.compile(
    r"device-side kernel launch could not be processed|a kernel launch from __device__ or __global__"
)


def with_device_launches(found: Sequence[Diagnostic], kernel: str) -> tuple[Diagnostic, ...]:
    """Replaces errors by notes where all are at launches in device code, which is valid CUDA but not supported."""
    text = f"{kernel} launches a kernel from device code: dynamic parallelism is not supported, so it is neither compiled nor judged"
    errors = [one for one in found if one.severity == "error"]
    if not all(_DEVICE_LAUNCHES.match(one.message) for one in errors):
        return tuple(found)
    return tuple(
        replace(one, severity="note", message=text, code="not-supported") if one in errors else one for one in found
    )
