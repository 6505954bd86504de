"""Messages arrive as they were sent, and bytes that are no message are refused."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kernelmate import errors
from kernelmate.records import Judgement, JudgeTask, LaunchShape, SizeMetrics, Timing
from kernelmate.worker import protocol


def values(hint: Any, within: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Values of a field's type; whole numbers of 64 bits, which is what travels.

    A record that holds others of its own kind, as a pipeline's does, holds such that hold none: `within` are those around.
    """
    origin, parts = get_origin(hint), get_args(hint)
    if hint is int:
        return st.integers(-(2**63), 2**63 - 1)
    if hint is float:
        return st.floats(allow_nan=False)
    if is_dataclass(hint):
        hints, around = get_type_hints(hint), (*within, hint)
        return st.builds(hint, **{field.name: values(hints[field.name], around) for field in fields(hint)})
    if origin is tuple and parts[1:] == (...,):
        return st.just(()) if parts[0] in within else st.lists(values(parts[0], within), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(part, within) for part in parts))
    if origin is Mapping:
        return st.dictionaries(values(parts[0], within), values(parts[1], within), max_size=2)
    if origin in {Union, UnionType}:
        return st.one_of(*(values(part, within) for part in reversed(parts)))
    return st.from_type(hint)


SLOW = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None, max_examples=50
)


@SLOW
@given(task=values(JudgeTask), number=st.integers(0, 1000))
def test_a_task_arrives_as_it_was_sent(task: JudgeTask, number: int) -> None:
    for message in (protocol.JudgeRequest(number, task, {"home/me/ref.py": b"\0\xff"}), protocol.PrefetchRequest(task)):
        assert protocol.read_to_child(io.BytesIO(protocol.frame(message))) == message


@SLOW
@given(judgement=values(Judgement))
def test_a_judgement_arrives_as_it_was_sent(judgement: Judgement) -> None:
    message = protocol.TaskResult(7, judgement)
    assert protocol.read_from_child(io.BytesIO(protocol.frame(message))) == message


def test_numbers_that_are_not_finite_and_numpys_scalars_arrive_as_plain_numbers() -> None:
    timing = Timing("predicted", np.float64(2.5), (np.float32(1.0), math.inf), math.nan, None, None, None, None)
    shape = LaunchShape((1, 1, 1), (np.int64(32), 1, 1))
    metrics = SizeMetrics({"n": np.int32(5)}, shape, None, timing)
    sent = protocol.TaskResult(1, Judgement(np.bool_(True), (), (), (metrics,)))
    got = protocol.read_from_child(io.BytesIO(protocol.frame(sent)))
    assert isinstance(got, protocol.TaskResult)
    assert got.judgement.correct is True
    assert got.judgement.metrics[0].size == {"n": 5}
    arrived = got.judgement.metrics[0].timing
    assert arrived is not None
    assert (arrived.median_us, arrived.ci95_us) == (2.5, (1.0, math.inf))
    assert arrived.cold_l2_us is not None
    assert math.isnan(arrived.cold_l2_us)


def test_messages_are_read_one_after_the_other_until_the_end() -> None:
    messages = [protocol.ReadyMessage("v"), protocol.ProgressMessage(1, "kernel", 1, 2), protocol.OutOfMemory(1, "x")]
    stream = io.BytesIO(b"".join(map(protocol.frame, messages)))
    assert [protocol.read_from_child(stream) for _ in range(4)] == [*messages, None]


@given(data=st.binary(min_size=1, max_size=200))
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    stream = io.BytesIO(data)

    def read_all() -> None:
        while protocol.read_from_child(stream) is not None:
            pass

    with pytest.raises(protocol.FrameError):
        read_all()


@given(cut=st.integers(1, 10_000))
def test_a_frame_that_is_cut_off_is_refused(cut: int) -> None:
    whole = protocol.frame(protocol.ChildFailed(1, "detail " * 10))
    with pytest.raises(protocol.FrameError):
        protocol.read_from_child(io.BytesIO(whole[: 1 + cut % (len(whole) - 1)]))


def test_a_message_for_the_other_side_is_refused() -> None:
    with pytest.raises(protocol.FrameError):
        protocol.read_from_child(io.BytesIO(protocol.frame(protocol.Hello("v", None))))


def test_a_length_beyond_the_limit_is_refused_without_reading_it() -> None:
    header = (protocol.MAX_FRAME + 1).to_bytes(4, "big")
    with pytest.raises(protocol.FrameError, match="at most"):
        protocol.read_from_child(io.BytesIO(header))


def test_text_that_is_no_unicode_is_refused_when_it_is_sent() -> None:
    with pytest.raises(protocol.FrameError):
        protocol.frame(protocol.ChildFailed(1, "\ud800"))


def all_errors() -> list[type[errors.KernelmateError]]:
    return [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.KernelmateError)
    ]


@pytest.mark.parametrize("kind", all_errors())
def test_every_error_arrives_as_its_own_class(kind: type[errors.KernelmateError]) -> None:
    sent = kind("What happened.", file="a.cu", line=3, column=None, hint="Do this.")
    message = protocol.read_from_child(io.BytesIO(protocol.frame(protocol.refusal(4, sent))))
    assert isinstance(message, protocol.TaskRefused)
    got = protocol.error_of(message)
    assert type(got) is kind
    assert str(got) == str(sent)
