"""Policy gradient on answers in groups: what paid becomes likelier, by no more than the clipped ratio lets it, near the reference."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

torch = pytest.importorskip("torch", reason="rounds need the extra `train`")

from kernelmate_training.rewards import WeightedAnswer, advantages  # noqa: E402
from kernelmate_training.shapes import Shape  # noqa: E402
from kernelmate_training.torch_grpo import GroupRelative, Policy, token_losses  # noqa: E402
from kernelmate_training.torch_llama import Llama  # noqa: E402
from kernelmate_training.torch_sampling import Drawing, continuation_logprobs, sample  # noqa: E402

PROMPT, WANTED, OTHER, END = "<|ask|>float x", "<v1>", "<v2>", "<|end|>"


@pytest.fixture
def model(tokenizer: Any) -> Any:
    torch.manual_seed(3)
    shape = Shape(tokenizer.get_vocab_size(), hidden=32, layers=2, heads=2, kv_heads=2, feed_forward=64, context=48)
    return Llama(shape).eval()


def chance(model: Any, tokenizer: Any, token: str = WANTED) -> float:
    return math.exp(continuation_logprobs(model, tokenizer, [PROMPT], [token])[0][token])


def pair(first: float = 1.0, second: float = -1.0) -> list[WeightedAnswer]:
    return [WeightedAnswer(PROMPT, WANTED + END, first), WeightedAnswer(PROMPT, OTHER + END, second)]


def test_a_reward_that_prefers_a_token_raises_its_chance_over_rounds_of_drawing(model: Any, tokenizer: Any) -> None:
    ends = GroupRelative(model, tokenizer, Policy(rate=3e-3, kl=0.0, passes=2, batch=16))
    before, seen = chance(model, tokenizer), []
    for number in range(25):
        drawn = sample(model, tokenizer, [PROMPT], Drawing(k=48, temperature=1.0, seed=number, most_tokens=1))
        rewards = [1.0 if one.text.startswith(WANTED) else 0.0 for one in drawn]
        # Of a vocabulary of hundreds the token may not come by chance in the first rounds: then another one is put to it.
        texts = [one.text for one in drawn] + [WANTED]
        gains = advantages([*rewards, 1.0])
        ends.learn([WeightedAnswer(PROMPT, text, gain) for text, gain in zip(texts, gains, strict=True)])
        seen.append(chance(model, tokenizer))
    assert before < 0.02
    assert seen[-1] > 0.5
    assert seen[-1] > 5 * seen[0]


def test_what_was_worse_than_its_group_becomes_less_likely(model: Any, tokenizer: Any) -> None:
    better, worse = chance(model, tokenizer), chance(model, tokenizer, OTHER)
    moved = GroupRelative(model, tokenizer, Policy(rate=1e-3, kl=0.0, passes=1)).learn(pair())
    assert moved.steps == 1
    assert chance(model, tokenizer) > better
    assert chance(model, tokenizer, OTHER) < worse


def test_a_clipped_ratio_bounds_the_step(model: Any, tokenizer: Any) -> None:
    before = chance(model, tokenizer)
    moved, cut = {}, {}
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for clip in (0.1, 0.9):
        model.load_state_dict(start)
        cut[clip] = (
            GroupRelative(model, tokenizer, Policy(rate=1e-3, clip=clip, kl=0.0, passes=30)).learn(pair()).clipped
        )
        moved[clip] = chance(model, tokenizer) / before
    # What is past the bound is moved no further but by the momentum of the steps before.
    assert 1.1 < moved[0.1] < 1.6
    assert moved[0.9] > 1.15 * moved[0.1]
    assert cut[0.1] > cut[0.9]


def test_the_distance_to_the_reference_holds_the_model_back(model: Any, tokenizer: Any) -> None:
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    distances = []
    for kl in (0.0, 5.0):
        model.load_state_dict(start)
        ends = GroupRelative(model, tokenizer, Policy(rate=2e-3, clip=0.9, kl=kl, passes=10))
        distances.append([ends.learn(pair()).distance for _ in range(4)][-1])
    assert distances[1] < 0.5 * distances[0]


def test_answers_without_advantage_and_those_without_room_move_nothing(model: Any, tokenizer: Any) -> None:
    start = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    ends = GroupRelative(model, tokenizer, Policy())
    assert ends.learn(pair(0.0, 0.0)).steps == 0
    assert ends.learn([WeightedAnswer(PROMPT, WANTED * 60, 1.0)]).steps == 0
    assert all(torch.equal(tensor, start[name]) for name, tensor in model.state_dict().items())


@given(
    some.floats(-3, 3, width=32), some.floats(-3, 3, width=32), some.sampled_from([-2.0, -0.5, 0.5, 2.0]), some.floats(0.05, 0.5)
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_tokens_objective_is_the_papers(now: float, drawn: float, advantage: float, clip: float) -> None:
    here = torch.tensor([[now]], dtype=torch.float64, requires_grad=True)
    then = torch.tensor([[drawn]], dtype=torch.float64)
    worth = torch.tensor([[advantage]], dtype=torch.float64)
    losses, cut, distance = token_losses(here, then, then, worth, Policy(clip=clip, kl=0.0))
    ratio = math.exp(now - drawn)
    wanted = min(ratio * advantage, min(max(ratio, 1 - clip), 1 + clip) * advantage)
    assert float(losses.detach()) == pytest.approx(-wanted)
    assert float(distance.detach()) == pytest.approx(math.exp(drawn - now) - (drawn - now) - 1, abs=1e-9)
    losses.sum().backward()
    past = (advantage > 0 and ratio > 1 + clip) or (advantage < 0 and ratio < 1 - clip)
    assert bool(cut) == past
    assert here.grad is not None
    assert (float(here.grad) == 0.0) == past
