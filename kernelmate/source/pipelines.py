"""Reads the arguments and stages of a pipeline's contract: launches of kernels, and steps that a library computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelmate.records import Argument, Contract, Direction, Kernel, Parameter, Stage
from kernelmate.source.blocks import find_kernels, find_pipelines, kernel_named
from kernelmate.source.document import Document, read_expression, read_sides
from kernelmate.source.entries import fits, read_entry
from kernelmate.source.expressions import BLOCK_NAMES, nearest_hint
from kernelmate.source.reference import check_array_expression, read_reference
from kernelmate.source.toml_positions import Path

KERNEL_KEYS = ("kernel", "grid", "block", "shared", "args", "cooperative", "reference")
"""Every key of a stage that launches a kernel."""

NOT_OF_PIPELINES = ("kernel", "grid", "block", "shared", "instances", "cooperative", "cluster", "symbols")
"""Keys of a contract that a pipeline does not have: each of its stages has its own launch."""

OwnContract = Callable[[Kernel], Contract | None]
"""Function that returns a kernel's own contract; None without a valid one."""


def read_pipeline_arguments(
    document: Document, sizes: Sequence[str]
) -> tuple[tuple[Argument, ...], tuple[Argument, ...]]:
    """Returns the arguments of a pipeline, and its temporaries: the arrays that are `scratch`.

    Raises:
        ContractError: an entry is wrong, or the pipeline has a key that only a kernel has.
    """
    for key in NOT_OF_PIPELINES:
        if key in document.data:
            hint = f"Write {key} in the stage that it belongs to, or remove it."
            document.fail((key,), f"A pipeline has no {key} of its own.", hint, key=True)
    entries = document.data.get("args", {})
    if not isinstance(entries, dict):
        document.fail(("args",), "args must be a table.", "Write [args] with one line for each array below it.")
    found = []
    for name, value in entries.items():
        pointer = isinstance(value, str) and "[" in value.partition("=")[0]
        parameter = Parameter(name, "", "", None, 1, pointer, const=False, restrict=False, line=1, column=1)
        found.append(read_entry(document, parameter, value, sizes))
    return (
        tuple(one for one in found if one.direction != "scratch"),
        tuple(one for one in found if one.direction == "scratch"),
    )


def read_stages(document: Document, kernel: Kernel, contract: Contract, own: OwnContract) -> tuple[Stage, ...]:
    """Returns the stages of a pipeline, in order.

    Args:
        document: the block.
        kernel: the pipeline.
        contract: its contract as far as it is read: sizes, arguments and temporaries.
        own: gives the contracts of its kernels, which say what they read and compute.

    Raises:
        ContractError: at the mistake; among others, a stage that reads what no earlier stage has written.
    """
    _check_name(document, kernel)
    entries = document.required("stages", 'Add [[stages]] with kernel = "name", grid and block below it.')
    if not isinstance(entries, list) or not entries or not all(isinstance(one, dict) for one in entries):
        hint = 'Write [[stages]] on a line of its own, and kernel = "name", grid and block below it.'
        document.fail(("stages",), "A pipeline needs a list of at least one stage.", hint)
    reader = _StageReader(document, kernel, contract, own)
    stages = [reader.read(number, entry) for number, entry in enumerate(entries)]
    reader.check_results()
    return tuple(_numbered(stages))


def with_stages(document: Document, baseline: Contract, own: Contract) -> Contract:
    """Returns the baseline's contract with the stages of a candidate that is a pipeline.

    Raises:
        ContractError: it takes or gives something else.
    """
    if own.args != baseline.args or tuple(own.sizes[0]) != tuple(baseline.sizes[0]):
        message = f"The arguments of {own.kernel} are not those of {baseline.kernel}."
        document.fail(("args",), message, "Give both the same [args], apart from scratch arrays, and the same sizes.")
    return replace(
        baseline, kernel=own.kernel, grid=(), block=(), shared="0", passing=(), stages=own.stages,
        temporaries=own.temporaries, require=own.require or baseline.require, line=own.line,
    )  # fmt: skip


