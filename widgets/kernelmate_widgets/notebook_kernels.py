"""Kernels that the notebook has as CuPy objects, or as functions of Triton or Numba: source, launch, and the offer to judge them."""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.display import display

from kernelmate.errors import SourceError, UsageError
from kernelmate.records import Anchor, Contract, Kernel, Unit, Verdict
from kernelmate.report.excerpt import sources_of
from kernelmate.source import contract_for, find_kernels, parse_contract
from kernelmate.source.line_ends import normal_text
from kernelmate.source.python import PythonFile, read_python
from kernelmate.source.python_launches import calls_of
from kernelmate.source.triton import triton_unit
from kernelmate_widgets.cells import MAGIC, notebook_name, quoted, short_name
from kernelmate_widgets.error_display import KernelFailed
from kernelmate_widgets.handle import KernelHandle
from kernelmate_widgets.live_contracts import Evaluate, LineArguments, live_contract, split, value_of
from kernelmate_widgets.notebook_state import BoundKernel, MagicResult
from kernelmate_widgets.numba_kernels import compile_for_contract, is_numba, numba_kernel, with_types

if TYPE_CHECKING:
    from kernelmate_widgets.magics import KernelmateMagics

_PLAIN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Slice)
_CONVERSIONS = frozenset(
    {"float16", "float32", "float64", "half", "single", "double", "int8", "int16", "int32", "int64", "bool_"}
    | {"uint8", "uint16", "uint32", "uint64", "intc", "uintc", "int", "float", "bool", "min", "max", "len", "cdiv"}
)
"""Functions in a launch's arguments that have no side effect, so that they may be called again."""


@dataclass(frozen=True, slots=True)
class ExistingKernel:
    """A kernel of the notebook.

    Attributes:
        kernel: the kernel, with the line numbers of its cell if a cell has its text as a literal.
        code: the source text that it was created from.
        cell: number of that cell; None if the text is computed or comes from elsewhere.
        options: the compiler options that it was created with.
        cooperative: True if it is launched cooperatively.
        instance: the template instance, such as `scale<float>`; else None.
        numba: the kernel's object if Numba compiles it; else None.
    """

    kernel: Kernel
    code: str
    cell: int | None = None
    options: tuple[str, ...] = ()
    cooperative: bool = False
    instance: str | None = None
    numba: Any = None


class Cells:
    """The cells that a shell has run, joined to one Python text."""

    def __init__(self, shell: Any) -> None:
        history = getattr(shell, "history_manager", None)
        parts, self._starts, line = [], [], 1
        for number, cell in enumerate(history.input_hist_parsed if history is not None else []):
            text = normal_text(cell).rstrip("\n")
            if text.strip() and _is_python(text):
                self._starts.append((line, number))
                parts.append(text)
                line += text.count("\n") + 1
        self._text = "\n".join(parts)

    def unit(self, code: str, path: str) -> tuple[Unit, int] | None:
        """Returns the literal with this text as a unit, and the number of its cell; None without such a literal.

        Line numbers are those of the last cell that has the literal.
        """
        found = [one for one in read_python(path, self._text) if one.text == code]
        if not found:
            return None
        unit = found[-1]
        first = unit.anchors[0]
        if any(one.file_line - one.unit_line != first.file_line - first.unit_line for one in unit.anchors):
            return None  # a literal on one line has no lines that a message could name
        start, number = next(pair for pair in reversed(self._starts) if pair[0] <= first.file_line)
        block = [] if unit.contract_text is None else _as_cuda_comments(unit.contract_text)
        if block:  # the lines between the comments and the string keep their places
            block += ["//"] * (first.file_line - (unit.contract_line or 1) - len(block))
        shifted = replace(first, unit_line=len(block) + 1, file_line=first.file_line - start + 1)
        anchors = [Anchor(1, 1, (unit.contract_line or 1) - start + 1, 1)] if block else []
        text = "\n".join([*block, code])
        return Unit(path=path, text=text, language="text", anchors=(*anchors, shifted), file_text=text), number

    def jitted(self, name: str, text: str) -> ExistingKernel:
        """Returns a Triton function from the last cell that defines it.

        Raises:
            UsageError: no cell defines it.
        """
        for number, code in self._latest_first():
            unit = triton_unit(notebook_name(), code)
            kernel = None if unit is None else _named(unit, name)
            if kernel is not None:
                return ExistingKernel(kernel, code, number)
        raise UsageError(
            f"No cell of this notebook defines the Triton function {text}.",
            hint="Judge it in its file: kernelmate bench FILE.py.",
        )

    def number_of(self, text: str) -> int | None:
        """Returns the number of the last cell that contains a text; None without one."""
        return next((number for number, code in self._latest_first() if text.rstrip("\n") in code), None)

    def _latest_first(self) -> Iterator[tuple[int, str]]:
        """Yields number and text of each cell, the last one first."""
        ends = [line for line, _ in self._starts[1:]] + [None]
        lines = self._text.split("\n")
        for (start, number), end in reversed([*zip(self._starts, ends, strict=True)]):
            yield number, "\n".join(lines[start - 1 : None if end is None else end - 1])

    def launch(self, name: str) -> LineArguments | None:
        """Returns the last launch of a kernel by this name whose arguments have no side effects; None without any."""
        file = PythonFile("<notebook>", self._text)
        for call in reversed(calls_of(file, name)):
            texts = [*(call.arguments or ()), *(ast.unparse(one) for one in (call.grid, call.block) if one is not None)]
            if call.grid is not None and call.block is not None and all(map(_is_harmless, texts)):
                shared = None if call.shared is None else ast.unparse(call.shared)
                grid, block = (",".join(split(ast.unparse(one))).replace(" ", "") for one in (call.grid, call.block))
                return LineArguments(",".join(call.arguments or ()), grid, block, shared)
        return None


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True


