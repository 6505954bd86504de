"""Replaces a name that the compiler does not know by the most similar known one.

Names come from the unit itself, from C++ and from CUDA. Names that differ only in case or underscores (`threadidx`,
`__sync_threads`) come first.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

from kernelmate.source import apply_edits
from kernelmate.source.tokens import lex
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite
from kernelmate.suggest.repairs.base import COMPILE, FaultLocation, Repair, compile_errors
from kernelmate.suggest.syntax import Edit

_UNKNOWN = re.compile(r'identifier "(\w+)" is undefined')
_NO_MEMBER = re.compile(r'(?:class|struct|union) "([^"]+)" has no member "(\w+)"')
_BUILT_INS = frozenset(
    {"uint3", "dim3", "float2", "float3", "float4", "int2", "int3", "int4", "double2", "uint2", "uint4"}
)
NEAR = 0.72
"""Smallest similarity of two names (difflib's ratio), for names of at least four letters."""
NEAR_SHORT = 0.6
MOST = 3

WORDS = re.findall(
    r"\S+",
    "bool break case char const constexpr continue default do double else extern false float for if inline int "
    "long return short signed sizeof static struct switch template true typename unsigned using void volatile "
    "while size_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t float2 float3 float4 int2 "
    "int3 int4 uint2 uint3 uint4 double2 dim3 make_float2 make_float3 make_float4 make_int2 make_int4 "
    "threadIdx blockIdx blockDim gridDim warpSize __shared__ __restrict__ __device__ __forceinline__ "
    "__syncthreads __syncwarp __threadfence __threadfence_block __ldg __shfl_sync __shfl_up_sync "
    "__shfl_down_sync __shfl_xor_sync __ballot_sync __any_sync __all_sync __activemask __popc __clz __ffs "
    "atomicAdd atomicSub atomicMax atomicMin atomicExch atomicCAS atomicAnd atomicOr atomicXor atomicInc "
    "atomicDec min max abs fabs fabsf fmin fminf fmax fmaxf sqrt sqrtf rsqrt rsqrtf exp expf exp2f log logf "
    "log2f log10f pow powf sin sinf cos cosf tan tanf tanh tanhf erf erff floor floorf ceil ceilf round roundf "
    "rint rintf fma fmaf fmodf hypotf isnan isinf sincosf __expf __logf __sinf __cosf __powf __fdividef "
    "__frcp_rn __fsqrt_rn __float2half __half2float __float2half_rn __hadd __hmul __hfma __float2bfloat16 "
    "__bfloat162float INFINITY NAN printf assert ",
)
"""Names of C++ and of CUDA that kernels use."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields a candidate with every unknown name replaced by the most similar one, then others for the first name."""
    known = _known(request)
    wrong = list(_unknown(request))
    near = {name: near_names(name, known - {other for other, _ in wrong}) for name, _ in wrong}
    best = {name: found[0] for name, found in near.items() if found}
    members = [one for spot in compile_errors(request) if (one := _member(request, spot)) is not None]
    if best or members:
        edits = _renamed(request, best) + [edit for edit, _ in members]
        whys = [f"`{name}` is not declared; `{new}` is." for name, new in best.items()] + [why for _, why in members]
        yield Rewrite(
            apply_edits(request.kernel, list(dict.fromkeys(edits))), request.contract, " ".join(dict.fromkeys(whys))
        )
    for name, found in list(near.items())[:1]:
        for other in found[1:]:
            why = f"`{name}` is not declared; `{other}` is."
            yield Rewrite(apply_edits(request.kernel, _renamed(request, best | {name: other})), request.contract, why)


REPAIR = Repair("misspelt-name", ("correct",), (), rewrites, COMPILE)


def near_names(name: str, known: set[str]) -> list[str]:
    """Returns known names that are similar to a misspelt one, the most similar first."""
    folded = _folded(name)
    same = sorted(other for other in known if other != name and _folded(other) == folded)
    near = difflib.get_close_matches(name, sorted(known - {name}), n=MOST, cutoff=NEAR if len(name) > 3 else NEAR_SHORT)
    return list(dict.fromkeys([*same, *near]))[:MOST]


def _folded(name: str) -> str:
    return name.replace("_", "").lower()


def _known(request: SuggestRequest) -> set[str]:
    """Returns the words of the unit's code, and those of C++ and CUDA."""
    tokens = lex(request.kernel.unit.text).tokens
    return {token.text for token in tokens if token.kind == "word"} | set(WORDS)


def _unknown(request: SuggestRequest) -> Iterator[tuple[str, FaultLocation]]:
    seen = set()
    for spot in compile_errors(request):
        found = _UNKNOWN.match(spot.message)
        if found and found[1] not in seen:
            seen.add(found[1])
            yield found[1], spot


def _member(request: SuggestRequest, spot: FaultLocation) -> tuple[Edit, str] | None:
    """Returns the edit of a misspelt member such as `threadIdx.X`, and its reason; None for other messages."""
    found = _NO_MEMBER.match(spot.message)
    text = request.kernel.unit.text
    if found is None or text[spot.offset : spot.offset + len(found[2])] != found[2]:
        return None
    members = set("xyzw") if found[1] in _BUILT_INS else set(re.findall(r"(?:\.|->)\s*(\w+)", text))
    near = near_names(found[2], members)
    if not near:
        return None
    return (
        spot.offset,
        spot.offset + len(found[2]),
        near[0],
    ), f"{found[1]} has no `{found[2]}`, but it has `{near[0]}`."


def _renamed(request: SuggestRequest, changes: dict[str, str]) -> list[Edit]:
    tokens = lex(request.kernel.unit.text).tokens
    return [(t.start, t.end, changes[t.text]) for t in tokens if t.kind == "word" and t.text in changes]
