from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.decide.metrics import METRICS, better, metric_value
from kernelmate.decide.objective import read_objective
from kernelmate.errors import UsageError


@pytest.mark.parametrize(
    ("prompt", "metric"),
    [
        ("use less shared memory", "shared_bytes"),
        ("less smem please", "shared_bytes"),
        ("it spills", "local_bytes"),
        ("get rid of the register spilling", "local_bytes"),
        ("fewer registers", "registers"),
        ("reduce register pressure", "registers"),
        ("make it faster", "time"),
        ("Speed up!", "time"),
        ("faster on H100", "time"),
        ("it is too slow", "time"),
        ("improve performance", "time"),
        ("optimize", "time"),
        ("reduce bandwidth", "global_bytes"),
        ("less DRAM traffic", "global_bytes"),
        ("better coalescing", "global_bytes"),
        ("increase occupancy", "occupancy"),
        ("more accurate", "accuracy"),
        ("reduce the rounding errors", "accuracy"),
    ],
)
def test_words_name_a_metric(prompt: str, metric: str) -> None:
    assert read_objective(prompt).metric == metric


@pytest.mark.parametrize(
    ("prompt", "metric"),
    [
        ("USE LESS SHARD MEMORY", "shared_bytes"),
        ("fewer regsters", "registers"),
        ("incrase occupency", "occupancy"),
        ("make it fastr", "time"),
        ("reduce bandwith", "global_bytes"),
    ],
)
def test_case_and_typing_mistakes_do_not_matter(prompt: str, metric: str) -> None:
    assert read_objective(prompt).metric == metric


@pytest.mark.parametrize(
    ("prompt", "metric"),
    [
        ("mach es schneller", "time"),
        ("weniger gemeinsamen Speicher", "shared_bytes"),
        ("weniger Register", "registers"),
        ("plus rapide s'il te plaît", "time"),
        ("réduire la mémoire partagée", "shared_bytes"),
        ("más rápido", "time"),
        ("menos ancho de banda", "global_bytes"),
        ("让它更快", "time"),
        ("减少共享内存", "shared_bytes"),
        ("提高占用率", "occupancy"),
        ("レジスタを減らす", "registers"),
    ],
)
def test_other_languages_are_read_for_their_commonest_words(prompt: str, metric: str) -> None:
    assert read_objective(prompt).metric == metric


def test_memory_means_what_the_kernel_uses(verdict) -> None:
    shared = read_objective("reduce memory usage", verdict(shared_bytes=1024))
    dynamic = read_objective("reduce memory usage", verdict(shared_bytes=0, dynamic_shared_bytes=512))
    local = read_objective("reduce memory usage", verdict(shared_bytes=0, local_bytes=64))
    moved = read_objective("reduce memory usage", verdict(shared_bytes=0))
    assert [o.metric for o in (shared, dynamic, local, moved)] == [
        "shared_bytes",
        "shared_bytes",
        "local_bytes",
        "global_bytes",
    ]
    assert "1024 bytes" in shared.reading
    assert "global bytes moved" in moved.reading


def test_optimizing_memory_is_about_memory_and_not_about_time() -> None:
    assert read_objective("optimize memory usage").metric == "shared_bytes"


def test_what_is_not_understood_is_refused_and_told_what_can_be_asked() -> None:
    with pytest.raises(UsageError, match="Nothing in the prompt was understood") as refused:
        read_objective("make it nice")
    assert "at most 32 registers" in str(refused.value.hint)


def test_two_wishes_become_time_with_the_other_as_a_limit() -> None:
    objective = read_objective("make it faster and use fewer registers")
    assert objective.metric == "time"
    assert objective.limits == {"registers": 0.0}
    assert "registers per thread" in objective.reading


def test_a_means_is_no_second_wish() -> None:
    assert read_objective("make it faster by using more shared memory").limits == {}


def test_without_names_what_must_not_get_worse() -> None:
    objective = read_objective("less shared memory without losing speed")
    assert objective.metric == "shared_bytes"
    assert objective.limits == {"time": 0.0}


@pytest.mark.parametrize(
    "prompt", ["use more registers", "use more shared memory", "lower precision is fine", "reduce occupancy"]
)
def test_the_wrong_direction_is_a_means_to_speed(prompt: str) -> None:
    objective = read_objective(prompt)
    assert objective.metric == "time"
    assert "means" in objective.reading


def test_an_empty_prompt_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="prompt is empty"):
        read_objective("  \n")


def test_a_named_metric_wins_over_the_words() -> None:
    assert read_objective("make it faster", name="registers").metric == "registers"
    with pytest.raises(UsageError, match="shared_bytes"):
        read_objective("", name="speed")


def test_another_gpu_in_the_prompt_is_pointed_out(verdict) -> None:
    assert "--target" in read_objective("faster on A100", verdict()).reading
    assert "--target" not in read_objective("faster on H100", verdict()).reading


@given(st.text(max_size=200))
def test_every_prompt_is_read_or_refused(prompt: str) -> None:
    try:
        objective = read_objective(prompt)
    except UsageError:
        return  # empty, a question, or not understood
    assert objective.metric in (*METRICS, "correct")
    assert objective.prompt == prompt
    assert objective.reading.endswith((".", '".'))
    assert objective.metric not in objective.limits


