"""`check` on files of public projects: the share of their kernels that compiles, and the reasons of the others.

    python -m benchmarks.real_files fetch CACHE FOLDER   copies the listed repositories out of bare git directories
    python -m benchmarks.real_files run CACHE [--only WORDS] [--share 1/4] [--jobs 2] [-o RESULT]

Ctrl-C ends a run with the files that were done.

`benchmarks/data/real_files.toml` lists repository, commit, include paths, defines, standard and files; no text of them is in this
repository. `CACHE` is a folder outside it, with a checkout of each as `owner+name`. `FOLDER` holds git directories,
`owner+name/repo` or `owner+name.git`.

Each file is given to the real command, `kernelmate check FILE --json`. Where a kernel does not compile, nvcc of an
installed toolkit compiles the unchanged file, host code included, with the same flags: a kernel counts as one that
compiles at all if nvcc accepts the file, or if `check` does. Without nvcc every kernel counts.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.machine import describe

TABLE = Path(__file__).with_name("data") / "real_files.toml"
KEPT = frozenset(
    [
        ".cu",
        ".cuh",
        ".h",
        ".hh",
        ".hpp",
        ".hxx",
        ".inl",
        ".inc",
        ".ipp",
        ".tpp",
        ".tcc",
        ".def",
        ".in",
        ".py",
        ".cpp",
        ".cc",
        ".cxx",
        ".impl",
        ".json",
        ".toml",
    ]
)
"""Suffixes of the files that are copied out of a repository."""

ARCHITECTURE = "sm_90"
TIME_LIMIT_S = 900


@dataclass(frozen=True)
class Repository:
    """One row of the table: `include` are folders of it, or `owner/name:folder` of another one."""

    name: str
    commit: str
    files: tuple[str, ...]
    include: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    std: str = "c++17"

    def folder(self, cache: Path) -> Path:
        """Returns the folder of its checkout."""
        return cache / self.name.replace("/", "+")

    def includes(self, cache: Path) -> Iterator[Path]:
        """Yields the folders of its headers."""
        for written in self.include:
            owner, colon, folder = written.rpartition(":")
            yield cache / owner.replace("/", "+") / folder if colon else self.folder(cache) / folder


@dataclass
class Outcome:
    """The answer of `check` about one file."""

    path: str
    seconds: float
    compiled: list[str] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    refused: str | None = None
    nvcc: str | None = None
    """None if it was not asked, an empty text if it compiles the file, else its first error."""

    @property
    def counted(self) -> int:
        """Kernels that compile at all, as far as is known here."""
        hopeless = bool(self.nvcc)
        return len(self.compiled) + (0 if hopeless else len(self.failed) + (self.refused is not None))


def read_table() -> tuple[Repository, ...]:
    """Returns the rows of the table."""
    rows = tomllib.loads(TABLE.read_text())["repository"]
    return tuple(Repository(**{key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}) for row in rows)


# ---------------------------------------------------------------------------------------------------------- fetching


def fetch(cache: Path, folder: Path) -> None:
    """Copies the sources of every listed repository at its commit into the cache."""
    for repository in read_table():
        stem = folder / repository.name.replace("/", "+")
        found = next((place for place in (stem / "repo", Path(f"{stem}.git")) if place.is_dir()), None)
        if found is None:
            print(f"{repository.name}: there is no git directory in {folder}", file=sys.stderr)
            continue
        count = _copy(found, repository.commit, repository.folder(cache))
        print(f"{repository.name}: {count} files")


def _copy(git: Path, commit: str, place: Path) -> int:
    """Writes the files of one commit whose suffix says that compilers may read them; returns their number."""
    listing = _git(git, "ls-tree", "-r", "-z", commit).decode(errors="replace").split("\0")
    shutil.rmtree(place, ignore_errors=True)
    (place / ".git").mkdir(parents=True)  # by which a checkout is recognised as one project
    wanted = []
    for line in filter(None, listing):
        (mode, kind, blob), path = line.partition("\t")[0].split(), line.partition("\t")[2]
        if kind == "blob" and mode != "120000" and (Path(path).suffix in KEPT or "." not in Path(path).name):
            wanted.append((blob, path))
    asked = "".join(f"{blob}\n" for blob, _ in wanted).encode()
    answer = subprocess.run(
        ["git", "--git-dir", str(git), "cat-file", "--batch"], input=asked, capture_output=True, check=True
    ).stdout
    at = count = 0
    for _, path in wanted:
        end = answer.index(b"\n", at)
        header = answer[at:end].split()
        at = end + 1
        if header[1] != b"blob":
            continue
        size = int(header[2])
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(answer[at : at + size])
        at += size + 1
        count += 1
    return count


def _git(git: Path, *words: str) -> bytes:
    return subprocess.run(["git", "--git-dir", str(git), *words], capture_output=True, check=True).stdout


# ----------------------------------------------------------------------------------------------------------- running


def check_file(repository: Repository, file: str, cache: Path, compiled: Path) -> Outcome:
    """Runs `kernelmate check` on one file, and nvcc where it does not compile everything."""
    path = repository.folder(cache) / file
    flags = [f"-I{folder}" for folder in repository.includes(cache)] + [f"-D{one}" for one in repository.defines]
    flags.append(f"--std={repository.std}")
    command = [sys.executable, "-m", "kernelmate", "check", str(path), "--json", "--target", ARCHITECTURE, *flags]
    began = time.monotonic()
    outcome = Outcome(f"{repository.name}/{file}", 0.0)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S,
            env={**os.environ, "KERNELMATE_CACHE_DIR": str(compiled)},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        outcome.refused = "time-out of the whole command"
    else:
        _read(outcome, done)
    outcome.seconds = time.monotonic() - began
    if outcome.refused or outcome.failed:
        outcome.nvcc = nvcc_error(path, flags)
    return outcome


def _read(outcome: Outcome, done: subprocess.CompletedProcess[str]) -> None:
    if "Traceback" in done.stderr:
        outcome.refused = "traceback: " + done.stderr.strip().splitlines()[-1]
        return
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        outcome.refused = f"no document, exit status {done.returncode}: {done.stderr.strip()[-200:]}"
        return
    if "error" in document:
        outcome.refused = document["error"]["message"]
        return
    for verdict in document["verdicts"]:
        name = verdict["kernel"] + (f" {verdict['instance']}" if verdict["instance"] else "")
        said = verdict["diagnostics"]
        errors = [one for one in said if one["severity"] == "error"]
        if verdict["compiled"]:
            outcome.compiled.append(name)
        elif errors or not said:
            outcome.failed.append((name, errors[0]["message"] if errors else "no reason"))
        else:
            notes = [one for one in said if one["code"] in ("no-instance", "inactive")] or said
            outcome.notes.append((name, notes[0]["message"]))


def nvcc_error(path: Path, flags: Sequence[str]) -> str | None:
    """Returns nvcc's first error about the unchanged file; empty if it compiles, None if there is no nvcc."""
    nvcc = shutil.which("nvcc")
    if nvcc is None or path.suffix == ".py":
        return None
    with tempfile.TemporaryDirectory() as folder:
        command = [
            nvcc, "-cubin", f"-arch={ARCHITECTURE}", "--expt-relaxed-constexpr", "--extended-lambda", "-x", "cu",
            *flags, "-o", str(Path(folder) / "out"), str(path),
        ]  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIME_LIMIT_S)
            lines = (done.stderr + done.stdout).splitlines()
            errors = [line for line in lines if "error" in line.lower() or "fatal" in line.lower()]
            return "" if done.returncode == 0 else (errors or lines or ["no reason"])[0]
    return "time-out"


