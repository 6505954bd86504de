"""Recurrences whose next state reduces over the whole state: right by the judge, with several states, in both directions, with results of all kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.session import Session
from kernelmate.session.writing import why_not_written, write_kernel
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.conftest import Make
from tests.unit.synthesis.judging import assert_judged_right, schedules_for
from tests.unit.synthesis.test_new_kernels import request_for

HEAD = "import numpy as np\n\n\n"
RIGHT = {
    "triangular": """
def triangular(l: "float32[b=3, n=20, n] ~ uniform(-0.2, 0.2)", d: "float32[b, n] ~ uniform(1, 2)", y: "float32[b, n]"):
    x = np.zeros_like(y)
    for i in range(y.shape[1]):
        x[:, i] = (y[:, i] - (l[:, i, :i] * x[:, :i]).sum(-1)) / d[:, i]
    return x
""",
    "upper": """
def upper(u: "float32[n=20, n] ~ uniform(-0.2, 0.2)", y: "float32[n, m=7]"):
    x = y.copy()
    for i in range(len(u) - 1, -1, -1):
        x[i] = y[i] - u[i, i + 1 :] @ x[i + 1 :]
    return x
""",
    "chains": """
def chains(w: "float32[b=3, n=20] ~ uniform(0, 1)"):
    best = np.zeros_like(w)
    for i in range(w.shape[1]):
        best[:, i] = 1 + np.where(w[:, :i] < w[:, i : i + 1], best[:, :i], 0).max(1, initial=0)
    return best
""",
    "overlap": """
def overlap(x: "float32[t=9, s=8]", w: "float32[s, s] ~ normal(0, 0.2)"):
    h = np.zeros(x.shape[1])
    y = np.zeros(x.shape[0])
    for t in range(len(x)):
        new = np.tanh(w @ (w @ h) + x[t])
        y[t] = (h * new).sum()
        h = new
    return y
""",
    "network": """
def network(x: "float32[b=2, t=9, s=20]", w: "float32[s, s] ~ normal(0, 0.1)", h0: "float32[b, s]", v: "float32[s, o=3]"):
    h = h0
    y = np.empty_like(x)
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] + h @ w.T)
        y[:, t] = h
    return y, h @ v
""",
    "lstm": """
