"""Finds the launches of a kernel in host code: `<<<...>>>` in its file and its project, in macros and in functions that are given the kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelmate.records import Kernel
from kernelmate.source.host_places import HostPlace, read_host_parameters
from kernelmate.source.host_text import HostFiles, HostText, host_text
from kernelmate.source.host_values import value_before
from kernelmate.source.instances import template_arguments
from kernelmate.source.launches import ParsedLaunch, find_launches
from kernelmate.source.tokens import closing, closing_angle, opening_angle

_BY_POINTER = frozenset({"cudaLaunchKernel", "cudaLaunchCooperativeKernel", "hipLaunchKernel"})


@dataclass(frozen=True, slots=True)
class HostLaunch:
    """One launch: its parts as written, and its token in the host code.

    Attributes:
        place: the launch's name; in a function that is given the kernel, with that call's arguments.
        types: arguments of the enclosing function's template parameters, as far as an instance shows them.
        template: its template arguments as written, with their brackets.
        expanded: the launch's name in the expansion of the macro that is called at the place.
    """

    place: HostPlace
    grid: str
    block: str
    shared: str | None
    arguments: tuple[str, ...]
    types: Mapping[str, str]
    template: str = ""
    expanded: HostPlace | None = None


def host_launches(kernel: Kernel, files: HostFiles, instance: str | None) -> Iterator[HostLaunch]:
    """Yields the launches of a kernel in its own file, else in the nearest one that has some.

    Args:
        kernel: the kernel.
        files: the texts to read.
        instance: the instance that a contract names; its arguments give values to the host's template parameters.
    """
    simple = kernel.name.rpartition("::")[2]
    for host in files.mentioning(simple):
        own = host.source == kernel.unit.text
        found = False
        for launch in _in_text(kernel, host, simple, own=own, files=files, instance=instance):
            found = True
            yield launch
        if found:
            return


def _in_text(
    kernel: Kernel, host: HostText, simple: str, *, own: bool, files: HostFiles, instance: str | None
) -> Iterator[HostLaunch]:
    starts = {token.start: index for index, token in enumerate(host.tokens)}
    for launch in find_launches(host.text) if "<<" in host.text else ():
        if launch.name.rpartition("::")[2] == simple and launch.start in starts and len(launch.configuration) >= 2:
            place = HostPlace(host, starts[launch.start])
            if not host.tokens[place.index].directive:
                yield _launch(host.text, launch, place, kernel, instance)
    yield from _through_driver(host, simple)
    for index in host.words.get(simple, ()):
        if own and kernel.start <= host.tokens[index].start < kernel.end:
            continue
        yield from _aliased(kernel, host, index, instance)
        yield from _passed_on(kernel, host, index, files, instance)
        yield from _in_macro(kernel, host, index, files, instance)


def _launch(text: str, launch: ParsedLaunch, place: HostPlace, kernel: Kernel, instance: str | None) -> HostLaunch:
    parts = [text[start:end] for start, end in launch.configuration]
    arguments = tuple(text[start:end] for start, end in launch.arguments)
    types = _host_types(launch.template_arguments, place, kernel, instance)
    shared = parts[2] if len(parts) > 2 else None
    return HostLaunch(place, parts[0], parts[1], shared, arguments, types, launch.template_arguments)


def _host_types(written: str, place: HostPlace, kernel: Kernel, instance: str | None) -> Mapping[str, str]:
    """Returns the host's template parameters and macro types with the arguments that an instance has in their place."""
    parsed = template_arguments(instance) if instance is not None else None
    if parsed is None:
        return {}
    named = template_arguments(f"k{written}") if written else None
    function = place.function()
    if named is not None:
        pairs = zip(named[1], parsed[1], strict=False)
        return {name: value for name, value in pairs if name.isidentifier() and name != value}
    pairs = zip(kernel.signature.template_parameters, parsed[1], strict=False)
    return {name: value for name, value in pairs if function is not None and name in function.template}


# ------------------------------------------------------------------------- through variables, functions and macros


def _aliased(kernel: Kernel, host: HostText, index: int, instance: str | None) -> Iterator[HostLaunch]:
    """Yields the launches of a variable that is given the kernel: `auto kernel = &k<64>; kernel<<<...>>>(...)`."""
    tokens = host.tokens
    start = index
    while start > 2 and tokens[start - 1].text == "::":
        start -= 2
    equals = start - 2 if tokens[start - 1].text == "&" else start - 1
    angle = (
        closing_angle(tokens, index + 1) if tokens[index + 1 : index + 2] and tokens[index + 1].text == "<" else None
    )
    end = (index if angle is None else angle) + 1
    if equals < 1 or tokens[equals].text != "=" or end >= len(tokens) or tokens[end].text != ";":
        return
    template = host.between(index, end).strip()
    for launch in find_launches(host.text):
        if launch.name != tokens[equals - 1].text or len(launch.configuration) < 2:
            continue
        place = HostPlace(host, next(at for at, token in enumerate(tokens) if token.start == launch.start))
        value = value_before(place, launch.name)
        if value is not None and value.tokens and value.place.index == equals - 1:
            yield _launch(host.text, replace(launch, template_arguments=template), place, kernel, instance)


