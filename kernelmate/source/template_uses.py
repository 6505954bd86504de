"""Instances of a template that a project's host code uses: named, launched, instantiated, or passed through functions and macros.

A word in a template argument is replaced by its meaning at that place: a constant or an alias of the enclosing
function, an argument of the macro around it, a template parameter of the function around it, with the arguments of that
function's own uses. The remaining names are visible in device code too.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from kernelmate.records import Kernel
from kernelmate.source.host_declarations import (
    class_bodies,
    declaration,
    definition,
    definitions,
    enclosing_class,
    is_in_template_head,
    is_run_time,
    members_of,
    statement_start,
)
from kernelmate.source.host_text import Head, HostFiles, HostText, host_text, project_state
from kernelmate.source.instances import stands_for, template_arguments
from kernelmate.source.template_parameters import InferredInstance, TemplateParameter, index_types, template_parameters
from kernelmate.source.tokens import closing, closing_angle, lex, split_list

MOST_INSTANCES = 3
"""Maximum number of instances that are judged if the contract names none: the most used ones."""

_MOST_VALUES = 4
_MOST_USES = 24
_DEEPEST = 7
_MOST_STEPS = 3000
_GLOBAL = "\0"
"""Marks a word that is hidden by a local alias of the same name, so that it is not looked up again."""

_WORD = re.compile(r"(?<![\w.\0])(?<!::)(?<!->)[^\W\d]\w*")
_PLAIN = frozenset([
    "bool", "char", "signed", "unsigned", "short", "int", "long", "float", "double", "void", "const", "volatile",
    "true", "false", "sizeof", "nullptr", "wchar_t", "typename", "template", "struct", "class", "std", "cuda",
    "size_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "half",
    "__half", "__half2", "half2", "__nv_bfloat16", "nv_bfloat16", "__nv_bfloat162", "at", "c10", "torch",
    "static_cast",
])  # fmt: skip
_NUMBERS = frozenset(["int", "unsigned", "unsigned int", "size_t", "std::size_t", "int64_t", "long"])
_Place = tuple[HostText, int, dict[str, str]]
"""A token in a text, and the arguments of the macro that is called there."""

_TORCH_DISPATCH = re.compile(r"AT_DISPATCH_(?:ALL|FLOATING|REDUCED|INTEGRAL|COMPLEX|INDEX|V2|SWITCH|CASE)")
_FLOATING = ("float", "at::Half", "double")
_FLOATS = frozenset([*_FLOATING, "half", "__half", "__nv_bfloat16", "nv_bfloat16", "at::BFloat16", "c10::Half"])


def inferred_instances(kernel: Kernel) -> tuple[InferredInstance, ...]:
    """Returns the instances of a template that its file, else its project, uses, the most used first.

    All of them are compiled before any is reported. Runs nothing.
    """
    if not kernel.signature.template_parameters:
        return ()
    unit = kernel.unit
    path = Path(unit.path) if unit.language == "cuda" and not unit.path.startswith("<") else None
    return _instances_of(kernel, path, 0 if path is None else project_state(path))


@lru_cache(maxsize=256)
def _instances_of(kernel: Kernel, path: Path | None, state: int) -> tuple[InferredInstance, ...]:  # noqa: ARG001 -- `state` makes the cache see edits
    unit, parameters = kernel.unit, template_parameters(kernel)
    for wide in (False, True) if path is not None else (False,):
        found = _InstanceSearch(kernel, parameters, HostFiles(unit.text, path, wide)).instances()
        if found:
            return found
    if parameters and all(one.default is not None or one.kind == "pack" for one in parameters):
        return (InferredInstance(f"{kernel.name}<>", "its default template arguments"),)
    return ()


class _InstanceSearch:
    """One search for the instances of one kernel in a set of texts."""

    def __init__(self, kernel: Kernel, parameters: Sequence[TemplateParameter], files: HostFiles) -> None:
        self.kernel = kernel
        self.parameters = parameters
        self.files = files
        self.simple = kernel.name.rpartition("::")[2]
        self._steps = _MOST_STEPS

    def instances(self) -> tuple[InferredInstance, ...]:
        """Returns the instances that are used, ordered by the number of uses, then by position."""
        counted: Counter[str] = Counter()
        origins: dict[str, str] = {}
        uses = itertools.islice(self._uses(), _MOST_USES)
        for host, index, opening in uses:
            for arguments in self._arguments(host, index, opening):
                text = f"{self.kernel.name}<{', '.join(arguments)}>".replace(_GLOBAL, "")
                counted[text] += 1
                line = host.text.count("\n", 0, host.tokens[index].start) + 1
                where = (
                    f"its use at line {line}"
                    if host.text == self.kernel.unit.text
                    else "its use in another file of the project"
                )
                origins.setdefault(text, where)
        ordered = sorted((text for text in counted if not self._contradicts(text)), key=lambda text: -counted[text])
        return tuple(InferredInstance(text, origins[text]) for text in ordered)

    def _contradicts(self, instance: str) -> bool:
        """Returns True if an instance is impossible: a floating-point type for an integral one, or a truth value for a type or number."""
        indexing = index_types(self.kernel)
        arguments = instance.partition("<")[2].removesuffix(">").split(", ")
        pairs = list(zip(self.parameters, arguments, strict=False))
        return any(one.name in indexing and argument in _FLOATS for one, argument in pairs) or any(
            (one.kind == "type" or one.type in _NUMBERS) and argument in ("true", "false") for one, argument in pairs
        )

    def _uses(self) -> Iterator[tuple[HostText, int, int]]:
        """Yields every token that names the kernel with template arguments, or launches it."""
        for host in self.files.mentioning(self.simple):
            own = host.text == self.kernel.unit.text
            for index in host.words.get(self.simple, ()):
                if own and self.kernel.start <= host.tokens[index].start < self.kernel.end:
                    continue
                following = host.tokens[index + 1].text if index + 1 < len(host.tokens) else ""
                if following in ("<", "<<<") or (following == "," and _is_passed_on(host, index)):
                    yield host, index, index + 1

    def _arguments(self, host: HostText, index: int, opening: int) -> Iterator[tuple[str, ...]]:
        """Yields the template arguments of one use, completed by defaults and by deduction, each word resolved."""
        written: list[str] = []
        after = opening
        if host.tokens[opening].text == "<":
            end = closing_angle(host.tokens, opening)
            if end is None:
                return
            written = host.arguments(opening)
            after = end + 1
        missing = self.parameters[len(written) :]
        if any(one.kind == "pack" for one in self.parameters):
            missing = ()
        macro = host.macro_of(index) if missing else None
        for place in self._calls(*macro) if macro is not None else [(host, index, {})]:
            deduced = self._deductions(missing, host, after, place)
            if deduced is None:
                continue
            texts = [_substituted(text, place[2]) for text in written]
            for given in self.resolved(texts, place[0], place[1]):
                rests = itertools.islice(itertools.product(*deduced), _MOST_VALUES)
                yield from ((*given, *rest) for rest in rests)

    def _deductions(
        self, missing: Sequence[TemplateParameter], host: HostText, launch: int, place: _Place
    ) -> list[list[str]] | None:
        """Returns the values of parameters up to the last that a launch tells; None if it does not tell one without a default."""
        deduced: list[list[str]] = []
        used = 0
        for parameter in missing:
            found = self._deduced(parameter.name, host, launch, place)
            if not found and parameter.default is None:
                return None
            deduced.append(found or [parameter.default or ""])
            used = len(deduced) if found else used
        return deduced[:used]

    def _deduced(self, name: str, host: HostText, launch: int, place: _Place) -> list[str]:
        """Returns the type that a launch's arguments give a template parameter, where a macro that has the launch is called."""
        passed = self._passed(host, launch) if launch < len(host.tokens) else []
        for parameter, argument in zip(self.kernel.signature.parameters, passed, strict=False):
            if re.search(rf"\b{re.escape(name)}\b", parameter.base):
                types = self._type_of(_substituted(argument, place[2]), place[0], place[1], 0)
                if not types and place[0].tokens[place[1]].directive != host.tokens[launch].directive:
                    types = self._type_of(argument, host, launch, 0)
                found = _named_in(name, parameter.base, types)
                if found:
                    return found
        return []

    def _passed(self, host: HostText, launch: int) -> list[str]:
        """Returns the kernel's arguments in a launch, or in a call that passes the kernel and then its arguments."""
        if host.tokens[launch].text == "," and host.parents[launch] >= 0:
            return host.arguments(host.parents[launch])[-len(self.kernel.signature.parameters) :]
        if host.tokens[launch].text != "<<<":
            return []
        opening = next(
            (at + 1 for at in range(launch, min(launch + 400, len(host.tokens) - 1))
             if host.tokens[at].text == ">" and host.tokens[at + 1].text == "(" and host.tokens[at - 1].text == ">"
             and host.parents[at] == host.parents[launch]),
            None,
        )  # fmt: skip
        return host.arguments(opening) if opening is not None else []

    # ---------------------------------------------------------------------------------------------------- resolving

    def resolve(self, text: str, host: HostText, index: int, depth: int = 0) -> list[str]:
        """Returns the values that one argument can have at a token; empty if the value of a word in it is not known."""
        return [values[0] for values in self.resolved([text], host, index, depth)]

    def resolved(self, texts: Sequence[str], host: HostText, index: int, depth: int = 0) -> list[tuple[str, ...]]:
        """Returns the values of several arguments together: a word has the same value in all of them."""
        self._steps -= 1
        if depth > _DEEPEST or self._steps < 0:
            return []
        macro = host.macro_of(index)
        if macro is not None:
            return self._at_calls(texts, *macro, depth)
        words = list(dict.fromkeys(word for text in texts for word in _WORD.findall(text) if word not in _PLAIN))
        values: list[list[str]] = []
        for word in words:
            found = self._values(word, host, index, depth)
            if found is not None and not found:
                return []
            values.append(found if found is not None else [word])
        results = []
        for combination in itertools.islice(itertools.product(*values), 2 * _MOST_VALUES):
            by_word = dict(zip(words, combination, strict=True))
            results.append(tuple(_substituted(text, by_word) for text in texts))
        return list(dict.fromkeys(results))

    def _at_calls(
        self, texts: Sequence[str], name: str, parameters: Sequence[str], depth: int
    ) -> list[tuple[str, ...]]:
        """Returns the values of arguments in a macro's body: those at the macro's calls."""
        found: list[tuple[str, ...]] = []
        for host, index, given in self._calls(name, parameters):
            found += self.resolved([_substituted(text, given) for text in texts], host, index, depth + 1)
            if len(set(found)) >= 2 * _MOST_VALUES:
                break
        return list(dict.fromkeys(found))

    def _calls(self, name: str, parameters: Sequence[str]) -> Iterator[_Place]:
        """Yields the calls of a macro, each with the arguments of its parameters; also those by a macro that it is passed to."""
        for host in self.files.mentioning(name):
            for index in host.words.get(name, ()):
                following = host.tokens[index + 1].text if index + 1 < len(host.tokens) else ""
                if host.tokens[index - 1].text in ("define", "undef", "ifdef", "ifndef", "defined"):
                    continue
                if not parameters:
                    yield host, index, {}
                elif following == "(":
                    yield from self._with_arguments(host, index, host, index, parameters)
                elif following in (",", ")") and host.parents[index] > 0:
                    opening = host.parents[index]
                    expanded = host_text(self.files.expansion(host.tokens[opening - 1].text, host.arguments(opening)))
                    for at in expanded.words.get(name, ()):
                        yield from self._with_arguments(host, index, expanded, at, parameters)

    def _with_arguments(
        self, host: HostText, index: int, calling: HostText, at: int, parameters: Sequence[str]
    ) -> Iterator[_Place]:
        """Yields a place with the arguments that a macro's call in a text has, if they are as many as its parameters."""
        is_call = at + 1 < len(calling.tokens) and calling.tokens[at + 1].text == "("
        arguments = calling.arguments(at + 1) if is_call else []
        if len(arguments) == len(parameters):
            yield host, index, dict(zip(parameters, arguments, strict=True))

    def _values(self, word: str, host: HostText, index: int, depth: int) -> list[str] | None:
        """Returns the values of a word; None if it is a name visible everywhere; empty if it is a run-time value."""
        inner = index
        for opening in host.around(index):
            text = host.between(opening, inner)
            defined = definition(word, text)
            if defined is not None:
                outer = re.sub(rf"(?<![\w:]){re.escape(word)}\b", _GLOBAL + word, defined)
                return self.resolve(outer, host, index, depth + 1)
            if host.tokens[opening].text == "(" and opening and host.tokens[opening - 1].kind == "word":
                found = self._from_macro(word, host, opening, depth)
                if found is not None:
                    return found
            if host.tokens[opening].text == "{":
                head = host.head(opening)
                if head is not None and word in head.template:
                    written = dict(head.defaults).get(word)
                    default = self.resolve(written, host, index, depth + 1) if written else []
                    return self._from_users(head, word, depth, default) or default
                if head is not None and re.search(rf"\b{re.escape(word)}\b\s*(?:[,=\[]|\Z)", head.parameters):
                    return []
                if is_run_time(word, text):
                    return []
            inner = index
        return None

    def _from_macro(self, word: str, host: HostText, opening: int, depth: int) -> list[str] | None:
        """Returns the values that the macro around a token gives a word: by its text, or by torch's conventions."""
        name = host.tokens[opening - 1].text
        if not name.isupper():
            return None
        given = host.arguments(opening)
        text = self.files.expansion(name, [one if len(one) < 400 else "" for one in given])
        found = definitions(word, text)
        if found:
            resolved = [value for one in found for value in self.resolve(one, host, opening - 1, depth + 1)]
            return list(dict.fromkeys(resolved))[:_MOST_VALUES]
        if not text and not _TORCH_DISPATCH.match(name) and self._is_left_out(word):
            return []
        if "DISPATCH" in name and re.fullmatch(r"\w*(?:scalar|index|_t|T|type)\w*", word):
            if "index" in word.lower() or "INDEX" in name:
                return ["int64_t", "int32_t"]
            if "INTEGRAL" in name and "FLOAT" not in name:
                return ["int32_t", "int64_t"]
            return [one for one in _FLOATING if "Half" not in one or re.search(r"HALF|AND|REDUCED", name)]
        if re.search(r"BOOL|SWITCH", name) and word in given:
            return ["true", "false"]
        return None

    def _is_left_out(self, word: str) -> bool:
        """Returns True if a macro in a file that this search leaves out may define a word: the unit's text does not."""
        here = re.search(rf"\bdefine\s+{word}\b|\b{word}\s*=(?!=)", self.files.text)
        return self.files.path is not None and not self.files.wide and here is None

    def _from_users(self, head: Head, word: str, depth: int, default: Sequence[str]) -> list[str]:
        """Returns the template arguments that a function or class template is used with, or that its calls imply, else the default."""
        found: list[str] = []
        name, position, parameters = head.owner or head.name, head.template.index(word), head.parameters
        for host in self.files.mentioning(name):
            for index in host.words.get(name, ()):
                following = host.tokens[index + 1].text if index + 1 < len(host.tokens) else ""
                if following == "<" and not is_in_template_head(host, index):
                    given = host.arguments(index + 1)
                    values = self.resolve(given[position], host, index, depth + 1) if position < len(given) else []
                    end = closing_angle(host.tokens, index + 1)
                    if not values and end is not None and host.tokens[min(end + 1, len(host.tokens) - 1)].text == "(":
                        values = self._implied(word, parameters, host, end + 1, depth)
                    found += values or (default if position >= len(given) else [])
                elif following == "(":
                    found += self._implied(word, parameters, host, index + 1, depth)
                else:
                    found += self._expanded_uses(name, position, host, index, depth)
                if len(set(found)) >= _MOST_VALUES:
                    return list(dict.fromkeys(found))[:_MOST_VALUES]
        return list(dict.fromkeys(found))

    def _expanded_uses(self, name: str, position: int, host: HostText, index: int, depth: int) -> list[str]:
        """Returns the template arguments in the expansion of a macro that is given a template's name: `INSTANTIATE(Layer);`."""
        opening = host.parents[index]
        macro = host.tokens[opening - 1].text if opening > 0 and host.tokens[opening].text == "(" else ""
        if not macro.isupper():
            return []
        uses = host_text(self.files.expansion(macro, host.arguments(opening)))
        lists = [
            uses.arguments(at + 1)
            for at in uses.words.get(name, ())
            if at + 1 < len(uses.tokens) and uses.tokens[at + 1].text == "<"
        ]
        given = dict.fromkeys(one[position] for one in lists if position < len(one))
        return [value for text in given for value in self.resolve(text, host, index, depth + 1)]

    def _implied(self, word: str, parameters: str, host: HostText, opening: int, depth: int) -> list[str]:
        end = closing(host.tokens, opening)
        if end is None or host.tokens[min(end + 1, len(host.tokens) - 1)].text == "{":
            return []
        tokens = lex(parameters).tokens
        start = statement_start(host, opening)
        instantiated = host.tokens[start].text == "template" and host.tokens[start + 1].text != "<"
        if not instantiated and _declares(host, opening):
            return []
        declared = [
            parameters[tokens[a].start : tokens[b - 1].end] for a, b in split_list(tokens, 0, len(tokens)) if b > a
        ]
        for parameter, argument in zip(declared, host.arguments(opening), strict=False):
            if re.search(rf"\b{re.escape(word)}\b", parameter):
                kind = _PARAMETER.match(argument.strip()) if instantiated else None
                if kind is not None:
                    found = self.resolve(kind[1], host, opening, depth + 1)
                else:
                    found = self._type_of(argument, host, opening, depth + 1)
                own = _PARAMETER.match(parameter.strip())
                return _named_in(word, own[1] if own is not None else word, found)
        return []

    def _type_of(self, expression: str, host: HostText, index: int, depth: int) -> list[str]:
        """Returns the element type of an expression; empty if it cannot be determined."""
        text = expression.strip()
        self._steps -= 1
        if self._steps < 0:
            return []
        for pattern in _TYPED:
            match = pattern.search(text)
            if match:
                return self.resolve(match[1].strip(), host, index, depth + 1)
        of = _CONTAINER.fullmatch("".join(text.split()))
        if of is not None and (of[1] or of[3]):
            kinds = [template_arguments(kind) for kind in self._type_of(of[2], host, index, depth + 1)]
            return [kind[1][0] for kind in kinds if kind is not None and kind[1]]
        member = _OF_OBJECT.fullmatch(text)
        if member is not None and depth <= _DEEPEST:
            return self._member_type(member[1] or member[2], member[3] or "", host, index, depth)
        if re.fullmatch(r"\d+", text):
            return ["int"]
        if re.fullmatch(r"[\d.]+(?:e[+-]?\d+)?f", text):
            return ["float"]
        named = re.match(r"&?\s*\(?\s*([^\W\d]\w*)(?!\w|\s*(?:\.|->))", text)
        if named is None or depth > _DEEPEST:
            return []
        declared = self._declared_type(named[1], host, index, depth)
        return declared if declared is not None else self._type_elsewhere(named[1], text, host, index, depth)

    def _declared_type(self, name: str, host: HostText, index: int, depth: int) -> list[str] | None:
        """Returns the type of a variable or parameter that a scope around a token declares; None without one."""
        inner = index
        for opening in host.around(index):
            head = host.head(opening) if host.tokens[opening].text == "{" else None
            scope = (f"({head.parameters});" if head is not None else "") + (
                host.between(opening, inner) if host.tokens[opening].text == "{" else ""
            )
            declared = declaration(name, scope)
            if declared is None:
                continue
            kind, value = declared
            again = self._type_of if kind == "auto" else self.resolve
            return again(value if kind == "auto" else kind, host, index, depth + 1)
        return None

    def _type_elsewhere(self, name: str, text: str, host: HostText, index: int, depth: int) -> list[str]:
        """Returns the type of an expression that begins with a name at the calls of the macro around it, or as a member of `this`."""
        macro = host.macro_of(index)
        for called, at, given in self._calls(*macro) if macro is not None else ():
            found = self._type_of(_substituted(text, given), called, at, depth + 1)
            if found:
                return found
        constructed = re.fullmatch(r"([A-Za-z_][\w:]*(?:<[^()]*>)?)\s*(?:\(.*\)|\{.*\})", text, re.DOTALL)
        if constructed is not None:
            return self.resolve(constructed[1], host, index, depth + 1)
        return self._member_type("this", name, host, index, depth) if macro is None else []

    def _member_type(self, of: str, member: str, host: HostText, index: int, depth: int) -> list[str]:
        """Returns the type of a member of `this` or of another object; without a name, that of the object itself."""
        types = [enclosing_class(host, index) or ""] if of == "this" else self._type_of(of, host, index, depth + 1)
        for kind in types:
            name, given = template_arguments(kind) or (kind, [])
            for defining, brace in class_bodies(self.files, name.rpartition("::")[2]) if name else ():
                body, last = members_of(defining, brace)
                head = defining.head(brace)
                own = head.template if head is not None else ()
                declared = declaration(member, body) if member else (f"{name}<{', '.join(own)}>" if own else name, "")
                if declared is not None:
                    known = dict(zip(own, given, strict=False))
                    return self.resolve(_substituted(declared[0], known), defining, last, depth + 1)
        return []


