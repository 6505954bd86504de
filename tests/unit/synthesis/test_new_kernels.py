"""Kernels written from functions alone are right by the judge, for functions of many kinds."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from kernelmate.errors import ReferenceFailed, UsageError
from kernelmate.session import Session
from kernelmate.session.writing import write_kernel
from kernelmate.source import load_kernel
from kernelmate.source.examples import load_python_function, read_examples
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.draft import KernelRequest

FUNCTIONS = Path(__file__).parents[2] / "data" / "functions.py"
NAMES = [one.name for one in ast.parse(FUNCTIONS.read_text()).body if isinstance(one, ast.FunctionDef)]


def request_for(path: Path, name: str, folder: Path) -> KernelRequest:
    function = load_python_function(f"{path}:{name}")
    return KernelRequest(function, read_examples(function, "", {}), folder / f"{name}.cu", name)


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", NAMES)
def test_a_function_becomes_a_right_kernel(name: str, tmp_path: Path, session: Session) -> None:
    outcome = write_kernel(session, request_for(FUNCTIONS, name, tmp_path), most=3)
    assert outcome.best is not None, outcome.notes
    assert [one.schedule for one in outcome.kernels if not one.right] == [], outcome.notes
    assert outcome.best.verdict.diagnostics == ()


def test_numbers_in_shapes_stay_numbers_where_a_size_has_a_name(tmp_path: Path) -> None:
    named = request_for(FUNCTIONS, "packed_signs", tmp_path).examples
    assert [one.shape for one in named.arguments] == [("n", "8")]
    assert named.size == {"n": 50}
    (tmp_path / "plain.py").write_text("def plain(x: 'float32[50, 8]', y: 'float32[8]'):\n    return x + y\n")
    plain = request_for(tmp_path / "plain.py", "plain", tmp_path).examples
    assert [one.shape for one in plain.arguments] == [("rows", "cols"), ("cols",)]


def test_divisibility_that_the_function_needs_becomes_a_condition(tmp_path: Path, session: Session) -> None:
    outcome = write_kernel(session, request_for(FUNCTIONS, "grouped_weights", tmp_path), most=1)
    assert outcome.best is not None
    assert outcome.best.contract.require == ("k % 32 == 0",)
    assert (
        outcome.notes[0]
        == "grouped_weights raises, or returns fewer elements, at other sizes, so the contract requires k % 32 == 0."
    )


def test_a_function_that_raises_whatever_divides_its_sizes_is_refused(tmp_path: Path, session: Session) -> None:
    (tmp_path / "odd.py").write_text("def odd(x: 'float32[n=96]'):\n    assert len(x) == 96\n    return x\n")
    with pytest.raises(ReferenceFailed, match="at the example's size it does not"):
        write_kernel(session, request_for(tmp_path / "odd.py", "odd", tmp_path))


def test_words_of_cpp_name_no_parameter_and_an_axis_of_one_may_be_missing(tmp_path: Path, session: Session) -> None:
    """The result is named new, and z lacks the first axis of the product that it is added to."""
    arrays = "i: 'float32[1, rows=4, 8]', c: 'float32[1, rows, 8]', w: 'float32[32, 8]', z: 'float32[rows, 32]'"
    text = "    new = np.tanh(i) * c\n    return new, new @ w.T + z\n"
    (tmp_path / "cell.py").write_text(f"import numpy as np\n\n\ndef cell({arrays}):\n{text}")
    outcome = write_kernel(session, request_for(tmp_path / "cell.py", "cell", tmp_path), most=1)
    assert outcome.best is not None, outcome.notes
    assert "new" not in [one.name for one in outcome.best.contract.args]
    (tmp_path / "named.py").write_text("def named(register: 'float32[rows=96]'):\n    return register * 2\n")
    with pytest.raises(UsageError, match="register is a word of C"):
        write_kernel(session, request_for(tmp_path / "named.py", "named", tmp_path))


TOTALS = """import numpy as np


def mean_square(x: "float32[rows=600, cols=700]", y: "float32[rows, cols]"):
    return np.mean((x - y) ** 2)


def extremes(x: "float32[n=300000]"):
    return np.max(x), np.min(x), np.sum(np.abs(x))


def threes(x: "int32[n=300000] ~ integers(0, 5)"):
    return np.sum(x == 3)


def short(x: "float32[n=3000]"):
    return np.sum(x)


def loss_and_gradient(x: "float32[n=300000]", y: "float32[n]"):
    d = x - y
    return np.mean(d * d), 2 * d


