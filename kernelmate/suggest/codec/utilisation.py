"""Utilisation of the GPU by a launch: rewrites that pay with few threads differ from those that pay with many."""

from __future__ import annotations

from math import prod

from kernelmate.compiler.targets import sm_limits
from kernelmate.errors import KernelmateError
from kernelmate.source import launch_shape
from kernelmate.suggest.codec.base import NotEncodable, Question
from kernelmate.suggest.codec.chat import request_of

FILLS = (0.0625, 0.25, 1, 4)
"""Threads of the launch over threads that the GPU holds at once."""


def fill_tokens() -> tuple[str, ...]:
    """Special tokens of how full the GPU is."""
    return *(f"@fill<={bound:g}" for bound in FILLS), "@fill-more"


def filled(question: Question) -> list[str]:
    """The token for the size at which time counts; none where the launch or the GPU is not known."""
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