def lstm(x: "float32[b=2, t=7, 4 * h]", w: "float32[h=12, 4 * h] ~ normal(0, 0.1)"):
    batch, steps, gates = x.shape
    h = np.zeros((batch, gates // 4))
    c = np.zeros((batch, gates // 4))
    y = np.empty((batch, steps, gates // 4), np.float32)
    for t in range(steps):
        i, f, o, g = np.split(x[:, t] + h @ w, 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        y[:, t] = h
    return y
""",
    "likelihood": """
def likelihood(e: "float32[b=2, t=9, s=6]", a: "float32[s, s]"):
    p = e[:, 0]
    for t in range(1, e.shape[1]):
        z = p[:, :, None] + a
        m = z.max(1)
        p = np.log(np.exp(z - m[:, None]).sum(1)) + m + e[:, t]
    m = p.max(1)
    return np.log(np.exp(p - m[:, None]).sum(1)) + m
""",
    "backwards": """
def backwards(x: "float32[t=9, s=20]", w: "float32[s, s] ~ normal(0, 0.1)"):
    h = np.zeros(x.shape[1])
    y = np.empty_like(x)
    z = np.empty_like(x)
    for t in range(len(x) - 1, -1, -1):
        z[t] = h
        h = np.maximum(x[t] + h @ w, 0)
        y[t] = h / (1 + h.sum())
    return y, z
""",
    "delta": """
def delta(q: "float32[t=9, d=8]", k: "float32[t, d] ~ uniform(-0.3, 0.3)", v: "float32[t, e=6]", beta: "float32[t] ~ uniform(0, 1)"):
    s = np.zeros((q.shape[1], v.shape[1]))
    o = np.empty_like(v)
    for t in range(len(q)):
        s = s + beta[t] * np.outer(k[t], v[t] - k[t] @ s)
        o[t] = q[t] @ s
    return o
""",
    "layers": """
def layers(x: "float32[b=2, t=7, s=12]", w1: "float32[s, h=10] ~ normal(0, 0.2)", w2: "float32[h, s] ~ normal(0, 0.2)"):
    h = np.zeros((x.shape[0], x.shape[2]))
    y = np.empty_like(x)
    for t in range(x.shape[1]):
        h = np.tanh(x[:, t] + np.maximum(h @ w1, 0) @ w2)
        y[:, t] = h
    return y
""",
    "attention": """
def attention(x: "float32[t=7, s=12]", k: "float32[m=10, s] ~ normal(0, 0.2)", v: "float32[m, s]"):
    h = np.zeros(x.shape[1])
    for t in range(len(x)):
        z = k @ (h + x[t])
        p = np.exp(z - z.max())
        h = np.tanh(x[t] + p / p.sum() @ v)
    return h
""",
    "scaled": """
def scaled(e: "float32[b=2, t=9, s=8] ~ uniform(0.1, 1)", a: "float32[s, s] ~ uniform(0, 0.25)"):
    p = np.ones((e.shape[0], e.shape[2])) / e.shape[2]
    total = np.zeros(e.shape[0])
    most = np.zeros(e.shape[0])
    scales = np.empty(e.shape[:2], np.float32)
    for t in range(e.shape[1]):
        p = (p @ a) * e[:, t]
        c = p.sum(1)
        p = p / c[:, None]
        total = total + np.log(c)
        most = np.maximum(most, c)
        scales[:, t] = c
    return total, most, scales, p
""",
    "normalised": """
def normalised(p: "float32[s=8] ~ uniform(0.1, 1)", a: "float32[s, s] ~ uniform(0.05, 0.25)", e: "float32[b=2, t=9, s] ~ uniform(0.1, 1)"):
    alpha = p * e[:, 0]
    total = alpha.sum(1)
    alpha = alpha / total[:, None]
    likelihood = np.log(total)
    for t in range(1, e.shape[1]):
        alpha = (alpha @ a) * e[:, t]
        total = alpha.sum(1)
        alpha = alpha / total[:, None]
        likelihood = likelihood + np.log(total)
    return likelihood
""",
    "viterbi": """
def viterbi(e: "float32[t=9, s=8]", a: "float32[s, s]"):
    d = e[0]
    b = np.zeros(e.shape, np.int32)
    for t in range(1, len(e)):
        z = d[:, None] + a
        b[t] = z.argmax(0)
        d = z.max(0) + e[t]
    return d.max(), d.argmax().astype(np.int32), b
""",
    "stacked": """
def stacked(x: "float32[t=9, s=8]", w: "float32[s, s] ~ normal(0, 0.2)", v: "float32[s, o=5]", u: "float32[o, o] ~ normal(0, 0.2)"):
    h = np.zeros(x.shape[1])
    g = np.zeros(v.shape[1])
    y = np.empty((len(x), v.shape[1]), np.float32)
    for t in range(len(x)):
        h = np.tanh(h @ w + x[t])
        g = np.tanh(g @ u + h @ v)
        y[t] = g
    return y
""",
    "invariant": """
def invariant(a: "float32[n=20, n] ~ uniform(0, 1)", k: "float32[t=5]"):
    r = np.ones(len(a)) / len(a)
    for i in range(len(k)):
        r = 0.85 * (a / a.sum(0)) @ r + 0.15 / len(a)
    return r
""",
    "observed": """
def observed(obs: "int32[t=9] ~ integers(0, o)", a: "float32[s=8, s] ~ uniform(0.05, 0.25)", e: "float32[s, o=5] ~ uniform(0.1, 1)"):
    p = e[:, obs[0]] / len(a)
    total = 0.0
    for t in range(1, len(obs)):
        p = (p @ a) * e[:, obs[t]]
        total += np.log(p.sum())
        p = p / p.sum()
    return total, p
""",
    "neighbours": """
def neighbours(u: "float32[b=3, n=20]", v: "float32[b, n]", k: "float32[t=5] ~ uniform(0, 0.2)"):
    for t in range(len(k)):
        p = np.pad(v, ((0, 0), (1, 1)))
        u = u + k[t] * (np.roll(u, 1, 1) - 2 * u + np.roll(u, -1, 1))
        v = v + k[t] * (p[:, 2:] - 2 * v + p[:, :-2]) + 0.1 * u
    return u, v
""",
    "paths": """
def paths(lp: "float32[t=12, s=9]"):
    a = np.where(np.arange(lp.shape[1]) < 2, lp[0], -1e9)
    for t in range(1, len(lp)):
        b = np.concatenate([[-1e9], a[:-1]])
        m = np.maximum(a, b)
        a = m + np.log(np.exp(a - m) + np.exp(b - m)) + lp[t]
    return a[-1]
""",
    "location": """
def location(x: "float32[b=3, n=40]", k: "float32[t=6]"):
    mu = x.mean(1)
    for i in range(len(k)):
        w = 1 / (1 + np.abs(x - mu[:, None]) * np.abs(k[i]))
        mu = (w * x).sum(1) / w.sum(1)
    return mu
""",
}
REFUSED = {
    "both": (
        """
def both(a: "float32[t=9, s=8, s] ~ uniform(0, 0.2)"):
    p = np.eye(a.shape[1])
    for t in range(len(a)):
        p = a[t] @ p.T
    return p
""",
        "its states are mixed along several axes",
    ),
    "matrix": (
        """
def matrix(x: "float32[t=9, s=8]", w: "float32[s, s]"):
    h = np.zeros(x.shape[1])
    for t in range(len(x)):
        h = np.tanh(w @ w @ h + x[t])
    return h
""",
        "it reduces a matrix of reductions in each step",
    ),
}


@pytest.mark.exhaustive(share=0.4)
@pytest.mark.parametrize("name", RIGHT)
def test_a_block_carries_the_vectors_of_a_sequence(name: str, tmp_path: Path, session: Session) -> None:
    path = tmp_path / "functions.py"
    path.write_text(HEAD + RIGHT[name].strip() + "\n")
    outcome = write_kernel(session, request_for(path, name, tmp_path))
    assert [one.schedule.rpartition("-")[0] for one in outcome.kernels if one.right] == ["recurrence-vectors"], (
        outcome.notes
    )
    assert outcome.best is not None
    assert outcome.best.verdict.diagnostics == ()


def test_the_first_step_is_tested_by_name_and_zeros_are_stored_as_they_are(make: Make, tmp_path: Path) -> None:
    reference = """
def reference(x, w):
    h = x[0]
    g = np.zeros(x.shape[1])
    f = np.zeros(x.shape[1])
    for t in range(1, len(x)):
        h, g, f = np.tanh(h @ w + x[t]), np.tanh(h + g @ w), np.tanh(g + f @ w)
    return h + g + f
"""
    args = {"x": "in float32[rows, cols]", "w": "in float32[cols, cols]", "y": "out float32[cols]", "rows": "int32", "cols": "int32"}  # fmt: skip
    kernel, contract = make(args, reference.strip(), grid="1")
    written = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert written.definition.count("is_first = step == 0;") == 1
    assert "] = 0.0f;" in written.definition
    assert "next = 0.0f" not in written.definition


def test_a_step_ends_with_a_barrier_only_if_the_next_overwrites_what_it_read_last(make: Make, tmp_path: Path) -> None:
    reference = """
def reference(x, w):
    h = np.zeros(x.shape[1])
    y = np.zeros(x.shape[0])
    for t in range(len(x)):
        new = np.tanh(w @ GATED + x[t])
        y[t] = (h * new).sum()
        h = new
    return y
"""
    args = {"x": "in float32[rows, cols]", "w": "in float32[cols, cols]", "y": "out float32[rows]", "rows": "int32", "cols": "int32"}  # fmt: skip

    def barriers(gated: str) -> int:
        kernel, contract = make(args, reference.strip().replace("GATED", gated), grid="1")
        written = next(kernels_for(trace(contract, tmp_path), kernel, contract))
        return written.definition[written.definition.index("step < rows") :].count("__syncthreads")

    assert barriers("h") == 2, "the next step overwrites h at once"
    assert barriers("(w @ h)") == 2, "the next step overwrites h behind its first barrier"


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_block_cannot_carry_is_refused_with_the_reason(name: str, tmp_path: Path, session: Session) -> None:
    text, reason = REFUSED[name]
    path = tmp_path / "functions.py"
    path.write_text(HEAD + text.strip() + "\n")
    assert reason in why_not_written(session, request_for(path, name, tmp_path))


IN_PLACE = {
    "h": "inout float32[b, d] ~ normal",
    "x": "in float32[t, b, d] ~ normal",
    "w": "in float32[d, d] ~ normal(0, 0.1)",
}
NETWORK = """  float* mine = h + blockIdx.x * d;
  extern __shared__ float held[];
  for (int i = 0; i < t; ++i) {
    for (int j = threadIdx.x; j < d; j += blockDim.x) {
      float s = x[(i * gridDim.x + blockIdx.x) * d + j];
      for (int k = 0; k < d; ++k) s += mine[k] * w[k * d + j];
      held[j] = tanhf(s);
    }
    __syncthreads();
    for (int j = threadIdx.x; j < d; j += blockDim.x) mine[j] = held[j];
    __syncthreads();
  }"""
STEPS = "    for i in range(len(x)):\n        s = np.tanh(s @ w + x[i])\n    return s"


def test_a_block_replaces_the_state_that_it_began_with(make: Make, session: Session) -> None:
    reference = f"def reference(h, x, w):\n    s = h\n{STEPS}"
    sizes = "{ b = 3, t = 4, d = 12 }, { b = 2, t = 1, d = 5 }, { b = 1, t = 1, d = 1 }"
    args = IN_PLACE | dict.fromkeys(("b", "t", "d"), "int32")
    kernel, _ = make(args, reference, sizes=sizes, grid="b", block=32, body=NETWORK, more='shared = "4 * d"')
    assert assert_judged_right(session, kernel) == ["synthesis:recurrence-vectors-4"]


def test_a_state_that_other_blocks_begin_with_is_not_replaced(make: Make, tmp_path: Path) -> None:
    reference = f"def reference(h, x, w):\n    s = h[::-1]\n{STEPS}"
    args = IN_PLACE | dict.fromkeys(("b", "t", "d"), "int32")
    kernel, contract = make(args, reference, sizes="{ b = 3, t = 4, d = 12 }, { b = 2, t = 1, d = 5 }", grid="b")
    assert not any(one.startswith("recurrence") for one in schedules_for(kernel, contract, tmp_path))