_OF_OBJECT = re.compile(r"\*\s*(this)|(?:\(\s*\*\s*)?(\w+)\s*\)?(?:\.|->)\s*(\w+)")
"""An object itself, or one of its members."""

_TYPED = (
    re.compile(
        r"^(?:static_cast|reinterpret_cast|const_cast)\s*<\s*(?:const\s+)?([\w:]+(?:\s*<[^*]*>)?)(?:\s+const)?\s*[*&]*\s*>"
    ),
    re.compile(r"(?i:data|ptr)\w*\s*<\s*(?:const\s+)?([\w:]+(?:<[^()]*>)?)\s*>\s*\("),
    re.compile(r"accessor\d*\s*<\s*([\w:]+)\s*,"),
    re.compile(r"^\(\s*(?:const\s+)?([\w:]+(?:<[^()]*>)?)(?:\s+const)?\s*\*+\s*(?:__restrict__)?\s*\)"),
    re.compile(r"^\(\s*(float|double|int|unsigned|half|__half|size_t|long long|unsigned int)\s*\)"),
)
"""Expressions that state the type of their operand."""

_CONTAINER = re.compile(r"((?:\w+::)*raw_pointer_cast\()?&?(\w+)((?:\.(?:data|begin|get|ptr)\(\)|\[0\])*)\)?")
"""Addresses of the elements of a container that has their type as its first template argument: `v.data()`."""

