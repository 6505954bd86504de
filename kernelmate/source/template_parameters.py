"""Parameters of a kernel's template, and instances that are guessed from them where nothing uses the template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from kernelmate.records import Kernel
from kernelmate.source.signature import spell
from kernelmate.source.tokens import Token, closing, closing_angle, lex, split_list


@dataclass(frozen=True, slots=True)
class TemplateParameter:
    """One parameter of a template: `kind` is type, value, template or pack; `type` and `default` as written."""

    kind: str
    name: str
    type: str
    default: str | None


@dataclass(frozen=True, slots=True)
class InferredInstance:
    """An instance that no contract names; `origin` says where it comes from.

    `guessed` is True if nothing in the project uses it, so that only its compilation shows whether it makes sense.
    """

    text: str
    origin: str
    guessed: bool = False


def template_parameters(kernel: Kernel) -> tuple[TemplateParameter, ...]:
    """Returns the template parameters of a kernel, as its head declares them."""
    tokens = lex(kernel.source).tokens
    found: list[TemplateParameter] = []
    at = 0
    while at + 1 < len(tokens) and tokens[at].text != "__global__":
        if tokens[at].text == "template" and tokens[at + 1].text == "<":
            end = _list_end(kernel, at + 1)
            if end is None:
                return ()
            found += [_parameter(kernel, a, b) for a, b in split_list(tokens, at + 2, end)]
            at = end
        at += 1
    return tuple(found)


def _list_end(kernel: Kernel, opening: int) -> int | None:
    return closing_angle(lex(kernel.source).tokens, opening)


def _parameter(kernel: Kernel, first: int, last: int) -> TemplateParameter:
    tokens = lex(kernel.source).tokens[first:last]
    equals = next((at for at, token in enumerate(tokens) if token.text == "="), len(tokens))
    default = spell(tokens[equals + 1 :]) if equals < len(tokens) else None
    declared = tokens[:equals]
    texts = [token.text for token in declared]
    words = [token.text for token in declared if token.kind == "word"]
    name = words[-1] if words and (len(words) > 1 or texts[-1:] != words[-1:]) else ""
    if "." in texts:
        return TemplateParameter("pack", name, "", default)
    if texts[:1] == ["template"]:
        return TemplateParameter("template", name, "", default)
    if texts[:1] in (["typename"], ["class"]) and "::" not in texts:
        return TemplateParameter("type", words[-1] if len(words) > 1 else "", "", default)
    shown = declared[:-1] if len(declared) > 1 and declared[-1].kind == "word" else declared
    return TemplateParameter("value", name, spell(shown), default)


def guessed_instances(kernel: Kernel) -> tuple[InferredInstance, ...]:
    """Returns instances by the kinds and names of the template parameters, for a template whose uses, if any, do not determine them."""
    parameters = template_parameters(kernel)
    if not parameters or any(one.kind == "template" and one.default is None for one in parameters):
        return ()
    found = []
    indexing = index_types(kernel)
    functors = {name: _functors(kernel.unit.text, call) for name, call in called_types(kernel).items()}
    for element in ("float", "__half", "int"):
        for number in range(_MOST_FUNCTORS):
            chosen = {name: some[min(number, len(some) - 1)].of(element) for name, some in functors.items() if some}
            given = [
                chosen.get(one.name) or ("int" if one.name in indexing else _guess(one, element))
                for one in parameters
                if one.default is None and one.kind != "pack"
            ]
            origin = f"a guess: {'its launch does not say it' if kernel.launches else 'nothing in the project uses it'}"
            if chosen:
                origin += f", and {' and '.join(dict.fromkeys(chosen.values()))} can be called so"
            found.append(InferredInstance(f"{kernel.name}<{', '.join(given)}>", origin, guessed=True))
    return tuple(dict.fromkeys(found))


# ---------------------------------------------------------------------------------------------------------- functors

_MOST_FUNCTORS = 2
"""Maximum number of functors that are tried for each element type."""
_OPERATOR = "operator()"


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a type parameter in a kernel: the member function, `operator()` or a static one, and its number of arguments."""

    member: str
    arguments: int


@dataclass(frozen=True, slots=True)
class _Functor:
    """A class with the called member function; `parameters` are the type parameters of its template."""

    name: str
    parameters: int

    def of(self, element: str) -> str:
        return f"{self.name}<{', '.join([element] * self.parameters)}>" if self.parameters else self.name


def called_types(kernel: Kernel) -> dict[str, Call]:
    """Returns the type parameters of a template whose values, or static members, the kernel calls."""
    types = {one.name for one in template_parameters(kernel) if one.kind == "type" and one.name}
    tokens = lex(kernel.source).tokens
    texts = [token.text for token in tokens]
    types_of_values: dict[str, str] = {}
    found: dict[str, Call] = {}
    for at, text in enumerate(texts):
        after = texts[at + 1 : at + 3]
        owner, member, opening = text, _OPERATOR, at + 3
        if text in types_of_values and texts[at - 1] not in (".", "->", "::"):
            owner, opening = types_of_values[text], at + 1
        elif text not in types:
            continue
        elif after[:1] == ["::"]:
            member = after[-1]
        elif after not in (["(", ")"], ["{", "}"]):
            value = next((n for n in range(at + 1, len(texts) - 1) if texts[n] not in ("const", "&", "&&")), at)
            if tokens[value].kind == "word" and texts[value + 1] in (",", ")", "=", ";"):
                types_of_values.setdefault(texts[value], text)
            continue
        count = _items(tokens, opening)
        if count is not None:
            found.setdefault(owner, Call(member, count))
    return found


