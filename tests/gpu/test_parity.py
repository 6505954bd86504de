"""GPU and emulator give equal verdicts on every example and every exploit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.config import load_settings
from kernelmate.records import Verdict
from kernelmate.session import Session
from kernelmate.source import load_kernels, parse_contract

ROOT = Path(__file__).resolve().parents[2]
EXPLOITS = ROOT / "tests" / "exploits"
EXAMPLES = sorted((ROOT / "examples").glob("*.cu"))
CANDIDATES = sorted((EXPLOITS / "wrong").glob("*.cu")) + sorted((EXPLOITS / "right").glob("*.cu"))
SEED = 20261121
SHOWN_OTHERWISE = frozenset(
    {
        "first_by_a_peek", "knows_its_address", "knows_the_launch", "masked_index", "one_pass_variance", "stores_the_clock",
        "sum_without_a_start", "tanh_of_eleven_bits", "variance_about_the_first_element", "zero_sign_lost",
    }
)  # fmt: skip
"""Wrong on both, and found by other inputs on a GPU.

Which block comes first differs between launches on a GPU, and the emulator tries orders; two blocks that store to one place are
a race there, and on a GPU elements that nothing writes. What the kernels that know their address or the launch know is another
one: their outputs are constant. ptxas joins a product and a difference of `one_pass_variance`, which is wrong for single
elements then. The real clock has passed the reading that `stores_the_clock` hides at. What `sum_without_a_start` finds in a
register is chance. The emulator gives `tanh.approx` the precision that is guaranteed, and an H200 a higher one. Large rows of
`variance_about_the_first_element` overflow or lose digits, by the inputs that are drawn. Additions of `zero_sign_lost` change the
bits of NaN, too.
"""

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]


@pytest.fixture(scope="module")
def sessions() -> Iterator[tuple[Session, Session]]:
    with (
        Session(load_settings(seed=SEED, backend="emulator", target="sm_90", timeout_s=300)) as emulator,
        Session(load_settings(seed=SEED, backend="cuda", target="sm_90", timeout_s=60, timing_budget_s=0)) as cuda,
    ):
        yield emulator, cuda


def errors(verdict: Verdict) -> tuple[str, ...]:
    return tuple(finding.code for finding in verdict.findings if finding.severity == "error")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_has_the_same_verdict_on_both(sessions: tuple[Session, Session], path: Path) -> None:
    for kernel in load_kernels(path):
        if parse_contract(kernel) is None:
            continue
        ours, theirs = (session.bench(kernel) for session in sessions)
        assert [(v.correct, errors(v)) for v in theirs] == [(v.correct, errors(v)) for v in ours]
        assert all(verdict.backend == "cuda" for verdict in theirs)


@pytest.mark.parametrize("path", CANDIDATES, ids=lambda path: path.stem)
def test_a_candidate_has_the_same_verdict_on_both(sessions: tuple[Session, Session], path: Path) -> None:
    name = re.search(r"^// baseline: (\S+)$", path.read_text(), flags=re.MULTILINE)
    assert name is not None
    baseline, candidate = load_kernels(EXPLOITS / "baselines" / name[1])[0], load_kernels(path)[0]
    (ours,), (theirs,) = (session.compare(baseline, candidate).candidate for session in sessions)
    assert theirs.correct == ours.correct
    if path.stem in SHOWN_OTHERWISE:
        assert errors(theirs)
    else:
        assert set(errors(theirs)) == set(errors(ours))
