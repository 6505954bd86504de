"""Messages for unsupported instructions: the PTX name, and the remedy."""

from __future__ import annotations

_ON_A_GPU = "judge this kernel on a GPU (--backend cuda)"
_INSTEAD = {
    ("tex", "tld4", "txq", "istypep"): "textures: read the array through a const pointer (__ldg) instead",
    ("suld", "sust", "sured", "suq"): "surfaces: read and write the array through a pointer instead",
    ("wmma",): "the fragments of mma.h: use mma.sync with ldmatrix, which it knows, or " + _ON_A_GPU,
    ("wgmma", "tcgen05", "mma.sp"): "matrix instructions of one GPU generation: use mma.sync, or " + _ON_A_GPU,
    ("cp.async.bulk", "cp.reduce.async.bulk", "mbarrier.arrive.expect_tx", "mbarrier.expect_tx", "mbarrier.complete_tx"):
        "bulk copies (TMA): use cp.async, which cuda::memcpy_async makes of sizes without aligned_size_t<16>, or " + _ON_A_GPU,
    ("mapa", "getctarank", "barrier.cluster"): "other blocks of a cluster: go through global memory, or " + _ON_A_GPU,
    ("alloca", "stacksave", "stackrestore"): "memory of a size known only at run time: use an array of a fixed size instead",
    ("discard",): "it gives up what a cache line holds: leave it out, it changes no result that may be read",
    ("atom", "red"): "add the parts one by one, or " + _ON_A_GPU,
}  # fmt: skip


def spelled(opcode: str) -> str:
    """An opcode as PTX writes it."""
    return opcode.replace("__", "::")


def refusal(opcode: str, detail: str = "") -> str:
    """Returns the message for an unsupported instruction; `detail` names the unsupported part."""
    name = spelled(opcode)
    instead = next(
        (text for names, text in _INSTEAD.items() if any(f"{name}.".startswith(f"{start}.") for start in names)),
        _ON_A_GPU,
    )
    more = f" ({spelled(detail)})" if detail and detail != opcode else ""
    return f"the PTX instruction {name} is not supported by the emulator{more}; {instead}"
