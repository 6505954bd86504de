"""Packing: every example once in its share, no token sees another text, only answers count."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="training needs the extra `train`")

from kernelmate_training.batches import LEAST_SHARE, Packer  # noqa: E402
from kernelmate_training.encoded import Encoded, load_encoded  # noqa: E402
from kernelmate_training.shapes import Shape  # noqa: E402
from kernelmate_training.torch_llama import Llama, answer_loss, mask_of  # noqa: E402

EVEN = {"generate": 1.0, "analyse": 1.0, "debug": 1.0}


def made(lengths: list[int], tasks: list[int]) -> Encoded:
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    tokens = np.arange(starts[-1]).astype(np.uint16) % 40 + 4
    return Encoded(tokens, starts, np.array([max(n // 2, 1) for n in lengths]), np.array(tasks, dtype=np.uint8))


@given(st.lists(st.integers(2, 32), min_size=1, max_size=60), st.integers(0, 5))
def test_an_epoch_draws_as_many_as_there_are_into_rows_that_hold_them(lengths: list[int], seed: int) -> None:
    packer = Packer(made(lengths, [0] * len(lengths)), 2, 32, EVEN, seed)
    rows = packer.epoch_rows(0)
    assert sorted(itertools.chain(*rows)) == list(range(len(lengths)))
    assert all(sum(lengths[one] for one in row) <= 32 for row in rows)


def test_tasks_are_drawn_in_their_shares() -> None:
    data = made([8] * 100, [0] * 80 + [1] * 10 + [2] * 10)
    drawn = list(
        itertools.chain(*Packer(data, 2, 32, {"generate": 0.4, "analyse": 0.3, "debug": 0.3}, 1).epoch_rows(0))
    )
    assert np.bincount(data.tasks[drawn]).tolist() == [40, 30, 30]


def test_steps_go_on_where_they_were(reversals: Encoded) -> None:
    packer = Packer(reversals, 3, 32, EVEN, 7)
    whole = list(itertools.islice(packer.steps(), 40))
    for first in (1, 13, 37):
        assert next(packer.steps(first)) == whole[first]


def test_only_answers_count(reversals: Encoded) -> None:
    packer = Packer(reversals, 2, 32, EVEN, 1)
    rows = next(packer.steps())
    batch = packer.batch(rows)
    learned = [reversals.tokens[reversals.starts[one] + reversals.answers[one] : reversals.starts[one + 1]] for row in rows for one in row]  # fmt: skip
    assert batch.targets[batch.weights > 0].tolist() == np.concatenate(learned).tolist()
    assert packer.weight(rows) == batch.weights.sum()


def test_a_short_answer_counts_as_much_as_the_least_that_any_does(reversals: Encoded) -> None:
    rows = next(Packer(reversals, 2, 32, EVEN, 1).steps())
    packer = Packer(reversals, 2, 32, EVEN, 1, prompt_weight=0.1, least_answer=6)
    batch = packer.batch(rows)
    assert packer.weight(rows) == pytest.approx(batch.weights.sum())
    at = [(number, document) for number, row in enumerate(rows) for document in range(len(row))]
    for (number, document), one in zip(at, (one for row in rows for one in row), strict=True):
        answer = int(reversals.lengths[one] - reversals.answers[one])
        of_answer = batch.weights[number][(batch.documents[number] == document) & (batch.weights[number] >= 1)]
        assert of_answer.sum() == pytest.approx(max(answer, 6))
        assert len(of_answer) == answer
    assert any(reversals.lengths - reversals.answers < 6)


def test_a_packed_text_is_seen_as_if_it_stood_alone(reversals: Encoded, tiny: Shape) -> None:
    model = Llama(tiny).eval()
    packer = Packer(reversals, 2, 32, EVEN, 1)
    rows = next(packer.steps())
    batch = packer.batch(rows)

    def loss(parts: Any) -> float:
        tensors = {name: torch.from_numpy(getattr(parts, name)) for name in ("tokens", "positions", "documents", "targets", "weights")}  # fmt: skip
        stream = model(tensors["tokens"], tensors["positions"], mask_of(tensors["documents"]))
        return float(answer_loss(stream, model.head, tensors["targets"], tensors["weights"]).detach())

    alone = sum(loss(packer.batch([[one]])) for row in rows for one in row)
    assert loss(batch) == pytest.approx(alone, rel=1e-5)


def test_the_bounds_say_where_texts_begin(reversals: Encoded) -> None:
    packer = Packer(reversals, 4, 32, EVEN, 1)
    batch = packer.batch(next(packer.steps()))
    starts = [0, *(np.flatnonzero((np.diff(batch.documents.ravel()) != 0) | (np.arange(1, 128) % 32 == 0)) + 1), 128]
    inner = batch.bounds[: len(starts)]
    assert inner.tolist() == starts
    assert set(batch.bounds[len(starts) :].tolist()) <= {128}


def test_answers_that_gain_little_weigh_little_and_those_of_unknown_gain_all(reversals: Encoded) -> None:
    gains = np.full(len(reversals), np.nan, np.float32)
    gains[:4] = [1.0, 1.25, 1.5625, 40.0]
    data = replace(reversals, gains=gains)
    packer = Packer(data, 5, 64, EVEN, 1, least_answer=6, full_gain=1.5625)
    rows = [[0], [1], [2], [3], [4]]
    sums = packer.batch(rows).weights.sum(1)
    plain = Packer(reversals, 5, 64, EVEN, 1, least_answer=6).batch(rows).weights.sum(1)
    assert (sums / plain).tolist() == pytest.approx([LEAST_SHARE, 0.5, 1.0, 1.0, 1.0], rel=1e-5)
    assert packer.weight(rows) == pytest.approx(float(sums.sum()))
    assert Packer(data, 5, 64, EVEN, 1, least_answer=6).weight(rows) == pytest.approx(float(plain.sum()))


def test_gains_go_with_their_examples(reversals: Encoded, tmp_path: Path) -> None:
    data = replace(reversals, gains=np.arange(len(reversals), dtype=np.float32))
    data.take(np.array([3, 1])).save(tmp_path / "some.npz")
    kept = load_encoded(tmp_path / "some.npz")
    assert kept.gains is not None
    assert kept.gains.tolist() == [3.0, 1.0]
    assert data.sha256 != reversals.sha256


def test_what_an_earlier_version_has_kept_is_still_read(reversals: Encoded, tmp_path: Path) -> None:
    path = tmp_path / "earlier.npz"
    parts = {name: getattr(reversals, name) for name in ("tokens", "starts", "answers", "tasks")}
    np.savez(path, **parts)
    kept = load_encoded(path)
    assert (kept.gains, kept.families) == (None, None)
    assert kept.sha256 == reversals.sha256
