"""Rounds in which a model learns from its own judged answers.

`self`: the model is asked as users ask it. `contrastive`: the prompt shows judged versions of the same kernel with
their results, and answers are repeated in proportion to their advantage over the others to their question. Both are
expert iteration: good answers are learned like rows of a corpus. Wrong answers become examples of repair, since the
error and a correct version are known. `grpo`: answers are sampled, and their probability is raised or lowered by their
advantage. The emulator judges all answers, so a gain in time is predicted.
"""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from kernelmate.suggest.codec import codec_named
from kernelmate_training.examples import Example, hash_seed, lines_of, question_of, version_of
from kernelmate_training.judges import Case, Judges, judge_all
from kernelmate_training.rewards import Grade, WeightedAnswer, advantages, reward
from kernelmate_training.settings import ModelSection, RoundsSection, Upskill

if TYPE_CHECKING:
    from kernelmate.suggest.codec.base import Codec, CodecVersion, DecodedAnswer, Question

OnLine = Callable[[str], None]
Kind = Literal["self", "contrastive", "grpo"]
SHOWN = 3
"""Largest number of judged versions in a contrastive prompt."""


@dataclass(frozen=True, slots=True)
class RoundQuestion:
    """One question of a round.

    Attributes:
        line: the corpus' line.
        question: the question as asked.
        answers: decoded answers with their grades, each version once.
        unreadable: number of answers that could not be decoded.
        texts: every sampled text, with the index of its version in `answers`; None if it gives none.
    """

    line: Mapping[str, Any]
    question: Question
    answers: tuple[tuple[DecodedAnswer, Grade], ...] = ()
    unreadable: int = 0
    texts: tuple[tuple[str, int | None], ...] = ()


@dataclass(frozen=True, slots=True)
class RoundFigures:
    """Figures of one round.

    Attributes:
        kind: kind of the round.
        questions, answers: numbers of questions and of sampled answers.
        readable, right, better: numbers of such answers, each version once.
        solved: number of questions with a better answer.
        reward: mean over all answers; answers without a version count as 0.
        learned, mended: numbers of examples made from good answers and from wrong ones.
        seconds: duration.
        judged_on: backend of the judge, on which gains in time are predicted.
        more: figures of the training.
    """

    kind: Kind
    questions: int
    answers: int
    readable: int
    right: int
    better: int
    solved: int
    reward: float
    learned: int
    mended: int
    seconds: float
    judged_on: str = "emulated"
    more: Mapping[str, Any] | None = None


Draw = Callable[[Sequence[str]], Sequence[tuple[int, str]]]
"""Function from prompts to answers, as pairs (number of the prompt, text)."""


def run_round(settings: Upskill, codec: Codec, kind: Kind, number: int, draw: Draw, known: Sequence[RoundQuestion] = (), told: OnLine = lambda line: None, judges: Judges | None = None) -> list[RoundQuestion]:  # fmt: skip
    """Ask and judge one round.

    Args:
        settings: the configuration.
        codec: the model's codec.
        kind: kind of the round.
        number: number of the round, which seeds the choice of questions.
        draw: samples the model's answers.
        known: an earlier round, whose judged answers contrastive questions show.
        told: called with lines of progress.
        judges: existing judging processes; None to start some.
    """
    section = settings.rounds
    begun = time.monotonic()
    asked = _contrastive(known) if kind == "contrastive" else _questions(settings, number)
    prompts = [codec.ask(one.question).prompt for one in asked]
    answers: dict[int, list[str]] = {}
    for place, text in draw(prompts):
        answers.setdefault(place, []).append(text)
    told(f"{kind} round {number}: {sum(map(len, answers.values()))} answers to {len(prompts)} questions")
    read = [_read(one, codec, answers.get(place, [])) for place, one in enumerate(asked)]
    cases = [case for place, (one, found, _) in enumerate(read) if (case := _case(place, one, found))]
    left = max(section.seconds - (time.monotonic() - begun), 10.0)
    if judges is None:
        grades = judge_all(cases, workers=settings.corpus.workers, seconds=left)
    else:
        grades = judges.grades(cases, left)
    return [
        replace(one, answers=tuple(zip(found, grades.get(place, ()), strict=False)), unreadable=sum(at is None for _, at in texts), texts=texts)
        for place, (one, found, texts) in enumerate(read)
        if not found or place in grades
    ]  # fmt: skip


