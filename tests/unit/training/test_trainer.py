"""Training from scratch: it learns, stops and goes on, and says what goes wrong."""

from __future__ import annotations

import errno
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs the extra `train`")

from kernelmate.errors import TrainingFailed, UsageError  # noqa: E402
from kernelmate.suggest.codec import codec_named  # noqa: E402
from kernelmate_training import torch_folders  # noqa: E402
from kernelmate_training.augmentation import Augmentation, AugmentationRates  # noqa: E402
from kernelmate_training.batches import BatchPool, BatchProcessLost, Packer  # noqa: E402
from kernelmate_training.encoded import Encoded, encode  # noqa: E402
from kernelmate_training.examples import format_examples  # noqa: E402
from kernelmate_training.journal import events  # noqa: E402
from kernelmate_training.plans import (  # noqa: E402
    TASK_WEIGHTS,
    Clock,
    TrainingPlan,
)
from kernelmate_training.shapes import Shape  # noqa: E402
from kernelmate_training.torch_device import RunProcess  # noqa: E402
from kernelmate_training.torch_feed import Feed  # noqa: E402
from kernelmate_training.torch_llama import Llama, mask_of  # noqa: E402
from kernelmate_training.torch_trainer import Trained, Trainer  # noqa: E402
from kernelmate_training.vocabulary import train_tokenizer  # noqa: E402

CPU = RunProcess(torch.device("cpu"))


def plan(**more: Any) -> TrainingPlan:
    return TrainingPlan(**{"steps": 12, "tokens_per_step": 128, "log_steps": 1, "rate": 3e-3, "held_out_s": 0, **more})


def train(folder: Path, data: Encoded, shape: Shape, how: TrainingPlan, **more: Any) -> Trained:
    return Trainer(how, shape, data, None, folder, CPU, **more).run()


def losses(folder: Path) -> dict[int, float]:
    return {event["step"]: event["loss"] for event in events(folder / "log.jsonl", "step")}


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_the_loss_on_answers_falls(tmp_path: Path, reversals: Encoded, tiny: Shape, optimiser: Any) -> None:
    done = train(tmp_path, reversals, tiny, plan(steps=40, optimiser=optimiser, rate=5e-3))
    curve = losses(tmp_path)
    assert done.finished
    assert curve[40] < 0.85 * curve[1]
    assert curve[1] == pytest.approx(np.log(48), rel=0.1)


@pytest.mark.parametrize("cut", [1, 5, 11])
def test_a_run_that_was_cut_goes_on_as_if_it_had_not_been(tmp_path: Path, reversals: Encoded, tiny: Shape, cut: int) -> None:  # fmt: skip
    train(tmp_path / "whole", reversals, tiny, plan())
    looks = itertools.count()
    first = train(tmp_path / "cut", reversals, tiny, plan(), stop=lambda: next(looks) >= cut)
    assert not first.finished
    assert first.step == cut
    second = train(tmp_path / "cut", reversals, tiny, plan())
    assert second.finished
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")


VARIED = plan(steps=14, dropout=0.1, held_out_steps=2, patience=3, augment={"names": 1.0, "facts": 0.3, "numbers": 0.5}, checkpoint_s=0.0, optimiser="adamw")  # fmt: skip


@pytest.fixture(scope="module")
def pairs() -> tuple[Encoded, Shape, Augmentation]:
    """Real pairs by the codec of programs, a shape that takes them, and what varies them."""
    path = Path(__file__).resolve().parents[2] / "data" / "upskill" / "pairs.jsonl"
    codec = codec_named("mixed-2")
    examples = format_examples(path.read_text().splitlines()[:8], "mixed-2", processes=1).examples
    texts = (text for one in examples for text in (one.prompt, one.answer))
    tokenizer = train_tokenizer(texts, codec.vocabulary(), codec.end, 1400)
    data, _ = encode(examples, tokenizer, 512)
    shape = Shape(tokenizer.get_vocab_size(), hidden=32, layers=2, heads=2, kv_heads=1, feed_forward=64, context=512)
    return data, shape, Augmentation(AugmentationRates.of(VARIED.augment), tokenizer.to_str())


