"""Times of ported modules on a GPU beside eager and torch.compile, added up over several runs.

    python -m benchmarks.port_times time TASKS WORK KEPT.json [--limit 300]
    python -m benchmarks.port_times table KEPT.json [-o RESULT]
    python -m benchmarks.port_times call

`time` takes the ports that `benchmarks.gpu_port run TASKS WORK` made as they are, without audit and max-autotune, and times each at its
task's own sizes, in blocks of the order A B B A with inputs that are not in L2; its results are compared with eager's there. What
was found is kept by level and number of the task, also for tasks that stay with PyTorch. `call` measures what a call of an operator
takes on the host, beside torch.add. Needs an NVIDIA GPU, CuPy and PyTorch.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import describe, print_or_write

Row = dict[str, Any]
"""Record of a task: `machine`, and either microseconds `eager`, `compile` and `new` with `deviation`, or `left`, or `failed`."""

MOST_DEVIATION = 1e-3
"""Deviation from eager, relative to the largest result, up to which a port counts as right: both round differently."""


def time_ports(asked: argparse.Namespace) -> int:
    """Times every port that has kernels and is not timed yet, one after the other; 1 if one is wrong."""
    kept: dict[str, Row] = json.loads(asked.kept.read_text()) if asked.kept.exists() else {}
    ends, machine = time.monotonic() + asked.limit, describe()
    for path in sorted((asked.work / "ports").glob("*.json")):
        port = json.loads(path.read_text())
        key = key_of(port["task"])
        if "new" in kept.get(key, {}):
            continue
        if port["code"] not in (0, 1):
            row: Row = {"failed": "too slow" if port["code"] is None else f"exit code {port['code']}"}
        elif not port["kernels"]:
            row = {"left": True}
        elif time.monotonic() > ends:
            continue
        else:
            new = asked.work / "new" / f"{port['task'].removesuffix('.py')}_new" / "model_new.py"
            row = _measured(asked.tasks / port["task"], new, ends)
        kept[key] = {"machine": machine} | row
        asked.kept.write_text(json.dumps(dict(sorted(kept.items(), key=lambda one: _order(one[0]))), indent=0) + "\n")
        print(key, row, flush=True)
    print("\n".join(table(kept)))
    return int(any(_is_wrong(row) for row in kept.values()))


def key_of(task: str) -> str:
    """Returns the level and number of a task: `2/37` of `level2/37_Matmul.py`."""
    level, number = re.match(r"(?:level)?(\w+)/(\d+)", task).groups()  # type: ignore[union-attr]
    return f"{level}/{number}"


def _order(key: str) -> tuple[str, int]:
    level, _, number = key.partition("/")
    return level, int(number)


def _is_wrong(row: Row) -> bool:
    return "failed" in row or ("new" in row and not row["deviation"] < MOST_DEVIATION)


def _measured(task: Path, new: Path, ends: float) -> Row:
    command = [sys.executable, "-m", "benchmarks.port_times", "measure", str(task), str(new)]
    try:
        said = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=max(ends - time.monotonic(), 20)
        )
    except subprocess.TimeoutExpired:
        return {"failed": "too slow"}
    if said.returncode:
        return {"failed": "".join(said.stderr.strip().splitlines()[-1:])[:200]}
    row: Row = json.loads(said.stdout.splitlines()[-1])
    return row


def measure(task: Path, new: Path) -> dict[str, Any]:
    """Returns microseconds of a call of eager, torch.compile and a port, and the port's deviation from eager."""
    import torch

    from kernelmate_torch.kernelbench.timing import WARM_UP, timed_blocks
    from kernelmate_torch.loading import module_of

    sys.path[:0] = [str(new.parent), str(task.parent)]
    file, initial = module_of(task, "task"), []
    torch.manual_seed(42)
    if hasattr(file, "get_init_inputs"):
        initial = file.get_init_inputs()
    old = file.Model(*initial).cuda().eval()
    made = module_of(new, "model_new").ModelNew(*initial)
    made.load_state_dict(old.state_dict())
    made = made.cuda().eval()
    inputs = [one.cuda() if torch.is_tensor(one) else one for one in file.get_inputs()]
    versions: dict[str, Any] = {"eager": old, "compile": torch.compile(old), "new": made}
    with torch.no_grad():
        want, got = old(*inputs), made(*inputs)
        pairs = zip(*(one if isinstance(one, tuple | list) else [one] for one in (want, got)), strict=True)
        deviation = max(
            (float((a.double() - b.double()).abs().max() / a.double().abs().max().clamp(min=1e-30)) for a, b in pairs),
            key=lambda one: math.inf if math.isnan(one) else one,
        )
        del want, got
        for name in list(versions):
            try:
                for _ in range(WARM_UP):
                    versions[name](*inputs)
                torch.cuda.synchronize()
            except Exception:
                if name != "compile":
                    raise
                del versions[name]
    times, _ = timed_blocks(versions, [inputs, inputs])
    return {name: statistics.median(found) for name, found in times.items()} | {"deviation": deviation}