def _check_name(document: Document, kernel: Kernel) -> None:
    if not kernel.name.isidentifier() or not kernel.name.isascii():
        message = f"{kernel.name!r} cannot be the name of a pipeline."
        document.fail(("pipeline",), message, "Use letters, digits and _.")
    if kernel_named(find_kernels(kernel.unit), kernel.name) is not None:
        message = f"{kernel.name} is a kernel of this file already."
        document.fail(("pipeline",), message, "Give the pipeline another name.")
    if [one.name for one in find_pipelines(kernel.unit)].count(kernel.name) > 1:
        document.fail(("pipeline",), f"There are two pipelines {kernel.name} in this file.", "Rename one of the two.")


def _numbered(stages: Sequence[Stage]) -> list[Stage]:
    """Returns the stages with unique names."""
    found: list[Stage] = []
    for stage in stages:
        before = sum(one.name.partition(" #")[0] == stage.name for one in found)
        found.append(replace(stage, name=f"{stage.name} #{before + 1}") if before else stage)
    return found


@dataclass(slots=True)
class _StageReader:
    """Reads stages one after another, and follows which arrays have contents.

    Attributes:
        written: the arrays that hold something before the next stage.
    """

    document: Document
    kernel: Kernel
    contract: Contract
    own: OwnContract
    written: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.written |= {one.name for one in self.contract.args if one.direction in ("in", "inout")}
        self.written |= {one.name for one in self.contract.temporaries if one.distribution is not None}

    @property
    def arguments(self) -> dict[str, Argument]:
        """Arguments and temporaries of the pipeline by name."""
        return {one.name: one for one in (*self.contract.args, *self.contract.temporaries)}

    @property
    def sizes(self) -> tuple[str, ...]:
        """Names of the sizes."""
        return tuple(self.contract.sizes[0])

    def read(self, number: int, entry: Mapping[str, Any]) -> Stage:
        """Returns one stage.

        Raises:
            ContractError: at the mistake.
        """
        stage = self._launch(number, entry) if "kernel" in entry else self._library(number, entry)
        for argument, source in zip(stage.contract.args, stage.sources, strict=True):
            if argument.shape is None or source is None:
                continue
            self.used.add(source)
            if argument.direction == "in" and source not in self.written:
                self._fail_unwritten(number, stage.name, source)
        for argument, source in zip(stage.contract.args, stage.sources, strict=True):
            if source is not None and argument.direction in ("out", "inout"):
                self.written.add(source)
        return stage

    def check_results(self) -> None:
        """Checks that stages write all outputs and use all temporaries.

        Raises:
            ContractError: at the entry of another array.
        """
        for one in self.contract.args:
            if one.direction == "out" and one.name not in self.written:
                message = f"No stage writes {one.name}."
                self.document.fail(("args", one.name), message, "Pass it to the stage that computes it.", key=True)
        for one in self.contract.temporaries:
            if one.name not in self.used:
                message = f"No stage uses {one.name}."
                self.document.fail(("args", one.name), message, "Pass it to a stage, or remove it.", key=True)

    def _fail_unwritten(self, number: int, stage: str, source: str) -> None:
        argument = self.arguments[source]
        shape = ", ".join(argument.shape or ())
        hint = f"Move the stage that writes {source} before it"
        if argument.direction == "scratch":
            hint += f', or write {source} = "scratch {argument.dtype}[{shape}] ~ zeros" if the host clears it'
        message = f"Stage {number + 1}, {stage}, reads {source}, which no stage before it writes."
        self.document.fail(("stages", number), message, f"{hint}.")

    # ------------------------------------------------------------------------------------------ launches of kernels

    def _launch(self, number: int, entry: Mapping[str, Any]) -> Stage:
        document, at = self.document, ("stages", number)
        for key in entry:
            if key not in KERNEL_KEYS:
                hint = nearest_hint(key, KERNEL_KEYS)
                document.fail((*at, key), f"{key!r} is not a key of a stage with a kernel.", hint, key=True)
        kernel, instance = self._kernel((*at, "kernel"), entry["kernel"])
        args, sources = self._arguments(at, entry, kernel)
        with_block = (*self.sizes, *BLOCK_NAMES)
        for key, example in (("grid", 'grid = "cdiv(n, block)"'), ("block", "block = 256")):
            if key not in entry:
                document.fail(at, f"This stage has no {key}.", f"Add {example} below it.")
        contract = Contract(
            kernel=kernel.name,
            sizes=self.contract.sizes,
            grid=read_sides(document, (*at, "grid"), entry["grid"], with_block, 'grid = "cdiv(n, block)"'),
            block=read_sides(document, (*at, "block"), entry["block"], self.sizes, "block = 256"),
            args=args,
            shared=read_expression(document, (*at, "shared"), entry.get("shared", 0), with_block),
            options=self.contract.options,
            accumulate=self.contract.accumulate,
            cooperative=self._flag((*at, "cooperative"), entry.get("cooperative", False)),
            line=document.place((*at, "kernel"))[0],
        )
        reference, kind = read_reference(document, kernel, args, self.sizes, (*at, "reference"))
        if kind == "kernel":
            hint = "Write a NumPy expression over the kernel's parameters, or path:function."
            document.fail((*at, "reference"), "A stage cannot be compared with another kernel.", hint)
        if reference is None:
            reference, kind = self._own_reference(kernel)
        contract = replace(contract, reference=reference, reference_kind=kind)
        return Stage(kernel.name, contract, sources, instance)

    def _kernel(self, path: Path, value: object) -> tuple[Kernel, str | None]:
        """Returns the kernel that a stage names, and its template instance."""
        kernels = find_kernels(self.kernel.unit)
        names = [one.name for one in kernels]
        found = kernel_named(kernels, value) if isinstance(value, str) else None
        if found is None:
            self.document.fail(path, f"There is no kernel {value!r} in this file.", nearest_hint(str(value), names))
        instance = "".join(str(value).split()) if "<" in str(value) else None
        if found.signature.template_parameters and instance is None:
            hint = f'Write kernel = "{found.name}<...>" with its template arguments.'
            self.document.fail(path, f"{found.name} is a template, and the stage names no instance of it.", hint)
        return found, instance

    def _own_reference(self, kernel: Kernel) -> tuple[str | None, Any]:
        own = self.own(kernel)
        if own is None or own.reference_kind not in ("function", "expression"):
            return None, None
        return own.reference, own.reference_kind

    def _arguments(
        self, at: Path, entry: Mapping[str, Any], kernel: Kernel
    ) -> tuple[tuple[Argument, ...], tuple[str | None, ...]]:
        """Returns the argument for each parameter of a kernel, and the array or size from which it comes."""
        given, path = entry.get("args", {}), (*at, "args")
        if not isinstance(given, dict):
            hint = 'Write args = { parameter = "array" } for those with another name.'
            self.document.fail(path, "The args of a stage must be a table.", hint)
        parameters = kernel.signature.parameters
        for name in given:
            if name not in [one.name for one in parameters]:
                hint = nearest_hint(name, [one.name for one in parameters])
                self.document.fail((*path, name), f"{kernel.name} takes no argument {name!r}.", hint, key=True)
        own = self.own(kernel)
        known = {} if own is None else {one.name: one.direction for one in own.args}
        found = [
            self._array(path, one, given.get(one.name, one.name), known.get(one.name))
            if one.pointer
            else self._scalar(path, one, given.get(one.name, one.name))
            for one in parameters
        ]
        self._check_apart(path, kernel, found)
        return tuple(argument for argument, _ in found), tuple(source for _, source in found)

    def _check_apart(self, path: Path, kernel: Kernel, found: Sequence[tuple[Argument, str | None]]) -> None:
        """Refuses an array that a kernel gets twice and writes: each parameter has memory of its own."""
        arrays = [(argument, source) for argument, source in found if argument.shape is not None]
        for argument, source in arrays:
            others = [other.name for other, same in arrays if same == source and other is not argument]
            if others and argument.direction != "in":
                message = f"{kernel.name} gets {source} as {argument.name} and as {others[0]}, and writes it."
                self.document.fail(path[:-1], message, "Pass two arrays, or give the kernel one parameter for both.")

    def _array(
        self, path: Path, parameter: Parameter, value: object, direction: Direction | None
    ) -> tuple[Argument, str | None]:
        arrays = {name: one for name, one in self.arguments.items() if one.shape is not None}
        at = (*path, parameter.name) if (*path, parameter.name) in self.document.spans else path[:-1]
        source = arrays.get(str(value))
        if source is None:
            message = f"{value!r}, which {parameter.name} takes, is not an array of the pipeline."
            hint = nearest_hint(str(value), arrays)
            self.document.fail(at, message, f'{hint} Write args = {{ {parameter.name} = "array" }}.')
        if parameter.dtype is not None and not fits(source.dtype, parameter.dtype, parameter):
            message = f"{source.name} holds {source.dtype}, and {parameter.name} takes {parameter.type}."
            self.document.fail(at, message, "Change the array's dtype in [args], or pass another array.")
        if parameter.const or (source.direction == "in" and direction in (None, "in")):
            direction = "in"
        elif direction in (None, "scratch"):
            direction = "inout" if source.name in self.written else "out"
        if direction != "in" and source.direction == "in":
            message = f"{parameter.name} is written, and {source.name} is only an input of the pipeline."
            self.document.fail(at, message, f"Write inout for {source.name} in [args], or pass another array.")
        return Argument(parameter.name, direction, source.dtype, source.shape, align=source.align), source.name

    def _scalar(self, path: Path, parameter: Parameter, value: object) -> tuple[Argument, str | None]:
        at = (*path, parameter.name) if (*path, parameter.name) in self.document.spans else path[:-1]
        source = self.arguments.get(str(value))
        if source is not None and source.shape is None:
            own = source.name if source.value is None and source.name in self.sizes else source.value
            return Argument(parameter.name, None, parameter.dtype or source.dtype, value=own), source.name
        if value == parameter.name and value not in self.sizes:
            message = f"Nothing says which value {parameter.name} has."
            hint = f'Write args = {{ {parameter.name} = "an expression over sizes" }}, or name it in [args].'
            self.document.fail(at, message, hint)
        text = read_expression(self.document, at, value, self.sizes)
        return Argument(parameter.name, None, parameter.dtype or "int32", value=text), None

    def _flag(self, path: Path, value: object) -> bool:
        if not isinstance(value, bool):
            self.document.fail(path, "A stage has cooperative = true or false.", "Write cooperative = true.")
        return value

    # ---------------------------------------------------------------------------------------------- steps of a library

    def _library(self, number: int, entry: Mapping[str, Any]) -> Stage:
        document, at = self.document, ("stages", number)
        if len(entry) != 1:
            hint = 'Write kernel = "name" with grid and block, or one line such as scores = "q @ k.T".'
            document.fail(at, "A stage names a kernel, or gives one array by an expression.", hint)
        ((name, text),) = entry.items()
        path, arguments = (*at, name), self.arguments
        arrays = [one.name for one in arguments.values() if one.shape is not None and one.direction != "in"]
        if name not in arrays:
            message = f"{name!r} is not an array that a stage can write."
            document.fail(path, message, nearest_hint(name, arrays), key=True)
        if not isinstance(text, str) or not text.strip():
            document.fail(path, f"The expression for {name} must be a string.", f'Write {name} = "q @ k.T".')
        names = check_array_expression(document, path, text.strip(), tuple(arguments.values()), self.sizes)
        result, args = arguments[name], []
        for one in arguments.values():
            if one.name == name:
                both: Direction = "inout" if name in names else "out"
                args.append(Argument(name, both, result.dtype, result.shape))
            elif one.name in names:
                args.append(replace(one, direction=None if one.shape is None else "in", distribution=None))
        if name in names and name not in self.written:
            self._fail_unwritten(number, name, name)
        contract = Contract(
            name, self.contract.sizes, (), (), tuple(args), reference=text.strip(), reference_kind="expression",
            line=document.place(path, key=True)[0],
        )  # fmt: skip
        return Stage(name, contract, tuple(one.name for one in args), library=True)
