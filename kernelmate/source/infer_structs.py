"""Splits parameters into their parts for inferred contracts: fields of structs, elements of arrays of structs, textures and surfaces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from kernelmate.records import (
    AddressMode,
    Argument,
    Direction,
    Kernel,
    Member,
    Parameter,
    Passed,
    TextureView,
    Unit,
)
from kernelmate.source.arguments import POINTER_BYTES, TEXEL_BYTES, short_name
from kernelmate.source.dtypes import ITEM_BYTES, c_type_dtype
from kernelmate.source.host_text import HostFiles
from kernelmate.source.infer_host import host_files, project_type
from kernelmate.source.instances import template_arguments
from kernelmate.source.structs import AXES, StructField, alignment_of, is_vector, struct_fields
from kernelmate.source.textures import SHOWN_DTYPES, object_kind
from kernelmate.source.tokens import closing, lex

_SIDE = "64"
"""Side of a texture or a surface to which no size belongs."""
_ACCESSOR = re.compile(r"(?:\w+::)*(?:Generic)?PackedTensorAccessor(32|64|)\Z")
_ACCESS = r"\b(?P<kind>tex|surf)(?P<rank>[123])D(?P<words>\w*)\s*(?:<\s*(?P<type>[\w ]+?)\s*>)?\s*\((?:[^;()]|\([^()]*\))*?\b{name}\b(?P<rest>[^;]*)"


@dataclass(frozen=True, slots=True)
class _FieldPlace:
    """An argument of a struct: the names that lead to its field, the keys of its entry, its dtype and its offset in bytes."""

    names: tuple[str, ...]
    keys: tuple[str | int, ...]
    dtype: str
    field: StructField
    offset: int

    @property
    def nbytes(self) -> int:
        return POINTER_BYTES if self.field.pointer else ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class _Whole:
    """A parameter that is assembled from several arguments.

    `rank` is that of a tensor, or of the coordinates of a texture or a surface; of a tensor, `least` has what `_least_sides` returns; of the latter, `channels` are those of a texel, and
    `written` is True if no access reads it.
    """

    kind: Literal["struct", "pointer", "texture"]
    members: tuple[Member, ...]
    nbytes: int
    view: TextureView | None = None
    rank: int = 0
    channels: int = 1
    written: bool = False
    least: tuple[tuple[int, bool], ...] = ()


@dataclass(frozen=True, slots=True)
class FlattenedKernel:
    """A kernel with one parameter for each argument that its contract has.

    Attributes:
        kernel: the kernel with these parameters.
        wholes: the parameters of the kernel as it is written that are made of other arguments, by name.
        renamed: arguments that are not called as their fields, which a contract cannot make sizes.
        common: of these, the fields of structs with pointers that share the size of the field's name: `cols` of `src` and of `dst`.
        steps: the bytes of an element, by arguments that are the bytes of a row.
    """

    kernel: Kernel
    wholes: Mapping[str, _Whole]
    renamed: frozenset[str]
    common: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, int] = field(default_factory=dict)

    def value(self, name: str, extents: Sequence[str]) -> str | None:
        """Returns the value of a field that follows from sizes."""
        if name in self.steps and extents:
            return f"{extents[-1]} * {self.steps[name]}"
        return self.common[name] if self.common.get(name) in extents else None

    def passed(
        self, args: Sequence[Argument], passing: Sequence[Passed], extents: Sequence[str]
    ) -> tuple[tuple[Argument, ...], tuple[Passed, ...]]:
        """Returns the arguments, and how they form the parameters of the kernel as written."""
        if not self.wholes:
            return tuple(args), tuple(passing)
        owner = {member.argument: name for name, whole in self.wholes.items() for member in whole.members}
        found: list[Passed] = []
        for one in passing or [Passed(one.name, "argument", (Member(one.name, 0),)) for one in args]:
            name = owner.get(one.name)
            if name is None:
                found.append(one)
            elif not found or found[-1].name != name:
                whole = self.wholes[name]
                found.append(Passed(name, whole.kind, whole.members, whole.nbytes, view=whole.view))
        shaped = {name: self.wholes[whole] for name, whole in owner.items() if self.wholes[whole].rank}
        shown = (_shaped(one, shaped[one.name], extents) if one.name in shaped else one for one in args)
        return tuple(shown), tuple(found)


def taken_apart(kernel: Kernel, bound: Mapping[str, str]) -> FlattenedKernel:
    """Returns a kernel with structs, textures and surfaces replaced by the arguments that they are made of, where their fields are plain.

    Args:
        kernel: the kernel.
        bound: the arguments of its template by the names of parameters.
    """
    files = host_files(kernel.unit)
    parts = {one.name: found for one in kernel.signature.parameters if (found := _parts(kernel, one, bound, files))}
    taken = Counter(short_name(part.names) for all_of in parts.values() for part in all_of)
    for one in kernel.signature.parameters:
        taken.update([] if one.name in parts else AXES[: one.vector] if is_vector(one) else [one.name])
    parameters: list[Parameter] = []
    wholes: dict[str, _Whole] = {}
    renamed: set[str] = set()
    common: dict[str, str] = {}
    steps: dict[str, int] = {}
    for one in kernel.signature.parameters:
        shape = object_kind(one)
        if shape is not None:
            shown, wholes[one.name] = _object(kernel, one, shape)
            parameters.append(shown)
        elif one.name not in parts:
            empty = not one.pointer and object_kind(one) is None and _fields(kernel, one, bound, files) == ()
            parameters.append(replace(one, dtype="uint8") if empty else one)
            renamed.update([one.name] if empty else [])
        else:
            members = []
            for part in parts[one.name]:
                short = short_name(part.names)
                name = short if taken[short] == 1 else "_".join(part.names)
                renamed.update([] if name == part.names[-1] else [name])
                pointers = [other for other in parts[one.name] if other.field.pointer]
                if len(pointers) == 1 and part.names[-1] == "step":
                    steps[name] = ITEM_BYTES[pointers[0].dtype] * c_type_dtype(pointers[0].field.type)[1]
                if pointers and name in renamed and "int" in part.dtype and len(part.names) == 2:
                    common[name] = part.names[-1]
                members.append(Member(name, part.offset, part.keys))
                parameters.append(_parameter(one, name, part))
            rank = len(members) // 2 if _accessor_fields(kernel, one.base, bound) else 0
            kind: Literal["pointer", "struct"] = "pointer" if one.pointer else "struct"
            least = _least_sides(kernel, one.name, rank)
            wholes[one.name] = _Whole(kind, tuple(members), _size(parts[one.name]), rank=rank, least=least)
    if parameters == list(kernel.signature.parameters):
        return FlattenedKernel(kernel, {}, frozenset())
    signature = replace(kernel.signature, parameters=tuple(parameters))
    return FlattenedKernel(replace(kernel, signature=signature), wholes, frozenset(renamed), common, steps)


def element_of(kernel: Kernel, parameter: Parameter, bound: Mapping[str, str]) -> tuple[str, int] | None:
    """Returns dtype and number of the fields of the structs that a pointer's array has, if all are of one type."""
    parts = _laid_out(parameter.name, _fields(kernel, parameter, bound))
    dtypes = {part.dtype for part in parts or ()}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    if not parameter.pointer or parts is None or dtype is None or any(part.field.pointer for part in parts):
        return None
    return dtype, _size(parts) // ITEM_BYTES[dtype]


