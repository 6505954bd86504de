"""Reads a git repository without running any of its code: no hooks, filters, drivers, or configured commands.

Only plumbing that lists and prints objects is called, never through a shell; files of the working tree are read here
and not by git, so that no clean filter runs. Remaining ways for a configuration to start a program (a file-system
monitor, a partial clone's transport) are disabled on the command line, which overrides every configuration file.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelmate.errors import EnvironmentFailed, UsageError

TIMEOUT_S = 120.0
_QUIET = (
    "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.pager=cat", "-c", "protocol.allow=never",
    "-c", "core.sshCommand=false", "-c", "credential.helper=", "-c", "submodule.recurse=false", "--no-pager",
    "--no-optional-locks", "--literal-pathspecs",
)  # fmt: skip
_OF_THE_CALLER = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE",
                  "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_EXTERNAL_DIFF", "GIT_PROXY_COMMAND", "GIT_SSH", "GIT_SSH_COMMAND",
                  "GIT_ASKPASS", "SSH_ASKPASS")  # fmt: skip
"""Variables that a hook or caller may have set, and that would redirect git or start a program."""

REGULAR = frozenset({"100644", "100755"})


@dataclass(frozen=True, slots=True)
class Blob:
    """A file of a revision: its object name and its size in bytes."""

    name: str
    size: int


class Repository:
    """The repository that a folder is in.

    Args:
        start: the folder.

    Raises:
        EnvironmentFailed: git is not installed.
        UsageError: the folder is in no repository, or one that git refuses to
        read.
    """

    def __init__(self, start: Path) -> None:
        self._start = start.resolve()
        top = self._line("rev-parse", "--show-toplevel")
        if top is None:
            said = self._said("rev-parse", "--show-toplevel")
            hint = "Run it inside of a git repository's working tree, or name one with --repo."
            if "dubious ownership" in said:
                hint = f"git config --global --add safe.directory {self._start}"
            raise UsageError(f"{self._start} is not in a git repository that can be read: {said or 'git gave no reason'}.", hint=hint)  # fmt: skip
        self.root = Path(top)

    def resolve(self, revision: str) -> str:
        """Returns the commit that a name stands for.

        Raises:
            UsageError: there is none; the hint says what to fetch, for example in a shallow clone.
        """
        if revision.startswith("-") or not revision.strip() or "\0" in revision:
            raise UsageError(
                f"--base {revision!r} is not a revision.", hint="Give a branch, a tag, or a commit's hash."
            )
        commit = self._line("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if commit is not None:
            return commit
        shallow = self._line("rev-parse", "--is-shallow-repository") == "true"
        branch = revision.rpartition("/")[2]
        if shallow:
            raise UsageError(
                f"The revision {revision} is not in this clone, which is shallow.",
                hint=f"Fetch it: git fetch --depth=1 origin {branch}:refs/remotes/origin/{branch} (or fetch-depth: 0 where the clone is made).",
            )
        raise UsageError(
            f"There is no revision {revision} in this repository.",
            hint=f"Fetch it (git fetch origin {branch}), or name a branch, tag or commit that `git log` knows.",
        )

    def files(self, commit: str) -> dict[str, Blob]:
        """Returns every regular file of a commit by its path from the root; links and submodules are left out.

        Raises:
            UsageError: git cannot list it.
        """
        found = {}
        for entry in self._records("ls-tree", "-r", "-l", "-z", "--full-tree", commit):
            head, _, path = entry.partition("\t")
            mode, kind, name, size = head.split()
            if kind == "blob" and mode in REGULAR and size.isdigit():
                found[path] = Blob(name, int(size))
        return found

    def working_files(self) -> list[str]:
        """Returns existing paths of the working tree that are tracked, or new and not ignored.

        Raises:
            UsageError: git cannot list them.
        """
        listed = self._records("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--full-name")
        paths = dict.fromkeys(listed)
        return sorted(path for path in paths if (self.root / path).is_file() and not (self.root / path).is_symlink())

    def contents(self, blobs: Iterable[Blob]) -> Iterator[tuple[Blob, bytes]]:
        """Yields the contents of objects, in order.

        Raises:
            UsageError: one is missing, as in a partial clone.
        """
        wanted = list(blobs)
        if not wanted:
            return
        asked = "".join(f"{blob.name}\n" for blob in wanted).encode()
        with subprocess.Popen(
            self._command("cat-file", "--batch"), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, env=_environment(),
        ) as process:  # fmt: skip
            assert process.stdin is not None
            assert process.stdout is not None
            # A separate thread writes the names: git answers while it reads requests, and pipe buffers are small.
            import threading

            writer = threading.Thread(target=_write, args=(process.stdin, asked), daemon=True)
            writer.start()
            try:
                for blob in wanted:
                    head = process.stdout.readline().split()
                    if len(head) != 3:
                        hint = "Fetch the whole revision: a partial clone leaves files out."
                        raise UsageError(f"git cannot read the object {blob.name}.", hint=hint)
                    yield blob, process.stdout.read(int(head[2]))
                    process.stdout.read(1)
            finally:
                process.kill()

    def _command(self, *arguments: str) -> list[str]:
        place = getattr(self, "root", self._start)
        return ["git", *_QUIET, "-C", str(place), *arguments]

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        try:
            return subprocess.run(
                self._command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, env=_environment(),
                timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise EnvironmentFailed("git is not installed on this machine.", hint="Install git.") from None
        except subprocess.TimeoutExpired:
            raise EnvironmentFailed(f"git {arguments[0]} did not end within {TIMEOUT_S:g} s.", hint="Is the disk slow, or the repository damaged? Try `git status`.") from None  # fmt: skip

    def _line(self, *arguments: str) -> str | None:
        done = self._run(*arguments)
        text = os.fsdecode(done.stdout).rstrip("\n")
        return text if done.returncode == 0 and text else None

    def _said(self, *arguments: str) -> str:
        lines = os.fsdecode(self._run(*arguments).stderr).strip().splitlines()
        return lines[0].removeprefix("fatal: ").rstrip(".") if lines else ""

    def _records(self, *arguments: str) -> list[str]:
        done = self._run(*arguments)
        if done.returncode != 0:
            said = os.fsdecode(done.stderr).strip().removeprefix("fatal: ")
            raise UsageError(f"git {arguments[0]} failed: {said or 'it gave no reason'}.", hint="Try `git status`.")
        return [os.fsdecode(record) for record in done.stdout.split(b"\0") if record]


def blob_name(data: bytes, like: str) -> str:
    """Returns git's object name of a content, with the hash algorithm that the name `like` uses."""
    kind = hashlib.sha1 if len(like) == 40 else hashlib.sha256
    return kind(b"blob %d\0" % len(data) + data).hexdigest()  # git's own, not for security


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _OF_THE_CALLER}
    return kept | {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}


def _write(stream: object, data: bytes) -> None:
    import contextlib
    from typing import IO, cast

    pipe = cast("IO[bytes]", stream)
    with contextlib.suppress(OSError, ValueError):
        pipe.write(data)
        pipe.close()
