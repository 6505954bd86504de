"""Candidates of `optimize "make it faster"` and versions by people: how many are accepted, promising or rejected, and why.

    python -m benchmarks.acceptance_table --out after.json                         # the examples
    python -m benchmarks.acceptance_table FOLDER --backend cuda --out after.json   # and FOLDER/*/kernel.cu, each with v*.cu
    python -m benchmarks.acceptance_table --compare before.json after.json         # two runs side by side

A folder of ladders holds for each kernel `kernel.cu`, `reference.py`, later versions `v*.cu` by people, and `headline.json`
with the size that decides: {"size": "N=512,C=50257"}. `require` and `tolerance` of its contracts are dropped, in copies.
Everything goes through `python -m kernelmate ... --json`, and this script needs nothing of the package: with PYTHONPATH set
to another checkout, `python benchmarks/acceptance_table.py` says what that one accepts of the same kernels.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernelmate.records import FindingCode

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
PROMPT = "make it faster"
DROPPED = ("require", "tolerance")
OUTCOMES = ("accepted", "promising", "undecided", "rejected", "none", "failed")
"""`none`: a search kept no candidate; `failed`: the command ended in an error."""
INFORMATION = ("no race seen", "agrees with the baseline", "trade-off:", "sizes of our own", "not tried at", "the baseline itself", "races in global memory", "at ")  # fmt: skip
"""Beginnings of reasons that do not decide."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The outcome of one version.

    Attributes:
        kernel: what it is a version of. version: its author, or the file's name. by: `optimize` or `people`.
        outcome: one of `OUTCOMES`. reason: why not accepted, or empty. speedup: median, where there is one.
    """

    kernel: str
    version: str
    by: str
    outcome: str
    reason: str
    speedup: float | None


def main() -> None:
    """Judge and print, or compare two runs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ladders", type=Path, nargs="*", help="folders of ladders")
    parser.add_argument("--backend", choices=("cuda", "emulator"), default="emulator")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of the search for each kernel")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for judging one version")
    parser.add_argument("--author", default="recipes", help="as of `kernelmate optimize`")
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--examples", type=Path, default=EXAMPLES, help="folder of the examples")
    parser.add_argument("--only", nargs="*", help="names of kernels' files or folders")
    parser.add_argument("--out", type=Path, help="where to write the run as JSON")
    parser.add_argument(
        "--documents", type=Path, metavar="FOLDER", help="where to keep what each search prints, with its diffs"
    )
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"), help="two runs' JSON files")
    given = parser.parse_args()
    if given.compare:
        before, after = (
            [Entry(**entry) for entry in json.loads(path.read_text())["entries"]] for path in given.compare
        )
        print("\n".join(side_by_side(before, after)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        entries: list[Entry] = []
        for entry in judged(given, Path(scratch)):
            entries.append(entry)
            save(given, entries)
    print("\n".join(table(entries)))


def save(given: argparse.Namespace, entries: Sequence[Entry]) -> None:
    """Write what was judged so far, so that a run that is cut short keeps it."""
    if given.out:
        run = {
            name: str(value) for name, value in vars(given).items() if name in ("backend", "budget", "author", "seed")
        }
        given.out.write_text(json.dumps({"given": run, "entries": [asdict(entry) for entry in entries]}, indent=1))


def judged(given: argparse.Namespace, scratch: Path) -> Iterator[Entry]:
    """Every kernel's candidates and versions, told as they come."""
    command = Command(given, scratch)
    kernels: list[tuple[str, str, str | None, list[Path]]] = []
    for path in sorted(given.examples.glob("*.cu")):
        names = judgeable(path.read_text())
        for name in names:
            kernels.append((path.stem if len(names) == 1 else name, f"{path}::{name}", None, []))
    for folder in given.ladders:
        for path in sorted(folder.glob("*/kernel.cu")):
            kernels.append(ladder(path.parent, scratch / folder.name / path.parent.name))
    for name, kernel, size, versions in kernels:
        if given.only and name not in given.only:
            continue
        found = command.optimized(name, kernel, size)
        found += [command.compared(name, kernel, version, size) for version in versions]
        print(f"{name}: {counted(found)}", file=sys.stderr, flush=True)
        yield from found


def ladder(folder: Path, copy: Path) -> tuple[str, str, str, list[Path]]:
    """The name of a ladder's kernel, the kernel in a copy of the folder, the size to judge at, and its later versions."""
    shutil.copytree(folder, copy)
    for path in copy.glob("*.cu"):
        path.write_text(without_keys(path.read_text(), DROPPED))
    size = json.loads((folder / "headline.json").read_text())["size"]
    return folder.name, str(copy / "kernel.cu"), size, sorted(copy.glob("v*.cu"))


def judgeable(text: str) -> list[str]:
    """Names of the kernels that stand below a contract of their own."""
    names = []
    for block in re.finditer(r"^// /// kernelmate$.*?^// ///$", text, re.MULTILINE | re.DOTALL):
        named = re.search(r'^// kernel = "(\w+)', block[0], re.MULTILINE)
        found = re.search(r"__global__\s+(?:__launch_bounds__\([^)]*\)\s*)?void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)", text[block.end() :])  # fmt: skip
        if named or found:
            names.append((named or found)[1])  # type: ignore[index]
    return names


def without_keys(text: str, keys: Sequence[str]) -> str:
    """A file's text without some keys of its contracts, over as many lines as their values take."""
    kept, inside, depth = [], False, 0
    for line in text.splitlines(keepends=True):
        bare = line.strip()
        if bare == "// /// kernelmate":
            inside = True
        elif bare == "// ///":
            inside, depth = False, 0
        dropped = inside and (depth > 0 or re.match(rf"// *(?:{'|'.join(keys)})\s*=", bare) is not None)
        if dropped:
            depth += sum(bare.count(mark) for mark in "[{") - sum(bare.count(mark) for mark in "]}")
        else:
            kept.append(line)
    return "".join(kept)


class Command:
    """Runs `kernelmate`, of whichever checkout PYTHONPATH names, with a history of its own."""

    def __init__(self, given: argparse.Namespace, scratch: Path) -> None:
        self._given, self._scratch = given, scratch
        self._environment = {**os.environ, "KERNELMATE_HISTORY_FILE": str(scratch / "history.db")}
        # The current folder stays off the import path, so that the package is PYTHONPATH's or the installed one.
        self._python = [sys.executable, "-P", "-m", "kernelmate"]

    def optimized(self, name: str, kernel: str, size: str | None) -> list[Entry]:
        """The candidates of a search."""
        given = self._given
        arguments = ["optimize", kernel, PROMPT, "--budget", f"{given.budget:g}", "--author", given.author]
        document = self._ask([*arguments, *self._common(size)])
        if given.documents:
            given.documents.mkdir(parents=True, exist_ok=True)
            (given.documents / f"{name}.json").write_text(json.dumps(document))
        if "candidates" not in document:
            return [Entry(name, "search", "optimize", "failed", failure(document), None)]
        found = [entry_of(name, one["author"], "optimize", one["verdict"]) for one in document["candidates"]]
        return found or [Entry(name, "search", "optimize", "none", (document.get("notes") or ["no candidate"])[0], None)]  # fmt: skip

    def compared(self, name: str, kernel: str, version: Path, size: str | None) -> Entry:
        """A version by people against the kernel."""
        document = self._ask(["compare", kernel, str(version), "--for", PROMPT, *self._common(size)])
        if not document.get("verdicts"):
            return Entry(name, version.stem, "people", "failed", failure(document), None)
        # One verdict for each instance.
        worst = max(document["verdicts"], key=lambda verdict: OUTCOMES.index(outcome_of(verdict)))
        return entry_of(name, version.stem, "people", worst)

    def _common(self, size: str | None) -> list[str]:
        given = self._given
        sizes = [] if size is None else ["--size", size]
        return [*sizes, "--backend", given.backend, "--seed", str(given.seed), "--timeout", f"{given.timeout:g}", "--json"]  # fmt: skip

    def _ask(self, arguments: Sequence[str]) -> dict[str, Any]:
        done = subprocess.run(
            [*self._python, *arguments], env=self._environment, cwd=self._scratch, capture_output=True, text=True, check=False
        )  # fmt: skip
        try:
            document: dict[str, Any] = json.loads(done.stdout)
        except json.JSONDecodeError:
            last = (done.stderr.strip().splitlines() or ["nothing printed"])[-1]
            return {"error": {"message": f"exit status {done.returncode}: {last}"}}
        return document


def failure(document: Mapping[str, Any]) -> str:
    """Why a command gave no verdict."""
    return str((document.get("error") or {}).get("message") or "no verdict")


def outcome_of(verdict: Mapping[str, Any]) -> str:
    """One of `OUTCOMES`, of a verdict as JSON has it."""
    if verdict["accepted"] is None:
        return "undecided" if any(reason.startswith("undecided") for reason in verdict["reasons"]) else "promising"
    return "accepted" if verdict["accepted"] else "rejected"


def reason_of(verdict: Mapping[str, Any]) -> str:
    """Why a version was not accepted: the first error's code, else the first reason that decides."""
    errors = [finding["code"] for finding in verdict["findings"] if finding["severity"] == "error"]
    if errors:
        return str(errors[0])
    if not verdict["compiled"]:
        return FindingCode.COMPILE_ERROR
    found = deciding(verdict["reasons"])
    return found[0] if found else "wrong" if verdict["correct"] is False else "no reason given"


def deciding(reasons: Sequence[str]) -> list[str]:
    """The reasons of a verdict that decide."""
    return [reason for reason in reasons if not reason.startswith(INFORMATION)]


def entry_of(kernel: str, version: str, by: str, verdict: Mapping[str, Any]) -> Entry:
    """A version's entry."""
    outcome = outcome_of(verdict)
    reason = reason_of(verdict) if outcome in ("undecided", "rejected") else ""
    return Entry(kernel, version, by, outcome, reason, (verdict["speedup"] or {}).get("median"))


def counted(entries: Sequence[Entry]) -> str:
    """Returns the number of entries with each outcome, as one line of text."""
    outcomes = Counter(entry.outcome for entry in entries)
    return ", ".join(f"{outcomes[outcome]} {outcome}" for outcome in OUTCOMES if outcomes[outcome]) or "none"


def reasons(entries: Sequence[Entry]) -> str:
    """Reasons with how often each was given, the most frequent first; figures in them are left out."""
    common = Counter(re.sub(r"\d[\d.,]*", "N", entry.reason)[:70] for entry in entries if entry.reason)
    return "; ".join(f"{times} {reason}" for reason, times in common.most_common(3))


def best(entries: Sequence[Entry]) -> str:
    """The largest speed-up that was accepted or promising."""
    found = [entry.speedup for entry in entries if entry.outcome in ("accepted", "promising") and entry.speedup]
    return f"{max(found):.3g}x" if found else "-"


def grouped(entries: Sequence[Entry]) -> dict[tuple[str, str], list[Entry]]:
    """Entries by kernel and who made the versions."""
    found: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        found.setdefault((entry.kernel, entry.by), []).append(entry)
    return found


def numbers(entries: Sequence[Entry]) -> list[str]:
    """The count of each outcome."""
    outcomes = Counter(entry.outcome for entry in entries)
    return [str(outcomes[outcome]) for outcome in OUTCOMES]


def table(entries: Sequence[Entry]) -> list[str]:
    """Lines of the table of one run, with totals."""
    lines = [f"| kernel | by | {' | '.join(OUTCOMES)} | best | reasons |", f"|{' --- |' * (len(OUTCOMES) + 4)}"]
    for (kernel, by), some in grouped(entries).items():
        lines.append(f"| {kernel} | {by} | {' | '.join(numbers(some))} | {best(some)} | {reasons(some)} |")
    for by in dict.fromkeys(entry.by for entry in entries):
        some = [entry for entry in entries if entry.by == by]
        lines.append(f"| all | {by} | {' | '.join(numbers(some))} | | {reasons(some)} |")
    return lines


def side_by_side(before: Sequence[Entry], after: Sequence[Entry]) -> list[str]:
    """Lines of the table of two runs; what a run does not have is left empty."""
    lines = [f"| kernel | by | {' | '.join(OUTCOMES)} | best | reasons before | reasons after |"]
    lines.append(f"|{' --- |' * (len(OUTCOMES) + 5)}")
    old, new = grouped(before), grouped(after)
    old_all = {("all", by): [e for e in before if e.by == by] for by in dict.fromkeys(e.by for e in before)}
    new_all = {("all", by): [e for e in after if e.by == by] for by in dict.fromkeys(e.by for e in after)}
    old, new = {**old, **old_all}, {**new, **new_all}
    keys = sorted({*old, *new}, key=lambda key: (key[0] == "all", key))
    for key in keys:
        one, two = old.get(key, []), new.get(key, [])
        counts = [f"{a} -> {b}" for a, b in zip(numbers(one), numbers(two), strict=True)]
        lines.append(f"| {key[0]} | {key[1]} | {' | '.join(counts)} | {best(one)} -> {best(two)} | {reasons(one)} | {reasons(two)} |")  # fmt: skip
    return lines


if __name__ == "__main__":
    main()
