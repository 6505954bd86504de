"""Values of words in the template arguments that host code writes: constants, aliases, types of expressions, arguments of macros and functions.

A word in a template argument is replaced by its meaning at that place: a constant or an alias of the enclosing
function, an argument of the macro around it, a template parameter of the function around it, with the arguments of that
function's own uses. The remaining names are visible in device code too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from kernelmate.source.expressions import ExpressionError, evaluate_integer
from kernelmate.source.host_callables import Lambda, lambda_at, lambda_calls, template_argument_uses
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
from kernelmate.source.host_text import Head, HostFiles, HostText, host_text
from kernelmate.source.instances import stands_for, template_arguments
from kernelmate.source.tokens import closing, closing_angle, lex, split_list

MOST_VALUES = 4
"""Maximum number of values of a word that are followed."""

HIDDEN = "\0"
"""Marks a word that is hidden by a local alias of the same name, so that it is not looked up again."""

_DEEPEST = 7
_MOST_STEPS = 3000
_WORD = re.compile(r"(?<![\w.\0])(?<!::)(?<!->)[^\W\d]\w*")
_PLAIN = frozenset([
    "bool", "char", "signed", "unsigned", "short", "int", "long", "float", "double", "void", "const", "volatile",
    "true", "false", "sizeof", "nullptr", "wchar_t", "typename", "template", "struct", "class", "std", "cuda",
    "size_t", "int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "half",
    "__half", "__half2", "half2", "__nv_bfloat16", "nv_bfloat16", "__nv_bfloat162", "at", "c10", "torch",
    "static_cast",
])  # fmt: skip
Place = tuple[HostText, int, dict[str, str]]
"""A token in a text, and the arguments of the macro that is called there."""

_TORCH_DISPATCH = re.compile(r"AT_DISPATCH_(?:ALL|FLOATING|REDUCED|INTEGRAL|COMPLEX|INDEX|V2|SWITCH|CASE)")
FLOATING = ("float", "at::Half", "double")


class HostValues:
    """Values of words in a set of host texts; at most `_MOST_STEPS` of them are looked up."""

    def __init__(self, files: HostFiles) -> None:
        self.files = files
        self._steps = _MOST_STEPS

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
        generic = self._at_lambda_calls(texts, host, index, depth)
        if generic is not None:
            return generic
        words = list(dict.fromkeys(word for text in texts for word in _WORD.findall(text) if word not in _PLAIN))
        values: list[list[str]] = []
        for word in words:
            found = self._values(word, host, index, depth)
            if found is not None and not found:
                return []
            values.append(found if found is not None else [word])
        results = []
        for combination in itertools.islice(itertools.product(*values), 2 * MOST_VALUES):
            by_word = dict(zip(words, combination, strict=True))
            results.append(tuple(substituted(text, by_word) for text in texts))
        return list(dict.fromkeys(results))

    def _at_lambda_calls(
        self, texts: Sequence[str], host: HostText, index: int, depth: int
    ) -> list[tuple[str, ...]] | None:
        """Returns the values of arguments that name an `auto` parameter of a lambda around a token; None without one."""
        if "auto" not in host.words:
            return None
        words = {word for text in texts for word in _WORD.findall(text)}
        for opening in host.around(index):
            own = lambda_at(host, opening) if host.tokens[opening].text == "{" else None
            for position, declared in enumerate(own.parameters if own is not None else ()):
                name = re.search(r"\bauto\b(?:\s*const\b)?\s*([*&]*)\s*(\w+)\s*\Z", declared)
                if own is None or name is None or name[2] not in words:
                    continue
                found: list[tuple[str, ...]] = []
                for kind in self._argument_types(own, position, host, depth):
                    given = [_of_type(text, name[2], kind, "*" in name[1]) for text in texts]
                    found += self.resolved(given, host, index, depth + 1)
                return list(dict.fromkeys(found))
        return None

    def _argument_types(self, own: Lambda, position: int, host: HostText, depth: int) -> list[str]:
        """Returns the types of one argument of a lambda at its calls."""
        found: list[str] = []
        for call in lambda_calls(self.files, host, own):
            given = call.host.arguments(call.opening)
            if position < len(given):
                found += self.type_of(given[position], call.host, call.opening, depth + 1)
            if len(set(found)) >= MOST_VALUES:
                break
        return list(dict.fromkeys(found))

    def _from_calls(self, own: Lambda, word: str, host: HostText, depth: int) -> list[str]:
        """Returns the template arguments that the calls of a lambda give: `f.template operator()<4>()`."""
        found: list[str] = []
        position = own.template.index(word)
        for call in lambda_calls(self.files, host, own):
            if call.angle is not None and position < len(call.template):
                found += self.resolve(call.template[position], call.host, call.angle, depth + 1)
            elif call.angle is None:
                found += self._implied(word, ", ".join(own.parameters), call.host, call.opening, depth)
        return list(dict.fromkeys(found))[:MOST_VALUES]

    def _at_calls(
        self, texts: Sequence[str], name: str, parameters: Sequence[str], depth: int
    ) -> list[tuple[str, ...]]:
        """Returns the values of arguments in a macro's body: those at the macro's calls."""
        found: list[tuple[str, ...]] = []
        for host, index, given in self.calls(name, parameters):
            found += self.resolved([substituted(text, given) for text in texts], host, index, depth + 1)
            if len(set(found)) >= 2 * MOST_VALUES:
                break
        return list(dict.fromkeys(found))

    def calls(self, name: str, parameters: Sequence[str]) -> Iterator[Place]:
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
    ) -> Iterator[Place]:
        """Yields a place with the arguments that a macro's call in a text has, if they are as many as its parameters."""
        is_call = at + 1 < len(calling.tokens) and calling.tokens[at + 1].text == "("
        arguments = calling.arguments(at + 1) if is_call else []
        if len(arguments) == len(parameters):
            yield host, index, dict(zip(parameters, arguments, strict=True))

    def _values(self, word: str, host: HostText, index: int, depth: int) -> list[str] | None:
        """Returns the values of a word; None if it is a name visible everywhere; empty if it is a run-time value."""
        inner = index
        directives: list[str] = []
        for opening in host.around(index):
            text = host.between(opening, inner)
            defined = definition(word, text)
            if defined is not None:
                outer = re.sub(rf"(?<![\w:]){re.escape(word)}\b", HIDDEN + word, defined)
                return self.resolve(outer, host, index, depth + 1)
            if host.tokens[opening].text == "(" and opening and host.tokens[opening - 1].kind == "word":
                found = self._from_macro(word, host, opening, depth)
                if found is not None:
                    return found
            if host.tokens[opening].text == "{":
                head = host.head(opening)
                own = lambda_at(host, opening) if head is None else None
                if own is not None and word in own.template:
                    return self._from_calls(own, word, host, depth)
                if head is not None and word in head.template:
                    written = dict(head.defaults).get(word)
                    default = self.resolve(written, host, index, depth + 1) if written else []
                    return self._from_users(head, word, depth, default) or default
                if head is not None and re.search(rf"\b{re.escape(word)}\b\s*(?:[,=\[]|\Z)", head.parameters):
                    return []
                if is_run_time(word, text):
                    return []
            directives += re.findall(r"\busing\s+namespace\s+([\w:]+)\s*;", text) if "namespace" in text else []
            inner = index
        return self._in_namespace(word, directives)

    def _in_namespace(self, word: str, namespaces: Sequence[str]) -> list[str] | None:
        """Returns a name with the namespace of a function's own using directive that declares it; None without one."""
        for namespace in namespaces:
            declared = rf"\b(?:class|struct|enum|using|const|constexpr|typedef)\b[^;{{}}()]*\b{re.escape(word)}\b"
            for host in self.files.mentioning(word, declared) if not namespace.startswith("std") else ():
                inside = re.search(rf"\bnamespace\s+{re.escape(namespace)}\b[^;{{]*\{{", host.text)
                if inside is not None and re.search(declared, host.text[inside.end() :]):
                    return [f"{namespace}::{HIDDEN}{word}"]
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
            return list(dict.fromkeys(resolved))[:MOST_VALUES]
        if not text and not _TORCH_DISPATCH.match(name) and self._is_left_out(word):
            return []
        if "DISPATCH" in name and re.fullmatch(r"\w*(?:scalar|index|_t|T|type)\w*", word):
            if "index" in word.lower() or "INDEX" in name:
                return ["int64_t", "int32_t"]
            if "INTEGRAL" in name and "FLOAT" not in name:
                return ["int32_t", "int64_t"]
            return [one for one in FLOATING if "Half" not in one or re.search(r"HALF|AND|REDUCED", name)]
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
            places = host.words.get(name, ())
            for index in sorted(places, key=lambda at: _is_in_itself(host, at, name)) if len(places) > 2 else places:
                following = host.tokens[index + 1].text if index + 1 < len(host.tokens) else ""
                if following == "<" and not is_in_template_head(host, index):
                    given = host.arguments(index + 1)
                    values = self.resolve(given[position], host, index, depth + 1) if position < len(given) else []
                    values = [_calculated(value) for value in values]
                    end = closing_angle(host.tokens, index + 1)
                    if not values and end is not None and host.tokens[min(end + 1, len(host.tokens) - 1)].text == "(":
                        values = self._implied(word, parameters, host, end + 1, depth)
                    found += values or (default if position >= len(given) else [])
                elif following == "(":
                    found += self._implied(word, parameters, host, index + 1, depth)
                else:
                    found += self._expanded_uses(name, position, host, index, depth)
                if len(set(found)) >= MOST_VALUES:
                    return list(dict.fromkeys(found))[:MOST_VALUES]
        return list(dict.fromkeys(found))

    def _expanded_uses(self, name: str, position: int, host: HostText, index: int, depth: int) -> list[str]:
        """Returns the arguments of a template whose name a macro or another template is given: `INSTANTIATE(Layer);`, `run<Layer>()`."""
        passed: list[str] = []
        for using, at in template_argument_uses(self.files, host, index):
            given_there = using.arguments(at + 1)
            if position < len(given_there):
                passed += self.resolve(given_there[position], using, at, depth + 1)
        if passed:
            return passed
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
                    found = self.type_of(argument, host, opening, depth + 1)
                own = _PARAMETER.match(parameter.strip())
                return named_in(word, own[1] if own is not None else word, found)
        return []

    def type_of(self, expression: str, host: HostText, index: int, depth: int) -> list[str]:
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
            kinds = [template_arguments(kind) for kind in self.type_of(of[2], host, index, depth + 1)]
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
            again = self.type_of if kind == "auto" else self.resolve
            return again(value if kind == "auto" else kind, host, index, depth + 1)
        return None

    def _type_elsewhere(self, name: str, text: str, host: HostText, index: int, depth: int) -> list[str]:
        """Returns the type of an expression that begins with a name at the calls of the macro around it, or as a member of `this`."""
        macro = host.macro_of(index)
        for called, at, given in self.calls(*macro) if macro is not None else ():
            found = self.type_of(substituted(text, given), called, at, depth + 1)
            if found:
                return found
        constructed = re.fullmatch(r"([A-Za-z_][\w:]*(?:<[^()]*>)?)\s*(?:\(.*\)|\{.*\})", text, re.DOTALL)
        if constructed is not None:
            returned = self._returned(constructed[1], host, depth)
            return self.resolve(constructed[1], host, index, depth + 1) if returned is None else returned
        return self._member_type("this", name, host, index, depth) if macro is None else []

    def _returned(self, name: str, host: HostText, depth: int) -> list[str] | None:
        """Returns the type that a function of a text gives; None without a declaration of one there."""
        pattern = (
            rf"(?:^|[;{{}}>\s])((?:\w+::)*[A-Za-z_]\w*(?:<[^<>;(){{}}]*>)?)(?:\s+const)?(?:\s+|\s*[*&]+\s*){name}\s*\("
        )
        for match in re.finditer(pattern, host.text) if re.fullmatch(r"\w+", name) else ():
            at = next((n for n in host.words[name] if host.tokens[n].start >= match.end() - len(match[0])), None)
            if at is not None and match[1] not in ("return", "else", "new", "throw", "case", "goto"):
                return self.resolve(match[1], host, at, depth + 1) if match[1] != "auto" else []
        return None

    def _member_type(self, of: str, member: str, host: HostText, index: int, depth: int) -> list[str]:
        """Returns the type of a member of `this` or of another object; without a name, that of the object itself."""
        types = [enclosing_class(host, index) or ""] if of == "this" else self.type_of(of, host, index, depth + 1)
        for kind in types:
            name, given = template_arguments(kind) or (kind, [])
            for defining, brace in class_bodies(self.files, name.rpartition("::")[2]) if name else ():
                body, last = members_of(defining, brace)
                head = defining.head(brace)
                own = head.template if head is not None else ()
                declared = declaration(member, body) if member else (f"{name}<{', '.join(own)}>" if own else name, "")
                if declared is not None:
                    known = dict(zip(own, given, strict=False))
                    return self.resolve(substituted(declared[0], known), defining, last, depth + 1)
        return []


