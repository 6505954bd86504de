"""compute-sanitizer against the emulator on kernels with one fault each: `python -m benchmarks.gpu_sanitizer OUT.json`.

Needs an NVIDIA GPU, CuPy and compute-sanitizer. Each kernel of tests/faulty runs under memcheck, racecheck, initcheck
and synccheck in processes of its own, and in the emulator; the table shows who finds what. A kernel that only the emulator
finds is undecided where a tool gave no answer.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.machine import describe
from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernels

FAULTY = Path(__file__).resolve().parents[1] / "tests" / "faulty"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
SECONDS = 90
"""After which a tool is given up."""


def sanitize(job: tuple[Path, str]) -> tuple[int | None, str]:
    """Errors that a tool counts, None if it did not end, and the first line that says what."""
    file, tool = job
    command = ["compute-sanitizer", "--tool", tool, "--print-limit", "2", sys.executable, "-m", "benchmarks.gpu_launch", str(file)]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return None, f"no answer in {SECONDS} s"
    text = done.stdout + done.stderr
    counted = re.findall(r"(?:ERROR SUMMARY: |RACECHECK SUMMARY: )(\d+)", text)
    if not counted:
        return None, text[-300:].strip()
    said = [
        line.removeprefix("=========").strip()
        for line in text.splitlines()
        if line.startswith("=========")
        and re.search(r"Error|Invalid|hazard|Uninitialized|Barrier|Misaligned|Divergent", line)
    ]
    return sum(map(int, counted)), said[0] if said else ""


def main(arguments: list[str]) -> int:
    """Print the table and write it; 1 where the sanitizer finds what the emulator does not."""
    files = sorted(FAULTY.glob("*.cu"))
    print(describe())
    jobs = [(file, tool) for file in files for tool in TOOLS]
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip(jobs, pool.map(sanitize, jobs), strict=True))
    rows, missed = [], 0
    with Session(load_settings(seed=20261121, backend="emulator", target="sm_90")) as session:
        for file in files:
            (verdict,) = session.bench(load_kernels(file)[0])
            ours = [finding.code for finding in verdict.findings if finding.severity == "error"]
            theirs = {tool: found[file, tool] for tool in TOOLS}
            by = [tool for tool, (count, _) in theirs.items() if count]
            lost = [tool for tool, (count, _) in theirs.items() if count is None]
            missed += bool(by and not ours)
            rows.append({"kernel": file.stem, "emulator": ours, "sanitizer": theirs})
            mark = "only the sanitizer" if by and not ours else "" if by or not ours else "undecided" if lost else "only the emulator"  # fmt: skip
            print(f"{file.stem:<28} emulator: {', '.join(ours) or '-':<44} sanitizer: {', '.join(by) or '-':<22} {mark} {'(no answer: ' + ', '.join(lost) + ')' if lost else ''}")  # fmt: skip
    Path(arguments[0]).write_text(json.dumps({"machine": describe(), "kernels": rows}, indent=1) + "\n")
    found_by = [(any(count for count, _ in row["sanitizer"].values()), row) for row in rows]
    decided = [pair for pair in found_by if pair[0] or all(count is not None for count, _ in pair[1]["sanitizer"].values())]  # fmt: skip
    print(f"of {len(decided)} kernels that the sanitizer decides (of {len(rows)}) it finds {sum(by for by, _ in decided)}, the emulator {sum(bool(row['emulator']) for _, row in decided)}; {missed} by the sanitizer alone")  # fmt: skip
    silent = [tool for tool in TOOLS if all(found[file, tool][0] is None for file in files)]
    for tool in silent:
        print(f"{tool} answered for no kernel, so it was not compared: {found[files[0], tool][1]}")
    return 1 if missed or silent else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
