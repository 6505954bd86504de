"""A session that answers from a script, and real files, for the commands' tests."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from kernelmate.cli.main import cli
from kernelmate.records import (
    Candidate,
    Case,
    CompileOptions,
    Judged,
    JudgingInputs,
    Kernel,
    Objective,
    ObjectiveResult,
    Occupancy,
    Optimization,
    Resources,
    Target,
    Timing,
    Verdict,
)
from kernelmate.report.schema import schema
from kernelmate.source import contract_for

SOFTMAX = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 1 }]
// grid = "cdiv(n, block)"
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
    if (i < n) y[i] = tile[threadIdx.x] * 2.0f;
}
"""

H100 = Target("H100 SXM", "sm_90", (9, 0), 132, 1980, 80 << 30, 3350.0, 50 << 20, 66.9, 33.5, 133.8, "datasheet")
VERDICT = Verdict(
    kernel="twice",
    instance=None,
    backend="emulator",
    target="H100 SXM",
    arch="sm_90",
    compiler="NVRTC 13.5 --std=c++17",
    binary="sha256:" + "0" * 64,
    seed=7,
    compiled=True,
    diagnostics=(),
    resources=Resources(12, 2048, 0, 0, 0, 1024, 512),
    occupancy=Occupancy(1.0, "threads", 8, 0.1),
    correct=True,
    cases=(Case({"n": 1000}, "contract", True, True, False, 0.0, None, 2.0),),
    findings=(),
    timing=Timing("predicted", 2.0, (1.0, 4.0), None, None, None, None, None),
    speedup=None,
    counters=None,
    objective=None,
    accepted=True,
    reasons=(),
)
COUNTED = ObjectiveResult("shared_bytes", "counted", 2048.0, 1024.0, True)
PREDICTED = ObjectiveResult("time", "predicted", 2.0, 1.5, True)


@dataclass
class Script:
    """Answers of the scripted session, and a record of the calls to it."""

    verdict: Verdict = VERDICT
    best: Verdict | None = None
    error: BaseException | None = None
    inferred: bool = False
    change: Callable[[str], str] = lambda text: text.replace("tile[512]", "tile[256]")
    asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    settings: Any = None
    closed: int = 0
    notices: tuple[str, ...] = ()


def _given(_: Any, kernel: Kernel, sizes: Any = (), reference: Any = None) -> JudgingInputs:
    """Returns the inputs of a judgement as a real session states them."""
    unit = kernel.unit
    return JudgingInputs(
        unit.path, str(Path.cwd()), kernel.name, "cuda", unit.text, contract_for(kernel), CompileOptions(), "H100 SXM"
    )


def scripted_session(script: Script) -> type:
    """A class like `kernelmate.session.Session` that compiles and runs nothing."""

    class Session:
        target = H100
        backend = "emulator"

        def __init__(self, settings: Any, on_progress: Any = None, *, nvcc: bool = False) -> None:
            script.settings = settings

        @property
        def notices(self) -> tuple[str, ...]:
            return script.notices

        def __enter__(self) -> Session:
            return self

        def __exit__(self, *_: object) -> None:
            script.closed += 1

        def _answer(self, name: str, *arguments: Any, **named: Any) -> None:
            script.asked.append((name, arguments, named))
            if script.error is not None:
                raise script.error

        given = _given

        def check(self, kernel: Kernel, *, keep_going: bool = False) -> tuple[Verdict, ...]:
            self._answer("check", kernel)
            return (replace(script.verdict, kernel=kernel.name),)

        def bench(self, kernel: Kernel, sizes: Any = (), reference: Any = None) -> tuple[Verdict, ...]:
            self._answer("bench", kernel, sizes, reference)
            return (script.verdict,)

        def compare(self, kernel: Kernel, candidate: Kernel, *rest: Any) -> SimpleNamespace:
            self._answer("compare", kernel, candidate, *rest)
            return SimpleNamespace(baseline=(VERDICT,), candidate=(script.verdict,))

        def optimize(
            self, kernel: Kernel, prompt: str, sizes: Any, max_candidates: int, on_judged: Any, **named: Any
        ) -> Optimization:
            self._answer("optimize", kernel, prompt, sizes, max_candidates, **named)
            objective = Objective("shared_bytes", "decrease", prompt, "Read as: less shared memory per block.")
            if script.best is None:
                return Optimization(objective, VERDICT, (), None, ("nothing applies",))
            from kernelmate.source import contract_for, same_kernel, with_text

            changed = same_kernel(kernel, with_text(kernel.unit, script.change(kernel.unit.text)))
            contract = replace(contract_for(kernel), inferred=script.inferred)
            judged = Judged(Candidate("recipe:shrink", "Half of tile is unused.", changed, contract), script.best)
            on_judged(judged)
            return Optimization(objective, VERDICT, (judged,), 0)

    return Session


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """Commands talk to a scripted session."""
    # The module that stands in has no parts; those that commands use besides are loaded before.
    import kernelmate.session.authors  # noqa: F401

    made = Script()
    module = ModuleType("kernelmate.session")
    module.Session = scripted_session(made)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kernelmate.session", module)
    return made


@pytest.fixture
def samples() -> SimpleNamespace:
    """Verdicts and texts to build on."""
    return SimpleNamespace(verdict=VERDICT, counted=COUNTED, predicted=PREDICTED, source=SOFTMAX, target=H100)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, empty but for twice.cu; settings of the machine's user do not reach it."""
    (tmp_path / "twice.cu").write_text(SOFTMAX)
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    monkeypatch.delenv("KERNELMATE_DEBUG", raising=False)
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Callable[..., Result]:
    """Run a command line in the folder."""

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(cli, list(arguments), catch_exceptions=False)

    return invoke


@pytest.fixture
def documents() -> Callable[[str], Any]:
    """Parse a command's standard output and hold it against the schema."""

    def parse(text: str) -> Any:
        document = json.loads(text)
        jsonschema.Draft202012Validator(schema()).validate(document)
        return document

    return parse