def _of_type(text: str, name: str, kind: str, is_pointer: bool) -> str:
    """Returns a text with the type of an `auto` parameter in place of `decltype` of it, and of its constant value."""
    text = re.sub(rf"decltype\(\s*{name}\s*\)", f"{kind}*" if is_pointer else kind, text)
    text = re.sub(rf"decltype\(\s*\*\s*{name}\s*\)", kind, text)
    text = re.sub(rf"\b{name}\b(?:\s*\.\s*value\b|\s*\(\s*\)|\s*\{{\s*\}})?", f"{kind}::value", text)
    text = re.sub(r"(?:\w+::)*integral_constant\s*<[^,<>]+,([^<>]+)>::value", lambda match: match[1].strip(), text)
    text = re.sub(r"(?:std::)?(true|false)_type::value", r"\1", text)
    return _PLAIN_TYPE.sub(lambda match: match[1] or match[2], text)


_PLAIN_TYPE = re.compile(
    r"(?:std::)?(?:remove_(?:pointer|cv|cvref|reference)|decay)"
    r"(?:_t\s*<\s*(?:const\s+)?([\w:]+)\s*[*&]*\s*>|\s*<\s*(?:const\s+)?([\w:]+)\s*[*&]*\s*>::type)"
)

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


def named_in(name: str, declared: str, types: Sequence[str]) -> list[str]:
    """Returns the template arguments for which an argument of the declared type has one of these types."""
    if "<" not in declared:
        return list(types)
    found = (stands_for(name, declared, kind) if "<" in kind else kind for kind in types)
    return [one for one in found if one is not None]