def undefined(kernel: Kernel, parameter: Parameter, bound: Mapping[str, str]) -> str:
    """Returns why the type of a parameter is not known, where no file of the project defines it; else an empty text."""
    name = bound.get(parameter.base, parameter.base).partition("<")[0].rpartition("::")[2].strip()
    word = (
        rf"\b(?:struct|class|typedef|using|union|enum|define)\b[^;{{]*\b{re.escape(name)}\b|\}}\s*{re.escape(name)}\s*;"
    )
    texts = host_files(kernel.unit).mentioning(name, word) if name.isidentifier() else iter(())
    known = any(re.search(word, host.text) for host in texts)
    return "" if known or not name.isidentifier() else f": neither its file nor its project defines {name}"


def mixed_hint(kernel: Kernel, parameter: Parameter, bound: Mapping[str, str]) -> str | None:
    """Returns the entry of an array of structs whose fields have several types; None if no such struct is known."""
    parts = _laid_out(parameter.name, _fields(kernel, parameter, bound)) if parameter.pointer else None
    if parts is None:
        return None
    entry = f'{parameter.name} = "{"in" if parameter.const else "inout"} uint8[n, {_size(parts)}]"'
    return (
        f"{parameter.base} has fields of several types: write {entry}, with a function for inputs that makes its bytes."
    )


# ------------------------------------------------------------------------------------------------------------ structs


def _fields(
    kernel: Kernel, parameter: Parameter, bound: Mapping[str, str], files: HostFiles | None = None
) -> tuple[StructField, ...] | None:
    base = re.sub(r"\w+", lambda word: bound.get(word[0], word[0]), parameter.base)
    if parameter.dtype is not None or base in kernel.signature.template_parameters:
        return None
    return _defined_fields(kernel.unit, base, files or host_files(kernel.unit))