def hinge(predicted: "float32[n=400, m=300]", target: "float32[m]"):
    return np.mean(np.maximum(0, 1 - predicted * target))


def weighted(x: "float32[n=400, m=300]", y: "float32[n, m]", w: "float32[n]"):
    return np.mean(w[:, None] * (x - y) ** 2)


def penalty(x: "float32[batch=9, channels=30, height=20, width=25]", scale: "float32[channels]", offset: "float32[batch, channels]"):
    return np.sum(np.abs(x * scale[:, None, None] - offset[:, :, None, None]))


def above_diagonal(x: "float32[n=300, m=400]"):
    return np.sum(np.where(np.arange(len(x))[:, None] < np.arange(x.shape[1]), x, 0)), np.max(x - np.arange(x.shape[1]))


def centred(x: "float32[n=400, m=300]", bias: "float32[m]"):
    y = x + bias
    return np.mean((y - np.mean(y)) ** 2)


def spread(x: "float32[n=300000]"):
    return np.mean((x - np.mean(x)) ** 2)
"""


@pytest.mark.parametrize(
    ("name", "schedule", "scratch"),
    [("mean_square", "total-last", ["float32", "int32"]), ("extremes", "total-last", ["float32"] * 3 + ["int32"]),
     ("threes", "total-last", ["int64", "int32"]), ("loss_and_gradient", "total-last", ["float32", "int32"]), ("short", "total", []), ("spread", "total", []),
     ("hinge", "total-last", ["float32", "int32"]), ("weighted", "total-last", ["float32", "int32"]),
     ("penalty", "total-last", ["float32", "int32"]), ("above_diagonal", "total-last", ["float32"] * 2 + ["int32"]), ("centred", "total", [])],
)  # fmt: skip
def test_the_last_block_combines_the_results_of_all_if_an_array_is_long(
    name: str, schedule: str, scratch: list[str], tmp_path: Path, session: Session
) -> None:
    (tmp_path / "totals.py").write_text(TOTALS)
    outcome = write_kernel(session, request_for(tmp_path / "totals.py", name, tmp_path), most=1)
    assert outcome.best is not None, outcome.notes
    assert outcome.best.schedule == schedule
    assert outcome.best.verdict.diagnostics == ()
    contract = outcome.best.contract
    assert [one.dtype for one in contract.args if one.direction == "scratch"] == scratch
    assert "atomicAdd(blocks_ended, 1)" in outcome.best.kernel.unit.text or not scratch


def test_a_kernel_with_scratch_arrays_gets_one_that_uses_them(session: Session) -> None:
    path = Path(__file__).parents[2] / "exploits" / "baselines" / "total_of_blocks.cu"
    found = session.optimize(load_kernel(str(path)), "make it faster", suggesters=(Synthesis(),))
    (judged,) = found.candidates
    assert judged.candidate.author == "synthesis:total-last"
    assert judged.verdict.correct is True
    assert "atomicAdd(ticket, 1u) == gridDim.x - 1" in judged.candidate.kernel.source
    assert judged.candidate.contract.grid == ("min(cdiv(n, block * 4), cdiv(n, 128))",)


EXTREMES = """import numpy as np


def beside(x: "float32[rows=70, cols=90]"):
    return np.max(x, axis=1), np.sum(x, axis=1)


def down(x: "float32[rows=70, cols=90]"):
    return np.min(x, axis=0), np.mean(x, axis=0)


def whole(x: "float32[n=3000]"):
    return np.max(x), np.sum(x)


def softmax_and_maximum(x: "float32[rows=70, cols=90]"):
    largest = np.max(x, axis=1, keepdims=True)
    e = np.exp(x - largest)
    return e / np.sum(e, axis=1, keepdims=True), largest[:, 0]


def statistics(x: "float32[rows=70, cols=90]"):
    largest = np.max(x, axis=1)
    return largest, np.sum(np.exp(x - largest[:, None]), axis=1)


def ties(x: "float32[rows=70, cols=90]"):
    return np.sum(np.where(x == np.max(x, axis=1, keepdims=True), 1.0, 0.0), axis=1)


def of_products(x: "float32[rows=70, 16]", y: "float32[cols=90, 16]"):
    product = x @ y.T
    largest = np.max(product, axis=1)
    return largest, np.sum(np.exp(product - largest[:, None]), axis=1)


def softmax(x: "float32[rows=70, cols=90]"):
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)


def log_sum_exp(x: "float32[rows=70, cols=90]", labels: "int32[rows] ~ integers(0, cols)"):
    largest = np.max(x, axis=1)
    picked = np.take_along_axis(x, labels[:, None], axis=1)[:, 0]
    return largest + np.log(np.sum(np.exp(x - largest[:, None]), axis=1)) - picked
