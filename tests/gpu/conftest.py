"""The GPU as the tests in this process use it: opened once."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def backend():
    from kernelmate.backends.cuda.backend import CudaBackend

    return CudaBackend()
