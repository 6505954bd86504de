from __future__ import annotations

import pytest

from kernelmate.measure.instructions import CLASSES, basic_blocks, classify, count


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("fma.rn.f32", "fp32"),
        ("add.f32", "fp32"),
        ("fma.rn.f64", "fp64"),
        ("fma.rn.f16x2", "fp16"),
        ("add.rn.bf16", "fp16"),
        ("ex2.approx.ftz.f32", "sfu"),
        ("add.s32", "int"),
        ("setp.lt.s32", "int"),
        ("cvt.rn.f32.s32", "int"),
        ("cvt.f64.f32", "convert64"),
        ("cvt.rn.f32.f64", "convert64"),
        ("cvt.s64.s32", "int"),
        ("ld.global.f32", "global_load"),
        ("ld.global.nc.v4.f32", "global_load"),
        ("ld.f32", "global_load"),
        ("st.global.f32", "global_store"),
        ("ld.shared.f32", "shared_load"),
        ("st.shared.v2.f32", "shared_store"),
        ("atom.shared.add.u32", "shared_atomic"),
        ("atom.global.add.f32", "atomic"),
        ("red.global.add.f32", "reduction"),
        ("ld.local.b32", "local_load"),
        ("shfl.sync.down.b32", "shuffle"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", "shared_load"),
        ("wmma.load.b.sync.aligned.row.m16n16k16.f16", "global_load"),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "tensor"),
        ("wmma.store.d.sync.aligned.row.m16n16k16.global.f32", "global_store"),
        ("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16", "tensor"),
        ("wgmma.wait_group.sync.aligned", "control"),
        ("bar.sync", "barrier"),
        ("bra.uni", "control"),
    ],
)
def test_opcodes_fall_into_classes(opcode: str, kind: str) -> None:
    instruction = classify(opcode)
    assert instruction is not None
    assert instruction.kind == kind
    assert kind in CLASSES


@pytest.mark.parametrize("opcode", ["mov.u32", "ld.param.u64", "cvta.to.global.u64", "ld.const.f32"])
def test_what_vanishes_in_machine_code_costs_nothing(opcode: str) -> None:
    assert classify(opcode) is None


def test_a_product_of_fragments_counts_its_operations() -> None:
    product, half = (classify(f"{head}.f32.f32") for head in ("wmma.mma.sync.m16n16k16", "mma.sync.m16n8k16.f16"))
    assert product is not None
    assert half is not None
    assert (product.flops, product.issue) == (2 * 16**3 / 32, 2)
    assert half.flops == product.flops / 2


def test_a_product_of_a_warpgroup_counts_the_operations_of_four_warps() -> None:
    product = classify("wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16")
    assert product is not None
    assert (product.flops * 128, product.issue) == (2 * 64 * 256 * 16, 1)


def test_divisions_are_sequences() -> None:
    for opcode, at_least in (
        ("div.rn.f64", 15),
        ("div.rn.f32", 8),
        ("rem.s32", 10),
        ("div.s64", 50),
        ("sqrt.rn.f32", 6),
    ):
        instruction = classify(opcode)
        assert instruction is not None
        assert instruction.issue >= at_least


def test_blocks_are_labelled_as_the_emulator_labels_them(compiled) -> None:
    blocks = basic_blocks(compiled().ptx, "scale")
    assert [block.label for block in blocks][:3] == ["entry", ".8", "$L__BB0_2"]


def test_text_that_is_no_ptx_has_no_blocks() -> None:
    assert basic_blocks("not PTX at all", "k") == ()


def test_blocks_count_as_often_as_threads_entered_them(compiled) -> None:
    mix = count(basic_blocks(compiled().ptx, "scale"), {"entry": 96, ".8": 64, "$L__BB0_2": 96})
    assert mix.work["global_load"] == mix.work["global_store"] == mix.work["fp32"] == 64
    assert mix.flops == {"fp32": 128}
    assert mix.rounds == {"global_load": 64}
    assert mix.issue > 64 * 5 + 96 * 3


def test_blocks_that_nobody_entered_do_not_count(compiled) -> None:
    mix = count(basic_blocks(compiled().ptx, "scale"), {"entry": 32})
    assert "global_load" not in mix.work
    assert mix.flops == {}


def test_loads_of_one_block_wait_once(compiled) -> None:
    twice = compiled().ptx.replace(
        "ld.global.f32 	%f1, [%rd4];", "ld.global.f32 	%f1, [%rd4];\n	ld.global.f32 	%f2, [%rd4+4];"
    )
    mix = count(basic_blocks(twice, "scale"), {"entry": 32, ".8": 32, "$L__BB0_2": 32})
    assert mix.work["global_load"] == 64
    assert mix.rounds["global_load"] == 32
