"""Families of problems: what they draw is right, in each of its forms, and the same for equal seeds."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate_training.corpus.building import SHARES, family_of
from kernelmate_training.corpus.drafting import Flaws, Problem
from kernelmate_training.corpus.families import registry
from kernelmate_training.corpus.flaws import FLAWS, fixes
from kernelmate_training.corpus.group_processing import draw_group
from kernelmate_training.corpus.judging import Judge, seed_of
from kernelmate_training.overlap import fingerprint

FAMILIES = registry()


def with_every_flaw(problem: Problem, rng: Random) -> Flaws:
    """All flaws of a problem, but one of those that exclude each other."""
    chosen = set(problem.flaws)
    for others in problem.exclusive:
        there = sorted(others & chosen)
        if there:
            chosen -= others - {rng.choice(there)}
    return frozenset(chosen)


def test_there_are_enough_families_of_every_kind() -> None:
    kinds = Counter(family.kind for family in FAMILIES.values())
    assert len(FAMILIES) >= 60
    assert set(kinds) == set(SHARES)
    assert min(kinds.values()) >= 8


def test_groups_come_from_the_kinds_in_their_shares() -> None:
    families = list(FAMILIES.values())
    kinds = Counter(family_of(families, 3, number).kind for number in range(3000))
    for kind, share in SHARES.items():
        assert abs(kinds[kind] / 3000 - share) < 0.04


@pytest.mark.exhaustive(share=0.1)
@pytest.mark.parametrize("name", FAMILIES)
def test_equal_seeds_give_equal_groups_and_others_other_ones(name: str) -> None:
    one, again, other = (draw_group(FAMILIES[name], number, 11) for number in (4, 4, 5))
    assert one.texts == again.texts
    assert one.pairs == again.pairs
    assert [r.broken for r in one.repairs] == [r.broken for r in again.repairs]
    assert one.texts != other.texts


@pytest.mark.exhaustive(share=0.1)
@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_compared_differs_and_has_a_contract(name: str) -> None:
    group = draw_group(FAMILIES[name], 1, 5)
    assert group.pairs
    for pair in group.pairs:
        before, after = group.texts[pair.before], group.texts[pair.after]
        assert before != after
        assert fixes(pair.flaws, pair.metric) == frozenset(pair.flaws)
        one, other = (contract_for(find_kernels(text_unit(text, "kernel.cu"))[0]) for text in (before, after))
        assert not one.inferred
        assert one.args == other.args
        assert one.sizes == other.sizes
        assert one.reference == other.reference


@pytest.mark.exhaustive(share=0.1)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_worst_and_the_best_form_are_right(name: str, judge: Judge) -> None:
    rng = Random(seed_of("forms", name))
    problem = FAMILIES[name].draw(rng)
    judge.begin(7, headline=False)
    for flaws in (with_every_flaw(problem, rng), frozenset[str]()):
        text = problem.text(flaws)
        judged = judge.judge(text)
        assert judged.right, f"{sorted(flaws)}: {judged.words}\n{text}"
        assert [dict(case.size) for case in judged.verdict.cases][:2] == [dict(size) for size in problem.sizes[1:]]


@pytest.mark.exhaustive(share=0.1)
@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_has_many_problems(name: str) -> None:
    best = [FAMILIES[name].draw(Random(seed_of("many", name, number))).text(frozenset()) for number in range(24)]
    assert len({fingerprint(text) for text in best}) >= 12


def test_every_flaw_is_known_and_used() -> None:
    used: set[str] = set()
    for family in FAMILIES.values():
        for seed in range(4):
            used.update(family.draw(Random(seed)).flaws)
    assert used <= set(FLAWS)
    assert len(used) >= 30
