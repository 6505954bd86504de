"""A warm session, and single commands, of any checkout of this project: what before and after are measured with in one run.

`TreeSession` starts this file as a script whose imports come from the checkout that is named, so an older one need not
hold it. Requests and answers are lines of JSON on the script's standard streams. Caches and history lie in a folder of
the caller's.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernelmate.records import Judged, SearchState, Verdict
    from kernelmate.session import Session

ROOT = Path(__file__).resolve().parents[1]
START_S = 120.0
"""Seconds that a session may take to start and to judge a first small kernel."""

WARM_UP = """
// /// kernelmate
// sizes = [{ n = 4096 }]
// grid = "cdiv(n, block)"
// block = 128
// reference = "x * 2.0"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2.0f * x[i];
}
"""


def environment(tree: Path, caches: Path) -> dict[str, str]:
    """The environment in which Python imports a checkout, and keeps whatever it caches in one folder."""
    caches.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("KERNELMATE_")}
    return kept | {
        "PYTHONPATH": os.pathsep.join(
            [*(str(tree / part) for part in ("", "lsp", "widgets")), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
        "KERNELMATE_CACHE_DIR": str(caches / "kernelmate"),
        "KERNELMATE_HISTORY_FILE": str(caches / "history.db"),
        "XDG_CACHE_HOME": str(caches / "user"),
        "CUPY_CACHE_DIR": str(caches / "cupy"),
        "CUDA_CACHE_PATH": str(caches / "cuda"),
    }


class TreeSession:
    """A session of the checkout `tree` in a process of its own, started at the first request.

    A request that exceeds its limit ends the process; the next one starts another.

    Args:
        tree: root of the checkout.
        settings: of the session, by name.
        caches: folder for its caches and its history.
    """

    def __init__(self, tree: Path, settings: Mapping[str, Any], caches: Path) -> None:
        self.tree, self._settings, self._caches = tree, dict(settings), caches
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> TreeSession:
        """Starts nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the process."""
        self.close()

    def ask(self, limit_s: float, **request: Any) -> dict[str, Any]:
        """The answer to a request, or `{"error": ...}`, `{"error": "over N s"}` where it took longer than the limit."""
        if self._process is None:
            self._start()
        return self._exchange(request, limit_s)

    def close(self) -> None:
        """End the process by the end of its input, or by a signal after 10 s."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            end_group(process)

    def _start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, json.dumps(self._settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=self._caches.parent,
            env=environment(self.tree, self._caches),
            start_new_session=True,
        )
        answer = self._exchange({"do": "warm"}, START_S)
        if "error" in answer:
            raise RuntimeError(f"the session of {self.tree} does not start: {answer['error']}")
        if not Path(answer["package"]).is_relative_to(self.tree.resolve()):
            raise RuntimeError(f"{self.tree} was asked for, and kernelmate came from {answer['package']}")

    def _exchange(self, request: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        process.stdin.flush()
        ends, text = time.monotonic() + limit_s, b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(ends - time.monotonic(), 0.0))
            part = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not part:
                end_group(process)
                self._process = None
                return {"error": "its process ended" if ready else f"over {limit_s:g} s"}
            text += part
        found: dict[str, Any] = json.loads(text)
        return found


def end_group(process: subprocess.Popen[Any]) -> None:
    """End a process that leads a group of its own, and the group."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def command(tree: Path, caches: Path, arguments: Sequence[str], limit_s: float) -> dict[str, Any]:
    """Wall seconds, exit code and output of `kernelmate ARGUMENTS` of a checkout in a new process."""
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "kernelmate", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=caches.parent,
        env=environment(tree, caches),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        end_group(process)
        return {"error": f"over {limit_s:g} s"}
    spent = time.perf_counter() - began
    if process.returncode > 1:
        return {"error": (err or out).strip()[-300:], "code": process.returncode}
    return {"s": spent, "code": process.returncode, "out": out}


class _Stages:
    """Seconds between the stages that a session's progress tells of; what precedes the first counts as `session`."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.spent: Counter[str] = Counter()
        self._since, self._in = time.perf_counter(), "session"

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.perf_counter()
        self.spent[self._in] += now - self._since
        self._since, self._in = now, stage

    def end(self) -> dict[str, float]:
        self("session", 0, 0)
        return {name: round(seconds, 4) for name, seconds in self.spent.items()}