def _is_harmless(text: str) -> bool:
    """Returns True if an expression has no side effects: names, elements, arithmetic and conversions."""
    for node in ast.walk(ast.parse(text, mode="eval").body):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called not in _CONVERSIONS or node.keywords:
                return False
        elif isinstance(node, ast.expr) and not isinstance(node, _PLAIN):
            return False
    return True


def _as_cuda_comments(block: str) -> list[str]:
    return ["//" + line.lstrip().removeprefix("#") for line in block.split("\n")]


# ------------------------------------------------------------------------------------------------- finding the source


def existing_kernel(text: str, evaluate: Evaluate, cells: Cells, namespace: dict[str, Any]) -> ExistingKernel:
    """Returns the kernel that an expression of the notebook denotes; nothing is compiled or launched.

    Args:
        text: `scale`, a `cupy.RawKernel`, a Triton function or a Numba kernel; `module.scale` or `module.scale<float>`, a function of a
            `cupy.RawModule`; or a kernel that `%%kernelmate` bound.
        evaluate: evaluates an expression in the user's namespace.
        cells: the cells that were run.
        namespace: the user's names, among which the module of a function is searched.

    Raises:
        UsageError: the value is something else, or its source is not available; the message gives the reason.
    """
    owner, dot, function = text.partition("<")[0].rpartition(".")
    module = value_of(owner, evaluate, "judge") if dot else None
    if _is_cupy(module, "RawModule"):
        return _of_code(module, function + text[len(owner) + 1 + len(function) :], text, cells)
    value = value_of(text, evaluate, "judge")
    if is_numba(value):
        kernel = numba_kernel(value, text)
        return ExistingKernel(kernel, kernel.source, cells.number_of(kernel.source), numba=value)
    if _is_jitted(value):
        return cells.jitted(_function_name(value), text)
    if isinstance(value, KernelHandle):
        return ExistingKernel(value.version.kernel, value.source)
    if _is_cupy(value, "RawKernel"):
        if value.code is None and value.file_path is None:
            return _of_code(_module_of(value, text, namespace), value.name, text, cells)
        return _of_code(value, value.name, text, cells)
    raise _no_source(value, text)


def existing_names(namespace: dict[str, Any]) -> list[str]:
    """Returns the names of RawKernels, of Triton and Numba functions, and of the functions of RawModules as `MODULE.FUNCTION`."""
    names = []
    for name, value in namespace.items():
        if name.startswith("_"):
            continue
        if _is_cupy(value, "RawKernel") or _is_jitted(value) or is_numba(value):
            names.append(name)
        elif _is_cupy(value, "RawModule") and value.code is not None:
            names += [f"{name}.{short_name(one)}" for one in find_kernels(_unit_of_text(value.code, name))]
    return names


