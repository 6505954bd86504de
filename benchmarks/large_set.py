"""The kernels of `benchmarks/large` and of the examples, as texts that no cache has seen."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelmate.records import Contract, Kernel
from kernelmate.source import argument_shapes, launch_shape, load_kernels, numpy_dtype, parse_contract

ROOT = Path(__file__).resolve().parents[1]
_EDITS = itertools.count()
LARGE, EXAMPLES = ROOT / "benchmarks" / "large", ROOT / "examples"


@dataclass(frozen=True, slots=True)
class Listed:
    """One kernel with a contract: its file without suffix is `stem`."""

    kernel: Kernel
    contract: Contract

    @property
    def stem(self) -> str:
        """The name of its file, without suffix."""
        return Path(self.kernel.unit.path).stem

    def sizes(self, scale: str) -> list[dict[str, int]]:
        """In place of the contract's: the small listed ones for the scale `small`, else none."""
        return [dict(size) for size in self.contract.sizes[1:]] if scale == "small" else []

    def array_bytes(self, size: Mapping[str, int] | None = None) -> int:
        """Bytes that all arrays move at a size, those that are read and written twice; without a size, at the headline."""
        shapes = argument_shapes(self.contract, size or self.contract.sizes[0])
        moved = {
            a.name: numpy_dtype(a.dtype).itemsize * (2 if a.direction == "inout" else 1) for a in self.contract.args
        }
        return sum(math.prod(shape) * moved[name] for name, shape in shapes.items())


def listed(folder: Path, names: Sequence[str] = ()) -> Iterator[Listed]:
    """Every kernel with a contract in a folder's CUDA files, or those of some names or files."""
    for path in sorted(folder.glob("*.cu")):
        for kernel in load_kernels(path):
            contract = parse_contract(kernel)
            if contract is not None and (not names or kernel.name in names or path.stem in names):
                yield Listed(kernel, contract)


def copy_of(folder: Path, into: Path) -> Path:
    """A copy of a folder's kernels and references that may be written to."""
    target = into / folder.name
    target.mkdir()
    for path in (*folder.glob("*.cu"), *folder.glob("*.py")):
        shutil.copy(path, target)
    return target


def write_edited(one: Listed, folder: Path) -> str:
    """Write a version of the kernel whose code is new into the copied folder; returns FILE::KERNEL.

    A mark in its body changes the PTX, and launch bounds that it does not reach change the CUBIN. Its work is the same.
    """
    kernel, number = one.kernel, next(_EDITS) % 255
    text = kernel.unit.text
    body = text.index("{", text.index(kernel.name, kernel.start)) + 1
    mark = f' asm volatile("// edit {time.time_ns()}");'
    threads = launch_shape(one.contract, one.contract.sizes[0]).threads
    head = _bounded(text[kernel.start : body], kernel.name.rpartition("::")[2], threads, number + 1)
    path = folder / Path(kernel.unit.path).name
    path.write_text(text[: kernel.start] + head + mark + text[body:])
    return f"{path}::{kernel.name}"


def _bounded(head: str, name: str, threads: int, more: int) -> str:
    """A kernel's head with launch bounds of some threads more than it has: those of its own, or new ones."""
    if "__launch_bounds__" in head:
        return re.sub(r"__launch_bounds__\(([^,()]*)", rf"__launch_bounds__((\1) + {more}", head, count=1)
    return re.sub(rf"\b{re.escape(name)}\b", f"__launch_bounds__({min(threads + more, 1024)}) {name}", head, count=1)