def _defined_fields(unit: Unit, base: str, files: HostFiles) -> tuple[StructField, ...] | None:
    """Returns the fields of a struct that a unit or its project defines, or of the one that a `typedef` stands for."""
    other = project_type(unit, base, files) if base.isidentifier() else ""
    base = other if "<" in other else base
    name = base.partition("<")[0].rpartition("::")[2].strip()
    if not name.isidentifier():
        return None
    for host in files.mentioning(
        name, rf"\b(?:struct|class)\b[^;{{}}]*\b{name}\s*(?:final\s*)?(?::[^;{{}}]*)?\{{|\}}\s*{name}\s*;"
    ):
        found = struct_fields(host.text, base.rpartition("::")[2] if "<" not in base else base)
        if found is not None:
            return tuple(replace(one, type=_defined(unit, one.type, files)) for one in found)
    return None


def _defined(unit: Unit, name: str, files: HostFiles | None = None) -> str:
    """Returns the type that a name is defined as, if CUDA itself does not define it."""
    known = c_type_dtype(name)[0] is not None or not name.isidentifier()
    return name if known else project_type(unit, name, files) or name


def _accessor_fields(kernel: Kernel, base: str, bound: Mapping[str, str]) -> tuple[StructField, ...] | None:
    """Returns the fields of torch's accessor of a tensor, which are the same in every version; None for another type."""
    parsed = template_arguments(base)
    match = None if parsed is None else _ACCESSOR.match(parsed[0])
    if parsed is None or match is None or len(parsed[1]) < 2 or not parsed[1][1].isdecimal():
        return None
    element, rank = parsed[1][0], int(parsed[1][1])
    index = "int32_t" if match[1] == "32" else parsed[1][3] if len(parsed[1]) > 3 else "int64_t"
    words = element.split()
    plain = " ".join(word for word in words if word != "const")
    data = StructField("data_", _defined(kernel.unit, bound.get(plain, plain)), True, "const" in words, None)
    return (data, *(StructField(name, index, False, False, rank) for name in ("sizes_", "strides_")))


def _parts(
    kernel: Kernel, parameter: Parameter, bound: Mapping[str, str], files: HostFiles
) -> tuple[_FieldPlace, ...] | None:
    """Returns the parts of a struct that is passed by value, or by a pointer if it holds pointers: others are in arrays."""
    if parameter.dtype is not None or object_kind(parameter) is not None:
        return None
    parts = _laid_out(
        parameter.name, _accessor_fields(kernel, parameter.base, bound) or _fields(kernel, parameter, bound, files)
    )
    single = parts is not None and (not parameter.pointer or any(part.field.pointer for part in parts))
    return parts if single else None


