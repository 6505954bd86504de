"""Commands for a rented machine: sizes, time limits, and files that come back in pieces over several calls."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks import upskill_gpu
from benchmarks.upskill_hold import has_played, only, ranked, result_of, settled, spent, standing
from kernelmate.errors import KernelmateError, UsageError
from kernelmate_training.exam.records import Attempt, GoalResult
from kernelmate_training.settings import Upskill, read_settings

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "upskill"


@pytest.fixture
def ablations() -> Upskill:
    return read_settings(EXAMPLES / "ablations.toml")


def test_files_come_back_in_pieces_over_as_many_calls_as_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.setattr(upskill_gpu, "PIECE", 100)
    chance = random.Random(1)
    contents = {"a.gguf": chance.randbytes(250), "b.gguf": chance.randbytes(100), "c.gguf": chance.randbytes(431)}
    paths = [tmp_path / name for name in contents]
    for path in paths:
        path.write_bytes(contents[path.name])
    together: dict[str, bytes] = {}
    for call in range(6):
        out = tmp_path / f"out-{call}"
        out.mkdir()
        said = list(upskill_gpu.pieces_of(paths, tmp_path / "brought.json", out, 330, 3))
        pieces = sorted(out.iterdir())
        assert len(pieces) <= 3
        assert sum(piece.stat().st_size for piece in pieces) <= 330
        assert not together.keys() & {piece.name for piece in pieces}
        together |= {piece.name: piece.read_bytes() for piece in pieces}
        if not any("more pieces" in line for line in said):
            break
    assert {name: b"".join(together[piece] for piece in sorted(together) if piece.startswith(name)) for name in contents} == contents  # fmt: skip
    # What is made anew is brought anew.
    paths[1].write_bytes(b"other")
    (tmp_path / "again").mkdir()
    list(upskill_gpu.pieces_of(paths, tmp_path / "brought.json", tmp_path / "again", 330, 3))
    assert [piece.read_bytes() for piece in (tmp_path / "again").iterdir()] == [b"other"]


def test_a_hold_leaves_the_seconds_to_the_configuration_and_shrinks_everything_to_be_smoked(ablations: Upskill) -> None:
    own = settled(ablations, smoke=False)
    assert [own.plan(model).seconds for model in own.models] == [150] * 6
    assert (own.exam.run, own.rounds.kind) == (False, "none")
    assert own.rounds.prompts > 10
    assert spent(own, ["mixed-15m=5"]).plan(own.model("mixed-15m")).seconds == 150
    assert spent(own, ["mixed-15m=5"]).plan(spent(own, ["mixed-15m=5"]).model("mixed-15m")).seconds == 5
    with pytest.raises(UsageError):
        spent(own, ["nobody=5"])
    assert [model.name for model in only(own, ["mixed-15m", "mixed-35m"]).models] == ["mixed-35m", "mixed-15m"]
    assert only(own, []).models == own.models
    small = settled(ablations, smoke=True)
    assert len(small.models) == 6
    assert {small.plan(model).seconds for model in small.models} == {None}
    assert max(model.shape(model.vocabulary).parameters for model in small.models) < 100_000


def test_models_are_ranked_by_their_choices_on_held_out_families_whatever_the_exam_says(ablations: Upskill, tmp_path: Path) -> None:  # fmt: skip
    settings = ablations.model_copy(update={"folder": tmp_path})
    names = ["mixed-80m", "mixed-35m", "mixed-15m"]
    with pytest.raises(KernelmateError, match="No model was trained"):
        ranked(settings, names)
    for name, first in zip(names, (0.5, 0.75, None), strict=True):
        settings.model_folder(name).mkdir(parents=True)
        choices = "{}" if first is None else f'{{"generate": {{"first": {first}}}, "debug": {{"first": {first}}}}}'
        (settings.model_folder(name) / "kernelmate.json").write_text(f'{{"choices": {choices}}}')
    assert ranked(settings, names) == ["mixed-35m", "mixed-80m", "mixed-15m"]
    sat = GoalResult("fix-trapezoid", "trapezoid", "right", None, (Attempt("model", 0, "met", "local:mixed-80m"),))
    result_of(settings.model_folder("mixed-80m"), "emulator").write_text(json.dumps({"goals": [asdict(sat)]}))
    assert standing(settings, "mixed-80m")["met"] == 1
    assert ranked(settings, names) == ["mixed-35m", "mixed-80m", "mixed-15m"]
    assert [has_played(name) for name in ("mixed-35m", "mixed-35m-grpo", "mixed-35m-self")] == [False, True, True]
