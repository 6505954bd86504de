"""No instruction goes untested: each name that is decoded is marked on a test that runs it, or is a hint without effect."""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

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
