"""The kernels of `benchmarks/large` and of the examples, as texts that no cache has seen."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import time
from collections.abc import Iterator, Sequence
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

    def array_bytes(self, scale: str = "full") -> int:
        """Bytes of all arrays at the headline size."""
        shapes = argument_shapes(self.contract, (self.sizes(scale) or self.contract.sizes)[0])
        dtypes = {a.name: numpy_dtype(a.dtype) for a in self.contract.args}
        return sum(math.prod(shape) * dtypes[name].itemsize for name, shape in shapes.items())


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

    A mark in its body changes the PTX. Launch bounds that it does not reach, where it has none of its own, change the
    CUBIN. Its work is the same.
    """
    kernel, mark, number = one.kernel, time.time_ns(), next(_EDITS) % 255
    text = kernel.unit.text
    body = text.index("{", text.index(kernel.name, kernel.start)) + 1
    text = f'{text[:body]} asm volatile("// edit {mark}");{text[body:]}'
    threads = launch_shape(one.contract, one.contract.sizes[0]).threads
    bounds = f"__launch_bounds__({min(threads + 1 + number, 1024)}) "
    if "__launch_bounds__" not in text[kernel.start : body]:
        name = re.compile(rf"\b{re.escape(kernel.name.rpartition('::')[2])}\b")
        found = name.search(text, kernel.start)
        assert found is not None
        text = text[: found.start()] + bounds + text[found.start() :]
    path = folder / Path(kernel.unit.path).name
    path.write_text(text)
    return f"{path}::{kernel.name}"