@pytest.mark.parametrize("cut", [1, 6, 11])
def test_a_run_with_dropout_variation_and_early_stopping_goes_on_as_if_it_had_not_been_cut(tmp_path: Path, pairs: Any, cut: int) -> None:  # fmt: skip
    data, shape, varying = pairs
    how = replace(VARIED, tokens_per_step=1024)

    def go(name: str, **more: Any) -> Trained:
        return Trainer(how, shape, data, data, tmp_path / name, CPU, varying=varying, **more).run()

    def held_out(name: str) -> dict[int, float]:
        return {event["step"]: event["loss"] for event in events(tmp_path / name / "log.jsonl", "held-out")}

    whole = go("whole")
    looks = itertools.count()
    assert not go("cut", stop=lambda: next(looks) >= cut).finished
    second = go("cut")
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert held_out("cut") == held_out("whole")
    assert (second.step, second.best_step, second.held_out) == (whole.step, whole.best_step, whole.held_out)
    one, other = second.model.state_dict(), whole.model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_that_learns_no_more_ends_early_with_the_model_that_did_best(tmp_path: Path, reversals: Encoded, tiny: Shape) -> None:  # fmt: skip
    # What is held out has other answers than what is learned, so that every step makes it worse after a while.
    held_out = Encoded(np.where(reversals.tokens > 3, 43 - reversals.tokens, reversals.tokens), reversals.starts, reversals.answers, reversals.tasks)  # fmt: skip
    how = plan(steps=400, rate=1e-2, held_out_steps=2, patience=3, optimiser="adamw")
    done = Trainer(how, tiny, reversals, held_out, tmp_path, CPU).run()
    looks = list(events(tmp_path / "log.jsonl", "held-out"))
    smoothed = {look["step"]: look["smoothed"] for look in looks}
    assert done.finished
    assert done.step < 400
    assert done.best_step == min(smoothed, key=smoothed.__getitem__)
    assert list(events(tmp_path / "log.jsonl", "step"))[-1]["rate"] < 0.2 * 1e-2
    again = Trainer(how, tiny, reversals, held_out, tmp_path / "other", CPU, start=done.model.state_dict())
    again._look_at_held_out(Clock(None, 1.0), 0.0)
    assert again.watch.loss == pytest.approx(next(look["loss"] for look in looks if look["step"] == done.best_step))
    assert set(looks[0]["tasks"]) == {"generate", "analyse", "debug"}


def test_batches_of_other_processes_are_those_of_this_one(tmp_path: Path, pairs: Any) -> None:
    data, shape, varying = pairs
    packer = Packer(data, 2, shape.context, TASK_WEIGHTS, 1, varying=varying)
    alone, helped = (Feed(packer, CPU, 1, bounds=False, workers=workers).steps(3) for workers in (0, 2))
    for one, other in itertools.islice(zip(alone, helped, strict=False), 6):
        assert one.filled == other.filled
        for mine, theirs in zip(one.portions, other.portions, strict=True):
            assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    alone.close()
    helped.close()


def test_a_lost_process_is_said_and_its_batches_are_made_here(pairs: Any) -> None:
    data, shape, _ = pairs
    packer = Packer(data, 2, shape.context, TASK_WEIGHTS, 1)
    said: list[str] = []
    steps = Feed(packer, CPU, 1, bounds=False, workers=1, told=said.append).steps(0)
    next(steps)
    for child in multiprocessing.active_children():
        child.kill()
    made = [step.filled for step in itertools.islice(steps, 16)]
    steps.close()
    alone = Feed(packer, CPU, 1, bounds=False).steps(1)
    assert made == [step.filled for step in itertools.islice(alone, 16)]
    alone.close()
    assert said
    assert "was lost" in said[0]


def test_a_process_that_is_lost_while_it_hands_over_stops_nobody(pairs: Any) -> None:
    """More than a pipe holds is half written when it is killed."""
    data, shape, _ = pairs
    packer = Packer(data, 2, shape.context, TASK_WEIGHTS, 1)
    rows = next(packer.steps(0))
    with BatchPool(packer, 1) as pool:
        coming = pool.asked([(rows, (0, 0))] * 2000)
        assert coming is not None
        (child,) = multiprocessing.active_children()
        assert coming.pipe.poll(60)
        child.kill()
        with pytest.raises(BatchProcessLost):
            coming.result()


def test_dropout_is_for_training_alone(tiny: Shape) -> None:
    model = Llama(tiny)
    tokens = torch.randint(4, 40, (1, 8))

    def stream() -> Any:
        return model(tokens, torch.arange(8)[None], mask_of(torch.zeros_like(tokens)))

    model.drop(0.5)
    assert not torch.equal(stream(), stream())
    model.eval()
    assert torch.equal(stream(), stream())


def test_a_damaged_checkpoint_is_said_and_the_one_before_it_taken(tmp_path: Path, reversals: Encoded, tiny: Shape) -> None:  # fmt: skip
    train(tmp_path, reversals, tiny, plan(steps=12, checkpoint_s=0.0), stop=iter([False] * 8 + [True] * 9).__next__)
    newest = max(tmp_path.glob("step-*.pt"))
    newest.write_bytes(newest.read_bytes()[:-1000])
    before = losses(tmp_path)
    train(tmp_path, reversals, tiny, plan(steps=12))
    said = list(events(tmp_path / "log.jsonl", "damaged checkpoint"))
    resumed = list(events(tmp_path / "log.jsonl", "resume"))
    assert newest.name in said[0]["file"]
    assert resumed[0]["step"] == 7
    assert {step: loss for step, loss in losses(tmp_path).items() if step in before} == before