def _questions(settings: Upskill, number: int) -> list[RoundQuestion]:
    """Returns random questions of a round from lines that are not held out: for a better version, or a repair."""
    lines = lines_of(settings.corpus_folder)
    chance = random.Random(hash_seed(settings.seed, number))  # noqa: S311 -- no secret
    found: list[RoundQuestion] = []
    # Only the few hundred lines that a round asks about are parsed.
    for place in chance.sample(range(len(lines)), len(lines)):
        if len(found) == settings.rounds.prompts:
            break
        line = json.loads(lines[place])
        if line.get("split") != "held-out" and line.get("task") in ("generate", "debug"):
            found.append(RoundQuestion(line, question_of(line)))
    return found


def _contrastive(known: Sequence[RoundQuestion]) -> list[RoundQuestion]:
    """Returns questions that show judged versions, from questions with at least two versions to show."""
    found = []
    for one in known:
        tried = tried_of(one, settle=None)
        if len(tried) > 1 and one.question.task == "generate":
            found.append(RoundQuestion(one.line, replace(one.question, tried=tried)))
    return found


def tried_of(one: RoundQuestion, settle: CodecVersion | None) -> tuple[Any, ...]:
    """Returns the judged versions of a question for its prompt, the best first, without `settle`."""
    from kernelmate.suggest.codec.base import TriedVersion

    ranked = sorted(one.answers, key=lambda item: (item[1].right, item[1].gain or 0.0), reverse=True)
    return tuple(
        TriedVersion(answer.version, grade.better, grade.gain if one.question.metric == "time" else None)
        for answer, grade in ranked
        if answer.version is not None and answer.version != settle
    )[:SHOWN]


def _read(one: RoundQuestion, codec: Codec, texts: Sequence[str]) -> tuple[RoundQuestion, list[DecodedAnswer], tuple[tuple[str, int | None], ...]]:  # fmt: skip
    """Returns the question with its texts, the decoded versions (each once), and each text's index of its version."""
    from kernelmate.suggest.codec.base import UndecodableAnswer

    asked = codec.ask(one.question)
    found: dict[tuple[str, object], DecodedAnswer] = {}
    places: list[tuple[str, int | None]] = []
    for text in texts:
        try:
            answer = asked.read(text)
        except UndecodableAnswer:
            places.append((text, None))
            continue
        version = answer.version
        if version is None or version.text == one.question.text or not _is_for_as_much(version, one.question):
            places.append((text, None))
            continue
        key = (version.text, version.launch)
        found.setdefault(key, answer)
        places.append((text, list(found).index(key)))
    return one, list(found.values()), tuple(places)


def _is_for_as_much(version: CodecVersion, question: Question) -> bool:
    """Returns True if a version adds no `require` condition; a version for fewer sizes would solve another problem."""
    return set(version.launch.require) <= set(question.launch.require)


def _case(place: int, one: RoundQuestion, answers: Sequence[DecodedAnswer]) -> Case | None:
    if not answers:
        return None
    question = one.question
    right = one.line["after"]["source"] if question.task == "debug" else question.text
    texts = tuple(answer.version.text for answer in answers if answer.version is not None)
    seed = int(one.line.get("seed") or 0) + 1
    return Case(place, question.text, right, question.metric, question.prompt, texts, question.target, seed)


def lessons(asked: Sequence[RoundQuestion], codec: Codec, section: RoundsSection, kind: Kind) -> list[Example]:
    """Returns the examples to learn from a round: good answers in the codec's form, and repairs of wrong ones."""
    from kernelmate.suggest.codec.base import NotEncodable

    found: list[Example] = []
    for one in asked:
        group = str(one.line.get("group") or "")
        for answer, copies in _chosen(one, section, kind):
            try:
                told = codec.answer(one.question, answer.version, (*answer.tags, *answer.analysis)) + codec.end
            except NotEncodable:
                continue
            prompt = codec.ask(one.question).prompt
            found += [Example(prompt, told, one.question.task, group, held_out=False)] * copies
        found += _repairs(one, codec, group)
    return found


def _chosen(one: RoundQuestion, section: RoundsSection, kind: Kind) -> list[tuple[DecodedAnswer, int]]:
    """Returns the answers to learn with their numbers of copies: better ones, in contrastive rounds by advantage."""
    gains = advantages([reward(grade, section.clip) for _, grade in one.answers])
    ranked = sorted(zip(one.answers, gains, strict=True), key=lambda item: item[1], reverse=True)
    good = [(answer, gain) for (answer, grade), gain in ranked if grade.right and grade.better][: section.keep]
    if kind == "self":
        return [(answer, 1) for answer, _ in good]
    return [(answer, 1 + round(max(gain, 0.0))) for answer, gain in good]


