"""Plain reads that an atomic checks again are no race worth an error; all other plain reads beside atomics are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

Kernels = Callable[..., Any]

CHECKED = {
    "the guide's loop": """unsigned long long* a = (unsigned long long*)y; unsigned long long old = *a, assumed;
  do { assumed = old; old = atomicCAS(a, assumed, __double_as_longlong(1.0 + __longlong_as_double(assumed)));
  } while (assumed != old);""",
    "a maximum by compare-and-swap": """int old = y[0], assumed;
  do { assumed = old; old = atomicCAS(y, assumed, max(assumed, (int)threadIdx.x)); } while (assumed != old);""",
    "a maximum looked at first": "if (y[0] < (int)threadIdx.x) atomicMax(y, (int)threadIdx.x);",
    "in shared memory": """__shared__ int s; if (threadIdx.x == 0) s = 0; __syncthreads(); int old = s, assumed;
  do { assumed = old; old = atomicCAS(&s, assumed, assumed + 1); } while (assumed != old);""",
}
UNCHECKED = {
    "check, then add": "if (y[0] < 10) atomicAdd(y, 1);",
    "add, then look": "atomicAdd(y, 1); y[1 + threadIdx.x] = y[0];",
    "another place": "int seen = y[1]; atomicAdd(y + 1, 1); atomicMax(y, seen);",
}


def errors(cuda: Kernels, run_cuda: Kernels, body: str) -> list[tuple[str, str]]:
    code = cuda("__global__ void k(int* y) {\n  " + body + "\n}\n")
    done = run_cuda(code, ("y", np.zeros(66, np.int32)), grid=(2,), block=(64,))
    return [(finding.code, finding.severity) for finding in done.findings]


@pytest.mark.parametrize("body", CHECKED.values(), ids=CHECKED)
def test_a_read_that_an_atomic_checks_again_is_a_note(cuda: Kernels, run_cuda: Kernels, body: str) -> None:
    found = errors(cuda, run_cuda, body)
    assert found
    assert {severity for _, severity in found} == {"note"}


@pytest.mark.parametrize("body", UNCHECKED.values(), ids=UNCHECKED)
def test_any_other_read_beside_an_atomic_is_an_error(cuda: Kernels, run_cuda: Kernels, body: str) -> None:
    assert ("global-race", "error") in errors(cuda, run_cuda, body)