def _seeded(session: Session, seed: int) -> None:
    """Use a seed that nobody has seen: a session without one works ahead for the seed that it draws next."""
    session.settings = session.settings.model_copy(update={"seed": seed})


def _warm(session: Session) -> dict[str, Any]:
    import kernelmate
    from kernelmate.source import find_kernels, text_unit

    session.bench(find_kernels(text_unit(WARM_UP))[0])
    return {"package": kernelmate.__file__}


def _bench(stages: _Stages, session: Session, spec: str, sizes: list[dict[str, int]], seed: int) -> dict[str, Any]:
    from kernelmate.source import load_kernel

    _seeded(session, seed)
    stages.begin()
    began = time.perf_counter()
    verdicts = session.bench(load_kernel(spec), sizes)
    spent = time.perf_counter() - began
    return {"s": spent, "stages": stages.end(), **_facts(verdicts[0])}


def _facts(verdict: Verdict) -> dict[str, Any]:
    """Returns the figures of a verdict that the table shows. Older checkouts lack some fields of a case."""
    headline = verdict.cases[0] if verdict.cases else None
    return {
        "correct": verdict.correct,
        "binary": verdict.binary,
        "median_us": None if verdict.timing is None else verdict.timing.median_us,
        "cases": len(verdict.cases),
        "tolerance_origin": getattr(headline, "tolerance_origin", None),
        "held_against": getattr(headline, "held_against", None),
        "errors": [finding.code for finding in verdict.findings if finding.severity == "error"],
    }


def _optimize(
    session: Session, spec: str, sizes: list[dict[str, int]], seed: int, prompt: str, budget_s: float
) -> dict[str, Any]:
    from kernelmate.source import load_kernel

    _seeded(session, seed)
    kernel = load_kernel(spec)
    began = time.perf_counter()
    judged: list[dict[str, Any]] = []

    def on_judged(one: Judged) -> None:
        verdict = one.verdict
        judged.append({
            "at_s": time.perf_counter() - began, "author": one.candidate.author, "binary": verdict.binary,
            "accepted": verdict.accepted, "worth_taking": verdict.worth_taking, "correct": verdict.correct,
            "speedup": None if verdict.speedup is None else verdict.speedup.median, "reasons": verdict.reasons,
        })  # fmt: skip

    tried = 0

    def on_trying(state: SearchState) -> None:
        nonlocal tried
        tried = state.tried + 1

    found = session.optimize(kernel, prompt, sizes, 1000, on_judged, budget_s=budget_s, on_trying=on_trying)
    best = None if found.best is None else found.candidates[found.best]
    ratio = None if best is None else best.verdict.speedup
    return {
        "s": time.perf_counter() - began,
        "judged": judged,
        "binaries": tried,
        "candidates": len(found.candidates),
        "best": None if best is None else best.candidate.author,
        "best_accepted": None if best is None else best.verdict.accepted,
        "best_speedup": None if ratio is None else ratio.median,
        "notes": found.notes,
    }


def _serve() -> None:
    """Answer requests until the input ends; whatever else is printed goes to standard error."""
    from kernelmate.config import load_settings
    from kernelmate.errors import KernelmateError
    from kernelmate.session import Session

    stages = _Stages()
    work = {"warm": _warm, "bench": partial(_bench, stages), "optimize": _optimize}
    with (
        os.fdopen(os.dup(1), "w") as answers,
        Session(load_settings(**json.loads(sys.argv[1])), stages) as session,
    ):
        os.dup2(2, 1)
        for line in sys.stdin:
            request = json.loads(line)
            try:
                answer = work[request.pop("do")](session, **request)
            except KernelmateError as error:
                answer = {"error": str(error)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


if __name__ == "__main__":
    _serve()
