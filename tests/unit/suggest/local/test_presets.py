"""Models are served with the memory that there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.suggest.base import AuthorFailed
from kernelmate.suggest.local.engine_settings import CONTEXTS, choose
from kernelmate.suggest.local.library import LocalModelFile

GIB = 1 << 30
SEVEN_B = LocalModelFile(
    "seven", "/m.gguf", "0" * 64, int(4.4 * GIB), 0, "qwen2", 32_768, layers=28, cache_bytes=57_344
)
"""Qwen2.5 7B in four bits: 28 layers, four heads of 128 for keys and values."""


def test_with_memory_to_spare_the_context_is_the_largest_for_two_conversations() -> None:
    preset = choose(SEVEN_B, free=64 * GIB)
    assert (preset.context, preset.parallel, preset.gpu_layers) == (16_384, 2, 0)
    assert preset.memory == int((SEVEN_B.size + 57_344 * 2 * 16_384) * 1.1)


def test_with_less_one_conversation_then_a_shorter_one() -> None:
    shapes = [choose(SEVEN_B, free=int(free * GIB)) for free in (7, 6.0, 5.5, 5.1)]
    assert [(one.context, one.parallel) for one in shapes] == [(16_384, 2), (16_384, 1), (8_192, 1), (4_096, 1)]


@pytest.mark.parametrize("free", [5.0, 5.3, 5.7, 6.2, 7.0, 12.0])
def test_no_preset_takes_more_than_there_is(free: float) -> None:
    assert choose(SEVEN_B, free=int(free * GIB)).memory <= free * GIB


def test_what_does_not_fit_at_all_is_said() -> None:
    with pytest.raises(AuthorFailed, match=r"takes about 5\.0 GiB of memory, and 3\.0 are free"):
        choose(SEVEN_B, free=3 * GIB)


def test_a_context_that_is_named_is_kept_and_the_models_own_never_passed() -> None:
    assert choose(SEVEN_B, context=1024, free=64 * GIB).context == 1024
    assert choose(replace(SEVEN_B, context=4096), free=64 * GIB).context == 4096
    assert choose(replace(SEVEN_B, context=1500), free=64 * GIB).context == 1500


def test_layers_go_to_a_gpu_as_far_as_kernels_keep_room_there() -> None:
    whole = choose(SEVEN_B, gpu_layers=None, free=64 * GIB, gpu_free=70 * GIB)
    assert (whole.gpu_layers, whole.memory) == (28, 0)
    part = choose(SEVEN_B, gpu_layers=None, free=64 * GIB, gpu_free=4 * GIB)
    assert 0 < part.gpu_layers < 28
    on_gpu = (SEVEN_B.size + 57_344 * part.context * part.parallel) * 1.1 * part.gpu_layers / 28
    assert on_gpu <= 0.75 * 4 * GIB
    assert choose(SEVEN_B, gpu_layers=None, free=64 * GIB, gpu_free=None).gpu_layers == 0
    assert choose(SEVEN_B, gpu_layers=0, free=64 * GIB, gpu_free=70 * GIB).gpu_layers == 0


def test_where_nothing_is_known_of_memory_or_shape_it_is_tried() -> None:
    unknown = replace(SEVEN_B, layers=None, cache_bytes=None, context=None)
    assert choose(unknown).context == CONTEXTS[0]
    assert choose(unknown, free=6 * GIB).memory <= 6 * GIB
