"""Problems, styles, and drafts of kernels: the records that families create and the rest of the corpus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal

Kind = Literal["memory", "compute", "mixed", "target"]
Flaws = frozenset[str]

C_TYPES: Mapping[str, str] = {
    "float32": "float",
    "float64": "double",
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "int32": "int",
    "uint32": "unsigned int",
    "int16": "short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int64": "long long",
}
"""CUDA C++ type of an array's element, by its NumPy name."""

HEADERS: Mapping[str, str] = {"float16": "#include <cuda_fp16.h>", "bfloat16": "#include <cuda_bf16.h>"}


@dataclass(frozen=True, slots=True)
class Arg:
    """One argument of the kernel, as in the contract; a scalar has no shape."""

    name: str
    direction: Literal["in", "out", "inout"] | None
    dtype: str
    shape: tuple[str, ...] | None = None
    distribution: str = ""
    value: str = ""

    def entry(self) -> str:
        """Returns the argument's line in the contract."""
        if self.shape is None:
            return f'{self.name} = "{self.dtype}{" = " + self.value if self.value else ""}"'
        drawn = f" ~ {self.distribution}" if self.distribution else ""
        return f'{self.name} = "{self.direction} {self.dtype}[{", ".join(self.shape)}]{drawn}"'

    @property
    def c_type(self) -> str:
        """CUDA type of an element or of the scalar."""
        return C_TYPES[self.dtype]


def array(name: str, direction: Literal["in", "out", "inout"], dtype: str, *shape: str, drawn: str = "") -> Arg:
    """Returns an array argument."""
    return Arg(name, direction, dtype, shape, drawn)


def scalar(name: str, dtype: str = "int32", value: str = "") -> Arg:
    """Returns a scalar argument."""
    return Arg(name, None, dtype, value=value)


@dataclass(frozen=True, slots=True)
class Style:
    """An author's style, equal in all versions of one problem.

    Attributes:
        names: names of threads, rows, columns and so on, by role.
        early: True if threads out of range return early where possible; else the work is inside an `if`.
        loops: `for` or `while`.
        index: the type of indices.
        turned: True to write `threadIdx.x + blockIdx.x * blockDim.x`, and sums of products in reverse order.
        named: how constants are named: `constexpr`, `#define`, or not at all.
        const_word: `const ` before values that do not change, or empty.
        braces: True to put single statements in braces.
        helper: True to write parts as `__device__` functions.
        step: format of a loop's increment.
        extern_c: True if the kernel has C linkage.
    """

    names: Mapping[str, str]
    early: bool
    loops: Literal["for", "while"]
    index: str
    turned: bool
    named: Literal["constexpr", "define", "none"]
    const_word: str
    braces: bool
    helper: bool
    step: str
    extern_c: bool

    def n(self, role: str) -> str:
        """Returns the name of a role."""
        return self.names[role]

    def gid(self, axis: str = "x", size: str | None = None) -> str:
        """Returns the expression of the thread's index along an axis of the grid."""
        side = size or f"blockDim.{axis}"
        if self.turned:
            return f"threadIdx.{axis} + {side} * blockIdx.{axis}"
        return f"blockIdx.{axis} * {side} + threadIdx.{axis}"

    def at(self, row: str, width: str, col: str) -> str:
        """Returns the index of an element in a row-major array."""
        row = row if row.isidentifier() or ("." in row and " " not in row) else f"({row})"
        return f"{col} + {row} * {width}" if self.turned else f"{row} * {width} + {col}"

    def traits(self) -> tuple[str, ...]:
        """Returns words that describe the style, for the key `styles` of a row."""
        words = [
            "early-return" if self.early else "guarded",
            f"{self.loops}-loops",
            f"{self.index.replace(' ', '-')}-indices",
        ]
        words += [f"constants-{self.named}"] if self.named != "none" else []
        words += ["helper"] if self.helper else []
        return tuple(words)


ROLES: Mapping[str, tuple[str, ...]] = {
    "i": ("i", "idx", "gid", "index", "k", "t", "id", "pos", "element"),
    "tid": ("tid", "t", "lane_id", "thread", "me", "local"),
    "row": ("row", "r", "y", "line", "iy", "b"),
    "col": ("col", "c", "x", "j", "ix", "column"),
    "z": ("z", "iz", "plane", "slice", "depth_at"),
    "loop": ("k", "p", "q", "e", "step", "u"),
    "loop2": ("m", "s", "w", "v", "inner"),
    "acc": ("acc", "sum", "total", "result", "value", "tmp", "s0"),
    "acc2": ("other", "second", "extra", "rest", "more"),
    "tile": ("tile", "buf", "sh", "cache", "sdata", "smem", "scratch", "partial"),
    "tile2": ("tile2", "other_tile", "bs", "right_tile", "stage", "cached"),
    "half": ("half", "offset", "stride", "h", "d", "off"),
    "lane": ("lane", "l", "lane_index", "ln"),
    "warp": ("warp", "wid", "wp", "warp_index"),
    "stride": ("stride", "jump", "hop", "span", "delta"),
    "block": ("BLOCK", "THREADS", "kThreads", "BLOCK_SIZE", "NT", "kBlock"),
    "tmp": ("v", "val", "xv", "cur", "elem", "a0"),
}


