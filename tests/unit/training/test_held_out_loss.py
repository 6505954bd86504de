"""Early stopping: the best loss is stored, and a run that has converged ends."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate_training.held_out_loss import EarlyStopping


def test_the_best_is_the_lowest_smoothed_loss() -> None:
    watch = EarlyStopping()
    better = [watch.see(loss, step, 0.1) for step, loss in enumerate([4.0, 2.0, 1.0, 3.0, 3.0])]
    assert better == [True, True, True, False, False]
    assert watch.best_step == 2
    assert watch.best == pytest.approx(2.0)
    assert watch.ends_at is None


def test_without_getting_better_the_rate_decays_from_where_it_would_and_then_it_ends() -> None:
    watch = EarlyStopping(patience=2, cooldown=0.5)
    for step in range(0, 100, 10):
        watch.see(1.0 if step < 60 else 2.0, step, step / 1000)
    assert watch.ends_from is not None
    assert watch.ends_at == watch.ends_from + watch.ends_from // 2
    assert watch.progress(watch.ends_from, 0.1, 0.6) == pytest.approx(0.6)
    assert watch.progress(watch.ends_at, 0.2, 0.6) == 1.0


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=40), st.integers(0, 4))
def test_progress_never_goes_back_and_is_the_clocks_until_patience_ends(losses: list[float], patience: int) -> None:
    watch = EarlyStopping(patience=patience)
    shares = []
    for step, loss in enumerate(losses, 1):
        shares.append(watch.progress(step, step / 100, 0.6))
        if watch.ends_from is None:
            assert shares[-1] == step / 100
        watch.see(loss, step, shares[-1])
    assert all(one <= other for one, other in itertools.pairwise(shares))
    assert patience or watch.ends_from is None


def test_what_was_seen_survives_a_checkpoint() -> None:
    watch = EarlyStopping(patience=1)
    for step, loss in enumerate([2.0, 1.0, 3.0, 3.0]):
        watch.see(loss, step, 0.3)
    assert EarlyStopping(**watch.state()) == watch
