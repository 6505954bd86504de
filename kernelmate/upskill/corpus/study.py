"""The whole way of one group: drawn, judged, rewritten by recipes, timed, and written as rows."""

from __future__ import annotations

import functools
from dataclasses import replace
from random import Random

from kernelmate.upskill.corpus.examples import change_row, repair_row, written
from kernelmate.upskill.corpus.families import Family
from kernelmate.upskill.corpus.groups import Group, Pair, make_group
from kernelmate.upskill.corpus.journal import Studied
from kernelmate.upskill.corpus.judging import Judge, Judged, Rounds, seed_of
from kernelmate.upskill.corpus.overlap import NEAR, Overlaps
from kernelmate.upskill.corpus.prompts import draw_prompt
from kernelmate.upskill.corpus.rewriting import rewritten
from kernelmate.upskill.corpus.verdicts import held_together, worth_teaching

ANALYSED = 0.75
"""Share of the pairs that also become examples of analysing."""

REWRITES = 2
"""Versions of a group that recipes are tried on."""

HEADLINES = 16
"""Beside a GPU, of so many groups one is emulated at its headline size too."""


@functools.cache
def _exam() -> Overlaps:
    """The exam's kernels, of which nothing may be taught."""
    from kernelmate.upskill.exam.near import exam_texts

    return Overlaps(exam_texts())


def draw_group(family: Family, number: int, seed: int) -> Group:
    """One group: equal numbers and seeds give equal groups."""
    own = seed_of(seed, family.name, number)
    rng = Random(own)  # noqa: S311 -- problems, no secrets
    return make_group(family.draw(rng), rng, number, own % 2**31)


def study(judge: Judge, family: Family, number: int, seed: int) -> Studied:
    """Draw a group and judge all of it."""
    group = draw_group(family, number, seed)
    found = Studied(number, family.name)
    # Beside a GPU the headline is emulated for some groups alone; the others are counted at their odd size.
    judge.begin(group.seed, headline=judge.gpu is None or group.seed % HEADLINES == 0)
    if any(_exam().nearest(text).overlap >= NEAR for text in group.texts):
        found.wrong = ["left out: nearly a kernel of the exam"]
        return found
    judged = [judge.judge(text) for text in group.texts]
    group = _with_recipes(judge, group, judged)
    rounds: dict[int, Rounds | str] = {}
    if judge.gpu is not None:
        rounds = judge.gpu.time(judged, group.problem.large, judge.target)
    found.texts, found.right = len(judged), sum(one.right for one in judged)
    found.wrong = [one.words for one in judged if one.words] + [
        said for said in rounds.values() if isinstance(said, str)
    ]
    _pairs(found, judge, family, group, judged, rounds)
    _repairs(found, judge, family, group, judged, rounds)
    return found


def _with_recipes(judge: Judge, group: Group, judged: list[Judged]) -> Group:
    """The group with what recipes make of some of its right versions, alone and after flaws were taken out; `judged` grows."""
    rng = Random(seed_of("recipes", group.seed))  # noqa: S311
    right = [place for place, one in enumerate(judged) if one.right]
    texts, pairs = list(group.texts), list(group.pairs)
    for place in rng.sample(right, min(REWRITES, len(right))):
        made = rewritten(judged[place], rng)
        if made is None or made.text in texts or _exam().nearest(made.text).overlap >= NEAR:
            continue
        here = len(texts)
        texts.append(made.text)
        judged.append(judge.judge(made.text))
        prompt = draw_prompt(made.metric, rng)
        pairs.append(Pair(place, here, made.metric, (), prompt, made.steps, made.whys))
        pairs += [
            Pair(pair.before, here, made.metric, pair.flaws, prompt, whys=made.whys)
            for pair in group.pairs
            if pair.after == place and pair.metric == made.metric
        ]
    return replace(group, texts=tuple(texts), pairs=tuple(pairs))


def _pairs(
    found: Studied, judge: Judge, family: Family, group: Group, judged: list[Judged], rounds: dict[int, Rounds | str]
) -> None:
    rng = Random(group.seed)  # noqa: S311
    judged_on = "emulated" if judge.gpu is None else "measured"
    for pair in group.pairs:
        analysed = rng.random() < ANALYSED
        before, after = judged[pair.before], judged[pair.after]
        if not (before.right and after.right):
            continue
        one, other = rounds.get(pair.before), rounds.get(pair.after)
        if isinstance(one, str) or isinstance(other, str):
            continue
        if pair.metric == "time" and judge.gpu is not None and (one is None or other is None):
            continue
        found.pairs += 1
        both = None if one is None or other is None else (one, other)
        verdict = held_together(before, after, pair, both, group.problem.large)
        row = written(change_row(group, family, pair, before, after, verdict, "generate", judged_on))
        if not worth_teaching(verdict, pair.metric):
            found.rejected.append(row)
            continue
        found.better += 1
        found.rows.append(row)
        if analysed:
            found.rows.append(written(change_row(group, family, pair, before, after, verdict, "analyse", judged_on)))


def _repairs(
    found: Studied, judge: Judge, family: Family, group: Group, judged: list[Judged], rounds: dict[int, Rounds | str]
) -> None:
    judged_on = "emulated" if judge.gpu is None else "measured"
    for repair in group.repairs:
        after = judged[repair.after]
        if not after.right or isinstance(rounds.get(repair.after), str):
            continue
        found.broken += 1
        broken = judge.judge(repair.broken.text, hunt=True)
        if broken.words and broken.verdict.correct is False:
            found.failing += 1
            found.rows.append(written(repair_row(group, family, repair, broken, after, judged_on)))