def draw_style(rng: Random, taken: Iterable[str]) -> Style:
    """Returns a random style whose names differ from the names in `taken`."""
    used = set(taken)
    names: dict[str, str] = {}
    for role, words in ROLES.items():
        free = [word for word in words if word not in used] or [
            f"{words[0]}_{number}" for number in range(20) if f"{words[0]}_{number}" not in used
        ]
        names[role] = rng.choice(free)
        used.add(names[role])
    return Style(
        names=names,
        early=rng.random() < 0.5,
        loops="while" if rng.random() < 0.12 else "for",
        index=rng.choices(("int", "unsigned int", "size_t", "const int"), (6, 1, 1, 4))[0].replace("const ", ""),
        turned=rng.random() < 0.35,
        named=rng.choices(("constexpr", "define", "none"), (3, 3, 4))[0],
        const_word="const " if rng.random() < 0.6 else "",
        braces=rng.random() < 0.5,
        helper=rng.random() < 0.25,
        step=rng.choice(("++{}", "{}++", "{} += 1")),
        extern_c=rng.random() < 0.2,
    )


class Code:
    """Writer of a kernel's lines, indented by the depth of open blocks."""

    def __init__(self, style: Style) -> None:
        self.style = style
        self.lines: list[str] = []
        self._closers: list[list[str]] = []
        self._declared: list[set[str]] = [set()]

    def __call__(self, *texts: str) -> None:
        """Adds statements."""
        for text in texts:
            self.lines.append("  " * (1 + len(self._closers)) + text)

    def open(self, head: str, *last: str) -> None:
        """Begins a block; `last` are statements that are written when it is closed."""
        self(f"{head} {{")
        self._closers.append(list(last))
        self._declared.append(set())

    def close(self, count: int = 1) -> None:
        """Closes the innermost blocks."""
        for _ in range(count):
            self(*self._closers[-1])
            self._closers.pop()
            self._declared.pop()
            self("}")

    def loop(self, name: str, start: str, end: str, step: str | None = None, kind: str = "int") -> None:
        """Begins a loop that counts up."""
        count = self.style.step.format(name) if step is None else f"{name} += {step}"
        if self.style.loops == "while":
            there = any(name in names for names in self._declared)
            self(f"{'' if there else kind + ' '}{name} = {start};")
            self._declared[-1].add(name)
            self.open(f"while ({name} < {end})", f"{count};")
        else:
            self.open(f"for ({kind} {name} = {start}; {name} < {end}; {count})")

    def guard(self, *pairs: tuple[str, str], early: bool | None = None) -> bool:
        """Guards against threads out of range, given as pairs (index, bound); returns True if it opened a block."""
        if self.style.early if early is None else early:
            out = " || ".join(f"{index} >= {bound}" for index, bound in pairs)
            self(f"if ({out}) return;" if not self.style.braces else f"if ({out}) {{ return; }}")
            return False
        self.open("if (" + " && ".join(f"{index} < {bound}" for index, bound in pairs) + ")")
        return True

    def when(self, condition: str, *statements: str) -> None:
        """Writes statements under an `if`."""
        if len(statements) == 1 and not self.style.braces:
            self(f"if ({condition}) {statements[0]}")
            return
        self.open(f"if ({condition})")
        self(*statements)
        self.close()

    def finish(self) -> str:
        """Returns all lines, after closing all open blocks."""
        self.close(len(self._closers))
        return "\n".join(self.lines)

    def drafted(
        self,
        flaws: Flaws,
        grid: tuple[str, ...],
        block: tuple[int, ...],
        *,
        top: tuple[str, ...] = (),
        head: str = "",
        shared: str = "0",
    ) -> Draft:
        """Returns the version with these lines; the flaws determine its pointers' qualifiers.

        Without `__restrict__`, `const` is left out too, unless the style is `turned`, so that the corpus has both
        forms.
        """
        bare = "no_restrict" in flaws
        constant = not bare or self.style.turned
        return Draft(self.finish(), grid, block, top, head, shared, restrict=not bare, constant=constant)


@dataclass(frozen=True, slots=True)
class Draft:
    """One version of a problem's kernel.

    Attributes:
        body: the statements, indented.
        grid, block, shared: the launch, as a contract writes it.
        top: lines above the contract: includes, constants, helper functions.
        head: attributes before the name, such as `__launch_bounds__(256)`.
        restrict: True if pointers are declared `__restrict__`.
        constant: True if inputs are declared `const`.
    """

    body: str
    grid: tuple[str, ...]
    block: tuple[int, ...]
    top: tuple[str, ...] = ()
    head: str = ""
    shared: str = "0"
    restrict: bool = True
    constant: bool = True


