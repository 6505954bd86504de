"""Finds the kernels of CUDA text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from kernelmate.caching import text_cache
from kernelmate.errors import SourceError
from kernelmate.records import Kernel, Signature, Unit
from kernelmate.source.dtypes import ENUM, c_type_dtype
from kernelmate.source.launches import launch_site, launches_by_kernel
from kernelmate.source.signature import literal_integers, read_parameters, read_template, spell
from kernelmate.source.tokens import LexedText, Token, closing, closing_angle, lex, name_before

_NOT_NAMES = frozenset(
    [
        "__launch_bounds__",
        "__attribute__",
        "__align__",
        "alignas",
        "__declspec",
        "noexcept",
        "__cluster_dims__",
        "__maxnreg__",
        "__block_size__",
        "decltype",
        "requires",
    ]
)
_HEAD_WORDS = frozenset(
    [
        "template",
        "extern",
        "static",
        "inline",
        "__inline__",
        "__forceinline__",
        "__noinline__",
        "constexpr",
        "void",
        "__attribute__",
        "__launch_bounds__",
        "__cluster_dims__",
        "__maxnreg__",
    ]
)


@dataclass(slots=True)
class Definition:
    """One `__global__` function with a body; indices are into `Source.code`."""

    name: str
    name_index: int
    head: int
    keyword: int
    parameters: tuple[int, int]
    body: int
    extern_c: bool
    specialised: bool
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed text: its code tokens, definitions, and type aliases."""

    lexed: LexedText
    code: tuple[Token, ...]
    definitions: tuple[Definition, ...]
    instantiations: tuple[tuple[str, str], ...]
    aliases: Mapping[str, str]


@dataclass(slots=True)
class _Scope:
    """Kind of an open brace: of a namespace, `extern "C"`, a kernel's body, or anything else."""

    namespace: str = ""
    extern_c: bool = False
    definition: Definition | None = None


@dataclass(slots=True)
class _Branch:
    """An open `#if`: the open braces before it and after its first live branch, and whether its present branch counts.

    Only the literals 0 and 1 are evaluated; every other condition is assumed to hold in some build.
    """

    before: list[_Scope]
    always_dead: bool
    dead: bool
    taken: bool
    after: list[_Scope] | None = None


@dataclass(slots=True)
class _Scan:
    """State of the single pass over the code tokens that finds definitions."""

    lexed: LexedText
    code: Sequence[Token]
    globals: frozenset[str]
    stack: list[_Scope] = field(default_factory=list)
    branches: list[_Branch] = field(default_factory=list)
    bodies: dict[int, Definition] = field(default_factory=dict)
    definitions: list[Definition] = field(default_factory=list)
    instantiations: list[tuple[str, str]] = field(default_factory=list)
    boundary: int = 0
    heads_until: int = 0


@text_cache(32)
def read_source(text: str) -> Source:
    """Parses CUDA text. Never raises: incomplete code yields what can be recognised."""
    lexed = lex(text)
    code, directives = lexed.code, lexed.directives
    scan = _Scan(lexed, code, _global_words(directives))
    conditions = _conditions(code, directives)
    words = scan.globals | {"template", "{", "}", ";"}
    next_condition = 0
    for index in [index for index, word in enumerate(lexed.words) if word in words]:
        while next_condition < len(conditions) and conditions[next_condition][0] <= index:
            _step_condition(scan, conditions[next_condition])
            next_condition += 1
        if not (scan.branches and scan.branches[-1].dead):
            _step(scan, index, code[index])
    return Source(lexed, code, tuple(scan.definitions), tuple(scan.instantiations), _aliases(text, code, directives))


UNCLOSED = "The parameter list of this __global__ function is not closed."
"""Message for what `unclosed_heads` finds."""


def unclosed_heads(text: str) -> tuple[tuple[int, int], ...]:
    """Returns line and column of each `__global__` whose parameter list is not closed before its body, so that it is no kernel."""
    source = read_source(text)
    read = {definition.keyword for definition in source.definitions}
    found = []
    for index in [index for index, word in enumerate(source.lexed.words) if word == "__global__"]:
        if index in read:
            continue
        token, depth = source.code[index], 0
        for following in source.code[index + 1 :]:
            depth += {"(": 1, ")": -1}.get(following.text, 0)
            if following.text in ("{", ";", "__global__"):
                break
        if depth > 0:
            found.append(source.lexed.position(token.start))
    return tuple(found)


