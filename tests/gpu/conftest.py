"""The GPU as the tests in this process use it: opened once, and first.

CUDA's limits cannot be set any more once another library's kernels have used what they bound.
"""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", autouse=True)
def backend():
    from kernelmate.backends.cuda.backend import CudaBackend

    return CudaBackend()
