"""Reads a contract's `[args]` and `[symbols]`, and checks them against the kernel's parameters.

Some arguments are not passed as one parameter each: structs, arrays of pointers, aliases, and variables of the module.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn

from kernelmate.records import Argument, Kernel, Member, Parameter, Passed, TextureView
from kernelmate.source.document import KEYS, Document
from kernelmate.source.dtypes import ITEM_BYTES, c_type_dtype
from kernelmate.source.entries import read_entry
from kernelmate.source.expressions import names_in, nearest_hint
from kernelmate.source.structs import alignment_of, members_of, vector_example
from kernelmate.source.tensor_maps import OF, example_map, is_tensor_map, read_box, split_entry
from kernelmate.source.textures import example_entry, object_kind, object_type, read_view, split_object
from kernelmate.source.toml_positions import Path

POINTER_BYTES = 8
TEXEL_BYTES = 16
"""Bytes of the largest texel, to which the array of a texture is aligned."""
_ALIAS = re.compile(r"\s*alias\b[ \t]*(?P<of>\w*)[ \t]*(?:\[(?P<start>[^\]]*)\])?\s*\Z")
_POINTERS = re.compile(r"(?P<head>\s*\w+[ \t]+\w+)[ \t]*\*[ \t]*\[(?P<count>[^\]]*)\][ \t]*\[")
_VARIABLE = r"__(constant|device|managed)__[^;{{}}()]*?\b{name}\b"


class _Leaf(NamedTuple):
    """One entry of a struct: the names that lead to it, its text, and its key in the document."""

    names: tuple[str, ...]
    entry: object
    path: Path


@dataclass(slots=True)
class PassingReader:
    """Reads the entries of `[args]` and `[symbols]` in order.

    Attributes:
        args: what has been read so far.
        passing: the same, by parameter and variable.
    """

    document: Document
    kernel: Kernel
    sizes: Sequence[str]
    args: list[Argument] = field(default_factory=list)
    passing: list[Passed] = field(default_factory=list)
    _names: Counter[str] = field(default_factory=Counter)

    def read(self, entries: Mapping[str, Any], parameters: Mapping[str, Parameter]) -> None:
        """Reads one entry for each parameter, and then those of `[symbols]`.

        Raises:
            ContractError: at the entry that is wrong.
        """
        variables = self._variables()
        every = [(("args",), name, entries[name]) for name in parameters]
        every += [(("symbols",), name, entry) for name, entry in variables.items()]
        for table, name, entry in every:
            self._names.update(short_name(leaf.names) for leaf in _leaves(entry, (name,), (*table, name)))
        for name, parameter in parameters.items():
            self._parameter(parameter, entries[name])
        for name, entry in variables.items():
            self._variable(name, entry)

    def plain(self) -> bool:
        """Returns True if each argument is a parameter of its own."""
        return all(one.kind == "argument" and not one.variable for one in self.passing)

    def _parameter(self, parameter: Parameter, entry: object) -> None:
        path: Path = ("args", parameter.name)
        example = _shown_example(parameter)
        if example is not None:
            self._shown(parameter, entry, path, example)
            return
        if isinstance(entry, dict):
            if parameter.dtype is not None and (parameter.pointer or parameter.vector == 1):
                message = f"{parameter.name} is {parameter.type}, which has no fields."
                self.document.fail(path, message, f'Write {parameter.name} = "{parameter.dtype}" with a value.')
            self._struct(parameter.name, entry, path, parameter)
            return
        alias = _ALIAS.match(entry) if isinstance(entry, str) else None
        if alias is not None and parameter.pointer:
            self._alias(parameter, alias, path)
        elif isinstance(entry, str) and _POINTERS.match(entry):
            self._pointers(parameter, entry, path)
        else:
            if "*" in parameter.base:
                element = c_type_dtype(parameter.base.replace("*", "").strip())[0] or "float32"
                hint = (
                    f'Write {parameter.name} = "in {element}*[count][n]": count pointers to arrays of n elements each.'
                )
                self.document.fail(path, f"{parameter.name} is a pointer to pointers.", hint)
            self.args.append(read_entry(self.document, parameter, entry, self.sizes))
            self.passing.append(Passed(parameter.name, "argument", (Member(parameter.name, 0),)))

    def _shown(self, parameter: Parameter, entry: object, path: Path, example: str) -> None:
        if not isinstance(entry, str):
            message = f"{parameter.name} is {parameter.type}, whose entry must be a string."
            self.document.fail(path, message, f"Write {example}.")
        kind = object_kind(parameter)
        if kind is None:
            self._tensor_map(parameter, entry, path)
        else:
            self._texture(parameter, entry, path, kind)

    def _alias(self, parameter: Parameter, alias: re.Match[str], path: Path) -> None:
        of, start = alias["of"], (alias["start"] or "0").strip()
        target = self._named_array(parameter, of, alias.start("of"), path, "alias")
        self.document.expression(path, start, self.sizes, alias.start("start") if alias["start"] else 0)
        if parameter.dtype not in (None, target.dtype):
            message = f"{parameter.name} holds {parameter.dtype}, and {of} holds {target.dtype}."
            self.document.fail(path, message, "Name an array of the same dtype.")
        if not parameter.const and target.direction == "in":
            message = f"{parameter.name} may be written, and {of} is only an input."
            self.document.fail(path, message, f"Write inout for {of}, or const for the parameter.")
        self._check_shared(parameter, target, None, path)
        self.document.inner[(*path, "start")] = alias.start("start") if alias["start"] else 0
        self.passing.append(Passed(parameter.name, "alias", (Member(of, 0),), start=start))

    def _tensor_map(self, parameter: Parameter, entry: str, path: Path) -> None:
        head, box = split_entry(self.document, path, parameter.name, entry)
        of = OF.match(head)
        found = None if of is None else self._named_array(parameter, of["of"], of.start("of"), path, "tensormap")
        array = found or self._own_array(parameter, head, path)
        aligned = replace(array, align=max(array.align or 0, 16))
        self.args[self.args.index(array)] = aligned
        self._check_shared(parameter, aligned, None, path)
        read = read_box(self.document, path, aligned, box)
        self.passing.append(Passed(parameter.name, "tensor_map", (Member(array.name, 0),), box=read))

    def _texture(self, parameter: Parameter, entry: str, path: Path, kind: str) -> None:
        head, words = split_object(self.document, path, parameter.name, entry, kind)
        if words["of"] is None:
            # The object has memory of its own, whose address no check moves.
            array = replace(self._own_array(parameter, head, path), align=TEXEL_BYTES)
            self.args[-1] = array
        else:
            array = self._named_array(parameter, words["of"], words.start("of"), path, f"{kind} of")
        view = read_view(self.document, path, array, words)
        self._check_shared(parameter, array, view, path)
        self.passing.append(Passed(parameter.name, "texture", (Member(array.name, 0),), view=view))

    def _check_shared(self, parameter: Parameter, array: Argument, view: TextureView | None, path: Path) -> None:
        """Checks a parameter, an object if it has a `view`, against the earlier ones that pass the same array."""
        for other in self.passing:
            if all(member.argument != array.name for member in other.members):
                continue
            if view is not None and other.view is not None:
                if other.view.storage != view.storage:
                    message = f"{parameter.name} lays {array.name} out otherwise than {other.name}."
                    self.document.fail(path, message, "Write the same of buffer, layered and channels for both.")
                continue
            shown = view or other.view
            if shown is not None and (shown.surface or array.direction != "in"):
                # The object shows a copy on a GPU, and neither it nor the array would have what is written to the other.
                message = f"{array.name} is written, and is both shown by an object and passed by its address."
                hint = f"Give {parameter.name} an array of its own, or only read {array.name}: in, and no surface."
                self.document.fail(path, message, hint)

    def _own_array(self, parameter: Parameter, entry: str, path: Path) -> Argument:
        one = read_entry(self.document, _parameter_of(parameter.name, pointer=True), entry, self.sizes, path)
        self.args.append(one)
        return one

    def _named_array(self, parameter: Parameter, name: str, at: int, path: Path, word: str) -> Argument:
        """Returns the array of an earlier entry."""
        arrays = [one for one in self.args if one.shape is not None]
        found = next((one for one in arrays if one.name == name), None)
        if found is None:
            said = f"{name!r} is not an array of an earlier entry." if name else f"{word} needs an array."
            hint = nearest_hint(name, [one.name for one in arrays]) if arrays else "No array has an entry before it."
            self.document.fail(path, f"{parameter.name}: {said}", hint, offset=at)
        return found

    def _pointers(self, parameter: Parameter, entry: str, path: Path) -> None:
        match = _POINTERS.match(entry)
        assert match is not None
        if parameter.base.count("*") != 1 or not parameter.pointer:
            message = f"{parameter.name} ({parameter.type}) is not a pointer to pointers."
            self.document.fail(path, message, "Write one shape without the star.")
        inner = c_type_dtype(parameter.base.replace("*", "").strip())[0]
        one = _parameter_of(parameter.name, pointer=True, dtype=inner)
        # The count is the first dimension of the array of all parts; the entry's length is kept, so that positions in
        # it stay valid.
        written = f"{match['head']}  [{match['count']},{' ' * (match.end() - match.end('count') - 2)}"
        flat = written + entry[match.end() :]
        self.args.append(read_entry(self.document, one, flat, self.sizes, path))
        self.passing.append(Passed(parameter.name, "pointers", (Member(parameter.name, 0),)))

    def _variables(self) -> dict[str, Any]:
        variables = self.document.data.get("symbols", {})
        if not isinstance(variables, dict):
            hint = "Write [symbols] with one line for each variable below it."
            self.document.fail(("symbols",), "[symbols] must be a table.", hint)
        return variables

    def _variable(self, name: str, entry: object) -> None:
        path: Path = ("symbols", name)
        own = name.rpartition("::")[2]
        declared = re.search(_VARIABLE.format(name=re.escape(own)), self.kernel.unit.text)
        if declared is None and not re.search(r'#[ \t]*include[ \t]*"', self.kernel.unit.text):
            found = re.findall(r"__(?:constant|device)__[^;{}()=\[]*?\b(\w+)\s*[;=\[]", self.kernel.unit.text)
            message = f"There is no __constant__ or __device__ variable {own!r} in this file."
            self.document.fail(path, message, nearest_hint(own, found), key=True)
        if isinstance(entry, dict):
            self._struct(name, entry, path, None)
            return
        array = isinstance(entry, str) and "[" in entry
        one = self._entry(_Leaf((own,), entry, path), array=array)
        if declared is not None and declared[1] == "constant" and one.direction in ("out", "inout", "scratch"):
            message = f"{own} is __constant__: the kernel cannot write it."
            self.document.fail(path, message, f"Write in instead of {one.direction}.")
        self.passing.append(Passed(name, "argument", (Member(one.name, 0),), variable=True))

    def _struct(self, name: str, table: dict[str, Any], path: Path, parameter: Parameter | None) -> None:
        if not any(True for _ in _leaves(table, (), path)):
            self.document.fail(path, f"{name} has no fields.", f'Write {name} = {{ n = "int32" }}.')
        if parameter is not None:
            self._check_members(parameter, table, path)
        declared = {} if parameter is None else members_of(self.kernel.unit.text, parameter.base) or {}
        aligned = {(*path, key): alignment_of(declared.get(key, "")) for key in table}
        aligned[path] = alignment_of("" if parameter is None else parameter.base)
        members: list[Member] = []
        size, align = self._laid_out(table, (name.rpartition("::")[2],), path, 0, members, aligned)
        kind: Any = "pointer" if parameter is not None and parameter.pointer else "struct"
        nbytes = -(-size // align) * align
        self.passing.append(Passed(name, kind, tuple(members), nbytes, variable=parameter is None))

    def _laid_out(
        self,
        entry: Any,
        names: tuple[str, ...],
        path: Path,
        at: int,
        members: list[Member],
        aligned: Mapping[Path, int],
    ) -> tuple[int, int]:
        """Adds the members of an entry that starts at or after `at`; returns its end and its alignment.

        Each is aligned naturally: to its own size, a pointer to eight bytes, a struct to its most aligned field, and a list to
        what `aligned` has for it (CUDA C++ Programming Guide, Built-in Vector Types).
        """
        if not isinstance(entry, dict | list):
            one = self._entry(_Leaf(names, entry, path), array=isinstance(entry, str) and "[" in entry)
            size = POINTER_BYTES if one.shape is not None else ITEM_BYTES[one.dtype]
            start = -(-at // size) * size
            members.append(Member(one.name, start, path[2:]))
            return start + size, size
        parts: list[tuple[Any, Any]] = list(entry.items() if isinstance(entry, dict) else enumerate(entry))
        first = len(members)
        end, align = 0, aligned.get(path, 1)
        for key, part in parts:
            end, own = self._laid_out(part, (*names, str(key)), (*path, key), end, members, aligned)
            align = max(align, own)
        start = -(-at // align) * align
        members[first:] = [replace(one, offset=one.offset + start) for one in members[first:]]
        return start + (-(-end // align) * align if isinstance(entry, dict) else end), align

    def _entry(self, leaf: _Leaf, *, array: bool) -> Argument:
        """Reads an entry that is not a parameter by itself, under its short name, or its full name if two share the short one."""
        last = leaf.names[-1]
        short = short_name(leaf.names)
        name = short if self._names[short] == 1 else "_".join(leaf.names)
        if not name.isidentifier() or any(one.name == name for one in self.args):
            self.document.fail(leaf.path, f"{name!r} cannot be the name of an argument.", "Rename the field.", key=True)
        if leaf.path != ("args", name):
            self.document.moved[("args", name)] = leaf.path
        one = _parameter_of(name, pointer=array)
        self.args.append(read_entry(self.document, one, leaf.entry, self.sizes, leaf.path, size=last))
        return self.args[-1]

    def _check_members(self, parameter: Parameter, table: Mapping[str, Any], path: Path) -> None:
        """Compares the fields with those of the struct, if the file defines it."""
        members = members_of(self.kernel.unit.text, parameter.base)
        if members is None:
            return
        if not members:
            message = f"{parameter.base} has no fields: it is passed as one byte."
            self.document.fail(path, message, f'Write {parameter.name} = "uint8 = 1".')
        for name in table:
            if name not in members:
                message = f"{parameter.base} has no field {name!r}."
                self.document.fail((*path, name), message, nearest_hint(name, members), key=True)
        missing = next((name for name in members if name not in table), None)
        if missing is not None:
            hint = f"Add {missing}: every field has its entry, in the order of {parameter.base}."
            self.document.fail(path, f"{parameter.name} lacks {missing}, a field of {parameter.base}.", hint)
        for name, wanted in zip(table, members, strict=True):
            if name != wanted:
                hint = f"Write the fields in their order: {', '.join(members)}."
                self.document.fail((*path, name), f"{name} stands where {parameter.base} has {wanted}.", hint, key=True)
            self._check_type(table[name], members[name], (*path, name))

    def _check_type(self, entry: object, declared: str, path: Path) -> None:
        kind = object_type(declared)
        if kind is not None:
            message = f"{path[-1]} is a {kind} object in a struct, which a contract cannot describe."
            self.document.fail(path, message, "Pass it as a parameter of the kernel.")
        pointer = declared.endswith("*")
        dtype = declared if declared in ITEM_BYTES else c_type_dtype(declared.rstrip("* "))[0]
        for one in entry if isinstance(entry, list) else [entry]:
            found = re.match(r"\s*(?:(?:in|out|inout|scratch)\s+)?(\w+)\s*(\[)?", one) if isinstance(one, str) else None
            if found is None or dtype is None:
                continue
            if found[1] != dtype or (found[2] is not None) != pointer:
                wanted = f"in {dtype}[n]" if pointer else dtype
                self.document.fail(path, f"{path[-1]} is declared as {declared}.", f"Write {wanted}.")


def short_name(names: Sequence[str]) -> str:
    """Returns the short name of a field (`n`) or of a list element in one (`pads_0`); used if it is unique."""
    return "_".join(names[-2:]) if names[-1].isdecimal() else names[-1]


def _parameter_of(name: str, *, pointer: bool, dtype: str | None = None) -> Parameter:
    """Returns a parameter that stands for a field or a variable, which has no type to compare with."""
    return Parameter(name, "", "", dtype, 1, pointer, const=False, restrict=False, line=0, column=0)


def _leaves(entry: object, names: tuple[str, ...], path: Path) -> Iterator[_Leaf]:
    if isinstance(entry, dict | list):
        parts = entry.items() if isinstance(entry, dict) else enumerate(entry)
        for key, part in parts:
            yield from _leaves(part, (*names, str(key)), (*path, key))
    else:
        yield _Leaf(names, entry, path)


def read_arguments(
    document: Document, kernel: Kernel, sizes: Sequence[str]
) -> tuple[tuple[Argument, ...], tuple[Passed, ...]]:
    """Returns the arguments of every parameter and variable in order, and how they are passed (`Contract.passing`).

    Raises:
        ContractError: an unknown, missing or misplaced argument, or an entry that is wrong in itself.
    """
    parameters = {parameter.name: parameter for parameter in kernel.signature.parameters}
    entries = document.data.get("args", {})
    if not isinstance(entries, dict):
        document.fail(("args",), "args must be a table.", "Write [args] with one line for each parameter below it.")
    for name in entries:
        if name not in parameters:
            _fail_unknown(document, kernel, name)
    missing = [parameter for parameter in parameters.values() if parameter.name not in entries]
    if missing:
        _fail_missing(document, kernel, missing[0], sizes)
    # A table of its own, `[args.params]`, stands behind the other entries wherever its parameter is.
    plain = [name for name in entries if not isinstance(entries[name], dict)]
    for name, wanted in zip(plain, (name for name in parameters if name in plain), strict=True):
        if name != wanted:
            message = f"{name} stands where {kernel.name} takes {wanted}."
            hint = f"Write the arguments in the kernel's order: {', '.join(parameters)}."
            document.fail(("args", name), message, hint, key=True)
    reader = PassingReader(document, kernel, sizes)
    reader.read(entries, parameters)
    found = tuple(reader.args)
    check_compared(document, found, sizes)
    return found, () if reader.plain() else tuple(reader.passing)


def check_compared(document: Document, args: Sequence[Argument], sizes: Sequence[str]) -> None:
    """Checks the arguments that outputs name for their extent, mask or order.

    Raises:
        ContractError: at the entry that names an unsuitable one.
    """
    arrays = {one.name: one for one in args if one.shape is not None}
    for one in args:
        if one.extent is not None and one.extent[1] not in arrays:
            document.expression(("args", one.name), one.extent[1], [*sizes, *arrays])
            names = [name for name, _ in names_in(one.extent[1]) if name in arrays]
            if names:
                hint = f"Write {names[0]} alone, or an expression over sizes."
                document.fail(("args", one.name), f"{one.extent[1]!r} computes with the array {names[0]}.", hint)
        for name in (one.extent[1] if one.extent is not None else None, one.mask, one.paired):
            if name is None or (name in sizes and name not in arrays) or not name.isidentifier():
                continue
            if name not in arrays or name == one.name:
                others = [other for other in arrays if other != one.name]
                document.fail(("args", one.name), f"{name!r} is not another array.", nearest_hint(name, others))
            _check_named(document, one, arrays[name])


def _check_named(document: Document, one: Argument, other: Argument) -> None:
    """Checks that an array can decide what is compared of an output."""
    if one.paired == other.name:
        if not other.unordered or other.paired is not None or other.extent != one.extent:
            hint = f"Write the same extent and `unordered` for {other.name}, without `with`."
            document.fail(("args", one.name), f"{other.name} is not an unordered output like {one.name}.", hint)
        return
    if other.direction == "scratch" or other.partly:
        hint = f"Make {other.name} an output that is compared as a whole."
        document.fail(("args", one.name), f"{other.name} is not compared as a whole, so it can decide nothing.", hint)
    if "int" not in other.dtype and other.dtype != "bool":
        document.fail(("args", one.name), f"{other.name} holds {other.dtype}, not integers.", "Name an integer array.")
    if one.mask == other.name:
        if other.shape != one.shape:
            document.fail(("args", one.name), f"The mask {other.name} has another shape.", f"Give it {one.name}'s.")
        return
    assert one.extent is not None
    assert one.shape is not None
    lead = one.shape[: one.extent[0]]
    if other.shape != lead and not (not lead and other.shape == ("1",)):
        wanted = ", ".join(lead) or "1"
        message = f"{other.name} counts the elements of {one.name} along axis {one.extent[0]}, and has another shape."
        document.fail(("args", one.name), message, f"Write {other.name} with the shape [{wanted}].")


def _fail_unknown(document: Document, kernel: Kernel, name: str) -> NoReturn:
    if name in KEYS:
        message = f"{name!r} stands in [args], where only arguments may."
        document.fail(("args", name), message, "Move it above the line [args].", key=True)
    names = [parameter.name for parameter in kernel.signature.parameters]
    document.fail(("args", name), f"{kernel.name} has no parameter {name!r}.", nearest_hint(name, names), key=True)


def _fail_missing(document: Document, kernel: Kernel, parameter: Parameter, sizes: Sequence[str]) -> NoReturn:
    dtype = parameter.dtype or "float32"
    value = dtype if parameter.name in sizes else f"{dtype} = 1"
    if parameter.pointer:
        value = f"{'in' if parameter.const else 'out'} {dtype}[{', '.join(list(sizes)[:2])}]"
    entry = _shown_example(parameter) or vector_example(parameter) or f'{parameter.name} = "{value}"'
    message = f"[args] lacks {parameter.name} ({parameter.type}), which {kernel.name} takes."
    document.fail(("args",), message, f"Add {entry} in the kernel's order.")


def _shown_example(parameter: Parameter) -> str | None:
    """Returns an entry for a tensor map, a texture or a surface; None for another parameter."""
    kind = object_kind(parameter)
    if kind is not None:
        return example_entry(parameter.name, kind)
    return example_map(parameter.name) if is_tensor_map(parameter) else None


def entry_hint(kernel: Kernel, parameter: Parameter) -> str:
    """Returns the entry that a contract needs for a parameter whose element type cannot be inferred."""
    example = _shown_example(parameter)
    if example is not None:
        return f"Write a contract above {kernel.name} with {example}."
    if parameter.pointer:
        return f"Write a contract above {kernel.name} that gives its dtype."
    fields = members_of(kernel.unit.text, parameter.base)
    if not fields:
        return f'Write a contract above {kernel.name} with a table of its fields: {parameter.name} = {{ n = "int32 = 1" }}.'
    if any(object_type(declared) for declared in fields.values()):
        return "Pass the texture or surface as a parameter of the kernel: a contract describes none in a struct."
    entries = []
    for name, declared in fields.items():
        dtype = c_type_dtype(declared.rstrip("* "))[0] or "float32"
        entries.append(f'{name} = "inout {dtype}[n]"' if declared.endswith("*") else f'{name} = "{dtype} = 1"')
    return f"Write a contract above {kernel.name} with {parameter.name} = {{ {', '.join(entries)} }}."