def _repairs(one: RoundQuestion, codec: Codec, group: str) -> list[Example]:
    """Returns an example of repair from the first wrong answer, its error, and the correct version.

    The result is empty without one.
    """
    from kernelmate.suggest.codec.base import NotEncodable, UndecodableAnswer

    wrong = next(((answer, grade) for answer, grade in one.answers if not grade.right and grade.words), None)
    if wrong is None or wrong[0].version is None or one.question.task != "generate":
        return []
    version, words = wrong[0].version, wrong[1].words
    question = replace(
        one.question, text=version.text, launch=version.launch, metric="correct", task="debug", broken=words, verdict=None, tried=(), offers=None
    )  # fmt: skip
    try:
        told = codec.answer(question, version_of(one.line["after"]), (words,)) + codec.end
        return [Example(codec.ask(question).prompt, told, "debug", group, held_out=False)]
    except (NotEncodable, UndecodableAnswer):
        return []


def weighted_answers(asked: Sequence[RoundQuestion], codec: Codec, section: RoundsSection) -> list[WeightedAnswer]:
    """Returns every answer of a round with its advantage over the others to its question.

    Invalid answers have reward 0.
    """
    found = []
    for one in asked:
        worth = [reward(grade, section.clip) for _, grade in one.answers]
        rewards = [0.0 if place is None else worth[place] for _, place in one.texts]
        prompt = codec.ask(one.question).prompt
        found += [
            WeightedAnswer(prompt, text, gain)
            for (text, _), gain in zip(one.texts, advantages(rewards), strict=True)
            if gain
        ]
    return found


def figures(asked: Sequence[RoundQuestion], learned: Sequence[Example | WeightedAnswer], kind: Kind, seconds: float, more: Mapping[str, Any] | None = None, clip: float = 1.5) -> RoundFigures:  # fmt: skip
    """Returns the figures of a round."""
    grades = [[grade for _, grade in one.answers] for one in asked]
    flat = [grade for group in grades for grade in group]
    rewards = [0.0 if place is None else reward(one.answers[place][1], clip) for one in asked for _, place in one.texts]
    return RoundFigures(
        kind=kind,
        questions=len(asked),
        answers=len(flat) + sum(one.unreadable for one in asked),
        readable=len(flat),
        right=sum(grade.right for grade in flat),
        better=sum(grade.right and grade.better for grade in flat),
        solved=sum(any(grade.right and grade.better for grade in group) for group in grades),
        reward=round(sum(rewards) / max(len(rewards), 1), 4),
        learned=len(learned),
        mended=sum(getattr(example, "task", "") == "debug" for example in learned),
        seconds=round(seconds, 1),
        more=more,
    )


def improve(settings: Upskill, model: ModelSection, *, seconds: float | None = None, told: OnLine = lambda line: None) -> dict[str, Any]:  # fmt: skip
    """Run the configuration's rounds with a trained model, train it after each, and store it.

    Returns the rounds' figures.

    Raises:
        UsageError: the model was not trained yet.
    """
    from kernelmate_training.torch_rounds import RoundModel

    section = settings.rounds
    begun = time.monotonic()
    codec = codec_named(model.codec)
    player = RoundModel(settings, model, told)
    kinds: list[Kind] = ["self", "contrastive"] if section.kind == "both" else [section.kind]  # type: ignore[list-item]
    rounds: list[dict[str, Any]] = []
    known: list[RoundQuestion] = []
    with Judges(settings.corpus.workers) as judges:
        for number, kind in itertools.product(range(section.rounds), kinds):
            if seconds is not None and time.monotonic() - begun > seconds:
                break
            started = time.monotonic()
            draw = player.draw_by_chance if kind == "grpo" else player.draw
            if kind == "contrastive" and not known:
                known = run_round(settings, codec, "self", number, draw, told=told, judges=judges)
            asked = run_round(settings, codec, kind, number, draw, known, told, judges)
            # Versions are shown once; the next contrastive round shows new ones.
            known = asked if kind == "self" else []
            more: Mapping[str, Any] | None
            if kind == "grpo":
                answers = weighted_answers(asked, codec, section)
                learned: Sequence[Example | WeightedAnswer] = answers
                more = player.move(answers)
            else:
                learned = examples = lessons(asked, codec, section, kind)
                more = player.train(examples, number * len(kinds) + kinds.index(kind))
            rounds.append(asdict(figures(asked, learned, kind, time.monotonic() - started, more, section.clip)))
            # The model is stored after each round, so that an interrupted next round does not lose it.
            player.keep(rounds)
            told(f"{kind} round {number}: {rounds[-1]}")
    return {"rounds": rounds}