def _passed_on(
    kernel: Kernel, host: HostText, index: int, files: HostFiles, instance: str | None
) -> Iterator[HostLaunch]:
    """Yields the launches in a function that is called with the kernel as an argument."""
    opening = _call_opening(host, index)
    if opening is None:
        return
    name = host.tokens[opening - 1].text
    if name == ">":
        return
    arguments = host.arguments(opening)
    if name in _BY_POINTER and len(arguments) > 3:
        yield from _by_pointer(host, index, arguments)
        return
    if name == "cudaLaunchKernelEx" and len(arguments) > 1 and _names(arguments[1], host.tokens[index].text):
        yield from _by_configuration(host, index, arguments)
        return
    number = next((n for n, text in enumerate(arguments) if _names(text, host.tokens[index].text)), None)
    if number is None or name.isupper():
        return
    for other in files.mentioning(name):
        for at in other.words.get(name, ()):
            launch = _wrapped(other, at, number, arguments, HostPlace(host, index), kernel, instance)
            if launch is not None:
                yield launch
                return


def _call_opening(host: HostText, index: int) -> int | None:
    """Returns the parenthesis of the call that a name is an argument of."""
    opening = host.parents[index]
    while opening > 0 and host.tokens[opening - 1].text == ">" and host.tokens[opening].text == "(":
        angle = opening_angle(host.tokens, opening - 1)
        if angle is None or not host.tokens[angle - 1].text.endswith("_cast"):
            break
        opening = host.parents[opening]
    if opening < 1 or host.tokens[opening].text != "(" or host.tokens[opening - 1].kind != "word":
        return None
    return opening


def _names(text: str, simple: str) -> bool:
    return re.search(rf"(?:\A|[\s&)]|::){re.escape(simple)}\s*(?:<.*>)?\Z", text.strip()) is not None


def _wrapped(
    host: HostText,
    at: int,
    number: int,
    arguments: Sequence[str],
    caller: HostPlace,
    kernel: Kernel,
    instance: str | None,
) -> HostLaunch | None:
    """Returns the launch in the function defined at a name, whose parameter `number` is the kernel."""
    opening = at + 1
    if opening < len(host.tokens) and host.tokens[opening].text == "<":
        opening = (closing_angle(host.tokens, opening) or len(host.tokens)) + 1
    end = closing(host.tokens, opening) if opening < len(host.tokens) and host.tokens[opening].text == "(" else None
    if end is None or end + 1 >= len(host.tokens) or host.tokens[end + 1].text != "{":
        return None
    last = closing(host.tokens, end + 1) or len(host.tokens) - 1
    parameters = read_host_parameters(host.text[host.tokens[opening].end : host.tokens[end].start])
    if number >= len(parameters):
        return None
    first, final = host.tokens[end + 1].start, host.tokens[last].end
    for launch in find_launches(host.text):
        if first < launch.start < final and launch.name == parameters[number].name and len(launch.configuration) > 1:
            index = next(i for i, token in enumerate(host.tokens) if token.start == launch.start)
            given = {one.name: text for one, text in zip(parameters, arguments, strict=False)}
            place = HostPlace(host, index, given, caller)
            found = _launch(host.text, launch, place, kernel, instance)
            rest = arguments[len(parameters) - 1 :] if "..." in parameters[-1].text else ()
            by_text = {text: name for name, text in given.items()}
            rest = [by_text.get(text, text) for text in rest]
            packed = [text for text in found.arguments if "..." not in text]
            if rest and len(packed) < len(found.arguments):
                return HostLaunch(place, found.grid, found.block, found.shared, (*packed, *rest), found.types)
            return found
    return None


def _by_pointer(host: HostText, index: int, arguments: Sequence[str]) -> Iterator[HostLaunch]:
    """Yields `cudaLaunchKernel(function, grid, block, arguments, shared, stream)` whose arguments are a list of addresses."""
    given = _addresses(host, index, arguments[3])
    if given is not None:
        shared = arguments[4] if len(arguments) > 4 else None
        yield HostLaunch(HostPlace(host, index), arguments[1], arguments[2], shared, given, {})


