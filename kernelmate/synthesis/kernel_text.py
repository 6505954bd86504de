"""Text around a kernel's body: its head, names, types and packs, and its insertion into the user's file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

from kernelmate.records import Argument, Contract, Kernel, Parameter
from kernelmate.source import argument_shapes
from kernelmate.source.folding import folded, width_of, wrapped
from kernelmate.synthesis.identities import always_equal, divided_first, without_floors
from kernelmate.synthesis.kept_text import file_constant, in_own_order, named_numbers, own_column, own_list
from kernelmate.synthesis.layout import in_paragraphs, without_unused
from kernelmate.synthesis.names import Names, base_name, indent_of, without_bodies, without_comments, words_of
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.size_text import (
    closes_last,
    plain_size,
    plain_widening,
    size_locals,
    size_text,
    without_parentheses,
)
from kernelmate.synthesis.templates import template_head, template_of

ITEM_BYTES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4,
    "uint32": 4, "int64": 8, "uint64": 8, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
"""Bytes per element of each supported dtype."""

WIDEST = 16
"""Bytes of the widest load of a thread (PTX ISA, ld, 128-bit vectors)."""

_TO_FLOAT = {
    "float16": "__half2float({})", "bfloat16": "__bfloat162float({})", "float8_e4m3fn": "float({})", "float8_e5m2": "float({})",
}  # fmt: skip
_FROM_FLOAT = {
    "float16": "__float2half({})", "bfloat16": "__float2bfloat16({})", "float8_e4m3fn": "__nv_fp8_e4m3({})", "float8_e5m2": "__nv_fp8_e5m2({})",
}  # fmt: skip


GUARD = "__syncthreads();  // an earlier call may still be reading"
"""Barrier before a function writes to its shared memory, so that the function may be called repeatedly."""

STATIC_BYTES = 48 * 1024
"""Static shared memory limit of a block in bytes (CUDA C++ Programming Guide, Technical Specifications)."""

MULTIPROCESSORS = 132
"""Number of multiprocessors of an H100 SXM (NVIDIA H100 Tensor Core GPU Architecture)."""


@dataclass(frozen=True, slots=True)
class WrittenKernel:
    """A generated kernel.

    Attributes:
        schedule: the schedule's name, which is part of the candidate's author.
        why: the reason for this schedule, in one sentence.
        definition: the kernel's text.
        helpers: device functions above the kernel; may be empty.
        grid: the grid's sides as contract expressions.
        block: the number of threads per block, or along each side, as contract expressions.
        another: True for a variant whose benefit only a measurement can decide, not a prediction.
        grid_comment: a comment on what the grid counts.
        shared: dynamic shared memory of a block in bytes, as a contract expression.
        capability: the minimum compute capability; 80 stands for 8.0.
    """

    schedule: str
    why: str
    definition: str
    helpers: str
    grid: tuple[str, ...]
    block: int | tuple[int | str, ...]
    another: bool = False
    grid_comment: str = ""
    shared: int | str = 0
    capability: int = 0

    @property
    def method(self) -> str:
        """Returns the kernel's method as a sentence for a comment: the reason without its figures."""
        sentence = re.sub(r"^Written from the reference[^:]*: ", "", self.why).partition(". ")[0].rstrip(".")
        sentence = re.sub(r"^((?:one|an?|each) block) of \d+ threads\b", r"\1", sentence)
        return f"{sentence[:1].upper()}{sentence[1:]}."


def those_written(
    makers: Iterable[Callable[[], WrittenKernel]], others: Iterable[Callable[[], WrittenKernel]] = ()
) -> Iterator[WrittenKernel]:
    """Yields the kernels that can be written; those of `others` are marked as variants to be measured.

    Raises:
        Refused: no kernel of `makers` can be written; the reason is the first one's.
    """
    reason: Refused | None = None
    count = 0
    for make in makers:
        try:
            text = make()
        except Refused as error:
            reason = reason or error
            continue
        count += 1
        yield text
    if not count and reason is not None:
        raise reason
    for make in others:
        try:
            yield replace(make(), another=True)
        except Refused:
            continue


