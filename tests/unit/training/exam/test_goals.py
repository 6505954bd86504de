"""The exam is large enough, says what it asks for, and does not change without saying so."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelmate.decide.objective import read_objective
from kernelmate.errors import SourceError
from kernelmate.source import load_kernels, parse_contract
from kernelmate_training.exam import goals as frozen
from kernelmate_training.exam.goals import FROZEN, KERNELS, exam_hash, load_exam
from kernelmate_training.overlap import Overlaps, overlap

ROOT = Path(__file__).resolve().parents[4]
EXAM = load_exam()
FILES = sorted(KERNELS.glob("*.cu"))


def test_there_are_enough_kernels_and_goals() -> None:
    assert len(FILES) >= 32
    assert len(EXAM.goals) >= 64
    assert len({goal.name for goal in EXAM.goals}) == len(EXAM.goals)
    assert {goal.kernel for goal in EXAM.goals} == {path.stem for path in FILES}


def test_every_version_of_the_exam_is_known_by_its_hash_and_this_one_is_unchanged() -> None:
    assert FROZEN[EXAM.version] == exam_hash(), "the exam has changed: raise its version and add the new hash"
    assert max(FROZEN) == EXAM.version
    assert len(set(FROZEN.values())) == len(FROZEN)


@pytest.mark.parametrize("changed", ["kernels/sobel_tile.cu", "kernels/reference.py", "goals.toml"])
def test_the_hash_tells_a_change_of_any_file(changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(KERNELS, tmp_path / "kernels")
    shutil.copy(frozen.GOALS, tmp_path)
    monkeypatch.setattr(frozen, "KERNELS", tmp_path / "kernels")
    monkeypatch.setattr(frozen, "GOALS", tmp_path / "goals.toml")
    before = exam_hash()
    path = tmp_path / changed
    text = path.read_text()
    path.write_text(text.replace("\n", "\r\n"), newline="")
    assert exam_hash() == before  # a checkout with other line ends is the same exam
    path.write_text(text + " ")
    assert exam_hash() != before


@pytest.mark.parametrize("goal", EXAM.goals, ids=lambda goal: goal.name)
def test_the_users_words_are_read_as_the_goals_metric(goal: frozen.Goal) -> None:
    assert read_objective(goal.prompt).metric == goal.metric


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_kernel_has_a_contract_with_a_reference_and_sizes_of_all_kinds(path: Path) -> None:
    (kernel,) = load_kernels(path)
    contract = parse_contract(kernel)
    assert contract is not None
    assert contract.reference
    assert len(contract.sizes) >= 3


def test_goals_are_chosen_by_their_own_name_or_their_kernels() -> None:
    chosen = load_exam(("jacobi7", "kmeans-time"))
    assert {goal.kernel for goal in chosen.goals} == {"jacobi7", "kmeans_assign"}
    assert chosen.sha256 == EXAM.sha256
    with pytest.raises(SourceError, match="no goal and no kernel 'softmax'"):
        load_exam(("softmax",))


def test_no_kernel_is_nearly_one_that_stands_elsewhere_in_the_repository() -> None:
    folders = (ROOT / "examples", ROOT / "tests" / "data", ROOT / "benchmarks")
    found = [
        path
        for folder in folders
        for path in folder.rglob("*.cu")
        if ROOT / "tests" / "data" / "exam" not in path.parents
    ]
    overlaps = Overlaps({str(path): path.read_text(encoding="utf-8") for path in found})
    assert len(found) > 60
    for path in FILES:
        nearest = overlaps.nearest(path.read_text(encoding="utf-8"))
        assert nearest.overlap < 0.6, (path.stem, nearest)


def test_no_two_kernels_of_the_exam_are_nearly_the_same() -> None:
    texts = {path.stem: path.read_text(encoding="utf-8") for path in FILES}
    pairs = ((one, other) for one in texts for other in texts if one < other)
    assert max(overlap(texts[one], texts[other]) for one, other in pairs) < 0.6
