"""Kills `bench`, `optimize` and `optimize --accept` at random moments and checks file, history, cache and what is left.

Runs on Linux, without a GPU, in a folder of its own under the system's temporary one; nothing of the user's is touched.
Each run starts the command in a process group, sends SIGKILL to the whole group at a random moment, and then checks that
the kernel's file holds the old text or the new one whole with its mode and links, that no process of the run and no
shared-memory segment is left, that `check` and `history` work, that the history's database is sound, and that nothing
half written lies beside the file once they have run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import describe

KERNEL = """\
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "x * 2"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float *x, float *y, int n)
{
    __shared__ float tile[512];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = tile[threadIdx.x] * 2.0f;
}
"""
PROMPT = "reduce shared memory"
SEARCH = ["optimize", "k.cu", PROMPT, "--max-candidates", "4"]
COMMANDS = {
    "bench": ["bench", "k.cu"],
    "optimize": SEARCH,
    "accept": [*SEARCH, "--accept"],
}
WRITE = """
import sys
from pathlib import Path
from kernelmate.source import load_kernel, same_kernel, with_text, write_back
kernel = load_kernel("k.cu")
print("ready", flush=True)
new = Path(sys.argv[1]).read_text()
write_back(kernel, same_kernel(kernel, with_text(kernel.unit, new)))
"""
MARK = "KERNELMATE_KILL_RUN"
MODE = 0o640
END_S = 15.0
"""Longest wait for the processes of a killed run to end."""


@dataclass
class Place:
    """The folder that one command's runs share: kernel, cache, history and temporary files."""

    root: Path
    history: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def file(self) -> Path:
        """The kernel's file."""
        return self.root / "work" / "k.cu"

    def environment(self) -> dict[str, str]:
        """Of every process that runs here: nothing of the user's settings, and the mark by which it is found again."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("KERNELMATE_")}
        return kept | {
            "KERNELMATE_CACHE_DIR": str(self.root / "cache"),
            "KERNELMATE_HISTORY_FILE": str(self.history),
            "KERNELMATE_BACKEND": "emulator",
            "KERNELMATE_SEED": "7",
            "KERNELMATE_STARTER": "false",
            "XDG_CONFIG_HOME": str(self.root / "config"),
            "TMPDIR": str(self.root / "tmp"),
            MARK: self.mark,
        }

    def reset(self, links: int) -> None:
        """The old text with this many hard links, and no backups."""
        shutil.rmtree(self.root / "work", ignore_errors=True)
        (self.root / "work").mkdir(parents=True, exist_ok=True)
        (self.root / "tmp").mkdir(exist_ok=True)
        self.file.write_text(KERNEL)
        self.file.chmod(MODE)
        for number in range(1, links):
            self.file.with_name(f"link{number}.cu").hardlink_to(self.file)
        (self.root / "work" / "pyproject.toml").write_text("")

    def start(self, *arguments: str, **how: object) -> subprocess.Popen[str]:
        """Start `kernelmate` in a process group of its own."""
        return self.begin([sys.executable, "-m", "kernelmate", *arguments], **how)

    def begin(self, command: list[str], **how: object) -> subprocess.Popen[str]:
        """Start a process in a group of its own."""
        return subprocess.Popen(  # type: ignore[call-overload,no-any-return]
            command,
            cwd=self.root / "work",
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
            **how,
        )

    def run(self, *arguments: str, **how: object) -> tuple[int, str]:
        """Run `kernelmate` to its end: exit code and what it printed."""
        with self.start(*arguments, **how) as process:
            try:
                said = process.communicate()[0]
            except BaseException:
                kill(process)
                raise
            return process.returncode, said

    def processes(self) -> list[int]:
        """Processes of runs in this place that have not ended."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and self.mark.encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
        return found


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to the whole process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def place() -> Iterator[Place]:
    """A place for one command's runs; its processes and files are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kernelmate-kills-", ignore_cleanup_errors=True) as root:
        made = Place(Path(root), Path(root) / "history.db")
        try:
            yield made
        finally:
            for number in made.processes():
                with suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)


def segments() -> set[str]:
    """Names of shared-memory segments that no living process has mapped: other programs' own come and go beside a run."""
    if not os.path.isdir("/dev/shm"):
        return set()
    named = {}
    for entry in os.scandir("/dev/shm"):
        with suppress(OSError):
            named[entry.name] = entry.inode()
    # By inode: a semaphore gets its name by a link to a file that was mapped under another one.
    mapped = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with suppress(OSError):
            mapped |= {line.split()[4] for line in maps.read_text().splitlines() if "/dev/shm/" in line}
    return {name for name, inode in named.items() if str(inode) not in mapped}


