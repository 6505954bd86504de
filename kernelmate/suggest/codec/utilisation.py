"""Utilisation of the GPU by a launch, because other rewrites pay off with few threads than with many."""

from __future__ import annotations

from math import prod

from kernelmate.compiler.targets import sm_limits
from kernelmate.errors import KernelmateError
from kernelmate.source import launch_shape
from kernelmate.suggest.codec.base import NotEncodable, Question
from kernelmate.suggest.codec.chat import request_of

FILLS = (0.0625, 0.25, 1, 4)
"""Thresholds of launch threads over threads resident on the GPU."""


def fill_tokens() -> tuple[str, ...]:
    """Special tokens of how full the GPU is."""
    return *(f"@fill<={bound:g}" for bound in FILLS), "@fill-more"


def filled(question: Question) -> list[str]:
    """Returns the token for the size whose time counts; none if the launch or the GPU is unknown."""
    try:
        request = request_of(question)
        size = request.contract.sizes[0] if question.size is None else question.size
        shape = launch_shape(request.contract, size)
        target = request.target
        held = target.sms * sm_limits(target.capability).threads_per_sm
    except (KernelmateError, NotEncodable):
        return []
    share = prod(shape.grid) * shape.threads / held
    bound = next((bound for bound in FILLS if share <= bound), None)
    return ["@fill-more" if bound is None else f"@fill<={bound:g}"]