def _by_configuration(host: HostText, index: int, arguments: Sequence[str]) -> Iterator[HostLaunch]:
    """Yields `cudaLaunchKernelEx(&configuration, kernel, arguments...)`, whose configuration has its fields assigned or listed before."""
    name = _pointee(arguments[0])
    before = host.text[: host.tokens[index].start]
    declared = (
        list(re.finditer(rf"\bcudaLaunchConfig_t\s+{re.escape(name)}\b\s*=?\s*(\{{)?", before))
        if name.isidentifier()
        else []
    )
    if not declared:
        return
    last = declared[-1]
    listed = _listed(host, last.end(1) - 1) if last[1] is not None else ()
    fields = dict(
        zip(("gridDim", "blockDim", "dynamicSmemBytes"), (one for one in listed if "=" not in one), strict=False)
    )
    fields |= {match[1]: match[2] for one in listed if (match := re.fullmatch(r"\.(\w+)\s*=\s*(.*)", one, re.DOTALL))}
    assigned = rf"\b{re.escape(name)}\s*\.\s*(\w+)\s*=(?!=)\s*([^;]*);"
    fields |= {match[1]: match[2] for match in re.finditer(assigned, before[last.end() :])}
    if "gridDim" in fields and "blockDim" in fields:
        shared = fields.get("dynamicSmemBytes")
        yield HostLaunch(
            HostPlace(host, index), fields["gridDim"], fields["blockDim"], shared, tuple(arguments[2:]), {}
        )


def _listed(host: HostText, offset: int) -> list[str]:
    """Returns the items of the braces that open at an offset of the text."""
    opening = next((at for at, token in enumerate(host.tokens) if token.start == offset), None)
    return [] if opening is None else [one.strip() for one in host.arguments(opening) if one.strip()]


def _addresses(host: HostText, before: int, listed: str) -> tuple[str, ...] | None:
    """Returns the variables whose addresses are in a list of arguments, such as `void* arguments[] = {&a, &n}`."""
    named = re.search(r"(\w+)\s*(?:\[\s*0\s*\])?\s*\)*\s*\Z", listed)
    name = named[1] if named is not None else ""
    for at in reversed(host.words.get(name, [])):
        found = re.match(r"\s*\[\s*\d*\s*\]\s*=\s*\{", host.text[host.tokens[at].end : host.tokens[at].end + 40])
        if found is not None and at < before:
            opening = next(i for i in range(at, len(host.tokens)) if host.tokens[i].text == "{")
            return tuple(_pointee(one) for one in host.arguments(opening))
    return None


_ADDRESS = re.compile(r"\(\s*(?:const\s+)?void\s*\*+\s*\)(.*)|\w+_cast\s*<[^>]*>\s*\((.*)\)|\((.*)\)|&(.*)", re.DOTALL)


def _pointee(text: str) -> str:
    """Returns the variable whose address an element of a list of arguments is."""
    while (found := _ADDRESS.fullmatch(text.strip())) is not None:
        text = next(part for part in found.groups() if part is not None)
    return text.strip()


def _through_driver(host: HostText, simple: str) -> Iterator[HostLaunch]:
    """Yields `cuLaunchKernel` of the function that `cuModuleGetFunction` gives for a kernel's name."""
    quoted = f'"{simple}"'
    if quoted not in host.text or "cuLaunchKernel" not in host.words:
        return
    functions = re.findall(rf"cuModuleGetFunction\s*\(\s*&\s*(\w+)\s*,[^;]*?{quoted}", host.text)
    for index in host.words["cuLaunchKernel"]:
        arguments = host.arguments(index + 1)
        if len(arguments) < 10 or arguments[0].strip() not in functions:
            continue
        given = _addresses(host, index, arguments[9])
        if given is not None:
            grid, block = (f"dim3({', '.join(arguments[first : first + 3])})" for first in (1, 4))
            yield HostLaunch(HostPlace(host, index), grid, block, arguments[7], given, {})


def _in_macro(
    kernel: Kernel, host: HostText, index: int, files: HostFiles, instance: str | None
) -> Iterator[HostLaunch]:
    """Yields the launch in the expansion of a macro that is given the kernel, or that stands for a launch of it."""
    opening = _call_opening(host, index)
    macro = host.macro_of(index)
    if macro is not None:
        yield from _at_macro_calls(kernel, *macro, files, instance)
        return
    if opening is None:
        return
    name = host.tokens[opening - 1].text
    if files.macro(name) is None:
        return
    yield from _expanded(kernel, files.expansion(name, host.arguments(opening)), HostPlace(host, opening - 1), instance)


def _at_macro_calls(
    kernel: Kernel, name: str, parameters: Sequence[str], files: HostFiles, instance: str | None
) -> Iterator[HostLaunch]:
    for host in files.mentioning(name):
        for index in host.words.get(name, ()):
            called = index + 1 < len(host.tokens) and host.tokens[index + 1].text == "("
            if not called or host.tokens[index].directive:
                continue
            arguments = host.arguments(index + 1)
            if len(arguments) == len(parameters) or "__VA_ARGS__" in parameters:
                yield from _expanded(kernel, files.expansion(name, arguments), HostPlace(host, index), instance)


def _expanded(kernel: Kernel, text: str, place: HostPlace, instance: str | None) -> Iterator[HostLaunch]:
    simple = kernel.name.rpartition("::")[2]
    for launch in find_launches(text):
        if launch.name.rpartition("::")[2] == simple and len(launch.configuration) >= 2:
            host = host_text(text)
            index = next(at for at, token in enumerate(host.tokens) if token.start == launch.start)
            yield replace(_launch(text, launch, place, kernel, instance), expanded=HostPlace(host, index))
            return