def refuse_unclosed(unit: Unit) -> None:
    """Refuses a unit with a `__global__` function whose parameter list is not closed.

    Raises:
        SourceError: at the first such function.
    """
    for place in unclosed_heads(unit.text):
        line, column = unit.locate(*place)
        raise SourceError(UNCLOSED, file=unit.path, line=line, column=column, hint="Close its parenthesis.")


def _global_words(directives: Sequence[Sequence[Token]]) -> frozenset[str]:
    """Returns `__global__` and the object-like macros of this text that expand to something with it."""
    words = {"__global__"}
    for line in directives:
        is_define = len(line) > 3 and line[1].text == "define" and line[3].start > line[2].end
        if is_define and any(token.text in words for token in line[3:]) and "(" not in [t.text for t in line[3:]]:
            words.add(line[2].text)
    return frozenset(words)


def macros_with_kernels(text: str) -> tuple[tuple[str, int], ...]:
    """Returns the function-like macros of a text whose calls define kernels, with their lines."""
    lexed = lex(text)
    found = []
    for line in lexed.directives:
        is_macro = len(line) > 3 and line[1].text == "define" and line[3].start == line[2].end and line[3].text == "("
        words = [token.text for token in line[3:]] if is_macro else []
        if "__global__" in words and "{" in words:
            found.append((line[2].text, lexed.position(line[0].start)[0]))
    return tuple(found)


def _conditions(code: Sequence[Token], directives: Sequence[Sequence[Token]]) -> list[tuple[int, str]]:
    """Returns, for every preprocessor conditional, the index of the code token after it, and its effect on the branches."""
    found = []
    index = 0
    for line in directives:
        while index < len(code) and code[index].start < line[0].start:
            index += 1
        word = line[1].text if len(line) > 1 else ""
        if word in ("if", "ifdef", "ifndef"):
            value = line[2].text if word == "if" and len(line) == 3 else ""
            found.append((index, f"if {value}" if value in ("0", "1") else "if"))
        else:
            found.append((index, word if word in ("else", "elif", "elifdef", "elifndef", "endif") else "line"))
    return found


def _step_condition(scan: _Scan, condition: tuple[int, str]) -> None:
    """Processes a conditional: each branch starts with the open braces before the `#if`.

    Code after it, with those of the first live branch.
    """
    index, kind = condition
    if index >= scan.heads_until:
        scan.boundary = max(scan.boundary, index)
    if kind.startswith("if"):
        dead = bool(scan.branches) and scan.branches[-1].dead
        scan.branches.append(
            _Branch(list(scan.stack), always_dead=dead, dead=dead or kind == "if 0", taken=kind == "if 1")
        )
    elif kind.startswith("el") and scan.branches:
        branch = scan.branches[-1]
        if branch.after is None and not branch.dead:
            branch.after = scan.stack
        scan.stack = list(branch.before)
        branch.dead = branch.always_dead or branch.taken
    elif kind == "endif" and scan.branches:
        branch = scan.branches.pop()
        if branch.after is not None:
            scan.stack = branch.after


def _step(scan: _Scan, index: int, token: Token) -> None:
    if token.text == "template" and index >= scan.heads_until:
        # A directive between a template line and its function must not split the function's head.
        scan.heads_until = _head_end(scan.code, index)
    if token.text in scan.globals and token.kind == "word" and not _inside_head(scan, index):
        _read_head(scan, index)
    if token.kind != "symbol":
        return
    if token.text == "{":
        scan.stack.append(_scope(scan, index))
    elif token.text == "}" and scan.stack:
        definition = scan.stack.pop().definition
        if definition is not None and definition.end is None:
            definition.end = index
    if token.text in "{};":
        scan.boundary = index + 1


def _head_end(code: Sequence[Token], index: int) -> int:
    for position in range(index, min(index + 400, len(code))):
        if code[position].text in ("{", ";"):
            return position
    return index


def _inside_head(scan: _Scan, index: int) -> bool:
    return bool(scan.definitions) and scan.definitions[-1].keyword < index < scan.definitions[-1].body


def _scope(scan: _Scan, index: int) -> _Scope:
    definition = scan.bodies.get(index)
    if definition is not None:
        return _Scope(definition=definition)
    head = [token.text for token in scan.code[scan.boundary : index]]
    if "namespace" in head and "using" not in head:
        words = " ".join(word for word in head[head.index("namespace") + 1 :] if word != "inline")
        # Attributes, and macros that stand for some, precede the name.
        name = re.search(r"[^\W\d]\w*(?: :: [^\W\d]\w*)*\Z", words)
        return _Scope(namespace=name[0].replace(" ", "") if name is not None else "")
    return _Scope(extern_c=head[-2:] == ["extern", '"C"'])


