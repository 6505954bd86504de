"""Model cards: figures as people read them, and nothing of what is not known."""

from __future__ import annotations

from kernelmate_training.card import card_of

FACTS = {
    "name": "small",
    "codec": "mixed-2",
    "parameters": 15_050_496,
    "steps": 1500,
    "loss": 0.30331232845783235,
    "finished": True,
    "corpus": {
        "lines": 21531,
        "train": {"examples": 17821, "tokens": 4329558, "by_task": {"generate": 8829, "debug": 5180}},
    },
    "choices": {"debug": {"questions": 283.0, "first": 0.8587, "three": 0.9505}},
    "rounds": [{"kind": "self", "answers": 246, "right": 193, "better": 63, "learned": 53, "judged_on": "emulated"}],
}


def test_a_card_tells_data_training_choices_and_rounds_as_people_read_them() -> None:
    card = card_of(FACTS).splitlines()
    assert "- steps: 1,500" in card
    assert "- last training loss: 0.3033" in card
    assert "- came to its planned end: yes" in card
    assert "- good choices on held-out families, debug: 85.9% of 283 first choices, 95.0% with one among three" in card
    assert (
        "- a round on judged answers of its own: self, 246 answers, 193 right, 63 better, 53 learned; gains emulated"
        in card
    )
    assert any(
        "21,531 lines, 17,821 examples to learn (generate 8,829, debug 5,180), 4,329,558 tokens." in line
        for line in card
    )


def test_what_is_not_known_stands_on_no_card() -> None:
    card = card_of({"name": "bare", "codec": "mixed-2"})
    assert [word for word in ("rounds", "choices", "None") if word in card] == []
    assert [word for word in ("size unknown", "none told") if word not in card] == []
