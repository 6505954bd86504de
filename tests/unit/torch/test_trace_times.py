"""Times of the profiler's events, shares and Amdahl's law: events of Kineto's form, and real ones of the CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from kernelmate_torch.tracing.recording.kernels import REGISTRY, LaunchableKernel
from kernelmate_torch.tracing.recording.timing import Times
from kernelmate_torch.tracing.report import is_named, launches_of, share_of


@dataclass(frozen=True)
class Event:
    """An event as `torch.autograd._KinetoEvent` gives it: times in nanoseconds."""

    label: str
    device: str
    begin: int
    length: int
    correlation: int = 0
    linked: int = 0
    thread: int = 1
    annotation: bool = False

    def name(self) -> str:
        return self.label

    def device_type(self) -> str:
        return f"DeviceType.{self.device}"

    def start_ns(self) -> int:
        return self.begin

    def duration_ns(self) -> int:
        return self.length

    def correlation_id(self) -> int:
        return self.correlation

    def linked_correlation_id(self) -> int:
        return self.linked

    def start_thread_id(self) -> int:
        return self.thread

    def is_user_annotation(self) -> bool:
        return self.annotation


STEP = [
    Event("train_step", "CPU", 0, 100_000, annotation=True),
    Event("my::softmax", "CPU", 1_000, 20_000, correlation=11),
    Event("aten::empty", "CPU", 2_000, 3_000, correlation=12),
    Event("cudaLaunchKernel", "CPU", 6_000, 4_000, correlation=13),
    Event("aten::mm", "CPU", 30_000, 30_000, correlation=14),
    Event("cudaGraphLaunch", "CPU", 70_000, 5_000, correlation=15),
    Event("softmax_rows(float const*, float*, int)", "CUDA", 12_000, 40_000, correlation=13, linked=11),
    Event("ampere_sgemm_128x64_nn", "CUDA", 60_000, 120_000, correlation=14, linked=14),
    Event("softmax_rows(float const*, float*, int)", "CUDA", 200_000, 40_000, correlation=15, linked=0),
    Event("train_step", "CUDA", 12_000, 300_000, annotation=True),
]
"""A step with one operator launched by hand and once more in the replay of a CUDA graph."""


@pytest.fixture
def operator() -> Any:
    kernel = REGISTRY.add(LaunchableKernel("operator:my::softmax", "my::softmax", "operator", user=True))
    yield {"kind": kernel.kind, "name": kernel.name}
    REGISTRY.kernels.pop(kernel.key)


def test_kernels_and_replays_of_cuda_graphs_are_counted_with_their_device_time(operator: Any) -> None:
    times = Times()
    times.add(STEP)
    assert times.kernels["softmax_rows(float const*, float*, int)"] == [2, 80.0]
    assert times.device_us == 200.0, "ranges of the program are no kernels"
    assert times.owners["softmax_rows(float const*, float*, int)"] == {"my::softmax": 40.0, "": 40.0}
    assert launches_of({"kind": "cupy", "name": "softmax_rows"}, vars(times)) == 2


def test_an_operators_share_of_the_gpu_has_the_replays_of_its_kernel(operator: Any) -> None:
    times = Times()
    times.add(STEP)
    share = share_of(operator, vars(times))
    assert share is not None
    assert (share.device, share.share) == ("gpu", pytest.approx(80 / 200))
    assert share.worth(3) == pytest.approx(0.4 * 2 / 3)
    assert share.worth(1e12) == pytest.approx(share.share), "no kernel saves more than its share"


def test_a_library_kernel_that_others_launch_too_is_an_operators_only_where_it_launched_it(operator: Any) -> None:
    copy = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)"
    times = Times()
    times.add(
        [*STEP[:4], Event(copy, "CUDA", 12_000, 10_000, linked=11), Event(copy, "CUDA", 30_000, 30_000, linked=99)]
    )
    share = share_of(operator, vars(times))
    assert share is not None
    assert share.share == pytest.approx(0.25)


def test_shares_of_the_cpu_leave_out_first_calls() -> None:
    times = Times()
    first = [
        Event("my::norm", "CPU", 0, 5_000_000),
        Event("aten::mul", "CPU", 10, 1_000),
        Event("aten::mm", "CPU", 6_000_000, 9_000),
    ]
    later = [Event("my::norm", "CPU", 10_000_000, 30_000), Event("aten::mul", "CPU", 10_000_010, 1_000), Event("aten::mm", "CPU", 11_000_000, 70_000)]  # fmt: skip
    times.add([*first, *later])
    share = share_of({"kind": "operator", "name": "my::norm"}, vars(times))
    assert share is not None
    assert (share.device, share.share, share.first_calls) == ("cpu", pytest.approx(0.3), False)
    times = Times()
    times.add(first)
    share = share_of({"kind": "operator", "name": "my::norm"}, vars(times))
    assert share is not None
    assert share.first_calls


def test_operators_of_two_threads_do_not_nest() -> None:
    times = Times()
    calls = [Event("aten::mm", "CPU", start, 1_000, thread=thread) for start in (0, 2_000) for thread in (1, 2)]
    times.add(calls)
    assert times.operators["aten::mm"] == [3, 3.0]
    assert times.first["aten::mm"] == [1, 1.0]


@pytest.mark.parametrize(
    ("shown", "name", "same"),
    [
        ("add_kernel", "add_kernel", True),
        ("add_kernel_0", "add_kernel", True),
        ("void (anonymous namespace)::softmax_rows<float, 4>(float const*)", "softmax_rows", True),
        ("ns::softmax_rows(float*)", "softmax_rows", True),
        ("triton_poi_fused_add_0", "add", False),
        ("softmax_rows_backward", "softmax_rows", False),
    ],
)
def test_names_of_gpu_kernels_are_those_of_functions(shown: str, name: str, same: bool) -> None:
    assert is_named(shown, name) is same


def test_real_events_of_the_cpu_add_up() -> None:
    torch: Any = pytest.importorskip("torch")
    x = torch.randn(256, 256)
    with torch.autograd.profiler.profile(use_kineto=True) as profile:
        for _ in range(20):
            torch.relu(x @ x)
    times = Times()
    times.add(profile.kineto_results.events())
    averages = {one.key: one for one in profile.key_averages()}
    for name in ("aten::matmul", "aten::relu"):
        calls, us = (times.operators[name][at] + times.first[name][at] for at in (0, 1))
        assert calls == averages[name].count == 20
        assert us == pytest.approx(averages[name].cpu_time_total, rel=0.01)
    total = sum(one.self_cpu_time_total for one in averages.values() if "::" in one.key)
    assert times.cpu_us + times.first_us == pytest.approx(total, rel=0.01)
