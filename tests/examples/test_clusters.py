"""Kernels that use the shared memory of a cluster: judged by their contracts on the emulator, and the errors in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.config import load_settings
from kernelmate.records import CompileOptions
from kernelmate.session import Session
from kernelmate.source import find_kernels, load_kernels, text_unit
from tests.clusters import FILES, launches

ERRORS = {
    "histogram": [
        ("i += blockDim.x) part[i] = 0;\n    cluster.sync();", "i += blockDim.x) part[i] = 0;\n    __syncthreads();", "illegal-address"),
        ("1);\n    }\n    cluster.sync();", "1);\n    }\n    __syncthreads();", "shared-race"),
        ("atomicAdd(cluster.map_shared_rank(part, bin / each) + bin % each, 1)", "cluster.map_shared_rank(part, bin / each)[bin % each] += 1", "shared-race"),
        ("bin / each)", "bin / each + 1)", "illegal-address"),
        ("part[i] = 0;", "part[i] += 0;", "uninitialised-shared"),
        ("__cluster_dims__(4, 1, 1)", "__cluster_dims__(32, 1, 1)", "launch-failure"),
    ],
    "ring": [
        ("ptx::mbarrier_arrive(ptx::sem_release", "ptx::mbarrier_arrive(ptx::sem_relaxed", "shared-race"),
        ("ptx::mbarrier_init(&full, 64)", "ptx::mbarrier_init(&full, 65)", "hang"),
        ("        sum = 0;\n    }\n    cluster.sync();", "        sum = 0;\n    }\n    __syncthreads();", "illegal-address"),
        ("memory_order_relaxed);\n    cluster.sync();", "memory_order_relaxed);", "illegal-address"),
    ],
    "softmax": [
        ("        *partial = mine;\n    }\n    cluster.sync();", "        *partial = mine;\n    }\n    __syncthreads();", "shared-race"),
        ("/ sum;\n    cluster.sync();", "/ sum;", "illegal-address"),
    ],
    "stencil": [
        ("col < cols ? next : 0.0f;\n        cluster.sync();", "col < cols ? next : 0.0f;\n        __syncthreads();", "shared-race"),
        ("parts[(step + 1) % 2][t] = col", "now[t] = col", "shared-race"),
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=20261121, backend="emulator", timeout_s=300)) as opened:
        yield opened


@pytest.mark.exhaustive(share=0.34)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_kernel_of_clusters_is_right_and_clean(session: Session, path: Path) -> None:
    (verdict,) = session.bench(load_kernels(path)[0])
    assert [finding for finding in verdict.findings if finding.severity == "error"] == []
    assert verdict.correct is True, verdict.reasons
    assert any(case.correct and not case.degenerate for case in verdict.cases)
    assert verdict.counters is not None
    assert verdict.counters.barriers
    assert verdict.counters.shared_load_wavefronts


def codes(path: Path, text: str) -> set[str]:
    """Codes of the errors of one launch."""
    target = find_target("sm_90")
    compiled = compile_kernel(
        find_kernels(text_unit(text, path.name))[0], (), instance=None, target=target, options=CompileOptions()
    )
    assert compiled.ok, compiled.diagnostics
    result = EmulatorBackend().load(compiled, target).run(launches()[path.stem])
    return {finding.code for finding in result.findings if finding.severity == "error"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_errors_in_a_kernel_of_clusters_are_found(path: Path) -> None:
    text = path.read_text()
    assert codes(path, text) == set()
    for before, after, code in ERRORS[path.stem]:
        assert text.count(before) == 1
        assert code in codes(path, text.replace(before, after)), after
