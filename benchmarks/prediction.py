"""Predicted times against measured ones, in steps that may run on different machines.

- `python -m benchmarks.prediction prepare FOLDER` compiles every variant and writes CUBINs, launches and arguments.
- `python -m benchmarks.prediction measure FOLDER OUT.json` times them on this machine's GPU (NumPy and CuPy are enough).
- `python -m benchmarks.prediction report [MEASURED.json] [--write]` emulates them and prints how predictions stand to what
  was measured: with every family held out from the fit in turn, the same from starting figures that are wrong by chance,
  and with the fit that KernelMate uses. `--write` fits to all of them and keeps that, with the error on held-out families,
  in `kernelmate/measure/fit.json`. Measurements of an H100 and of an H200 are in `benchmarks/data`.

Times are periods of graph replay, the launch included, with L2 as an equal launch left it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.prediction_fit import Score, Timed
    from kernelmate.measure.predict import FittedConstants

TARGET = "H100 SXM"
SHAKEN = 3
SHARES = {"half": 0.5, "90%": 0.9, "95%": 0.95}
MEASURED = Path(__file__).resolve().parent / "data" / "variants_h100.json"
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


def emulated(measured: Mapping[str, Any]) -> list[Timed]:
    """Every measured variant with what an emulated launch of it was counted to do."""
    from benchmarks.prediction_fit import Timed
    from benchmarks.variant_set import run_arguments, variants
    from kernelmate.backends.base import Run
    from kernelmate.backends.emulator import EmulatorBackend
    from kernelmate.compiler import find_target
    from kernelmate.measure.predict import launch_facts

    target = find_target(measured["device"])
    times = {row["name"]: row["warm_us"] + measured["empty_us"] for row in measured["variants"]}
    timed = []
    for variant in variants():
        if variant.name not in times:
            continue
        compiled = variant.compile(target)
        run = Run(variant.shape, run_arguments(variant.arguments()), count=True, check=False)
        result = EmulatorBackend().load(compiled, target).run(run)
        launch = launch_facts(target, compiled, variant.shape, result)
        timed.append(Timed(variant.family, variant.name, launch, times[variant.name]))
    return timed


def report(path: Path, *, write: bool) -> None:
    """Print the scores; with `write` also make a new fit."""
    from benchmarks.machine import describe
    from benchmarks.prediction_fit import SHAKE, START, fitted, held_out, score, shaken
    from kernelmate.measure.predict import estimate, stored, stored_fit
    from kernelmate.measure.statistics import RATIO_FACTOR

    measured = json.loads(path.read_text())
    print(f"measured on {measured['device']}, {measured['date']}; emulated on {describe()}")
    timed = emulated(measured)
    guesses = held_out(timed, START)
    without = score(timed, guesses, RATIO_FACTOR)
    for one, guess in zip(timed, guesses, strict=True):
        print(
            f"  {one.name:<52} measured {one.measured_us:8.2f} us  held out {guess:8.2f} us  x {guess / one.measured_us:.2f}"
        )
    print_score("each family held out from the fit", without)
    others = [score(timed, held_out(timed, shaken(START, seed)), RATIO_FACTOR) for seed in range(SHAKEN)]
    print(f"  from {SHAKEN} starts that are wrong by chance (by a factor of {1 + SHAKE:.1f}, one figure in three by more): "
          f"{', '.join(f'{other.right / other.pairs:.1%}' for other in others)} of pairs in the right order")  # fmt: skip
    print_score(
        f"the fit that KernelMate uses, made on {stored()['provenance']['device']}",
        score(timed, [estimate(one.launch, stored_fit()).warm_us for one in timed], RATIO_FACTOR),
    )
    if write:
        fit = fitted(timed, START)
        _write_fit(fit, measured, without, others)
        print_score("the new fit, on what it was fitted to", score(timed, [estimate(one.launch, fit).warm_us for one in timed], RATIO_FACTOR))  # fmt: skip


def print_score(title: str, found: Score) -> None:
    """One score: pairs by family, then all together."""
    from benchmarks.prediction_fit import at

    print(f"\n{title}:")
    for family, (right, pairs) in found.families.items():
        print(
            f"  {family:<12} {right:4} of {pairs:4} pairs in order, best predicted takes {found.regrets[family]:.2f} of the best's time"
        )
    decided = found.pairs - found.undecided
    regrets: Sequence[float] = list(found.regrets.values())
    print(
        f"  pairs over 10 % apart in the right order: {found.right} of {found.pairs} ({found.right / found.pairs:.1%})"
    )
    print(f"  called, being outside the model's error:  {decided} of {found.pairs}; right {found.decided_right} of {decided} "
          f"({found.decided_right / decided:.1%}); undecided {found.undecided / found.pairs:.1%}")  # fmt: skip
    print(f"  regret of taking the predicted best: mean {sum(regrets) / len(regrets):.3f}, worst {max(regrets):.2f}")
    print(f"  a time is within a factor of {at(found.errors, 0.5):.2f} (half of them), {at(found.errors, 0.9):.2f} (90 %), "
          f"{at(found.errors, 0.95):.2f} (95 %)")  # fmt: skip
    print(f"  a ratio within a family of {at(found.ratio_errors, 0.5):.2f}, {at(found.ratio_errors, 0.9):.2f}, "
          f"{at(found.ratio_errors, 0.95):.2f}")  # fmt: skip


def _write_fit(fit: FittedConstants, measured: Mapping[str, Any], without: Score, others: Sequence[Score]) -> None:
    from benchmarks.prediction_fit import at
    from kernelmate.measure.statistics import RATIO_FACTOR

    document = {
        "values": asdict(fit),
        "provenance": {
            "device": measured["device"], "date": measured["date"], "compiler": measured["compiler"],
            "launches": len(measured["variants"]), "families": len(without.families),
            "what": "period of CUDA graph replay, L2 warm, of benchmarks/variants; times in benchmarks/data",
            "command": "python -m benchmarks.prediction report --write",
        },
        "error": {
            "what": "each family predicted by a fit that saw none of it; factors between predicted and measured",
            "time": {name: round(at(without.errors, share), 3) for name, share in SHARES.items()},
            "ratio": {name: round(at(without.ratio_errors, share), 3) for name, share in SHARES.items()},
            "pairs": without.pairs, "pairs_in_order": without.right,
            "pairs_in_order_from_other_starts": [other.right for other in others], "called_beyond": RATIO_FACTOR,
            "called": without.pairs - without.undecided, "called_right": without.decided_right,
        },
    }  # fmt: skip
    (Path(__file__).resolve().parents[1] / "kernelmate" / "measure" / "fit.json").write_text(
        json.dumps(document, indent=1) + "\n"
    )


def main(arguments: list[str]) -> int:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("prepare")
    step.add_argument("folder", type=Path)
    step = steps.add_parser("measure")
    step.add_argument("folder", type=Path)
    step.add_argument("out", type=Path)
    step = steps.add_parser("report")
    step.add_argument("measured", type=Path, nargs="?", default=MEASURED)
    step.add_argument("--write", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.step == "prepare":
        prepare(chosen.folder)
    elif chosen.step == "report":
        report(chosen.measured, write=chosen.write)
    else:
        from benchmarks.variant_timing import measure

        measure(chosen.folder, chosen.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
