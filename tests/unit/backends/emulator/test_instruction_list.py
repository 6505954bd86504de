"""Every decoded instruction is tested, and docs/emulator.md lists exactly those."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import UnsupportedInstruction
from kernelmate.backends.emulator.instructions import DECODERS, memory

HERE = Path(__file__).parent
HINTS = {
    "prefetch": "prefetch.global.L2 [%at4]; prefetch.global.L1 [%at4]; prefetch.global.L2::evict_last [%at4];",
    "prefetchu": "prefetchu.L1 [%at4];",
    "applypriority": "applypriority.global.L2::evict_normal [%p0], 128;",
    "nanosleep": "nanosleep.u32 20; nanosleep.u32 %tid1;",
    "pmevent": "pmevent 3; pmevent.mask 5;",
    "griddepcontrol": "griddepcontrol.wait; griddepcontrol.launch_dependents;",
    "setmaxnreg": "setmaxnreg.dec.sync.aligned.u32 40;",
}


def marked_names(path: Path) -> set[str]:
    """The arguments of every `pytest.mark.instruction` of a test file."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "instruction":
            names |= {item.value for item in node.args if isinstance(item, ast.Constant)}
    return names


def test_every_instruction_has_a_test_of_its_own_or_is_a_hint() -> None:
    tested = set().union(*(marked_names(path) for path in HERE.glob("test_*.py")))
    hints = {name for name, decoder in DECODERS.items() if decoder is memory.decode_hint}
    assert tested | hints == set(DECODERS)
    assert not tested & hints
    assert hints == set(HINTS)


@pytest.mark.parametrize("name", sorted(HINTS))
def test_a_hint_changes_nothing(name: str, launch: Callable[..., Any], kernel: Callable[..., str]) -> None:
    body = """
    ld.global.u32 %r1, [%at4]; HINT mad.lo.u32 %r2, %r1, 3, %tid1; and.b32 %r3, %tid1, 1; setp.eq.u32 %q1, %r3, 0;
    @%q1 bra EVEN; HINT add.u32 %r2, %r2, 1000; EVEN: HINT st.global.u32 [%at4], %r2; ret;
    """
    data = np.arange(64, dtype=np.uint32)
    # An instruction that must be executed by whole warps stands where they are whole.
    parts = body.split("HINT") if ".aligned" in HINTS[name] else [body]
    text = "HINT".join(parts[:2]) + "".join(parts[2:]) if len(parts) > 1 else body
    with_it, without = (
        launch(kernel(text.replace("HINT", hint)), data, block=(64,), count=True) for hint in (HINTS[name], "")
    )
    want = [value * 4 + (1000 if value % 2 else 0) for value in range(64)]
    assert with_it.arrays["a0"].tolist() == without.arrays["a0"].tolist() == want
    assert with_it.findings == without.findings == ()
    assert with_it.reads == without.reads
    for figure in ("global_load_sectors", "global_store_sectors", "global_load_requests", "divergent_branches"):
        assert getattr(with_it.counters, figure) == getattr(without.counters, figure)


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
    "tex.cube.v4.f32.f32 {%f1,%f2,%f3,%f4}, [%p0, {%f1,%f2,%f3,%f3}];",
    "txq.width.b32 %r1, [%p0];",
    "suq.height.b32 %r1, [%p0];",
    "sured.b.add.1d.u32.trap [%p0, {%r1}], %r1;",
    "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%p0], [%r1], 16, %h1;",
    "tensormap.replace.tile.rank.shared::cta.b1024.b32 [%r1], 1;",
    "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f1, %f2, %f3, %f4}, %d1, %d2, %r1, 0, %q1, 1, 1, 0, 0;",
    "tcgen05.fence::before_thread_sync;",
    "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];",
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
    assert any(word in message for word in ("instead", "--backend cuda", "remove it"))
    refused = "".join(row[1] for row in rows("Unsupported features"))
    assert f"`{instruction.split('.')[0]}" in refused or instruction.split()[0].rstrip(";") in refused
