"""Records of a source file's contents: compilation units, kernels, their parameters and launches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Anchor:
    """Start of a stretch: from (`unit_line`, `unit_column`) on, the unit's text lies at (`file_line`, `file_column`) of the file."""

    unit_line: int
    unit_column: int
    file_line: int
    file_column: int


@dataclass(frozen=True, slots=True)
class BuiltCode:
    """Code that another compiler has made of the only kernel of a unit; it is judged as it is.

    Attributes:
        compiler: its name and version: `Numba 0.62.0`.
        symbol: the kernel's name in the code.
        arch: `sm_90`.
    """

    compiler: str
    symbol: str
    arch: str
    ptx: str
    cubin: bytes


@dataclass(frozen=True, slots=True)
class Unit:
    r"""One compilation unit: CUDA text and its position in the user's file.

    Attributes:
        path: the user's file, or a name in angle brackets (`<cell>`) for text without one.
        text: the CUDA text with `\n` line ends.
        language: the file's language: `cuda` (.cu, .cuh), `python` (a string in a .py file), `triton` (a .py file with
            Triton functions, as a whole), or `text` (a cell).
        anchors: sorted by unit position; empty when the unit is the whole file, so that positions are equal.
        contract_text: for a Python string, the contract block written as `#` comments above the statement that holds
            the string, with `contract_line` its first line in the file; else None (the block is in `text`).
        file_text: the whole file as read, for edits; equal to `text` for .cu files with `\n` line ends.
        built: code of its kernel, whose text is then not CUDA C++; else None.
    """

    path: str
    text: str
    language: Literal["cuda", "python", "triton", "text"] = "cuda"
    anchors: tuple[Anchor, ...] = ()
    contract_text: str | None = None
    contract_line: int | None = None
    file_text: str | None = None
    built: BuiltCode | None = None

    def locate(self, line: int, column: int | None) -> tuple[int, int | None]:
        """Returns the file position of a position in the unit's text."""
        best: Anchor | None = None
        for anchor in self.anchors:
            if (anchor.unit_line, anchor.unit_column) > (line, column or 1):
                break
            best = anchor
        if best is None:
            return line, column
        if line != best.unit_line:
            return best.file_line + (line - best.unit_line), column
        return best.file_line, None if column is None else best.file_column + (column - best.unit_column)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        name: the name in the source.
        type: the C++ type as written, without qualifiers of the pointer itself: `const float *`, `int`, `dim3`.
        base: the pointed-to or scalar type without qualifiers: `float`, `unsigned int`, `__half2`, `T`.
        dtype: NumPy's name of the element type (ml_dtypes names included) of one vector component (`float4` gives
            `float32`), or None if there is none (structs, template types, handles).
        vector: elements in one `base` (4 for float4, 2 for __half2, else 1).
        pointer: True for a pointer (one level).
        const: the pointed-to data is const.
        restrict: True if declared `__restrict__`.
    """

    name: str
    type: str
    base: str
    dtype: str | None
    vector: int
    pointer: bool
    const: bool
    restrict: bool
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Signature:
    """A kernel's declaration.

    `template_parameters` are names only, in order. `launch_bounds` holds the literal integers of `__launch_bounds__`
    (empty when absent or not literal).
    """

    parameters: tuple[Parameter, ...]
    template_parameters: tuple[str, ...] = ()
    launch_bounds: tuple[int, ...] = ()
    extern_c: bool = False


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """One `kernel<<<grid, block, shared, stream>>>(...)` in the same file; offsets are into the unit's text.

    `grid_span`, `block_span`, `shared_span` are (start, end) offsets of the expressions; `shared_span` is None when
    not written.
    """

    kernel: str
    start: int
    end: int
    grid: str
    block: str
    shared: str | None
    grid_span: tuple[int, int]
    block_span: tuple[int, int]
    shared_span: tuple[int, int] | None
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One `__global__` function of a unit.

    Attributes:
        unit: the compilation unit that contains it.
        name: with its namespaces: `ns::softmax`.
        start: offset of the definition's first character in `unit.text` (template line and attributes included).
        end: offset just past its closing brace.
        line: line of the name in the unit's text.
        column: column of the name.
        contract_span: offsets of the contract block that belongs to it in `unit.text` (whole lines), or None.
        distinction: text after the name that distinguishes kernels of the same name in a file: their parameter types in
            parentheses, else `:` and the line of the file. Empty for a name that is used once.
        parts: of a pipeline, the offsets of its contract block and of the kernels that it launches; empty for a
            `__global__` function. A pipeline begins and ends with its block.
    """

    unit: Unit
    name: str
    signature: Signature
    start: int
    end: int
    line: int
    column: int
    launches: tuple[LaunchSite, ...] = ()
    contract_span: tuple[int, int] | None = None
    distinction: str = ""
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def label(self) -> str:
        """Returns the name, with the text that distinguishes it from other kernels of that name in the file."""
        return self.name + self.distinction

    @property
    def source(self) -> str:
        """Returns the text of the kernel's definition alone; of a pipeline, its block and the kernels that it launches."""
        return "\n".join(self.unit.text[start:end] for start, end in self.parts or ((self.start, self.end),))