# ---------------------------------------------------------------------------------------------------------- reporting


def class_of(message: str) -> str:
    """Returns a message without the names in it: its class."""
    line = message.strip().splitlines()[0] if message.strip() else message
    line = re.sub(r'"[^"]*"', '"..."', line)
    return re.sub(r"\S*/\S+|\b\d+\b", "#", line)[:110]


def _lines(one: Outcome, *, kernels: bool) -> Iterator[str]:
    count = len(one.compiled)
    total = count + len(one.failed) + len(one.notes)
    said = "" if one.nvcc is None else ("; nvcc compiles it" if not one.nvcc else f"; nvcc: {one.nvcc[-160:]}")
    refused = f", {one.refused}" if one.refused else ""
    yield f"{one.path}: {count} of {total} compiled, {one.seconds:.1f} s{refused}{said}"
    for name, why in (*one.failed, *one.notes) if kernels else ():
        yield f"    {name}: {why.strip().splitlines()[0][:200]}"


def report(outcomes: Sequence[Outcome], *, kernels: bool) -> Iterator[str]:
    """Yields the lines of the result."""
    for one in outcomes:
        yield from _lines(one, kernels=kernels)
    classes = collections.Counter(
        class_of(why)
        for one in outcomes
        if not one.nvcc
        for why in (*(w for _, w in one.failed), *([one.refused] if one.refused else []))
    )
    notes = collections.Counter(class_of(why) for one in outcomes for _, why in one.notes)
    yield "\nNot compiled, though nvcc compiles the file, by reason:"
    yield from (f"{count:5} {reason}" for reason, count in classes.most_common())
    yield "\nNot compiled, and said so in a note:"
    yield from (f"{count:5} {reason}" for reason, count in notes.most_common())
    compiled = sum(len(one.compiled) for one in outcomes)
    counted = sum(one.counted for one in outcomes)
    hopeless = sum(len(one.failed) + (one.refused is not None) for one in outcomes if one.nvcc)
    asked = sum(len(one.notes) for one in outcomes)
    yield (
        f"\n{len(outcomes)} files of {len({one.path.split('/')[1] for one in outcomes})} repositories: "
        f"{compiled} of {counted} kernels and instances that compile at all compiled ({compiled / max(counted, 1):.1%}); "
        f"{hopeless} more do not compile by nvcc either, and {asked} got a note; "
        f"slowest file {max((one.seconds for one in outcomes), default=0):.0f} s"
    )


def main() -> None:
    """Copies repositories, or runs `check` on the listed files and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=("fetch", "run"))
    parser.add_argument("cache", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", nargs="*", default=[], help="files whose repository or path has one of these words")
    parser.add_argument("--share", default="1/1", help="K/N: a share of the files, always the same ones")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--kernels", action="store_true", help="print each kernel that does not compile")
    parser.add_argument("-o", "--out", type=Path)
    options = parser.parse_args()
    if options.action == "fetch":
        fetch(options.cache, options.folder or options.cache)
        return
    part, parts = map(int, options.share.split("/"))
    chosen = [
        (repository, file)
        for repository in read_table()
        for file in repository.files
        if not options.only or any(word in f"{repository.name}/{file}" for word in options.only)
        if int(hashlib.sha256(file.encode()).hexdigest(), 16) % parts < part
    ]
    with tempfile.TemporaryDirectory() as compiled, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(check_file, repository, file, options.cache, Path(compiled)) for repository, file in chosen]
        outcomes: list[Outcome] = []
        try:
            for job in jobs:
                outcomes.append(job.result())
                print(*_lines(outcomes[-1], kernels=options.kernels), sep="\n", file=sys.stderr, flush=True)
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
    text = "\n".join((describe(), *report(outcomes, kernels=options.kernels))) + "\n"
    print(text)
    if options.out is not None:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