def beside(where: Place) -> list[str]:
    """Files beside the kernel that are neither links to it, nor backups, nor ours."""
    known = ("k.cu", "link", "pyproject.toml")
    return sorted(name for name in os.listdir(where.root / "work") if not name.startswith(known))


def wrong_with_file(where: Place, links: int, new: str) -> Iterator[str]:
    """Yields the faults of the user's file right after the kill, one phrase each."""
    text, status = where.file.read_text(), where.file.stat()
    if text not in {KERNEL, new}:
        yield f"the file holds neither the old text nor the new one ({len(text)} characters)"
    if status.st_mode & 0o7777 != MODE:
        yield f"its mode is {status.st_mode & 0o7777:o}"
    if status.st_nlink != links:
        yield f"it has {status.st_nlink} links, not {links}"
    for backup in where.file.parent.glob("k.cu.kernelmate-backup*"):
        if backup.read_text() not in {KERNEL, new}:
            yield f"{backup.name} is no whole text"


def wrong_afterwards(where: Place, before: set[str]) -> Iterator[str]:
    """Yields the faults that remain after the next commands have run, one phrase each."""
    code, said = where.run("check", "k.cu", "--quiet")
    if code:
        yield f"check exits with {code}: {said[-200:]}"
    code, said = where.run("history")
    if code or "damaged" in said:
        yield f"history exits with {code}: {said[-200:]}"
    if where.history.exists():
        with closing(sqlite3.connect(where.history)) as connection:
            sound = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if sound != "ok":
            yield f"the history is damaged: {sound}"
    for name in beside(where):
        yield f"{name} is left"
    until = time.monotonic() + END_S
    while (left := where.processes()) and time.monotonic() < until:
        time.sleep(0.05)
    if left:
        yield f"{len(left)} processes are left"
    while (shared := segments() - before) and time.monotonic() < until:
        time.sleep(0.05)
    if shared:
        yield f"shared memory is left: {', '.join(sorted(shared))}"


@dataclass
class Tally:
    """Counts over the runs of one command."""

    runs: int = 0
    killed: int = 0
    changed: int = 0
    leftovers: int = 0
    temporary: int = 0
    problems: Counter[str] = field(default_factory=Counter)

    def line(self, name: str) -> str:
        """All of it in one line."""
        seen = ", ".join(f"{problem} (x{count})" for problem, count in self.problems.items()) or "nothing wrong"
        return (
            f"{name}: {self.runs} runs, {self.killed} killed before their end, {self.changed} with the new text, "
            f"{self.leftovers} left something to be cleaned at the next start; {seen}; {self.temporary} temporary entries left"
        )


def killed_runs(name: str, runs: int, chance: random.Random) -> Tally:
    """Kill a command at random moments."""
    tally = Tally()
    with place() as where:
        where.reset(1)
        took, new = whole_run(where, name)
        for number in range(runs):
            progress(name, number, runs, tally)
            links = chance.choice((1, 2))
            where.reset(links)
            before = segments()
            # Half of the moments lie in the last tenth, where files are written.
            moment = chance.uniform(0, took) if chance.random() < 0.5 else chance.uniform(0.9 * took, 1.05 * took)
            with where.start(*COMMANDS[name], "--quiet") as process:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(moment)
                tally.killed += process.poll() is None
                kill(process)
            count(tally, where, links, new, before)
            if number % 10 == 9:
                code, said = where.run("bench", "k.cu")
                if code:
                    tally.problems[f"bench exits with {code}: {said[-800:]}"] += 1
        tally.temporary = len(list((where.root / "tmp").iterdir()))
    return tally