"""


@pytest.mark.parametrize(
    ("name", "keeps"),
    [("beside", "nan_max"), ("down", "nan_min"), ("whole", "nan_max"), ("softmax_and_maximum", "nan_max"), ("statistics", "nan_max"),
     ("ties", "nan_max"), ("of_products", "nan_max"), ("softmax", ""), ("log_sum_exp", "")],
)  # fmt: skip
def test_an_extreme_keeps_nan_where_its_results_are_not_nan_anyway(
    name: str, keeps: str, tmp_path: Path, session: Session
) -> None:
    (tmp_path / "extremes.py").write_text(EXTREMES)
    outcome = write_kernel(session, request_for(tmp_path / "extremes.py", name, tmp_path), most=3)
    assert outcome.best is not None, outcome.notes
    assert [one.schedule for one in outcome.kernels if not one.right] == [], outcome.notes
    texts = [one.kernel.unit.text for one in outcome.kernels]
    assert all(keeps in text if keeps else "nan_" not in text for text in texts), texts


COLUMNS = """import numpy as np


def largest_of_many(x: "float32[n=8, rows=70, h=32, w=40]"):
    return np.argmax(x.reshape(x.shape[0], x.shape[1], -1), axis=1)


def middle(x: "float32[n=300, rows=70, w=40]"):
    return np.argmin(np.abs(x), axis=-2, keepdims=True)


def of_four(x: "float32[n=5, rows=200, 4]"):
    return x.argmax(1), x.max(1)


def of_batches(x: "float32[n=16, c=20, w=100]"):
    return x.reshape(-1, x.shape[2]).sum(0)
"""


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("largest_of_many", "columns-32"),
        ("middle", "columns-32"),
        ("of_four", "columns-4"),
        ("of_batches", "columns-8"),
    ],
)
def test_a_block_takes_as_many_neighbouring_columns_as_there_are_and_enough_blocks_allow(
    name: str, schedule: str, tmp_path: Path, session: Session
) -> None:
    (tmp_path / "columns.py").write_text(COLUMNS)
    outcome = write_kernel(session, request_for(tmp_path / "columns.py", name, tmp_path), most=3)
    assert [one.schedule for one in outcome.kernels if not one.right] == [], outcome.notes
    assert schedule in [one.schedule for one in outcome.kernels]


PREFIXES = """import numpy as np


def beginnings(x: "float32[n=1000]"):
    out = np.empty_like(x)
    for i in range(len(x)):
        out[i] = x[: i + 1].sum()
    return out


def means(x: "float32[rows=20, cols=150]"):
    out = np.empty_like(x)
    for i in range(x.shape[1]):
        out[:, i] = np.mean(x[:, : i + 1], axis=1)
    return out


def means_down(x: "float32[rows=50, cols=70]"):
    out = np.empty_like(x)
    for i in range(x.shape[0]):
        out[i] = x[: i + 1].mean(axis=0)
    return out


def maxima_of_ends(x: "float32[rows=20, cols=150]"):
    out = np.empty_like(x)
    for i in range(x.shape[1]):
        out[:, i] = x[:, i:].max(axis=1)
    return out


def before(x: "float32[rows=20, cols=150]", w: "float32[cols]"):
    out = np.empty_like(x)
    for i in range(x.shape[1]):
        out[:, i] = (x[:, :i] * w[:i]).sum(axis=1)
    return out


def after(x: "float32[rows=20, cols=150]"):
    out = np.empty_like(x)
    for i in range(x.shape[1]):
        out[:, i] = np.sum(x[:, i + 1 :], axis=1)
    return out


def shifted(x: "float32[rows=20, cols=150]"):
    y = np.zeros_like(x)
    y[:, 1:] = np.cumsum(x, axis=1)[:, :-1]
    return y


def shifted_back(x: "float32[rows=20, cols=150]"):
    y = np.zeros_like(x)
    y[:, :-1] = np.cumsum(x[:, ::-1], axis=1)[:, ::-1][:, 1:]
    return y


def runs(x: "int32[n=20000] ~ integers(0, 3)"):
    starts = np.ones(len(x), np.int32)
    starts[1:] = x[1:] != x[:-1]
    return np.cumsum(starts) - 1


def runs_of_rows(x: "int32[planes=3, rows=20, cols=150] ~ integers(0, 3)"):
    same = np.zeros(x.shape, bool)
    same[..., 1:] = x[..., 1:] != x[..., :-1]
    return np.cumsum(same, axis=-1)