def _is_jitted(value: object) -> bool:
    """Returns True if a value is a function with `@triton.jit`, possibly with `autotune` or `heuristics`."""
    library = type(value).__module__.partition(".")[0]
    return library == "triton" and type(value).__name__ in ("JITFunction", "Autotuner", "Heuristics")


def _function_name(value: Any) -> str:
    while not hasattr(value, "__name__"):
        value = value.fn
    return str(value.__name__)


def _is_cupy(value: object, kind: str) -> bool:
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(value, getattr(cupy, kind, ()))


def _module_of(function: Any, text: str, namespace: dict[str, Any]) -> Any:
    """Returns the only RawModule of the notebook that has a function, since the function keeps no source."""
    modules = {id(one): one for one in namespace.values() if _is_cupy(one, "RawModule") and one.code is not None}
    having = {one.code: one for one in modules.values() if _named(_unit_of_text(one.code, text), function.name)}
    if len(having) == 1:
        return next(iter(having.values()))
    raise UsageError(
        f"{text} is a function of a cupy.RawModule, which keeps no source of its own.",
        hint=f"Name it by its module: %kernelmate judge MODULE.{function.name}.",
    )


def _of_code(raw: Any, name: str, text: str, cells: Cells) -> ExistingKernel:
    """Returns the kernel with a name from the source of a RawKernel or RawModule."""
    if raw.code is None:
        raise UsageError(
            f"{text} was loaded from {raw.file_path}, which has no CUDA source that could be judged.",
            hint="Judge the .cu file that it was compiled from: kernelmate bench FILE.",
        )
    code = normal_text(raw.code)
    unit, cell = cells.unit(code, notebook_name()) or (_unit_of_text(code, text), None)
    kernel = _named(unit, name)
    if kernel is None:
        known = ", ".join(short_name(one) for one in find_kernels(unit)) or "none"
        raise UsageError(f"The source of {text} has no kernel {name}; its kernels: {known}.", hint="Name one of these.")
    instance = name if "<" in name else None
    return ExistingKernel(kernel, code, cell, tuple(raw.options), bool(raw.enable_cooperative_groups), instance)


def _unit_of_text(code: str, name: str) -> Unit:
    text = normal_text(code)
    return Unit(path=f"<{name}>", text=text, language="text", file_text=text)


def _named(unit: Unit, name: str) -> Kernel | None:
    """Returns a unit's kernel by its name, with or without namespace and template arguments."""
    wanted = name.partition("<")[0].rpartition("::")[2]
    try:
        return next((one for one in find_kernels(unit) if short_name(one) == wanted), None)
    except SourceError:
        return None


def _no_source(value: object, text: str) -> UsageError:
    kind, library = type(value).__name__, type(value).__module__.partition(".")[0]
    if hasattr(value, "py_func"):
        return UsageError(
            f"{text} is a function of {library} for the host, not a kernel.",
            hint=f"%kernelmate write FUNCTION(ARRAYS) writes a CUDA kernel for a NumPy function; a {MAGIC} cell judges one.",
        )
    hint = "It judges a cupy.RawKernel, a function of a cupy.RawModule as MODULE.FUNCTION, a Triton function, a Numba kernel, and kernels of %%kernelmate."
    return UsageError(f"{text} is a {kind}, whose CUDA source cannot be read.", hint=hint)


# ----------------------------------------------------------------------------------------------------------- judging