def c_type(dtype: str, real: str) -> str:
    """Returns the C++ type that values of a dtype are computed in; `real` is the type of floating values."""
    if dtype.startswith("float"):
        return real
    known = {"bool": "bool", "uint32": "unsigned int", "int64": "long long", "uint64": "unsigned long long"}
    return known.get(dtype, "int")


class KernelText:
    """Context for writing a kernel: the baseline's parameters, style and types.

    Args:
        kernel: the baseline.
        contract: its contract.
        others: additional names of array arguments, for several parts of one array.
        launched: sizes that no parameter holds and that are sides of the grid.
        finds_sizes: True if further sizes that no parameter holds may be used.

    Raises:
        Refused: the kernel's form is not supported.
    """

    def __init__(
        self,
        kernel: Kernel,
        contract: Contract,
        others: Mapping[str, str] | None = None,
        launched: Sequence[str] = (),
        *,
        finds_sizes: bool = False,
    ) -> None:
        self.finds_sizes = finds_sizes
        self.kernel, self.contract, self.others, self.launched = kernel, contract, others or {}, tuple(launched)
        self.template = template_of(kernel, contract)
        declared = kernel.signature.parameters
        if self.template is not None:
            declared = tuple(self.template.resolved(one) for one in declared)
        self.parameters = {one.name: one for one in declared}
        self.arguments = {one.name: one for one in contract.args}
        self._refuse()
        beside = kernel.unit.text[: kernel.start] + kernel.unit.text[kernel.end :]
        plain = without_comments(beside)
        outer = {*words_of(without_bodies(plain)), kernel.name}
        taken = {*contract.sizes[0], *self.parameters, *self.others, *kernel.signature.template_parameters}
        self.names = Names(outer, words_of(plain), taken)
        self.arguments |= {name: replace(self.arguments[one], name=name) for name, one in self.others.items()}
        wide = any(one.dtype == "float64" for one in contract.args) or re.search(r"\bdouble\b", kernel.source)
        self.real = "double" if wide or contract.accumulate == "float64" else "float"
        single = self.real == "float"
        plain = "__int_as_float(0x7f800000)" if single else "__longlong_as_double(0x7ff0000000000000LL)"
        self.keeps_nan = not re.search(r"\b_*[fh]?(?:max|min)f?\s*\(", kernel.source)
        """True if bounds are comparisons, which keep NaN, because the baseline calls no `fmaxf` or `fminf`."""
        self.infinity = "INFINITY" if kernel.unit.language == "cuda" or "INFINITY" in kernel.source else plain
        quiet = "__int_as_float(0x7fffffff)" if single else "__longlong_as_double(0x7fffffffffffffffLL)"
        self.not_a_number = "NAN" if self.infinity == "INFINITY" else quiet
        self.thread_constant = ""
        self.uses_rsqrt = re.search(r"\brsqrtf?\s*\(", kernel.source) is not None
        self.drops_nan = re.search(r"\bf(?:max|min)f?\s*\(", kernel.source) is not None
        self.numbers = named_numbers(kernel, self.real)
        self.width = width_of(kernel.unit.text)
        self.indent = indent_of(kernel.source)
        self.base_name = base_name(kernel.name)
        self.sizes = {
            (one.value or one.name): one.name for one in contract.args if one.shape is None and _is_size(one, contract)
        }
        if self.template is not None:
            self.sizes = {**self.template.sizes, **self.sizes}
            self.parameters |= self.template.passed(kernel)  # helpers get them by value
        for size in self.launched:
            self.names.release(size)
            self.sizes[size] = self.names.fresh(size)

    def again(self, others: Mapping[str, str] | None = None) -> KernelText:
        """Returns a new context for another kernel: all names are free, and `others` gives names of array parts."""
        parts = self.others if others is None else others
        return KernelText(self.kernel, self.contract, parts, self.launched, finds_sizes=self.finds_sizes)

    def finds(self, size: str) -> bool:
        """Returns True if a size that no parameter holds can be read as a side of the grid."""
        return self.finds_sizes and size not in self.launched and size in self.contract.grid

    @property
    def adds_atomically(self) -> bool:
        """True if results may depend on the order of additions: the baseline adds atomically, or has no body yet."""
        return "atomicAdd" in self.kernel.source or re.search(r"\{\s*\}\s*\Z", self.kernel.source) is not None

    def _refuse(self) -> None:
        if self.contract.cooperative or self.contract.cluster or "__cluster_dims__" in self.kernel.source:
            raise Refused("the kernel is launched with a cluster or cooperatively")
        for name, argument in self.arguments.items():
            parameter = self.parameters[name]
            if argument.dtype not in ITEM_BYTES or parameter.dtype != argument.dtype or parameter.vector != 1:
                raise Refused(f"the parameter {name} is a {parameter.type} for {argument.dtype}")

    def size(self, expression: str) -> str:
        """Returns a size expression in C++: a parameter that always equals it, else arithmetic on parameters.

        Raises:
            Refused: no parameter holds a size that the expression needs.
        """
        for one in self.contract.args:
            if one.shape is None and one.dtype.startswith(("int", "uint")):
                value = one.value or (one.name if one.name in self.contract.sizes[0] else "")
                if value and always_equal(self.contract, value, expression):
                    return one.name
        return size_text(divided_first(self.contract, without_floors(self.contract, expression)), self.sizes)

    def size_name(self, text: str, wanted: str) -> str:
        """Returns an unused name for a local that holds a size.

        It is the baseline's name for the same C++ expression, else `wanted`.
        """
        return self.names.fresh(size_locals(self.kernel.source).get(plain_size(text), wanted))

    def count(self, sides: Sequence[str]) -> str:
        """Returns the number of elements of a shape as an expression of type `size_t`."""
        try:
            whole = self.size(" * ".join(sides) or "1")
        except Refused:
            whole = ""
        if re.fullmatch(r"\w+", whole):
            return whole
        factors = [self.size(side) for side in in_own_order(self.contract, sides)]
        grouped = [one if re.fullmatch(r"\w+", one) else f"({one})" for one in factors[1:]]
        return " * ".join([f"static_cast<size_t>({factors[0]})", *grouped])

    def threads(self, count: int) -> tuple[str, list[str]]:
        """Returns the name of the constant for the threads per block, and its declaration."""
        name, declared = self.constant("Threads", count, "threads per block")
        self.thread_constant = name
        return name, declared

    def bounds(self, threads: str | int, resident: int) -> tuple[str, list[str]]:
        """Returns launch bounds for a number of resident blocks, which limit registers, and their constant."""
        if resident == 1:
            return f"__launch_bounds__({threads}) ", []
        name, declared = self.constant(
            "MinBlocks", resident, "resident blocks per multiprocessor, which bounds registers"
        )
        return f"__launch_bounds__({threads}, {name}) ", declared

    def constant(self, word: str, count: int, comment: str) -> tuple[str, list[str]]:
        """Returns the name of a new file-level constant, and its declaration.

        If the file has several kernels, the name contains the kernel's name.
        """
        several = len(re.findall(r"\b__global__\b", without_comments(self.kernel.unit.text))) > 1
        name = self.names.outermost(f"k{camel(self.base_name) if several else ''}{word}")
        return name, [f"constexpr int {name} = {count};  // {comment}"]

    def local_constant(self, wanted: str, value: int, word: str, comment: str) -> tuple[str, list[str]]:
        """Returns the name of the file's constant with this value and word, or of a new local, and its declaration."""
        own = file_constant(self.kernel, str(value), word)
        if own is not None:
            return own, []
        name = self.names.fresh(wanted)
        return name, [f"constexpr int {name} = {value};{f'  // {comment}' if comment else ''}"]

    def part_name(self, part: str) -> str:
        """Returns a new name for the function of one part of the work: `softmax_row` of `softmax_rows` and `row_softmax`."""
        bare = re.sub(rf"^{part}_|_{part}s$|^{part}(?=[A-Z])|(?<=[a-z0-9]){part.capitalize()}s?$", "", self.base_name)
        bare = bare[:1].lower() + bare[1:] if self.base_name[:1].islower() else bare
        named = f"{bare}_{part}"
        return self.names.outermost(named if bare and named != self.base_name else f"{self.base_name}_{part}")

    def promise(self, read: Iterable[str]) -> str:
        """Returns a sentence on the bytes moved at the headline size: the arrays that are read, and the results."""
        size = self.contract.sizes[0]
        shapes = argument_shapes(self.contract, size)
        written = dict.fromkeys(self.others.get(one.name, one.name) for one in self.outputs())
        several = [*dict.fromkeys(self.others.get(one, one) for one in read), *written]
        moved = sum(math.prod(shapes[one]) * ITEM_BYTES[self.arguments[one].dtype] for one in several)
        at = ", ".join(f"{name} = {value}" for name, value in size.items())
        return f" At {at} it moves {moved / 1e6:.3g} MB."

    def outputs(self) -> list[Argument]:
        """Returns the out and inout arguments, in argument order."""
        return [one for one in self.contract.args if one.direction in ("out", "inout")]

    def at(self, name: str, index: str) -> str:
        """Returns the text of an output's element at an index."""
        return f"{name}[{index}]"

    def element(self, name: str) -> str:
        """Returns the type of an array's elements, by the file's own name for it."""
        return _written_type(self.parameters[self.others.get(name, name)])

    def loaded(self, name: str, text: str) -> str:
        """Returns the text that converts a loaded element to the type of the arithmetic."""
        dtype = self.arguments[name].dtype
        text = _TO_FLOAT.get(dtype, "{}").format(text)
        narrow = "float" in dtype and dtype != "float64"
        return f"static_cast<double>({text})" if self.real == "double" and narrow else text

    def stored(self, name: str, text: str, kind: str) -> str:
        """Returns the text that converts a computed value to an array's element type."""
        dtype = self.arguments[name].dtype
        floating = "float" in dtype
        text = without_parentheses(text)
        if not floating and kind.startswith("float"):
            raise Refused(f"it rounds {kind} to {dtype}")
        if self._is_converted_from(dtype, text):
            return text.partition("(")[2][:-1]  # a copy
        if dtype in _FROM_FLOAT:
            return _FROM_FLOAT[dtype].format(
                text if kind.startswith("float") and self.real == "float" else f"static_cast<float>({text})"
            )
        wanted = self.element(name)
        own = self.parameters[self.others.get(name, name)].base == self.real if floating else kind == dtype == "int32"
        if own and (not floating or kind.startswith("float")):
            return text
        front = f"static_cast<{wanted}>("
        return text if text.startswith(front) and closes_last(text) else f"{front}{text})"

    def _is_converted_from(self, dtype: str, text: str) -> bool:
        """Returns True if a text converts one element of a dtype to float."""
        own = _TO_FLOAT.get(dtype, "")
        alike = {one.dtype for one in self.arguments.values() if own and _TO_FLOAT.get(one.dtype) == own}
        return alike == {dtype} and text.startswith(own.removesuffix("{})")) and closes_last(text)

    def head(self, bounds: str = "") -> str:
        """Returns the definition up to its brace, with launch bounds, and `const` and `__restrict__` if valid."""
        source, bare = self.kernel.source, self.kernel.name.rpartition("::")[2]
        match = re.search(rf"\b{bare}\s*\(", source)
        if match is None:
            raise Refused("the kernel's head is written by a macro")
        front = re.sub(r"__launch_bounds__\s*\([^()]*\)\s*", "", source[: match.start()])
        parts = [self._declared(one) for one in self.kernel.signature.parameters]
        template, front = template_head(front) if self.template is not None else ("", front)
        front = template + re.sub(r"\s*\n\s*", " ", front).lstrip()
        if not bounds and self.thread_constant:  # a launch with more threads fails instead of giving wrong results
            bounds = f"__launch_bounds__({self.thread_constant}) "
        apart = re.search(r"\n[ \t]*\Z", source[: match.start()]) is not None  # the name begins its line
        bound = f"{front}{bounds.rstrip()}\n" if bounds else f"{front.rstrip()}\n" if apart else front
        names = [one.name for one in self.kernel.signature.parameters]
        if own := own_list(f"{bound}{bare}(", parts, names, source[match.end() :]):
            return own
        opening, _, last = f"{bound}{bare}(".rpartition("\n")
        return f"{opening}\n{self.wrapped(last, parts)}" if opening else self.wrapped(last, parts)

    def wrapped(self, front: str, parts: Sequence[str]) -> str:
        """Returns a function's head, wrapped to the file's width."""
        return wrapped(front, parts, self.width)

    def _declared(self, parameter: Parameter) -> str:
        if not parameter.pointer:
            return f"{parameter.type} {parameter.name}"
        const = "const " if self.arguments[parameter.name].direction == "in" else ""
        star = " *__restrict__ " if re.search(rf"\*\s*(?:__restrict__\s+)?{parameter.name}\b", self.kernel.source) and re.search(r"\w \*\w", self.kernel.source) else "* __restrict__ "  # fmt: skip
        return f"{const}{_written_type(parameter)}{star}{parameter.name}"

    def declared(self, names: Sequence[str]) -> list[str]:
        """Returns declarations of some parameters, as in the head."""
        return [self._declared(self.parameters[name]) for name in names]

    def row_guard(self, row: str, sides: Sequence[str], body: Sequence[str]) -> list[str]:
        """Returns the early exit of blocks past the last row; empty if the body already uses the number of rows."""
        try:
            count = self.count(sides)
        except Refused:
            return []
        needed = count in self.parameters and count not in self.used(body)
        return [f"if ({row} >= {count}) return;"] if needed else []

    def used(self, body: Sequence[str]) -> list[str]:
        """Returns the kernel's parameters that a helper's lines use, in parameter order."""
        words = words_of(" ".join(body))
        words |= {word for name, other in self.others.items() if name in words for word in words_of(other)}
        return [one for one in self.parameters if one in words]

    def definition(self, head: str, body: Sequence[str]) -> str:
        """Returns a function from its head and lines, with the file's brace style and indentation."""
        for name, one in self.others.items():  # parts of an array, whose offsets the lines have
            body = [re.sub(rf"\b{name}\b", one, line) for line in body]
        if self.template is not None and "__global__" in head:
            body = [*self.template.guard, *body]
        own_line = re.search(r"\)\s*\n\s*\{", self.kernel.source) is not None
        note = None if own_line else re.search(r"(?<=\))( +)(//[^\n]*)$", head)
        if note is not None:  # the brace goes before the comment, which keeps its column if there is room
            opening = f"{head[: note.start()]} {{{' ' * max(len(note[1]) - 2, 2)}{note[2]}"
        else:
            opening = f"{head}\n{{" if own_line else f"{head} {{"
        body = [plain_widening(line) for line in body]
        for wide in dict.fromkeys(re.findall(r"\bsize_t (\w+)(?: =|,|\)|;)", "\n".join([head, *body]))):
            body = [line.replace(f"static_cast<size_t>({wide})", wide) for line in body]
        body = in_paragraphs(without_unused(self._with_lanes(body)))
        lines = self.names.unnumbered("\n".join([opening, *indented(body), "}"])).split("\n")
        begins = opening.count("\n") + 1
        pieces = (piece for line in lines[begins:] for piece in self._styled_pieces(folded(line, self.width)))
        return "\n".join([*lines[:begins], *pieces])

    def _with_lanes(self, body: Sequence[str]) -> list[str]:
        """Returns a function's lines, with locals for lane and warp if these are computed more than once."""
        body = list(body)
        for sign, wanted in (("%", "lane"), ("/", "warp")):
            found = rf"threadIdx\.x {sign} 32\b"
            places = [number for number, line in enumerate(body) for _ in re.finditer(found, line)]
            if len(places) < 2:
                continue
            reach = body[places[0] : places[-1] + 1]
            deep = len(reach[0]) - len(reach[0].lstrip())
            named = re.search(rf"^(?! *for \().*\b(\w+) = {found}[,;]", reach[0])
            if named is None or any(line and not line.startswith(" " * deep) for line in reach):
                first = next(
                    number for number, line in enumerate(body) if not line.startswith(("__shared__", "constexpr"))
                )
                name = self.names.fresh(wanted)
                body = [re.sub(found, name, line) for line in body]
                body.insert(first, f"const int {name} = threadIdx.x {sign} 32;")
            else:
                body[places[0] + 1 :] = [re.sub(found, named[1], line) for line in body[places[0] + 1 :]]
        return body

    def _styled_pieces(self, pieces: Sequence[str]) -> Iterator[str]:
        """Yields the lines of a statement in the file's indentation.

        Continuation lines keep their column relative to the first line.
        """
        lead, goes_on, depth = 0, False, 0
        for piece in pieces:
            code = piece.lstrip()
            if goes_on:
                yield f"{self.styled(' ' * lead + '.')[:-1]}{' ' * (len(piece) - len(code) - lead)}{code}"
            else:
                lead = len(piece) - len(code)
                yield self.styled(piece)
            code = code.partition("  //")[0].rstrip()
            if code.startswith(("//", "#")):
                continue
            depth = max(0, depth + code.count("(") - code.count(")")) * (not code.endswith("{"))
            goes_on = bool(code) and (depth > 0 or not code.endswith((";", "{", "}", ":")))

    def styled(self, text: str) -> str:
        """Converts lines indented by two spaces per level to the file's indentation."""
        if self.indent == "  ":
            return text
        return re.sub(r"^(?:  )+", lambda found: self.indent * (len(found[0]) // 2), text, flags=re.MULTILINE)


def fresh_names(kernel: KernelText, *wanted: str, **spelled: str) -> SimpleNamespace:
    """Returns unused names for locals, close to the wanted ones.

    Keyword arguments give wanted names for attributes with another name.
    """
    spelled = {name: name for name in wanted} | spelled
    if "column" in spelled:
        spelled["column"] = own_column(kernel.kernel.source)
    return SimpleNamespace(**{attribute: kernel.names.fresh(name) for attribute, name in spelled.items()})


def _written_type(parameter: Parameter) -> str:
    """Returns the element type of a pointer as its file has it: an alias, if that is what the parameter has."""
    return re.sub(r"\b(?:const|volatile)\b|\*", "", parameter.type).strip() or parameter.base


def _is_size(argument: Argument, contract: Contract) -> bool:
    names = contract.sizes[0]
    integral = argument.dtype.startswith(("int", "uint"))
    return integral and (argument.value.strip() in names if argument.value is not None else argument.name in names)


def indented(lines: Iterable[str], levels: int = 1) -> list[str]:
    """Indents lines; preprocessor lines and empty ones are unchanged."""
    return [line if line.startswith("#") or not line else "  " * levels + line for line in lines]


def block_of(head: str, lines: Iterable[str]) -> list[str]:
    """Returns a statement with a body in braces."""
    return [f"{head} {{", *indented(lines), "}"]


_TYPE_WORDS = {"unsigned char": "Byte", "uint8_t": "Byte", "signed char": "Int8", "__nv_bfloat16": "Bfloat16"}


def type_word(element: str) -> str:
    """Returns the word for an element type in names of packs: `Int8` for `int8_t`."""
    return _TYPE_WORDS.get(element) or camel(element.removesuffix("_t"))


def camel(element: str) -> str:
    """Converts a name to camel case."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[^A-Za-z0-9]+", element) if part)
