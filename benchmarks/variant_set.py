"""The variants that predictions are held against: `benchmarks/variants/*.cu`, one file for each family.

All kernels of a file do the same work. A line `// variants of KERNEL: BLOCK=64 | BLOCK=256 ITEMS=4` says with which
macros a kernel is compiled; sizes of the contract that bear a macro's name take its value, so that the launch follows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.variant_timing import draw
from kernelmate.backends.base import ArrayArgument, ScalarArgument
from kernelmate.compiler import compile_kernel
from kernelmate.records import Compiled, CompileOptions, Contract, Kernel, LaunchShape, Target
from kernelmate.source import (
    argument_shapes,
    contract_for,
    evaluate,
    launch_shape,
    load_kernels,
    numpy_dtype,
    parse_distribution,
    scalar_values,
)

FOLDER = Path(__file__).resolve().parent / "variants"
_DECLARED = re.compile(r"^// variants of (\w+): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel with its macros: `matmul/matmul_tiled TILE=16`."""

    family: str
    name: str
    kernel: Kernel
    contract: Contract

    @property
    def shape(self) -> LaunchShape:
        """The launch at the headline size."""
        return launch_shape(self.contract, self.contract.sizes[0])

    def compile(self, target: Target) -> Compiled:
        """Compiled for the target.

        Raises:
            ValueError: it does not compile.
        """
        compiled = compile_kernel(
            self.kernel, self.contract.options, instance=None, target=target, options=CompileOptions()
        )
        if not compiled.ok:
            raise ValueError(f"{self.name} does not compile: {compiled.diagnostics}")
        return compiled

    def arguments(self) -> list[dict[str, Any]]:
        """Returns the arguments as plain data, from which `variant_timing.draw` makes arrays and scalars."""
        size = self.contract.sizes[0]
        shapes, scalars = argument_shapes(self.contract, size), scalar_values(self.contract, size)
        made = []
        for argument in self.contract.args:
            described: dict[str, Any] = {"name": argument.name, "dtype": argument.dtype}
            if argument.shape is None:
                described["value"] = numpy_dtype(argument.dtype).type(scalars[argument.name]).item()
            else:
                fill = _fill(argument.distribution, argument.direction or "in", size)
                described |= {"shape": list(shapes[argument.name]), "fill": fill, "direction": argument.direction}
            made.append(described)
        return made


def _fill(distribution: str | None, direction: str, size: Mapping[str, int]) -> list[Any]:
    if distribution is None:
        return ["uniform", 0.1, 1.0] if direction == "in" else ["zeros"]
    parsed = parse_distribution(distribution, size)
    return [parsed.name, *(evaluate(text, size) for text in parsed.arguments)]


def run_arguments(described: list[dict[str, Any]]) -> tuple[ArrayArgument | ScalarArgument, ...]:
    """The same arguments for a backend of ours."""
    return tuple(
        ArrayArgument(item["name"], draw(item), written=item["direction"] != "in")
        if "shape" in item
        else ScalarArgument(item["name"], numpy_dtype(item["dtype"]).type(item["value"]))
        for item in described
    )


def variants(families: list[str] | None = None, sizes: Mapping[str, int] | None = None) -> Iterator[Variant]:
    """All variants, or those of some families; `sizes` takes the place of sizes that contracts list.

    Raises:
        ValueError: a line declares variants of a kernel that the file does not hold.
    """
    for path in sorted(FOLDER.glob("*.cu")):
        if families and path.stem not in families:
            continue
        kernels = {kernel.name: kernel for kernel in load_kernels(path)}
        for name, knobs in _DECLARED.findall(path.read_text()):
            if name not in kernels:
                raise ValueError(f"{path.name} declares variants of {name}, and holds {', '.join(kernels)}")
            for text in knobs.split("|"):
                yield _variant(path.stem, kernels[name], text.split(), sizes or {})


def _variant(family: str, kernel: Kernel, macros: list[str], sizes: Mapping[str, int]) -> Variant:
    contract = contract_for(kernel)
    values = {name: int(value) for name, value in (macro.split("=") for macro in macros)}
    size = {name: sizes.get(name, value) for name, value in contract.sizes[0].items()} | values
    options = (*contract.options, *(f"-D{macro}" for macro in macros))
    contract = replace(contract, sizes=(size,), options=options)
    return Variant(family, f"{family}/{kernel.name} {' '.join(macros)}", kernel, contract)
