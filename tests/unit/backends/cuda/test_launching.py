"""The driver's launch structures, against the layout that a C compiler gives those of `cuda.h`."""

from __future__ import annotations

import ctypes

import pytest

from kernelmate.backends.cuda.launching import LaunchAttribute, LaunchConfig, config_for
from kernelmate.records import LaunchShape


def test_the_layout_is_that_of_cuda_h() -> None:
    """Sizes and offsets as `sizeof` and `offsetof` give them for CUDA 13.0's header on x86-64."""
    names = ("grid", "block", "shared_bytes", "stream", "attributes", "attribute_count")
    assert [getattr(LaunchConfig, name).offset for name in names] == [0, 12, 24, 32, 40, 48]
    assert ctypes.sizeof(LaunchConfig) == 56
    assert (ctypes.sizeof(LaunchAttribute), LaunchAttribute.value.offset) == (72, 8)


@pytest.mark.parametrize(("cluster", "sides"), [((2,), [2, 1, 1]), ((2, 4), [2, 4, 1]), ((1, 2, 3), [1, 2, 3])])
def test_a_launch_carries_its_cluster_grid_and_block(cluster, sides) -> None:
    config = config_for(LaunchShape((8, 4, 6), (32, 2, 1), 1000, cluster=cluster), 77)
    assert (list(config.grid), list(config.block), config.shared_bytes) == ([8, 4, 6], [32, 2, 1], 1000)
    assert (config.stream, config.attribute_count, config.attributes[0].id) == (77, 1, 4)
    assert list(config.attributes[0].value)[:3] == sides


def test_a_cooperative_one_says_so_too() -> None:
    config = config_for(LaunchShape((2, 1, 1), (32, 1, 1), cooperative=True, cluster=(2,)), 0)
    assert config.attribute_count == 2
    assert (config.attributes[1].id, config.attributes[1].value[0]) == (2, 1)