ADDITION = """// /// kernelmate
// sizes = [{ n = 4096 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "a + b"
// [args]
// a = "in float32[n]"
// b = "in float32[n]"
// c = "out float32[n]"
// n = "int32"
// ///
extern "C" __global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"""


def time_call() -> dict[str, float]:
    """Returns microseconds on the host of a call of an operator and of torch.add, each on 4096 elements."""
    import torch

    from kernelmate_torch.launching import operator

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "add.cu"
        path.write_text(ADDITION)
        a, b = torch.randn(2, 4096, device="cuda").unbind()
        versions = {"operator": operator(str(path)), "torch.add": torch.add}
        found = {}
        with torch.no_grad():
            for name, version in versions.items():
                for _ in range(500):
                    version(a, b)
                torch.cuda.synchronize()
                began = time.perf_counter()
                for _ in range(5000):
                    version(a, b)
                found[name] = (time.perf_counter() - began) / 5000 * 1e6
                torch.cuda.synchronize()
    return found


def table(kept: Mapping[str, Row]) -> Iterator[str]:
    """Yields the lines of the table."""
    yield f"{'level':>5}{'tasks':>7}{'left':>6}{'kernels':>9}{'wrong':>7}{'faster':>8}{'over eager':>12}{'over compile':>14}"
    levels = sorted({key.partition("/")[0] for key in kept})
    for level in (*levels, None):
        rows = [row for key, row in kept.items() if level in (None, key.partition("/")[0])]
        timed = [row for row in rows if "new" in row]
        means = []
        for name in ("eager", "compile"):
            ratios = [row[name] / row["new"] for row in timed if name in row]
            means.append(f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-")
        faster = sum(row["eager"] > row["new"] for row in timed)
        yield (
            f"{level or 'all':>5}{len(rows):>7}{sum('left' in row for row in rows):>6}{len(timed):>9}{sum(map(_is_wrong, rows)):>7}"
            f"{faster:>8}{means[0]:>12}{means[1]:>14}"
        )
    yield ""
    for key, row in kept.items():
        if "new" in row:
            ratios = [row[name] / row["new"] if name in row else math.nan for name in ("eager", "compile")]
            yield f"{key:<8}{row['new']:>10.1f} us, {ratios[0]:.2f} times as fast as eager, {ratios[1]:.2f} as torch.compile, deviation {row['deviation']:.1e}"
        elif "failed" in row:
            yield f"{key:<8}{row['failed']}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("time")
    for name in ("tasks", "work", "kept"):
        one.add_argument(name, type=Path)
    one.add_argument("--limit", type=float, default=300.0, help="seconds")
    one = commands.add_parser("measure")
    one.add_argument("task", type=Path)
    one.add_argument("new", type=Path)
    one = commands.add_parser("table")
    one.add_argument("kept", type=Path)
    one.add_argument("-o", "--output", type=Path)
    commands.add_parser("call")
    asked = parser.parse_args()
    if asked.command == "time":
        return time_ports(asked)
    if asked.command == "measure":
        print(json.dumps(measure(asked.task, asked.new)))
    elif asked.command == "table":
        print_or_write(table(json.loads(asked.kept.read_text())), asked.output)
    else:
        print(", ".join(f"{name} {us:.1f} us" for name, us in time_call().items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