def path_to_the_end(x: "float32[rows=20, cols=150]"):
    step = np.zeros_like(x)
    step[:, :-1] = np.abs(x[:, 1:] - x[:, :-1])
    return np.cumsum(step[:, ::-1], axis=1)[:, ::-1]


def spreads(x: "float32[rows=20, cols=60]"):
    out = np.empty_like(x)
    for i in range(x.shape[1]):
        out[:, i] = x[:, : i + 1].std(axis=1)
    return out
"""


@pytest.mark.parametrize(
    ("name", "schedule"),
    [(name, "scan") for name in ("beginnings", "means", "means_down", "maxima_of_ends", "before", "after", "shifted", "shifted_back")]
    + [("spreads", "sta"), ("runs", "window-scan"), ("runs_of_rows", "window-scan"), ("path_to_the_end", "window-scan")],
)  # fmt: skip
def test_reductions_of_all_beginnings_or_ends_are_scans(
    name: str, schedule: str, tmp_path: Path, session: Session
) -> None:
    (tmp_path / "prefixes.py").write_text(PREFIXES)
    outcome = write_kernel(session, request_for(tmp_path / "prefixes.py", name, tmp_path), most=2)
    assert outcome.best is not None, outcome.notes
    assert [one.schedule for one in outcome.kernels if not one.right] == [], outcome.notes
    assert all(one.schedule.startswith(schedule) for one in outcome.kernels)
    texts = [one.kernel.unit.text for one in outcome.kernels]
    assert all(text.count("kAhead") != 1 for text in texts)  # a constant that nothing uses


PLANES = """import numpy as np


def wavelet(x: "float32[h=24, w=40]"):
    a, b, c, d = x[0::2, 0::2], x[0::2, 1::2], x[1::2, 0::2], x[1::2, 1::2]
    return np.stack([a + b + c + d, a - b + c - d, a + b - c - d, a - b - c + d]) / 2


def streamed(f: "float32[5, h=20, w=30] ~ uniform(0.5, 1)"):
    s = np.stack([np.roll(np.roll(f[i], dy, axis=0), dx, axis=1) for i, (dy, dx) in enumerate([(0, 0), (0, 1), (1, 0), (0, -1), (-1, 0)])])
    total = s.sum(0)
    out = np.empty_like(f)
    for i in range(5):
        out[i] = s[i] + 0.5 * (total / 5 - s[i])
    return out

def rotated(x: "float32[t=20, h=3, 64]", cos: "float32[t, 32]", sin: "float32[t, 32]"):
    out = np.empty_like(x)
    a, b = x[..., 0::2], x[..., 1::2]
    out[..., 0::2] = a * cos[:, None, :] - b * sin[:, None, :]
    out[..., 1::2] = a * sin[:, None, :] + b * cos[:, None, :]
    return out
"""

STRIDED = """import numpy as np


def products(a: "float32[n=4000]", b: "float32[n]"):
    out = np.empty_like(a)
    out[0::2] = a[0::2] * b[0::2] - a[1::2] * b[1::2]
    out[1::2] = a[0::2] * b[1::2] + a[1::2] * b[0::2]
    return out


def only_even(a: "float32[n=4000]"):
    out = np.zeros_like(a)
    out[0::2] = a[1::2] * 2
    return out
"""


@pytest.mark.parametrize(("name", "schedule"), [("products", "interleaved"), ("only_even", "windows")])
def test_results_that_are_assigned_in_strides_are_written_together_where_these_leave_no_gap(
    name: str, schedule: str, tmp_path: Path, session: Session
) -> None:
    (tmp_path / "strided.py").write_text(STRIDED)
    outcome = write_kernel(session, request_for(tmp_path / "strided.py", name, tmp_path), most=1)
    assert outcome.best is not None, outcome.notes
    assert outcome.best.schedule == schedule


@pytest.mark.parametrize(("name", "planes"), [("wavelet", 4), ("streamed", 5), ("rotated", 2)])
def test_a_thread_computes_all_planes_of_a_result_that_share_what_they_read(
    name: str, planes: int, tmp_path: Path, session: Session
) -> None:
    (tmp_path / "planes.py").write_text(PLANES)
    outcome = write_kernel(session, request_for(tmp_path / "planes.py", name, tmp_path), most=1)
    assert outcome.best is not None, outcome.notes
    text = outcome.best.kernel.unit.text
    assert text.count("  out[") == planes
    assert "float result" not in text  # one of several values, chosen by the plane
