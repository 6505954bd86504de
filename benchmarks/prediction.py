"""Predicted times against measured ones, in three steps that may run on different machines.

- `python -m benchmarks.prediction prepare FOLDER` compiles every variant and writes CUBINs, launches and arguments.
- `python -m benchmarks.prediction measure FOLDER OUT.json` times them on this machine's GPU (NumPy and CuPy are enough).
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

TARGET = "H100 SXM"
HELPERS = Path(__file__).resolve().parent / "timing_helpers.cu"


def prepare(folder: Path) -> None:
    """Compile all variants for the target, and write what timing them takes."""
    from benchmarks.variant_set import variants
    from kernelmate.compiler import compile_kernel, find_target
    from kernelmate.records import CompileOptions
    from kernelmate.source import load_kernels

    folder.mkdir(parents=True, exist_ok=True)
    target = find_target(TARGET)
    rows: list[dict[str, Any]] = []
    compilers = set()
    for number, variant in enumerate(variants()):
        compiled = variant.compile(target)
        compilers.add(compiled.compiler.split(" --")[0])
        cubin = f"{number:03}.cubin"
        (folder / cubin).write_bytes(compiled.cubin)
        shape = variant.shape
        rows.append({
            "family": variant.family, "name": variant.name, "cubin": cubin, "symbol": compiled.lowered_name,
            "grid": shape.grid, "block": shape.block, "shared_bytes": shape.shared_bytes,
            "arguments": variant.arguments(),
        })  # fmt: skip
    helpers = []
    for kernel in load_kernels(HELPERS):
        compiled = compile_kernel(kernel, (), instance=None, target=target, options=CompileOptions())
        (folder / f"{kernel.name}.cubin").write_bytes(compiled.cubin)
        helpers.append({"cubin": f"{kernel.name}.cubin", "symbol": compiled.lowered_name})
    text = {"target": target.name, "compiler": ", ".join(sorted(compilers)), "variants": rows, "helpers": helpers}
    (folder / "variants.json").write_text(json.dumps(text, indent=1) + "\n")
    families = len({row["family"] for row in rows})
    print(f"{len(rows)} variants of {families} families for {target.name}, written to {folder}")


def main(arguments: list[str]) -> int:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("prepare")
    step.add_argument("folder", type=Path)
    step = steps.add_parser("measure")
    step.add_argument("folder", type=Path)
    step.add_argument("out", type=Path)
    chosen = parser.parse_args(arguments)
    if chosen.step == "prepare":
        prepare(chosen.folder)
    else:
        from benchmarks.variant_timing import measure

        measure(chosen.folder, chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