def judge_existing(magics: KernelmateMagics, options: argparse.Namespace) -> MagicResult:
    """Judges a kernel of the notebook with live objects; `--bind` also binds it for further commands.

    Raises:
        UsageError: its source is not available, or the arguments do not fit.
        KernelFailed: the kernel was rejected.
    """
    name, *words = options.words
    cells = Cells(magics.shell)
    found = existing_kernel(name, magics.shell.ev, cells, magics.shell.user_ns)
    if options.bind is not None:
        if found.numba is not None:
            raise UsageError(
                f"{name} is a Numba kernel and has no CUDA C++ text that could be changed, so it is judged alone.",
                hint="Leave out --bind. %kernelmate write FUNCTION(ARRAYS) writes a CUDA kernel for a NumPy function.",
            )
        magics.check_name(options.bind)
    given = LineArguments(
        ",".join(word.rstrip(",") for word in words) or None, options.grid, options.block, options.shared, options.ref
    )
    wanted = _completed(given, found.kernel, cells.launch(name))
    if found.numba is not None:
        found = _with_numba_types(found, wanted, magics.shell.ev, name)
    chosen = {key: value for key in ("target", "backend", "seed") if (value := getattr(options, key)) is not None}
    magics.offers.judged(found.code)
    folder = magics.notebook.folder() if wanted.anything else None
    bound = options.bind
    try:
        verdicts, known = _judged(magics, found, wanted, chosen, folder, options)
        if bound is not None:
            magics.bind(bound, known)
    except BaseException as error:
        if bound is None or not isinstance(error, KernelFailed):  # a repair needs the copies of a bound one
            magics.notebook.drop(folder)
        raise
    if bound is None:
        magics.notebook.drop(folder)
    else:
        magics.notebook.keep(bound, folder)
    return MagicResult(verdicts)


def _judged(
    magics: KernelmateMagics, found: ExistingKernel, wanted: LineArguments, chosen: dict[str, Any],
    folder: Path | None, options: argparse.Namespace,
) -> tuple[tuple[Verdict, ...], BoundKernel]:  # fmt: skip
    """Judges and shows a kernel; returns the verdicts, and the kernel in the form that `bind` takes.

    Raises:
        KernelFailed: the kernel was rejected.
    """
    kernel, name = found.kernel, options.words[0]
    with magics.progress(quiet=options.quiet) as progress:
        contract = _contract(found, wanted, magics.shell.ev, folder)
        if found.numba is not None and contract is not None:
            kernel, contract = compile_for_contract(
                kernel, found.numba, contract, magics.notebook.session(chosen).target
            )
        remarks = () if found.cell is None else (f"line numbers are those of cell [{found.cell}]",)
        verdicts = magics.judged(kernel, contract, chosen, progress, remarks)
    line = cell_line(options.bind or short_name(kernel), wanted)
    bad = next((verdict for verdict in verdicts if verdict.accepted is False), None)
    known = BoundKernel(kernel, contract, bad or verdicts[0], chosen, line, f"{MAGIC} {line}\n{kernel.unit.text}")
    if bad is not None and options.bind is not None:
        magics.fail(options.bind, known, folder, quiet=options.quiet)
    if bad is not None:
        remark = f"{name} is as it was."
        if found.numba is None:
            remark += " With --bind NAME, %kernelmate fix NAME can repair it."
        shown = not options.quiet and hasattr(magics.shell, "kernel")
        raise KernelFailed(bad, sources_of(kernel), remark, shown=shown, repairable=False)
    return verdicts, known


def _with_numba_types(found: ExistingKernel, wanted: LineArguments, evaluate: Evaluate, name: str) -> ExistingKernel:
    """Returns a Numba kernel with the types of its arguments.

    Raises:
        UsageError: the arguments are not known, or do not fit.
    """
    if wanted.args is None:
        raise UsageError(
            f"No launch of {name} outside of a function shows its arguments.",
            hint=f"Name them: %kernelmate judge {name} x y --grid 4 --block 256 --ref FUNCTION.",
        )
    texts = split(wanted.args)
    takes = [one.name for one in found.kernel.signature.parameters]
    if len(texts) != len(takes):
        raise UsageError(
            f"{name} takes {len(takes)} arguments ({', '.join(takes)}); {len(texts)} are given.",
            hint="Name them in the kernel's order.",
        )
    values = [value_of(one, evaluate, "judge") for one in texts]
    return replace(found, kernel=with_types(found.kernel, found.numba, values))


def _completed(given: LineArguments, kernel: Kernel, launch: LineArguments | None) -> LineArguments:
    """Returns the line's arguments, completed from the launch in the cells unless a contract defines them."""
    if launch is None or (not given.anything and parse_contract(kernel) is not None):
        return given
    return LineArguments(
        given.args or launch.args, given.grid or launch.grid, given.block or launch.block,
        given.shared or launch.shared, given.ref,
    )  # fmt: skip