def _read_head(scan: _Scan, keyword: int) -> None:
    """Parses what follows `__global__`: a definition, an explicit instantiation, or something else."""
    code, index = scan.code, keyword + 1
    while index < len(code) and code[index].text not in (";", "{", "}", "="):
        text = code[index].text
        if text == "<" and code[index - 1].kind == "word":
            end = closing_angle(code, index)
        elif text == "[":
            end = closing(code, index)
        elif text == "(":
            end = closing(code, index)
            if end is None:
                return
            if _ends_head(scan, keyword, index, end):
                return
        else:
            end = index
        index = index + 1 if end is None else end + 1


def _ends_head(scan: _Scan, keyword: int, opening: int, end: int) -> bool:
    """Returns True if the parentheses at `opening` are the parameter list, and records the definition."""
    code = scan.code
    after = end + 1
    while after < len(code) and code[after].text in ("noexcept", "const"):
        after += 1
    follows = code[after].text if after < len(code) else ""
    named, specialised = name_before(code, opening)
    if named is None or code[named].text in _NOT_NAMES or follows not in ("{", ";"):
        return False
    first = named
    while first >= 2 and code[first - 1].text == "::" and code[first - 2].kind == "word":
        first -= 2
    name = "".join(token.text for token in code[first : named + 1])
    namespaces = "::".join(scope.namespace for scope in scan.stack if scope.namespace)
    qualified = f"{namespaces}::{name}" if namespaces else name
    head = _head_start(scan, keyword)
    if follows == ";":
        if specialised and code[head].text == "template":
            scan.instantiations.append((qualified, spell(code[named:opening])))
        return True
    # Template arguments of a specialisation may follow from its parameters: `template <> __global__ void k(const half* x)`.
    specialised = specialised or [token.text for token in code[head : head + 3]] == ["template", "<", ">"]
    extern_c = _has_extern_c(code[head:keyword]) or any(scope.extern_c for scope in scan.stack)
    found = Definition(qualified, named, head, keyword, (opening, end), after, extern_c, specialised)
    scan.definitions.append(found)
    scan.bodies[after] = found
    return True


def _has_extern_c(tokens: Sequence[Token]) -> bool:
    texts = [token.text for token in tokens]
    return any(pair == ("extern", '"C"') for pair in pairwise(texts))


def _head_start(scan: _Scan, keyword: int) -> int:
    """Returns the index of the definition's first token: its template line or first specifier."""
    code = scan.code
    for index in range(scan.boundary, keyword):
        if code[index].text in _HEAD_WORDS or (code[index].text == "[" and code[index + 1].text == "["):
            return index
    start = keyword
    line = scan.lexed.line_start(code[keyword].start)
    while start > scan.boundary and code[start - 1].start >= line:
        start -= 1
    return start


def _aliases(text: str, code: Sequence[Token], directives: Sequence[Sequence[Token]]) -> dict[str, str]:
    """Returns type names that the text defines by `using`, `typedef` or `#define`, with the types they stand for."""
    found: dict[str, str] = {}
    meanings: dict[str, set[str | None]] = {}

    def mean(name: str, meaning: str) -> None:
        found[name] = meaning
        meanings.setdefault(name, set()).add(c_type_dtype(meaning)[0])

    for index, token in enumerate(code) if "using" in text or "typedef" in text or ENUM in text else ():
        if token.text == "using" and index + 2 < len(code) and code[index + 2].text == "=":
            end = _statement_end(code, index)
            mean(code[index + 1].text, spell(code[index + 3 : end]))
        elif token.text == "typedef":
            end = _statement_end(code, index)
            if end - index > 2 and code[end - 1].kind == "word":
                mean(code[end - 1].text, spell(code[index + 1 : end - 1]))
        elif token.text == ENUM:
            found.update(_enumerations(code, index))
    for line in reversed(directives):
        words = [token.text for token in line]
        if len(line) > 3 and words[1] == "define" and words[3] != "(" and all(t.kind == "word" for t in line[2:]):
            mean(words[2], " ".join(words[3:]))
    # Which of several types a build takes is not known: `active_alias` tells it of a build without options.
    return {name: meaning for name, meaning in found.items() if len(meanings.get(name, {None}) - {None}) < 2}


_BRANCH = re.compile(
    r"[ \t]*#[ \t]*(ifdef|ifndef|if|elif|else|endif)\b[ \t]*(!?)[ \t]*(?:defined[ \t]*\(?[ \t]*)?(\w*)[ \t)]*(.*)"
)


