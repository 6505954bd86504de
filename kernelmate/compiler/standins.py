"""Replacements for headers of host libraries (such as torch and cuBLAS) whose types device code uses."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from pathlib import Path

_TORCH = re.compile(r"(?:torch|ATen|c10|THC?|caffe2)/")
_NUMBERS = re.compile(r"cublas|cusparse|cusolver|cufft|cudnn|nccl|cutensor|npp")
_NUMBER_WORD = re.compile(r"(?i).*(?:half|bfloat|complex|fp16|bf16)")
_TYPES = {
    **{f"cufft{name}": meant for name, meant in (
        ("Real", "float"), ("DoubleReal", "double"), ("Complex", "cuComplex"), ("DoubleComplex", "cuDoubleComplex"),
    )},
    **{f"Npp{bits}{kind}": f"{sign} {meant}" for bits, meant in ((8, "char"), (16, "short"), (32, "int"), (64, "long long"))
       for kind, sign in (("u", "unsigned"), ("s", "signed"))},
    "Npp32f": "float",
    "Npp64f": "double",
    "NppiSize": "struct { int width, height; }",
    "NppiPoint": "struct { int x, y; }",
    "NppiRect": "struct { int x, y, width, height; }",
}  # fmt: skip
"""Types of cuFFT and NPP that device code uses, by the documentation of `cufft.h` and `nppdefs.h`."""

_TORCH_WORD = re.compile(r"at|c10|torch|(?:C10|AT|CUDA_KERNEL|WARP)_\w+|gpuAtomic\w+|getLaneId|ACTIVE_MASK|int64_t")
_SECTION = re.compile(r"^// section (\w+)\n", re.MULTILINE)
_PROVIDED = re.compile(
    r"cuda\.h|cuda_runtime|device_launch_parameters|driver_|cuda_profiler|cudaProfiler|nvtx3|nvToolsExt"
)

TORCH_HEADER = "kernelmate_torch.h"
NUMBERS_HEADER = "kernelmate_numbers.h"
_NUMBERS_TEXT = "#pragma once\n#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n#include <cuComplex.h>\n"

CUTLASS_HOST = ("cutlass/core_io.h",)
"""Headers of CUTLASS for host code that its device headers include."""

CUTLASS_STD = frozenset({"tuple", "pair"})
"""Names of `std::` that CUTLASS uses under NVRTC without including their libcu++ headers."""


def standin_for(name: str, words: Collection[str]) -> str | None:
    """Returns the stand-in for a host library's header; None if device code with these words needs none."""
    if is_torch(name):
        used = any(_TORCH_WORD.fullmatch(word) or _NUMBER_WORD.match(word) for word in words)
        return TORCH_HEADER if used else None
    if _NUMBERS.match(name) and any(word in _TYPES or _NUMBER_WORD.match(word) for word in words):
        return NUMBERS_HEADER
    return None


def is_torch(name: str) -> bool:
    """Returns True for a header of torch, ATen or c10."""
    return _TORCH.match(name) is not None


def is_told(name: str) -> bool:
    """Returns True if a note reports that a host library's header is left out.

    Headers whose declarations NVRTC or the prelude provides are not reported.
    """
    return not _PROVIDED.match(name)


def standin_text(name: str, words: Collection[str], declared: Collection[str]) -> str:
    """Returns a stand-in's text.

    Args:
        name: the name of the stand-in.
        words: the words of the device code; a function whose name is not among them is left out.
        declared: names that the user's files declare; the stand-in does not declare them again.
    """
    if name == NUMBERS_HEADER:
        types = [one for one in _TYPES if one in words and one not in declared]
        return _NUMBERS_TEXT + "".join(f"typedef {_TYPES[one]} {one};\n" for one in types)
    base, *sections = _SECTION.split(_torch_text())
    pairs = zip(sections[::2], sections[1::2], strict=True)
    return base + "".join(text for section, text in pairs if _is_wanted(section, words) and section not in declared)


def _is_wanted(section: str, words: Collection[str]) -> bool:
    return section in words or any("tomicAdd" in section and "tomicAdd" in word for word in words)


@functools.cache
def torch_names() -> frozenset[str]:
    """Returns the words of the stand-in for torch's headers."""
    return frozenset(re.findall(r"[^\W\d]\w*", _torch_text()))


@functools.cache
def _torch_text() -> str:
    return Path(__file__).with_name("standin_torch.h").read_text(encoding="utf-8")