def _laid_out(name: str, fields: Sequence[StructField] | None) -> tuple[_FieldPlace, ...] | None:
    """Returns the parts of a struct at their places, each aligned naturally; None if one has a type that no contract describes."""
    found: list[_FieldPlace] = []
    at = 0
    for one in fields or ():
        dtype, vector = c_type_dtype(one.type)
        if dtype is None or one.count == 0 or (one.pointer and one.count is not None):
            return None
        if one.pointer:
            at = -(-at // POINTER_BYTES) * POINTER_BYTES
            found.append(_FieldPlace((name, one.name), (one.name,), dtype, one, at))
            at += POINTER_BYTES
            continue
        nbytes = ITEM_BYTES[dtype]
        align = max(alignment_of(one.type), nbytes)
        at = -(-at // align) * align
        for index in range(one.count or 1):
            for axis in AXES[:vector] if vector > 1 else ("",):
                numbered: tuple[str | int, ...] = () if one.count is None else (index,)
                keys = (one.name, *numbered, *([axis] if axis else []))
                found.append(_FieldPlace((name, *map(str, keys)), keys, dtype, one, at))
                at += nbytes
    return tuple(found) or None


def _size(parts: Sequence[_FieldPlace]) -> int:
    """Returns the bytes of a struct, a multiple of its alignment."""
    align = max(max(one.nbytes, 1 if one.field.pointer else alignment_of(one.field.type)) for one in parts)
    return -(-(parts[-1].offset + parts[-1].nbytes) // align) * align


def _parameter(whole: Parameter, name: str, part: _FieldPlace) -> Parameter:
    """Returns the parameter that replaces a part of a struct."""
    pointer = part.field.pointer
    written = f"{'const ' * part.field.const}{part.field.type}{' *' * pointer}"
    vector = c_type_dtype(part.field.type)[1] if pointer else 1
    const = part.field.const or (whole.const and not pointer)
    return replace(
        whole,
        name=name,
        type=written,
        base=part.field.type,
        dtype=part.dtype,
        vector=vector,
        pointer=pointer,
        const=const,
    )


# ----------------------------------------------------------------------------------------------- textures and surfaces


def _object(kernel: Kernel, parameter: Parameter, kind: str) -> tuple[Parameter, _Whole]:
    """Returns a parameter for the array below a texture or surface, and its view, from the functions that access it."""
    accesses = list(re.finditer(_ACCESS.format(name=re.escape(parameter.name)), kernel.source))
    one = next((found for found in accesses if found["type"]), accesses[0] if accesses else None)
    rank, words = (2, "") if one is None else (int(one["rank"]), one["words"])
    step = (
        re.search(r"\*\s*(?:sizeof\s*\(\s*([\w ]+?)\s*\)|(8|16)\b)", one["rest"]) if kind == "surface" and one else None
    )
    by_bytes = "" if step is None else step[1] or f"float{int(step[2]) // 4}"
    base = (one["type"] if one is not None else None) or by_bytes or "float"
    dtype, vector = c_type_dtype(base)
    if dtype not in SHOWN_DTYPES:
        base, dtype, vector = "float", "float32", 1
    surface, buffer, layered = kind == "surface", words.startswith("fetch"), "Layered" in words and rank == 2
    mode: AddressMode = "clamp"
    addresses = () if surface or buffer else (mode,) * rank
    view = TextureView(surface, vector in (2, 4), layered, buffer, addresses)
    shown = replace(parameter, type=f"{base} *", base=base, dtype=dtype, vector=1, pointer=True, const=not surface)
    written = surface and not any("read" in found["words"] for found in accesses)
    whole = _Whole("texture", (Member(parameter.name, 0),), 0, view, rank + layered, vector, written)
    return shown, whole


def _least_sides(kernel: Kernel, name: str, rank: int) -> tuple[tuple[int, bool], ...]:
    """Returns for each dimension of a tensor the side that subscripts by numbers need, and whether there are no others: 7 for `x[i][6]`."""
    found: list[list[str]] = [[] for _ in range(rank)]
    tokens = lex(kernel.source).tokens
    names = {name: 0}
    for at in range(1, len(tokens) - 1 if rank else 0):
        axis = names.get(tokens[at].text)
        if axis is None or tokens[at - 1].text in (".", "->"):
            continue
        end: int | None = at
        while end is not None and tokens[end + 1].text == "[" and axis < rank:
            last = closing(tokens, end + 1)
            found[axis].append("".join(token.text for token in tokens[end + 2 : last]))
            end, axis = last, axis + 1
        if end is not None and axis < rank and tokens[at - 1].text == "=" and tokens[end + 1].text == ";":
            names[tokens[at - 2].text] = axis
    numbers = [[int(text) + 1 for text in texts if text.isdecimal()] for texts in found]
    return tuple(
        (max(one, default=0), max(one, default=0) > 1 and len(one) == len(texts))
        for one, texts in zip(numbers, found, strict=True)
    )


def _shaped(one: Argument, whole: _Whole, extents: Sequence[str]) -> Argument:
    """Returns an argument of a tensor, or the array that an object shows: its sides are the innermost sizes, and the channels of a texel."""
    if whole.view is None:
        place = next(member.keys for member in whole.members if member.argument == one.name)
        side = extents[0] if len(extents) == 1 else f"max({', '.join(extents)})"  # an index below each size is valid
        sides = [
            str(least) if fixed else f"max({side}, {least})" if least > 1 else side for least, fixed in whole.least
        ]
        if one.shape is not None:
            return replace(one, shape=tuple(sides))
        if place[0] == "sizes_":
            return replace(one, value=sides[int(place[1])], fixed=sides[int(place[1])].isdigit())
        inner = sides[int(place[1]) + 1 :]
        power = f"{side} ** {len(inner)}" if len(inner) > 1 and set(inner) == {side} else " * ".join(inner)
        return replace(one, value=power or "1", fixed=all(one.isdigit() for one in inner))
    known = (
        tuple(extents) if len(extents) >= whole.rank or whole.rank < 3 else ()
    )  # three sides may not be as long as one
    shown = ((_SIDE,) * whole.rank + known)[-whole.rank :]
    channels = (str(whole.channels),) if whole.channels > 1 else ()
    direction: Direction = "out" if whole.written else one.direction or "in"
    return replace(one, direction=direction, shape=(*shown, *channels), align=TEXEL_BYTES)