_PARAMETER = re.compile(
    r"(?:const\s+)?([\w:]+(?:<[^()]*>)?)(?:\s+const)?\s*[*&]*\s*(?:const\s+)?(?:__restrict__\s*)?\w*\Z"
)


def _named_in(name: str, declared: str, types: Sequence[str]) -> list[str]:
    """Returns the template arguments for which an argument of the declared type has one of these types."""
    if "<" not in declared:
        return list(types)
    found = (stands_for(name, declared, kind) if "<" in kind else kind for kind in types)
    return [one for one in found if one is not None]


def _is_passed_on(host: HostText, index: int) -> bool:
    """Returns True for an argument of a call or a macro, other than the first argument of a template's list."""
    opening = host.parents[index]
    return opening > 0 and host.tokens[opening].text == "(" and host.tokens[opening - 1].kind == "word"


def _declares(host: HostText, opening: int) -> bool:
    """Returns True if the parentheses are those of a function's declaration: a type precedes its name."""
    at = opening - 1
    while at >= 2 and host.tokens[at - 1].text == "::":
        at -= 2
    before = host.tokens[at - 1] if at > 0 else None
    return before is not None and before.kind == "word" and before.text not in ("return", "else", "do")


def _substituted(text: str, values: dict[str, str]) -> str:
    return _WORD.sub(lambda word: values.get(word[0], word[0]), text)
