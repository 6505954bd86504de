"""Disassembly of what was compiled."""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace

import pytest

from kernelmate.compiler import disassembly as module
from kernelmate.compiler.cuda_toolkit import find_tool
from kernelmate.compiler.disassembly import class_of, disassembling, sass, sass_mix
from kernelmate.errors import CompilerUnavailable

TEXT = """__global__ void k(const float* x, float* y, double* z, int n) {
    __shared__ float tile[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    y[i] = __expf(tile[63 - threadIdx.x]);
    z[i] = z[i] * 3.0 + 1.0;
}
"""

needs_nvdisasm = pytest.mark.skipif(find_tool("nvdisasm") is None, reason="needs nvdisasm (nvidia-cuda-nvdisasm)")


@needs_nvdisasm
def test_instructions_stand_below_their_source_lines(compiled) -> None:
    text = sass(compiled(TEXT))
    assert "kernel.cu" in text
    assert "line 6" in text
    assert text.index("line 4") < text.index("STS")


@needs_nvdisasm
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_the_mix_counts_what_the_code_has(compiled, target) -> None:
    mix = sass_mix(compiled(TEXT, target=target))
    assert mix["global_load"] == 2
    assert mix["global_store"] == 2
    assert (mix["shared_load"], mix["shared_store"]) == (1, 1)
    assert mix["sfu"] == 1
    assert mix["fp64"] == 1
    assert "other" not in mix
    assert "none" not in mix


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [("LDG.E.128.CONSTANT", "global_load"), ("LDGSTS.E", "global_load"), ("HMMA.16816.F32", "tensor"), ("IMAD.MOV.U32", "int"),
     ("FFMA.FTZ", "fp32"), ("DFMA", "fp64"), ("RED.E.ADD.F32", "atomic"), ("BAR.SYNC.DEFER_BLOCKING", "barrier"),
     ("LDSM.16.M88.4", "shared_load"), ("LDL.LU", "local"), ("NOTHING", "other")],
)  # fmt: skip
def test_classes_of_opcodes(opcode, kind) -> None:
    assert class_of(opcode) == kind


def test_without_the_tool_the_message_says_what_to_install(compiled, monkeypatch) -> None:
    monkeypatch.setattr(module, "find_tool", lambda name: None)
    with pytest.raises(CompilerUnavailable) as raised:
        sass(compiled(TEXT))
    assert "nvidia-cuda-nvdisasm" in raised.value.hint


def test_what_was_not_compiled_has_no_code(compiled) -> None:
    with pytest.raises(ValueError, match="not compiled"):
        sass(compiled("__global__ void k() { nothing; }\n"))


@needs_nvdisasm
def test_code_is_disassembled_beside_other_work_and_once(compiled) -> None:
    code = compiled(TEXT)
    first, second = disassembling(code), disassembling(code)
    assert first == second
    assert "STS" in first()
    assert first() is second()


@needs_nvdisasm
def test_what_nvdisasm_cannot_read_is_told_by_whoever_waits_for_it(compiled) -> None:
    waits = disassembling(replace(compiled(TEXT), cubin=b"not a CUBIN"))
    with pytest.raises(CompilerUnavailable, match="nvdisasm failed"):
        waits()


@needs_nvdisasm
@pytest.mark.skipif(sys.platform != "linux", reason="files without names")
def test_nothing_lies_in_the_temporary_folder_that_a_kill_would_leave(compiled, tmp_path, monkeypatch) -> None:
    version = compiled(TEXT.replace("float", "double"))
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(empty))
    running = module._Running(find_tool("nvdisasm"), version.cubin, ())
    assert list(empty.iterdir()) == []
    assert "EXIT" in running.text()