def _contract(found: ExistingKernel, wanted: LineArguments, evaluate: Evaluate, folder: Path | None) -> Contract | None:
    """Returns the contract for live objects, with the CuPy object's options; None if the kernel's own applies."""
    contract = None if folder is None else live_contract(found.kernel, wanted, evaluate, folder)
    if not (found.options or found.cooperative or found.instance):
        return contract
    own = contract or contract_for(found.kernel)
    instances = (found.instance,) if found.instance is not None else own.instances
    return replace(
        own,
        options=(*found.options, *own.options),
        cooperative=found.cooperative or own.cooperative,
        instances=instances,
    )


def cell_line(name: str, wanted: LineArguments) -> str:
    """Returns the arguments of a `%%kernelmate` line that judges a kernel with the same objects."""
    parts = [name]
    for option in ("args", "grid", "block", "shared", "ref"):
        value = getattr(wanted, option)
        if value is not None:
            parts.append(f"--{option} {_word(value)}")
    return " ".join(parts)


def _word(text: str) -> str:
    """Returns a value as one word of a magic line, quoted if necessary."""
    return quoted(text) if any(one.isspace() or one in "\"'" for one in text) else text


# ---------------------------------------------------------------------------------------------------------- offering


class KernelOffers:
    """Offers to judge each new `cupy.RawKernel` of the notebook, in one line after the cell that made it.

    Args:
        magics: the notebook's magics.
    """

    def __init__(self, magics: KernelmateMagics) -> None:
        self._magics = magics
        self._seen: set[str] = set()
        self._explained = False

    def connect(self) -> None:
        """Registers the offers with the shell, which makes them after each cell."""
        self._magics.shell.events.register("post_run_cell", self.after_cell)

    def disconnect(self) -> None:
        """Unregisters the offers."""
        self._magics.shell.events.unregister("post_run_cell", self.after_cell)

    def after_cell(self, result: Any) -> None:
        """Shows an offer for each new kernel text; errors are suppressed, so that the user's cell is not affected."""
        try:
            if getattr(result.info, "silent", False) or not self._magics.notebook.settings().offer_judging:
                return
            offers = [line for name, code in self._new() if (line := self._offer(name, code)) is not None]
            if offers:
                display(_offer_bundle(offers, explained=self._explained), raw=True)
                self._explained = True
        except Exception:  # noqa: BLE001 -- an offer is not worth an error in a cell that ran well
            return

    def judged(self, code: str) -> None:
        """Records that the user has judged a text, so that it is not offered again."""
        self._seen.add(code)

    def _new(self) -> Iterator[tuple[str, str]]:
        for name, value in list(self._magics.shell.user_ns.items()):
            if name.startswith("_") or not _is_cupy(value, "RawKernel") or value.code is None:
                continue
            code = normal_text(value.code)
            if code not in self._seen:
                self._seen.add(code)
                yield name, code

    def _offer(self, name: str, code: str) -> str | None:
        raw = self._magics.shell.user_ns[name]
        kernel = _named(_unit_of_text(code, name), raw.name)
        if kernel is None:
            return None
        launch = Cells(self._magics.shell).launch(name)
        return judge_line(name, kernel, launch)


def _offer_bundle(commands: Sequence[str], *, explained: bool) -> dict[str, str]:
    """Returns the output of offers, one line each; the first offers of a notebook explain how to turn them off."""
    off = "" if explained else "%kernelmate config offer_judging=false"
    plain = "\n".join(f"Check and time this kernel: {one}" for one in commands) + (off and f"  (off: {off})")
    pages = [f"Check and time this kernel: <code>{escape(one)}</code>" for one in commands]
    return {
        "text/plain": plain,
        "text/html": "<br>".join(pages) + (off and f" <small>(off: <code>{off}</code>)</small>"),
    }


def judge_line(name: str, kernel: Kernel, launch: LineArguments | None) -> str:
    """Returns the command that judges a kernel; unknown launch arguments are placeholders."""
    if launch is not None or parse_contract(kernel) is not None:
        return f"%kernelmate judge {name}"
    parameters: Sequence[str] = [one.name for one in kernel.signature.parameters]
    return f"%kernelmate judge {name} {' '.join(parameters)} --grid BLOCKS --block THREADS"
