"""A kernel of the exam in a corpus is found, whatever its names and layout."""

from __future__ import annotations

import hashlib
import json
import lzma
import re
from pathlib import Path

import pytest

from kernelmate.errors import SourceError
from kernelmate.suggest.local.starter import FOLDER
from kernelmate_training.corpus.families import registry
from kernelmate_training.corpus.group_processing import draw_group
from kernelmate_training.corpus_files import PACKED
from kernelmate_training.exam.similarity import exam_texts, hold_against, nearest_of
from kernelmate_training.examples import lines_of

STARTERS = Path(__file__).parents[4] / "benchmarks" / "data" / "corpus"
"""Corpus of the shipped model."""


def corpus_of(folder: Path, *texts: str) -> Path:
    rows = [{"before": {"source": text}, "after": {"source": text}, "family": "f"} for text in texts]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_renamed_kernel_of_the_exam_is_found_in_a_corpus(tmp_path: Path) -> None:
    text = exam_texts()["kmeans_assign"]
    renamed = re.sub(r"\bclusters\b", "groups", re.sub(r"//.*", "", text)).replace("    ", "\t").replace("512", "64")
    report = nearest_of(corpus_of(tmp_path, "__global__ void f(float* a) { a[0] = 1.0f; }", renamed))
    assert report.texts == 2
    assert [(place, one.name) for place, one in report.near] == [("corpus.jsonl:2 before", "kmeans_assign")]
    assert "1 overlap by 80%" in next(report.lines())


def test_other_kernels_are_not_near_and_the_nearest_are_told(tmp_path: Path) -> None:
    report = nearest_of(
        corpus_of(tmp_path, "__global__ void f(float* a, int n) { int i = threadIdx.x; if (i < n) a[i] = 1.0f; }")
    )
    assert report.near == ()
    assert len(report.nearest) == 1
    assert 0 < report.nearest[0][1].overlap < 0.5


def test_every_kernel_of_the_exam_is_near_itself() -> None:
    texts = exam_texts()
    assert {one.name for _, one in hold_against(texts.items()).near} == set(texts)


@pytest.mark.parametrize("line", ["{", "[]", '{"before": {}}'])
def test_a_line_that_is_no_example_is_named(line: str, tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_text(f"\n{line}\n")
    with pytest.raises(SourceError, match=r"corpus\.jsonl:2: this line is not an example"):
        nearest_of(tmp_path)
    with pytest.raises(SourceError, match="There is no corpus"):
        nearest_of(tmp_path / "elsewhere")


def test_a_packed_corpus_is_held_against_the_exam_as_well(tmp_path: Path) -> None:
    plain = corpus_of(tmp_path, exam_texts()["kmeans_assign"])
    packed = tmp_path / "packed"
    packed.mkdir()
    (packed / PACKED).write_bytes(lzma.compress((plain / "corpus.jsonl").read_bytes()))
    assert [one.name for _, one in nearest_of(packed).near] == ["kmeans_assign"]
    (packed / PACKED).write_bytes((packed / PACKED).read_bytes()[:-20])
    with pytest.raises(SourceError, match="cannot be unpacked"):
        nearest_of(packed)


@pytest.mark.exhaustive(share=0.2)
def test_what_the_starter_learned_from_is_what_its_card_says_and_holds_no_kernel_of_the_exam() -> None:
    lines = lines_of(STARTERS)
    assert {json.loads(line)["judged_on"] for line in lines} == {"measured"}
    learned = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert f"SHA-256 of the corpus: `{learned}`" in (FOLDER / "CARD.md").read_text(encoding="utf-8")
    report = nearest_of(STARTERS)
    assert report.texts > 10_000
    assert report.near == ()


@pytest.mark.exhaustive(share=0.2)
def test_no_kernel_of_the_exam_or_near_duplicate_of_one_is_in_what_the_corpus_draws() -> None:
    families = list(registry().values())
    groups = [
        draw_group(family, number, seed) for family in families for number, seed in enumerate((2026, 7, 99, 4, 5))
    ]
    texts = [(f"{group.name} {place}", text) for group in groups for place, text in enumerate(group.texts)]
    broken = [
        (f"{group.name} broken {place}", one.broken.text) for group in groups for place, one in enumerate(group.repairs)
    ]
    assert len(families) >= 60
    assert len(texts) > 1000
    report = hold_against([*texts, *broken])
    assert report.near == ()