@dataclass(frozen=True, slots=True)
class Problem:
    """A computation, and all versions in which its kernel may be written.

    Attributes:
        family: the family's name.
        kind: the kind of problem.
        kernel: the kernel's name.
        args: the kernel's arguments.
        sizes: sizes of the contract.
        large: a size that fills a GPU, for timing.
        reference: the NumPy expression of the result.
        flaws: names of the flaws that `draft` supports.
        draft: returns the version with exactly the given flaws.
        style: the style of all versions.
        tolerance, require: entries of the contract; empty without them.
        exclusive: sets of flaws that exclude each other.
    """

    family: str
    kind: Kind
    kernel: str
    args: tuple[Arg, ...]
    sizes: tuple[Mapping[str, int], ...]
    large: Mapping[str, int]
    reference: str
    flaws: tuple[str, ...]
    draft: Callable[[Flaws], Draft]
    style: Style
    tolerance: str = ""
    require: tuple[str, ...] = ()
    exclusive: tuple[frozenset[str], ...] = field(default=())

    def text(self, flaws: Flaws) -> str:
        """Returns the whole unit of one version: top, contract, kernel."""
        return unit_text(self, self.draft(flaws))


@dataclass(frozen=True, slots=True)
class Family:
    """Problems of one kind.

    Attributes:
        draw: returns a random problem.
        held_out: True if none of its rows is used for training.
    """

    name: str
    kind: Kind
    draw: Callable[[Random], Problem]
    held_out: bool = False


def unit_text(problem: Problem, draft: Draft) -> str:
    """Returns a draft as a translation unit with its contract."""
    headers = dict.fromkeys(HEADERS[a.dtype] for a in problem.args if a.dtype in HEADERS)
    top = [*headers, *(line for line in draft.top if line not in headers)]
    pieces = ["\n".join(top)] if top else []
    pieces.append("\n".join((*contract_lines(problem, draft), _kernel_text(problem, draft))))
    return "\n\n".join(pieces) + "\n"


def contract_lines(problem: Problem, draft: Draft) -> list[str]:
    """Returns the lines of a draft's contract block."""
    sizes = ", ".join("{ " + ", ".join(f"{n} = {v}" for n, v in size.items()) + " }" for size in problem.sizes)
    lines = [f"sizes = [{sizes}]", f"grid = {_expressions(draft.grid)}"]
    lines.append(f"block = {draft.block[0] if len(draft.block) == 1 else list(draft.block)}")
    if draft.shared != "0":
        lines.append(f'shared = "{draft.shared}"')
    if problem.require:
        lines.append("require = [" + ", ".join(f'"{text}"' for text in problem.require) + "]")
    lines.append(f'reference = "{problem.reference}"')
    if problem.tolerance:
        lines.append(f"tolerance = {problem.tolerance}")
    lines += ["[args]", *(arg.entry() for arg in problem.args)]
    return ["// /// kernelmate", *(f"// {line}" for line in lines), "// ///"]


def _expressions(texts: Sequence[str]) -> str:
    shown = [text if text.isdigit() else f'"{text}"' for text in texts]
    return shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"


def _kernel_text(problem: Problem, draft: Draft) -> str:
    parameters = ", ".join(_parameter(arg, draft) for arg in problem.args)
    head = f"{draft.head} " if draft.head else ""
    linkage = 'extern "C" ' if problem.style.extern_c else ""
    return f"{linkage}__global__ void {head}{problem.kernel}({parameters}) {{\n{draft.body}\n}}"


def _parameter(arg: Arg, draft: Draft) -> str:
    if arg.shape is None:
        return f"{arg.c_type} {arg.name}"
    qualifier = "const " if arg.direction == "in" and draft.constant else ""
    return f"{qualifier}{arg.c_type}*{' __restrict__' if draft.restrict else ''} {arg.name}"


def load(arg: Arg, index: str, real: str = "float") -> str:
    """Returns the expression of an element, converted to the type of the computation."""
    element = f"{arg.name}[{index}]"
    if arg.dtype == "float16":
        return f"__half2float({element})"
    if arg.dtype == "bfloat16":
        return f"__bfloat162float({element})"
    if arg.dtype in ("int8", "uint8", "int16", "int32", "uint32") and real in ("float", "double"):
        return f"({real}){element}"
    return element


def stored(arg: Arg, value: str) -> str:
    """Returns the expression of a value, converted to the array's element type."""
    if arg.dtype == "float16":
        return f"__float2half({value})"
    if arg.dtype == "bfloat16":
        return f"__float2bfloat16({value})"
    return value


def store(arg: Arg, index: str, value: str) -> str:
    """Returns the statement that stores an element."""
    return f"{arg.name}[{index}] = {stored(arg, value)};"


def constant(style: Style, name: str, value: int) -> tuple[tuple[str, ...], str]:
    """Returns a number in the style: the lines to put on top, and its spelling in the kernel."""
    if style.named == "constexpr":
        return (f"constexpr int {name} = {value};",), name
    if style.named == "define":
        return (f"#define {name} {value}",), name
    return (), str(value)