def test_metric_values_come_from_where_the_design_says(verdict) -> None:
    known = verdict(
        shared_bytes=1000, dynamic_shared_bytes=24, local_bytes=8, time_us=3.0, max_error=0.25, occupancy=0.75
    )
    values = {metric: metric_value(metric, known) for metric in METRICS}
    assert values == {
        "time": 3.0,
        "shared_bytes": 1024,
        "registers": 32,
        "local_bytes": 8,
        "global_bytes": 800 * 32,
        "occupancy": 0.75,
        "accuracy": 0.25,
    }


def test_a_metric_that_a_verdict_does_not_know_is_none(verdict) -> None:
    unknown = verdict(resources=None, occupancy=0.0, counters=None, cases=())
    assert [m for m in METRICS if metric_value(m, unknown) is not None] == ["occupancy"]


def test_only_occupancy_grows_when_it_gets_better() -> None:
    assert [metric for metric in METRICS if better(metric) == "higher"] == ["occupancy"]


@pytest.mark.parametrize(
    "prompt",
    [
        "fix the error",
        "it does not compile",
        "make it compile",
        "fix the race condition",
        "the results are wrong, wrong results",
        "repair this kernel",
        "fix it",
        "corrige el kernel",
        "修复",
        "out of bounds access, please fix",
    ],
)
def test_a_wish_for_a_right_kernel_is_read_as_one(prompt: str) -> None:
    objective = read_objective(prompt)
    assert (objective.metric, objective.direction) == ("correct", "increase")
    assert objective.reading == "A kernel that compiles and is right."


@pytest.mark.parametrize(
    ("prompt", "metric"),
    [
        ("fix the spills", "local_bytes"),
        ("fix the bank conflicts", "time"),
        ("fix the uncoalesced accesses", "global_bytes"),
        ("reduce the rounding errors", "accuracy"),
        ("make it faster but do not crash", "time"),
    ],
)
def test_what_can_be_measured_goes_before_mending(prompt: str, metric: str) -> None:
    objective = read_objective(prompt)
    assert objective.metric == metric
    assert "correct" not in objective.limits


def test_correct_can_be_asked_for_by_name() -> None:
    assert read_objective("whatever", name="correct").metric == "correct"


@pytest.mark.parametrize(
    ("prompt", "metric", "tolerance"),
    [
        ("lower precision is fine to 1e-3", "time", 1e-3),
        ("make it faster, lower precision is fine to 1e-3", "time", 1e-3),
        ("fewer registers, an error of 0.1 % is fine", "registers", 1e-3),
        ("use less shared memory within 10 ms", "shared_bytes", None),
        ("more accurate", "accuracy", None),
        ("an error of 200 % is fine", "accuracy", None),
    ],
)
def test_an_allowed_error_is_read_beside_what_is_asked_for(prompt: str, metric: str, tolerance: float | None) -> None:
    objective = read_objective(prompt)
    assert (objective.metric, objective.tolerance) == (metric, pytest.approx(tolerance) if tolerance else None)
    assert ("off by 0.001" in objective.reading) is (tolerance is not None)


def test_what_cannot_be_measured_must_not_cost_time() -> None:
    objective = read_objective("make it readable")
    assert (objective.metric, objective.keep) == ("time", True)
    assert "cannot be measured" in objective.reading
    assert not read_objective("make it cleaner and faster").keep
    assert not read_objective("make it faster").keep


@pytest.mark.parametrize(
    ("prompt", "metric"),
    [
        ("réduire la bande passante mémoire", "global_bytes"),
        ("rends-le plus rapide", "time"),
        ("moins de registres", "registers"),
        ("moins de mémoire partagée", "shared_bytes"),
        ("corrige l'erreur", "correct"),
        ("améliore la précision", "accuracy"),
        ("réduis les accès mémoire", "global_bytes"),
        ("mach es schneller", "time"),
        ("weniger Register", "registers"),
        ("weniger gemeinsamer Speicher", "shared_bytes"),
        ("verringere die Speicherbandbreite", "global_bytes"),
        ("weniger Speicherzugriffe", "global_bytes"),
        ("kleinere Rundungsfehler", "accuracy"),
        ("behebe den Fehler", "correct"),
        ("hazlo más rápido", "time"),
        ("usa menos registros", "registers"),
        ("reduce el ancho de banda de memoria", "global_bytes"),
        ("usa menos memoria compartida", "shared_bytes"),
        ("arregla el error", "correct"),
        ("让它更快", "time"),
        ("减少寄存器使用", "registers"),
        ("减少共享内存", "shared_bytes"),
        ("降低内存带宽", "global_bytes"),
        ("提高精度", "accuracy"),
        ("修复错误", "correct"),
        ("寄存器溢出", "local_bytes"),
        ("もっと速くして", "time"),
        ("レジスタを減らして", "registers"),
        ("共有メモリを減らす", "shared_bytes"),
        ("メモリ帯域を減らす", "global_bytes"),
        ("精度を上げて", "accuracy"),
        ("バグを直して", "correct"),
    ],
)
def test_wishes_in_other_languages_are_read_without_a_model(prompt: str, metric: str) -> None:
    assert read_objective(prompt).metric == metric