def test_a_full_disk_ends_no_run_and_costs_no_checkpoint(tmp_path: Path, reversals: Encoded, tiny: Shape, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    train(tmp_path, reversals, tiny, plan(steps=3))
    kept = {path.name: path.read_bytes() for path in tmp_path.glob("step-*")}

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(torch_folders.torch, "save", full)
    done = train(tmp_path, reversals, tiny, plan(steps=6))
    assert done.finished
    assert done.step == 6
    assert {path.name: path.read_bytes() for path in tmp_path.glob("step-*")} == kept
    said = list(events(tmp_path / "log.jsonl", "not saved"))
    assert "No space left on device" in said[-1]["why"]


def test_a_loss_that_is_no_number_goes_back_and_then_names_the_last_good_checkpoint(tmp_path: Path, reversals: Encoded, tiny: Shape) -> None:  # fmt: skip
    train(tmp_path, reversals, tiny, plan(steps=4))
    trainer = Trainer(plan(steps=12), tiny, reversals, None, tmp_path, CPU)
    spoiled = trainer._loss

    def no_number(*parts: Any) -> Any:
        return spoiled(*parts) * (float("nan") if trainer.step >= 6 else 1.0)

    trainer._loss = no_number
    with pytest.raises(TrainingFailed, match=r"step-000000004\.pt"):
        trainer.run()
    assert len(list(events(tmp_path / "log.jsonl", "loss is not a number"))) == 3
    assert torch_folders.newest(tmp_path).state["step"] == 4


def test_a_run_by_the_clock_ends_when_its_seconds_are_spent(tmp_path: Path, reversals: Encoded, tiny: Shape) -> None:
    done = train(tmp_path, reversals, tiny, plan(steps=None, seconds=3.0))
    assert done.finished
    assert 3.0 <= done.seconds < 8.0
    assert list(events(tmp_path / "log.jsonl", "step"))[-1]["rate"] < 3e-3


def test_checkpoints_of_another_run_are_refused(tmp_path: Path, reversals: Encoded, tiny: Shape) -> None:
    train(tmp_path, reversals, tiny, plan(steps=1))
    with pytest.raises(UsageError, match="another shape or another plan"):
        train(tmp_path, reversals, tiny, plan(steps=2, seed=2))


def test_a_checkpoint_can_run_no_code(tmp_path: Path) -> None:
    class Bad:
        def __reduce__(self) -> Any:
            return (os.system, (f"touch {tmp_path}/owned",))

    torch_folders.save(tmp_path, 1, {"step": 1})
    path = torch_folders.save(tmp_path, 2, {"step": Bad()})
    found = torch_folders.newest(tmp_path)
    assert found.state["step"] == 1
    assert path.name in found.damaged[0]
    assert not (tmp_path / "owned").exists()


TWO = """
import sys, numpy as np, torch
from pathlib import Path
from kernelmate_training.encoded import load_encoded
from kernelmate_training.plans import TrainingPlan
from kernelmate_training.shapes import Shape
from kernelmate_training.torch_device import place
from kernelmate_training.torch_trainer import Trainer
torch.set_num_threads(1)
how = TrainingPlan(steps=6, tokens_per_step=128, log_steps=1, rate=3e-3, held_out_s=0)
shape = Shape(48, hidden=32, layers=2, heads=2, kv_heads=1, feed_forward=64, context=32)
with place("auto") as here:
    Trainer(how, shape, load_encoded(Path(sys.argv[1])), None, Path(sys.argv[2]), here).run()
"""


def test_two_processes_learn_what_one_does(tmp_path: Path, reversals: Encoded, tiny: Shape) -> None:
    reversals.save(tmp_path / "data.npz")
    (tmp_path / "two.py").write_text(TWO)
    # A process that could not join the other one, as once on a busy machine, is started again; a run goes on where it was.
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    command = [*torchrun, str(tmp_path / "two.py"), str(tmp_path / "data.npz"), str(tmp_path / "two")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    train(tmp_path / "one", reversals, tiny, plan(steps=6))
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert two.keys() == one.keys()
    assert [two[step] for step in one] == pytest.approx([one[step] for step in one], rel=1e-4)


def test_the_log_has_speed_and_is_json_throughout(tmp_path: Path, reversals: Encoded, tiny: Shape) -> None:
    train(tmp_path, reversals, tiny, plan(steps=2))
    kinds = [json.loads(line)["event"] for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert kinds == ["start", "first step", "step", "step", "end"]
    *_, step = events(tmp_path / "log.jsonl", "step")
    assert step["tokens_per_s"] > 0
    assert step["mfu"] is None
