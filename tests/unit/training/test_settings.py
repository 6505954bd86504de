"""The configuration: what it may say, and what is said of mistakes in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.errors import UsageError
from kernelmate_training.estimating import estimate
from kernelmate_training.plans import Clock, Schedule
from kernelmate_training.settings import Upskill, read_settings

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "upskill"
LEAST = 'name = "x"\nfolder = "w"\n[training]\nsteps = 3\n[[models]]\nname = "m"\n'


def read(tmp_path: Path, text: str) -> Upskill:
    path = tmp_path / "c.toml"
    path.write_text(text)
    return read_settings(path)


@pytest.mark.parametrize("name", ["tiny", "starter", "ablations", "qwen2.5-coder-3b"])
def test_the_examples_are_read_and_estimated(name: str) -> None:
    settings = read_settings(EXAMPLES / f"{name}.toml")
    on_gpu = estimate(settings, ("NVIDIA H200",) * 4, cores=64)
    assert on_gpu.seconds > 0
    assert on_gpu.dollars > 0


def test_the_ablations_differ_from_one_model_in_one_thing_each_and_get_the_same_steps() -> None:
    settings = read_settings(EXAMPLES / "ablations.toml")
    plans = [settings.plan(model) for model in settings.models]
    assert {(plan.steps, plan.seconds) for plan in plans} == {(500, 150)}
    base = settings.model("mixed-35m")
    sizes = ("hidden", "layers", "heads", "feed_forward")
    for model in settings.models:
        differ = {name for name, value in model.model_dump().items() if value != getattr(base, name)} - {"name"}
        assert differ <= {"codec"} or differ <= {"share"} or differ <= set(sizes)
    assert {model.codec for model in settings.models} == {"mixed-2", "mixed-2-plain"}
    assert sorted(model.share for model in settings.models)[:3] == [0.25, 0.5, 1.0]
    counted = sorted({round(model.shape(model.vocabulary).parameters / 1e6) for model in settings.models})
    assert len(counted) == 3
    assert (counted[0] < 20, 75 < counted[-1] < 85) == (True, True)


def test_every_step_of_the_tiny_configuration_is_estimated_and_grows_with_what_is_asked() -> None:
    settings = read_settings(EXAMPLES / "tiny.toml")

    def lines(changed: Upskill) -> dict[str, float]:
        return {line.step: line.seconds or 0.0 for line in estimate(changed, (), cores=2).lines}

    before = lines(settings)
    assert list(before) == ["corpus", "tiny-mixed", "rounds", "exam"]
    assert 60 < sum(before.values()) < 180
    more = settings.model_copy(
        update={
            "corpus": settings.corpus.model_copy(update={"pairs": 200}),
            "training": settings.training.model_copy(update={"steps": 300}),
            "exam": settings.exam.model_copy(update={"k": 8}),
        }
    )
    after = lines(more)
    assert all(after[step] > 1.2 * before[step] for step in ("corpus", "tiny-mixed", "exam"))


def test_the_starter_takes_ten_minutes_on_four_gpus_and_fits_into_the_wheel() -> None:
    settings = read_settings(EXAMPLES / "starter.toml")
    assert estimate(settings, ("NVIDIA H200",) * 4, cores=64).seconds < 600
    starter = settings.models[0]
    assert starter.shape(starter.vocabulary).parameters * 34 / 32 < 40e6


def test_qwen_fits_on_a_24_gb_gpu_and_in_four_bits_on_a_smaller_one() -> None:
    settings = read_settings(EXAMPLES / "qwen2.5-coder-3b.toml")
    assert settings.finetune is not None
    assert (settings.finetune.rank, settings.finetune.alpha, settings.finetune.epochs) == (32, 64, 5)
    line = estimate(settings, ("NVIDIA H100 80GB HBM3",)).lines[-1]
    assert line.memory is not None
    assert 8e9 < line.memory < 24e9
    small = settings.model_copy(update={"finetune": settings.finetune.model_copy(update={"quantised": True})})
    assert estimate(small, ("NVIDIA H100 80GB HBM3",)).lines[-1].memory < 0.75 * line.memory


def test_paths_are_from_the_files_folder(tmp_path: Path) -> None:
    assert read(tmp_path, LEAST).folder == tmp_path / "w"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("[training]\nsteps = 3", "[training] needs steps or seconds"),
        ("hidden = 100\nheads = 3", "must be an even multiple of heads"),
        ("layers = 0", "models.0.layers"),
        ("colour = 1", "models.0.colour"),
        ('[[models]]\nname = "m"', "two models have the same name"),
    ],
)
def test_mistakes_are_named(tmp_path: Path, change: str, said: str) -> None:
    text = LEAST.replace(change, "") if change.startswith("[training]") else LEAST + change + "\n"
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)
    assert "c.toml" in str(caught.value)


def test_what_a_model_says_of_training_wins(tmp_path: Path) -> None:
    settings = read(tmp_path, LEAST + "training = { steps = 9, rate = 1e-4 }\n")
    plan = settings.plan(settings.models[0])
    assert (plan.steps, plan.rate) == (9, 1e-4)


def test_the_settings_come_back_from_their_json(tmp_path: Path) -> None:
    settings = read(tmp_path, LEAST)
    path = tmp_path / "settings.json"
    path.write_text(settings.model_dump_json())
    assert read_settings(path) == settings


@pytest.mark.parametrize("form", ["wsd", "cosine"])
def test_the_rate_rises_then_falls_to_the_last(form: str) -> None:
    schedule = Schedule(form=form, warmup=0.1, decay=0.5, final=0.05)  # type: ignore[arg-type]
    factors = [schedule.factor(at / 100) for at in range(101)]
    top = factors.index(max(factors))
    assert max(factors) == pytest.approx(1.0)
    assert factors[:top] == sorted(factors[:top])
    assert factors[top:] == sorted(factors[top:], reverse=True)
    assert factors[-1] == pytest.approx(0.05)


def test_a_clock_counts_progress_from_the_first_step_and_ends_with_the_seconds() -> None:
    now = [100.0]
    clock = Clock(None, 50.0, now=lambda: now[0])
    now[0] = 110.0
    assert clock.progress(0) == 0.0
    clock.warm()
    now[0] = 130.0
    assert clock.progress(5) == pytest.approx(0.5)
    now[0] = 150.0
    assert clock.progress(9) == 1.0
    resumed = Clock(None, 50.0, spent=30.0, lead=10.0, now=lambda: now[0])
    assert resumed.progress(5) == pytest.approx(0.5)
