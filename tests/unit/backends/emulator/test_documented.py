"""docs/emulator.md says what the emulator knows and what it refuses, and says it truly."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import UnsupportedInstruction
from kernelmate.backends.emulator.instructions import DECODERS

TEXT = (Path(__file__).resolve().parents[4] / "docs" / "emulator.md").read_text()


def rows(heading: str) -> list[list[str]]:
    section = TEXT.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]


def test_every_instruction_that_is_known_has_its_row() -> None:
    told = {tuple(sorted(re.findall(r"`([^`]+)`", names))): sentence for names, sentence in rows("Instructions")}
    known: dict[Any, list[str]] = {}
    for name, decoder in DECODERS.items():
        known.setdefault(decoder, []).append(name)
    assert told == {tuple(sorted(names)): decoder.__doc__.strip().splitlines()[0] for decoder, names in known.items()}


REFUSED = [
    "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%p0, {%f1,%f2}];",
    "suld.b.1d.b32.trap %r1, [%p0, {%r1}];",
    "wgmma.fence.sync.aligned;",
    "mbarrier.arrive.expect_tx.shared.b64 %d1, [%r1], 16;",
    "cp.async.bulk.commit_group;",
    "mapa.u64 %d1, %p0, 0;",
    "barrier.cluster.arrive;",
    "discard.global.L2 [%p0], 128;",
    "mov.u32 %r1, %reserved_smem_offset_1;",
    "vavrg4.u32.u32.u32 %r1, %r2, %r3, %r4;",
]


@pytest.mark.parametrize("instruction", REFUSED, ids=lambda text: text.split()[0])
def test_what_is_said_to_be_refused_is_refused_by_name(
    launch: Callable[..., Any], kernel: Callable[..., str], instruction: str
) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        launch(kernel(instruction + " ret;"), np.zeros(1, np.int32))
    message = caught.value.finding.message
    assert instruction.split(".")[0] in message
    assert "__" not in message.replace("(__ldg)", "")
    assert any(word in message for word in ("instead", "--backend cuda", "leave it out"))
    refused = "".join(row[1] for row in rows("What is refused"))
    assert f"`{instruction.split('.')[0]}" in refused or instruction.split()[0].rstrip(";") in refused