def killed_writes(runs: int, chance: random.Random) -> Tally:
    """Kill the write itself, which a search reaches for some milliseconds only."""
    tally = Tally()
    with place() as where:
        new = KERNEL.replace("tile[512]", "tile[256]") + "// " + "x" * 200_000 + "\n"
        text = where.root / "new.cu"
        text.write_text(new)
        took = {links: max(write_s(where, text, links) for _ in range(3)) for links in (1, 2)}
        for number in range(runs):
            progress("write", number, runs, tally)
            links = chance.choice((1, 2))
            where.reset(links)
            before = segments()
            with where.begin([sys.executable, "-c", WRITE, str(text)]) as process:
                assert process.stdout is not None
                process.stdout.readline()
                time.sleep(chance.uniform(0, took[links]))
                tally.killed += process.poll() is None
                kill(process)
            # The process that overwrites a file with several links survives the kill, and holds the lock until it is done.
            until = time.monotonic() + END_S
            while writing(where) and time.monotonic() < until:
                time.sleep(0.005)
            count(tally, where, links, new, before, quick=number % 10 != 0)
    return tally


def writing(where: Place) -> bool:
    """True if another process holds the lock of the file."""
    import fcntl

    try:
        with open(where.file.with_name(".k.cu.kernelmate-lock"), "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def write_s(where: Place, text: Path, links: int) -> float:
    """Seconds of an undisturbed write."""
    where.reset(links)
    with where.begin([sys.executable, "-c", WRITE, str(text)]) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        process.wait()
    return time.monotonic() - began


def count(tally: Tally, where: Place, links: int, new: str, before: set[str], *, quick: bool = False) -> None:
    """Check what a killed run has left; `quick` reads the file again in this process in place of the next commands."""
    tally.runs += 1
    tally.problems.update(wrong_with_file(where, links, new))
    tally.changed += where.file.read_text() != KERNEL
    tally.leftovers += bool(beside(where))
    if quick:
        from kernelmate.source import load_kernel

        load_kernel(str(where.file))
        tally.problems.update(f"{name} is left" for name in beside(where))
    else:
        tally.problems.update(wrong_afterwards(where, before))


def whole_run(where: Place, name: str) -> tuple[float, str]:
    """Seconds of an undisturbed run, the second one with what the first has cached, and the text that it leaves."""
    took = 0.0
    for _ in range(2):
        where.reset(1)
        began = time.monotonic()
        code, said = where.run(*COMMANDS[name], "--quiet")
        took = time.monotonic() - began
        if code:
            raise SystemExit(f"{name} exits with {code} undisturbed: {said}")
    return took, where.file.read_text()


def two_at_once(runs: int) -> Tally:
    """Two accepts of one file at once: one writes, the other finds the file changed, or nothing left to improve."""
    tally = Tally()
    with place() as where:
        _, new = whole_run(where, "accept")
        for number in range(runs):
            progress("two accepts", number, runs, tally)
            where.reset(1 + number % 2)
            before = segments()
            both = [where.start(*COMMANDS["accept"], "--quiet") for _ in range(2)]
            try:
                said = [process.communicate()[0] for process in both]
            finally:
                for process in both:
                    kill(process)
            codes = sorted(process.returncode for process in both)
            if codes not in ([0, 1], [0, 2]):
                tally.problems[f"exit codes {codes}: {said}"] += 1
            if codes[-1] == 2 and not any("changed after it was read" in one for one in said):
                tally.problems[f"the second does not say that the file changed: {said}"] += 1
            count(tally, where, 1 + number % 2, new, before)
            tally.problems.update(["the new text is missing"] if where.file.read_text() != new else [])
    return tally


def full_disk() -> tuple[str, Tally]:
    """Accept where there is no room: on a full tmpfs where one may be mounted, else under RLIMIT_FSIZE. Says which."""
    tally = Tally()
    with place() as where:
        whole_run(where, "accept")
        for links in (1, 2):
            before = segments()
            with small_disk(where) as (way, fill, limited):
                where.reset(links)
                if fill is not None:
                    # The history on the same disk: it must be readable there.
                    kept, where.history = where.history, where.root / "work" / "link-history.db"
                    shutil.copy(kept, where.history)
                    fill()
                code, said = where.run(*COMMANDS["accept"], "--quiet", preexec_fn=limited)
                told = where.run("history", preexec_fn=limited)
                problems = [*wrong_with_file(where, links, KERNEL), *(f"{name} is left" for name in beside(where))]
                if fill is not None:
                    (where.root / "work" / "link-fill").unlink()
                    problems += wrong_afterwards(where, before)
                    where.history = kept
            if code == 0 or "cannot be written" not in said:
                problems.append(f"accept exits with {code}: {said[-300:]}")
            if told[0]:
                problems.append(f"history exits with {told[0]}: {told[1][-300:]}")
            tally.runs += 1
            tally.problems.update(problems)
    return way, tally


@contextmanager
def small_disk(where: Place) -> Iterator[tuple[str, Callable[[], None] | None, Callable[[], None] | None]]:
    """A disk under the kernel's folder and what fills it; or else the limit under which processes are to be started."""
    work = where.root / "work"
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(work)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        import resource

        # Less than the kernel's file has; what else is written is in the cache already.
        yield "RLIMIT_FSIZE", None, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))
        return

    def fill() -> None:
        with open(work / "link-fill", "wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"x" * 4096)

    try:
        yield "a full tmpfs", fill, None
    finally:
        subprocess.run(["umount", str(work)], check=False)


def progress(name: str, number: int, runs: int, tally: Tally) -> None:
    """One line on a terminal, else one for every tenth run."""
    line = f"{name}: {number} of {runs}, {sum(tally.problems.values())} problems"
    if sys.stderr.isatty():
        print(f"\r{line}   ", end="", file=sys.stderr, flush=True)
    elif number % 10 == 0:
        print(line, file=sys.stderr, flush=True)


KINDS = (*COMMANDS, "write", "two", "full")
EXAMPLES = """\
examples:
  python -m benchmarks.kill_runs                                 300 runs of each command: some hours
  python -m benchmarks.kill_runs --runs 40 --command accept      40 runs of optimize --accept
  python -m benchmarks.kill_runs --command write --runs 1000     the write alone, in a few minutes
  python -m benchmarks.kill_runs --command full                  accept on a full disk
"""


def main() -> None:
    """Run what the command line asks for; exits with 1 where something was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kill_runs",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=300, help="kills of each command (300); a tenth of it for `two`")
    parser.add_argument("--command", choices=KINDS, action="append", help="what is killed; all without it")
    parser.add_argument("--seed", type=int, default=None, help="of the random moments; drawn and printed without it")
    given = parser.parse_args()
    if sys.platform != "linux":
        parser.exit(3, "error: processes and shared memory are looked for as Linux shows them.\n")
    seed = random.randrange(2**31) if given.seed is None else given.seed
    print(f"{describe()}\nseed {seed}", flush=True)
    wrong = False
    try:
        for name in given.command or KINDS:
            label, tally = measured(name, given.runs, random.Random(f"{seed} {name}"))
            wrong = wrong or bool(tally.problems)
            print(tally.line(label), flush=True)
    except KeyboardInterrupt:
        parser.exit(130, "\ninterrupted; the commands above are complete\n")
    sys.exit(wrong)


def measured(name: str, runs: int, chance: random.Random) -> tuple[str, Tally]:
    """One command's runs, and how they are called."""
    if name == "write":
        return "write_back alone", killed_writes(runs, chance)
    if name == "two":
        return "two accepts at once", two_at_once(max(1, runs // 10))
    if name == "full":
        way, tally = full_disk()
        return f"accept on {way}", tally
    return " ".join(["optimize --accept"] if name == "accept" else [name]), killed_runs(name, runs, chance)


if __name__ == "__main__":
    main()