def _declares(host: HostText, opening: int) -> bool:
    """Returns True if the parentheses are those of a function's declaration: a type precedes its name."""
    at = opening - 1
    while at >= 2 and host.tokens[at - 1].text == "::":
        at -= 2
    before = host.tokens[at - 1] if at > 0 else None
    return before is not None and before.kind == "word" and before.text not in ("return", "else", "do")


def _is_in_itself(host: HostText, index: int, name: str) -> bool:
    """Returns True in the body of the function or class of a name, where it is used recursively."""
    if host.tokens[index + 1 : index + 2] and host.tokens[index + 1].text != "<":
        return False
    heads = (host.head(opening) for opening in host.around(index) if host.tokens[opening].text == "{")
    return any(head is not None and head.name == name for head in heads)


def _calculated(value: str) -> str:
    """Returns the value of an expression of plain integers: `32` for `64 / 2`; other text as it is."""
    if not re.fullmatch(r"\d+(?:\s*[-+*/]\s*\d+)+", value):
        return value
    try:
        return str(evaluate_integer(value.replace("/", "//"), {}, value))
    except ExpressionError:
        return value


def substituted(text: str, values: dict[str, str]) -> str:
    """Returns a text with the values of its words in their place."""
    return _WORD.sub(lambda word: values.get(word[0], word[0]), text)
