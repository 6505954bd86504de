from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmate.records import Counters, Judgement, LaunchShape, SizeMetrics
from kernelmate.worker.nvidia import examine as examining
from kernelmate.worker.nvidia import profiler
from kernelmate.worker.nvidia.profiler import METRICS, read
from kernelmate.worker.nvidia.tool import ToolFailed, ToolOutput

HEAD = (
    "==WARNING== Note: Running with unmodified GPU clocks.\n==PROF== Connected to process 1546 (/usr/bin/python3.12)\n"
)


def printed(values: dict[str, str]) -> str:
    names = ["ID", "Kernel Name", *METRICS]
    units = ["", "", *("" for _ in METRICS)]
    row = ["0", "k(float *, int)", *(values.get(name, "0") for name in METRICS)]
    return HEAD + "\n".join(",".join(f'"{cell}"' for cell in cells) for cells in (names, units, row)) + "\n"


def test_metrics_that_make_up_one_counter_are_added() -> None:
    found = read(
        ToolOutput(
            printed(
                {
                    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum": "32,768",
                    "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum": "5",
                    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum": "7",
                    "gpu__time_duration.sum": "4,512",
                    "dram__bytes_read.sum": "1048576",
                    "l1tex__t_sector_hit_rate.pct": "12.5",
                }
            ),
            "",
            0,
        ),
        "ncu 2025.3",
    )
    assert (found.counters.source, found.counters.global_load_sectors) == ("hardware", 32768)
    assert found.counters.global_atomic_requests == 12
    assert (found.duration_us, found.dram_read_bytes, found.l1_hit_rate) == (4.512, 1048576, 0.125)


def test_a_counter_that_lacks_one_of_its_metrics_is_unknown() -> None:
    found = read(ToolOutput(printed({"smsp__sass_data_bytes_mem_global_op_st.sum": "n/a"}), "", 0), "ncu")
    assert found.counters.global_bytes_asked is None
    assert found.counters.global_store_sectors == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on "
            "the target device 0. For instructions on enabling permissions and to get more information see "
            "https://developer.nvidia.com/ERR_NVGPUCTRPERM\n",
            "this user may not read the GPU's counters (ERR_NVGPUCTRPERM); an administrator can allow it: "
            "https://developer.nvidia.com/ERR_NVGPUCTRPERM",
        ),
        ("==WARNING== No kernels were profiled.\n", "ncu gave no counters: No kernels were profiled."),
        (
            f"{HEAD}==ERROR== The application returned an error code (3).\n",
            "ncu gave no counters: The application returned an error code (3).",
        ),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n",
         "ncu gave no counters: Failed to initialize the profiler: LibraryNotLoaded"),
        ("", "ncu gave no counters (exit code 1): it printed nothing"),
    ],
)  # fmt: skip
def test_why_there_are_no_counters_is_one_line(text: str, line: str) -> None:
    with pytest.raises(ToolFailed) as refusal:
        read(ToolOutput(text, "", 1), "ncu")
    assert str(refusal.value) == line


def test_where_the_profiler_is_refused_the_emulators_counters_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ToolFailed("this user may not")

    monkeypatch.setattr(profiler, "profile", refuse)
    counters = Counters("emulated", *([1] * 12))
    judgement = Judgement(True, (), (), (SizeMetrics({}, LaunchShape((1, 1, 1), (1, 1, 1)), counters, None),))
    task = type("Task", (), {"sanitize": False, "profile": True})()
    after = examining.examine(task, judgement, 0, lambda *_: None)
    assert after.hardware is None
    assert after.reasons == ("no hardware counters: this user may not; the counters shown are the emulator's",)
    assert after.metrics == judgement.metrics


def test_what_was_recorded_on_a_gpu_is_read() -> None:
    recorded = json.loads((Path(__file__).parent / "recorded" / "ncu.json").read_text())
    found = read(ToolOutput(recorded["text"], "", recorded["code"]), "ncu 2025.3.1.0")
    assert found.counters == Counters(
        source="hardware",
        global_load_requests=16384,
        global_load_sectors=65536,
        global_store_requests=12288,
        global_store_sectors=49152,
        global_atomic_requests=0,
        global_bytes_asked=2_097_152 + 1_572_864,
        shared_load_wavefronts=0,
        shared_store_wavefronts=0,
        bank_conflicts=0,
        local_sectors=0,
        divergent_branches=0,
        thread_instructions=9_961_472,
    )
    assert found.duration_us == pytest.approx(4.192)
    assert (found.dram_read_bytes, found.dram_written_bytes) == (2_103_296, 0)
    assert found.l1_hit_rate == pytest.approx(0.4286)
    assert found.achieved_occupancy == pytest.approx(0.4317)
