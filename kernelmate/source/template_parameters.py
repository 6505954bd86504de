"""Parameters of a kernel's template, and instances that are guessed from them where nothing uses the template."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from kernelmate.records import Kernel
from kernelmate.source.signature import spell
from kernelmate.source.tokens import closing_angle, lex, split_list


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
    """Return instances by the kinds and names of the template parameters, for a template that nothing uses."""
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
            origin = "a guess: nothing in the project uses it"
            if chosen:
                origin += f", and {' and '.join(dict.fromkeys(chosen.values()))} can be called so"
            found.append(InferredInstance(f"{kernel.name}<{', '.join(given)}>", origin, guessed=True))
    return tuple(dict.fromkeys(found))


# ---------------------------------------------------------------------------------------------------------- functors

_MOST_FUNCTORS = 2
"""Functors that are tried for each element type."""
_OPERATOR = "operator()"
_CLASS = re.compile(
    r"(template\s*<(?P<head>[^{};()]*)>\s*)?\b(?:struct|class)\s+(?P<name>\w+)\s*(?:final\s*)?(?::[^{};()]*)?\{"
)


@dataclass(frozen=True, slots=True)
class Call:
    """How a kernel calls a type parameter: the member function, `operator()` or a static one, and its number of arguments."""

    member: str
    arguments: int


@dataclass(frozen=True, slots=True)
class _Functor:
    """A class that may be called so; `parameters` are those of its template that are types."""

    name: str
    parameters: int

    def of(self, element: str) -> str:
        return f"{self.name}<{', '.join([element] * self.parameters)}>" if self.parameters else self.name


def called_types(kernel: Kernel) -> dict[str, Call]:
    """Returns the type parameters of a template whose values, or static members, the kernel calls."""
    found: dict[str, Call] = {}
    for one in template_parameters(kernel):
        if one.kind != "type" or not one.name:
            continue
        name = re.escape(one.name)
        values = re.findall(rf"\b{name}\s*(?:const\s*)?&{{0,2}}\s*(\w+)\s*[,)=;]", kernel.source)
        patterns = [(_OPERATOR, rf"(?<![\w.:>]){re.escape(value)}\s*\(") for value in dict.fromkeys(values)]
        patterns.append((_OPERATOR, rf"\b{name}\s*(?:\(\s*\)|\{{\s*\}})\s*\("))
        patterns += [
            (member, rf"\b{name}\s*::\s*{member}\s*\(")
            for member in re.findall(rf"\b{name}\s*::\s*(\w+)\s*\(", kernel.source)
        ]
        for member, pattern in patterns:
            match = re.search(pattern, kernel.source)
            count = None if match is None else _count(kernel.source, match.end() - 1)
            if count is not None:
                found.setdefault(one.name, Call(member, count))
    return found


def _count(text: str, opening: int) -> int | None:
    """Returns the number of items in the list that the parenthesis at `opening` begins; None if it is not closed."""
    depth, commas = 0, 0
    for at in range(opening, len(text)):
        if text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
        elif text[at] == "," and depth == 1:
            commas += 1
        if not depth:
            return commas + 1 if text[opening + 1 : at].strip() else 0
    return None


@lru_cache(maxsize=64)
def _functors(text: str, call: Call) -> tuple[_Functor, ...]:
    """Returns the classes of a text with such a member function, plain ones first."""
    found = []
    for match in _CLASS.finditer(text):
        end = _closing_brace(text, match.end() - 1)
        body = text[match.end() : end]
        member = r"operator\s*\(\s*\)" if call.member == _OPERATOR else rf"\b{re.escape(call.member)}"
        declared = [at.end() - 1 for at in re.finditer(rf"{member}\s*\(", body)]
        heads = [part.strip() for part in (match["head"] or "").split(",") if part.strip()]
        if all(re.match(r"(?:typename|class)\b", part) for part in heads) and any(
            _count(body, at) == call.arguments for at in declared
        ):
            found.append(_Functor(match["name"], len(heads)))
    return tuple(sorted(dict.fromkeys(found), key=lambda one: one.parameters))


def _closing_brace(text: str, opening: int) -> int:
    """Returns the offset of the brace that closes the one at `opening`, or the end of the text."""
    depth = 0
    for match in re.compile("[{}]").finditer(text, opening):
        depth += 1 if match[0] == "{" else -1
        if not depth:
            return match.start()
    return len(text)


def example_instance(kernel: Kernel) -> tuple[str, str]:
    """Returns an instance as a contract may name it, and the class that it needs where the kernel calls a parameter; else no text."""
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
        if any(_is_integral(operand, kernel.source) for operand in operands):
            found.add(parameter.name)
    return frozenset(found)


def _is_integral(operand: str, text: str) -> bool:
    """Returns True if an operand stands in a subscript, in a pointer's offset, or beside an operator of whole numbers."""
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