def active_alias(text: str, name: str) -> str | None:
    """Returns the type that a name of branches such as `#ifdef DOUBLE` stands for without options; None if it is not known."""
    defined = re.compile(
        rf"[ \t]*(?:#[ \t]*define[ \t]+{name}[ \t]+|typedef[ \t]+|using[ \t]+{name}[ \t]*=)([\w \t:]+?)(?:[ \t]+{name})?[ \t]*(?:;.*|//.*)?"
    )
    conditions: list[bool | None] = []
    types: list[str] = []
    for line in text.split("\n"):
        branch, meaning = _BRANCH.match(line), defined.fullmatch(line) if name in line else None
        if branch is None:
            if meaning is not None and False not in conditions:
                types.append(meaning[1])
        elif branch[1].startswith("if"):
            conditions.append(_holds(branch, text))
        elif conditions and branch[1] == "endif":
            conditions.pop()
        elif conditions:
            conditions[-1] = None if branch[1] == "elif" or conditions[-1] is None else not conditions[-1]
    return types[0] if types and len({c_type_dtype(one)[0] for one in types}) == 1 else None


def _holds(branch: re.Match[str], text: str) -> bool | None:
    """Returns the value of a test for one macro that the text alone defines, or of a number; None for another condition."""
    word, negated, name, rest = branch.groups()
    if rest.strip() and not rest.strip().startswith(("//", "/*")):
        return None
    if name.isdecimal():
        return name != "0"
    if word == "if" and "defined" not in branch[0]:
        return None
    defined = re.search(rf"^[ \t]*#[ \t]*define[ \t]+{name}\b", text, re.MULTILINE) is not None
    return defined != (word == "ifndef" or bool(negated))


def _enumerations(code: Sequence[Token], index: int) -> Iterator[tuple[str, str]]:
    """Yields the names of the enumeration that begins at a token: before its braces and, for a `typedef`, after them."""
    brace = next((at for at in range(index, len(code)) if code[at].text in ("{", ";", ")")), index)
    end = closing(code, brace) if code[brace].text == "{" else None
    if end is None:
        return
    head = [token.text for token in code[index + 1 : brace] if token.text not in ("class", "struct")]
    kind = f"{ENUM} {' '.join(head[head.index(':') + 1 :]) if ':' in head else 'int'}"
    named = [*head[:1], *(token.text for token in code[end + 1 : end + 2] if code[index - 1].text == "typedef")]
    yield from ((name, kind) for name in named if name.isidentifier())


def _statement_end(code: Sequence[Token], index: int) -> int:
    end = index
    while end < len(code) and code[end].text not in (";", "{", "}"):
        end += 1
    return end


# ------------------------------------------------------------------------------------------------- kernels


@text_cache(64)
def find_definitions(unit: Unit) -> tuple[Kernel, ...]:
    """Returns the kernels of a unit in order, without contract blocks."""
    source = read_source(unit.text)
    lexed = source.lexed
    kept = [definition for definition in source.definitions if not definition.specialised]
    launches = launches_by_kernel(unit.text, (definition.name for definition in kept))
    kernels = []
    for definition in kept:
        name_token = source.code[definition.name_index]
        line, column = lexed.position(name_token.start)
        sites = [launch_site(lexed, launch, definition.name) for launch in launches.get(definition.name, ())]
        kernels.append(
            Kernel(
                unit=unit,
                name=definition.name,
                signature=_signature(source, definition),
                start=source.code[definition.head].start,
                end=_end_offset(source, definition),
                line=line,
                column=column,
                launches=tuple(sites),
            )
        )
    return tuple(kernels)


def _end_offset(source: Source, definition: Definition) -> int:
    """Returns the offset after the closing brace; for an unclosed body, that of the next definition or the end."""
    if definition.end is not None:
        return source.code[definition.end].end
    later = [other.head for other in source.definitions if other.head > definition.body]
    last = (later[0] if later else len(source.code)) - 1
    return source.code[max(last, definition.body)].end


def _signature(source: Source, definition: Definition) -> Signature:
    code = source.code
    opening, end = definition.parameters
    names: tuple[str, ...] = ()
    bounds: tuple[int, ...] = ()
    index = definition.head
    while index < opening:
        if code[index].text == "template" and code[index + 1].text == "<":
            more, index = read_template(code, index + 1)
            names += more
            continue
        if code[index].text == "__launch_bounds__" and code[index + 1].text == "(":
            close = closing(code, index + 1)
            if close is not None:
                bounds = literal_integers(code, index + 2, close)
        index += 1
    return Signature(
        parameters=read_parameters(code, opening + 1, end, source.lexed.position, source.aliases),
        template_parameters=names,
        launch_bounds=bounds,
        extern_c=definition.extern_c,
    )
