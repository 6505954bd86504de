"""Recurrences whose states are summed to results: right by the judge from any start, in both directions, with more states than registers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.session import Session
from kernelmate.session.writing import why_not_written, write_kernel
from tests.unit.synthesis.test_new_kernels import request_for

HEAD = "import numpy as np\n\n\n"
RIGHT = {
    "started": """
def started(x: "float32[t=20, c=6]", a: "float32[c, n=4] ~ uniform(-1, 0)", h0: "float32[c, n]", w: "float32[n]"):
    h = h0.copy()
    y = np.zeros(x.shape)
    for t in range(len(x)):
        h = a * h + x[t][:, None]
        y[t] = np.tanh((h * w).sum(-1))
    return y
""",
    "backwards": """
def backwards(x: "float32[t=20, c=6]", a: "float32[c, 16] ~ uniform(-1, 0)"):
    h = np.zeros(a.shape)
    y = np.zeros(x.shape)
    for t in range(len(x) - 1, -1, -1):
        h = a * h + x[t][:, None]
        y[t] = h.sum(-1)
    return y
""",
    "before": """
def before(r: "float32[t=20, d=8]", k: "float32[t, d]", v: "float32[t, e=12]", w: "float32[d] ~ uniform(0.5, 1)", u: "float32[d]"):
    s = np.zeros((r.shape[1], v.shape[1]))
    y = np.zeros(v.shape)
    for t in range(len(r)):
        kv = np.outer(k[t], v[t])
        y[t] = r[t] @ (s + u[:, None] * kv)
        s = w[:, None] * s + kv
    return y
""",
    "retention": """
def retention(q: "float32[h=2, t=20, d=16]", k: "float32[h, t, d]", v: "float32[h, t, e=12]", g: "float32[h] ~ uniform(0.5, 1)"):
    s = np.zeros((q.shape[0], q.shape[2], v.shape[2]))
    y = np.zeros(v.shape)
    for t in range(q.shape[1]):
        s = g[:, None, None] * s + k[:, t, :, None] * v[:, t, None, :]
        y[:, t] = np.einsum("hd,hde->he", q[:, t], s)
    return y
""",
    "halves": """
def halves(x: "float16[t=20, c=6]", a: "float32[c, 16] ~ uniform(-1, 0)"):
    h = np.zeros(a.shape)
    y = np.zeros(x.shape, np.float16)
    for t in range(len(x)):
        h = a * h + x[t].astype(np.float32)[:, None]
        y[t] = h.sum(-1)
    return y
""",
    "twice": """
def twice(x: "float32[t=20, c=6]", a: "float32[c, n=5] ~ uniform(-1, 0)"):
    h = np.zeros(a.shape)
    y = np.zeros(x.shape)
    for t in range(len(x)):
        h = a * h + x[t][:, None]
        y[t] = h.sum(-1)
    return y, 2 * y + 1
""",
    "kept": """
def kept(x: "float32[t=20, c=6]", a: "float32[c, n=5] ~ uniform(-1, 0)"):
    h = np.zeros(a.shape)
    y = np.zeros(x.shape)
    for t in range(len(x)):
        h = a * h + x[t][:, None]
        y[t] = h.sum(-1)
    return y, h
""",
}
REFUSED = {
    "largest": (
        """
def largest(x: "float32[t=20, d=8]", v: "float32[t, e=6]"):
    return np.maximum.accumulate(x[:, :, None] * v[:, None], axis=0).sum(1)
""",
        "it sums what it scans by another operation than a sum",
    ),
    "counts": (
        """
def counts(x: "int32[t=20, c=6] ~ integers(0, 9)", a: "int32[c, 16] ~ integers(0, 3)"):
    h = np.zeros(a.shape, np.int32)
    y = np.zeros(x.shape, np.int32)
    for t in range(len(x)):
        h = h * a + x[t][:, None]
        y[t] = h.sum(-1)
    return y
""",
        "it carries other than floating-point states",
    ),
    "several": (
        """
def several(x: "float32[t=20, c=6]", a: "float32[c, 16] ~ uniform(-1, 0)"):
    h = np.zeros(a.shape)
    g = np.zeros(a.shape)
    y = np.zeros(x.shape)
    for t in range(len(x)):
        h = a * h + x[t][:, None]
        g = 0.5 * g + h
        y[t] = g.sum(-1)
    return y
""",
        "it carries several states from step to step",
    ),
    "narrow": (
        """
def narrow(x: "float16[t=20, c=6]", a: "float32[c, n=4] ~ uniform(-1, 0)"):
    h = np.zeros(a.shape)
    y = np.zeros(x.shape, np.float16)
    for t in range(len(x)):
        h = a * h + x[t].astype(np.float32)[:, None]
        y[t] = h.sum(-1)
    return y
""",
        "partial sums of more states than registers hold have no place in its results",
    ),
}


@pytest.mark.exhaustive(share=0.4)
@pytest.mark.parametrize("name", RIGHT)
def test_states_are_carried_by_lanes_and_summed(name: str, tmp_path: Path, session: Session) -> None:
    path = tmp_path / "functions.py"
    path.write_text(HEAD + RIGHT[name].strip() + "\n")
    outcome = write_kernel(session, request_for(path, name, tmp_path))
    assert [one.schedule.rpartition("-")[0] for one in outcome.kernels if one.right] == ["recurrence-states"], (
        outcome.notes
    )
    assert outcome.best is not None
    assert outcome.best.verdict.diagnostics == ()


@pytest.mark.parametrize("name", REFUSED)
def test_what_lanes_cannot_carry_is_refused_with_the_reason(name: str, tmp_path: Path, session: Session) -> None:
    text, reason = REFUSED[name]
    path = tmp_path / "functions.py"
    path.write_text(HEAD + text.strip() + "\n")
    assert reason in why_not_written(session, request_for(path, name, tmp_path))
