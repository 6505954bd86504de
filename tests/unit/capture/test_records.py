from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from kernelmate.capture.records import CaptureSettings, LaunchRecorder, base_name, read_capture, settings_from
from tests.unit.capture.conftest import Floats, Passed, Records


def test_a_record_is_read_as_it_was_written(records: Records, floats: Floats) -> None:
    x, y = floats(10), floats(10)
    records.add([Passed(x), Passed(y, 2 * x, read=False, written=True), Passed(np.int32(10))], (1, 1, 1), shared=64)
    (launch,) = records.read().launches
    first, second, third = launch.parameters
    assert (launch.grid, launch.block, launch.shared, launch.emulated) == ((1, 1, 1), (256, 1, 1), 64, True)
    assert third.buffer is None
    assert np.frombuffer(third.passed, np.int32)[0] == 10
    assert first.buffer is not None
    assert second.buffer is not None
    assert not first.buffer.changed
    assert first.buffer.shape == (10,)
    assert np.array_equal(np.fromfile(second.buffer.before, np.float32), y)
    assert np.array_equal(np.fromfile(second.buffer.after, np.float32), 2 * x)


def test_launches_are_sampled_and_bounded_by_shape_and_bytes(tmp_path: Path) -> None:
    recorder = LaunchRecorder(CaptureSettings(tmp_path, "scale", limit=100, every=2, shapes=2))
    admitted = [recorder.admit("a", 50) is not None for _ in range(3)]
    assert admitted == [True, False, True]
    assert recorder.admit("b", 101) is None, "launch 3 is not sampled"
    assert recorder.admit("b", 101) is None, "launch 4 is too large"
    capture = read_capture(tmp_path, 2)
    assert capture.outcomes == {"sampled": 2, "large": 1}


def test_no_more_launches_of_a_shape_are_recorded_than_asked_for(records: Records, floats: Floats) -> None:
    records.add([Passed(floats(4)), Passed(np.int32(4))], (1, 1, 1), times=9)
    capture = records.read()
    assert len(capture.launches) == 4
    assert capture.outcomes == {"recorded": 4, "enough": 5}


def test_a_record_that_was_not_finished_is_not_seen(records: Records, floats: Floats) -> None:
    """A process that is killed leaves a folder whose name begins with a dot, and a line without its end."""
    records.add([Passed(floats(4)), Passed(np.int32(4))], (1, 1, 1))
    (record,) = (one for one in records.folder.iterdir() if one.is_dir())
    record.copy(records.folder / ".9-1") if hasattr(record, "copy") else record.rename(records.folder / ".9-1")
    (records.folder / "9.log").write_text("abc recorded\nabc rec")
    capture = records.read()
    assert all(not launch.folder.name.startswith(".") for launch in capture.launches)
    assert capture.counts["abc"] == {"recorded": 1}


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "0.before").write_bytes(b"abc"), "0.before has 3 bytes of 16"),
        (lambda folder: (folder / "launch.json").write_text("{"), "Expecting property name"),
        (lambda folder: (folder / "launch.json").write_text(json.dumps({"format": 99})), "its format is 99"),
        (lambda folder: (folder / "0.before").unlink(), "No such file"),
    ],
)
def test_a_damaged_record_is_left_out_and_named(records: Records, floats: Floats, damage, said) -> None:
    records.add([Passed(floats(4)), Passed(np.int32(4))], (1, 1, 1), times=2)
    damage(next(one for one in sorted(records.folder.iterdir()) if one.is_dir()))
    capture = records.read()
    assert len(capture.launches) == 1
    assert len(capture.damaged) == 1
    assert said in capture.damaged[0]


def test_settings_pass_through_the_environment(tmp_path: Path) -> None:
    settings = CaptureSettings(tmp_path, "ns::scale", limit=5, every=3, shapes=2)
    assert settings_from(settings.environment()) == settings
    assert settings_from({}) is None


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("scale", "scale"),
        ("ns::scale<float, 256>", "scale"),
        ("_Z5scalePKfPfi", "scale"),
        ("_Z5scaleIfLi256EEvPT_i", "scale"),
        ("_ZN2ns5inner5scaleEPf", "scale"),
        ("_ZN46_GLOBAL__N__0000000000000000_4_k_cu_00000000_05scaleEPf", "scale"),
        ("scale(float*, int)", "scale"),
    ],
)
def test_names_are_compared_without_namespaces_and_types(name: str, base: str) -> None:
    assert base_name(name) == base