def _items(tokens: Sequence[Token], opening: int) -> int | None:
    """Returns the number of items in a list in parentheses; None if none opens there."""
    end = closing(tokens, opening) if tokens[opening : opening + 1] and tokens[opening].text == "(" else None
    return None if end is None else len(split_list(tokens, opening + 1, end))


@lru_cache(maxsize=64)
def _functors(text: str, call: Call) -> tuple[_Functor, ...]:
    """Returns the classes of a text with the member function that `call` calls, those without template parameters first."""
    tokens = lex(text).tokens
    texts = [token.text for token in tokens]
    member = ["operator", "(", ")"] if call.member == _OPERATOR else [call.member]
    heads: dict[int, list[str]] = {}
    found = []
    for at, word in enumerate(texts[:-2]):
        if word == "template" and texts[at + 1] == "<" and (end := closing_angle(tokens, at + 1)) is not None:
            heads[end + 1] = [texts[first] for first, _ in split_list(tokens, at + 2, end)]
        if word not in ("struct", "class") or texts[at + 2] not in ("{", ":", "final"):
            continue
        opening = next((n for n in range(at + 2, len(texts)) if texts[n] in ("{", "}", "(", ")", ";")), at)
        end = closing(tokens, opening) if texts[opening] == "{" else None
        head = heads.get(at, [])
        if end is None or not {"typename", "class"}.issuperset(head):
            continue
        members = (n for n in range(opening, end) if texts[n : n + len(member)] == member)
        if any(_items(tokens, n + len(member)) == call.arguments for n in members):
            found.append(_Functor(texts[at + 1], len(head)))
    return tuple(sorted(dict.fromkeys(found), key=lambda one: one.parameters))


def example_instance(kernel: Kernel) -> tuple[str, str]:
    """Returns an example of an instance for a contract, and the class to pass if the kernel calls a parameter; else empty texts."""
    calls = called_types(kernel)
    written = [
        "Mine" if one.name in calls else _guess(one, "float")
        for one in template_parameters(kernel)
        if one.default is None and one.kind != "pack"
    ]
    members = []
    for call in dict.fromkeys(calls.values()):
        given = ", ".join(f"float {letter}" for letter in "abcdefgh"[: call.arguments])
        static, const = ("", " const") if call.member == _OPERATOR else ("static ", "")
        members.append(f"{static}__device__ float {call.member}({given}){const} {{ return {'a' if given else '0'}; }}")
    return f"{kernel.name}<{', '.join(written)}>", f"struct Mine {{ {' '.join(members)} }};" if members else ""


@lru_cache(maxsize=256)
def index_types(kernel: Kernel) -> frozenset[str]:
    """Returns the type parameters of a template that must be integral: their values are subscripts, or operands of `%`, `<<` or `&`."""
    found = set()
    for parameter in template_parameters(kernel):
        if parameter.kind != "type" or not parameter.name:
            continue
        declared = re.findall(
            rf"\b{re.escape(parameter.name)}\b(?:\s+const)?\s*([*&\s]*)(?:\b(?:const|__restrict__|__restrict)\b[\s*]*)*(\w+)\s*[=,;)\[{{]",
            kernel.source,
        )
        values = {name for stars, name in declared if "*" not in stars}
        elements = {name for stars, name in declared if "*" in stars}
        operands = [rf"\b{re.escape(name)}\b" for name in values]
        operands += [rf"\b{re.escape(name)}\s*\[[^\[\]]*\]" for name in elements]
        # The `&` of a reference is no operator: `T& first = x[0]`.
        text = re.sub(rf"\b{re.escape(parameter.name)}(\s+const)?\s*&", parameter.name, kernel.source)
        if any(_is_integral(operand, text) for operand in operands):
            found.add(parameter.name)
    return frozenset(found)


def _is_integral(operand: str, text: str) -> bool:
    """Returns True if an operand is used in a subscript, in a pointer's offset, or with an operator of integers."""
    behind = rf"{operand}(?!\s*[\[(.])\s*(?:%|<<|>>|\^|&(?![&=])|\|(?![|=]))"
    before = rf"(?:%|<<|>>|\^|(?<=[\w)\]])\s*(?<!&)&(?!&)|(?<!\|)\|(?!\|))=?\s*{operand}"
    subscript = rf"\w\s*\[(?:[^\[\];]|\[[^\[\];]*\])*?{operand}(?!\s*[\[(.])[^\[\];]*\]"
    return any(re.search(pattern, text) for pattern in (behind, before, subscript))


def _guess(parameter: TemplateParameter, element: str) -> str:
    name, kind = parameter.name.lower(), parameter.type
    if parameter.kind == "type":
        return "int" if re.search(r"ind(?:ex|ices)|idx|offset|count|size", name) else element
    if kind in ("bool", "const bool"):
        return "false"
    if not re.fullmatch(
        r"(?:const )?(?:(?:unsigned|signed|long|int|short|char|size_t|std::size_t|u?int\d+_t|uint)\s*)+", kind
    ):
        return f"{kind}(0)" if kind and "auto" not in kind else "1"
    for pattern, value in _GUESSES:
        if re.search(pattern, name):
            return value
    return "1"


_GUESSES = (
    (r"rank|ndim|dims?\Z", "2"),
    (r"vec|pack|unroll|ilp|per_?thread|items|stage", "4"),
    (r"threads|block|nt\b|cta|bdim", "128"),
    (r"tile|bm|bn|bk|warp|head|dim|hidden", "32"),
    (r"bits", "8"),
)
